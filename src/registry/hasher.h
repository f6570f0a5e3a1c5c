/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SHA-256 of a file that is being written: a thread reads behind the writer, as far as it is told that the bytes
 * are there, so that the digest is known about when the last byte is.
 */
#ifndef REGISTRY_HASHER_H
#define REGISTRY_HASHER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hasher hasher;

int     hasher_open(hasher **out, int fd, int64_t size, err *e); /* fd is borrowed */
void    hasher_allow(hasher *h, int64_t bytes);                  /* so many from the beginning are there for good */
int64_t hasher_done(hasher *h);                                  /* bytes hashed */
bool    hasher_ready(hasher *h);                                 /* hasher_result will not wait */
int     hasher_result(hasher *h, uint8_t sum[32], err *e);       /* waits; all bytes were allowed */
void    hasher_free(hasher *h);                                  /* accepts NULL; at any time */

#endif

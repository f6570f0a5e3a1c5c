/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), fed in pieces of any size. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

typedef struct sha256 {
    uint32_t h[8];
    uint8_t  block[64];
    uint64_t bytes; /* fed so far */
} sha256;

void sha256_init(sha256 *s);
void sha256_feed(sha256 *s, const void *data, size_t bytes);
void sha256_finish(sha256 *s, uint8_t out[SHA256_BYTES]);

#endif

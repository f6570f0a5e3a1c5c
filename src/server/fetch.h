/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures by address, where the server's settings allow them: https, from hosts on a list, without redirects, within limits
 * of size and time, and only from public addresses. That is asked of the address that is about to be connected to, so a
 * name that changes its mind between two look-ups gains nothing.
 */
#ifndef SERVER_FETCH_H
#define SERVER_FETCH_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct fetch_rules {
    const char *const *hosts; /* "name", "name:port", "*.name"; none: nothing is fetched */
    size_t             n_hosts;
    const char *const *networks; /* that may be reached although they are not public */
    size_t             n_networks;
    const char        *ca_file; /* certificates instead of the system's; NULL */
} fetch_rules;

int fetch_rules_check(const fetch_rules *r, err *e); /* whether the lists can be read */
/* Waits: some seconds at most. out is empty before. */
int fetch_file(const fetch_rules *r, view url, size_t most_bytes, str *out, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The part of an address behind the question mark. */
#ifndef SERVER_HTTP_QUERY_H
#define SERVER_HTTP_QUERY_H

#include "base/str.h"

#include <stdbool.h>

/* %2F and its kind become what they stand for, + stays. false: it does not fit, or ends in the middle of one. */
bool query_decode(view in, char *out, size_t cap);
/* The value of a name, decoded; false: it is not there, or does not fit. */
bool query_get(view query, const char *name, char *out, size_t cap);

#endif

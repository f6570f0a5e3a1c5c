/* SPDX-License-Identifier: Apache-2.0 */
/* The part of an address behind the question mark. */
#ifndef SERVER_HTTP_QUERY_H
#define SERVER_HTTP_QUERY_H

#include "base/str.h"

#include <stdbool.h>

/* The value of a name; %2F and its kind become what they stand for, + stays. false: it is not there, does not fit, or is
 * not well formed. */
bool query_get(view query, const char *name, char *out, size_t cap);

#endif

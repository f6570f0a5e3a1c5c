/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as base64 text, with padding. */
#ifndef SERVER_HTTP_BASE64_H
#define SERVER_HTTP_BASE64_H

#include "base/str.h"

void base64_put(str *out, const void *data, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP headers that pulls look at. Servers are not trusted: everything is bounded, and what is odd is "not there".
 */
#ifndef REGISTRY_HEADERS_H
#define REGISTRY_HEADERS_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* "bytes 0-99/1000"; an asterisk in the place of 1000 leaves the whole unsaid (-1). Last is the last byte, included. */
bool header_content_range(view value, int64_t *first, int64_t *last, int64_t *total);

/* Retry-After: seconds, or a date, as seconds from now (never negative; a past date is 0). */
bool header_retry_after(const char *value, int64_t now, int64_t *seconds);

/* Link: the target of rel="next", as it is written there; false if there is none. */
bool header_link_next(view value, str *out);

/* WWW-Authenticate: Bearer realm="...",service="...",scope="...". False if it is none or has no realm. */
bool header_challenge(view value, str *realm, str *service, str *scope);

/* What pulls keep of an answer's head. */
typedef struct http_head {
    int     status;
    int64_t content_length; /* -1: not said */
    int64_t range_first, range_last, range_total;
    bool    has_range;
    int64_t retry_after;                             /* seconds; -1: not said */
    int64_t linked_size;                             /* x-linked-size: of the file behind a redirect; -1 */
    char    etag[160], linked_etag[160], commit[80]; /* without quotes; "" if not said or weak */
    char   *location, *link, *challenge;             /* NULL if not said; owned */
} http_head;

void http_head_reset(http_head *h);  /* frees, then "nothing said"; accepts a zeroed one */
void http_head_deinit(http_head *h); /* accepts a zeroed one */
/* One line as it came, status line included (which resets). */
void http_head_line(http_head *h, view line, int64_t now);

#endif

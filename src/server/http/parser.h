/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 requests, strictly and incrementally.
 *
 * Bytes go in as they arrive, split anywhere; the result does not depend on where. Whatever two programs could
 * read differently is refused instead of interpreted, because that is what request smuggling is made of: a message with
 * both Content-Length and Transfer-Encoding or with either of them twice, a coding other than `chunked`, signs, hex
 * prefixes or spaces in sizes, a bare LF or CR, NUL, folded header lines, a space before the colon, more than one Host,
 * an absolute target that names another host. After an error the parser takes nothing more: the connection must close.
 *
 * A request is complete in memory: head (at most head_bytes) and body (at most body_bytes); where `no_limit` says so of
 * a head, the body may have any length, and the caller empties request->body while it arrives. Trailers and chunk
 * extensions are checked and dropped.
 */
#ifndef SERVER_HTTP_PARSER_H
#define SERVER_HTTP_PARSER_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MAX_HEADERS = 100, HTTP_MAX_LINE = 8192 };

typedef struct http_request http_request;

typedef struct http_limits {
    size_t head_bytes, body_bytes;
    bool (*no_limit)(const http_request *r); /* NULL: of none */
} http_limits;

typedef struct http_header {
    view name; /* lower case */
    view value;
} http_header;

struct http_request {
    view        method;
    view        path;  /* percent-decoded, begins with '/' (or is "*") */
    view        query; /* behind the '?', as sent */
    int         minor; /* HTTP/1.minor */
    http_header headers[HTTP_MAX_HEADERS];
    size_t      n_headers;
    view        host; /* empty if there is none (HTTP/1.0) */
    bool        keep_alive, chunked, expect_continue;
    uint64_t    content_length; /* 0 for chunked */
    str         body;

    bool no_limit; /* of the body */

    str head, decoded; /* what the views point into */
};

void        http_request_free(http_request *r);                        /* accepts NULL */
const view *http_request_get(const http_request *r, const char *name); /* by lower-case name; NULL: absent */

typedef enum http_event {
    HTTP_MORE,     /* needs further bytes */
    HTTP_HEAD,     /* the head is complete: parser->request may be judged; feed on for the body */
    HTTP_COMPLETE, /* the body is complete too */
    HTTP_ERROR,    /* parser->status and parser->reason; sticky */
} http_event;

typedef struct http_parser {
    http_limits   limits;
    http_request *request; /* NULL between requests */
    int           status;  /* of the answer to an error */
    const char   *reason;

    int      state;
    size_t   line, scan; /* offsets in the head: where the current line begins, where the search for its end goes on */
    uint64_t left;       /* of the body or the chunk */
    size_t   trailer_bytes;
    str      small; /* a chunk-size or trailer line */
} http_parser;

void http_parser_init(http_parser *p, http_limits limits);
void http_parser_deinit(http_parser *p);

/* Takes at most n bytes; *used says how many. Call again with the rest unless the answer was HTTP_MORE. */
http_event http_parser_feed(http_parser *p, const char *data, size_t n, size_t *used);

/* After HTTP_COMPLETE: hands the request to the caller and gets ready for the next one. */
http_request *http_parser_take(http_parser *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP requests, pipelined, split where the first byte says; a complete body is read as JSON too. Splitting must not
 * change what comes out: the same bytes go in whole and in pieces, and both must agree.
 */
#include "server/http/json_in.h"
#include "server/http/parser.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct outcome {
    int      requests, status;
    uint64_t sum; /* of everything that came out */
} outcome;

static void mix(outcome *o, const char *p, size_t n) {
    o->sum = o->sum * 31 + n;
    for (size_t i = 0; i < n; i++) o->sum = o->sum * 131 + (unsigned char)p[i];
}

static void read_body(const http_request *r) {
    json_doc doc;
    err      e;
    str      text;
    if (json_doc_parse(&doc, str_cstr(&r->body), r->body.len, &e) < 0) return;
    node root = node_root(&doc);
    str_init(&text);
    node_write(&root, &text);
    str_deinit(&text);
    json_doc_deinit(&doc);
}

static outcome run(const char *text, size_t len, size_t step) {
    outcome     o = { 0 };
    http_parser p;
    size_t      at = 0;
    http_parser_init(&p, (http_limits){ .head_bytes = 2048, .body_bytes = 4096 });
    for (;;) {
        size_t     used, n = len - at < step ? len - at : step;
        http_event ev = http_parser_feed(&p, text + at, n, &used);
        if (used > n) abort();
        at += used;
        if (ev == HTTP_ERROR) {
            o.status = p.status;
            break;
        }
        if (ev == HTTP_COMPLETE) {
            http_request *r = http_parser_take(&p);
            o.requests++;
            mix(&o, r->method.data, r->method.len);
            mix(&o, r->path.data, r->path.len);
            mix(&o, r->query.data, r->query.len);
            mix(&o, str_cstr(&r->body), r->body.len);
            for (size_t i = 0; i < r->n_headers; i++) {
                mix(&o, r->headers[i].name.data, r->headers[i].name.len);
                mix(&o, r->headers[i].value.data, r->headers[i].value.len);
            }
            read_body(r);
            http_request_free(r);
        } else if (ev == HTTP_MORE && at == len) {
            break;
        }
    }
    http_parser_deinit(&p);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 8192) return 0;
    char *text = malloc(size);
    if (!text) return 0;
    memcpy(text, data, size);
    outcome whole = run(text + 1, size - 1, size), pieces = run(text + 1, size - 1, 1 + data[0] % 32);
    free(text);
    if (whole.requests != pieces.requests || whole.status != pieces.status || whole.sum != pieces.sum) abort();
    return 0;
}

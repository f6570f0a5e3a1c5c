/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of forms with files (multipart/form-data, RFC 7578): parts between lines that no part contains.
 *
 * Strict where two programs could read a body differently: nothing before the first line and nothing behind the last
 * one, names once and in quotes or as plain words, no encodings, no part that contains a line that only begins like
 * the one between. Views point into the body, which stays as it is.
 */
#ifndef SERVER_HTTP_MULTIPART_H
#define SERVER_HTTP_MULTIPART_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

enum { MULTIPART_MAX_PARTS = 64, MULTIPART_MAX_HEAD = 2048, MULTIPART_MAX_BOUNDARY = 70 };

typedef struct multipart {
    view   body;
    char   line[MULTIPART_MAX_BOUNDARY + 5]; /* "\r\n--" and the boundary */
    size_t n_line, at;
    int    n_parts;
} multipart;

typedef struct multipart_part {
    view name, data;
    bool file; /* it says a file's name */
} multipart_part;

bool multipart_is(view content_type); /* "multipart/form-data" */
/* ERR_FORMAT: what is wrong with the header or the body. */
int multipart_open(multipart *m, view content_type, view body, err *e);
/* 1: a part; 0: there is none left. */
int multipart_next(multipart *m, multipart_part *out, err *e);

#endif

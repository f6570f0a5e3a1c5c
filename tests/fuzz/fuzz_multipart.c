/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forms with files: the first line is the header, the rest the body. What is read lies in the body, one part behind the other, and
 * written again in the plainest form it is read as the same.
 */
#include "base/str.h"
#include "server/http/multipart.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = MULTIPART_MAX_PARTS };

/* The parts, or -1. */
static int read_all(view type, view body, multipart_part parts[MOST]) {
    multipart m;
    err       e;
    int       n = 0, rc = multipart_open(&m, type, body, &e);
    if (rc < 0 && !e.msg[0]) abort();
    while (rc == 0) {
        multipart_part p;
        if ((rc = multipart_next(&m, &p, &e)) != 1) break;
        if (n == MOST || p.name.data < body.data || p.data.data < p.name.data + p.name.len ||
            p.data.data + p.data.len > body.data + body.len)
            abort();
        parts[n++] = p;
        rc = 0;
    }
    return rc < 0 ? -1 : n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static multipart_part parts[MOST], again[MOST];
    char                 *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    const char *end = memchr(text, '\n', size);
    if (end) {
        view type = { text, (size_t)(end - text) }, body = { end + 1, size - type.len - 1 };
        int  n = read_all(type, body, parts);
        if (n > 0) {
            multipart m;
            err       e;
            str       out;
            str_init(&out);
            (void)multipart_open(&m, type, body, &e);
            for (int i = 0; i < n; i++) {
                str_append(&out, m.line + (i ? 0 : 2), m.n_line - (i ? 0 : 2));
                str_printf(&out, "\r\nContent-Disposition: form-data; name=\"%.*s\"%s\r\n\r\n", (int)parts[i].name.len,
                           parts[i].name.data, parts[i].file ? "; filename=\"x\"" : "");
                str_append(&out, parts[i].data.data, parts[i].data.len);
            }
            str_append(&out, m.line, m.n_line);
            str_puts(&out, "--\r\n");
            if (read_all(type, (view){ str_cstr(&out), out.len }, again) != n) abort();
            for (int i = 0; i < n; i++) {
                if (again[i].file != parts[i].file || again[i].name.len != parts[i].name.len ||
                    again[i].data.len != parts[i].data.len ||
                    memcmp(again[i].name.data, parts[i].name.data, parts[i].name.len) != 0 ||
                    memcmp(again[i].data.data, parts[i].data.data, parts[i].data.len) != 0)
                    abort();
            }
            str_deinit(&out);
        }
    }
    free(text);
    return 0;
}

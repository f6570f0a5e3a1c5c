/* SPDX-License-Identifier: Apache-2.0 */
/* How an answer looks on a connection of HTTP/1: its head, then one body or chunks. */
#include "server/error_table.h"
#include "server/internal.h"

#include <string.h>

/* In HTTP's own words, whatever the locale. */
static void put_date(str *out) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t            now = time(NULL);
    struct tm         t;
    if (!gmtime_r(&now, &t)) return;
    str_printf(out, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday, t.tm_mday,
               months + 3 * t.tm_mon, t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

void answer_put_fields(const exchange *x, str *out) {
    const exchange_core *c = x->core;
    put_date(out);
    str_printf(out, "X-Request-Id: %s\r\n", x->id);
    if (x->route->api->id_header) str_printf(out, "%s: %s\r\n", x->route->api->id_header, x->id);
    str_append(out, str_cstr(&c->headers), c->headers.len);
    if (c->ignored.len && c->status < 400) str_printf(out, "X-Hearth-Ignored: %s\r\n", str_cstr(&c->ignored));
}

static void put_head(const exchange *x, str *out, bool chunked) {
    const exchange_core *c = x->core;
    str_printf(out, "HTTP/1.1 %d %s\r\n", c->status, error_status_of(c->status)->text);
    bool bare = c->status == 204 || c->status == 304; /* has no body, whatever its length would be */
    if (!bare) str_printf(out, "Content-Type: %s\r\n", c->type);
    if (chunked)
        str_puts(out, "Transfer-Encoding: chunked\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    else if (!c->streaming && !bare)
        str_printf(out, "Content-Length: %zu\r\n", c->out.len);
    answer_put_fields(x, out);
    str_puts(out, c->close ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n");
}

typedef struct size_line {
    char text[20]; /* "1f\r\n", at the end */
} size_line;

static struct iovec chunk_size(size_line *line, size_t bytes) {
    size_t at = sizeof line->text - 2;
    line->text[at] = '\r';
    line->text[at + 1] = '\n';
    do line->text[--at] = "0123456789abcdef"[bytes & 15];
    while (bytes >>= 4);
    return (struct iovec){ line->text + at, sizeof line->text - at };
}

/* Head, chunk and end go out in one system call; the parts stay where they are. */
bool answer_send(sink *k, exchange *x, bool last) {
    static char    line_end[] = "\r\n", stream_end[] = "0\r\n\r\n";
    exchange_core *c = x->core;
    bool           old = x->http && x->http->minor == 0, chunked = c->streaming && !old;
    str            head;
    struct iovec   parts[5];
    size_line      size;
    int            n = 0;
    if (old && c->streaming) c->close = true; /* HTTP/1.0 has no chunks: the end of the connection is the end */
    str_init(&head);
    if (!c->head_sent) {
        put_head(x, &head, chunked);
        parts[n++] = (struct iovec){ head.data, head.len };
    }
    if (c->out.len && !c->head_only) {
        if (chunked) parts[n++] = chunk_size(&size, c->out.len);
        parts[n++] = (struct iovec){ c->out.data, c->out.len };
        if (chunked) parts[n++] = (struct iovec){ line_end, sizeof line_end - 1 };
    }
    if (last && chunked) parts[n++] = (struct iovec){ stream_end, sizeof stream_end - 1 };
    bool ok = str_ok(&head) && str_ok(&c->out);
    if (ok && n) conn_write_parts((conn *)k, parts, n);
    str_deinit(&head);
    return ok;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dev/windows.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 30 };

static int cut_windows(windows *w, size_t size) {
    w->n = w->ids.count / size;
    if (!(w->start = calloc(w->n + 1, sizeof *w->start))) return -1;
    for (size_t i = 0; i <= w->n; i++) w->start[i] = i * size;
    return 0;
}

int windows_text(windows *w, const tok *t, const char *path, size_t ctx, err *e) {
    char  *text = NULL;
    size_t bytes = 0;
    int    rc = file_read(&text, &bytes, path, MAX_TEXT_BYTES, e);
    if (rc == 0) rc = tok_encode(t, text, bytes, 0, &w->ids, e);
    free(text);
    if (rc < 0) return rc;
    if (w->ids.count < 4) return err_set(e, ERR_ARG, "%s: a text of %zu tokens is too short", path, w->ids.count);
    return cut_windows(w, w->ids.count < ctx ? w->ids.count : ctx) < 0 ? err_set_nomem(e) : 0;
}

/* One line of --documents. */
static int read_document(windows *w, const tok *t, const char *line, size_t bytes, size_t ctx, err *e) {
    arena             mem;
    const json_value *v = NULL;
    size_t            before = w->ids.count;
    int               rc;
    arena_init(&mem, 0);
    if ((rc = json_parse(&v, line, bytes, &mem, e)) < 0) goto done;
    const json_value *text = v->kind == JSON_K_OBJECT ? json_get(v, "text") : v;
    if (!text || text->kind != JSON_K_STRING) {
        rc = err_set(e, ERR_FORMAT, "expected a string, or an object with a string \"text\"");
        goto done;
    }
    if ((rc = tok_encode(t, text->u.string.data, text->u.string.len, TOK_PARSE_SPECIAL, &w->ids, e)) < 0) goto done;
    size_t  pieces = (w->ids.count - before + ctx - 1) / ctx;
    size_t *more = realloc(w->start, (w->n + pieces + 1) * sizeof *more);
    if (!more) {
        rc = err_set_nomem(e);
        goto done;
    }
    w->start = more;
    for (size_t i = 0; i < pieces; i++) w->start[w->n++] = before + i * ctx;
    w->start[w->n] = w->ids.count;
done:
    arena_deinit(&mem);
    return rc;
}

int windows_documents(windows *w, const tok *t, const char *path, size_t ctx, err *e) {
    char  *text = NULL;
    size_t bytes = 0, number = 1;
    int    rc = file_read(&text, &bytes, path, MAX_TEXT_BYTES, e);
    for (const char *at = text, *end = text + bytes; rc == 0 && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t      n = (size_t)((stop ? stop : end) - at);
        if (n > 0 && (rc = read_document(w, t, at, n, ctx, e)) < 0) rc = err_wrap(e, rc, "%s, line %zu", path, number);
        at += n + 1;
    }
    free(text);
    return rc == 0 && w->n == 0 ? err_set(e, ERR_ARG, "%s does not contain a document", path) : rc;
}

int windows_check(const windows *w, int n_vocab, err *e) {
    for (size_t i = 0; i < w->ids.count; i++) {
        if (w->ids.data[i] < 0 || w->ids.data[i] >= n_vocab)
            return err_set(e, ERR_FORMAT, "the tokenizer produced token %d, but the model has only %d tokens",
                           w->ids.data[i], n_vocab);
    }
    return 0;
}

void windows_deinit(windows *w) {
    tok_ids_deinit(&w->ids);
    free(w->start);
    *w = (windows){ 0 };
}

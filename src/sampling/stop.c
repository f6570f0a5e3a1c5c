/* SPDX-License-Identifier: Apache-2.0 */
#include "sampling/stop.h"

#include <stdint.h>

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 256 }; /* more than a piece usually has: feeding then allocates nothing */

struct stop_matcher {
    view  *strings;
    size_t count;
    str    held; /* text not yet given out; no stop string lies wholly in it */
    int    reached;
};

int stop_open(stop_matcher **out, const char *const *strings, const size_t *lengths, size_t count, err *e) {
    *out = NULL;
    stop_matcher *m = calloc(1, sizeof *m);
    if (!m) return err_set_nomem(e);
    m->reached = -1;
    m->strings = calloc(count ? count : 1, sizeof *m->strings);
    for (size_t i = 0; m->strings && i < count; i++) {
        char *copy = lengths[i] ? malloc(lengths[i]) : NULL;
        if (!copy) {
            int rc = lengths[i] ? err_set_nomem(e) : err_set(e, ERR_ARG, "stop: string %zu is empty", i + 1);
            stop_free(m);
            return rc;
        }
        memcpy(copy, strings[i], lengths[i]);
        m->strings[m->count++] = (view){ copy, lengths[i] };
    }
    size_t longest = 0;
    for (size_t i = 0; i < m->count; i++) longest = m->strings[i].len > longest ? m->strings[i].len : longest;
    if (!m->strings || !str_reserve(&m->held, longest + PIECE_BYTES)) {
        stop_free(m);
        return err_set_nomem(e);
    }
    *out = m;
    return 0;
}

void stop_free(stop_matcher *m) {
    if (!m) return;
    for (size_t i = 0; i < m->count; i++) free((void *)(uintptr_t)m->strings[i].data);
    free(m->strings);
    str_deinit(&m->held);
    free(m);
}

/* Whether the text from `at` on equals the string as far as both go; *whole: the string ends within the text. */
static bool agrees(const str *text, size_t at, view string, bool *whole) {
    size_t left = text->len - at;
    *whole = left >= string.len;
    return memcmp(text->data + at, string.data, *whole ? string.len : left) == 0;
}

int stop_feed(stop_matcher *m, const char *text, size_t bytes, str *out) {
    if (m->reached >= 0) return m->reached;
    str_append(&m->held, text, bytes);
    out->failed |= m->held.failed;
    for (size_t at = 0; at < m->held.len; at++) {
        bool possible = false;
        int  best = -1;
        for (size_t i = 0; i < m->count; i++) {
            bool whole;
            if (!agrees(&m->held, at, m->strings[i], &whole)) continue;
            if (!whole)
                possible = true;
            else if (best < 0 || m->strings[i].len > m->strings[best].len)
                best = (int)i;
        }
        if (best >= 0) {
            str_append(out, m->held.data, at);
            str_clear(&m->held);
            m->reached = best;
            return best;
        }
        if (possible) { /* everything from here on waits */
            str_append(out, m->held.data, at);
            memmove(m->held.data, m->held.data + at, m->held.len - at + 1);
            m->held.len -= at;
            return -1;
        }
    }
    str_append(out, m->held.data, m->held.len);
    str_clear(&m->held);
    return -1;
}

void stop_finish(stop_matcher *m, str *out) {
    if (m->reached < 0) str_append(out, m->held.data, m->held.len);
    str_clear(&m->held);
}

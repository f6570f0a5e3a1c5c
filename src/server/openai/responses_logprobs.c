/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/responses_logprobs.h"

#include "server/openai/openai.h"

#include <stdlib.h>

void waiting_deinit(waiting *w) {
    str_deinit(&w->json);
    free(w->list);
}

void waiting_drop(waiting *w) {
    str_clear(&w->json);
    w->n = 0;
}

void waiting_add(waiting *w, const runtime_event *token) {
    if (w->n == w->capacity) {
        size_t         more = w->capacity ? 2 * w->capacity : 16;
        waiting_token *grown = realloc(w->list, more * sizeof *grown);
        if (!grown) {
            w->failed = true;
            return;
        }
        w->list = grown;
        w->capacity = more;
    }
    w->list[w->n++] = (waiting_token){ w->json.len, token->bytes.len };
    jw out = { &w->json, true };
    openai_put_logprob(&out, token, false);
}

void waiting_take(waiting *w, bool first, size_t bytes, str *out) {
    size_t from = w->n, sum = 0;
    while (from > 0 && (!first || sum < bytes)) sum += w->list[--from].bytes;
    size_t at = from < w->n ? w->list[from].at : w->json.len;
    if (!out->len && at < w->json.len) at++; /* the comma */
    str_append(out, str_cstr(&w->json) + at, w->json.len - at);
    waiting_drop(w);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/bound.h"

#include "nn/bind.h"

#include <string.h>

void bind_record(nn_binder *b, const nn_mat *mat, const char *gguf, const char *hf, const bind_wish *w) {
    if (b->failed || !b->file) return;
    nn_bound *n = arena_calloc(b->mem, 1, sizeof *n);
    char     *names[4] = { arena_strdup(b->mem, b->gguf_prefix), arena_strdup(b->mem, b->hf_prefix),
                       gguf ? arena_strdup(b->mem, gguf) : NULL, hf ? arena_strdup(b->mem, hf) : NULL };
    if (!n || !names[0] || !names[1] || (gguf && !names[2]) || (hf && !names[3])) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return;
    }
    *n = (nn_bound){ .mat = mat,
                     .gguf_prefix = names[0],
                     .hf_prefix = names[1],
                     .gguf = names[2],
                     .hf = names[3],
                     .rows = mat->rows,
                     .first = w->first,
                     .total = w->flags & NN_AT_LEAST ? mat->rows : w->total,
                     .stack = w->stack,
                     .rotary = w->flags & NN_ROTARY,
                     .at_least = w->flags & NN_AT_LEAST,
                     .next = b->model->bound };
    /* The same matrix under the head's name: the embedding is bound before. */
    for (const nn_bound *o = n->next; o && gguf && strcmp(gguf, "output") == 0; o = o->next)
        n->head = n->head || o->mat == mat;
    b->model->bound = n;
}

void bind_record_vec(nn_binder *b, const nn_vec *vec, const char *hf, unsigned flags) {
    if (b->failed || !vec) return;
    nn_bound_vec *n = arena_calloc(b->mem, 1, sizeof *n);
    char         *prefix = arena_strdup(b->mem, b->hf_prefix), *names = hf ? arena_strdup(b->mem, hf) : NULL;
    if (!n || !prefix || (hf && !names)) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return;
    }
    *n = (nn_bound_vec){ .vec = vec, .hf_prefix = prefix, .hf = names, .flags = flags, .next = b->model->bound_vecs };
    b->model->bound_vecs = n;
}

void bind_record_runs(nn_binder *b, int parts, int part, const nn_run *runs, int n_runs) {
    nn_bound *n = b->model->bound;
    if (b->failed || !b->file || !n) return;
    int32_t *rows = arena_calloc(b->mem, (size_t)n->rows, sizeof *rows);
    int64_t  at = 0;
    if (!rows) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return;
    }
    for (int i = 0; i < n_runs; i++) {
        for (int p = 0; p < parts; p++) {
            for (int r = 0; r < runs[i].n && at < n->rows; r++) rows[at++] = (int32_t)(p * part + runs[i].first + r);
        }
    }
    n->hf_rows = rows;
    n->hf_total = (int64_t)parts * part;
}

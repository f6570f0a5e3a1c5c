/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simple.h"

#include "backend/backend.h"
#include "base/page.h"

#include <stdlib.h>
#include <string.h>

int simple_open(simple *s, const char *device, const nn_model *m, const simple_options *o, err *e) {
    const nn_backend *backend;
    nn_device         found;
    *s = (simple){ .n_seq = o->n_seq > 0 ? o->n_seq : 1,
                   .max_len = o->max_len,
                   .max_tokens = o->max_tokens > 0 ? o->max_tokens : 256,
                   .page_tokens = o->page_tokens > 0 ? o->page_tokens : PAGE_TOKENS };
    s->max_pages = (s->max_len + s->page_tokens - 1) / s->page_tokens;
    nn_exec_options x = { .limits = { .max_tokens = s->max_tokens,
                                      .max_seqs = s->n_seq,
                                      .max_outputs = s->max_tokens,
                                      .page_tokens = s->page_tokens,
                                      .max_pages = s->max_pages,
                                      .n_pages = s->n_seq * s->max_pages,
                                      .n_slots = s->n_seq },
                          .k_type = o->k_type,
                          .v_type = o->v_type,
                          .precise_layers = o->precise_layers,
                          .k_open = o->k_open,
                          .n_threads = o->n_threads,
                          .steady = o->steady,
                          .cpu = o->cpu,
                          .observe = o->observe,
                          .observe_ctx = o->observe_ctx,
                          .expert_bytes = o->expert_bytes,
                          .reader = o->reader };
    size_t          t = (size_t)s->max_tokens, n = (size_t)s->n_seq;
    int             rc = backend_find(device, &backend, &found, e);
    if (rc < 0) return rc;
    s->len = calloc(n, sizeof *s->len);
    s->token = calloc(t, sizeof *s->token);
    s->pos = calloc(t, sizeof *s->pos);
    s->seq_of = calloc(t, sizeof *s->seq_of);
    s->out_rows = calloc(t, sizeof *s->out_rows);
    s->adapter = calloc(t, sizeof *s->adapter);
    s->q_start = calloc(n + 1, sizeof *s->q_start);
    s->kv_len = calloc(n, sizeof *s->kv_len);
    s->slot = calloc(n, sizeof *s->slot);
    s->pages = calloc(n * (size_t)s->max_pages + 1, sizeof *s->pages);
    rc = s->len && s->token && s->pos && s->seq_of && s->out_rows && s->adapter && s->q_start && s->kv_len && s->slot &&
                 s->pages
             ? backend->open(&s->exec, &found, m, &x, e)
             : err_set_nomem(e);
    if (rc < 0) simple_close(s);
    return rc;
}

void simple_close(simple *s) {
    nn_exec_free(s->exec);
    free(s->len);
    free(s->token);
    free(s->pos);
    free(s->seq_of);
    free(s->out_rows);
    free(s->q_start);
    free(s->kv_len);
    free(s->slot);
    free(s->pages);
    free(s->adapter);
    free(s->rows);
    *s = (simple){ 0 };
}

int simple_batch(simple *s, const simple_feed *feeds, int n_feeds, err *e) {
    int  t = 0, n_out = 0, total = s->n_seq * s->max_pages;
    bool sets = false;
    if (n_feeds > s->n_seq) return err_set(e, ERR_ARG, "%d feeds for %d sequences", n_feeds, s->n_seq);
    for (int f = 0; f < n_feeds; f++) {
        int seq = feeds[f].seq;
        if (seq < 0 || seq >= s->n_seq || t + feeds[f].n > s->max_tokens || feeds[f].n <= 0)
            return err_set(e, ERR_LIMIT, "feed %d does not fit a step of %d tokens", f, s->max_tokens);
        if (s->len[seq] + feeds[f].n > s->max_len)
            return err_set(e, ERR_LIMIT, "sequence %d would be longer than %d", seq, s->max_len);
        s->q_start[f] = t;
        for (int i = 0; i < feeds[f].n; i++, t++) {
            s->token[t] = feeds[f].ids[i];
            s->pos[t] = s->len[seq] + i;
            s->seq_of[t] = f;
            s->adapter[t] = s->pos[t] >= feeds[f].set_from ? feeds[f].set : 0;
            sets = sets || s->adapter[t];
            if (feeds[f].all || i == feeds[f].n - 1) s->out_rows[n_out++] = t;
        }
        s->len[seq] += feeds[f].n;
        s->kv_len[f] = s->len[seq];
        s->slot[f] = seq;
        for (int p = 0; p < s->max_pages; p++) s->pages[f * s->max_pages + p] = total - 1 - (p * s->n_seq + seq);
    }
    s->q_start[n_feeds] = t;
    s->batch = (nn_batch){ .n_tok = t,
                           .n_seq = n_feeds,
                           .n_out = n_out,
                           .token = s->token,
                           .pos = s->pos,
                           .seq_of = s->seq_of,
                           .q_start = s->q_start,
                           .kv_len = s->kv_len,
                           .pages_stride = s->max_pages,
                           .state_slot = s->slot,
                           .out_rows = s->out_rows,
                           .adapter = sets ? s->adapter : NULL };
    for (int g = 0; g < NN_MAX_GROUPS; g++) s->batch.pages[g] = s->pages;
    return 0;
}

int simple_step(simple *s, const simple_feed *feeds, int n_feeds, err *e) {
    int rc = simple_batch(s, feeds, n_feeds, e);
    return rc < 0 ? rc : nn_exec_step(s->exec, &s->batch, e);
}

void simple_reset(simple *s, int seq) { s->len[seq] = 0; }

const float *simple_fetch(simple *s, nn_fetch_what what, err *e) {
    int64_t n = what == NN_FETCH_LOGITS ? s->batch.n_out - s->batch.n_hidden : s->batch.n_out;
    size_t  floats = (size_t)(n * nn_exec_width(s->exec, what));
    if (floats > s->cap_rows) {
        float *grown = realloc(s->rows, floats * sizeof *grown);
        if (!grown) {
            err_set_nomem(e);
            return NULL;
        }
        s->rows = grown;
        s->cap_rows = floats;
    }
    return s->exec->backend->fetch(s->exec, what, 0, n, s->rows, e) < 0 ? NULL : s->rows;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The activation arena by liveness, the hazard scan, and the layers' page groups. */
#include "nn/plan.h"

#include "base/num.h"
#include "nn/divide.h"

#include <stdlib.h>
#include <string.h>

typedef struct life {
    int    first, last; /* ops */
    size_t bytes;
} life;

static bool buf_bytes(const nn_buf_info *b, const nn_limits *l, size_t *out) {
    size_t   rows = nn_rows_max(l, b), n;
    uint64_t padded;
    if (!num_mul_size(rows, (size_t)b->width, &n) || !num_mul_size(n, sizeof(float), &n) ||
        !num_align_up(n, 64, &padded))
        return false;
    *out = (size_t)padded;
    return true;
}

/* The lowest place where a buffer of this life fits between the placed ones. */
static size_t place(const life *lives, const size_t *offset, const int *placed, int n_placed, int b) {
    size_t at = 0;
    bool   moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < n_placed; i++) {
            int  o = placed[i];
            bool together = lives[o].first <= lives[b].last && lives[b].first <= lives[o].last;
            bool overlap = at < offset[o] + lives[o].bytes && offset[o] < at + lives[b].bytes;
            if (together && overlap) {
                at = offset[o] + lives[o].bytes;
                moved = true;
            }
        }
    }
    return at;
}

static void live_through(life *lives, const nn_tape *t) {
    nn_mixture m;
    for (int from = 0; nn_mixture_next(t, from, &m); from = m.sum + 1) {
        for (int b = 1; b < t->n_bufs; b++) {
            if (lives[b].last < m.first || lives[b].first > m.last) continue;
            if (lives[b].first > m.first) lives[b].first = m.first;
            if (lives[b].last < m.last) lives[b].last = m.last;
        }
    }
}

int nn_plan_arena(nn_plan *p, const nn_tape *t, const nn_limits *l, bool waves, arena *mem, err *e) {
    life *lives = calloc((size_t)t->n_bufs, sizeof *lives);
    int  *placed = calloc((size_t)t->n_bufs, sizeof *placed);
    int   n_placed = 0, rc = 0;
    *p = (nn_plan){ .offset = arena_calloc(mem, (size_t)t->n_bufs, sizeof *p->offset) };
    if (!lives || !placed || !p->offset) {
        rc = err_set_nomem(e);
        goto done;
    }
    for (int b = 1; b < t->n_bufs; b++) {
        lives[b] = (life){ t->n_ops, -1, 0 };
        if (!buf_bytes(&t->bufs[b], l, &lives[b].bytes)) {
            rc =
                err_set(e, ERR_LIMIT, "an activation of %lld values per row is too large", (long long)t->bufs[b].width);
            goto done;
        }
    }
    for (int i = 0; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        for (int k = -1; k < NN_MAX_IN; k++) {
            int b = k < 0 ? op->out : op->in[k];
            if (!b) continue;
            if (i < lives[b].first) lives[b].first = i;
            if (i > lives[b].last) lives[b].last = i;
        }
    }
    if (waves) live_through(lives, t);
    if (t->logits) lives[t->logits].last = t->n_ops;
    if (t->hidden) lives[t->hidden].last = t->n_ops;
    if (t->inner) lives[t->inner].last = t->n_ops;
    for (int b = 1; b < t->n_bufs; b++) { /* buffers are numbered in the order of their first use */
        if (lives[b].last < 0) continue;
        /* Those that died long ago cannot matter again: births rise. Keep the list short. */
        int keep = 0;
        for (int i = 0; i < n_placed; i++) {
            if (lives[placed[i]].last >= lives[b].first) placed[keep++] = placed[i];
        }
        n_placed = keep;
        p->offset[b] = place(lives, p->offset, placed, n_placed, b);
        placed[n_placed++] = b;
        if (p->offset[b] + lives[b].bytes > p->bytes) p->bytes = p->offset[b] + lives[b].bytes;
    }
done:
    free(lives);
    free(placed);
    return rc;
}

bool nn_hazards_next(nn_hazards *h, const nn_span *spans, int n) {
    bool meet = h->n + n > NN_MAX_HAZARDS;
    for (int i = 0; i < n && !meet; i++) {
        for (int k = 0; k < h->n && !meet; k++) {
            const nn_span *a = &spans[i], *b = &h->since[k];
            meet = (a->write || b->write) && a->lo < b->hi && b->lo < a->hi;
        }
    }
    if (meet) h->n = 0;
    for (int i = 0; i < n && h->n < NN_MAX_HAZARDS; i++) h->since[h->n++] = spans[i];
    return meet;
}

int nn_groups_make(nn_groups *g, const nn_model *m, arena *mem, err *e) {
    *g = (nn_groups){ .n = 1, .whole = nn_model_whole(m) };
    g->of_layer = arena_calloc(mem, (size_t)m->dims->n_layer, sizeof *g->of_layer);
    if (!g->of_layer) return err_set_nomem(e);
    for (int i = 0; i < m->dims->n_layer; i++) {
        const nn_state *s = &m->state[i];
        int             window = s->kind == NN_STATE_WINDOW ? s->window : 0, k = 0;
        g->of_layer[i] = -1;
        if (s->kind == NN_STATE_NONE || s->kind == NN_STATE_STEP) continue;
        while (k < g->n && g->window[k] != window) k++;
        if (k == g->n) {
            if (g->n == NN_MAX_GROUPS)
                return err_set(e, ERR_UNSUPPORTED, "layers with more than %d different windows", NN_MAX_GROUPS - 1);
            g->window[g->n++] = window;
        }
        g->of_layer[i] = k;
    }
    return 0;
}

bool nn_model_whole(const nn_model *m) {
    for (int i = 0; i < m->dims->n_layer; i++) {
        if (m->state[i].kind == NN_STATE_STEP) return true;
    }
    return false;
}

size_t nn_state_conv_floats(const nn_state *s) {
    return s->conv_kernel > 1 ? (size_t)s->conv_channels * (size_t)(s->conv_kernel - 1) : 0;
}

size_t nn_state_fixed_floats(const nn_state *s) {
    return nn_state_conv_floats(s) + (size_t)s->rec_heads * (size_t)s->rec_dim_k * (size_t)s->rec_dim_v;
}

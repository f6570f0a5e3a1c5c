/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters with scales, prepared for the ops of a tape. */
#include "nn/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int nn_adapter_start(const nn_adapter *a, const int32_t *tokens, int n) {
    int k = a->n_invocation;
    if (k == 0) return 0;
    for (int at = n - k; at >= 0; at--) {
        if (memcmp(tokens + at, a->invocation, (size_t)k * sizeof *tokens) == 0) return at;
    }
    return n;
}

/* The matrix of an op, and whether its rows are looked up. */
static const nn_mat *matrix_of(const nn_op *op, bool *embed) {
    *embed = op->kind == NN_OP_EMBED;
    if (*embed) return op->u.embed.table;
    return op->kind == NN_OP_LINEAR || op->kind == NN_OP_EXPERTS ? op->u.linear.w : NULL;
}

static float *ones(nn_adapter_set *s, int64_t n) {
    float *v = arena_alloc(&s->mem, (size_t)n * sizeof *v);
    for (int64_t i = 0; v && i < n; i++) v[i] = 1;
    return v;
}

/* DoRA's g at this scale. */
static float *dora_gain(nn_adapter_set *s, const nn_patch *p, double c) {
    float *g = arena_alloc(&s->mem, (size_t)p->mat->rows * sizeof *g);
    for (int64_t r = 0; g && r < p->mat->rows; r++) {
        double norm = sqrt((double)p->w2[r] + 2 * c * (double)p->wd[r] + c * c * (double)p->d2[r]);
        g[r] = norm > 0 ? (float)((double)p->magnitude[r] / norm) : 0;
    }
    return g;
}

static bool multiply(nn_adapter_set *s, const float **to, const float *l, int64_t n, double c) {
    float *v = *to ? (float *)(uintptr_t)*to : ones(s, n);
    for (int64_t i = 0; v && i < n; i++) v[i] *= (float)(1 + c * ((double)l[i] - 1));
    *to = v;
    return v != NULL;
}

/* Adds one adapter's patch to an op; false: out of memory. */
static bool add_patch(nn_adapter_set *s, nn_set_op *o, const nn_patch *p, float c) {
    int64_t rows = p->mat->rows;
    if (p->lora) {
        nn_set_part *part = &o->parts[o->n_parts++];
        int          rank = 0;
        for (int e = 0; e < (p->mat->n_stack ? p->mat->n_stack : 1); e++)
            rank = p->lora[e].rank > rank ? p->lora[e].rank : rank;
        *part = (nn_set_part){ .patch = p, .scale = c, .at = o->rank };
        o->rank += rank;
        if (p->magnitude && !(part->gain = dora_gain(s, p, (double)c))) return false;
        if (p->magnitude) {
            float *g = o->gain ? (float *)(uintptr_t)o->gain : ones(s, rows);
            for (int64_t r = 0; g && r < rows; r++) g[r] += part->gain[r] - 1;
            o->gain = g;
            if (!g) return false;
        }
    }
    if (p->in_gain && !multiply(s, &o->in_gain, p->in_gain, p->mat->cols, (double)c)) return false;
    if (!p->out_gain) return true;
    return multiply(s, &o->bias_gain, p->out_gain, rows, (double)c);
}

/* Gains of DoRA add up, those of IA3 multiply all of it. */
static bool finish_gain(nn_adapter_set *s, nn_set_op *o, int64_t rows) {
    if (!o->bias_gain) return true;
    float *g = o->gain ? (float *)(uintptr_t)o->gain : ones(s, rows);
    for (int64_t r = 0; g && r < rows; r++) g[r] *= o->bias_gain[r];
    o->gain = g;
    return g != NULL;
}

static int make_op(nn_adapter_set *s, const nn_op *op, const nn_set_op **out, err *e) {
    bool          embed;
    const nn_mat *mat = matrix_of(op, &embed);
    nn_set_op    *o = NULL;
    for (int u = 0; mat && u < s->n_uses; u++) {
        const nn_adapter *a = s->uses[u].adapter;
        for (int i = 0; i < a->n_patches; i++) {
            if (a->patches[i].mat != mat || a->patches[i].embed != embed) continue;
            if (!o && !(o = arena_calloc(&s->mem, 1, sizeof *o))) return err_set_nomem(e);
            if (!add_patch(s, o, &a->patches[i], s->uses[u].scale)) return err_set_nomem(e);
        }
    }
    if (!o) return 0;
    if (!finish_gain(s, o, mat->rows)) return err_set_nomem(e);
    s->rank = o->rank > s->rank ? o->rank : s->rank;
    s->gains = s->gains || o->gain;
    s->in_gains = s->in_gains || o->in_gain;
    *out = o;
    return 0;
}

static void make_key(nn_adapter_set *s) {
    sha256 h;
    sha256_init(&h);
    for (int i = 0; i < s->n_uses; i++) {
        uint8_t type = (uint8_t)s->uses[i].adapter->type;
        sha256_feed(&h, s->uses[i].adapter->key, SHA256_BYTES);
        sha256_feed(&h, &type, sizeof type);
        sha256_feed(&h, &s->uses[i].scale, sizeof s->uses[i].scale);
    }
    sha256_finish(&h, s->key);
}

int nn_adapter_set_open(nn_adapter_set **out, const nn_model *m, const nn_adapter_use *uses, int n, err *e) {
    const nn_tape *t = m->tape;
    int            rc = 0;
    *out = NULL;
    if (n < 1 || n > NN_SET_MOST)
        return err_set(e, ERR_LIMIT, "%d adapters at once; at most %d are possible", n, NN_SET_MOST);
    for (int i = 0; i < n; i++) {
        if (!isfinite(uses[i].scale) || uses[i].scale == 0)
            return err_set(e, ERR_ARG, "the scale of an adapter must be a finite number other than 0");
        if (uses[i].adapter->n_invocation && n > 1)
            return err_set(e, ERR_UNSUPPORTED, "an activated adapter cannot be used together with others");
    }
    nn_adapter_set *s = calloc(1, sizeof *s);
    if (!s) return err_set_nomem(e);
    arena_init(&s->mem, 0);
    memcpy(s->uses, uses, (size_t)n * sizeof *uses);
    s->n_uses = n;
    s->ops = arena_calloc(&s->mem, (size_t)t->n_ops, sizeof *s->ops);
    if (!s->ops) rc = err_set_nomem(e);
    for (int i = 0; i < t->n_ops && rc == 0; i++) rc = make_op(s, &t->ops[i], &s->ops[i], e);
    if (rc == 0) {
        make_key(s);
        *out = s;
    } else {
        nn_adapter_set_free(s);
    }
    return rc;
}

void nn_adapter_set_free(nn_adapter_set *s) {
    if (!s) return;
    arena_deinit(&s->mem);
    free(s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend's ops that remember: attention, recurrences; and expert routing. */
#include "backend/scalar/scalar.h"

#include <math.h>
#include <string.h>

size_t scalar_slot_of(const scalar_exec *x, int layer, int s, int64_t p) {
    const nn_batch *b = &x->base.batch;
    if (x->base.x.model->state[layer].kind == NN_STATE_STEP) return (size_t)(b->q_start[s] + p);
    int     pt = x->base.x.options.limits.page_tokens;
    int32_t page = b->pages[x->base.x.groups.of_layer[layer]][(size_t)s * (size_t)b->pages_stride + (size_t)(p / pt)];
    return (size_t)page * (size_t)pt + (size_t)(p % pt);
}

void scalar_kv_store(scalar_exec *x, const nn_op *op) {
    const nn_batch *b = &x->base.batch;
    scalar_layer   *y = &x->layers[op->layer];
    const float    *k = local_buf(&x->base, op->in[0]), *v = local_buf(&x->base, op->in[1]);
    for (int t = 0; t < b->n_tok; t++) {
        size_t at = scalar_slot_of(x, op->layer, b->seq_of[t], b->pos[t]);
        memcpy(y->k + at * (size_t)y->k_width, k + t * y->k_width, (size_t)y->k_width * sizeof *k);
        memcpy(y->v + at * (size_t)y->v_width, v + t * y->v_width, (size_t)y->v_width * sizeof *v);
    }
}

/* The positions that row t sees where it sees its whole input, its span of it, or so far to both sides. */
static void sees_around(const nn_batch *b, int t, const nn_attn_spec *a, int64_t *lo, int64_t *hi) {
    int64_t len = b->kv_len[b->seq_of[t]], reach = a->reach;
    if (a->spans && b->row_begin) {
        *lo = b->row_begin[t];
        *hi = b->row_end[t];
        return;
    }
    *lo = reach && b->pos[t] > reach ? (int64_t)b->pos[t] - reach : 0;
    *hi = reach && b->pos[t] + reach + 1 < len ? (int64_t)b->pos[t] + reach + 1 : len;
}

/* What is added to a score. */
static double bias_of(const nn_attn_spec *a, int head, int64_t distance) {
    if (!a->bias) return 0;
    int64_t wide = a->bias->n / a->n_head, reach = wide / 2;
    int64_t d = distance < -reach ? -reach : distance > reach ? reach : distance;
    return a->bias->data[head * wide + reach + d];
}

/* What the query of row t and the key at position j say about their distance. */
static double apart_of(const scalar_exec *x, const nn_attn_spec *a, int t, int head, int64_t j) {
    const nn_apart *p = &a->apart;
    const nn_batch *b = &x->base.batch;
    if (!p->which) return 0;
    int64_t      d = j - b->pos[t], n = p->n, wide = n * a->n_head, reach = p->which->n / 2;
    int64_t      which = (int64_t)p->which->data[reach + (d < -reach ? -reach : d > reach ? reach : d)];
    const float *q = local_buf(&x->base, p->q) + t * wide;
    const float *k = local_buf(&x->base, p->k) + (b->q_start[b->seq_of[t]] + j) * wide;
    return (double)q[head * n + which] + (double)k[head * n + which];
}

/* The first position that row t sees, and the one behind its last. */
static int64_t sees_from(const nn_batch *b, int t, const nn_attn_spec *a) {
    int64_t from = (int64_t)b->pos[t] + 1 - a->window;
    if (a->chunk) return (int64_t)b->pos[t] / a->chunk * a->chunk;
    if (a->window > 0 && b->row_begin && !a->strict && b->row_begin[t] < from) return b->row_begin[t];
    return a->window > 0 && from > 0 ? from : 0;
}
static int64_t sees_to(const nn_batch *b, int t, const nn_attn_spec *a) {
    int64_t to = b->row_end && !a->strict ? b->row_end[t] : (int64_t)b->pos[t] + 1;
    return a->until && a->until < to ? a->until : to;
}

/* score[j] for positions lo..hi becomes its softmax; the sink takes part in the sum only. */
static void softmax(double *score, int64_t lo, int64_t hi, const float *sink) {
    double max = sink ? (double)*sink : -INFINITY, sum = 0;
    for (int64_t j = lo; j < hi; j++) max = fmax(max, score[j]);
    if (sink) sum = exp(*sink - max);
    for (int64_t j = lo; j < hi; j++) sum += score[j] = exp(score[j] - max);
    for (int64_t j = lo; j < hi; j++) score[j] /= sum;
}

void scalar_attention(scalar_exec *x, const nn_op *op) {
    const nn_attn_spec *a = &op->u.attn;
    const nn_batch     *b = &x->base.batch;
    scalar_layer       *y = &x->layers[op->layer];
    const float        *q = local_buf(&x->base, op->in[0]);
    float              *out = local_buf(&x->base, op->out);
    for (int t = 0; t < b->n_tok; t++) {
        int64_t lo = sees_from(b, t, a), hi = sees_to(b, t, a);
        if (x->base.x.model->state[op->layer].kind == NN_STATE_STEP) sees_around(b, t, a, &lo, &hi);
        for (int h = 0; h < a->n_head; h++) {
            int          g = h / (a->n_head / a->n_kv);
            const float *qh = q + ((int64_t)t * a->n_head + h) * a->dim_k;
            float       *oh = out + ((int64_t)t * a->n_head + h) * a->dim_v;
            for (int64_t j = lo; j < hi; j++) {
                const float *k = y->k + scalar_slot_of(x, op->layer, b->seq_of[t], j) * (size_t)y->k_width +
                                 (size_t)g * (size_t)a->dim_k;
                double sum = 0;
                for (int i = 0; i < a->dim_k; i++) sum += (double)qh[i] * (double)k[i];
                sum = (sum + apart_of(x, a, t, h, j)) * a->scale;
                x->score[j] = a->softcap != 0 ? a->softcap * tanh(sum / a->softcap) : sum;
                x->score[j] += bias_of(a, h, j - b->pos[t]);
                if (a->alibi) x->score[j] -= (double)a->alibi[h] * fabs((double)(b->pos[t] - j));
            }
            scalar_keep_chosen(x, &a->choice, t, g, a->n_kv, hi);
            softmax(x->score, lo, hi, a->sinks ? &a->sinks->data[h] : NULL);
            for (int i = 0; i < a->dim_v; i++) {
                double sum = 0;
                for (int64_t j = lo; j < hi; j++)
                    sum +=
                        x->score[j] * (double)y->v[scalar_slot_of(x, op->layer, b->seq_of[t], j) * (size_t)y->v_width +
                                                   (size_t)(g * a->dim_v + i)];
                oh[i] = (float)sum;
            }
        }
    }
}

void scalar_latent_attention(scalar_exec *x, const nn_op *op) {
    const nn_attn_spec *a = &op->u.attn; /* dim_k: latent, dim_v: rotated part */
    const nn_batch     *b = &x->base.batch;
    scalar_layer       *y = &x->layers[op->layer];
    const float        *q = local_buf(&x->base, op->in[0]), *qr = local_buf(&x->base, op->in[1]);
    float              *out = local_buf(&x->base, op->out);
    for (int t = 0; t < b->n_tok; t++) {
        int64_t hi = sees_to(b, t, a);
        for (int h = 0; h < a->n_head; h++) {
            const float *qh = q + ((int64_t)t * a->n_head + h) * a->dim_k,
                        *qrh = qr + ((int64_t)t * a->n_head + h) * a->dim_v;
            float *oh = out + ((int64_t)t * a->n_head + h) * a->dim_k;
            for (int64_t j = 0; j < hi; j++) {
                size_t at = scalar_slot_of(x, op->layer, b->seq_of[t], j);
                double sum = 0;
                for (int i = 0; i < a->dim_k; i++)
                    sum += (double)qh[i] * (double)y->k[at * (size_t)a->dim_k + (size_t)i];
                for (int i = 0; i < a->dim_v; i++)
                    sum += (double)qrh[i] * (double)y->v[at * (size_t)a->dim_v + (size_t)i];
                x->score[j] = sum * a->scale;
            }
            scalar_keep_chosen(x, &a->choice, t, 0, 1, hi);
            softmax(x->score, 0, hi, NULL);
            for (int i = 0; i < a->dim_k; i++) {
                double sum = 0;
                for (int64_t j = 0; j < hi; j++)
                    sum += x->score[j] *
                           (double)y->k[scalar_slot_of(x, op->layer, b->seq_of[t], j) * (size_t)a->dim_k + (size_t)i];
                oh[i] = (float)sum;
            }
        }
    }
}

static float *fixed_of(scalar_exec *x, int layer, int s) {
    return x->layers[layer].fixed + (size_t)x->base.batch.state_slot[s] * x->layers[layer].fixed_floats;
}

/* State: [kernel - 1][channels], oldest first. */
void scalar_conv(scalar_exec *x, const nn_op *op) {
    const nn_batch *b = &x->base.batch;
    const nn_state *st = &x->base.x.model->state[op->layer];
    int             kernel = op->u.conv.kernel, width = (int)x->base.x.model->tape->bufs[op->out].width;
    const float    *in = local_buf(&x->base, op->in[0]);
    float          *out = local_buf(&x->base, op->out);
    for (int t = 0; t < b->n_tok; t++) {
        float *state = fixed_of(x, op->layer, b->seq_of[t]) + op->u.conv.channel0;
        for (int c = 0; c < width; c++) {
            const float *w = op->u.conv.w->data + (int64_t)c * kernel;
            double       sum = op->u.conv.bias ? (double)op->u.conv.bias->data[c] : 0.0;
            for (int i = 0; i < kernel - 1; i++)
                sum += (double)w[i] * (double)state[(int64_t)i * st->conv_channels + c];
            sum += (double)w[kernel - 1] * (double)in[(int64_t)t * width + c];
            out[(int64_t)t * width + c] = (float)scalar_act(op->u.conv.act, sum);
            for (int i = 0; i + 2 < kernel; i++)
                state[(int64_t)i * st->conv_channels + c] = state[(int64_t)(i + 1) * st->conv_channels + c];
            if (kernel > 1) state[(int64_t)(kernel - 2) * st->conv_channels + c] = in[(int64_t)t * width + c];
        }
    }
}

void scalar_delta(scalar_exec *x, const nn_op *op) {
    const nn_delta_spec *d = &op->u.delta;
    const nn_batch      *b = &x->base.batch;
    const float         *q = local_buf(&x->base, op->in[0]), *k = local_buf(&x->base, op->in[1]),
                *v = local_buf(&x->base, op->in[2]);
    const float *g = local_buf(&x->base, op->in[3]), *beta = local_buf(&x->base, op->in[4]);
    float       *out = local_buf(&x->base, op->out);
    bool         per_channel = x->base.x.model->tape->bufs[op->in[3]].width != d->heads_v;
    for (int t = 0; t < b->n_tok; t++) {
        float *state = fixed_of(x, op->layer, b->seq_of[t]) + nn_state_conv_floats(&x->base.x.model->state[op->layer]);
        for (int h = 0; h < d->heads_v; h++) {
            int          kh = d->k_tiled ? h % d->heads_k : h / (d->heads_v / d->heads_k);
            const float *qh = q + ((int64_t)t * d->heads_k + kh) * d->dim_k,
                        *kv = k + ((int64_t)t * d->heads_k + kh) * d->dim_k;
            float *s = state + (int64_t)h * d->dim_k * d->dim_v;
            for (int i = 0; i < d->dim_k; i++) {
                double decay =
                    exp(per_channel ? g[((int64_t)t * d->heads_v + h) * d->dim_k + i] : g[(int64_t)t * d->heads_v + h]);
                for (int j = 0; j < d->dim_v; j++) s[i * d->dim_v + j] = (float)(s[i * d->dim_v + j] * decay);
            }
            for (int j = 0; j < d->dim_v; j++) {
                int64_t at = ((int64_t)t * d->heads_v + h) * d->dim_v + j;
                double  sum = 0, y = 0;
                for (int i = 0; i < d->dim_k; i++) sum += (double)kv[i] * (double)s[i * d->dim_v + j];
                double u = ((double)v[at] - sum) * (double)beta[(int64_t)t * d->heads_v + h];
                for (int i = 0; i < d->dim_k; i++) {
                    s[i * d->dim_v + j] = (float)(s[i * d->dim_v + j] + kv[i] * u);
                    y += (double)qh[i] * (double)d->scale * (double)s[i * d->dim_v + j];
                }
                out[at] = (float)y;
            }
        }
    }
}

void scalar_ssm(scalar_exec *x, const nn_op *op) {
    const nn_ssm_spec *s = &op->u.ssm;
    const nn_batch    *b = &x->base.batch;
    const float       *in = local_buf(&x->base, op->in[0]), *vb = local_buf(&x->base, op->in[1]),
                *vc = local_buf(&x->base, op->in[2]);
    const float *dts = op->in[3] ? local_buf(&x->base, op->in[3]) : NULL;
    float       *out = local_buf(&x->base, op->out);
    for (int t = 0; t < b->n_tok; t++) {
        float *state = fixed_of(x, op->layer, b->seq_of[t]) + nn_state_conv_floats(&x->base.x.model->state[op->layer]);
        for (int h = 0; h < s->n_head; h++) {
            int          g = h / (s->n_head / s->n_group);
            const float *bb = vb + ((int64_t)t * s->n_group + g) * s->n_state,
                        *cc = vc + ((int64_t)t * s->n_group + g) * s->n_state;
            double dt = dts ? scalar_act(NN_ACT_SOFTPLUS, (double)dts[(int64_t)t * s->n_head + h] +
                                                              (s->dt_bias ? (double)s->dt_bias->data[h] : 0.0))
                            : 1.0;
            if (s->dt_max > 0) dt = fmin(dt, s->dt_max);
            dt = fmax(dt, s->dt_min);
            double decay = exp(dt * s->a->data[h]);
            float *st = state + (int64_t)h * s->n_state * s->dim;
            for (int j = 0; j < s->dim; j++) {
                int64_t at = ((int64_t)t * s->n_head + h) * s->dim + j;
                double  y = s->d ? (double)s->d->data[h] * (double)in[at] : 0.0;
                for (int i = 0; i < s->n_state; i++) {
                    st[i * s->dim + j] = (float)(decay * st[i * s->dim + j] + bb[i] * dt * in[at]);
                    y += (double)cc[i] * (double)st[i * s->dim + j];
                }
                out[at] = (float)y;
            }
        }
    }
}

void scalar_scan(scalar_exec *x, const nn_op *op) {
    const nn_scan_spec *s = &op->u.scan;
    const nn_batch     *b = &x->base.batch;
    const float        *in = local_buf(&x->base, op->in[0]), *vb = local_buf(&x->base, op->in[1]),
                *vc = local_buf(&x->base, op->in[2]), *dts = local_buf(&x->base, op->in[3]);
    float *out = local_buf(&x->base, op->out);
    for (int t = 0; t < b->n_tok; t++) {
        float *state = fixed_of(x, op->layer, b->seq_of[t]) + nn_state_conv_floats(&x->base.x.model->state[op->layer]);
        const float *bb = vb + (int64_t)t * s->n_state, *cc = vc + (int64_t)t * s->n_state;
        for (int c = 0; c < s->n_channel; c++) {
            int64_t at = (int64_t)t * s->n_channel + c;
            double  dt = scalar_act(NN_ACT_SOFTPLUS, (double)dts[at] + (double)s->dt_bias->data[c]);
            double  y = (double)s->d->data[c] * (double)in[at];
            for (int i = 0; i < s->n_state; i++) {
                float *st = state + (int64_t)i * s->n_channel + c;
                *st = (float)(exp(dt * (double)s->a->data[(int64_t)c * s->n_state + i]) * *st + bb[i] * dt * in[at]);
                y += (double)cc[i] * (double)*st;
            }
            out[at] = (float)y;
        }
    }
}

/* --- routing ---------------------------------------------------------------------------------------------------- */

/* Index of the largest entry of v[0..n) that is not marked; the lower index wins. */
static int best(const double *v, const bool *taken, int n) {
    int at = -1;
    for (int i = 0; i < n; i++) {
        if (!taken[i] && (at < 0 || v[i] > v[at])) at = i;
    }
    return at;
}

static void mask_groups(const nn_op *op, const double *choice, bool *taken) {
    int    per = op->u.route.n_expert / op->u.route.n_group;
    double value[NN_MAX_EXPERTS];
    bool   used[NN_MAX_EXPERTS] = { false }, none[NN_MAX_EXPERTS];
    for (int g = 0; g < op->u.route.n_group; g++) {
        memset(none, 0, sizeof none);
        int a = best(choice + g * per, none, per);
        none[a] = true;
        int b = per > 1 ? best(choice + g * per, none, per) : -1;
        value[g] = choice[g * per + a] + (b >= 0 && !op->u.route.group_best ? choice[g * per + b] : 0.0);
    }
    for (int i = 0; i < op->u.route.top_group; i++) used[best(value, used, op->u.route.n_group)] = true;
    for (int e = 0; e < op->u.route.n_expert; e++) taken[e] = !used[e / per];
}

static void put_choice(const nn_op *op, float *out, int k, int32_t id, double w) {
    w *= op->u.route.scale;
    if (op->u.route.expert_scale) w *= op->u.route.expert_scale->data[id];
    memcpy(&out[k * 2], &id, sizeof id);
    out[k * 2 + 1] = (float)w;
}

/* Twice the best that is left; its weight is its share among those that come near it. */
static void route_sparsemixer(const nn_op *op, const float *logits, float *out) {
    double v[NN_MAX_EXPERTS];
    bool   taken[NN_MAX_EXPERTS] = { false };
    for (int e = 0; e < op->u.route.n_expert; e++) v[e] = logits[e];
    for (int k = 0; k < 2; k++) {
        int    id = best(v, taken, op->u.route.n_expert);
        double sum = 0;
        for (int e = 0; e < op->u.route.n_expert; e++) {
            bool near = v[id] - v[e] <= 2 * (double)op->u.route.jitter * fmax(fabs(v[e]), v[id]);
            if (near && !taken[e]) sum += exp(v[e] - v[id]);
        }
        put_choice(op, out, k, id, 1 / sum);
        taken[id] = true;
    }
}

static void route_row(const nn_op *op, const float *logits, float *out) {
    int    n = op->u.route.n_expert, n_used = op->u.route.n_used;
    double score[NN_MAX_EXPERTS] = { 0 }, choice[NN_MAX_EXPERTS], max = -INFINITY, sum = 0;
    bool   taken[NN_MAX_EXPERTS] = { false };
    for (int e = 0; e < n; e++) max = fmax(max, logits[e]);
    for (int e = 0; e < n; e++)
        sum += score[e] =
            op->u.route.score == NN_SCORE_SOFTMAX ? exp(logits[e] - max) : scalar_act(NN_ACT_SIGMOID, logits[e]);
    for (int e = 0; e < n; e++) {
        if (op->u.route.score == NN_SCORE_SOFTMAX) score[e] /= sum;
        choice[e] = score[e] + (op->u.route.bias ? (double)op->u.route.bias->data[e] : 0.0);
    }
    if (op->u.route.n_group > 1) mask_groups(op, choice, taken);
    double total = 0;
    int    ids[NN_MAX_EXPERTS];
    for (int k = 0; k < n_used; k++) {
        ids[k] = best(choice, taken, n);
        taken[ids[k]] = true;
        total += score[ids[k]]; // cppcheck-suppress uninitvar ; filled by the loops above
    }
    for (int k = 0; k < n_used; k++) {
        double w = score[ids[k]];
        if (op->u.route.renorm) w /= total + op->u.route.renorm_eps;
        put_choice(op, out, k, ids[k], w);
    }
}

void scalar_route(scalar_exec *x, const nn_op *op) {
    const float *logits = local_buf(&x->base, op->in[0]);
    float       *out = local_buf(&x->base, op->out);
    for (int t = 0; t < x->base.batch.n_tok; t++)
        (op->u.route.score == NN_SCORE_SPARSEMIXER ? route_sparsemixer : route_row)(
            op, logits + (int64_t)t * op->u.route.n_expert, out + (int64_t)t * op->u.route.n_used * 2);
}

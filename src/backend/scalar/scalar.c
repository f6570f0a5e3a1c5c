/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference backend: each op as its definition reads, in plain C with double accumulation, on one thread.
 *
 * It takes the same batches and page tables as the others, keeps K and V in f32 and never quantizes activations. It is
 * the yardstick for backend_compare and for families whose kernels are in doubt; nobody serves with it.
 */
#include "backend/scalar/scalar.h"

#include "backend/backend.h"
#include "base/machine.h"
#include "base/num.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void scalar_free(nn_exec *base) {
    scalar_exec *x = (scalar_exec *)base;
    for (int i = 0; x->layers && i < base->model->dims->n_layer; i++) {
        free(x->layers[i].k);
        free(x->layers[i].v);
        free(x->layers[i].index);
        free(x->layers[i].fixed);
    }
    free(x->row);
    free(x->score);
    free(x->taken);
    local_deinit(&x->base);
    free(x);
}

static bool alloc_floats(float **out, size_t a, size_t b, size_t c) {
    size_t n;
    if (!num_mul_size(a, b, &n) || !num_mul_size(n, c, &n)) return false;
    *out = n ? calloc(n, sizeof **out) : NULL;
    return !n || *out;
}

static bool alloc_layer(scalar_exec *x, int i) {
    const nn_state  *s = &x->base.x.model->state[i];
    const nn_limits *l = &x->base.x.options.limits;
    scalar_layer    *y = &x->layers[i];
    bool             step = s->kind == NN_STATE_STEP; /* a place for every row of the step */
    size_t           slots = step ? (size_t)l->max_tokens : (size_t)l->n_pages * (size_t)l->page_tokens;
    nn_memory       *mem = &x->base.x.memory;
    int              g = x->base.x.groups.of_layer[i];
    y->fixed_floats = nn_state_fixed_floats(s);
    if (s->kind == NN_STATE_PAGED_LATENT) {
        y->k_width = s->dim_k;
        y->v_width = s->dim_v;
    } else if (s->kind != NN_STATE_NONE) {
        y->k_width = (int64_t)s->n_kv * s->dim_k;
        y->v_width = (int64_t)s->n_kv * s->dim_v;
    }
    y->index_width = s->dim_index;
    size_t page = (size_t)l->page_tokens * (size_t)(y->k_width + y->v_width + y->index_width) * sizeof(float);
    if (g >= 0) mem->page_bytes[g] += page;
    if (step)
        mem->heap_bytes += slots * (size_t)(y->k_width + y->v_width) * sizeof(float);
    else
        mem->pages_bytes += (size_t)l->n_pages * page;
    mem->slot_bytes += y->fixed_floats * sizeof(float);
    mem->heap_bytes += (size_t)l->n_slots * y->fixed_floats * sizeof(float);
    if (x->base.planned) return true;
    return alloc_floats(&y->k, slots, (size_t)y->k_width, 1) && alloc_floats(&y->v, slots, (size_t)y->v_width, 1) &&
           alloc_floats(&y->index, slots, (size_t)y->index_width, 1) &&
           alloc_floats(&y->fixed, (size_t)l->n_slots, y->fixed_floats, 1);
}

/* The widest matrix row that any op reads; refuses what the codecs cannot read. */
static int look_at_weights(const nn_tape *t, int64_t *widest, err *e) {
    *widest = 1;
    for (int i = 0; i < t->n_ops; i++) {
        const nn_mat *m = nn_op_weights(&t->ops[i]);
        if (!m) continue;
        *widest = num_max(*widest, m->cols);
        for (int k = 0; k < (m->n_stack ? m->n_stack : 1); k++) {
            if (!tensor_mat_valid(&m->at[k]))
                return err_set(e, ERR_UNSUPPORTED, "the reference cannot run op %d (%s): %s: weights of type %s", i,
                               nn_op_name(t->ops[i].kind), m->name, tensor_type_name((int)m->at[k].type));
        }
    }
    return 0;
}

static int make(scalar_exec **out, bool planned, const nn_device *d, const nn_model *m, const nn_exec_options *o,
                err *e) {
    scalar_exec *x = calloc(1, sizeof *x);
    int64_t      widest;
    int          rc;
    *out = NULL;
    if (!x) return err_set_nomem(e);
    x->base.planned = planned;
    if ((rc = local_init(&x->base, &backend_scalar, d, m, o, e)) < 0) goto fail;
    if ((rc = look_at_weights(m->tape, &widest, e)) < 0) goto fail;
    rc = ERR_NOMEM;
    x->layers = arena_calloc(&x->base.mem, (size_t)m->dims->n_layer, sizeof *x->layers);
    x->row = calloc((size_t)widest, sizeof *x->row);
    x->score = calloc((size_t)o->limits.max_pages * (size_t)o->limits.page_tokens, sizeof *x->score);
    x->taken = calloc((size_t)o->limits.max_pages * (size_t)o->limits.page_tokens, sizeof *x->taken);
    bool ok = x->layers && x->row && x->score && x->taken;
    for (int i = 0; ok && i < m->dims->n_layer; i++) ok = !x->base.x.has_layer[i] || alloc_layer(x, i);
    if (!ok) {
        err_set_nomem(e);
        goto fail;
    }
    *out = x;
    return 0;
fail:
    scalar_free(&x->base.x);
    return rc;
}

/* Pages and states are always f32, whatever the options say: the yardstick does not round. */
static int scalar_open(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    scalar_exec *x;
    int          rc = make(&x, false, d, m, o, e);
    *out = x ? &x->base.x : NULL;
    return rc;
}

static int scalar_measure(nn_memory *out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    scalar_exec *x;
    int          rc = make(&x, true, d, m, o, e);
    *out = x ? x->base.x.memory : (nn_memory){ 0 };
    if (x) scalar_free(&x->base.x);
    return rc;
}

static int scalar_devices(nn_device *out, int cap) {
    if (cap < 1) return 0;
    *out = (nn_device){ .id = "scalar",
                        .name = "reference in plain C",
                        .kind = NN_DEVICE_REFERENCE,
                        .total_bytes = machine_memory_total(),
                        .free_bytes = machine_memory_available(NULL) };
    return 1;
}

static int scalar_begin(nn_exec *base, const nn_batch *b, err *e) {
    scalar_exec *x = (scalar_exec *)base;
    int          rc = nn_exec_check(base, b, e);
    if (rc < 0) return rc;
    x->base.batch = *b;
    if ((rc = scalar_adapt_begin(x, e)) < 0) return rc;
    for (int s = 0; s < b->n_seq; s++) {
        if (b->pos[b->q_start[s]] != 0) continue;
        for (int i = 0; i < base->model->dims->n_layer; i++) {
            scalar_layer *y = &x->layers[i];
            if (y->fixed_floats)
                memset(y->fixed + (size_t)b->state_slot[s] * y->fixed_floats, 0, y->fixed_floats * sizeof *y->fixed);
        }
    }
    return 0;
}

/* --- ops -------------------------------------------------------------------------------------------------------- */

double scalar_act(nn_act_kind act, double v) {
    switch (act) {
    case NN_ACT_NONE: return v;
    case NN_ACT_SILU: return v / (1 + exp(-v));
    case NN_ACT_GELU: return 0.5 * v * (1 + erf(v / sqrt(2.0)));
    case NN_ACT_GELU_TANH: return 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    case NN_ACT_RELU: return v > 0 ? v : 0;
    case NN_ACT_RELU2: return v > 0 ? v * v : 0;
    case NN_ACT_SIGMOID: return 1 / (1 + exp(-v));
    case NN_ACT_SOFTPLUS: return v > 20 ? v : log1p(exp(v));
    case NN_ACT_TANH: return tanh(v);
    }
    return v;
}

static double xielu(nn_xielu a, double v) {
    double bent = v > 0 ? a.p * v * v : a.n * (expm1(fmin(v, a.eps)) - v);
    return bent + a.beta * v;
}

static void embed(scalar_exec *x, const nn_op *op) {
    const nn_batch *b = &x->base.batch;
    const nn_mat   *m = op->u.embed.table;
    float          *y = local_buf(&x->base, op->out);
    for (int t = 0; t < b->n_tok; t++) {
        bool given = b->embd && b->embd[t];
        if (op->kind == NN_OP_EMBED && given && !op->u.embed.by_token) {
            memcpy(y + t * m->cols, b->embd[t], (size_t)m->cols * sizeof *y);
            continue;
        }
        int64_t id = op->kind == NN_OP_EMBED       ? (given ? 0 : b->token[t])
                     : op->kind == NN_OP_EMBED_POS ? (int64_t)b->pos[t] + op->u.embed.offset
                     : b->segment                  ? b->segment[t]
                                                   : 0;
        if (id >= m->rows) id = m->rows - 1;
        if (id < 0) id = 0;
        tensor_mat_dequant_row(m->at, 0, id, x->row);
        for (int64_t i = 0; i < m->cols; i++) {
            float v = x->row[i] * op->u.embed.scale;
            y[t * m->cols + i] = op->acc ? y[t * m->cols + i] + v : v;
        }
        const nn_set_op *o = op->kind == NN_OP_EMBED && !given ? scalar_adapt_of(x, op, t) : NULL;
        if (o) scalar_adapt_embed(o, op, b->token[t], y + t * m->cols);
    }
}

static void add_supplied(scalar_exec *x, const nn_op *op) {
    const nn_batch *b = &x->base.batch;
    int64_t         width = x->base.x.model->tape->bufs[op->out].width;
    float          *y = local_buf(&x->base, op->out);
    for (int64_t i = 0; b->embd && i < b->n_tok * width; i++) {
        const float *row = b->embd[i / width];
        if (row) y[i] += row[op->u.part * width + i % width];
    }
}

static void norm(scalar_exec *x, const nn_op *op) {
    int64_t rows = local_rows(&x->base, op->out), width = x->base.x.model->tape->bufs[op->out].width,
            group = op->u.norm.group;
    const float  *in = local_buf(&x->base, op->in[0]);
    float        *out = local_buf(&x->base, op->out);
    const nn_vec *w = op->u.norm.w, *b = op->u.norm.b;
    for (int64_t g = 0; g < rows * width / group; g++) {
        const float *a = in + g * group;
        float       *y = out + g * group;
        int64_t      base = w && w->n == width ? g * group % width : 0;
        double       mean = 0, sum = 0;
        if (op->u.norm.kind == NN_NORM_LAYER) {
            for (int64_t i = 0; i < group; i++) mean += a[i];
            mean /= (double)group;
        }
        for (int64_t i = 0; i < group; i++) sum += (a[i] - mean) * (a[i] - mean);
        double scale = 1 / sqrt((op->u.norm.kind == NN_NORM_L2 ? sum : sum / (double)group) + (double)op->u.norm.eps);
        for (int64_t i = 0; i < group; i++) {
            double v = (a[i] - mean) * scale;
            if (w) v *= w->data[base + i];
            if (b) v += b->data[base + i];
            y[i] = (float)v;
        }
    }
}

static void linear_rows(scalar_exec *x, const tensor_mat *m, const float *bias, const float *in, int64_t in_stride,
                        float *out, int64_t out_stride, int64_t n, bool acc) {
    for (int64_t r = 0; r < m->rows; r++) {
        tensor_mat_dequant_row(m, 0, r, x->row);
        for (int64_t t = 0; t < n; t++) {
            const float *a = in + t * in_stride;
            double       sum = 0;
            for (int64_t i = 0; i < m->cols; i++) sum += (double)x->row[i] * (double)a[i];
            if (bias) sum += bias[r];
            float *y = out + t * out_stride + r;
            *y = (float)(acc ? *y + sum : sum);
        }
    }
}

static void linear(scalar_exec *x, const nn_op *op) {
    const nn_linear *w = &op->u.linear;
    const float     *in = local_buf(&x->base, op->in[0]);
    float           *out = local_buf(&x->base, op->out);
    int64_t          n = local_rows(&x->base, op->out);
    for (int64_t t = 0, end; op->kind == NN_OP_LINEAR && t < n; t = end) { /* rows without adapters together */
        const nn_set_op *o = scalar_adapt_of(x, op, t);
        const float     *bias = w->b ? w->b->data : NULL, *from = in + t * w->w->cols;
        for (end = t + 1; !o && end < n && !scalar_adapt_of(x, op, end);) end++;
        if (o)
            scalar_adapt_row(x, o, w->w->at, 0, bias, from, out + t * w->w->rows, op->acc);
        else
            linear_rows(x, w->w->at, bias, from, w->w->cols, out + t * w->w->rows, w->w->rows, end - t, op->acc);
    }
    if (op->kind == NN_OP_LINEAR) return;
    for (int h = 0; h < w->w->n_stack; h++)
        linear_rows(x, &w->w->at[h], NULL, in + h * w->w->cols, w->w->cols * w->w->n_stack, out + h * w->w->rows,
                    w->w->rows * w->w->n_stack, n, false);
}

static void experts(scalar_exec *x, const nn_op *op) {
    const nn_linear   *w = &op->u.linear;
    const nn_buf_info *ib = &x->base.x.model->tape->bufs[op->in[0]], *ob = &x->base.x.model->tape->bufs[op->out];
    const float       *in = local_buf(&x->base, op->in[0]), *chosen = local_buf(&x->base, op->in[1]);
    float             *out = local_buf(&x->base, op->out);
    for (int64_t row = 0; row < local_rows(&x->base, op->out); row++) {
        int32_t e;
        memcpy(&e, &chosen[row * 2], sizeof e);
        const float     *a = in + (ib->mult == 1 ? row / ob->mult : row) * ib->width;
        const float     *bias = w->b ? w->b->data + (int64_t)e * w->w->rows : NULL;
        const nn_set_op *o = scalar_adapt_of(x, op, row);
        if (o)
            scalar_adapt_row(x, o, &w->w->at[e], e, bias, a, out + row * ob->width, false);
        else
            linear_rows(x, &w->w->at[e], bias, a, 0, out + row * ob->width, 0, 1, false);
    }
}

static void combine(scalar_exec *x, const nn_op *op) {
    const float *y = local_buf(&x->base, op->in[0]), *chosen = local_buf(&x->base, op->in[1]);
    float       *out = local_buf(&x->base, op->out);
    int64_t      width = x->base.x.model->tape->bufs[op->out].width;
    for (int64_t t = 0; t < x->base.batch.n_tok; t++) {
        for (int64_t i = 0; i < width; i++) {
            double sum = 0;
            for (int k = 0; k < op->u.combine.n_used; k++) {
                int64_t row = t * op->u.combine.n_used + k;
                sum += (op->u.combine.even ? 1.0 : (double)chosen[row * 2 + 1]) * (double)y[row * width + i];
            }
            out[t * width + i] = (float)sum;
        }
    }
}

static void weigh(scalar_exec *x, const nn_op *op) {
    const float *chosen = local_buf(&x->base, op->in[0]);
    float       *y = local_buf(&x->base, op->out);
    int64_t      width = x->base.x.model->tape->bufs[op->out].width;
    for (int64_t i = 0; i < local_rows(&x->base, op->out) * width; i++) y[i] *= chosen[i / width * 2 + 1];
}

static void sparsify(scalar_exec *x, const nn_op *op) {
    int64_t rows = local_rows(&x->base, op->out), width = x->base.x.model->tape->bufs[op->out].width;
    float  *y = local_buf(&x->base, op->out);
    for (int64_t t = 0; t < rows; t++, y += width) {
        double mean = 0, sum = 0;
        for (int64_t i = 0; i < width; i++) mean += y[i];
        mean /= (double)width;
        for (int64_t i = 0; i < width; i++) sum += (y[i] - mean) * (y[i] - mean);
        double cut = mean + op->u.scale * sqrt(sum / (double)width);
        for (int64_t i = 0; i < width; i++) y[i] = y[i] > cut ? (float)(y[i] - cut) : 0.0f;
    }
}

static void match_size(scalar_exec *x, const nn_op *op) {
    int64_t      rows = local_rows(&x->base, op->out), width = x->base.x.model->tape->bufs[op->out].width;
    const float *a = local_buf(&x->base, op->in[0]);
    float       *y = local_buf(&x->base, op->out);
    for (int64_t t = 0; t < rows; t++, y += width, a += width) {
        double is = 0, should = 0;
        for (int64_t i = 0; i < width; i++) {
            is += (double)y[i] * (double)y[i];
            should += (double)a[i] * (double)a[i];
        }
        double by = sqrt(should / (double)width) / sqrt(fmax(is / (double)width, (double)op->u.scale));
        for (int64_t i = 0; i < width; i++) y[i] = (float)(y[i] * by);
    }
}

static void rope(scalar_exec *x, const nn_op *op) {
    const nn_rope  *r = &op->u.rope.rope;
    const nn_batch *batch = &x->base.batch;
    bool            axes = r->axis_of && batch->pos_axes;
    int64_t         width = x->base.x.model->tape->bufs[op->out].width;
    float          *buf = local_buf(&x->base, op->out);
    int             n = r->n_rot / 2;
    for (int t = 0; t < x->base.batch.n_tok; t++) {
        for (int64_t h = 0; h < width / op->u.rope.head_dim; h++) {
            float *p = buf + t * width + h * op->u.rope.head_dim + op->u.rope.offset;
            for (int i = 0; i < n; i++) {
                int32_t at = axes ? batch->pos_axes[(int64_t)r->axis_of[i] * batch->n_tok + t] : batch->pos[t];
                double  angle = (double)at * (double)r->inv_freq[i];
                double  c = cos(angle) * r->scale, s = sin(angle) * r->scale;
                float  *a = r->interleaved ? &p[2 * i] : &p[i], *b = r->interleaved ? &p[2 * i + 1] : &p[i + n];
                double  va = *a, vb = *b;
                *a = (float)(va * c - vb * s);
                *b = (float)(va * s + vb * c);
            }
        }
    }
}

static void elementwise(scalar_exec *x, const nn_op *op) {
    int64_t      rows = local_rows(&x->base, op->out), width = x->base.x.model->tape->bufs[op->out].width;
    float       *y = local_buf(&x->base, op->out);
    const float *a = op->in[0] ? local_buf(&x->base, op->in[0]) : NULL;
    int64_t      aw = op->in[0] ? x->base.x.model->tape->bufs[op->in[0]].width : 0;
    for (int64_t i = 0; i < rows * width; i++) {
        int64_t t = i / width, c = i % width;
        double  v = y[i];
        switch (op->kind) {
        case NN_OP_ADD: v += (double)op->u.scale * (double)a[i]; break;
        case NN_OP_SCALE: v *= op->u.scale; break;
        case NN_OP_SCALE_EACH: v *= op->u.each->data[c]; break;
        case NN_OP_ADD_BY:
            v +=
                (double)a[i] *
                (double)local_buf(&x->base, op->in[1])[t * x->base.x.model->tape->bufs[op->in[1]].width + op->u.column];
            break;
        case NN_OP_ADD_EACH: v += (double)op->u.add_each.scale * (double)op->u.add_each.w->data[c]; break;
        case NN_OP_CLIP: v = v > op->u.scale ? op->u.scale : v < -op->u.scale ? -op->u.scale : v; break;
        case NN_OP_CLAMP: v = fmin(fmax(v, (double)op->u.clamp.lo), (double)op->u.clamp.hi); break;
        case NN_OP_ACT: v = scalar_act(op->u.act, v); break;
        case NN_OP_GATE: v *= scalar_act(op->u.act, a[t * aw + c / (width / aw)]); break;
        case NN_OP_XIELU: v = xielu(op->u.xielu, v); break;
        case NN_OP_SOFTCAP: v = op->u.scale * tanh(v / op->u.scale); break;
        case NN_OP_POS_SCALE:
            v *= 1 + op->u.pos_scale.beta *
                         log1p(floor(((double)x->base.batch.pos[t] + op->u.pos_scale.offset) / op->u.pos_scale.period));
            break;
        case NN_OP_DECAY:
            v = (double)op->u.decay.a->data[c / (width / op->u.decay.a->n)] *
                scalar_act(NN_ACT_SOFTPLUS, v + (op->u.decay.dt_bias ? (double)op->u.decay.dt_bias->data[c] : 0.0));
            break;
        case NN_OP_GLU: {
            double up = a[i], limit = op->u.glu.limit;
            if (limit != 0) {
                v = v > limit ? limit : v;
                up = up > limit ? limit : up < -limit ? -limit : up;
                v = v / (1 + exp(-op->u.glu.alpha * v)) * (up + 1);
            } else {
                v = scalar_act(op->u.glu.act, v) * up;
            }
            break;
        }
        default: break;
        }
        y[i] = (float)v;
    }
}

static void take(scalar_exec *x, const nn_op *op) {
    int64_t      rows = local_rows(&x->base, op->out), iw = x->base.x.model->tape->bufs[op->in[0]].width;
    int64_t      ow = x->base.x.model->tape->bufs[op->out].width;
    const float *a = local_buf(&x->base, op->in[0]);
    float       *y = local_buf(&x->base, op->out);
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t g = 0; g < iw / op->u.take.group; g++)
            memcpy(y + t * ow + g * op->u.take.width, a + t * iw + g * op->u.take.group + op->u.take.offset,
                   (size_t)op->u.take.width * sizeof *y);
    }
}

static void join(scalar_exec *x, const nn_op *op) {
    int64_t rows = local_rows(&x->base, op->out), ow = x->base.x.model->tape->bufs[op->out].width, at = 0;
    float  *y = local_buf(&x->base, op->out);
    for (int k = 0; k < NN_MAX_IN && op->in[k]; k++) {
        int64_t      w = x->base.x.model->tape->bufs[op->in[k]].width;
        const float *a = local_buf(&x->base, op->in[k]);
        for (int64_t t = 0; t < rows; t++) memcpy(y + t * ow + at, a + t * w, (size_t)w * sizeof *y);
        at += w;
    }
}

static void outputs(scalar_exec *x, const nn_op *op) {
    int64_t      width = x->base.x.model->tape->bufs[op->out].width;
    const float *a = local_buf(&x->base, op->in[0]);
    float       *y = local_buf(&x->base, op->out);
    for (int r = 0; r < x->base.batch.n_out; r++)
        memcpy(y + r * width, a + x->base.batch.out_rows[r] * width, (size_t)width * sizeof *y);
}

static void run_op(scalar_exec *x, const nn_op *op) {
    switch (op->kind) {
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG: embed(x, op); break;
    case NN_OP_ADD_SUPPLIED: add_supplied(x, op); break;
    case NN_OP_NORM: norm(x, op); break;
    case NN_OP_LINEAR:
    case NN_OP_HEAD_LINEAR: linear(x, op); break;
    case NN_OP_ROPE: rope(x, op); break;
    case NN_OP_KV_STORE:
    case NN_OP_LATENT_STORE: scalar_kv_store(x, op); break;
    case NN_OP_ATTN: scalar_attention(x, op); break;
    case NN_OP_LATENT_ATTN: scalar_latent_attention(x, op); break;
    case NN_OP_INDEX_STORE: scalar_index_store(x, op); break;
    case NN_OP_CHOOSE: scalar_choose(x, op); break;
    case NN_OP_ROUTE: scalar_route(x, op); break;
    case NN_OP_EXPERTS: experts(x, op); break;
    case NN_OP_WEIGH: weigh(x, op); break;
    case NN_OP_COMBINE: combine(x, op); break;
    case NN_OP_SPARSIFY: sparsify(x, op); break;
    case NN_OP_MATCH_SIZE: match_size(x, op); break;
    case NN_OP_TAKE: take(x, op); break;
    case NN_OP_JOIN: join(x, op); break;
    case NN_OP_CONV: scalar_conv(x, op); break;
    case NN_OP_DELTA: scalar_delta(x, op); break;
    case NN_OP_SSM: scalar_ssm(x, op); break;
    case NN_OP_SCAN: scalar_scan(x, op); break;
    case NN_OP_OUTPUTS: outputs(x, op); break;
    default: elementwise(x, op); break;
    }
}

static int scalar_run(nn_exec *base, int first_op, int end_op, err *e) {
    (void)e;
    for (int i = first_op; i < end_op; i++) {
        if (nn_exec_runs(&base->options, i)) run_op((scalar_exec *)base, &base->model->tape->ops[i]);
    }
    return 0;
}

const nn_backend backend_scalar = {
    .name = "scalar",
    .can = NN_BATCH_EMBD | NN_BATCH_ROW_END | NN_BATCH_SEGMENT | NN_BATCH_ADAPTER | NN_BATCH_AXES | NN_BATCH_ROW_BEGIN |
           NN_BATCH_DEEP | NN_BATCH_STRICT | NN_BATCH_WIDE,
    .devices = scalar_devices,
    .measure = scalar_measure,
    .open = scalar_open,
    .free = scalar_free,
    .adapt = scalar_adapt_set,
    .submit = local_submit,
    .wait = local_wait,
    .fetch = local_fetch,
    .move = scalar_move,
    .begin = scalar_begin,
    .run = scalar_run,
    .read = local_read,
    .write = local_write,
};

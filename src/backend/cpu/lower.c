/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: items, barriers, and the memory that a step needs. */
#include "backend/cpu/cpu.h"

#include "base/num.h"
#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Addresses of what is not in the activation arena, for the hazard scan. Activations take [0, arena bytes). */
enum { SPACE = 1 << 20, PARTS_MOST = 1 << 27, CPU_MAX_HALVES = 16 };
static const size_t AT_AREA = (size_t)1 << 50, AT_ROPE = (size_t)2 << 50, AT_GROUP = (size_t)3 << 50,
                    AT_PACK = (size_t)4 << 50, AT_STATE = (size_t)5 << 50, AT_HALVES = (size_t)6 << 50;

/* Memory that is counted; NULL when there is none, and where it is only planned. Not zeroed, aligned to 64 bytes. */
static void *take(cpu_exec *x, size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    x->base.x.memory.heap_bytes += bytes;
    return x->base.planned ? NULL : aligned_alloc(64, bytes);
}

static void *take_zeroed(cpu_exec *x, size_t count, size_t size) {
    x->base.x.memory.heap_bytes += count * size;
    return x->base.planned ? NULL : calloc(count, size);
}

typedef struct area {
    nn_buf buf; /* 0: free */
    int    version, used;
} area;

typedef struct lowering {
    cpu_exec  *x;
    nn_hazards hazards;
    int       *version; /* [n_bufs]: writes so far */
    area       areas[CPU_AREAS];
    size_t     area_bytes, pack_floats, parts_floats;
    int        clock, cap, max_expert;
    int64_t    max_group_rows; /* rows per token of expert ops */
    nn_buf     grouped;        /* the routing whose lists are in place */
    int        grouped_version;
    nn_span    spans[NN_MAX_IN + 8];
    int        n_spans;
    int        halves[CPU_MAX_HALVES]; /* products since the last barrier: adapters' second halves follow them */
    int        n_halves;
    int        mixture; /* whose items are appended, to run in waves; -1: none */
    err       *e;
    int        rc;
} lowering;

static void touch(lowering *l, size_t lo, size_t bytes, bool write) {
    l->spans[l->n_spans++] = (nn_span){ lo, lo + bytes, write };
}

static void touch_buf(lowering *l, nn_buf b, bool write) {
    const nn_buf_info *i = &l->x->base.x.model->tape->bufs[b];
    const nn_limits   *m = &l->x->base.x.options.limits;
    touch(l, l->x->base.plan.offset[b], nn_rows_max(m, i) * (size_t)i->width * sizeof(float), write);
}

static cpu_item *append(lowering *l, cpu_item_kind kind, int op) {
    cpu_exec *x = l->x;
    if (x->n_items == l->cap) {
        int       cap = l->cap ? l->cap * 2 : 512;
        cpu_item *items = realloc(x->items, (size_t)cap * sizeof *items);
        if (!items) {
            l->rc = err_set_nomem(l->e);
            x->n_items = 0;
        } else {
            x->items = items;
            l->cap = cap;
        }
        if (!items) return NULL;
    }
    cpu_item *it = &x->items[x->n_items++];
    *it = (cpu_item){ .kind = kind, .op = op, .aux = -1, .next = x->n_counters++, .also = -1, .slot = -1 };
    it->mixture = l->mixture;
    it->waved = l->mixture >= 0;
    return it;
}

/* The second halves of the products since the last barrier: behind all of them, so that one barrier is enough. */
static void expand_halves(lowering *l) {
    for (int i = 0; i < l->n_halves; i++) {
        cpu_item *it = append(l, CPU_ITEM_EXPAND, l->halves[i]);
        if (it) it->slot = i;
    }
    l->n_halves = 0;
}

/* Appends an item that touches what was noted since the last one. */
static cpu_item *push(lowering *l, cpu_item_kind kind, int op) {
    bool barrier = nn_hazards_next(&l->hazards, l->spans, l->n_spans);
    l->n_spans = 0;
    if (barrier) expand_halves(l);
    cpu_item *it = append(l, kind, op);
    if (it) it->barrier = barrier;
    return it;
}

static int rope_table(cpu_exec *x, const nn_rope *r) {
    for (int i = 0; i < x->n_ropes; i++) {
        const nn_rope *o = &x->ropes[i].rope;
        if (o->inv_freq == r->inv_freq && o->n_rot == r->n_rot && o->scale == r->scale && o->axis_of == r->axis_of)
            return i;
    }
    return -1;
}

static int refuse(lowering *l, int op, const char *why) {
    const nn_tape *t = l->x->base.x.model->tape;
    str            line;
    str_init(&line);
    nn_op_print(t, &t->ops[op], &line);
    l->rc = err_set(l->e, ERR_UNSUPPORTED, "the CPU backend cannot run op %d (%s): %s", op, str_cstr(&line), why);
    str_deinit(&line);
    return l->rc;
}

/* A norm or a gate that has just made b can fill the area itself, piece by piece as it goes: no item, no barrier. Only
 * when nobody since the last barrier reads the area's old content. */
static bool fill_along(lowering *l, nn_buf b, int at) {
    cpu_exec      *x = l->x;
    const nn_tape *t = x->base.x.model->tape;
    cpu_item      *it = x->n_items ? &x->items[x->n_items - 1] : NULL;
    size_t         lo = AT_AREA + (size_t)at * SPACE;
    if (!it || it->kind != CPU_ITEM_OP || it->also >= 0 || t->ops[it->op].out != b) return false;
    const nn_op *op = &t->ops[it->op];
    if (op->kind != NN_OP_GLU && !(op->kind == NN_OP_NORM && op->u.norm.group % ACT8_BLOCK == 0)) return false;
    for (int k = 0; k < l->hazards.n; k++) {
        if (l->hazards.since[k].lo <= lo && lo < l->hazards.since[k].hi) return false;
    }
    if (l->hazards.n == NN_MAX_HAZARDS) return false;
    l->hazards.since[l->hazards.n++] = (nn_span){ lo, lo + 1, true };
    it->also = at;
    return true;
}

/* Makes sure that an int8 copy of b exists; returns its area. */
static int quantized(lowering *l, nn_buf b, int op) {
    const nn_buf_info *i = &l->x->base.x.model->tape->bufs[b];
    const nn_limits   *m = &l->x->base.x.options.limits;
    int                at = 0;
    for (int k = 0; k < CPU_AREAS; k++) {
        if (l->areas[k].buf == b && l->areas[k].version == l->version[b]) {
            l->areas[k].used = ++l->clock;
            return k;
        }
        if (l->areas[k].used < l->areas[at].used) at = k;
    }
    size_t bytes = nn_rows_max(m, i) * act8_row_bytes(i->width);
    if (bytes > l->area_bytes) l->area_bytes = bytes;
    if (fill_along(l, b, at)) {
        l->areas[at] = (area){ b, l->version[b], ++l->clock };
        return at;
    }
    nn_span keep[NN_MAX_IN + 8];
    int     n_keep = l->n_spans;
    memcpy(keep, l->spans, sizeof keep);
    l->n_spans = 0;
    touch_buf(l, b, false);
    touch(l, AT_AREA + (size_t)at * SPACE, 1, true);
    cpu_item *it = push(l, CPU_ITEM_QUANT, op);
    if (it) {
        it->aux = at;
        it->buf = b;
        it->once = i->mult == 1; /* in a mixture: what its experts read, and not what they make */
    }
    memcpy(l->spans, keep, sizeof keep);
    l->n_spans = n_keep;
    l->areas[at] = (area){ b, l->version[b], ++l->clock };
    return at;
}

static void scratch_need(lowering *l, size_t bytes) {
    uint64_t padded;
    if (num_align_up(bytes, 64, &padded) && padded > l->x->scratch_bytes) l->x->scratch_bytes = (size_t)padded;
}

/* A product that adapters may add to: where the first half of that lies, and how large it may be. */
static void note_half(lowering *l, cpu_item *it, const nn_op *op) {
    cpu_adapt     *a = &l->x->adapt;
    const nn_tape *t = l->x->base.x.model->tape;
    it->slot = l->n_halves;
    l->halves[l->n_halves++] = it->op;
    if (l->n_halves > a->n_slots) a->n_slots = l->n_halves;
    a->max_rows = num_max(a->max_rows, (int64_t)nn_rows_max(&l->x->base.x.options.limits, &t->bufs[op->out]));
    a->max_cols = num_max(a->max_cols, op->u.linear.w->cols);
    if (op->acc) a->max_acc = num_max(a->max_acc, op->u.linear.w->rows);
}

/* In front of a product of streamed experts: with the first one the waves begin. */
static void begin_waves(lowering *l, int mixture) {
    if (l->mixture == mixture) return;
    expand_halves(l);
    l->mixture = mixture;
}

/* Behind one: with the last one they end. */
static void end_waves(lowering *l, cpu_item *it, int mixture) {
    const store_mixture *m = &l->x->layout.mixtures[mixture];
    while (m->ops[it->which] != it->op) it->which++;
    if (it->which == m->n_ops - 1) l->mixture = -1;
}

/* A product's matrices and input. */
static int lower_product(lowering *l, int i, const nn_op *op) {
    const nn_tape *t = l->x->base.x.model->tape;
    const nn_mat  *w = op->u.linear.w;
    int            n = w->n_stack ? w->n_stack : 1, at = -1;
    err            why = { 0 };
    for (int k = 0; k < n; k++) {
        if (matmul_check(&w->at[k], &why) < 0) return refuse(l, i, why.msg);
    }
    const nn_limits *m = &l->x->base.x.options.limits;
    scratch_need(l, matmul_scratch_bytes(&w->at[0], (int64_t)nn_rows_max(m, &t->bufs[op->out])));
    if (matmul_input((int)w->at[0].type) == MATMUL_ACT8) {
        if (op->kind == NN_OP_HEAD_LINEAR && w->cols % ACT8_BLOCK)
            return refuse(l, i, "heads that are not a whole number of blocks");
        at = quantized(l, op->in[0], i);
    }
    int mixture = l->x->layout.n_slots && op->kind == NN_OP_EXPERTS ? store_layout_mixture(&l->x->layout, i) : -1;
    if (op->kind == NN_OP_EXPERTS && (l->grouped != op->in[1] || l->grouped_version != l->version[op->in[1]])) {
        touch_buf(l, op->in[1], false);
        touch(l, AT_GROUP, 1, true);
        cpu_item *it = push(l, CPU_ITEM_GROUP, i);
        if (it) it->mixture = mixture;
        l->grouped = op->in[1];
        l->grouped_version = l->version[op->in[1]];
    }
    if (op->kind == NN_OP_EXPERTS) {
        if (w->n_stack > l->max_expert) l->max_expert = w->n_stack;
        if (t->bufs[op->out].mult > l->max_group_rows) l->max_group_rows = t->bufs[op->out].mult;
        touch(l, AT_GROUP, 1, false);
        if (mixture >= 0) begin_waves(l, mixture);
    }
    if (at >= 0) touch(l, AT_AREA + (size_t)at * SPACE, 1, false);
    touch_buf(l, op->in[0], false); /* adapters read it even where the product reads its int8 copy */
    touch_buf(l, op->out, true);
    /* One place per product since the last barrier; when they run out, the first one's reader asks for a barrier. */
    bool half = op->kind != NN_OP_HEAD_LINEAR;
    if (half) touch(l, AT_HALVES + (size_t)(l->n_halves % CPU_MAX_HALVES) * SPACE, 1, true);
    cpu_item *it = push(l, CPU_ITEM_OP, i);
    if (it) it->aux = at;
    if (it && half) note_half(l, it, op);
    if (it && mixture >= 0) end_waves(l, it, mixture);
    return l->rc;
}

/* Room for the chunks of one sequence of full length, where its context may be shared (split_pays in state.c). Memory
 * of the system, taken when a long context first writes there. */
static void parts_need(lowering *l, const nn_op *op) {
    cpu_exec        *x = l->x;
    const nn_limits *m = &x->base.x.options.limits;
    const kv_layout *y = &x->layers[op->layer].layout;
    size_t           chunks = (size_t)m->max_pages * (size_t)m->page_tokens / ATTN_CHUNK + 1, floats;
    if (x->n_threads == 1 || y->n_kv >= 2 * x->n_threads || x->base.x.groups.of_layer[op->layer] < 0) return;
    if (!num_mul_size(chunks * (size_t)op->u.attn.n_head, attn_part_floats(y->v_dim), &floats)) return;
    if (floats > l->parts_floats && floats <= PARTS_MOST) l->parts_floats = floats;
}

/* Room of a worker for what was chosen. */
static void chosen_need(lowering *l, const nn_op *op) {
    if (op->u.attn.choice.ids) scratch_need(l, cpu_chosen_scratch(l->x, op));
}

static int lower_latent(lowering *l, int i, const nn_op *op) {
    const nn_state *s = &l->x->base.x.model->state[op->layer];
    bool            stores = op->kind == NN_OP_LATENT_STORE;
    size_t          floats = (size_t)(s->dim_k + s->dim_v) * (size_t)(stores ? 1 : op->u.attn.n_head);
    if (floats > l->pack_floats) l->pack_floats = floats;
    if (!stores) parts_need(l, op);
    if (!stores) chosen_need(l, op);
    touch_buf(l, op->in[0], false);
    touch_buf(l, op->in[1], false);
    touch(l, AT_PACK, 1, true);
    push(l, CPU_ITEM_PACK, i);
    if (op->in[2]) touch_buf(l, op->in[2], false);
    touch(l, AT_PACK, 1, false);
    touch(l, AT_STATE + (size_t)op->layer * SPACE, 1, stores);
    if (op->out) touch_buf(l, op->out, true);
    push(l, CPU_ITEM_OP, i);
    return l->rc;
}

/* A store whose keys were rotated just before: both share the heads among the workers in the same way, so that each
 * worker stores what it has rotated itself. */
static bool same_heads(const lowering *l, const nn_op *op) {
    const cpu_exec *x = l->x;
    const cpu_item *it = x->n_items ? &x->items[x->n_items - 1] : NULL;
    if (op->kind != NN_OP_KV_STORE || !it || it->kind != CPU_ITEM_OP) return false;
    const nn_op    *before = &x->base.x.model->tape->ops[it->op];
    const nn_state *s = &x->base.x.model->state[op->layer];
    return before->kind == NN_OP_ROPE && before->out == op->in[0] && before->u.rope.head_dim == s->dim_k;
}

/* Where a layer's state lies; layers that keep nothing share one place, behind those of the others. */
static size_t state_at(const cpu_exec *x, int layer) {
    bool step = x->base.x.model->state[layer].kind == NN_STATE_STEP;
    return AT_STATE + (size_t)(step ? x->base.x.model->dims->n_layer : layer) * SPACE;
}

static int lower_op(lowering *l, int i) {
    cpu_exec    *x = l->x;
    const nn_op *op = &x->base.x.model->tape->ops[i];
    int          table = -1;
    switch (op->kind) {
    case NN_OP_LINEAR:
    case NN_OP_HEAD_LINEAR:
    case NN_OP_EXPERTS: return lower_product(l, i, op);
    case NN_OP_LATENT_STORE:
    case NN_OP_LATENT_ATTN: return lower_latent(l, i, op);
    case NN_OP_ATTN:
        parts_need(l, op);
        chosen_need(l, op);
        break;
    case NN_OP_CHOOSE:
        x->score_floats = (size_t)x->base.x.options.limits.max_pages * (size_t)x->base.x.options.limits.page_tokens;
        x->score_floats = (x->score_floats + ATTN_CHUNK - 1) / ATTN_CHUNK * ATTN_CHUNK;
        scratch_need(l, attn_scratch_bytes(&x->layers[op->layer].index, 0));
        break;
    case NN_OP_ROPE:
        table = rope_table(x, &op->u.rope.rope);
        touch(l, AT_ROPE + (size_t)table * SPACE, 1, false);
        break;
    case NN_OP_COMBINE:
        if (op->u.combine.n_used > CPU_MAX_USED) return refuse(l, i, "too many experts per token");
        break;
    case NN_OP_ROUTE:
        scratch_need(l, (size_t)op->u.route.n_expert * 3 * sizeof(float) + (size_t)op->u.route.n_used * 8);
        break;
    case NN_OP_EMBED:
    case NN_OP_EMBED_POS:
    case NN_OP_EMBED_SEG:
        if (!tensor_mat_valid(op->u.embed.table->at))
            return refuse(l, i, tensor_type_name((int)op->u.embed.table->at->type));
        scratch_need(l, (size_t)op->u.embed.table->cols * sizeof(float));
        break;
    case NN_OP_CONV:
        if (op->u.conv.kernel < 2 || op->u.conv.kernel > RECUR_CONV_MAX) return refuse(l, i, "this kernel size");
        if (op->u.conv.act != NN_ACT_NONE && op->u.conv.act != NN_ACT_SILU) return refuse(l, i, "this activation");
        break;
    case NN_OP_DECAY:
        if (!op->u.decay.dt_bias) return refuse(l, i, "a decay without its bias");
        break;
    case NN_OP_DELTA:
        if (op->u.delta.dim_k > RECUR_DIM_MAX || op->u.delta.dim_v > RECUR_DIM_MAX)
            return refuse(l, i, "heads this wide");
        break;
    case NN_OP_SSM:
        if (op->u.ssm.dim > RECUR_DIM_MAX || op->u.ssm.n_state > RECUR_DIM_MAX) return refuse(l, i, "heads this wide");
        break;
    case NN_OP_SCAN:
        if (op->u.scan.n_state > RECUR_STATE_MAX) return refuse(l, i, "states this wide");
        break;
    default: break;
    }
    for (int k = 0; k < NN_MAX_IN && op->in[k]; k++) {
        if (k > 0 || !same_heads(l, op)) touch_buf(l, op->in[k], false);
    }
    if (op->out) touch_buf(l, op->out, true);
    if (op->layer >= 0) touch(l, state_at(x, op->layer), 1, op->kind != NN_OP_ATTN && op->kind != NN_OP_CHOOSE);
    cpu_item *it = push(l, CPU_ITEM_OP, i);
    if (it) it->aux = table;
    return l->rc;
}

static int collect_ropes(lowering *l) {
    cpu_exec      *x = l->x;
    const nn_tape *t = x->base.x.model->tape;
    int            first = x->base.x.options.first_op; /* the tables are made with the executor's first op */
    while (first < t->n_ops && !nn_exec_runs(&x->base.x.options, first)) first++;
    for (int i = first; i < x->base.x.options.end_op; i++) {
        if (t->ops[i].kind != NN_OP_ROPE || !nn_exec_runs(&x->base.x.options, i) ||
            rope_table(x, &t->ops[i].u.rope.rope) >= 0)
            continue;
        if (x->n_ropes == CPU_MAX_ROPES) return refuse(l, i, "too many different rotations");
        cpu_rope *r = &x->ropes[x->n_ropes];
        r->rope = t->ops[i].u.rope.rope;
        r->table = take(x, (size_t)x->base.x.options.limits.max_tokens * (size_t)r->rope.n_rot * sizeof(float));
        if (!r->table && !x->base.planned) return l->rc = err_set_nomem(l->e);
        touch(l, AT_ROPE + (size_t)x->n_ropes * SPACE, 1, true);
        cpu_item *it = push(l, CPU_ITEM_ROPE_TABLE, first);
        if (it) it->aux = x->n_ropes;
        x->n_ropes++;
    }
    return l->rc;
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

/* How a page type lies in this backend's pages; false: it has none of this type. */
static bool cpu_kv_type(nn_kv_type type, kv_type *out) {
    static const kv_type types[NN_KV_TYPE_COUNT] = {
        [NN_KV_F32] = KV_F32,   [NN_KV_F16] = KV_F16,   [NN_KV_BF16] = KV_BF16, [NN_KV_Q8_0] = KV_Q8_0,
        [NN_KV_Q4_0] = KV_Q4_0, [NN_KV_Q5_0] = KV_Q5_0, [NN_KV_TQ4] = KV_TQ4,   [NN_KV_TQ3] = KV_TQ3,
        [NN_KV_TQ2] = KV_TQ2,   [NN_KV_FP8] = KV_FP8,
    };
    if ((unsigned)type >= NN_KV_TYPE_COUNT) return false;
    *out = types[type];
    return true;
}

/* f32: these pages are as few as a step has rows, and nobody moves them. */
static int step_layout(cpu_exec *x, int i, err *e) {
    const nn_state *s = &x->base.x.model->state[i];
    cpu_layer      *y = &x->layers[i];
    int             tokens = STEP_PAGE_TOKENS;
    if (!kv_layout_init(&y->layout, KV_F32, KV_F32, tokens, s->n_kv, s->dim_k, s->dim_v, false))
        return err_set(e, ERR_UNSUPPORTED, "layer %d: pages of %d positions cannot hold heads of %d and %d", i, tokens,
                       s->dim_k, s->dim_v);
    if (y->layout.layer_bytes > x->step_page_bytes) x->step_page_bytes = (y->layout.layer_bytes + 63) / 64 * 64;
    return 0;
}

/* Every sequence may leave its last page almost empty. */
static int alloc_step_pages(cpu_exec *x, err *e) {
    const nn_limits *m = &x->base.x.options.limits;
    size_t           n = (size_t)m->max_tokens / STEP_PAGE_TOKENS + (size_t)m->max_seqs;
    if (x->step_page_bytes == 0) return 0;
    if (!num_mul_size(n, x->step_page_bytes, &x->step_bytes))
        return err_set(e, ERR_LIMIT, "a step of %d tokens is too large", m->max_tokens);
    x->base.x.memory.heap_bytes += x->step_bytes;
    x->step_ptrs = take_zeroed(x, n, sizeof *x->step_ptrs);
    x->step_first = take_zeroed(x, (size_t)m->max_seqs, sizeof *x->step_first);
    if (x->base.planned) return 0;
    void *mem = mmap(NULL, x->step_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    x->step_pages = mem == MAP_FAILED ? NULL : mem;
    return x->step_pages && x->step_ptrs && x->step_first ? 0 : err_set_nomem(e);
}

/* Keys of an index decide what is seen at all: they keep 16 bits where pages have fewer. */
static int index_layout(cpu_exec *x, int i, int g, err *e) {
    const nn_state *s = &x->base.x.model->state[i];
    cpu_layer      *y = &x->layers[i];
    kv_type         type = y->layout.k_type == KV_F32 || y->layout.k_type == KV_BF16 ? y->layout.k_type : KV_F16;
    if (!kv_layout_init(&y->index, type, type, y->layout.tokens, 1, s->dim_index, s->dim_index, true))
        return err_set(e, ERR_UNSUPPORTED, "layer %d: pages of %d positions cannot hold an index of width %d", i,
                       y->layout.tokens, s->dim_index);
    y->index_off = x->base.x.memory.page_bytes[g];
    x->base.x.memory.page_bytes[g] += (y->index.layer_bytes + 63) / 64 * 64;
    return 0;
}

static int layer_layout(cpu_exec *x, int i, err *e) {
    const nn_state        *s = &x->base.x.model->state[i];
    const nn_exec_options *o = &x->base.x.options;
    cpu_layer             *y = &x->layers[i];
    int                    g = x->base.x.groups.of_layer[i];
    y->fixed_floats = nn_state_fixed_floats(s);
    x->base.x.memory.slot_bytes += y->fixed_floats * sizeof *y->fixed;
    if (y->fixed_floats) y->fixed = take_zeroed(x, (size_t)o->limits.n_slots * y->fixed_floats, sizeof *y->fixed);
    if (y->fixed_floats && !y->fixed && !x->base.planned) return err_set_nomem(e);
    if (s->kind == NN_STATE_STEP) return step_layout(x, i, e);
    if (g < 0) return 0;
    bool       latent = s->kind == NN_STATE_PAGED_LATENT;
    nn_kv_type k_type, v_type;
    kv_type    k, v;
    nn_exec_kv_types(o, x->base.x.model, i, &k_type, &v_type);
    if (!cpu_kv_type(k_type, &k) || !cpu_kv_type(v_type, &v))
        return err_set(e, ERR_UNSUPPORTED, "the CPU backend has no pages of type %s and %s", nn_kv_type_name(k_type),
                       nn_kv_type_name(v_type));
    if (!kv_type_fits(k, latent ? s->dim_k | s->dim_v : s->dim_k) || (!latent && !kv_type_fits(v, s->dim_v)))
        return err_set(e, ERR_UNSUPPORTED,
                       "layer %d: pages of type %s and %s need heads of a multiple of %d, not %d and %d", i,
                       nn_kv_type_name(k_type), nn_kv_type_name(v_type), KV_GROUP, s->dim_k, s->dim_v);
    if (!kv_layout_init(&y->layout, k, v, o->limits.page_tokens, latent ? 1 : s->n_kv,
                        latent ? s->dim_k + s->dim_v : s->dim_k, latent ? s->dim_k : s->dim_v, latent))
        return err_set(e, ERR_UNSUPPORTED, "layer %d: pages of %d positions cannot hold heads of %d and %d", i,
                       o->limits.page_tokens, s->dim_k, s->dim_v);
    y->page_off = x->base.x.memory.page_bytes[g];
    x->base.x.memory.page_bytes[g] += (y->layout.layer_bytes + 63) / 64 * 64;
    (void)kv_layout_init(&y->gathered, y->layout.k_type, y->layout.v_type, ATTN_CHUNK, 1, y->layout.k_dim,
                         y->layout.v_dim, latent);
    return s->dim_index ? index_layout(x, i, g, e) : 0;
}

static int alloc_state(cpu_exec *x, err *e) {
    const nn_limits *m = &x->base.x.options.limits;
    int              rc;
    x->layers = arena_calloc(&x->base.mem, (size_t)x->base.x.model->dims->n_layer, sizeof *x->layers);
    if (!x->layers) return err_set_nomem(e);
    for (int i = 0; i < x->base.x.model->dims->n_layer; i++) {
        if (x->base.x.has_layer[i] && (rc = layer_layout(x, i, e)) < 0) return rc;
    }
    if ((rc = alloc_step_pages(x, e)) < 0) return rc;
    for (int g = 0; g < x->base.x.groups.n; g++) {
        size_t bytes;
        if (!num_mul_size((size_t)m->n_pages, x->base.x.memory.page_bytes[g], &bytes))
            return err_set(e, ERR_LIMIT, "%d cache pages are too many", m->n_pages);
        x->base.x.memory.pages_bytes += bytes;
        x->page_ptrs[g] = take_zeroed(x, (size_t)m->max_seqs * (size_t)m->max_pages, sizeof *x->page_ptrs[g]);
        if (x->base.planned) continue;
        /* Zero pages of the system, taken when they are first written: a large cache costs nothing until it is used. */
        void *mem = bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
        x->pages[g] = mem == MAP_FAILED ? NULL : mem;
        x->pages_bytes[g] = bytes;
        if ((bytes && !x->pages[g]) || !x->page_ptrs[g])
            return err_set(e, ERR_NOMEM, "no memory for %zu bytes of cache pages", bytes);
    }
    return 0;
}

static int alloc_scratch(lowering *l) {
    cpu_exec        *x = l->x;
    const nn_limits *m = &x->base.x.options.limits;
    size_t tokens = (size_t)m->max_tokens, rows = tokens * (size_t)(l->max_group_rows ? l->max_group_rows : 1);
    for (int i = 0; i < x->base.x.model->dims->n_layer; i++) {
        if (x->layers[i].layout.n_kv) scratch_need(l, attn_scratch_bytes(&x->layers[i].layout, 0));
    }
    bool ok = true;
    for (int k = 0; k < CPU_AREAS && l->area_bytes; k++) ok = (x->areas[k] = take(x, l->area_bytes)) && ok;
    if (l->max_expert) {
        ok = (x->start = take_zeroed(x, (size_t)l->max_expert + 1, sizeof *x->start)) && ok;
        ok = (x->expert = take_zeroed(x, (size_t)l->max_expert, sizeof *x->expert)) && ok;
        ok = (x->counts = take_zeroed(x, (size_t)l->max_expert, sizeof *x->counts)) && ok;
        ok = (x->wave.slots = take_zeroed(x, (size_t)l->max_expert, sizeof *x->wave.slots)) && ok;
        ok = (x->row_of = take_zeroed(x, rows, sizeof *x->row_of)) && ok;
        ok = (x->in_of = take_zeroed(x, rows, sizeof *x->in_of)) && ok;
    }
    if (l->pack_floats) ok = (x->packed = take(x, tokens * l->pack_floats * sizeof(float))) && ok;
    if (l->parts_floats) {
        x->parts_floats = l->parts_floats;
        ok = (x->parts = take(x, l->parts_floats * sizeof(float))) && ok;
        ok = (x->folds = take_zeroed(x, 2 * (size_t)x->n_threads, sizeof *x->folds)) && ok;
    }
    if (x->score_floats) {
        ok = (x->scores = take(x, (size_t)x->n_threads * x->score_floats * sizeof(float))) && ok;
        ok = (x->scored = take_zeroed(x, (size_t)x->n_threads, sizeof *x->scored)) && ok;
    }
    if (x->scratch_bytes == 0) x->scratch_bytes = 64;
    ok = (x->scratch = take(x, x->scratch_bytes * (size_t)x->n_threads)) && ok;
    ok = (x->counters = take_zeroed(x, (size_t)x->n_counters + 1, sizeof *x->counters)) && ok;
    ok = (x->times = take(x, sizeof *x->times * (size_t)x->n_threads)) && ok;
    return ok || x->base.planned ? 0 : err_set_nomem(l->e);
}

/* A model that keeps nothing between steps reads its inputs whole: many rows at once, for which tiles pay. */
static bool keeps_nothing(const nn_model *m) {
    for (int i = 0; i < m->dims->n_layer; i++) {
        if (m->state[i].kind != NN_STATE_NONE && m->state[i].kind != NN_STATE_STEP) return false;
    }
    return true;
}

int cpu_lower(cpu_exec *x, err *e) {
    const nn_tape *t = x->base.x.model->tape;
    lowering       l = { .x = x, .mixture = -1, .e = e };
    int            rc;
    if ((rc = alloc_state(x, e)) < 0) return rc;
    l.version = calloc((size_t)t->n_bufs, sizeof *l.version);
    if (!l.version) return err_set_nomem(e);
    rc = collect_ropes(&l);
    x->tiles = keeps_nothing(x->base.x.model);
    /* Its own part only: what comes from outside arrives as f32, so nobody may count on an int8 copy of it. */
    for (int i = x->base.x.options.first_op; i < x->base.x.options.end_op && rc == 0; i++) {
        if (nn_exec_runs(&x->base.x.options, i)) rc = lower_op(&l, i);
        if (t->ops[i].out) l.version[t->ops[i].out]++;
    }
    expand_halves(&l);
    if (rc == 0) rc = l.rc;
    if (rc == 0) rc = alloc_scratch(&l);
    free(l.version);
    return rc;
}

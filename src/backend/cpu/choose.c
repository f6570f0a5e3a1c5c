/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexers: the positions that a row's attention sees, and attention over them.
 *
 * Keys of an index lie in the page behind the layer's keys and values, as a second layout of one head, in 16 bits or 32. A
 * row's scores are computed chunk by chunk of positions; the best are found by value, of equal ones the first, so that
 * the choice does not depend on how that is done. The positions that were chosen are gathered, in rising order, into pages of a
 * worker's own, over which attention runs as over any others: in chunks of their ranks. Where all are chosen, ranks are
 * positions, and the bits are those of attention over everything.
 */
#include "backend/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { PIECE_CHUNKS = 16, SPLIT_CHUNKS = 4 }; /* of units of work where a row is shared among workers */

void cpu_index_store(cpu_exec *x, const nn_op *op, int worker) {
    const nn_batch  *b = &x->base.batch;
    const cpu_layer *y = &x->layers[op->layer];
    const kv_layout *l = &y->index;
    const float     *k = local_buf(&x->base, op->in[0]);
    const size_t     width = (size_t)l->k_dim;
    if (worker != x->n_workers - 1) return;
    for (int s = 0; s < b->n_seq; s++) {
        const void **pages = cpu_pages_of(x, op->layer, s);
        for (int t = b->q_start[s]; t < b->q_start[s + 1];) {
            int slot = b->pos[t] % l->tokens, n = l->tokens - slot;
            if (n > b->q_start[s + 1] - t) n = b->q_start[s + 1] - t;
            uint8_t *page = (uint8_t *)(uintptr_t)pages[b->pos[t] / l->tokens] + y->index_off;
            x->k.attn.kv_store(l, page, slot, n, 0, 1, k + (size_t)t * width, width, NULL, 0);
            t += n;
        }
    }
}

/* --- choosing --------------------------------------------------------------------------------------------------- */

/* A number that rises with the score, also below zero; both zeros are the same, and NaN is least. */
static uint32_t rank_of(float score) {
    uint32_t bits;
    score += 0.0f;
    if (score != score) return 0;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The k-th largest of n ranks, byte by byte from the highest; *above: how many are larger. */
static uint32_t rank_at(const uint32_t *rank, int64_t n, int64_t k, int64_t *above) {
    uint32_t found = 0, mask = 0;
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = { 0 };
        int     digit = 255;
        for (int64_t i = 0; i < n; i++) {
            if ((rank[i] & mask) == found) count[rank[i] >> shift & 255]++;
        }
        while (*above + count[digit] < k) *above += count[digit--];
        found |= (uint32_t)digit << shift;
        mask |= 255u << shift;
    }
    return found;
}

static void put_id(float *out, int at, int32_t id) { memcpy(&out[at], &id, sizeof id); }

/* The best `top` of n scores, which are overwritten. */
static void put_best(float *score, int64_t n, int top, float *out) {
    uint32_t *rank = (uint32_t *)(void *)score;
    int64_t   above;
    int       count = 0;
    for (int64_t i = 0; i < n; i++) rank[i] = rank_of(score[i]);
    const uint32_t least = rank_at(rank, n, top, &above);
    int64_t        equal = top - above;
    for (int32_t i = 0; i < n; i++) {
        if (rank[i] > least || (rank[i] == least && equal-- > 0)) put_id(out, ++count, i);
    }
    put_id(out, 0, count);
}

/* What one group of heads of a row chooses. */
typedef struct line {
    int     row, group, seq;
    int64_t n, n_block; /* positions that the row sees, and blocks */
    float  *out;
} line;

static line line_of(const cpu_exec *x, const nn_op *op, int i) {
    const nn_choose_spec *s = &op->u.choose;
    const nn_batch       *b = &x->base.batch;
    line                  l = { .row = i / s->n_group, .group = i % s->n_group };
    l.seq = b->seq_of[l.row];
    l.n = (int64_t)b->pos[l.row] + 1;
    l.n_block = (l.n + s->block - 1) / s->block;
    l.out = local_buf(&x->base, op->out) + (int64_t)i * (1 + s->top);
    return l;
}

static void score_line(cpu_exec *x, const nn_op *op, const line *l, int64_t p0, int64_t p1, float *score, int worker) {
    const nn_choose_spec *s = &op->u.choose;
    const cpu_layer      *y = &x->layers[op->layer];
    const size_t          dim = (size_t)y->index.k_dim, heads = (size_t)(s->n_head / s->n_group);
    const float          *q = local_buf(&x->base, op->in[0]) + (size_t)l->row * (size_t)s->n_head * dim;
    attn_index_args       a = { .q = q + (size_t)l->group * heads * dim,
                                .weights = op->in[1] ? local_buf(&x->base, op->in[1]) + (size_t)l->row * heads : NULL,
                                .n_head = (int)heads,
                                .layout = &y->index,
                                .pages = cpu_pages_of(x, op->layer, l->seq),
                                .page_off = y->index_off };
    x->k.attn.index(&a, p0, p1, score + p0, cpu_scratch(x, worker));
}

static void choose_line(const nn_choose_spec *s, const line *l, float *score) {
    if (l->n_block <= s->top) {
        put_id(l->out, 0, (int32_t)l->n_block);
        for (int32_t i = 0; i < l->n_block; i++) put_id(l->out, i + 1, i);
        memset(l->out + 1 + l->n_block, 0, (size_t)(s->top - l->n_block) * sizeof *l->out);
        return;
    }
    for (int64_t i = 0; s->block > 1 && i < l->n_block; i++) {
        const int64_t end = (i + 1) * s->block < l->n ? (i + 1) * s->block : l->n;
        float         best = score[i * s->block];
        for (int64_t j = i * s->block + 1; j < end; j++) best = score[j] > best ? score[j] : best;
        score[i] = best;
    }
    for (int64_t i = 0; s->local > 0 && i < l->n_block; i++) score[i] = score[i] > FLT_MAX ? FLT_MAX : score[i];
    for (int i = 0; i < s->local; i++) score[l->n_block - 1 - i] = INFINITY; /* above every other */
    put_best(score, l->n_block, s->top, l->out);
}

/* Few rows over long contexts: workers share the positions of a line, and who is the last one chooses. */
static void choose_shared(cpu_exec *x, const cpu_item *it, const nn_op *op, int n_lines, int worker) {
    const nn_choose_spec *s = &op->u.choose;
    const int64_t         piece = PIECE_CHUNKS * ATTN_CHUNK;
    for (;;) {
        int64_t u = atomic_fetch_add_explicit(&x->counters[it->next], 1, memory_order_relaxed), pieces = 0;
        line    l = { 0 };
        int     i = 0;
        for (; i < n_lines; i++, u -= pieces) {
            l = line_of(x, op, i);
            pieces = l.n_block <= s->top ? 1 : (l.n + piece - 1) / piece;
            if (u < pieces) break;
        }
        if (i == n_lines) return;
        float *score = x->scores + (size_t)i * x->score_floats;
        if (l.n_block > s->top)
            score_line(x, op, &l, u * piece, (u + 1) * piece < l.n ? (u + 1) * piece : l.n, score, worker);
        if (atomic_fetch_add_explicit(&x->scored[i], 1, memory_order_acq_rel) < pieces - 1) continue;
        atomic_store_explicit(&x->scored[i], 0, memory_order_relaxed);
        choose_line(s, &l, score);
    }
}

void cpu_choose(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_choose_spec *s = &op->u.choose;
    const int             n_lines = x->base.batch.n_tok * s->n_group;
    float                *score = x->scores + (size_t)worker * x->score_floats;
    if (n_lines < x->n_workers) {
        choose_shared(x, it, op, n_lines, worker);
        return;
    }
    for (;;) { /* late rows, which see most, first */
        int i = n_lines - 1 - atomic_fetch_add_explicit(&x->counters[it->next], 1, memory_order_relaxed);
        if (i < 0) return;
        line l = line_of(x, op, i);
        if (l.n_block > s->top) score_line(x, op, &l, 0, l.n, score, worker);
        choose_line(s, &l, score);
    }
}

/* --- attention over what was chosen ----------------------------------------------------------------------------- */

/* What a worker needs beside the scratch of the kernels. */
typedef struct room {
    int32_t     *positions;
    const void **pages;
    uint8_t     *gathered;
    void        *kernels;
} room;

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t most_chosen(const nn_choice *c, const nn_limits *m) {
    const size_t all = (size_t)m->max_pages * (size_t)m->page_tokens, most = (size_t)c->top * (size_t)c->block;
    return most < all ? most : all;
}

static size_t room_of(const cpu_exec *x, const nn_op *op, uint8_t *scratch, room *r) {
    const cpu_layer *y = &x->layers[op->layer];
    const size_t     n = most_chosen(&op->u.attn.choice, &x->base.x.options.limits), pages = n / ATTN_CHUNK + 1;
    size_t           at[4] = { 0 };
    at[0] = aligned(attn_scratch_bytes(&y->gathered, 0));
    at[1] = at[0] + aligned(n * sizeof *r->positions);
    at[2] = at[1] + aligned(pages * sizeof *r->pages);
    at[3] = at[2] + pages * y->gathered.layer_bytes;
    if (scratch)
        *r = (room){ (int32_t *)(void *)(scratch + at[0]), (const void **)(void *)(scratch + at[1]), scratch + at[2],
                     scratch };
    return at[3];
}

size_t cpu_chosen_scratch(const cpu_exec *x, const nn_op *op) { return room_of(x, op, NULL, NULL); }

bool cpu_chosen_pays(const cpu_exec *x, const nn_op *op) {
    const nn_choice *c = &op->u.attn.choice;
    const nn_batch  *b = &x->base.batch;
    bool             some = false;
    for (int s = 0; c->ids && s < b->n_seq; s++) some = some || b->kv_len[s] > (int64_t)c->top * c->block;
    return some;
}

/* A row's chosen positions for a key head, rising. What is not such a position is left out: anybody may have written the
 * buffer. */
static int64_t positions_of(const cpu_exec *x, const nn_op *op, int row, int kv, int32_t *out) {
    const nn_choice *c = &op->u.attn.choice;
    const int        group = kv / (x->layers[op->layer].layout.n_kv / c->n_group);
    const float     *ids = local_buf(&x->base, c->ids) + ((int64_t)row * c->n_group + group) * (1 + c->top);
    const int64_t    end = (int64_t)x->base.batch.pos[row] + 1;
    int64_t          n = 0, from = 0;
    int32_t          count, id;
    memcpy(&count, ids, sizeof count);
    for (int i = 0; i < count && i < c->top; i++) {
        memcpy(&id, &ids[1 + i], sizeof id);
        const int64_t first = (int64_t)id * c->block;
        for (int64_t p = first; p >= from && p < first + c->block && p < end; p++) out[n++] = (int32_t)p;
        from = first + c->block > from ? first + c->block : from;
    }
    return n;
}

/* The heads of one key head of a row, over n positions that lie in pages of their own. */
static attn_args chosen_args(const attn_args *a, const cpu_layer *y, int row, int kv, const int32_t *last, int64_t n,
                             const room *r) {
    const int    per = a->n_head / y->layout.n_kv;
    const size_t head = (size_t)kv * (size_t)per;
    attn_args    c = *a;
    c.q = a->q + (size_t)row * a->q_stride + head * (size_t)y->layout.k_dim;
    c.out = a->out + (size_t)row * a->out_stride + head * (size_t)y->layout.v_dim;
    c.n_rows = 1;
    c.n_head = per;
    c.layout = &y->gathered;
    c.pages = r->pages;
    c.page_off = 0;
    c.kv_len = n;
    c.pos = last;
    c.row_end = c.row_begin = NULL;
    return c;
}

/* Chunks [c0, c1) of the chosen positions into the worker's pages. */
static void gather(const attn_args *a, const cpu_layer *y, int kv, int64_t n, int64_t c0, int64_t c1, const room *r) {
    const int64_t end = c1 * ATTN_CHUNK < n ? c1 * ATTN_CHUNK : n;
    for (int64_t c = c0; c < c1; c++) r->pages[c] = r->gathered + (size_t)(c - c0) * y->gathered.layer_bytes;
    kv_take_positions(&y->layout, a->pages, a->page_off, kv, r->positions + c0 * ATTN_CHUNK,
                      (int)(end - c0 * ATTN_CHUNK), &y->gathered, r->gathered);
}

/* A row and a key head at a time. */
static void chosen_row(cpu_exec *x, const nn_op *op, int row, int kv, const room *r) {
    const nn_batch  *b = &x->base.batch;
    const cpu_layer *y = &x->layers[op->layer];
    const int        s = b->seq_of[row], per = op->u.attn.n_head / y->layout.n_kv, t = row - b->q_start[s];
    const attn_args  a = cpu_attn_of(x, op, s);
    if ((int64_t)b->pos[row] < (int64_t)op->u.attn.choice.top * op->u.attn.choice.block) {
        x->k.attn.rows(&a, t, t + 1, kv * per, (kv + 1) * per, r->kernels);
        return;
    }
    const int64_t n = positions_of(x, op, row, kv, r->positions);
    const int32_t last = (int32_t)(n - 1);
    gather(&a, y, kv, n, 0, (n + ATTN_CHUNK - 1) / ATTN_CHUNK, r);
    const attn_args c = chosen_args(&a, y, t, kv, &last, n, r);
    x->k.attn.rows(&c, 0, 1, 0, per, r->kernels);
}

/* Few rows: the chunks of what was chosen are shared among the workers, and who is the last one folds them in order. */
static void chosen_shared(cpu_exec *x, const cpu_item *it, const nn_op *op, const room *r) {
    const nn_batch  *b = &x->base.batch;
    const cpu_layer *y = &x->layers[op->layer];
    const int        n_kv = y->layout.n_kv, per = op->u.attn.n_head / n_kv;
    const size_t     floats = attn_part_floats(y->layout.v_dim);
    float           *part = x->parts;
    int64_t          n = 0, chunks = 0, pieces = 0, first = 0; /* of line i, whose first unit is number `first` */
    for (int i = -1;;) {
        int64_t u = atomic_fetch_add_explicit(&x->counters[it->next], 1, memory_order_relaxed);
        while (u >= first + pieces) {
            first += pieces;
            part += (size_t)chunks * (size_t)per * floats;
            if (++i == b->n_tok * n_kv) return;
            n = positions_of(x, op, i / n_kv, i % n_kv, r->positions);
            chunks = (n + ATTN_CHUNK - 1) / ATTN_CHUNK;
            pieces = (chunks + SPLIT_CHUNKS - 1) / SPLIT_CHUNKS;
        }
        const int       row = i / n_kv, kv = i % n_kv, s = b->seq_of[row];
        const int64_t   c0 = (u - first) * SPLIT_CHUNKS, c1 = c0 + SPLIT_CHUNKS < chunks ? c0 + SPLIT_CHUNKS : chunks;
        const int32_t   last = (int32_t)(n - 1);
        const attn_args a = cpu_attn_of(x, op, s), c = chosen_args(&a, y, row - b->q_start[s], kv, &last, n, r);
        gather(&a, y, kv, n, c0, c1, r);
        x->k.attn.partial(&c, 0, 0, per, c0, c1, part, 0, chunks, r->kernels);
        if (atomic_fetch_add_explicit(&x->folds[i], 1, memory_order_acq_rel) < pieces - 1) continue;
        atomic_store_explicit(&x->folds[i], 0, memory_order_relaxed);
        x->k.attn.combine(&c, 0, 0, per, part, 0, chunks);
    }
}

void cpu_chosen_attention(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker) {
    const nn_batch  *b = &x->base.batch;
    const kv_layout *l = &x->layers[op->layer].layout;
    const int64_t    lines = (int64_t)b->n_tok * l->n_kv;
    const size_t     chunks = most_chosen(&op->u.attn.choice, &x->base.x.options.limits) / ATTN_CHUNK + 1;
    const size_t     floats = chunks * (size_t)op->u.attn.n_head * attn_part_floats(l->v_dim) * (size_t)b->n_tok;
    room             r = { 0 };
    room_of(x, op, cpu_scratch(x, worker), &r);
    if (x->n_workers > 1 && lines < 2 * x->n_workers && floats <= x->parts_floats) {
        chosen_shared(x, it, op, &r);
        return;
    }
    for (;;) {
        int64_t u = lines - 1 - atomic_fetch_add_explicit(&x->counters[it->next], 1, memory_order_relaxed);
        if (u < 0) return;
        chosen_row(x, op, (int)(u / l->n_kv), (int)(u % l->n_kv), &r);
    }
}

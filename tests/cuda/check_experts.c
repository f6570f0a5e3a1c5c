/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixtures of experts on a CUDA device: the kernels that do several ops at once for a few tokens (experts.cu, router.cu)
 * and those for many (experts_many.cu) give what the single ops give, bit for bit, for every type of packed weights and
 * rows of all lengths; nothing behind the output is touched.
 *
 * Without a device it says so. Inputs are fresh in every run; --seed N repeats one, --quick takes fewer cases.
 */
#include "cuda/drawn.h"
#include "cuda/must.h"
#include "kernels/check.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/recode.h"
#include "kernels/cuda/twin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXPERTS = 7, MOST = 300, GUARD = 64 };

/* Device memory; from NULL: bytes that no kernel writes. */
static void *device(const void *from, size_t bytes) {
    void *p = NULL;
    err   e = { 0 };
    must(cuda_alloc(&p, bytes, &e), &e);
    must(from ? cuda_copy_in(p, from, bytes, &e) : cuda_fill(p, 0xa5, bytes, &e), &e);
    return p;
}

static void *host_of(const void *p, size_t bytes) {
    void *h = alloc(bytes);
    err   e = { 0 };
    must(cuda_copy_out(h, p, bytes, &e), &e);
    return h;
}

static void same(check *c, const void *a, const void *b, size_t bytes, const char *what, int type, int n) {
    uint8_t *x = host_of(a, bytes), *y = host_of(b, bytes);
    size_t   at = 0;
    while (at < bytes && x[at] == y[at]) at++;
    CHECK(c, at == bytes, "%s, type %s, %d tokens: byte %zu of %zu differs", what, drawn_name((tensor_type)type), n, at,
          bytes);
    free(x);
    free(y);
}

static float *random_floats(check *c, size_t n, float scale) {
    float *v = alloc(n * sizeof *v);
    check_fill_normal(c, v, n, scale);
    float *d = device(v, n * sizeof *v);
    free(v);
    return d;
}

/* A stack of matrices: packed ones, and where each lies. */
typedef struct stack {
    int          type;
    int64_t      rows, cols;
    size_t       each;
    uint8_t     *packed;
    const void **table; /* on the device */
    float       *bias, scale;
} stack;

static stack stack_open(check *c, int type, int64_t rows, int64_t cols, bool biased) {
    stack        s = { .type = type, .rows = rows, .cols = cols };
    const size_t row_bytes = cuda_row_bytes((tensor_type)type, cols),
                 block = (size_t)cuda_block_bytes((tensor_type)type);
    const size_t bytes = (size_t)rows * row_bytes;
    const void  *table[EXPERTS];
    uint8_t     *staged = alloc(bytes * EXPERTS);
    err          e = { 0 };
    s.each = cuda_packed_bytes((tensor_type)type, rows, cols);
    s.packed = device(NULL, s.each * EXPERTS);
    for (int i = 0; i < EXPERTS; i++) {
        uint8_t *m = drawn_staged(c, (tensor_type)type, rows, cols);
        memcpy(staged + bytes * (size_t)i, m, bytes);
        free(m);
    }
    const int power = cuda_twin_power((tensor_type)type, staged, (int64_t)(bytes * EXPERTS / block), block);
    void     *raw = device(staged, bytes * EXPERTS);
    s.scale = ldexpf(1, power);
    for (int i = 0; i < EXPERTS; i++) {
        uint8_t *to = s.packed + s.each * (size_t)i;
        must(cuda_pack(to, (uint8_t *)raw + bytes * (size_t)i, row_bytes, (tensor_type)type, rows, cols, power, NULL,
                       &e),
             &e);
        must(cuda_wait(NULL, &e), &e);
        table[i] = to;
    }
    cuda_free(raw);
    free(staged);
    s.table = device(table, sizeof table);
    s.bias = biased ? random_floats(c, (size_t)(EXPERTS * rows), 0.1f) : NULL;
    return s;
}

static void stack_close(stack *s) {
    cuda_free(s->packed);
    cuda_free((void *)s->table);
    cuda_free(s->bias);
}

/* One case: what goes in, and what single ops make of it. */
typedef struct scene {
    stack     gate, up, down;
    int       n, n_used;
    float    *x, *chosen, *gated, *other, *each, *sum;
    size_t    gated_bytes, sum_bytes;
    int32_t  *order, *items;
    cuda_rows rows, mid; /* x, and the gated rows, in 16 bits */
    cuda_act  act;
    float     limit;
} scene;

static cuda_rows rows_open(int64_t n, int64_t cols) {
    return (cuda_rows){ .n = n,
                        .n_pad = cuda_rows_pad(n),
                        .cols = cols,
                        .data = device(NULL, cuda_rows_bytes(n, cols)),
                        .scale = device(NULL, (size_t)(n + 8) * sizeof(float)) };
}

static void rows_close(cuda_rows *r) {
    cuda_free((void *)r->data);
    cuda_free((void *)r->scale);
}

/* Different experts for each choice of a token; the first one is the same for most, so that lists have all lengths. */
static float *random_choice(check *c, int n, int n_used) {
    float *v = alloc((size_t)(n * n_used * 2) * sizeof *v);
    for (int t = 0; t < n; t++) {
        int first = check_int(c, 0, 2) ? 3 : check_int(c, 0, EXPERTS - 1);
        for (int k = 0; k < n_used; k++) {
            int32_t id = (first + k) % EXPERTS;
            memcpy(v + (t * n_used + k) * 2, &id, sizeof id);
            v[(t * n_used + k) * 2 + 1] = check_normal(c);
        }
    }
    float *d = device(v, (size_t)(n * n_used * 2) * sizeof *v);
    free(v);
    return d;
}

static void scene_open(check *c, scene *s, int type, int64_t cols, int64_t ff, int n, int n_used, bool clamped) {
    size_t rows = (size_t)(n * n_used);
    *s = (scene){ .n = n, .n_used = n_used, .act = CUDA_ACT_SILU, .limit = clamped ? 7.0f : 0.0f };
    s->gate = stack_open(c, type, ff, cols, clamped);
    s->up = stack_open(c, type, ff, cols, clamped);
    s->down = stack_open(c, type, cols, ff, clamped);
    s->x = random_floats(c, (size_t)n * (size_t)cols, 1.0f);
    s->chosen = random_choice(c, n, n_used);
    s->gated_bytes = (rows * (size_t)ff + GUARD) * sizeof(float);
    s->sum_bytes = ((size_t)n * (size_t)cols + GUARD) * sizeof(float);
    s->gated = device(NULL, s->gated_bytes);
    s->other = device(NULL, s->gated_bytes);
    s->each = device(NULL, rows * (size_t)cols * sizeof(float));
    s->sum = device(NULL, s->sum_bytes);
    s->order = device(NULL, rows * sizeof(int32_t));
    s->items = device(NULL, (1 + 3 * (rows + EXPERTS)) * sizeof(int32_t));
    s->rows = rows_open(n, cols);
    s->mid = rows_open((int64_t)rows, ff);
}

static void scene_close(scene *s) {
    stack_close(&s->gate);
    stack_close(&s->up);
    stack_close(&s->down);
    void *all[] = { s->x, s->chosen, s->gated, s->other, s->each, s->sum, s->order, s->items };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cuda_free(all[i]);
    rows_close(&s->rows);
    rows_close(&s->mid);
}

static void sort(const scene *s, int item_rows) {
    err e = { 0 };
    must(cuda_op_sort(s->order, s->items, s->chosen, (int64_t)s->n * s->n_used, EXPERTS, item_rows, NULL, &e), &e);
}

static void grouped(const scene *s, const stack *w, const cuda_rows *x, int in_div, float *out) {
    err          e = { 0 };
    cuda_grouped a = { .type = (tensor_type)w->type,
                       .rows = w->rows,
                       .cols = w->cols,
                       .mats = (const void *const *)w->table,
                       .n_mats = EXPERTS,
                       .x = *x,
                       .w_scale = w->scale,
                       .bias = w->bias,
                       .chosen = s->chosen,
                       .order = s->order,
                       .items = s->items,
                       .n = (int64_t)s->n * s->n_used,
                       .in_div = in_div,
                       .out = out };
    must(cuda_op_grouped(&a, NULL, &e), &e);
}

/* By single ops: s->gated, s->sum. */
static void by_ops(const scene *s) {
    err     e = { 0 };
    int64_t rows = (int64_t)s->n * s->n_used;
    sort(s, CUDA_ITEM_ROWS);
    must(cuda_rows_make(&s->rows, s->x, s->gate.cols, NULL, &e), &e);
    grouped(s, &s->gate, &s->rows, s->n_used, s->gated);
    grouped(s, &s->up, &s->rows, s->n_used, s->other);
    cuda_each glu = { .kind = CUDA_EACH_GLU,
                      .act = s->act,
                      .y = s->gated,
                      .a = s->other,
                      .rows = rows,
                      .width = s->gate.rows,
                      .a_width = s->gate.rows,
                      .scale = s->limit,
                      .alpha = 1.702f };
    must(cuda_op_each(&glu, NULL, &e), &e);
    must(cuda_rows_make(&s->mid, s->gated, s->gate.rows, NULL, &e), &e);
    grouped(s, &s->down, &s->mid, 1, s->each);
    must(cuda_op_combine(s->sum, s->each, s->chosen, s->n, s->n_used, s->down.rows, false, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
}

static void check_few(check *c, const scene *s) {
    float       *gated = device(NULL, s->gated_bytes), *sum = device(NULL, s->sum_bytes);
    err          e = { 0 };
    cuda_experts a = { .type = (tensor_type)s->gate.type,
                       .rows = s->gate.rows,
                       .cols = s->gate.cols,
                       .gate = s->gate.packed,
                       .up = s->up.packed,
                       .each = s->gate.each,
                       .gate_scale = s->gate.scale,
                       .up_scale = s->up.scale,
                       .gate_bias = s->gate.bias,
                       .up_bias = s->up.bias,
                       .rows16 = s->rows,
                       .chosen = s->chosen,
                       .out = gated,
                       .n_tok = s->n,
                       .n_used = s->n_used,
                       .act = s->act,
                       .limit = s->limit,
                       .alpha = 1.702f };
    must(cuda_op_experts(&a, NULL, &e), &e);
    a.rows = s->down.rows, a.cols = s->down.cols, a.gate = s->down.packed, a.up = NULL, a.each = s->down.each;
    a.gate_scale = s->down.scale, a.gate_bias = s->down.bias, a.x = gated, a.out = sum, a.known = true;
    must(cuda_op_experts(&a, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
    same(c, gated, s->gated, s->gated_bytes, "gate and up of a few", s->gate.type, s->n);
    same(c, sum, s->sum, s->sum_bytes, "down of a few", s->gate.type, s->n);
    cuda_free(gated);
    cuda_free(sum);
}

static void check_many(check *c, const scene *s, int item_rows) {
    float            *gated = device(NULL, s->gated_bytes), *each = device(NULL, s->gated_bytes);
    size_t            each_bytes = (size_t)(s->n * s->n_used) * (size_t)s->down.rows * sizeof(float);
    err               e = { 0 };
    cuda_many_experts a = { .type = (tensor_type)s->gate.type,
                            .rows = s->gate.rows,
                            .cols = s->gate.cols,
                            .gate = s->gate.packed,
                            .up = s->up.packed,
                            .each = s->gate.each,
                            .n_mats = EXPERTS,
                            .item_rows = item_rows,
                            .gate_scale = s->gate.scale,
                            .up_scale = s->up.scale,
                            .gate_bias = s->gate.bias,
                            .up_bias = s->up.bias,
                            .x = s->rows,
                            .in_div = s->n_used,
                            .order = s->order,
                            .items = s->items,
                            .n = (int64_t)s->n * s->n_used,
                            .act = s->act,
                            .limit = s->limit,
                            .alpha = 1.702f,
                            .out = gated };
    sort(s, item_rows);
    must(cuda_op_many_experts(&a, NULL, &e), &e);
    cuda_free(each);
    each = device(NULL, each_bytes);
    a.rows = s->down.rows, a.cols = s->down.cols, a.gate = s->down.packed, a.up = NULL, a.each = s->down.each;
    a.gate_scale = s->down.scale, a.gate_bias = s->down.bias, a.x = s->mid, a.in_div = 1, a.out = each;
    must(cuda_op_many_experts(&a, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
    same(c, gated, s->gated, s->gated_bytes, "gate and up of many", s->gate.type, s->n);
    same(c, each, s->each, each_bytes, "down of many", s->gate.type, s->n);
    cuda_free(gated);
    cuda_free(each);
}

/* HEARTH_TEST_SMALL, for a device in software: the smallest shape, no large batches. */
static bool small(void) { return getenv("HEARTH_TEST_SMALL") != NULL; }

static void check_types(check *c) {
    static const int types[] = { TENSOR_Q4_K,   TENSOR_MXFP4, TENSOR_Q8_0,     TENSOR_Q4_0,    TENSOR_Q6_K,
                                 TENSOR_Q5_K,   TENSOR_Q2_K,  TENSOR_TABLE32,  TENSOR_TABLE16, TENSOR_PAIR4,
                                 TENSOR_PAIR5,  TENSOR_PAIR8, TENSOR_E4M3_128, TENSOR_E4M3_32, TENSOR_E5M2_32,
                                 TENSOR_NF4_64, TENSOR_Q3_K,  TENSOR_PAIR2,    TENSOR_PAIR3,   TENSOR_IQ2_XXS,
                                 TENSOR_IQ2_XS, TENSOR_IQ2_S, TENSOR_IQ3_XXS,  TENSOR_IQ3_S,   TENSOR_IQ1_S,
                                 TENSOR_IQ1_M };
    static const struct {
        int cols, ff;
    } shapes[] = { { 2048, 768 }, { 768, 256 }, { 2816, 512 }, { 1024, 1280 }, { 7168, 256 } };
    static const int counts[] = { 1, 2, 4, 5, 33, MOST };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                scene s;
                int   n = counts[k];
                if (c->quick && (t + i + k) % 4) continue;
                if (small() && (shapes[i].cols > 768 || n > 33)) continue;
                scene_open(c, &s, types[t], shapes[i].cols, shapes[i].ff, n, 1 + (int)((k + i) % 5), i % 2);
                by_ops(&s);
                if (cuda_can_experts((tensor_type)types[t], s.gate.cols, n, s.n_used)) check_few(c, &s);
                int64_t wide = s.gate.cols > s.down.cols ? s.gate.cols : s.down.cols;
                int     most = cuda_item_rows((tensor_type)types[t], INT16_MAX, 1, wide);
                for (int rows = CUDA_ITEM_ROWS; rows <= most; rows *= 2) check_many(c, &s, rows);
                scene_close(&s);
            }
        }
    }
}

/* --- routers ------------------------------------------------------------------------------------------------------ */

static void check_router(check *c, int64_t cols, int n_expert, int n, bool softmax, bool biased) {
    int n_used = n_expert < 8 ? n_expert : 8;
    if (!cuda_can_router(cols, n_expert, n)) return;
    size_t row = (size_t)(n * cols) * sizeof(float), score = (size_t)(n * n_expert) * sizeof(float),
           choice = (size_t)(n * n_used * 2) * sizeof(float);
    float    *x = random_floats(c, (size_t)(n * cols), 3.0f), *nw = random_floats(c, (size_t)cols, 1.0f);
    float    *w = random_floats(c, (size_t)(n_expert * cols), 0.02f), *b = random_floats(c, (size_t)n_expert, 0.1f);
    float    *normed[2], *logits[2], *chosen[2];
    unsigned *count = device(NULL, sizeof *count), *after, zero = 0;
    cuda_rows rows[2];
    err       e = { 0 };
    must(cuda_fill(count, 0, sizeof *count, &e), &e);
    for (int i = 0; i < 2; i++) {
        normed[i] = device(NULL, row), logits[i] = device(NULL, score), chosen[i] = device(NULL, choice);
        rows[i] = rows_open(n, cols);
    }
    cuda_route  route = { .bias = biased ? b : NULL,
                          .rows = n,
                          .n_expert = n_expert,
                          .n_used = n_used,
                          .softmax = softmax,
                          .renorm = true,
                          .scale = 1.0f };
    cuda_norm   norm = { CUDA_NORM_RMS, x, normed[0], n, (int)cols, 1, nw, NULL, 1e-6f };
    cuda_plain  plain = { w, normed[0], biased ? b : NULL, logits[0], n_expert, cols, n, false };
    cuda_router a = { x, nw, 1e-6f, normed[1], rows[1], w, biased ? b : NULL, logits[1], count, route, cols };
    must(cuda_op_norm(&norm, &rows[0], NULL, &e), &e);
    must(cuda_op_plain(&plain, NULL, &e), &e);
    route.logits = logits[0], route.out = chosen[0];
    must(cuda_op_route(&route, NULL, &e), &e);
    a.route.logits = logits[1], a.route.out = chosen[1];
    must(cuda_op_router(&a, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
    same(c, normed[1], normed[0], row, "normed rows", TENSOR_F32, n);
    same(c, rows[1].scale, rows[0].scale, (size_t)n * sizeof(float), "powers of two", TENSOR_F32, n);
    same(c, logits[1], logits[0], score, "a router's logits", TENSOR_F32, n);
    same(c, chosen[1], chosen[0], choice, "choices", TENSOR_F32, n);
    for (int64_t k = 0; k < cols; k += 8) { /* rows of the image; those behind the last are not written */
        size_t at = (size_t)(k / 64 * rows[0].n_pad) * 128;
        if (k % 64 == 0)
            same(c, (const uint8_t *)rows[1].data + at, (const uint8_t *)rows[0].data + at, (size_t)n * 128,
                 "rows in 16 bits", TENSOR_F32, n);
    }
    after = host_of(count, sizeof *after);
    CHECK(c, *after == zero, "the router's count is %u", *after);
    free(after);
    for (int i = 0; i < 2; i++) {
        cuda_free(normed[i]), cuda_free(logits[i]), cuda_free(chosen[i]);
        rows_close(&rows[i]);
    }
    void *all[] = { x, nw, w, b, count };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cuda_free(all[i]);
}

int main(int argc, char **argv) {
    check c;
    err   e = { 0 };
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    if (c.rng == 1) c.rng = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)c.rng);
    if (cuda_device_count(&e) == 0) {
        printf("skipped: no device: %s\n", e.msg);
        return 0;
    }
    cuda_device d;
    must(cuda_device_open(&d, 0, &e), &e);
    if (small()) printf("small: one shape of matrices, up to 33 rows\n");
    for (int n = 1; n <= CUDA_EXPERTS_TOKENS; n++) {
        check_router(&c, 2048, 128, n, true, false);
        check_router(&c, 2880, 32, n, true, true);
        check_router(&c, 1024, 300, n, false, true);
        check_router(&c, 4096, 8, n, true, false);
        check_router(&c, 7168, 384, n, true, false);
    }
    check_types(&c);
    const int rc = check_end(&c);
    printf("check %s\n", rc == 0 ? "ok" : "FAILED");
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An indexer's choice on the device (choose.cu) is what a plain sort chooses from the same scores: ties, infinities, NaN, zeros
 * of both signs, blocks, local blocks, several groups, several sequences, one block to many more than a kernel looks at in
 * one round; all lines at once or a few at a time. Scores are made exactly: a query of one element. With weights: of several heads,
 * by whole numbers, in f16 and f32.
 */
#include "cuda/must.h"
#include "kernels/check.h"
#include "kernels/cuda/ops.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS = 3, PAGE = 32 };

/* What a case draws: rows of SEQS sequences, the last positions of each. */
typedef struct scene {
    int    dim, n_head, n_group, top, block, local, rows, pages; /* pages: of a sequence */
    bool   many, halves;                                         /* many: several heads with weights */
    int    len[SEQS], pos[64], seq_of[64];
    float *keys[SEQS]; /* [position][dim] */
    float *q, *weights;
} scene;

static void *device(const void *from, size_t bytes) {
    err   e;
    void *p;
    must(cuda_alloc(&p, bytes + 16, &e), &e);
    must(cuda_fill(p, 0xff, bytes + 16, &e), &e);
    if (from) must(cuda_copy_in(p, from, bytes, &e), &e);
    return p;
}

static float drawn_score(check *c, int kind) {
    static const float odd[] = { NAN, INFINITY, -INFINITY, -0.0f, 0.0f, 1e38f, 1e-41f };
    if (kind == 1) return (float)check_int(c, -2, 2); /* ties */
    if (kind == 2) return 1;
    if (kind == 3 && check_int(c, 0, 3) == 0) return odd[check_int(c, 0, 6)];
    return check_normal(c);
}

static void scene_draw(check *c, scene *s, int most) {
    const int kind = check_int(c, 0, 3);
    *s = (scene){ .many = check_int(c, 0, 2) == 0, .halves = check_int(c, 0, 1), .top = check_int(c, 1, 70) };
    s->block = check_int(c, 0, 1) ? 1 : check_int(c, 2, 130);
    s->local = check_int(c, 0, s->top < 3 ? s->top : 3);
    s->dim = check_int(c, 1, 20);
    s->n_group = s->many ? 1 : check_int(c, 1, 3);
    s->n_head = s->many ? check_int(c, 1, 19) : s->n_group;
    s->rows = check_int(c, 3, 8) * SEQS;
    for (int i = 0; i < SEQS; i++) {
        s->len[i] = i == 0 ? most : check_int(c, s->rows, most);
        if (s->pages < (s->len[i] + PAGE - 1) / PAGE) s->pages = (s->len[i] + PAGE - 1) / PAGE;
        s->keys[i] = alloc((size_t)(s->len[i] * s->dim) * sizeof(float));
        for (int j = 0; j < s->len[i] * s->dim; j++) {
            if (s->many) s->keys[i][j] = (float)check_int(c, -4, 4);
            if (!s->many && j % s->dim == 0) s->keys[i][j] = drawn_score(c, kind);
            if (!s->many && s->halves) s->keys[i][j] = tensor_f16_to_f32(tensor_f32_to_f16(s->keys[i][j]));
        }
    }
    for (int t = 0; t < s->rows; t++) {
        s->seq_of[t] = t / (s->rows / SEQS);
        s->pos[t] = s->len[s->seq_of[t]] - s->rows / SEQS + t % (s->rows / SEQS);
    }
    const int n = s->rows * s->n_head;
    s->q = alloc((size_t)(n * s->dim) * sizeof(float)), s->weights = alloc((size_t)n * sizeof(float));
    for (int i = 0; i < n * s->dim; i++) s->q[i] = s->many ? (float)check_int(c, -3, 3) : i % s->dim == 0;
    for (int i = 0; i < n; i++) s->weights[i] = (float)check_int(c, -2, 5);
}

static float score_of(const scene *s, int t, int g, const float *key) {
    float sum = 0;
    for (int h = 0; h < s->n_head; h++) {
        float        one = 0;
        const float *q = s->q + (t * s->n_head + h) * s->dim;
        if (!s->many && h != g) continue;
        if (!s->many) return key[0];
        for (int i = 0; i < s->dim; i++) one += q[i] * key[i];
        sum += s->weights[t * s->n_head + h] * (one > 0 ? one : 0);
    }
    return sum;
}

/* Whether a comes in front of b: NaN is last of all, of equal ones the first. */
static bool is_better(float a, float b) { return isnan(b) ? !isnan(a) : a > b; }

/* What the line has to choose, rising. */
static int chosen_of(const scene *s, int t, int g, int32_t *out) {
    const int n = s->pos[t] + 1, blocks = (n + s->block - 1) / s->block, all = blocks < s->top ? blocks : s->top;
    float    *score = alloc((size_t)blocks * sizeof *score);
    bool     *taken = alloc((size_t)blocks);
    int       count = 0;
    for (int j = 0; j < n; j++) {
        const float v = score_of(s, t, g, s->keys[s->seq_of[t]] + j * s->dim);
        if (j % s->block == 0 || v > score[j / s->block]) score[j / s->block] = v;
    }
    for (int i = 0; i < s->local && i < blocks; i++) taken[blocks - 1 - i] = true;
    for (int k = s->local < blocks ? s->local : blocks; k < all; k++) {
        int best = -1;
        for (int i = 0; i < blocks; i++) {
            if (!taken[i] && (best < 0 || is_better(score[i], score[best]))) best = i;
        }
        taken[best] = true;
    }
    for (int i = 0; i < blocks; i++) {
        if (taken[i]) out[count++] = i;
    }
    free(score), free(taken);
    return count;
}

/* Keys of all sequences by the store's kernel, a part of them at a time; pages in any order. */
static void store_keys(const scene *s, const cuda_pages *p, cuda_batch b, const int32_t *table) {
    err e;
    for (int i = 0; i < SEQS; i++) {
        int32_t *pos = alloc((size_t)s->len[i] * 4), *seq = alloc((size_t)s->len[i] * 4);
        for (int j = 0; j < s->len[i]; j++) pos[j] = j, seq[j] = i;
        void *d_pos = device(pos, (size_t)s->len[i] * 4), *d_seq = device(seq, (size_t)s->len[i] * 4),
             *keys = device(s->keys[i], (size_t)(s->len[i] * s->dim) * 4);
        b.block = table, b.pos = d_pos, b.seq_of = d_seq, b.n_tok = s->len[i];
        must(cuda_op_store_index(p, keys, &b, NULL, &e), &e);
        must(cuda_wait(NULL, &e), &e);
        cuda_free(d_pos), cuda_free(d_seq), cuda_free(keys), free(pos), free(seq);
    }
}

static void compare(check *c, const scene *s, const int32_t *got, int at_once) {
    int32_t *want = alloc((size_t)s->top * sizeof *want);
    for (int line = 0; line < s->rows * s->n_group; line++, got += 1 + s->top) {
        const int n = chosen_of(s, line / s->n_group, line % s->n_group, want);
        CHECK(c, got[0] == n, "line %d of %d: %d are chosen, not %d", line, s->rows * s->n_group, got[0], n);
        CHECK(c, got[0] != n || memcmp(got + 1, want, (size_t)n * sizeof *want) == 0,
              "line %d (%d positions, blocks of %d, top %d, local %d, %s, %d at once): other ones", line,
              s->pos[line / s->n_group] + 1, s->block, s->top, s->local, s->halves ? "f16" : "f32", at_once);
        for (int i = n; i < s->top; i++) CHECK(c, got[1 + i] == 0, "line %d: %d behind the last", line, got[1 + i]);
    }
    free(want);
}

static void check_case(check *c, int most) {
    scene s;
    err   e;
    scene_draw(c, &s, most);
    const int  lines = s.rows * s.n_group;
    cuda_pages p = { .page_bytes = 0,
                     .offset = 64,
                     .k_type = s.halves ? CUDA_PAGE_F16 : CUDA_PAGE_F32,
                     .n_kv = 1,
                     .dim_k = s.dim,
                     .tokens = PAGE };
    p.k_row = cuda_page_row_bytes(p.k_type, s.dim);
    p.page_bytes = p.offset + PAGE * p.k_row;
    p.base = device(NULL, p.page_bytes * (size_t)(SEQS * s.pages));
    int32_t *table = alloc((size_t)(2 + SEQS * s.pages) * sizeof *table);
    table[0] = s.pages, table[1] = 2;
    for (int i = 0; i < SEQS * s.pages; i++) table[2 + i] = SEQS * s.pages - 1 - i;
    cuda_batch b = { .n_tok = s.rows, .n_seq = SEQS, .page_tokens = PAGE };
    void *d_table = device(table, (size_t)(2 + SEQS * s.pages) * sizeof *table), *pos = device(s.pos, sizeof s.pos),
         *seq = device(s.seq_of, sizeof s.seq_of), *q = device(s.q, (size_t)(s.rows * s.n_head * s.dim) * 4),
         *weights = device(s.weights, (size_t)(s.rows * s.n_head) * 4);
    store_keys(&s, &p, b, d_table);
    b.block = d_table, b.pos = pos, b.seq_of = seq;
    cuda_choose a = { .index = p,
                      .batch = b,
                      .q = q,
                      .weights = s.many ? weights : NULL,
                      .n_head = s.n_head,
                      .n_group = s.n_group,
                      .top = s.top,
                      .block = s.block,
                      .local = s.local,
                      .chunks = (s.pages * PAGE + CUDA_ATTN_CHUNK - 1) / CUDA_ATTN_CHUNK };
    a.line_floats = cuda_choose_floats(s.block, a.chunks);
    for (int at_once = lines; at_once > 0; at_once = at_once > 5 ? 5 : 0) {
        const size_t bytes = (size_t)(lines * (1 + s.top)) * sizeof(int32_t);
        int32_t     *got = alloc(bytes);
        a.score_floats = a.line_floats * at_once;
        a.scores = device(NULL, (size_t)a.score_floats * sizeof(float));
        a.out = device(NULL, bytes);
        must(cuda_op_choose(&a, NULL, &e), &e);
        must(cuda_wait(NULL, &e), &e);
        must(cuda_copy_out(got, a.out, bytes, &e), &e);
        compare(c, &s, got, at_once);
        cuda_free(a.scores), cuda_free(a.out), free(got);
    }
    cuda_free(p.base), cuda_free(d_table), cuda_free(pos), cuda_free(seq), cuda_free(q), cuda_free(weights);
    for (int i = 0; i < SEQS; i++) free(s.keys[i]);
    free(table), free(s.q), free(s.weights);
}

int main(int argc, char **argv) {
    check       c;
    cuda_device d;
    err         e = { 0 };
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    if (cuda_device_count(&e) == 0) {
        printf("skipped: no device: %s\n", e.msg);
        return 0;
    }
    must(cuda_device_open(&d, 0, &e), &e);
    for (int i = 0; i < (c.quick ? 12 : 60); i++) check_case(&c, check_int(&c, 30, 300));
    for (int i = 0; i < (c.quick ? 4 : 20); i++) check_case(&c, check_int(&c, 1000, c.quick ? 2500 : 9000));
    const int rc = check_end(&c);
    printf("check %s\n", rc == 0 ? "ok" : "FAILED");
    return rc;
}

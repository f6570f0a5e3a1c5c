/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of prompts on a CUDA device (attn_many.cu): the rows of a batch of long sequences are, bit for bit, those of the
 * same rows in pieces of up to 64, which take other kernels. Heads of 64 and 128, windows, chunks, soft caps, sinks, rows that
 * see further than themselves, sequences that begin anywhere; pages are NaN where nothing is stored, and some values are not
 * finite.
 *
 * Without a device it says so. Inputs are fresh in every run; --seed N repeats one, --quick takes fewer cases.
 */
#include "cuda/must.h"
#include "kernels/check.h"
#include "kernels/cuda/ops.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_SEQ = 3, MAX_LEN = 700, MAX_ROWS = MAX_SEQ * MAX_LEN, PIECE = 64 };

static void *upload(const void *from, size_t bytes) {
    void *p = NULL;
    err   e = { 0 };
    must(cuda_alloc(&p, bytes ? bytes : 1, &e), &e);
    must(cuda_copy_in(p, from, bytes, &e), &e);
    return p;
}

/* Sequences of which the last rows[i] of len[i] positions are computed. */
typedef struct scene {
    int       n_seq, len[MAX_SEQ], rows[MAX_SEQ], n_rows, page_tokens, pages_each;
    bool      ends; /* rows see up to a few positions behind them */
    cuda_attn a;
    float    *out, *again;
} scene;

/* A batch of rows [from[i], to[i]) of each sequence's rows, those without any left out; the first row's number in the scene
 * where there is one sequence. */
static int32_t *make_batch(const scene *s, const int *from, const int *to, cuda_batch *b) {
    size_t   per = (size_t)s->pages_each;
    int32_t *v = alloc((8 + 8 * MAX_ROWS + MAX_SEQ * per) * sizeof *v), *pos = v + 8, *seq_of = pos + MAX_ROWS,
            *row_end = seq_of + MAX_ROWS, *q_start = row_end + MAX_ROWS, *tiles = q_start + MAX_ROWS,
            *table = tiles + MAX_ROWS;
    int n = 0, n_seq = 0, n_tiles = 0;
    for (int i = 0; i < s->n_seq; i++) {
        if (from[i] == to[i]) continue;
        q_start[n_seq] = n;
        for (int r = from[i]; r < to[i]; r++, n++) {
            int at = s->len[i] - s->rows[i] + r;
            if ((r - from[i]) % CUDA_TILE_TOKENS == 0) tiles[n_tiles++] = n;
            pos[n] = at;
            seq_of[n] = n_seq;
            row_end[n] = s->ends && at / 50 * 50 + 50 < s->len[i] ? at / 50 * 50 + 50 : at + 1;
        }
        for (int p = 0; p < s->pages_each; p++)
            table[(size_t)n_seq * per + (size_t)p] =
                (int32_t)((s->n_seq - 1 - i) * s->pages_each + (p * 7 + 3) % s->pages_each);
        n_seq++;
    }
    q_start[n_seq] = n;
    v[0] = s->pages_each;
    v[1] = (int32_t)(table - v);
    size_t   bytes = (size_t)(table - v + (ptrdiff_t)(MAX_SEQ * per)) * sizeof *v;
    int32_t *there = upload(v, bytes);
    *b = (cuda_batch){ .block = there,
                       .pos = there + (pos - v),
                       .seq_of = there + (seq_of - v),
                       .row_end = there + (row_end - v),
                       .q_start = there + (q_start - v),
                       .tiles = there + (tiles - v),
                       .n_tiles = n_tiles,
                       .n_tok = n,
                       .n_seq = n_seq,
                       .page_tokens = s->page_tokens };
    free(v);
    return there;
}

static void run(scene *s, const int *from, const int *to, size_t first, float *out) {
    size_t    width = (size_t)(s->a.n_head * s->a.dim_q);
    err       e = { 0 };
    cuda_attn a = s->a;
    int32_t  *ints = make_batch(s, from, to, &a.batch);
    a.q += first * width;
    must(cuda_op_attn(&a, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
    must(cuda_copy_out(out + first * width, s->a.out, (size_t)a.batch.n_tok * width * sizeof *out, &e), &e);
    cuda_free(ints);
}

/* Keys and values of all pages: normal, NaN where no position is stored, some infinite values. */
static uint8_t *make_pages(check *c, const scene *s, size_t bytes) {
    const cuda_pages *g = &s->a.pages;
    uint16_t         *v = alloc(bytes);
    float             x[128];
    memset(v, 0xff, bytes);
    for (int i = 0; i < s->n_seq; i++) {
        for (int p = 0; p < s->len[i]; p++) {
            size_t page = (size_t)((s->n_seq - 1 - i) * s->pages_each + (p / s->page_tokens * 7 + 3) % s->pages_each);
            for (int h = 0; h < 2 * g->n_kv; h++) {
                size_t at = page * g->page_bytes + (h < g->n_kv ? g->offset : g->v_offset) +
                            ((size_t)(h % g->n_kv) * (size_t)g->tokens + (size_t)(p % s->page_tokens)) * g->k_row;
                check_fill_normal(c, x, (size_t)g->dim_k, 1.0f);
                if (h >= g->n_kv && s->a.softcap == 0 && check_int(c, 0, 4000) == 0)
                    x[check_int(c, 0, g->dim_k - 1)] = INFINITY;
                for (int k = 0; k < g->dim_k; k++) v[at / 2 + (size_t)k] = tensor_f32_to_f16(x[k]);
            }
        }
    }
    return (uint8_t *)v;
}

static void scene_fill(check *c, scene *s, int dim) {
    static const int pages[] = { 16, 32, 64, 128 }, reps[] = { 1, 3, 4, 8 };
    int              n_kv = check_int(c, 1, 2), rep = reps[check_int(c, 0, 3)];
    memset(s, 0, sizeof *s);
    s->n_seq = check_int(c, 1, MAX_SEQ);
    s->page_tokens = pages[check_int(c, 0, 3)];
    s->ends = check_int(c, 0, 3) == 0;
    for (int i = 0; i < s->n_seq; i++) {
        s->len[i] = check_int(c, 130, MAX_LEN);
        s->rows[i] = check_int(c, 0, 2) ? check_int(c, 110, s->len[i]) : s->len[i];
        s->n_rows += s->rows[i];
    }
    s->pages_each = (MAX_LEN + s->page_tokens - 1) / s->page_tokens;
    if (s->pages_each % 7 == 0) s->pages_each++;
    size_t     row = (size_t)dim * 2, side = (size_t)(n_kv * s->page_tokens) * row;
    cuda_pages g = { .n_kv = n_kv,
                     .dim_k = dim,
                     .dim_v = dim,
                     .tokens = s->page_tokens,
                     .k_type = CUDA_PAGE_F16,
                     .v_type = CUDA_PAGE_F16,
                     .k_row = row,
                     .v_row = row,
                     .offset = 256,
                     .v_offset = 256 + side,
                     .page_bytes = 256 + 2 * side };
    s->a = (cuda_attn){ .pages = g,
                        .n_head = n_kv * rep,
                        .dim_q = dim,
                        .dim_out = dim,
                        .scale = 1.0f / sqrtf((float)dim),
                        .window = check_int(c, 0, 2) ? 0 : check_int(c, 1, 300),
                        .chunk = check_int(c, 0, 5) ? 0 : check_int(c, 10, 200),
                        .softcap = check_int(c, 0, 3) ? 0.0f : 30.0f,
                        .strict = !s->ends && check_int(c, 0, 1) };
}

static void check_scene(check *c, int dim) {
    scene s;
    scene_fill(c, &s, dim);
    size_t width = (size_t)(s.a.n_head * dim), n = (size_t)s.n_rows * width,
           bytes = (size_t)(s.n_seq * s.pages_each) * s.a.pages.page_bytes;
    float *q = alloc(n * sizeof *q), sinks[64];
    check_fill_normal(c, q, n, 2.0f);
    check_fill_normal(c, sinks, 64, 1.0f);
    s.out = alloc(n * sizeof *s.out), s.again = alloc(n * sizeof *s.again);
    uint8_t *pages = make_pages(c, &s, bytes);
    s.a.q = upload(q, n * sizeof *q);
    s.a.out = upload(q, n * sizeof *q);
    s.a.sinks = check_int(c, 0, 2) ? NULL : upload(sinks, sizeof sinks);
    s.a.pages.base = upload(pages, bytes);
    int from[MAX_SEQ] = { 0 }, to[MAX_SEQ] = { 0 };
    for (int i = 0; i < s.n_seq; i++) to[i] = s.rows[i];
    run(&s, from, to, 0, s.out);
    for (int i = 0, first = 0; i < s.n_seq; first += s.rows[i++]) {
        for (int r = 0, k; r < s.rows[i]; r += k) {
            k = check_int(c, 1, PIECE);
            if (k > s.rows[i] - r) k = s.rows[i] - r;
            memset(from, 0, sizeof from);
            memset(to, 0, sizeof to);
            from[i] = r, to[i] = r + k;
            run(&s, from, to, (size_t)(first + r), s.again);
        }
    }
    size_t wrong = 0, at = 0;
    for (size_t i = n; i-- > 0;) {
        bool same = memcmp(&s.out[i], &s.again[i], sizeof(float)) == 0 || (isnan(s.out[i]) && isnan(s.again[i]));
        if (!same) wrong++, at = i;
    }
    CHECK(c, wrong == 0,
          "heads of %d: %zu of %zu values differ, the first in row %zu, head %zu, column %zu: %g, %g in pieces", dim,
          wrong, n, at / width, at % width / (size_t)dim, at % (size_t)dim, (double)s.out[at], (double)s.again[at]);
    cuda_free((void *)s.a.q);
    cuda_free(s.a.out);
    cuda_free((void *)s.a.sinks);
    cuda_free(s.a.pages.base);
    free(q);
    free(s.out);
    free(s.again);
    free(pages);
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
    for (int i = 0; i < (c.quick ? 6 : 40); i++) check_scene(&c, i % 2 ? 128 : 64);
    const int rc = check_end(&c);
    printf("check %s\n", rc == 0 ? "ok" : "FAILED");
    return rc;
}

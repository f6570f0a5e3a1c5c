/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed pages of a CUDA device: the bytes that it stores are those of the CPU, for every pair of types, head size and
 * page size, on normal rows, rows with outliers, zeros, ties and rows with infinities and NaN; nothing else of the page is
 * touched. What it reads back is near the rotated row, computed here in double precision.
 *
 * Without a device it says so. Inputs are fresh in every run; --seed N repeats one, --quick takes fewer cases.
 */
#include "cuda/must.h"
#include "kernels/check.h"
#include "kernels/cuda/packed.h"
#include "kernels/kernels.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 40, PAGES = 8, SHIFT = 64, BLOCK_INTS = 8 + PAGES + 2 * ROWS + 4 };

typedef enum row_kind { ROW_NORMAL, ROW_OUTLIER, ROW_ZERO, ROW_TIES, ROW_WILD, ROW_KINDS } row_kind;

static void *upload(const void *from, size_t bytes) {
    void *p = NULL;
    err   e = { 0 };
    must(cuda_alloc(&p, bytes, &e), &e);
    must(cuda_copy_in(p, from, bytes, &e), &e);
    return p;
}

static void fill_row(check *c, float *x, int n, row_kind kind) {
    static const float wild[] = { INFINITY, -INFINITY, NAN, 3e38f, -1e30f, 1e-40f, 70000.0f, -0.0f };
    check_fill_normal(c, x, (size_t)n, kind == ROW_ZERO ? 0.0f : 1.0f);
    for (int i = 0; i < n; i++) {
        if (kind == ROW_OUTLIER && check_int(c, 0, 15) == 0) x[i] *= 40.0f;
        if (kind == ROW_TIES) x[i] = check_int(c, 0, 1) ? 0.75f : -0.75f;
        if (kind == ROW_WILD && check_int(c, 0, 9) == 0) x[i] = wild[check_int(c, 0, 7)];
    }
}

/* One layout with its rows: of both sides, as the CPU and as the device store them. */
typedef struct scene {
    kv_layout l;
    float    *k, *v, *k_dev, *v_dev;
    int32_t   ints[BLOCK_INTS], *ints_dev;
    size_t    page_bytes;
    uint8_t  *cpu, *dev, *back;
} scene;

static void scene_open(check *c, scene *s, row_kind kind) {
    const kv_layout *l = &s->l;
    size_t           k = (size_t)(l->n_kv * l->k_dim), v = l->v_in_k ? 0 : (size_t)(l->n_kv * l->v_dim);
    s->k = alloc(ROWS * k * sizeof *s->k);
    s->v = alloc((ROWS * v + 1) * sizeof *s->v);
    for (int i = 0; i < ROWS; i++) {
        fill_row(c, s->k + (size_t)i * k, (int)k, kind);
        fill_row(c, s->v + (size_t)i * v, (int)v, kind);
    }
    s->page_bytes = l->layer_bytes + 2 * SHIFT;
    s->cpu = alloc(PAGES * s->page_bytes);
    s->back = alloc(PAGES * s->page_bytes);
    check_fill_bytes(c, s->cpu, PAGES * s->page_bytes);
    s->dev = upload(s->cpu, PAGES * s->page_bytes);
    s->k_dev = upload(s->k, ROWS * k * sizeof *s->k);
    s->v_dev = upload(s->v, (ROWS * v + 1) * sizeof *s->v);
    /* Pages in reverse order; positions from 3 on. */
    s->ints[0] = PAGES;
    s->ints[1] = 8;
    for (int i = 0; i < PAGES; i++) s->ints[8 + i] = PAGES - 1 - i;
    for (int i = 0; i < ROWS; i++) s->ints[8 + PAGES + i] = 3 + i;
    s->ints[8 + PAGES + 2 * ROWS] = 0;
    s->ints[8 + PAGES + 2 * ROWS + 1] = 1;
    s->ints[8 + PAGES + 2 * ROWS + 2] = 3 + ROWS;
    s->ints_dev = upload(s->ints, sizeof s->ints);
}

static void scene_close(scene *s) {
    free(s->k);
    free(s->v);
    free(s->cpu);
    free(s->back);
    cuda_free(s->dev);
    cuda_free(s->k_dev);
    cuda_free(s->v_dev);
    cuda_free(s->ints_dev);
}

static void store_cpu(scene *s, const kernels *k) {
    const kv_layout *l = &s->l;
    size_t           ks = (size_t)(l->n_kv * l->k_dim), vs = (size_t)(l->n_kv * l->v_dim);
    for (int i = 0; i < ROWS; i++) {
        int pos = 3 + i;
        k->attn.kv_store(l, s->cpu + (size_t)(PAGES - 1 - pos / l->tokens) * s->page_bytes + SHIFT, pos % l->tokens, 1,
                         0, l->n_kv, s->k + (size_t)i * ks, ks, s->v + (l->v_in_k ? 0 : (size_t)i * vs), vs);
    }
}

static cuda_packed packed_of(const scene *s) {
    cuda_packed p = { .base = s->dev, .page_bytes = s->page_bytes, .offset = SHIFT };
    cuda_packed_init(&p, &s->l);
    return p;
}

static cuda_batch batch_of(const scene *s) {
    const int32_t *at = s->ints_dev;
    return (cuda_batch){ .block = at,
                         .pos = at + 8 + PAGES,
                         .seq_of = at + 8 + PAGES + ROWS,
                         .row_end = at + 8 + PAGES + 2 * ROWS + 2,
                         .q_start = at + 8 + PAGES + 2 * ROWS,
                         .n_tok = ROWS,
                         .n_seq = 1,
                         .page_tokens = s->l.tokens };
}

/* The latent form has a row in two places. */
static void store_device(scene *s, int first) {
    const kv_layout *l = &s->l;
    cuda_packed      p = packed_of(s);
    cuda_batch       b = batch_of(s);
    err              e = { 0 };
    if (!l->v_in_k) {
        must(cuda_packed_store(&p, s->k_dev, l->k_dim, s->v_dev, &b, NULL, &e), &e);
    } else {
        int    rest = l->k_dim - first;
        float *two = alloc((size_t)(ROWS * l->k_dim) * sizeof *two);
        for (int i = 0; i < ROWS; i++) {
            memcpy(two + i * first, s->k + i * l->k_dim, (size_t)first * sizeof *two);
            memcpy(two + ROWS * first + i * rest, s->k + i * l->k_dim + first, (size_t)rest * sizeof *two);
        }
        float *there = upload(two, (size_t)(ROWS * l->k_dim) * sizeof *two);
        must(cuda_packed_store(&p, there, first, there + ROWS * first, &b, NULL, &e), &e);
        must(cuda_wait(NULL, &e), &e);
        cuda_free(there);
        free(two);
    }
    must(cuda_copy_out(s->back, s->dev, PAGES * s->page_bytes, &e), &e);
}

/* y = H (s x) / sqrt(B) in double. */
static void rotate(const float *x, int dim, int block, double *y) {
    for (int i = 0; i < dim; i++) {
        double sum = 0;
        int    base = block ? i / block * block : i;
        for (int j = base; j < base + (block ? block : 1); j++) {
            int    at = j - base, minus = block ? (int)(kv_signs[at / 32] >> (at % 32) & 1u) : 0;
            double v = minus ? -(double)x[j] : (double)x[j];
            sum += block && __builtin_parity((unsigned)(at & (i - base))) ? -v : v;
        }
        y[i] = block ? sum / sqrt(block) : sum;
    }
}

static double far(const float *x, const uint16_t *got, int dim, int block) {
    double *y = alloc((size_t)dim * sizeof *y), off = 0, all = 0;
    rotate(x, dim, block, y);
    for (int i = 0; i < dim; i++) {
        double d = (double)tensor_f16_to_f32(got[i]) - y[i];
        off += d * d;
        all += y[i] * y[i];
    }
    free(y);
    return sqrt(off / all);
}

static const double bounds[KV_TYPE_COUNT] = {
    [KV_F32] = 1e-3, [KV_F16] = 1e-3, [KV_BF16] = 5e-3, [KV_Q8_0] = 2e-2, [KV_Q4_0] = 0.25,
    [KV_Q5_0] = 0.1, [KV_TQ4] = 0.22, [KV_TQ3] = 0.4,   [KV_TQ2] = 0.7,   [KV_FP8] = 5e-2
};

static void check_open(check *c, scene *s) {
    const kv_layout *l = &s->l;
    cuda_packed      p = packed_of(s);
    cuda_batch       b = batch_of(s);
    cuda_pages to = { .n_kv = l->n_kv, .dim_k = l->k_dim, .dim_v = l->v_in_k ? 0 : l->v_dim, .tokens = l->tokens };
    err        e = { 0 };
    to.k_type = to.v_type = CUDA_PAGE_F16;
    to.k_row = cuda_page_row_bytes(CUDA_PAGE_F16, to.dim_k);
    to.v_row = cuda_page_row_bytes(CUDA_PAGE_F16, to.dim_v);
    to.v_offset = (size_t)(l->n_kv * l->tokens) * to.k_row;
    to.page_bytes = to.v_offset + (size_t)(l->n_kv * l->tokens) * to.v_row;
    uint8_t *rows = alloc(PAGES * to.page_bytes);
    to.base = upload(rows, PAGES * to.page_bytes);
    must(cuda_packed_open(&p, &to, 3 + ROWS, &b, NULL, &e), &e);
    must(cuda_copy_out(rows, to.base, PAGES * to.page_bytes, &e), &e);
    for (int i = 0; i < ROWS; i += 7) {
        int      pos = 3 + i, h = check_int(c, 0, l->n_kv - 1), slot = h * l->tokens + pos % l->tokens;
        uint8_t *page = rows + (size_t)(PAGES - 1 - pos / l->tokens) * to.page_bytes;
        double   off = far(s->k + (i * l->n_kv + h) * l->k_dim,
                           (const uint16_t *)(const void *)(page + (size_t)slot * to.k_row), l->k_dim, l->k_block);
        CHECK(c, off < bounds[l->k_type], "keys of type %d, heads of %d: %g away", l->k_type, l->k_dim, off);
        if (l->v_in_k) continue;
        off = far(s->v + (i * l->n_kv + h) * l->v_dim,
                  (const uint16_t *)(const void *)(page + to.v_offset + (size_t)slot * to.v_row), l->v_dim, l->v_block);
        CHECK(c, off < bounds[l->v_type], "values of type %d, heads of %d: %g away", l->v_type, l->v_dim, off);
    }
    cuda_free(to.base);
    free(rows);
}

static void check_layout(check *c, const kernels *k, const kv_layout *l, int first) {
    for (int kind = 0; kind < ROW_KINDS; kind++) {
        scene s = { .l = *l };
        scene_open(c, &s, (row_kind)kind);
        store_cpu(&s, k);
        store_device(&s, first);
        size_t at = 0, n = PAGES * s.page_bytes;
        while (at < n && s.cpu[at] == s.back[at]) at++;
        CHECK(c, at == n, "types %d and %d, %d heads of %d and %d, %d positions, rows %d: byte %zu of page %zu differs",
              l->k_type, l->v_type, l->n_kv, l->k_dim, l->v_dim, l->tokens, kind, at % s.page_bytes, at / s.page_bytes);
        if (kind == ROW_NORMAL) check_open(c, &s);
        scene_close(&s);
    }
}

static void check_types(check *c, const kernels *k) {
    static const int dims[] = { 8, 24, 32, 64, 80, 96, 128, 256 }, tokens[] = { 16, 32, 64, 128 };
    for (int kt = 0; kt < KV_TYPE_COUNT; kt++) {
        for (int vt = 0; vt < KV_TYPE_COUNT; vt++) {
            for (int i = 0; i < (c->quick ? 1 : 3); i++) {
                kv_layout l;
                int       d = check_int(c, 0, 7);
                if (kv_layout_init(&l, (kv_type)kt, (kv_type)vt, tokens[check_int(c, 0, 3)], check_int(c, 1, 3),
                                   dims[d], check_int(c, 0, 3) ? dims[d] : dims[check_int(c, 0, 7)], false))
                    check_layout(c, k, &l, 0);
            }
        }
        for (int d = 0; d < 2; d++) {
            kv_layout l;
            int       latent = d ? 512 : 64, turned = d ? 64 : 32;
            if (kv_layout_init(&l, (kv_type)kt, (kv_type)kt, tokens[check_int(c, 0, 3)], 1, latent + turned, latent,
                               true))
                check_layout(c, k, &l, latent);
        }
    }
}

int main(int argc, char **argv) {
    check   c;
    kernels k;
    err     e = { 0 };
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    if (c.rng == 1) c.rng = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)c.rng);
    kernels_init(&k, c.cpu);
    if (cuda_device_count(&e) == 0) {
        printf("skipped: no device: %s\n", e.msg);
        return 0;
    }
    cuda_device d;
    must(cuda_device_open(&d, 0, &e), &e);
    check_types(&c, &k);
    const int rc = check_end(&c);
    printf("check %s\n", rc == 0 ? "ok" : "FAILED");
    return rc;
}

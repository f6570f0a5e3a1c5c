/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of attention and of the operations between the matrix products, beside what the machine can do in the same
 * minutes.
 *
 * Every figure is a median over --reps rounds; a round measures the f32 FMA peak (registers only) and the read
 * bandwidth (four streams per thread), then each case, so a slow minute of the machine slows both sides. Decode runs
 * over enough layers that K and V exceed every cache; GB/s counts their stored bytes. Prefill counts the multiply-adds
 * of the positions that rows really see.
 *
 * Options: --json, --reps N, --threads N, --cpu MASK, --only TEXT (cases whose name contains it).
 */
#include "base/clock.h"
#include "base/pool.h"
#include "bench/ceilings.h"
#include "bench/measure.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_REPS = 101, MAX_THREADS = 64, PAGE = 32 };
#define COLD_BYTES ((size_t)192 << 20)
#define READ_BYTES ((size_t)256 << 20)

static void *memory(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* ---- ceilings ---- */

typedef struct bench_case bench_case;
typedef struct bench {
    kernels     k;
    pool       *p;
    int         threads, reps;
    bool        json;
    const char *only;
    uint8_t    *read;
    int64_t     peak_n;
    int         streams;
    double      fma[MAX_REPS], bw[MAX_REPS];
    void       *scratch[MAX_THREADS];
    float       sink[MAX_THREADS * 16];
} bench;

static void run_peak(void *ctx, int worker, int n_workers) {
    bench *b = ctx;
    (void)n_workers;
    int lanes;
    b->sink[worker * 16] = ceiling_fma(b->k.cpu, b->peak_n, &lanes);
}

static void run_read(void *ctx, int worker, int n_workers) {
    bench       *b = ctx;
    const size_t part = READ_BYTES / (size_t)n_workers / 4096 * 4096;
    b->sink[worker * 16] = ceiling_read(b->read + part * (size_t)worker, part, b->streams);
}

static void ceilings(bench *b, int rep) {
    const int lanes = b->k.cpu & CPU_AVX512 ? 16 : 8;
    b->peak_n = 4000000;
    double t = clock_s();
    pool_run(b->p, run_peak, b);
    b->fma[rep] = (double)b->peak_n * CEILING_FMAS * lanes * b->threads / (clock_s() - t) * 1e-9;
    b->bw[rep] = 0;
    for (b->streams = 1; b->streams <= 4; b->streams += 3) {
        t = clock_s();
        pool_run(b->p, run_read, b);
        const double bw = (double)READ_BYTES / (clock_s() - t) * 1e-9;
        if (bw > b->bw[rep]) b->bw[rep] = bw;
    }
}

static double median(const double *v, int n) {
    double t[MAX_REPS];
    memcpy(t, v, (size_t)n * sizeof *v);
    qsort(t, (size_t)n, sizeof *t, by_value);
    return t[n / 2];
}

/* ---- cases ---- */

struct bench_case {
    const char *name;
    kv_type     type;
    int         context, n_kv, group, k_dim, v_dim, rows, layers;
    bool        v_in_k, chunks; /* chunks: split the context over threads instead of the heads */
    void (*op)(bench *b, bench_case *s, int worker, int n_workers); /* an operation over x, y, z instead of attention */
    double macs, bytes;
    double seconds[MAX_REPS];

    kv_layout    layout;
    const void **pages;
    uint8_t     *pool;
    size_t       pool_bytes;
    float       *q, *out, *part, *x, *y, *z;
    int32_t     *pos;
    bench       *b;
};

static attn_args args_of(const bench_case *s, int layer) {
    const int n_head = s->n_kv * s->group;
    return (attn_args){ .q = s->q,
                        .out = s->out,
                        .q_stride = (size_t)(n_head * s->k_dim),
                        .out_stride = (size_t)(n_head * s->v_dim),
                        .n_rows = s->rows,
                        .n_head = n_head,
                        .layout = &s->layout,
                        .pages = s->pages,
                        .page_off = (size_t)layer * s->layout.layer_bytes,
                        .kv_len = s->context,
                        .pos = s->pos,
                        .causal = true,
                        .scale = 0.1f };
}

static void run_attn(void *ctx, int worker, int n_workers) {
    bench_case         *s = ctx;
    const kernels_attn *k = &s->b->k.attn;
    void               *scratch = s->b->scratch[worker];
    const int           n_head = s->n_kv * s->group;
    for (int layer = 0; layer < s->layers; layer++) {
        const attn_args a = args_of(s, layer);
        if (s->rows >
            1) { /* prefill: blocks of rows and kv heads in turn, so that every worker gets short and long rows */
            const int block = 16, n_blocks = (s->rows + block - 1) / block;
            for (int i = worker; i < n_blocks * s->n_kv; i += n_workers) {
                const int r = i / s->n_kv * block, h = i % s->n_kv;
                k->rows(&a, r, r + block < s->rows ? r + block : s->rows, h * s->group, (h + 1) * s->group, scratch);
            }
        } else if (!s->chunks) {
            k->rows(&a, 0, 1, s->n_kv * worker / n_workers * s->group, s->n_kv * (worker + 1) / n_workers * s->group,
                    scratch);
        } else {
            const int64_t n = (s->context + ATTN_CHUNK - 1) / ATTN_CHUNK;
            k->partial(&a, 0, 0, n_head, n * worker / n_workers, n * (worker + 1) / n_workers, s->part, 0, n, scratch);
            pool_barrier(s->b->p, worker);
            k->combine(&a, 0, n_head * worker / n_workers, n_head * (worker + 1) / n_workers, s->part, 0, n);
            pool_barrier(s->b->p, worker);
        }
    }
}

static void run_op(void *ctx, int worker, int n_workers) {
    bench_case *s = ctx;
    s->op(s->b, s, worker, n_workers);
}

static void attn_open(bench *b, bench_case *s) {
    if (!kv_layout_init(&s->layout, s->type, s->type, PAGE, s->n_kv, s->k_dim, s->v_dim, s->v_in_k)) abort();
    const int    n_pages = (s->context + PAGE - 1) / PAGE, n_head = s->n_kv * s->group;
    const size_t per_layer = s->layout.layer_bytes * (size_t)n_pages;
    if (s->layers == 0) s->layers = (int)(COLD_BYTES / per_layer) + 1;
    const size_t page_bytes = s->layout.layer_bytes * (size_t)s->layers;
    s->pool_bytes = page_bytes * (size_t)n_pages;
    s->pool = memory(s->pool_bytes);
    s->pages = calloc((size_t)n_pages, sizeof *s->pages);
    s->q = memory((size_t)(s->rows * n_head * s->k_dim) * 4);
    s->out = memory((size_t)(s->rows * n_head * s->v_dim) * 4);
    s->pos = memory((size_t)s->rows * 4);
    s->x = memory((size_t)(s->n_kv * (s->k_dim + s->v_dim)) * 4);
    s->part = memory((size_t)n_head * (size_t)(s->context / ATTN_CHUNK + 1) * attn_part_floats(s->v_dim) * 4);
    for (int i = 0; i < s->rows * n_head * s->k_dim; i++) s->q[i] = (float)(i * 7 % 101 - 50) * 0.02f;
    for (int p = 0; p < n_pages; p++) {
        uint8_t *page = s->pool + (size_t)p * page_bytes;
        s->pages[p] = page;
        for (int t = 0; t < PAGE; t++) {
            for (int i = 0; i < s->n_kv * (s->k_dim + s->v_dim); i++) {
                s->x[i] = (float)((i * 13 + t * 5 + p * 31) % 201 - 100) * 0.01f;
            }
            b->k.attn.kv_store(&s->layout, page, t, 1, 0, s->n_kv, s->x, 0, s->x + s->n_kv * s->k_dim, 0);
        }
        for (int l = 1; l < s->layers; l++)
            memcpy(page + (size_t)l * s->layout.layer_bytes, page, s->layout.layer_bytes);
    }
    for (int t = 0; t < s->rows; t++) s->pos[t] = s->context - s->rows + t;
    double seen = 0;
    for (int t = 0; t < s->rows; t++) seen += s->pos[t] + 1;
    s->macs = seen * n_head * (s->k_dim + s->v_dim) * s->layers;
    s->bytes = (double)per_layer * s->layers;
}

static void attn_close(bench_case *s) {
    munmap(s->pool, s->pool_bytes);
    free(s->pages);
}

enum { OP_ROWS = 256, OP_N = 8192 };

static void op_range(int worker, int n_workers, int n, int *from, int *to) {
    *from = n * worker / n_workers;
    *to = n * (worker + 1) / n_workers;
}

static void op_rms(bench *b, bench_case *s, int worker, int n_workers) {
    int r, e;
    op_range(worker, n_workers, OP_ROWS * 4, &r, &e);
    b->k.ops.rms_norm(s->y + r * 2048, 2048, s->x + r * 2048, 2048, e - r, 2048, s->z, 0.0f, 1e-5f);
}
static void op_layer(bench *b, bench_case *s, int worker, int n_workers) {
    int r, e;
    op_range(worker, n_workers, OP_ROWS * 4, &r, &e);
    b->k.ops.layer_norm(s->y + r * 2048, 2048, s->x + r * 2048, 2048, e - r, 2048, s->z, s->z, 1e-5f);
}
static void op_silu(bench *b, bench_case *s, int worker, int n_workers) {
    int r, e;
    op_range(worker, n_workers, OP_ROWS, &r, &e);
    for (; r < e; r++) {
        b->k.ops.glu(s->y + r * OP_N, s->x + r * OP_N, s->z + r * OP_N, OP_N, OPS_ACT_SILU, 0, 0);
    }
}
static void op_gelu(bench *b, bench_case *s, int worker, int n_workers) {
    int r, e;
    op_range(worker, n_workers, OP_ROWS, &r, &e);
    for (; r < e; r++) {
        b->k.ops.glu(s->y + r * OP_N, s->x + r * OP_N, s->z + r * OP_N, OP_N, OPS_ACT_GELU_TANH, 0, 0);
    }
}
static void op_rope(bench *b, bench_case *s, int worker, int n_workers) {
    int r, e;
    op_range(worker, n_workers, OP_ROWS, &r, &e);
    b->k.ops.rope(s->x + r * OP_N, OP_N, e - r, 128, OP_N / 128, s->z, 64, OPS_ROPE_HALF);
}
static void op_store(bench *b, bench_case *s, int worker, int n_workers) {
    int       h0, h1;
    kv_layout l;
    kv_layout_init(&l, KV_F16, KV_F16, PAGE, 8, 128, 128, false);
    op_range(worker, n_workers, 8, &h0, &h1);
    for (int t = 0; t < OP_ROWS; t += PAGE) {
        b->k.attn.kv_store(&l, (uint8_t *)s->y + (size_t)(t / PAGE) * l.layer_bytes, 0, PAGE, h0, h1, s->x + t * 2048,
                           2048, s->x + t * 2048 + 1024, 2048);
    }
}
static void op_delta(bench *b, bench_case *s, int worker, int n_workers) {
    int         h0, h1;
    recur_delta a = { .y = s->y,
                      .q = s->x,
                      .k = s->x + 2048,
                      .v = s->x + 4096,
                      .g = s->z,
                      .beta = s->z + 64,
                      .y_stride = 4096,
                      .q_stride = 8192,
                      .k_stride = 8192,
                      .v_stride = 8192,
                      .g_stride = 128,
                      .beta_stride = 128,
                      .n_rows = 64,
                      .n_kh = 16,
                      .n_vh = 32,
                      .k_dim = 128,
                      .v_dim = 128,
                      .scale = 0.08f,
                      .state = s->y + 64 * 4096 };
    op_range(worker, n_workers, 32, &h0, &h1);
    b->k.recur.delta(&a, h0, h1);
}

static void op_open(bench_case *s) {
    const size_t n = (size_t)OP_ROWS * OP_N;
    s->x = memory(n * 4), s->y = memory(n * 4), s->z = memory(n * 4);
    for (size_t i = 0; i < n; i++) {
        s->x[i] = (float)(i * 2654435761u % 2001) * 0.001f - 1.0f;
        s->z[i] = -s->x[i] * s->x[i];
    }
}

static bench_case cases[] = {
    { .name = "decode f16 8 kv x 4, d 64, 8k",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 8,
      .group = 4,
      .k_dim = 64,
      .v_dim = 64,
      .rows = 1 },
    { .name = "decode f16 8 kv x 4, d 128, 8k",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 8,
      .group = 4,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode f16 8 kv x 4, d 128, 8k, by chunks",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 8,
      .group = 4,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1,
      .chunks = true },
    { .name = "decode f16 8 kv x 1, d 128, 8k",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 8,
      .group = 1,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode f16 8 kv x 2, d 128, 8k",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 8,
      .group = 2,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode f16 8 kv x 3, d 128, 8k",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 8,
      .group = 3,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode f16 8 kv x 8, d 128, 8k",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 8,
      .group = 8,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode bf16 8 kv x 4, d 128, 8k",
      .type = KV_BF16,
      .context = 8192,
      .n_kv = 8,
      .group = 4,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode q8_0 8 kv x 4, d 128, 8k",
      .type = KV_Q8_0,
      .context = 8192,
      .n_kv = 8,
      .group = 4,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode q4_0 8 kv x 4, d 128, 8k",
      .type = KV_Q4_0,
      .context = 8192,
      .n_kv = 8,
      .group = 4,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 1 },
    { .name = "decode mla f16 16 heads, 576/512, 8k, by chunks",
      .type = KV_F16,
      .context = 8192,
      .n_kv = 1,
      .group = 16,
      .k_dim = 576,
      .v_dim = 512,
      .rows = 1,
      .v_in_k = true,
      .chunks = true,
      .layers = 4 },
    { .name = "prefill f16 4k, d 64, 2 kv x 4",
      .type = KV_F16,
      .context = 4096,
      .n_kv = 2,
      .group = 4,
      .k_dim = 64,
      .v_dim = 64,
      .rows = 4096,
      .layers = 1 },
    { .name = "prefill f16 4k, d 128, 2 kv x 4",
      .type = KV_F16,
      .context = 4096,
      .n_kv = 2,
      .group = 4,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 4096,
      .layers = 1 },
    { .name = "prefill f16 4k, d 128, 4 kv x 1",
      .type = KV_F16,
      .context = 4096,
      .n_kv = 4,
      .group = 1,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 4096,
      .layers = 1 },
    { .name = "prefill q8_0 4k, d 128, 2 kv x 4",
      .type = KV_Q8_0,
      .context = 4096,
      .n_kv = 2,
      .group = 4,
      .k_dim = 128,
      .v_dim = 128,
      .rows = 4096,
      .layers = 1 },
    { .name = "rms_norm 1024 x 2048", .op = op_rms, .bytes = 8.0 * OP_ROWS * OP_N },
    { .name = "layer_norm 1024 x 2048", .op = op_layer, .bytes = 8.0 * OP_ROWS * OP_N },
    { .name = "glu silu 256 x 8192", .op = op_silu, .bytes = 12.0 * OP_ROWS * OP_N },
    { .name = "glu gelu 256 x 8192", .op = op_gelu, .bytes = 12.0 * OP_ROWS * OP_N },
    { .name = "rope 256 x 64 heads x 128", .op = op_rope, .bytes = 8.0 * OP_ROWS * OP_N },
    { .name = "kv store f16 256 x 8 x (128 + 128)", .op = op_store, .bytes = 6.0 * 256 * 2048 },
    { .name = "gated delta 64 rows, 32 heads 128 x 128", .op = op_delta, .macs = 64.0 * 32 * 128 * 128 * 4 },
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void run_case(bench *b, bench_case *s) {
    s->b = b;
    if (s->op) {
        op_open(s);
    } else {
        attn_open(b, s);
    }
    for (int rep = -1; rep < b->reps; rep++) {
        if (rep >= 0) ceilings(b, rep);
        const double t = clock_s();
        pool_run(b->p, s->op ? run_op : run_attn, s);
        if (rep >= 0) s->seconds[rep] = clock_s() - t;
    }
    const double sec = median(s->seconds, b->reps), fma = median(b->fma, b->reps), bw = median(b->bw, b->reps);
    const double gmacs = s->macs / sec * 1e-9, gbs = s->bytes / sec * 1e-9;
    if (b->json) {
        printf("  {\"case\": \"%s\", \"ms\": %.4f, \"gmac_s\": %.2f, \"fma_peak\": %.2f, \"gb_s\": %.2f, "
               "\"read_peak\": %.2f}",
               s->name, sec * 1e3, gmacs, fma, gbs, bw);
    } else {
        printf("%-48s %9.3f %8.1f %8.1f %5.0f%% %8.1f %8.1f %5.0f%%\n", s->name, sec * 1e3, gmacs, fma,
               100 * gmacs / fma, gbs, bw, 100 * gbs / bw);
    }
    fflush(stdout);
    if (s->op) {
        const size_t n = (size_t)OP_ROWS * OP_N * 4;
        munmap(s->x, n), munmap(s->y, n), munmap(s->z, n);
    } else {
        attn_close(s);
    }
}

int main(int argc, char **argv) {
    static bench b = { .reps = 7 };
    unsigned     mask = ~0u;
    err          e = { 0 };
    b.threads = pool_default_threads();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            b.json = true;
        else if (strcmp(argv[i], "--reps") == 0 && i + 1 < argc)
            b.reps = atoi(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            b.threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            b.only = argv[++i];
        else if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc && cpu_parse(argv[i + 1], &mask))
            i++;
        else {
            fprintf(stderr, "usage: %s [--json] [--reps N] [--threads N] [--cpu MASK] [--only TEXT]\n", argv[0]);
            return 2;
        }
    }
    if (b.reps < 1 || b.reps > MAX_REPS || b.threads < 1 || b.threads > MAX_THREADS) return 2;
    kernels_init(&b.k, cpu_detect() & mask);
    if (pool_open(&b.p, b.threads, true, &e) < 0) return 1;
    b.read = memory(READ_BYTES);
    memset(b.read, 1, READ_BYTES);
    kv_layout big;
    kv_layout_init(&big, KV_Q8_0, KV_Q8_0, PAGE, 1, KV_DIM_MAX, KV_DIM_MAX, false); /* rotated: the largest */
    for (int i = 0; i < b.threads; i++) b.scratch[i] = memory(attn_scratch_bytes(&big, 1));
    char cpu[128];
    cpu_names(b.k.cpu, cpu, sizeof cpu);
    if (b.json) {
        printf("{\"cpu\": \"%s\", \"threads\": %d, \"reps\": %d, \"cases\": [\n", cpu, b.threads, b.reps);
    } else {
        printf("%s, %d threads, medians of %d\n%-48s %9s %8s %8s %6s %8s %8s %6s\n", cpu, b.threads, b.reps, "", "ms",
               "GMAC/s", "FMA peak", "", "GB/s", "read", "");
    }
    bool first = true;
    for (int i = 0; i < N_CASES; i++) {
        if (b.only && !strstr(cases[i].name, b.only)) continue;
        if (b.json && !first) printf(",\n");
        first = false;
        run_case(&b, &cases[i]);
    }
    if (b.json) printf("\n]}\n");
    pool_free(b.p);
    return 0;
}

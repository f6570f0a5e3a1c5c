/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page types beside f16: decoding attention of one row over long contexts, prefill, and the store. The types take turns
 * within every repetition, so that a busy moment of the machine hits all of them; the best of all repetitions, and how many times as fast as
 * f16 each is. With one thread its processor time counts, which other programs disturb less. Every type reads the same
 * positions; their pages lie in memory of their own.
 *
 * What limits decoding stands beside it: the share of the memory's read bandwidth and of the peak of f32 multiply-adds,
 * both measured within the same repetitions, and the time over as many positions whose pages are all the same one, which
 * stays in the first cache: the arithmetic alone. Where that is near the time over real pages, memory is not the limit.
 *
 * Options: --reps N, --threads N, --cpu MASK, --context N (4096, 16384 or 32768 only), --all (AVX2 and everything, with
 * one thread and with two).
 */
#include "base/err.h"
#include "base/pool.h"
#include "bench/ceilings.h"
#include "kernels/cpu.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { N_FMA = 1000000 };
#define READ_BYTES ((size_t)512 << 20)
enum { PAGE = 32, MAX_REPS = 31, MAX_THREADS = 64, N_KV = 8, GROUP = 4, DIM = 128, PREFILL_ROWS = 128 };

static const struct {
    const char *name;
    kv_type     k, v;
} types[] = {
    { "f16", KV_F16, KV_F16 },    { "q8_0", KV_Q8_0, KV_Q8_0 }, { "q8_0 + tq4", KV_Q8_0, KV_TQ4 },
    { "q5_0", KV_Q5_0, KV_Q5_0 }, { "q4_0", KV_Q4_0, KV_Q4_0 }, { "tq4", KV_TQ4, KV_TQ4 },
    { "tq3", KV_TQ3, KV_TQ3 },    { "tq2", KV_TQ2, KV_TQ2 },    { "fp8", KV_FP8, KV_FP8 },
};
enum { N_TYPES = sizeof types / sizeof *types };

typedef struct bench {
    kernels      k;
    pool        *p;
    int          threads, reps;
    void        *scratch[MAX_THREADS];
    float       *q, *out, *part, *rows;
    int32_t      pos[PREFILL_ROWS];
    kv_layout    layout[N_TYPES];
    uint8_t     *memory[N_TYPES];
    uint8_t     *read;
    const void **pages[N_TYPES];
    const void **same; /* as many entries, all the first page */
    size_t       bytes[N_TYPES];
    double       seconds[N_TYPES][MAX_REPS], hot[N_TYPES][MAX_REPS], fma[MAX_REPS], bandwidth[MAX_REPS];
    int          type, context, layers, n_rows, streams; /* of what runs now */
    bool         warm;                                   /* all pages the same one */
    int          lanes[MAX_THREADS];
    float        sink[MAX_THREADS * 16];
} bench;

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void) {
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *memory(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* What disturbs a measurement only adds to it. */
static double least(const double *v, int n) {
    double best = v[0];
    for (int i = 1; i < n; i++) best = v[i] < best ? v[i] : best;
    return best;
}

static double most(const double *v, int n) {
    double best = v[0];
    for (int i = 1; i < n; i++) best = v[i] > best ? v[i] : best;
    return best;
}

static void fill(bench *b, int type) {
    const kv_layout *l = &b->layout[type];
    const int        n_pages = b->context / PAGE;
    const size_t     page_bytes = l->layer_bytes * (size_t)b->layers;
    b->bytes[type] = page_bytes * (size_t)n_pages;
    b->memory[type] = memory(b->bytes[type]);
    b->pages[type] = calloc((size_t)n_pages, sizeof *b->pages[type]);
    if (!b->pages[type]) abort();
    for (int p = 0; p < n_pages; p++) {
        uint8_t *page = b->memory[type] + (size_t)p * page_bytes;
        b->pages[type][p] = page;
        if (p > 0)
            memcpy(page, b->memory[type], page_bytes);
        else
            for (int i = 0; i < b->layers; i++)
                b->k.attn.kv_store(l, page + (size_t)i * l->layer_bytes, 0, PAGE, 0, N_KV, b->rows, N_KV * DIM, b->rows,
                                   N_KV * DIM);
    }
}

static void run(void *ctx, int worker, int n_workers) {
    bench              *b = ctx;
    const kernels_attn *k = &b->k.attn;
    const int           heads = N_KV * GROUP;
    for (int layer = 0; layer < b->layers; layer++) {
        const size_t layer_off = b->warm ? 0 : (size_t)layer * b->layout[b->type].layer_bytes;
        attn_args    a = { .q = b->q,
                           .out = b->out,
                           .q_stride = (size_t)(heads * DIM),
                           .out_stride = (size_t)(heads * DIM),
                           .n_rows = b->n_rows,
                           .n_head = heads,
                           .layout = &b->layout[b->type],
                           .pages = b->warm ? b->same : b->pages[b->type],
                           .page_off = layer_off,
                           .kv_len = b->context,
                           .pos = b->pos,
                           .causal = true,
                           .scale = 0.1f };
        if (b->n_rows > 1) {
            for (int i = worker; i < b->n_rows / 16 * N_KV; i += n_workers) {
                k->rows(&a, i / N_KV * 16, i / N_KV * 16 + 16, i % N_KV * GROUP, (i % N_KV + 1) * GROUP,
                        b->scratch[worker]);
            }
            continue;
        }
        const int64_t n = b->context / ATTN_CHUNK;
        k->partial(&a, 0, 0, heads, n * worker / n_workers, n * (worker + 1) / n_workers, b->part, 0, n,
                   b->scratch[worker]);
        pool_barrier(b->p, worker);
        k->combine(&a, 0, heads * worker / n_workers, heads * (worker + 1) / n_workers, b->part, 0, n);
        pool_barrier(b->p, worker);
    }
}

static void store(void *ctx, int worker, int n_workers) {
    bench *b = ctx;
    for (int p = worker; p < b->context / PAGE; p += n_workers) {
        b->k.attn.kv_store(&b->layout[b->type], b->memory[b->type] + (size_t)p * b->layout[b->type].layer_bytes, 0,
                           PAGE, 0, N_KV, b->rows, N_KV * DIM, b->rows, N_KV * DIM);
    }
}

static void run_fma(void *ctx, int worker, int n_workers) {
    bench *b = ctx;
    (void)n_workers;
    b->sink[worker * 16] = ceiling_fma(b->k.cpu, N_FMA, &b->lanes[worker]);
}

static void run_read(void *ctx, int worker, int n_workers) {
    bench       *b = ctx;
    const size_t part = READ_BYTES / (size_t)n_workers / 4096 * 4096;
    b->sink[worker * 16] = ceiling_read(b->read + part * (size_t)worker, part, b->streams);
}

static double timed(bench *b, void (*what)(void *, int, int)) {
    const double t = now();
    pool_run(b->p, what, b);
    return now() - t;
}

static void ceilings(bench *b, int rep) {
    const double fma = timed(b, run_fma);
    b->fma[rep] = (double)N_FMA * CEILING_FMAS * b->lanes[0] * b->threads / fma;
    b->bandwidth[rep] = 0;
    for (b->streams = 1; b->streams <= 4; b->streams += 3) {
        const double bw = (double)READ_BYTES / timed(b, run_read);
        if (bw > b->bandwidth[rep]) b->bandwidth[rep] = bw;
    }
}

/* All types in turn; what: a pool task over b->type. */
static void compare(bench *b, const char *title, void (*what)(void *, int, int)) {
    for (int rep = -1; rep < b->reps; rep++) {
        for (b->type = 0; b->type < N_TYPES; b->type++) {
            const double t = timed(b, what);
            if (rep >= 0) b->seconds[b->type][rep] = t;
        }
    }
    printf("%s\n", title);
    for (int t = 0; t < N_TYPES; t++) {
        const double s = least(b->seconds[t], b->reps), f16 = least(b->seconds[0], b->reps);
        printf("  %-12s %9.3f ms a layer  %6.2f x f16\n", types[t].name, s * 1e3 / b->layers, f16 / s);
    }
    fflush(stdout);
}

static void decode_print(const bench *b) {
    const double fma = most(b->fma, b->reps), bw = most(b->bandwidth, b->reps);
    const double macs = (double)b->context * N_KV * GROUP * 2 * DIM * b->layers;
    printf("decode, %d positions, %d kv heads x %d, %d dimensions; read %.1f GB/s, f32 peak %.1f GMAC/s\n", b->context,
           N_KV, GROUP, DIM, bw * 1e-9, fma * 1e-9);
    printf("  %-12s %12s %8s %16s %9s %18s\n", "", "ms a layer", "x f16", "GB/s (of read)", "of peak",
           "in cache (x f16)");
    for (int t = 0; t < N_TYPES; t++) {
        const double s = least(b->seconds[t], b->reps), hot = least(b->hot[t], b->reps);
        const double rate = (double)b->layout[t].layer_bytes * (b->context / PAGE) * b->layers / s;
        printf("  %-12s %12.3f %8.2f %9.1f (%3.0f%%) %8.0f%% %9.3f (%.2f)\n", types[t].name, s * 1e3 / b->layers,
               least(b->seconds[0], b->reps) / s, rate * 1e-9, 100 * rate / bw, 100 * macs / s / fma,
               hot * 1e3 / b->layers, least(b->hot[0], b->reps) / hot);
    }
    fflush(stdout);
}

static void decode(bench *b) {
    b->n_rows = 1;
    b->pos[0] = b->context - 1;
    for (int rep = -1; rep < b->reps; rep++) {
        if (rep >= 0) ceilings(b, rep);
        for (b->type = 0; b->type < N_TYPES; b->type++) {
            for (int i = 0; i < b->context / PAGE; i++) b->same[i] = b->pages[b->type][0];
            const double t = timed(b, run);
            b->warm = true;
            const double hot = timed(b, run);
            b->warm = false;
            if (rep < 0) continue;
            b->seconds[b->type][rep] = t;
            b->hot[b->type][rep] = hot;
        }
    }
    decode_print(b);
}

static void contexts(bench *b, int context, int layers) {
    char title[96];
    b->context = context;
    b->layers = layers;
    for (int t = 0; t < N_TYPES; t++) fill(b, t);
    decode(b);
    if (context <= 4096) {
        b->layers = 1;
        b->n_rows = PREFILL_ROWS;
        for (int i = 0; i < PREFILL_ROWS; i++) b->pos[i] = context - PREFILL_ROWS + i;
        snprintf(title, sizeof title, "prefill, %d rows behind %d positions", PREFILL_ROWS, context - PREFILL_ROWS);
        compare(b, title, run);
        snprintf(title, sizeof title, "store, %d positions", context);
        compare(b, title, store);
        b->layers = layers;
    }
    for (int t = 0; t < N_TYPES; t++) {
        munmap(b->memory[t], b->bytes[t]);
        free(b->pages[t]);
    }
}

static int measure(bench *b, unsigned mask, int threads, int only) {
    static const int lengths[3][2] = { { 4096, 8 }, { 16384, 4 }, { 32768, 2 } };
    char             cpu[128];
    err              e = { 0 };
    b->threads = threads;
    clock_used = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    kernels_init(&b->k, cpu_detect() & mask);
    if (pool_open(&b->p, threads, true, &e) < 0) return -1;
    cpu_names(b->k.cpu, cpu, sizeof cpu);
    printf("%s, threads: %d, best of %d, types in turn, %s\n", cpu, threads, b->reps,
           threads == 1 ? "processor time" : "wall-clock time");
    for (int i = 0; i < 3; i++) {
        if (!only || only == lengths[i][0]) contexts(b, lengths[i][0], lengths[i][1]);
    }
    pool_free(b->p);
    return 0;
}

static void prepare(bench *b) {
    for (int i = 0; i < MAX_THREADS && (i < b->threads || i < 2); i++) {
        b->scratch[i] = memory(attn_scratch_bytes(&b->layout[1], N_KV * GROUP));
    }
    b->q = memory((size_t)PREFILL_ROWS * N_KV * GROUP * DIM * sizeof *b->q);
    b->out = memory((size_t)PREFILL_ROWS * N_KV * GROUP * DIM * sizeof *b->out);
    b->part = memory((size_t)N_KV * GROUP * (32768 / ATTN_CHUNK + 1) * attn_part_floats(DIM) * sizeof *b->part);
    b->rows = memory((size_t)PAGE * N_KV * DIM * sizeof *b->rows);
    b->same = memory((size_t)(32768 / PAGE) * sizeof *b->same);
    b->read = memory(READ_BYTES);
    memset(b->read, 1, READ_BYTES);
    for (int i = 0; i < PREFILL_ROWS * N_KV * GROUP * DIM; i++) b->q[i] = (float)(i * 7 % 101 - 50) * 0.02f;
    for (int i = 0; i < PAGE * N_KV * DIM; i++) b->rows[i] = (float)((unsigned)i * 2654435761u % 2001) * 0.001f - 1.0f;
}

int main(int argc, char **argv) {
    static bench b = { .reps = 9 };
    unsigned     mask = ~0u;
    int          only = 0;
    bool         all = false;
    b.threads = pool_default_threads();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) all = true;
        if (i + 1 == argc) break;
        if (strcmp(argv[i], "--reps") == 0) b.reps = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--threads") == 0) b.threads = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--context") == 0) only = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--cpu") == 0 && !cpu_parse(argv[i + 1], &mask)) return 2;
    }
    if (b.reps < 1 || b.reps > MAX_REPS || b.threads < 1 || b.threads > MAX_THREADS) return 2;
    for (int t = 0; t < N_TYPES; t++) {
        if (!kv_layout_init(&b.layout[t], types[t].k, types[t].v, PAGE, N_KV, DIM, DIM, false)) return 1;
    }
    prepare(&b);
    if (!all) return measure(&b, mask, b.threads, only) < 0;
    for (int threads = 1; threads <= 2; threads++) {
        if (measure(&b, mask & CPU_AVX2, threads, only) < 0 || measure(&b, mask, threads, only) < 0) return 1;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of the matmul kernels, beside what the machine can do in the same minutes.
 *
 * Every figure is a median over --reps rounds. Right before a case is run, the register peak (vpdpbusd or f32 FMA) and
 * the read bandwidth are measured, so a slow moment of the machine slows both sides. Percentages are the medians of the
 * rounds' own: each compares a case with what was measured beside it. Where the weights of all chosen types fit into
 * memory together, every round goes through all types and shapes; else one type follows the other.
 * Weights are valid random blocks in memory that is advised to use huge pages; a matrix smaller than ROTATE_BYTES is
 * repeated and the copies are used in turn, so that matrix-vector figures are memory figures and not cache figures.
 * GB/s counts weight bytes only.
 *
 * "model" runs all matmuls of a 1.24 B llama shape in model order (16 layers, width 2048, feed-forward 8192, 32 heads
 * and 8 kv heads of 64, vocabulary 128256; the head for every row) with barriers as an engine needs them.
 *
 * Options: --json, --reps N, --threads N, --cpu MASK, --types A,B, --part vector|matrix|model|small.
 */
#include "base/clock.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if KERNELS_X86
#include <immintrin.h>
#endif

enum {
    MAX_REPS = 101,
    MAX_CASES = 400,
    MAX_THREADS = 64,
    LAYERS = 16,
    WIDTH = 2048,
    FF = 8192,
    KV = 512,
    VOCAB = 128256
};
#define ROTATE_BYTES ((size_t)512 << 20)
#define POOL_BYTES ((size_t)6 << 30)

/* ---- ceilings ---- */

#if KERNELS_X86
/* Twelve independent chains, written out so that they stay in registers. */
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
__attribute__((target("avx512f,avx512vnni"))) static int peak_dot512(int64_t n) {
    __m512i x = _mm512_set1_epi8(1), sum = x;
#define X(i) __m512i a##i = _mm512_set1_epi32(i);
    TWELVE(X)
#undef X
    for (int64_t k = 0; k < n; k++) {
#define X(i)                                                                                                           \
    a##i = _mm512_dpbusd_epi32(a##i, x, x);                                                                            \
    __asm__ volatile("" : "+v"(a##i));
        TWELVE(X)
#undef X
    }
#define X(i) sum = _mm512_add_epi32(sum, a##i);
    TWELVE(X)
#undef X
    return _mm512_reduce_add_epi32(sum);
}
__attribute__((target("avx512f"))) static int peak_fma512(int64_t n) {
    __m512 x = _mm512_set1_ps(0.5f), sum = x;
#define X(i) __m512 a##i = _mm512_set1_ps(i);
    TWELVE(X)
#undef X
    for (int64_t k = 0; k < n; k++) {
#define X(i)                                                                                                           \
    a##i = _mm512_fmadd_ps(a##i, x, x);                                                                                \
    __asm__ volatile("" : "+v"(a##i));
        TWELVE(X)
#undef X
    }
#define X(i) sum = _mm512_add_ps(sum, a##i);
    TWELVE(X)
#undef X
    return (int)_mm512_reduce_add_ps(sum);
}
/* Without VNNI a 4-byte dot is three instructions. */
__attribute__((target("avx2"))) static int peak_dot256(int64_t n) {
    __m256i x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1), sum = x, p;
#define X(i) __m256i a##i = _mm256_set1_epi32(i);
    TWELVE(X)
#undef X
    for (int64_t k = 0; k < n; k++) {
#define X(i)                                                                                                           \
    p = _mm256_maddubs_epi16(x, x);                                                                                    \
    __asm__ volatile("" : "+x"(p));                                                                                    \
    p = _mm256_madd_epi16(p, ones);                                                                                    \
    __asm__ volatile("" : "+x"(p));                                                                                    \
    a##i = _mm256_add_epi32(a##i, p);
        TWELVE(X)
#undef X
    }
#define X(i) sum = _mm256_add_epi32(sum, a##i);
    TWELVE(X)
#undef X
    return _mm256_extract_epi32(sum, 0);
}
__attribute__((target("avx2,fma"))) static int peak_fma256(int64_t n) {
    __m256 x = _mm256_set1_ps(0.5f), sum = x;
#define X(i) __m256 a##i = _mm256_set1_ps(i);
    TWELVE(X)
#undef X
    for (int64_t k = 0; k < n; k++) {
#define X(i)                                                                                                           \
    a##i = _mm256_fmadd_ps(a##i, x, x);                                                                                \
    __asm__ volatile("" : "+x"(a##i));
        TWELVE(X)
#undef X
    }
#define X(i) sum = _mm256_add_ps(sum, a##i);
    TWELVE(X)
#undef X
    return (int)_mm256_cvtss_f32(sum);
}
__attribute__((target("avx2"))) static int read_bytes(const uint8_t *p, size_t n) {
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i + 128 <= n; i += 128) {
        a = _mm256_xor_si256(a, _mm256_loadu_si256((const void *)(p + i)));
        b = _mm256_xor_si256(b, _mm256_loadu_si256((const void *)(p + i + 32)));
        a = _mm256_xor_si256(a, _mm256_loadu_si256((const void *)(p + i + 64)));
        b = _mm256_xor_si256(b, _mm256_loadu_si256((const void *)(p + i + 96)));
    }
    return _mm256_extract_epi32(_mm256_xor_si256(a, b), 0);
}
#else
static int read_bytes(const uint8_t *p, size_t n) {
    uint64_t a = 0, v;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        memcpy(&v, p + i, 8);
        a ^= v;
    }
    return (int)a;
}
#endif

/* ---- the run ---- */

typedef struct stage { /* one matrix with its input and output */
    tensor_mat  m;
    const void *x;
    size_t      x_stride;
    float      *out;
    int64_t     n_rows;
    bool        barrier;
} stage;

typedef struct bench_case {
    const char *part, *type;
    int64_t     rows, cols, n_rows;
    double      macs, bytes; /* of one measured pass */
    int64_t     tokens;
    double      seconds[MAX_REPS];
    double      peak[MAX_REPS], read[MAX_REPS], read1[MAX_REPS]; /* ceilings, measured just before */
} bench_case;

typedef struct bench {
    kernels     k;
    pool       *p;
    int         threads, reps, n_cases;
    bool        json;
    const char *types, *part;
    uint8_t    *memory; /* POOL_BYTES for weights */
    uint8_t    *region; /* of them for the type at hand */
    bool        together;
    uint8_t    *x;
    float      *out;
    void       *scratch[MAX_THREADS];
    bench_case  cases[MAX_CASES];

    const stage *stages; /* of the pass that is running */
    int          n_stages;
    int64_t      peak_n;
    int          peak_kind;
    volatile int sink[MAX_THREADS * 16];
} bench;

static void run_stages(void *ctx, int worker, int n_workers) {
    bench *b = ctx;
    for (int i = 0; i < b->n_stages; i++) {
        const stage *s = &b->stages[i];
        int64_t      panels = matmul_panels(&s->m);
        matmul_args  a = { .w = &s->m,
                           .x = s->x,
                           .x_stride = s->x_stride,
                           .n_rows = s->n_rows,
                           .out = s->out,
                           .out_stride = (size_t)s->m.rows };
        b->k.matmul.run(&a, panels * worker / n_workers, panels * (worker + 1) / n_workers, b->scratch[worker]);
        if (s->barrier) pool_barrier(b->p, worker);
    }
}

static double pass(bench *b, const stage *stages, int n) {
    b->stages = stages;
    b->n_stages = n;
    double t = clock_s();
    pool_run(b->p, run_stages, b);
    return clock_s() - t;
}

enum { PEAK_DOT, PEAK_FMA, PEAK_READ };

static void run_peak(void *ctx, int worker, int n_workers) {
    bench *b = ctx;
    int    v = 0;
#if KERNELS_X86
    bool wide = (b->k.cpu & CPU_AVX512) != 0, any = (b->k.cpu & CPU_AVX2) != 0;
    if (b->peak_kind == PEAK_DOT && any) v = wide ? peak_dot512(b->peak_n) : peak_dot256(b->peak_n);
    if (b->peak_kind == PEAK_FMA && any) v = wide ? peak_fma512(b->peak_n) : peak_fma256(b->peak_n);
#endif
    if (b->peak_kind == PEAK_READ) {
        size_t n = ROTATE_BYTES / (size_t)n_workers;
        v = read_bytes(b->memory + n * (size_t)worker, n);
    }
    b->sink[worker * 16] = v;
}

static double lanes(const bench *b, int per512) {
    return b->k.cpu & CPU_AVX512 ? per512 : b->k.cpu & CPU_AVX2 ? per512 / 2.0 : 0;
}

static double measure_peak(bench *b, int kind) {
    double t = clock_s();
    b->peak_n = 500000;
    b->peak_kind = kind;
    pool_run(b->p, run_peak, b);
    return (double)b->peak_n * 12 * lanes(b, kind == PEAK_DOT ? 64 : 16) * b->threads / (clock_s() - t) * 1e-9;
}

static double measure_read(bench *b, bool all_threads) {
    double t = clock_s();
    b->peak_kind = PEAK_READ;
    if (all_threads)
        pool_run(b->p, run_peak, b);
    else
        run_peak(b, 0, 1);
    return (double)ROTATE_BYTES / (clock_s() - t) * 1e-9;
}

static void measure_ceilings(bench *b, bench_case *c, int type, int rep) {
    c->peak[rep] = measure_peak(b, matmul_input(type) == MATMUL_ACT8 ? PEAK_DOT : PEAK_FMA);
    c->read1[rep] = measure_read(b, false);
    c->read[rep] = measure_read(b, true);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, int n) {
    double s[MAX_REPS];
    memcpy(s, v, (size_t)n * sizeof *v);
    qsort(s, (size_t)n, sizeof *s, compare);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

/* ---- weights ---- */

static tensor_mat matrix_of(int type, int64_t rows, int64_t cols) {
    tensor_mat m = { .type = (tensor_type)type, .rows = rows, .cols = cols };
    if (!tensor_row_bytes(type, cols, &m.row_bytes)) abort();
    if (type >= TENSOR_NF4 || type == TENSOR_F8_E4M3 || type == TENSOR_F8_E5M2) {
        bool mx = type >= TENSOR_MLX_MXFP4;
        m.group = type == TENSOR_MLX_NVFP4 ? 16 : mx ? 32 : 64;
        m.group_rows = 1;
        m.scale_type = type == TENSOR_MLX_NVFP4 ? TENSOR_F8_E4M3 : mx ? TENSOR_F8_E8M0 : TENSOR_F16;
        if (type < TENSOR_MLX_AFF2) m.scale_type = TENSOR_F32;
        m.scale_row_bytes = (size_t)(cols / m.group) * (m.scale_type == TENSOR_F32   ? 4
                                                        : m.scale_type == TENSOR_F16 ? 2
                                                                                     : 1);
    }
    return m;
}

static bool affine(int type) { return type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8; }

static size_t matrix_bytes(const tensor_mat *m) {
    return (size_t)m->rows * (m->row_bytes + m->scale_row_bytes * (affine(m->type) ? 2 : 1));
}

static void random_block(int type, uint8_t *dst, int64_t n, uint64_t *seed) {
    float v[256];
    for (int64_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)((int64_t)(*seed >> 40) - (1 << 23)) * 0x1p-26f;
    }
    if (tensor_can_quant(type)) {
        tensor_quant_row(type, v, dst, n);
        return;
    }
    do { /* random bytes whose scale is an ordinary number */
        const tensor_type_info *t = tensor_type_get(type);
        for (int i = 0; i < t->block_bytes; i++) {
            *seed = *seed * 6364136223846793005u + 1442695040888963407u;
            dst[i] = (uint8_t)(*seed >> 56);
        }
        tensor_dequant_row(type, dst, v, n);
    } while (!(fabsf(v[0]) < 1e3f) || !(fabsf(v[n - 1]) < 1e3f));
}

/* Fills the weight memory with a pattern of valid blocks of one type, so that matrices may begin at any whole block. */
static void fill_memory(bench *b, int type, size_t bytes) {
    const tensor_type_info *t = tensor_type_get(type);
    uint64_t                seed = 1;
    size_t                  unit = tensor_can_dequant(type) ? t->block_bytes : 64, have = unit * 1024;
    for (size_t i = 0; i < have; i += unit) {
        if (tensor_can_dequant(type)) {
            random_block(type, b->region + i, t->block_elems, &seed);
        } else { /* separate arrays: any bytes are values; as f16, bf16 or f8 scales these are ordinary numbers */
            for (size_t j = 0; j < unit; j++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                b->region[i + j] = (uint8_t)(j % 2 ? 0x2c | (seed >> 63) << 7 : seed >> 56);
            }
        }
    }
    while (have < bytes) {
        size_t n = have < bytes - have ? have : bytes - have;
        memcpy(b->region + have, b->region, n);
        have += n;
    }
}

static void place(bench *b, tensor_mat *m, size_t *at) {
    const tensor_type_info *t = tensor_type_get(m->type);
    size_t                  unit = tensor_can_dequant(m->type) ? t->block_bytes : 64;
    *at = (*at + unit - 1) / unit * unit;
    m->data = b->region + *at;
    *at += (size_t)m->rows * m->row_bytes;
    if (m->scale_row_bytes) {
        m->scales = b->region + *at;
        *at += (size_t)m->rows * m->scale_row_bytes;
        if (affine(m->type)) {
            m->biases = b->region + *at;
            *at += (size_t)m->rows * m->scale_row_bytes;
        }
    }
    if (b->region - b->memory + *at > POOL_BYTES) abort();
}

static void fill_inputs(bench *b, int type, int64_t n_rows, int64_t cols) {
    bool   int8 = matmul_input(type) == MATMUL_ACT8;
    size_t stride = int8 ? act8_row_bytes(cols) : (size_t)cols * 4;
    float *row = malloc((size_t)cols * sizeof *row);
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t k = 0; k < cols; k++) row[k] = sinf((float)(r * 31 + k));
        if (int8)
            b->k.matmul.act_quantize((act8 *)(b->x + (size_t)r * stride), row, cols);
        else
            memcpy(b->x + (size_t)r * stride, row, stride);
    }
    free(row);
}

static stage stage_of(bench *b, tensor_mat m, int64_t n_rows, size_t *at) {
    stage s = { .m = m, .x = b->x, .n_rows = n_rows, .out = b->out };
    s.x_stride = matmul_input(m.type) == MATMUL_ACT8 ? act8_row_bytes(m.cols) : (size_t)m.cols * 4;
    place(b, &s.m, at);
    return s;
}

/* ---- cases ---- */

static bench_case *case_new(bench *b, const char *part, int type, int64_t rows, int64_t cols, int64_t n_rows, int rep,
                            int index) {
    bench_case *c = &b->cases[index];
    if (rep == 0) {
        *c = (bench_case){ .part = part, .type = tensor_type_name(type), .rows = rows, .cols = cols, .n_rows = n_rows };
        b->n_cases = index + 1;
    }
    return c;
}

static bool wanted(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p && (p = strcasestr(p, name)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == 0 || p[n] == ',')) return true;
    return !list;
}

/* One shape: copies of the matrix one after the other; large row counts need no copies. */
static void measure_shape(bench *b, const char *part, int type, int64_t rows, int64_t cols, int64_t n_rows, int rep,
                          int index) {
    bench_case *c = case_new(b, part, type, rows, cols, n_rows, rep, index);
    tensor_mat  m = matrix_of(type, rows, cols);
    size_t      at = 0;
    int         copies = n_rows > 16 ? 1 : (int)(ROTATE_BYTES / matrix_bytes(&m)) + 1;
    stage      *s = malloc((size_t)copies * sizeof *s);
    fill_inputs(b, type, n_rows, cols);
    for (int i = 0; i < copies; i++) s[i] = stage_of(b, m, n_rows, &at);
    c->macs = (double)copies * (double)rows * (double)cols * (double)n_rows;
    c->bytes = (double)copies * (double)matrix_bytes(&m);
    if (n_rows > 16 && rep == 0) pass(b, s, copies);
    measure_ceilings(b, c, type, rep);
    c->seconds[rep] = pass(b, s, copies);
    free(s);
}

static void measure_model(bench *b, int type, int64_t n_rows, int rep, int index) {
    static const int64_t shapes[7][2] = { { WIDTH, WIDTH }, { KV, WIDTH }, { KV, WIDTH }, { WIDTH, WIDTH },
                                          { FF, WIDTH },    { FF, WIDTH }, { WIDTH, FF } };
    bench_case          *c = case_new(b, "model", type, 0, 0, n_rows, rep, index);
    stage                s[LAYERS * 7 + 1];
    int                  n = 0;
    size_t               at = 0;
    c->macs = c->bytes = 0;
    c->tokens = n_rows;
    fill_inputs(b, type, n_rows, FF); /* rows of every width read from the same memory */
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < 7; i++) {
            s[n] = stage_of(b, matrix_of(type, shapes[i][0], shapes[i][1]), n_rows, &at);
            s[n++].barrier = i >= 2 && i != 4;
        }
    s[n++] = stage_of(b, matrix_of(type, VOCAB, WIDTH), n_rows, &at);
    for (int i = 0; i < n; i++) {
        c->macs += (double)s[i].m.rows * (double)s[i].m.cols * (double)n_rows;
        c->bytes += (double)matrix_bytes(&s[i].m);
    }
    measure_ceilings(b, c, type, rep);
    c->seconds[rep] = pass(b, s, n);
}

static const int     table_types[] = { TENSOR_Q4_0,     TENSOR_Q4_K,     TENSOR_Q5_K,   TENSOR_Q6_K,
                                       TENSOR_Q8_0,     TENSOR_IQ4_NL,   TENSOR_IQ4_XS, TENSOR_MXFP4,
                                       TENSOR_MLX_AFF4, TENSOR_MLX_AFF8, TENSOR_F16,    TENSOR_BF16 };
static const int64_t table_shapes[][2] = { { 8192, 2048 }, { 2048, 8192 }, { 128256, 2048 } };

static void measure_type(bench *b, int type, int rep, int *index) {
    for (int i = 0; i < 3; i++) {
        int64_t rows = table_shapes[i][0], cols = table_shapes[i][1];
        if (wanted(b->part, "vector")) measure_shape(b, "vector", type, rows, cols, 1, rep, (*index)++);
        if (wanted(b->part, "small") && i == 0)
            for (int n = 2; n <= 16; n *= 2) measure_shape(b, "small", type, rows, cols, n, rep, (*index)++);
        if (wanted(b->part, "matrix") && i < 2) measure_shape(b, "matrix", type, rows, cols, 256, rep, (*index)++);
    }
    bool in_model = type == TENSOR_Q4_0 || type == TENSOR_Q4_K || type == TENSOR_Q8_0 || type == TENSOR_F16 || b->types;
    if (wanted(b->part, "model") && in_model) {
        measure_model(b, type, 1, rep, (*index)++);
        measure_model(b, type, 256, rep, (*index)++);
    }
}

static void report_case(const bench *b, const bench_case *c, bool first) {
    double t = median(c->seconds, b->reps), gmacs = c->macs / t * 1e-9, gbs = c->bytes / t * 1e-9;
    char   shape[32];
    double peak = median(c->peak, b->reps), read = median(c->read, b->reps), read1 = median(c->read1, b->reps);
    double of_peak[MAX_REPS] = { 0 }, of_read[MAX_REPS] = { 0 };
    for (int i = 0; i < b->reps; i++) {
        of_peak[i] = c->peak[i] > 0 ? 100 * c->macs / c->seconds[i] * 1e-9 / c->peak[i] : 0;
        of_read[i] = 100 * c->bytes / c->seconds[i] * 1e-9 / c->read[i];
    }
    double peak_percent = median(of_peak, b->reps), read_percent = median(of_read, b->reps);
    if (c->rows)
        snprintf(shape, sizeof shape, "%lldx%lld", (long long)c->rows, (long long)c->cols);
    else
        snprintf(shape, sizeof shape, "1.24B");
    if (b->json)
        printf("%s\n{\"part\":\"%s\",\"type\":\"%s\",\"shape\":\"%s\",\"rows\":%lld,\"gmacs\":%.2f,\"peak_gmacs\":%.1f,"
               "\"peak_percent\":%.1f,\"gbs\":%.2f,\"read_gbs\":%.2f,\"read_gbs_1_thread\":%.2f,\"read_percent\":%.1f,"
               "\"tok_s\":%.2f}",
               first ? "" : ",", c->part, c->type, shape, (long long)c->n_rows, gmacs, peak, peak_percent, gbs, read,
               read1, read_percent, (double)c->tokens / t);
    else
        printf("%-7s %-10s %12s %5lld %8.1f %6.0f %5.1f%% %7.2f %6.1f %6.1f%% %8.1f\n", c->part, c->type, shape,
               (long long)c->n_rows, gmacs, peak, peak_percent, gbs, read, read_percent, (double)c->tokens / t);
}

static void report(const bench *b) {
    char cpu[160];
    cpu_describe(cpu, sizeof cpu);
    if (b->json)
        printf("{\"cpu\":\"%s\",\"threads\":%d,\"reps\":%d,\"kernels\":\"%s\",\"cases\":[", cpu, b->threads, b->reps,
               b->k.matmul.run_set);
    else
        printf("%s, %d threads, kernels %s, medians of %d, %s;\n"
               "peak: int8 dot or f32 FMA from registers; read: all threads\n\n"
               "%-7s %-10s %12s %5s %8s %6s %6s %7s %6s %7s %8s\n",
               cpu, b->threads, b->k.matmul.run_set, b->reps,
               b->together ? "all types in every round" : "type after type", "part", "type", "shape", "rows", "GMAC/s",
               "peak", "%", "GB/s", "read", "%", "tok/s");
    for (int i = 0; i < b->n_cases; i++) report_case(b, &b->cases[i], i == 0);
    if (b->json) printf("]}\n");
}

static int setup(bench *b, int argc, char **argv) {
    unsigned cpu = cpu_detect(), mask = ~0u;
    err      e;
    b->reps = 7;
    b->threads = pool_default_threads();
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            b->json = true;
            continue;
        }
        if (strcmp(argv[i], "--reps") == 0)
            b->reps = atoi(value);
        else if (strcmp(argv[i], "--threads") == 0)
            b->threads = atoi(value);
        else if (strcmp(argv[i], "--types") == 0)
            b->types = value;
        else if (strcmp(argv[i], "--part") == 0)
            b->part = value;
        else if (strcmp(argv[i], "--cpu") != 0 || !cpu_parse(value, &mask)) {
            fprintf(stderr, "bench_kernels: unknown option %s %s\n", argv[i], value);
            return 2;
        }
        i++;
    }
    if (b->reps < 1 || b->reps > MAX_REPS || b->threads < 1 || b->threads > MAX_THREADS) return 2;
    kernels_init(&b->k, cpu & mask);
    if (pool_open(&b->p, b->threads, true, &e) < 0) {
        fprintf(stderr, "bench_kernels: %s\n", e.msg);
        return 1;
    }
    tensor_mat widest = matrix_of(TENSOR_F32, 16, FF);
    size_t     scratch = matmul_scratch_bytes(&widest, 256) * 2;
    b->memory = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->memory == MAP_FAILED) return 1;
    madvise(b->memory, POOL_BYTES, MADV_HUGEPAGE);
    b->x = aligned_alloc(64, 256 * (size_t)FF * 4);
    b->out = aligned_alloc(64, 256 * (size_t)VOCAB * sizeof *b->out);
    for (int i = 0; i < b->threads; i++) b->scratch[i] = aligned_alloc(64, scratch);
    if (!b->x || !b->out) return 1;
    memset(b->out, 0, 256 * (size_t)VOCAB * sizeof *b->out);
    return 0;
}

/* Bytes of valid blocks that the cases of a type need. */
static size_t type_bytes(const bench *b, int type) {
    tensor_mat head = matrix_of(type, VOCAB, WIDTH);
    size_t     bytes = ROTATE_BYTES + matrix_bytes(&head) + (1 << 26);
    if (wanted(b->part, "model")) bytes += (size_t)((double)matrix_bytes(&head) / VOCAB / WIDTH * 1.0e9);
    return bytes;
}

static int choose_types(const bench *b, int *types) {
    int n = 0;
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++) {
        bool in_table = false;
        for (size_t j = 0; j < sizeof table_types / sizeof *table_types; j++)
            in_table = in_table || table_types[j] == type;
        if (matmul_input(type) != MATMUL_NONE && (b->types ? wanted(b->types, tensor_type_name(type)) : in_table))
            types[n++] = type;
    }
    return n;
}

int main(int argc, char **argv) {
    static bench all_of_it;
    bench       *b = &all_of_it;
    int          rc = setup(b, argc, argv), types[TENSOR_TYPE_COUNT], index = 0;
    if (rc) return rc;
    int    n = choose_types(b, types);
    size_t all = 0;
    for (int i = 0; i < n; i++) all += type_bytes(b, types[i]);
    b->together = all <= POOL_BYTES;
    for (int from = 0; from < n; from = b->together ? n : from + 1) {
        int    until = b->together ? n : from + 1, first = index;
        size_t at = 0;
        for (int i = from; i < until; at += type_bytes(b, types[i]), i++) {
            b->region = b->memory + at;
            fill_memory(b, types[i], type_bytes(b, types[i]));
        }
        for (int rep = 0; rep < b->reps; rep++) {
            index = first;
            at = 0;
            for (int i = from; i < until; at += type_bytes(b, types[i]), i++) {
                b->region = b->memory + at;
                measure_type(b, types[i], rep, &index);
            }
        }
    }
    report(b);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of the CUDA products beside what the device reads in the same minutes.
 *
 * "few": weights of the shapes of an 8 B llama model, 1..64 activation rows. Each round runs, in turn, the plain read
 * of READ_BYTES and every case; a case is a captured graph of products over enough copies of the matrix to be
 * READ_BYTES together (far more than the L2 cache), so that a figure is one of memory. The graph's kernels may begin
 * early (product.h), as in a decode step. Figures are medians over the rounds; a percentage is the median of the
 * rounds' own. GB/s counts packed weight bytes alone.
 *
 * "chain": the products of one row of a layer of the 8 B shape, each of which waits for the one in front, as in a decode step: a
 * norm with Q/K/V; O; a norm with gate, up and the gated unit; down. Microseconds of a layer, without attention.
 *
 * "many": TFLOP/s of 256, 512 and 2048 rows; for packed types with ("all") and without unpacking the weights.
 *
 * Options: --part few|many|chain, --types A,B (also those that are recoded), --rows 1,2,.., --shapes ROWSxCOLS,.., --reps N,
 * --path few|mma|wgmma|held, --cluster N, --stages N, --tile N (plans of the few-row kernel, cuda_few_plan), --paces N,N,.. (of the
 * chain, in turns).
 */
#include "kernels/cuda/probe.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/recode.h"
#include "tensor/half.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPS = 101, MAX_CASES = 400, MAX_COPIES = 1024, MAX_LIST = 16, CHAIN_LAYERS = 16 };
#define READ_BYTES ((size_t)1 << 30)

typedef struct shape {
    int64_t rows, cols;
} shape;

typedef struct options {
    bool          few, many, chain;
    tensor_type   types[MAX_LIST];
    int           n_types;
    int           rows[MAX_LIST], n_rows;
    shape         shapes[MAX_LIST];
    int           n_shapes;
    int           reps;
    int           paces[MAX_LIST], n_paces;
    cuda_few_plan plan;
    cuda_path     path;
} options;

typedef struct bench_case {
    tensor_type     type;
    shape           s;
    int             n, copies; /* copies: of a chain, its layers */
    cudaGraphExec_t graph;
    double          bytes, flops;                 /* of the whole graph */
    float           ms[MAX_REPS], part[MAX_REPS]; /* part: of the read speed of that round */
} bench_case;

static void die(const char *what) {
    fprintf(stderr, "bench_cuda: %s\n", what);
    exit(1);
}
static void must(int rc, const err *e) {
    if (rc != 0) die(e->msg);
}
static void rt(cudaError_t rc) {
    if (rc != cudaSuccess) die(cudaGetErrorString(rc));
}

static void *device_alloc(size_t bytes) {
    err   e;
    void *p = NULL;
    must(cuda_alloc(&p, bytes, &e), &e);
    return p;
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}
static double median(const float *v, int n) {
    float t[MAX_REPS];
    memcpy(t, v, (size_t)n * sizeof *t);
    qsort(t, (size_t)n, sizeof *t, by_value);
    return (double)t[n / 2];
}

static uint64_t rng = 88172645463325252u;
static uint32_t draw(void) {
    rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
    return (uint32_t)(rng >> 32);
}

/* Packed weights of random quants whose scales are small finite halves: any bit pattern of that kind is a valid tile.
 */
static void *random_packed(size_t bytes) {
    const size_t piece = (size_t)4 << 20;
    uint16_t    *host = malloc(piece);
    uint8_t     *p = device_alloc(bytes);
    err          e;
    if (!host) die("out of memory");
    for (size_t i = 0; i < piece / 2; i++) host[i] = (uint16_t)(draw() & 0x9fff); /* below 2^-7 */
    for (size_t o = 0; o < bytes; o += piece)
        must(cuda_copy_in(p + o, host, bytes - o < piece ? bytes - o : piece, &e), &e);
    free(host);
    return p;
}

typedef struct bench {
    cuda_device  d;
    cudaStream_t stream;
    cudaEvent_t  before, after;
    uint8_t     *pool; /* READ_BYTES and one matrix more of packed weights, for all cases */
    size_t       pool_bytes;
    void        *sink, *scratch;
    float       *x, *out, *scale;
    void        *image;
    bench_case   cases[MAX_CASES];
    int          n_cases;
} bench;

static float time_graph(bench *b, cudaGraphExec_t g) {
    float ms;
    rt(cudaEventRecord(b->before, b->stream));
    rt(cudaGraphLaunch(g, b->stream));
    rt(cudaEventRecord(b->after, b->stream));
    rt(cudaEventSynchronize(b->after));
    rt(cudaEventElapsedTime(&ms, b->before, b->after));
    return ms;
}

static cudaGraphExec_t capture_end(bench *b) {
    cudaGraph_t     g;
    cudaGraphExec_t x;
    rt(cudaStreamEndCapture(b->stream, &g));
    rt(cudaGraphInstantiate(&x, g, 0));
    rt(cudaGraphDestroy(g));
    return x;
}

static cudaGraphExec_t capture_read(bench *b) {
    err e;
    rt(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    must(cuda_probe_read(&b->d, b->pool, READ_BYTES, b->sink, b->stream, &e), &e);
    return capture_end(b);
}

/* What weights of a type are on the device. */
static tensor_type device_type(tensor_type type) {
    return cuda_can_multiply(type) ? type : cuda_recode_type(&(tensor_mat){ .type = type });
}

static cuda_product_args product_of(bench *b, tensor_type type, shape s, int n, const void *w) {
    return (cuda_product_args){ .w = { type, s.rows, s.cols, w, 0 },
                                .x = { type == TENSOR_BF16, n, cuda_rows_pad(n), s.cols, b->image, b->scale },
                                .out = b->out,
                                .out_stride = s.rows,
                                .scratch = b->scratch };
}

static void add_case(bench *b, const options *o, tensor_type named, shape s, int n, bool unpacked) {
    err               e;
    const tensor_type type = device_type(named);
    bench_case       *c = &b->cases[b->n_cases++];
    const size_t      bytes = cuda_packed_bytes(type, s.rows, s.cols);
    if (b->n_cases == MAX_CASES) die("too many cases");
    *c = (bench_case){ .type = named, .s = s, .n = n, .copies = (int)(READ_BYTES / bytes) };
    if (c->copies > MAX_COPIES) c->copies = MAX_COPIES;
    if (c->copies < 1) c->copies = 1;
    if (n > CUDA_FEW && c->copies > 4) c->copies = 4;
    cuda_product_args a = product_of(b, type, s, n, b->pool);
    must(cuda_rows_make(&a.x, b->x, s.cols, b->stream, &e),
         &e); /* the rows' values are those of the last case; any will do */
    rt(cudaStreamSynchronize(b->stream));
    rt(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < c->copies; i++) {
        a = product_of(b, type, s, n, b->pool + (size_t)i * bytes);
        a.plan = o->plan;
        a.path = o->path;
        a.early = true;
        a.unpacked = unpacked;
        must(cuda_product(&b->d, &a, b->stream, &e), &e);
    }
    c->graph = capture_end(b);
    c->bytes = (double)bytes * c->copies;
    c->flops = 2.0 * (double)s.rows * (double)s.cols * n * c->copies;
}

/* Of a layer of the 8 B shape: norm with Q/K/V; O; norm with gate, up and the gated unit; down. */
enum { CHAIN_DIM = 4096, CHAIN_QKV = 6144, CHAIN_FF = 14336 };
static const shape chain_shapes[] = {
    { CHAIN_QKV, CHAIN_DIM }, { CHAIN_DIM, CHAIN_DIM }, { 2 * CHAIN_FF, CHAIN_DIM }, { CHAIN_DIM, CHAIN_FF }
};

static size_t chain_bytes(tensor_type type) {
    size_t bytes = 0;
    for (int i = 0; i < 4; i++) bytes += cuda_packed_bytes(type, chain_shapes[i].rows, chain_shapes[i].cols);
    return bytes;
}

/* Product `link` of a layer; returns where the weights of the next one are. */
static const uint8_t *chain_link(bench *b, const cuda_few_plan *plan, tensor_type type, int link, const uint8_t *w) {
    const shape s = chain_shapes[link];
    const bool  first = link == 0 || link == 2;
    float      *row = b->x, *normed = b->out, *qkv = normed + CHAIN_DIM, *up = qkv + CHAIN_QKV, *rest = up + CHAIN_FF;
    err         e;
    cuda_product_args a = { .w = { type, s.rows, s.cols, w, 0 },
                            .x = { .n = 1, .n_pad = 8, .cols = s.cols },
                            .out = link == 0   ? qkv
                                   : link == 2 ? up
                                               : row,
                            .out_stride = s.rows,
                            .row = link == 1   ? qkv
                                   : link == 3 ? up
                                               : row,
                            .plan = *plan,
                            .early = true,
                            .add = !first };
    if (first) a.norm = (cuda_row_norm){ normed, b->x + CHAIN_DIM, 1e-5f };
    if (link == 2) {
        a.glu = true, a.act = CUDA_ACT_SILU, a.n_more = 1;
        a.more[0] = (cuda_more){ CHAIN_FF, rest, CHAIN_FF, NULL, 0 };
    }
    must(cuda_product(&b->d, &a, b->stream, &e), &e);
    return w + cuda_packed_bytes(type, s.rows, s.cols);
}

static void add_chain(bench *b, const options *o, tensor_type named, int pace) {
    const tensor_type type = device_type(named);
    const size_t      bytes = chain_bytes(type), fit = b->pool_bytes / bytes;
    bench_case       *c = &b->cases[b->n_cases++];
    cuda_few_plan     plan = o->plan;
    if (b->n_cases == MAX_CASES) die("too many cases");
    *c = (bench_case){ .type = named, .n = pace, .copies = CHAIN_LAYERS, .bytes = (double)bytes * CHAIN_LAYERS };
    plan.pace = pace;
    rt(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CHAIN_LAYERS; i++) {
        const uint8_t *w = b->pool + (size_t)i % fit * bytes;
        for (int link = 0; link < 4; link++) w = chain_link(b, &plan, type, link, w);
    }
    c->graph = capture_end(b);
}

static void run_cases(bench *b, int reps) {
    cudaGraphExec_t read = capture_read(b);
    float           read_ms[MAX_REPS];
    for (int r = -2; r < reps; r++) {
        float ms = 0;
        for (int i = 0; i < b->n_cases; i++) {
            bench_case *c = &b->cases[i];
            if (i % 8 == 0) ms = time_graph(b, read);
            const float t = time_graph(b, c->graph);
            if (r < 0) continue;
            read_ms[r] = ms;
            c->ms[r] = t;
            c->part[r] = (float)(c->bytes / (double)t / ((double)READ_BYTES / (double)ms));
        }
    }
    const bool chains = b->n_cases && b->cases[0].s.rows == 0;
    printf("read: %.0f GB/s\n", (double)READ_BYTES / median(read_ms, reps) * 1e-6);
    printf("%-5s %7s %7s %5s %9s %9s %6s %9s\n", "type", "rows", "cols", chains ? "pace" : "n", "us", "GB/s", "read",
           "TFLOP/s");
    for (int i = 0; i < b->n_cases; i++) {
        bench_case  *c = &b->cases[i];
        const double ms = median(c->ms, reps);
        printf("%-5s %7lld %7lld %5d %9.2f %9.0f %5.1f%% %9.1f\n", tensor_type_name(c->type), (long long)c->s.rows,
               (long long)c->s.cols, c->n, ms * 1e3 / c->copies, c->bytes / ms * 1e-6, 100 * median(c->part, reps),
               c->flops / ms * 1e-9);
        rt(cudaGraphExecDestroy(c->graph));
    }
    rt(cudaGraphExecDestroy(read));
    b->n_cases = 0;
}

static void bench_open(bench *b, const options *o) {
    err     e = { 0 };
    int64_t rows = 0, cols = 0;
    size_t  matrix = 0, scratch = 0;
    if (cuda_device_count(&e) == 0) {
        printf("skipped: no device: %s\n", e.msg);
        exit(0);
    }
    must(cuda_device_open(&b->d, 0, &e), &e);
    for (int i = 0; i < o->n_shapes; i++) {
        const shape s = o->shapes[i];
        if (s.rows > rows) rows = s.rows;
        if (s.cols > cols) cols = s.cols;
        for (int t = 0; t < o->n_types; t++) {
            const tensor_type type = device_type(o->types[t]);
            if (cuda_packed_bytes(type, s.rows, s.cols) > matrix) matrix = cuda_packed_bytes(type, s.rows, s.cols);
            if (cuda_scratch_bytes(type, s.rows, s.cols) > scratch) scratch = cuda_scratch_bytes(type, s.rows, s.cols);
        }
    }
    for (int t = 0; t < o->n_types && o->chain; t++) {
        if (chain_bytes(device_type(o->types[t])) > matrix) matrix = chain_bytes(device_type(o->types[t]));
    }
    if (o->chain && rows < CHAIN_DIM + CHAIN_QKV + 2 * CHAIN_FF) rows = CHAIN_DIM + CHAIN_QKV + 2 * CHAIN_FF;
    if (o->chain && cols < 2 * CHAIN_DIM) cols = 2 * CHAIN_DIM;
    int most = o->many ? 2048 : 1;
    for (int i = 0; i < o->n_rows; i++) {
        if (o->rows[i] > most) most = o->rows[i];
    }
    b->pool_bytes = READ_BYTES + matrix;
    b->pool = random_packed(b->pool_bytes);
    b->sink = device_alloc(1 << 16);
    b->scratch = device_alloc(scratch);
    b->image = device_alloc(cuda_rows_bytes(most, cols));
    b->scale = device_alloc((size_t)most * 4);
    b->out = device_alloc((size_t)most * (size_t)rows * 4);
    b->x = device_alloc((size_t)most * (size_t)cols * 4);
    float *x = malloc((size_t)most * (size_t)cols * 4);
    if (!x) die("out of memory");
    for (size_t i = 0; i < (size_t)most * (size_t)cols; i++) x[i] = (float)(int32_t)draw() * 0x1p-31f;
    must(cuda_copy_in(b->x, x, (size_t)most * (size_t)cols * 4, &e), &e);
    free(x);
    rt(cudaStreamCreate(&b->stream));
    rt(cudaEventCreate(&b->before));
    rt(cudaEventCreate(&b->after));
    printf("%s, %d.%d, %d multiprocessors, L2 %zu MiB, driver %d, runtime %d\n", b->d.name, b->d.arch / 10,
           b->d.arch % 10, b->d.sms, b->d.l2_bytes >> 20, b->d.driver, b->d.runtime);
}

/* Comma-separated values through one parser each. */
enum { LIST_TYPES, LIST_ROWS, LIST_SHAPES, LIST_PACES };
static void parse_list(const char *text, options *o, int what) {
    char copy[256], *save = NULL;
    int  n = 0, type;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = strtok_r(copy, ",", &save); p && n < MAX_LIST; p = strtok_r(NULL, ",", &save), n++) {
        if (what == LIST_TYPES && tensor_type_parse(p, &type) && cuda_can_multiply(device_type((tensor_type)type)))
            o->types[n] = (tensor_type)type;
        else if (what == LIST_ROWS && atoi(p) > 0)
            o->rows[n] = atoi(p);
        else if (what == LIST_SHAPES && strchr(p, 'x'))
            o->shapes[n] = (shape){ atoll(p), atoll(strchr(p, 'x') + 1) };
        else if (what == LIST_PACES && atoi(p) != 0)
            o->paces[n] = atoi(p);
        else
            die("a value of --types, --rows, --shapes or --paces is not understood");
    }
    *(what == LIST_TYPES    ? &o->n_types
      : what == LIST_ROWS   ? &o->n_rows
      : what == LIST_SHAPES ? &o->n_shapes
                            : &o->n_paces) = n;
}

static options parse(int argc, char **argv) {
    options o = { .few = true, .many = true, .chain = true, .reps = 15 };
    parse_list("Q4_K,Q8_0,F16", &o, LIST_TYPES);
    parse_list("1,2,4,8,16,32,64", &o, LIST_ROWS);
    parse_list("4096x4096,14336x4096,4096x14336,128256x4096", &o, LIST_SHAPES);
    parse_list("-1,18,36,54,72", &o, LIST_PACES);
    for (int i = 1; i < argc; i += 2) {
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!v) die("an option lacks its value, or is not one (see the head of bench_cuda.c)");
        if (strcmp(argv[i], "--part") == 0)
            o.few = strcmp(v, "few") == 0, o.many = strcmp(v, "many") == 0, o.chain = strcmp(v, "chain") == 0;
        else if (strcmp(argv[i], "--types") == 0)
            parse_list(v, &o, LIST_TYPES);
        else if (strcmp(argv[i], "--rows") == 0)
            parse_list(v, &o, LIST_ROWS);
        else if (strcmp(argv[i], "--shapes") == 0)
            parse_list(v, &o, LIST_SHAPES);
        else if (strcmp(argv[i], "--paces") == 0)
            parse_list(v, &o, LIST_PACES);
        else if (strcmp(argv[i], "--reps") == 0)
            o.reps = atoi(v) < 1 ? 1 : atoi(v) > MAX_REPS ? MAX_REPS : atoi(v);
        else if (strcmp(argv[i], "--cluster") == 0)
            o.plan.cluster = atoi(v);
        else if (strcmp(argv[i], "--tile") == 0)
            o.plan.tile = atoi(v);
        else if (strcmp(argv[i], "--path") == 0)
            o.path = strcmp(v, "few") == 0    ? CUDA_PATH_FEW
                     : strcmp(v, "mma") == 0  ? CUDA_PATH_MMA
                     : strcmp(v, "held") == 0 ? CUDA_PATH_HELD
                                              : CUDA_PATH_WGMMA;
        else if (strcmp(argv[i], "--stages") == 0)
            o.plan.stages = atoi(v);
        else
            die("unknown option (see the head of bench_cuda.c)");
    }
    return o;
}

int main(int argc, char **argv) {
    static bench     b;
    const options    o = parse(argc, argv);
    static const int many[] = { 256, 512, 2048 };
    bench_open(&b, &o);
    for (int t = 0; t < o.n_types && o.few; t++) {
        for (int i = 0; i < o.n_shapes; i++) {
            for (int r = 0; r < o.n_rows; r++) add_case(&b, &o, o.types[t], o.shapes[i], o.rows[r], false);
        }
    }
    if (o.few) run_cases(&b, o.reps);
    for (int t = 0; t < o.n_types && o.many; t++) {
        for (int i = 0; i < o.n_shapes; i++) {
            for (int r = 0; r < 3 && o.shapes[i].rows < 100000; r++) {
                add_case(&b, &o, o.types[t], o.shapes[i], many[r], false);
                if (cuda_scratch_bytes(device_type(o.types[t]), 16, 256) && o.shapes[i].rows <= CUDA_SLAB_ROWS)
                    add_case(&b, &o, o.types[t], o.shapes[i], many[r], true);
            }
        }
    }
    if (o.many) run_cases(&b, o.reps);
    for (int t = 0; t < o.n_types && o.chain; t++) {
        for (int i = 0; i < o.n_paces; i++) add_chain(&b, &o, o.types[t], o.paces[i]);
    }
    if (o.chain) run_cases(&b, o.reps);
    return 0;
}

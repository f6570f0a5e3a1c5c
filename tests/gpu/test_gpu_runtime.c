/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The software GPU's runtime without its machine: a fake one in here knows three kernels. What a program may not
 * rely on must go wrong (HEARTH_GPU_PACE=late), what it may rely on must hold, and what a device refuses is refused
 * with the same error. Each test is a process of its own, since a chip is chosen once and a fault stays.
 */
#include "gpu/fatbin.h"
#include "gpu/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a machine ---- */

/* put(int *to, int value) and copy(int *to, int *from) set *to and note it in `log_of`; fault() is a wild read. */
typedef enum fake_kind { FAKE_PUT, FAKE_FAULT, FAKE_COPY, N_FAKES } fake_kind;

struct gpu_kernel {
    fake_kind kind;
};

static const gpu_kernel  fakes[N_FAKES] = { { FAKE_PUT }, { FAKE_FAULT }, { FAKE_COPY } };
static const char *const names[N_FAKES] = { "put", "fault", "copy" };
static const char        hosts[N_FAKES]; /* their addresses stand for the kernels */
static const char       *opened;         /* the text of the module */
static int               log_of[64];
static atomic_int        n_log;

static struct {
    void  *at;
    size_t bytes;
} told[16];
static int             n_told;
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;

int gpu_module_open(gpu_module **out, const char *text, size_t bytes, err *e) {
    (void)bytes, (void)e;
    opened = text;
    *out = NULL;
    return 0;
}

void gpu_module_free(gpu_module *m) { (void)m; }

int gpu_module_kernel(const gpu_kernel **out, gpu_module *m, const char *name, err *e) {
    (void)m;
    for (int i = 0; i < N_FAKES; i++) {
        if (strcmp(names[i], name) == 0) return *out = &fakes[i], 0;
    }
    return err_set(e, ERR_NOTFOUND, "no kernel \"%s\"", name);
}

void gpu_kernel_shape(const gpu_kernel *k, gpu_shape *out) {
    *out = (gpu_shape){ .n_params = k->kind == FAKE_FAULT ? 0 : 2, .threads_max = 256, .static_smem = 1024 };
    out->param_bytes[0] = out->param_at[1] = 8;
    out->param_bytes[1] = k->kind == FAKE_COPY ? 8 : 4;
    out->params_bytes = 16;
}

void gpu_memory_of(void *at, int device) {
    (void)at;
    (void)device;
}

void gpu_memory_add(void *at, size_t bytes) {
    pthread_mutex_lock(&telling);
    told[n_told].at = at;
    told[n_told++].bytes = bytes;
    pthread_mutex_unlock(&telling);
}

void gpu_memory_remove(void *at) {
    pthread_mutex_lock(&telling);
    for (int i = 0; i < n_told; i++) {
        if (told[i].at == at) told[i] = told[--n_told];
    }
    pthread_mutex_unlock(&telling);
}

uint64_t gpu_instructions(void) { return 0; }

int gpu_run(const gpu_chip *chip, const gpu_launch *l, err *e) {
    int *to, *from, value;
    (void)chip;
    if (l->kernel->kind == FAKE_FAULT) return err_set(e, ERR_LOST, "a fault that the test asked for");
    memcpy(&to, l->params, sizeof to);
    memcpy(&from, (const char *)l->params + 8, sizeof from);
    memcpy(&value, (const char *)l->params + 8, sizeof value);
    *to = l->kernel->kind == FAKE_COPY ? *from : value;
    log_of[atomic_fetch_add(&n_log, 1)] = *to;
    return 0;
}

/* A fake has nothing to do before the kernel in front has ended. */
struct gpu_started {
    const gpu_chip   *chip;
    const gpu_launch *l;
};

int gpu_start(gpu_started **out, const gpu_chip *chip, const gpu_launch *l, bool early, err *e) {
    (void)early;
    *out = malloc(sizeof **out);
    if (!*out) return err_set_nomem(e);
    **out = (gpu_started){ chip, l };
    return 0;
}

int gpu_finish(gpu_started *s, err *e) {
    const int rc = gpu_run(s->chip, s->l, e);
    free(s);
    return rc;
}

bool gpu_lets_begin(const gpu_started *s) { return s != NULL; }

void gpu_abandon(gpu_started *s) { free(s); }

/* ---- a program ---- */

static uint8_t binary[2048];
static struct {
    uint32_t    magic, version;
    const void *data, *more;
} wrapper = { 0x466243b1, 1, binary, NULL };

static void put_number(uint8_t *at, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(v >> 8 * i);
}

/* Puts an entry behind the others, as nvcc does. */
static uint8_t *binary_add(int kind, int arch, uint64_t flags, const char *text) {
    uint64_t       used = 0;
    const uint64_t bytes = (strlen(text) + 8) / 8 * 8;
    memcpy(&used, binary + 8, sizeof used);
    uint8_t *at = binary + 16 + used;
    put_number(binary, 0xba55ed50, 4);
    put_number(binary + 4, 1, 2);
    put_number(binary + 6, 16, 2);
    put_number(binary + 8, used + 64 + bytes, 8);
    put_number(at, (uint64_t)kind, 2);
    put_number(at + 4, 64, 4);
    put_number(at + 8, bytes, 8);
    put_number(at + 28, (uint64_t)arch, 4);
    put_number(at + 40, flags, 8);
    for (size_t i = 0; text[i]; i++) at[64 + i] = (uint8_t)text[i];
    return at;
}

static void program_begins(void) {
    binary_add(1, 90, 0x100011, "\n.version 9.0\n.target sm_90a\n.address_size 64\n");
    binary_add(2, 90, 0x11, "machine code");
    binary_add(1, 80, 0x11, "\n.version 9.0\n.target sm_80\n.address_size 64\n");
    void **fat = __cudaRegisterFatBinary(&wrapper);
    for (int i = 0; i < N_FAKES; i++)
        __cudaRegisterFunction(fat, &hosts[i], NULL, names[i], -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(fat);
}

#define ok(call) assert_int_equal(call, cudaSuccess)
#define fails(call, code)                                                                                              \
    do {                                                                                                               \
        assert_int_equal(call, code);                                                                                  \
        assert_int_equal(cudaGetLastError(), code);                                                                    \
    } while (0)

static cudaError_t launch(fake_kind k, dim3 grid, dim3 block, size_t smem, unsigned cluster, cudaStream_t s,
                          void **args) {
    cudaLaunchAttribute attr[2] = { { .id = cudaLaunchAttributeProgrammaticStreamSerialization },
                                    { .id = cudaLaunchAttributeClusterDimension } };
    cudaLaunchConfig_t  c = { .gridDim = grid, .blockDim = block, .dynamicSmemBytes = smem, .stream = s };
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    attr[1].val.clusterDim.x = cluster;
    attr[1].val.clusterDim.y = attr[1].val.clusterDim.z = 1;
    c.attrs = cluster ? attr : NULL;
    c.numAttrs = cluster ? 2 : 0;
    return cudaLaunchKernelExC(&c, &hosts[k], args);
}

static void put(int *to, int value, cudaStream_t s) {
    void *args[] = { &to, &value };
    ok(cudaLaunchKernel(&hosts[FAKE_PUT], (dim3){ 1, 1, 1 }, (dim3){ 32, 1, 1 }, args, 0, s));
    value = -1; /* the launch has its own */
    to = NULL;
}

static int *device_int(void) {
    void *p = NULL;
    ok(cudaMalloc(&p, sizeof(int)));
    return p;
}

static int *pinned_int(int value) {
    void *p = NULL;
    ok(cudaHostAlloc(&p, sizeof(int), cudaHostAllocDefault));
    *(int *)p = value;
    return p;
}

static int read_int(const int *device) {
    int v;
    ok(cudaMemcpy(&v, device, sizeof v, cudaMemcpyDeviceToHost));
    return v;
}

static void logged(int n, const int *expected) {
    assert_int_equal(atomic_load(&n_log), n);
    assert_memory_equal(log_of, expected, (size_t)n * sizeof(int));
}

#define expect_log(...)                                                                                                \
    do {                                                                                                               \
        const int expected_[] = { __VA_ARGS__ };                                                                       \
        logged((int)(sizeof expected_ / sizeof expected_[0]), expected_);                                              \
    } while (0)

/* ---- tests ---- */

static void test_texts(void **state) {
    static const struct {
        int         arch, chosen;
        const char *target;
    } cases[] = { { 90, 90, "sm_90a" }, { 80, 80, "sm_80" }, { 86, 80, "sm_80" }, { 100, 80, "sm_80" } };
    fatbin_text t;
    err         e;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fatbin_find(&t, &wrapper, cases[i].arch, &e), 0);
        assert_int_equal(t.arch, cases[i].chosen);
        assert_non_null(strstr(t.at, cases[i].target));
        assert_int_equal(strlen(t.at), t.bytes);
    }
    assert_int_equal(fatbin_find(&t, &wrapper, 75, &e), ERR_NOTFOUND);
    uint8_t *last = binary_add(1, 70, 0x8011, "packed");
    assert_int_equal(fatbin_find(&t, &wrapper, 75, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.msg, "--no-compress"));
    put_number(last + 8, 1 << 20, 8);
    assert_int_equal(fatbin_find(&t, &wrapper, 90, &e), ERR_FORMAT);
    put_number(last + 8, UINT64_MAX, 8);
    assert_int_equal(fatbin_find(&t, &wrapper, 90, &e), ERR_FORMAT);
    put_number(last + 8, 8, 8);
    put_number(last + 4, 8, 4);
    assert_int_equal(fatbin_find(&t, &wrapper, 90, &e), ERR_FORMAT);
    put_number(binary, 0, 4);
    assert_int_equal(fatbin_find(&t, &wrapper, 90, &e), ERR_FORMAT);
}

static void test_copies_are_late(void **state) {
    cudaStream_t s;
    int         *d = device_int(), *pinned = pinned_int(1), *back = pinned_int(0), pageable = 7;
    (void)state;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    assert_int_equal(*d, -1); /* rubbish */
    ok(cudaMemcpyAsync(d, pinned, sizeof(int), cudaMemcpyHostToDevice, s));
    ok(cudaMemcpyAsync(back, d, sizeof(int), cudaMemcpyDeviceToHost, s));
    *pinned = 2; /* too early */
    assert_int_equal(*back, 0);
    ok(cudaStreamSynchronize(s));
    assert_int_equal(*back, 2);
    ok(cudaMemcpyAsync(d, &pageable, sizeof(int), cudaMemcpyHostToDevice, s));
    pageable = 8;
    ok(cudaStreamSynchronize(s));
    assert_int_equal(read_int(d), 7);
    /* The plain calls have read a pageable source and wait for a pinned one. */
    ok(cudaMemcpy(d, &pageable, sizeof(int), cudaMemcpyHostToDevice));
    pageable = 9;
    assert_int_equal(*d, 7);
    ok(cudaStreamSynchronize(NULL));
    assert_int_equal(*d, 8);
    ok(cudaMemcpy(d, pinned, sizeof(int), cudaMemcpyHostToDevice));
    assert_int_equal(*d, 2);
    ok(cudaMemset(d, 0, sizeof(int)));
    assert_int_equal(*d, 2);
    assert_int_equal(read_int(d), 0);
}

static void test_rows(void **state) {
    const char host[] = "ab..cd..ef..";
    char       back[7] = { 0 };
    void      *d;
    (void)state;
    ok(cudaMalloc(&d, 6));
    ok(cudaMemcpy2D(d, 2, host, 4, 2, 3, cudaMemcpyHostToDevice));
    ok(cudaMemcpy(back, d, 6, cudaMemcpyDeviceToHost));
    assert_string_equal(back, "abcdef");
    fails(cudaMemcpy2D(d, 2, host, 4, 2, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    fails(cudaMemcpy2D(d, 1, host, 4, 2, 3, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
}

static void test_order(void **state) {
    cudaStream_t a, b, blocking;
    int         *d = device_int();
    (void)state;
    ok(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    ok(cudaStreamCreate(&blocking));
    /* Only what was waited for is done, in its order. */
    put(d, 1, NULL);
    put(d, 2, a);
    put(d, 3, b);
    put(d, 4, b);
    ok(cudaStreamSynchronize(b));
    expect_log(3, 4);
    ok(cudaStreamSynchronize(a));
    expect_log(3, 4, 2);
    /* A stream that blocks waits for the default stream, and the other way round. */
    put(d, 5, blocking);
    put(d, 6, NULL);
    put(d, 7, blocking);
    put(d, 8, a);
    ok(cudaStreamSynchronize(blocking));
    expect_log(3, 4, 2, 1, 5, 6, 7);
    /* Freeing waits for all; the newest comes first. */
    put(d, 9, b);
    ok(cudaFree(device_int()));
    expect_log(3, 4, 2, 1, 5, 6, 7, 9, 8);
    /* A stream that is gone still does its work. */
    put(d, 10, a);
    ok(cudaStreamDestroy(a));
    assert_int_equal(cudaStreamSynchronize(a), cudaErrorInvalidResourceHandle);
    ok(cudaFree(d));
    expect_log(3, 4, 2, 1, 5, 6, 7, 9, 8, 10);
}

static void test_events(void **state) {
    cudaStream_t s;
    cudaEvent_t  from, to, plain;
    float        ms = -1;
    int         *d = device_int();
    (void)state;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaEventCreate(&from));
    ok(cudaEventCreateWithFlags(&to, cudaEventBlockingSync));
    ok(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
    ok(cudaEventQuery(from)); /* never recorded */
    ok(cudaEventRecord(from, s));
    put(d, 1, s);
    ok(cudaEventRecord(to, s));
    put(d, 2, s);
    assert_int_equal(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    assert_int_equal(cudaGetLastError(), cudaErrorNotReady); /* remembered, as by some versions, */
    ok(cudaGetLastError());                                  /* once */
    while (cudaEventQuery(to) == cudaErrorNotReady) {
    }
    ok(cudaEventSynchronize(to));
    expect_log(1);
    ok(cudaEventElapsedTime(&ms, from, to));
    assert_true(ms >= 0 && ms < 60000);
    ok(cudaEventRecord(plain, s));
    ok(cudaEventSynchronize(plain));
    expect_log(1, 2);
    fails(cudaEventElapsedTime(&ms, from, plain), cudaErrorInvalidResourceHandle);
    ok(cudaEventDestroy(plain));
    fails(cudaEventRecord(plain, s), cudaErrorInvalidResourceHandle);
    fails(cudaEventDestroy(plain), cudaErrorInvalidResourceHandle);
}

static void test_graphs(void **state) {
    cudaStream_t    s;
    cudaGraph_t     g;
    cudaGraphExec_t x;
    cudaEvent_t     v;
    int            *d = device_int(), *pinned = pinned_int(5), *back = pinned_int(0);
    (void)state;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaEventCreate(&v));
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    put(d, 1, s);
    ok(cudaMemcpyAsync(d, pinned, sizeof(int), cudaMemcpyHostToDevice, s));
    ok(cudaMemcpyAsync(back, d, sizeof(int), cudaMemcpyDeviceToHost, s));
    ok(cudaEventRecord(v, s));
    ok(cudaStreamEndCapture(s, &g));
    fails(cudaEventSynchronize(v), cudaErrorCapturedEvent);
    ok(cudaGraphInstantiate(&x, g, 0));
    ok(cudaGraphDestroy(g));
    fails(cudaGraphInstantiate(&x, g, 0), cudaErrorInvalidValue);
    assert_null(x);
    ok(cudaStreamSynchronize(s));
    assert_int_equal(atomic_load(&n_log), 0); /* nothing ran */

    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    put(d, 2, s);
    ok(cudaMemcpyAsync(d, pinned, sizeof(int), cudaMemcpyHostToDevice, s));
    ok(cudaMemcpyAsync(back, d, sizeof(int), cudaMemcpyDeviceToHost, s));
    ok(cudaStreamEndCapture(s, &g));
    ok(cudaGraphInstantiate(&x, g, 0));
    ok(cudaGraphDestroy(g));
    for (int i = 6; i < 8; i++) {
        ok(cudaGraphLaunch(x, s));
        *pinned = i;
        ok(cudaStreamSynchronize(s));
        assert_int_equal(*back, i);
    }
    put(d, 3, s);
    ok(cudaGraphLaunch(x, s));
    ok(cudaGraphExecDestroy(x));
    fails(cudaGraphLaunch(x, s), cudaErrorInvalidValue);
    ok(cudaStreamSynchronize(s));
    expect_log(2, 2, 3, 2);
}

/* What waits or may wait spoils a recording. */
static void test_spoilt_graph(void **state) {
    cudaStream_t s, blocking;
    cudaGraph_t  g;
    int         *d = device_int();
    (void)state;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaStreamCreate(&blocking));
    fails(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    put(d, 1, s);
    fails(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
    fails(cudaFree(d), cudaErrorStreamCaptureUnsupported);
    fails(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    assert_null(g);
    fails(cudaStreamEndCapture(s, &g), cudaErrorIllegalState);
    ok(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
    void *to = d, *args[] = { &to, &to };
    fails(launch(FAKE_PUT, (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, 0, 0, NULL, args), cudaErrorStreamCaptureImplicit);
    ok(cudaStreamEndCapture(blocking, &g));
    assert_int_equal(read_int(d), -1);
}

static void test_limits(void **state) {
    int        *d = device_int(), zero = 0;
    void       *args[] = { &d, &zero };
    const dim3  one = { 1, 1, 1 }, warp_of = { 32, 1, 1 };
    const void *host = &hosts[FAKE_PUT];
    int         n = -1;
    (void)state;
    fails(launch(FAKE_PUT, (dim3){ 0, 1, 1 }, warp_of, 0, 0, NULL, args), cudaErrorInvalidConfiguration);
    fails(launch(FAKE_PUT, (dim3){ 1, 65536, 1 }, warp_of, 0, 0, NULL, args), cudaErrorInvalidConfiguration);
    fails(launch(FAKE_PUT, one, (dim3){ 0, 1, 1 }, 0, 0, NULL, args), cudaErrorInvalidConfiguration);
    fails(launch(FAKE_PUT, one, (dim3){ 1025, 1, 1 }, 0, 0, NULL, args), cudaErrorInvalidConfiguration);
    fails(launch(FAKE_PUT, one, (dim3){ 1, 1, 65 }, 0, 0, NULL, args), cudaErrorInvalidConfiguration);
    fails(launch(FAKE_PUT, one, (dim3){ 257, 1, 1 }, 0, 0, NULL, args), cudaErrorLaunchOutOfResources);
    /* 1 KiB is static. */
    ok(launch(FAKE_PUT, one, warp_of, 47 << 10, 0, NULL, args));
    fails(launch(FAKE_PUT, one, warp_of, (47 << 10) + 1, 0, NULL, args), cudaErrorInvalidValue);
    ok(cudaFuncSetAttribute(host, cudaFuncAttributeMaxDynamicSharedMemorySize, 226 << 10));
    ok(launch(FAKE_PUT, one, warp_of, 226 << 10, 0, NULL, args));
    fails(launch(FAKE_COPY, one, warp_of, 226 << 10, 0, NULL, args), cudaErrorInvalidValue);
    fails(cudaFuncSetAttribute(host, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10), cudaErrorInvalidValue);
    ok(cudaFuncSetAttribute(host, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    ok(launch(FAKE_PUT, (dim3){ 8, 1, 1 }, warp_of, 0, 4, NULL, args));
    fails(launch(FAKE_PUT, (dim3){ 9, 1, 1 }, warp_of, 0, 4, NULL, args), cudaErrorInvalidClusterSize);
    fails(launch(FAKE_PUT, (dim3){ 16, 1, 1 }, warp_of, 0, 16, NULL, args), cudaErrorInvalidClusterSize);
    fails(cudaLaunchKernel(&n, one, warp_of, args, 0, NULL), cudaErrorInvalidDeviceFunction);
    fails(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 1), cudaErrorInvalidDevice);
    ok(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    assert_int_equal(n, 132);

    struct cudaFuncAttributes f;
    ok(cudaFuncGetAttributes(&f, host));
    assert_int_equal(f.ptxVersion, 90);
    assert_int_equal(f.sharedSizeBytes, 1024);
    assert_int_equal(f.maxThreadsPerBlock, 256);
    assert_non_null(strstr(opened, "sm_90a"));
    cudaLaunchAttribute cluster = { .id = cudaLaunchAttributeClusterDimension, .val.clusterDim = { 8, 1, 1 } };
    cudaLaunchConfig_t  c = { .gridDim = { 128, 1, 1 }, .blockDim = warp_of, .attrs = &cluster, .numAttrs = 1 };
    ok(cudaOccupancyMaxActiveClusters(&n, host, &c));
    assert_int_equal(n, 15);
}

static void test_older_chip(void **state) {
    struct cudaDeviceProp     p;
    struct cudaFuncAttributes f;
    int                      *d = device_int(), n = -1;
    void                     *args[] = { &d, &n };
    (void)state;
    ok(cudaGetDeviceProperties(&p, 0));
    assert_string_equal(p.name, "Software GPU (8.6)");
    assert_int_equal(p.major * 10 + p.minor, 86);
    assert_int_equal(p.sharedMemPerBlockOptin, 99 << 10);
    ok(cudaFuncGetAttributes(&f, &hosts[FAKE_PUT]));
    assert_int_equal(f.ptxVersion, 80);
    assert_non_null(strstr(opened, "sm_80\n"));
    fails(launch(FAKE_PUT, (dim3){ 8, 1, 1 }, (dim3){ 32, 1, 1 }, 0, 4, NULL, args), cudaErrorNotSupported);
    cudaLaunchConfig_t c = { .gridDim = { 128, 1, 1 }, .blockDim = { 32, 1, 1 } };
    ok(cudaOccupancyMaxActiveClusters(&n, &hosts[FAKE_PUT], &c));
    assert_int_equal(n, 0);
}

static void test_memory(void **state) {
    void   *p, *more, *pinned;
    char    host[256] = { 0 };
    size_t  left, total;
    uint8_t first;
    (void)state;
    ok(cudaMalloc(&p, 300));
    assert_int_equal((uintptr_t)p % 512, 256);
    memcpy(&first, p, 1);
    assert_int_equal(first, 0xff);
    assert_int_equal(n_told, 1);
    assert_ptr_equal(told[0].at, p);
    assert_int_equal(told[0].bytes, 300);
    ok(cudaMemGetInfo(&left, &total));
    assert_int_equal(total, 1000);
    assert_int_equal(left, 700);
    fails(cudaMalloc(&more, 701), cudaErrorMemoryAllocation);
    ok(cudaMalloc(&more, 700));
    ok(cudaHostAlloc(&pinned, 5000, cudaHostAllocDefault)); /* of another memory */
    assert_int_equal(n_told, 3);
    ok(cudaFree(more));
    fails(cudaFree(more), cudaErrorInvalidValue);
    fails(cudaFree((char *)p + 1), cudaErrorInvalidValue);
    fails(cudaFree(pinned), cudaErrorInvalidValue);
    ok(cudaFreeHost(pinned));
    assert_int_equal(n_told, 1);
    ok(cudaFree(NULL));
    /* Both ends of a copy. */
    ok(cudaMemcpy((char *)p + 44, host, 256, cudaMemcpyHostToDevice));
    fails(cudaMemcpy((char *)p + 45, host, 256, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    fails(cudaMemcpy(more, host, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    fails(cudaMemcpy(p, host, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    fails(cudaMemcpy(p, host, 1, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    fails(cudaMemset(host, 0, 1), cudaErrorInvalidValue);
    ok(cudaFree(p));
    ok(cudaMemGetInfo(&left, &total));
    assert_int_equal(left, 1000);
}

static void test_errors(void **state) {
    void *p;
    (void)state;
    assert_int_equal(cudaFree((void *)8), cudaErrorInvalidValue);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidValue);
    ok(cudaMalloc(&p, 1)); /* changes nothing */
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    ok(cudaGetLastError());
    assert_string_equal(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered");
}

static void test_lost(void **state) {
    cudaStream_t s, other;
    cudaEvent_t  v;
    int         *d = device_int(), host = 0;
    void        *p, *none[] = { NULL };
    size_t       n;
    (void)state;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    ok(cudaEventCreate(&v));
    ok(cudaLaunchKernel(&hosts[FAKE_FAULT], (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, none, 0, s));
    put(d, 1, s);
    ok(cudaEventRecord(v, s));
    put(d, 2, other);
    assert_int_equal(cudaEventSynchronize(v), cudaErrorIllegalAddress);
    assert_int_equal(atomic_load(&n_log), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaStreamSynchronize(other), cudaErrorIllegalAddress);
    assert_int_equal(cudaEventQuery(v), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&p, 1), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemcpy(&host, d, sizeof host, cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemGetInfo(&n, &n), cudaErrorIllegalAddress);
    assert_int_equal(cudaSetDevice(0), cudaErrorIllegalAddress);
    assert_int_equal(cudaFree(d), cudaErrorIllegalAddress);
    assert_int_equal(cudaStreamDestroy(s), cudaErrorIllegalAddress);
    assert_int_equal(n_told, 0);
}

static void test_none(void **state) {
    int   n = -1;
    void *p;
    (void)state;
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    assert_int_equal(n, 0);
    fails(cudaMalloc(&p, 1), cudaErrorNoDevice);
}

/* A process that has used the driver cannot be copied. */
static void test_copied_process(void **state) {
    int n = 0, status = 1;
    (void)state;
    ok(cudaGetDeviceCount(&n));
    assert_int_equal(n, 1);
    pid_t child = fork();
    if (child == 0) _exit(cudaSetDevice(0) == cudaErrorInitializationError ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ok(cudaSetDevice(0));
}

/* By itself: after a while, or at once. */
static void test_goes_on(void **state) {
    int *d = device_int();
    (void)state;
    put(d, 1, NULL);
    while (atomic_load(&n_log) == 0) usleep(1000);
    expect_log(1);
}

static void *of_thread(void *to) {
    cudaStream_t s;
    int         *d = device_int(), **log = to;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int i = 0; i < 8; i++) {
        put(d, i, s);
        ok(cudaStreamSynchronize(s));
        if (*d != i) return NULL;
    }
    *log = d;
    return to;
}

static void test_threads(void **state) {
    pthread_t t[4];
    int      *seen[4] = { 0 };
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, of_thread, &seen[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 4; i++) assert_non_null(seen[i]);
    assert_int_equal(atomic_load(&n_log), 32);
}

/* ---- one process each ---- */

#define T(name, gpu, pace, bytes)                                                                                      \
    { cmocka_unit_test(name), gpu, pace, bytes }

int main(void) {
    static const struct {
        struct CMUnitTest test;
        const char       *gpu, *pace, *bytes;
    } tests[] = {
        T(test_texts, "90", "late", NULL),        T(test_copies_are_late, "90", "late", NULL),
        T(test_rows, "90", "late", NULL),         T(test_order, "90", "late", NULL),
        T(test_events, "90", "late", NULL),       T(test_graphs, "90", "late", NULL),
        T(test_spoilt_graph, "90", "late", NULL), T(test_limits, "90", "late", NULL),
        T(test_older_chip, "86", "late", NULL),   T(test_memory, "90", "late", "1000"),
        T(test_errors, "90", "late", NULL),       T(test_lost, "90", "late", NULL),
        T(test_none, "none", "late", NULL),       T(test_copied_process, "90", "late", NULL),
        T(test_goes_on, "90", NULL, NULL),        T(test_goes_on, "90", "early", NULL),
        T(test_threads, "90", "late", NULL),
    };
    int failed = 0;
    unsetenv("CUDA_VISIBLE_DEVICES");
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        int   status = 1;
        pid_t child = fork();
        if (child == 0) {
            const struct CMUnitTest one[] = { tests[i].test };
            setenv("HEARTH_GPU", tests[i].gpu, 1);
            if (tests[i].pace) setenv("HEARTH_GPU_PACE", tests[i].pace, 1);
            if (tests[i].bytes) setenv("HEARTH_GPU_BYTES", tests[i].bytes, 1);
            alarm(60);
            program_begins();
            _exit(cmocka_run_group_tests_name(tests[i].test.name, one, NULL, NULL));
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) failed++;
    }
    return failed;
}

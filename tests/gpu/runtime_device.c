/* SPDX-License-Identifier: Apache-2.0 */
/* The device of the runtime: which chip it is, what it answers about itself, errors, the report at the end. */
#include "gpu/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1024)

/* Shared memory: what a block can ask for, and what a multiprocessor has. */
static const gpu_chip chips[] = {
    { "Software GPU (9.0)", 90, 132, 227 * KIB, 228 * KIB, { 16, 25 } },
    { "Software GPU (8.0)", 80, 108, 163 * KIB, 164 * KIB, { 8, 24 } },
    { "Software GPU (8.6)", 86, 84, 99 * KIB, 100 * KIB, { 8, 24 } },
    { "Software GPU (8.9)", 89, 128, 99 * KIB, 100 * KIB, { 8, 24 } },
};

static struct {
    pthread_once_t  once;
    const gpu_chip *chip;
    size_t          bytes, taken;
    int             count;
    bool            copied; /* this process is the copy of one that asked */
} device = { .once = PTHREAD_ONCE_INIT };

static _Thread_local cudaError_t last_error;
static _Thread_local int         current;

/* ---- the report ---- */

typedef struct report_rows {
    const soft_function **rows;
    size_t                n, cap;
} report_rows;

static void report_add(const soft_function *f, void *to) {
    report_rows *r = to;
    if (atomic_load(&f->launches) == 0) return;
    if (r->n == r->cap) {
        size_t                cap = r->cap ? 2 * r->cap : 64;
        const soft_function **rows = realloc(r->rows, cap * sizeof *rows);
        if (!rows) return;
        r->rows = rows, r->cap = cap;
    }
    r->rows[r->n++] = f;
}

static int by_instructions(const void *a, const void *b) {
    const uint64_t x = atomic_load(&(*(const soft_function *const *)a)->instructions);
    const uint64_t y = atomic_load(&(*(const soft_function *const *)b)->instructions);
    return (x < y) - (x > y);
}

/* The names are nvcc's; c++filt makes ours of them. */
static void report(void) {
    report_rows r = { 0 };
    soft_function_each(report_add, &r);
    if (r.n) qsort(r.rows, r.n, sizeof *r.rows, by_instructions);
    fprintf(stderr, "software GPU: %llu instructions\n%10s %14s %9s  kernel\n", (unsigned long long)gpu_instructions(),
            "launches", "instructions", "seconds");
    for (size_t i = 0; i < r.n; i++)
        fprintf(stderr, "%10llu %14llu %9.3f  %s\n", (unsigned long long)atomic_load(&r.rows[i]->launches),
                (unsigned long long)atomic_load(&r.rows[i]->instructions), 1e-9 * (double)atomic_load(&r.rows[i]->ns),
                r.rows[i]->name);
    free(r.rows);
}

/* ---- which ---- */

/* A server hands no variables of tests on to its workers, but this one: CUDA_DEVICE_ORDER=soft:CHIP:BYTES:TAKEN:COUNT. */
static int handed_on(int arch) {
    const char        *order = getenv("CUDA_DEVICE_ORDER");
    int                chip;
    unsigned long long bytes, taken = 0;
    if (!order || sscanf(order, "soft:%d:%llu:%llu:%d", &chip, &bytes, &taken, &device.count) < 2) return arch;
    device.bytes = (size_t)bytes;
    device.taken = (size_t)(taken < bytes ? taken : bytes);
    return chip;
}

static void forked(void) { device.copied = true; }

/* HEARTH_GPU_SMEM: KiB of shared memory that a block can ask for, where chips that are not here have less. Workers are not
 * told. */
static void choose_smem(void) {
    static gpu_chip     own;
    const char         *text = getenv("HEARTH_GPU_SMEM");
    char               *end = NULL;
    const unsigned long kib = text ? strtoul(text, &end, 10) : 0;
    if (!text || !device.chip) return;
    if (*end || kib < 1 || kib > device.chip->smem_block / KIB) {
        fprintf(stderr, "software GPU: HEARTH_GPU_SMEM=%s is not a number from 1 to %zu\n", text,
                device.chip->smem_block / KIB);
        device.chip = NULL;
        return;
    }
    own = *device.chip;
    own.smem_block = kib * KIB;
    own.smem_sm = own.smem_block + KIB;
    device.chip = &own;
}

static void choose(void) {
    const char *which = getenv("HEARTH_GPU"), *bytes = getenv("HEARTH_GPU_BYTES");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *count = getenv("HEARTH_GPU_COUNT");
    const bool  hidden = visible && (!visible[0] || strcmp(visible, "-1") == 0);
    (void)pthread_atfork(NULL, NULL, forked);
    device.bytes = bytes ? (size_t)strtoull(bytes, NULL, 10) : (size_t)8 << 30;
    device.count = count ? atoi(count) : 1;
    const int arch = handed_on(which && which[0] ? atoi(which) : 90);
    for (size_t i = 0; i < sizeof chips / sizeof chips[0] && !hidden; i++) {
        if (chips[i].arch == arch) device.chip = &chips[i];
    }
    if (!device.chip && !hidden && (!which || strcmp(which, "none") != 0))
        fprintf(stderr, "software GPU: HEARTH_GPU=%s is none of 90, 80, 86, 89 and none\n", which ? which : "");
    choose_smem();
    if (device.count < 1 || device.count > SOFT_DEVICES) {
        fprintf(stderr, "software GPU: there are 1 to %d, not %d\n", SOFT_DEVICES, device.count);
        device.count = 1;
    }
    if (getenv("HEARTH_GPU_REPORT")) (void)atexit(report);
}

const gpu_chip *soft_chip(void) {
    (void)pthread_once(&device.once, choose);
    return device.chip;
}

int soft_current(void) { return current; }

size_t soft_bytes(void) { return device.bytes; }

size_t soft_taken(void) { return device.taken; }

/* A driver that was started does not work in a copy of its process. */
cudaError_t soft_there(void) {
    if (!soft_chip()) return cudaErrorNoDevice;
    return device.copied ? cudaErrorInitializationError : cudaSuccess;
}

/* ---- errors ---- */

cudaError_t soft_told(cudaError_t rc) {
    if (rc != cudaSuccess) last_error = rc; /* "not ready", too: versions of the runtime differ there */
    return rc;
}

/* A fault is told forever, anything else once. */
cudaError_t cudaPeekAtLastError(void) {
    soft_lock();
    cudaError_t rc = soft_trouble();
    soft_unlock();
    return rc != cudaSuccess ? rc : last_error;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t rc = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return rc;
}

const char *cudaGetErrorString(cudaError_t rc) {
    static const struct {
        cudaError_t code;
        const char *text;
    } texts[] = {
        { cudaSuccess, "no error" },
        { cudaErrorInvalidValue, "invalid argument" },
        { cudaErrorMemoryAllocation, "out of memory" },
        { cudaErrorInitializationError, "initialization error" },
        { cudaErrorCudartUnloading, "driver shutting down" },
        { cudaErrorInvalidConfiguration, "invalid configuration argument" },
        { cudaErrorInvalidPitchValue, "invalid pitch argument" },
        { cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy" },
        { cudaErrorInvalidDeviceFunction, "invalid device function" },
        { cudaErrorNoDevice, "no CUDA-capable device is detected" },
        { cudaErrorInvalidDevice, "invalid device ordinal" },
        { cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device" },
        { cudaErrorInvalidPtx, "a PTX JIT compilation failed" },
        { cudaErrorInvalidResourceHandle, "invalid resource handle" },
        { cudaErrorNotReady, "device not ready" },
        { cudaErrorIllegalAddress, "an illegal memory access was encountered" },
        { cudaErrorLaunchOutOfResources, "too many resources requested for launch" },
        { cudaErrorLaunchFailure, "unspecified launch failure" },
        { cudaErrorNotSupported, "operation not supported" },
        { cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing" },
        { cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture" },
        { cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream" },
        { cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream" },
        { cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread" },
        { cudaErrorInvalidClusterSize, "cluster misconfiguration" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].code == rc) return texts[i].text;
    }
    return "an error of the software GPU";
}

/* ---- questions ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t rc = count ? soft_there() : cudaErrorInvalidValue;
    if (count) *count = rc == cudaSuccess ? device.count : 0;
    return soft_told(rc);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static cudaError_t numbered(int number) {
    cudaError_t rc = soft_there();
    return rc == cudaSuccess && (number < 0 || number >= device.count) ? cudaErrorInvalidDevice : rc;
}

cudaError_t cudaSetDevice(int number) {
    cudaError_t rc = numbered(number);
    if (rc == cudaSuccess) current = number;
    return soft_told(rc == cudaSuccess ? soft_enter() : rc);
}

cudaError_t cudaGetDevice(int *number) {
    *number = current;
    return soft_told(soft_there());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int number) {
    cudaError_t rc = numbered(number);
    memset(p, 0, sizeof *p);
    if (rc != cudaSuccess) return soft_told(rc);
    const gpu_chip *c = soft_chip();
    snprintf(p->name, sizeof p->name, "%s", c->name);
    p->major = c->arch / 10;
    p->minor = c->arch % 10;
    p->multiProcessorCount = c->sms;
    p->totalGlobalMem = soft_bytes();
    p->sharedMemPerBlock = 48 * KIB;
    p->sharedMemPerBlockOptin = c->smem_block;
    p->sharedMemPerMultiprocessor = c->smem_sm;
    p->reservedSharedMemPerBlock = KIB;
    p->l2CacheSize = 50 << 20;
    p->warpSize = LANES;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT32_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int number) {
    cudaError_t rc = numbered(number);
    if (rc != cudaSuccess) return soft_told(rc);
    const gpu_chip *c = soft_chip();
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = c->arch / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = c->arch % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = c->sms; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)(48 * KIB); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)c->smem_block; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)c->smem_sm; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = LANES; break;
    default:
        fprintf(stderr, "software GPU: nobody asked for attribute %d so far (runtime_device.c)\n", (int)attribute);
        return soft_told(cudaErrorNotSupported);
    }
    return cudaSuccess;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the program. nvcc's code registers them before main() under the addresses of their launching functions;
 * the text of a kernel is read when it is first used.
 */
#include "gpu/fatbin.h"
#include "gpu/runtime.h"

#include <stdio.h>
#include <stdlib.h>

struct soft_fat {
    soft_fat   *next;
    const void *wrapper;
    gpu_module *module;
    int         code;
    bool        tried;
    cudaError_t why; /* why the module is missing */
};

static struct {
    pthread_mutex_t lock;
    soft_fat       *fats;
    soft_function **all;
    size_t          n, cap;
    bool            sorted; /* by address */
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Before main() nobody can be told of an error. */
static void *must(void *p) {
    if (!p) abort();
    return p;
}

void **__cudaRegisterFatBinary(void *wrapper) {
    soft_fat *f = must(calloc(1, sizeof *f));
    f->wrapper = wrapper;
    pthread_mutex_lock(&known.lock);
    f->next = known.fats;
    known.fats = f;
    pthread_mutex_unlock(&known.lock);
    return (void **)f;
}

void __cudaRegisterFatBinaryEnd(void **fat) { (void)fat; }

void __cudaRegisterFunction(void **fat, const char *host, char *device, const char *name, int thread_limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp_size) {
    soft_function *f = must(calloc(1, sizeof *f));
    (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
    f->host = host;
    f->name = name;
    f->fat = (soft_fat *)fat;
    pthread_mutex_lock(&known.lock);
    if (known.n == known.cap) {
        known.cap = known.cap ? 2 * known.cap : 256;
        known.all = must(realloc(known.all, known.cap * sizeof *known.all));
    }
    known.all[known.n++] = f;
    known.sorted = false;
    pthread_mutex_unlock(&known.lock);
}

/* Variables lie in the module; the host has no call that reaches them. */
void __cudaRegisterVar(void **fat, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global) {
    (void)fat, (void)host, (void)device, (void)name, (void)ext, (void)bytes, (void)constant, (void)global;
}

char __cudaInitModule(void **fat) {
    (void)fat;
    return 1;
}

/* At the program's end, where a kernel may still run. */
void __cudaUnregisterFatBinary(void **fat) {
    soft_fat *f = (soft_fat *)fat;
    if (!soft_end()) return;
    pthread_mutex_lock(&known.lock);
    gpu_module_free(f->module);
    f->module = NULL;
    f->tried = true;
    f->why = cudaErrorCudartUnloading;
    pthread_mutex_unlock(&known.lock);
}

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)(*(soft_function *const *)a)->host,
                    y = (uintptr_t)(*(soft_function *const *)b)->host;
    return (x > y) - (x < y);
}

cudaError_t soft_function_find(soft_function **out, const void *host) {
    soft_function wanted = { .host = host }, *key = &wanted, **found = NULL;
    pthread_mutex_lock(&known.lock);
    if (!known.sorted && known.n) qsort(known.all, known.n, sizeof(soft_function *), by_address);
    known.sorted = true;
    if (known.n) found = bsearch(&key, known.all, known.n, sizeof(soft_function *), by_address);
    *out = found ? *found : NULL;
    pthread_mutex_unlock(&known.lock);
    return found ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

/* What the machine cannot read is a fault of the machine or the build: said, where a test would only see a number. */
static cudaError_t cannot(cudaError_t rc, const char *name, const err *e) {
    fprintf(stderr, "software GPU: %s: %s\n", name, e->msg);
    return rc;
}

static cudaError_t open_fat(soft_fat *fat, const char *name) {
    fatbin_text t;
    err         e = { 0 };
    if (fat->tried) return fat->why;
    fat->tried = true;
    int rc = fatbin_find(&t, fat->wrapper, soft_chip()->arch, &e);
    if (rc < 0) return fat->why = cannot(cudaErrorNoKernelImageForDevice, name, &e);
    if (gpu_module_open(&fat->module, t.at, t.bytes, &e) < 0) return fat->why = cannot(cudaErrorInvalidPtx, name, &e);
    fat->code = t.arch;
    return cudaSuccess;
}

cudaError_t soft_function_read(soft_function *f) {
    err         e = { 0 };
    cudaError_t rc = cudaSuccess;
    pthread_mutex_lock(&known.lock);
    if (!f->kernel) rc = open_fat(f->fat, f->name);
    if (!f->kernel && rc == cudaSuccess) {
        if (gpu_module_kernel(&f->kernel, f->fat->module, f->name, &e) < 0)
            rc = cannot(cudaErrorInvalidPtx, f->name, &e);
        else
            gpu_kernel_shape(f->kernel, &f->shape);
        f->code = f->fat->code;
        for (int i = 0; i < SOFT_DEVICES && f->shape.static_smem < 48 * 1024; i++)
            atomic_store(&f->dynamic_max[i], 48 * 1024 - f->shape.static_smem);
    }
    pthread_mutex_unlock(&known.lock);
    return rc;
}

void soft_function_each(void (*visit)(const soft_function *f, void *to), void *to) {
    pthread_mutex_lock(&known.lock);
    for (size_t i = 0; i < known.n; i++) visit(known.all[i], to);
    pthread_mutex_unlock(&known.lock);
}

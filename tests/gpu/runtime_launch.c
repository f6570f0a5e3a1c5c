/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: what a device refuses is refused by the call; parameters are copied by it. */
#include "gpu/runtime.h"

#include <stdio.h>
#include <string.h>

enum { THREADS_MAX = 1024, THREADS_Z_MAX = 64, GRID_YZ_MAX = 65535, CLUSTER_MAX = 8 };

typedef struct launch_wish {
    dim3         grid, block;
    size_t       smem;
    cudaStream_t stream;
    unsigned     cluster;
    bool         early; /* may begin before the one in front has ended */
} launch_wish;

/* ---- <<< >>> ---- */

static _Thread_local launch_wish pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t smem, cudaStream_t stream) {
    pushed = (launch_wish){ .grid = grid, .block = block, .smem = smem, .stream = stream };
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *smem, void *stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *smem = pushed.smem;
    memcpy(stream, &pushed.stream, sizeof pushed.stream);
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host) { return soft_told(soft_function_find(out, host)); }

/* ---- launching ---- */

static cudaError_t check_wish(const soft_function *f, const launch_wish *w) {
    const dim3     g = w->grid, b = w->block;
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (!g.x || !g.y || !g.z || g.x > INT32_MAX || g.y > GRID_YZ_MAX || g.z > GRID_YZ_MAX)
        return cudaErrorInvalidConfiguration;
    if (!threads || b.x > THREADS_MAX || b.y > THREADS_MAX || b.z > THREADS_Z_MAX || threads > THREADS_MAX)
        return cudaErrorInvalidConfiguration;
    if (f->shape.threads_max && threads > (uint64_t)f->shape.threads_max) return cudaErrorLaunchOutOfResources;
    if (w->smem > atomic_load(&f->dynamic_max[soft_current()])) return cudaErrorInvalidValue;
    if (w->cluster <= 1) return cudaSuccess;
    if (soft_chip()->arch < 90 || f->code < 90) return cudaErrorNotSupported;
    return w->cluster > CLUSTER_MAX || g.x % w->cluster ? cudaErrorInvalidClusterSize : cudaSuccess;
}

static cudaError_t launch(soft_function *f, const launch_wish *w, void **args) {
    cudaError_t rc = soft_enter();
    if (rc == cudaSuccess) rc = soft_function_read(f);
    if (rc == cudaSuccess) rc = check_wish(f, w);
    if (rc == cudaSuccess && !soft_is_of(w->stream, soft_current())) rc = cudaErrorInvalidResourceHandle;
    if (rc != cudaSuccess) return rc;
    const gpu_shape *s = &f->shape;
    soft_work       *k = soft_work_new(WORK_KERNEL, s->params_bytes);
    if (!k) return cudaErrorMemoryAllocation;
    memset(k->held, 0, s->params_bytes);
    for (int i = 0; i < s->n_params; i++) memcpy(k->held + s->param_at[i], args[i], s->param_bytes[i]);
    k->kernel.f = f;
    k->kernel.early = w->early;
    k->kernel.l = (gpu_launch){ .kernel = f->kernel,
                                .grid = { w->grid.x, w->grid.y, w->grid.z },
                                .block = { w->block.x, w->block.y, w->block.z },
                                .cluster = w->cluster > 1 ? w->cluster : 1,
                                .smem = w->smem,
                                .params = k->held,
                                .device = soft_current() };
    return soft_queue(w->stream, k);
}

static cudaError_t launch_at(const void *host, const launch_wish *w, void **args) {
    soft_function *f;
    cudaError_t    rc = soft_function_find(&f, host);
    return soft_told(rc == cudaSuccess ? launch(f, w, args) : rc);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t smem,
                               cudaStream_t stream) {
    const launch_wish w = { .grid = grid, .block = block, .smem = smem, .stream = stream };
    return soft_told(kernel ? launch(kernel, &w, args) : cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t smem, cudaStream_t stream) {
    const launch_wish w = { .grid = grid, .block = block, .smem = smem, .stream = stream };
    return launch_at(host, &w, args);
}

static cudaError_t read_config(launch_wish *w, const cudaLaunchConfig_t *c) {
    *w = (launch_wish){ .grid = c->gridDim, .block = c->blockDim, .smem = c->dynamicSmemBytes, .stream = c->stream };
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const cudaLaunchAttributeValue *v = &c->attrs[i].val;
        switch (c->attrs[i].id) {
        case cudaLaunchAttributeClusterDimension:
            if (v->clusterDim.x == 0 || v->clusterDim.y != 1 || v->clusterDim.z != 1)
                return cudaErrorInvalidClusterSize;
            w->cluster = v->clusterDim.x;
            break;
        case cudaLaunchAttributeProgrammaticStreamSerialization:
            if (soft_chip() && soft_chip()->arch < 90) return cudaErrorNotSupported;
            w->early = v->programmaticStreamSerializationAllowed != 0;
            break;
        default:
            fprintf(stderr, "software GPU: nobody launched with attribute %d so far (runtime_launch.c)\n",
                    (int)c->attrs[i].id);
            return cudaErrorNotSupported;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **args) {
    launch_wish w;
    cudaError_t rc = read_config(&w, config);
    return rc == cudaSuccess ? launch_at(host, &w, args) : soft_told(rc);
}

/* ---- attributes ---- */

static cudaError_t ready(soft_function **f, const void *host) {
    cudaError_t rc = soft_enter();
    if (rc == cudaSuccess) rc = soft_function_find(f, host);
    return rc == cudaSuccess ? soft_function_read(*f) : rc;
}

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value) {
    soft_function *f;
    cudaError_t    rc = ready(&f, host);
    if (rc != cudaSuccess) return soft_told(rc);
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || (size_t)value + f->shape.static_smem > soft_chip()->smem_block)
            return soft_told(cudaErrorInvalidValue);
        atomic_store(&f->dynamic_max[soft_current()], (size_t)value);
        return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        return soft_told(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
    default: return soft_told(cudaErrorNotSupported);
    }
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *host) {
    soft_function *f;
    cudaError_t    rc = ready(&f, host);
    if (rc != cudaSuccess) return soft_told(rc);
    memset(out, 0, sizeof *out);
    out->sharedSizeBytes = f->shape.static_smem;
    out->maxThreadsPerBlock = f->shape.threads_max ? f->shape.threads_max : THREADS_MAX;
    out->maxDynamicSharedSizeBytes = (int)atomic_load(&f->dynamic_max[soft_current()]);
    out->ptxVersion = out->binaryVersion = f->code;
    out->numRegs = 65536 / out->maxThreadsPerBlock < 255 ? 65536 / out->maxThreadsPerBlock : 255;
    return cudaSuccess;
}

/* Of blocks that fill a multiprocessor, as an H200 answers: its groups of multiprocessors are not all of one size. */
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *host, const cudaLaunchConfig_t *config) {
    launch_wish    w;
    soft_function *f;
    cudaError_t    rc = ready(&f, host);
    *clusters = 0;
    if (rc == cudaSuccess && f->code < 90) return cudaSuccess;
    if (rc == cudaSuccess) rc = read_config(&w, config);
    if (rc == cudaSuccess) rc = check_wish(f, &w);
    if (rc != cudaSuccess) return soft_told(rc);
    *clusters = w.cluster <= 1 ? soft_chip()->sms : w.cluster <= 2 ? 66 : w.cluster <= 4 ? 30 : 15;
    return cudaSuccess;
}

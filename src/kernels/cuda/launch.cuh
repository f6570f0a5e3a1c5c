/* SPDX-License-Identifier: Apache-2.0 */
/* What the launching sides of kernels share: errors with words, and launches with a cluster and an early start. */
#ifndef KERNELS_CUDA_LAUNCH_CUH
#define KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/device.h"

#include <cuda_runtime.h>
#include <pthread.h>

/* 0, or the error `rc` in words. */
int cuda_error(err *e, cudaError_t rc, const char *what);

typedef struct cuda_shape {
    unsigned blocks, threads, cluster; /* cluster 1: none */
    size_t   smem;
    bool     early; /* may begin before the kernel in front has ended; the kernel waits itself (9.0 and later) */
} cuda_shape;

/* Of the current device; 1 where it does not answer. */
static inline int cuda_attribute(cudaDeviceAttr which) {
    int device = 0, n = 0;
    if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&n, which, device) != cudaSuccess) return 1;
    return n;
}

/* Shared memory that a block can have, static and asked for: 99 KB to 227. */
static inline int cuda_block_smem() { return cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }

/* Whether the current device knows such starts. */
static inline bool cuda_can_start_early() { return cuda_attribute(cudaDevAttrComputeCapabilityMajor) >= 9; }

/* Held from where a kernel's attributes are set until it is started: they belong to the kernel, and another thread with an
 * executor of its own may start it with less memory. */
extern pthread_mutex_t cuda_launch_lock;

template <class... Formal, class... Actual>
static inline int cuda_launch(void (*kernel)(Formal...), const cuda_shape &s, cudaStream_t stream, err *e,
                              Actual... args) {
    cudaLaunchAttribute attr[2];
    cudaLaunchConfig_t  c = {};
    c.gridDim = dim3(s.blocks);
    c.blockDim = dim3(s.threads);
    c.dynamicSmemBytes = s.smem;
    c.stream = stream;
    c.attrs = attr;
    if (s.cluster > 1) {
        attr[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attr[c.numAttrs].val.clusterDim.x = s.cluster;
        attr[c.numAttrs].val.clusterDim.y = attr[c.numAttrs].val.clusterDim.z = 1;
        c.numAttrs++;
    }
    if (s.early && cuda_can_start_early()) {
        attr[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    /* With its static part it may be more than 48 KB, which must be asked for. */
    const bool large = s.smem > 24 * 1024;
    int        rc = 0;
    if (large) pthread_mutex_lock(&cuda_launch_lock);
    if (large)
        rc = cuda_error(e, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)s.smem),
                        "shared memory");
    /* All kernels that need much the same share of a multiprocessor's memory: another one would wait until it is empty. */
    if (rc == 0 && s.smem > 40 * 1024)
        rc = cuda_error(e, cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                cudaSharedmemCarveoutMaxShared),
                        "shared memory");
    if (rc == 0) rc = cuda_error(e, cudaLaunchKernelEx(&c, kernel, Formal(args)...), "starting a kernel");
    if (large) pthread_mutex_unlock(&cuda_launch_lock);
    return rc;
}

#endif

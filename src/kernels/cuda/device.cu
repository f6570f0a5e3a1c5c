/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device.h"

#include "kernels/cuda/launch.cuh"

extern "C" {
#include "base/clock.h"
}

#include <stdio.h>
#include <string.h>

pthread_mutex_t cuda_launch_lock = PTHREAD_MUTEX_INITIALIZER;

/* After these the process can do nothing with the device any more: faults of kernels, hardware that went away. */
static bool is_lost(cudaError_t rc) {
    switch (rc) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

int cuda_error(err *e, cudaError_t rc, const char *what) {
    if (rc == cudaSuccess) return 0;
    const int code = is_lost(rc) ? ERR_LOST : rc == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_IO;
    if (code != ERR_LOST) cudaGetLastError(); /* told once; a later call does not fail for it */
    return err_set(e, code, "CUDA: %s: %s", what, cudaGetErrorString(rc));
}

int cuda_device_count(err *e) {
    int         n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc == cudaSuccess && n > 0) return n;
    int driver = 0; /* 0 where none is installed, which the runtime calls too old */
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    cudaGetLastError(); /* a machine without a device is not an error of a later call */
    err_set(e, ERR_NOTFOUND, "no CUDA device: %s",
            !driver ? "no driver is installed" : rc == cudaSuccess ? "none found" : cudaGetErrorString(rc));
    return 0;
}

static __global__ void large_kernel() {}

/* How many clusters of blocks that fill a multiprocessor fit: its groups of multiprocessors are not multiples of 4
 * or 8. */
static void cuda_device_clusters(cuda_device *d) {
    cudaFuncSetAttribute(large_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)d->smem_bytes);
    for (int i = 1; i < 4 && d->code >= 90; i++) {
        cudaLaunchConfig_t  c = {};
        cudaLaunchAttribute attr = {};
        attr.id = cudaLaunchAttributeClusterDimension;
        attr.val.clusterDim.x = 1u << i;
        attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
        c.gridDim = dim3((unsigned)d->sms / (1u << i) * (1u << i));
        c.blockDim = dim3(512);
        c.dynamicSmemBytes = d->smem_bytes;
        c.attrs = &attr;
        c.numAttrs = 1;
        if (cudaOccupancyMaxActiveClusters(&d->clusters[i], large_kernel, &c) != cudaSuccess) d->clusters[i] = 0;
    }
    cudaGetLastError();
}

int cuda_device_look(cuda_device *d, int number, err *e) {
    cudaDeviceProp p;
    memset(d, 0, sizeof *d);
    int rc = cuda_error(e, cudaGetDeviceProperties(&p, number), "asking for its properties");
    if (rc != 0) return rc;
    snprintf(d->name, sizeof d->name, "%.*s", (int)sizeof d->name - 1, p.name);
    d->number = number;
    d->arch = p.major * 10 + p.minor;
    d->sms = p.multiProcessorCount;
    d->smem_bytes = p.sharedMemPerBlockOptin;
    d->smem_sm_bytes = p.sharedMemPerMultiprocessor;
    d->l2_bytes = (size_t)p.l2CacheSize;
    d->bytes = p.totalGlobalMem;
    if (d->arch < 80)
        return err_set(e, ERR_UNSUPPORTED, "%s has compute capability %d.%d; 8.0 is needed", d->name, p.major, p.minor);
    return 0;
}

int cuda_device_open(cuda_device *d, int number, err *e) {
    int rc = cuda_device_look(d, number, e);
    if (rc == 0) rc = cuda_error(e, cudaSetDevice(number), "using the device");
    if (rc == 0) rc = cuda_error(e, cudaDriverGetVersion(&d->driver), "asking for the driver's version");
    if (rc == 0) rc = cuda_error(e, cudaRuntimeGetVersion(&d->runtime), "asking for the runtime's version");
    if (rc != 0) return rc;
    cudaFuncAttributes f;
    rc = cuda_error(e, cudaFuncGetAttributes(&f, large_kernel), "looking for its kernels");
    if (rc != 0) return rc;
    d->code = f.ptxVersion;
    cuda_device_clusters(d);
    return 0;
}

int cuda_device_use(int number, err *e) { return cuda_error(e, cudaSetDevice(number), "using the device"); }

int cuda_device_memory(int number, size_t *free_bytes, size_t *total_bytes, err *e) {
    int rc = cuda_device_use(number, e);
    return rc ? rc : cuda_error(e, cudaMemGetInfo(free_bytes, total_bytes), "asking for free memory");
}

int cuda_alloc(void **out, size_t bytes, err *e) {
    return cuda_error(e, cudaMalloc(out, bytes ? bytes : 1), "allocating");
}
void cuda_free(void *p) { cudaFree(p); }

/* The runtime's plain calls may come back while the copy from its own buffer is still under way, and our streams do not
 * wait for the default one. */
static int when_done(cudaError_t rc, const char *what, err *e) {
    return cuda_error(e, rc == cudaSuccess ? cudaStreamSynchronize(NULL) : rc, what);
}

int cuda_fill(void *to, int byte, size_t bytes, err *e) { return when_done(cudaMemset(to, byte, bytes), "filling", e); }

int cuda_copy_in(void *to, const void *from, size_t bytes, err *e) {
    return when_done(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device", e);
}

int cuda_copy_out(void *to, const void *from, size_t bytes, err *e) {
    return cuda_error(e, cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the device");
}

int cuda_wait(cuda_stream s, err *e) {
    int rc = cuda_error(e, cudaStreamSynchronize(s), "running");
    return rc ? rc : cuda_error(e, cudaGetLastError(), "starting a kernel");
}

int cuda_host_alloc(void **out, size_t bytes, err *e) {
    return cuda_error(e, cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocDefault), "allocating pinned memory");
}
void cuda_host_free(void *p) { cudaFreeHost(p); }

int cuda_send(void *to, const void *from, size_t bytes, cuda_stream s, err *e) {
    return cuda_error(e, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, s), "copying to the device");
}

int cuda_receive(void *to, const void *from, size_t bytes, cuda_stream s, err *e) {
    return cuda_error(e, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s), "copying from the device");
}

int cuda_copy_within(void *to, const void *from, size_t bytes, cuda_stream s, err *e) {
    return cuda_error(e, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s), "copying on the device");
}

int cuda_copy_rows_in(void *to, const void *from, size_t row_bytes, size_t stride, size_t rows, err *e) {
    if (row_bytes == stride || rows == 1) return cuda_copy_in(to, from, row_bytes * rows, e);
    return when_done(cudaMemcpy2D(to, row_bytes, from, stride, row_bytes, rows, cudaMemcpyHostToDevice),
                     "copying to the device", e);
}

int cuda_stream_open(cuda_stream *out, err *e) {
    return cuda_error(e, cudaStreamCreateWithFlags(out, cudaStreamNonBlocking), "making a stream");
}
void cuda_stream_free(cuda_stream s) {
    if (s) cudaStreamDestroy(s);
}

int cuda_event_open(cuda_event *out, err *e) {
    return cuda_error(e, cudaEventCreateWithFlags(out, cudaEventBlockingSync | cudaEventDisableTiming),
                      "making an event");
}
void cuda_event_free(cuda_event v) {
    if (v) cudaEventDestroy(v);
}
int cuda_event_record(cuda_event v, cuda_stream s, err *e) {
    return cuda_error(e, cudaEventRecord(v, s), "noting an event");
}
/* An event that has not happened is not an error of a later call; runtimes differ in whether they remember it as one. */
static cudaError_t event_asked(cuda_event v) {
    const cudaError_t rc = cudaEventQuery(v);
    if (rc == cudaErrorNotReady) (void)cudaGetLastError();
    return rc;
}

/* Looks for a while before it sleeps: waking up takes tens of microseconds, and steps take a few milliseconds. */
int cuda_event_wait(cuda_event v, err *e) {
    const double until = clock_s() + 0.02;
    cudaError_t  rc;
    while ((rc = event_asked(v)) == cudaErrorNotReady && clock_s() < until) {
    }
    if (rc == cudaErrorNotReady) rc = cudaEventSynchronize(v);
    return cuda_error(e, rc, "running");
}

bool cuda_event_over(cuda_event v) { return event_asked(v) == cudaSuccess; }

int cuda_stream_behind(cuda_stream s, cuda_event v, err *e) {
    return cuda_error(e, cudaStreamWaitEvent(s, v, 0), "ordering streams");
}

int cuda_graph_begin(cuda_stream s, err *e) {
    return cuda_error(e, cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "recording a graph");
}

int cuda_graph_end(cuda_graph *out, cuda_stream s, err *e) {
    cudaGraph_t graph = NULL;
    *out = NULL;
    int rc = cuda_error(e, cudaStreamEndCapture(s, &graph), "recording a graph");
    if (rc == 0) rc = cuda_error(e, cudaGraphInstantiate(out, graph, 0), "making a graph");
    if (graph) cudaGraphDestroy(graph);
    return rc;
}

int cuda_graph_run(cuda_graph g, cuda_stream s, err *e) {
    return cuda_error(e, cudaGraphLaunch(g, s), "starting a graph");
}

void cuda_graph_free(cuda_graph g) {
    if (g) cudaGraphExecDestroy(g);
}

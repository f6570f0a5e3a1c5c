/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands where the CUDA runtime would: the calls that our kernels, the backend and nvcc's own code make, over the
 * machine of machine.h. Kept inside: what the parts of it share.
 *
 *   runtime_device.c    which chip, what it answers about itself, errors, the report at the end
 *   runtime_register.c  kernels by the addresses that the program knows them by
 *   runtime_launch.c    launches, and what a device refuses
 *   runtime_memory.c    memory of the device, pinned memory, copies
 *   runtime_stream.c    streams and the thread of the device
 *   runtime_event.c     events
 *   runtime_graph.c     recording, graphs
 *
 * Everything is as late as a program must be prepared for. Work waits in its stream until somebody waits for it, for an
 * event behind it or for work that is ordered behind it; only what was waited for is done. Kernels of a graph that may
 * begin before those in front have ended do: two kernels earlier, as far as they get without waiting for them. A pinned
 * source is read and a destination written when the copy runs; a pageable source is read by the call. After a tenth of
 * a second without demand everything is done, since a device goes on by itself; HEARTH_GPU_PACE=late: never by itself;
 * early: as soon as it is there.
 *
 * Environment: HEARTH_GPU=90|80|86|89|none, HEARTH_GPU_BYTES=<memory of the device>, HEARTH_GPU_COUNT=<how many>, HEARTH_GPU_PACE=late|early,
 * HEARTH_GPU_REPORT=1 for counts at the end of the program, HEARTH_GPU_RACES=1|2 (races.h). CUDA_VISIBLE_DEVICES hides
 * the device when it is empty or -1.
 *
 * Locks: the registry, memory and the streams have one each; none is held while another is taken, nor while a kernel
 * runs.
 */
#ifndef TESTS_GPU_RUNTIME_H
#define TESTS_GPU_RUNTIME_H

#include "gpu/machine.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- the device (runtime_device.c) ---- */

enum { SOFT_DEVICES = 8 };

/* There may be several, all alike. NULL where there is none. */
const gpu_chip *soft_chip(void);
int             soft_current(void); /* the one that this thread uses */
size_t          soft_bytes(void);   /* the memory of each */
size_t          soft_taken(void);   /* what other programs have of it */
/* Makes rc what cudaGetLastError tells this thread where it is an error; returns it. */
cudaError_t soft_told(cudaError_t rc);
/* The device can be asked: it is there, and this process did not inherit it from another. */
cudaError_t soft_there(void);

/* ---- kernels (runtime_register.c) ---- */

typedef struct soft_fat soft_fat;

typedef struct CUkern_st {
    const void       *host; /* the address that stands for it */
    const char       *name;
    soft_fat         *fat;
    const gpu_kernel *kernel; /* NULL until it was read */
    gpu_shape         shape;
    int               code;                      /* 80: what its text was made for */
    _Atomic size_t    dynamic_max[SOFT_DEVICES]; /* shared memory that a launch may ask for, device by device */
    _Atomic uint64_t  launches, instructions, ns;
} soft_function;

cudaError_t soft_function_find(soft_function **out, const void *host);
cudaError_t soft_function_read(soft_function *f);
void        soft_function_each(void (*visit)(const soft_function *f, void *to), void *to);

/* ---- work (runtime_stream.c) ---- */

typedef enum work_kind { WORK_KERNEL, WORK_COPY, WORK_FILL, WORK_EVENT, WORK_WAIT, WORK_GRAPH } work_kind;

typedef struct soft_copy {
    uint8_t       *to;
    const uint8_t *from; /* NULL: `held` of the work */
    size_t         bytes, rows, to_pitch, from_pitch;
} soft_copy;

typedef struct soft_body soft_body; /* of a graph */

typedef struct soft_work {
    struct soft_work *next;
    uint64_t          number; /* counts all work; a stream's work is in its order */
    work_kind         kind;
    union {
        struct {
            soft_function *f;
            gpu_launch     l;     /* params: `held` */
            bool           early; /* may begin before the one in front has ended */
        } kernel;
        soft_copy copy;
        struct {
            void  *to;
            int    byte;
            size_t bytes;
        } fill;
        struct {
            cudaEvent_t event;
            uint64_t    record; /* which of its records */
        } event;                /* WORK_EVENT, WORK_WAIT */
        soft_body *graph;
    };
    _Alignas(16) uint8_t held[];
} soft_work;

/* With `bytes` of its own; NULL where memory is out. */
soft_work *soft_work_new(work_kind kind, size_t bytes);
/* Everything from w on. */
void soft_work_free(soft_work *w);

struct CUstream_st {
    struct CUstream_st *next;
    int                 device;
    bool                alive, blocking;
    soft_work          *first, *last;
    uint64_t   queued, done, wanted; /* numbers of work: the last there, the last done, how far somebody waits */
    int        passed;               /* how often others came first */
    soft_body *recording;            /* NULL unless it is recorded */
    pthread_t  recorder;
    bool       spoilt; /* something happened that cannot be recorded */
};

/* The device can be used by this call: starts its thread. Else the reason, such as the fault of an earlier kernel. */
cudaError_t soft_enter(void);
/* Puts w at the end of the stream, or of what is recorded of it; takes w, also where it fails. */
cudaError_t soft_queue(cudaStream_t s, soft_work *w);
bool        soft_recorded(cudaStream_t s);
bool        soft_is_of(cudaStream_t s, int device); /* whether it belongs to it; the default stream belongs to all */
/* An error where this thread records a stream: the call waits or may wait. */
cudaError_t soft_not_recording(void);
/* Until all that is in the stream now, or in all streams, is done. */
cudaError_t soft_wait(cudaStream_t s);
cudaError_t soft_wait_all(void);
/* The program ends: no work begins any more. False while a kernel runs. */
bool soft_end(void);

/* The lock of streams, events and graphs; soft_until waits for a change of what it guards. */
void        soft_lock(void);
void        soft_unlock(void);
void        soft_until(void);
void        soft_until_ms(int ms);                        /* or for so long */
cudaError_t soft_put(cudaStream_t s, soft_work *w);       /* soft_queue under the lock; takes w where it succeeds */
void        soft_demand(cudaStream_t s, uint64_t number); /* somebody waits for work number `number` */
cudaError_t soft_trouble(void);                           /* a fault, or the program's end */

/* The stream behind a handle, or NULL. */
cudaStream_t soft_stream_of(cudaStream_t s);

/* ---- events (runtime_event.c) ---- */

/* Record number `record` happened. Under the lock. */
void soft_event_happens(cudaEvent_t v, uint64_t record);
/* Whether it did; if not, which work of which stream it is. Under the lock. */
bool soft_event_happened(cudaEvent_t v, uint64_t record, cudaStream_t *stream, uint64_t *number);

/* ---- graphs (runtime_graph.c) ---- */

void             soft_body_append(soft_body *b, soft_work *w);
const soft_work *soft_body_first(const soft_body *b);
void             soft_body_release(soft_body *b);

/* ---- what nvcc's code calls ---- */

void **__cudaRegisterFatBinary(void *wrapper);
void   __cudaRegisterFatBinaryEnd(void **fat);
void   __cudaUnregisterFatBinary(void **fat);
void __cudaRegisterFunction(void **fat, const char *host, char *device, const char *name, int thread_limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp_size);
void __cudaRegisterVar(void **fat, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global);
char __cudaInitModule(void **fat);
unsigned    __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t smem, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *smem, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t smem,
                               cudaStream_t stream);

#endif

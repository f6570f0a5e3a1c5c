/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA device for C code: what it is, memory on it, copies, a stream. Without a driver or a device cuda_device_count
 * returns 0 and nothing else here is called. Errors come back with the runtime's own words behind ours.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

typedef struct CUstream_st    *cuda_stream; /* the runtime's cudaStream_t; NULL is the default stream */
typedef struct CUevent_st     *cuda_event;
typedef struct CUgraphExec_st *cuda_graph; /* launches that were recorded, to be started as one */

typedef struct cuda_device {
    char   name[128];
    int    number;        /* as the runtime counts */
    int    arch;          /* 90 for compute capability 9.0 */
    int    code;          /* what the kernels that run on it were compiled for: 90, or 80 where only PTX fits */
    int    sms;           /* multiprocessors */
    size_t smem_bytes;    /* shared memory a block can have */
    size_t smem_sm_bytes; /* and a multiprocessor has */
    size_t l2_bytes, bytes;
    int    driver, runtime; /* versions: 13000 is 13.0 */
    int    clusters[4];     /* [i]: clusters of 2^i large blocks that run at once; 0 where there are none */
} cuda_device;

/* How many devices can be used. 0 and the reason in e where there is none. */
int cuda_device_count(err *e);

/* Describes device `number` and makes it this thread's current one. */
int cuda_device_open(cuda_device *d, int number, err *e);

/* Its name and memory, without starting anything on it; refuses one that is too old. */
int cuda_device_look(cuda_device *d, int number, err *e);

/* Makes device `number` this thread's current one. */
int cuda_device_use(int number, err *e);
int cuda_device_memory(int number, size_t *free_bytes, size_t *total_bytes, err *e);

int  cuda_alloc(void **out, size_t bytes, err *e);
void cuda_free(void *p);
int  cuda_fill(void *to, int byte, size_t bytes, err *e);
int  cuda_copy_in(void *to, const void *from, size_t bytes, err *e);  /* waits */
int  cuda_copy_out(void *to, const void *from, size_t bytes, err *e); /* waits */
int  cuda_wait(cuda_stream s, err *e);                                /* and the errors of kernels until now */

/* Memory of the host that copies reach without a detour. */
int  cuda_host_alloc(void **out, size_t bytes, err *e);
void cuda_host_free(void *p);

/* In the order of a stream; the host's side must stay until they are done. */
int cuda_send(void *to, const void *from, size_t bytes, cuda_stream s, err *e);
int cuda_receive(void *to, const void *from, size_t bytes, cuda_stream s, err *e);
int cuda_copy_within(void *to, const void *from, size_t bytes, cuda_stream s, err *e);
/* Rows of the host, `stride` bytes apart, one behind the other on the device; waits. */
int cuda_copy_rows_in(void *to, const void *from, size_t row_bytes, size_t stride, size_t rows, err *e);

int  cuda_stream_open(cuda_stream *out, err *e);
void cuda_stream_free(cuda_stream s);
int  cuda_event_open(cuda_event *out, err *e); /* who waits for it sleeps */
void cuda_event_free(cuda_event v);
int  cuda_event_record(cuda_event v, cuda_stream s, err *e);
int  cuda_event_wait(cuda_event v, err *e);                   /* and the errors of kernels until now */
bool cuda_event_over(cuda_event v);                           /* it has happened; an error says nothing here */
int  cuda_stream_behind(cuda_stream s, cuda_event v, err *e); /* what follows in the stream waits for it */

/* Between the two calls launches in the stream are recorded and nothing runs. */
int  cuda_graph_begin(cuda_stream s, err *e);
int  cuda_graph_end(cuda_graph *out, cuda_stream s, err *e);
int  cuda_graph_run(cuda_graph g, cuda_stream s, err *e);
void cuda_graph_free(cuda_graph g);

#ifdef __cplusplus
}
#endif
#endif

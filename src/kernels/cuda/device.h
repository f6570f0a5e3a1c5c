/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA device for C code: what it is, memory on it, copies, a stream. Without a driver or a device cuda_device_count
 * returns 0 and nothing else here is called. Errors come back with the runtime's own words behind ours.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

typedef struct CUstream_st *cuda_stream; /* the runtime's cudaStream_t; NULL is the default stream */

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

int  cuda_alloc(void **out, size_t bytes, err *e);
void cuda_free(void *p);
int  cuda_fill(void *to, int byte, size_t bytes, err *e);
int  cuda_copy_in(void *to, const void *from, size_t bytes, err *e);  /* waits */
int  cuda_copy_out(void *to, const void *from, size_t bytes, err *e); /* waits */
int  cuda_wait(cuda_stream s, err *e);                                /* and the errors of kernels until now */

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/times.h"

#include "kernels/cuda/launch.cuh"

int cuda_event_open_timed(cuda_event *out, err *e) {
    return cuda_error(e, cudaEventCreateWithFlags(out, cudaEventBlockingSync), "making an event");
}

int cuda_event_between(double *seconds, cuda_event from, cuda_event to, err *e) {
    float ms = 0;
    int   rc = cuda_error(e, cudaEventElapsedTime(&ms, from, to), "asking for a time");
    *seconds = (double)ms * 1e-3;
    return rc;
}

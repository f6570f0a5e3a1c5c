/* SPDX-License-Identifier: Apache-2.0 */
/* Events that keep the time, by the device's clock. */
#ifndef KERNELS_CUDA_TIMES_H
#define KERNELS_CUDA_TIMES_H

#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

int cuda_event_open_timed(cuda_event *out, err *e);
/* Between two of them that have happened. */
int cuda_event_between(double *seconds, cuda_event from, cuda_event to, err *e);

#ifdef __cplusplus
}
#endif
#endif

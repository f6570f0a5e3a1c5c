/* SPDX-License-Identifier: Apache-2.0 */
/* The backends of this build. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/str.h"
#include "nn/backend.h"

extern const nn_backend backend_cpu;     /* kernels over a pool of threads */
extern const nn_backend backend_cuda;    /* CUDA devices, where nvcc was there to build it (HEARTH_CUDA) */
extern const nn_backend backend_divided; /* a model on several devices (backend/divided/divided.h) */
extern const nn_backend backend_scalar;  /* the reference: plain C, double accumulation, one thread, f32 state */

/* All devices of this build's backends, the preferred one first. Returns how many were written. */
int backend_devices(nn_device *out, int cap);

/* The device with this id ("cpu"; NULL, "" and "auto": the preferred one; "auto:cuda:1": that one, unnamed) and the backend that it belongs to; an id of
 * several (backend/parts.h) is one of backend_divided. */
int backend_find(const char *id, const nn_backend **backend, nn_device *device, err *e);

bool backend_is_auto(const char *id); /* nobody named a device */
/* The GPUs that a model may be given then, the preferred one first. Returns how many were written. */
int backend_gpus(const char *id, nn_device *out, int cap);

/* What a process does before a sandbox forbids it (nn_backend.prepare). */
int  backend_prepare(const char *id, err *e);
bool backend_has_driver(const char *id); /* whether that does anything */

/* For benchmarks: measure the time that the threads of a CPU executor spend in kernels, and its sum in the last step.
 */
void   backend_cpu_timed(nn_exec *x, bool on);
double backend_cpu_kernel_seconds(const nn_exec *x, int *n_threads);
double backend_cpu_kind_seconds(const nn_exec *x, nn_op_kind kind);

/*
 * Runs one batch on both, op by op, giving the reference the fast backend's inputs so that differences do not add up.
 * Returns the first op whose result differs beyond its bound, with a sentence in `report`, or -1. The logits of `fast`
 * are complete in either case.
 */
int backend_compare(nn_exec *fast, nn_exec *reference, const nn_batch *b, int *bad_op, str *report, err *e);
/* One op of it, behind begin on both. An op that only stores has nothing to compare: whoever reads the store shows it.
 */
int backend_compare_op(nn_exec *fast, nn_exec *reference, const nn_batch *b, int op, bool *bad, str *report, err *e);
/* The kind of the device that computes an op of the executor's part. */
nn_device_kind backend_kind_at(const nn_exec *x, int op);
/* How far the result of an op, which x has just run, may lie beside the reference's; 0: it has none. */
int backend_bound(nn_exec *x, const nn_batch *b, int op, double *bound, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Events: what is behind the last record of one is known when that record happened, by the clock of this machine. */
#include "base/clock.h"
#include "gpu/runtime.h"

#include <stdlib.h>

struct CUevent_st {
    int          device;
    bool         alive, timed;
    bool         captured;           /* its last record is part of a graph, which nobody can wait for */
    uint64_t     recorded, happened; /* how many records; which of them was last done */
    cudaStream_t stream;             /* of the last record, */
    uint64_t     number;             /* and which work it is */
    int64_t      ns;
    int          asked; /* how often since */
};

void soft_event_happens(cudaEvent_t v, uint64_t record) {
    v->happened = record;
    v->ns = clock_ns();
}

/* A later record stands behind the earlier ones only in their own stream: who waits for one of them is told of the last, which
 * happens later. */
bool soft_event_happened(cudaEvent_t v, uint64_t record, cudaStream_t *stream, uint64_t *number) {
    *stream = v->stream;
    *number = v->number;
    return v->happened >= record;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    cudaError_t    rc = soft_enter();
    *out = NULL;
    if (rc == cudaSuccess && (flags & ~known)) rc = cudaErrorInvalidValue;
    if (rc == cudaSuccess && !(*out = calloc(1, sizeof **out))) rc = cudaErrorMemoryAllocation;
    if (rc != cudaSuccess) return soft_told(rc);
    (*out)->alive = true;
    (*out)->device = soft_current();
    (*out)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }

static cudaError_t usable(cudaEvent_t v) {
    cudaError_t rc = soft_enter();
    return rc == cudaSuccess && (!v || !v->alive) ? cudaErrorInvalidResourceHandle : rc;
}

/* Stays in memory: records may be under way, and a handle that is used again is recognized. */
cudaError_t cudaEventDestroy(cudaEvent_t v) {
    cudaError_t rc = usable(v);
    if (v) v->alive = false;
    return soft_told(rc);
}

/* Recorded in a stream that is captured, an event stands for an order inside the graph, which a chain has anyway. */
cudaError_t cudaEventRecord(cudaEvent_t v, cudaStream_t handle) {
    cudaError_t rc = usable(v);
    if (rc == cudaSuccess && !soft_is_of(handle, v->device)) rc = cudaErrorInvalidResourceHandle;
    soft_work *w = rc == cudaSuccess ? soft_work_new(WORK_EVENT, 0) : NULL;
    if (rc == cudaSuccess && !w) rc = cudaErrorMemoryAllocation;
    if (rc != cudaSuccess) return soft_told(rc);
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    if (s && s->recording) {
        v->captured = true;
        free(w);
    } else {
        w->event.event = v;
        w->event.record = v->recorded + 1;
        rc = soft_put(handle, w);
        if (rc == cudaSuccess) {
            v->captured = false;
            v->asked = 0;
            v->recorded++;
            v->stream = s;
            v->number = w->number;
        } else {
            free(w);
        }
    }
    soft_unlock();
    return soft_told(rc);
}

/* The last record up to now; without one there is nothing to wait for. */
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t v, unsigned flags) {
    cudaError_t rc = usable(v);
    if (rc == cudaSuccess && flags) rc = cudaErrorInvalidValue;
    if (rc == cudaSuccess && v->captured) rc = cudaErrorCapturedEvent;
    soft_work *w = rc == cudaSuccess ? soft_work_new(WORK_WAIT, 0) : NULL;
    if (rc == cudaSuccess && !w) rc = cudaErrorMemoryAllocation;
    if (rc != cudaSuccess) return soft_told(rc);
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    w->event.event = v;
    w->event.record = v->recorded;
    if (s && s->recording)
        rc = cudaErrorStreamCaptureIsolation; /* of something outside of the graph */
    else if (v->recorded && s)
        rc = soft_put(handle, w);
    else if (!s)
        rc = cudaErrorInvalidResourceHandle;
    if (rc != cudaSuccess || !v->recorded) free(w);
    soft_unlock();
    return soft_told(rc);
}

/* Programs ask again and again; here the answer takes a moment, which the device uses. */
cudaError_t cudaEventQuery(cudaEvent_t v) {
    cudaError_t rc = usable(v);
    if (rc == cudaSuccess) rc = soft_not_recording();
    if (rc == cudaSuccess && v->captured) rc = cudaErrorCapturedEvent;
    if (rc != cudaSuccess) return soft_told(rc);
    soft_lock();
    if (v->happened < v->recorded && ++v->asked > 1) { /* who asks once does not wait for it */
        soft_demand(v->stream, v->number);
        soft_until_ms(1);
    }
    if (v->happened < v->recorded) rc = cudaErrorNotReady;
    if (soft_trouble() != cudaSuccess) rc = soft_trouble();
    soft_unlock();
    return soft_told(rc);
}

cudaError_t cudaEventSynchronize(cudaEvent_t v) {
    cudaError_t rc = usable(v);
    if (rc == cudaSuccess) rc = soft_not_recording();
    if (rc == cudaSuccess && v->captured) rc = cudaErrorCapturedEvent;
    if (rc != cudaSuccess) return soft_told(rc);
    soft_lock();
    const uint64_t record = v->recorded;
    if (record) soft_demand(v->stream, v->number);
    while (soft_trouble() == cudaSuccess && v->happened < record) soft_until();
    rc = soft_trouble();
    soft_unlock();
    return soft_told(rc);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    cudaError_t rc = usable(from);
    if (rc == cudaSuccess) rc = usable(to);
    if (rc != cudaSuccess) return soft_told(rc);
    soft_lock();
    if (!from->timed || !to->timed || !from->recorded || !to->recorded)
        rc = cudaErrorInvalidResourceHandle;
    else if (from->happened < from->recorded || to->happened < to->recorded)
        rc = cudaErrorNotReady;
    else
        *ms = (float)(1e-6 * (double)(to->ns - from->ns));
    soft_unlock();
    return soft_told(rc);
}

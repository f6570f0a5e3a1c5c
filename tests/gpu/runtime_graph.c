/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording of streams, and graphs. What is launched in a stream while it is recorded becomes a chain of work, which
 * a graph, what is made of it and starts under way share. Parameters are those of the launch; memory is read and
 * written when the graph runs.
 */
#include "gpu/runtime.h"

#include <stdlib.h>

struct soft_body {
    atomic_int refs;
    soft_work *first, *last;
};

struct CUgraph_st {
    soft_body *body; /* NULL: destroyed; the handle stays in memory to be recognized */
};

struct CUgraphExec_st {
    soft_body *body;
};

void soft_body_append(soft_body *b, soft_work *w) {
    if (b->last)
        b->last->next = w;
    else
        b->first = w;
    b->last = w;
}

const soft_work *soft_body_first(const soft_body *b) { return b->first; }

static soft_body *retained(soft_body *b) {
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void soft_body_release(soft_body *b) {
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1) return;
    soft_work_free(b->first);
    free(b);
}

/* Calls of other threads do not concern the recording, as in the mode of our callers. */
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    cudaError_t rc = mode == cudaStreamCaptureModeThreadLocal ? soft_enter() : cudaErrorNotSupported;
    soft_body  *b = rc == cudaSuccess ? calloc(1, sizeof *b) : NULL;
    if (rc == cudaSuccess && !b) rc = cudaErrorMemoryAllocation;
    if (rc != cudaSuccess) return soft_told(rc);
    atomic_init(&b->refs, 1);
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    if (!s)
        rc = cudaErrorInvalidResourceHandle;
    else if (s == soft_stream_of(NULL))
        rc = cudaErrorStreamCaptureUnsupported;
    else if (s->recording)
        rc = cudaErrorIllegalState;
    if (rc == cudaSuccess) {
        s->recording = b;
        s->recorder = pthread_self();
        s->spoilt = false;
    }
    soft_unlock();
    if (rc != cudaSuccess) soft_body_release(b);
    return soft_told(rc);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
    cudaError_t rc = soft_enter();
    soft_body  *b = NULL;
    *out = NULL;
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    if (!s) {
        rc = cudaErrorInvalidResourceHandle;
    } else if (!s->recording) {
        rc = cudaErrorIllegalState;
    } else if (!pthread_equal(s->recorder, pthread_self())) {
        rc = cudaErrorStreamCaptureWrongThread;
    } else {
        b = s->recording;
        if (rc == cudaSuccess && s->spoilt) rc = cudaErrorStreamCaptureInvalidated;
        s->recording = NULL;
        s->spoilt = false;
    }
    soft_unlock();
    cudaGraph_t g = rc == cudaSuccess ? calloc(1, sizeof *g) : NULL;
    if (rc == cudaSuccess && !g) rc = cudaErrorMemoryAllocation;
    if (g)
        g->body = b;
    else
        soft_body_release(b);
    *out = g;
    return soft_told(rc);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
    cudaError_t rc = soft_enter();
    *out = NULL;
    if (rc == cudaSuccess && (!g || !g->body || flags != 0)) rc = cudaErrorInvalidValue;
    cudaGraphExec_t x = rc == cudaSuccess ? calloc(1, sizeof *x) : NULL;
    if (rc == cudaSuccess && !x) rc = cudaErrorMemoryAllocation;
    if (x) x->body = retained(g->body);
    *out = x;
    return soft_told(rc);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
    cudaError_t rc = soft_enter();
    if (rc == cudaSuccess && (!x || !x->body)) rc = cudaErrorInvalidValue;
    if (rc == cudaSuccess && soft_recorded(s)) rc = cudaErrorNotSupported; /* a graph in a graph */
    soft_work *w = rc == cudaSuccess ? soft_work_new(WORK_GRAPH, 0) : NULL;
    if (rc == cudaSuccess && !w) rc = cudaErrorMemoryAllocation;
    if (rc != cudaSuccess) return soft_told(rc);
    w->graph = retained(x->body);
    return soft_told(soft_queue(s, w));
}

static cudaError_t destroy(soft_body **at) {
    cudaError_t rc = soft_enter();
    if (!*at) return cudaErrorInvalidValue;
    soft_body_release(*at);
    *at = NULL;
    return rc;
}

/* Starts under way keep what they need. */
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return soft_told(g ? destroy(&g->body) : cudaErrorInvalidValue); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { return soft_told(x ? destroy(&x->body) : cudaErrorInvalidValue); }

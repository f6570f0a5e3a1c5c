/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, and the one thread of the device that does their work.
 *
 * All work is counted. A stream does its work in order; work of the default stream waits for what blocking streams
 * had before it, and the other way round; streams that do not block are ordered against nothing. Of several streams
 * that could go on, the one whose work came last does, which is what a program without the right waits does not
 * expect; one that was passed over too often comes first.
 */
#include "base/clock.h"
#include "gpu/runtime.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PASSED_MAX = 16, IDLE_MS = 100 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  wanted, changed;
    bool            started, early, late, busy, ending;
    cudaError_t     lost; /* the fault of a kernel */
    uint64_t        count;
    cudaStream_t    streams; /* with the default stream */
} q = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct CUstream_st null_stream = { .alive = true, .blocking = true };

void soft_lock(void) { pthread_mutex_lock(&q.lock); }
void soft_unlock(void) { pthread_mutex_unlock(&q.lock); }
void soft_until(void) { pthread_cond_wait(&q.changed, &q.lock); }

void soft_until_ms(int ms) {
    const struct timespec until = clock_after(ms);
    pthread_cond_timedwait(&q.changed, &q.lock, &until);
}

cudaError_t soft_trouble(void) {
    if (q.lost != cudaSuccess) return q.lost;
    return q.ending ? cudaErrorCudartUnloading : cudaSuccess;
}

/* ---- work ---- */

soft_work *soft_work_new(work_kind kind, size_t bytes) {
    soft_work *w = aligned_alloc(16, (sizeof *w + bytes + 15) / 16 * 16);
    if (!w) return NULL;
    memset(w, 0, sizeof *w);
    w->kind = kind;
    return w;
}

static void free_one(soft_work *w) {
    if (w->kind == WORK_GRAPH) soft_body_release(w->graph);
    free(w);
}

void soft_work_free(soft_work *w) {
    while (w) {
        soft_work *next = w->next;
        free_one(w);
        w = next;
    }
}

static void copy_rows(const soft_copy *c, const uint8_t *from) {
    for (size_t i = 0; i < c->rows; i++) memmove(c->to + i * c->to_pitch, from + i * c->from_pitch, c->bytes);
}

/* `begun`: what has begun of it, or NULL. */
static int run_kernel(soft_function *f, const gpu_launch *l, gpu_started *begun, err *e) {
    const uint64_t before = gpu_instructions();
    const int64_t  began = clock_ns();
    int            rc = begun ? gpu_finish(begun, e) : gpu_run(soft_chip(), l, e);
    atomic_fetch_add(&f->launches, 1);
    atomic_fetch_add(&f->instructions, gpu_instructions() - before);
    atomic_fetch_add(&f->ns, (uint64_t)(clock_ns() - began));
    return rc;
}

static int run_graph(const soft_work *first, err *e);

/* Without the lock. Events are noted where the lock is held. */
static int run_work(const soft_work *w, err *e) {
    int rc = 0;
    switch (w->kind) {
    case WORK_KERNEL: rc = run_kernel(w->kernel.f, &w->kernel.l, NULL, e); break;
    case WORK_COPY: copy_rows(&w->copy, w->copy.from ? w->copy.from : w->held); break;
    case WORK_FILL: memset(w->fill.to, w->fill.byte, w->fill.bytes); break;
    case WORK_GRAPH: rc = run_graph(soft_body_first(w->graph), e); break;
    case WORK_EVENT:
    case WORK_WAIT: break;
    }
    return rc;
}

static bool is_early(const soft_work *w) { return w && w->kind == WORK_KERNEL && w->kernel.early; }

/*
 * A device may begin such a kernel when the one in front of it has said so, which that may do before it waits itself for
 * the one before: then two of them have begun when a kernel runs.
 */
static int run_graph(const soft_work *first, err *e) {
    gpu_started *begun[2] = { NULL, NULL }; /* of the next, and of the one behind it */
    int          rc = 0;
    for (const soft_work *w = first; w && rc == 0; w = w->next) {
        const soft_work *next = w->next, *behind = next ? next->next : NULL;
        gpu_started     *own = begun[0];
        begun[0] = begun[1];
        begun[1] = NULL;
        if (w->kind == WORK_KERNEL && is_early(next)) {
            if (!own) rc = gpu_start(&own, soft_chip(), &w->kernel.l, false, e); /* which does not run it */
            if (rc == 0 && !begun[0]) rc = gpu_start(&begun[0], soft_chip(), &next->kernel.l, true, e);
            if (rc == 0 && is_early(behind) && gpu_lets_begin(begun[0]))
                rc = gpu_start(&begun[1], soft_chip(), &behind->kernel.l, true, e);
        }
        if (rc != 0)
            gpu_abandon(own);
        else
            rc = own ? run_kernel(w->kernel.f, &w->kernel.l, own, e) : run_work(w, e);
    }
    gpu_abandon(begun[0]);
    gpu_abandon(begun[1]);
    return rc;
}

/* ---- the device's thread ---- */

static bool raise_to(cudaStream_t s, uint64_t number) {
    if (s->wanted >= number) return false;
    s->wanted = number;
    return true;
}

/* What must be done before the first work of s: then somebody waits for that, too. */
static bool held_up(cudaStream_t s, bool *raised) {
    const uint64_t n = s->first->number;
    cudaStream_t   of;
    uint64_t       number;
    bool           held = false;
    if (s->first->kind == WORK_WAIT &&
        !soft_event_happened(s->first->event.event, s->first->event.record, &of, &number)) {
        held = true;
        if (raise_to(of, number)) *raised = true;
    }
    for (cudaStream_t t = q.streams; t && s->blocking; t = t->next) {
        if (t == s || !t->blocking || !t->first || t->first->number > n) continue;
        if (t != &null_stream && s != &null_stream) continue;
        held = true;
        if (raise_to(t, n - 1)) *raised = true;
    }
    return held;
}

static cudaStream_t next_stream(void) {
    cudaStream_t best;
    bool         raised;
    do {
        best = NULL;
        raised = false;
        for (cudaStream_t s = q.streams; s; s = s->next) {
            if (!s->first || s->first->number > s->wanted || held_up(s, &raised)) continue;
            if (!best ||
                (s->passed > PASSED_MAX ? s->passed > best->passed
                                        : best->passed <= PASSED_MAX && s->first->number > best->first->number))
                best = s;
        }
    } while (raised);
    for (cudaStream_t s = q.streams; s && best; s = s->next)
        s->passed = s == best || !s->first || s->first->number > s->wanted ? 0 : s->passed + 1;
    return best;
}

/* Nothing that was queued will be done. */
static void lose(cudaError_t why, const err *e) {
    q.lost = why;
    fprintf(stderr, "software GPU: %s\n", e->msg);
    for (cudaStream_t s = q.streams; s; s = s->next) {
        soft_work_free(s->first);
        s->first = s->last = NULL;
        s->done = s->queued;
    }
}

static void do_first(cudaStream_t s) {
    soft_work *w = s->first;
    err        e = { 0 };
    q.busy = true;
    soft_unlock();
    int rc = run_work(w, &e);
    soft_lock();
    q.busy = false;
    if (w->kind == WORK_EVENT) soft_event_happens(w->event.event, w->event.record);
    s->first = w->next;
    if (!s->first) s->last = NULL;
    s->done = w->number;
    free_one(w);
    if (rc < 0) lose(rc == ERR_LOST ? cudaErrorIllegalAddress : cudaErrorLaunchFailure, &e);
    pthread_cond_broadcast(&q.changed);
}

static void forget_destroyed(void) {
    for (cudaStream_t *at = &q.streams; *at;) {
        if ((*at)->alive || (*at)->first)
            at = &(*at)->next;
        else
            *at = (*at)->next; /* stays in memory: a handle that is used again is recognized */
    }
}

/* Until there is demand; where there is none for long, all that is there counts as wanted. */
static void wait_for_demand(void) {
    const struct timespec until = clock_after(IDLE_MS);
    const uint64_t        before = q.count;
    bool                  waiting = false;
    for (cudaStream_t s = q.streams; s; s = s->next) waiting = waiting || s->first;
    if (q.late || !waiting) {
        pthread_cond_wait(&q.wanted, &q.lock);
    } else if (pthread_cond_timedwait(&q.wanted, &q.lock, &until) != 0 && before == q.count) {
        for (cudaStream_t s = q.streams; s; s = s->next) s->wanted = q.count;
    }
}

static void *device_thread(void *unused) {
    (void)unused;
    soft_lock();
    while (!q.ending) {
        cudaStream_t s = next_stream();
        if (s) {
            do_first(s);
            forget_destroyed();
        } else {
            wait_for_demand();
        }
    }
    soft_unlock();
    return NULL;
}

/* The program's signals are not for this thread; its own faults are. */
static int start_thread(void) {
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGABRT };
    const char      *pace = getenv("HEARTH_GPU_PACE");
    sigset_t         all, before;
    pthread_t        thread;
    q.early = pace && strcmp(pace, "early") == 0;
    q.late = pace && strcmp(pace, "late") == 0;
    q.streams = &null_stream;
    clock_cond_init(&q.wanted);
    clock_cond_init(&q.changed);
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, device_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) pthread_detach(thread);
    return rc;
}

cudaError_t soft_enter(void) {
    cudaError_t rc = soft_there();
    if (rc != cudaSuccess) return rc;
    soft_lock();
    if (!q.started) q.started = start_thread() == 0;
    rc = q.started ? soft_trouble() : cudaErrorInitializationError;
    soft_unlock();
    return rc;
}

bool soft_end(void) {
    soft_lock();
    q.ending = true;
    if (q.started) {
        pthread_cond_broadcast(&q.wanted);
        pthread_cond_broadcast(&q.changed);
    }
    bool idle = !q.busy;
    soft_unlock();
    return idle;
}

/* ---- queueing and waiting ---- */

cudaStream_t soft_stream_of(cudaStream_t s) {
    if (s == NULL || s == cudaStreamLegacy) return &null_stream;
    return s != cudaStreamPerThread && s->alive ? s : NULL;
}

void soft_demand(cudaStream_t s, uint64_t number) {
    if (raise_to(s, number)) pthread_cond_signal(&q.wanted);
}

/* While a blocking stream is recorded, work in the default stream would have to wait for it. */
static bool default_is_held(void) {
    bool held = false;
    for (cudaStream_t t = q.streams; t; t = t->next) held = held || (t->recording && t->blocking);
    return held;
}

cudaError_t soft_put(cudaStream_t handle, soft_work *w) {
    cudaStream_t s = soft_stream_of(handle);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (soft_trouble() != cudaSuccess) return soft_trouble();
    if (s->spoilt) return cudaErrorStreamCaptureInvalidated;
    if (s == &null_stream && default_is_held()) return cudaErrorStreamCaptureImplicit;
    if (s->recording) {
        soft_body_append(s->recording, w);
        return cudaSuccess;
    }
    w->number = s->queued = ++q.count;
    if (s->last)
        s->last->next = w;
    else
        s->first = w;
    s->last = w;
    if (q.early) s->wanted = s->queued;
    pthread_cond_signal(&q.wanted);
    return cudaSuccess;
}

cudaError_t soft_queue(cudaStream_t s, soft_work *w) {
    soft_lock();
    cudaError_t rc = soft_put(s, w);
    soft_unlock();
    if (rc != cudaSuccess) soft_work_free(w);
    return rc;
}

static cudaError_t wait_for(cudaStream_t s) {
    const uint64_t number = s->queued;
    soft_demand(s, number);
    while (soft_trouble() == cudaSuccess && s->done < number) soft_until();
    return soft_trouble();
}

cudaError_t soft_wait(cudaStream_t handle) {
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    cudaError_t  rc = s ? wait_for(s) : cudaErrorInvalidResourceHandle;
    soft_unlock();
    return rc;
}

cudaError_t soft_wait_all(void) {
    cudaError_t rc = cudaSuccess;
    soft_lock();
    const uint64_t upto = q.count;
    bool           under_way = true;
    while (under_way && (rc = soft_trouble()) == cudaSuccess) {
        under_way = false;
        for (cudaStream_t s = q.streams; s; s = s->next) {
            if (!s->first || s->first->number > upto) continue;
            soft_demand(s, s->queued < upto ? s->queued : upto);
            under_way = true;
        }
        if (under_way) soft_until();
    }
    soft_unlock();
    return rc;
}

bool soft_is_of(cudaStream_t handle, int device) {
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    bool         is = !s || s == &null_stream || s->device == device; /* what is no stream is told elsewhere */
    soft_unlock();
    return is;
}

bool soft_recorded(cudaStream_t handle) {
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    bool         is = s && s->recording;
    soft_unlock();
    return is;
}

cudaError_t soft_not_recording(void) {
    cudaError_t rc = cudaSuccess;
    soft_lock();
    for (cudaStream_t s = q.streams; s; s = s->next) {
        if (!s->recording || !pthread_equal(s->recorder, pthread_self())) continue;
        s->spoilt = true;
        rc = cudaErrorStreamCaptureUnsupported;
    }
    soft_unlock();
    return rc;
}

/* ---- calls ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    cudaError_t rc = soft_enter();
    *out = NULL;
    if (rc == cudaSuccess && (flags & ~(unsigned)cudaStreamNonBlocking)) rc = cudaErrorInvalidValue;
    cudaStream_t s = rc == cudaSuccess ? calloc(1, sizeof *s) : NULL;
    if (rc == cudaSuccess && !s) rc = cudaErrorMemoryAllocation;
    if (rc != cudaSuccess) return soft_told(rc);
    s->alive = true;
    s->device = soft_current();
    s->blocking = !(flags & cudaStreamNonBlocking);
    soft_lock();
    s->next = null_stream.next;
    null_stream.next = s;
    soft_unlock();
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithFlags(out, cudaStreamDefault); }

/* Its work is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    cudaError_t rc = soft_enter();
    soft_lock();
    cudaStream_t s = soft_stream_of(handle);
    if (!s || s == &null_stream) {
        rc = cudaErrorInvalidResourceHandle;
    } else {
        s->alive = false;
        soft_body_release(s->recording);
        s->recording = NULL;
        soft_demand(s, s->queued);
        forget_destroyed();
    }
    soft_unlock();
    return soft_told(rc);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    cudaError_t rc = soft_enter();
    if (rc == cudaSuccess) rc = soft_not_recording();
    return soft_told(rc == cudaSuccess ? soft_wait(s) : rc);
}

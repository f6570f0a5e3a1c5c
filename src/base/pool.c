/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The waiting discipline: spin for SPINS rounds of the pause instruction, yield the core YIELDS times, then sleep on a
 * condition variable. Sequence numbers instead of flags make every wait a comparison with one atomic, so that no
 * reset between rounds is needed. `sleepers` lets the waker skip the lock when nobody sleeps. The sequence number of
 * `start` carries the number of workers in its low 16 bits: who is not among them goes back to waiting.
 *
 * Advice: worker 0 has W of the S nanoseconds of the last runs to wait (short waits, which tiny steps are full of, are
 * not counted: they say nothing about the cores). Half as many workers would need 2 (S - W), so when W passes S / 2 the
 * number is halved. It is doubled again to try after a while, BACKOFF_MIN first, twice as long after each trial that
 * fails.
 */
#include "base/pool.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPINS = 4000, SHORT_SPINS = 300, YIELDS = 16, MAX_THREADS = 512 };
enum {
    LONG_WAIT = 30000,
    WINDOW_MIN = 2000000,
    WINDOW_MAX = 50000000,
    BACKOFF_MIN = 10000000,
    BACKOFF_MAX = 1000000000
}; /* ns */

/* A counter that threads wait on until it differs from what they saw. */
typedef struct gate {
    _Alignas(64) atomic_uint_fast64_t seq;
    atomic_int      sleepers;
    pthread_mutex_t lock; /* guards only the going to sleep on `moved` */
    pthread_cond_t  moved;
} gate;

typedef struct worker {
    pool     *p;
    int       index;
    pthread_t thread;
} worker;

struct pool {
    gate start, arrive, barrier;
    _Alignas(64) atomic_int running;
    _Alignas(64) atomic_int at_barrier;
    int n_threads, n_started;
    int n_active; /* workers of the run under way */

    /* Advice; worker 0 only. */
    int     advice;
    int64_t waited, window_waited, window; /* of this run, of the window; ns */
    int64_t try_at, backoff;

    bool    stop;
    pool_fn fn;
    void   *ctx;
    worker *workers;
};

static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_init(gate *g) {
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->moved, NULL);
}

static void gate_deinit(gate *g) {
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
}

static void gate_wake(gate *g) {
    if (atomic_load(&g->sleepers) > 0) {
        pthread_mutex_lock(&g->lock);
        pthread_cond_broadcast(&g->moved);
        pthread_mutex_unlock(&g->lock);
    }
}

static void gate_open(gate *g) {
    atomic_fetch_add(&g->seq, 1);
    gate_wake(g);
}

static bool gate_spin(gate *g, uint64_t seen, int spins) {
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->seq, memory_order_acquire) != seen) return true;
        cpu_relax();
    }
    return false;
}

static void gate_wait(gate *g, uint64_t seen) {
    if (gate_spin(g, seen, SPINS)) return;
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&g->seq, memory_order_acquire) != seen) return;
        sched_yield();
    }
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->seq) == seen) pthread_cond_wait(&g->moved, &g->lock);
    atomic_fetch_sub(&g->sleepers, 1);
    pthread_mutex_unlock(&g->lock);
}

/* Worker 0's wait: long ones are measured. */
static void gate_wait_first(pool *p, gate *g, uint64_t seen) {
    if (gate_spin(g, seen, SHORT_SPINS)) return;
    int64_t begin = clock_ns();
    gate_wait(g, seen);
    int64_t took = clock_ns() - begin;
    if (took >= LONG_WAIT) p->waited += took;
}

static void *worker_main(void *arg) {
    worker  *w = arg;
    pool    *p = w->p;
    uint64_t seen = 0;
    for (;;) {
        gate_wait(&p->start, seen);
        seen = atomic_load(&p->start.seq);
        int n = (int)(seen & 0xffff);
        if (w->index >= n) continue;
        if (p->stop) return NULL;
        p->fn(p->ctx, w->index, n);
        if (atomic_fetch_sub(&p->running, 1) == 1) gate_open(&p->arrive);
    }
}

/* The n-th core of those this process may run on; -1 when unknown. */
static int nth_allowed_core(int n) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return -1;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET(c, &set) && n-- == 0) return c;
    }
    return -1;
}

static void pin_thread(pthread_t t, int index) {
    int core = nth_allowed_core(index);
    if (core < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    (void)pthread_setaffinity_np(t, sizeof one, &one);
}

static void start(pool *p, int n) {
    uint64_t seq = atomic_load(&p->start.seq);
    atomic_store(&p->start.seq, ((seq >> 16) + 1) << 16 | (unsigned)n);
    gate_wake(&p->start);
}

int pool_open(pool **out, int n_threads, bool pin, err *e) {
    *out = NULL;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return err_set(e, ERR_ARG, "thread count %d: expected 1 to %d", n_threads, MAX_THREADS);
    pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) return err_set_nomem(e);
    *p = (pool){ .n_threads = n_threads, .advice = n_threads, .backoff = BACKOFF_MIN };
    gate_init(&p->start);
    gate_init(&p->arrive);
    gate_init(&p->barrier);
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        pool_free(p);
        return err_set_nomem(e);
    }
    for (int i = 1; i < n_threads; i++) {
        worker *w = &p->workers[i];
        *w = (worker){ .p = p, .index = i };
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            int rc = err_set(e, ERR_NOMEM, "cannot start thread %d of %d", i + 1, n_threads);
            pool_free(p);
            return rc;
        }
        p->n_started++;
        if (pin) pin_thread(w->thread, i);
    }
    *out = p;
    return 0;
}

void pool_free(pool *p) {
    if (!p) return;
    if (p->n_started > 0) {
        p->stop = true;
        start(p, p->n_threads);
        for (int i = 1; i <= p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    }
    gate_deinit(&p->start);
    gate_deinit(&p->arrive);
    gate_deinit(&p->barrier);
    free(p->workers);
    free(p);
}

int pool_threads(const pool *p) { return p->n_threads; }

/* After a run of n workers. */
static void advise(pool *p, int n, int64_t begin, int64_t end) {
#if !defined(__SANITIZE_THREAD__) /* races show only between threads that run */
    if (n != p->advice) return;
    if (n < p->n_threads && end >= p->try_at) {
        p->advice = n * 2 < p->n_threads ? n * 2 : p->n_threads;
        p->window = p->window_waited = 0;
        return;
    }
    p->window += end - begin;
    p->window_waited += p->waited;
    if (p->window < WINDOW_MIN) return;
    if (n > 1 && p->window_waited > p->window / 2) {
        p->advice = n / 2;
        p->try_at = end + p->backoff;
        p->backoff = p->backoff < BACKOFF_MAX / 2 ? p->backoff * 2 : BACKOFF_MAX;
        p->window = p->window_waited = 0;
    } else if (p->window > WINDOW_MAX) {
        p->window /= 2;
        p->window_waited /= 2;
        if (n == p->n_threads) p->backoff = BACKOFF_MIN;
    }
#else
    (void)p, (void)n, (void)begin, (void)end;
#endif
}

void pool_run_some(pool *p, int n, pool_fn fn, void *ctx) {
    int64_t begin = p->n_threads > 1 ? clock_ns() : 0;
    p->waited = 0;
    p->n_active = n;
    if (n == 1) {
        fn(ctx, 0, 1);
    } else {
        p->fn = fn;
        p->ctx = ctx;
        uint64_t arrived = atomic_load(&p->arrive.seq);
        atomic_store(&p->running, n);
        start(p, n);
        fn(ctx, 0, n);
        if (atomic_fetch_sub(&p->running, 1) == 1)
            gate_open(&p->arrive);
        else
            gate_wait_first(p, &p->arrive, arrived);
    }
    if (p->n_threads > 1) advise(p, n, begin, clock_ns());
}

void pool_run(pool *p, pool_fn fn, void *ctx) { pool_run_some(p, p->n_threads, fn, ctx); }

int pool_advice(const pool *p) { return p->advice; }

void pool_barrier(pool *p, int me) {
    if (p->n_active == 1) return;
    uint64_t seen = atomic_load(&p->barrier.seq);
    if (atomic_fetch_add(&p->at_barrier, 1) == p->n_active - 1) {
        atomic_store(&p->at_barrier, 0);
        gate_open(&p->barrier);
    } else if (me == 0) {
        gate_wait_first(p, &p->barrier, seen);
    } else {
        gate_wait(&p->barrier, seen);
    }
}

/* Counts each physical core once: a logical CPU is taken when it is the first of its siblings that we may use. */
int pool_default_threads(void) {
    cpu_set_t set;
    int       cores = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        char path[96];
        int  first = c;
        if (!CPU_ISSET(c, &set)) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c);
        FILE *f = fopen(path, "re");
        if (f) {
            if (fscanf(f, "%d", &first) != 1) first = c;
            fclose(f);
        }
        if (first >= c || first < 0 || !CPU_ISSET(first, &set)) cores++;
    }
    return cores > 0 ? cores : 1;
}

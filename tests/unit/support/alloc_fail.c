/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapped allocator and the loop over its failures; see the header.
 *
 * Live blocks stand in one table by address (open addressing, under a mutex), so that a pointer of a library that is freed
 * by our code is told from one of our own. The table itself is static: it must not allocate.
 */
#include "unit/support/alloc_fail.h"

#include "unit/support/support.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
char *__real_strdup(const char *);
char *__real_strndup(const char *, size_t);
void  __real_free(void *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
char *__wrap_strdup(const char *);
char *__wrap_strndup(const char *, size_t);
void  __wrap_free(void *);

enum { TABLE = 1 << 18, PLACES = 1 << 16, FRAMES = 10, MAX_CALLS = 1 << 20 };

typedef struct block {
    void *p;
    long  call;           /* its number in the try that made it */
    void *frames[FRAMES]; /* where that was; only with HEARTH_ALLOC_N */
} block;

static struct {
    pthread_mutex_t lock; /* guards the rest */
    block           blocks[TABLE];
    long            live;
    bool            counting, marking, tracing;
    long            calls, fail_at; /* of this try; 0: none fails */
    bool            fired;
    void           *where[FRAMES]; /* of the call that failed */
    int             n_where;
    uint64_t        places[PLACES];   /* hashes of the return addresses of calls so far */
    bool            fresh[MAX_CALLS]; /* call n came from a new place */
} heap = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* --- the table --- */

static size_t slot_of(const void *p) { return (size_t)(((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u >> 40) % TABLE; }

static void table_put(void *p) {
    size_t i = slot_of(p);
    while (heap.blocks[i].p) i = (i + 1) % TABLE;
    heap.blocks[i] = (block){ .p = p, .call = heap.counting ? heap.calls : 0 };
    if (heap.tracing) backtrace(heap.blocks[i].frames, FRAMES);
    if (++heap.live > TABLE / 2) abort();
}

static bool table_take(const void *p) {
    size_t i = slot_of(p);
    while (heap.blocks[i].p && heap.blocks[i].p != p) i = (i + 1) % TABLE;
    if (!heap.blocks[i].p) return false;
    heap.live--;
    /* Whatever follows moves up, unless it stands where it belongs. */
    for (size_t k = (i + 1) % TABLE; heap.blocks[k].p; k = (k + 1) % TABLE) {
        size_t home = slot_of(heap.blocks[k].p);
        if ((k > i && (home <= i || home > k)) || (k < i && home <= i && home > k)) {
            heap.blocks[i] = heap.blocks[k];
            i = k;
        }
    }
    heap.blocks[i].p = NULL;
    return true;
}

/* --- calls --- */

/* With the lock. */
static void mark_place(void *const *frames, int n) {
    uint64_t h = 1;
    for (int i = 0; i < n; i++) h = (h ^ (uintptr_t)frames[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    size_t at = h % PLACES;
    for (int tries = 0; tries < PLACES && heap.places[at] && heap.places[at] != h; tries++) at = (at + 1) % PLACES;
    if (heap.calls < MAX_CALLS) heap.fresh[heap.calls] = heap.places[at] != h;
    heap.places[at] = h;
}

/* True: this call fails. */
static bool fails(void) {
    void *frames[FRAMES];
    int   n = 0;
    pthread_mutex_lock(&heap.lock);
    bool counts = heap.counting, now = false;
    if (counts) {
        heap.calls++;
        now = heap.calls == heap.fail_at;
        if (now) heap.fired = true;
    }
    pthread_mutex_unlock(&heap.lock);
    if (!now && !(counts && heap.marking)) return false;
    n = backtrace(frames, FRAMES);
    pthread_mutex_lock(&heap.lock);
    if (now) memcpy(heap.where, frames, sizeof frames), heap.n_where = n;
    if (heap.marking) mark_place(frames, n);
    pthread_mutex_unlock(&heap.lock);
    return now;
}

static void *count(void *p) {
    pthread_mutex_lock(&heap.lock);
    if (p) table_put(p);
    pthread_mutex_unlock(&heap.lock);
    return p;
}

static bool uncount(void *p) {
    pthread_mutex_lock(&heap.lock);
    bool ours = p && table_take(p);
    pthread_mutex_unlock(&heap.lock);
    return ours;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : count(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t m) { return fails() ? NULL : count(__real_calloc(n, m)); }
void *__wrap_aligned_alloc(size_t a, size_t n) { return fails() ? NULL : count(__real_aligned_alloc(a, n)); }
char *__wrap_strdup(const char *s) { return fails() ? NULL : count(__real_strdup(s)); }
char *__wrap_strndup(const char *s, size_t n) { return fails() ? NULL : count(__real_strndup(s, n)); }
void *__wrap_realloc(void *p, size_t n) {
    if (fails()) return NULL;
    bool  ours = uncount(p);
    void *q = __real_realloc(p, n);
    if (!q && ours) count(p);
    return count(q);
}
void __wrap_free(void *p) {
    uncount(p);
    __real_free(p);
}

long alloc_live(void) {
    pthread_mutex_lock(&heap.lock);
    long n = heap.live;
    pthread_mutex_unlock(&heap.lock);
    return n;
}

/* --- tries --- */

typedef struct attempt {
    int  rc;
    err  e;
    long calls;
    bool fired;
    char result[ALLOC_RESULT_MAX];
} attempt;

static void try_it(const alloc_case *c, attempt *a, long fail_at, bool marking) {
    memset(a, 0, sizeof *a);
    pthread_mutex_lock(&heap.lock);
    heap.calls = 0;
    heap.fail_at = fail_at;
    heap.fired = false;
    heap.marking = marking;
    heap.counting = true;
    pthread_mutex_unlock(&heap.lock);
    a->rc = c->run(c->ctx, a->result, &a->e);
    pthread_mutex_lock(&heap.lock);
    heap.counting = heap.marking = false;
    a->calls = heap.calls;
    a->fired = heap.fired;
    pthread_mutex_unlock(&heap.lock);
}

static void say_where(const alloc_case *c, long n) {
    fprintf(stderr, "%s: the failing call %ld came from\n", c->name, n);
    backtrace_symbols_fd(heap.where, heap.n_where, STDERR_FILENO);
}

static void say_leaks(long before) {
    int shown = 0;
    for (size_t i = 0; i < TABLE && shown < 5; i++)
        if (heap.blocks[i].p && heap.blocks[i].call) {
            fprintf(stderr, "alive: the block of call %ld of the try that made it\n", heap.blocks[i].call);
            if (heap.tracing) backtrace_symbols_fd(heap.blocks[i].frames, FRAMES, STDERR_FILENO);
            shown++;
        }
    fprintf(stderr, "%ld blocks before, %ld now\n", before, heap.live);
}

/* Nothing that is alive now counts as the next try's. */
static void forget_calls(void) {
    for (size_t i = 0; i < TABLE; i++) heap.blocks[i].call = 0;
}

static void clean(const alloc_case *c, attempt *a, const char *result, const char *when) {
    try_it(c, a, 0, false);
    if (a->rc < 0) fail_msg("%s, %s: %s", c->name, when, a->e.msg);
    if (result && strcmp(a->result, result) != 0)
        fail_msg("%s, %s: \"%s\" instead of \"%s\"", c->name, when, a->result, result);
}

/* Threads of ctx may still be letting go of what the try brought. */
static void settle(const alloc_case *c, long before) {
    for (int ms = 0; c->keeps && alloc_live() != before && ms < 2000; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* What one failure brings: 0 it cost nothing, 1 an error, -1 there was no n-th call. */
static int one(const alloc_case *c, long n, const char *result, long *before, int *patience) {
    static attempt a, again;
    char           when[64];
    try_it(c, &a, n, false);
    if (!a.fired && !c->keeps && !c->grows && a.rc >= 0) return -1;
    if (a.rc < 0 && (!a.e.msg[0] || a.e.code != a.rc || a.rc != ERR_NOMEM)) {
        say_where(c, n);
        fail_msg("%s: code %d with the sentence \"%s\" of code %d", c->name, a.rc, a.e.msg, a.e.code);
    }
    if (a.rc >= 0 && strcmp(a.result, result) != 0) {
        say_where(c, n);
        fail_msg("%s: no error, but \"%s\" instead of \"%s\"", c->name, a.result, result);
    }
    if (!c->keeps && !c->grows && alloc_live() != *before) {
        say_where(c, n);
        say_leaks(*before);
        fail_msg("%s: the failure of call %ld leaks (\"%s\")", c->name, n, a.e.msg);
    }
    snprintf(when, sizeof when, "the try behind the failure of call %ld", n);
    clean(c, &again, result, when);
    settle(c, *before);
    if (c->keeps && alloc_live() > *before && *patience > 0) { /* something was made for the first time */
        *patience -= 1;
        *before = alloc_live();
        return one(c, n, result, before, patience);
    }
    if (!c->grows && alloc_live() != *before) {
        say_where(c, n);
        say_leaks(*before);
        fail_msg("%s: %s leaks", c->name, when);
    }
    return a.rc < 0;
}

static bool wanted(long n, long calls, uint64_t *seed) {
    const char *only = getenv("HEARTH_ALLOC_N");
    if (only) return atol(only) == n;
    long rest = calls - 300;
    return n <= (TEST_SANITIZED ? 40 : 300) || getenv("HEARTH_LONG") || (n < MAX_CALLS && heap.fresh[n]) ||
           (!TEST_SANITIZED && (long)(test_random(seed) % (uint64_t)rest) < 200);
}

void alloc_fail_each(const alloc_case *c) {
    static attempt  first, again;
    static bool     pick[MAX_CALLS];
    uint64_t        seed = 16;
    long            tried = 0, errors = 0;
    int             patience = 3; /* of growth in a ctx that keeps something */
    void           *frames[2];
    struct timespec t0, t1;
    backtrace(frames, 2); /* loads what it needs */
    clean(c, &first, NULL, "the first try");
    clean(c, &first, first.result[0] ? NULL : "", "the second try");
    memset(heap.places, 0, sizeof heap.places);
    memset(heap.fresh, 0, sizeof heap.fresh);
    if (c->keeps) nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    long before = alloc_live();
    try_it(c, &again, 0, true);
    settle(c, before);
    if (strcmp(first.result, again.result) != 0)
        fail_msg("%s: the case is not the same every time: \"%s\", \"%s\"", c->name, first.result, again.result);
    if (!c->grows) assert_int_equal(alloc_live(), before);
    assert_true(again.calls > 0 && again.calls < MAX_CALLS);
    forget_calls();
    heap.tracing = getenv("HEARTH_ALLOC_N");
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (long n = 1; n <= again.calls; n++) pick[n] = wanted(n, again.calls, &seed);
    for (long n = 1; n <= again.calls; n++) {
        if (!pick[n]) continue;
        int got = one(c, n, first.result, &before, &patience);
        if (got < 0) break;
        tried++;
        errors += got;
    }
    clock_gettime(CLOCK_MONOTONIC, &t1);
    print_message("%s: %ld allocations, %ld of them failed one by one: %ld errors, %ld did without; %.1f s\n", c->name,
                  again.calls, tried, errors, tried - errors,
                  (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9);
}

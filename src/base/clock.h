/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one clock for durations and deadlines. It only goes forward, whatever is done to the time of day, and counts from
 * an arbitrary moment: its values mean something only beside each other, in one process. Times that people read
 * (log lines, "created_at") come from CLOCK_REALTIME where they are written.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t clock_us(void) { return clock_ns() / 1000; }
static inline int64_t clock_ms(void) { return clock_ns() / 1000000; }
static inline double  clock_s(void) { return 1e-9 * (double)clock_ns(); }

/* What the calling thread has computed: neither what it waited nor what other programs took from it. */
static inline double clock_thread_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* For pthread_cond_timedwait on a condition of clock_cond_init: the moment at_ms of clock_ms, and ms from now. */
static inline struct timespec clock_moment(int64_t at_ms) {
    return (struct timespec){ .tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000 };
}

static inline struct timespec clock_after(int ms) {
    int64_t at = clock_ns() + (int64_t)ms * 1000000;
    return (struct timespec){ .tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000) };
}

/* A condition whose timed waits are by this clock; on Linux none of these calls fails. */
static inline void clock_cond_init(pthread_cond_t *c) {
    pthread_condattr_t by;
    pthread_condattr_init(&by);
    pthread_condattr_setclock(&by, CLOCK_MONOTONIC);
    pthread_cond_init(c, &by);
    pthread_condattr_destroy(&by);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend around another one, for tests: it counts calls, fails some of them, is late, or makes one kind of op wrong.
 *
 * An nn_backend has no context, so the wrap that wrap_backend's devices, measure and open belong to is process-wide
 * (wrap_use). An executor keeps the wrap that it was opened with: several of them, on several wraps, live side by side.
 * A wrap outlives its executors.
 *
 * Failing. A call fails at its start (submit, move, fetch, open, measure), or what it started fails when it is waited
 * for (wait, by what it is for); the n-th such ticket that is given out counts as the n-th wait. A failed step leaves
 * garbage in the positions, slots and rows of its own batch (it is run with other tokens, and the slots are
 * overwritten), a failed move in its destinations. After ERR_LOST every call but free fails in the same way.
 *
 * Being late. With `delay` nothing happens before wait: then everything that was started up to that ticket takes
 * effect, in order. The host memory of a move in is read then, that of a move out is garbage until its own wait.
 *
 * Going ahead (wrap_ahead). Guesses are those of plain_sample, or wrong; picks are made only where a step follows, and then
 * from a copy of the rows, since the rows themselves are gone. Some of them are left, as are those that are close.
 *
 * What no caller may do is counted as misuse, with a sentence: a second step while one is under way, rows fetched while
 * there are none, a ticket waited for twice, host memory that changed before its ticket was waited for.
 */
#ifndef TESTS_BACKEND_WRAP_H
#define TESTS_BACKEND_WRAP_H

#include "nn/backend.h"

#include <pthread.h>

typedef enum wrap_call {
    WRAP_MEASURE,
    WRAP_OPEN,
    WRAP_SUBMIT,
    WRAP_WAIT, /* of a step */
    WRAP_FETCH,
    WRAP_MOVE,
    WRAP_WAIT_MOVE,
    WRAP_CALLS
} wrap_call;

/* Which calls of one kind fail. */
typedef struct wrap_rule {
    uint64_t at;    /* the n-th from now on, once; 0: none */
    double   share; /* and this part of all of them, at random */
    int      code;
} wrap_rule;

typedef struct wrap {
    const nn_backend *inner;
    nn_device         device;

    pthread_mutex_t lock; /* guards what follows */
    wrap_rule       rules[WRAP_CALLS];
    uint64_t        calls[WRAP_CALLS], failed[WRAP_CALLS];
    uint64_t        random;
    bool            lost, delay;
    int             wrong; /* the nn_op_kind whose results are changed; -1: none */
    bool            ahead;
    double          misses, leaves; /* parts of the guesses that are wrong, of the picks that are left */
    uint64_t        n_ahead, n_missed, n_left;
    uint64_t        misuse;
    char            misused[160]; /* the first one */
} wrap;

extern const nn_backend *const wrap_backend;

/* Around the device with this id, as backend_find takes it. Also makes it the current one. */
int  wrap_init(wrap *w, const char *device, uint64_t seed, err *e);
void wrap_deinit(wrap *w);
void wrap_use(wrap *w); /* wrap_backend's devices, measure and open belong to it from now on */

void wrap_fail_at(wrap *w, wrap_call call, uint64_t nth, int code); /* the nth from now on; 1: the next one */
void wrap_fail_share(wrap *w, wrap_call call, double share, int code);
void wrap_calm(wrap *w); /* no more failures; a device that is lost stays lost */
void wrap_delay(wrap *w, bool on);

/* Executors that are opened from now on go ahead. */
void wrap_ahead(wrap *w, double misses, double leaves);

/* From now on this kind of op gives a result in which one value lies beyond backend_compare's bound, by twice the bound
 * since the right one may lie anywhere within it. A store (which has no result) stores one value of the batch's first
 * row wrong. -1: none. */
void wrap_wrong(wrap *w, int kind);

uint64_t    wrap_calls(wrap *w, wrap_call call);
uint64_t    wrap_failed(wrap *w, wrap_call call);
uint64_t    wrap_failures(wrap *w); /* of all kinds */
const char *wrap_misuse(wrap *w);   /* the first misuse; NULL: none */
const char *wrap_call_name(wrap_call call);

#endif

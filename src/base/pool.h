/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compute pool: a fixed set of threads that run one function together.
 *
 * pool_run wakes every worker once; each calls fn(ctx, worker, n_workers). The caller is worker 0. Inside fn the
 * workers meet with pool_barrier. Waiting spins briefly, then yields, then sleeps, so that an idle pool uses no CPU and
 * a core taken away by another process does not stall the others in a busy loop.
 *
 * Where other programs hold the cores, a worker that was put aside makes the others wait for milliseconds at each
 * barrier, and fewer workers finish sooner. pool_advice says how many to use, from how long worker 0 had to wait in
 * the last runs; pool_run_some runs that many.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/err.h"

#include <stdbool.h>

typedef struct pool pool;
typedef void (*pool_fn)(void *ctx, int worker, int n_workers);

/* n_threads counts the caller; 1 starts no thread. pin: bind each worker to a core where the system allows it. */
int  pool_open(pool **out, int n_threads, bool pin, err *e);
void pool_free(pool *p); /* accepts NULL; joins the workers */
int  pool_threads(const pool *p);
void pool_run(pool *p, pool_fn fn, void *ctx); /* returns when every worker has returned; not reentrant */
void pool_run_some(pool *p, int n_workers, pool_fn fn, void *ctx); /* the same with workers 0 to n_workers - 1 */
int  pool_advice(const pool *p);                                   /* 1 to n_threads, for the next pool_run_some */
void pool_barrier(pool *p, int worker);                            /* only inside fn, by every worker */

/* Physical cores this process may use, at least 1. */
int pool_default_threads(void);

#endif

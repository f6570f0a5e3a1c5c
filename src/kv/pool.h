/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page numbers with reference counts.
 *
 * The bytes of a page belong to the backend; here a page is a number. There is one numbering per group of layers
 * (layers with the same window share a page table; see nn/batch.h). A sequence and the prefix tree each hold a
 * reference to the pages they use; a page is free when nobody does, and idle when only the tree does: it could be free
 * if somebody needed it. Used by the engine thread only.
 */
#ifndef KV_POOL_H
#define KV_POOL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_MAX_GROUPS = 4 };

typedef struct kv_pool kv_pool;

/* n_pages[g] for each of n_groups groups. */
int  kv_pool_open(kv_pool **out, int n_groups, const int *n_pages, err *e);
void kv_pool_free(kv_pool *p); /* accepts NULL */

int     kv_pool_groups(const kv_pool *p);
int     kv_pool_total(const kv_pool *p, int group);
int     kv_pool_unused(const kv_pool *p, int group);             /* pages nobody holds */
int32_t kv_pool_take(kv_pool *p, int group);                     /* one reference; -1: none is left */
void    kv_pool_retain(kv_pool *p, int group, int32_t page);     /* accepts -1 */
void    kv_pool_release(kv_pool *p, int group, int32_t page);    /* accepts -1 */
int     kv_pool_refs(const kv_pool *p, int group, int32_t page); /* 0: free */

/* The tree's references. */
void kv_pool_cache(kv_pool *p, int group, int32_t page);   /* accepts -1 */
void kv_pool_uncache(kv_pool *p, int group, int32_t page); /* accepts -1 */
bool kv_pool_idle(const kv_pool *p, int group, int32_t page);
int  kv_pool_available(const kv_pool *p, int group); /* unused and idle pages */

#endif

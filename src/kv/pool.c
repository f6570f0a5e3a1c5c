/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/pool.h"

#include <assert.h>
#include <stdlib.h>

typedef struct group {
    int      n_pages, n_free, n_idle;
    int32_t *free_list; /* a stack: the page freed last is taken first, while it may still be in a cache */
    int32_t *refs;
    int32_t *cached; /* how many of refs are the tree's */
} group;

struct kv_pool {
    int   n_groups;
    group groups[KV_MAX_GROUPS];
};

int kv_pool_open(kv_pool **out, int n_groups, const int *n_pages, err *e) {
    *out = NULL;
    if (n_groups < 0 || n_groups > KV_MAX_GROUPS)
        return err_set(e, ERR_ARG, "%d groups of layers, at most %d are possible", n_groups, KV_MAX_GROUPS);
    kv_pool *p = calloc(1, sizeof *p);
    if (!p) return err_set_nomem(e);
    p->n_groups = n_groups;
    for (int g = 0; g < n_groups; g++) {
        group *gr = &p->groups[g];
        size_t n = n_pages[g] > 0 ? (size_t)n_pages[g] : 0;
        gr->n_pages = gr->n_free = (int)n;
        gr->free_list = calloc(n ? n : 1, sizeof *gr->free_list);
        gr->refs = calloc(n ? n : 1, sizeof *gr->refs);
        gr->cached = calloc(n ? n : 1, sizeof *gr->cached);
        if (!gr->free_list || !gr->refs || !gr->cached) {
            kv_pool_free(p);
            return err_set_nomem(e);
        }
        for (size_t i = 0; i < n; i++) gr->free_list[i] = (int32_t)(n - 1 - i); /* low numbers come out first */
    }
    *out = p;
    return 0;
}

void kv_pool_free(kv_pool *p) {
    if (!p) return;
    for (int g = 0; g < p->n_groups; g++) {
        free(p->groups[g].free_list);
        free(p->groups[g].refs);
        free(p->groups[g].cached);
    }
    free(p);
}

int kv_pool_groups(const kv_pool *p) { return p->n_groups; }
int kv_pool_total(const kv_pool *p, int g) { return p->groups[g].n_pages; }
int kv_pool_unused(const kv_pool *p, int g) { return p->groups[g].n_free; }

int32_t kv_pool_take(kv_pool *p, int g) {
    group *gr = &p->groups[g];
    if (gr->n_free == 0) return -1;
    int32_t page = gr->free_list[--gr->n_free];
    assert(gr->refs[page] == 0);
    gr->refs[page] = 1;
    return page;
}

static bool is_idle(const group *gr, int32_t page) {
    return gr->cached[page] > 0 && gr->cached[page] == gr->refs[page];
}

static void change(kv_pool *p, int g, int32_t page, int refs, int cached) {
    group *gr = &p->groups[g];
    if (page < 0) return;
    assert(page < gr->n_pages && gr->refs[page] > 0);
    gr->n_idle -= is_idle(gr, page);
    gr->refs[page] += refs;
    gr->cached[page] += cached;
    assert(gr->cached[page] >= 0 && gr->cached[page] <= gr->refs[page]);
    gr->n_idle += is_idle(gr, page);
    if (gr->refs[page] == 0) gr->free_list[gr->n_free++] = page;
}

void kv_pool_retain(kv_pool *p, int g, int32_t page) { change(p, g, page, 1, 0); }
void kv_pool_release(kv_pool *p, int g, int32_t page) { change(p, g, page, -1, 0); }
void kv_pool_cache(kv_pool *p, int g, int32_t page) { change(p, g, page, 1, 1); }
void kv_pool_uncache(kv_pool *p, int g, int32_t page) { change(p, g, page, -1, -1); }

int  kv_pool_refs(const kv_pool *p, int g, int32_t page) { return p->groups[g].refs[page]; }
bool kv_pool_idle(const kv_pool *p, int g, int32_t page) { return is_idle(&p->groups[g], page); }
int  kv_pool_available(const kv_pool *p, int g) { return p->groups[g].n_free + p->groups[g].n_idle; }

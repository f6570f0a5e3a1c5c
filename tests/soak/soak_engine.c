/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A soak of the engine: random requests from several threads against a cache of so few pages that eviction and
 * preemption are the rule. Lengths, choices, priorities, clients, constraints, embeddings and cancels (at once, at some
 * token, at any moment) are random, but a function of the request's number, so every answer can be made again alone.
 *
 * Facts at the end, for each state kind: every answer that was not cancelled equals its solo run bit for bit, a
 * cancelled one is the beginning of it; nothing runs or waits; a page is free or in the prefix tree, and free when the
 * tree is empty; no guide is left over.
 *
 *     soak_engine [requests per model] [seed]
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "engine/internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHOICES = 3, SUBMITTERS = 2, BASES = 12, LONGEST = 130, CONTEXT = 192, VECTOR = 64 };

static int      n_requests = 60;
static uint64_t seed = 1;

typedef enum when { NEVER, AT_ONCE, AT_TOKEN, SOMETIME } when;

/* One request: what it asks, and what came of it. */
typedef struct item {
    int32_t tokens[LONGEST];
    int     n_tokens, max_tokens, n_choices, priority, client, guide_length, cancel_token;
    bool    guided, no_cache;
    float   temperature;
    when    cancel;

    engine_pooling pooling;

    engine              *g;
    atomic_uint_fast64_t id;
    atomic_int           n_open;
    int                  n_seen;
    answer               a[CHOICES];
    float                vector[VECTOR];
} item;

typedef struct soak {
    engine *g;
    item   *items;
    int     part;
} soak;

static void plan_items(item *items, const fixture *f) {
    static int32_t base[BASES][LONGEST];
    uint64_t       s = seed;
    uint64_t       n_vocab = (uint64_t)f->model->dims->n_vocab;
    for (int i = 0; i < BASES * LONGEST; i++) base[i / LONGEST][i % LONGEST] = (int32_t)(test_random(&s) % n_vocab);
    for (int i = 0; i < n_requests; i++) {
        item    *it = &items[i];
        uint64_t b = test_random(&s) % BASES;
        it->n_tokens = 1 + (int)(test_random(&s) % LONGEST);
        int shared = (int)(test_random(&s) % (uint64_t)(it->n_tokens + 1));
        for (int k = 0; k < it->n_tokens; k++)
            it->tokens[k] = k < shared ? base[b][k] : (int32_t)(test_random(&s) % n_vocab);
        it->max_tokens = 1 + (int)(test_random(&s) % 40);
        it->n_choices = test_random(&s) % 6 == 0 ? 1 + (int)(test_random(&s) % CHOICES) : 1;
        it->priority = (int)(test_random(&s) % 4) / 2;
        it->client = (int)(test_random(&s) % 5);
        it->guided = test_random(&s) % 4 == 0;
        it->guide_length = test_random(&s) % 2 ? 1 + (int)(test_random(&s) % 20) : 0;
        it->no_cache = test_random(&s) % 10 == 0;
        it->temperature = test_random(&s) % 3 == 0 ? 0.0f : 0.9f;
        it->cancel = test_random(&s) % 4 ? NEVER : (when)(1 + test_random(&s) % 3);
        it->cancel_token = 1 + (int)(test_random(&s) % 12);
        if (test_random(&s) % 12 == 0) {
            it->pooling = test_random(&s) % 2 ? ENGINE_POOL_MEAN : ENGINE_POOL_LAST;
            it->guided = false;
            it->n_choices = 1;
        }
    }
}

static void on_event(void *ctx, const engine_event *ev) {
    item *it = ctx;
    answer_collect(&it->a[ev->choice], ev);
    if (ev->kind == ENGINE_EMBEDDING) memcpy(it->vector, ev->vector, (size_t)ev->n_vector * sizeof *it->vector);
    if (ev->kind == ENGINE_TOKEN && it->cancel == AT_TOKEN && ++it->n_seen >= it->cancel_token && it->id)
        engine_cancel(it->g, it->id);
    if (ev->kind == ENGINE_DONE || ev->kind == ENGINE_ERROR) atomic_fetch_sub(&it->n_open, 1);
}

static engine_request request_of(item *it, int i) {
    engine_request r = { .tokens = it->tokens,
                         .n_tokens = (size_t)it->n_tokens,
                         .max_tokens = it->max_tokens,
                         .n_choices = it->n_choices,
                         .priority = it->priority,
                         .client = (uint64_t)it->client,
                         .no_cache = it->no_cache,
                         .pooling = it->pooling,
                         .normalize = true,
                         .want_logprob = true,
                         .on_event = on_event,
                         .ctx = it };
    sampling_params_default(&r.sampling);
    r.sampling.seed = (uint64_t)i * 16;
    r.sampling.temperature = it->temperature;
    r.sampling.top_k = i % 3 ? 0 : 30;
    r.sampling.repeat_penalty = i % 5 ? 1.0f : 1.1f;
    return r;
}

static void breathe(void) { nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL); }

/* Submits every SUBMITTERS-th item; a full queue means to try again. */
static void *submit_part(void *arg) {
    soak *s = arg;
    for (int i = s->part; i < n_requests; i += SUBMITTERS) {
        item          *it = &s->items[i];
        engine_request r = request_of(it, i);
        uint64_t       id;
        err            e;
        int            rc;
        it->g = s->g;
        atomic_store(&it->n_open, it->n_choices);
        if (it->guided) r.guide = test_guide((uint64_t)i, engine_vocab(s->g), it->guide_length);
        while ((rc = engine_submit(s->g, &r, &id, &e)) == ERR_BUSY) breathe();
        if (rc < 0) fail_msg("%s", e.msg);
        if (it->cancel == AT_ONCE) engine_cancel(s->g, id);
        it->id = id;
    }
    return NULL;
}

/* Cancels at any moment until everything ended. */
static void cancel_some(soak *s) {
    uint64_t r = seed + 1;
    for (int open = 1; open;) {
        open = 0;
        for (int i = 0; i < n_requests; i++) {
            item *it = &s->items[i];
            if (!it->id || atomic_load(&it->n_open) > 0) open++;
            if (it->cancel == SOMETIME && it->id && test_random(&r) % 50 == 0) engine_cancel(s->g, it->id);
        }
        breathe();
    }
}

static void check_item(engine *solo, item *it, int i, int *n_cancelled) {
    for (int c = 0; c < it->n_choices; c++) {
        item           alone = *it;
        engine_request r = request_of(&alone, i);
        const answer  *got = &it->a[c];
        memset(alone.a, 0, sizeof alone.a);
        alone.cancel = NEVER;
        alone.n_choices = r.n_choices = 1;
        r.sampling.seed += (uint64_t)c;
        if (it->guided) r.guide = test_guide((uint64_t)i, engine_vocab(solo), it->guide_length);
        engine_submit_ok(solo, &r);
        engine_wait_idle(solo);
        const answer *want = &alone.a[0];
        assert_true(want->over && !want->failed && got->over);
        if (got->failed) fail_msg("request %d failed: %s", i, got->error.msg);
        if (it->guided && !test_guide_kept((uint64_t)i, it->guide_length, got))
            fail_msg("request %d breaks its rule", i);
        bool cancelled = got->finish == ENGINE_CANCELLED;
        *n_cancelled += cancelled;
        if (cancelled && it->cancel == NEVER) fail_msg("request %d was cancelled by nobody", i);
        if (got->n > want->n || (!cancelled && (got->n != want->n || got->finish != want->finish)))
            fail_msg("request %d, choice %d: %d tokens, alone %d", i, c, got->n, want->n);
        if (memcmp(got->tokens, want->tokens, (size_t)got->n * sizeof *got->tokens) != 0 ||
            memcmp(got->logprobs, want->logprobs, (size_t)got->n * sizeof *got->logprobs) != 0)
            fail_msg("request %d, choice %d differs from its solo run", i, c);
        if (it->pooling && !cancelled && memcmp(it->vector, alone.vector, sizeof it->vector) != 0)
            fail_msg("request %d: the embedding differs from its solo run", i);
    }
}

static void check_pages(engine *g, engine_stats *st) {
    engine_stat(g, st);
    assert_int_equal(st->running + st->waiting, 0);
    assert_int_equal(st->pages_unused + st->pages_cached, st->pages_total);
    /* The engine sleeps: its cache may be looked at. */
    int all[KV_MAX_GROUPS] = { 0 };
    for (int k = 0; k < g->cache.n_groups; k++) all[k] = kv_pool_total(g->cache.pool, k);
    kv_tree_evict(g->cache.tree, all);
    for (int k = 0; k < g->cache.n_groups; k++) assert_int_equal(kv_pool_unused(g->cache.pool, k), all[k]);
    assert_int_equal(kv_tree_stat(g->cache.tree).device_nodes, 0);
}

/* Which tiers are below the pages depends on the model and the seed. */
static void soak_model(const char *name, int tiers) {
    fixture      f;
    pthread_t    threads[SUBMITTERS];
    soak         parts[SUBMITTERS];
    engine_stats st;
    int          n_cancelled = 0;
    item        *items = calloc((size_t)n_requests, sizeof *items);
    assert_non_null(items);
    fixture_open(&f, name);
    plan_items(items, &f);
    tiers = (int)(((uint64_t)tiers + seed) % 3); /* 0: none, 1: host memory, 2: and a directory */
    char  *dir = tiers == 2 ? test_temp_dir() : NULL;
    size_t page = fixture_page_bytes(&f, 16), pages = f.model->state[0].rec_heads ? 48 : 18; /* states need room, too */
    engine *g = fixture_engine(&f, (engine_options){ .n_ctx = CONTEXT,
                                                     .page_tokens = 16,
                                                     .cache_bytes = pages * page,
                                                     .host_cache_bytes = tiers ? 2 * pages * page : 0,
                                                     .disk_cache_dir = dir,
                                                     .disk_cache_bytes = 10 * pages * page,
                                                     .max_seqs = (int)pages / 3,
                                                     .step_tokens = 48,
                                                     .max_waiting = 40,
                                                     .n_threads = pages == 18 ? 1 + tiers % 2 : 1 });
    assert_true(engine_embedding_size(g) <= VECTOR);
    for (int p = 0; p < SUBMITTERS; p++) {
        parts[p] = (soak){ g, items, p };
        assert_int_equal(pthread_create(&threads[p], NULL, submit_part, &parts[p]), 0);
    }
    cancel_some(&parts[0]);
    for (int p = 0; p < SUBMITTERS; p++) pthread_join(threads[p], NULL);
    engine_wait_idle(g);
    check_pages(g, &st);
    engine_free(g);
    if (dir) test_temp_dir_remove(dir);

    engine *solo = fixture_engine(
        &f, (engine_options){ .n_ctx = CONTEXT, .max_seqs = 1, .n_threads = 1, .no_prefix_cache = true });
    for (int i = 0; i < n_requests; i++) check_item(solo, &items[i], i, &n_cancelled);
    engine_free(solo);
    assert_int_equal(test_guide_misuse() + test_guides_alive(), 0);
    print_message("%s: %d requests, %d choices cancelled, %llu steps, %llu tokens evaluated, %llu from the cache, %llu "
                  "times gave way, %d pages; to and from host %llu, %llu; to and from disk %llu, %llu\n",
                  name, n_requests, n_cancelled, (unsigned long long)st.steps, (unsigned long long)st.tokens_evaluated,
                  (unsigned long long)st.tokens_cached, (unsigned long long)st.preemptions, st.pages_total,
                  (unsigned long long)st.to_host, (unsigned long long)st.from_host, (unsigned long long)st.to_disk,
                  (unsigned long long)st.from_disk);
    if (n_requests >= 60) assert_true(st.preemptions > 0 && n_cancelled > 0);
    if (n_requests >= 500) assert_true(st.tokens_cached > 0 && (!tiers || (st.to_host > 0 && st.from_host > 0)));
    fixture_close(&f);
    free(items);
}

static void soak_transformer(void **state) {
    (void)state;
    soak_model("llama", 0);
}
static void soak_sliding_window(void **state) {
    (void)state;
    soak_model("gemma3_text", 1);
}
static void soak_latent(void **state) {
    (void)state;
    soak_model("deepseek_v3", 1);
}
static void soak_hybrid(void **state) {
    (void)state;
    soak_model("qwen3_next", 2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(soak_transformer),
        cmocka_unit_test(soak_sliding_window),
        cmocka_unit_test(soak_latent),
        cmocka_unit_test(soak_hybrid),
    };
    if (argc > 1) n_requests = atoi(argv[1]);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

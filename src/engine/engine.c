/* SPDX-License-Identifier: Apache-2.0 */
/* The engine thread, the way in, the way out. */
#include "engine/engine.h"

#include "backend/backend.h"
#include "base/noalloc.h"
#include "base/num.h"
#include "engine/internal.h"
#include "kernels/kvpage.h"

#include <stdlib.h>
#include <string.h>

/* -- the thread
 * -------------------------------------------------------------------------------------------------------- */

static void apply(sequence *s, const order *o) {
    if (s->job->id != o->id) return;
    if (o->what == ORDER_CANCEL)
        s->cancelled = true;
    else
        s->paused = o->what == ORDER_PAUSE;
}

/* Nothing can go on: there are no sequences, or all are paused. */
static bool at_rest(const engine *g) {
    for (const sequence *s = g->waiting; s; s = s->next) {
        if (!s->paused) return false;
    }
    for (int i = 0; i < g->n_running; i++) {
        if (!g->running[i]->paused) return false;
    }
    return true;
}

/* Takes over what came in; sleeps while there is nothing to do. False: the engine ends. */
static bool take_incoming(engine *g) {
    bool rest = at_rest(g), idle = g->n_running == 0 && !g->waiting;
    pthread_mutex_lock(&g->lock);
    if (idle && !g->incoming && !g->stop) {
        g->busy = false;
        pthread_cond_broadcast(&g->idle);
    }
    /* An order to an idle engine is for nobody, and is not kept. */
    while (rest && !g->incoming && !g->stop && g->n_orders == 0) pthread_cond_wait(&g->wake, &g->lock);
    g->busy = true;
    sequence *list = g->incoming;
    g->incoming = NULL;
    g->incoming_tail = &g->incoming;
    bool stop = g->stop;
    while (list) {
        sequence *next = list->next;
        schedule_enter(g, list);
        list = next;
    }
    for (size_t i = 0; i < g->n_orders; i++) {
        for (sequence *s = g->waiting; s; s = s->next) apply(s, &g->orders[i]);
        for (int k = 0; k < g->n_running; k++) apply(g->running[k], &g->orders[i]);
    }
    g->n_orders = 0;
    pthread_mutex_unlock(&g->lock);
    return !stop;
}

/* Ends what was cancelled; all: everything. */
static void drop_cancelled(engine *g, bool all) {
    for (sequence **at = &g->waiting; *at;) {
        sequence *s = *at;
        if (!all && !s->cancelled) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        step_end(g, s, ENGINE_CANCELLED, -1);
    }
    for (int i = g->n_running - 1; i >= 0; i--) {
        if (all || g->running[i]->cancelled) step_end(g, g->running[i], ENGINE_CANCELLED, -1);
    }
}

/* Pieces of prompts follow the time that steps with such pieces take. */
static void adapt(engine *g, double seconds, int n_tok) {
    int pieces = 0, most = g->o.step_tokens;
    for (int i = 0; i < g->n_shares; i++) pieces += g->shares[i].n > 1 ? g->shares[i].n : 0;
    int *budget = g->generating ? &g->prompt_budget : &g->piece_budget;
    int  target = g->generating ? g->o.target_step_ms : ENGINE_PIECE_MS;
    if (target <= 0 || pieces == 0) return;
    int next = schedule_adapt(*budget, g->generating ? 16 : 4, most, seconds, target * 1e-3);
    /* A step that was not full says nothing about how much more fits. */
    if (next < *budget || pieces >= *budget || n_tok >= most) *budget = next;
}

static void publish_cache(engine *g) {
    kv_tree_stats t = kv_tree_stat(g->cache.tree);
    engine_stats *st = &g->stats;
    st->pages_cached = (int)t.device_nodes;
    st->states = t.states;
    st->state_bytes = t.state_bytes;
    st->host_pages = t.host_nodes;
    st->host_bytes = t.host_bytes;
    st->disk_entries = t.disk_entries;
    st->disk_bytes = t.disk_bytes;
    st->to_host = t.to_host;
    st->from_host = t.from_host;
    st->from_disk = t.from_disk;
    st->to_disk = t.saved;
    st->not_written = t.not_saved;
    st->evictions = t.evicted;
}

static int *queued_of(engine *g, const job *j) { return &g->queued_of[(j->r.client * 0x9E3779B97F4A7C15u) >> 56]; }

/* The queue is bounded. Behind the bound there is room for clients that have hardly anything in it, so that one client
 * cannot keep the others out. */
static bool queue_takes(engine *g, const job *j) {
    int n = j->r.n_choices, few = g->o.max_waiting / 16 > 1 ? g->o.max_waiting / 16 : 1;
    return g->n_queued + n <= g->o.max_waiting ||
           (*queued_of(g, j) + n <= few && g->n_queued + n <= 2 * g->o.max_waiting);
}

/* Under the lock: how much waits. */
static void publish_queue(engine *g) {
    g->stats.waiting = g->stats.paused = g->n_queued = 0;
    g->stats.running = g->n_running;
    memset(g->queued_of, 0, sizeof g->queued_of);
    for (const sequence *s = g->waiting; s; s = s->next, g->stats.waiting++) {
        g->n_queued++;
        g->stats.paused += s->paused;
        (*queued_of(g, s->job))++;
    }
    for (int i = 0; i < g->n_running; i++) g->stats.paused += g->running[i]->paused;
    for (const sequence *s = g->incoming; s; s = s->next) {
        g->n_queued++;
        (*queued_of(g, s->job))++;
    }
}

static void publish(engine *g) {
    pthread_mutex_lock(&g->guides.lock);
    g->counts.guide_masks = g->guides.masks;
    g->counts.guide_s = g->guides.seconds;
    pthread_mutex_unlock(&g->guides.lock);
    pthread_mutex_lock(&g->lock);
    g->stats = g->counts;
    publish_queue(g);
    if (g->cache.n_groups > 0) {
        g->stats.pages_total = kv_pool_total(g->cache.pool, 0);
        g->stats.pages_unused = kv_pool_unused(g->cache.pool, 0);
    }
    publish_cache(g);
    pthread_mutex_unlock(&g->lock);
}

static void fail_step(engine *g, const err *why) {
    for (int i = 0; i < g->n_shares; i++) step_fail(g, g->shares[i].s, why);
}

static void batch(const engine *g, bool begins) {
    if (g->o.on_batch) g->o.on_batch(g->o.batch_ctx, begins);
}

static int run_step(engine *g, const nn_batch *b, err *e) {
    double begin = engine_now();
    int    rc = nn_exec_step(g->exec, b, e);
    if (rc < 0) return rc;
    adapt(g, engine_now() - begin, b->n_tok);
    g->counts.steps++;
    batch(g, true);
    step_results(g);
    return 0;
}

static void *engine_main(void *arg) {
    engine *g = arg;
    while (take_incoming(g)) {
        nn_batch b;
        err      e = { 0 };
        drop_cancelled(g, false);
        schedule_admit(g);
        schedule_make_room(g);
        pthread_mutex_lock(&g->lock);
        publish_queue(g);
        pthread_mutex_unlock(&g->lock);
        noalloc_begin();
        bool work = schedule_batch(g, &b);
        int  rc = work ? run_step(g, &b, &e) : 0;
        noalloc_end();
        if (rc < 0)
            fail_step(g, &e);
        else if (work)
            step_settle(g);
        if (work) batch(g, false);
        publish(g);
    }
    drop_cancelled(g, true);
    publish(g);
    return NULL;
}

/* -- opening
 * ----------------------------------------------------------------------------------------------------------- */

static void defaults(engine_options *o, const nn_model *m) {
    int trained = m->dims->context > 0 ? m->dims->context : 4096;
    if (o->n_ctx <= 0) o->n_ctx = trained < 8192 ? trained : 8192;
    if (o->page_tokens <= 0) o->page_tokens = 32;
    if (o->max_seqs <= 0) o->max_seqs = 16;
    if (o->max_seqs > 1024) o->max_seqs = 1024;
    if (o->step_tokens <= 0) o->step_tokens = 256;
    if (o->step_tokens < o->max_seqs) o->step_tokens = o->max_seqs;
    if (o->max_waiting <= 0) o->max_waiting = 1024;
}

/* What one page takes in all layers together. */
static size_t page_bytes(const nn_model *m, const engine_options *o) {
    size_t bytes = 0;
    for (int i = 0; i < m->dims->n_layer; i++) {
        const nn_state *s = &m->state[i];
        kv_layout       l;
        bool            latent = s->kind == NN_STATE_PAGED_LATENT;
        if (s->kind == NN_STATE_NONE) continue;
        if (kv_layout_init(&l, (kv_type)o->k_type, (kv_type)o->v_type, o->page_tokens, latent ? 1 : s->n_kv,
                           latent ? s->dim_k + s->dim_v : s->dim_k, latent ? s->dim_k : s->dim_v, latent))
            bytes += (l.layer_bytes + 63) / 64 * 64; /* as the backend lays them out */
    }
    return bytes;
}

static int pages_for(const engine *g) {
    const engine_options *o = &g->o;
    int                   per_seq = (o->n_ctx + o->page_tokens - 1) / o->page_tokens;
    if (o->cache_bytes == 0) return 2 * per_seq + o->max_seqs;
    size_t pages = g->page_bytes ? o->cache_bytes / g->page_bytes : (size_t)(2 * per_seq);
    return pages > INT32_MAX / 2 ? INT32_MAX / 2 : (int)pages;
}

/* The first piece of a prompt: before anything was measured a slow machine's second is assumed. */
static int first_piece(const nn_model *m, int step_tokens) {
    double layer = 4.0 * m->dims->n_embd * m->dims->n_embd + 3.0 * m->dims->n_embd * m->dims->n_ff;
    double fits = 4e11 / (2.0 * layer * m->dims->n_layer + 1);
    return fits < step_tokens ? (int)num_max(4, (int64_t)fits) : step_tokens;
}

static int open_batch(engine *g, err *e) {
    size_t tokens = (size_t)g->o.step_tokens, seqs = (size_t)g->o.max_seqs;
    bool   ok = true;
    ok = (g->shares = calloc(seqs, sizeof *g->shares)) && ok;
    ok = (g->running = calloc(seqs + 1, sizeof *g->running)) && ok;
    ok = (g->slot_used = calloc(seqs, sizeof *g->slot_used)) && ok;
    ok = (g->token = calloc(tokens, sizeof *g->token)) && ok;
    ok = (g->pos = calloc(tokens, sizeof *g->pos)) && ok;
    ok = (g->seq_of = calloc(tokens, sizeof *g->seq_of)) && ok;
    ok = (g->q_start = calloc(seqs + 1, sizeof *g->q_start)) && ok;
    ok = (g->kv_len = calloc(seqs, sizeof *g->kv_len)) && ok;
    ok = (g->slot = calloc(seqs, sizeof *g->slot)) && ok;
    ok = (g->out_rows = calloc(tokens, sizeof *g->out_rows)) && ok;
    ok = (g->hidden_rows = calloc(tokens, sizeof *g->hidden_rows)) && ok;
    for (int k = 0; k < g->cache.n_groups; k++)
        ok = (g->pages[k] = calloc(seqs * (size_t)g->cache.max_pages, sizeof *g->pages[k])) && ok;
    ok = (g->row = calloc((size_t)g->n_vocab, sizeof *g->row)) && ok;
    ok = (g->no_end_mask = calloc(((size_t)g->n_vocab + 31) / 32, sizeof *g->no_end_mask)) && ok;
    ok = (g->mask = calloc(((size_t)g->n_vocab + 31) / 32, sizeof *g->mask)) && ok;
    ok = (g->vector = calloc((size_t)g->n_hidden, sizeof *g->vector)) && ok;
    if (!ok) return err_set_nomem(e);
    for (int64_t i = 0; i < g->n_vocab; i++) g->no_end_mask[i / 32] |= 1u << (i % 32);
    size_t         n_end = 0;
    const int32_t *ends = g->tok ? tok_end_ids(g->tok, &n_end) : NULL;
    for (size_t i = 0; i < n_end; i++) {
        if (ends[i] >= 0 && ends[i] < g->n_vocab) g->no_end_mask[ends[i] / 32] &= ~(1u << (ends[i] % 32));
    }
    return sampling_work_open(&g->work, (size_t)g->n_vocab, e);
}

static nn_exec_options exec_options(const engine *g) {
    return (nn_exec_options){ .limits = { .max_tokens = g->o.step_tokens,
                                          .max_seqs = g->o.max_seqs,
                                          .max_outputs = g->o.step_tokens,
                                          .max_logits = g->o.max_seqs,
                                          .page_tokens = g->o.page_tokens,
                                          .max_pages = (g->n_ctx + g->o.page_tokens - 1) / g->o.page_tokens,
                                          .n_pages = pages_for(g),
                                          .n_slots = g->o.max_seqs },
                              .k_type = g->o.k_type,
                              .v_type = g->o.v_type,
                              .n_threads = g->o.n_threads,
                              .cpu = g->o.cpu };
}

/* What the batch, the masks, the sampler and one sequence's tables take beside the executor. */
static size_t own_bytes(const engine *g, const nn_exec *x) {
    const nn_limits *l = &x->options.limits;
    size_t           tables = (size_t)l->max_seqs * (size_t)l->max_pages * sizeof(int32_t) * (size_t)x->groups.n;
    size_t vocab = (size_t)g->n_vocab * (sizeof(float) + 2 * sizeof(sampling_logprob)); /* the row and its candidates */
    return 2 * tables + vocab + (size_t)l->max_tokens * 6 * sizeof(int32_t) + (size_t)l->n_pages * 16;
}

int engine_measure(engine_memory *out, const nn_model *m, const engine_options *options, err *e) {
    engine g = { .model = m, .o = *options };
    *out = (engine_memory){ 0 };
    defaults(&g.o, m);
    g.n_ctx = g.o.n_ctx;
    g.page_bytes = page_bytes(m, &g.o);
    g.n_vocab = m->tape->bufs[m->tape->logits].width;
    nn_exec_options o = exec_options(&g);
    nn_exec        *x;
    o.plan_only = true;
    int rc = backend_cpu.open(&x, m, &o, e);
    if (rc < 0) return rc;
    out->n_ctx = g.n_ctx;
    out->page_tokens = g.o.page_tokens;
    out->full_sequences = o.limits.n_pages / o.limits.max_pages;
    out->pages_bytes = x->pages_bytes;
    for (int k = 0; k < x->groups.n; k++) {
        size_t bytes = x->backend->page_bytes(x, k);
        out->all_page_bytes += bytes;
        if (x->groups.window[k] == 0) {
            out->page_bytes += bytes;
            continue;
        }
        int behind = x->groups.window[k] < g.n_ctx ? x->groups.window[k] : g.n_ctx;
        out->window_bytes += (size_t)(behind / g.o.page_tokens + 2) * bytes;
    }
    out->slot_bytes = x->backend->slot_bytes(x);
    out->states_bytes = cache_states_bytes(x->pages_bytes, out->slot_bytes, g.o.cache_bytes);
    out->heap_bytes = x->heap_bytes + own_bytes(&g, x);
    nn_exec_free(x);
    return 0;
}

int engine_open(engine **out, const nn_model *m, const tok *t, const engine_options *options, err *e) {
    int rc;
    *out = NULL;
    engine *g = calloc(1, sizeof *g);
    if (!g) return err_set_nomem(e);
    g->model = m;
    g->tok = t;
    g->o = *options;
    defaults(&g->o, m);
    g->n_ctx = g->o.n_ctx;
    g->prompt_budget = g->o.step_tokens;
    g->piece_budget = first_piece(m, g->o.step_tokens);
    g->page_bytes = page_bytes(m, &g->o);
    if (g->o.cache_bytes && g->o.cache_bytes < g->page_bytes) {
        rc = err_set(e, ERR_LIMIT, "a cache of %zu bytes: one page of %d tokens takes %zu", g->o.cache_bytes,
                     g->o.page_tokens, g->page_bytes);
        free(g);
        return rc;
    }
    g->incoming_tail = &g->incoming;
    g->n_vocab = m->tape->bufs[m->tape->logits].width;
    g->n_hidden = m->tape->bufs[m->tape->hidden].width;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->wake, NULL);
    pthread_cond_init(&g->idle, NULL);
    nn_exec_options x = exec_options(g);
    cache_options   c = { .bytes = g->o.cache_bytes,
                          .host_bytes = g->o.host_cache_bytes,
                          .disk_dir = g->o.no_prefix_cache ? NULL : g->o.disk_cache_dir,
                          .disk_bytes = g->o.disk_cache_bytes };
    if ((rc = backend_cpu.open(&g->exec, m, &x, e)) < 0) goto fail;
    if ((rc = cache_open(&g->cache, g->exec, &c, e)) < 0) goto fail;
    if ((rc = open_batch(g, e)) < 0) goto fail;
    g->counts.pages_bytes = g->exec->pages_bytes;
    g->counts.heap_bytes = g->exec->heap_bytes + own_bytes(g, g->exec);
    g->stats = g->counts;
    if ((rc = guide_thread_init(&g->guides, e)) < 0) goto fail;
    /* Positions beyond what the cache can ever hold end an answer like a full context. */
    g->n_ctx_held = g->n_ctx;
    while (g->n_ctx_held > 0 && !cache_fits(&g->cache, g->n_ctx_held)) g->n_ctx_held--;
    g->busy = true;
    if (pthread_create(&g->thread, NULL, engine_main, g) != 0) {
        rc = err_set(e, ERR_NOMEM, "cannot start the engine's thread");
        goto fail;
    }
    g->started = true;
    *out = g;
    return 0;
fail:
    engine_free(g);
    return rc;
}

void engine_free(engine *g) {
    if (!g) return;
    if (g->started) {
        pthread_mutex_lock(&g->lock);
        g->stop = true;
        pthread_cond_signal(&g->wake);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    guide_thread_deinit(&g->guides);
    cache_close(&g->cache);
    nn_exec_free(g->exec);
    sampling_work_free(g->work);
    free(g->shares);
    free(g->running);
    free(g->slot_used);
    free(g->token);
    free(g->pos);
    free(g->seq_of);
    free(g->q_start);
    free(g->kv_len);
    free(g->slot);
    free(g->out_rows);
    free(g->hidden_rows);
    for (int k = 0; k < KV_MAX_GROUPS; k++) free(g->pages[k]);
    free(g->row);
    free(g->no_end_mask);
    free(g->mask);
    free(g->vector);
    free(g->orders);
    pthread_cond_destroy(&g->idle);
    pthread_cond_destroy(&g->wake);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* -- the way in
 * -------------------------------------------------------------------------------------------------------- */

static int check_guide(const engine_request *r, err *e) {
    const engine_guide *guide = r->guide;
    if (!guide) return 0;
    if (r->pooling != ENGINE_POOL_NONE) return err_set(e, ERR_ARG, "an embedding cannot be constrained");
    if (!guide->mask || !guide->accept || !guide->must_stop || !guide->free || (r->n_choices > 1 && !guide->clone))
        return err_set(e, ERR_ARG, "the guide lacks a function");
    return 0;
}

static int check_pooling(const engine_request *r, err *e) {
    if (r->pooling < ENGINE_POOL_NONE || r->pooling > ENGINE_POOL_LAST)
        return err_set(e, ERR_ARG, "pooling: there is no kind %d", (int)r->pooling);
    if (r->pooling != ENGINE_POOL_NONE && r->n_choices > 1)
        return err_set(e, ERR_ARG, "n: an embedding has one choice");
    return 0;
}

/* Refused at once: what can never fit, with the bytes that are missing. */
static int check_room(const engine *g, const engine_request *r, err *e) {
    size_t answer = r->pooling == ENGINE_POOL_NONE ? 1 : 0, P = (size_t)g->cache.page_tokens;
    if (r->n_tokens + answer > (size_t)g->n_ctx)
        return err_set(e, ERR_LIMIT, "the prompt has %zu tokens, the context holds %d%s", r->n_tokens, g->n_ctx,
                       answer ? " and needs room for an answer" : "");
    if (cache_fits(&g->cache, (int)(r->n_tokens + answer))) return 0;
    size_t need = (r->n_tokens + answer + P - 1) / P, has = (size_t)kv_pool_total(g->cache.pool, 0);
    return err_set(e, ERR_LIMIT,
                   "the prompt has %zu tokens and needs %zu bytes of cache; there are %zu, %zu are missing",
                   r->n_tokens, need * g->page_bytes, has * g->page_bytes, (need - has) * g->page_bytes);
}

static int check_request(const engine *g, const engine_request *r, err *e) {
    int rc;
    if (r->n_tokens == 0) return err_set(e, ERR_ARG, "the prompt is empty");
    if ((rc = check_room(g, r, e)) < 0) return rc;
    for (size_t i = 0; i < r->n_tokens; i++) {
        if (r->tokens[i] < 0 || r->tokens[i] >= g->n_vocab)
            return err_set(e, ERR_ARG, "token %zu of the prompt is %d; the vocabulary has %lld", i, r->tokens[i],
                           (long long)g->n_vocab);
    }
    if (r->n_top < 0 || r->n_top > 20) return err_set(e, ERR_ARG, "top_logprobs: %d is not between 0 and 20", r->n_top);
    if (r->n_choices > 128) return err_set(e, ERR_ARG, "n: %d is not between 1 and 128", r->n_choices);
    if (!r->on_event) return err_set(e, ERR_ARG, "a request needs a callback");
    if ((rc = check_guide(r, e)) < 0) return rc;
    return check_pooling(r, e);
}

static void free_list(sequence *list) {
    while (list) {
        sequence *next = list->next;
        if (list->choice == 0) list->guide.guide = NULL; /* the caller's still */
        sequence_free(list);
        list = next;
    }
}

int engine_submit(engine *g, const engine_request *r, uint64_t *id, err *e) {
    job           *j = NULL;
    sequence      *list = NULL;
    sequence_shape shape = { &g->cache, g->tok, g->n_ctx_held, g->n_vocab, g->n_hidden };
    int            rc = check_request(g, r, e);
    if (rc < 0 || (rc = job_open(&j, r, e)) < 0) return rc;
    j->r.no_cache = j->r.no_cache || g->o.no_prefix_cache;
    j->r.sampling.bias = r->sampling.bias;
    j->r.sampling.dry_breakers = r->sampling.dry_breakers;
    for (int i = j->r.n_choices - 1; i >= 0; i--) {
        sequence *s;
        if ((rc = sequence_open(&s, j, i, &shape, e)) < 0) break;
        s->next = list;
        list = s;
    }
    j->r.sampling.bias = NULL;
    j->r.sampling.dry_breakers = NULL;
    if (rc == 0) {
        pthread_mutex_lock(&g->lock);
        if (g->stop) {
            rc = err_set(e, ERR_CANCELLED, "the engine is closing");
        } else if (!queue_takes(g, j)) {
            rc = err_set(e, ERR_BUSY, "the queue is full: %d requests are waiting", g->n_queued);
        } else {
            *id = j->id = ++g->next_id;
            j->n_open = j->r.n_choices;
            g->n_queued += j->r.n_choices;
            *queued_of(g, j) += j->r.n_choices;
            double now = engine_now();
            for (sequence *s = list; s; s = s->next) {
                s->order = j->id;
                s->submitted_at = now;
            }
            *g->incoming_tail = list;
            while (*g->incoming_tail) g->incoming_tail = &(*g->incoming_tail)->next;
            list = NULL;
            g->busy = true;
            pthread_cond_signal(&g->wake);
        }
        pthread_mutex_unlock(&g->lock);
    }
    if (rc < 0) {
        free_list(list);
        job_free(j);
    }
    return rc;
}

static void give_order(engine *g, order o) {
    pthread_mutex_lock(&g->lock);
    if (g->busy && g->n_orders == g->cap_orders) {
        size_t cap = g->cap_orders ? g->cap_orders * 2 : 16;
        order *grown = realloc(g->orders, cap * sizeof *grown);
        if (grown) {
            g->orders = grown;
            g->cap_orders = cap;
        }
    }
    if (g->busy && g->n_orders < g->cap_orders) g->orders[g->n_orders++] = o; /* out of memory: all goes on as it is */
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

void engine_cancel(engine *g, uint64_t id) { give_order(g, (order){ id, ORDER_CANCEL }); }

void engine_pause(engine *g, uint64_t id) { give_order(g, (order){ id, ORDER_PAUSE }); }

void engine_resume(engine *g, uint64_t id) { give_order(g, (order){ id, ORDER_RESUME }); }

void engine_wait_idle(engine *g) {
    pthread_mutex_lock(&g->lock);
    while (g->busy) pthread_cond_wait(&g->idle, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void engine_stat(engine *g, engine_stats *out) {
    pthread_mutex_lock(&g->lock);
    *out = g->stats;
    pthread_mutex_unlock(&g->lock);
}

int engine_context(const engine *g) { return g->n_ctx; }

int64_t engine_vocab(const engine *g) { return g->n_vocab; }

int engine_embedding_size(const engine *g) { return (int)g->n_hidden; }

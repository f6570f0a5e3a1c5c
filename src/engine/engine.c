/* SPDX-License-Identifier: Apache-2.0 */
/* The engine thread, orders, questions. */
#include "engine/engine.h"

#include "base/noalloc.h"
#include "engine/draft_exec.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* --- the thread -------------------------------------------------------------------------------------------------- */

static void apply(sequence *s, const order *o) {
    if (s->request->id != o->id) return;
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
    if (rest) step_tell(g);
    pthread_mutex_lock(&g->lock);
    if (idle && !g->incoming && !g->stop) {
        g->busy = false;
        pthread_cond_broadcast(&g->idle);
    }
    /* An order to an idle engine is for nobody, and is not kept. */
    while (rest && !g->incoming && !g->stop && g->n_orders == 0) pthread_cond_wait(&g->wake, &g->lock);
    g->busy = true;
    if (rest) g->step_end = 0;
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
    for (int i = 0; i < g->n_shares; i++) pieces += g->shares[i].decodes ? 0 : g->shares[i].n;
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

/* Under the lock: how much waits. */
static void publish_queue(engine *g) {
    g->stats.waiting = g->stats.paused = g->n_queued = 0;
    g->stats.running = g->n_running;
    memset(g->queued_of, 0, sizeof g->queued_of);
    for (const sequence *s = g->waiting; s; s = s->next, g->stats.waiting++) {
        g->n_queued++;
        g->stats.paused += s->paused;
        (*engine_queued_of(g, s->request))++;
    }
    for (int i = 0; i < g->n_running; i++) g->stats.paused += g->running[i]->paused;
    for (const sequence *s = g->incoming; s; s = s->next) {
        g->n_queued++;
        (*engine_queued_of(g, s->request))++;
    }
}

void engine_publish(engine *g) {
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

/* The device is gone, and with it every page: nobody here can be answered any more. */
static void lose_device(engine *g, const err *why) {
    pthread_mutex_lock(&g->lock);
    g->lost = *why;
    pthread_mutex_unlock(&g->lock);
    while (g->n_running > 0) step_fail(g, g->running[g->n_running - 1], why);
    while (g->waiting) {
        sequence *s = g->waiting;
        g->waiting = s->next;
        step_fail(g, s, why);
    }
}

/* The requests of a failed step end with its reason. Whatever it wrote lies behind what the cache knows. */
static void fail_step(engine *g, const err *why) {
    g->counts.failed_steps++;
    if (why->code == ERR_LOST) {
        lose_device(g, why);
        return;
    }
    for (int i = 0; i < g->n_shares; i++) step_fail(g, g->shares[i].s, why);
}

/* The step went well, but then the device was gone before all of its rows were fetched. */
static err lost_since(const engine *g) {
    for (int i = 0; i < g->n_shares; i++) {
        if (g->shares[i].failed && g->shares[i].s->error.code == ERR_LOST) return g->shares[i].s->error;
    }
    return (err){ 0 };
}

/* What remains of a step that went well. */
static void settle(engine *g) {
    err lost = lost_since(g);
    step_settle(g);
    if (lost.code) lose_device(g, &lost);
}

static void batch(engine *g, bool begins) {
    g->framed = begins;
    if (g->o.on_batch) g->o.on_batch(g->o.batch_ctx, begins);
}

static bool generates_only(const engine *g) {
    for (int i = 0; i < g->n_shares; i++) {
        if (!g->shares[i].decodes) return false;
    }
    return true;
}

/* The time since the last step ended: a part of it the device had nothing to do. */
static void account(engine *g, double begin, double started, double last) {
    double idle = g->exec->idle_s, wall = g->step_end - (last > 0 ? last : begin);
    if (last <= 0)
        idle = started - begin;
    else if (idle < 0 || idle > wall)
        idle = started - last;
    g->counts.step_s += wall - idle;
    if (last > 0) g->counts.between_s += idle;
}

/* How long the step waited for experts. A shorter piece of a prompt would not have waited less: it uses nearly as many. */
static double waited_for_experts(engine *g) {
    const nn_streaming *s = g->exec->streaming;
    double              before = g->counts.experts.wait_s;
    if (s) g->counts.experts = *s;
    return g->counts.experts.wait_s - before;
}

/* b NULL: the step was started before. */
static int run_step(engine *g, const nn_batch *b, ahead_step *step, err *e) {
    bool   gpu = g->device.kind == NN_DEVICE_GPU;
    double begin = clock_s(), cost = draft_clock(gpu), last = g->step_end;
    int    rc = b ? g->backend->submit(g->exec, b, &step->ticket, e) : 0;
    double started = gpu ? clock_s() : begin;
    if (rc == 0) ahead_start(g);
    step_tell(g);
    if (rc == 0) rc = ahead_wait(g, step, e);
    if (rc < 0) return rc;
    g->step_end = clock_s();
    cost = draft_clock(gpu) - cost;
    account(g, begin, started, last);
    double waited = waited_for_experts(g);
    if (!gpu) cost += waited; /* rows of a draft use experts of their own */
    adapt(g, g->step_end - begin - waited, step->n_tok);
    bool     plain = generates_only(g);
    uint64_t tokens = g->counts.tokens_generated;
    if (plain && b) depth_measure(&g->spec.costs, b->n_tok, cost);
    g->counts.steps++;
    batch(g, true);
    step_results(g);
    if (plain) speculate_account(g, step->n_tok, (int)(g->counts.tokens_generated - tokens));
    return 0;
}

void *engine_main(void *arg) {
    engine *g = arg;
    while (take_incoming(g)) {
        nn_batch   b;
        err        e = { 0 };
        ahead_step step = { 0 };
        drop_cancelled(g, false);
        schedule_admit(g);
        schedule_make_room(g);
        if (!g->ahead.under_way) speculate_plan(g);
        pthread_mutex_lock(&g->lock);
        publish_queue(g);
        pthread_mutex_unlock(&g->lock);
        noalloc_begin();
        bool taken = ahead_take(g, &step), work = taken || schedule_batch(g, &b);
        if (work && !taken) step.n_tok = b.n_tok;
        int rc = work ? run_step(g, taken ? NULL : &b, &step, &e) : 0;
        if (!work) step_tell(g);
        noalloc_end();
        if (rc < 0)
            fail_step(g, &e);
        else if (work)
            settle(g);
        if (work) batch(g, false);
        engine_publish(g);
    }
    drop_cancelled(g, true);
    engine_publish(g);
    return NULL;
}

/* --- orders and questions --------------------------------------------------------------------------------------- */

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
    if (g->exec->bytes_read) out->experts.bytes = atomic_load_explicit(g->exec->bytes_read, memory_order_relaxed);
}

int engine_context(const engine *g) { return g->n_ctx; }
int engine_sequences(const engine *g) { return g->o.max_seqs; }

int64_t engine_vocab(const engine *g) { return g->n_vocab; }

bool engine_generates(const engine *g) { return g->model->tape->logits != 0; }

int engine_embedding_size(const engine *g) { return (int)g->n_hidden; }

int engine_input_size(const engine *g) { return (int)g->n_input; }

/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an engine, and saying beforehand what it would take. */
#include "backend/backend.h"
#include "base/num.h"
#include "base/page.h"
#include "engine/internal.h"
#include "nn/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STREAMED_TOKENS = 1024,  /* of a step that reads nearly all experts of a prompt from disk, whatever its length */
    SHORT_CONTEXT = 8192,    /* has room wherever nobody chose */
    CONTEXT_STEP = 4096,     /* of contexts that the room decides */
    WHOLE_TOKENS = 1024,     /* of a step of inputs that come whole: short ones go together */
    SCORED_BYTES = 32 << 20, /* of logits that a step may leave beyond those it needs; a GPU's steps are eight times as
                                long */
};

/* How many sequences compute at once, where nobody says. A GPU's step of many takes little longer than one of few; a fixed
 * state takes device memory for every one of them. */
static int usual_seqs(const nn_model *m, nn_device_kind kind) {
    if (kind != NN_DEVICE_GPU) return 16;
    for (int i = 0; i < m->dims->n_layer; i++) {
        if (m->state[i].rec_heads) return 32;
    }
    return 128;
}

static void defaults(engine_options *o, const nn_model *m, nn_device_kind kind) {
    if (o->n_ctx <= 0) o->n_ctx = m->dims->context > 0 ? m->dims->context : 4096;
    if (nn_model_whole(m)) { /* an input is one step, and a position behind the trained ones has no meaning */
        if (m->dims->context > 0 && o->n_ctx > m->dims->context) o->n_ctx = m->dims->context;
        if (o->step_tokens < WHOLE_TOKENS) o->step_tokens = WHOLE_TOKENS;
        if (o->step_tokens < o->n_ctx) o->step_tokens = o->n_ctx;
    }
    if (m->dims->limit > 0 && o->n_ctx > m->dims->limit) o->n_ctx = m->dims->limit;
    if (o->page_tokens <= 0) o->page_tokens = PAGE_TOKENS;
    if (o->max_seqs <= 0) o->max_seqs = usual_seqs(m, kind);
    if (o->max_seqs > 1024) o->max_seqs = 1024;
    if (o->step_tokens <= 0) o->step_tokens = kind == NN_DEVICE_GPU ? 2048 : o->expert_bytes ? STREAMED_TOKENS : 256;
    int least = o->span_tokens ? o->span_tokens + o->max_seqs + speculate_most_rows(o) : o->max_seqs;
    if (o->step_tokens < least) o->step_tokens = least;
    if (o->max_waiting <= 0) o->max_waiting = 1024;
}

/* Which device; options.backend stands in front of the table. */
static int choose_device(engine *g, err *e) {
    if (!g->o.backend) return backend_find(g->o.device, &g->backend, &g->device, e);
    g->backend = g->o.backend;
    if (g->backend->devices(&g->device, 1) == 1) return 0;
    return err_set(e, ERR_NOTFOUND, "the %s backend has no device", g->backend->name);
}

static int pages_of(const engine_options *o, int positions) {
    return (int)(((int64_t)positions + o->page_tokens - 1) / o->page_tokens);
}

static int pages_for(const engine *g) {
    const engine_options *o = &g->o;
    int                   per_seq = pages_of(o, o->n_ctx);
    if (g->whole) return per_seq * o->max_seqs; /* numbers without bytes */
    if (o->cache_bytes == 0) return g->room_pages ? g->room_pages : 2 * per_seq + o->max_seqs;
    size_t pages = g->page_bytes ? o->cache_bytes / g->page_bytes : (size_t)(2 * per_seq);
    return pages > INT32_MAX / 2 ? INT32_MAX / 2 : (int)pages;
}

/* The first piece of a prompt: before anything was measured a slow machine's second is assumed. */
static int first_piece(const nn_model *m, int step_tokens, nn_device_kind kind) {
    if (kind == NN_DEVICE_GPU) return step_tokens;
    double layer = 4.0 * m->dims->n_embd * m->dims->n_embd + 3.0 * m->dims->n_embd * m->dims->n_ff;
    double fits = 4e11 / (2.0 * layer * m->dims->n_layer + 1);
    return fits < step_tokens ? (int)num_max(4, (int64_t)fits) : step_tokens;
}

static int open_batch(engine *g, err *e) {
    size_t tokens = (size_t)g->o.step_tokens, seqs = (size_t)g->o.max_seqs;
    size_t slots = seqs + (size_t)speculate_twins(g);
    bool   ok = true;
    ok = (g->shares = calloc(seqs, sizeof *g->shares)) && ok;
    ok = (g->running = calloc(seqs + 1, sizeof *g->running)) && ok;
    ok = (g->slot_used = calloc(slots, sizeof *g->slot_used)) && ok;
    ok = (g->sets = calloc(seqs + 1, sizeof *g->sets)) && ok;
    ok = (g->token = calloc(tokens, sizeof *g->token)) && ok;
    ok = (g->pos = calloc(tokens, sizeof *g->pos)) && ok;
    ok = (g->seq_of = calloc(tokens, sizeof *g->seq_of)) && ok;
    ok = (g->q_start = calloc(seqs + 1, sizeof *g->q_start)) && ok;
    ok = (g->kv_len = calloc(seqs, sizeof *g->kv_len)) && ok;
    ok = (g->slot = calloc(seqs, sizeof *g->slot)) && ok;
    ok = (g->out_rows = calloc(tokens, sizeof *g->out_rows)) && ok;
    ok = (g->adapter = calloc(tokens, sizeof *g->adapter)) && ok;
    ok = (g->row_begin = calloc(tokens, sizeof *g->row_begin)) && ok;
    ok = (g->row_end = calloc(tokens, sizeof *g->row_end)) && ok;
    ok = (g->segment = calloc(tokens, sizeof *g->segment)) && ok;
    ok = (g->embd = calloc(tokens, sizeof *g->embd)) && ok;
    ok = (g->axes = calloc(tokens * ENGINE_AXES, sizeof *g->axes)) && ok;
    ok = (g->hidden_rows = calloc(tokens, sizeof *g->hidden_rows)) && ok;
    for (int k = 0; k < g->cache.n_groups; k++)
        ok = (g->pages[k] = calloc(seqs * (size_t)g->cache.max_pages, sizeof *g->pages[k])) && ok;
    ok = (g->row = calloc((size_t)num_max(g->n_vocab, g->n_hidden), sizeof *g->row)) && ok;
    ok = (g->no_end_mask = calloc(((size_t)g->n_vocab + 31) / 32, sizeof *g->no_end_mask)) && ok;
    ok = (g->mask = calloc(((size_t)g->n_vocab + 31) / 32, sizeof *g->mask)) && ok;
    ok = (g->told_late = calloc(seqs, sizeof(*g->told_late))) && ok;
    ok = (g->late_events = calloc(seqs, sizeof *g->late_events)) && ok;
    if (g->backend->sample) ok = (g->windows = calloc(seqs * ENGINE_WINDOW, sizeof *g->windows)) && ok;
    ok = (g->asks = calloc(seqs, sizeof *g->asks)) && ok;
    ok = (g->ask_rows = calloc(seqs, sizeof *g->ask_rows)) && ok;
    ok = (g->picks = calloc(seqs, sizeof *g->picks)) && ok;
    if (g->backend->sample) ok = (g->window = calloc((size_t)num_min(g->n_vocab, g->n_ctx), sizeof *g->window)) && ok;
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

/* One row per sequence and those of drafts; more where that takes little, for prompts that are scored: each of their
 * tokens has a row, and a piece of few rows reads all weights as a long one does. */
static int most_logits(const engine *g) {
    int64_t needed = g->o.max_seqs + speculate_rows(g), row = (int64_t)sizeof(float) * num_max(g->n_vocab, 1);
    int64_t fits = (int64_t)SCORED_BYTES * (g->device.kind == NN_DEVICE_GPU ? 8 : 1) / row;
    return (int)num_max(needed, num_min(fits, g->o.step_tokens));
}

static nn_exec_options exec_options(const engine *g, int n_pages) {
    return (nn_exec_options){ .limits = { .max_tokens = g->o.step_tokens,
                                          .max_seqs = g->o.max_seqs,
                                          .max_outputs = g->o.step_tokens,
                                          .max_logits = most_logits(g),
                                          .page_tokens = g->o.page_tokens,
                                          .max_pages = (g->n_ctx + g->o.page_tokens - 1) / g->o.page_tokens,
                                          .n_pages = n_pages,
                                          .n_slots = g->o.max_seqs + speculate_twins(g) },
                              .k_type = g->o.k_type,
                              .v_type = g->o.v_type,
                              .precise_layers = g->o.precise_layers,
                              .k_open = g->o.k_open,
                              .n_threads = g->o.n_threads,
                              .cpu = g->o.cpu,
                              .expert_bytes = g->o.expert_bytes };
}

/* What the batch, the masks, the sampler and one sequence's tables take beside the executor. */
static size_t own_bytes(const engine *g, const nn_limits *l, int n_groups) {
    size_t tables = (size_t)l->max_seqs * (size_t)l->max_pages * sizeof(int32_t) * (size_t)n_groups;
    size_t vocab = (size_t)g->n_vocab * (sizeof(float) + 2 * sizeof(sampling_logprob)); /* the row and its candidates */
    size_t drafts = speculate_any(&g->o) && !g->whole ? draft_lookup_bytes(l->max_seqs, g->n_ctx) : 0;
    return drafts + 2 * tables + vocab + (size_t)l->max_tokens * 7 * sizeof(int32_t) + (size_t)l->n_pages * 16;
}

/* A model that drafts beside the engine's own, and the executor that it gets. */
typedef struct helper {
    const nn_model *model;
    nn_exec_options options;
    size_t          own_bytes; /* of host memory, beside the executor */
} helper;

static int helpers_of(const engine *g, int n_pages, helper out[2]) {
    int               n = 0;
    draft_model_shape s = speculate_draft_shape(g, n_pages), next = draft_next_shape(s);
    if (speculate_asks_model(g)) out[n++] = (helper){ g->o.draft_model, draft_model_options(&s), 0 };
    if (speculate_asks_head(g))
        out[n++] = (helper){ g->o.next->model, draft_model_options(&next), draft_next_bytes(g->o.next, &s) };
    return n;
}

/* What drafters store of a page's positions comes out of the same budget. */
static int add_draft_pages(engine *g, err *e) {
    nn_memory m;
    helper    all[2];
    int       n = helpers_of(g, 1, all), rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = draft_model_check(all[i].model, e);
        if (rc == 0) rc = g->backend->measure(&m, &g->device, all[i].model, &all[i].options, e);
        for (int k = 0; k < NN_MAX_GROUPS && rc == 0; k++) g->page_bytes += m.page_bytes[k];
    }
    return rc;
}

int engine_page_bytes(engine *g, nn_memory *one, err *e) {
    nn_exec_options x = exec_options(g, 1);
    int             rc = g->backend->measure(one, &g->device, g->model, &x, e);
    g->page_bytes = 0;
    for (int k = 0; rc == 0 && k < NN_MAX_GROUPS; k++) g->page_bytes += one->page_bytes[k];
    return rc == 0 ? add_draft_pages(g, e) : rc;
}

/* What was asked for; else half of what a device with memory of its own has beside the weights, or what the caller said. */
size_t engine_cache_room(const engine *g, const nn_memory *m) {
    if (g->o.cache_bytes) return g->o.cache_bytes;
    uint64_t total = g->device.total_bytes / 10 * 9;
    if (g->device.kind != NN_DEVICE_GPU || !total || !g->o.cache_room) return g->o.cache_room;
    return total > m->weights_bytes ? (size_t)((total - m->weights_bytes) / 2) : 0;
}

/* Nobody said how long a sequence may be: the model's own length, as far as pages for one reach; pages for a second one
 * where there is room. */
static void bound_context(engine *g, const nn_memory *m) {
    engine_options *o = &g->o;
    size_t          bytes = engine_cache_room(g, m);
    int             shortest = o->n_ctx < SHORT_CONTEXT ? o->n_ctx : SHORT_CONTEXT;
    if (!g->page_bytes) return;
    int64_t held = (int64_t)num_min((int64_t)(bytes / g->page_bytes), INT32_MAX / 4);
    int64_t spare = o->cache_bytes ? 1 : o->max_seqs;
    int64_t fits = (held - spare) * o->page_tokens;
    if (fits < o->n_ctx) o->n_ctx = (int)num_max(fits / CONTEXT_STEP * CONTEXT_STEP, shortest);
    int per_seq = pages_of(o, o->n_ctx), least = pages_of(o, shortest);
    if (!o->cache_bytes)
        g->room_pages = (int)num_min(num_max(held, num_max(per_seq, 2 * least) + spare), 2 * per_seq + spare);
    g->n_ctx = o->n_ctx;
}

/* What of an executor does not lie in the machine's own memory. */
static void add_beside(device_memory *to, const nn_memory *m, const nn_device *d) {
    if (d->divided)
        (void)device_memory_add_all(to, &m->beside);
    else if (d->kind == NN_DEVICE_GPU)
        (void)device_memory_add(to, d->id, m->pages_bytes + m->heap_bytes + m->weights_bytes);
}

/* And what they take beside them. */
static int measure_drafts(engine_memory *out, const engine *g, int n_pages, err *e) {
    nn_memory m;
    helper    all[2];
    int       n = helpers_of(g, n_pages, all), rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        if ((rc = g->backend->measure(&m, &g->device, all[i].model, &all[i].options, e)) < 0) break;
        for (int k = 0; k < NN_MAX_GROUPS; k++) {
            out->page_bytes += m.page_bytes[k];
            out->all_page_bytes += m.page_bytes[k];
        }
        out->pages_bytes += m.pages_bytes;
        out->device_bytes += m.heap_bytes;
        out->weights_bytes += m.weights_bytes;
        add_beside(&out->beside, &m, &g->device);
        out->mapped_bytes += m.mapped_bytes;
        out->heap_bytes += all[i].own_bytes;
    }
    return rc;
}

/* The part of opening that takes nothing: device, sizes, how many pages there will be. */
static int plan(engine *g, const nn_model *m, const engine_options *options, err *e) {
    nn_memory one;
    int       rc;
    g->model = m;
    g->o = *options;
    if ((rc = choose_device(g, e)) < 0) return rc;
    defaults(&g->o, m, g->device.kind);
    g->n_ctx = g->o.n_ctx;
    g->n_vocab = m->tape->logits ? m->tape->bufs[m->tape->logits].width : m->dims->n_vocab;
    g->whole = nn_model_whole(m);
    g->n_hidden = m->tape->bufs[m->tape->hidden].width;
    g->n_input = m->tape->bufs[m->tape->ops[0].out].width * m->tape->n_parts;
    if ((rc = engine_choose_kv(g, &one, e)) < 0) return rc;
    if (g->o.cache_bytes && g->o.cache_bytes < g->page_bytes)
        return err_set(e, ERR_LIMIT, "a cache of %zu bytes: one page of %d tokens takes %zu", g->o.cache_bytes,
                       g->o.page_tokens, g->page_bytes);
    if (options->n_ctx <= 0) bound_context(g, &one);
    return 0;
}

int engine_measure(engine_memory *out, const nn_model *m, const engine_options *options, err *e) {
    engine    g = { 0 };
    nn_groups groups;
    nn_memory x;
    arena     mem;
    int       rc;
    *out = (engine_memory){ 0 };
    if ((rc = plan(&g, m, options, e)) < 0) return rc;
    nn_exec_options o = exec_options(&g, pages_for(&g));
    if ((rc = g.backend->measure(&x, &g.device, m, &o, e)) < 0) return rc;
    arena_init(&mem, 0);
    if ((rc = nn_groups_make(&groups, m, &mem, e)) == 0) {
        out->n_ctx = g.n_ctx;
        out->page_tokens = g.o.page_tokens;
        out->full_sequences = o.limits.n_pages / o.limits.max_pages;
        out->pages_bytes = x.pages_bytes;
        for (int k = 0; k < groups.n; k++) {
            out->all_page_bytes += x.page_bytes[k];
            if (groups.window[k] == 0) {
                out->page_bytes += x.page_bytes[k];
                continue;
            }
            int behind = groups.window[k] < g.n_ctx ? groups.window[k] : g.n_ctx;
            out->window_bytes += (size_t)(behind / g.o.page_tokens + 2) * x.page_bytes[k];
        }
        out->slot_bytes = x.slot_bytes;
        out->states_bytes = cache_states_bytes(x.pages_bytes, out->slot_bytes, g.o.cache_bytes);
        out->device_bytes = x.heap_bytes;
        out->weights_bytes = x.weights_bytes;
        out->heap_bytes = own_bytes(&g, &o.limits, groups.n);
        snprintf(out->device, sizeof out->device, "%s", g.device.id);
        add_beside(&out->beside, &x, &g.device);
        out->mapped_bytes = x.mapped_bytes;
        out->experts = x.experts;
    }
    arena_deinit(&mem);
    if (rc == 0) rc = measure_drafts(out, &g, o.limits.n_pages, e);
    return rc;
}

static int open_parts(engine *g, err *e) {
    int             rc;
    nn_exec_options x = exec_options(g, pages_for(g));
    cache_options   c = { .bytes = g->o.cache_bytes,
                          .host_bytes = g->o.host_cache_bytes,
                          .disk_dir = g->o.no_prefix_cache ? NULL : g->o.disk_cache_dir,
                          .disk_bytes = g->o.disk_cache_bytes };
    if ((rc = g->backend->open(&g->exec, &g->device, g->model, &x, e)) < 0) return rc;
    if ((rc = cache_open(&g->cache, g->exec, &c, e)) < 0) return rc;
    if ((rc = open_batch(g, e)) < 0) return rc;
    if ((rc = speculate_open(g, x.limits.n_pages, e)) < 0 || (rc = ahead_open(g, e)) < 0) return rc;
    if (g->exec->streaming) g->counts.experts = *g->exec->streaming;
    g->counts.pages_bytes = g->exec->memory.pages_bytes;
    g->counts.heap_bytes = g->exec->memory.heap_bytes + own_bytes(g, &x.limits, g->exec->groups.n);
    /* Positions beyond what the cache can ever hold end an answer like a full context. */
    g->n_ctx_held = g->n_ctx;
    while (g->n_ctx_held > 0 && !cache_fits(&g->cache, g->n_ctx_held)) g->n_ctx_held--;
    return mask_thread_init(&g->guides, e);
}

int engine_open(engine **out, const nn_model *m, const tok *t, const engine_options *options, err *e) {
    int rc;
    *out = NULL;
    engine *g = calloc(1, sizeof *g);
    if (!g) return err_set_nomem(e);
    g->tok = t;
    g->incoming_tail = &g->incoming;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->wake, NULL);
    pthread_cond_init(&g->idle, NULL);
    if ((rc = plan(g, m, options, e)) < 0 || (rc = open_parts(g, e)) < 0) goto fail;
    engine_publish(g); /* an engine that has not been asked anything has its pages, too */
    g->prompt_budget = g->o.step_tokens;
    g->late = g->o.late || g->device.kind == NN_DEVICE_GPU;
    g->piece_budget = first_piece(m, g->o.step_tokens, g->device.kind);
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
    mask_thread_deinit(&g->guides);
    speculate_close(g);
    ahead_close(g);
    cache_close(&g->cache);
    nn_exec_free(g->exec);
    sampling_work_free(g->work);
    free(g->shares);
    free(g->running);
    free(g->slot_used);
    free(g->sets);
    free(g->token);
    free(g->pos);
    free(g->seq_of);
    free(g->q_start);
    free(g->kv_len);
    free(g->slot);
    free(g->out_rows);
    free(g->hidden_rows);
    free(g->adapter);
    free(g->row_begin);
    free(g->row_end);
    free(g->segment);
    free(g->embd);
    free(g->axes);
    for (int k = 0; k < KV_MAX_GROUPS; k++) free(g->pages[k]);
    free(g->row);
    free(g->no_end_mask);
    free(g->mask);
    free(g->vector);
    free(g->window);
    free(g->windows);
    free(g->asks);
    free(g->told_late);
    free(g->late_events);
    free(g->ask_rows);
    free(g->picks);
    free(g->orders);
    pthread_cond_destroy(&g->idle);
    pthread_cond_destroy(&g->wake);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

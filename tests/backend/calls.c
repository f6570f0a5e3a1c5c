/* SPDX-License-Identifier: Apache-2.0 */
/* The calls around a step: measure and open agree, options are checked, tickets are known, rows lie within the batch.
 */
#include "backend/gen.h"
#include "backend/world.h"

#include <stdlib.h>
#include <string.h>

static void measures(suite *s, const nn_model *m, const world *w) {
    nn_memory        mem = { 0 };
    const nn_memory *is = &w->x->memory;
    err              e = { 0 };
    FACT(s, s->backend->measure(&mem, &s->device, m, &w->o, &e) == 0, "measure: %s", e.msg);
    for (int g = 0; g < NN_MAX_GROUPS; g++)
        FACT(s, mem.page_bytes[g] == is->page_bytes[g], "a page of group %d: measured %zu bytes, opened with %zu", g,
             mem.page_bytes[g], is->page_bytes[g]);
    FACT(s, mem.slot_bytes == is->slot_bytes, "a slot: measured %zu bytes, opened with %zu", mem.slot_bytes,
         is->slot_bytes);
    FACT(s, mem.pages_bytes == is->pages_bytes && mem.heap_bytes == is->heap_bytes,
         "measured %zu and %zu bytes, opened with %zu and %zu", mem.pages_bytes, mem.heap_bytes, is->pages_bytes,
         is->heap_bytes);
    FACT(s, mem.weights_bytes == is->weights_bytes, "weights: measured %zu bytes, opened with %zu", mem.weights_bytes,
         is->weights_bytes);
    size_t pages = 0;
    bool   fixed = false, stored = false;
    for (int g = 0; g < w->x->groups.n; g++) pages += is->page_bytes[g] * (size_t)w->o.limits.n_pages;
    for (int i = 0; i < m->dims->n_layer; i++) {
        fixed = fixed || m->state[i].conv_channels || m->state[i].rec_heads;
        stored = stored || m->state[i].kind != NN_STATE_NONE;
    }
    FACT(s, pages == is->pages_bytes, "the pages are %zu bytes in sum, pages_bytes says %zu", pages, is->pages_bytes);
    FACT(s, (is->slot_bytes > 0) == fixed && (pages > 0) == stored, "%zu bytes of pages, %zu of a slot", pages,
         is->slot_bytes);
}

static void describes_itself(suite *s, const nn_model *m, const world *w) {
    const nn_exec *x = w->x;
    FACT(s, x->backend == s->backend && x->model == m && strcmp(x->device.id, s->device.id) == 0,
         "the executor names another backend, model or device");
    FACT(s, x->options.end_op == m->tape->n_ops && x->options.limits.n_pages == w->o.limits.n_pages,
         "the executor has other options");
}

static void refuses_options(suite *s, const nn_model *m, const nn_exec_options *good) {
    for (int i = 0; i < 9; i++) {
        nn_exec_options o = *good;
        nn_exec        *x = NULL;
        nn_memory       mem;
        err             e = { 0 };
        int             n = m->tape->n_ops;
        int *const      zero[] = { &o.limits.max_tokens,  &o.limits.max_seqs,  &o.limits.max_outputs,
                                   &o.limits.page_tokens, &o.limits.max_pages, &o.limits.n_pages };
        if (i < 6) *zero[i] = 0;
        if (i == 6) o.end_op = n + 1;
        if (i == 7) o.first_op = n, o.end_op = n;
        if (i == 8) o.k_type = NN_KV_TYPE_COUNT;
        int rc = s->backend->open(&x, &s->device, m, &o, &e);
        FACT(s, rc == ERR_ARG && !x && e.msg[0], "bad options %d: open gives %d, \"%s\"", i, rc, e.msg);
        rc = s->backend->measure(&mem, &s->device, m, &o, &e);
        FACT(s, rc == ERR_ARG, "bad options %d: measure gives %d", i, rc);
        nn_exec_free(x);
    }
}

static void refuses_tickets(suite *s, world *w, nn_ticket last) {
    const nn_ticket bad[] = { 0, last + 1, last + 1000, UINT64_MAX };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err e = { 0 };
        int rc = w->x->backend->wait(w->x, bad[i], &e);
        FACT(s, rc == ERR_ARG && e.msg[0], "ticket %llu: %d, \"%s\"", (unsigned long long)bad[i], rc, e.msg);
    }
}

static void refuses_rows(suite *s, world *w, float *room) {
    for (int k = 0; k < 2; k++) {
        nn_fetch_what what = k ? NN_FETCH_HIDDEN : NN_FETCH_LOGITS;
        int64_t       rows = k ? w->batch.n_out : w->batch.n_out - w->batch.n_hidden;
        const int64_t bad[][2] = { { -1, 1 },   { 0, -1 },        { 0, rows + 1 },  { rows, 1 },
                                   { 1, rows }, { INT64_MAX, 1 }, { 1, INT64_MAX }, { rows + 1, 0 } };
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            err e = { 0 };
            int rc = w->x->backend->fetch(w->x, what, bad[i][0], bad[i][1], room, &e);
            FACT(s, rc == ERR_ARG && e.msg[0], "rows %lld and %lld more of %lld: %d, \"%s\"", (long long)bad[i][0],
                 (long long)bad[i][1], (long long)rows, rc, e.msg);
        }
        FACT(s, w->x->backend->fetch(w->x, what, rows, 0, room, NULL) == 0, "no rows at the end");
    }
}

static void check_model(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(2 * sizeof *w), *other = w + 1;
    nn_exec        *x = NULL;
    nn_ticket       last = 0, ticket = 0;
    err             e = { 0 };
    trace           t;
    if (!w) exit(1);
    refuses_options(s, m, &o);
    if (!world_open(w, s, m, &o)) {
        free(w);
        return;
    }
    measures(s, m, w);
    describes_itself(s, m, w);
    trace_init(&t, m);
    float *room = calloc((size_t)(WORLD_TOKENS * (t.n_vocab + t.n_hidden)), sizeof *room);
    /* Two executors in turns: neither knows of the other. */
    if (room && FACT(s, s->backend->open(&x, &s->device, m, &o, &e) == 0, "open: %s", e.msg)) {
        world_copy(other, w, x);
        for (bool more = true; more;) {
            more = false;
            for (int k = 0; k < 2; k++) {
                world *now = k ? other : w;
                if (!world_random_batch(now, false)) continue;
                more = true;
                int rc = now->x->backend->submit(now->x, &now->batch, &ticket, &e);
                if (rc == 0) rc = now->x->backend->wait(now->x, ticket, &e);
                if (!FACT(s, rc == 0, "step: %s", e.msg)) break;
                trace_take(&t, now, "in turns");
                if (k) continue;
                FACT(s, ticket > last, "ticket %llu after %llu", (unsigned long long)ticket, (unsigned long long)last);
                last = ticket;
                refuses_tickets(s, w, last);
                refuses_rows(s, w, room);
            }
        }
        world_close(other);
    }
    free(room);
    trace_deinit(&t);
    world_close(w);
    free(w);
}

static void lists_devices(suite *s) {
    nn_device d[NN_MAX_DEVICES];
    int       n = s->backend->devices(d, NN_MAX_DEVICES);
    bool      found = false;
    for (int i = 0; i < n; i++) {
        found = found || strcmp(d[i].id, s->device.id) == 0;
        FACT(s, d[i].id[0] && d[i].name[0], "device %d has no id or no name", i);
        FACT(s, d[i].total_bytes == 0 || d[i].free_bytes <= d[i].total_bytes, "%s: more memory is free than there is",
             d[i].id);
    }
    /* Two devices are named together, not listed. */
    FACT(s, found || s->device.divided, "%s is not among the devices of its backend", s->device.id);
    FACT(s, s->backend->devices(d, 0) == 0, "a device without room for it");
    nn_exec_free(NULL);
}

void suite_calls(suite *s) {
    lists_devices(s);
    for (int i = 0; i < suite_models(s, 8); i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = i % GEN_MIXERS, .ffn = GEN_ANY });
        check_model(s, m);
        gen_free(m);
    }
}

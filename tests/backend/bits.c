/* SPDX-License-Identifier: Apache-2.0 */
/* The same sequences give the same bits: alone or in company, whole or in pieces, wherever their pages lie, with any
 * number of threads. And what nobody has stored is never looked at. */
#include "backend/gen.h"
#include "backend/world.h"

#include <stdlib.h>
#include <string.h>

/* Each sequence alone; its first half at once, then a row at a time: several output rows of one sequence must equal the
 * same ones computed one by one. */
static void run_alone(world *w, trace *t, bool single) {
    for (int q = 0; q < w->n_seq; q++) {
        while (w->len[q] < w->until[q]) {
            err e = { 0 };
            world_begin(w);
            world_add(w, q, single ? 1 : w->until[q]);
            world_end(w);
            if (!FACT(w->s, nn_exec_step(w->x, &w->batch, &e) == 0, "alone: %s", e.msg)) return;
            trace_take(t, w, single ? "token by token" : "alone");
        }
    }
}

/* All pages and slots become NaN, in every type of numbers. */
static void poison(world *w) {
    size_t most = w->x->memory.slot_bytes;
    for (int g = 0; g < w->x->groups.n; g++)
        most = w->x->memory.page_bytes[g] > most ? w->x->memory.page_bytes[g] : most;
    void *host = malloc(most + 1);
    err   e = { 0 };
    int   rc = 0;
    if (!host) exit(1);
    memset(host, 0xff, most + 1);
    for (int g = 0; g < w->x->groups.n; g++) {
        for (int p = 0; p < w->o.limits.n_pages && rc == 0; p++)
            rc = nn_exec_move(
                w->x, &(nn_move){ .kind = NN_MOVE_PAGE, .group = g, .from = NN_HOST, .to = p, .host = host }, 1, &e);
    }
    for (int p = 0; p < WORLD_SLOTS && rc == 0; p++)
        rc = nn_exec_move(w->x, &(nn_move){ .kind = NN_MOVE_SLOT, .from = NN_HOST, .to = p, .host = host }, 1, &e);
    FACT(w->s, rc == 0, "poison: %s", e.msg);
    free(host);
}

static void check_model(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(2 * sizeof *w), *other = w + 1;
    trace           t;
    nn_memory       mem;
    o.k_type = suite_chance(s, 40) ? NN_KV_F16 : (nn_kv_type)suite_int(s, 0, NN_KV_TYPE_COUNT - 1);
    o.v_type = suite_chance(s, 60) ? o.k_type : (nn_kv_type)suite_int(s, 0, NN_KV_TYPE_COUNT - 1);
    if (!w) exit(1);
    if (s->backend->measure(&mem, &s->device, m, &o, NULL) < 0) o.k_type = o.v_type = NN_KV_F16;
    if (!world_open(w, s, m, &o)) {
        free(w);
        return;
    }
    trace_init(&t, m);
    w->all_logits = true;
    run_alone(w, &t, false);
    w->all_logits = false;
    world_place(w);
    run_alone(w, &t, true);
    for (int k = 0; k < 3; k++) {
        world_place(w);
        world_run(w, &t, "together");
    }
    poison(w);
    world_place(w);
    world_run(w, &t, "behind garbage");
    for (int n = 1; n <= 3; n++) {
        nn_exec *x = NULL;
        err      e = { 0 };
        o.n_threads = n;
        if (!FACT(s, s->backend->open(&x, &s->device, m, &o, &e) == 0, "open: %s", e.msg)) break;
        FACT(s, x->arithmetic == w->x->arithmetic, "%d threads compute other bits by their own account", n);
        world_copy(other, w, x);
        world_run(other, &t, "another executor, other threads");
        world_close(other);
    }
    trace_deinit(&t);
    world_close(w);
    free(w);
}

void suite_bits(suite *s) {
    for (int i = 0; i < suite_models(s, 12); i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = i % GEN_MIXERS, .ffn = i % GEN_FFNS });
        check_model(s, m);
        gen_free(m);
    }
}

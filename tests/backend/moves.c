/* SPDX-License-Identifier: Apache-2.0 */
/* Pages and slots go to host memory, to other places and back without losing a bit; what does not exist is refused and
 * changes nothing. */
#include "backend/gen.h"
#include "backend/world.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = NN_MAX_GROUPS * WORLD_SEQS * WORLD_PAGES + WORLD_SEQS };

/* All that the world's sequences hold, as moves out of (or into) their places; host has room for each. */
static int list_all(const world *w, nn_move *moves, uint8_t **host, bool out) {
    int n = 0, P = w->o.limits.page_tokens;
    for (int q = 0; q < w->n_seq; q++) {
        for (int g = 0; g < w->x->groups.n; g++) {
            for (int p = 0; p * P < w->len[q]; p++, n++) {
                int32_t at = w->pages[g][q][p];
                moves[n] = (nn_move){ NN_MOVE_PAGE, g, out ? at : NN_HOST, out ? NN_HOST : at, host[n] };
            }
        }
        if (w->x->memory.slot_bytes == 0 || w->len[q] == 0) continue;
        moves[n] = (nn_move){ NN_MOVE_SLOT, 0, out ? w->slots[q] : NN_HOST, out ? NN_HOST : w->slots[q], host[n] };
        n++;
    }
    return n;
}

/* The same sequences in other places; lengths are kept. */
static void replace(world *w) {
    int len[WORLD_SEQS];
    memcpy(len, w->len, sizeof len);
    world_place(w);
    memcpy(w->len, len, sizeof len);
}

static void through_host(world *w, uint8_t **host) {
    nn_move   moves[MOST];
    nn_ticket out, in;
    err       e = { 0 };
    int       n = list_all(w, moves, host, true), rc = 0;
    if (suite_chance(w->s, 50)) { /* one call for all, else one each */
        rc = n ? w->x->backend->move(w->x, moves, n, &out, &e) : 0;
        if (rc == 0 && n) rc = w->x->backend->wait(w->x, out, &e);
    } else {
        for (int i = 0; i < n && rc == 0; i++) rc = nn_exec_move(w->x, &moves[i], 1, &e);
    }
    FACT(w->s, rc == 0, "moves out: %s", e.msg);
    replace(w);
    n = list_all(w, moves, host, false);
    rc = n ? w->x->backend->move(w->x, moves, n, &in, &e) : 0;
    if (rc == 0 && n) rc = w->x->backend->wait(w->x, in, &e);
    FACT(w->s, rc == 0, "moves in: %s", e.msg);
}

/* Page to page and slot to slot. Places that are still in use come last: each old place is copied before it is
 * overwritten, since destinations are chosen among the places that nobody holds. */
static nn_ticket within(world *w) {
    bool    used[NN_MAX_GROUPS][2 * WORLD_SEQS * WORLD_PAGES] = { { false } }, taken[WORLD_SLOTS] = { false };
    nn_move moves[MOST];
    int     n = 0, P = w->o.limits.page_tokens;
    err     e = { 0 };
    for (int q = 0; q < w->n_seq; q++) {
        taken[w->slots[q]] = true;
        for (int g = 0; g < w->x->groups.n; g++)
            for (int p = 0; p < WORLD_PAGES; p++) used[g][w->pages[g][q][p]] = true;
    }
    for (int q = 0; q < w->n_seq; q++) {
        for (int g = 0; g < w->x->groups.n; g++) {
            for (int p = 0; p * P < w->len[q]; p++) {
                int32_t to = 0;
                while (used[g][to]) to++;
                used[g][to] = true;
                moves[n++] = (nn_move){ NN_MOVE_PAGE, g, w->pages[g][q][p], to, NULL };
                w->pages[g][q][p] = to;
            }
        }
    }
    int32_t spare = 0, moved = suite_int(w->s, 0, w->n_seq - 1);
    while (taken[spare]) spare++;
    if (w->x->memory.slot_bytes) {
        moves[n++] = (nn_move){ NN_MOVE_SLOT, 0, w->slots[moved], spare, NULL };
        w->slots[moved] = spare;
    }
    nn_ticket t = 0;
    FACT(w->s, n == 0 || w->x->backend->move(w->x, moves, n, &t, &e) == 0, "moves within: %s", e.msg);
    return t;
}

/* Each is refused; the good move in front of it must not have happened. */
static void bad_moves(world *w, uint8_t *host) {
    const nn_limits *l = &w->o.limits;
    const nn_move    bad[] = {
           { NN_MOVE_PAGE, 0, l->n_pages, NN_HOST, host },
           { NN_MOVE_PAGE, 0, -2, NN_HOST, host },
           { NN_MOVE_PAGE, 0, NN_HOST, l->n_pages, host },
           { NN_MOVE_PAGE, 0, NN_HOST, -2, host },
           { NN_MOVE_PAGE, 0, 0, NN_HOST, NULL },
           { NN_MOVE_PAGE, 0, NN_HOST, 0, NULL },
           { NN_MOVE_PAGE, 0, NN_HOST, NN_HOST, host },
           { NN_MOVE_PAGE, w->x->groups.n, 0, 1, NULL },
           { NN_MOVE_PAGE, -1, 0, 1, NULL },
           { NN_MOVE_SLOT, 0, l->n_slots, 0, NULL },
           { NN_MOVE_SLOT, 0, 0, l->n_slots, NULL },
           { NN_MOVE_SLOT, 0, -2, 0, NULL },
           { NN_MOVE_SLOT, 0, NN_HOST, NN_HOST, host },
           { NN_MOVE_SLOT, 0, 0, NN_HOST, NULL },
    };
    size_t bytes = w->x->memory.page_bytes[0];
    memset(host, 0x5a, bytes);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        nn_move   both[2] = { { NN_MOVE_PAGE, 0, w->pages[0][0][0], NN_HOST, host }, bad[i] };
        nn_ticket t = 0;
        err       e = { 0 };
        int       rc = w->x->backend->move(w->x, both, 2, &t, &e);
        FACT(w->s, rc == ERR_ARG && e.msg[0], "bad move %zu: %d, \"%s\"", i, rc, e.msg);
        for (size_t k = 0; k < bytes; k++) {
            if (host[k] == 0x5a) continue;
            FACT(w->s, false, "bad move %zu: the move in front of it happened", i);
            break;
        }
    }
}

static size_t bytes_of(const world *w, const nn_move *m) {
    return m->kind == NN_MOVE_PAGE ? w->x->memory.page_bytes[m->group] : w->x->memory.slot_bytes;
}

/* Everything out, to host: waited for, or *ticket is left. */
static int all_out(world *w, uint8_t **host, nn_move *moves, nn_ticket *ticket, err *e) {
    int n = list_all(w, moves, host, true), rc = 0;
    if (n && ticket) rc = w->x->backend->move(w->x, moves, n, ticket, e);
    if (n && !ticket) rc = nn_exec_move(w->x, moves, n, e);
    FACT(w->s, rc == 0, "moves out: %s", e->msg);
    return rc < 0 ? 0 : n;
}

static void same_bytes(const world *w, const nn_move *moves, int n, uint8_t **host, const char *what) {
    for (int i = 0; i < n; i++)
        FACT(w->s, memcmp(host[i], host[MOST + i], bytes_of(w, &moves[i])) == 0, "move %d of %d: %s", i, n, what);
}

static void wait_for(world *w, nn_ticket t) {
    err e = { 0 };
    if (t) FACT(w->s, w->x->backend->wait(w->x, t, &e) == 0, "%s", e.msg);
}

/* Starts the next step of the sequences; 0: there is none. */
static nn_ticket start_step(world *w) {
    nn_ticket t = 0;
    err       e = { 0 };
    if (!world_random_batch(w, false)) return 0;
    FACT(w->s, w->x->backend->submit(w->x, &w->batch, &t, &e) == 0, "step: %s", e.msg);
    return t;
}

/* Moves and steps that nobody has waited for when the next ones start: what goes out are the bytes behind the steps in front,
 * what comes in is there for the steps behind it, and pages that were left may be written again at once. `host` has room for
 * everything twice. */
static bool under_way(world *w, trace *t, uint8_t **host) {
    nn_move   moves[MOST];
    nn_ticket out = 0, in[MOST], step;
    err       e = { 0 };
    /* A step behind a move. */
    int n = all_out(w, host + MOST, moves, NULL, &e);
    (void)all_out(w, host, moves, &out, &e);
    if (!(step = start_step(w))) return wait_for(w, out), false;
    wait_for(w, step);
    trace_take(t, w, "behind moves out");
    wait_for(w, out);
    same_bytes(w, moves, n, host, "bytes of a later step");
    /* A move behind a step. */
    if (!(step = start_step(w))) return false;
    n = all_out(w, host, moves, &out, &e);
    wait_for(w, out);
    wait_for(w, step);
    trace_take(t, w, "in front of moves out");
    (void)all_out(w, host + MOST, moves, NULL, &e);
    same_bytes(w, moves, n, host, "bytes of an earlier step");
    /* In elsewhere, in any order; old places are free for the others. */
    replace(w);
    n = list_all(w, moves, host, false);
    for (int i = n - 1; i > 0; i--) {
        int     k = suite_int(w->s, 0, i);
        nn_move other = moves[k];
        moves[k] = moves[i];
        moves[i] = other;
    }
    for (int i = 0; i < n; i++)
        FACT(w->s, w->x->backend->move(w->x, &moves[i], 1, &in[i], &e) == 0, "moves in: %s", e.msg);
    step = start_step(w);
    wait_for(w, step);
    if (step) trace_take(t, w, "behind moves in");
    for (int i = 0; i < n; i++) wait_for(w, in[i]);
    return step != 0;
}

static void check_model(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(sizeof *w);
    uint8_t        *host[2 * MOST];
    trace           t;
    if (!w) exit(1);
    o.k_type = o.v_type = NN_KV_F16;
    if (!world_open(w, s, m, &o)) {
        free(w);
        return;
    }
    size_t bytes = w->x->memory.slot_bytes;
    for (int g = 0; g < w->x->groups.n; g++)
        bytes = w->x->memory.page_bytes[g] > bytes ? w->x->memory.page_bytes[g] : bytes;
    for (int i = 0; i < 2 * MOST; i++) host[i] = malloc(bytes + 1);
    trace_init(&t, m);
    world_run(w, &t, "in place");
    for (int k = 0; k < 3; k++) {
        nn_ticket later = 0;
        world_place(w);
        while (world_random_batch(w, false)) {
            err e = { 0 };
            if (!FACT(s, nn_exec_step(w->x, &w->batch, &e) == 0, "step: %s", e.msg)) break;
            trace_take(&t, w, "moved");
            if (later) FACT(s, w->x->backend->wait(w->x, later, &e) == 0, "moves within: %s", e.msg);
            later = 0;
            if (k != 1) through_host(w, host);
            if (k != 0) later = within(w); /* waited for behind the next step */
            if (k == 2) bad_moves(w, host[0]);
        }
    }
    for (int k = 0; k < 3; k++) {
        world_place(w);
        while (under_way(w, &t, host)) continue;
    }
    trace_deinit(&t);
    for (int i = 0; i < 2 * MOST; i++) free(host[i]);
    world_close(w);
    free(w);
}

void suite_moves(suite *s) {
    for (int i = 0; i < suite_models(s, 8); i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = i % GEN_MIXERS, .ffn = GEN_ANY });
        check_model(s, m);
        gen_free(m);
    }
}

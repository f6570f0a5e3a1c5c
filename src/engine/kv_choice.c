/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "engine/internal.h"

static const engine_kv_choice choices[] = {
    { "f16", NN_KV_F16, NN_KV_F16 },
    { "q8_0", NN_KV_Q8_0, NN_KV_Q8_0 },
    { "q8_0 keys, tq4 values", NN_KV_Q8_0, NN_KV_TQ4 },
    { "q5_0", NN_KV_Q5_0, NN_KV_Q5_0 },
    { "q4_0", NN_KV_Q4_0, NN_KV_Q4_0 },
    { "tq4", NN_KV_TQ4, NN_KV_TQ4 },
    { "tq3", NN_KV_TQ3, NN_KV_TQ3 },
};

const engine_kv_choice *engine_kv_choices(int *n) {
    *n = (int)(sizeof choices / sizeof *choices);
    return choices;
}

/* Sizes with one choice; 1: the backend has no such pages. */
static int try_choice(engine *g, const engine_kv_choice *c, nn_memory *one, err *e) {
    g->o.k_type = c->k;
    g->o.v_type = c->v;
    int rc = engine_page_bytes(g, one, e);
    return rc < 0 && e->code == ERR_UNSUPPORTED ? 1 : rc;
}

int engine_choose_kv(engine *g, nn_memory *one, err *e) {
    int                     n, rc, last = -1;
    const engine_kv_choice *c = engine_kv_choices(&n);
    if (!g->o.kv_auto) return engine_page_bytes(g, one, e);
    g->o.k_open = true;
    for (int i = 0; i < n; i++) {
        if ((rc = try_choice(g, &c[i], one, e)) < 0) return rc;
        if (rc > 0) continue;
        last = i;
        size_t room = engine_cache_room(g, one), pages = (size_t)(g->n_ctx / g->o.page_tokens) + 2;
        if (room && pages * g->page_bytes > room) continue;
        log_info("engine", "cache pages of %s: the most precise ones at which %d tokens fit into %zu MiB", c[i].name,
                 g->n_ctx, room >> 20);
        return 0;
    }
    if (last < 0) return err_set(e, ERR_UNSUPPORTED, "the %s backend has none of the page types", g->backend->name);
    log_info("engine", "cache pages of %s: %d tokens do not fit with any type", c[last].name, g->n_ctx);
    return try_choice(g, &c[last], one, e);
}

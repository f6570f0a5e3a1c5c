/* SPDX-License-Identifier: Apache-2.0 */
/* The adapter sets of running sequences, by the numbers under which the device knows them. */
#include "engine/internal.h"

int adapters_enter(engine *g, sequence *s, err *e) {
    const nn_adapter_set *set = s->request->r.adapters;
    int                   at = -1;
    if (!set || s->adapter) return 0;
    for (int i = 0; i <= g->o.max_seqs && i < NN_MAX_SETS; i++) {
        if (g->sets[i].users && g->sets[i].set == set) {
            g->sets[i].users++;
            s->adapter = i + 1;
            return 0;
        }
        if (!g->sets[i].users && at < 0) at = i;
    }
    if (at < 0) return err_set(e, ERR_BUSY, "too many adapter sets are in use");
    ahead_finish(g);
    int rc = g->backend->adapt(g->exec, at + 1, set, e);
    if (rc < 0) return rc;
    g->sets[at].set = set;
    g->sets[at].users = 1;
    s->adapter = at + 1;
    return 0;
}

void adapters_leave(engine *g, sequence *s) {
    if (!s->adapter) return;
    int at = s->adapter - 1;
    s->adapter = 0;
    if (--g->sets[at].users > 0) return;
    g->sets[at].set = NULL;
    ahead_finish(g);
    g->backend->adapt(g->exec, at + 1, NULL, NULL);
}

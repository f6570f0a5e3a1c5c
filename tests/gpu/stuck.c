/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out that a cluster will never end. Where no memory changes, a lane does the same as before whenever its
 * registers are as before: a warp that comes back to the same registers at the same instructions goes round forever, if
 * all others of its cluster do or wait. A loop that counts is not such a case; it may end.
 */
#include "gpu/run.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { STILL_STEPS = 4000000, LONGEST_ROUND = 1 << 16 };
#define STILL_SECONDS 2.0 /* for the host, which may write where the kernel looks */

/* Runs it a little. True: it is where it was, or cannot run. */
static bool goes_round(warp_state *s, uint8_t *kept) {
    const gpu_grid *g = s->block->cluster->grid;
    const size_t    bytes = (size_t)(s->local - (uint8_t *)s->regs.pred[0]);
    const uint64_t  before = g->changes;
    const int       n_groups = s->n_groups, other = s->other;
    const uint32_t  carry = s->regs.carry;
    group           groups[LANES];
    bool            vain;
    memcpy(groups, s->groups, sizeof groups);
    memcpy(kept, s->regs.pred[0], bytes);
    for (int n = 0; n < LONGEST_ROUND; n++) {
        if (warp_turn(s, 1, &vain) == 0) return true;
        if (g->changes != before) return false;
        if (s->n_groups == n_groups && (n_groups == 1 || s->other == other) && s->regs.carry == carry &&
            memcmp(groups, s->groups, (size_t)n_groups * sizeof *groups) == 0 &&
            memcmp(kept, s->regs.pred[0], bytes) == 0)
            return true;
    }
    return false;
}

static bool all_go_round(gpu_cluster *c) {
    const gpu_kernel *k = c->grid->launch->kernel;
    const size_t      room = k->n_pred * sizeof(uint32_t) + k->n32 * sizeof *k->c32 + k->n64 * sizeof *k->c64;
    uint8_t          *kept = malloc(room + 256); /* with what lies between the kinds */
    bool              all = kept != NULL;
    for (int b = 0; b < c->n && all; b++) {
        for (int n = 0; n < c->blocks[b].n_warps && all; n++) {
            warp_state *s = &c->blocks[b].warps[n];
            if (s->n_groups) all = goes_round(s, kept);
        }
    }
    free(kept);
    return all;
}

bool stuck_found(stuck *k, gpu_cluster *c) {
    const gpu_grid *g = c->grid;
    if (k->changes != g->changes) {
        *k = (stuck){ .changes = g->changes, .steps = g->steps, .asked = STILL_STEPS };
        return false;
    }
    if (g->steps - k->steps < k->asked) return false;
    k->asked *= 2;
    if (!all_go_round(c)) {
        k->since = 0;
        return false;
    }
    if (k->since == 0) k->since = clock_s();
    k->asked = g->steps - k->steps + STILL_STEPS;
    return clock_s() - k->since > STILL_SECONDS;
}

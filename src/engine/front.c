/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared beginnings: what several requests have in common is computed once.
 *
 * A sequence that is about to start, and whose beginning a running one is computing right now, waits in the queue until
 * that one has come to where the two part; then it starts and finds the beginning in the prefix tree. It takes no slot
 * and no page meanwhile. Should the one in front end, give way or be paused, whoever waits behind it starts with what
 * is there, and the others wait behind him.
 *
 * Waiting is cheaper than computing: the tokens in question are computed anyway, and a prompt is as important as the
 * most important one that waits behind it, so they are computed no later than its own would be. The one exception is a
 * beginning so short that another step costs more than computing it twice (FRONT_LEAST). Choices of one request have
 * everything in common and always wait.
 *
 * Models whose layers forget can only be continued where a step ended; so the piece of the one in front ends where the
 * next one behind it parts from it.
 */
#include "engine/internal.h"

/* A step reads all weights whatever its rows; beyond about this many a row costs more than its share of that. */
enum { FRONT_LEAST = 16 };

/* Positions at the beginning that are the same. The last one of s is always computed. */
static int common(const sequence *r, const sequence *s) {
    kv_span a = kv_text_span(&r->text, 0, r->n_tokens), b = kv_text_span(&s->text, 0, s->n_tokens - 1);
    return kv_key_eq(&r->text.space, &s->text.space) ? kv_common(&a, &b) : 0;
}

bool front_wait(engine *g, sequence *s) {
    int best = 0;
    s->front = NULL;
    if (!sequence_caches(s)) return false;
    for (int i = 0; i < g->n_running; i++) {
        sequence *r = g->running[i];
        if (r->paused || r->decodes || !sequence_caches(r)) continue;
        int n = common(r, s), gain = n - r->n_evaluated;
        if (gain < (r->request == s->request ? 1 : FRONT_LEAST) || n <= best) continue;
        best = n;
        s->front = r;
        s->parts_at = n;
    }
    return s->front != NULL;
}

bool front_waits(sequence *s) {
    if (s->front && (s->front->paused || s->front->n_evaluated >= s->parts_at)) s->front = NULL;
    return s->front != NULL;
}

void front_leaves(engine *g, const sequence *r) {
    for (sequence *s = g->waiting; s; s = s->next) {
        if (s->front == r) s->front = NULL;
    }
}

int front_next(const engine *g, const sequence *r, int most) {
    for (const sequence *s = g->waiting; s; s = s->next) {
        if (s->front == r && s->parts_at > r->n_evaluated && s->parts_at < most) most = s->parts_at;
    }
    return most;
}

void front_lead(engine *g) {
    for (int i = 0; i < g->n_running; i++) g->running[i]->lead = g->running[i];
    for (sequence *s = g->waiting; s; s = s->next) {
        if (s->front && schedule_before(s, s->front->lead)) s->front->lead = s;
    }
}

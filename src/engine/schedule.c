/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes in the next step: admission, giving way, the batch. */
#include "engine/internal.h"

#include <string.h>

static bool goes_before(const sequence *a, const sequence *b) {
    if (a->job->r.priority != b->job->r.priority) return a->job->r.priority > b->job->r.priority;
    return a->order != b->order ? a->order < b->order : a->choice < b->choice;
}

void schedule_add(engine *g, sequence *s) {
    sequence **at = &g->waiting;
    while (*at && goes_before(*at, s)) at = &(*at)->next;
    s->next = *at;
    *at = s;
}

void schedule_release(engine *g, sequence *s) {
    int at = 0;
    cache_tables_release(&g->cache, &s->tables);
    if (s->slot < 0) return;
    g->slot_used[s->slot] = false;
    s->slot = -1;
    while (g->running[at] != s) at++;
    g->n_running--;
    memmove(&g->running[at], &g->running[at + 1], (size_t)(g->n_running - at) * sizeof *g->running);
}

static bool uses_cache(const sequence *s) { return !s->job->r.no_cache || s->job->r.n_choices > 1; }

/* Back into the queue; what it computed stays in the cache as long as nobody needs the room. */
static void give_way(engine *g, sequence *s) {
    if (uses_cache(s)) cache_remember(&g->cache, &s->tables, s->tokens, s->n_evaluated, s->slot);
    schedule_release(g, s);
    s->n_evaluated = 0;
    schedule_add(g, s);
    g->counts.preemptions++;
}

/* The running sequence that the others can do without most easily: last in the order of going first. */
static sequence *least_important(const engine *g) {
    sequence *worst = NULL;
    for (int i = 0; i < g->n_running; i++) {
        if (!worst || goes_before(worst, g->running[i])) worst = g->running[i];
    }
    return worst;
}

static bool start(engine *g, sequence *s) {
    int32_t slot = 0;
    while (g->slot_used[slot]) slot++;
    int reused = uses_cache(s) ? cache_attach(&g->cache, &s->tables, s->tokens, s->n_tokens, slot) : 0;
    /* Room for everything that is known and one more token, so that a prompt never stops half-way for want of pages. */
    int len = s->n_tokens + 1 < s->n_ctx ? s->n_tokens + 1 : s->n_ctx;
    if (!cache_grow(&g->cache, &s->tables, len)) {
        cache_tables_release(&g->cache, &s->tables);
        return false;
    }
    s->slot = slot;
    g->slot_used[slot] = true;
    s->n_evaluated = reused;
    g->running[g->n_running++] = s;
    if (!s->counted) {
        s->counted = true;
        s->usage.cached_tokens = reused;
        s->started_at = engine_now();
    }
    g->counts.tokens_cached += (uint64_t)reused;
    return true;
}

/* A choice other than the first waits for the prompt: it then finds it in the cache. */
static bool may_start(const sequence *s) { return s->choice == 0 || s->job->prompt_ready; }

void schedule_admit(engine *g) {
    for (sequence **at = &g->waiting; *at && g->n_running < g->o.max_seqs;) {
        sequence *s = *at;
        if (!may_start(s)) {
            at = &s->next;
            continue;
        }
        *at = s->next; /* off the list first: giving way adds to it */
        s->next = NULL;
        bool started = start(g, s);
        while (!started && g->n_running > 0) {
            sequence *worst = least_important(g);
            if (worst->job->r.priority >= s->job->r.priority) break;
            give_way(g, worst);
            started = start(g, s);
        }
        if (!started) {
            schedule_add(g, s);
            return;
        }
        at = &g->waiting; /* the list may have changed */
    }
}

/* Positions where a prompt's evaluation pauses to be remembered: only models whose layers forget need that. */
static int next_mark(const engine *g, const sequence *s) {
    int  best = s->n_tokens;
    bool forgets = g->cache.slot_bytes > 0;
    for (int k = 0; k < g->cache.n_groups; k++) forgets = forgets || g->exec->groups.window[k] > 0;
    if (!forgets || !uses_cache(s)) return best;
    const engine_request *r = &s->job->r;
    for (size_t i = 0; i < r->n_marks; i++) {
        if (r->marks[i] > s->n_evaluated && r->marks[i] < best) best = r->marks[i];
    }
    int every = (s->n_evaluated / ENGINE_SNAPSHOT_EVERY + 1) * ENGINE_SNAPSHOT_EVERY;
    if (every < best) best = every;
    if (s->n_prompt - 1 > s->n_evaluated && s->n_prompt - 1 < best) best = s->n_prompt - 1;
    return best;
}

static void add_share(engine *g, nn_batch *b, sequence *s, int n) {
    int  at = g->n_shares++, row = b->n_tok;
    bool ends = s->n_evaluated + n == s->n_tokens;
    g->shares[at] = (share){ s, n, ends ? b->n_out : -1 };
    g->q_start[at] = row;
    g->kv_len[at] = s->n_evaluated + n;
    g->slot[at] = s->slot;
    for (int i = 0; i < n; i++) {
        g->token[row + i] = s->tokens[s->n_evaluated + i];
        g->pos[row + i] = s->n_evaluated + i;
        g->seq_of[row + i] = at;
    }
    for (int k = 0; k < g->cache.n_groups; k++)
        memcpy(g->pages[k] + (size_t)at * (size_t)g->cache.max_pages, s->tables.tables[k],
               (size_t)s->tables.n_pages * sizeof(int32_t));
    b->n_tok += n;
    if (ends) g->out_rows[b->n_out++] = row + n - 1;
}

/* Generating sequences get the page for their next token; when there is none, the least important one gives way. */
static void make_room(engine *g) {
    for (int i = 0; i < g->n_running;) {
        sequence *s = g->running[i];
        if (cache_grow(&g->cache, &s->tables, s->n_tokens)) {
            i++;
            continue;
        }
        sequence *worst = least_important(g);
        if (worst == s && g->n_running == 1) { /* alone and still no room: cannot happen while cache_fits holds */
            err why;
            err_set(&why, ERR_LIMIT, "the cache has no room for %d positions", s->n_tokens);
            step_fail(g, s, &why);
            return;
        }
        give_way(g, worst);
        i = 0;
    }
}

bool schedule_batch(engine *g, nn_batch *b) {
    bool somebody_generates = false;
    make_room(g);
    *b = (nn_batch){ .token = g->token,
                     .pos = g->pos,
                     .seq_of = g->seq_of,
                     .q_start = g->q_start,
                     .kv_len = g->kv_len,
                     .state_slot = g->slot,
                     .out_rows = g->out_rows,
                     .pages_stride = g->cache.max_pages };
    for (int k = 0; k < g->cache.n_groups; k++) b->pages[k] = g->pages[k];
    g->n_shares = 0;
    for (int i = 0; i < g->n_running; i++) {
        if (sequence_left(g->running[i]) == 1) {
            somebody_generates = somebody_generates || sequence_generated(g->running[i]) > 0;
            add_share(g, b, g->running[i], 1);
        }
    }
    int budget = g->o.step_tokens - b->n_tok;
    if (somebody_generates && g->prompt_budget < budget) budget = g->prompt_budget;
    /* Prompts in order of importance, so that the first one is through soonest. */
    bool taken[1024] = { false };
    while (budget > 0) {
        int best = -1;
        for (int i = 0; i < g->n_running; i++) {
            if (taken[i] || sequence_left(g->running[i]) <= 1) continue;
            if (best < 0 || goes_before(g->running[i], g->running[best])) best = i;
        }
        if (best < 0) break;
        taken[best] = true;
        sequence *s = g->running[best];
        int       n = next_mark(g, s) - s->n_evaluated;
        if (n > budget) n = budget;
        add_share(g, b, s, n);
        budget -= n;
    }
    b->n_seq = g->n_shares;
    g->q_start[g->n_shares] = b->n_tok;
    return b->n_tok > 0;
}

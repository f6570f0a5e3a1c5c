/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes in the next step: admission, fair shares, giving way, the batch. */
#include "engine/internal.h"

#include <limits.h>
#include <string.h>

static bool goes_before(const sequence *a, const sequence *b) {
    if (a->request->r.priority != b->request->r.priority) return a->request->r.priority > b->request->r.priority;
    return a->order != b->order ? a->order < b->order : a->choice < b->choice;
}

bool schedule_before(const sequence *a, const sequence *b) {
    bool by_client = a->request->r.priority == b->request->r.priority && a->client->time != b->client->time;
    return by_client ? a->client->time < b->client->time : goes_before(a, b);
}

static void add_waiting(engine *g, sequence *s) {
    sequence **at = &g->waiting;
    while (*at && goes_before(*at, s)) at = &(*at)->next;
    s->next = *at;
    *at = s;
}

void schedule_enter(engine *g, sequence *s) {
    s->client = fair_enter(&g->fair, s->request->r.client);
    add_waiting(g, s);
}

void schedule_charge(sequence *s) {
    if (s->n_tokens <= s->n_charged) return;
    s->client->time += (uint64_t)(s->n_tokens - s->n_charged);
    s->n_charged = s->n_tokens;
}

void schedule_release(engine *g, sequence *s) {
    int at = 0;
    cache_tables_release(&g->cache, &s->tables);
    adapters_leave(g, s);
    if (s->slot < 0) return;
    ahead_drop(g, s);
    g->slot_used[s->slot] = false;
    if (s->twin >= 0) g->slot_used[s->twin] = false;
    s->slot = s->twin = -1;
    speculate_leave(g, s);
    s->client->n_running--;
    front_leaves(g, s);
    while (g->running[at] != s) at++;
    g->n_running--;
    memmove(&g->running[at], &g->running[at + 1], (size_t)(g->n_running - at) * sizeof *g->running);
}

/* Back into the queue; what it computed stays in the cache as long as nobody needs the room. */
static void give_way(engine *g, sequence *s) {
    if (sequence_caches(s)) cache_remember(&g->cache, &s->tables, &s->text, s->n_evaluated, s->slot, CACHE_MARK);
    schedule_release(g, s);
    s->n_evaluated = 0;
    s->decodes = false;
    add_waiting(g, s);
    g->counts.preemptions++;
}

/* Paused ones can be done without first; then what is last in the order of going first. */
static bool matters_more(const sequence *a, const sequence *b) {
    return a->paused != b->paused ? b->paused : goes_before(a, b);
}

/* The running sequence that the others can do without most easily. */
static sequence *least_important(const engine *g) {
    sequence *worst = NULL;
    for (int i = 0; i < g->n_running; i++) {
        if (!worst || matters_more(worst, g->running[i])) worst = g->running[i];
    }
    return worst;
}

bool schedule_wide(const engine *g, size_t n_prompt) {
    for (int k = 0; k < g->cache.n_groups; k++) {
        int window = g->exec->groups.window[k];
        if (window > 0 && (size_t)window < n_prompt) return true;
    }
    return false;
}

/* How much of what is there may be used. What was kept of a prompt that sees itself whole is of an equal one and as good as
 * computed anew, whatever part of it that is, but what is left sees all of it: more than a shorter window leaves. */
static int usable(const engine *g, const sequence *s, int reused) {
    bool equal = s->request->r.prompt_whole && reused < s->n_prompt;
    return equal && !schedule_wide(g, (size_t)s->n_prompt) ? reused : sequence_cut(s, reused);
}

/* What others have computed of its beginning, down to where it may be cut. */
static int attach(engine *g, sequence *s, int32_t slot) {
    if (!sequence_caches(s)) return 0;
    int reused = cache_attach(&g->cache, &s->tables, &s->text, s->n_tokens, slot);
    for (int cut; (cut = usable(g, s, reused)) < reused;) {
        cache_tables_release(&g->cache, &s->tables);
        reused = cache_attach(&g->cache, &s->tables, &s->text, cut + 1, slot);
    }
    return reused;
}

static bool start(engine *g, sequence *s) {
    int32_t slot = 0;
    while (g->slot_used[slot]) slot++;
    int reused = attach(g, s, slot);
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
    s->client->n_running++;
    speculate_seat(g, s);
    if (!s->counted) {
        s->counted = true;
        s->usage.cached_tokens = s->n_charged = reused;
        s->started_at = clock_s();
        mask_ask(&g->guides, &s->guide);
    }
    schedule_charge(s);
    if (s->pooled) memset(s->pooled, 0, (size_t)g->n_hidden * sizeof *s->pooled);
    s->n_pooled = 0;
    g->counts.tokens_cached += (uint64_t)reused;
    return true;
}

/* The place in the list of the one that starts next. */
static sequence **next_to_start(engine *g) {
    sequence **best = NULL;
    for (sequence **at = &g->waiting; *at; at = &(*at)->next) {
        if (!(*at)->paused && !front_waits(*at) && (!best || schedule_before(*at, *best))) best = at;
    }
    return best;
}

/* Who gives way so that s can start: somebody paused, or of lower priority; or, when s's client has nothing running and
 * lies behind, the latest sequence of the client that has had the most and keeps another one. NULL: s waits. */
static sequence *victim_for(const engine *g, const sequence *s) {
    sequence *worst = least_important(g);
    if (!worst || worst->paused || worst->request->r.priority < s->request->r.priority) return worst;
    worst = NULL;
    if (s->client->n_running > 0) return NULL;
    for (int i = 0; i < g->n_running; i++) {
        sequence *r = g->running[i];
        if (r->client == s->client || r->client->n_running < 2 || r->client->time < s->client->time + FAIR_LAG ||
            r->request->r.priority > s->request->r.priority || !sequence_caches(r))
            continue;
        bool more = !worst || r->client->time > worst->client->time;
        if (more || (r->client == worst->client && goes_before(worst, r))) worst = r;
    }
    return worst;
}

void schedule_admit(engine *g) {
    sequence **at;
    while ((at = next_to_start(g)) != NULL) {
        sequence *s = *at, *victim;
        if (front_wait(g, s)) continue;
        if (g->n_running == g->o.max_seqs && !victim_for(g, s)) return;
        *at = s->next; /* off the list first: giving way adds to it */
        s->next = NULL;
        if (adapters_enter(g, s, &s->error) < 0) {
            step_fail(g, s, &s->error);
            continue;
        }
        bool started = g->n_running < g->o.max_seqs && start(g, s);
        while (!started && (victim = victim_for(g, s)) != NULL) {
            give_way(g, victim);
            started = start(g, s);
        }
        if (!started && g->n_running == 0) { /* alone and still no room: cannot happen while cache_fits holds */
            err_set(&s->error, ERR_CONTEXT, "the cache has no room for %d positions", s->n_tokens);
            step_fail(g, s, &s->error);
        } else if (!started) {
            adapters_leave(g, s);
            add_waiting(g, s);
            return;
        }
    }
}

/* Positions where a prompt's evaluation pauses to be remembered: only models whose layers forget need that. */
static int next_mark(const engine *g, const sequence *s) {
    int  best = s->n_tokens;
    bool forgets = g->cache.slot_bytes > 0;
    for (int k = 0; k < g->cache.n_groups; k++) forgets = forgets || g->exec->groups.window[k] > 0;
    if (!forgets || !sequence_caches(s)) return best;
    const engine_request *r = &s->request->r;
    for (size_t i = 0; i < r->n_marks; i++) {
        if (r->marks[i] > s->n_evaluated && r->marks[i] < best) best = r->marks[i];
    }
    int every = (s->n_evaluated / ENGINE_SNAPSHOT_EVERY + 1) * ENGINE_SNAPSHOT_EVERY;
    if (every < best) best = every;
    if (s->n_prompt - 1 > s->n_evaluated && s->n_prompt - 1 < best) best = s->n_prompt - 1;
    return front_next(g, s, best);
}

/* What is left of a prompt that sees itself whole lies within the share. */
static void see_prompt(engine *g, nn_batch *b, const sequence *s, int row, int n) {
    int left = s->n_prompt - s->n_evaluated;
    if (left <= 0) return;
    for (int k = 0; k < n && k < left; k++) {
        g->row_end[row + k] = s->n_prompt;
        g->row_begin[row + k] = 0;
    }
    b->row_end = g->row_end;
    if (schedule_wide(g, (size_t)s->n_prompt)) b->row_begin = g->row_begin;
}

/* Rows of whole spans see up to the span's end; such spans lie within the share. */
static void add_row_ends(engine *g, nn_batch *b, const sequence *s, int row, int n) {
    const engine_request *r = &s->request->r;
    if (r->prompt_whole) {
        see_prompt(g, b, s, row, n);
        return;
    }
    for (size_t i = 0; i < r->n_rows; i++) {
        int first = r->rows[i].first - s->n_evaluated;
        if (!r->rows[i].whole || first < 0 || first >= n) continue;
        for (int k = 0; k < r->rows[i].n; k++) g->row_end[row + first + k] = r->rows[i].first + r->rows[i].n;
        b->row_end = g->row_end;
    }
}

/* Drafters may want the hidden states of the n first rows of a share, those without logits. */
static void show_rows(engine *g, nn_batch *b, share *h, int row, int n) {
    h->n_shown = speculate_wants(g, h->s, h->from, n);
    h->shown = b->n_hidden;
    for (int i = n - h->n_shown; i < n; i++) g->hidden_rows[b->n_hidden++] = row + i;
}

/* n known tokens, then n_draft of the draft. */
static void add_share(engine *g, nn_batch *b, sequence *s, int n, int n_draft) {
    int  at = g->n_shares++, row = b->n_tok, known = n;
    bool ends = s->n_evaluated + n == s->n_tokens;
    s->in_step = true;
    n += n_draft;
    g->shares[at] = (share){ .s = s, .from = s->n_evaluated, .n = n, .n_draft = n_draft, .out = -1 };
    g->q_start[at] = row;
    g->kv_len[at] = s->n_evaluated + n;
    g->slot[at] = s->slot;
    for (int i = 0; i < n; i++) {
        g->token[row + i] = i < known ? s->tokens[s->n_evaluated + i] : s->draft.tokens[i - known];
        g->embd[row + i] = sequence_embd(s, s->n_evaluated + i);
        g->adapter[row + i] = s->n_evaluated + i >= s->request->r.adapters_from ? s->adapter : 0;
        g->row_end[row + i] = s->n_evaluated + i + 1;
        g->row_begin[row + i] = s->n_evaluated + i; /* no earlier than a window */
        if (g->embd[row + i]) b->embd = g->embd;
        g->pos[row + i] = s->n_evaluated + i;
        g->segment[row + i] = s->request->r.second && s->n_evaluated + i >= s->request->r.second;
        g->seq_of[row + i] = at;
    }
    if (s->adapter) b->adapter = g->adapter;
    if (s->request->r.second) b->segment = g->segment;
    add_row_ends(g, b, s, row, n);
    for (int k = 0; k < g->cache.n_groups; k++)
        memcpy(g->pages[k] + (size_t)at * (size_t)g->cache.max_pages, s->tables.tables[k],
               (size_t)s->tables.n_pages * sizeof(int32_t));
    b->n_tok += n;
    if (sequence_embeds(s)) {
        engine_pooling p = s->request->r.pooling;
        int            first = p == ENGINE_POOL_LAST ? row + n - (ends ? 1 : 0) : row;
        int            last = p == ENGINE_POOL_CLS ? row + (s->n_evaluated == 0 ? 1 : 0) : row + n;
        int            skip = s->request->r.pool_from - s->n_evaluated;
        if (p != ENGINE_POOL_CLS && p != ENGINE_POOL_LAST && skip > 0) first = skip < n ? row + skip : last;
        g->shares[at].out = b->n_hidden;
        for (int i = first; i < last; i++) g->hidden_rows[b->n_hidden++] = i;
        g->shares[at].n_rows = last - first;
    } else if (sequence_scores(s)) {
        for (int i = 0; i < n; i++) g->out_rows[b->n_out++] = row + i;
        g->shares[at].out = b->n_out - 1;
        g->shares[at].scores = true;
    } else if (ends) {
        g->shares[at].out = b->n_out;
        for (int i = known - 1; i < n; i++) g->out_rows[b->n_out++] = row + i;
    }
    if (!sequence_embeds(s) && !sequence_scores(s)) show_rows(g, b, &g->shares[at], row, ends ? known - 1 : known);
}

/* Positions with axes: of all rows, where some sequence has a grid. */
static void add_axes(engine *g, nn_batch *b) {
    bool any = false;
    int  axes = g->model->tape->n_axes; /* check_rows knows that they fit */
    for (int i = 0; i < g->n_shares && !any; i++) any = sequence_has_grids(g->shares[i].s);
    if (!any) return;
    for (int t = 0; t < b->n_tok; t++) {
        int32_t at[ENGINE_AXES];
        sequence_axes(g->shares[g->seq_of[t]].s, g->pos[t], at);
        for (int a = 0; a < axes; a++) g->axes[a * b->n_tok + t] = at[a];
    }
    b->pos_axes = g->axes;
    b->n_axes = axes;
}

/* Rows without logits stand behind those with. */
static void join_outputs(engine *g, nn_batch *b) {
    if (b->n_hidden == 0) return;
    memcpy(g->out_rows + b->n_out, g->hidden_rows, (size_t)b->n_hidden * sizeof *g->out_rows);
    for (int i = 0; i < g->n_shares; i++) {
        if (sequence_embeds(g->shares[i].s)) g->shares[i].out += b->n_out;
        g->shares[i].shown += b->n_out;
    }
    b->n_out += b->n_hidden;
}

int schedule_adapt(int budget, int least, int most, double seconds, double target) {
    double ratio = seconds / target;
    if (ratio > 1.1) budget = (int)(budget / (ratio < 2 ? ratio : 2));
    if (ratio < 0.8) budget = (int)(budget * (ratio < 0.5 ? 2 : 1 / ratio)) + 1;
    return budget < least ? least : budget > most ? most : budget;
}

/* Generating sequences get the page for their next token; when there is none, the least important one gives way. */
void schedule_make_room(engine *g) {
    for (int i = 0; i < g->n_running;) {
        sequence *s = g->running[i];
        if (s->paused || cache_grow(&g->cache, &s->tables, s->n_tokens)) {
            i++;
            continue;
        }
        sequence *worst = least_important(g);
        if (worst == s && g->n_running == 1) { /* alone and still no room: cannot happen while cache_fits holds */
            err why;
            err_set(&why, ERR_CONTEXT, "the cache has no room for %d positions", s->n_tokens);
            step_fail(g, s, &why);
            return;
        }
        give_way(g, worst);
        i = 0;
    }
}

/* The most important prompt that has no share yet and has at most so many tokens left; -1: none. */
static int next_prompt(const engine *g, int most) {
    int best = -1;
    for (int i = 0; i < g->n_running; i++) {
        const sequence *s = g->running[i];
        if (s->in_step || s->paused || sequence_left(s) > most) continue;
        if (best < 0 || schedule_before(s->lead, g->running[best]->lead)) best = i;
    }
    return best;
}

/* A prompt that is scored takes a row of logits per token: those that are left when all others may end in this step. */
static int rows_for(const engine *g, const nn_batch *b, const sequence *s, int budget) {
    int left = g->exec->options.limits.max_logits - b->n_out - (g->n_running - g->n_shares - 1);
    return sequence_scores(s) && left < budget ? left : budget;
}

/* How many tokens the next piece of a prompt has: up to its next mark, within the budget, and never a part of a span that
 * sees itself whole: such a span may take what the step has room for. 0: it does not fit into this step. */
static int piece_of(const engine *g, const nn_batch *b, const sequence *s, int mark, int budget) {
    int n = mark - s->n_evaluated < budget ? mark - s->n_evaluated : budget;
    int cut = sequence_cut(s, s->n_evaluated + n) - s->n_evaluated;
    if (cut == n || cut > 0) return cut;
    int whole = sequence_whole(s, s->n_evaluated) - s->n_evaluated;
    return whole <= g->o.step_tokens - b->n_tok ? whole : 0;
}

/* Pieces of prompts within the budget, the most important first; whole: only prompts that fit, and only of the highest
 * priority. Returns what is left of the budget. */
static int add_prompts(engine *g, nn_batch *b, int budget, bool whole) {
    int first = next_prompt(g, INT_MAX);
    while (budget > 0) {
        int best = next_prompt(g, whole ? budget : INT_MAX);
        if (best < 0 ||
            (whole && g->running[best]->lead->request->r.priority < g->running[first]->lead->request->r.priority))
            break;
        sequence *s = g->running[best];
        int       mark = next_mark(g, s), n = piece_of(g, b, s, mark, rows_for(g, b, s, budget));
        s->in_step = true; /* also if it has to wait for a step with more room */
        if (n == 0) continue;
        add_share(g, b, s, n, 0);
        g->shares[g->n_shares - 1].mark = s->n_evaluated + n == mark;
        budget -= n;
    }
    return budget;
}

void schedule_begin(engine *g, nn_batch *b) {
    *b = (nn_batch){ .token = g->token,
                     .pos = g->pos,
                     .seq_of = g->seq_of,
                     .q_start = g->q_start,
                     .kv_len = g->kv_len,
                     .state_slot = g->slot,
                     .out_rows = g->out_rows,
                     .pages_stride = g->cache.max_pages };
    for (int k = 0; k < g->cache.n_groups; k++) b->pages[k] = g->pages[k];
}

bool schedule_batch(engine *g, nn_batch *b) {
    g->generating = false;
    schedule_begin(g, b);
    g->n_shares = 0;
    front_lead(g);
    for (int i = 0; i < g->n_running; i++) {
        sequence *s = g->running[i];
        s->in_step = false;
        if (s->paused || !s->decodes) continue;
        add_share(g, b, s, sequence_left(s), s->draft.n);
        g->shares[g->n_shares - 1].decodes = g->generating = true;
    }
    int budget = g->o.step_tokens - b->n_tok, wanted = g->generating ? g->prompt_budget : g->piece_budget;
    if (wanted < budget) budget = wanted;
    /* Short prompts may have a quarter of the step before the others: they are through at once, and a long one hardly
     * notices. Then in order of importance, so that the first one is through soonest. */
    int first = next_prompt(g, INT_MAX), quarter = budget / 4;
    /* A span that sees itself whole may need all the room there is: then nobody goes before it. */
    if (first >= 0 &&
        sequence_whole(g->running[first], g->running[first]->n_evaluated) > g->running[first]->n_evaluated)
        quarter = 0;
    budget -= quarter - add_prompts(g, b, quarter, true);
    add_prompts(g, b, budget, false);
    join_outputs(g, b);
    add_axes(g, b);
    ahead_describe(g, b);
    b->n_seq = g->n_shares;
    g->q_start[g->n_shares] = b->n_tok;
    return b->n_tok > 0;
}

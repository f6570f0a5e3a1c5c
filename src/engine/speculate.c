/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/internal.h"

#include <stdlib.h>

enum { DEFAULT_MOST = 16 };

/* What a kind of draft is worth before anything is known: long matches are rarely wrong. */
static const double FIRST_ODDS[DRAFT_GRADES] = { 0.4, 0.55, 0.7, 0.85 };

static const double FIRST_ODDS_MODEL = 0.7;

bool speculate_any(const engine_options *o) { return o->speculate != ENGINE_SPECULATE_OFF || o->drafter; }

int speculate_twins(const engine *g) {
    return !speculate_any(&g->o) ? 0 : g->o.max_seqs < SPECULATE_TWINS ? g->o.max_seqs : SPECULATE_TWINS;
}

static int most_of(const engine_options *o) {
    int most = o->draft_max > 0 ? o->draft_max : DEFAULT_MOST;
    return most < DRAFT_MOST ? most : DRAFT_MOST;
}

int speculate_most_rows(const engine_options *o) { return speculate_any(o) ? 2 * most_of(o) : 0; }

int speculate_rows(const engine *g) {
    int rows = speculate_most_rows(&g->o), left = g->o.step_tokens - g->o.max_seqs;
    if (g->whole) return 0;
    return rows < left ? rows : left;
}

static bool wants(const engine *g, engine_speculate kind) {
    return g->o.speculate == ENGINE_SPECULATE_AUTO || g->o.speculate == kind;
}

bool speculate_asks_model(const engine *g) { return g->o.draft_model && wants(g, ENGINE_SPECULATE_DRAFT) && !g->whole; }

bool speculate_asks_head(const engine *g) {
    const nn_next *x = g->o.next;
    return x && wants(g, x->reads == NN_FETCH_INNER ? ENGINE_SPECULATE_EAGLE : ENGINE_SPECULATE_MTP) && !g->whole;
}

/* It serves as many sequences as fit into as many positions as the engine itself can hold. */
draft_model_shape speculate_draft_shape(const engine *g, int n_pages) {
    int per_seq = (g->n_ctx + g->o.page_tokens - 1) / g->o.page_tokens, places = n_pages / per_seq;
    if (places < 1) places = 1;
    return (draft_model_shape){ .n_places = places < g->o.max_seqs ? places : g->o.max_seqs,
                                .n_ctx = g->n_ctx,
                                .page_tokens = g->o.page_tokens,
                                .step_tokens = g->o.step_tokens,
                                .n_vocab = g->n_vocab,
                                .k_type = g->o.k_type,
                                .v_type = g->o.v_type,
                                .precise_layers = g->o.precise_layers,
                                .n_threads = g->o.n_threads,
                                .cpu = g->o.cpu };
}

static int open_drafters(engine *g, int n_pages, err *e) {
    speculation *p = &g->spec;
    int          rc;
    if (g->o.drafter) p->drafters[p->n_drafters++] = g->o.drafter;
    if (wants(g, ENGINE_SPECULATE_LOOKUP)) {
        if ((rc = draft_lookup_open(&p->drafters[p->n_drafters], g->o.max_seqs, g->n_ctx, e)) < 0) return rc;
        p->n_drafters++;
    }
    if (speculate_asks_model(g)) {
        draft_model_shape shape = speculate_draft_shape(g, n_pages);
        if ((rc = draft_model_open(&p->drafters[p->n_drafters], &g->device, g->backend, g->o.draft_model, &shape, e)) <
            0)
            return rc;
        p->n_drafters++;
    }
    if (speculate_asks_head(g)) {
        draft_model_shape shape = speculate_draft_shape(g, n_pages);
        if ((rc = draft_next_open(&p->drafters[p->n_drafters], &g->device, g->backend, g->o.next, &shape, e)) < 0)
            return rc;
        p->n_drafters++;
    }
    return 0;
}

/* Rows for those who read hidden states. */
static bool open_reading(engine *g) {
    speculation *p = &g->spec;
    for (int i = 0; i < p->n_drafters; i++) {
        if (p->drafters[i]->reads > p->reads) p->reads = p->drafters[i]->reads;
    }
    if (p->reads == 0) return true;
    size_t width = (size_t)nn_exec_width(g->exec, g->o.next->reads);
    return (p->seen = calloc((size_t)(p->reads + DRAFT_MOST + 1) * width, sizeof *p->seen)) != NULL;
}

int speculate_open(engine *g, int n_pages, err *e) {
    speculation *p = &g->spec;
    size_t       seqs = (size_t)g->o.max_seqs;
    int          rc;
    if (!speculate_any(&g->o) || !engine_generates(g)) return 0;
    if ((rc = open_drafters(g, n_pages, e)) < 0) return rc;
    p->asks = calloc(seqs, sizeof *p->asks);
    p->who = calloc(seqs, sizeof *p->who);
    p->offers = calloc(seqs, sizeof *p->offers);
    p->from = calloc(seqs, sizeof *p->from);
    p->seat_used = calloc(seqs, sizeof *p->seat_used);
    if (!p->asks || !p->who || !p->offers || !p->from || !p->seat_used || !open_reading(g)) return err_set_nomem(e);
    for (int i = 0; i < SPECULATE_SOURCES; i++) p->odds[i] = (depth_odds){ .p = FIRST_ODDS[i % DRAFT_GRADES], .n = 2 };
    p->odds[SPECULATE_FORCED].p = 1;
    for (int i = 0; i < p->n_drafters; i++) {
        if (p->drafters[i]->costs) p->odds[i * DRAFT_GRADES].p = FIRST_ODDS_MODEL;
    }
    p->budget.left = DEPTH_CREDIT;
    if (p->n_drafters > 0) p->most = most_of(&g->o);
    return 0;
}

void speculate_close(engine *g) {
    speculation *p = &g->spec;
    for (int i = 0; i < p->n_drafters; i++) {
        if (p->drafters[i] != g->o.drafter) p->drafters[i]->free(p->drafters[i]);
    }
    free(p->asks);
    free(p->who);
    free(p->offers);
    free(p->from);
    free(p->seat_used);
    free(p->seen);
}

/* --- seats ------------------------------------------------------------------------------------------------------- */

static draft_seq seq_of(const sequence *s) {
    const engine_request *r = &s->request->r;
    return (draft_seq){ .seat = s->seat,
                        .tokens = s->tokens,
                        .n_tokens = s->n_tokens,
                        .n_prompt = s->n_prompt,
                        .sampler = s->sampler,
                        .hint = r->hint,
                        .n_hint = (int)r->n_hint };
}

void speculate_seat(engine *g, sequence *s) {
    speculation *p = &g->spec;
    if (p->most == 0 || sequence_embeds(s) || s->request->r.no_drafts) return;
    for (s->seat = 0; p->seat_used[s->seat]; s->seat++) {
    }
    p->seat_used[s->seat] = true;
    draft_seq d = seq_of(s);
    for (int i = 0; i < p->n_drafters; i++) {
        if (p->drafters[i]->begin) p->drafters[i]->begin(p->drafters[i], &d);
    }
    for (int i = 0; i < SPECULATE_SOURCES && !s->draft.begun; i++) s->draft.odds[i] = depth_begin(&p->odds[i]);
    s->draft.begun = true;
}

void speculate_leave(engine *g, sequence *s) {
    speculation *p = &g->spec;
    if (s->seat < 0) return;
    draft_seq d = seq_of(s);
    for (int i = 0; i < p->n_drafters; i++) {
        if (p->drafters[i]->end) p->drafters[i]->end(p->drafters[i], &d);
    }
    p->seat_used[s->seat] = false;
    s->seat = -1;
}

int speculate_wants(const engine *g, const sequence *s, int position, int n) {
    int skip = s->n_tokens - g->spec.reads - position;
    if (g->spec.reads == 0 || s->seat < 0 || skip >= n) return 0;
    return skip > 0 ? n - skip : n;
}

/* A row that cannot be fetched is a gap to those who read. */
void speculate_show(engine *g, const sequence *s, int first, int n, int position) {
    speculation *p = &g->spec;
    if (p->reads == 0 || s->seat < 0 || n == 0) return;
    if (g->backend->fetch(g->exec, g->o.next->reads, first, n, p->seen, NULL) < 0) return;
    draft_seq d = seq_of(s);
    for (int i = 0; i < p->n_drafters; i++) {
        if (p->drafters[i]->see) p->drafters[i]->see(p->drafters[i], &d, position, n, p->seen);
    }
}

/* --- drafts ------------------------------------------------------------------------------------------------------ */

/* How many tokens a draft may have: the last one that is picked must have a place, and be wanted. */
static int room_for(const engine *g, const sequence *s) {
    const engine_request *r = &s->request->r;
    int                   most = g->spec.most;
    if (r->draft_max > 0 && r->draft_max < most) most = r->draft_max;
    if (s->n_ctx - s->n_tokens - 1 < most) most = s->n_ctx - s->n_tokens - 1;
    if (r->max_tokens > 0 && r->max_tokens - sequence_generated(s) - 1 < most)
        most = r->max_tokens - sequence_generated(s) - 1;
    return most;
}

/* Drafts hold tokens of the vocabulary that do not end the answer: behind an end nothing is picked. */
static void cut_draft(const engine *g, sequence *s) {
    sequence_draft *d = &s->draft;
    for (int i = d->n_forced; i < d->n; i++) {
        if (d->tokens[i] < 0 || d->tokens[i] >= g->n_vocab || (g->tok && tok_is_end(g->tok, d->tokens[i]))) d->n = i;
    }
}

static void ask(engine *g, sequence *s, draft_ask *a, int drafter_index) {
    a->seq = seq_of(s);
    a->draft = s->draft.tokens;
    a->n = s->draft.n;
    a->grade = 0;
    g->spec.drafters[drafter_index]->propose(g->spec.drafters[drafter_index], a, 1);
}

/* What was proposed becomes the sequence's draft, as far as it may. */
static void take_draft(engine *g, sequence *s, const draft_ask *a, int drafter_index) {
    sequence_draft *d = &s->draft;
    int             grade = a->grade < 0 ? 0 : a->grade < DRAFT_GRADES ? a->grade : DRAFT_GRADES - 1;
    d->n = a->n;
    d->source = drafter_index * DRAFT_GRADES + grade;
    cut_draft(g, s);
    if (s->guide.guide && d->n > d->n_forced) draft_guide_check(g, s);
}

/* Tokens that a guide forces. Looking for them means waiting for its mask, so that is not done where it never helps. */
static void draft_forced(engine *g, sequence *s, int most) {
    depth_odds *o = &s->draft.odds[SPECULATE_FORCED];
    if (!s->guide.guide || (o->p < 0.02 && !depth_probe(o) && !g->o.draft_always)) return;
    depth_learn(o, draft_guide_forced(g, s, most) > 0, DEPTH_OWN * 4);
}

/* The drafter that computes and has the best record; -1: there is none. */
static int costly_drafter(const engine *g, const sequence *s) {
    const speculation *p = &g->spec;
    int                best = -1;
    for (int i = 0; i < p->n_drafters; i++) {
        bool better = best < 0 || s->draft.odds[i * DRAFT_GRADES].p > s->draft.odds[best * DRAFT_GRADES].p;
        if (p->drafters[i]->costs && better) best = i;
    }
    return best;
}

/* A copy is there for nothing: it gives way to one that has to be computed where that promises more tokens per second, and
 * is tried now and then nevertheless, so that its record does not stay what it once was. */
static bool gives_way(engine *g, sequence *s, const depth_offer *copied, const depth_offer *computed) {
    if (copied->n == copied->n_sure) return true;
    if (depth_worth(computed, &g->spec.costs) <= depth_worth(copied, &g->spec.costs)) return false;
    return !depth_probe(&s->draft.odds[s->draft.source]);
}

/* Tokens for nothing, or who might be asked for some at a price. */
static void offer(engine *g, sequence *s, int at) {
    speculation *p = &g->spec;
    draft_ask   *a = &p->asks[at];
    *a = (draft_ask){ .most = room_for(g, s) };
    p->from[at] = -1;
    draft_forced(g, s, a->most);
    for (int i = 0; i < p->n_drafters && s->draft.n == s->draft.n_forced && s->draft.n < a->most; i++) {
        if (p->drafters[i]->costs) continue;
        ask(g, s, a, i);
        if (a->n > s->draft.n) take_draft(g, s, a, i);
    }
    p->offers[at] =
        (depth_offer){ .n_sure = s->draft.n_forced, .n = s->draft.n, .p = s->draft.odds[s->draft.source].p };
    int costly = costly_drafter(g, s);
    if (costly < 0 || s->draft.n_forced >= a->most) return;
    depth_offer computed = { .n_sure = s->draft.n_forced,
                             .n = a->most,
                             .p = s->draft.odds[costly * DRAFT_GRADES].p,
                             .cost = p->drafters[costly]->guess_s };
    if (!gives_way(g, s, &p->offers[at], &computed)) return;
    draft_guide_back(s);
    if (s->draft.n_masks > s->draft.n_forced + 1) s->draft.n_masks = s->draft.n_forced + 1;
    s->draft.n = s->draft.n_forced;
    p->from[at] = costly;
    s->draft.source = costly * DRAFT_GRADES;
    p->offers[at] = computed;
}

/* Asks a drafter that costs, for all its sequences together. */
static void guess(engine *g, int drafter_index, int n) {
    speculation *p = &g->spec;
    draft_ask    asks[DEPTH_ROWS];
    int          of[DEPTH_ROWS], n_asks = 0;
    for (int i = 0; i < n; i++) {
        int more = p->offers[i].take - p->who[i]->draft.n;
        if (p->from[i] != drafter_index || more <= 0 || more < p->who[i]->request->r.draft_min) continue;
        of[n_asks] = i;
        asks[n_asks++] = (draft_ask){ .seq = seq_of(p->who[i]),
                                      .draft = p->who[i]->draft.tokens,
                                      .n = p->who[i]->draft.n,
                                      .most = p->offers[i].take,
                                      .p_min = p->who[i]->request->r.draft_p_min };
    }
    if (n_asks == 0) return;
    p->drafters[drafter_index]->propose(p->drafters[drafter_index], asks, n_asks);
    for (int k = 0; k < n_asks; k++) {
        p->guess_s += (asks[k].n - p->who[of[k]]->draft.n) * p->drafters[drafter_index]->guess_s;
        take_draft(g, p->who[of[k]], &asks[k], drafter_index);
    }
}

/* The twin keeps the state that the draft would spoil. */
static bool make_twin(engine *g, sequence *s) {
    int32_t slot = 0, n_slots = g->o.max_seqs + speculate_twins(g);
    if (!g->cache.slot_bytes) return true;
    while (slot < n_slots && g->slot_used[slot]) slot++;
    if (slot == n_slots) return false;
    nn_move m = { .kind = NN_MOVE_SLOT, .from = s->slot, .to = slot };
    if (nn_exec_move(g->exec, &m, 1, NULL) < 0) return false;
    g->slot_used[slot] = true;
    s->twin = slot;
    return true;
}

static void settle_draft(engine *g, sequence *s, int take) {
    sequence_draft *d = &s->draft;
    if (s->guide.guide) draft_guide_back(s);
    if (d->n > take) d->n = take;
    if (d->n_forced > d->n) d->n_forced = d->n;
    if (d->n - d->n_forced < s->request->r.draft_min) d->n = d->n_forced;
    while (d->n > 0 && !cache_grow(&g->cache, &s->tables, s->n_tokens + d->n)) d->n--;
    if (d->n > 0 && !make_twin(g, s)) d->n = 0;
}

/* Whether all that runs generates. Returns the rows of the step, or -1. */
static int plain_rows(const engine *g) {
    int rows = 0;
    for (int i = 0; i < g->n_running; i++) {
        const sequence *s = g->running[i];
        if (s->paused) continue;
        if (!s->decodes) return -1;
        rows += sequence_left(s);
    }
    return rows;
}

void speculate_plan(engine *g) {
    speculation *p = &g->spec;
    int          n = 0, sequences = 0, rows;
    if (p->most == 0 || (rows = plain_rows(g)) <= 0) return;
    int most_rows = g->o.max_seqs + speculate_rows(g);
    if (rows >= most_rows || rows >= DEPTH_ROWS) return;
    for (int i = 0; i < g->n_running; i++) {
        sequence *s = g->running[i];
        if (s->paused) continue;
        sequences++;
        if (s->seat < 0 || room_for(g, s) < 1) continue;
        p->who[n] = s;
        offer(g, s, n++);
    }
    depth_choose(p->offers, n, &p->costs, sequences, rows, most_rows);
    for (int i = 0, all = rows; i < n; i++) {
        depth_offer *o = &p->offers[i];
        if (g->o.draft_always && o->n > 0) o->take = o->n;
        if (o->take == 0 && o->n > 0 && depth_probe(&p->who[i]->draft.odds[p->who[i]->draft.source])) o->take = 1;
        if (o->take > most_rows - all) o->take = most_rows - all;
        all += o->take;
    }
    if (!g->o.draft_always) depth_afford(&p->budget, p->offers, n, &p->costs, sequences, rows);
    for (int i = 0; i < p->n_drafters; i++) {
        if (p->drafters[i]->costs) guess(g, i, n);
    }
    for (int i = 0; i < n; i++) settle_draft(g, p->who[i], p->offers[i].take);
}

void speculate_account(engine *g, int rows, int tokens) {
    speculation *p = &g->spec;
    if (p->most > 0) depth_account(&p->budget, &p->costs, g->n_shares, rows, tokens, p->guess_s);
    p->guess_s = 0;
}

void speculate_learn(engine *g, sequence *s, int accepted) {
    sequence_draft *d = &s->draft;
    if (d->n > 0) {
        g->counts.drafts++;
        g->counts.drafted += (uint64_t)d->n;
        g->counts.accepted += (uint64_t)accepted;
        for (int i = 0; i < d->n; i++) {
            int place = i < ENGINE_DRAFT_PLACES ? i : ENGINE_DRAFT_PLACES - 1;
            g->counts.drafted_at[place]++;
            g->counts.accepted_at[place] += i < accepted;
        }
        s->usage.drafted_tokens += d->n;
        s->usage.accepted_tokens += accepted;
    }
    for (int i = d->n_forced; i < d->n && i <= accepted; i++) {
        depth_learn(&d->odds[d->source], i < accepted, DEPTH_OWN);
        depth_learn(&g->spec.odds[d->source], i < accepted, DEPTH_ALL);
    }
    if (d->odds[d->source].pause > 0) g->spec.odds[d->source].pause = d->odds[d->source].pause;
    d->n = d->n_forced = d->n_masks = 0;
}

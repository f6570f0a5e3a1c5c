/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guide along a draft.
 *
 * The masks of all rows of a draft are made before the step: the guide accepts the drafted tokens one by one, as far as it
 * allows them, gives its mask behind each, and is taken back to where the sequence is. A token that a mask leaves no
 * choice about is a draft that is certainly right. When the step's rows are picked, each finds its mask here.
 *
 * Only the first mask can fail the request, as without a draft; an error behind it ends the draft.
 */
#include "base/noalloc.h"
#include "engine/internal.h"

static size_t words_of(const engine *g) { return ((size_t)g->n_vocab + 31) / 32; }

static uint32_t *mask_at(const engine *g, const sequence *s, int i) { return s->draft.masks + (size_t)i * words_of(g); }

/* The mask that was made while the last step ended. */
static bool take_first(engine *g, sequence *s) {
    sequence_draft *d = &s->draft;
    double          begin = clock_s();
    if (d->n_masks > 0) return d->first_rc >= 0;
    d->first_rc = mask_wait(&g->guides, &s->guide);
    g->counts.guide_wait_s += clock_s() - begin;
    d->n_masks = 1;
    d->ahead = 0;
    d->all[0] = d->first_rc == 0;
    if (d->first_rc > 0) memcpy(mask_at(g, s, 0), s->guide.mask, words_of(g) * sizeof *s->guide.mask);
    return d->first_rc >= 0;
}

static bool allows(const engine *g, const sequence *s, int i, int32_t token) {
    return s->draft.all[i] || (mask_at(g, s, i)[token / 32] >> (token % 32) & 1);
}

/* The only token that the mask at i allows; -1: there is a choice, or it is the end. */
static int32_t only(const engine *g, const sequence *s, int i) {
    const uint32_t *mask = mask_at(g, s, i);
    int32_t         found = -1;
    if (s->draft.all[i]) return -1;
    for (size_t w = 0; w < words_of(g); w++) {
        if (mask[w] == 0) continue;
        if (found >= 0 || (mask[w] & (mask[w] - 1))) return -1;
        found = (int32_t)w * 32 + __builtin_ctz(mask[w]);
    }
    return found >= 0 && g->tok && tok_is_end(g->tok, found) ? -1 : found;
}

/* The guide reads a token that the mask at `ahead` allows. False: the draft ends in front of it, or behind it if the text
 * does. */
static bool advance(const engine *g, sequence *s, int32_t token) {
    sequence_draft *d = &s->draft;
    engine_guide   *guide = s->guide.guide;
    err             e;
    if (guide->accept(guide, token, &e) < 0) return false;
    d->ahead++;
    if (guide->must_stop(guide)) return false;
    int rc = guide->mask(guide, mask_at(g, s, d->ahead), &e);
    if (rc < 0) return false;
    d->all[d->ahead] = rc == 0;
    d->n_masks = d->ahead + 1;
    return true;
}

int draft_guide_forced(engine *g, sequence *s, int most) {
    sequence_draft *d = &s->draft;
    bool            goes_on = take_first(g, s);
    while (goes_on && d->n < most) {
        int32_t token = only(g, s, d->n);
        if (token < 0) break;
        goes_on = advance(g, s, token);
        if (d->ahead > d->n) d->tokens[d->n++] = token;
    }
    d->n_forced = d->n;
    return d->n;
}

void draft_guide_check(engine *g, sequence *s) {
    sequence_draft *d = &s->draft;
    bool            goes_on = take_first(g, s) && d->n_masks > d->ahead;
    int             n = d->ahead;
    while (goes_on && n < d->n && allows(g, s, n, d->tokens[n])) {
        goes_on = advance(g, s, d->tokens[n]);
        n = d->ahead;
        if (!goes_on) break;
    }
    if (d->n > n) d->n = n;
}

void draft_guide_back(sequence *s) {
    if (s->draft.ahead > 0) s->guide.guide->rollback(s->guide.guide, s->draft.ahead);
    s->draft.ahead = 0;
}

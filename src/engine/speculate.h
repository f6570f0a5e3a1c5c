/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts of the running sequences: who drafts, how deep, and what became of it.
 *
 * Before a step every sequence that generates may get a draft: first the tokens that its guide forces, then those of the
 * drafters that cost nothing, else those of one that does. speculate_plan asks them, chooses the depth (depth.h) and makes
 * room: pages that are there are used, but nobody gives way for a draft. The step evaluates the draft behind the token
 * that is certain; step.c picks row by row and goes on while the pick is the draft. What was picked is final, so neither
 * samplers nor guides nor text are ever taken back, only positions.
 *
 * A layer with a fixed state cannot be taken back by forgetting positions. Its state is copied to a twin slot before the
 * step; unless all of the draft is right, the twin takes the slot's place and what was accepted is evaluated once more
 * with the next step. Either way the state has seen each token once, in order.
 *
 * A step that also computes a prompt has no drafts: its rows are paid for by arithmetic, and a prompt's are never in vain.
 */
#ifndef ENGINE_SPECULATE_H
#define ENGINE_SPECULATE_H

#include "engine/depth.h"
#include "engine/drafter.h"

#include <stddef.h>

enum {
    SPECULATE_DRAFTERS = 4,
    SPECULATE_FORCED =
        SPECULATE_DRAFTERS * DRAFT_GRADES, /* the record of whether looking for forced tokens is worth it */
    SPECULATE_SOURCES,
    SPECULATE_TWINS = 4, /* sequences with fixed states that draft at once: a state may be large */
};

struct engine;
struct engine_options;
struct sequence;

/* Part of a sequence. */
typedef struct sequence_draft {
    int32_t    tokens[DRAFT_MOST];
    int        n, n_forced;
    int        source; /* of those that are not forced: drafter and grade */
    depth_odds odds[SPECULATE_SOURCES];
    bool       begun; /* odds are filled */

    /* The guide's masks along the draft: masks[i] is for the token behind i drafted ones. */
    uint32_t *masks;               /* DRAFT_MOST + 1 of them; NULL: no guide, or no speculation */
    int       n_masks;             /* known for this step; 0: the mask thread has the first one */
    int       first_rc;            /* of the first one; those behind it are only known when there was no error */
    bool      all[DRAFT_MOST + 1]; /* everything is allowed */
    int       ahead;               /* drafted tokens that the guide has been told of */
} sequence_draft;

typedef struct speculation {
    drafter          *drafters[SPECULATE_DRAFTERS];
    int               n_drafters;
    int               most; /* tokens of one draft; 0: nobody drafts */
    depth_costs       costs;
    depth_budget      budget;
    double            guess_s;                 /* spent on the drafts of this step */
    depth_odds        odds[SPECULATE_SOURCES]; /* of all sequences */
    draft_ask        *asks;
    struct sequence **who; /* whose ask */
    depth_offer      *offers;
    int              *from; /* drafter of an ask, or -1 */
    bool             *seat_used;
    int               reads; /* hidden states before the newest token that some drafter wants to see */
    float            *seen;  /* such rows on their way: [reads + DRAFT_MOST + 1][hidden] */
} speculation;

int               speculate_open(struct engine *g, int n_pages, err *e); /* n_pages: of the engine's cache */
void              speculate_close(struct engine *g);
int               speculate_twins(const struct engine *g);             /* slots beyond one per sequence */
int               speculate_rows(const struct engine *g);              /* rows of logits beyond one per sequence */
int               speculate_most_rows(const struct engine_options *o); /* given the room */
bool              speculate_any(const struct engine_options *o);
bool              speculate_asks_model(const struct engine *g);
bool              speculate_asks_head(const struct engine *g);
draft_model_shape speculate_draft_shape(const struct engine *g, int n_pages);

void speculate_seat(struct engine *g, struct sequence *s);  /* it begins to run */
void speculate_leave(struct engine *g, struct sequence *s); /* it does not run any more */

/* Drafts for the next step; before schedule_batch. */
void speculate_plan(struct engine *g);
/* A step that only generates took so many rows and gave so many tokens. */
void speculate_account(struct engine *g, int rows, int tokens);
/* So many of a sequence's drafted tokens were right; the draft is gone afterwards. */
void speculate_learn(struct engine *g, struct sequence *s, int accepted);

/* Hidden states that drafters read. How many of the n rows from a position on, the last ones, are wanted of a step that
 * does not end with logits there; and, after the step, the rows first .. first + n of its outputs, which begin at a position. */
int  speculate_wants(const struct engine *g, const struct sequence *s, int position, int n);
void speculate_show(struct engine *g, const struct sequence *s, int first, int n, int position);

/* draft_guide.c: appends the tokens that the guide forces, and says how many; cuts the draft where the guide forbids it;
 * brings the guide back to where the sequence is. */
int  draft_guide_forced(struct engine *g, struct sequence *s, int most);
void draft_guide_check(struct engine *g, struct sequence *s);
void draft_guide_back(struct sequence *s);

#endif

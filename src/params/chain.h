/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages that hosts and devices share, and a pick from the likeliest tokens of a row alone.
 *
 * A device does not send 150,000 logits to the host but the hundred largest. Most chains pick from those: top_k keeps
 * fewer, the limit of min_p lies above what is missing, top_p is reached inside. chain_pick runs the stages of the host
 * over them as long as what is missing cannot change the outcome, so its token is the host's, bit for bit; where it
 * could, it says so, and somebody looks at the whole row.
 */
#ifndef PARAMS_CHAIN_H
#define PARAMS_CHAIN_H

#include "params/candidates.h"
#include "params/sampling.h"

void   stage_top_k(cand_set *s, int k);
void   stage_top_p(cand_set *s, float p); /* the shortest sorted prefix with at least p of the mass */
void   stage_min_p(cand_set *s, float p); /* probability at least p times the largest */
void   stage_temperature(cand_set *s, float temperature, float range, float exponent);
size_t cand_draw(cand_set *s, double uniform); /* the index of the pick */

/* Sums of two implementations differ by less than this part of them; a decision that is closer is left to the host. */
#define CHAIN_CLOSE 2e-6

/* The largest entries of a row, in descending order, equal ones by ascending id. */
typedef struct chain_list {
    const int32_t *token;
    const float   *x; /* as they came: numbers above SAMPLING_LARGEST, too */
    int            n;
    bool           whole; /* there are no others that are possible */
    float          floor; /* else no other is above this, and none of these below */
} chain_list;

/* The set of a list that steps 2 to 4 of a pick (params/sampling.h) have changed; r NULL: the list's row was changed
 * already. False: a token that is missing in the list may have become one of the largest. */
bool chain_fill(cand_set *s, const chain_list *l, const sampling_row *r);

/* Step 5 and those behind it, over such a set. sum: the weights of all tokens as top_p adds them, within CHAIN_CLOSE;
 * 0: not known. SAMPLING_LEFT: the set does not decide. */
int32_t chain_pick(cand_set *s, const chain_list *l, const sampling_row *r, double sum);

/* Whether a stage of step 7 takes candidates away; else the draw is over the whole row. */
bool  chain_cuts(const sampling_params *p);
float chain_temperature(const sampling_params *p); /* 1: that stage is not in `order` */
bool  chain_greedy(const sampling_params *p);

#endif

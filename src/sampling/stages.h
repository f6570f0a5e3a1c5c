/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of the chain, as plain functions. Truncating stages always leave at least one candidate. */
#ifndef SAMPLING_STAGES_H
#define SAMPLING_STAGES_H

#include "params/chain.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Over the raw row. recent[0..n): the tokens in the window, any order. counts: n_vocab zeros, zero again afterwards.
 * repeat divides positive and multiplies negative logits once per distinct token; frequency subtracts per occurrence,
 * presence once.
 */
void stage_penalties(float *logits, size_t n_vocab, const int32_t *recent, size_t n, float repeat, float frequency,
                     float presence, int32_t *counts);

/*
 * Do not repeat yourself: a token that would extend a sequence that already stood in the history is lowered by
 * multiplier * base^(length - allowed_length), length being that of the longest such sequence (at least
 * allowed_length). history is in order, newest last; is_breaker marks tokens no sequence may contain. lengths and z: n
 * ints of scratch, best: n_vocab zeros, zero again afterwards.
 */
void stage_dry(float *logits, size_t n_vocab, const int32_t *history, size_t n, float multiplier, float base,
               int allowed_length, const int32_t *breakers, size_t n_breakers, int32_t *z, int32_t *best);

void stage_top_n_sigma(cand_set *s, float n); /* keeps logits within n standard deviations below the largest */
void stage_typical(cand_set *s, float p,
                   cand *scratch); /* locally typical: surprise close to the entropy; scratch: count */
void stage_xtc(cand_set *s, float probability, float threshold, double uniform);

#endif

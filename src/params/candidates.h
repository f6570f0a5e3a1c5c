/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The candidate set: tokens that may still be picked, sorted only as far as a stage needs.
 *
 * A vocabulary has 150,000 tokens and a filter keeps a handful, so nothing sorts the whole row. The first `sorted`
 * entries are the largest, in descending order of logit (lower id first among equals); the rest is in no order.
 * cand_sort extends the sorted part by selection in linear time; results are exactly those of a full sort.
 */
#ifndef PARAMS_CANDIDATES_H
#define PARAMS_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cand {
    float   logit; /* never NaN, never -INFINITY */
    int32_t id;
} cand;

typedef struct cand_set {
    cand  *c;
    size_t count, sorted;
    double max, sum; /* of the softmax over the set: largest logit, sum of exp(logit - max); valid if has_sum */
    bool   has_sum;
} cand_set;

void    cand_fill(cand_set *s, const float *logits, size_t n); /* finite entries, in order of id */
int32_t cand_first(const float *logits, size_t n);  /* the id that cand_fill and cand_sort put first; -1: none */
void    cand_sort(cand_set *s, size_t n);           /* makes sorted >= min(n, count) */
void    cand_keep(cand_set *s, size_t n);           /* only the first n, which are sorted */
void    cand_keep_from(cand_set *s, double limit);  /* only logits of at least this; what is sorted stays so */
void    cand_softmax(cand_set *s);                  /* makes max and sum valid */
double  cand_prob(const cand_set *s, size_t index); /* after cand_softmax */

#endif

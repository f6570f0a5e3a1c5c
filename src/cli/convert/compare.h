/* SPDX-License-Identifier: Apache-2.0 */
/* Two models over one text, token by token: the figures of `hearth compare` and how they are shown. */
#ifndef CLI_CONVERT_COMPARE_H
#define CLI_CONVERT_COMPARE_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct compare_token {
    float   kl;           /* sum p_a log(p_a / p_b), in nats */
    float   nll_a, nll_b; /* of the token that follows */
    bool    same;         /* both have the same favourite */
    int32_t id, top_a, top_b;
    size_t  at; /* of the token in the text */
} compare_token;

/* Negative log-likelihood of a token by a row of n logits. */
double compare_surprise(const float *row, int64_t n, int32_t token);

/* log sum exp of a row. */
double compare_log_sum(const float *row, int64_t n);

/* A row of each model; `next` follows. */
compare_token compare_rows(const float *a, const float *b, int64_t n, int32_t next);

typedef struct compare_figures {
    size_t n;
    double kl_mean, kl_error, kl_median, kl_90, kl_99, kl_max;
    double same, same_error; /* part of the tokens */
    double ppl_a, ppl_a_error, ppl_b, ppl_b_error, ratio, ratio_error;
} compare_figures;

/* Sorts the tokens: the largest divergence first. */
void compare_figures_of(compare_token *t, size_t n, compare_figures *out);

/* The distribution of the divergences as a picture. */
void compare_svg(const compare_token *t, size_t n, const compare_figures *f, const char *a, const char *b, str *out);

#endif

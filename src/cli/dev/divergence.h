/* SPDX-License-Identifier: Apache-2.0 */
/* How far the predictions of one run are from those of another, row by row. */
#ifndef CLI_DEV_DIVERGENCE_H
#define CLI_DEV_DIVERGENCE_H

#include <stddef.h>
#include <stdint.h>

typedef struct divergence {
    float    *each; /* of every row: the Kullback-Leibler divergence from the reference, in nats */
    size_t    n, cap;
    long long same_top; /* rows in which both find the same token most likely */
    double    surprise; /* sum over rows: of the token that came, by the reference */
} divergence;

/* One row of logits of both. Negative: out of memory. */
int divergence_add(divergence *d, const float *reference, const float *row, int64_t n, int32_t token);
/* surprise: the sum of the run itself. Nothing where no row was added. */
void divergence_print(divergence *d, double surprise);
void divergence_print_json(divergence *d, double surprise); /* members, each behind a comma */
void divergence_deinit(divergence *d);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dev/divergence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* log of the sum of exp, and the place of the largest. */
static double log_sum(const float *row, int64_t n, int64_t *top) {
    double sum = 0;
    *top = 0;
    for (int64_t i = 1; i < n; i++) *top = row[i] > row[*top] ? i : *top;
    for (int64_t i = 0; i < n; i++) sum += exp((double)row[i] - (double)row[*top]);
    /* cppcheck-suppress invalidFunctionArg ; n is the size of a vocabulary: sum is at least 1 */
    return log(sum) + (double)row[*top];
}

double divergence_surprise(const float *row, int64_t n, int32_t token) {
    int64_t top;
    return log_sum(row, n, &top) - (double)row[token];
}

int divergence_add(divergence *d, const float *reference, const float *row, int64_t n, int32_t token) {
    int64_t top, other;
    double  kl = 0, a = log_sum(reference, n, &top), b = log_sum(row, n, &other);
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 1024;
        float *more = realloc(d->each, cap * sizeof *more);
        if (!more) return -1;
        d->each = more;
        d->cap = cap;
    }
    for (int64_t i = 0; i < n; i++) {
        const double p = (double)reference[i] - a;
        kl += exp(p) * (p - ((double)row[i] - b));
    }
    d->each[d->n++] = (float)(kl > 0 ? kl : 0);
    d->same_top += top == other;
    d->surprise += a - (double)reference[token];
    return 0;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void divergence_print(divergence *d, double surprise) {
    double sum = 0, n = (double)d->n;
    if (!d->n) return;
    qsort(d->each, d->n, sizeof *d->each, by_value);
    for (size_t i = 0; i < d->n; i++) sum += (double)d->each[i];
    printf("with f32 pages %.5f, so %+.3f%%\n", exp(d->surprise / n), 100 * (exp((surprise - d->surprise) / n) - 1));
    printf("KL divergence mean %.6f, median %.6f, 99%% %.6f, largest %.4f\n", sum / n, (double)d->each[d->n / 2],
           (double)d->each[(d->n - 1) * 99 / 100], (double)d->each[d->n - 1]);
    printf("same top token %.3f%%\n", 100 * (double)d->same_top / n);
}

void divergence_deinit(divergence *d) {
    free(d->each);
    *d = (divergence){ 0 };
}

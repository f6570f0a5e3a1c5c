/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dev/divergence.h"

#include "cli/convert/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int divergence_add(divergence *d, const float *reference, const float *row, int64_t n, int32_t token) {
    compare_token t = compare_rows(reference, row, n, token);
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 1024;
        float *more = realloc(d->each, cap * sizeof *more);
        if (!more) return -1;
        d->each = more;
        d->cap = cap;
    }
    d->each[d->n++] = t.kl;
    d->same_top += t.same;
    d->surprise += (double)t.nll_a;
    return 0;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts the rows; their mean. */
static double settle(divergence *d) {
    double sum = 0;
    qsort(d->each, d->n, sizeof *d->each, by_value);
    for (size_t i = 0; i < d->n; i++) sum += (double)d->each[i];
    return sum / (double)d->n;
}

void divergence_print(divergence *d, double surprise) {
    double n = (double)d->n;
    if (!d->n) return;
    double mean = settle(d);
    printf("with f32 pages %.5f, so %+.3f%%\n", exp(d->surprise / n), 100 * (exp((surprise - d->surprise) / n) - 1));
    printf("KL divergence mean %.6f, median %.6f, 99%% %.6f, largest %.4f\n", mean, (double)d->each[d->n / 2],
           (double)d->each[(d->n - 1) * 99 / 100], (double)d->each[d->n - 1]);
    printf("same top token %.3f%%\n", 100 * (double)d->same_top / n);
}

void divergence_print_json(divergence *d, double surprise) {
    double n = (double)d->n;
    if (!d->n) return;
    double mean = settle(d);
    printf(",\"perplexity_f32\":%.9g,\"ratio\":%.9g", exp(d->surprise / n), exp((surprise - d->surprise) / n));
    printf(",\"kl_mean\":%.9g,\"kl_median\":%.9g,\"kl_99\":%.9g,\"kl_max\":%.9g", mean, (double)d->each[d->n / 2],
           (double)d->each[(d->n - 1) * 99 / 100], (double)d->each[d->n - 1]);
    printf(",\"same_top\":%.9g", (double)d->same_top / n);
}

void divergence_deinit(divergence *d) {
    free(d->each);
    *d = (divergence){ 0 };
}

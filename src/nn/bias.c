/* SPDX-License-Identifier: Apache-2.0 */
/* What attention adds to scores by distance: tables that are made once, while a tape is recorded. */
#include "nn/tape.h"

#include <math.h>
#include <stdlib.h>

static nn_vec *new_bias(nn_tape *t, const char *name, int n_head, int64_t reach, float **data) {
    int64_t n = n_head * (2 * reach + 1);
    nn_vec *v = !t->failed ? arena_calloc(t->mem, 1, sizeof *v) : NULL;
    *data = v ? arena_calloc(t->mem, (size_t)n, sizeof **data) : NULL;
    if (*data) {
        *v = (nn_vec){ .name = name, .n = n, .data = *data };
        return v;
    }
    if (!t->failed) err_set_nomem(&t->error);
    t->failed = true;
    return NULL;
}

/* Keys behind the query have the upper half. The logarithm is taken as the reference does: in f32. */
static int bucket_of(int distance, int n_bucket, int max_distance) {
    int half = n_bucket / 2, exact = half / 2, far = distance > 0 ? half : 0, n = abs(distance);
    if (n < exact) return far + n;
    float share = logf((float)n / (float)exact) / (float)log((double)max_distance / exact);
    int   at = exact + (int)(share * (float)(half - exact));
    return far + (at < half ? at : half - 1);
}

const nn_vec *nn_bias_buckets(nn_tape *t, const nn_vec *table, int n_head, int n_bucket, int max_distance) {
    float *data;
    if (t->failed) return NULL;
    if (n_bucket < 4 || n_bucket > 4096 || max_distance <= n_bucket / 4 || max_distance > 1 << 16 ||
        table->n != (int64_t)n_bucket * n_head) {
        t->failed = true;
        err_set(&t->error, ERR_FORMAT, "biases: %lld values for %d buckets of %d heads up to a distance of %d",
                (long long)table->n, n_bucket, n_head, max_distance);
        return NULL;
    }
    nn_vec *out = new_bias(t, table->name, n_head, max_distance, &data);
    for (int h = 0; out && h < n_head; h++) {
        for (int d = -max_distance; d <= max_distance; d++)
            *data++ = table->data[bucket_of(d, n_bucket, max_distance) * n_head + h];
    }
    return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices whose inputs and outputs are kept within limits that the file has (Gemma 4's towers). */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

void nn_bind_limited(nn_binder *b, nn_limited *w, const char *gguf, const char *hf, int64_t in, int64_t rows) {
    static const char *const ends[] = { "input_min", "input_max", "output_min", "output_max" };
    const nn_vec           **to[] = { &w->in_min, &w->in_max, &w->out_min, &w->out_max };
    char                     own[2][96], both[160];
    snprintf(both, sizeof both, "%s.linear|%s", hf, hf);
    nn_bind_linear(b, &w->w, gguf, both, in, rows, NN_NO_BIAS);
    for (int i = 0; i < 4; i++) {
        snprintf(own[0], sizeof own[0], "%s.%s", gguf, ends[i]);
        snprintf(own[1], sizeof own[1], "%s.%s", hf, ends[i]);
        nn_bind_vec(b, to[i], own[0], own[1], 1, NN_OPTIONAL);
    }
}

static void limit(nn_tape *t, nn_buf x, const nn_vec *min, const nn_vec *max) {
    if (min || max) nn_clamp(t, x, min ? min->data[0] : -INFINITY, max ? max->data[0] : INFINITY);
}

nn_buf nn_project_limited(nn_tape *t, nn_buf x, const nn_limited *w) {
    if (w->in_min || w->in_max) { /* others read x, too */
        x = nn_take(t, x, 0, (int)w->w.w->cols);
        limit(t, x, w->in_min, w->in_max);
    }
    nn_buf y = nn_project(t, x, w->w);
    limit(t, y, w->out_min, w->out_max);
    return y;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A table that no file has: which tokens are of a kind. */
#include "nn/bind.h"

enum { WIDTH = 4 }; /* rows of whole vectors */

void nn_bind_marks(nn_binder *b, const nn_mat **out, int64_t rows, const int *marked, int n) {
    tensor_mat *at = arena_calloc(b->mem, 1, sizeof *at);
    nn_mat     *m = arena_calloc(b->mem, 1, sizeof *m);
    float      *data = arena_calloc(b->mem, (size_t)rows * WIDTH, sizeof *data);
    *out = NULL;
    if (!at || !m || !data) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return;
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < WIDTH && marked[i] >= 0 && marked[i] < rows; k++) data[(int64_t)marked[i] * WIDTH + k] = 1;
    }
    *at = (tensor_mat){
        .type = TENSOR_F32, .rows = rows, .cols = WIDTH, .data = data, .row_bytes = WIDTH * sizeof(float)
    };
    *m = (nn_mat){ .name = "marks", .rows = rows, .cols = WIDTH, .at = at };
    *out = m;
}

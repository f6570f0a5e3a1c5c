/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the input as an importance matrix, of either format, and uses everything the reader let through. */
#include "convert/imatrix.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    imatrix *m = NULL, *twice = NULL;
    err      e = { 0 };
    if (imatrix_read_memory(&m, data, size, &e) < 0) {
        if (m || !e.msg[0]) abort();
        return 0;
    }
    for (size_t i = 0; i < imatrix_count(m); i++) {
        const imatrix_entry *x = imatrix_at(m, i);
        const float         *v = imatrix_find(m, x->name, x->cols, x->experts);
        for (int64_t k = 0; v && k < x->cols * x->experts; k++) {
            if (!(v[k] >= 0)) abort();
            sink += (double)v[k];
        }
    }
    if (imatrix_open(&twice, &e) == 0 && (imatrix_add(twice, m, &e) < 0 || imatrix_add(twice, m, &e) < 0)) abort();
    imatrix_free(twice);
    imatrix_free(m);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the input as a GGUF file and touches everything the reader let through. */
#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void walk(const meta_value *v) {
    int64_t i;
    double  r;
    view    s;
    bool    b;
    if (meta_int(v, &i)) sink += (uint64_t)i;
    if (meta_real(v, &r)) sink += r > 0;
    if (meta_bool(v, &b)) sink += b;
    if (meta_string(v, &s) && s.len) sink += (uint8_t)s.data[0] + (uint8_t)s.data[s.len - 1];
    for (size_t k = 0; v->type == META_ARRAY && k < v->count; k++) {
        if (meta_at_int(v, k, &i)) sink += (uint64_t)i;
        if (meta_at_real(v, k, &r)) sink += r > 0;
        if (meta_at_string(v, k, &s) && s.len) sink += (uint8_t)s.data[0] + (uint8_t)s.data[s.len - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tensor_table t;
    gguf         g;
    err          e = { 0 };
    tensor_table_init(&t);
    int rc = gguf_read_memory(&g, data, size, &t, &e);
    if (rc == 0) {
        for (size_t i = 0; i < g.n_keys; i++) {
            if (gguf_find(&g, g.keys[i].name) != &g.keys[i].value) abort();
            walk(&g.keys[i].value);
        }
        for (size_t i = 0; i < t.count; i++) {
            const model_tensor *x = &t.items[i];
            if (tensor_table_find(&t, x->name, strlen(x->name)) != x) abort();
            if (x->bytes) sink += x->data[0] + x->data[x->bytes - 1];
        }
        gguf_deinit(&g);
    } else if (e.code != rc || !e.msg[0]) {
        abort(); /* every refusal has a sentence */
    }
    tensor_table_deinit(&t);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the input as a safetensors file and touches everything the reader let through. The first 8 bytes are taken as
 * they are; when they give no length that fits, the length of the whole rest is tried too. */
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void once(const uint8_t *data, size_t size) {
    tensor_table t;
    safetensors  s;
    err          e = { 0 };
    tensor_table_init(&t);
    int rc = safetensors_read_memory(&s, data, size, &t, NULL, NULL, &e);
    if (rc == 0) {
        for (size_t i = 0; i < s.n_metadata; i++) sink += strlen(s.metadata[i].key) + strlen(s.metadata[i].value);
        for (size_t i = 0; i < t.count; i++) {
            const model_tensor *x = &t.items[i];
            if (tensor_table_find(&t, x->name, strlen(x->name)) != x) abort();
            if (x->bytes) sink += x->data[0] + x->data[x->bytes - 1];
        }
        safetensors_deinit(&s);
    } else if (e.code != rc || !e.msg[0]) {
        abort();
    }
    tensor_table_deinit(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t length = size < 8 ? 0 : size - 8;
    once(data, size);
    if (size > 8 && memcmp(data, &length, 8) != 0 && data[8] == '{') {
        uint8_t *copy = malloc(size);
        if (!copy) return 0;
        memcpy(copy, data, size);
        memcpy(copy, &length, 8);
        once(copy, size);
        free(copy);
    }
    return 0;
}

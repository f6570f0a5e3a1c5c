/* SPDX-License-Identifier: Apache-2.0 */
/* The input is config.json, a NUL byte, a safetensors file: a checkpoint that another tool has packed. */
#include "formats/packed.h"
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void check(int rc, const err *e) {
    if (rc < 0 && (e->code != rc || !e->msg[0])) abort();
}

/* Whatever was made can be read, and has the size that its type and shape need. */
static void read_all(const model_file *m) {
    for (size_t i = 0; i < m->tensors.count; i++) {
        const model_tensor *t = &m->tensors.items[i];
        size_t              need = 0;
        if (tensor_table_bytes(t, &need, NULL) == 0 && need != t->bytes) abort();
        for (size_t k = 0; k < t->bytes; k += 61) sink += t->data[k];
        if (t->bytes) sink += t->data[t->bytes - 1];
    }
}

static void expand(model_file *m, const uint8_t *data, size_t size) {
    safetensors s;
    err         e = { 0 };
    int         rc = safetensors_read_memory(&s, data, size, &m->tensors, NULL, NULL, &e);
    check(rc, &e);
    if (rc < 0) return;
    safetensors_deinit(&s);
    rc = packed_expand(m, &e);
    check(rc, &e);
    if (rc == 0) {
        rc = packed_floats_expand(m, &e);
        check(rc, &e);
    }
    if (rc == 0) read_all(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    char           path[] = "fuzz";
    model_file     m = { .path = path };
    if (!nul || hf_config_read(&m.config, (const char *)data, (size_t)(nul - data), NULL) < 0) return 0;
    tensor_table_init(&m.tensors);
    arena_init(&m.packed, (size_t)64 << 20);
    expand(&m, nul + 1, size - (size_t)(nul + 1 - data));
    tensor_table_deinit(&m.tensors);
    arena_deinit(&m.packed);
    hf_config_deinit(&m.config);
    return 0;
}

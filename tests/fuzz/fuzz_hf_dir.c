/* SPDX-License-Identifier: Apache-2.0 */
/* The input is config.json, a NUL byte, model.safetensors.index.json; either may be missing. */
#include "formats/hf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void check(int rc, const err *e) {
    if (rc < 0 && (e->code != rc || !e->msg[0])) abort();
}

static void read_config(const char *text, size_t len) {
    static const char *const modules[] = { "", "model.layers.0.mlp.up_proj", "lm_head" };
    hf_config                c;
    err                      e = { 0 };
    int                      rc = hf_config_read(&c, text, len, &e);
    check(rc, &e);
    if (rc < 0) return;
    for (size_t i = 0; i < 3; i++) {
        model_quant q;
        if (!hf_mlx_module(&c.mlx, modules[i], strlen(modules[i]), &q)) continue;
        if (q.bits < 2 || q.bits > 8 || q.group < 16 || q.group > 128) abort();
        sink += (uint64_t)q.group;
    }
    if (c.quant.name) sink += strlen(c.quant.name) + (uint64_t)c.quant.block_rows;
    hf_config_deinit(&c);
}

static void read_index(const char *text, size_t len) {
    hf_index x;
    err      e = { 0 };
    int      rc = hf_index_read(&x, text, len, &e);
    check(rc, &e);
    if (rc < 0) return;
    for (size_t i = 0; i < x.n_shards; i++) {
        if (strchr(x.shards[i], '/') || x.shards[i][0] == '.' || !x.shards[i][0])
            abort(); /* would leave the directory */
    }
    size_t          cursor = 0;
    const map_slot *slot;
    while (map_next(&x.weights, &cursor, &slot)) {
        if (slot->value >= x.n_shards) abort();
    }
    hf_index_deinit(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t         first = nul ? (size_t)(nul - data) : size;
    read_config((const char *)data, first);
    if (nul) read_index((const char *)nul + 1, size - first - 1);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/adapter_support.h"

#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / (double)(1 << 24) - 0.5);
}

void test_safetensors(str *out, const test_tensor *t, size_t n) {
    str    head;
    size_t at = 0;
    str_init(&head);
    str_push(&head, '{');
    for (size_t i = 0; i < n; i++) {
        str_printf(&head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", t[i].name, t[i].type);
        if (t[i].rows) str_printf(&head, "%lld,", (long long)t[i].rows);
        str_printf(&head, "%lld],\"data_offsets\":[%zu,%zu]}", (long long)t[i].cols, at, at + t[i].bytes);
        at += t[i].bytes;
    }
    str_push(&head, '}');
    while (head.len % 8) str_push(&head, ' ');
    uint64_t length = head.len;
    str_append(out, (const char *)&length, sizeof length);
    str_append(out, str_cstr(&head), head.len);
    for (size_t i = 0; i < n; i++) str_append(out, t[i].data, t[i].bytes);
    str_deinit(&head);
}

void test_peft_make(test_peft *p, uint64_t seed, int rank) {
    static const struct {
        const char *name;
        int         in, out;
    } parts[] = { { "self_attn.q_proj", 64, 64 }, { "self_attn.k_proj", 64, 32 }, { "self_attn.v_proj", 64, 32 },
                  { "self_attn.o_proj", 64, 64 }, { "mlp.gate_proj", 64, 128 },   { "mlp.up_proj", 64, 128 },
                  { "mlp.down_proj", 128, 64 } };
    enum { PARTS = sizeof parts / sizeof *parts, LAYERS = 3, ALL = 2 * PARTS * LAYERS };
    test_tensor t[ALL];
    char        names[ALL][96];
    uint64_t    state = seed * 7919 + 13;
    int         n = 0;
    str_init(&p->config);
    str_init(&p->data);
    str_printf(&p->config,
               "{\"peft_type\":\"LORA\",\"r\":%d,\"lora_alpha\":%d,\"bias\":\"none\",\"target_modules\":[\"q_proj\"]}",
               rank, 2 * rank);
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < PARTS; i++) {
            for (int b = 0; b < 2; b++, n++) {
                int    rows = b ? parts[i].out : rank, cols = b ? rank : parts[i].in;
                float *v = malloc((size_t)(rows * cols) * sizeof *v);
                assert_non_null(v);
                for (int k = 0; k < rows * cols; k++) v[k] = next(&state) * (b ? 0.5f : 0.3f);
                snprintf(names[n], sizeof names[n], "base_model.model.model.layers.%d.%s.lora_%c.weight", l,
                         parts[i].name, b ? 'B' : 'A');
                t[n] = (test_tensor){ names[n], "F32", rows, cols, v, (size_t)(rows * cols) * sizeof *v };
            }
        }
    }
    test_safetensors(&p->data, t, ALL);
    for (int i = 0; i < ALL; i++) free((void *)(uintptr_t)t[i].data);
    assert_true(str_ok(&p->data) && str_ok(&p->config));
}

void test_peft_free(test_peft *p) {
    str_deinit(&p->config);
    str_deinit(&p->data);
}

void test_peft_write(const test_peft *p, const char *dir) {
    char path[512];
    err  e = { 0 };
    assert_int_equal(dir_make(dir, &e), 0);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    test_write_file(path, str_cstr(&p->config), p->config.len);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    test_write_file(path, str_cstr(&p->data), p->data.len);
}

nn_adapter *test_peft_open(const test_peft *p, const nn_model *m) {
    nn_adapter *a;
    err         e = { 0 };
    if (nn_adapter_read(&a, m, str_cstr(&p->config), p->config.len, (const uint8_t *)str_cstr(&p->data), p->data.len,
                        LOWRANK_AUTO, &e) < 0)
        fail_msg("%s", e.msg);
    return a;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Adapter files: what is bound, what is refused by name, and that no file of any content does harm. The numbers that
 * come out are compared with PEFT's in tests/golden/check_adapters.py. */
#include "unit/support/adapter_support.h"
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fixture base;

static int open_base(void **state) {
    (void)state;
    fixture_open(&base, "llama");
    return 0;
}

static int close_base(void **state) {
    (void)state;
    fixture_close(&base);
    return 0;
}

static int read_as(const char *config, const str *data, nn_adapter **out, err *e) {
    return nn_adapter_read(out, base.model, config, config ? strlen(config) : 0, (const uint8_t *)str_cstr(data),
                           data->len, LOWRANK_AUTO, e);
}

static void refused(const char *config, const str *data, const char *words) {
    nn_adapter *a = NULL;
    err         e = { 0 };
    int         rc = read_as(config, data, &a, &e);
    if (rc == 0) fail_msg("accepted, though \"%s\" was expected", words);
    assert_null(a);
    assert_int_equal(rc, e.code);
    if (!strstr(e.msg, words)) fail_msg("\"%s\" does not say \"%s\"", e.msg, words);
}

static void test_bound(void **state) {
    test_peft   p, q;
    nn_adapter *a, *b;
    (void)state;
    test_peft_make(&p, 1, 5);
    test_peft_make(&q, 2, 5);
    a = test_peft_open(&p, base.model);
    b = test_peft_open(&q, base.model);
    assert_int_equal(a->n_patches, 21);
    assert_int_equal(a->rank, 5);
    assert_int_equal(a->n_tensors, 42);
    assert_string_equal(a->kind, "lora");
    for (int i = 0; i < a->n_patches; i++) {
        assert_int_equal(a->patches[i].lora->used, 5);
        assert_int_equal(a->patches[i].lora->rank, 16);
    }
    assert_memory_not_equal(a->key, b->key, SHA256_BYTES);
    nn_adapter_free(b);
    b = test_peft_open(&p, base.model);
    assert_memory_equal(a->key, b->key, SHA256_BYTES);
    nn_adapter_free(a);
    nn_adapter_free(b);
    test_peft_free(&p);
    test_peft_free(&q);
}

/* Fields of adapter_config.json that cannot be honoured. */
static void test_settings_refused(void **state) {
    static const char *const cases[][2] = {
        { "\"modules_to_save\":[\"lm_head\"]", "modules_to_save" },
        { "\"lora_bias\":true", "lora_bias" },
        { "\"trainable_token_indices\":[1]", "trainable_token_indices" },
        { "\"layer_replication\":[[0,2]]", "layer_replication" },
        { "\"use_qalora\":true", "use_qalora" },
        { "\"init_lora_weights\":\"pissa\"", "pissa" },
        { "\"init_lora_weights\":\"olora\"", "olora" },
        { "\"init_lora_weights\":\"loftq\"", "loftq" },
        { "\"megatron_config\":{\"a\":1}", "megatron_config" },
        { "\"some_new_feature\":7", "some_new_feature" },
        { "\"bias\":\"all\"", "bias" },
        { "\"alora_invocation_tokens\":[-1]", "alora_invocation_tokens" },
        { "\"alpha_pattern\":{\"(a|b)\":1}", "pattern" },
        { "\"alpha_pattern\":{\".*.*.*.*.*.*.*.*.*.*.*.*x\":1}", "too long" },
    };
    test_peft p;
    (void)state;
    test_peft_make(&p, 1, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[256];
        snprintf(config, sizeof config, "{\"peft_type\":\"LORA\",\"lora_alpha\":4,%s}", cases[i][0]);
        refused(config, &p.data, cases[i][1]);
    }
    refused("{\"peft_type\":\"VERA\",\"lora_alpha\":1}", &p.data, "VERA");
    refused("{\"peft_type\":\"LORA\"}", &p.data, "lora_alpha");
    refused("{\"peft_type\":\"LORA\",\"lora_alpha\":1,\"use_dora\":true}", &p.data, "magnitude");
    refused("{\"peft_type\":\"IA3\"}", &p.data, "IA3");
    refused("{\"fine_tune_type\":\"full\",\"lora_parameters\":{\"scale\":1}}", &p.data, "full");
    refused("[]", &p.data, "not an object");
    refused("{", &p.data, "adapter_config.json");
    test_peft_free(&p);
}

static const char plain[] = "{\"peft_type\":\"LORA\",\"lora_alpha\":4,\"r\":2}";
#define Q "base_model.model.model.layers.0.self_attn.q_proj"

static void tensors_refused(const test_tensor *t, size_t n, const char *words) {
    str data;
    str_init(&data);
    test_safetensors(&data, t, n);
    refused(plain, &data, words);
    str_deinit(&data);
}

static void test_tensors_refused(void **state) {
    static float zeros[1 << 16];
    float        bad[128] = { 0 };
    (void)state;
#define A(name, r, c) { name ".lora_A.weight", "F32", r, c, zeros, (size_t)(r) * (c)*4 }
#define B(name, r, c)                                                                                                  \
    { name ".lora_B.weight", "F32", r, c, zeros, (size_t)(r) * (c)*4 }
    tensors_refused((test_tensor[]){ A(Q, 2, 64) }, 1, "lora_B");
    tensors_refused((test_tensor[]){ B(Q, 64, 2) }, 1, "lora_A");
    tensors_refused((test_tensor[]){ A(Q, 2, 63), B(Q, 64, 2) }, 2, "do not fit");
    tensors_refused((test_tensor[]){ A(Q, 2, 64), B(Q, 63, 2) }, 2, "do not fit");
    tensors_refused((test_tensor[]){ A(Q, 2, 64), B(Q, 64, 3) }, 2, "do not fit");
    tensors_refused((test_tensor[]){ A(Q, 64, 2), B(Q, 2, 64) }, 2, "do not fit");
    tensors_refused((test_tensor[]){ A("base_model.model.model.layers.9.self_attn.q_proj", 2, 64),
                                     B("base_model.model.model.layers.9.self_attn.q_proj", 64, 2) },
                    2, "layers.9.self_attn.q_proj");
    tensors_refused((test_tensor[]){ A("nothing", 2, 64), B("nothing", 64, 2) }, 2, "no matrix nothing");
    tensors_refused((test_tensor[]){ { Q ".weight", "F32", 64, 64, zeros, 64 * 64 * 4 } }, 1, Q ".weight");
    tensors_refused((test_tensor[]){ { Q ".lora_A.weight", "BOOL", 2, 64, zeros, 128 }, B(Q, 64, 2) }, 2, "BOOL");
    tensors_refused((test_tensor[]){ A(Q, 0, 64), B(Q, 64, 0) }, 2, "");
    bad[77] = NAN;
    tensors_refused((test_tensor[]){ { Q ".lora_A.weight", "F32", 2, 64, bad, sizeof bad }, B(Q, 64, 2) }, 2,
                    "not finite");
    bad[77] = INFINITY;
    tensors_refused((test_tensor[]){ { Q ".lora_A.weight", "F32", 2, 64, bad, sizeof bad }, B(Q, 64, 2) }, 2,
                    "not finite");
    float *wide = calloc(5000 * 64, sizeof *wide);
    assert_non_null(wide);
    tensors_refused((test_tensor[]){ { Q ".lora_A.weight", "F32", 5000, 64, wide, 5000 * 64 * 4 },
                                     { Q ".lora_B.weight", "F32", 64, 5000, wide, 5000 * 64 * 4 } },
                    2, "do not fit");
    free(wide);
    str none;
    str_init(&none);
    test_safetensors(&none, NULL, 0);
    refused(plain, &none, "no tensors");
    str_deinit(&none);
}

/* DeBERTa's matrices of keys and queries also made the vectors of distances, which an adapter does not reach. */
static void test_folded_refused(void **state) {
    static float zeros[64];
    fixture      f;
    nn_adapter  *a = NULL;
    err          e = { 0 };
    (void)state;
    fixture_open(&f, "../encoders/deberta_v3");
#define LAYER "base_model.model.deberta.encoder.layer.0.attention.self."
    static const char *const names[] = { "key_proj", "value_proj" };
    for (int i = 0; i < 2; i++) {
        char        up[128], down[128];
        str         data;
        test_tensor t[] = { { down, "F32", 2, 32, zeros, sizeof zeros }, { up, "F32", 32, 2, zeros, sizeof zeros } };
        snprintf(down, sizeof down, LAYER "%s.lora_A.weight", names[i]);
        snprintf(up, sizeof up, LAYER "%s.lora_B.weight", names[i]);
        str_init(&data);
        test_safetensors(&data, t, 2);
        int rc = nn_adapter_read(&a, f.model, plain, strlen(plain), (const uint8_t *)str_cstr(&data), data.len,
                                 LOWRANK_AUTO, &e);
        if (i ? rc < 0 : rc != ERR_UNSUPPORTED) fail_msg("%s: %s", names[i], e.msg);
        assert_true(i || strstr(e.msg, "key_proj: adapters of this kind of matrix are not supported"));
        nn_adapter_free(a);
        str_deinit(&data);
    }
    fixture_close(&f);
}

/* Any prefix, and any file with some bytes changed, is read or refused. */
static void test_damaged(void **state) {
    test_peft p;
    uint64_t  random = 5;
    (void)state;
    test_peft_make(&p, 3, 1);
    for (size_t n = 0; n < p.data.len; n += n < 6000 ? 97 : 4999) {
        nn_adapter *a = NULL;
        err         e = { 0 };
        int rc = nn_adapter_read(&a, base.model, str_cstr(&p.config), p.config.len, (const uint8_t *)str_cstr(&p.data),
                                 n, LOWRANK_AUTO, &e);
        assert_true(rc < 0 && e.msg[0] && !a);
    }
    for (int i = 0; i < 400; i++) {
        str         copy;
        nn_adapter *a = NULL;
        err         e = { 0 };
        str_init(&copy);
        str_append(&copy, str_cstr(&p.data), p.data.len);
        for (int k = 0; k < 3; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            copy.data[(random >> 33) % (i < 300 ? 6000 : copy.len)] = (char)(random >> 24);
        }
        if (read_as(str_cstr(&p.config), &copy, &a, &e) < 0) assert_true(e.msg[0] && !a);
        nn_adapter_free(a);
        str_deinit(&copy);
    }
    test_peft_free(&p);
}

static void test_sets(void **state) {
    test_peft       p;
    nn_adapter_set *s, *other;
    err             e = { 0 };
    (void)state;
    test_peft_make(&p, 4, 3);
    nn_adapter    *a = test_peft_open(&p, base.model);
    nn_adapter_use uses[NN_SET_MOST + 1];
    for (int i = 0; i <= NN_SET_MOST; i++) uses[i] = (nn_adapter_use){ a, 1 };
    assert_int_equal(nn_adapter_set_open(&s, base.model, uses, NN_SET_MOST + 1, &e), ERR_LIMIT);
    assert_int_equal(nn_adapter_set_open(&s, base.model, uses, 0, &e), ERR_LIMIT);
    uses[0].scale = 0;
    assert_int_equal(nn_adapter_set_open(&s, base.model, uses, 1, &e), ERR_ARG);
    uses[0].scale = NAN;
    assert_int_equal(nn_adapter_set_open(&s, base.model, uses, 1, &e), ERR_ARG);
    uses[0].scale = 0.5f;
    assert_int_equal(nn_adapter_set_open(&s, base.model, uses, 1, &e), 0);
    uses[0].scale = 0.25f;
    assert_int_equal(nn_adapter_set_open(&other, base.model, uses, 1, &e), 0);
    assert_memory_not_equal(s->key, other->key, SHA256_BYTES);
    nn_adapter_set_free(s);
    nn_adapter_set_free(other);
    nn_adapter_free(a);
    test_peft_free(&p);
}

/* Where an activated adapter begins. */
static void test_start(void **state) {
    const int32_t call[] = { 4, 5 }, text[] = { 4, 5, 1, 4, 5, 4, 2 };
    nn_adapter    a = { .invocation = call, .n_invocation = 2 }, always = { 0 };
    (void)state;
    assert_int_equal(nn_adapter_start(&a, text, 7), 3);
    assert_int_equal(nn_adapter_start(&a, text, 4), 0);
    assert_int_equal(nn_adapter_start(&a, text + 4, 3), 3);
    assert_int_equal(nn_adapter_start(&a, text, 1), 1);
    assert_int_equal(nn_adapter_start(&always, text, 7), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),           cmocka_unit_test(test_settings_refused),
        cmocka_unit_test(test_tensors_refused), cmocka_unit_test(test_folded_refused),
        cmocka_unit_test(test_damaged),         cmocka_unit_test(test_sets),
        cmocka_unit_test(test_start),
    };
    return cmocka_run_group_tests(tests, open_base, close_base);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration texts: what they mean, and what is said about those that are wrong. */
#include "unit/support/support.h"

#include "config/model.h"

#include <stdlib.h>
#include <string.h>

static void model_of(config_model *m, const char *text) {
    err e = { 0 };
    if (config_model_read(m, view_of(text), "m.yaml", &e) < 0) fail_msg("%s", e.msg);
}

static void refused(const char *text, const char *want) {
    config_model m;
    err          e = { 0 };
    assert_true(config_model_read(&m, view_of(text), "m.yaml", &e) < 0);
    if (!strstr(e.msg, want)) fail_msg("no \"%s\" in: %s", want, e.msg);
}

static void test_model(void **state) {
    config_model m;
    (void)state;
    model_of(&m, "context: 16384\n"
                 "system: |\n  You are brief.\n  And kind.\n"
                 "sampling:\n  temperature: 0.25\n  top_k: 7\n  stop: [\"###\", END]\n  seed: 9007199254740993\n"
                 "presets:\n  exact: {temperature: 0, max_tokens: 12}\n"
                 "preset: exact\n"
                 "messages:\n- role: user\n  content: Hi.\n- {role: assistant, content: 'Hello: you'}\n"
                 "rope_scaling: {type: yarn, factor: 4, original_context: 8192}\n"
                 "kv_cache: {type: auto, precise_layers: 4}\n"
                 "keep_alive: 1h30m\npinned: yes\n");
    assert_string_equal(m.page_type, "auto");
    assert_null(m.page_type_k);
    assert_int_equal(m.precise_layers, 4);
    assert_int_equal(m.context, 16384);
    assert_string_equal(m.system, "You are brief.\nAnd kind.\n");
    assert_true(m.sampling.values.temperature == 0); /* the preset's */
    assert_int_equal(m.sampling.values.top_k, 7);
    assert_int_equal(m.sampling.max_tokens, 12);
    assert_true(m.sampling.values.seed == 9007199254740993LL);
    assert_int_equal(m.sampling.set, CONFIG_SET(SAMPLING_PARAM_TEMPERATURE) | CONFIG_SET(SAMPLING_PARAM_TOP_K) |
                                         CONFIG_SET_STOP | CONFIG_SET(SAMPLING_PARAM_SEED) | CONFIG_SET_MAX_TOKENS);
    assert_int_equal(m.sampling.n_stop, 2);
    assert_string_equal(m.sampling.stop[1], "END");
    assert_int_equal(m.n_messages, 2);
    assert_string_equal(m.messages[1].content, "Hello: you");
    assert_string_equal(m.rope_type, "yarn");
    assert_int_equal(m.rope_original_context, 8192);
    assert_true(m.keep_alive_set && m.keep_alive_s == 5400 && m.pinned);
    config_model_deinit(&m);
    model_of(
        &m,
        "{\"system\":\"a \\\"b\\\" \\u00e4\",\"sampling\":{\"temperature\":1e-1,\"stop\":[\"x\"]},\"keep_alive\":-1}");
    assert_string_equal(m.system, "a \"b\" \xc3\xa4");
    assert_true(m.sampling.values.temperature == 0.1f && m.keep_alive_s < 0);
    config_model_deinit(&m);
    model_of(&m, "");
    assert_int_equal(m.sampling.set, 0);
    config_model_deinit(&m);
    model_of(&m, "# nothing\nsampling:\nsystem: null\n");
    assert_null(m.system);
    config_model_deinit(&m);
}

static void test_model_mistakes(void **state) {
    (void)state;
    refused("contxt: 1\n", "m.yaml:1:1: contxt: unknown key; did you mean context?");
    refused("sampling:\n  temprature: 1\n", "m.yaml:2:3: sampling.temprature: unknown key; did you mean temperature?");
    refused("temperature: 1\n", "temperature: unknown key; the key belongs in the section sampling");
    refused("presets:\n  a: {top_kk: 1}\n", "m.yaml:2:7: presets.a.top_kk: unknown key; did you mean top_k?");
    refused("preset: b\npresets:\n  a: {top_k: 1}\n", "m.yaml:1:1: preset: there is no preset 'b'; did you mean a?");
    refused("adapters: [{scale: 1}]\n", "path");
    refused("speculate: maybe\n",
            "m.yaml:1:12: speculate: expected auto, off, lookup, draft, mtp or eagle, found 'maybe'");
    refused("kv_cache: {type_k: q9}\n", "kv_cache.type_k: expected f16, ");
    refused("draft_max: 99\n", "draft_max: '99' is out of range; expected an integer from 0 to 32");
    refused("messages:\n- role: usr\n  content: x\n",
            "m.yaml:2:9: messages[0].role: expected system, user or assistant, "
            "found 'usr'; did you mean user?");
    refused("messages:\n- role: user\n", "m.yaml:2:3: messages[0].content: is missing; add it");
    refused("template: a\ntemplate_file: b\n", "m.yaml:2:1: template_file: template is set, too");
    refused("rope_scaling: {factor: 2}\n", "rope_scaling.type: is missing");
    refused("context: 99999999999\ncontext: 1\n", "(and 1 more)");
}

static void test_file_name(void **state) {
    str s;
    (void)state;
    str_init(&s);
    config_model_file_name("owner/repo:Q4_K_M", &s);
    assert_string_equal(str_cstr(&s), "owner__repo__Q4_K_M.yaml");
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_model_mistakes),
        cmocka_unit_test(test_file_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

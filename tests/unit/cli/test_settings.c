/* SPDX-License-Identifier: Apache-2.0 */
/* What a model's owner wishes: visible in prompts, in sampling, in the context and in the rotation. */
#include "unit/support/support.h"

#include "formats/model_file.h"
#include "models/list.h"
#include "nn/model.h"
#include "unit/support/runtime_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char HI[] = "[{\"role\": \"user\", \"content\": \"Hi.\"}]";

static runtime *open_with(const runtime_settings *s) {
    runtime_options o = { .path = TEST_DEMO, .engine = { .n_threads = 1 }, .settings = *s };
    runtime        *r;
    err             e = { 0 };
    if (runtime_open(&r, &o, &e) < 0) fail_msg("%s", e.msg);
    return r;
}

static void refused(const runtime_settings *s, const char *want) {
    runtime_options o = { .path = TEST_DEMO, .engine = { .n_threads = 1 }, .settings = *s };
    runtime        *r;
    err             e = { 0 };
    assert_true(runtime_open(&r, &o, &e) < 0);
    if (!strstr(e.msg, want)) fail_msg("no \"%s\" in: %s", want, e.msg);
}

static void prompt_of(runtime *r, const char *messages, str *out) {
    runtime_request q;
    err             e = { 0 };
    test_greedy(&q, messages);
    str_clear(out);
    if (runtime_render(r, &q, out, &e) < 0) fail_msg("%s", e.msg);
}

/* With the settings a conversation gives the prompt that another one gives without them. */
static void same_prompt(const runtime_settings *s, const char *messages, const char *plain) {
    runtime *with = open_with(s), *without = open_with(&(runtime_settings){ 0 });
    str      a, b;
    str_init(&a);
    str_init(&b);
    prompt_of(with, messages, &a);
    prompt_of(without, plain, &b);
    assert_string_equal(str_cstr(&a), str_cstr(&b));
    str_deinit(&a);
    str_deinit(&b);
    runtime_free(with);
    runtime_free(without);
}

static void test_prompts(void **state) {
    runtime_settings s = { .system = "Be \"brief\"." };
    (void)state;
    same_prompt(
        &s, HI,
        "[{\"role\": \"system\", \"content\": \"Be \\\"brief\\\".\"}, {\"role\": \"user\", \"content\": \"Hi.\"}]");
    same_prompt(&s, "[{\"role\": \"system\", \"content\": \"Own.\"}, {\"role\": \"user\", \"content\": \"Hi.\"}]",
                "[{\"role\": \"system\", \"content\": \"Own.\"}, {\"role\": \"user\", \"content\": \"Hi.\"}]");
    s.messages = "[{\"role\": \"user\", \"content\": \"A?\"}, {\"role\": \"assistant\", \"content\": \"B.\"}]";
    same_prompt(
        &s, HI,
        "[{\"role\": \"system\", \"content\": \"Be \\\"brief\\\".\"}, {\"role\": \"user\", \"content\": \"A?\"},"
        "{\"role\": \"assistant\", \"content\": \"B.\"}, {\"role\": \"user\", \"content\": \"Hi.\"}]");
    same_prompt(&s, "[{\"role\": \"system\", \"content\": \"Own.\"}, {\"role\": \"user\", \"content\": \"Hi.\"}]",
                "[{\"role\": \"system\", \"content\": \"Own.\"}, {\"role\": \"user\", \"content\": \"A?\"},"
                "{\"role\": \"assistant\", \"content\": \"B.\"}, {\"role\": \"user\", \"content\": \"Hi.\"}]");
}

static void test_template(void **state) {
    runtime_settings s = { .template_text = "<<{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}>>",
                           .system = "S" };
    runtime         *r = open_with(&s);
    str              text;
    (void)state;
    str_init(&text);
    prompt_of(r, HI, &text);
    assert_non_null(strstr(str_cstr(&text), "<<system=S;user=Hi.;>>"));
    str_deinit(&text);
    runtime_free(r);
    refused(&(runtime_settings){ .template_text = "{% for" }, "template");
}

static void test_sampling(void **state) {
    const char      *stop[] = { " is" };
    runtime_settings s = { .sampling_set = RUNTIME_SET_TEMPERATURE | RUNTIME_SET_TOP_K | RUNTIME_SET_SEED,
                           .stop = stop,
                           .n_stop = 1,
                           .n_ctx = 256 };
    runtime_request  q;
    runtime_info     i;
    sampling_params  p;
    test_result      a, b;
    (void)state;
    sampling_params_default(&s.sampling);
    s.sampling.temperature = 0;
    s.sampling.top_k = 3;
    s.sampling.seed = 77;
    runtime *r = open_with(&s);
    runtime_sampling(r, &p);
    assert_true(p.temperature == 0 && p.top_k == 3 && p.seed == 77);
    assert_true(p.top_p == 0.95f); /* what nobody set stays recommended */
    runtime_describe(r, &i);
    assert_int_equal(i.n_ctx, 256);
    runtime_request_init(&q); /* sets nothing itself: greedy, and ends at the stop text */
    q.messages = view_of("[{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}]");
    q.thinking = RUNTIME_THINK_OFF;
    test_ask(r, &q, &a);
    assert_string_equal(str_cstr(&a.a[0].content), "12 plus 30");
    assert_int_equal(a.a[0].finish, RUNTIME_STOP_STRING);
    assert_int_equal(a.a[0].stop_index, -1); /* none of the request's */
    test_result_deinit(&a);
    view own = view_of(" 42");
    q.stop = &own;
    q.n_stop = 1;
    test_ask(r, &q, &a); /* a request's own stop comes first */
    assert_string_equal(str_cstr(&a.a[0].content), "12 plus 30 is");
    test_result_deinit(&a);
    runtime_free(r);

    s.sampling.temperature = 3;
    s.sampling.top_k = 0;
    s.n_stop = 0;
    s.max_tokens = 9;
    s.min_tokens = 9;
    r = open_with(&s);
    q.n_stop = 0;
    test_ask(r, &q, &a); /* the same seed, the same nonsense, of the length that was asked for */
    test_ask(r, &q, &b);
    assert_string_equal(str_cstr(&a.a[0].content), str_cstr(&b.a[0].content));
    assert_true(strstr(str_cstr(&a.a[0].content), "is 42") == NULL);
    assert_int_equal(a.a[0].usage.generated_tokens, 9);
    test_result_deinit(&a);
    test_result_deinit(&b);
    q.max_tokens = 3;
    test_ask(r, &q, &a);
    assert_int_equal(a.a[0].usage.generated_tokens, 3);
    test_result_deinit(&a);
    runtime_free(r);
}

static const nn_rope *rope_of(const nn_model *m) {
    for (int i = 0; i < m->tape->n_ops; i++)
        if (m->tape->ops[i].kind == NN_OP_ROPE) return &m->tape->ops[i].u.rope.rope;
    fail_msg("no rotation");
    return NULL;
}

/* Frequencies as the rules define them: linear divides all of them; YaRN divides the slow ones and leaves the fast. */
static void test_rope(void **state) {
    model_file      *f;
    nn_model        *plain, *other;
    nn_model_options linear = { .rope_type = "linear", .rope_factor = 4 };
    nn_model_options yarn = { .rope_type = "yarn", .rope_factor = 4, .rope_original_context = 1024 };
    nn_model_options none = { .rope_type = "none" };
    (void)state;
    assert_int_equal(model_file_open(&f, TEST_DEMO, NULL), 0);
    assert_int_equal(nn_model_open(&plain, f, models_list, NULL, NULL), 0);
    const nn_rope *a = rope_of(plain);
    assert_int_equal(nn_model_open(&other, f, models_list, &linear, NULL), 0);
    for (int i = 0; i < a->n_rot / 2; i++)
        assert_true(fabs(rope_of(other)->inv_freq[i] * 4.0 / a->inv_freq[i] - 1) < 1e-6);
    nn_model_free(other);
    assert_int_equal(nn_model_open(&other, f, models_list, &yarn, NULL), 0);
    const nn_rope *b = rope_of(other);
    int            last = a->n_rot / 2 - 1;
    assert_true(fabs(b->inv_freq[0] / a->inv_freq[0] - 1) < 1e-6);
    assert_true(fabs(b->inv_freq[last] * 4.0 / a->inv_freq[last] - 1) < 1e-6);
    assert_true(fabs(b->scale - (0.1 * log(4.0) + 1)) < 1e-6);
    nn_model_free(other);
    assert_int_equal(nn_model_open(&other, f, models_list, &none, NULL), 0);
    assert_true(rope_of(other)->inv_freq[last] == a->inv_freq[last]);
    nn_model_free(other);
    nn_model_free(plain);
    model_file_free(f);
    runtime     *r = open_with(&(runtime_settings){ .rope_type = "linear", .rope_factor = 2, .n_ctx = 2048 });
    runtime_info i;
    runtime_describe(r, &i);
    assert_int_equal(i.n_ctx, 2048);
    runtime_free(r);
}

static void test_rope_refused(void **state) {
    nn_model_options o = { .rope_type = "yarn", .rope_factor = 4 };
    model_file      *f;
    nn_model        *m;
    err              e = { 0 };
    (void)state;
    assert_int_equal(model_file_open(&f, HEARTH_SOURCE_DIR "/tests/golden/models/gpt2", &e), 0); /* learnt positions */
    assert_int_equal(nn_model_open(&m, f, models_list, &o, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "rope_scaling"));
    model_file_free(f);
}

static void test_mistakes(void **state) {
    runtime_settings s = { .sampling_set = RUNTIME_SET_TOP_P };
    const char      *stop[] = { "" };
    (void)state;
    s.sampling.top_p = 3;
    refused(&s, "sampling of the settings: ");
    refused(&(runtime_settings){ .messages = "{}" }, "messages of the settings");
    refused(&(runtime_settings){ .messages = "[1]" }, "message 0 has no role");
    refused(&(runtime_settings){ .stop = stop, .n_stop = 1 }, "stop of the settings");
    refused(&(runtime_settings){ .max_tokens = -1 }, "max_tokens");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts), cmocka_unit_test(test_template),     cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_rope),    cmocka_unit_test(test_rope_refused), cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

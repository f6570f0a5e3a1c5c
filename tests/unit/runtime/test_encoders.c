/* SPDX-License-Identifier: Apache-2.0 */
/* Models that see the whole input, behind the runtime: long inputs, the same bits in any company, what they refuse. That
 * their vectors are right is what golden_encoders says. */
#include "base/file.h"
#include "convert/export.h"
#include "models/list.h"
#include "unit/support/runtime_support.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = TEST_SANITIZED ? 1500 : 8192, SHORT = 12 };

static runtime *open_path(const char *path) {
    runtime *r = NULL;
    err      e = { 0 };
    if (runtime_open(&r, &(runtime_options){ .path = path, .engine = { .n_threads = 2 } }, &e) < 0)
        fail_msg("%s", e.msg);
    return r;
}

static runtime *open_golden(const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%.400s/tests/golden/encoders/%s", HEARTH_SOURCE_DIR, name);
    return open_path(path);
}

static runtime_request embed_request(const char *text) {
    runtime_request q;
    runtime_request_init(&q);
    q.task = RUNTIME_EMBED;
    q.text = view_of(text);
    return q;
}

static void ask(runtime *r, runtime_request *q, test_result *out) {
    test_ask(r, q, out);
    if (out->failed) fail_msg("%s", out->why.msg);
}

/* A text of 8,192 tokens, and short ones that come while it is under way: each has the bits that it has alone. */
static void test_long(void **state) {
    static const nn_config_set set[] = {
        { "vocab_size", 300, false },
        { "context_length", LONG, false },
        { "block_count", 2, false },
        { "embedding_length", 64, false },
        { "feed_forward_length", 96, false },
        { "attention.head_count", 4, false },
        { "attention.layer_norm_epsilon", 1e-5, false },
    };
    const nn_arch     *arch = nn_arch_find(models_list, "bert");
    static test_result first, again[3];
    static int32_t     ids[3][LONG];
    char              *dir = test_temp_dir(), path[600];
    uint64_t           random = 7;
    float             *alone[3];
    err                e = { 0 };
    synth_options      o = { .arch = arch, .set = set, .n_set = 7, .type = TENSOR_F16, .n_vocab = 300, .seed = 3 };
    (void)state;
    snprintf(path, sizeof path, "%s/bert.gguf", dir);
    if (synth_gguf(&o, path, &e) < 0) fail_msg("%s", e.msg);
    runtime *r = open_path(path);
    for (int i = 0; i < 3; i++) {
        runtime_request q = embed_request("");
        q.tokens = ids[i];
        q.n_tokens = i == 0 ? LONG : SHORT + (size_t)i;
        for (size_t k = 0; k < q.n_tokens; k++) ids[i][k] = (int32_t)(test_random(&random) % 300);
        ask(r, &q, &first);
        assert_int_equal(first.n_vector, 64);
        alone[i] = malloc(64 * sizeof(float));
        assert_non_null(alone[i]);
        memcpy(alone[i], first.vector, 64 * sizeof(float));
        for (int k = 0; k < 64; k++) assert_true(isfinite(alone[i][k]));
        test_result_deinit(&first);
    }
    for (int i = 0; i < 3; i++) {
        runtime_request q = embed_request("");
        q.tokens = ids[i];
        q.n_tokens = i == 0 ? LONG : SHORT + (size_t)i;
        test_result_init(&again[i]);
        test_submit(r, &q, &again[i]);
    }
    for (int i = 0; i < 3; i++) {
        test_result_wait(&again[i]);
        assert_false(again[i].failed);
        assert_memory_equal(again[i].vector, alone[i], 64 * sizeof(float));
        test_result_deinit(&again[i]);
        free(alone[i]);
    }
    runtime_request q = embed_request("");
    static int32_t  more[LONG + 1];
    q.tokens = more;
    q.n_tokens = LONG + 1;
    test_request_refused(r, &q, ERR_CONTEXT, "the context holds");
    runtime_free(r);
    test_temp_dir_remove(dir);
}

static void test_refusals(void **state) {
    runtime        *r = open_golden("bert_prompt");
    runtime_info    i;
    runtime_request q = embed_request("a text");
    (void)state;
    runtime_describe(r, &i);
    assert_true(i.can_embed && !i.can_generate && !i.can_chat && !i.can_infill && !i.can_rerank);
    assert_int_equal(i.n_vector, 32);
    q.task = RUNTIME_COMPLETE;
    test_request_refused(r, &q, ERR_UNSUPPORTED, "it does not write");
    q = embed_request("a text");
    q.prompt_name = view_of("nonsense");
    test_request_refused(r, &q, ERR_ARG, "no prompt \"nonsense\"");
    q = embed_request("a text");
    q.dimensions = 33;
    test_request_refused(r, &q, ERR_ARG, "dimensions");
    q = embed_request("a text");
    q.task = RUNTIME_RERANK;
    test_request_refused(r, &q, ERR_UNSUPPORTED, "rerank");
    runtime_free(r);
}

/* A side of a search is a prompt where the model has one under any of its names, and nothing where it has none. */
static void test_sides(void **state) {
    static test_result named, side, other, plain;
    runtime           *r = open_golden("bert_prompt"), *none = open_golden("bert_mean");
    runtime_request    q = embed_request("a text");
    (void)state;
    q.prompt_name = view_of("query");
    ask(r, &q, &named);
    q.prompt_name = view_of("search_query");
    q.prompt_is_side = true;
    ask(r, &q, &side);
    assert_memory_equal(named.vector, side.vector, 32 * sizeof(float));
    ask(none, &q, &other);
    q = embed_request("a text");
    ask(none, &q, &plain);
    assert_memory_equal(other.vector, plain.vector, 32 * sizeof(float));
    test_result_deinit(&named);
    test_result_deinit(&side);
    test_result_deinit(&other);
    test_result_deinit(&plain);
    runtime_free(r);
    runtime_free(none);
}

/* Where the dense layers make the vector, its first dimensions are cut off behind them. */
static void test_dimensions(void **state) {
    static test_result whole, cut;
    runtime           *r = open_golden("gemma_embedding");
    runtime_request    q = embed_request("An embedding is a vector.");
    double             sum = 0, length = 0;
    (void)state;
    ask(r, &q, &whole);
    q.dimensions = 9;
    ask(r, &q, &cut);
    assert_int_equal(cut.n_vector, 9);
    for (int i = 0; i < 9; i++) sum += (double)whole.vector[i] * (double)whole.vector[i];
    for (int i = 0; i < 9; i++) {
        assert_true(fabs((double)cut.vector[i] - (double)whole.vector[i] / sqrt(sum)) < 1e-6);
        length += (double)cut.vector[i] * (double)cut.vector[i];
    }
    assert_true(fabs(length - 1) < 1e-5);
    test_result_deinit(&whole);
    test_result_deinit(&cut);
    runtime_free(r);
}

/* What modules.json names and is not known here is refused by name. */
static void test_modules(void **state) {
    static const struct {
        const char *file, *text, *sentence;
    } rows[] = {
        { "modules.json", "[{\"type\": \"sentence_transformers.models.LSTM\", \"path\": \"1_LSTM\"}]", "LSTM" },
        { "modules.json", "[{\"type\": \"x.Dense\", \"path\": \"../2_Dense\"}]", "modules.json" },
        { "modules.json", "[{\"type\": \"x.Dense\", \"path\": \"2_Dense\"}]", "2_Dense/config.json" },
        { "modules.json", "{", "modules.json" },
        { "1_Pooling/config.json", "{\"pooling_mode\": [\"cls\", \"mean\"]}", "pooling" },
        { "1_Pooling/config.json", "{\"pooling_mode_weightedmean_tokens\": true}", "pooling" },
        { "1_Pooling/config.json", "{\"pooling_mode_cls_token\": true, \"pooling_mode_max_tokens\": true}", "pooling" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char    *dir = test_temp_dir(), command[1200], path[700];
        runtime *r = NULL;
        err      e = { 0 };
        snprintf(command, sizeof command, "cp -r '%.400s/tests/golden/encoders/bert_mean/.' '%s'", HEARTH_SOURCE_DIR,
                 dir);
        assert_int_equal(system(command), 0);
        snprintf(path, sizeof path, "%s/%s", dir, rows[i].file);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fputs(rows[i].text, f);
        fclose(f);
        assert_true(runtime_open(&r, &(runtime_options){ .path = dir, .engine = { .n_threads = 1 } }, &e) < 0);
        if (!strstr(e.msg, rows[i].sentence)) fail_msg("row %zu: %s", i, e.msg);
        test_temp_dir_remove(dir);
    }
}

/* A golden's directory with one edit of its config.json. */
static int open_edited(const char *golden, const char *old, const char *new, runtime **out, char **dir, err *e) {
    char   command[1400], path[700], *config;
    size_t bytes;
    *dir = test_temp_dir();
    snprintf(command, sizeof command, "cp -r '%.400s/tests/golden/encoders/%s/.' '%s'", HEARTH_SOURCE_DIR, golden,
             *dir);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/config.json", *dir);
    assert_int_equal(file_read(&config, &bytes, path, 1 << 20, e), 0);
    char *at = strstr(config, old);
    if (!at) fail_msg("%s: config.json has no %s", golden, old);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - config), config, new, at + strlen(old));
    fclose(f);
    free(config);
    return runtime_open(out, &(runtime_options){ .path = *dir, .engine = { .n_threads = 1 } }, e);
}

static float classes_of(const char *golden, const char *old, const char *new, float *out, int n) {
    static test_result got;
    runtime           *r = NULL;
    char              *dir;
    float              sum = 0;
    err                e = { 0 };
    runtime_request    q = embed_request("How do I reset my password?");
    if (open_edited(golden, old, new, &r, &dir, &e) < 0) fail_msg("%s", e.msg);
    q.task = RUNTIME_CLASSIFY;
    ask(r, &q, &got);
    assert_int_equal(got.n_vector, n);
    for (int i = 0; i < n; i++) sum += out[i] = got.vector[i];
    test_result_deinit(&got);
    runtime_free(r);
    test_temp_dir_remove(dir);
    return sum;
}

/* What problem_type means, from the same numbers: those of a regression, by softmax, by a sigmoid each. */
static void test_problem_types(void **state) {
    float  raw[4], apart[4], one[4];
    double all = 0;
    (void)state;
    classes_of("bert_topics", "\"multi_label_classification\"", "\"regression\"", raw, 4);
    classes_of("bert_topics", "\"multi_label_classification\"", "\"multi_label_classification\"", apart, 4);
    float sum = classes_of("bert_topics", "\"multi_label_classification\"", "\"single_label_classification\"", one, 4);
    assert_true(fabs((double)sum - 1) < 1e-6);
    for (int i = 0; i < 4; i++) all += exp((double)raw[i]);
    for (int i = 0; i < 4; i++) {
        assert_true(fabs((double)apart[i] - 1 / (1 + exp(-(double)raw[i]))) < 1e-6);
        assert_true(fabs((double)one[i] - exp((double)raw[i]) / all) < 1e-6);
    }
    assert_true(fabs((double)one[0] - (double)one[1]) > 1e-4);
}

/* What config.json says about a head and is not known here is refused by name where it is asked for; vectors are made
 * as ever. */
static void test_heads(void **state) {
    static const struct {
        const char *model, *old, *new, *sentence;
    } rows[] = {
        { "bert_topics", "\"multi_label_classification\"", "\"ordinal\"", "problem_type: \"ordinal\"" },
        { "deberta_nli", "\"2\": \"neutral\"", "\"2\": \"neutral\", \"3\": \"more\"",
          "id2label: 4 names for 3 classes" },
        { "deberta_nli", "\"pooler_hidden_act\": \"gelu\"", "\"pooler_hidden_act\": \"silu\"", "pooler_hidden_act" },
        { "deberta_nli", "\"pooler_hidden_act\"", "\"classifier_pooling\": \"max\", \"x\"", "classifier_pooling" },
        { "deberta_rerank", "\"pooler_hidden_act\": \"gelu\"", "\"pooler_hidden_act\": \"silu\"", "pooler_hidden_act" },
    };
    static test_result got;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        runtime *r = NULL;
        char    *dir;
        err      e = { 0 };
        if (open_edited(rows[i].model, rows[i].old, rows[i].new, &r, &dir, &e) < 0) fail_msg("row %zu: %s", i, e.msg);
        runtime_request q = embed_request("a text");
        ask(r, &q, &got);
        assert_true(got.n_vector > 0);
        test_result_deinit(&got);
        q.task = RUNTIME_CLASSIFY;
        test_request_refused(r, &q, ERR_UNSUPPORTED, rows[i].sentence);
        q.task = RUNTIME_RERANK;
        test_request_refused(r, &q, ERR_UNSUPPORTED, rows[i].sentence);
        runtime_free(r);
        test_temp_dir_remove(dir);
    }
    runtime *words = NULL;
    char    *dir;
    err      e = { 0 };
    if (open_edited("bert_topics", "BertForSequenceClassification", "BertForTokenClassification", &words, &dir, &e) < 0)
        fail_msg("%s", e.msg);
    runtime_request every = embed_request("a text");
    every.task = RUNTIME_CLASSIFY;
    test_request_refused(words, &every, ERR_UNSUPPORTED, "no classification head");
    runtime_free(words);
    test_temp_dir_remove(dir);
    runtime        *none = open_golden("bert_mean"), *nli = open_golden("deberta_nli");
    runtime_request q = embed_request("a text");
    q.task = RUNTIME_CLASSIFY;
    test_request_refused(none, &q, ERR_UNSUPPORTED, "classify: this model has no classification head");
    q.n_choices = 2;
    test_request_refused(nli, &q, ERR_ARG, "n: a text has one answer");
    q = embed_request("a text");
    q.task = RUNTIME_RERANK;
    q.suffix = view_of("another");
    test_request_refused(nli, &q, ERR_UNSUPPORTED, "no ranking head");
    runtime_free(none);
    runtime_free(nli);
}

/* Names of classes stand under their numbers in any order; of two the last one counts, and who has none is numbered. */
static void test_labels(void **state) {
    static const struct {
        const char *names, *labels;
    } rows[] = {
        { "\"2\": \"c\", \"0\": \"a\", \"1\": \"b\"", "[\"a\",\"b\",\"c\"]" },
        { "\"2\": \"\", \"0\": 5, \"01\": \"b\"", "[\"LABEL_0\",\"LABEL_1\",\"\"]" },
        { "\"3\": \"c\", \"0\": \"a\", \"1x\": \"b\"", "[\"a\",\"LABEL_1\",\"LABEL_2\"]" },
        { "\"1\": \"a\", \"1\": \"b\", \"\": \"c\"", "[\"LABEL_0\",\"b\",\"LABEL_2\"]" },
        { "", "[\"LABEL_0\",\"LABEL_1\",\"LABEL_2\"]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static test_result got;
        runtime           *r = NULL;
        char              *dir, object[200];
        err                e = { 0 };
        runtime_request    q = embed_request("a text");
        snprintf(object, sizeof object, "\"id2label\": {%s}, \"were\":", rows[i].names);
        if (open_edited("deberta_nli", "\"id2label\":", object, &r, &dir, &e) < 0) fail_msg("row %zu: %s", i, e.msg);
        q.task = RUNTIME_CLASSIFY;
        ask(r, &q, &got);
        assert_string_equal(got.labels, rows[i].labels);
        test_result_deinit(&got);
        runtime_free(r);
        test_temp_dir_remove(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long),       cmocka_unit_test(test_refusals), cmocka_unit_test(test_sides),
        cmocka_unit_test(test_dimensions), cmocka_unit_test(test_modules),  cmocka_unit_test(test_problem_types),
        cmocka_unit_test(test_heads),      cmocka_unit_test(test_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

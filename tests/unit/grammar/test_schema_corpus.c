/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schemas as people write them, through the whole chain: the public sample with its valid and invalid instances (where
 * the corpus is there), and random texts under the 300 schemas of tests/schemas, compared with the plain recognizer.
 * Sanitizer builds take every fifth schema.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "grammar/schema/schema.h"
#include "unit/support/ir_walk.h"
#include "unit/support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERY (TEST_SANITIZED ? "NR % 5 == 1" : "1")

static int64_t total(const json_value *t, const char *name) {
    int64_t n = -1;
    assert_true(json_int(json_get(t, name), &n));
    return n;
}

static void public_sample(void **state) {
    char             *cases = test_corpus_path("schemas/sample.jsonl"), *vocab = test_corpus_path("vocab/gpt-2.gguf");
    char              before[1024], arguments[1024], *out = NULL, *last;
    const json_value *v;
    arena             a;
    err               e = { 0 };
    (void)state;
    if (!cases || !vocab) {
        free(cases);
        free(vocab);
        skip();
    }
    snprintf(before, sizeof before, "awk '%s' '%s' |", EVERY, cases);
    snprintf(arguments, sizeof arguments, "debug masks --vocab '%s'", vocab);
    assert_int_equal(program_run(before, arguments, &out), 0);
    last = strstr(out, "{\"totals\":");
    assert_non_null(last);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, last, strlen(last), &a, &e), 0);
    v = json_get(v, "totals");
    assert_true(total(v, "schemas") >= 190);
    assert_true(total(v, "passed") * 100 >= total(v, "schemas") * 94); /* of all 950 it is 97; of every fifth 95 */
    assert_int_equal(total(v, "invalid_accepted"), 0);
    assert_int_equal(total(v, "valid_rejected"), 0);
    assert_int_equal(total(v, "errors"), 0);
    assert_int_equal(total(v, "passed") + total(v, "refused"), total(v, "schemas"));
    arena_deinit(&a);
    free(out);
    free(cases);
    free(vocab);
}

/* The schema of this name, as text. */
static bool schema_find(const char *all, const char *name, arena *a, str *out) {
    for (const char *line = all; *line; line = strchr(line, '\n') + 1) {
        const json_value *v;
        size_t            n = (size_t)(strchr(line, '\n') - line);
        arena_reset(a);
        if (json_parse(&v, line, n, a, NULL) < 0) return false;
        if (strcmp(json_cstr(json_get(v, "name")), name) != 0) continue;
        str_clear(out);
        json_write(json_get(v, "schema"), out);
        return str_ok(out);
    }
    return false;
}

static void check_walk(const char *all, const json_value *v) {
    const char *name = json_cstr(json_get(v, "name"));
    view        text = json_get(v, "text")->u.string;
    bool        stopped = strcmp(json_cstr(json_get(v, "finish")), "stop") == 0, accepted;
    size_t      at = 0;
    str         schema;
    arena       a;
    ir         *g;
    ir_sym      start;
    err         e = { 0 };
    arena_init(&a, 0);
    str_init(&schema);
    assert_true(schema_find(all, name, &a, &schema));
    assert_int_equal(ir_open(&g, &e), 0);
    if (schema_compile(g, (view){ schema.data, schema.len }, &start, &e) < 0) fail_msg("%s: %s", name, e.msg);
    accepted = ir_walk(g, start, text.data, text.len, &at);
    if (stopped && !accepted) fail_msg("%s: %.300s is not accepted", name, text.data);
    if (!stopped && at != text.len) fail_msg("%s: %.300s is not a prefix", name, text.data);
    ir_free(g);
    if (stopped) {
        const json_value *parsed;
        arena_reset(&a);
        if (json_parse(&parsed, text.data, text.len, &a, &e) < 0) fail_msg("%s: %s", name, e.msg);
    }
    arena_deinit(&a);
    str_deinit(&schema);
}

static void random_texts(void **state) {
    static const char schemas[] = HEARTH_SOURCE_DIR "/tests/schemas/schemas.jsonl";
    static const char vocab[] = HEARTH_SOURCE_DIR "/models/demo/demo.gguf";
    char              before[1024], arguments[1024], *out = NULL, *all = NULL;
    size_t            all_bytes;
    arena             a;
    int               n = 0;
    err               e = { 0 };
    (void)state;
    assert_int_equal(file_read(&all, &all_bytes, schemas, 1 << 24, &e), 0);
    snprintf(before, sizeof before, "awk '%s' '%s' |", EVERY, schemas);
    snprintf(arguments, sizeof arguments, "debug sample --vocab '%s' --max-tokens 300 --seed 1", vocab);
    assert_int_equal(program_run(before, arguments, &out), 0);
    arena_init(&a, 0);
    for (char *line = out; *line; line = strchr(line, '\n') + 1) {
        const json_value *v;
        arena_reset(&a);
        assert_int_equal(json_parse(&v, line, (size_t)(strchr(line, '\n') - line), &a, &e), 0);
        check_walk(all, v);
        n++;
    }
    assert_true(n >= 60);
    arena_deinit(&a);
    free(out);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(public_sample), cmocka_unit_test(random_texts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

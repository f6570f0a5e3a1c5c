/* SPDX-License-Identifier: Apache-2.0 */
/* hearth run, bench and perplexity, run as programs on the demo model. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "bundle/tokenizer.h"
#include "unit/support/model.h"
#include "unit/support/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static void test_answers(void **state) {
    (void)state;
    program_prints("", "run demo 'What is 12 plus 30?' --temp 0", "12 plus 30 is 42.\n");
    program_prints("", "run --temp 0 demo 'What is the capital of France?'", "The capital of France is Paris.\n");
    program_prints("", "run demo 'How many legs does a spider have?' --temp=0 --kv q8_0", "A spider has eight legs.\n");
}

static void test_stdin(void **state) {
    (void)state;
    program_prints("echo 'What is 7 plus 5?' |", "run --temp 0", "7 plus 5 is 12.\n");
    program_fails("run demo", 2, "the prompt is empty");
    program_fails("run ./nosuch.gguf", 1, "nosuch.gguf"); /* before the missing prompt */
}

/* A fact told once, far above the question, is found in compressed pages as in f16. */
static void test_needles(void **state) {
#define NEEDLE(name) "cat " HEARTH_SOURCE_DIR "/tests/fixtures/needles/" name ".txt |"
    (void)state;
    program_prints(NEEDLE("grace"), "run demo --temp 0", "The code of Grace is 2725.\n");
    program_prints(NEEDLE("grace"), "run demo --temp 0 -ctk q8_0 -ctv tq4", "The code of Grace is 2725.\n");
    program_prints(NEEDLE("max"), "run demo --temp 0 --kv tq4", "The code of Max is 9110.\n");
}

/* A system message that gives a name, a stop text, a limit, reasoning. */
static void test_options(void **state) {
    char *got;
    (void)state;
    program_prints("", "run demo 'What is the capital of France?' --temp 0 --stop ' is' --stop ' Paris'",
                   "The capital of France\n");
    assert_int_equal(program_run("", "run demo 'What is 12 plus 30?' --temp 0 --think", &got), 0);
    assert_non_null(strstr(got, "<think>\n"));
    assert_non_null(strstr(got, "</think>\n\n12 plus 30 is 42.\n"));
    free(got);
    program_prints("", "run demo 'What is 12 plus 30?' --temp 0 --max-tokens 1", "1\n");
    assert_int_equal(program_run("", "run demo 'What is 12 plus 30?' --temp 0 --verbose 2>&1 >/dev/null", &got), 0);
    assert_non_null(strstr(got, "prompt 22 tokens (0 cached)"));
    assert_non_null(strstr(got, "; answer 12 tokens"));
    free(got);
}

/* The model chooses the tool; its call is printed, the result comes from stdin, the answer follows. */
static void test_tools(void **state) {
    const char *tools = HEARTH_SOURCE_DIR "/tests/fixtures/tools/house.json";
    str         line;
    (void)state;
    str_init(&line);
    str_printf(&line, "run demo 'What is the weather in Paris?' --temp 0 --tools '%s'", tools);
    program_prints("echo '{\"weather\": \"sunny\", \"degrees\": 21}' |", str_cstr(&line),
                   "call get_weather {\"city\": \"Paris\"}\nIt is sunny in Paris, with 21 degrees.\n");
    program_prints("</dev/null", str_cstr(&line), "call get_weather {\"city\": \"Paris\"}\n"); /* stdin has no result */
    str_clear(&line);
    str_printf(&line, "run demo --temp 0 --tools '%s'", tools);
    program_prints("echo 'Set a timer for 12 minutes.' |", str_cstr(&line), "call set_timer {\"minutes\": 12}\n");
    program_prints("echo 'What is the weather in Rome and in Oslo?' |", str_cstr(&line),
                   "call get_weather {\"city\": \"Rome\"}\ncall get_weather {\"city\": \"Oslo\"}\n");
    program_prints("echo 'What is the capital of France?' |", str_cstr(&line), "The capital of France is Paris.\n");
    str_puts(&line, " --tool-choice none");
    program_prints("echo 'What is the capital of France?' |", str_cstr(&line), "The capital of France is Paris.\n");
    program_fails("run demo x --tools /nowhere/tools.json", 1, "/nowhere/tools.json");
    program_fails("run demo x --tool-choice auto", 2, "--tool-choice needs --tools");
    str_deinit(&line);
}

/* Answers of a given shape; thoughts with a budget. */
static void test_shapes(void **state) {
    char       *dir = test_temp_dir(), *schema = path_join(dir, "schema.json"), *grammar = path_join(dir, "list.gbnf");
    const char *person =
        "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": {\"type\": "
        "\"integer\"}}, \"required\": [\"name\", \"age\"], \"additionalProperties\": false}";
    const char *list = "root ::= (\"red\" | \"blue\") \"!\"\n";
    str         line;
    (void)state;
    test_write_file(schema, person, strlen(person));
    test_write_file(grammar, list, strlen(list));
    str_init(&line);
    str_printf(
        &line,
        "run demo 'Give me name, age as JSON: Tom is 31 years old and lives in Oslo.' --temp 0 --json-schema '%s'",
        schema);
    program_prints("", str_cstr(&line), "{\"name\": \"Tom\", \"age\": 31}\n");
    program_prints("", "run demo 'What is 12 plus 30?' --temp 0 --regex '[a-z]{0}[0-9]{2}'", "12\n");
    str_clear(&line);
    str_printf(&line, "run demo 'What colour is the sky?' --temp 0 --grammar '%s' | grep -cE '^(red|blue)!$'", grammar);
    program_prints("", str_cstr(&line), "1\n");
    str_clear(&line);
    str_printf(&line, "run demo x --grammar '%s' --regex a", grammar);
    program_fails(str_cstr(&line), 2, "can be used at a time");
    program_fails("run demo x --regex 'a('", 2, "regex");
    program_fails("run demo x --json-schema /nowhere/schema.json", 1, "/nowhere/schema.json");
    program_prints("", "run demo 'What is 12 plus 30?' --temp 0 --think-budget 6",
                   "<think>\nTens: 10\n</think>\n\n12 plus 30 is 42.\n");
    program_prints("", "run demo 'What is 12 plus 30?' --temp 0 --think off", "12 plus 30 is 42.\n");
    program_fails("run demo x --think=maybe", 2, "--think: expected on or off");
    str_clear(&line);
    str_printf(&line,
               "run demo 'Hello!' --temp 0 --tools '%s' --tool-choice set_timer </dev/null | grep -cE '^call set_timer "
               "\\{\"minutes\": [0-9]+\\}$'",
               HEARTH_SOURCE_DIR "/tests/fixtures/tools/house.json");
    program_prints("", str_cstr(&line), "1\n");
    str_deinit(&line);
    free(schema);
    free(grammar);
    test_temp_dir_remove(dir);
}

/* The conversation in the template's own text gives the same answer without the template. */
static void test_raw(void **state) {
    (void)state;
    program_prints(
        "printf '<|im_start|>user\\nWhat is 12 plus 30?<|im_end|>\\n<|im_start|>assistant\\n<think>\\n\\n</think>"
        "\\n\\n' |",
        "run demo --raw --temp 0", "12 plus 30 is 42.\n");
    program_fails("run demo x --raw --system y", 2, "--raw does not use a chat template");
}

static void test_seed(void **state) {
    char *a, *b, *c;
    (void)state;
    const char *story = "run demo 'Tell me a story about a cat and a boat.' --temp 1.5 -n 40 --seed %d";
    char        one[128], two[128];
    snprintf(one, sizeof one, story, 1);
    snprintf(two, sizeof two, story, 2);
    assert_int_equal(program_run("", one, &a), 0);
    assert_int_equal(program_run("", one, &b), 0);
    assert_int_equal(program_run("", two, &c), 0);
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
    free(a);
    free(b);
    free(c);
}

static void test_mistakes(void **state) {
    (void)state;
    program_fails("run /nowhere/model.gguf x", 1, "cannot open /nowhere/model.gguf");
    program_fails("run nowhere x --no-pull", 1, "there is no model 'nowhere'");
    program_fails("run demo x --bogus", 2, "unknown option --bogus");
    program_fails("run demo x --temp -1", 2, "--temp: '-1' is out of range; expected a number from 0 to 1000");
    program_fails("run demo x --top-p 1.5", 2, "--top-p: '1.5' is out of range");
    program_fails("run demo x --temp hot", 2, "'hot' is not a number");
    program_fails("run demo x --kv q3", 2,
                  "--kv: expected f16, bf16, q8_0, q5_0, q4_0, tq4, tq3, tq2, turbo4, turbo3, turbo2, fp8, f32 or "
                  "auto, found 'q3'");
    program_fails("run demo x -ctk q3", 2, "--kv-k: expected f16");
    program_fails("run demo x --cache-type-v=q3", 2, "--kv-v: expected f16");
    program_fails("run demo x --kv auto -ctv q8_0", 2, "chooses the page types of keys and values together");
    program_fails("run demo x --ctx 8 ", 1, "the context holds 8");
    program_fails("run demo x y", 2, "unexpected argument 'y'");
    program_fails("bench demo --batch 1,x", 2, "--batch");
    program_fails("bench demo -p 5000", 1, "the model's context holds 4096 tokens");
    program_fails("perplexity demo /nowhere/text", 1, "/nowhere/text");
}

static void positive(const json_value *v, const char *key) {
    double d = 0;
    if (!json_number(json_get(v, key), &d) || !(d > 0)) fail_msg("%s is not a positive number", key);
}

static void test_bench(void **state) {
    const json_value *v, *g;
    char             *text;
    arena             a;
    err               e = { 0 };
    int64_t           n;
    (void)state;
    assert_int_equal(program_run("", "bench demo -p 64 -n 8 -t 1 --batch 1,3 --reps 2 --json", &text), 0);
    arena_init(&a, 0);
    if (json_parse(&v, text, strlen(text), &a, &e) < 0) fail_msg("%s\n%s", e.msg, text);
    assert_string_equal(json_cstr(json_get(v, "architecture")), "llama");
    assert_string_equal(json_cstr(json_get(v, "type")), "Q8_0");
    assert_true(json_int(json_get(v, "threads"), &n) && n == 1);
    assert_true(json_int(json_get(json_get(v, "prompt"), "tokens"), &n) && n == 64);
    positive(json_get(v, "prompt"), "tokens_per_second");
    g = json_get(v, "generation");
    assert_int_equal(json_count(g), 2);
    assert_true(json_int(json_get(json_at(g, 1), "batch"), &n) && n == 3);
    positive(json_at(g, 0), "tokens_per_second");
    positive(json_at(g, 1), "tokens_per_second");
    arena_deinit(&a);
    free(text);
    assert_int_equal(program_run("", "bench demo -p 32 -n 4 --reps 1", &text), 0);
    assert_non_null(strstr(text, "generation"));
    free(text);
}

/* Text in the model's own manner is far likelier than the same letters shuffled. */
static void test_perplexity(void **state) {
    const char *plain =
        "One sunny morning, Anna went to the park. There she found a red ball under a tree. She smiled.\n";
    char  *dir = test_temp_dir(), *file = path_join(dir, "text"), *got;
    double value[2];
    str    text, arguments;
    (void)state;
    str_init(&text);
    str_init(&arguments);
    for (int i = 0; i < 3; i++) str_puts(&text, plain);
    str_printf(&arguments, "perplexity demo '%s' --ctx 64", file);
    for (int i = 0; i < 2; i++) {
        test_write_file(file, text.data, text.len);
        assert_int_equal(program_run("", str_cstr(&arguments), &got), 0);
        assert_int_equal(sscanf(got, "perplexity %lf", &value[i]), 1);
        assert_true(isfinite(value[i]) && value[i] > 1);
        assert_non_null(strstr(got, "windows of 64\n"));
        free(got);
        for (size_t k = 0; k < text.len / 2; k++) { /* backwards */
            char c = text.data[k];
            text.data[k] = text.data[text.len - 1 - k];
            text.data[text.len - 1 - k] = c;
        }
    }
    assert_true(value[0] * 5 < value[1]);
    str_deinit(&text);
    str_deinit(&arguments);
    free(file);
    test_temp_dir_remove(dir);
}

/* The printed value is the one that follows from the logits: a text of one window, its second half scored. */
static void test_perplexity_value(void **state) {
    const char *sentence = "The sun is hot. A cow eats grass. The cat sat on the mat and looked at the moon.";
    char       *dir = test_temp_dir(), *file = path_join(dir, "text"), *raw = path_join(dir, "logits"), *got, *data;
    tok        *t;
    tok_ids     ids = { 0 };
    str         line;
    size_t      bytes;
    double      sum = 0, printed;
    (void)state;
    assert_int_equal(bundle_tokenizer_open_path(&t, HEARTH_SOURCE_DIR "/models/demo/demo.gguf", NULL, NULL), 0);
    assert_int_equal(tok_encode(t, sentence, strlen(sentence), 0, &ids, NULL), 0);
    test_write_file(file, sentence, strlen(sentence));
    str_init(&line);
    str_printf(&line, "logits " HEARTH_SOURCE_DIR "/models/demo/demo.gguf --kv f16 --out '%s' --ids ", raw);
    for (size_t i = 0; i < ids.count; i++) str_printf(&line, "%s%d", i ? "," : "", ids.data[i]);
    assert_int_equal(program_run("", str_cstr(&line), &got), 0);
    free(got);
    assert_int_equal(file_read(&data, &bytes, raw, 1 << 26, NULL), 0);
    size_t n_vocab = bytes / sizeof(float) / ids.count, first = ids.count / 2 + 1;
    for (size_t i = first; i < ids.count; i++) {
        const float *row = (const float *)(const void *)data + (i - 1) * n_vocab;
        double       all = 0;
        for (size_t k = 0; k < n_vocab; k++) all += exp((double)row[k]);
        sum += log(all) - row[ids.data[i]];
    }
    str_clear(&line);
    str_printf(&line, "perplexity demo '%s'", file);
    assert_int_equal(program_run("", str_cstr(&line), &got), 0);
    assert_int_equal(sscanf(got, "perplexity %lf", &printed), 1);
    double want = exp(sum / (double)(ids.count - first));
    if (fabs(printed / want - 1) > 1e-4) fail_msg("%s differs from %.4f", got, want);
    free(got);
    free(data);
    free(file);
    free(raw);
    str_deinit(&line);
    tok_ids_deinit(&ids);
    tok_free(t);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers), cmocka_unit_test(test_stdin),      cmocka_unit_test(test_needles),
        cmocka_unit_test(test_options), cmocka_unit_test(test_raw),        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_shapes),  cmocka_unit_test(test_seed),       cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_bench),   cmocka_unit_test(test_perplexity), cmocka_unit_test(test_perplexity_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

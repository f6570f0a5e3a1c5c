/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth show`, run as a program: the figures of the fixtures, worked out by hand, and no control character of a model
 * file on the terminal. */
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Standard output (and, when asked, standard error) of `hearth show <arguments>`; the exit status in *status. */
static char *show(const char *arguments, bool with_stderr, int *status) {
    const char *program = getenv("HEARTH_PROGRAM");
    str         command;
    char       *text;
    size_t      len;
    if (!program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        skip();
    }
    str_init(&command);
    str_printf(&command, "cd '%s/tests/fixtures/formats' && '%s' show %s %s", HEARTH_SOURCE_DIR, program, arguments,
               with_stderr ? "2>&1" : "");
    FILE *out = popen(str_cstr(&command), "r");
    assert_non_null(out);
    assert_int_equal(file_read_stream(&text, &len, out, "hearth", 1 << 20, NULL), 0);
    *status = pclose(out);
    assert_true(WIFEXITED(*status));
    *status = WEXITSTATUS(*status);
    for (size_t i = 0; i < len; i++) assert_true((unsigned char)text[i] >= 0x20 || text[i] == '\n');
    str_deinit(&command);
    return text;
}

static void has(const char *text, const char *want) {
    if (!strstr(text, want)) fail_msg("no \"%s\" in:\n%s", want, text);
}

static void test_text(void **state) {
    int   status;
    char *text = show("v3.gguf --tensors", false, &status);
    (void)state;
    assert_int_equal(status, 0);
    has(text, "model           v3.gguf\nname            Tiny \\x1B[31mred\\x07\\xFF\nformat          GGUF\n");
    has(text, "architecture    llama\nparameters      6.04 K (6037)\n");
    has(text, "layers          2, width 64, 4 heads (2 for keys and values)\ncontext length  2048\n");
    has(text,
        "tokenizer       llama, pre-tokenizer default, 8 tokens\nchat template   tokenizer.chat_template, 66 bytes\n"
        "tool calls      generic form: the chat template does not support tools\n");
    has(text, "size            6.44 KiB in 8 tensors, 5.47 bits per weight\n");
    /* 2 layers * 2 heads * (16 + 16) * 2048 tokens * 2 bytes = 512 KiB */
    has(text, "516 KiB: 4.03 KiB of weights, 512 KiB of cache\n");
    has(text, "(one sequence of 2048 tokens, cache in f16,");
    has(text, "Q4_0                      1       4.10 K     2.25 KiB   55.8%\n");
    has(text, "blk.1.ffn_gate_exps.weight F16            2 x 5 x 6                       120 B\n");
    free(text);
    text = show("vocab-only.gguf --tensors", false, &status);
    has(text, "size            960 B, no weights\n");
    assert_null(strstr(text, "memory"));
    free(text);
}

typedef struct parsed {
    arena             a;
    const json_value *v;
    char             *text;
} parsed;

static const json_value *show_json(parsed *p, const char *arguments) {
    int status;
    err e = { 0 };
    p->text = show(arguments, false, &status);
    assert_int_equal(status, 0);
    arena_init(&p->a, 0);
    if (json_parse(&p->v, p->text, strlen(p->text), &p->a, &e) < 0) fail_msg("%s\n%s", e.msg, p->text);
    return p->v;
}

static void release(parsed *p) {
    arena_deinit(&p->a);
    free(p->text);
}

static int64_t number(const json_value *v, const char *key) {
    int64_t i = -1;
    if (!json_int(json_get(v, key), &i)) fail_msg("%s is not a number", key);
    return i;
}

static void test_json(void **state) {
    parsed            p;
    const json_value *v = show_json(&p, "--json --tensors v3.gguf"), *t;
    view              name = json_get(v, "name")->u.string;
    (void)state;
    assert_int_equal(name.len, 14 + 3); /* the bad byte became U+FFFD */
    assert_memory_equal(name.data, "Tiny \x1b[31mred\x07", 14);
    assert_string_equal(json_cstr(json_get(v, "format")), "GGUF");
    assert_string_equal(json_cstr(json_get(v, "architecture")), "llama");
    assert_int_equal(number(v, "parameters"), 512 + 4096 + 768 + 64 + 60 + 24 + 512 + 1);
    assert_int_equal(number(v, "size_bytes"), 6592);
    assert_int_equal(number(v, "context_length"), 2048);
    assert_int_equal(number(json_get(v, "tokenizer"), "size"), 8);
    assert_int_equal(number(json_get(v, "template"), "bytes"), 66);
    assert_int_equal(number(json_get(v, "memory"), "kv_cache_bytes"), 524288);
    assert_int_equal(number(json_get(v, "memory"), "weights_bytes"), 544 + 2304 + 432 + 256 + 120 + 48 + 420 + 4);
    assert_int_equal(json_count(json_get(v, "quantization")), 8);
    t = json_at(json_get(v, "tensors"), 4);
    assert_string_equal(json_cstr(json_get(t, "name")), "blk.1.ffn_gate_exps.weight");
    assert_int_equal(json_count(json_get(t, "shape")), 3);
    release(&p);
}

static void test_json_directories(void **state) {
    parsed            p;
    const json_value *v = show_json(&p, "--json mlx"), *q;
    (void)state;
    assert_string_equal(json_cstr(json_get(v, "format")), "MLX");
    /* logical weights: 512 + 4 * 512 + 3 * 256 (8-bit, mxfp8, mxfp4) + 256 (nvfp4) + 3 experts of 256, then the plain
     * ones */
    assert_int_equal(number(v, "parameters"), 512 + 4 * 512 + 4 * 256 + 3 * 256 + 256 + 64 + 512);
    q = json_at(json_get(v, "quantization"), 1);
    assert_string_equal(json_cstr(json_get(q, "type")), "MLX 4-bit g64");
    assert_int_equal(number(q, "tensors"), 2);
    assert_int_equal(number(q, "parameters"), 512 + 768);
    assert_int_equal(number(q, "bytes"), 256 + 16 + 16 + 384 + 24 + 24);
    assert_true(json_is(json_get(v, "template"), JSON_K_NULL));
    release(&p);
    v = show_json(&p, "--json hf");
    assert_string_equal(json_cstr(json_get(v, "architecture")), "gemma3");
    assert_string_equal(json_cstr(json_get(json_get(v, "tokenizer"), "model")), "BPE");
    assert_int_equal(number(json_get(v, "tokenizer"), "size"), 8);
    assert_string_equal(json_cstr(json_get(json_get(v, "template"), "source")), "tokenizer_config.json");
    assert_int_equal(number(json_get(v, "memory"), "kv_cache_bytes"), 2 * 2 * 32 * 4096 * 2);
    assert_null(json_get(v, "tensors"));
    release(&p);
    v = show_json(&p, "--json fp8");
    assert_string_equal(json_cstr(json_get(v, "quantization_method")), "fp8");
    release(&p);
}

static void test_failures(void **state) {
    int   status;
    char *dir = test_temp_dir(), *path = path_join(dir, "x.safetensors"), *text;
    str   arguments;
    (void)state;
    text = show("./no-such-file", true, &status);
    assert_int_equal(status, 1);
    has(text, "hearth show: cannot open ./no-such-file: No such file or directory");
    free(text);
    text = show("no-such-model", true, &status);
    assert_int_equal(status, 1);
    has(text, "hearth show: there is no model 'no-such-model'");
    free(text);
    text = show("", true, &status);
    assert_int_equal(status, 2);
    free(text);
    /* a file that tries to write to the terminal through the error sentence: show() looks at every byte */
    static const char evil[] =
        "J\0\0\0\0\0\0\0{\"\\u001b]0;x\\u0007\":{\"dtype\":\"\\u001b[2J\",\"shape\":[],\"data_offsets\":[0,0]}}";
    test_write_file(path, evil, sizeof evil - 1);
    str_init(&arguments);
    str_printf(&arguments, "'%s'", path);
    text = show(str_cstr(&arguments), true, &status);
    assert_int_equal(status, 1);
    has(text, "\\x1B");
    free(text);
    str_deinit(&arguments);
    free(path);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_directories),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

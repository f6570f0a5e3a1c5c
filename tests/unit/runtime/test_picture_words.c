/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word that stands for a row of a picture: the family's, or, in files of LLaVA whose vocabulary is still the language model's,
 * the unknown one. HunyuanOCR has rows for the ends of lines and of the picture, too, Ovis 2 for the words between tiles.
 * PaliGemma's prompts, which see themselves whole.
 */
#include "runtime/runtime.h"
#include "unit/support/runtime_support.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision/"
#define ASKED                                                                                                          \
    "[{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"blob\": 0}, {\"type\": \"text\", \"text\": "          \
    "\"ab\"}]}]"
enum { ROWS = 16, SIDE = 20 };

static void write_text(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    free(path);
}

/* Single letters, and the words of a picture that it has. */
static void write_tokenizer(const char *dir, const char *const *words, int n_words, const char *config) {
    str s;
    str_init(&s);
    str_puts(&s, "{\"version\": \"1.0\", \"added_tokens\": [");
    for (int i = 0; i < n_words; i++)
        str_printf(&s, "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", i ? ", " : "", i, words[i]);
    str_puts(&s, "], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
                 " \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (int i = 0; i < n_words; i++) str_printf(&s, "\"%s\": %d, ", words[i], i);
    for (int c = 'a'; c <= 'z'; c++) str_printf(&s, "\"%c\": %d, ", c, n_words + c - 'a');
    str_printf(&s, "\"\\u010a\": %d}, \"merges\": []}}", n_words + 26);
    write_text(dir, "tokenizer.json", str_cstr(&s));
    str_deinit(&s);
    write_text(dir, "tokenizer_config.json", config);
}

#define PLAIN "{\"chat_template\": \"{% for m in messages %}{{ m['content'] }}{% endfor %}\"}"

static runtime *open_family(char *dir, const char *family, const char *const *words, int n_words, const char *config) {
    static const char *const names[] = { "config.json", "preprocessor_config.json", "model.safetensors" };
    runtime                 *r;
    err                      e = { 0 };
    write_tokenizer(dir, words, n_words, config);
    for (int i = 0; i < 3; i++) {
        char  from[512];
        char *to = path_join(dir, names[i]);
        snprintf(from, sizeof from, DIR "%s/%s", family, names[i]);
        assert_int_equal(symlink(from, to), 0);
        free(to);
    }
    if (runtime_open(&r, &(runtime_options){ .path = dir, .engine = { .n_threads = 1 } }, &e) < 0)
        fail_msg("%s", e.msg);
    return r;
}

/* What a picture is in the prompt, and how many tokens there are. */
static void check(const char *family, const char *const *words, int n_words, const char *row, size_t rows) {
    char           *dir = test_temp_dir();
    runtime        *r = open_family(dir, family, words, n_words, PLAIN);
    runtime_request q;
    str             text;
    int32_t         head[2] = { SIDE, SIDE };
    char            picture[sizeof head + (size_t)(SIDE * SIDE * 3)];
    size_t          n = 0, found = 0;
    err             e = { 0 };
    memset(picture, 77, sizeof picture);
    memcpy(picture, head, sizeof head);
    test_greedy(&q, ASKED);
    q.blobs = &(view){ picture, sizeof picture };
    q.n_blobs = 1;
    str_init(&text);
    if (runtime_render(r, &q, &text, &e) < 0) fail_msg("%s", e.msg);
    for (const char *at = str_cstr(&text); (at = strstr(at, row)); at += strlen(row)) found++;
    assert_int_equal(found, rows);
    assert_int_equal(runtime_count(r, &q, &n, &e), 0);
    assert_in_range(n, rows + 2, rows + 4); /* two letters; templates may end a line */
    test_result answer;
    q.max_tokens = 2;
    q.ignore_eos = true;
    test_ask(r, &q, &answer);
    assert_int_equal(answer.prompt_tokens, n);
    test_result_deinit(&answer);
    str_deinit(&text);
    runtime_free(r);
    test_temp_dir_remove(dir);
}

static void test_own(void **state) {
    (void)state;
    check("llava", (const char *const[]){ "<unk>", "<s>", "</s>", "<image>" }, 4, "<image>", ROWS);
}

static void test_unknown(void **state) {
    (void)state;
    check("llava", (const char *const[]){ "<unk>", "<s>", "</s>" }, 3, "<unk>", ROWS);
}

/* Two lines of two squares. */
static void test_lines(void **state) {
    const char *row = "<｜hy_place▁holder▁no▁102｜>";
    (void)state;
    check("hunyuan_vl", (const char *const[]){ "<unk>", "<s>", "</s>", row }, 4, row, 2 * (2 + 1) + 2);
}

/* A tile of four, and the words around it. */
static void test_marks(void **state) {
    (void)state;
    check("ovis2", (const char *const[]){ "<unk>", "<s>", "</s>", "<IMG_ATOM>" }, 4, "<IMG_ATOM>", 4 + 3);
}

/* A text may have any bytes, zeros too: what stands behind one stays, pictures too. */
static void test_zeros(void **state) {
    static const char *const words[] = { "<unk>", "<s>", "</s>", "<image>" };
    static const char asked[] = "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\\u0000b\"},"
                                " {\"type\": \"image\", \"blob\": 0}, {\"type\": \"text\", \"text\": \"c\\u0000d\"}]}]";
    char             *dir = test_temp_dir();
    runtime          *r = open_family(dir, "llava", words, 4, PLAIN);
    runtime_request   q;
    str               text;
    int32_t           head[2] = { SIDE, SIDE };
    char              picture[sizeof head + (size_t)(SIDE * SIDE * 3)];
    err               e = { 0 };
    (void)state;
    memset(picture, 77, sizeof picture);
    memcpy(picture, head, sizeof head);
    test_greedy(&q, asked);
    q.blobs = &(view){ picture, sizeof picture };
    q.n_blobs = 1;
    str_init(&text);
    if (runtime_render(r, &q, &text, &e) < 0) fail_msg("%s", e.msg);
    const char *first = memmem(text.data, text.len, "a\0b", 3), *last = memmem(text.data, text.len, "c\0d", 3);
    assert_non_null(first);
    assert_non_null(last);
    assert_true(last - first > ROWS * (int)strlen("<image>"));
    str_deinit(&text);
    runtime_free(r);
    test_temp_dir_remove(dir);
}

#define TURN(content) "{\"role\": \"user\", \"content\": [" content "]}"
#define IMAGE_AT(n) "{\"type\": \"image\", \"blob\": " #n "}"
#define WORDS(text) "{\"type\": \"text\", \"text\": \"" text "\"}"

/* One question about pictures, which stand in front of it; everything else is refused by name, and a prompt that does not fit
 * into a step, too. The model's own attention says whether the prompt was computed as one: test_engine_pictures. */
static void test_question(void **state) {
    static const char *const words[] = { "<pad>", "<eos>", "<bos>", "<image>" };
    enum { LONG = 700 };
    char    *dir = test_temp_dir();
    runtime *r = open_family(dir, "paligemma2", words, 4, "{\"bos_token\": \"<bos>\", \"eos_token\": \"<eos>\"}");
    runtime_request q;
    test_result     answer;
    str             text, want, asked;
    int32_t         head[2] = { SIDE, SIDE };
    char            picture[sizeof head + (size_t)(SIDE * SIDE * 3)];
    view            blobs[2] = { { picture, sizeof picture }, { picture, sizeof picture } };
    err             e = { 0 };
    (void)state;
    memset(picture, 77, sizeof picture);
    memcpy(picture, head, sizeof head);
    str_init(&text), str_init(&want), str_init(&asked);
    test_greedy(&q, "[" TURN(IMAGE_AT(0) "," WORDS("ab") "," IMAGE_AT(1)) "]");
    q.blobs = blobs;
    q.n_blobs = 2;
    if (runtime_render(r, &q, &text, &e) < 0) fail_msg("%s", e.msg);
    for (int i = 0; i < 2 * ROWS; i++) str_puts(&want, "<image>");
    str_puts(&want, "<bos>ab\n");
    assert_string_equal(str_cstr(&text), str_cstr(&want));
    q.max_tokens = 3;
    q.ignore_eos = true;
    for (int i = 0; i < 2; i++) {
        test_ask(r, &q, &answer);
        assert_false(answer.failed);
        assert_int_equal(answer.prompt_tokens, 2 * ROWS + 4);
        assert_int_equal(answer.a[0].usage.generated_tokens, 3);
        test_result_deinit(&answer);
    }
    q.n_blobs = 1;
    q.messages = view_of(
        "[" TURN(IMAGE_AT(0) "," WORDS("a")) ",{\"role\": \"assistant\", \"content\": \"b\"}," TURN(WORDS("c")) "]");
    test_request_refused(r, &q, ERR_ARG, "knows no conversations");
    str_puts(&asked, "[{\"role\": \"user\", \"content\": [" IMAGE_AT(0) ",{\"type\": \"text\", \"text\": \"");
    for (int i = 0; i < LONG; i++) str_push(&asked, 'a');
    str_puts(&asked, "\"}]}]");
    q.messages = view_of(str_cstr(&asked));
    test_request_refused(r, &q, ERR_LIMIT, "come in one step");
    q.n_blobs = 0;
    q.messages = view_of("[" TURN(WORDS("a")) "]");
    test_request_refused(r, &q, ERR_ARG, "it needs one");
    str_deinit(&text), str_deinit(&want), str_deinit(&asked);
    runtime_free(r);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_own),   cmocka_unit_test(test_unknown),
                                        cmocka_unit_test(test_lines), cmocka_unit_test(test_marks),
                                        cmocka_unit_test(test_zeros), cmocka_unit_test(test_question) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

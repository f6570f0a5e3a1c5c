/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json and SentencePiece models against ids made with the reference libraries
 * (tests/golden/make_tokenizer_goldens.py): every normalizer, pre-tokenizer, model, post-processor and decoder.
 *
 * tests/fixtures/tokenizer/goldens: texts.json, then per tokenizer NAME.json or NAME.model and NAME.jsonl with one
 * object per text: "ids", and where they differ from the one before "plain" (nothing added), "literal" (special tokens
 * as text); "dec" (decoded ids) and "skip" (without special tokens). HEARTH_TOKENIZER_GOLDENS names another directory.
 */
#include "base/file.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "unit/support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *directory(void) {
    const char *env = getenv("HEARTH_TOKENIZER_GOLDENS");
    return env && *env ? strdup(env) : test_fixture_path("tokenizer/goldens");
}

static char *load(const char *dir, const char *name, size_t *bytes) {
    char *path = path_join(dir, name), *data = NULL;
    err   e = { 0 };
    if (file_read(&data, bytes, path, (size_t)64 << 20, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return data;
}

static void show(const char *what, const int32_t *ids, size_t n) {
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < n && i < 40; i++) fprintf(stderr, " %d", ids[i]);
    fprintf(stderr, "\n");
}

typedef struct numbers {
    int32_t data[8192];
    size_t  count;
} numbers;

static void read_numbers(const json_value *v, numbers *out) {
    out->count = json_count(v);
    assert_true(out->count <= 8192);
    for (size_t i = 0; i < out->count; i++) {
        int64_t x = -1;
        assert_true(json_int(json_at(v, i), &x));
        out->data[i] = (int32_t)x;
    }
}

static size_t check_ids(const tok *t, const char *name, const char *mode, view text, unsigned flags,
                        const numbers *want) {
    tok_ids got = { 0 };
    err     e = { 0 };
    size_t  bad = 0;
    if (tok_encode(t, text.data, text.len, flags, &got, &e) < 0) {
        fprintf(stderr, "%s %s: %s\n", name, mode, e.msg);
        bad = 1;
    } else if (got.count != want->count ||
               (got.count && memcmp(got.data, want->data, got.count * sizeof *got.data) != 0)) {
        str shown;
        str_init(&shown);
        str_put_json(&shown, text.data, text.len);
        fprintf(stderr, "%s %s: %s\n", name, mode, str_cstr(&shown));
        str_deinit(&shown);
        show("want", want->data, want->count);
        show("got ", got.data, got.count);
        bad = 1;
    }
    tok_ids_deinit(&got);
    return bad;
}

static size_t check_text(const tok *t, const char *name, const numbers *ids, bool skip, const json_value *want) {
    str    got;
    err    e = { 0 };
    size_t bad = 0;
    if (!json_is(want, JSON_K_STRING)) return 0;
    str_init(&got);
    if (tok_decode(t, ids->data, ids->count, skip, &got, &e) < 0) {
        fprintf(stderr, "%s: %s\n", name, e.msg);
        bad = 1;
    } else if (got.len != want->u.string.len || memcmp(str_cstr(&got), want->u.string.data, got.len) != 0) {
        str shown;
        str_init(&shown);
        str_puts(&shown, skip ? "skip want " : "decode want ");
        str_put_json(&shown, want->u.string.data, want->u.string.len);
        str_puts(&shown, " got ");
        str_put_json(&shown, str_cstr(&got), got.len);
        fprintf(stderr, "%s: %s\n", name, str_cstr(&shown));
        str_deinit(&shown);
        bad = 1;
    }
    str_deinit(&got);
    return bad;
}

static size_t check_line(const tok *t, const char *name, view text, const json_value *v, bool spm) {
    static numbers    ids, plain, literal;
    const json_value *p = json_get(v, "plain"), *l = json_get(v, "literal"), *s = json_get(v, "skip");
    size_t            bad = 0;
    read_numbers(json_get(v, "ids"), &ids);
    read_numbers(p ? p : json_get(v, "ids"), &plain);
    read_numbers(l ? l : p ? p : json_get(v, "ids"), &literal);
    if (spm) {
        bad += check_ids(t, name, "ids", text, 0, &ids);
        return bad + check_text(t, name, &ids, false, json_get(v, "dec"));
    }
    bad += check_ids(t, name, "full", text, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &ids);
    bad += check_ids(t, name, "plain", text, TOK_PARSE_SPECIAL, &plain);
    bad += check_ids(t, name, "literal", text, 0, &literal);
    bad += check_text(t, name, &ids, false, json_get(v, "dec"));
    return bad + check_text(t, name, &ids, true, s ? s : json_get(v, "dec"));
}

static tok *open_tokenizer(const char *dir, const char *name, bool *spm) {
    char   file[300];
    size_t bytes;
    tok   *t = NULL;
    err    e = { 0 };
    snprintf(file, sizeof file, "%s.model", name);
    char *path = path_join(dir, file);
    *spm = file_exists(path);
    free(path);
    if (!*spm) snprintf(file, sizeof file, "%s.json", name);
    char *data = load(dir, file, &bytes);
    int   rc = *spm ? tok_open_sentencepiece(&t, data, bytes, &e) : tok_open_json(&t, data, bytes, &e);
    if (rc < 0) fprintf(stderr, "%s: %s\n", file, e.msg);
    free(data);
    return t;
}

/* Under a sanitizer every fourth text of a tokenizer, beginning elsewhere for each. */
static size_t check_tokenizer(const char *dir, const char *name, const json_value *texts, size_t first) {
    const size_t every = TEST_SANITIZED ? 4 : 1;
    char         file[300];
    size_t       bytes, bad = 0, line = 0;
    bool         spm;
    tok         *t = open_tokenizer(dir, name, &spm);
    if (!t) return 1;
    snprintf(file, sizeof file, "%s.jsonl", name);
    char *data = load(dir, file, &bytes);
    for (char *p = data, *eol; p < data + bytes && (eol = strchr(p, '\n')); p = eol + 1, line++) {
        if ((line + first) % every != 0) continue;
        arena             a;
        err               e = { 0 };
        const json_value *v;
        int64_t           number = (int64_t)line;
        arena_init(&a, 0);
        if (json_parse(&v, p, (size_t)(eol - p), &a, &e) < 0) fail_msg("%s", e.msg);
        (void)json_int(json_get(v, "text"), &number);
        const json_value *text = json_at(texts, (size_t)number);
        assert_non_null(text);
        bad += check_line(t, name, text->u.string, v, spm);
        arena_deinit(&a);
    }
    printf("%s: %zu texts, %zu mismatches\n", name, line, bad);
    assert_true(line > 0);
    free(data);
    tok_free(t);
    return bad;
}

static void test_goldens(void **state) {
    char             *dir = directory();
    size_t            bytes, bad = 0, count = 0;
    arena             a;
    err               e = { 0 };
    const json_value *texts;
    struct dirent   **list = NULL;
    (void)state;
    arena_init(&a, 0);
    char *data = load(dir, "texts.json", &bytes);
    if (json_parse(&texts, data, bytes, &a, &e) < 0) fail_msg("%s", e.msg);
    int n = scandir(dir, &list, NULL, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(list[i]->d_name);
        if (len > 6 && strcmp(list[i]->d_name + len - 6, ".jsonl") == 0) {
            list[i]->d_name[len - 6] = '\0';
            bad += check_tokenizer(dir, list[i]->d_name, texts, count);
            count++;
        }
        free(list[i]);
    }
    free(list);
    free(data);
    free(dir);
    arena_deinit(&a);
    printf("%zu tokenizers, %zu mismatches\n", count, bad);
    assert_true(count >= 20);
    assert_int_equal(bad, 0);
}

static double seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* not the wall: others may hold the machine */
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* A quarter of a megabyte of one character or of one unbroken word takes time in proportion, with every tokenizer here.
 */
static void test_long_texts(void **state) {
    enum { BYTES = TEST_SANITIZED ? 1 << 16 : 1 << 18 };
    char           *dir = directory(), *text = malloc(BYTES);
    struct dirent **list = NULL;
    double          worst = 0;
    uint64_t        seed = 1;
    (void)state;
    int n = scandir(dir, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(list[i]->d_name);
        bool   spm;
        if (len > 6 && strcmp(list[i]->d_name + len - 6, ".jsonl") == 0) {
            list[i]->d_name[len - 6] = '\0';
            tok *t = open_tokenizer(dir, list[i]->d_name, &spm);
            for (const char *c = "a 1.\n"; t; c++) {
                tok_ids ids = { 0 };
                err     e = { 0 };
                if (*c)
                    memset(text, *c, BYTES);
                else
                    for (size_t k = 0; k < BYTES; k++) text[k] = (char)('a' + test_random(&seed) % 26);
                if (*c == ' ') text[BYTES - 1] = 'x';
                double start = seconds();
                if (tok_encode(t, text, BYTES, 0, &ids, &e) < 0) fail_msg("%s: %s", list[i]->d_name, e.msg);
                double took = seconds() - start;
                if (took > worst) {
                    worst = took;
                    printf("%s: long text of %s: %.2f s\n", list[i]->d_name,
                           *c == 'a'   ? "a"
                           : *c == ' ' ? "spaces"
                           : *c        ? "one character"
                                       : "letters",
                           took);
                }
                assert_true(took < 10); /* loaded machines and sanitizers; quadratic would take hours */
                tok_ids_deinit(&ids);
                if (!*c) break;
            }
            tok_free(t);
        }
        free(list[i]);
    }
    free(list);
    free(text);
    free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_goldens), cmocka_unit_test(test_long_texts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

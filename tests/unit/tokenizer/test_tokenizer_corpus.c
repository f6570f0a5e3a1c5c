/* SPDX-License-Identifier: Apache-2.0 */
/* Every vocabulary of the corpus against its published ids, with and without special tokens, and back to text. */
#include "base/file.h"
#include "base/json.h"
#include "bundle/tokenizer.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[] = { "gpt-2", "starcoder", "falcon", "deepseek-llm", "llama-spm", "bert-bge" };
#define SEPARATOR "\n__ggml_vocab_test__\n"

static tok *open_vocab(const char *name) {
    char        file[64];
    err         e = { 0 };
    tok        *t = NULL;
    model_file *m = NULL;
    snprintf(file, sizeof file, "vocab/%s.gguf", name);
    char *path = test_corpus_path(file);
    if (!path) return NULL;
    if (model_file_open(&m, path, &e) < 0 || bundle_tokenizer_open(&t, m, NULL, &e) < 0)
        fail_msg("%s: %s", name, e.msg);
    model_file_free(m);
    free(path);
    return t;
}

static char *read_corpus(const char *name, const char *suffix, size_t *bytes) {
    char  file[64], *data;
    err   e = { 0 };
    char *path;
    snprintf(file, sizeof file, "vocab/%s%s", name, suffix);
    path = test_corpus_path(file);
    assert_non_null(path);
    if (file_read(&data, bytes, path, (size_t)64 << 20, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return data;
}

static void show(const char *what, const int32_t *ids, size_t n) {
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < n && i < 60; i++) fprintf(stderr, " %d", ids[i]);
    fprintf(stderr, "\n");
}

static size_t compare(const char *name, const char *text, size_t len, const tok_ids *got, const int32_t *want,
                      size_t n) {
    if (got->count == n && (n == 0 || memcmp(got->data, want, n * sizeof *want) == 0)) return 0;
    str shown;
    str_init(&shown);
    str_put_json(&shown, text, len < 200 ? len : 200);
    fprintf(stderr, "%s: %s\n", name, str_cstr(&shown));
    str_deinit(&shown);
    show("want", want, n);
    show("got ", got->data, got->count);
    return 1;
}

static void encode(const tok *t, const char *text, size_t len, unsigned flags, tok_ids *ids) {
    err e = { 0 };
    ids->count = 0;
    if (tok_encode(t, text, len, flags, ids, &e) < 0) fail_msg("%s", e.msg);
}

static size_t check_inp(const char *name, const tok *t, size_t *n_texts) {
    size_t  n_inp, n_out, bad = 0;
    char   *inp = read_corpus(name, ".inp", &n_inp), *out = read_corpus(name, ".out", &n_out), *line = out;
    tok_ids ids = { 0 };
    for (char *p = inp; p < inp + n_inp; (*n_texts)++) {
        char   *end = strstr(p, SEPARATOR), *eol = strchr(line, '\n');
        int32_t want[1024];
        size_t  n = 0;
        if (!end) break;
        for (char *q = line; q < eol;) {
            while (*q == ' ') q++;
            if (q >= eol) break;
            want[n++] = (int32_t)strtol(q, &q, 10);
        }
        encode(t, p, (size_t)(end - p), 0, &ids);
        bad += compare(name, p, (size_t)(end - p), &ids, want, n);
        p = end + strlen(SEPARATOR);
        line = eol + 1;
    }
    tok_ids_deinit(&ids);
    free(inp);
    free(out);
    return bad;
}

static size_t numbers(const json_value *v, int32_t **out) {
    size_t n = json_count(v);
    *out = malloc(n * sizeof **out + 1);
    for (size_t i = 0; i < n; i++) {
        int64_t x = -1;
        json_int(json_at(v, i), &x);
        (*out)[i] = (int32_t)x;
    }
    return n;
}

/* Round trip: ids of plain text give the text back, except where the vocabulary or the normalizer loses something. */
static size_t check_round_trip(const char *name, const tok *t, const char *text, size_t len, const tok_ids *ids) {
    str        back, streamed;
    err        e = { 0 };
    tok_stream s;
    size_t     bad = 0;
    /* SentencePiece writes spaces as U+2581, so that character itself comes back as a space. */
    if (strcmp(name, "llama-spm") == 0 && memmem(text, len, "\xE2\x96\x81", 3)) return 0;
    str_init(&back);
    str_init(&streamed);
    if (tok_decode(t, ids->data, ids->count, false, &back, &e) < 0) fail_msg("%s", e.msg);
    tok_stream_init(&s, t, false);
    for (size_t i = 0; i < ids->count; i++) assert_int_equal(tok_stream_push(&s, ids->data[i], &streamed, &e), 0);
    tok_stream_finish(&s, &streamed);
    if (back.len != len || memcmp(str_cstr(&back), text, len) != 0) {
        str shown;
        str_init(&shown);
        str_put_json(&shown, text, len);
        str_puts(&shown, " came back as ");
        str_put_json(&shown, str_cstr(&back), back.len);
        fprintf(stderr, "%s: %s\n", name, str_cstr(&shown));
        str_deinit(&shown);
        bad = 1;
    }
    if (streamed.len != back.len || memcmp(str_cstr(&streamed), str_cstr(&back), back.len) != 0) {
        fprintf(stderr, "%s: the stream differs\n", name);
        bad = 1;
    }
    str_deinit(&back);
    str_deinit(&streamed);
    return bad;
}

static size_t check_line(const char *name, const tok *t, const json_value *v) {
    static const struct {
        const char *key;
        unsigned    flags;
    } modes[] = { { "ids", 0 },
                  { "ids_special", TOK_PARSE_SPECIAL },
                  { "ids_full", TOK_PARSE_SPECIAL | TOK_ADD_SPECIAL } };
    const json_value *text = json_get(v, "text");
    bool              quirk = json_get(v, "quirk") != NULL;
    size_t            bad = 0;
    tok_ids           ids = { 0 };
    for (size_t k = 0; k < 3; k++) {
        const json_value *published = k == 0 ? json_get(v, "ids_published") : NULL;
        int32_t          *want;
        size_t            n = numbers(published ? published : json_get(v, modes[k].key), &want);
        encode(t, text->u.string.data, text->u.string.len, modes[k].flags, &ids);
        if (!quirk || published) bad += compare(name, text->u.string.data, text->u.string.len, &ids, want, n);
        if (k == 0 && !quirk && strcmp(name, "bert-bge") != 0)
            bad += check_round_trip(name, t, text->u.string.data, text->u.string.len, &ids);
        if (k == 2 && !quirk && strcmp(name, "bert-bge") != 0) { /* what was added comes off again */
            const int32_t *p = ids.data;
            size_t         count = ids.count;
            tok_trim_added(t, &p, &count);
            free(want);
            n = numbers(json_get(v, "ids_special"), &want);
            assert_int_equal(count, n);
        }
        free(want);
    }
    tok_ids_deinit(&ids);
    return bad;
}

static void check_vocab(const char *name) {
    const size_t every = TEST_SANITIZED ? 25 : 1;
    size_t       bytes, bad, n_inp = 0, n_lines = 0;
    tok         *t = open_vocab(name);
    if (!t) return;
    bad = check_inp(name, t, &n_inp);
    assert_int_equal(n_inp, 46);
    char *data = read_corpus(name, ".goldens.jsonl", &bytes);
    for (char *p = data, *eol; p < data + bytes && (eol = strchr(p, '\n')); p = eol + 1, n_lines++) {
        arena             a;
        err               e = { 0 };
        const json_value *v;
        if (n_lines % every) continue;
        arena_init(&a, 0);
        if (json_parse(&v, p, (size_t)(eol - p), &a, &e) < 0) fail_msg("%s", e.msg);
        bad += check_line(name, t, v);
        arena_deinit(&a);
    }
    free(data);
    printf("%s: %zu texts, %zu goldens, %zu mismatches\n", name, n_inp, n_lines, bad);
    assert_true(n_lines >= 220);
    assert_int_equal(bad, 0);
    tok_free(t);
}

static void test_corpus(void **state) {
    (void)state;
    test_need_corpus();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_vocab(names[i]);
}

static double seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* not the wall: others may hold the machine */
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* A quarter of a megabyte of one character, or of one word without a gap, takes well under a second for every kind. */
static void test_long_words(void **state) {
    const size_t n = TEST_SANITIZED ? 1 << 16 : 1 << 18;
    uint64_t     seed = 5;
    (void)state;
    test_need_corpus();
    char *text = malloc(n);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tok *t = open_vocab(names[i]);
        if (!t) break;
        for (const char *c = "a 1!\n-";; c++) {
            tok_ids ids = { 0 };
            if (*c)
                memset(text, *c, n);
            else
                for (size_t k = 0; k < n; k++) text[k] = (char)('a' + test_random(&seed) % 26);
            if (*c == ' ') text[n - 1] = 'x';
            double start = seconds();
            encode(t, text, n, 0, &ids);
            double took = seconds() - start;
            printf("%s: %zu bytes of '%c': %.3f s, %zu ids\n", names[i], n,
                   *c > ' ' ? *c
                   : *c     ? '_'
                            : '?',
                   took, ids.count);
            assert_true(took < 5.0); /* a loaded machine or a sanitizer; quadratic would take hours */
            tok_ids_deinit(&ids);
            if (!*c) break;
        }
        tok_free(t);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_corpus), cmocka_unit_test(test_long_words) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broken tokenizer files: cut off at every 64th byte, and with random bytes changed (10,000 variants per format). Each
 * gives an error or a tokenizer that still encodes and decodes; the sanitizer builds see that nothing is touched out of
 * bounds.
 */
#include "base/file.h"
#include "tokenizer/tokenizer.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIANTS = 10000 };

typedef int (*opener)(tok **out, const char *data, size_t bytes, err *e);

static int open_json(tok **out, const char *data, size_t bytes, err *e) { return tok_open_json(out, data, bytes, e); }
static int open_spm(tok **out, const char *data, size_t bytes, err *e) {
    return tok_open_sentencepiece(out, data, bytes, e);
}
static int open_tiktoken(tok **out, const char *data, size_t bytes, err *e) {
    return tok_open_tiktoken(out, data, bytes, "llama-bpe", e);
}

/* Uses an open tokenizer a little. */
static void exercise(const tok *t) {
    static const char text[] = "Hello, abc solo<|x|> 12345 \xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\x8D\n\n  don't \xFF [MASK]";
    for (unsigned flags = 0; flags < 4; flags += 3) {
        tok_ids ids = { 0 };
        str     back;
        err     e = { 0 };
        str_init(&back);
        if (tok_encode(t, text, sizeof text - 1, flags, &ids, &e) == 0) {
            for (size_t i = 0; i < ids.count; i++) assert_in_range(ids.data[i], 0, tok_count(t) - 1);
            assert_int_equal(tok_decode(t, ids.data, ids.count, flags & 1, &back, &e), 0);
        } else {
            assert_true(e.msg[0] != '\0');
        }
        tok_ids_deinit(&ids);
        str_deinit(&back);
    }
}

static bool try_open(opener open, const char *data, size_t bytes) {
    tok  *t = NULL;
    err   e = { 0 };
    char *copy = malloc(bytes ? bytes : 1); /* an exact allocation: the sanitizer sees reads beyond its end */
    memcpy(copy, data, bytes);
    int rc = open(&t, copy, bytes, &e);
    free(copy);
    if (rc < 0) {
        assert_null(t);
        assert_true(e.msg[0] != '\0');
        return false;
    }
    exercise(t);
    tok_free(t);
    return true;
}

static void check_file(const char *name, opener open, size_t variants) {
    char    *path = test_fixture_path(name), *data = NULL;
    size_t   bytes, opened = 0, cuts = 0;
    err      e = { 0 };
    uint64_t seed = 99;
    if (file_read(&data, &bytes, path, (size_t)16 << 20, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    assert_true(try_open(open, data, bytes));
    for (size_t cut = 0; cut<bytes; cut += bytes> 100000 ? 4096 : 64, cuts++) (void)try_open(open, data, cut);
    for (size_t i = 0; i < variants; i++) {
        char  *copy = malloc(bytes);
        size_t changes = 1 + test_random(&seed) % 4;
        memcpy(copy, data, bytes);
        for (size_t k = 0; k < changes; k++) {
            uint64_t r = test_random(&seed);
            /* Half of the changes hit the first kilobyte, where the structure is. */
            size_t at = (size_t)(r >> 8) % (r & 1 && bytes > 1024 ? 1024 : bytes);
            copy[at] = r & 2 ? (char)(copy[at] ^ 1 << (r >> 3 & 7)) : (char)(r >> 40);
        }
        opened += try_open(open, copy, bytes);
        free(copy);
    }
    printf("%s: %zu cuts, %zu variants, %zu of them still open\n", name, cuts, variants, opened);
    free(data);
}

static void test_json(void **state) {
    (void)state;
    check_file("../fuzz/corpus/fuzz_tokenizer_json/llama3", open_json, VARIANTS / 4);
    check_file("../fuzz/corpus/fuzz_tokenizer_json/unigram", open_json, VARIANTS / 4);
    check_file("../fuzz/corpus/fuzz_tokenizer_json/bert", open_json, VARIANTS / 4);
    check_file("../fuzz/corpus/fuzz_tokenizer_json/clip", open_json, VARIANTS / 4);
    check_file("tokenizer/goldens/llama3.json", open_json, 200);
    check_file("tokenizer/goldens/unigram_fallback.json", open_json, 200);
}

static void test_sentencepiece(void **state) {
    (void)state;
    check_file("../fuzz/corpus/fuzz_sentencepiece/bpe", open_spm, VARIANTS / 2);
    check_file("../fuzz/corpus/fuzz_sentencepiece/unigram", open_spm, VARIANTS / 2);
    check_file("tokenizer/goldens/spm_bpe_llama.model", open_spm, 200);
    check_file("tokenizer/goldens/spm_uni_nmt.model", open_spm, 50);
}

static void test_tiktoken(void **state) {
    (void)state;
    check_file("../fuzz/corpus/fuzz_tiktoken/small", open_tiktoken, VARIANTS);
}

/* Vocabulary data as it comes out of a GGUF: texts, types, scores, merges and ids changed at random. */
static void test_vocab_data(void **state) {
    static const char *const texts[] = { "<unk>",
                                         "<s>",
                                         "</s>",
                                         "\xE2\x96\x81",
                                         "a",
                                         "b",
                                         "ab",
                                         "\xE2\x96\x81"
                                         "a",
                                         "<0x41>",
                                         "\xC4\xA0",
                                         "\xC4\xA0"
                                         "a",
                                         "<|im_end|>",
                                         "[CLS]",
                                         "[SEP]",
                                         "c",
                                         "1" };
    static const char *const merges[] = { "a b", "\xC4\xA0 a", "\xE2\x96\x81 a", "b c", "x y" };
    static const char *const models[] = { "gpt2", "llama", "bert", "t5", "gemma4", "rwkv", "" };
    static const char *const pres[] = { "", "gpt-2", "llama-bpe", "deepseek-llm", "gemma4", "nonsense" };
    enum { N = sizeof texts / sizeof texts[0], M = sizeof merges / sizeof merges[0] };
    uint64_t seed = 7;
    size_t   opened = 0;
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++) {
        char             text[N][16];
        view             tokens[N], merge[M];
        float            scores[N];
        int              types[N];
        tok_vocab_source s;
        tok             *t = NULL;
        err              e = { 0 };
        tok_vocab_source_init(&s);
        for (size_t k = 0; k < N; k++) {
            uint64_t r = test_random(&seed);
            memcpy(text[k], texts[k], strlen(texts[k]) + 1);
            size_t len = strlen(texts[k]);
            if (r % 16 == 0) text[k][(r >> 8) % len] = (char)(r >> 16);
            if (r % 16 == 1) len = (r >> 8) % (len + 1);
            tokens[k] = (view){ text[k], len };
            scores[k] = r % 16 == 2 ? (float)NAN : r % 16 == 3 ? -INFINITY : -(float)(r >> 8 & 255);
            types[k] = (int)(r >> 20) % 8 == 0 ? (int)(r >> 24) % 100 - 10 : k < 3 ? 3 : 1;
        }
        for (size_t k = 0; k < M; k++)
            merge[k] = (view){ merges[k],
                               test_random(&seed) % 8 ? strlen(merges[k]) : test_random(&seed) % strlen(merges[k]) };
        uint64_t r = test_random(&seed);
        s.model = view_of(models[r % 7]);
        s.pre = view_of(pres[(r >> 8) % 6]);
        s.tokens = tokens;
        s.n_tokens = r % 32 == 0 ? 0 : N;
        s.scores = r >> 16 & 1 ? scores : NULL;
        s.types = r >> 17 & 3 ? types : NULL;
        s.merges = merge;
        s.n_merges = (r >> 20) % (M + 1);
        s.bos = (int64_t)(r >> 24) % 40 - 4;
        s.eos = (int64_t)(r >> 30) % 40 - 4;
        s.unk = (int64_t)(r >> 36) % 40 - 4;
        s.sep = (int64_t)(r >> 42) % 40 - 4;
        s.add_eos = (int)(r >> 48) % 3 - 1;
        s.remove_extra_whitespaces = (int)(r >> 50) % 3 - 1;
        s.charsmap = r >> 60 & 1 ? (view){ (const char *)&r, (r >> 52) % 9 } : (view){ 0 };
        if (tok_open_vocab(&t, &s, NULL, &e) < 0) {
            assert_null(t);
            assert_true(e.msg[0] != '\0');
            continue;
        }
        exercise(t);
        tok_free(t);
        opened++;
    }
    printf("vocabulary data: %d variants, %zu of them open\n", VARIANTS, opened);
    assert_true(opened > 100);
}

static void test_refusals(void **state) {
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "{}", "model" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "empty" },
        { "{\"model\":{\"type\":\"Magic\",\"vocab\":{\"a\":0}}}", "Magic" },
        { "{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":"
          "[]}}",
          "UnicodeScripts" },
        { "{\"decoder\":{\"type\":\"CTC\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}", "CTC" },
        { "{\"normalizer\":{\"type\":\"Foo\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}", "Foo" },
        { "{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}", "dropout" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":999999999},\"merges\":[]}}", "out of range" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "not made of tokens" },
        { "{\"added_tokens\":[{\"id\":7777777,\"content\":\"x\"}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},"
          "\"merges\":[]}}",
          "out of range" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"},"
          "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
          "intersection" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tok *t;
        err  e = { 0 };
        assert_true(tok_open_json(&t, cases[i].json, strlen(cases[i].json), &e) < 0);
        if (!strstr(e.msg, cases[i].says)) fail_msg("'%s' does not name '%s'", e.msg, cases[i].says);
    }
}

/* A pattern that backtracks without end gives an error in bounded time. */
static void test_hostile_pattern(void **state) {
    static const char json[] = "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$|(x+x+)+y\"},"
                               "\"behavior\":\"Isolated\",\"invert\":false},"
                               "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"x\":1},\"merges\":[]}}";
    tok              *t;
    err               e = { 0 };
    tok_ids           ids = { 0 };
    char              text[4096];
    (void)state;
    assert_int_equal(tok_open_json(&t, json, sizeof json - 1, &e), 0);
    memset(text, 'a', sizeof text);
    memset(text + 2048, 'x', 2047);
    text[2047] = 'b';
    assert_int_equal(tok_encode(t, text, sizeof text, 0, &ids, &e), ERR_LIMIT);
    tok_ids_deinit(&ids);
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_json),     cmocka_unit_test(test_sentencepiece),
                                        cmocka_unit_test(test_tiktoken), cmocka_unit_test(test_vocab_data),
                                        cmocka_unit_test(test_refusals), cmocka_unit_test(test_hostile_pattern) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

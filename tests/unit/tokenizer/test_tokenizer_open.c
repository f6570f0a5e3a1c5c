/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories and the older file kinds, streams, threads, and the two commands. BPE is compared with the definition of
 * the algorithm, written down here once more in its plainest form.
 */
#include "base/file.h"
#include "bundle/tokenizer.h"
#include "unit/support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *write_file(const char *dir, const char *name, const void *data, size_t bytes) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
    return path;
}

static void put_text(const char *dir, const char *name, const char *text) {
    free(write_file(dir, name, text, strlen(text)));
}

static tok *open_path(const char *path, const char *pre) {
    tok        *t = NULL;
    err         e = { 0 };
    tok_options o = { .pre = pre };
    if (bundle_tokenizer_open_path(&t, path, &o, &e) < 0) fail_msg("%s", e.msg);
    return t;
}

static void expect(const tok *t, const char *text, unsigned flags, const char *want) {
    tok_ids ids = { 0 };
    str     got;
    err     e = { 0 };
    str_init(&got);
    if (tok_encode(t, text, strlen(text), flags, &ids, &e) < 0) fail_msg("%s", e.msg);
    for (size_t i = 0; i < ids.count; i++) str_printf(&got, i ? " %d" : "%d", ids.data[i]);
    assert_string_equal(str_cstr(&got), want);
    str_deinit(&got);
    tok_ids_deinit(&ids);
}

/* ---- tiktoken against the definition ---- */

enum { TOKENS = 700, MAX_LEN = 12 };

typedef struct ranks {
    char     text[TOKENS][MAX_LEN];
    unsigned len[TOKENS];
    unsigned n;
} ranks;

static int rank_of(const ranks *r, const char *p, unsigned len) {
    for (unsigned i = 0; i < r->n; i++) {
        if (r->len[i] == len && memcmp(r->text[i], p, len) == 0) return (int)i;
    }
    return -1;
}

/* All bytes, then joined neighbours, so that every token can be reached. */
static void make_ranks(ranks *r, uint64_t *seed) {
    for (r->n = 0; r->n < 256; r->n++) {
        r->text[r->n][0] = (char)r->n;
        r->len[r->n] = 1;
    }
    while (r->n < TOKENS) {
        uint64_t x = test_random(seed);
        unsigned a = r->n > 264 && x & 1 ? 256 + (unsigned)(x >> 8) % (r->n - 256) : 'a' + (unsigned)(x >> 8) % 4;
        unsigned b = r->n > 264 && x & 2 ? 256 + (unsigned)(x >> 32) % (r->n - 256) : 'a' + (unsigned)(x >> 32) % 4;
        char     joined[2 * MAX_LEN];
        unsigned len = r->len[a] + r->len[b];
        memcpy(joined, r->text[a], r->len[a]);
        memcpy(joined + r->len[a], r->text[b], r->len[b]);
        if (len > MAX_LEN || rank_of(r, joined, len) >= 0) continue;
        memcpy(r->text[r->n], joined, len);
        r->len[r->n++] = len;
    }
}

static size_t plain_bpe(const ranks *r, const char *word, size_t n, int32_t *out) {
    struct part {
        unsigned start, len;
    } *parts = malloc(n * sizeof *parts);
    size_t count = n;
    int    whole = n <= MAX_LEN ? rank_of(r, word, (unsigned)n) : -1;
    if (whole >= 0) {
        out[0] = whole;
        free(parts);
        return 1;
    }
    for (size_t i = 0; i < n; i++) parts[i] = (struct part){ (unsigned)i, 1 };
    for (;;) {
        int    best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            unsigned len = parts[i].len + parts[i + 1].len;
            int      rank = len <= MAX_LEN ? rank_of(r, word + parts[i].start, len) : -1;
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0) break;
        parts[at].len += parts[at + 1].len;
        memmove(parts + at + 1, parts + at + 2, (count - at - 2) * sizeof *parts);
        count--;
    }
    for (size_t i = 0; i < count; i++) out[i] = rank_of(r, word + parts[i].start, parts[i].len);
    free(parts);
    return count;
}

static void base64(str *out, const char *p, unsigned n) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (unsigned i = 0; i < n; i += 3) {
        unsigned v = (unsigned char)p[i] << 16u | (i + 1 < n ? (unsigned char)p[i + 1] << 8u : 0) |
                     (i + 2 < n ? (unsigned char)p[i + 2] : 0);
        str_push(out, alphabet[v >> 18]);
        str_push(out, alphabet[v >> 12 & 63]);
        str_push(out, i + 1 < n ? alphabet[v >> 6 & 63] : '=');
        str_push(out, i + 2 < n ? alphabet[v & 63] : '=');
    }
}

static void test_tiktoken(void **state) {
    static ranks r;
    uint64_t     seed = 3;
    char        *dir = test_temp_dir();
    str          file;
    (void)state;
    make_ranks(&r, &seed);
    str_init(&file);
    for (unsigned i = 0; i < r.n; i++) {
        base64(&file, r.text[i], r.len[i]);
        str_printf(&file, " %u\n", i);
    }
    char *path = write_file(dir, "cl100k_base.tiktoken", file.data, file.len);
    tok  *t = open_path(path, NULL);
    assert_int_equal(tok_count(t), TOKENS);
    for (size_t round = 0; round < 300; round++) { /* words of 1 to 150 letters: both ways of merging */
        char    word[150];
        int32_t want[150];
        size_t  n = 1 + test_random(&seed) % sizeof word;
        tok_ids ids = { 0 };
        err     e = { 0 };
        for (size_t i = 0; i < n; i++) word[i] = (char)('a' + test_random(&seed) % 4);
        assert_int_equal(tok_encode(t, word, n, 0, &ids, &e), 0);
        size_t count = plain_bpe(&r, word, n, want);
        assert_int_equal(ids.count, count);
        assert_memory_equal(ids.data, want, count * sizeof *want);
        tok_ids_deinit(&ids);
    }
    tok_free(t);
    free(path);
    /* A name that tells nothing needs --pre. */
    path = write_file(dir, "x.tiktoken", file.data, file.len);
    err e = { 0 };
    t = NULL;
    assert_true(bundle_tokenizer_open_path(&t, path, NULL, &e) < 0);
    assert_non_null(strstr(e.msg, "--pre"));
    t = open_path(path, "gpt-2");
    tok_free(t);
    free(path);
    str_deinit(&file);
    test_temp_dir_remove(dir);
}

/* ---- directories ---- */

static void test_bpe_files(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    put_text(dir, "vocab.json",
             "{\"h\":0,\"e\":1,\"l\":2,\"o\":3,\"\\u0120\":4,\"he\":5,\"ll\":6,\"llo\":7,\"hello\":8,\"\\u0120hello\":"
             "9,\"<|end|>\":10}");
    put_text(dir, "merges.txt", "#version: 0.2\nh e\nl l\nll o\nhe llo\n\xC4\xA0 hello\n");
    put_text(dir, "tokenizer_config.json",
             "{\"eos_token\":\"<|end|>\",\"added_tokens_decoder\":{\"10\":{\"content\":\"<|end|>\",\"special\":true},"
             "\"11\":{\"content\":\"<tool>\",\"special\":false}}}");
    put_text(dir, "generation_config.json", "{\"eos_token_id\":[10,3]}");
    tok *t = open_path(dir, NULL);
    expect(t, "hello hello", 0, "8 9");
    expect(t, "hell<|end|>o<tool>", TOK_PARSE_SPECIAL, "5 6 10 3 11");
    expect(t, "o<tool>", 0, "3 11");
    assert_int_equal(tok_eos(t), 10);
    assert_true(tok_is_end(t, 10) && tok_is_end(t, 3) && !tok_is_end(t, 8));
    assert_int_equal(tok_class_of(t, 10), TOK_CONTROL);
    assert_int_equal(tok_class_of(t, 11), TOK_USER);
    assert_int_equal(tok_find(t, "llo", 3), 7);
    tok_free(t);
    test_temp_dir_remove(dir);
}

static void test_bert_vocab(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    put_text(dir, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\nhello\n,\ncafe\n");
    tok *t = open_path(dir, NULL);
    expect(t, "Hello, unaffable Caf\xC3\xA9 zzz", TOK_ADD_SPECIAL, "2 8 9 5 6 7 10 1 3");
    expect(t, "[MASK]", TOK_PARSE_SPECIAL, "4");
    tok_free(t);
    put_text(dir, "tokenizer_config.json", "{\"do_lower_case\":false}");
    t = open_path(dir, NULL);
    expect(t, "Hello hello", 0, "1 8");
    tok_free(t);
    test_temp_dir_remove(dir);
}

/* DeBERTa's file has a name of its own. What would change texts before it sees them is refused, not ignored. */
static void test_deberta_dir(void **state) {
    static const char *const fields[] = { "do_lower_case", "split_by_punct" };
    char  *dir = test_temp_dir(), *from = test_fixture_path("tokenizer/goldens/spm_bpe_llama.model"), *data, config[80];
    size_t bytes;
    err    e = { 0 };
    tok   *t;
    (void)state;
    assert_int_equal(file_read(&data, &bytes, from, 1 << 20, &e), 0);
    free(write_file(dir, "spm.model", data, bytes));
    for (int i = 0; i < 2; i++) {
        snprintf(config, sizeof config, "{\"%s\":false}", fields[i]);
        put_text(dir, "tokenizer_config.json", config);
        t = open_path(dir, NULL);
        tok_free(t);
        snprintf(config, sizeof config, "{\"%s\":true}", fields[i]);
        put_text(dir, "tokenizer_config.json", config);
        assert_int_equal(bundle_tokenizer_open_path(&t, dir, NULL, &e), ERR_UNSUPPORTED);
        if (!strstr(e.msg, fields[i])) fail_msg("%s", e.msg);
    }
    free(data);
    free(from);
    test_temp_dir_remove(dir);
}

/* add_bos_token of tokenizer_config.json, and tokens beyond a SentencePiece model. */
static void test_sentencepiece_dir(void **state) {
    char  *dir = test_temp_dir(), *from = test_fixture_path("tokenizer/goldens/spm_bpe_llama.model"), *data;
    size_t bytes;
    err    e = { 0 };
    (void)state;
    assert_int_equal(file_read(&data, &bytes, from, 1 << 20, &e), 0);
    free(write_file(dir, "tokenizer.model", data, bytes));
    tok    *t = open_path(dir, NULL);
    int32_t n = tok_count(t);
    assert_true(tok_adds_bos(t) && !tok_adds_eos(t));
    tok_free(t);
    char config[256];
    snprintf(config, sizeof config,
             "{\"add_bos_token\":false,\"add_eos_token\":true,\"added_tokens_decoder\":{\"%d\":{\"content\":\"<|im_end|"
             ">\",\"special\":true}}}",
             n);
    put_text(dir, "tokenizer_config.json", config);
    t = open_path(dir, NULL);
    assert_true(!tok_adds_bos(t) && tok_adds_eos(t));
    assert_int_equal(tok_count(t), n + 1);
    char want[16];
    snprintf(want, sizeof want, "%d", n);
    expect(t, "<|im_end|>", TOK_PARSE_SPECIAL, want);
    assert_true(tok_is_end(t, n));
    tok_free(t);
    free(data);
    free(from);
    test_temp_dir_remove(dir);
}

static void test_unknown_pre(void **state) {
    tok_vocab_source s;
    const view       tokens[] = { { "a", 1 } };
    const view       merges[] = { { "a a", 3 } };
    tok             *t;
    err              e = { 0 };
    (void)state;
    tok_vocab_source_init(&s);
    s.model = view_of("gpt2");
    s.pre = view_of("no-such-name");
    s.tokens = tokens;
    s.n_tokens = 1;
    s.merges = merges;
    s.n_merges = 1;
    assert_int_equal(tok_open_vocab(&t, &s, NULL, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "no-such-name"));
    assert_non_null(strstr(e.msg, "--pre"));
    assert_int_equal(tok_open_vocab(&t, &s, &(tok_options){ .pre = "gpt-2" }, &e), 0);
    tok_free(t);
    s.model = view_of("rwkv");
    assert_int_equal(tok_open_vocab(&t, &s, NULL, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "rwkv"));
}

/* Phi 3 swallows white space behind its special tokens; a GGUF shows that by its name only. */
static void test_phi3_strips(void **state) {
    const view       tokens[] = { { "<unk>", 5 },        { "<s>", 3 }, { "</s>", 4 },  { "<|user|>", 8 },
                                  { "\xE2\x96\x81", 3 }, { "a", 1 },   { "<0x0A>", 6 } };
    const int        types[] = { 2, 3, 3, 3, 1, 1, 6 };
    const float      scores[] = { 0, 0, 0, 0, -1, -2, 0 };
    tok_vocab_source s;
    tok             *t;
    err              e = { 0 };
    (void)state;
    tok_vocab_source_init(&s);
    s.model = view_of("llama");
    s.tokens = tokens;
    s.types = types;
    s.scores = scores;
    s.n_tokens = 7;
    assert_int_equal(tok_open_vocab(&t, &s, NULL, &e), 0);
    expect(t, "<|user|>\na", TOK_PARSE_SPECIAL, "3 4 6 5");
    tok_free(t);
    s.name = view_of("Phi-3 mini");
    assert_int_equal(tok_open_vocab(&t, &s, NULL, &e), 0);
    expect(t, "<|user|>\na", TOK_PARSE_SPECIAL, "3 4 5");
    tok_free(t);
    assert_int_equal(tok_open_vocab(&t, &s, &(tok_options){ .pre = "gpt-2" }, &e), ERR_ARG); /* not ignored */
}

/* Ollama's files of Gemma 4 say "llama" of its merges. */
static void test_gemma4_called_llama(void **state) {
    const view       tokens[] = { { "a", 1 }, { "b", 1 }, { "ab", 2 }, { "ba", 2 } };
    const view       merges[] = { { "a b", 3 } };
    const float      scores[] = { 0, 0, -2, -1 };
    tok_vocab_source s;
    (void)state;
    tok_vocab_source_init(&s);
    s.tokens = tokens;
    s.scores = scores;
    s.n_tokens = 4;
    s.merges = merges;
    s.n_merges = 1;
    s.pre = view_of("gemma4");
    for (int i = 0; i < 2; i++) {
        tok *t;
        err  e = { 0 };
        s.model = view_of(i ? "llama" : "gemma4");
        assert_int_equal(tok_open_vocab(&t, &s, NULL, &e), 0);
        expect(t, "abba", 0, "2 1 0");
        tok_free(t);
    }
}

/* ---- streams ---- */

static tok *open_golden(const char *name) {
    char *path = test_fixture_path(name);
    tok  *t = open_path(path, NULL);
    free(path);
    return t;
}

static void test_stream(void **state) {
    tok       *t = open_golden("tokenizer/goldens/gpt2.json");
    int32_t    byte[256];
    str        out;
    tok_stream s;
    err        e = { 0 };
    (void)state;
    str_init(&out);
    for (int b = 0; b < 256; b++) { /* the token of each single byte */
        byte[b] = -1;
        for (int32_t id = 0; id < tok_count(t) && byte[b] < 0; id++) {
            str_clear(&out);
            assert_true(tok_bytes(t, id, &out));
            if (out.len == 1 && (unsigned char)out.data[0] == b && tok_class_of(t, id) == TOK_NORMAL) byte[b] = id;
        }
        assert_true(byte[b] >= 0);
    }
    str_clear(&out);
    tok_stream_init(&s, t, false);
    assert_int_equal(tok_stream_push(&s, byte[0xF0], &out, &e), 0);
    assert_int_equal(tok_stream_push(&s, byte[0x9F], &out, &e), 0);
    assert_int_equal(tok_stream_push(&s, byte[0x91], &out, &e), 0);
    assert_int_equal(out.len, 0); /* held back */
    assert_int_equal(tok_stream_push(&s, byte[0x8D], &out, &e), 0);
    assert_string_equal(str_cstr(&out), "\xF0\x9F\x91\x8D");
    str_clear(&out);
    assert_int_equal(tok_stream_push(&s, byte[0xE4], &out, &e), 0);
    assert_int_equal(tok_stream_push(&s, byte['x'], &out, &e), 0);
    assert_string_equal(str_cstr(&out), "\xEF\xBF\xBDx"); /* it can no longer complete */
    str_clear(&out);
    assert_int_equal(tok_stream_push(&s, byte[0xC3], &out, &e), 0);
    assert_int_equal(out.len, 0);
    tok_stream_finish(&s, &out);
    assert_string_equal(str_cstr(&out), "\xEF\xBF\xBD");
    assert_int_equal(tok_stream_push(&s, tok_count(t), &out, &e), ERR_ARG);
    assert_int_equal(tok_stream_push(&s, -1, &out, &e), ERR_ARG);
    str_deinit(&out);
    tok_free(t);
}

/* ---- threads ---- */

static const char sample[] =
    "The quick brown fox; it's 12345 caf\xC3\xA9s.\n\n  \xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E <s> x";

static void *encode_often(void *arg) {
    const tok *t = arg;
    tok_ids    first = { 0 }, ids = { 0 };
    err        e = { 0 };
    bool       ok = tok_encode(t, sample, sizeof sample - 1, TOK_PARSE_SPECIAL, &first, &e) == 0;
    for (int i = 0; i < 500 && ok; i++) {
        ids.count = 0;
        ok = tok_encode(t, sample, sizeof sample - 1, TOK_PARSE_SPECIAL, &ids, &e) == 0 && ids.count == first.count &&
             memcmp(ids.data, first.data, ids.count * sizeof *ids.data) == 0;
    }
    tok_ids_deinit(&first);
    tok_ids_deinit(&ids);
    return ok ? arg : NULL;
}

static void test_threads(void **state) {
    static const char *const names[] = { "tokenizer/goldens/llama3.json", "tokenizer/goldens/unigram_meta.json",
                                         "tokenizer/goldens/deepseek3.json" };
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        tok      *t = open_golden(names[k]);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
        for (int i = 0; i < 4; i++) {
            void *result;
            pthread_join(threads[i], &result);
            assert_ptr_equal(result, t);
        }
        tok_free(t);
    }
}

/* ---- the commands ---- */

static void run_command(const char *args, const char *want) {
    const char *program = getenv("HEARTH_PROGRAM");
    char        command[1024], got[1024] = "";
    if (!program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        return;
    }
    snprintf(command, sizeof command, "M='%s/tests/fixtures/tokenizer/goldens/llama3.json'; H='%s'; %s",
             HEARTH_SOURCE_DIR, program, args);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(got, 1, sizeof got - 1, p);
    got[n] = '\0';
    pclose(p);
    assert_string_equal(got, want);
}

static void test_commands(void **state) {
    (void)state;
    /* "<s>" and "</s>" are 1 and 2 in this vocabulary, added around the text. */
    run_command("$H tokenize \"$M\" --text ''", "[1,2]\n");
    run_command("$H tokenize \"$M\" --text '<s>' --no-bos", "[1]\n");
    run_command("printf '\"<s>\"\\n\"</s><s>\"\\n' | $H tokenize \"$M\" --lines --no-bos", "[1]\n[2,1]\n");
    run_command("printf 'Hello <s> w\\303\\266rld' | $H tokenize \"$M\" | $H detokenize \"$M\"",
                "Hello <s> w\xC3\xB6rld");
    run_command("printf '<s>' | $H tokenize \"$M\" --no-bos --no-special | $H detokenize \"$M\" --no-bos", "<s>");
    run_command("printf '\"a\\\\nb\\\\u00e9\"\\n' | $H tokenize \"$M\" --lines | $H detokenize \"$M\" --lines",
                "\"a\\nb\xC3\xA9\"\n");
    run_command("$H detokenize \"$M\" --ids '[99999]' 2>&1 | grep -c 'beyond the vocabulary'", "1\n");
    run_command("$H tokenize /no/such/file --text a 2>/dev/null; echo $?", "1\n");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_tiktoken),
                                        cmocka_unit_test(test_bpe_files),
                                        cmocka_unit_test(test_bert_vocab),
                                        cmocka_unit_test(test_deberta_dir),
                                        cmocka_unit_test(test_sentencepiece_dir),
                                        cmocka_unit_test(test_unknown_pre),
                                        cmocka_unit_test(test_phi3_strips),
                                        cmocka_unit_test(test_stream),
                                        cmocka_unit_test(test_threads),
                                        cmocka_unit_test(test_commands),
                                        cmocka_unit_test(test_gemma4_called_llama) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

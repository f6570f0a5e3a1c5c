/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tekken.json against the rules of mistral-common, written down once more in tests/golden/make_tekken_goldens.py, which made the
 * files in tests/fixtures/tokenizer/tekken; and what is wrong with files that are refused.
 */
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *load(const char *name, size_t *bytes) {
    char relative[128], *data = NULL;
    err  e = { 0 };
    snprintf(relative, sizeof relative, "tokenizer/tekken/%s", name);
    char *path = test_fixture_path(relative);
    if (file_read(&data, bytes, path, (size_t)1 << 20, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return data;
}

static tok *open_file(const char *name) {
    size_t n;
    char  *data = load(name, &n);
    tok   *t;
    err    e = { 0 };
    if (tok_open_tekken(&t, data, n, &e) < 0) fail_msg("%s", e.msg);
    free(data);
    return t;
}

static void expect_ids(const tok *t, view text, unsigned flags, const json_value *want) {
    tok_ids got = { 0 };
    err     e = { 0 };
    assert_int_equal(tok_encode(t, text.data, text.len, flags, &got, &e), 0);
    bool same = got.count == json_count(want);
    for (size_t i = 0; same && i < got.count; i++) {
        int64_t id = -1;
        same = json_int(json_at(want, i), &id) && id == got.data[i];
    }
    if (!same) print_message("%.*s\n", (int)text.len, text.data);
    assert_true(same);
    if (!(flags & TOK_ADD_SPECIAL)) { /* bytes come back */
        str back;
        str_init(&back);
        assert_int_equal(tok_decode(t, got.data, got.count, false, &back, &e), 0);
        assert_int_equal(back.len, text.len);
        assert_memory_equal(str_cstr(&back), text.data, text.len);
        str_deinit(&back);
    }
    tok_ids_deinit(&got);
}

static void test_ids(void **state) {
    size_t bytes, lines = 0;
    char  *text = load("ids.jsonl", &bytes);
    tok   *t = open_file("tekken.json");
    (void)state;
    for (char *at = text; at < text + bytes; lines++) {
        char             *end = memchr(at, '\n', (size_t)(text + bytes - at));
        const json_value *v;
        arena             mem;
        err               e = { 0 };
        arena_init(&mem, 0);
        assert_int_equal(json_parse(&v, at, (size_t)(end - at), &mem, &e), 0);
        view said = json_get(v, "text")->u.string;
        expect_ids(t, said, 0, json_get(v, "literal"));
        expect_ids(t, said, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, json_get(v, "special"));
        arena_deinit(&mem);
        at = end + 1;
    }
    assert_true(lines > 200);
    tok_free(t);
    free(text);
}

static void expect_name(const tok *t, int32_t id, const char *name, tok_class cls) {
    view v = tok_text(t, id);
    assert_int_equal(v.len, strlen(name));
    assert_memory_equal(v.data, name, v.len);
    assert_int_equal(tok_class_of(t, id), cls);
}

static void test_names(void **state) {
    tok *t = open_file("tekken.json"), *old = open_file("old.json");
    (void)state;
    assert_int_equal(tok_count(t), 256 + 700 + 40); /* words that do not fit are left out */
    expect_name(t, 24, "[AUDIO]", TOK_CONTROL);
    expect_name(t, 23, "<SPECIAL_23>", TOK_CONTROL);
    expect_name(t, 40 + 'a', "a", TOK_NORMAL);
    assert_int_equal(tok_find(t, "[BEGIN_AUDIO]", 13), 25);
    assert_int_equal(tok_bos(t), 1);
    assert_int_equal(tok_eos(t), 2);
    assert_true(tok_is_end(t, 2) && tok_adds_bos(t));
    expect_name(old, 19, "[TOOL_CONTENT]", TOK_CONTROL);
    expect_name(old, 20, "<SPECIAL_20>", TOK_CONTROL);
    assert_int_equal(tok_count(old), 256 + 40);
    tok_free(t);
    tok_free(old);
}

/* A directory with nothing else. */
static void test_directory(void **state) {
    char *dir = test_temp_dir(), *path = path_join(dir, "tekken.json");
    char *from = test_fixture_path("tokenizer/tekken/tekken.json");
    tok  *t;
    err   e = { 0 };
    (void)state;
    assert_int_equal(symlink(from, path), 0);
    assert_int_equal(tok_open_path(&t, dir, NULL, &e), 0);
    assert_int_equal(tok_find(t, "[AUDIO]", 7), 24);
    assert_int_equal(tok_bos(t), 1);
    tok_free(t);
    free(path);
    free(from);
    test_temp_dir_remove(dir);
}

static void test_nonsense(void **state) {
#define CONFIG(size, special, version)                                                                                 \
    "{\"config\":{\"pattern\":\".\",\"default_vocab_size\":" size ",\"default_num_special_tokens\":" special           \
    ",\"version\":\"" version "\"},"
#define WORD "{\"rank\":0,\"token_bytes\":\"YQ==\"}"
    static const struct {
        const char *text, *said;
    } bad[] = {
        { "{}", "no config.pattern" },
        { CONFIG("2", "1", "v3") "\"vocab\":3}", "no vocab" },
        { CONFIG("3", "1", "v3") "\"vocab\":[" WORD "]}", "do not fit" },
        { CONFIG("1", "1", "v3") "\"vocab\":[" WORD "]}", "do not fit" },
        { CONFIG("9999999999", "1", "v3") "\"vocab\":[" WORD "]}", "do not fit" },
        { CONFIG("100001", "100000", "v3") "\"vocab\":[" WORD "]}", "do not fit" },
        { CONFIG("2", "-1", "v3") "\"vocab\":[" WORD "]}", "do not fit" },
        { CONFIG("2", "1", "v11") "\"vocab\":[" WORD "]}", "version v11 has no special_tokens" },
        { CONFIG("2", "1", "v3") "\"vocab\":[{\"rank\":1,\"token_bytes\":\"YQ==\"}]}", "has the rank 1" },
        { CONFIG("2", "1", "v3") "\"vocab\":[{\"rank\":0,\"token_bytes\":\"?\"}]}", "not base64" },
        { CONFIG("2", "1", "v3") "\"vocab\":[{\"rank\":0,\"token_bytes\":\"\"}]}", "not base64" },
        { CONFIG("2", "1", "v3") "\"vocab\":[{\"rank\":0}]}", "no token_bytes" },
        { CONFIG("3", "1", "v3") "\"vocab\":[" WORD "," WORD "]}", "appears twice" },
        { CONFIG("2", "1", "v3") "\"vocab\":[" WORD "],\"special_tokens\":7}", "not a list" },
        { CONFIG("2", "1", "v3") "\"vocab\":[" WORD "],\"special_tokens\":[{\"rank\":1,\"token_str\":\"x\"}]}",
          "rank below 1" },
        { CONFIG("2", "1", "v3") "\"vocab\":[" WORD "],\"special_tokens\":[{\"rank\":0,\"token_str\":\"\"}]}",
          "0 bytes" },
        { "{\"config\":{\"pattern\":\"(\",\"default_vocab_size\":2,\"default_num_special_tokens\":1,\"version\":\"v3\"}"
          ",\"vocab\":[" WORD "]}",
          "config.pattern" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tok *t;
        err  e = { 0 };
        assert_true(tok_open_tekken(&t, bad[i].text, strlen(bad[i].text), &e) < 0);
        assert_null(t);
        if (!strstr(e.msg, bad[i].said)) print_message("%s: %s\n", bad[i].said, e.msg);
        assert_non_null(strstr(e.msg, bad[i].said));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ids), cmocka_unit_test(test_names),
                                        cmocka_unit_test(test_directory), cmocka_unit_test(test_nonsense) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

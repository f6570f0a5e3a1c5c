/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hand-written splitters give the same pieces as their patterns through PCRE2, over random text of all character
 * classes (several million characters) and over the corpus texts. Characters whose class the two Unicode tables see
 * differently (utf8proc and PCRE2 may know different versions) are left out of the random text and counted.
 */
#include "base/file.h"
#include "tokenizer/internal.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces of text by the pattern: matches and what lies between them. */
static void split_by_regex(const regex *re, tok_ctx *c, const char *text, size_t bytes, piece_list *out) {
    size_t from = 0, kept = 0, start, end;
    err    e = { 0 };
    int    rc;
    out->count = 0;
    while (from < bytes && (rc = regex_next(re, c, text, bytes, from, &start, &end, &e)) != 0) {
        if (rc < 0) fail_msg("%s", e.msg);
        if (kept < start) piece_push(out, kept, start);
        if (start < end) piece_push(out, start, end);
        kept = from = end;
        assert_true(end > start);
    }
    if (kept < bytes) piece_push(out, kept, bytes);
}

static size_t compare(const char *pattern, const splitter *s, const regex *re, tok_ctx *c, const char *text,
                      size_t bytes) {
    c->pieces.count = 0;
    if (bytes) split_run(s, text, 0, bytes, &c->pieces);
    split_by_regex(re, c, text, bytes, &c->pieces2);
    bool same = c->pieces.count == c->pieces2.count &&
                (c->pieces.count == 0 || memcmp(c->pieces.data, c->pieces2.data, c->pieces.count * sizeof(piece)) == 0);
    if (same) return 0;
    size_t k = 0;
    while (k < c->pieces.count && k < c->pieces2.count && c->pieces.data[k].len == c->pieces2.data[k].len) k++;
    str shown;
    str_init(&shown);
    size_t at = k < c->pieces.count ? c->pieces.data[k].start : 0;
    str_put_json(&shown, text + at, bytes - at < 60 ? bytes - at : 60);
    fprintf(stderr, "%.60s: by hand %u bytes, by pattern %u bytes at %s\n", pattern,
            k < c->pieces.count ? c->pieces.data[k].len : 0, k < c->pieces2.count ? c->pieces2.data[k].len : 0,
            str_cstr(&shown));
    str_deinit(&shown);
    return 1;
}

static const char *const classes[] = { "\\p{L}", "\\p{N}",           "\\p{M}",  "\\p{P}",           "\\p{S}",
                                       "\\s",    "[\\p{Lu}\\p{Lt}]", "\\p{Ll}", "[\\p{Lm}\\p{Lo}]", "\\p{Han}" };
static const unsigned    flags[] = { UC_L, UC_N, UC_M, UC_P, UC_S, UC_WS, UC_UPPER, UC_LOWER, UC_CASELESS, UC_HAN };

/* Code points about which both tables agree, and how many are left out. */
static unsigned *agreed(tok_ctx *c, size_t *count) {
    unsigned *list = malloc(0x110000 * sizeof *list);
    regex    *re[10];
    size_t    n = 0, out = 0;
    err       e = { 0 };
    for (size_t k = 0; k < 10; k++) assert_int_equal(regex_open(&re[k], classes[k], strlen(classes[k]), 0, &e), 0);
    str one;
    str_init(&one);
    for (unsigned cp = 1; cp < 0x32000; cp++) {
        bool same = true;
        if (cp >= 0xD800 && cp < 0xE000) continue;
        str_clear(&one);
        str_put_utf8(&one, cp);
        for (size_t k = 0; k < 10 && same; k++) {
            size_t a, b;
            same = (regex_next(re[k], c, one.data, one.len, 0, &a, &b, &e) == 1) ==
                   ((uc_class(uc_get(), cp) & flags[k]) != 0);
        }
        if (same)
            list[n++] = cp;
        else
            out++;
    }
    str_deinit(&one);
    for (size_t k = 0; k < 10; k++) regex_free(re[k]);
    printf("%zu characters agree, %zu are seen differently and left out\n", n, out);
    assert_true(out < 8000); /* two Unicode versions apart at the most */
    *count = n;
    return list;
}

static void random_text(str *text, uint64_t *seed, const unsigned *list, size_t n, size_t chars) {
    static const char common[] = "aaabcdefgstmrvlABCDSTLL''''   \n\n\r\t0123456789.,!?-/_()";
    str_clear(text);
    for (size_t i = 0; i < chars; i++) {
        uint64_t r = test_random(seed);
        unsigned cp;
        switch (r % 8) {
        case 0:
        case 1:
        case 2: cp = (unsigned char)common[(r >> 8) % (sizeof common - 1)]; break;
        case 3: cp = list[(r >> 8) % (n < 0x500 ? n : 0x500)]; break;
        case 4: cp = 0x4E00 + (unsigned)((r >> 8) % 64); break;
        case 5:
            cp = (r >> 8) % 3 == 0   ? 0x17F
                 : (r >> 8) % 3 == 1 ? 0x300 + (unsigned)((r >> 16) % 0x60)
                                     : 0x2000 + (unsigned)((r >> 16) % 12);
            break;
        default: cp = list[(r >> 8) % n]; break;
        }
        str_put_utf8(text, cp);
        for (unsigned k = (unsigned)(r >> 40) % 16; k >= 13 && k < 16; k++) str_put_utf8(text, cp); /* runs */
    }
}

static void test_random_text(void **state) {
    tok_ctx *c = calloc(1, sizeof *c);
    size_t   n, total = 0, patterns = 0;
    uint64_t seed = 42;
    str      text;
    err      e = { 0 };
    (void)state;
    assert_true(uc_init());
    unsigned *list = agreed(c, &n);
    str_init(&text);
    for (size_t i = 0; split_pattern_at(i); i++) {
        const char *pattern = split_pattern_at(i);
        regex      *re = NULL;
        size_t      bad = 0;
        splitter    s = split_find(pattern, strlen(pattern), false);
        if (strcmp(pattern, TOK_DIGITS_RIGHT) == 0) continue; /* no pattern of its own */
        if (regex_open(&re, pattern, strlen(pattern), 0, &e) < 0) fail_msg("%s", e.msg);
        patterns++;
        for (size_t round = 0; round < (TEST_SANITIZED ? 150 : 1200) && bad < 5; round++) {
            size_t chars = round % 3 == 0 ? 400 : 1 + round % 40;
            random_text(&text, &seed, list, n, chars);
            total += chars;
            bad += compare(pattern, &s, re, c, text.data, text.len);
        }
        regex_free(re);
        assert_int_equal(bad, 0);
    }
    printf("%zu patterns, %zu characters\n", patterns, total);
    assert_true(total > (TEST_SANITIZED ? 300000 : 3000000));
    str_deinit(&text);
    free(list);
    free(c->pieces.data);
    free(c->pieces2.data);
    regex_scratch_free(c);
    free(c);
}

/* \w+|[^\w\s]+ by table against the pattern. */
static void test_words(void **state) {
    static const char pattern[] = "\\w+|[^\\w\\s]+";
    tok              *t = tok_new();
    tok_ctx          *c = calloc(1, sizeof *c);
    regex            *re, *word;
    err               e = { 0 };
    str               text, one;
    uint64_t          seed = 8;
    size_t            n = 0, out = 0;
    (void)state;
    assert_true(uc_init());
    assert_int_equal(regex_open(&re, pattern, strlen(pattern), REGEX_RUST_WORD, &e), 0);
    assert_int_equal(regex_open(&word, "\\w", 2, REGEX_RUST_WORD, &e), 0);
    assert_non_null(tok_pre_add(t, PRE_WORDS, &e));
    str_init(&text);
    str_init(&one);
    unsigned *list = malloc(0x32000 * sizeof *list);
    for (unsigned cp = 1; cp < 0x32000; cp++) {
        size_t a, b;
        if (cp >= 0xD800 && cp < 0xE000) continue;
        str_clear(&one);
        str_put_utf8(&one, cp);
        bool is = regex_next(word, c, one.data, one.len, 0, &a, &b, &e) == 1,
             ours = (uc_class(uc_get(), cp) & UC_WORD) != 0;
        if (is == ours && cp != 0x180E)
            list[n++] = cp;
        else
            out++;
    }
    printf("%zu characters agree on \\w, %zu do not\n", n, out);
    assert_true(out < 6000);
    for (size_t round = 0; round < (TEST_SANITIZED ? 300 : 2000); round++) {
        random_text(&text, &seed, list, n, 1 + round % 200);
        view v = { text.data, text.len };
        assert_int_equal(pretokenize(t, c, &v, true, &e), 0);
        size_t from = 0, start, end, k = 0;
        while (from < text.len && regex_next(re, c, text.data, text.len, from, &start, &end, &e) == 1) {
            assert_true(k < c->pieces.count);
            assert_int_equal(c->pieces.data[k].start, start);
            assert_int_equal(c->pieces.data[k].len, end - start);
            k++;
            from = end;
        }
        assert_int_equal(k, c->pieces.count);
    }
    str_deinit(&text);
    str_deinit(&one);
    free(list);
    regex_free(re);
    regex_free(word);
    c->next = t->free_ctx;
    t->free_ctx = c;
    tok_free(t);
}

/* \s+$ where $ ends every line. */
static void test_line_ends(void **state) {
    static const char *const texts[] = { "a  \n b \n\n", "  \n", "\n", " a", "a \n", "a\n \n b  ", " \r\n x", "a  " };
    tok_ctx                 *c = calloc(1, sizeof *c);
    regex                   *re;
    err                      e = { 0 };
    splitter                 s = split_find("\\s+$", 4, true);
    (void)state;
    assert_true(uc_init());
    assert_int_equal(regex_open(&re, "\\s+$", 4, REGEX_MULTILINE, &e), 0);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(compare("\\s+$", &s, re, c, texts[i], strlen(texts[i])), 0);
    regex_free(re);
    free(c->pieces.data);
    free(c->pieces2.data);
    regex_scratch_free(c);
    free(c);
}

static void test_digits_from_the_right(void **state) {
    static const struct {
        const char *text, *want;
    } cases[] = { { "1234567", "1|234|567|" },
                  { "ab12cd3456", "ab|12|cd|3|456|" },
                  { "", "" },
                  { "abc", "abc|" },
                  { "123", "123|" } };
    (void)state;
    assert_true(uc_init());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        splitter   s = { .kind = SPLIT_DIGITS_RIGHT };
        piece_list l = { 0 };
        str        got;
        str_init(&got);
        split_run(&s, cases[i].text, 0, strlen(cases[i].text), &l);
        for (size_t k = 0; k < l.count; k++)
            str_printf(&got, "%.*s|", (int)l.data[k].len, cases[i].text + l.data[k].start);
        assert_string_equal(str_cstr(&got), cases[i].want);
        str_deinit(&got);
        free(l.data);
    }
}

/* Every name of the table compiles, and splits a megabyte of awkward text without running into a limit. */
static void test_names(void **state) {
    size_t count = 0;
    (void)state;
    for (const pre_name *p; (p = pre_name_at(count)); count++) {
        static const char *const fill[] = { "a", " ", "1", "\n", "\xE4\xB8\xAD", "a b", "'s" };
        tok                     *t = tok_new();
        tok_ctx                 *c = calloc(1, sizeof *c);
        err                      e = { 0 };
        assert_non_null(t);
        assert_true(uc_init());
        if (pre_name_apply(t, p, &e) < 0) fail_msg("%s", e.msg);
        for (size_t k = 0; k < sizeof fill / sizeof fill[0]; k++) {
            str text;
            str_init(&text);
            while (text.len < 200000) str_puts(&text, fill[k]);
            str_puts(&text, "x");
            view v = { text.data, text.len };
            if (pretokenize(t, c, &v, true, &e) < 0) fail_msg("%s: %s", p->name, e.msg);
            size_t covered = 0;
            for (size_t i = 0; i < c->pieces.count; i++) covered += c->pieces.data[i].len;
            assert_int_equal(covered, text.len);
            str_deinit(&text);
        }
        c->next = t->free_ctx;
        t->free_ctx = c; /* freed with the tokenizer */
        tok_free(t);
    }
    printf("%zu pre-tokenizer names\n", count);
    assert_true(count >= 70);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random_text), cmocka_unit_test(test_words),
                                        cmocka_unit_test(test_line_ends), cmocka_unit_test(test_digits_from_the_right),
                                        cmocka_unit_test(test_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

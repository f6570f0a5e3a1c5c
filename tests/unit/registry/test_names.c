/* SPDX-License-Identifier: Apache-2.0 */
/* Names of models: what each form means, what is none, and which model of the registry is meant. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/nearest.h"
#include "registry/names.h"
#include "unit/support/model.h"

#include <stdlib.h>
#include <string.h>

/* kind owner repo file quant revision tag host path, "-" for none, then the alias and the source. */
typedef struct row {
    const char *text, *want, *alias, *source;
} row;

static const char *or_none(const char *s) { return s ? s : "-"; }

static void describe(const name_ref *n, str *out) {
    static const char *const kinds[] = { "demo", "path", "hf", "ollama" };
    const char              *texts[] = { n->owner, n->repo, n->file, n->quant, n->revision, n->tag, n->host, n->path };
    str_puts(out, kinds[n->kind]);
    for (size_t i = 0; i < 8; i++) str_printf(out, " %s", or_none(texts[i]));
}

static void test_parse(void **state) {
    static const row rows[] = {
        { "demo", "demo - - - - - - - -", "demo", "demo" },
        { "demo:latest", "demo - - - - - - - -", "demo", "demo" },
        { "./demo", "path - - - - - - - ./demo", "./demo", "./demo" },
        { "/x/y", "path - - - - - - - /x/y", "/x/y", "/x/y" },
        { "..", "path - - - - - - - ..", "..", ".." },
        { "~/m.gguf", "path - - - - - - - ~/m.gguf", "~/m.gguf", "~/m.gguf" },
        { "x.gguf", "path - - - - - - - x.gguf", "x.gguf", "x.gguf" },
        { "a/x.GGUF", "path - - - - - - - a/x.GGUF", "a/x.GGUF", "a/x.GGUF" },
        { "o/r", "hf o r - - - - - -", "o/r", "hf://o/r" },
        { "o/r:latest", "hf o r - - - - - -", "o/r", "hf://o/r" },
        { "o/r:Q4_K_M", "hf o r - Q4_K_M - - - -", "o/r:Q4_K_M", "hf://o/r:Q4_K_M" },
        { "o/r:iq3_xxs", "hf o r - iq3_xxs - - - -", "o/r:iq3_xxs", "hf://o/r:iq3_xxs" },
        { "o/r:UD-Q4_K_XL", "hf o r - UD-Q4_K_XL - - - -", "o/r:UD-Q4_K_XL", "hf://o/r:UD-Q4_K_XL" },
        { "o/r:bf16@v1", "hf o r - bf16 v1 - - -", "o/r:bf16@v1", "hf://o/r:bf16@v1" },
        { "o/r@refs/pr/3", "hf o r - - refs/pr/3 - - -", "o/r@refs/pr/3", "hf://o/r@refs/pr/3" },
        { "o/r/f.gguf", "hf o r f.gguf - - - - -", "o/r/f.gguf", "hf://o/r/f.gguf" },
        { "o/r/d/f.gguf@abc", "hf o r d/f.gguf - abc - - -", "o/r/d/f.gguf@abc", "hf://o/r/d/f.gguf@abc" },
        { "hf://o/r.gguf", "hf o r.gguf - - - - - -", "o/r.gguf", "hf://o/r.gguf" },
        { "hf.co/o/r:Q8_0", "hf o r - Q8_0 - - - -", "o/r:Q8_0", "hf://o/r:Q8_0" },
        { "HF.co/o/r", "hf o r - - - - - -", "o/r", "hf://o/r" },
        { "huggingface.co/o/r", "hf o r - - - - - -", "o/r", "hf://o/r" },
        { "https://huggingface.co/o/r/", "hf o r - - - - - -", "o/r", "hf://o/r" },
        { "https://huggingface.co/o/r/tree/main", "hf o r - - main - - -", "o/r@main", "hf://o/r@main" },
        { "https://huggingface.co/o/r/blob/main/blob/f.gguf", "hf o r blob/f.gguf - main - - -", "o/r/blob/f.gguf@main",
          "hf://o/r/blob/f.gguf@main" },
        { "o/r/tree/d/f.gguf@v2", "hf o r tree/d/f.gguf - v2 - - -", "o/r/tree/d/f.gguf@v2",
          "hf://o/r/tree/d/f.gguf@v2" },
        { "https://huggingface.co/o/r/blob/main/d/f.gguf", "hf o r d/f.gguf - main - - -", "o/r/d/f.gguf@main",
          "hf://o/r/d/f.gguf@main" },
        { "https://hf.co/o/r/resolve/9f/f.gguf", "hf o r f.gguf - 9f - - -", "o/r/f.gguf@9f", "hf://o/r/f.gguf@9f" },
        { "llama3.2", "ollama library llama3.2 - - - latest - -", "llama3.2", "ollama://library/llama3.2:latest" },
        { "llama3.2:1b", "ollama library llama3.2 - - - 1b - -", "llama3.2:1b", "ollama://library/llama3.2:1b" },
        { "llama3.2:1b-instruct-q4_K_M", "ollama library llama3.2 - - - 1b-instruct-q4_K_M - -",
          "llama3.2:1b-instruct-q4_K_M", "ollama://library/llama3.2:1b-instruct-q4_K_M" },
        { "smollm3:3b", "hf ggml-org SmolLM3-3B-GGUF - Q4_K_M - - - -", "ggml-org/SmolLM3-3B-GGUF:Q4_K_M",
          "hf://ggml-org/SmolLM3-3B-GGUF:Q4_K_M" },
        { "library/x", "ollama library x - - - latest - -", "x", "ollama://library/x:latest" },
        { "user/m:7b", "ollama user m - - - 7b - -", "user/m:7b", "ollama://user/m:7b" },
        { "ollama://user/m", "ollama user m - - - latest - -", "user/m", "ollama://user/m:latest" },
        { "ollama://m:q4_0", "ollama library m - - - q4_0 - -", "m:q4_0", "ollama://library/m:q4_0" },
        { "registry.ollama.ai/library/x:1b", "ollama library x - - - 1b - -", "x:1b", "ollama://library/x:1b" },
        { "localhost:5000/u/m:t", "ollama u m - - - t localhost:5000 -", "localhost:5000/u/m:t",
          "ollama://localhost:5000/u/m:t" },
        { "https://ollama.com/library/x:1b", "ollama library x - - - 1b - -", "x:1b", "ollama://library/x:1b" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        name_ref n;
        err      e = { 0 };
        str      s;
        str_init(&s);
        if (name_parse(&n, rows[i].text, &e) < 0) fail_msg("%s: %s", rows[i].text, e.msg);
        describe(&n, &s);
        assert_string_equal(str_cstr(&s), rows[i].want);
        str_clear(&s);
        name_alias(&n, &s);
        assert_string_equal(str_cstr(&s), rows[i].alias);
        str_clear(&s);
        name_source(&n, &s);
        assert_string_equal(str_cstr(&s), rows[i].source);
        name_ref_deinit(&n);
        name_ref again; /* the full form reads back as itself */
        assert_int_equal(name_parse(&again, rows[i].source, &e), 0);
        str_clear(&s);
        name_source(&again, &s);
        assert_string_equal(str_cstr(&s), rows[i].source);
        name_ref_deinit(&again);
        str_deinit(&s);
    }
}

static void test_no_names(void **state) {
    static const char *const rows[] = {
        "",
        "a b",
        "o/r/../f.gguf",
        "o//r",
        "o/r/f.safetensors",
        "o/r:Q4_K_M/f.gguf",
        "ftp://x",
        "o/r@",
        "o/r@../x",
        "hf://r",
        "hf://o/r/tree/a@b",
        "x:y:z",
        "o/r/a\tb.gguf",
        "-x",
        "o/r/f.gguf:Q8_0",
        "ollama://a/b/c/d",
        "o/r?x",
        "\xff\xfe",
        "hf://",
        "ollama://",
        "http://x/library/y",
        "x:",
        "o/r:",
        "a/b/c/d",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        name_ref n;
        err      e = { 0 };
        if (name_parse(&n, rows[i], &e) != ERR_ARG) fail_msg("'%s' was taken as a name", rows[i]);
        assert_non_null(strstr(e.msg, "is not a name of a model"));
        assert_null(n.repo);
    }
    char    *long_name = calloc(1, 5000);
    name_ref n;
    memset(long_name, 'a', 4999);
    assert_int_equal(name_parse(&n, long_name, NULL), ERR_ARG);
    free(long_name);
}

static void test_quants(void **state) {
    static const char *const yes[] = { "Q4_K_M", "q8_0",  "IQ2_XXS", "UD-IQ1_S", "F16",
                                       "bf16",   "MXFP4", "TQ1_0",   "Q4_0_4_4", "Q6_K" };
    static const char *const no[] = { "latest",   "1b",   "7b-q4_0", "Q",   "Q9_0",  "q4x",
                                      "instruct", "qwen", "iq",      "F17", "q4_0-x" };
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(name_is_quant(view_of(yes[i])));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(name_is_quant(view_of(no[i])));
}

static void add(registry *r, const char *name, const char *source, const char *format, const char *quant,
                int64_t size) {
    err            e = { 0 };
    str            path;
    registry_model m = {
        .name = (char *)name, .source = (char *)source, .format = (char *)format, .quant = (char *)quant, .size = size
    };
    str_init(&path);
    str_printf(&path, "/models/%s", name);
    m.path = (char *)str_cstr(&path);
    if (registry_add(r, &m, false, &e) < 0) fail_msg("%s", e.msg);
    str_deinit(&path);
}

static void finds(registry *r, const char *text, const name_wish *w, const char *want) {
    registry_model m;
    err            e = { 0 };
    if (names_find(r, text, w, &m, &e) < 0) fail_msg("%s: %s", text, e.msg);
    assert_string_equal(m.name, want);
    registry_model_deinit(&m);
}

static void refuses(registry *r, const char *text, const name_wish *w, int code, const char *want) {
    registry_model m;
    err            e = { 0 };
    assert_int_equal(names_find(r, text, w, &m, &e), code);
    if (!strstr(e.msg, want)) fail_msg("no \"%s\" in: %s", want, e.msg);
    assert_null(m.name);
}

static void test_find(void **state) {
    char     *dir = test_temp_dir(), *path = path_join(dir, "registry.db");
    registry *r;
    err       e = { 0 };
    name_wish gguf = { NAME_GGUF, NULL }, mlx = { NAME_MLX, NULL }, file = { NAME_ANY_FORMAT, "m-Q8_0.gguf" };
    (void)state;
    assert_int_equal(registry_open(&r, path, &e), 0);
    add(r, "Org/m:Q4_K_M", "hf://Org/m/m-Q4_K_M.gguf@abc", "gguf", "Q4_K", 4100000000);
    add(r, "Org/m:Q8_0", "hf://Org/m/m-Q8_0.gguf@abc", "gguf", "Q8_0", 8000000000);
    add(r, "Org/m", "hf://Org/m@abc", "safetensors", "BF16", 16000000000);
    add(r, "Org/single", "hf://Org/single/s-IQ4_XS.gguf@d", "gguf", "IQ4_XS", 5);
    add(r, "llama3.2:1b", "ollama://library/llama3.2:1b", "gguf", "Q8_0", 6);
    add(r, "mine", "local", "gguf", "Q8_0", 7);
    finds(r, "Org/m:Q4_K_M", NULL, "Org/m:Q4_K_M");
    finds(r, "org/m:q4_k_m", NULL, "Org/m:Q4_K_M"); /* by where it came from */
    finds(r, "hf.co/org/M:Q8_0", NULL, "Org/m:Q8_0");
    finds(r, "Org/m/m-Q8_0.gguf", NULL, "Org/m:Q8_0");
    finds(r, "Org/m", NULL, "Org/m"); /* exactly called so */
    finds(r, "Org/m", &mlx, "Org/m");
    finds(r, "Org/m", &file, "Org/m:Q8_0");
    finds(r, "org/single", NULL, "Org/single");
    finds(r, "hf://Org/single:IQ4_XS@d", NULL, "Org/single");
    finds(r, "mine:latest", NULL, "mine");
    finds(r, "library/llama3.2:1b", NULL, "llama3.2:1b");
    finds(r, "ollama://llama3.2:1b", NULL, "llama3.2:1b");
    refuses(r, "Org/m", &gguf, ERR_ARG, "Org/m:Q4_K_M (4.1 GB), Org/m:Q8_0 (8.0 GB)");
    refuses(r, "hf://org/m", NULL, ERR_ARG, "Org/m (16.0 GB)");
    finds(r, "org/m:q4_k", NULL, "Org/m:Q4_K_M"); /* the type of most of its weights */
    refuses(r, "Org/m:Q5_K_M", NULL, ERR_NOTFOUND, "did you mean 'Org/m:Q4_K_M'?");
    refuses(r, "Org/m@other", NULL, ERR_NOTFOUND, "no model");
    refuses(r, "mien", NULL, ERR_NOTFOUND, "did you mean 'mine'?");
    assert_true(names_near(r, "mien"));
    assert_false(names_near(r, "nothing-like-any-of-them"));
    refuses(r, "llama3.2:2b", NULL, ERR_NOTFOUND, "did you mean 'llama3.2:1b'?");
    refuses(r, "quite-another", NULL, ERR_NOTFOUND, "there is no model 'quite-another'");
    refuses(r, "mine", &mlx, ERR_NOTFOUND, "");
    registry_close(r);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_nearest(void **state) {
    const char *const words[] = { "temperature", "top_p", "top_k", "num_ctx" };
    (void)state;
    assert_int_equal(nearest_distance("kitten", "sitting"), 3);
    assert_int_equal(nearest_distance("ab", "ba"), 1);
    assert_int_equal(nearest_distance("Top_P", "top_p"), 0);
    assert_int_equal(nearest_distance("", "abc"), 3);
    assert_string_equal(nearest_of("temprature", words, 4), "temperature");
    assert_string_equal(nearest_of("num_xtc", words, 4), "num_ctx");
    assert_null(nearest_of("zebra", words, 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse), cmocka_unit_test(test_no_names), cmocka_unit_test(test_quants),
        cmocka_unit_test(test_find),  cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What pulls read from servers: headers, listings, manifests; and which files they choose. */
#include "unit/support/support.h"

#include "base/str.h"
#include "registry/choose.h"
#include "registry/headers.h"
#include "registry/hub.h"
#include "registry/ollama_hub.h"

#include <stdlib.h>
#include <string.h>

#define SHA "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SHA1 "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391" /* git's name of nothing */

static void test_ranges(void **state) {
    int64_t a, b, n;
    (void)state;
    assert_true(header_content_range(view_of("bytes 0-99/1000"), &a, &b, &n) && a == 0 && b == 99 && n == 1000);
    assert_true(header_content_range(view_of(" Bytes 5-5/6"), &a, &b, &n) && a == 5 && b == 5 && n == 6);
    assert_true(header_content_range(view_of("bytes 0-99/*"), &a, &b, &n) && n == -1);
    static const char *const bad[] = { "",
                                       "bytes",
                                       "bytes */1000",
                                       "bytes 0-99",
                                       "bytes 9-1/100",
                                       "bytes 0-100/100",
                                       "bytes -1-9/100",
                                       "items 0-9/100",
                                       "bytes 0-9/100 ",
                                       "bytes 0x1-9/100",
                                       "bytes 0-99999999999999999999/*",
                                       "bytes 0/9-100" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (strcmp(bad[i], "bytes 0-9/100 ") == 0) continue; /* spaces at the end are nothing */
        if (header_content_range(view_of(bad[i]), &a, &b, &n)) fail_msg("'%s'", bad[i]);
    }
}

static void test_retry_after(void **state) {
    int64_t s;
    (void)state;
    assert_true(header_retry_after("120", 0, &s) && s == 120);
    assert_true(header_retry_after(" 0 ", 0, &s) && s == 0);
    /* The three forms of RFC 9110 for one moment, 784111777 seconds after 1970. */
    assert_true(header_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 - 60, &s) && s == 60);
    assert_true(header_retry_after("Sunday, 06-Nov-94 08:49:37 GMT", 784111777 - 1, &s) && s == 1);
    assert_true(header_retry_after("Sun Nov  6 08:49:37 1994", 784111777 - 3600, &s) && s == 3600);
    assert_true(header_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 1700000000, &s) && s == 0);
    static const char *const bad[] = { "", "-5", "1.5", "soon", "99999999999999999999", "12 s" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (header_retry_after(bad[i], 0, &s)) fail_msg("'%s'", bad[i]);
    }
}

static void check_next(const char *link, const char *want) {
    str out;
    str_init(&out);
    bool found = header_link_next(view_of(link), &out);
    if (found != (want != NULL) || (want && strcmp(str_cstr(&out), want) != 0))
        fail_msg("'%s': %s", link, str_cstr(&out));
    str_deinit(&out);
}

static void test_links(void **state) {
    (void)state;
    check_next("<https://x/y?a=1&b=2>; rel=\"next\"", "https://x/y?a=1&b=2");
    check_next("<https://x/1>; rel=\"prev\", <https://x/3>; title=\"a, b; c\"; rel=next", "https://x/3");
    check_next("</rel>;rel=\"last next\"", "/rel");
    check_next("<a,b;c>; REL=\"Next\"", "a,b;c");
    check_next("<https://x/1>; rel=\"prev\"", NULL);
    check_next("<https://x/1>; rel=\"nextpage\"", NULL);
    check_next("<>; rel=\"next\"", NULL);
    check_next("<x; rel=\"next\"", NULL);
    check_next("<x>; rel=\"next", NULL);
    check_next("", NULL);
    check_next("rel=next", NULL);
}

static void test_challenges(void **state) {
    str realm, service, scope;
    (void)state;
    str_init(&realm);
    str_init(&service);
    str_init(&scope);
    assert_true(header_challenge(
        view_of("Bearer realm=\"https://a/token\",service=\"reg.x\", scope=\"repository:a/b:pull,push\""), &realm,
        &service, &scope));
    assert_string_equal(str_cstr(&realm), "https://a/token");
    assert_string_equal(str_cstr(&service), "reg.x");
    assert_string_equal(str_cstr(&scope), "repository:a/b:pull,push");
    assert_true(header_challenge(view_of("bearer realm=https://a"), &realm, &service, &scope));
    assert_false(header_challenge(view_of("Basic realm=\"x\""), &realm, &service, &scope));
    assert_false(header_challenge(view_of("Bearer service=\"x\""), &realm, &service, &scope));
    assert_false(header_challenge(view_of("Bearer realm=\"x"), &realm, &service, &scope));
    str_deinit(&realm);
    str_deinit(&service);
    str_deinit(&scope);
}

static void test_head(void **state) {
    http_head h = { 0 };
    (void)state;
    http_head_line(&h, view_of("HTTP/1.1 302 Found\r\n"), 0);
    http_head_line(&h, view_of("Location: https://cdn/x\r\n"), 0);
    http_head_line(&h, view_of("X-Linked-Etag: \"" SHA "\"\r\n"), 0);
    http_head_line(&h, view_of("x-linked-size: 77\r\n"), 0);
    http_head_line(&h, view_of("ETag: W/\"weak\"\r\n"), 0);
    assert_int_equal(h.status, 302);
    assert_string_equal(h.location, "https://cdn/x");
    assert_string_equal(h.linked_etag, SHA);
    assert_int_equal(h.linked_size, 77);
    assert_string_equal(h.etag, "");
    http_head_line(&h, view_of("HTTP/2 206 \r\n"), 0); /* another answer begins */
    assert_int_equal(h.status, 206);
    assert_null(h.location);
    assert_int_equal(h.content_length, -1);
    http_head_line(&h, view_of("content-length: 99999999999999999999\r\n"), 0);
    assert_int_equal(h.content_length, -1);
    http_head_line(&h, view_of("no colon"), 0);
    http_head_line(&h, view_of("\r\n"), 0);
    http_head_deinit(&h);
}

static void test_addresses(void **state) {
    char *out;
    err   e = { 0 };
    (void)state;
    assert_true(http_same_origin("https://a.b/x", "https://A.B:443/y?z"));
    assert_false(http_same_origin("https://a.b", "http://a.b"));
    assert_false(http_same_origin("https://a.b", "https://a.b:444"));
    assert_false(http_same_origin("https://a.b", "https://b"));
    assert_false(http_same_origin("https://a.b", "https://a.b.evil"));
    assert_false(http_same_origin("https://a.b", "https://a.b@evil/"));
    assert_false(http_same_origin("", ""));
    assert_int_equal(http_redirect("https://a/b/c?d", "../e", &out, &e), 0);
    assert_string_equal(out, "https://a/e");
    free(out);
    assert_int_equal(http_redirect("http://a/b", "//c/d", &out, &e), 0);
    assert_string_equal(out, "http://c/d");
    free(out);
    assert_int_equal(http_redirect("https://a/b", "http://a/b", &out, &e), ERR_FORMAT);
    assert_int_equal(http_redirect("https://a/b", "file:///etc/passwd", &out, &e), ERR_FORMAT);
    assert_int_equal(http_redirect("https://a/b", "ftp://a/b", &out, &e), ERR_FORMAT);
}

/* --- listings --- */

static void test_tree(void **state) {
    hub_listing       l = { 0 };
    char              commit[65];
    err               e = { 0 };
    static const char text[] =
        "[{\"type\":\"directory\",\"oid\":\"x\",\"size\":0,\"path\":\"onnx\"},"
        "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":0,\"path\":\"config.json\"},"
        "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":135,\"lfs\":{\"oid\":\"" SHA
        "\",\"size\":123456789012,\"pointerSize\":135},\"path\":\"a/b.gguf\",\"xetHash\":\"y\"}]";
    (void)state;
    assert_int_equal(hub_read_tree(&l, text, strlen(text), &e), 0);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.files[0].path, "config.json");
    assert_string_equal(l.files[0].sha1, SHA1);
    assert_string_equal(l.files[0].digest, "");
    assert_string_equal(l.files[1].digest, "sha256:" SHA);
    assert_int_equal(l.files[1].size, 123456789012);
    hub_listing_deinit(&l);
    static const char *const bad[] = {
        "",
        "{}",
        "[1]",
        "[{}]",
        "[{\"type\":\"file\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1,\"oid\":\"" SHA1 "\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"oid\":\"xyz\"}]",
        "[{\"type\":\"file\",\"path\":\"../a\",\"size\":1,\"oid\":\"" SHA1 "\"}]",
        "[{\"type\":\"file\",\"path\":7,\"size\":1,\"oid\":\"" SHA1 "\"}]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hub_listing b = { 0 };
        if (hub_read_tree(&b, bad[i], strlen(bad[i]), &e) == 0) fail_msg("%s", bad[i]);
        hub_listing_deinit(&b);
    }
    assert_int_equal(hub_read_revision(commit, "{\"sha\":\"" SHA1 "\"}", 50, &e), 0);
    assert_string_equal(commit, SHA1);
    assert_int_equal(hub_read_revision(commit, "{\"sha\":\"../../../../etc\"}", 25, &e), ERR_FORMAT);
    assert_true(hub_sha1_fits(SHA1, "", 0));
    assert_true(hub_sha1_fits("ce013625030ba8dba906f756967f9e9ca394464a", "hello\n", 6)); /* the git book's example */
    assert_false(hub_sha1_fits(SHA1, "x", 1));
}

static void test_paths(void **state) {
    static const char *const good[] = { "a", "a/b.c", "..a", "a..b/...", "\xc3\xa4 b" };
    static const char *const bad[] = { "",     "/",    "/a",    "a/",   "a//b", ".",   "..",
                                       "../a", "a/..", "a/./b", "a\\b", "a\nb", "\x7f" };
    char                     deep[200] = "";
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(hub_path_ok(view_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(hub_path_ok(view_of(bad[i])));
    for (int i = 0; i < 50; i++) strcat(deep, "a/");
    strcat(deep, "a");
    assert_false(hub_path_ok(view_of(deep)));
    assert_false(hub_path_ok((view){ "a\0b", 3 }));
}

static void test_manifest(void **state) {
    ollama_manifest   m;
    err               e = { 0 };
    static const char text[] =
        "{\"schemaVersion\":2,\"config\":{\"digest\":\"sha256:" SHA "\",\"size\":5},\"layers\":["
        "{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" SHA "\",\"size\":815310432},"
        "{\"mediaType\":\"application/vnd.ollama.image.params\",\"digest\":\"sha256:" SHA "\",\"size\":77},"
        "{\"mediaType\":\"application/vnd.ollama.image.something\",\"digest\":\"sha256:" SHA "\",\"size\":1}]}";
    (void)state;
    assert_int_equal(ollama_read_manifest(&m, text, strlen(text), &e), 0);
    assert_int_equal(m.n, 3);
    assert_int_equal(m.layers[0].kind, OLLAMA_MODEL);
    assert_int_equal(m.layers[0].size, 815310432);
    assert_string_equal(m.layers[0].digest, "sha256:" SHA);
    assert_int_equal(m.layers[1].kind, OLLAMA_PARAMS);
    assert_int_equal(m.layers[2].kind, OLLAMA_OTHER);
    static const char *const bad[] = {
        "",
        "[]",
        "{\"layers\":{}}",
        "{\"layers\":[]}",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:../x\",\"size\":1}]}",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" SHA
        "\",\"size\":-1}]}",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" SHA "\"}]}",
        "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" SHA "\",\"size\":1},"
        "{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" SHA "\",\"size\":1}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ollama_read_manifest(&m, bad[i], strlen(bad[i]), &e) == 0) fail_msg("%s", bad[i]);
    }
}

/* --- choosing --- */

typedef struct entry {
    const char *path;
    int64_t     size;
} entry;

static hub_listing listing_of(const entry *files, size_t n) {
    hub_listing l = { .files = calloc(n, sizeof *l.files), .n = n };
    for (size_t i = 0; i < n; i++) {
        l.files[i].path = strdup(files[i].path);
        l.files[i].size = files[i].size;
    }
    return l;
}

/* The chosen files, joined by spaces; or the sentence. */
static void check_choice(const hub_listing *l, choose_wish w, const char *want) {
    choice c;
    err    e = { 0 };
    str    got;
    w.repo = "a/b";
    str_init(&got);
    if (choose_files(&c, l, &w, &e) < 0) {
        str_puts(&got, e.msg);
    } else {
        for (size_t i = 0; i < l->n; i++) {
            if (c.take[i]) str_printf(&got, "%s%s", got.len ? " " : "", l->files[i].path);
        }
        choice_deinit(&c);
    }
    if (!strstr(str_cstr(&got), want)) fail_msg("'%s', expected '%s'", str_cstr(&got), want);
    str_deinit(&got);
}

static void test_labels(void **state) {
    static const struct {
        const char *path, *label;
    } cases[] = {
        { "Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M" },
        { "llama-2-7b.Q5_0.gguf", "Q5_0" },
        { "sub/x-UD-IQ2_XXS.gguf", "UD-IQ2_XXS" },
        { "UD-Q4_K_XL/big-UD-Q4_K_XL-00001-of-00009.gguf", "UD-Q4_K_XL" },
        { "gpt-oss-20b-mxfp4.gguf", "mxfp4" },
        { "model-bf16.gguf", "bf16" },
        { "model.gguf", "" },
        { "q8_0.gguf", "q8_0" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!view_eq_c(choose_label(cases[i].path), cases[i].label)) fail_msg("%s", cases[i].path);
    }
}

static void test_choosing_gguf(void **state) {
    static const entry files[] = {
        { "README.md", 10 },
        { "m-Q2_K.gguf", 1000000000 },
        { "m-Q4_K_M.gguf", 2000000000 },
        { "m-UD-Q4_K_M.gguf", 2100000000 },
        { "m-Q8_0.gguf", 4000000000 },
        { "BF16/m-BF16-00001-of-00002.gguf", 5 },
        { "BF16/m-BF16-00002-of-00002.gguf", 5 },
        { "F32/m-F32-00002-of-00002.gguf", 5 },
        { "mmproj-m-F16.gguf", 7 },
        { "m.imatrix.gguf", 7 },
    };
    hub_listing l = listing_of(files, sizeof files / sizeof *files);
    (void)state;
    check_choice(&l, (choose_wish){ 0 }, "m-Q4_K_M.gguf mmproj-m-F16.gguf"); /* its vision tower comes along */
    check_choice(&l, (choose_wish){ .file = "mmproj-m-F16.gguf" }, "mmproj-m-F16.gguf");
    check_choice(&l, (choose_wish){ .quant = "q8_0" }, "m-Q8_0.gguf");
    check_choice(&l, (choose_wish){ .quant = "UD-Q4_K_M" }, "m-UD-Q4_K_M.gguf");
    check_choice(&l, (choose_wish){ .quant = "bf16" },
                 "BF16/m-BF16-00001-of-00002.gguf BF16/m-BF16-00002-of-00002.gguf");
    check_choice(&l, (choose_wish){ .quant = "F32" }, "1 of its 2 parts");
    check_choice(&l, (choose_wish){ .quant = "Q6_K" }, "has no Q6_K; it has: Q2_K (1.0 GB), Q4_K_M (2.0 GB)");
    check_choice(&l, (choose_wish){ .file = "m-Q2_K.gguf" }, "m-Q2_K.gguf");
    check_choice(&l, (choose_wish){ .file = "m-BF16-00001-of-00002.gguf" },
                 "BF16/m-BF16-00001-of-00002.gguf BF16/m-BF16-00002-of-00002.gguf");
    check_choice(&l, (choose_wish){ .file = "x.gguf" }, "has no file x.gguf");
    check_choice(&l, (choose_wish){ .format = PULL_MLX }, "no safetensors");
    hub_listing_deinit(&l);
    static const entry two[] = { { "one.gguf", 1 }, { "two.gguf", 2 } };
    l = listing_of(two, 2);
    check_choice(&l, (choose_wish){ 0 }, "has several models: one.gguf (1 B), two.gguf (2 B)");
    hub_listing_deinit(&l);
    static const entry twins[] = { { "one-Q4_K_M.gguf", 1 }, { "two-Q4_K_M.gguf", 2 } };
    l = listing_of(twins, 2);
    check_choice(&l, (choose_wish){ 0 }, "of that label: one-Q4_K_M.gguf (1 B), two-Q4_K_M.gguf (2 B)");
    hub_listing_deinit(&l);
    static const entry none[] = { { "pytorch_model.bin", 1 } };
    l = listing_of(none, 1);
    check_choice(&l, (choose_wish){ 0 }, "neither GGUF nor safetensors");
    hub_listing_deinit(&l);
}

static void test_choosing_folders(void **state) {
    static const entry files[] = {
        { "additional_chat_templates/tool_use.jinja", 1 },
        { "chat_template.jinja", 1 },
        { "config.json", 1 },
        { "consolidated.safetensors", 9 },
        { "model-00001-of-00002.safetensors", 9 },
        { "model-00002-of-00002.safetensors", 9 },
        { "model.safetensors.index.json", 1 },
        { "onnx/model.onnx", 9 },
        { "tokenizer.json", 1 },
        { "x-Q4_K_M.gguf", 5 },
    };
    static const char index[] =
        "{\"metadata\":{\"weight_map\":\"no\"},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
        "\"b\":\"model-00002-of-00002.safetensors\",\"c\":\"model-00001-of-00002.safetensors\"}}";
    hub_listing l = listing_of(files, sizeof files / sizeof *files);
    choose_wish w = { .repo = "a/b", .format = PULL_MLX };
    choice      c;
    err         e = { 0 };
    (void)state;
    check_choice(&l, (choose_wish){ 0 }, "x-Q4_K_M.gguf");
    check_choice(
        &l, w,
        "additional_chat_templates/tool_use.jinja chat_template.jinja config.json model.safetensors.index.json "
        "tokenizer.json");
    check_choice(&l, (choose_wish){ .format = PULL_MLX, .file = "consolidated.safetensors" },
                 "config.json consolidated.safetensors tokenizer.json");
    check_choice(&l, (choose_wish){ .format = PULL_MLX, .file = "config.json" }, "neither a safetensors file nor");
    assert_int_equal(choose_files(&c, &l, &w, &e), 0);
    assert_int_equal(choose_weights(&c, &l, index, strlen(index), &e), 0);
    assert_true(c.take[4] && c.take[5] && !c.take[3]);
    static const char *const bad[] = { "",
                                       "{}",
                                       "[",
                                       "{\"weight_map\":{\"a\":\"../x.safetensors\"}}",
                                       "{\"weight_map\":{}}",
                                       "{\"weight_map\":\"model-00001-of-00002.safetensors\"}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (choose_weights(&c, &l, bad[i], strlen(bad[i]), &e) == 0) fail_msg("%s", bad[i]);
    }
    choice_deinit(&c);
    hub_listing_deinit(&l);
    static const entry plain[] = { { "config.json", 1 }, { "model.safetensors", 9 } };
    l = listing_of(plain, 2);
    check_choice(&l, (choose_wish){ 0 }, "config.json model.safetensors");
    hub_listing_deinit(&l);
    static const entry bare[] = { { "model.safetensors", 9 } };
    l = listing_of(bare, 1);
    check_choice(&l, (choose_wish){ 0 }, "no config.json");
    hub_listing_deinit(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_links),         cmocka_unit_test(test_challenges),
        cmocka_unit_test(test_head),          cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_tree),          cmocka_unit_test(test_paths),
        cmocka_unit_test(test_manifest),      cmocka_unit_test(test_labels),
        cmocka_unit_test(test_choosing_gguf), cmocka_unit_test(test_choosing_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

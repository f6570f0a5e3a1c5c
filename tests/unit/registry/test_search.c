/* SPDX-License-Identifier: Apache-2.0 */
/* hearth search, run as a program; the table of well-known models; the answers of a hub. */
#include "unit/support/support.h"

#include "base/json.h"
#include "registry/known.h"
#include "registry/names.h"
#include "registry/search.h"
#include "unit/support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a row says must hold together: names that parse, drafts that are smaller and there, plausible sizes. */
static void test_table(void **state) {
    (void)state;
    assert_true(known_n_models > 30);
    for (size_t i = 0; i < known_n_models; i++) {
        const known_model *k = &known_models[i];
        name_ref           n;
        err                e = { 0 };
        assert_ptr_equal(known_find(k->name), k);
        if (name_parse(&n, k->name, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(n.kind, k->ollama ? NAME_OLLAMA : NAME_HF);
        name_ref_deinit(&n);
        if (name_parse(&n, k->repo, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(n.kind, NAME_HF);
        name_ref_deinit(&n);
        assert_true(name_is_quant(view_of(k->quant)));
        /* bits per weight: 4.0 to 9, more where the embedding weighs much */
        double bits = 8.0 * k->file_mb / k->params_m;
        if (bits < 4.0 || bits > 9.0) fail_msg("%s: %.1f bits per weight", k->name, bits);
        assert_true(k->full_layers > 0 && k->kv_heads > 0 && k->head_width >= 32 && k->context >= 4096);
        assert_true((k->window_layers > 0) == (k->window > 0));
        assert_true(known_memory(k, 4096) > (uint64_t)k->file_mb * 1000000);
        assert_true(known_memory(k, 32768) >= known_memory(k, 4096));
        if (!k->draft) continue;
        const known_model *d = known_find(k->draft);
        assert_non_null(d);
        assert_true(d->params_m * 3 <= k->params_m * 2);
    }
    /* 32 layers * 8 heads * 128 * 2 (keys, values) * 2 bytes = 131072 bytes per token */
    const known_model *llama = known_find("llama3.1:8b");
    assert_true(known_memory(llama, 8192) - known_memory(llama, 4096) == (uint64_t)131072 * 4096);
    assert_null(known_find("llama3.1:9b"));
    assert_non_null(known_find("phi3.5:latest"));
}

static void test_hub_answers(void **state) {
    static const char text[] = "[{\"id\":\"a/b\",\"downloads\":5,\"tags\":[\"mlx\"],\"lastModified\":\"2026-02-03T\"},"
                               "{\"id\":\"../x\"},{\"id\":7},{},[],{\"id\":\"noslash\"},{\"id\":\"a/b:c\"},"
                               "{\"id\":\"c/d\",\"lastModified\":\"\\u001b[31m\"}]";
    search_hits       h;
    err               e = { 0 };
    (void)state;
    assert_int_equal(search_read(&h, text, sizeof text - 1, &e), 0);
    assert_int_equal(h.n, 2);
    assert_string_equal(h.list[0].repo, "a/b");
    assert_true(h.list[0].mlx && !h.list[0].gguf && h.list[0].downloads == 5);
    assert_string_equal(h.list[0].modified, "2026-02-03");
    assert_string_equal(h.list[1].modified, "");
    search_hits_deinit(&h);
    assert_int_equal(search_read(&h, "{}", 2, &e), ERR_FORMAT);
    assert_int_equal(search_read(&h, "[", 1, &e), ERR_FORMAT);
}

static void test_program(void **state) {
    char             *dir = test_temp_dir(), *text, command[1024];
    const json_value *v;
    arena             a;
    (void)state;
    setenv("XDG_DATA_HOME", dir, 1);
    assert_int_equal(program_run("", "search", &text), 0);
    assert_non_null(strstr(text, "llama3.2:1b"));
    free(text);
    snprintf(command, sizeof command, "create qwen3:4b '%s/models/demo/demo.gguf'", HEARTH_SOURCE_DIR);
    assert_int_equal(program_run("", command, &text), 0);
    free(text);
    assert_int_equal(program_run("", "search QWEN3 thinking --json", &text), 0);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, text, strlen(text), &a, NULL), 0);
    assert_int_equal(json_count(v), 7);
    for (size_t i = 0; i < json_count(v); i++) {
        const json_value *m = json_at(v, i);
        bool              mine = strcmp(json_cstr(json_get(m, "name")), "qwen3:4b") == 0;
        assert_int_equal(json_bool(json_get(m, "here"), false), mine);
        assert_true(json_count(json_get(m, "capabilities")) >= 2);
    }
    arena_deinit(&a);
    free(text);
    program_prints("", "search zebra --json", "[]\n");
    assert_int_equal(program_run("", "search 120b --fits --json", &text), 0);
    free(text);
    program_fails("search --hub", 2, "--hub needs words to search for");
    program_fails("search --limit 0", 2, "--limit");
    program_fails("search --hub x --fits", 2, "--fits");
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_hub_answers),
        cmocka_unit_test(test_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates in Go's language against Go itself: tests/fixtures/template/go.json holds templates of our own in the forms
 * that published ones have, conversations, and what text/template of Go 1.19 makes of them with the values and functions
 * that Ollama gives it.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "registry/modelfile.h"
#include "template/template.h"

#include <stdlib.h>
#include <string.h>

static view text_of(const json_value *v, const char *key) {
    const json_value *t = json_get(v, key);
    assert_true(json_is(t, JSON_K_STRING));
    return t->u.string;
}

/* A template and the parse tree of its translation. */
static tmpl *translate(const char *go) {
    modelfile m;
    tmpl     *t = NULL;
    err       e = { 0 };
    modelfile_init(&m);
    if (modelfile_set_template(&m, go, &e) < 0) fail_msg("%s: %s", go, e.msg);
    if (tmpl_open(&t, m.template_text, strlen(m.template_text), &e) < 0) fail_msg("%s: %s", m.template_text, e.msg);
    modelfile_deinit(&m);
    return t;
}

static void render(tmpl *t, const json_value *talk, str *out) {
    const json_value *yes, *think = json_get(talk, "think"), *tools = json_get(talk, "tools");
    tmpl_var          vars[4];
    tmpl_fault        fault = { 0 };
    size_t            n = 0;
    arena             a;
    err               e = { 0 };
    arena_init(&a, 0);
    assert_int_equal(json_parse(&yes, "true", 4, &a, &e), 0);
    vars[n++] = (tmpl_var){ view_of("messages"), json_get(talk, "messages") };
    vars[n++] = (tmpl_var){ view_of("add_generation_prompt"), yes };
    if (tools) vars[n++] = (tmpl_var){ view_of("tools"), tools };
    if (think) vars[n++] = (tmpl_var){ view_of("enable_thinking"), think };
    tmpl_input in = { .vars = vars, .n_vars = n, .now = { 2026, 3, 4, 5, 6, 7 } };
    if (tmpl_render(t, &in, out, &fault, &e) < 0) fail_msg("%s", e.msg);
    arena_deinit(&a);
}

static void test_against_go(void **state) {
    char             *path = test_fixture_path("template/go.json");
    file_map          map;
    const json_value *v, *talks, *all;
    arena             a;
    err               e = { 0 };
    int               n = 0;
    (void)state;
    arena_init(&a, 0);
    assert_int_equal(file_map_open(&map, path, &e), 0);
    if (json_parse(&v, (const char *)map.data, map.bytes, &a, &e) < 0) fail_msg("%s", e.msg);
    talks = json_get(v, "talks");
    all = json_get(v, "templates");
    for (size_t i = 0; i < json_count(all); i++) {
        const json_value *one = json_at(all, i), *renders = json_get(one, "renders");
        tmpl             *t = translate(text_of(one, "text").data);
        for (size_t k = 0; k < json_count(talks); k++, n++) {
            view want = json_at(renders, k)->u.string;
            str  got;
            str_init(&got);
            render(t, json_at(talks, k), &got);
            if (got.len != want.len || memcmp(str_cstr(&got), want.data, want.len) != 0)
                fail_msg("%s, %s:\n%s\nGo:\n%.*s", text_of(one, "template").data,
                         text_of(json_at(talks, k), "name").data, str_cstr(&got), (int)want.len, want.data);
            str_deinit(&got);
        }
        tmpl_free(t);
    }
    assert_true(n >= 150);
    file_map_close(&map);
    arena_deinit(&a);
    free(path);
}

/* Newer than the Go that made the goldens: the short form of a with inside an else. */
static void test_else_with(void **state) {
    static const char talk[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"U\"}]}";
    tmpl *shorter = translate("{{ with .System }}S{{ . }}{{ else with .Messages }}{{ len . }}{{ else }}-{{ end }}!"),
         *longer = translate("{{ with .System }}S{{ . }}{{ else }}{{ with .Messages }}{{ len . }}{{ else }}-{{ end }}"
                             "{{ end }}!");
    const json_value *v;
    str               a, b;
    arena             mem;
    err               e = { 0 };
    (void)state;
    str_init(&a);
    str_init(&b);
    arena_init(&mem, 0);
    assert_int_equal(json_parse(&v, talk, strlen(talk), &mem, &e), 0);
    render(shorter, v, &a);
    render(longer, v, &b);
    assert_string_equal(str_cstr(&a), "1!");
    assert_string_equal(str_cstr(&b), "1!");
    tmpl_free(shorter);
    tmpl_free(longer);
    str_deinit(&a);
    str_deinit(&b);
    arena_deinit(&mem);
}

/* Refused, with the part that is at fault. */
static void test_refused(void **state) {
    static const struct {
        const char *text, *says;
        int         code;
    } cases[] = {
        { "{{ template \"x\" . }}", "'{{ template \"x\" . }}' in it is not supported", ERR_UNSUPPORTED },
        { "{{ range .Messages }}{{ .Colour }}{{ end }}", "'{{ .Colour }}' in it", ERR_UNSUPPORTED },
        { "{{ range .Messages }}{{ $m.Role }}{{ end }}", "'{{ $m.Role }}' in it", ERR_UNSUPPORTED },
        { "{{ $m = .System }}{{ .Prompt }}", "'{{ $m = .System }}' in it", ERR_UNSUPPORTED },
        { "{{ upper .Prompt }}", "'{{ upper .Prompt }}' in it", ERR_UNSUPPORTED },
        { "{{ json . }}", "'{{ json . }}' in it", ERR_UNSUPPORTED },
        { "{{ .Prompt | }}", "'{{ .Prompt | }}' in it", ERR_UNSUPPORTED },
        { "{{ .Prompt .System }}", "in it is not supported", ERR_UNSUPPORTED },
        { "{{ printf \"%x\" 1 }}{{ .Prompt }}", "'{{ printf \"%x\" 1 }}' in it", ERR_UNSUPPORTED },
        { "{{ break }}{{ .Prompt }}", "'{{ break }}' in it", ERR_UNSUPPORTED },
        { "{{ end }}{{ .Prompt }}", "'{{ end }}' in it", ERR_UNSUPPORTED },
        { "{{ if .Prompt }}a{{ else }}b{{ else }}c{{ end }}", "'{{ else }}' in it", ERR_UNSUPPORTED },
        { "{{ index .Messages 01 }}", "in it is not supported", ERR_UNSUPPORTED },
        { "{{ $x := - }}{{ .Prompt }}", "'{{ $x := - }}' in it", ERR_UNSUPPORTED },
        { "{{ if .Prompt }}", "a block has no end", ERR_FORMAT },
        { "{{ .Prompt }}{{ \"}}", "an action has no end", ERR_FORMAT },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        modelfile m;
        err       e = { 0 };
        modelfile_init(&m);
        if (modelfile_set_template(&m, cases[i].text, &e) != cases[i].code || !strstr(e.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].text, e.msg);
        assert_null(m.template_text);
        modelfile_deinit(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_against_go), cmocka_unit_test(test_else_with),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

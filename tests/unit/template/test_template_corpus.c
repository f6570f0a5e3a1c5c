/* SPDX-License-Identifier: Apache-2.0 */
/* Every rendering and every snippet of the corpus, byte for byte; those that must fail have to fail in the same way. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "template/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARS = 64 };

typedef struct vars {
    tmpl_var items[MAX_VARS];
    size_t   count;
} vars;

static const json_value NONE = { .kind = JSON_K_NULL };

static void vars_set(vars *v, const char *name, const json_value *value) {
    if (!value) return;
    assert_true(v->count < MAX_VARS);
    v->items[v->count++] = (tmpl_var){ view_of(name), value };
}

static void vars_merge(vars *v, const json_value *object) {
    for (size_t i = 0; object && i < json_count(object); i++) {
        const json_member *m = &object->u.object.members[i];
        vars_set(v, m->key.data, &m->value);
    }
}

static const json_value *load(const char *path, arena *a) {
    char             *text = NULL;
    size_t            n = 0;
    const json_value *v = NULL;
    err               e = { 0 };
    if (file_read(&text, &n, path, (size_t)64 << 20, &e) < 0) fail_msg("%s", e.msg);
    char *copy = arena_strndup(a, text, n);
    free(text);
    if (json_parse(&v, copy, n, a, &e) < 0) fail_msg("%s: %s", path, e.msg);
    return v;
}

/* Renders and compares; prints what differs and gives false. */
static bool agrees(const char *label, const char *source, size_t bytes, const vars *v, const char *text,
                   size_t text_len, const json_value *failure) {
    tmpl      *t = NULL;
    tmpl_fault fault;
    err        e = { 0 };
    str        out;
    bool       ok = true;
    tmpl_fault_init(&fault);
    str_init(&out);
    const char *kind = failure ? json_cstr(json_get(failure, "kind")) : NULL;
    int         rc = tmpl_open(&t, source, bytes, &e);
    if (rc < 0) {
        ok = kind && strcmp(kind, "syntax") == 0;
        if (!ok) printf("%s: does not parse: %s\n", label, e.msg);
    } else {
        tmpl_input in = { .vars = v->items, .n_vars = v->count, .now = { 2026, 1, 2, 15, 4, 5 } };
        rc = tmpl_render(t, &in, &out, &fault, &e);
        if (kind && strcmp(kind, "raised") == 0) {
            const char *want = json_cstr(json_get(failure, "error"));
            ok = rc < 0 && fault.kind == TMPL_FAULT_RAISED && strcmp(str_cstr(&fault.message), want) == 0;
        } else if (kind) {
            ok = strcmp(kind, "runtime") == 0 && rc < 0 && fault.kind == TMPL_FAULT_RUNTIME;
        } else {
            ok = rc == 0 && out.len == text_len && memcmp(str_cstr(&out), text, text_len) == 0;
        }
        if (!ok)
            printf("%s: got %s\n[%s]\nwanted\n[%s]\n", label, rc < 0 ? e.msg : "text", str_cstr(&out),
                   kind ? kind : text);
    }
    tmpl_free(t);
    str_deinit(&out);
    tmpl_fault_deinit(&fault);
    return ok;
}

static void test_templates(void **state) {
    char *dir = test_corpus_path("templates");
    (void)state;
    if (!dir) {
        skip();
        return;
    }
    arena a;
    arena_init(&a, 0);
    char             *cases_path = path_join(dir, "cases.json"), *expected_path = path_join(dir, "expected.json");
    const json_value *all = load(cases_path, &a), *expected = load(expected_path, &a), *cases = json_get(all, "cases");
    size_t            compared = 0, differ = 0;
    for (size_t i = 0; i < json_count(expected); i++) {
        const json_member *file = &expected->u.object.members[i];
        char              *path = path_join(dir, file->key.data), *source = NULL;
        size_t             bytes = 0;
        err                e = { 0 };
        if (file_read(&source, &bytes, path, (size_t)1 << 20, &e) < 0) fail_msg("%s", e.msg);
        for (size_t c = 0; c < json_count(cases); c++) {
            static const char *const keys[] = { "messages", "add_generation_prompt", "tools", "documents" };
            const json_value        *one = json_at(cases, c);
            const char              *name = json_cstr(json_get(one, "name"));
            const json_value        *want = json_get(&file->value, name);
            vars                     v = { .count = 0 };
            vars_set(&v, "tools", &NONE);
            vars_set(&v, "documents", &NONE);
            vars_merge(&v, json_get(all, "defaults"));
            vars_merge(&v, json_get(json_get(all, "template_defaults"), file->key.data));
            for (size_t k = 0; k < 4; k++) vars_set(&v, keys[k], json_get(one, keys[k]));
            vars_merge(&v, json_get(one, "kwargs"));
            assert_non_null(want);
            char label[300];
            snprintf(label, sizeof label, "%s, %s", file->key.data, name);
            bool text = json_is(want, JSON_K_STRING);
            differ += !agrees(label, source, bytes, &v, text ? want->u.string.data : "", text ? want->u.string.len : 0,
                              text ? NULL : want);
            compared++;
        }
        free(source);
        free(path);
    }
    printf("%zu renderings compared, %zu differ\n", compared, differ);
    free(cases_path);
    free(expected_path);
    free(dir);
    arena_deinit(&a);
    assert_true(compared >= 672);
    assert_int_equal(differ, 0);
}

static void test_snippets(void **state) {
    char *path = test_corpus_path("jinja-snippets.json");
    (void)state;
    if (!path) {
        skip();
        return;
    }
    arena a;
    arena_init(&a, 0);
    const json_value *all = load(path, &a);
    size_t            differ = 0, n = json_count(all);
    for (size_t i = 0; i < n; i++) {
        const json_value *s = json_at(all, i), *source = json_get(s, "template"), *want = json_get(s, "expected");
        vars              v = { .count = 0 };
        vars_merge(&v, json_get(s, "context"));
        differ += !agrees(json_cstr(json_get(s, "name")), source->u.string.data, source->u.string.len, &v,
                          want ? want->u.string.data : "", want ? want->u.string.len : 0, want ? NULL : s);
    }
    printf("%zu snippets compared, %zu differ\n", n, differ);
    free(path);
    arena_deinit(&a);
    assert_true(n >= 52);
    assert_int_equal(differ, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_templates), cmocka_unit_test(test_snippets) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates without the corpus: own cases with the reference's results (tests/fixtures/template, made by
 * tests/golden/make_template_goldens.py), limits, damaged templates, built-in templates, model directories, the
 * command.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "bundle/template.h"
#include "template/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_VARS = 64 };

typedef struct result {
    int        opened, rc;
    err        e;
    tmpl_fault fault;
    str        out;
} result;

static void result_free(result *r) {
    tmpl_fault_deinit(&r->fault);
    str_deinit(&r->out);
}

static result render_json(const char *source, size_t bytes, const json_value *context, tmpl_limits limits) {
    result   r = { 0 };
    tmpl    *t = NULL;
    tmpl_var vars[MAX_VARS];
    size_t   n = 0;
    tmpl_fault_init(&r.fault);
    str_init(&r.out);
    for (size_t i = 0; i < json_count(context) && n < MAX_VARS; i++)
        vars[n++] = (tmpl_var){ context->u.object.members[i].key, &context->u.object.members[i].value };
    r.opened = tmpl_open(&t, source, bytes, &r.e);
    if (r.opened == 0) {
        tmpl_input in = { .vars = vars, .n_vars = n, .now = { 2026, 1, 2, 15, 4, 5 }, .limits = limits };
        r.rc = tmpl_render(t, &in, &r.out, &r.fault, &r.e);
    }
    tmpl_free(t);
    return r;
}

static result render_text(const char *source, const char *context, tmpl_limits limits) {
    arena             a;
    const json_value *v = NULL;
    err               e = { 0 };
    arena_init(&a, 0);
    if (json_parse(&v, context, strlen(context), &a, &e) < 0) fail_msg("%s", e.msg);
    result r = render_json(source, strlen(source), v, limits);
    arena_deinit(&a);
    return r;
}

static void expect(const char *source, const char *context, const char *want) {
    result r = render_text(source, context, (tmpl_limits){ 0 });
    if (r.opened < 0 || r.rc < 0) fail_msg("%s: %s", source, r.e.msg);
    assert_string_equal(str_cstr(&r.out), want);
    result_free(&r);
}

static void test_reference_cases(void **state) {
    char             *path = test_fixture_path("template/cases.json"), *text = NULL;
    size_t            bytes = 0, differ = 0;
    arena             a;
    err               e = { 0 };
    const json_value *all = NULL;
    (void)state;
    arena_init(&a, 0);
    if (file_read(&text, &bytes, path, (size_t)16 << 20, &e) < 0 || json_parse(&all, text, bytes, &a, &e) < 0)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < json_count(all); i++) {
        const json_value *c = json_at(all, i), *source = json_get(c, "template"), *want = json_get(c, "expected");
        const char       *kind = json_cstr(json_get(c, "kind"));
        result r = render_json(source->u.string.data, source->u.string.len, json_get(c, "context"), (tmpl_limits){ 0 });
        bool   ok;
        if (want)
            ok = r.opened == 0 && r.rc == 0 && r.out.len == want->u.string.len &&
                 memcmp(str_cstr(&r.out), want->u.string.data, r.out.len) == 0;
        else if (strcmp(kind, "syntax") == 0)
            ok = r.opened < 0;
        else if (strcmp(kind, "raised") == 0)
            ok = r.rc < 0 && r.fault.kind == TMPL_FAULT_RAISED &&
                 strcmp(str_cstr(&r.fault.message), json_cstr(json_get(c, "error"))) == 0;
        else
            ok = r.opened == 0 && r.rc < 0 && r.fault.kind == TMPL_FAULT_RUNTIME;
        if (!ok) {
            differ++;
            printf("%s: %s\n got  [%s] %s\n want [%s]\n", json_cstr(json_get(c, "name")), source->u.string.data,
                   str_cstr(&r.out), r.opened < 0 || r.rc < 0 ? r.e.msg : "", want ? want->u.string.data : kind);
        }
        result_free(&r);
    }
    printf("%zu cases compared, %zu differ\n", json_count(all), differ);
    assert_true(json_count(all) > 600);
    assert_int_equal(differ, 0);
    free(text);
    free(path);
    arena_deinit(&a);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* not the wall: others may hold the machine */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What a hostile template may try: each ends with an error, soon. */
static void test_hostile(void **state) {
    static const char *const sources[] = {
        "{{ 'a' * 1000000000 }}",
        "{{ 'a' * 10 ** 18 }}",
        "{{ [0] * 1000000000 }}",
        "{{ range(1000000000)|list }}",
        "{{ range(10 ** 18) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor "
        "%}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s|replace('x', 'xx') %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == "
        "[ns.l] }}{{ ns.l|tojson }}",
        "{% for i in range(100000) %}{{ 'abcdefghij' * 1000 }}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.999999999f' % 1.0 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ 'x'.ljust(10 ** 15) }}",
        "{{ 'x'|indent(1000000000) }}",
        "{{ [1]|batch(1000000000, 0)|list }}",
        "{{ [1]|slice(1000000000)|list }}",
        "{{ 2 ** 1000000000 }}",
        "{{ 10 ** 100 }}",
        "{{ '\\t'.expandtabs(1000000000) }}",
        "{% set a = 'ab' * 500000 %}{% for i in range(100000) %}{{ a.rfind('aa' * 1000) }}{{ a == a + 'x' }}{% endfor "
        "%}",
        "{% set a = ('a' * 100000)|list %}{% for i in range(100000) %}{{ 'b' in a }}{% endfor %}",
        "{% macro m(a) %}{{ caller(a) }}{% endmacro %}{% macro r() %}{% call(x) m(1) %}{{ r() }}{% endcall %}{% "
        "endmacro %}{{ r() }}",
        "{{ raise_exception('x' * 1000000) }}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        double start = now_s();
        result r =
            render_text(sources[i], "{}",
                        (tmpl_limits){ .steps = 5 * 1000 * 1000, .memory_bytes = 64 << 20, .output_bytes = 8 << 20 });
        double took = now_s() - start;
        if (r.opened < 0 || r.rc >= 0) fail_msg("no error at render time: %s", sources[i]);
        if (took > 10) fail_msg("%.1f s: %s", took, sources[i]);
        result_free(&r);
    }
}

static void repeat(str *s, const char *text, size_t times) {
    for (size_t i = 0; i < times; i++) str_puts(s, text);
}

/* Sources that nest or grow without end: refused, or rendered, but no crash. */
static void test_deep_sources(void **state) {
    static const struct {
        const char *head, *open, *middle, *close, *tail;
    } shapes[] = {
        { "{{ ", "(", "1", ")", " }}" },
        { "{{ ", "[", "", "]", " }}" },
        { "{{ ", "{1:", "1", "}", " }}" },
        { "{{ ", "-", "1", "", " }}" },
        { "{{ ", "not ", "1", "", " }}" },
        { "{{ 1", " + 1", "", "", " }}" },
        { "{{ 1", " if 1 else 1", "", "", " }}" },
        { "{{ x", ".a", "", "", " }}" },
        { "{{ x", "[0]", "", "", " }}" },
        { "{{ x", "()", "", "", " }}" },
        { "{{ x", "|upper", "", "", " }}" },
        { "{{ x", " ~ x", "", "", " }}" },
        { "{{ x", " is defined", "", "", " }}" },
        { "{{ 1", " < 1", "", "", " }}" },
        { "", "{% if x %}", "", "{% endif %}", "" },
        { "", "{% for a in x %}", "", "{% endfor %}", "" },
        { "", "{% set x %}", "", "{% endset %}", "" },
        { "", "{% filter upper %}", "", "{% endfilter %}", "" },
        { "", "{% macro m() %}", "", "{% endmacro %}", "" },
        { "{% for ", "(", "a", ",)", " in [] %}{% endfor %}" },
        { "{% if x %}", "{% elif x %}", "", "", "{% endif %}" },
        { "", "{{ x }}", "", "", "" },
        { "{{ f(", "a=1,", "", "", ") }}" },
        { "{{ ", "x and ", "x", "", " }}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        static const size_t sizes[] = { 50, 300, 5000, 60000 };
        for (size_t k = 0; k < 4; k++) {
            str s;
            str_init(&s);
            str_puts(&s, shapes[i].head);
            repeat(&s, shapes[i].open, sizes[k]);
            str_puts(&s, shapes[i].middle);
            repeat(&s, shapes[i].close, sizes[k]);
            str_puts(&s, shapes[i].tail);
            double start = now_s();
            result r = render_text(str_cstr(&s), "{\"x\": \"y\"}", (tmpl_limits){ .steps = 1000000 });
            if (now_s() - start > 10) fail_msg("%.1f s: %s... x %zu", now_s() - start, shapes[i].open, sizes[k]);
            result_free(&r);
            str_deinit(&s);
        }
    }
    str names; /* as many names and branches as fit */
    str_init(&names);
    for (int i = 0; names.len < 900000; i++) str_printf(&names, "{%% if a%d %%}{%% set b%d = 1 %%}{%% endif %%}", i, i);
    double start = now_s();
    result r = render_text(str_cstr(&names), "{}", (tmpl_limits){ 0 });
    assert_true(now_s() - start < 20);
    result_free(&r);
    str_deinit(&names);
}

/* Truncated and altered templates: an error or a text, never a crash. 10,000 variants. */
static void test_damaged(void **state) {
    static const char context[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"hi\"}], "
        "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"l\": [1, 2], \"d\": "
        "{\"a\": 1}}";
    tmpl_limits       limits = { .steps = 20000, .memory_bytes = 1 << 20, .output_bytes = 1 << 16 };
    uint64_t          seed = 42;
    char             *path = test_fixture_path("template/cases.json"), *text = NULL;
    size_t            bytes = 0, variants = 0;
    arena             a;
    err               e = { 0 };
    const json_value *all = NULL;
    (void)state;
    arena_init(&a, 0);
    if (file_read(&text, &bytes, path, (size_t)16 << 20, &e) < 0 || json_parse(&all, text, bytes, &a, &e) < 0)
        fail_msg("%s", e.msg);
    while (variants < 10000) {
        const char *source = NULL;
        size_t      n = 0, pick = (size_t)(test_random(&seed) % (json_count(all) + 8));
        if (pick < json_count(all)) {
            const json_value *s = json_get(json_at(all, pick), "template");
            source = s->u.string.data;
            n = s->u.string.len;
        } else {
            source = tmpl_builtin(tmpl_builtin_name(pick - json_count(all)));
            n = strlen(source);
        }
        if (n == 0) continue;
        char *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, source, n);
        if (variants % 4 == 0) {
            n = (size_t)(test_random(&seed) % n);
        } else {
            for (uint64_t k = 1 + test_random(&seed) % 3; k > 0; k--)
                copy[test_random(&seed) % n] =
                    (char)(variants % 4 == 1 ? (int)test_random(&seed)
                                             : "{}%#-+|()[]'\".,:=_~ \nab01"[test_random(&seed) % 25]);
        }
        const json_value *v = NULL;
        arena             b;
        arena_init(&b, 0);
        assert_int_equal(json_parse(&v, context, strlen(context), &b, &e), 0);
        result r = render_json(copy, n, v, limits);
        result_free(&r);
        arena_deinit(&b);
        free(copy);
        variants++;
    }
    free(text);
    free(path);
    arena_deinit(&a);
}

static void test_errors_name_the_line(void **state) {
    result r = render_text("a\nb\n{{ 'a' + 1 }}\n", "{}", (tmpl_limits){ 0 });
    (void)state;
    assert_int_equal(r.rc, ERR_ARG);
    assert_int_equal(r.fault.line, 3);
    assert_string_equal(r.e.msg, "line 3: can only concatenate str (not \"int\") to str");
    assert_int_equal(r.out.len, 0);
    result_free(&r);
    r = render_text("x\n{% if a %}\n{{ a b }}{% endif %}", "{}", (tmpl_limits){ 0 });
    assert_int_equal(r.opened, ERR_FORMAT);
    assert_non_null(strstr(r.e.msg, "line 3: "));
    result_free(&r);
    r = render_text("{{ messages[0].x.y }}", "{\"messages\": [{}]}", (tmpl_limits){ 0 });
    assert_string_equal(r.e.msg, "line 1: 'dict' has no attribute 'x'");
    result_free(&r);
    r = render_text("{% include 'x' %}", "{}", (tmpl_limits){ 0 });
    assert_non_null(strstr(r.e.msg, "include"));
    result_free(&r);
    r = render_text("{% for i in range(1000) %}x{% endfor %}", "{}", (tmpl_limits){ .steps = 500 });
    assert_int_equal(r.rc, ERR_LIMIT);
    assert_int_equal(r.fault.kind, TMPL_FAULT_LIMIT);
    result_free(&r);
    r = render_text("{% for i in range(1000) %}x{% endfor %}", "{}", (tmpl_limits){ .output_bytes = 500 });
    assert_int_equal(r.fault.kind, TMPL_FAULT_LIMIT);
    result_free(&r);
}

/* The built-in formats, against prompts written out by hand from the formats' descriptions. */
static void test_builtin(void **state) {
    static const char context[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"A\"}, "
        "{\"role\": \"assistant\", \"content\": \"B\"}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"C\"}]}], "
        "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";
    static const struct {
        const char *name, *want;
    } table[] = {
        { "chatml",
          "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
          "<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n" },
        { "llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s><s>[INST] C [/INST]" },
        { "llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_"
                    "id|>\n\nA<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>user<|end_header_"
                    "id|>\n\nC<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n" },
        { "mistral", "<s>[INST] S\n\nA [/INST] B</s>[INST] C [/INST]" },
        { "mistral-tekken", "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]A[/INST]B</s>[INST]C[/INST]" },
        { "gemma", "<s><start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n<start_of_turn>"
                   "user\nC<end_of_turn>\n"
                   "<start_of_turn>model\n" },
        { "phi3",
          "<|system|>\nS<|end|>\n<|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n<|user|>\nC<|end|>\n<|assistant|>\n" },
        { "zephyr", "<|system|>\nS</s>\n<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC</s>\n<|assistant|>\n" },
        { "vicuna", "<s>S\n\nUSER: A\nASSISTANT: B</s>\nUSER: C\nASSISTANT:" },
        { "alpaca", "<s>S\n\n### Instruction:\nA\n\n### Response:\nB</s>\n\n### Instruction:\nC\n\n### Response:\n" },
        { "deepseek", "<s>S<｜User｜>A<｜Assistant｜>B<｜end▁of▁sentence｜><｜User｜>C<｜Assistant｜>" },
        { "command-r", "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_"
                       "TOKEN|>A<|END_OF_TURN_TOKEN|>"
                       "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>B<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_"
                       "TOKEN|>C<|END_OF_TURN_TOKEN|>"
                       "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>" },
        { "granite", "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>A<|"
                     "end_of_text|>\n"
                     "<|start_of_role|>assistant<|end_of_role|>B<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>C<"
                     "|end_of_text|>\n"
                     "<|start_of_role|>assistant<|end_of_role|>" },
        { "glm4", "[gMASK]<sop><|system|>\nS<|user|>\nA<|assistant|>\nB<|user|>\nC<|assistant|>" },
        { "exaone", "[|system|]S[|endofturn|]\n[|user|]A\n[|assistant|]B[|endofturn|]\n[|user|]C\n[|assistant|]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        expect(tmpl_builtin(table[i].name), context, table[i].want);
    size_t n = 0;
    while (tmpl_builtin_name(n)) n++;
    assert_int_equal(n, sizeof table / sizeof *table + 1); /* PaliGemma's knows no turns: test_question */
    assert_null(tmpl_builtin("nosuch"));
}

/* PaliGemma's prompt is a question behind its pictures. */
static void test_question(void **state) {
    static const char turn[] =
        "{\"bos_token\": \"<bos>\", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", \"text\": \"A\"}, {\"type\": \"image\"}, {\"type\": \"image\"}]}]}";
    (void)state;
    expect(tmpl_builtin("paligemma"), turn, "<image><image><bos>A\n");
    static const char *const refused[] = {
        "{\"bos_token\": \"<bos>\", \"messages\": []}",
        "{\"bos_token\": \"<bos>\", \"messages\": [{\"role\": \"user\", \"content\": \"A\"}]}",
        "{\"bos_token\": \"<bos>\", \"messages\": [{\"role\": \"system\", \"content\": \"A\"}]}",
        ("{\"bos_token\": \"<bos>\", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}, "
         "{\"role\": \"assistant\", \"content\": \"B\"}]}"),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        result r = render_text(tmpl_builtin("paligemma"), refused[i], (tmpl_limits){ 0 });
        assert_true(r.opened == 0 && r.rc < 0 && strstr(r.e.msg, "PaliGemma"));
        result_free(&r);
    }
}

static void test_uses_and_clock(void **state) {
    tmpl      *t = NULL;
    err        e;
    tmpl_clock c;
    const char source[] = "{% for m in messages %}{{ m.tools }}{% endfor %}{% if enable_thinking is defined %}{% endif "
                          "%}{% set own = 1 %}{{ own }}";
    (void)state;
    assert_int_equal(tmpl_open(&t, source, strlen(source), &e), 0);
    assert_true(tmpl_uses(t, "messages"));
    assert_true(tmpl_uses(t, "enable_thinking"));
    assert_false(tmpl_uses(t, "tools"));
    assert_false(tmpl_uses(t, "own"));
    tmpl_free(t);
    assert_int_equal(tmpl_clock_parse(&c, "2026-01-02T15:04:05", &e), 0);
    assert_int_equal(c.second, 5);
    assert_int_equal(tmpl_clock_parse(&c, "2024-02-29", &e), 0);
    assert_true(tmpl_clock_parse(&c, "2026-02-29", &e) < 0);
    assert_true(tmpl_clock_parse(&c, "2026-01-02T25:00:00", &e) < 0);
    assert_true(tmpl_clock_parse(&c, "soon", &e) < 0);
}

static void write_file(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
}

static void expect_origin(const char *path, const char *origin, const char *want_plain, const char *want_tools) {
    bundle_template b;
    err             e = { 0 };
    tmpl_input      in = { 0 };
    if (bundle_template_open(&b, path, &e) < 0) fail_msg("%s", e.msg);
    assert_string_equal(b.origin, origin);
    for (int tools = 0; tools < 2; tools++) {
        const char *want = tools ? want_tools : want_plain;
        str         out;
        str_init(&out);
        if (want) {
            assert_int_equal(tmpl_render(bundle_template_pick(&b, tools), &in, &out, NULL, &e), 0);
            assert_string_equal(str_cstr(&out), want);
        }
        str_deinit(&out);
    }
    bundle_template_deinit(&b);
}

/* Mistral's directories: the vocabulary alone says how messages are written. */
static void test_tekken_directory(void **state) {
    char           *dir = test_temp_dir();
    bundle_template b;
    err             e = { 0 };
    (void)state;
    write_file(dir, "config.json", "{\"model_type\": \"voxtral\"}");
    write_file(dir, "tekken.json",
               "{\"special_tokens\": [{\"token_str\": \"[INST]\"}, {\"token_str\": \"[SYSTEM_PROMPT]\"}]}");
    expect_origin(dir, "built-in mistral-tekken", NULL, NULL);
    assert_int_equal(bundle_template_open(&b, dir, &e), 0);
    assert_string_equal(b.bos, "<s>");
    assert_string_equal(b.eos, "</s>");
    bundle_template_deinit(&b);
    test_temp_dir_remove(dir);
}

static void test_model_directories(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    write_file(dir, "config.json", "{\"model_type\": \"somethingnew\"}");
    write_file(dir, "tokenizer_config.json", "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\"}");
    bundle_template b;
    err             e = { 0 };
    assert_int_equal(bundle_template_open(&b, dir, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.msg, "somethingnew"));
    write_file(dir, "tokenizer.json", "{\"added_tokens\": [{\"content\": \"<|im_start|>\"}]}");
    expect_origin(dir, "built-in chatml", NULL, NULL);
    write_file(
        dir, "tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<s>\"}, \"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, "
        "{\"name\": \"tool_use\", \"template\": \"T\"}]}");
    expect_origin(dir, "tokenizer_config.json", "D", "T");
    assert_int_equal(bundle_template_open(&b, dir, &e), 0);
    assert_string_equal(b.bos, "<s>");
    assert_null(b.eos);
    bundle_template_deinit(&b);
    write_file(dir, "chat_template.json", "{\"chat_template\": \"J\"}");
    expect_origin(dir, "chat_template.json", "J", "J");
    write_file(dir, "chat_template.jinja", "P\n");
    expect_origin(dir, "chat_template.jinja", "P", "P");
    write_file(dir, "chat_template.jinja", "{% if %}");
    assert_int_equal(bundle_template_open(&b, dir, &e), ERR_FORMAT);
    test_temp_dir_remove(dir);
}

/* Runs the program in dir with a case on stdin; out and errors come back as text. */
static int run_program(const char *dir, const char *args, char out[4096], char errors[4096]) {
    char        command[2048];
    const char *program = getenv("HEARTH_PROGRAM");
    snprintf(command, sizeof command, "cd '%s' && '%s' render %s <case.json >out.txt 2>err.txt", dir, program, args);
    int         rc = system(command);
    char *const texts[] = { out, errors };
    for (int i = 0; i < 2; i++) {
        char  *path = path_join(dir, i ? "err.txt" : "out.txt");
        FILE  *f = fopen(path, "rb");
        size_t n = f ? fread(texts[i], 1, 4095, f) : 0;
        texts[i][n] = '\0';
        if (f) fclose(f);
        free(path);
    }
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

static void test_command(void **state) {
    char out[4096], errors[4096];
    (void)state;
    if (!getenv("HEARTH_PROGRAM")) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        skip();
        return;
    }
    char *dir = test_temp_dir();
    write_file(dir, "case.json",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"hé\"}], \"x\": 1, \"kwargs\": {\"x\": 2}}");
    write_file(dir, "a.jinja",
               "{{ messages[0].content }}|{{ tools is none }}{{ documents is none }}|{{ x }}|{{ strftime_now('%H:%M %d "
               "%b') }}|\n\n");
    assert_int_equal(run_program(dir, "a.jinja --now 2026-01-02T15:04:05", out, errors), 0);
    assert_string_equal(out, "hé|TrueTrue|2|15:04 02 Jan|\n");
    assert_string_equal(errors, "");
    write_file(dir, "b.jinja", "printed\n{{ raise_exception('no ' ~ x) }}");
    assert_int_equal(run_program(dir, "b.jinja", out, errors), 1);
    assert_string_equal(out, "");
    assert_non_null(strstr(errors, "line 2: no 2"));
    assert_int_equal(run_program(dir, "missing.jinja", out, errors), 1);
    assert_string_equal(out, "");
    write_file(dir, "case.json", "[1]");
    assert_int_equal(run_program(dir, "a.jinja", out, errors), 1);
    write_file(dir, "case.json", "{\"messages\":");
    assert_int_equal(run_program(dir, "a.jinja", out, errors), 1);
    assert_string_equal(out, "");
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_cases),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_deep_sources),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_builtin),
        cmocka_unit_test(test_tekken_directory),
        cmocka_unit_test(test_uses_and_clock),
        cmocka_unit_test(test_question),
        cmocka_unit_test(test_model_directories),
        cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

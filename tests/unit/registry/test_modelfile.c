/* SPDX-License-Identifier: Apache-2.0 */
/* Modelfiles: what they set, what is wrong with them and in which line, and the way back. */
#include "unit/support/support.h"

#include "base/json.h"
#include "config/model.h"
#include "registry/modelfile.h"
#include "template/template.h"

#include <stdlib.h>
#include <string.h>

static void parse(modelfile *m, const char *text) {
    err e = { 0 };
    if (modelfile_parse(m, text, strlen(text), "Modelfile", &e) < 0) fail_msg("%s", e.msg);
}

static char *settings_of(const char *text, const char *base) {
    modelfile m;
    str       out;
    err       e = { 0 };
    str_init(&out);
    parse(&m, text);
    if (modelfile_settings(&m, base, &out, &e) < 0) fail_msg("%s", e.msg);
    modelfile_deinit(&m);
    return str_take(&out);
}

static void test_reads(void **state) {
    modelfile m;
    (void)state;
    parse(
        &m,
        "\xef\xbb\xbf# first a comment\r\n\r\n  from  ./x y.gguf \r\n"
        "Parameter TEMPERATURE 0.5\nPARAMETER temperature 0.7\nPARAMETER stop \"<|end|>\"\nPARAMETER stop  ab c\t\n"
        "PARAMETER num_gpu 1\nSYSTEM \"\"\"one\r\n# not a comment\n \"two\"  \"\"\"  \nREQUIRES 0.6\n"
        "TEMPLATE \"\"\"{% for m in messages %}{{ m.content }}{% endfor %}\"\"\"\n"
        "ADAPTER ./a.gguf\nLICENSE one\nLICENSE \"two\nthree\"\nMESSAGE user Hi.\nmessage ASSISTANT \"\"\"a\nb\"\"\"");
    assert_string_equal(m.from, "./x y.gguf");
    assert_int_equal(m.n_params, 3);
    assert_string_equal(m.params[0].value, "0.7");
    assert_string_equal(m.params[1].value, "<|end|>");
    assert_string_equal(m.params[2].value, "ab c");
    assert_string_equal(m.system, "one\n# not a comment\n \"two\"  ");
    assert_string_equal(m.template_text, "{% for m in messages %}{{ m.content }}{% endfor %}");
    assert_int_equal(m.n_adapters, 1);
    assert_string_equal(m.license, "one\ntwo\nthree");
    assert_int_equal(m.n_messages, 2);
    assert_string_equal(m.messages[1].name, "assistant");
    assert_string_equal(m.messages[1].value, "a\nb");
    assert_non_null(strstr(str_cstr(&m.notes), "num_gpu is set aside"));
    assert_non_null(strstr(str_cstr(&m.notes), "REQUIRES is set aside"));
    modelfile_deinit(&m);
}

static void test_mistakes(void **state) {
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "", "Modelfile: there is no FROM line" },
        { "FROM x\nFORM y\n", "line 2: there is no instruction 'FORM'; did you mean FROM?" },
        { "FROM x\n\n# c\nPARAMETER temprature 1\n",
          "line 4: there is no parameter 'temprature'; did you mean 'temperature'?" },
        { "FROM x\nPARAMETER top_k many", "line 2: top_k: 'many' is not an integer" },
        { "FROM x\nPARAMETER top_k 1.5", "line 2: top_k: '1.5' is not an integer" },
        { "FROM x\nPARAMETER top_p 2", "line 2: top_p: 2 is not between 0 and 1" },
        { "FROM x\nPARAMETER temperature nan", "'nan' is not a number" },
        { "FROM x\nPARAMETER temperature 0x1", "'0x1' is not a number" },
        { "FROM x\nPARAMETER temperature", "line 2: PARAMETER temperature needs a value" },
        { "FROM x\nPARAMETER", "line 2: PARAMETER needs a name" },
        { "FROM x\nPARAMETER use_mmap maybe", "true or false" },
        { "FROM x\nPARAMETER cache_type_k q9", "line 2: cache_type_k: 'q9' is not a page type" },
        { "FROM x\nPARAMETER cache_type_v auto", "line 2: cache_type_v: 'auto' is not a page type" },
        { "FROM x\nPARAMETER cache_type f1", "'f1' is not a page type" },
        { "FROM x\nSYSTEM \"\"\"a\nb\n\nc", "line 2: the quotes of line 2 are not closed" },
        { "FROM x\nSYSTEM \"a", "not closed" },
        { "FROM x\nFROM y", "line 2: a second FROM" },
        { "FROM", "line 1: FROM needs" },
        { "FROM x\nMESSAGE tool x", "line 2: the role of a message is system, user or assistant, not 'tool'" },
        { "FROM x\nADAPTER\n", "line 2: ADAPTER needs a path" },
        { "FROM x\nSYSTEM \xff\n", "line 2: the text is not UTF-8" },
        { "FROM x\nzebra y", "line 2: there is no instruction 'zebra'" },
        { "FROM x\nTEMPLATE {{ range .Messages }}{{ template \"x\" }}{{ end }}",
          "line 2: the template is written in Go's language" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        modelfile m;
        err       e = { 0 };
        assert_true(modelfile_parse(&m, rows[i].text, strlen(rows[i].text), "Modelfile", &e) < 0);
        if (!strstr(e.msg, rows[i].want)) fail_msg("no \"%s\" in: %s", rows[i].want, e.msg);
        assert_null(m.from);
    }
}

/* The settings are what the configuration's reader takes, and mean what the Modelfile said. */
static void test_settings(void **state) {
    char *base = settings_of("FROM x\nPARAMETER num_ctx 4096\nPARAMETER temperature 0.25\nPARAMETER stop A\nPARAMETER "
                             "num_predict 100\nSYSTEM old\nMESSAGE user Hi.\nMESSAGE assistant \"\"\"Hello\nyou\"\"\"",
                             NULL);
    char *text =
        settings_of("FROM y\nPARAMETER top_k 7\nPARAMETER stop B\nPARAMETER stop \"C D\"\nPARAMETER num_predict -1\n"
                    "PARAMETER mirostat 2\nPARAMETER mirostat_tau 4\nSYSTEM new \"one\"",
                    base);
    config_model c;
    err          e = { 0 };
    (void)state;
    if (config_model_read(&c, view_of(text), "settings", &e) < 0) fail_msg("%s: %s", text, e.msg);
    assert_int_equal(c.context, 4096);
    assert_string_equal(c.system, "new \"one\"");
    assert_true(c.sampling.values.temperature == 0.25);
    assert_int_equal(c.sampling.values.top_k, 7);
    assert_int_equal(c.sampling.values.mirostat, 2);
    assert_int_equal(c.sampling.set & CONFIG_SET_MAX_TOKENS, 0);
    assert_int_equal(c.sampling.n_stop, 2);
    assert_string_equal(c.sampling.stop[1], "C D");
    assert_int_equal(c.n_messages, 2);
    assert_string_equal(c.messages[1].content, "Hello\nyou");
    config_model_deinit(&c);
    free(base);
    free(text);
    text = settings_of("FROM y", NULL);
    assert_string_equal(text, "{}");
    free(text);
    base =
        settings_of("FROM x\nPARAMETER cache_type tq4\nPARAMETER cache_type_k q8_0\nPARAMETER precise_layers 0", NULL);
    text = settings_of("FROM y\nPARAMETER cache_type_k f16\nPARAMETER cache_type_v turbo3", base);
    if (config_model_read(&c, view_of(text), "settings", &e) < 0) fail_msg("%s: %s", text, e.msg);
    assert_string_equal(c.page_type, "tq4");
    assert_string_equal(c.page_type_k, "f16");
    assert_string_equal(c.page_type_v, "turbo3");
    assert_int_equal(c.precise_layers, 0);
    config_model_deinit(&c);
    free(base);
    free(text);
    text = settings_of("FROM y\nADAPTER a.gguf", NULL);
    assert_int_equal(config_model_read(&c, view_of(text), "settings", &e), 0);
    assert_int_equal(c.n_adapters, 1);
    assert_string_equal(c.adapters[0].path, "a.gguf");
    assert_true(c.adapters[0].scale == 1);
    config_model_deinit(&c);
    free(text);
}

static void random_text(uint64_t *seed, str *out) {
    static const char *const pieces[] = {
        "\"", "\"\"\"", "\n", " ", "a", "#", "FROM x", "\\n", "é", "\t", "{{", "\"\""
    };
    size_t n = test_random(seed) % 9;
    str_clear(out);
    str_append(out, "", 0);
    for (size_t i = 0; i < n; i++) str_puts(out, pieces[test_random(seed) % 12]);
}

/* Whatever the texts hold: what is printed reads back as the same, or is refused. */
static void test_round_trip(void **state) {
    uint64_t seed = 3;
    int      refused = 0;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        str       a, b, json, file, again;
        modelfile m;
        err       e = { 0 };
        str_init(&a), str_init(&b), str_init(&json), str_init(&file), str_init(&again);
        random_text(&seed, &a);
        random_text(&seed, &b);
        modelfile_init(&m);
        m.system = strdup(str_cstr(&a));
        assert_int_equal(modelfile_add_message(&m, "user", str_cstr(&b), &e), 0);
        if (b.len) assert_int_equal(modelfile_add_param(&m, "stop", str_cstr(&b), &e), 0);
        assert_int_equal(modelfile_add_param(&m, "temperature", "0.1", &e), 0);
        assert_int_equal(modelfile_settings(&m, NULL, &json, &e), 0);
        modelfile_deinit(&m);
        if (modelfile_print("x", str_cstr(&json), &file, &e) < 0) {
            assert_int_equal(e.code, ERR_UNSUPPORTED);
            refused++;
        } else {
            if (modelfile_parse(&m, str_cstr(&file), file.len, "f", &e) < 0) fail_msg("%s\n%s", e.msg, str_cstr(&file));
            assert_int_equal(modelfile_settings(&m, NULL, &again, &e), 0);
            assert_string_equal(str_cstr(&again), str_cstr(&json));
            modelfile_deinit(&m);
        }
        str_deinit(&a), str_deinit(&b), str_deinit(&json), str_deinit(&file), str_deinit(&again);
    }
    assert_true(refused < 300); /* texts with both kinds of quotes at line ends */
}

#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\"}}]"

static void renders(const char *go, const char *messages, const char *want) {
    modelfile         m;
    const json_value *v, *yes;
    arena             a;
    tmpl             *t;
    str               out;
    err               e = { 0 };
    arena_init(&a, 0);
    str_init(&out);
    modelfile_init(&m);
    if (modelfile_set_template(&m, go, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(json_parse(&v, messages, strlen(messages), &a, &e), 0);
    assert_int_equal(json_parse(&yes, "true", 4, &a, &e), 0);
    if (tmpl_open(&t, m.template_text, strlen(m.template_text), &e) < 0) fail_msg("%s: %s", m.template_text, e.msg);
    const json_value *tools;
    assert_int_equal(json_parse(&tools, TOOLS, strlen(TOOLS), &a, &e), 0);
    tmpl_var   vars[] = { { view_of("messages"), v },
                          { view_of("add_generation_prompt"), yes },
                          { view_of("tools"), tools } };
    tmpl_input in = { .vars = vars, .n_vars = 3 };
    if (tmpl_render(t, &in, &out, NULL, &e) < 0) fail_msg("%s", e.msg);
    assert_string_equal(str_cstr(&out), want);
    tmpl_free(t);
    modelfile_deinit(&m);
    str_deinit(&out);
    arena_deinit(&a);
}

static void test_go_templates(void **state) {
    const char *chat = "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},"
                       "{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"V\"}]";
    (void)state;
    renders("{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}{{ if .Prompt }}<|im_start|>user\n"
            "{{ .Prompt }}<|im_end|>\n{{ end }}<|im_start|>assistant\n{{ .Response }}<|im_end|>\n",
            chat,
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
            "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n");
    renders("{{- if .System }}\n{{ .System -}} \n{{- end }}\nIt's \\ {{ .Prompt }} it", chat,
            "\nS\nIt's \\ U itA\nIt's \\ V it");
    renders("{{ .Prompt }}", chat, "UAV");
}

/* The shapes of published templates that walk through the messages. */
static void test_go_messages(void **state) {
    const char *talk =
        "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1,"
        "\"b\":[2]}}}]},{\"role\":\"tool\",\"content\":\"R\"},{\"role\":\"user\",\"content\":\"V\"}]";
    (void)state;
    /* Roles in a loop, the answer's beginning behind the last message. */
    renders("{{- range $i, $_ := .Messages }}\n{{- $last := eq (len (slice $.Messages $i)) 1 }}[{{ .Role }}]{{ "
            ".Content }}\n"
            "{{- if and (ne .Role \"assistant\") $last }}[assistant]{{ end }}\n{{- end }}",
            talk, "[system]S[user]U[assistant][tool]R[user]V[assistant]");
    /* System and tools first, calls and results in their tags; the branch for a single prompt is not taken. */
    renders(
        "{{- if .Messages }}{{- if or .System .Tools }}<sys>{{ .System }}{{- if .Tools }} tools:{{- range .Tools }}\n"
        "{{ .Function }}{{ end }}{{ end }}</sys>\n{{ end }}{{- range .Messages }}{{- if eq .Role \"user\" }}<u>"
        "{{ .Content }}</u>\n{{ else if eq .Role \"assistant\" }}<a>{{ if .Content }}{{ .Content }}{{- else if "
        ".ToolCalls }}{{ range .ToolCalls }}{\"name\": \"{{ .Function.Name }}\", \"arguments\": "
        "{{ .Function.Arguments }}}{{ end }}{{- end }}</a>\n{{ else if eq .Role \"tool\" \"function\" }}<r>"
        "{{ .Content }}</r>\n{{ end }}{{- end }}{{- else }}{{ .Prompt }}{{ .Response }}{{ end }}",
        talk,
        "<sys>S tools:\n{\"name\":\"f\",\"description\":\"d\"}</sys>\n<u>U</u>\n<a>{\"name\": \"f\", \"arguments\": "
        "{\"a\":1,\"b\":[2]}}</a>\n<r>R</r>\n<u>V</u>\n");
    /* with, index, not, variables, comments, raw strings. */
    renders("{{/* a */}}{{ with .System }}<{{ . }}>{{ else }}none{{ end }}{{ $first := index .Messages 1 }}"
            "{{ $first.Content }}{{ if not (gt (len .Messages) 9) }}{{ `it's` }}{{ end }}{{ json $first.Role }}",
            talk, "<S>Uit's\"user\"");
}

/* Numbers are printed as people write them, also behind settings that came as JSON. */
static void test_numbers(void **state) {
    str out;
    err e = { 0 };
    (void)state;
    str_init(&out);
    assert_int_equal(modelfile_print_params("{\"sampling\":{\"temperature\":0.29999999999999999,\"top_p\":0.95,"
                                            "\"min_p\":0.05,\"repeat_penalty\":1.1000000000000003}}",
                                            &out, &e),
                     0);
    assert_non_null(strstr(str_cstr(&out), "temperature 0.3\n"));
    assert_non_null(strstr(str_cstr(&out), "top_p 0.95\n"));
    assert_non_null(strstr(str_cstr(&out), "min_p 0.05\n"));
    assert_non_null(strstr(str_cstr(&out), "repeat_penalty 1.1000000000000003\n")); /* another number than 1.1 */
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_go_messages), cmocka_unit_test(test_reads),
        cmocka_unit_test(test_mistakes),     cmocka_unit_test(test_settings),    cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_go_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that fail while a model, a tokenizer or a chat template is opened and used (support/alloc_fail.h). */
#include "unit/support/alloc_fail.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "bundle/template.h"
#include "bundle/tokenizer.h"
#include "engine/engine.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/kv_type.h"
#include "template/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE(x) HEARTH_SOURCE_DIR "/tests/fixtures/" x

/* --- models --- */

/* File, network, engine. */
static int open_model(void *path, char *result, err *e) {
    model_file    *f = NULL;
    nn_model      *m = NULL;
    engine        *g = NULL;
    engine_options o = {
        .n_ctx = 64, .n_threads = 1, .max_seqs = 2, .step_tokens = 16, .k_type = NN_KV_F16, .v_type = NN_KV_F16
    };
    o.cpu = cpu_detect();
    int rc = model_file_open(&f, path, e);
    if (rc == 0) rc = nn_model_open(&m, f, models_list, NULL, e);
    if (rc == 0) rc = engine_open(&g, m, NULL, &o, e);
    if (rc == 0)
        snprintf(result, ALLOC_RESULT_MAX, "%s, %zu tensors, %d layers, %lld tokens", model_file_arch(f),
                 model_file_tensor_count(f), m->dims->n_layer, (long long)engine_vocab(g));
    engine_free(g);
    nn_model_free(m);
    model_file_free(f);
    return rc;
}

static void test_models(void **state) {
    static const char *const paths[] = {
        HEARTH_SOURCE_DIR "/models/demo/draft.gguf",
        HEARTH_SOURCE_DIR "/tests/golden/models/llama",
        HEARTH_SOURCE_DIR "/tests/golden/models/llama_mlx4",
        HEARTH_SOURCE_DIR "/tests/golden/models/qwen3_next",
        HEARTH_SOURCE_DIR "/tests/golden/models/gpt_oss_mxfp4",
    };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        alloc_fail_each(&(alloc_case){
            .name = paths[i] + strlen(HEARTH_SOURCE_DIR) + 1, .run = open_model, .ctx = (void *)paths[i] });
}

/* Several files, sidecars, an index. */
static int open_file(void *path, char *result, err *e) {
    model_file *f = NULL;
    int         rc = model_file_open(&f, path, e);
    if (rc == 0)
        snprintf(result, ALLOC_RESULT_MAX, "%d: %zu keys, %zu tensors, %zu bytes, config %d %d", model_file_format(f),
                 model_file_meta_count(f), model_file_tensor_count(f), model_file_bytes(f), !!model_file_config(f),
                 !!model_file_generation_config(f));
    model_file_free(f);
    return rc;
}

static void test_files(void **state) {
    static const char *const paths[] = { FIXTURE("formats/hf"), FIXTURE("formats/mlx"),
                                         FIXTURE("formats/split/tiny-00001-of-00003.gguf"),
                                         FIXTURE("formats/odd.safetensors"), FIXTURE("formats/vocab-only.gguf") };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        alloc_fail_each(
            &(alloc_case){ .name = paths[i] + strlen(FIXTURE("")), .run = open_file, .ctx = (void *)paths[i] });
}

/* --- tokenizers --- */

static int open_tokenizer(void *path, char *result, err *e) {
    static const char text[] = "Hello, wo\xC3\xB6rld 12345 \xE4\xBD\xA0\xE5\xA5\xBD <|endoftext|></s>  it's";
    tok              *t = NULL;
    tok_ids           ids = { 0 };
    str               back;
    str_init(&back);
    int rc = bundle_tokenizer_open_path(&t, path, NULL, e);
    if (rc == 0) rc = tok_encode(t, text, sizeof text - 1, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &ids, e);
    if (rc == 0) rc = tok_decode(t, ids.data, ids.count, false, &back, e);
    if (rc == 0 && !str_ok(&back)) rc = err_set_nomem(e);
    if (rc == 0) {
        size_t n_end, at = 0;
        tok_end_ids(t, &n_end);
        at = (size_t)snprintf(result, ALLOC_RESULT_MAX, "%s, %d tokens, %zu ends, %s:", tok_kind(t), tok_count(t),
                              n_end, str_cstr(&back));
        for (size_t i = 0; i < ids.count && at < ALLOC_RESULT_MAX; i++)
            at += (size_t)snprintf(result + at, ALLOC_RESULT_MAX - at, " %d", ids.data[i]);
    }
    str_deinit(&back);
    tok_ids_deinit(&ids);
    tok_free(t);
    return rc;
}

static void test_tokenizers(void **state) {
    static const char *const paths[] = {
        FIXTURE("tokenizer/goldens/llama3.json"),
        FIXTURE("tokenizer/goldens/gemma.json"),
        FIXTURE("tokenizer/goldens/unigram_meta.json"),
        FIXTURE("tokenizer/goldens/bert_uncased.json"),
        FIXTURE("tokenizer/goldens/spm_bpe_llama.model"),
        FIXTURE("tokenizer/goldens/contprefix.json"),
        FIXTURE("formats/hf"),
        HEARTH_SOURCE_DIR "/models/demo/draft.gguf",
    };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        alloc_fail_each(
            &(alloc_case){ .name = strrchr(paths[i], '/') + 1, .run = open_tokenizer, .ctx = (void *)paths[i] });
}

/* --- templates --- */

static const char CHAT[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be  brief.\"},"
    " {\"role\": \"user\", \"content\": \"What is the weather in K\\u00f6ln?\"},"
    " {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"type\": \"function\", \"function\":"
    " {\"name\": \"get_weather\", \"arguments\": {\"city\": \"K\\u00f6ln\"}}}]},"
    " {\"role\": \"tool\", \"name\": \"get_weather\", \"content\": \"rain\"}, {\"role\": \"user\", \"content\": \"And "
    "now?\"}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Weather\","
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}],"
    " \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true}";

/* A bit of everything: macros, filters, slices, namespaces, formatting, JSON, errors that are caught by default. */
static const char TEMPLATE[] =
    "{%- macro show(x, key='city') -%}{{ x[key]|upper if x[key] is defined else 'none' }}{%- endmacro -%}"
    "{%- set ns = namespace(found=false, text='') -%}"
    "{{ bos_token }}{% for m in messages %}{% if loop.first and m.role == 'system' %}<<{{ m.content|trim }}>>"
    "{% elif m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name ~ ' ' ~ c.function.arguments|tojson }}"
    " {{ show(c.function.arguments) }}{% set ns.found = true %}{% endfor %}"
    "{% else %}[{{ m.role|title }}: {{ m.content.split(' ')|join('_') }}]{% set ns.text = ns.text + m.content %}{% "
    "endif %}"
    "{% endfor %}{{ tools|tojson(indent=2) }} {{ tools|map(attribute='function')|map(attribute='name')|list }}"
    " {{ messages[::-1][:2]|length }} {{ ns.found }} {{ ns.text|replace('a', 'b')|length }} {{ '%s-%d'|format('x', 7) "
    "}}"
    " {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ (messages|last).content.strip('?') }}"
    " {{ strftime_now('%d %B %Y') }} {{ {'a': 1, 'b': [1, 2.5, none]}|tojson }} {{ range(5)|list|sum }}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

static int render(void *source, char *result, err *e) {
    const char       *text = source;
    tmpl             *t = NULL;
    arena             mem;
    const json_value *root = NULL;
    tmpl_var          vars[8];
    tmpl_input        in = { .vars = vars, .now = { 2026, 1, 2, 3, 4, 5 } };
    tmpl_fault        fault;
    str               out;
    arena_init(&mem, 0);
    str_init(&out);
    tmpl_fault_init(&fault);
    int rc = json_parse(&root, CHAT, sizeof CHAT - 1, &mem, e);
    for (size_t i = 0; rc == 0 && i < root->u.object.count && i < 8; i++)
        vars[in.n_vars++] = (tmpl_var){ root->u.object.members[i].key, &root->u.object.members[i].value };
    if (rc == 0) rc = tmpl_open(&t, text, strlen(text), e);
    if (rc == 0) rc = tmpl_render(t, &in, &out, &fault, e);
    if (rc == 0) snprintf(result, ALLOC_RESULT_MAX, "%s", str_cstr(&out));
    tmpl_fault_deinit(&fault);
    str_deinit(&out);
    tmpl_free(t);
    arena_deinit(&mem);
    return rc;
}

static void test_templates(void **state) {
    static const char *const names[] = { "chatml", "llama3", "command-r" };
    (void)state;
    alloc_fail_each(&(alloc_case){ .name = "a template of everything", .run = render, .ctx = (void *)TEMPLATE });
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tmpl_builtin(names[i]))
            alloc_fail_each(&(alloc_case){ .name = names[i], .run = render, .ctx = (void *)tmpl_builtin(names[i]) });
}

/* The template of a model: which one is found must not depend on luck. */
static int open_template(void *path, char *result, err *e) {
    bundle_template b = { 0 };
    int             rc = bundle_template_open(&b, path, e);
    if (rc == 0)
        snprintf(result, ALLOC_RESULT_MAX, "%s, %d, %s %s %.3000s", b.origin, !!b.tool_use, b.bos ? b.bos : "-",
                 b.eos ? b.eos : "-", tmpl_source(b.chat).data);
    bundle_template_deinit(&b);
    return rc;
}

static void test_model_templates(void **state) {
    static const char *const paths[] = { HEARTH_SOURCE_DIR "/models/demo/draft.gguf", FIXTURE("formats/hf") };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        alloc_fail_each(
            &(alloc_case){ .name = strrchr(paths[i], '/') + 1, .run = open_template, .ctx = (void *)paths[i] });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),    cmocka_unit_test(test_files),           cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_templates), cmocka_unit_test(test_model_templates),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

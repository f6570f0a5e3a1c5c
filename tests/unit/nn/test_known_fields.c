/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing opens and answers wrongly: a field of config.json that changes the arithmetic somewhere is put, with an unusual
 * value, into the config.json of every reference model. Then the model is refused with a sentence that names the field,
 * or its forward pass is another one: the field is understood. A model that opens with the same tape as before has
 * ignored it, and the test fails.
 */
#include "base/file.h"
#include "base/str.h"
#include "models/list.h"
#include "nn/model.h"
#include "nn/tape.h"
#include "unit/support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *field, *value;
    const char *fine; /* models that may ignore it, with a space behind each name; why stands beside it */
    const char *word; /* that a refusal may say instead of the field's name; NULL: none */
} changes[] = {
    { "hidden_act", "\"mish\"",
      /* another name for the same field */
      "gemma gemma2 gemma3_text gemma4_text gemma4_text_moe gemma4_unified muse_glimmer vaultgemma gpt2 gptj codegen "
      "gpt_bigcode opt opt_350m "
      "gpt_neo mpt falcon falcon_new bloom jais refact codeshell lfm2 lfm2_moe dbrx gemma3n_text nemotron_h "
      "nemotron_h_latent "
      "nemotron_h_moe ",
      NULL },
    { "clip_qkv", "0.125", "", NULL },
    { "alibi", "true", "", NULL },
    { "logit_scale", "0.37", "", NULL },
    { "embedding_multiplier", "3.7", "", NULL },
    { "residual_multiplier", "0.7", "", NULL },
    { "attention_multiplier", "0.7", "", NULL },
    { "final_logit_softcapping", "1.7", "", NULL },
    { "attn_logit_softcapping", "1.7", "", NULL },
    { "new_decoder_architecture", "true", "falcon_new ", NULL /* has it */ },
    { "scale_emb", "7", "", NULL },
    { "mup_width_scale", "0.3", "", NULL },
    { "use_bidirectional_attention", "true", "", " not supported" },
    { "position_embedding_type", "\"alibi\"", "jais ", NULL /* has it */ },
    { "attention_chunk_size", "24", "", NULL },
    { "num_kv_shared_layers", "1", "", NULL },
    { "do_layer_norm_before", "false", "opt_350m ", NULL /* has it */ },
    { "apply_residual_connection_post_layernorm", "true", "", NULL },
    { "scale_attn_by_inverse_layer_idx", "true", "", NULL },
    { "rope_scaling", "{\"rope_type\": \"mystery\", \"factor\": 2.0}",
      /* no rotation; rope_parameters comes first */
      "gpt2 gpt_bigcode mpt bloom opt opt_350m gpt_neo biogpt baichuan_alibi jais refact mamba2 mamba2_groups "
      "kimi_linear olmo3 ministral3 mistral4 gemma4_text gemma4_text_moe gemma4_unified muse_glimmer qwen3_5_text "
      "qwen3_5_moe_text mamba "
      "falcon_mamba jamba "
      "nemotron_h nemotron_h_latent nemotron_h_moe mellum laguna mimo_v2_flash ",
      "mystery" },
};

/* The text with the field set: an old value keeps its place under another name. */
static void set_field(const char *config, const char *field, const char *value, str *out) {
    char        quoted[100];
    const char *at;
    snprintf(quoted, sizeof quoted, "\"%s\":", field);
    str_clear(out);
    str_printf(out, "{ %s %s,", quoted, value);
    config = strchr(config, '{') + 1;
    while ((at = strstr(config, quoted))) {
        str_append(out, config, (size_t)(at - config));
        str_puts(out, "\"unknown_old_name\":");
        config = at + strlen(quoted);
    }
    str_puts(out, config);
}

/* The tape of a directory's model; false: refused, with the reason. */
static bool tape_of(const char *dir, str *out, err *e) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    bool        opened = model_file_open(&f, dir, e) == 0 && nn_model_open(&m, f, models_list, NULL, e) == 0;
    str_clear(out);
    if (opened) nn_tape_print(m->tape, out);
    nn_model_free(m);
    model_file_free(f);
    return opened;
}

static void write_config(const char *dir, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool is_fine(const char *list, const char *name) {
    const char *at = strstr(list, name);
    while (at && ((at != list && at[-1] != ' ') || at[strlen(name)] != ' ')) at = strstr(at + 1, name);
    return at != NULL;
}

static int check_model(const char *dir, const char *name, const char *config) {
    str text, plain, changed;
    err e = { 0 };
    int wrong = 0;
    str_init(&text);
    str_init(&plain);
    str_init(&changed);
    write_config(dir, config);
    if (!tape_of(dir, &plain, &e)) fail_msg("%s: %s", name, e.msg);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        e = (err){ 0 };
        set_field(config, changes[i].field, changes[i].value, &text);
        write_config(dir, str_cstr(&text));
        bool opened = tape_of(dir, &changed, &e), named = strstr(e.msg, changes[i].field) != NULL;
        bool same = opened && strcmp(str_cstr(&plain), str_cstr(&changed)) == 0;
        bool worded = !opened && changes[i].word && strstr(e.msg, changes[i].word);
        bool missing = !opened && strstr(e.msg, "tensor ") != NULL; /* another layout was looked for */
        if (is_fine(changes[i].fine, name) || (opened && !same) || named || worded || missing) continue;
        print_message("%s with %s %s: %s\n", name, changes[i].field, changes[i].value, opened ? "ignored" : e.msg);
        wrong++;
    }
    str_deinit(&text);
    str_deinit(&plain);
    str_deinit(&changed);
    return wrong;
}

static void test_fields(void **state) {
    char           root[400], path[800], target[900], *dir = test_temp_dir();
    struct dirent *d;
    int            wrong = 0, models = 0;
    (void)state;
    snprintf(root, sizeof root, "%.300s/tests/golden/models", HEARTH_SOURCE_DIR);
    DIR *all = opendir(root);
    assert_non_null(all);
    while ((d = readdir(all))) {
        char  *config;
        size_t bytes;
        err    e;
        if (d->d_name[0] == '.' || strstr(d->d_name, "_mlx") || strstr(d->d_name, "mxfp4")) continue;
        snprintf(path, sizeof path, "%s/%.200s/config.json", root, d->d_name);
        assert_int_equal(file_read(&config, &bytes, path, 1 << 20, &e), 0);
        snprintf(path, sizeof path, "%s/%.200s/model.safetensors", root, d->d_name);
        snprintf(target, sizeof target, "%s/model.safetensors", dir);
        unlink(target);
        assert_int_equal(symlink(path, target), 0);
        wrong += check_model(dir, d->d_name, config);
        models++;
        free(config);
    }
    closedir(all);
    test_temp_dir_remove(dir);
    print_message("%d models, %zu fields\n", models, sizeof changes / sizeof *changes);
    assert_true(models > 80);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fields) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

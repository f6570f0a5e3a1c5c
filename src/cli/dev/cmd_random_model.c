/* SPDX-License-Identifier: Apache-2.0 */
/* hearth debug random-model: models of any shape for measurements. hearth debug gguf: a directory as a GGUF file. */
#include "cli/cli.h"
#include "convert/export.h"
#include "models/list.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SET = 96 };

typedef struct sets {
    nn_config_set at[MAX_SET];
    char          names[MAX_SET][64];
    size_t        n;
} sets;

static void put(sets *s, const char *key, size_t len, double value, bool fallback) {
    if (s->n == MAX_SET || len >= sizeof s->names[0]) return;
    memcpy(s->names[s->n], key, len);
    s->names[s->n][len] = '\0';
    s->at[s->n] = (nn_config_set){ s->names[s->n], value, fallback };
    s->n++;
}

static void put_option(sets *s, const cli_args *args, const char *option, const char *key) {
    long long v = cli_int(args, option, -1);
    if (v >= 0) put(s, key, strlen(key), (double)v, false);
}

/* "key=value,key=value" */
static bool put_text(sets *s, const char *text) {
    while (text && *text) {
        const char *equals = strchr(text, '=');
        char       *end;
        if (!equals) return false;
        double v = strtod(equals + 1, &end);
        if (end == equals + 1 || (*end && *end != ',')) return false;
        put(s, text, (size_t)(equals - text), v, false);
        text = *end ? end + 1 : end;
    }
    return true;
}

/* What a measurement rarely names. `required`: only where a family insists on the key, since another one would become
 * something else by it (a mixture of experts, a sliding model). */
static void put_fallbacks(sets *s, const cli_args *args, const char *arch) {
    double dim = (double)cli_int(args, "dim", 2048), part = (double)(long long)(dim / 64);
    double kv =
        (double)cli_int(args, "kv-heads", cli_int(args, "heads", (long long)part)); /* each has a choice of its own */
    bool experts = strstr(arch, "moe") || strcmp(arch, "qwen3next") == 0 || strcmp(arch, "qwen3_next") == 0;
    const struct {
        const char *key;
        double      value;
        bool        required;
    } rows[] = {
        { "block_count", 16, true },
        { "embedding_length", 2048, true },
        { "feed_forward_length", 4 * dim, false },
        { "attention.head_count", part >= 1 ? part : 1, true },
        { "attention.layer_norm_rms_epsilon", 1e-5, true },
        { "attention.sliding_window", 512, true },
        { "expert_count", 8, !experts },
        { "expert_used_count", 2, !experts },
        { "expert_gating_func", 2, true },
        { "expert_feed_forward_length", part * 32, !experts },
        { "expert_shared_feed_forward_length", part * 32, !experts },
        { "attention.kv_lora_rank", 512, true },
        { "attention.q_lora_rank", 1536, true },
        { "attention.indexer.head_count",
          strcmp(arch, "minimax-m3") == 0 ? kv
          : part >= 1                     ? part
                                          : 1,
          true },
        { "attention.indexer.key_length", 128, true },
        { "attention.indexer.top_k", 2048, true },
        { "attention.key_length_mla", 192, false },
        { "attention.value_length_mla", 128, false },
        { "rope.dimension_count", 64, true },
        { "attention.key_length_swa", 64, true },
        { "ssm.conv_kernel", 4, false },
        { "ssm.state_size", 128, false },
        { "ssm.inner_size", 2 * dim, false },
        { "ssm.time_step_rank", part >= 1 ? part : 1, false },
        { "ssm.group_count", 1, false },
        { "shortconv.l_cache", 3, false },
        { "kda.head_dim", 128, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        put(s, rows[i].key, strlen(rows[i].key), rows[i].value, rows[i].required);
}

static int run_random(const cli_args *args) {
    const char   *arch = cli_string(args, "arch", "llama"), *type = cli_string(args, "type", "Q4_K");
    sets         *s = calloc(1, sizeof *s);
    synth_options o = { .arch = nn_arch_find(models_list, arch),
                        .n_vocab = cli_int(args, "vocab", 32000),
                        .seed = (uint64_t)cli_int(args, "seed", 1),
                        .outliers = (double)cli_int(args, "outliers", 0),
                        .control = cli_string(args, "control", NULL),
                        .rank_form = cli_string(args, "rank", NULL),
                        .vectors = cli_string(args, "vectors", NULL),
                        .untied = cli_flag(args, "untied") };
    err           e = { 0 };
    int           rc;
    if (!s) return CLI_FAILED;
    rc = CLI_USAGE;
    if (!o.arch) {
        cli_usage_error(args, "--arch: unknown family '%s'", arch);
        goto done;
    }
    if (!tensor_type_parse(type, &o.type)) {
        cli_usage_error(args, "--type: unknown type '%s'", type);
        goto done;
    }
    if (!put_text(s, cli_string(args, "set", NULL))) {
        cli_usage_error(args, "--set: expected KEY=NUMBER,KEY=NUMBER");
        goto done;
    }
    put_option(s, args, "layers", "block_count");
    put_option(s, args, "dim", "embedding_length");
    put_option(s, args, "ff", "feed_forward_length");
    put_option(s, args, "heads", "attention.head_count");
    put_option(s, args, "kv-heads", "attention.head_count_kv");
    put_option(s, args, "head-dim", "attention.key_length");
    put_option(s, args, "context", "context_length");
    put_option(s, args, "experts", "expert_count");
    put_option(s, args, "experts-used", "expert_used_count");
    put(s, "vocab_size", strlen("vocab_size"), (double)o.n_vocab, false);
    put(s, "context_length", strlen("context_length"), 8192, false);
    put_fallbacks(s, args, arch);
    o.set = s->at;
    o.n_set = s->n;
    rc = synth_gguf(&o, cli_arg(args, 0), &e) < 0 ? cli_fail(args, &e) : CLI_OK;
done:
    free(s);
    return rc;
}

static const cli_option random_options[] = {
    { "arch", CLI_STRING, "NAME", "family, as GGUF or config.json call it (llama)", 0 },
    { "layers", CLI_INT, "N", "number of layers (16)", 0 },
    { "dim", CLI_INT, "N", "width of the hidden state (2048)", 0 },
    { "ff", CLI_INT, "N", "width of the feed-forward (4 times dim)", 0 },
    { "heads", CLI_INT, "N", "number of query heads (dim / 64)", 0 },
    { "kv-heads", CLI_INT, "N", "number of key heads (as many as query heads)", 0 },
    { "head-dim", CLI_INT, "N", "size of a head (dim / heads)", 0 },
    { "vocab", CLI_INT, "N", "number of tokens in the vocabulary (32000)", 0 },
    { "rank", CLI_STRING, "FORM", "make a ranking model whose prompts have this form", 0 },
    { "control", CLI_STRING, "TEXT,...", "texts of additional control tokens", 0 },
    { "context", CLI_INT, "N", "length of the longest sequence (8192)", 0 },
    { "experts", CLI_INT, "N", "number of experts, if the family has experts", 0 },
    { "experts-used", CLI_INT, "N", "number of experts per token", 0 },
    { "type", CLI_STRING, "TYPE", "type of the matrices (Q4_K)", 0 },
    { "set", CLI_STRING, "KEY=N,...", "any other hyper-parameters, by their GGUF keys", 0 },
    { "vectors", CLI_STRING, "NAME=N,...", "additional vectors of every layer", 0 },
    { "untied", CLI_FLAG, NULL, "give the head a matrix of its own", 0 },
    { "seed", CLI_INT, "N", "seed of the random weights (1)", 0 },
    { "outliers", CLI_INT, "F", "keys with two channels up to F times as large", 0 },
    { 0 },
};
const cli_command cli_cmd_debug_random_model = {
    "random-model",
    "[--arch NAME] [--layers N] ... OUT.gguf",
    "Write a model with random weights, for measurements.",
    random_options,
    1,
    1,
    run_random,
};

static int run_gguf(const cli_args *args) {
    model_file *file = NULL;
    nn_model   *model = NULL;
    err         e = { 0 };
    int         rc = model_file_open(&file, cli_arg(args, 0), &e);
    if (rc == 0) rc = nn_model_open(&model, file, models_list, NULL, &e);
    if (rc == 0) rc = export_gguf(model, cli_arg(args, 1), &e);
    nn_model_free(model);
    model_file_free(file);
    return rc < 0 ? cli_fail(args, &e) : CLI_OK;
}

static const cli_option gguf_options[] = { { 0 } };
const cli_command       cli_cmd_debug_gguf = {
          "gguf",
          "MODEL OUT.gguf",
          "Write a model's hyper-parameters and weights, without its tokenizer, as GGUF.",
          gguf_options,
          2,
          2,
          run_gguf,
};

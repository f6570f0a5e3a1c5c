/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A field of config.json that changes a model's arithmetic has a value that its family knows, or the model is refused
 * with a sentence that names the field. Each row is one edit of a reference model's config.json.
 */
#include "base/file.h"
#include "base/str.h"
#include "models/list.h"
#include "nn/model.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEBERTA "../encoders/deberta_v3"
#define ALBERT "../encoders/albert"

static const struct {
    const char *model, *old, *new, *field;
} edits[] = {
    { "deepseek_v2", "\"group_limited_greedy\"", "\"noaux_tc\"", "topk_method" },
    { "deepseek_v2", "\"softmax\"", "\"sigmoid\"", "scoring_func" },
    { "deepseek_v2", "\"norm_topk_prob\": false", "\"norm_topk_prob\": true", "norm_topk_prob" },
    { "deepseek_v2", "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2", "moe_layer_freq" },
    { "deepseek_v2", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "deepseek_v3", "\"noaux_tc\"", "\"greedy\"", "topk_method" },
    { "deepseek_v3", "\"sigmoid\"", "\"softmax\"", "scoring_func" },
    { "deepseek", "\"softmax\"", "\"sigmoid\"", "scoring_func" },
    { "olmoe", "\"silu\"", "\"relu\"", "hidden_act" },
    { "hunyuan_v1_moe", "\"use_qk_norm\": true", "\"use_qk_norm\": false", "use_qk_norm" },
    { "hunyuan_v1_moe", "\"moe_topk\": 2", "\"moe_topk\": [2, 1]", "moe_topk" },
    { "ernie4_5_moe", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "granitemoe", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "granitemoehybrid", "\"nope\"", "\"learned\"", "position_embedding_type" },
    { "granitemoehybrid", "\"rmsnorm\"", "\"layernorm\"", "normalization_function" },
    { "nemotron_h", "\"relu2\"", "\"silu\"", "mlp_hidden_act" },
    { "nemotron_h_moe", "\"mamba_hidden_act\": \"silu\"", "\"mamba_hidden_act\": \"gelu\"", "mamba_hidden_act" },
    { "nemotron_h", "M-M*-", "M-X*-", "layer 2" },
    { "afmoe", "\"score_func\": \"sigmoid\"", "\"score_func\": \"softmax\"", "score_func" },
    { "afmoe", "\"route_norm\": true", "\"route_norm\": false", "norm" },
    { "cohere2_moe", "\"average\"", "\"product\"", "shared_expert_combination_strategy" },
    { "cohere2_moe", "\"softmax\"", "\"sparsemax\"", "expert_selection_fn" },
    { "phimoe", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 1", "num_experts_per_tok" },
    { "falcon_h1", "\"mamba_norm_before_gate\": false", "\"mamba_norm_before_gate\": true", "mamba_norm_before_gate" },
    { "mamba", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "mamba2", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "jamba", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "gemma3n_text", "\"gelu_pytorch_tanh\"", "\"silu\"", "hidden_activation" },
    { "gemma3n_text", "\"altup_active_idx\": 0", "\"altup_active_idx\": 1", "streams" },
    { "dbrx", "\"moe_normalize_expert_weights\": 1.0", "\"moe_normalize_expert_weights\": 2.0",
      "moe_normalize_expert_weights" },
    { "dbrx", "\"name\": \"silu\"", "\"name\": \"gelu\"", "ffn_act_fn" },
    { "llama4_text", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "qwen2_moe", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "qwen2_moe", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "use_sliding_window" },
    { "glm4_moe", "\"noaux_tc\"", "\"greedy\"", "topk_method" },
    { "minimax_m2", "\"scoring_func\": \"sigmoid\"", "\"scoring_func\": \"softmax\"", "scoring_func" },
    { "minimax_m2", "\"use_routing_bias\": true", "\"use_routing_bias\": false", "use_routing_bias" },
    { "minimax_m2", "\"per_layer\"", "\"per_head\"", "qk_norm_type" },
    { "kimi_linear", "\"sigmoid\"", "\"softmax\"", "moe_router_activation_func" },
    { "qwen3_next", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "gpt_oss", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "olmo_hybrid", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "minimax", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "minimax", "\"full_attention\"", "\"sliding_attention\"", "layer_types" },
    { "olmo_hybrid", "\"full_attention\"", "\"sliding_attention\"", "layer_types" },
    { "qwen3_5_text", "\"full_attention\"", "\"sliding_attention\"", "layer_types" },
    { "lfm2_moe", "\"conv\"", "\"mamba\"", "layer_types" },
    { "granitemoehybrid", "\"mamba\"", "\"conv\"", "layer_types" },
    { "gpt_oss", "\"full_attention\"", "\"chunked_attention\"", "layer_types" },
    { "deepseek_v32_dense", "\"silu\"", "\"gelu\"", "hidden_act" },
    { "deepseek_v32_dense", "\"index_topk\": 512", "\"index_topk\": -1", "index_topk" },
    { "glm_moe_dsa_dense", "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2", "moe_layer_freq" },
    { "deepseek_v32", "\"index_topk\": 8", "\"index_topk\": 65537", "index_topk" },
    { "deepseek_v32", "\"index_head_dim\": 32", "\"index_head_dim\": 12", "index_head_dim" },
    { "deepseek_v32", "\"q_lora_rank\": 16", "\"q_lora_rank\": null", "q_lora_rank" },
    { "glm_moe_dsa", "\"full\",\n    \"shared\"", "\"shared\",\n    \"shared\"", "layer 0 shares" },
    { "glm_moe_dsa", "\"shared\"", "\"lent\"", "indexer_types" },
    { "glm_moe_dsa", "\"indexer_types\": [", "\"index_topk_pattern\": \"FXS\", \"other\": [", "index_topk_pattern" },
    { "glm_moe_dsa", "\"indexer_types\": [",
      "\"index_topk_freq\": 2, \"index_skip_topk_offset\": -2147483648, \"other\": [", "layer 0 shares" },
    { "minimax_m3_chosen", "\"sparse_local_block\": 1", "\"sparse_local_block\": 1, \"sparse_init_block\": 1",
      "sparse_init_block" },
    { "minimax_m3_chosen", "\"sparse_local_block\": 1", "\"sparse_local_block\": 1, \"sparse_score_type\": \"mean\"",
      "sparse_score_type" },
    { "minimax_m3_chosen", "\"sparse_local_block\": 1",
      "\"sparse_local_block\": 1, \"sparse_disable_index_value\": [0, 1, 0]", "sparse_disable_index_value" },
    { "minimax_m3_chosen", "\"sparse_local_block\": 1",
      "\"sparse_local_block\": 1, \"sparse_disable_index_value\": false", "sparse_disable_index_value" },
    { "minimax_m3_chosen", "\"sparse_num_index_heads\": 2", "\"sparse_num_index_heads\": 3", "an indexer of 3 heads" },
    { "minimax_m3_chosen", "\"sparse_local_block\": 1", "\"sparse_local_block\": 4", "local blocks" },
    { "step3p5", "\"moe_router_activation\": \"sigmoid\"", "\"moe_router_activation\": \"softmax\"",
      "moe_router_activation" },
    { "step3p5", "\"use_moe\": true", "\"use_moe\": true, \"sink\": true", "sink" },
    { "step3p5", "\"use_moe\": true", "\"use_moe\": true, \"use_rope_layers\": [false]", "use_rope_layers" },
    { "step3p5", "\"zero_centered\": true", "\"zero_centered\": false", "zero_centered" },
    { "step3p5", "\"norm_expert_weight\": true", "\"norm_expert_weight\": false", "norm_expert_weight" },
    { "step3p5", "\"attention_type\": \"sliding_attention\"", "\"attention_type\": \"full_attention\"",
      "attention_type" },
    { "step3p5", "    0.5,\n    1.0", "    0.5,\n    0.5", "partial_rotary_factors" },
    { "glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1e30", "cannot be rotary" },
    { "glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": -1e30", "cannot be rotary" },
    { "glm4", "\"vocab_size\": ", "\"vocab_size\": 900000000000000, \"other\": ", "vocabulary size" },
    { "gemma4_text", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1e300", "partial_rotary_factor" },
    { "apertus", "\"original_max_position_embeddings\": 8192", "\"original_max_position_embeddings\": 1e30",
      "original context" },
    { "minimax_m3", "\"qk_norm_type\": \"per_head\"", "\"qk_norm_type\": \"per_layer\"", "qk_norm_type" },
    { "minimax_m3", "\"use_gemma_norm\": true", "\"use_gemma_norm\": false", "use_gemma_norm" },
    { "minimax_m3", "\"sparse_block_size\": 16", "\"sparse_block_size\": 0", "blocks of 0 keys" },
    { "zamba2", "\"use_long_context\": false", "\"use_long_context\": true", "use_long_context" },
    { "zamba2", "\"time_step_min\": 0.001", "\"time_step_min\": 1e39", "time_step_min" },
    { "zamba2", "\"hybrid\"", "\"attention\"", "layers_block_type" },
    { "zamba2", "\"num_mem_blocks\": 1", "\"num_mem_blocks\": 0", "0 shared blocks" },
    { "nanbeige", "\"num_loops\": 2", "\"num_loops\": 0", "0 times" },
    { "nanbeige", "\"num_loops\": 2", "\"loop_share_kv\": true, \"num_loops\": 2", "loop_share_kv" },
    { "nemotron_nas", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 6", "block_configs" },
    { "nemotron_nas", "\"window_length\": null", "\"window_length\": 8", "a window" },
    { "nemotron_nas", "\"n_heads_in_group\": 3", "\"n_heads_in_group\": 2", "groups of 2" },
    { "nemotron_nas", "\"hidden_size\": 24", "\"hidden_size\": 16777216, \"head_dim\": 8", "ffn_mult" },
    { "nemotron_nas", "\"ffn_mult\": 1.0", "\"ffn_mult\": -1.0", "ffn_mult" },
    { "axk2", "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2", "moe_layer_freq" },
    { "axk2", "\"gated_norm_rank\": 4", "\"gated_norm_rank\": 0", "rank 0" },
    { "muse_glimmer", "\"layer_rope_theta\": [\n    20000.0", "\"layer_rope_theta\": [\n    30000.0",
      "layer_rope_theta" },
    { DEBERTA, "\"relative_attention\": true", "\"relative_attention\": false", "relative_attention" },
    { DEBERTA, "\"c2p\"", "\"p2p\"", "pos_att_type" },
    { DEBERTA, "\"layer_norm\"", "\"batch_norm\"", "norm_rel_ebd" },
    { DEBERTA, "\"position_buckets\": 16", "\"position_buckets\": 16, \"conv_kernel_size\": 3", "conv_kernel_size" },
    { DEBERTA, "\"position_buckets\": 16", "\"position_buckets\": 17", "rel_embeddings" },
    { DEBERTA, "\"position_buckets\": 16", "\"position_buckets\": 16, \"attention_head_size\": 4",
      "attention_head_size" },
    { DEBERTA, "\"max_relative_positions\": -1", "\"max_relative_positions\": 5", "rel_embeddings" },
    { DEBERTA, "\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "hidden size" },
    { DEBERTA, "\"num_attention_heads\": 4", "\"num_attention_heads\": 1000, \"head_dim\": 8", "hidden size" },
    { "../encoders/deberta_v1", "\"relative_attention\": true", "\"relative_attention\": true, \"talking_head\": true",
      "talking_head" },
    { "../encoders/xlm_roberta_xl", "\"is_decoder\": false", "\"is_decoder\": true", "is_decoder" },
    { "../encoders/xlm_roberta_xl", "\"pad_token_id\": 1", "\"pad_token_id\": 301", "padding token" },
    { "../encoders/xlm_roberta_xl", "\"pad_token_id\": 1", "\"pad_token_id\": 2147483647", "token 2147483647" },
    { "../encoders/xlm_roberta_xl", "\"pad_token_id\": 1", "\"pad_token_id\": 4294967297", "token 4294967297" },
    { "../encoders/roberta_rerank", "\"pad_token_id\": 1", "\"pad_token_id\": 2147483647", "token 2147483647" },
    { "../encoders/roberta_rerank", "\"pad_token_id\": 1", "\"pad_token_id\": 4294967297", "token 4294967297" },
    { ALBERT, "\"num_hidden_groups\": 1", "\"num_hidden_groups\": 3", "num_hidden_groups" },
    { ALBERT, "\"inner_group_num\": 1", "\"inner_group_num\": 2", "inner_group_num" },
    { ALBERT, "\"embedding_size\": 24", "\"embedding_size\": 0", "embedding_size" },
    { "../encoders/electra", "\"embedding_size\": 24", "\"embedding_size\": -1", "embedding_size" },
    { "../encoders/ernie", "\"task_type_vocab_size\": 3", "\"task_type_vocab_size\": 4", "task_type_embeddings" },
};

static int open_dir(const char *dir, err *e) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    int         rc = model_file_open(&f, dir, e);
    if (rc == 0) rc = nn_model_open(&m, f, models_list, NULL, e);
    nn_model_free(m);
    model_file_free(f);
    return rc;
}

static void write_config(const char *dir, const char *text) {
    char  path[600];
    FILE *f;
    snprintf(path, sizeof path, "%s/config.json", dir);
    f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void check_edit(const char *dir, size_t i) {
    char        path[800], link[600], *config;
    size_t      bytes;
    err         e = { 0 };
    str         text;
    const char *at;
    snprintf(path, sizeof path, "%.300s/tests/golden/models/%s/model.safetensors", HEARTH_SOURCE_DIR, edits[i].model);
    snprintf(link, sizeof link, "%s/model.safetensors", dir);
    unlink(link);
    assert_int_equal(symlink(path, link), 0);
    snprintf(path, sizeof path, "%.300s/tests/golden/models/%s/config.json", HEARTH_SOURCE_DIR, edits[i].model);
    assert_int_equal(file_read(&config, &bytes, path, 1 << 20, &e), 0);
    write_config(dir, config);
    if (open_dir(dir, &e) < 0) fail_msg("%s as it is: %s", edits[i].model, e.msg);
    at = strstr(config, edits[i].old);
    if (!at) fail_msg("%s: config.json has no %s", edits[i].model, edits[i].old);
    str_init(&text);
    str_append(&text, config, (size_t)(at - config));
    str_puts(&text, edits[i].new);
    str_puts(&text, at + strlen(edits[i].old));
    write_config(dir, str_cstr(&text));
    if (open_dir(dir, &e) == 0) fail_msg("%s opens with %s", edits[i].model, edits[i].new);
    if (!strstr(e.msg, edits[i].field)) fail_msg("%s with %s: \"%s\"", edits[i].model, edits[i].new, e.msg);
    str_deinit(&text);
    free(config);
}

static void test_unknown_values_are_refused(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) check_edit(dir, i);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_unknown_values_are_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

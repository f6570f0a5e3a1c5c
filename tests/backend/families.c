/* SPDX-License-Identifier: Apache-2.0 */
/* Every family of this build with random weights, op by op beside the reference. The models are written to a temporary
 * directory, since a family only becomes a model through a file. */
#include "backend/gen.h"
#include "backend/ops.h"
#include "backend/world.h"

#include "convert/export.h"
#include "models/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A small one of any family; `fallback`: only where a family insists on the key. */
static const nn_config_set shape[] = {
    { "vocab_size", 300, false },
    { "context_length", 512, false },
    { "block_count", 3, false },
    { "embedding_length", 64, false },
    { "feed_forward_length", 96, false },
    { "attention.head_count", 4, false },
    { "attention.head_count_kv", 2, false },
    { "attention.layer_norm_rms_epsilon", 1e-5, true },
    { "attention.sliding_window", 9, true },
    { "attention.kv_lora_rank", 64, true },
    { "attention.q_lora_rank", 48, true },
    { "attention.indexer.head_count", 2, true },
    { "attention.indexer.key_length", 32, true },
    { "attention.indexer.top_k", 4, true },
    { "attention.key_length_mla", 48, false },
    { "attention.value_length_mla", 32, false },
    { "attention.key_length_swa", 32, true },
    { "rope.dimension_count", 16, true },
    { "ssm.conv_kernel", 4, false },
    { "ssm.state_size", 32, false },
    { "ssm.inner_size", 128, false },
    { "ssm.time_step_rank", 4, false },
    { "ssm.group_count", 1, false },
    { "shortconv.l_cache", 3, false },
    { "kda.head_dim", 32, false },
    { "expert_gating_func", 2, true },
};
/* A family that has experts anyway; another one would become a mixture by these keys. */
static const nn_config_set experts[] = {
    { "expert_count", 6, false },
    { "expert_used_count", 2, false },
    { "expert_feed_forward_length", 32, false },
    { "expert_shared_feed_forward_length", 32, false },
};
enum { SHAPE = sizeof shape / sizeof shape[0], EXPERTS = sizeof experts / sizeof experts[0] };

static void check_family(suite *s, const nn_arch *arch, const char *path) {
    nn_config_set set[SHAPE + EXPERTS];
    const char   *name = arch->names[0];
    bool          moe = strstr(name, "moe") || strcmp(name, "qwen3next") == 0;
    model_file   *file = NULL;
    nn_model     *m = NULL;
    err           e = { 0 };
    memcpy(set, shape, sizeof shape);
    memcpy(set + SHAPE, experts, sizeof experts);
    for (int i = 0; i < EXPERTS; i++) set[SHAPE + i].fallback = !moe;
    synth_options o = { .arch = arch, .set = set, .n_set = SHAPE + EXPERTS, .type = TENSOR_Q8_0, .n_vocab = 300 };
    o.seed = suite_u64(s);
    int rc = synth_gguf(&o, path, &e);
    if (rc == 0) rc = model_file_open(&file, path, &e);
    if (rc == 0) rc = nn_model_open(&m, file, models_list, NULL, &e);
    if (FACT(s, rc == 0, "%s: %s", name, e.msg)) {
        long bad = s->n_failed;
        ops_check_model(s, m, NN_KV_F16, NN_KV_F16, 8);
        FACT(s, s->n_failed == bad, "that was %s", name);
    }
    nn_model_free(m);
    model_file_free(file);
}

void suite_families(suite *s) {
    const char *base = getenv("TMPDIR");
    char        dir[400], path[450];
    snprintf(dir, sizeof dir, "%s/hearth-backend-XXXXXX", base && *base ? base : "/tmp");
    if (!FACT(s, mkdtemp(dir) != NULL, "no temporary directory")) return;
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    for (int i = 0; i < s->rounds; i++) {
        for (const nn_arch *const *a = models_list; *a; a++) check_family(s, *a, path);
    }
    unlink(path);
    rmdir(dir);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/shape.h"

#include "convert/export.h"
#include "models/list.h"

int shape_1b(const char *path, err *e) {
    const nn_config_set set[] = { { "block_count", 16, false },
                                  { "embedding_length", 2048, false },
                                  { "feed_forward_length", 8192, false },
                                  { "attention.head_count", 32, false },
                                  { "attention.head_count_kv", 8, false },
                                  { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                  { "vocab_size", 128256, false } };
    synth_options       o = { .arch = nn_arch_find(models_list, "llama"),
                              .set = set,
                              .n_set = sizeof set / sizeof *set,
                              .type = TENSOR_Q4_K,
                              .n_vocab = 128256,
                              .seed = 1 };
    return synth_gguf(&o, path, e);
}

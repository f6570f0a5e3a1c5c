/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/muted.h"

enum { MOST = 4096 };

bool muted_at(const model_file *m, size_t i, int64_t *id) {
    const json_value *hf = json_get(model_file_generation_config(m), "suppress_tokens");
    const meta_value *gguf = model_file_meta(m, "tokenizer.ggml.suppress_tokens");
    return i < MOST && (json_int(json_at(hf, i), id) || meta_at_int(gguf, i, id));
}

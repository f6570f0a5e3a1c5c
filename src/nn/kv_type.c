/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/kv_type.h"

#include <strings.h>

static const char *const names[NN_KV_TYPE_COUNT] = {
    [NN_KV_F32] = "f32", [NN_KV_F16] = "f16", [NN_KV_BF16] = "bf16", [NN_KV_Q8_0] = "q8_0", [NN_KV_Q4_0] = "q4_0",
};

const char *nn_kv_type_name(nn_kv_type type) { return (unsigned)type < NN_KV_TYPE_COUNT ? names[type] : "?"; }

bool nn_kv_type_parse(const char *name, nn_kv_type *out) {
    for (int i = 0; i < NN_KV_TYPE_COUNT; i++) {
        if (strcasecmp(names[i], name) == 0) {
            *out = (nn_kv_type)i;
            return true;
        }
    }
    return false;
}

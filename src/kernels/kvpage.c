/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kvpage.h"

#include "base/num.h"

#include <string.h>

static const kv_type_info infos[KV_TYPE_COUNT] = {
    [KV_F32] = { 32, 0 }, [KV_F16] = { 16, 0 }, [KV_BF16] = { 16, 0 }, [KV_Q8_0] = { 8, 2 }, [KV_Q4_0] = { 4, 2 },
};

const kv_type_info *kv_type_get(int type) { return type >= 0 && type < KV_TYPE_COUNT ? &infos[type] : NULL; }

static size_t area_bytes(kv_type type, int tokens, int dim) {
    const kv_type_info *t = &infos[type];
    const size_t        values = (size_t)tokens * (size_t)dim * (size_t)t->value_bits / 8;
    const size_t        scales = (size_t)tokens * (size_t)kv_groups(dim) * (size_t)t->scale_bytes;
    return (values + scales + 63) / 64 * 64;
}

bool kv_layout_init(kv_layout *l, kv_type k_type, kv_type v_type, int tokens, int n_kv, int k_dim, int v_dim,
                    bool v_in_k) {
    memset(l, 0, sizeof *l);
    if (!kv_type_get((int)k_type) || !kv_type_get((int)v_type)) return false;
    if (tokens != 16 && tokens != 32 && tokens != 64 && tokens != 128) return false;
    if (n_kv < 1 || n_kv > 1 << 16) return false;
    if (k_dim < 8 || k_dim > KV_DIM_MAX || k_dim % 8 || v_dim < 8 || v_dim > KV_DIM_MAX || v_dim % 8) return false;
    if (v_in_k && v_dim > k_dim) return false;
    l->k_type = k_type;
    l->v_type = v_in_k ? k_type : v_type;
    l->tokens = tokens;
    l->n_kv = n_kv;
    l->k_dim = k_dim;
    l->v_dim = v_dim;
    l->v_in_k = v_in_k;
    l->k_bytes = area_bytes(k_type, tokens, k_dim);
    l->v_bytes = v_in_k ? 0 : area_bytes(v_type, tokens, v_dim);
    l->head_bytes = l->k_bytes + l->v_bytes;
    return num_mul_size((size_t)n_kv, l->head_bytes, &l->layer_bytes);
}

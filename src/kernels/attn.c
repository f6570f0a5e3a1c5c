/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attn.h"

size_t attn_scratch_bytes(const kv_layout *l, int n_head) {
    (void)n_head; /* a block never has more than ATTN_LANES lanes */
    const size_t k = (size_t)l->k_dim, v = (size_t)l->v_dim;
    const size_t rotated = l->k_block ? k : 0;
    const size_t scales = (size_t)kv_k_groups(l) + (1 + (size_t)ATTN_TILE_LANES) * (size_t)kv_v_groups(l);
    const size_t floats = (k + v + scales + 1) * ATTN_CHUNK + (size_t)ATTN_LANES * (ATTN_CHUNK + v + rotated);
    return (floats * sizeof(float) + 63) / 64 * 64;
}

void attn_row_range(const attn_args *a, int row, int64_t *lo, int64_t *hi) {
    const int64_t pos = a->pos[row];
    int64_t       end = a->row_end ? a->row_end[row] : a->causal ? pos + 1 : a->after ? pos + 1 + a->after : a->kv_len;
    if (end > a->kv_len) end = a->kv_len;
    if (a->until > 0 && end > a->until) end = a->until;
    if (end < 0) end = 0;
    int64_t begin = a->window > 0 ? pos - a->window + 1 : 0;
    if (a->chunk > 0 && pos - pos % a->chunk > begin) begin = pos - pos % a->chunk;
    if (a->row_begin && (!a->causal || a->row_begin[row] < begin)) begin = a->row_begin[row];
    if (begin < 0) begin = 0;
    *lo = begin < end ? begin : end;
    *hi = end;
}

void kernels_attn_list(const kernels_attn *t, kernels_visit *visit, void *ctx) {
#define X(fn, slot) KERNEL_VISIT(t, "attn", slot);
    KERNELS_ATTN_SLOTS(X)
#undef X
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of single rows over f16 pages by tensor cores: decode steps. The same values as attn_mma.cu, bit for bit,
 * with the work cut for speed of one row:
 *
 * A block takes one row of the batch, one key head, and one chunk of positions at a time. The query heads that share the
 * key head are the 16 rows of the tensor-core tiles. Each of four warps has the scores of 32 positions (the groups in
 * which probabilities are summed), then a quarter of the columns of the values over all positions; it loads its own keys
 * and its own columns of the values, so that warps meet only where probabilities are exchanged.
 *
 * Chunks are left as parts. The last block of a row and key head to finish folds them in order, where there are few; a
 * kernel of its own (attn.cu) does it for long contexts.
 */
#include "kernels/cuda/attn_one.cuh"

template <int D> static __global__ __launch_bounds__(ONE_THREADS, 4) void attn_one_kernel(const cuda_attn a) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ one_room                      m;
    launch_next();
    one_item<D>(a, smem, m, (int)blockIdx.x, [] { launch_wait(); });
}

bool cuda_attn_single(const cuda_attn *a) {
    return attn_mma_can(a) && !a->pages.step && a->dim_q != 96 && a->n_head / a->pages.n_kv <= 16;
}

bool cuda_attn_turns(const cuda_attn *a, const cuda_rope *r) {
    return cuda_attn_single(a) && r->offset == 0 && r->head_dim == a->dim_q &&
           (r->interleaved || 2 * r->n == a->dim_q);
}

template <int D> static int start(const cuda_attn *a, cuda_stream s, err *e) {
    const int64_t    blocks = (int64_t)a->batch.n_tok * a->pages.n_kv * a->chunks;
    const cuda_shape shape = { (unsigned)blocks, ONE_THREADS, 1, one_bytes<D>(), true };
    return cuda_launch(attn_one_kernel<D>, shape, s, e, *a);
}

int attn_one(const cuda_attn *a, bool *folded, cuda_stream s, err *e) {
    *folded = a->chunks <= FOLDED;
    if (attn_long_can(a)) return attn_long(a, s, e);
    return a->dim_q == 64 ? start<64>(a, s, e) : start<128>(a, s, e);
}

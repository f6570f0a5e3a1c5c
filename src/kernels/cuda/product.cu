/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel computes a product, and the sizes of its parts. */
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/unpack.cuh"

bool product_is_tiled(tensor_type type) {
    switch (type) {
#define TILED(type, T) case type:
        UNPACK_TILED(TILED)
#undef TILED
        return true;
    default: return false;
    }
}

static bool is_image(tensor_type type) { return type == TENSOR_F16 || type == TENSOR_BF16; }

bool cuda_can_multiply(tensor_type type) { return is_image(type) || product_is_tiled(type); }

product_shape product_shape_of(const cuda_weight *w) {
    product_shape p = {};
    p.rows = w->rows;
    p.cols = w->cols;
    p.rows_pad = cuda_round_up(w->rows, CUDA_TILE_ROWS);
    p.pitch = w->pitch ? w->pitch : p.rows_pad;
    p.slices = cuda_slices(w->cols);
    p.slice_cols = cuda_slice_cols(w->cols);
    switch (w->type) {
#define SIZES(type, T)                                                                                                 \
    case type:                                                                                                         \
        p.tile_cols = T::COLS, p.tile_bytes = T::BYTES;                                                                \
        p.scratch_bytes = T::SCRATCH, p.shared_bytes = T::SHARED, p.lean = T::LEAN;                                    \
        break;
        UNPACK_TILED(SIZES)
#undef SIZES
    default: p.tile_cols = unpack_f16::COLS, p.tile_bytes = unpack_f16::BYTES; break;
    }
    return p;
}

size_t cuda_packed_bytes(tensor_type type, int64_t rows, int64_t cols) {
    const cuda_weight   w = { type, rows, cols, NULL, 0 };
    const product_shape p = product_shape_of(&w);
    return (size_t)(p.rows_pad / CUDA_TILE_ROWS * ((cols + p.tile_cols - 1) / p.tile_cols) * p.tile_bytes);
}

size_t cuda_scratch_bytes(tensor_type type, int64_t rows, int64_t cols) {
    return is_image(type) ? 0 : cuda_packed_bytes(TENSOR_F16, rows, cols);
}

/* The fastest for n rows. */
static cuda_path path_of(const cuda_device *d, tensor_type type, int64_t n) {
    if (d->code != 90) return n <= (is_image(type) ? CUDA_FEW : CUDA_FEW_PACKED) ? CUDA_PATH_FEW : CUDA_PATH_MMA;
    return n <= CUDA_FEW ? CUDA_PATH_FEW : n <= CUDA_HELD && !is_image(type) ? CUDA_PATH_HELD : CUDA_PATH_WGMMA;
}

bool cuda_product_gates(const cuda_device *d, tensor_type type, int64_t n, int64_t cols) {
    if (n == 1) return product_few_gates(d, type, cols);
    return n <= CUDA_GATED && path_of(d, type, n) == CUDA_PATH_WGMMA;
}

int cuda_product(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e) {
    if (!cuda_can_multiply(a->w.type))
        return err_set(e, ERR_UNSUPPORTED, "CUDA: no product with weights of type %d", (int)a->w.type);
    if (a->x.cols != a->w.cols || a->x.bf16 != (a->w.type == TENSOR_BF16))
        return err_set(e, ERR_ARG, "CUDA: activations of %lld columns for weights of %lld", (long long)a->x.cols,
                       (long long)a->w.cols);
    if (a->x.n == 0) return 0;
    const cuda_path path = a->path == CUDA_PATH_AUTO ? path_of(d, a->w.type, a->x.n) : a->path;
    if (path == CUDA_PATH_FEW) return product_few(d, a, s, e);
    if (path == CUDA_PATH_HELD) return product_held(d, a, s, e);
    product_image w = { product_shape_of(&a->w), a->w.data, a->x.bf16 };
    if (!is_image(a->w.type)) {
        int rc = a->unpacked ? 0 : cuda_unpack(a->scratch, &a->w, s, e);
        if (rc != 0) return rc;
        w.image = a->scratch;
    }
    return path == CUDA_PATH_WGMMA ? product_many_wgmma(d, a, &w, s, e) : product_many_mma(d, a, &w, s, e);
}

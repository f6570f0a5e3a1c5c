/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel computes a product, and the sizes of its parts. */
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/unpack.cuh"

static const int64_t SLAB = CUDA_SLAB_ROWS;

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

size_t cuda_packed_at(tensor_type type, int64_t first, int64_t cols) {
    return is_image(type) ? (size_t)first * CUDA_ROW_BYTES : cuda_packed_bytes(type, first, cols);
}

size_t cuda_scratch_bytes(tensor_type type, int64_t rows, int64_t cols) {
    return is_image(type) ? 0 : cuda_packed_bytes(TENSOR_F16, rows < SLAB ? rows : SLAB, cols);
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

/* Many rows with 16-bit weights, which lie in `image`. */
static int product_many(const cuda_device *d, cuda_path path, const cuda_product_args *a, const void *image,
                        cuda_stream s, err *e) {
    const product_image w = { product_shape_of(&a->w), image, a->x.bf16 };
    return path == CUDA_PATH_WGMMA ? product_many_wgmma(d, a, &w, s, e) : product_many_mma(d, a, &w, s, e);
}

/* The same with quantized weights. What lies in front of a slab's first row is counted from there, so that the outputs of
 * joined matrices begin at a negative row. */
static int product_unpacked(const cuda_device *d, cuda_path path, const cuda_product_args *a, cuda_stream s, err *e) {
    int rc = 0;
    if (a->w.rows > SLAB && (a->glu || a->unpacked))
        return err_set(e, ERR_ARG, "CUDA: %lld weight rows are not unpacked at once", (long long)a->w.rows);
    for (int64_t row = 0; row < a->w.rows && rc == 0; row += SLAB) {
        cuda_product_args slab = *a;
        slab.w.data = (const uint8_t *)a->w.data + cuda_packed_at(a->w.type, row, a->w.cols);
        if (slab.w.rows > row + SLAB) slab.w.rows = row + SLAB;
        slab.w.rows -= row;
        slab.out += row;
        if (slab.bias) slab.bias += row;
        for (int i = 0; i < slab.n_more; i++) slab.more[i].first -= row;
        rc = a->unpacked ? 0 : cuda_unpack(a->scratch, &slab.w, s, e);
        if (rc == 0) rc = product_many(d, path, &slab, a->scratch, s, e);
    }
    return rc;
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
    return is_image(a->w.type) ? product_many(d, path, a, a->w.data, s, e) : product_unpacked(d, path, a, s, e);
}

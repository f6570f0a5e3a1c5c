/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a product share on the launching side. */
#ifndef KERNELS_CUDA_INTERNAL_CUH
#define KERNELS_CUDA_INTERNAL_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/product.h"

struct product_shape {
    int64_t rows, cols, rows_pad;                 /* rows_pad: a multiple of 16 */
    int64_t tile_cols, tile_bytes, scratch_bytes; /* scratch: of a warp that unpacks a tile */
    int     slices;
    int64_t slice_cols;
};

/* The end of every product: what happens to the sum of the slices. */
struct product_end {
    const float *bias;
    float        w_scale;
    bool         add;

    __device__ inline float value(float sum, float scale, int row, const float *old) const {
        float v = sum * scale * w_scale;
        if (bias) v += bias[row];
        return add ? *old + v : v;
    }
};

static inline product_end product_end_of(const cuda_product_args *a) {
    return { a->bias, a->w_scale != 0 ? a->w_scale : 1.0f, a->add };
}

static inline int log2_of(int n) { return n >= 8 ? 3 : n >= 4 ? 2 : n >= 2 ? 1 : 0; }

product_shape product_shape_of(const cuda_weight *w);

/* The kernels over images: weights from `image`, rows and slices of p. */
struct product_image {
    product_shape p;
    const void   *image;
    bool          bf16;
};

int product_few(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e);
int product_many_mma(const cuda_device *d, const cuda_product_args *a, const product_image *w, cuda_stream s, err *e);
int product_many_wgmma(const cuda_device *d, const cuda_product_args *a, const product_image *w, cuda_stream s, err *e);

#endif

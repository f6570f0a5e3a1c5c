/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a product share on the launching side. */
#ifndef KERNELS_CUDA_INTERNAL_CUH
#define KERNELS_CUDA_INTERNAL_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/product.h"

struct product_shape {
    int64_t rows, cols, rows_pad;                 /* rows_pad: a multiple of 16 */
    int64_t pitch;                                /* rows of the image */
    int64_t tile_cols, tile_bytes, scratch_bytes; /* scratch: of a warp that unpacks a tile */
    int64_t shared_bytes;                         /* what a block that unpacks has beside it */
    bool    lean;                                 /* unpack.cuh */
    int     slices;
    int64_t slice_cols;
};

/* The end of every product: what happens to the sum of the slices, and where it goes. */
struct product_end {
    float       *out[1 + CUDA_MORE];
    int64_t      stride[1 + CUDA_MORE];
    const float *bias[1 + CUDA_MORE];
    int          first[1 + CUDA_MORE]; /* weight row; beyond all rows where there is no such part */
    float        w_scale[1 + CUDA_MORE];
    bool         add;

    __device__ inline int    part(int row) const { return (row >= first[1]) + (row >= first[2]); }
    __device__ inline float *at(int64_t x_row, int row) const {
        const int p = part(row);
        return (p == 0   ? out[0]
                : p == 1 ? out[1]
                         : out[2]) +
               x_row * (p == 0   ? stride[0]
                        : p == 1 ? stride[1]
                                 : stride[2]) +
               (row - (p == 0   ? 0
                       : p == 1 ? first[1]
                                : first[2]));
    }
    __device__ inline float value(float sum, float scale, int row, const float *old) const {
        const int    p = part(row);
        const float *b = p == 0 ? bias[0] : p == 1 ? bias[1] : bias[2];
        float        v = sum * scale * (p == 0 ? w_scale[0] : p == 1 ? w_scale[1] : w_scale[2]);
        if (b) v += b[row - (p == 0 ? 0 : p == 1 ? first[1] : first[2])];
        return add ? *old + v : v;
    }
};

/* The same for many values of one weight row. */
struct product_line {
    float   *out; /* of activation row 0 */
    int64_t  stride;
    float    w_scale, bias;
    bool     biased, add;

    __device__ inline product_line(const product_end &e, int row) {
        const int    p = e.part(row);
        const float *b = p == 0 ? e.bias[0] : p == 1 ? e.bias[1] : e.bias[2];
        out = e.at(0, row);
        stride = p == 0 ? e.stride[0] : p == 1 ? e.stride[1] : e.stride[2];
        biased = b != NULL;
        bias = b ? b[row - (p == 0 ? 0 : p == 1 ? e.first[1] : e.first[2])] : 0.0f;
        w_scale = p == 0 ? e.w_scale[0] : p == 1 ? e.w_scale[1] : e.w_scale[2], add = e.add;
    }
    __device__ inline void put(int64_t x_row, float sum, float scale) const {
        float *to = out + x_row * stride, v = sum * scale * w_scale;
        if (biased) v += bias;
        *to = add ? *to + v : v;
    }
};

static inline product_end product_end_of(const cuda_product_args *a) {
    product_end p = {};
    p.out[0] = a->out, p.stride[0] = a->out_stride, p.bias[0] = a->bias;
    p.w_scale[0] = a->w_scale != 0 ? a->w_scale : 1.0f;
    p.add = a->add;
    for (int i = 0; i < CUDA_MORE; i++) {
        const bool there = i < a->n_more;
        p.first[1 + i] = there ? (int)a->more[i].first : INT32_MAX;
        p.out[1 + i] = there ? a->more[i].out : NULL;
        p.stride[1 + i] = there ? a->more[i].out_stride : 0;
        p.bias[1 + i] = there ? a->more[i].bias : NULL;
        p.w_scale[1 + i] = there && a->more[i].w_scale != 0 ? a->more[i].w_scale : 1.0f;
    }
    return p;
}

static inline int log2_of(int n) { return n >= 8 ? 3 : n >= 4 ? 2 : n >= 2 ? 1 : 0; }

product_shape product_shape_of(const cuda_weight *w);
bool          product_is_tiled(tensor_type type); /* it is unpacked, unlike F16 and BF16 (UNPACK_TILED) */

/* The kernels over images: weights from `image`, rows and slices of p. */
struct product_image {
    product_shape p;
    const void   *image;
    bool          bf16;
};

bool product_few_gates(const cuda_device *d, tensor_type type, int64_t cols); /* for one row */

int product_few(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e);
int product_held(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e);
int product_many_mma(const cuda_device *d, const cuda_product_args *a, const product_image *w, cuda_stream s, err *e);
int product_many_wgmma(const cuda_device *d, const cuda_product_args *a, const product_image *w, cuda_stream s, err *e);

#endif

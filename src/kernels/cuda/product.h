/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out = x * W^T on a CUDA device, for any number of activation rows, one definition:
 *
 *     x16, e  activations of a row to 16 bits: f16 after division by 2^e (layout.h), or bf16 with e = 0 (BF16 weights)
 *     w16     the weight's one 16-bit value (unpack.cuh)
 *     slice   for each slice of K (layout.h): a chain of k16 tensor-core steps from zero in the order of K
 *     out     ((0 + slice 0) + slice 1) + ... in f32, times 2^e, times w_scale; + bias, + the old out where asked for
 *
 * Row count, tile shapes and the place of a row decide which kernel and which block computes a value, never its bits:
 * few rows by mma.sync with weights unpacked in registers (few.cu), some by wgmma with weights unpacked in registers
 * (held.cu), more by wgmma on 9.0 (many_wgmma.cu) or mma.sync (many_mma.cu) over unpacked 16-bit weights. That mma.sync and wgmma add alike is a property of the chip that
 * tests/cuda checks; where it does not hold, the caller asks for CUDA_PATH_MMA and mma.sync serves all row counts.
 *
 * Nothing here allocates or waits. Pointers are device pointers, aligned to 16 bytes (out: 4).
 */
#ifndef KERNELS_CUDA_PRODUCT_H
#define KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/device.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "tensor/types.h"

enum {
    CUDA_FEW = 16,        /* rows that few.cu takes at a time */
    CUDA_FEW_PACKED = 48, /* rows up to which that is faster, several times over, than unpacking quantized weights */
    CUDA_GATED = 128, /* rows up to which a product does the gated unit; with more its end is slower than that kernel */
    CUDA_HELD = 256,  /* rows of quantized weights up to which held.cu is faster than unpacking (9.0) */
    /* Weight rows that are unpacked, or loaded, at a time: the image of a whole head would take gigabytes. A multiple of
     * CUDA_TILE_ROWS. */
    CUDA_SLAB_ROWS = 32768,
};

typedef enum cuda_act {
    CUDA_ACT_NONE,
    CUDA_ACT_SILU,
    CUDA_ACT_GELU,
    CUDA_ACT_GELU_TANH,
    CUDA_ACT_RELU,
    CUDA_ACT_RELU2,
    CUDA_ACT_SIGMOID,
    CUDA_ACT_SOFTPLUS,
    CUDA_ACT_TANH,
} cuda_act;

/* A packed weight matrix. A 16-bit one may be rows of a larger image, from a multiple of 16 on: data is that of its first
 * row, pitch the image's rows. */
typedef struct cuda_weight {
    tensor_type type;
    int64_t     rows, cols;
    const void *data;
    int64_t     pitch; /* 0: its own rows */
} cuda_weight;

/* Activation rows in 16 bits: an image (layout.h) of n_pad rows, and 2^e for each row. */
typedef struct cuda_rows {
    bool         bf16;
    int64_t      n, n_pad, cols; /* n_pad: a multiple of 8 */
    const void  *data;
    const float *scale; /* n values */
} cuda_rows;

typedef enum cuda_path {
    CUDA_PATH_AUTO,
    CUDA_PATH_FEW,   /* up to CUDA_FEW rows at a time, weights read once for each */
    CUDA_PATH_MMA,   /* any number of rows; needs scratch for types that are not 16-bit */
    CUDA_PATH_WGMMA, /* the same, 9.0 only */
    CUDA_PATH_HELD,  /* quantized weights unpacked in registers, any number of rows, 9.0 only */
} cuda_path;

/* How few.cu cuts its work; zeros: it decides. For measurements: no value changes a bit of the result. */
typedef struct cuda_few_plan {
    int cluster; /* blocks that share a row tile: 1, 2, 4, 8 */
    int stages;  /* ring places per warp: 2..5 */
    int tile;    /* row tiles that a warp takes at once: 1, 2 */
    int pace; /* KiB under way at a time on a multiprocessor while one row is on its way; -1: a few places of each warp at once */
} cuda_few_plan;

/* Weight rows from `first` on (a multiple of 16) have an output of their own: matrices packed one behind the other. */
typedef struct cuda_more {
    int64_t      first;
    float       *out;
    int64_t      out_stride;
    const float *bias;
    float        w_scale; /* 0: 1 */
} cuda_more;
enum { CUDA_MORE = 2 };

/* The RMS norm of a row in front of its product. */
typedef struct cuda_row_norm {
    float       *out; /* NULL: none. The normed row in f32 */
    const float *w;   /* NULL: none */
    float        eps;
} cuda_row_norm;
/* Columns of a row that a product can take in f32, a multiple of 8: normed, as it is. */
enum { CUDA_NORM_FUSED = 8192, CUDA_ROW_FUSED = 16384 };

/* Bytes that a later kernel reads and that are asked for here, so that it finds them in the cache. A multiple of 16. */
typedef struct cuda_ahead {
    const void *from;
    uint32_t    bytes;
} cuda_ahead;

typedef struct cuda_product_args {
    cuda_weight   w;
    cuda_rows     x;
    float        *out;
    int64_t       out_stride; /* floats from row to row */
    void         *scratch;    /* cuda_scratch_bytes, where there are more rows than CUDA_FEW */
    cuda_path     path;
    cuda_few_plan plan;
    bool          early;    /* begin loading weights before the kernel in front has ended; it must not write them */
    bool          unpacked; /* scratch already holds this matrix, which has no more than CUDA_SLAB_ROWS */
    float         w_scale;  /* a power of two that the weights were divided by; 0: 1 */
    const float  *bias;     /* one per weight row; NULL: none */
    bool          add;      /* to what out holds */
    cuda_more     more[CUDA_MORE];
    int           n_more;
    const float  *row; /* not NULL: x.n is 1, x has no data; the row is brought to 16 bits on the way */
    cuda_row_norm norm;
    /* out becomes act(out) * more[0].out, whose matrix has as many rows, a multiple of 16; without biases and `add` where
     * there is more than one row: cuda_product_gates says where it can; more[0].out is left alone then. */
    bool       glu;
    cuda_act   act;
    cuda_ahead ahead;
    size_t     beside; /* shared memory that a block of the next kernel finds beside one of this, if it starts early */
} cuda_product_args;

bool   cuda_can_multiply(tensor_type type);
bool   cuda_product_gates(const cuda_device *d, tensor_type type, int64_t n, int64_t cols);
size_t cuda_packed_bytes(tensor_type type, int64_t rows, int64_t cols);
size_t cuda_scratch_bytes(tensor_type type, int64_t rows, int64_t cols); /* 0 for 16-bit types */
/* Where row `first` of a packed matrix (a multiple of CUDA_TILE_ROWS) begins. */
size_t cuda_packed_at(tensor_type type, int64_t first, int64_t cols);

/* From file layout (on the device, rows of row_bytes) to packed, divided by two to a power that w_scale brings back.
 * Refuses by name what cannot be multiplied. */
int cuda_pack(void *to, const void *from, size_t row_bytes, tensor_type type, int64_t rows, int64_t cols, int power,
              cuda_stream s, err *e);

/* The same for a 16-bit matrix that becomes rows of an image of `pitch` rows. */
int cuda_pack_part(void *to, const void *from, size_t row_bytes, tensor_type type, int64_t rows, int64_t cols,
                   int64_t pitch, cuda_stream s, err *e);

/* *top becomes the largest of n quantized blocks where that is more; cuda_pack_power (layout.h) makes a power of it. */
int cuda_pack_top(uint32_t *top, const void *blocks, tensor_type type, int64_t n, cuda_stream s, err *e);

/* n bf16 numbers: *top becomes the largest magnitude's bits where that is more (halves.cu); turned into f16 in place,
 * times a power of two. */
int cuda_bf16_top(uint32_t *top, const void *x, int64_t n, cuda_stream s, err *e);
int cuda_bf16_turn(void *x, int64_t n, float factor, cuda_stream s, err *e);

/* Packed weights to an image in scratch. */
int cuda_unpack(void *to, const cuda_weight *w, cuda_stream s, err *e);

/* Bytes of the image of n rows, and its n_pad. */
static inline int64_t cuda_rows_pad(int64_t n) { return (n + 7) / 8 * 8; }
size_t                cuda_rows_bytes(int64_t n, int64_t cols);

/* Float rows (stride in floats) to 16 bits. `r` has its sizes and pointers filled in; the pointers are written. */
int cuda_rows_make(const cuda_rows *r, const float *x, int64_t x_stride, cuda_stream s, err *e);

int cuda_product(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e);

#ifdef __cplusplus
}
#endif
#endif

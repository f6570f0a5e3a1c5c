/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product of kernels/cuda/product.h in plain C, bit for bit, and the arithmetic it stands on.
 *
 * A tensor core adds a group of products and the accumulator in one step: exact products and the accumulator are cut
 * (towards zero) to `fraction` bits below the largest exponent among them, added exactly, and the sum is cut to a
 * float. A product's exponent is the sum of its factors' exponents, also where the product of the mantissas reaches 2.
 * Zeros take no part. Order inside a group does not matter. That holds for finite values; with an infinity or a NaN
 * only the fact counts, not its bits.
 */
#ifndef KERNELS_CUDA_TWIN_H
#define KERNELS_CUDA_TWIN_H

#include "tensor/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a chip adds. */
typedef struct cuda_twin_chip {
    int group;    /* products added at once: 16, or 8 where a k16 instruction is two halves */
    int fraction; /* bits kept below the largest exponent */
} cuda_twin_chip;

extern const cuda_twin_chip cuda_twin_hopper; /* 9.0 */
extern const cuda_twin_chip cuda_twin_ampere; /* 8.0, 8.6, 8.9 */

/* acc + sum of a[i] * b[i], n a multiple of 16, as a chain of k16 instructions; bf16 or f16 bits. */
float cuda_twin_chain(cuda_twin_chip chip, bool bf16, const uint16_t *a, const uint16_t *b, int64_t n, float acc);

/* The 16-bit value of each of the n weights of a row in file layout, which are divided by 2^power; false for a type the
 * device does not multiply. */
bool cuda_twin_weights(tensor_type type, const void *row, int64_t n, int power, uint16_t *out);

/* The power that a matrix of n blocks is divided by. */
int cuda_twin_power(tensor_type type, const void *blocks, int64_t n, size_t bytes);

/* Activations of one row to 16 bits: x = out * 2^return value, rounded to nearest. */
int cuda_twin_row(bool bf16, const float *x, int64_t n, uint16_t *out);

/* One output value from 16-bit weights and activations: slices, chains, scale. Both padded with zeros to 16 columns. */
float cuda_twin_product(cuda_twin_chip chip, bool bf16, const uint16_t *w, const uint16_t *x, int64_t cols,
                        int x_exponent);

#endif

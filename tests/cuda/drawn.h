/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights for the checkers of the CUDA kernels, of every type that the device multiplies or recodes. */
#ifndef TESTS_CUDA_DRAWN_H
#define TESTS_CUDA_DRAWN_H

#include "kernels/check.h"
#include "tensor/mat.h"

/* A matrix as a file has it: valid blocks with random bits and scales of all sizes, or quantized normals. False: the type
 * has no such matrix. drawn_free frees it. */
bool drawn_open(check *c, tensor_mat *m, int type, int64_t rows, int64_t cols);
void drawn_free(tensor_mat *m);

/* Of what a recoded type is made: a random one of its file types. Others: themselves. */
int drawn_source(check *c, tensor_type type);

const char *drawn_name(tensor_type type); /* recoded types have names here */

/* A matrix as cuda_pack takes it, rows of cuda_row_bytes one behind the other. */
uint8_t *drawn_staged(check *c, tensor_type type, int64_t rows, int64_t cols);

#endif

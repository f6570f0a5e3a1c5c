/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/recode.h"

#include "kernels/cpu/matmul_panel.h"
#include "kernels/cuda/layout.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"

#include <assert.h>
#include <math.h>

enum { TABLE_COLS = 256, PAIR_COLS = 32, FLOAT8_COLS = 32 };

/* FP8: by how many columns have the same scale. */
static tensor_type float8_type(const tensor_mat *m) {
    const bool whole = !m->scales || m->group >= m->cols;
    if (!whole && m->group % FLOAT8_COLS) return TENSOR_F16;
    if (m->type == TENSOR_F8_E5M2) return TENSOR_E5M2_32;
    return whole || m->group % 128 == 0 ? TENSOR_E4M3_128 : TENSOR_E4M3_32;
}

/* MLX affine and its like: by the bits, and by how many columns have the same scale. */
static tensor_type pair_type(const tensor_mat *m, int largest) {
    if (largest <= 7 && m->group % 64 == 0) return largest <= 3 ? TENSOR_PAIR2 : TENSOR_PAIR3;
    return largest <= 15 ? TENSOR_PAIR4 : largest <= 31 ? TENSOR_PAIR5 : TENSOR_PAIR8;
}

tensor_type cuda_recode_type(const tensor_mat *m) {
    const matmul_form f = matmul_form_of((int)m->type);
    if (m->type == TENSOR_F8_E4M3 || m->type == TENSOR_F8_E5M2) return float8_type(m);
    if (m->type == TENSOR_MLX_MXFP8) return TENSOR_E4M3_32;
    if (m->type == TENSOR_NF4) return m->group % 64 ? TENSOR_F16 : TENSOR_NF4_64;
    if (f.kind != MATMUL_ACT8) return TENSOR_F16;
    switch (f.form) {
    case MATMUL_ZERO16: return m->type == TENSOR_Q6_K || m->type == TENSOR_Q3_K ? TENSOR_F16 : TENSOR_TABLE16;
    case MATMUL_MIN32: return pair_type(m, f.largest);
    case MATMUL_ZERO32: break;
    default: return TENSOR_F16;
    }
    switch (m->type) {
    case TENSOR_TQ1_0:
    case TENSOR_TQ2_0:
    case TENSOR_Q1_0:
    case TENSOR_Q2_0: return TENSOR_PAIR2;
    case TENSOR_MLX_MXFP4: return TENSOR_MXFP4;
    case TENSOR_Q5_0: return TENSOR_PAIR5;
    case TENSOR_Q8_0:
    case TENSOR_Q8_K: return TENSOR_PAIR8;
    default: return TENSOR_TABLE32;
    }
}

static bool is_table(tensor_type type) { return type == TENSOR_TABLE32 || type == TENSOR_TABLE16; }
static bool is_pair(tensor_type type) { return type >= TENSOR_PAIR2 && type <= TENSOR_PAIR8; }

static bool is_float8(tensor_type type) {
    return type == TENSOR_E4M3_128 || type == TENSOR_E4M3_32 || type == TENSOR_E5M2_32;
}

int cuda_block_bytes(tensor_type type) {
    return is_table(type)          ? (int)sizeof(cuda_table_block)
           : is_pair(type)         ? (int)sizeof(cuda_pair_block)
           : is_float8(type)       ? (int)sizeof(cuda_float8_block)
           : type == TENSOR_NF4_64 ? (int)sizeof(cuda_nf4_block)
                                   : tensor_type_get((int)type)->block_bytes;
}

size_t cuda_row_bytes(tensor_type type, int64_t cols) {
    size_t bytes = 0;
    if (is_table(type)) return (size_t)((cols + TABLE_COLS - 1) / TABLE_COLS) * sizeof(cuda_table_block);
    if (is_pair(type)) return (size_t)((cols + PAIR_COLS - 1) / PAIR_COLS) * sizeof(cuda_pair_block);
    if (is_float8(type)) return (size_t)((cols + FLOAT8_COLS - 1) / FLOAT8_COLS) * sizeof(cuda_float8_block);
    if (type == TENSOR_NF4_64) return (size_t)((cols + TABLE_COLS - 1) / TABLE_COLS) * sizeof(cuda_nf4_block);
    (void)tensor_row_bytes((int)type, cols, &bytes);
    return bytes;
}

/* Up to 256 columns of up to 16 rows: integers, and scales and minima of each 16 or 32 columns. */
typedef struct piece {
    int     rows, cols, group, zero;
    uint8_t q[CUDA_TILE_ROWS][TABLE_COLS];
    float   scale[CUDA_TILE_ROWS][TABLE_COLS / 16], min[CUDA_TILE_ROWS][TABLE_COLS / 16];
} piece;

/* One row from column k0 on, of blocks. */
static void read_blocks(const tensor_mat *m, int64_t row, int64_t k0, int n, int group, uint8_t *q, float *scale,
                        float *min) {
    const tensor_type_info *t = tensor_type_get((int)m->type);
    matmul_unblock_fn      *unblock = matmul_unblock((int)m->type);
    const uint8_t          *b =
        (const uint8_t *)m->data + (size_t)row * m->row_bytes + (size_t)(k0 / t->block_elems) * t->block_bytes;
    for (int k = 0; k < n; k += t->block_elems, b += t->block_bytes)
        unblock(b, q + k, scale + k / group, min + k / group);
    if (!m->scales) return;
    const float whole = tensor_mat_scale(m, 0, row, 0);
    for (int g = 0; g < n / group; g++) scale[g] *= whole;
}

/* The same of a stream of bits with scales of their own array. */
static void read_stream(const tensor_mat *m, int64_t row, int64_t k0, int n, int group, uint8_t *q, float *scale,
                        float *min) {
    const bool     affine = m->type <= TENSOR_MLX_AFF8;
    const uint8_t *stream = (const uint8_t *)m->data + (size_t)row * m->row_bytes;
    if (m->type == TENSOR_MLX_AFF8) {
        memcpy(q, stream + k0, (size_t)n);
    } else if (m->type == TENSOR_MLX_AFF4) { /* the one that there is most of */
        for (int i = 0; i < n; i += 2) {
            const uint8_t two = stream[(k0 + i) / 2];
            q[i] = two & 15, q[i + 1] = two >> 4;
        }
    } else {
        for (int i = 0; i < n; i++) {
            const unsigned v = tensor_packed_get((int)m->type, stream, k0 + i);
            q[i] = (uint8_t)(affine ? (int)v : tensor_e2m1_doubled[v] + 12);
        }
    }
    for (int k = 0; k < n; k += group) {
        const float s = tensor_mat_scale(m, 0, row, (k0 + k) / m->group);
        scale[k / group] = affine ? s : 0.5f * s;
        min[k / group] = affine ? tensor_mat_bias(m, 0, row, (k0 + k) / m->group) : 0;
    }
}

static void read_piece(const tensor_mat *m, int64_t row, int64_t k0, piece *p) {
    const bool stream = m->type > TENSOR_GGML_END;
    for (int r = 0; r < p->rows; r++)
        (stream ? read_stream : read_blocks)(m, row + r, k0, p->cols, p->group, p->q[r], p->scale[r], p->min[r]);
}

/* One block of each row, at out + row * stride. The types have no more than 16 different integers. */
static void put_tables(const piece *p, uint8_t *out, size_t stride) {
    uint8_t code[256], values[16] = { 0 };
    bool    seen[256] = { false };
    int     n_values = 0;
    for (int r = 0; r < p->rows; r++) {
        for (int i = 0; i < p->cols; i++) seen[p->q[r][i]] = true;
    }
    for (int v = 0; v < 256; v++) {
        if (!seen[v]) continue;
        assert(n_values < 16);
        code[v] = (uint8_t)n_values;
        values[n_values++] = (uint8_t)(v - p->zero + 128);
    }
    for (int r = 0; r < p->rows; r++) {
        cuda_table_block b = { .scale = { 0 } };
        const uint8_t   *q = p->q[r];
        memcpy(b.values, values, sizeof values);
        for (int i = 0; i < p->cols; i += 16) b.scale[i / 16] = p->scale[r][i / p->group];
        for (int i = 0; i < p->cols; i += 2) b.codes[i / 2] = (uint8_t)(code[q[i]] | code[q[i + 1]] << 4);
        memcpy(out + (size_t)r * stride, &b, sizeof b);
    }
}

/* All blocks of 32 columns of each row. */
static void put_pairs(const piece *p, bool min, uint8_t *out, size_t stride) {
    for (int r = 0; r < p->rows; r++) {
        for (int g = 0; g < p->cols / PAIR_COLS; g++) {
            const float     scale = p->scale[r][g];
            cuda_pair_block b = { scale, min ? p->min[r][g] : -(float)p->zero * scale, { 0 } };
            memcpy(b.q, p->q[r] + g * PAIR_COLS, sizeof b.q);
            memcpy(out + (size_t)r * stride + (size_t)g * sizeof b, &b, sizeof b);
        }
    }
}

/* The integers are twice the e2m1 numbers, the scale is half of a power of two; one that is none (a NaN) becomes the
 * largest. */
static void put_mxfp4(const piece *p, uint8_t *out, size_t stride) {
    for (int r = 0; r < p->rows; r++) {
        for (int g = 0; g < p->cols / 32; g++) {
            const uint8_t *q = p->q[r] + g * 32;
            const float    scale = p->scale[r][g];
            block_mxfp4    b = { .e = (uint8_t)(isfinite(scale) && scale > 0 ? ilogbf(scale) + 128 : 255) };
            for (int i = 0; i < 16; i++) {
                const float low = 0.5f * (float)(q[i] - p->zero), high = 0.5f * (float)(q[i + 16] - p->zero);
                b.qs[i] = (uint8_t)(tensor_f32_to_e2m1(low) | tensor_f32_to_e2m1(high) << 4);
            }
            memcpy(out + (size_t)r * stride + (size_t)g * sizeof b, &b, sizeof b);
        }
    }
}

static bool has_nan(const uint8_t *e4m3, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if ((e4m3[i] & 0x7f) == 0x7f) return true;
    }
    return false;
}

/* A row of FP8. Columns that share a scale on the device have the same one here. */
static void put_float8(const tensor_mat *m, tensor_type to, int64_t row, uint8_t *out) {
    const uint8_t *q = (const uint8_t *)m->data + (size_t)row * m->row_bytes;
    const int64_t  each = to == TENSOR_E4M3_128 ? 128 : FLOAT8_COLS;
    for (int64_t k = 0; k < m->cols; k += each) {
        const int64_t n = m->cols - k < each ? m->cols - k : each;
        float         scale = m->scales ? tensor_mat_scale(m, 0, row, k / m->group) : 1.0f;
        if (to != TENSOR_E5M2_32 && has_nan(q + k, n)) scale = NAN;
        for (int64_t i = 0; i < n; i += FLOAT8_COLS, out += sizeof(cuda_float8_block)) {
            cuda_float8_block b = { scale, { 0 } };
            memcpy(b.q, q + k + i, (size_t)(n - i < FLOAT8_COLS ? n - i : FLOAT8_COLS));
            memcpy(out, &b, sizeof b);
        }
    }
}

/* A row of NF4, whose file has the first of two codes in the upper half of a byte. */
static void put_nf4(const tensor_mat *m, int64_t row, uint8_t *out) {
    const uint8_t *q = (const uint8_t *)m->data + (size_t)row * m->row_bytes;
    for (int64_t k = 0; k < m->cols; k += TABLE_COLS, out += sizeof(cuda_nf4_block)) {
        const int64_t  n = m->cols - k < TABLE_COLS ? m->cols - k : TABLE_COLS;
        cuda_nf4_block b = { .scale = { 0 } };
        for (int64_t i = 0; i < n; i += 64)
            b.scale[i / 64] = tensor_mat_scale(m, 0, row, (k + i) / m->group) / CUDA_NF4_UNIT;
        for (int64_t i = 0; i < n / 2; i++) b.codes[i] = (uint8_t)(q[k / 2 + i] >> 4 | q[k / 2 + i] << 4);
        memcpy(out, &b, sizeof b);
    }
}

void cuda_recode(const tensor_mat *m, tensor_type to, int64_t row0, int64_t n, uint8_t *out) {
    const matmul_form f = matmul_form_of((int)m->type);
    const size_t      stride = cuda_row_bytes(to, m->cols), block = (size_t)cuda_block_bytes(to);
    const int         each = is_table(to) ? TABLE_COLS : PAIR_COLS; /* columns of a block */
    piece             p;
    if (is_float8(to) || to == TENSOR_NF4_64) {
        for (int64_t r = 0; r < n; r++) {
            if (to == TENSOR_NF4_64)
                put_nf4(m, row0 + r, out + (size_t)r * stride);
            else
                put_float8(m, to, row0 + r, out + (size_t)r * stride);
        }
        return;
    }
    p.group = matmul_group(&f), p.zero = f.zero;
    for (int64_t r = 0; r < n; r += CUDA_TILE_ROWS) {
        p.rows = n - r < CUDA_TILE_ROWS ? (int)(n - r) : CUDA_TILE_ROWS;
        for (int64_t k = 0; k < m->cols; k += TABLE_COLS) {
            uint8_t *at = out + (size_t)r * stride + (size_t)(k / each) * block;
            p.cols = m->cols - k < TABLE_COLS ? (int)(m->cols - k) : TABLE_COLS;
            read_piece(m, row0 + r, k, &p);
            if (is_table(to))
                put_tables(&p, at, stride);
            else if (is_pair(to))
                put_pairs(&p, f.form == MATMUL_MIN32, at, stride);
            else
                put_mxfp4(&p, at, stride);
        }
    }
}

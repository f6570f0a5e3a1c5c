/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a tensor of the file to a matrix that kernels can read: packed MLX modules, FP8 with block scales, the MXFP4 of
 * gpt-oss, plain and GGUF types; views of row ranges; transposed copies where a file stores inputs by outputs.
 */
#include "nn/bind.h"

#include "base/num.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <string.h>

static bool shape_fail(nn_binder *b, const char *name, const model_tensor *t, const char *why) {
    bind_fail(b, ERR_FORMAT, "tensor %s (%s, shape %lld x %lld x %lld): %s", name, tensor_type_name(t->type),
              (long long)t->dims[2], (long long)t->dims[1], (long long)t->dims[0], why);
    return false;
}

static bool mlx_type(const model_quant *q, tensor_type *out) {
    static const struct {
        int         bits;
        tensor_type type;
    } affine[] = { { 2, TENSOR_MLX_AFF2 }, { 3, TENSOR_MLX_AFF3 }, { 4, TENSOR_MLX_AFF4 },
                   { 5, TENSOR_MLX_AFF5 }, { 6, TENSOR_MLX_AFF6 }, { 8, TENSOR_MLX_AFF8 } };
    if (q->mode == MODEL_QUANT_MXFP4) *out = TENSOR_MLX_MXFP4;
    if (q->mode == MODEL_QUANT_MXFP8) *out = TENSOR_MLX_MXFP8;
    if (q->mode == MODEL_QUANT_NVFP4) *out = TENSOR_MLX_NVFP4;
    if (q->mode != MODEL_QUANT_AFFINE) return true;
    for (size_t i = 0; i < sizeof affine / sizeof *affine; i++) {
        if (affine[i].bits == q->bits) {
            *out = affine[i].type;
            return true;
        }
    }
    return false;
}

static size_t element_bytes(tensor_type type) {
    const tensor_type_info *i = tensor_type_get((int)type);
    return i && i->block_elems == 1 ? i->block_bytes : 0;
}

/* Scales or biases of an MLX module: [stack][rows][cols / group]. */
static const void *mlx_array(nn_binder *b, const bind_found *f, const char *ending, const tensor_mat *m,
                             tensor_type *type) {
    const model_tensor *s = bind_companion(b, f, ending);
    if (!s) {
        bind_fail(b, ERR_FORMAT, "tensor %s%s is missing; the module is quantized", f->module, ending);
        return NULL;
    }
    if (s->dims[0] != m->cols / m->group || s->dims[1] != m->rows || s->dims[2] != (m->n_experts ? m->n_experts : 1) ||
        !element_bytes(s->type)) {
        shape_fail(b, s->name, s, "does not fit the packed weight");
        return NULL;
    }
    *type = s->type == TENSOR_U8 && m->type != TENSOR_MLX_NVFP4 ? TENSOR_F8_E8M0
            : s->type == TENSOR_U8                              ? TENSOR_F8_E4M3
                                                                : s->type;
    return s->data;
}

static bool describe_mlx(nn_binder *b, const bind_found *f, const model_quant *q, tensor_mat *m) {
    const model_tensor *t = f->tensor;
    if (t->type != TENSOR_U32 || !mlx_type(q, &m->type) || q->group <= 0 || t->dims[0] > INT32_MAX)
        return shape_fail(b, t->name, t, "not an MLX packing that is known");
    int bits = q->mode == MODEL_QUANT_AFFINE ? q->bits : q->mode == MODEL_QUANT_MXFP8 ? 8 : 4;
    m->cols = t->dims[0] * 32 / bits;
    m->group = q->group;
    m->group_rows = 1;
    if (m->cols % m->group) return shape_fail(b, t->name, t, "the row is not a whole number of groups");
    m->row_bytes = (size_t)t->dims[0] * 4;
    m->scales = mlx_array(b, f, ".scales", m, &m->scale_type);
    if (!m->scales) return false;
    if (q->mode == MODEL_QUANT_AFFINE) {
        tensor_type bias_type;
        m->biases = mlx_array(b, f, ".biases", m, &bias_type);
        if (!m->biases) return false;
        if (bias_type != m->scale_type) return shape_fail(b, t->name, t, "scales and biases differ in type");
    }
    m->scale_row_bytes = (size_t)(m->cols / m->group) * element_bytes(m->scale_type);
    m->scale_expert_bytes = m->scale_row_bytes * (size_t)m->rows;
    return true;
}

/* FP8 weights: one scale per tensor, per row, or per block of rows and columns. */
static bool describe_fp8(nn_binder *b, const bind_found *f, tensor_mat *m) {
    const model_tensor   *t = f->tensor, *s = bind_companion(b, f, ".weight_scale_inv");
    const model_hf_quant *q = model_file_hf_quant(b->file);
    if (!s) s = bind_companion(b, f, ".weight_scale");
    if (!s) s = bind_companion(b, f, "_scale_inv");
    if (!s) return shape_fail(b, t->name, t, "an FP8 weight without its scales");
    int64_t n_col = s->dims[0], n_row = s->dims[1];
    int     block_r = q->block_rows ? q->block_rows : 128, block_c = q->block_cols ? q->block_cols : 128;
    if (s->n_dims <= 1 && s->dims[0] == m->rows && m->rows > 1) { /* one per row, as a vector */
        n_row = m->rows;
        n_col = 1;
    }
    m->scales = s->data;
    m->scale_type = s->type;
    m->scale_row_bytes = (size_t)n_col * element_bytes(s->type);
    m->scale_expert_bytes = m->scale_row_bytes * (size_t)n_row;
    if (n_row == 1 && n_col == 1) {
        m->group = (int)m->cols;
        m->group_rows = (int)m->rows;
    } else if (n_row == m->rows && n_col == 1) {
        m->group = (int)m->cols;
        m->group_rows = 1;
    } else if (n_row == (m->rows + block_r - 1) / block_r && n_col == (m->cols + block_c - 1) / block_c) {
        m->group = block_c;
        m->group_rows = block_r;
    } else {
        return shape_fail(b, s->name, s, "does not fit the FP8 weight");
    }
    if (m->n_experts && s->dims[2] != m->n_experts) return shape_fail(b, s->name, s, "does not fit the FP8 weight");
    return true;
}

/* bitsandbytes: formats/packed_floats.c has put the scales of the blocks beside the codes. */
static bool describe_nf4(nn_binder *b, const bind_found *f, tensor_mat *m) {
    const model_tensor *t = f->tensor, *s = bind_companion(b, f, ".nf4_scales");
    if (!s || s->type != TENSOR_F32 || s->dims[0] < 1 || s->dims[1] != m->rows || m->cols % s->dims[0])
        return shape_fail(b, t->name, t, "NF4 without the scales of its blocks");
    m->scales = s->data;
    m->scale_type = TENSOR_F32;
    m->group = (int)(m->cols / s->dims[0]);
    m->group_rows = 1;
    m->scale_row_bytes = (size_t)s->dims[0] * sizeof(float);
    m->scale_expert_bytes = m->scale_row_bytes * (size_t)m->rows;
    return true;
}

/* GGUF: "X.scale" beside "X.weight" multiplies the whole matrix, or each expert's. Only NVFP4 weights come so: their
 * block scales are E4M3 and need a factor to reach the range. "X.input_scale" beside it would be for quantizing the
 * activations to NVFP4, which nothing here does; it is not part of the weight. */
static bool describe_whole_scale(nn_binder *b, const bind_found *f, tensor_mat *m) {
    const model_tensor *s = bind_companion(b, f, ".scale");
    int64_t             n = m->n_experts ? m->n_experts : 1;
    if (!s) return true;
    if (m->type != TENSOR_NVFP4) {
        bind_fail(b, ERR_UNSUPPORTED, "tensor %s is a scale for a weight of type %s; only NVFP4 weights may have one",
                  s->name, tensor_type_name((int)m->type));
        return false;
    }
    if (s->type != TENSOR_F32 || s->bytes != (size_t)n * sizeof(float))
        return shape_fail(b, s->name, s, n > 1 ? "not one F32 scale per expert" : "not one F32 scale");
    m->scales = s->data;
    m->scale_type = TENSOR_F32;
    m->group = (int)m->cols;
    m->group_rows = (int)m->rows;
    m->scale_row_bytes = m->scale_expert_bytes = sizeof(float);
    return true;
}

/* gpt-oss: blocks u8 [E][rows][cols / 32][16], scales u8 [E][rows][cols / 32]: the MLX packing of MXFP4. */
static bool describe_blocks(nn_binder *b, const bind_found *f, tensor_mat *m) {
    const model_tensor *t = f->tensor, *s = bind_companion(b, f, "_scales");
    if (t->type != TENSOR_U8 || t->dims[0] != 16 || !s || s->type != TENSOR_U8)
        return shape_fail(b, t->name, t, "not MXFP4 blocks with scales");
    if (s->dims[0] != t->dims[1] || s->dims[1] != t->dims[2] || s->dims[2] != t->dims[3])
        return shape_fail(b, s->name, s, "does not fit the blocks");
    m->type = TENSOR_MLX_MXFP4;
    m->cols = t->dims[1] * 32;
    m->rows = t->dims[2];
    m->n_experts = t->n_dims > 3 ? t->dims[3] : 0;
    m->row_bytes = (size_t)t->dims[1] * 16;
    m->group = 32;
    m->group_rows = 1;
    m->scales = s->data;
    m->scale_type = TENSOR_F8_E8M0;
    m->scale_row_bytes = (size_t)t->dims[1];
    m->scale_expert_bytes = m->scale_row_bytes * (size_t)m->rows;
    return true;
}

bool bind_describe(nn_binder *b, const bind_found *f, unsigned flags, tensor_mat *m) {
    const model_tensor *t = f->tensor;
    model_quant         q;
    *m = (tensor_mat){ .type = t->type, .data = t->data, .cols = t->dims[0], .rows = t->dims[1] };
    m->n_experts = t->n_dims > 2 ? t->dims[2] : 0;
    for (int i = f->ending == 'b' ? 4 : 3; i < t->n_dims; i++) {
        if (t->dims[i] != 1) return shape_fail(b, t->name, t, "too many dimensions");
    }
    bool ok;
    if (f->ending == 'b')
        ok = describe_blocks(b, f, m);
    else if (!b->gguf && model_file_quant(b->file, f->module, &q))
        ok = describe_mlx(b, f, &q, m);
    else if (t->type == TENSOR_F8_E4M3 || t->type == TENSOR_F8_E5M2)
        ok = tensor_row_bytes((int)t->type, m->cols, &m->row_bytes) && describe_fp8(b, f, m);
    else if (t->type == TENSOR_NF4)
        ok = tensor_row_bytes((int)t->type, m->cols, &m->row_bytes) && describe_nf4(b, f, m);
    else
        ok = (tensor_can_dequant((int)t->type) && tensor_row_bytes((int)t->type, m->cols, &m->row_bytes)) ||
             shape_fail(b, t->name, t, "this type cannot be a weight");
    if (ok && (b->gguf || t->type == TENSOR_NVFP4) && !(flags & NN_OWN_SCALE)) ok = describe_whole_scale(b, f, m);
    if (!ok) return b->failed ? false : shape_fail(b, t->name, t, "the row is not a whole number of blocks");
    if (!num_mul_size(m->row_bytes, (size_t)m->rows, &m->expert_bytes)) return shape_fail(b, t->name, t, "too large");
    if (!tensor_mat_valid(m)) return shape_fail(b, t->name, t, "this type and shape cannot be a weight");
    return true;
}

int nn_tensor_describe(const model_file *file, const model_tensor *t, tensor_mat *out, err *e) {
    nn_binder  b = { .file = file, .gguf = model_file_format(file) == MODEL_GGUF };
    bind_found f = { .tensor = t, .ending = '=' };
    size_t     len = strlen(t->name), tail = strlen(".weight");
    snprintf(f.module, sizeof f.module, "%s", t->name);
    if (len > tail && len < sizeof f.module && strcmp(t->name + len - tail, ".weight") == 0) {
        f.module[len - tail] = '\0';
        f.ending = 'w';
    }
    if (bind_describe(&b, &f, 0, out)) return 0;
    if (e) *e = b.error;
    return b.error.code;
}

bool bind_take_rows(nn_binder *b, const char *name, tensor_mat *m, int64_t first, int64_t step, int64_t rows) {
    if (first == 0 && step == 1 && rows == m->rows) return true;
    if (first < 0 || rows <= 0 || step <= 0 || first + (rows - 1) * step >= m->rows) {
        bind_fail(b, ERR_FORMAT, "tensor %s has %lld rows; rows %lld and following do not exist", name,
                  (long long)m->rows, (long long)first);
        return false;
    }
    if (m->group_rows > 1 && m->group_rows < m->rows && (step != 1 || first % m->group_rows)) {
        bind_fail(b, ERR_UNSUPPORTED, "tensor %s: a part that begins inside a block of %d rows", name, m->group_rows);
        return false;
    }
    int per = m->group_rows > 0 ? m->group_rows : 1;
    m->data = (const uint8_t *)m->data + (size_t)first * m->row_bytes;
    m->row_bytes *= (size_t)step;
    if (m->scales) m->scales = (const uint8_t *)m->scales + (size_t)(first / per) * m->scale_row_bytes;
    if (m->biases) m->biases = (const uint8_t *)m->biases + (size_t)(first / per) * m->scale_row_bytes;
    if (per == 1) m->scale_row_bytes *= (size_t)step;
    m->rows = rows;
    return true;
}

bool bind_transpose(nn_binder *b, const char *name, tensor_mat *m) {
    size_t  size = element_bytes(m->type), bytes;
    int64_t n = m->n_experts ? m->n_experts : 1;
    if (!size || m->scales) {
        bind_fail(b, ERR_UNSUPPORTED, "tensor %s is stored transposed; that is not supported for type %s", name,
                  tensor_type_name((int)m->type));
        return false;
    }
    if (!num_mul_size(m->expert_bytes, (size_t)n, &bytes)) bytes = 0;
    uint8_t *copy = bytes ? arena_alloc(b->mem, bytes) : NULL;
    if (!copy) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return false;
    }
    for (int64_t e = 0; e < n; e++) {
        const uint8_t *src = (const uint8_t *)m->data + (size_t)e * m->expert_bytes;
        uint8_t       *dst = copy + (size_t)(e * m->rows * m->cols) * size;
        for (int64_t r = 0; r < m->rows; r++) {
            for (int64_t c = 0; c < m->cols; c++)
                memcpy(dst + (size_t)(c * m->rows + r) * size, src + (size_t)r * m->row_bytes + (size_t)c * size, size);
        }
    }
    int64_t rows = m->rows;
    m->rows = m->cols;
    m->cols = rows;
    m->data = copy;
    m->row_bytes = (size_t)m->cols * size;
    m->expert_bytes = m->row_bytes * (size_t)m->rows;
    return true;
}

const float *bind_floats(nn_binder *b, const model_tensor *t, int64_t *n) {
    int64_t count = 1;
    for (int i = 0; i < t->n_dims; i++) count *= t->dims[i]; /* the reader has checked the product */
    float *out = count > 0 && count < (1LL << 31) ? arena_alloc(b->mem, (size_t)count * sizeof *out) : NULL;
    if (!out) {
        bind_fail(b, ERR_NOMEM, "tensor %s: no memory for %lld values", t->name, (long long)count);
        return NULL;
    }
    if (!tensor_dequant_row((int)t->type, t->data, out, count)) {
        shape_fail(b, t->name, t, "this type cannot be read as numbers");
        return NULL;
    }
    *n = count;
    return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/mlx_record.h"

#include "nn/model.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const endings[] = { ".weight", ".scales", ".biases" };

tensor_type mlx_packed_type(const model_quant *q) {
    static const tensor_type by_bits[] = {
        0, 0, TENSOR_MLX_AFF2, TENSOR_MLX_AFF3, TENSOR_MLX_AFF4, TENSOR_MLX_AFF5, TENSOR_MLX_AFF6, 0, TENSOR_MLX_AFF8
    };
    switch (q->mode) {
    case MODEL_QUANT_AFFINE: return by_bits[q->bits];
    case MODEL_QUANT_MXFP4: return TENSOR_MLX_MXFP4;
    case MODEL_QUANT_MXFP8: return TENSOR_MLX_MXFP8;
    default: return TENSOR_MLX_NVFP4;
    }
}

/* "MODULE.4bit.scales"; false: too long. */
static bool record_name(char out[400], const char *module, const model_quant *q, const char *ending) {
    static const char *const modes[] = { "", "mxfp4", "mxfp8", "nvfp4" };
    int n = q->mode == MODEL_QUANT_AFFINE ? snprintf(out, 400, "%s.%dbit%s", module, q->bits, ending)
                                          : snprintf(out, 400, "%s.%s%s", module, modes[q->mode], ending);
    return n > 0 && n < 400;
}

static const model_tensor *find(const model_file *m, const char *module, const model_quant *q, const char *ending) {
    char name[400];
    return record_name(name, module, q, ending) ? model_file_tensor(m, name) : NULL;
}

/* --- written ------------------------------------------------------------------------------------------------------- */

static float rounded(tensor_type type, float x) {
    switch (type) {
    case TENSOR_F16: return tensor_f16_to_f32(tensor_f32_to_f16(x));
    case TENSOR_BF16: return tensor_bf16_to_f32(tensor_f32_to_bf16(x));
    default: return x;
    }
}

/* The distance between neighbouring numbers of a type just below `top`; of F32 twice that, since scale * q is rounded
 * before the bias comes to it. */
static double spacing(tensor_type type, double top) {
    int    exponent, digits = type == TENSOR_F16 ? 11 : type == TENSOR_BF16 ? 8 : 23;
    double part = frexp(top, &exponent), least = type == TENSOR_F16 ? 0x1p-24 : 0x1p-132;
    if (part == 0.5) exponent--;
    return fmax(ldexp(1, exponent - digits), least);
}

/* Whether all codes of all groups are different numbers. */
static bool tells_codes(const tensor_mat *m, const model_quant *q, tensor_type type) {
    double top_code = (1 << q->bits) - 1, largest = type == TENSOR_F16 ? 65504 : 3e38;
    if (q->mode != MODEL_QUANT_AFFINE) return false;
    for (int64_t e = 0; e < (m->n_experts ? m->n_experts : 1); e++) {
        for (int64_t i = 0; i < m->rows * (m->cols / m->group); i++) {
            int64_t row = i / (m->cols / m->group), group = i % (m->cols / m->group);
            double  s = (double)tensor_mat_scale(m, e, row, group), b = (double)tensor_mat_bias(m, e, row, group);
            double  top = fmax(fabs(b), fabs(s * top_code + b));
            if (!(top < largest) || !(spacing(type, top) < fabs(s))) return false;
        }
    }
    return true;
}

/* Rows as they lie, of any type. */
static const void *raw_row(const void *ctx, int64_t row) {
    const model_tensor *t = ctx;
    size_t              row_bytes = 0;
    tensor_row_bytes((int)t->type, t->dims[0], &row_bytes);
    return t->data + (size_t)row * row_bytes;
}

static int add_tensor(plan_tensor *out, const model_tensor *t, const char *module, const model_quant *q,
                      const char *ending, arena *mem, err *e) {
    char name[400];
    if (!record_name(name, module, q, ending)) return err_set(e, ERR_LIMIT, "%s: the name is too long", t->name);
    *out = (plan_tensor){ .name = arena_strdup(mem, name), .type = t->type, .n_dims = t->n_dims };
    for (int d = 0; d < 4; d++) out->dims[d] = t->dims[d];
    out->from = (row_source){ .type = t->type, .raw = raw_row, .ctx = t };
    return out->name ? 0 : err_set_nomem(e);
}

/* Adds one module; returns how many tensors. */
static int add_module(plan_tensor *out, const model_file *m, const model_tensor *t, const char *module,
                      const model_quant *q, tensor_type type, arena *mem, err *e) {
    tensor_mat mat;
    char       name[400];
    int        n = 0, rc = nn_tensor_describe(m, t, &mat, e);
    if (rc < 0) return rc;
    for (int k = tells_codes(&mat, q, type) ? 1 : 0; k < 3; k++) {
        snprintf(name, sizeof name, "%s%s", module, endings[k]);
        const model_tensor *x = model_file_tensor(m, name);
        if (!x) continue; /* only the affine mode has biases */
        if ((rc = add_tensor(&out[n], x, module, q, endings[k], mem, e)) < 0) return rc;
        n++;
    }
    if (mat.scales) stream_forget(mat.scales, (size_t)mat.rows * mat.scale_row_bytes);
    if (mat.biases) stream_forget(mat.biases, (size_t)mat.rows * mat.scale_row_bytes);
    return n;
}

int mlx_record_plan(plan_tensor **out, size_t *n, const model_file *packed, tensor_type type, arena *mem, err *e) {
    size_t count = model_file_tensor_count(packed);
    *n = 0;
    if (!(*out = arena_calloc(mem, count ? count : 1, sizeof **out))) return err_set_nomem(e);
    if (model_file_format(packed) != MODEL_MLX) return 0;
    for (size_t i = 0; i < count; i++) {
        const model_tensor *t = model_file_tensor_at(packed, i);
        char                module[320];
        size_t              len = strlen(t->name);
        model_quant         q;
        if (len < 8 || len >= sizeof module || strcmp(t->name + len - 7, ".weight") != 0) continue;
        snprintf(module, sizeof module, "%.*s", (int)len - 7, t->name);
        if (!model_file_quant(packed, module, &q)) continue;
        int added = add_module(*out + *n, packed, t, module, &q, type, mem, e);
        if (added < 0) return added;
        *n += (size_t)added;
    }
    return 0;
}

/* --- read ---------------------------------------------------------------------------------------------------------- */

int mlx_record_open(model_file **out, const model_file *numbers, err *e) {
    char *path = model_file_format(numbers) == MODEL_GGUF ? NULL : model_file_sidecar(numbers, MLX_RECORD_FILE);
    *out = NULL;
    if (!path) return 0;
    int rc = model_file_open(out, path, e);
    free(path);
    return rc;
}

static int64_t rows_of(const model_tensor *t) {
    int64_t rows = 1;
    for (int d = 1; d < t->n_dims; d++) rows *= t->dims[d];
    return rows;
}

/* Whether a recorded tensor has rows of this many elements, one for each row of the numbers. */
static bool fits(const model_tensor *x, int64_t cols, const plan_tensor *t) {
    return x && x->dims[0] == cols && rows_of(x) == plan_rows(t);
}

static tensor_type scale_type(const model_quant *q, const model_tensor *scales) {
    if (q->mode == MODEL_QUANT_AFFINE) return scales->type;
    return q->mode == MODEL_QUANT_NVFP4 ? TENSOR_F8_E4M3 : TENSOR_F8_E8M0;
}

bool mlx_record_find(const model_file *record, const char *module, const model_quant *q, const plan_tensor *t,
                     mlx_module *out) {
    const model_tensor *words = find(record, module, q, ".weight"), *scales = find(record, module, q, ".scales"),
                       *biases = find(record, module, q, ".biases");
    bool    affine = q->mode == MODEL_QUANT_AFFINE;
    int64_t groups = t->dims[0] / q->group;
    size_t  row_bytes;
    if (t->dims[0] % q->group || !fits(scales, groups, t)) return false;
    if (affine ? !fits(biases, groups, t) || biases->type != scales->type : scales->type != TENSOR_U8) return false;
    tensor_mat how = { .type = mlx_packed_type(q), .rows = plan_rows(t), .cols = t->dims[0], .group = q->group };
    if (!tensor_row_bytes((int)how.type, how.cols, &row_bytes) || row_bytes % 4) return false;
    if (words && (words->type != TENSOR_U32 || !fits(words, (int64_t)row_bytes / 4, t))) return false;
    if (!words && !affine) return false;
    how.row_bytes = row_bytes;
    how.group_rows = 1;
    how.scale_type = scale_type(q, scales);
    how.scales = scales->data;
    how.biases = affine ? biases->data : NULL;
    how.data = words ? words->data : NULL;
    how.scale_row_bytes = (size_t)groups * tensor_type_get((int)how.scale_type)->block_bytes;
    *out = (mlx_module){ how, t->type };
    return tensor_mat_valid(&how);
}

bool mlx_record_quant(const model_file *record, const char *module, const plan_tensor *t, model_quant *out) {
    static const model_quant coded[] = { { MODEL_QUANT_MXFP4, 4, 32 },
                                         { MODEL_QUANT_MXFP8, 8, 32 },
                                         { MODEL_QUANT_NVFP4, 4, 16 } };
    mlx_module               m;
    for (int bits = 2; bits <= 8; bits++) {
        *out = (model_quant){ MODEL_QUANT_AFFINE, bits, 0 };
        const model_tensor *scales = bits == 7 ? NULL : find(record, module, out, ".scales");
        if (!scales || scales->dims[0] <= 0) continue;
        int64_t group = t->dims[0] / scales->dims[0];
        out->group = group == 32 || group == 64 || group == 128 ? (int)group : 64;
        return mlx_record_find(record, module, out, t, &m);
    }
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++) {
        *out = coded[i];
        if (mlx_record_find(record, module, out, t, &m)) return true;
    }
    return false;
}

/* The code whose number x is; the one next to the quotient where rounding has moved it by half a step. -1: none. */
static int code_of(const mlx_module *m, float x, float scale, float bias, int top) {
    float near = rintf((x - bias) / scale);
    if (!(near >= -1 && near <= (float)(top + 1))) return -1;
    for (int k = 0; k < 3; k++) {
        int q = (int)near + (k == 2 ? -1 : k);
        if (q >= 0 && q <= top && rounded(m->numbers, scale * (float)q + bias) == x) return q;
    }
    return -1;
}

static bool find_codes(const mlx_module *m, int64_t row, int64_t group, const float *x, uint8_t *data, size_t bytes) {
    float scale = tensor_mat_scale(&m->how, 0, row, group), bias = tensor_mat_bias(&m->how, 0, row, group);
    int   top = (1 << (8 * bytes / (size_t)m->how.group)) - 1;
    memset(data, 0, bytes);
    for (int i = 0; i < m->how.group; i++) {
        int q = code_of(m, x[i], scale, bias, top);
        if (q < 0) return false;
        tensor_packed_put((int)m->how.type, data, i, (unsigned)q);
    }
    return true;
}

static bool same_numbers(const mlx_module *m, int64_t row, int64_t group, const float *x) {
    float y[128];
    tensor_mat_dequant_span(&m->how, 0, row, group * m->how.group, m->how.group, y);
    for (int i = 0; i < m->how.group; i++)
        if (rounded(m->numbers, y[i]) != x[i]) return false;
    return true;
}

bool mlx_record_group(const mlx_module *m, int64_t row, int64_t group, const float *x, uint8_t *data, uint8_t *scale,
                      uint8_t *bias) {
    const tensor_mat *how = &m->how;
    size_t            bytes = how->row_bytes / (size_t)(how->cols / how->group),
           one = tensor_type_get((int)how->scale_type)->block_bytes;
    size_t at = (size_t)row * how->scale_row_bytes + (size_t)group * one;
    if (how->data) {
        if (!same_numbers(m, row, group, x)) return false;
        memcpy(data, (const uint8_t *)how->data + (size_t)row * how->row_bytes + (size_t)group * bytes, bytes);
    } else if (!find_codes(m, row, group, x, data, bytes)) {
        return false;
    }
    memcpy(scale, (const uint8_t *)how->scales + at, one);
    if (how->biases) memcpy(bias, (const uint8_t *)how->biases + at, one);
    return true;
}

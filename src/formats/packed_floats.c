/* SPDX-License-Identifier: Apache-2.0 */
/* See packed.h: four-bit floats of bitsandbytes and of ModelOpt. */
#include "base/num.h"
#include "formats/packed.h"
#include "formats/text.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const model_tensor *beside(const model_file *m, const char *stem, const char *ending) {
    char name[TABLE_MAX_NAME + 64];
    int  n = snprintf(name, sizeof name, "%s%s", stem, ending);
    return tensor_table_find(&m->tensors, name, (size_t)n);
}

static int refuse(const model_file *m, const char *module, const char *why, err *e) {
    char safe[160];
    return err_set(e, ERR_UNSUPPORTED, "%s: module %s: %s", m->path, text_safe(safe, sizeof safe, view_of(module)),
                   why);
}

/* "X" of a tensor called "X" + ending; false: it is called otherwise. */
static bool stem_of(const char *name, const char *ending, char out[TABLE_MAX_NAME + 1]) {
    size_t len = strlen(name), n = strlen(ending);
    if (len <= n || strcmp(name + len - n, ending) != 0) return false;
    memcpy(out, name, len - n);
    out[len - n] = '\0';
    return true;
}

static int add(model_file *m, const char *stem, const char *ending, tensor_type type, int64_t cols, int64_t rows,
               const void *data, size_t bytes, err *e) {
    char         name[TABLE_MAX_NAME + 64];
    int          n = snprintf(name, sizeof name, "%s%s", stem, ending);
    model_tensor t = {
        .type = type, .n_dims = 2, .dims = { cols, rows, 1, 1, 1, 1, 1, 1 }, .data = data, .bytes = bytes
    };
    return tensor_table_add(&m->tensors, &t, (view){ name, (size_t)n }, e);
}

/* The tensor of this name becomes another one. */
static void replace(model_file *m, const model_tensor *old, tensor_type type, int64_t cols, int64_t rows,
                    const void *data, size_t bytes) {
    model_tensor *t = &m->tensors.items[old - m->tensors.items];
    t->type = type;
    t->n_dims = 2;
    for (int d = 2; d < MODEL_MAX_DIMS; d++) t->dims[d] = 1;
    t->dims[0] = cols;
    t->dims[1] = rows;
    t->data = data;
    t->bytes = bytes;
}

static float float_at(const model_tensor *t, size_t i) {
    float v;
    memcpy(&v, t->data + 4 * i, 4);
    return v;
}

/* --- bitsandbytes -------------------------------------------------------------------------------------------------- */

typedef struct bnb {
    model_file         *m;
    char                stem[TABLE_MAX_NAME + 1]; /* "X.weight" */
    const model_tensor *codes, *absmax, *map, *nested, *nested_map;
    int64_t             rows, cols, block, nested_block;
    float               nested_offset;
    size_t              n_blocks;
} bnb;

static int read_state(bnb *b, const model_tensor *state, err *e) {
    const json_value *v, *shape;
    arena             mem;
    double            offset = 0;
    arena_init(&mem, 1 << 20);
    int rc = json_parse(&v, (const char *)state->data, state->bytes, &mem, e);
    if (rc == 0) {
        shape = json_get(v, "shape");
        b->nested_block = 256;
        if (json_count(shape) != 2 || !json_int(json_at(shape, 0), &b->rows) ||
            !json_int(json_at(shape, 1), &b->cols) || b->rows < 1 || b->cols < 1 || b->rows > INT32_MAX ||
            b->cols > INT32_MAX || !json_int(json_get(v, "blocksize"), &b->block) || b->block < 2 ||
            b->block > 1 << 20 || b->block % 2)
            rc = refuse(b->m, b->stem, "its quant_state has no usable shape and block size", e);
        json_int(json_get(v, "nested_blocksize"), &b->nested_block);
        if (json_number(json_get(v, "nested_offset"), &offset)) b->nested_offset = (float)offset;
    }
    arena_deinit(&mem);
    return rc;
}

static int check_bnb(bnb *b, err *e) {
    uint64_t n = (uint64_t)b->rows * (uint64_t)b->cols;
    b->codes = beside(b->m, b->stem, "");
    b->absmax = beside(b->m, b->stem, ".absmax");
    b->map = beside(b->m, b->stem, ".quant_map");
    if (!b->codes || !b->absmax || !b->map) return refuse(b->m, b->stem, "its absmax or quant_map is missing", e);
    if (n % 2 || b->codes->bytes != n / 2) return refuse(b->m, b->stem, "its codes do not fit the shape", e);
    if (b->map->type != TENSOR_F32 || b->map->bytes != 64)
        return refuse(b->m, b->stem, "its quant_map is not 16 numbers", e);
    b->n_blocks = (size_t)((n + (uint64_t)b->block - 1) / (uint64_t)b->block);
    if (b->absmax->type == TENSOR_F32)
        return b->absmax->bytes == b->n_blocks * 4 ? 0 : refuse(b->m, b->stem, "its absmax does not fit", e);
    b->nested = beside(b->m, b->stem, ".nested_absmax");
    b->nested_map = beside(b->m, b->stem, ".nested_quant_map");
    if (b->absmax->type != TENSOR_U8 || b->absmax->bytes != b->n_blocks || !b->nested || !b->nested_map ||
        b->nested->type != TENSOR_F32 || b->nested_map->type != TENSOR_F32 || b->nested_map->bytes != 1024 ||
        b->nested_block < 1 ||
        b->nested->bytes / 4 < (b->n_blocks + (size_t)b->nested_block - 1) / (size_t)b->nested_block)
        return refuse(b->m, b->stem, "its nested absmax does not fit", e);
    return 0;
}

static float block_scale(const bnb *b, size_t j) {
    if (!b->nested) return float_at(b->absmax, j);
    return float_at(b->nested_map, b->absmax->data[j]) * float_at(b->nested, j / (size_t)b->nested_block) +
           b->nested_offset;
}

static bool is_nf4(const bnb *b) {
    for (size_t i = 0; i < 16; i++)
        if (fabsf(float_at(b->map, i) - tensor_nf4_values[i]) > 1e-6f) return false;
    return b->cols % b->block == 0;
}

/* Blocks that run over the ends of rows, or another table of values: nothing holds them but numbers. */
static int make_numbers(bnb *b, err *e) {
    size_t    n = (size_t)(b->rows * b->cols);
    uint16_t *out = arena_calloc(&b->m->packed, n, sizeof *out);
    if (!out) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        unsigned code = b->codes->data[i / 2] >> (i % 2 ? 0 : 4) & 15u;
        out[i] = tensor_f32_to_f16(float_at(b->map, code) * block_scale(b, i / (size_t)b->block));
    }
    replace(b->m, b->codes, TENSOR_F16, b->cols, b->rows, out, n * 2);
    return 0;
}

static int make_bnb(bnb *b, err *e) {
    char   module[TABLE_MAX_NAME + 1];
    float *scales;
    if (!stem_of(b->stem, ".weight", module)) return refuse(b->m, b->stem, "it is not a module's weight", e);
    if (!is_nf4(b)) return make_numbers(b, e);
    if (!(scales = arena_calloc(&b->m->packed, b->n_blocks, sizeof *scales))) return err_set_nomem(e);
    for (size_t j = 0; j < b->n_blocks; j++) scales[j] = block_scale(b, j);
    replace(b->m, b->codes, TENSOR_NF4, b->cols, b->rows, b->codes->data, b->codes->bytes);
    return add(b->m, module, ".nf4_scales", TENSOR_F32, b->cols / b->block, b->rows, scales, b->n_blocks * 4, e);
}

static int expand_bnb(model_file *m, err *e) {
    static const char *const kinds[] = { ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4" };
    size_t                   n = m->tensors.count;
    for (size_t i = 0; i < n; i++) {
        const model_tensor *state = &m->tensors.items[i];
        bnb                 b = { .m = m };
        if (!stem_of(state->name, kinds[0], b.stem) && !stem_of(state->name, kinds[1], b.stem)) continue;
        int rc = read_state(&b, state, e);
        if (rc == 0) rc = check_bnb(&b, e);
        if (rc == 0) rc = make_bnb(&b, e);
        if (rc < 0) return rc;
    }
    return 0;
}

/* --- NVFP4 --------------------------------------------------------------------------------------------------------- */

typedef struct nvfp4 {
    model_file         *m;
    char                stem[TABLE_MAX_NAME + 1]; /* "X" */
    const model_tensor *codes, *scales;
    int64_t             rows, cols;
    float               whole;
} nvfp4;

static int check_nvfp4(nvfp4 *x, const model_tensor *factor, bool divides, err *e) {
    const model_tensor *c = x->codes;
    uint64_t            n;
    if (c->n_dims != 2 || c->dims[0] < 1 || c->dims[1] < 1 || c->dims[0] > INT32_MAX || c->dims[1] > INT32_MAX)
        return refuse(x->m, x->stem, "its codes are not a matrix", e);
    x->cols = 2 * c->dims[0];
    x->rows = c->dims[1];
    if (!x->scales || x->scales->type != TENSOR_F8_E4M3 || x->cols % 16 ||
        !num_mul_u64((uint64_t)x->cols / 16, (uint64_t)x->rows, &n) || x->scales->bytes != n)
        return refuse(x->m, x->stem, "its weight_scale is not one E4M3 per 16 columns", e);
    for (uint64_t i = 0; i < n; i++)
        if (x->scales->data[i] >= 0x7f) return refuse(x->m, x->stem, "a scale is negative or not a number", e);
    if (factor->type != TENSOR_F32 || factor->bytes != 4) return refuse(x->m, x->stem, "its factor is not one F32", e);
    x->whole = float_at(factor, 0);
    if (divides) x->whole = 1 / x->whole;
    return isfinite(x->whole) ? 0 : refuse(x->m, x->stem, "its factor is not a number", e);
}

static unsigned code_of(const nvfp4 *x, int64_t row, int64_t col) {
    return x->codes->data[row * (x->cols / 2) + col / 2] >> (col % 2 ? 4 : 0) & 15u;
}

/* Rows that are not whole blocks of 64. */
static void *make_halves(const nvfp4 *x, size_t *bytes) {
    uint16_t *out = arena_calloc(&x->m->packed, (size_t)(x->rows * x->cols), sizeof *out);
    *bytes = (size_t)(x->rows * x->cols) * 2;
    for (int64_t i = 0; out && i < x->rows * x->cols; i++) {
        float d = tensor_e4m3_to_f32(x->scales->data[i / 16]) * x->whole;
        out[i] = tensor_f32_to_f16(0.5f * (float)tensor_e2m1_doubled[code_of(x, i / x->cols, i % x->cols)] * d);
    }
    return out;
}

static void *make_blocks(const nvfp4 *x, size_t *bytes) {
    int64_t      per_row = x->cols / 64;
    block_nvfp4 *out = arena_calloc(&x->m->packed, (size_t)(x->rows * per_row), sizeof *out);
    *bytes = (size_t)(x->rows * per_row) * sizeof *out;
    for (int64_t b = 0; out && b < x->rows * per_row; b++) {
        int64_t row = b / per_row, col = b % per_row * 64;
        for (int g = 0; g < 4; g++) {
            out[b].d[g] = x->scales->data[row * (x->cols / 16) + col / 16 + g];
            for (int j = 0; j < 8; j++)
                out[b].qs[8 * g + j] =
                    (uint8_t)(code_of(x, row, col + 16 * g + j) | code_of(x, row, col + 16 * g + j + 8) << 4);
        }
    }
    return out;
}

static int make_nvfp4(nvfp4 *x, bool in_place, err *e) {
    bool        whole = x->cols % 64 == 0;
    tensor_type type = whole ? TENSOR_NVFP4 : TENSOR_F16;
    size_t      bytes;
    void       *data = whole ? make_blocks(x, &bytes) : make_halves(x, &bytes);
    float      *scale = arena_calloc(&x->m->packed, 1, sizeof *scale);
    int         rc = 0;
    if (!data || !scale) return err_set_nomem(e);
    *scale = x->whole;
    if (in_place)
        replace(x->m, x->codes, type, x->cols, x->rows, data, bytes);
    else
        rc = add(x->m, x->stem, ".weight", type, x->cols, x->rows, data, bytes, e);
    return rc == 0 && whole ? add(x->m, x->stem, ".scale", TENSOR_F32, 1, 1, scale, sizeof *scale, e) : rc;
}

static int expand_nvfp4(model_file *m, err *e) {
    size_t n = m->tensors.count;
    for (size_t i = 0; i < n; i++) {
        const model_tensor *factor = &m->tensors.items[i];
        nvfp4               x = { .m = m };
        bool                modelopt = stem_of(factor->name, ".weight_scale_2", x.stem);
        if (!modelopt && !stem_of(factor->name, ".weight_global_scale", x.stem)) continue;
        x.codes = beside(m, x.stem, modelopt ? ".weight" : ".weight_packed");
        x.scales = beside(m, x.stem, ".weight_scale");
        if (!x.codes || x.codes->type != TENSOR_U8) continue;
        int rc = check_nvfp4(&x, factor, !modelopt, e);
        if (rc == 0) rc = make_nvfp4(&x, modelopt, e);
        if (rc < 0) return rc;
    }
    return 0;
}

int packed_floats_expand(model_file *m, err *e) {
    int rc = expand_bnb(m, e);
    return rc == 0 ? expand_nvfp4(m, e) : rc;
}

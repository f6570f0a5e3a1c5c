/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/packed.h"

#include "base/num.h"
#include "formats/text.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct packed {
    model_file         *m;
    char                name[TABLE_MAX_NAME + 1]; /* of the module */
    int                 bits, group;              /* of the source */
    int64_t             rows, cols, n_groups;
    const model_tensor *words, *zeros, *scales, *order;
    int                 zero_offset; /* added to what zeros says */
    int                 step;        /* our group */
} packed;

static const model_tensor *beside(const packed *p, const char *ending) {
    char name[TABLE_MAX_NAME + 32];
    int  n = snprintf(name, sizeof name, "%s%s", p->name, ending);
    return tensor_table_find(&p->m->tensors, name, (size_t)n);
}

static uint32_t word_at(const model_tensor *t, int64_t i) {
    uint32_t v;
    memcpy(&v, t->data + 4 * i, 4);
    return v;
}

/* Element k of a stream of b-bit numbers, low bits first; word w of it is word_at(t, first + w * stride). */
static unsigned stream_at(const model_tensor *t, int64_t first, int64_t stride, int64_t k, int bits) {
    int64_t  bit = k * bits, w = bit / 32;
    int      off = (int)(bit % 32);
    uint64_t v = word_at(t, first + w * stride);
    if (off + bits > 32) v |= (uint64_t)word_at(t, first + (w + 1) * stride) << 32;
    return (unsigned)(v >> off) & ((1u << bits) - 1);
}

/* AWQ: which nibble of a word holds output i of eight. */
static unsigned awq_at(const model_tensor *t, int64_t line, int64_t out, int64_t n_out) {
    static const int nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    return word_at(t, line * (n_out / 8) + out / 8) >> (4 * nibble[out % 8]) & 15u;
}

/* --- one element, by method -------------------------------------------------------------------------------------- */

static unsigned code_at(const packed *p, int64_t row, int64_t col) {
    switch (p->m->config.quant.method) {
    case MODEL_HF_GPTQ: return stream_at(p->words, row, p->rows, col, p->bits);
    case MODEL_HF_AWQ: return awq_at(p->words, col, row, p->rows);
    default: return stream_at(p->words, row * p->words->dims[0], 1, col, p->bits);
    }
}

static int zero_at(const packed *p, int64_t row, int64_t group) {
    switch (p->m->config.quant.method) {
    case MODEL_HF_GPTQ: return (int)stream_at(p->zeros, group * p->zeros->dims[0], 1, row, p->bits) + p->zero_offset;
    case MODEL_HF_AWQ: return (int)awq_at(p->zeros, group, row, p->rows);
    default: /* packed along the outputs, a column per group */
        return p->zeros ? (int)stream_at(p->zeros, group, p->n_groups, row, p->bits) : 1 << (p->bits - 1);
    }
}

static float scale_at(const packed *p, int64_t row, int64_t group) {
    bool    by_row = p->m->config.quant.method == MODEL_HF_COMPRESSED;
    int64_t at = by_row ? row * p->n_groups + group : group * p->rows + row;
    size_t  bytes = tensor_type_get((int)p->scales->type)->block_bytes;
    float   v = 0;
    tensor_dequant_row((int)p->scales->type, p->scales->data + (size_t)at * bytes, &v, 1);
    return v;
}

static int64_t group_of(const packed *p, int64_t col) {
    return p->order ? (int64_t)(int32_t)word_at(p->order, col) : col / p->group;
}

/* --- checks ------------------------------------------------------------------------------------------------------ */

static int refuse(const packed *p, const char *why, err *e) {
    char safe[160];
    return err_set(e, ERR_UNSUPPORTED, "%s: module %s: %s", p->m->path, text_safe(safe, sizeof safe, view_of(p->name)),
                   why);
}

static bool is_words(const model_tensor *t) { return t && (t->type == TENSOR_I32 || t->type == TENSOR_U32); }

static int check_order(packed *p, err *e) {
    bool plain = true;
    if (!p->order) return 0;
    if (!is_words(p->order) || p->order->bytes != (size_t)p->cols * 4) return refuse(p, "g_idx does not fit", e);
    for (int64_t c = 0; c < p->cols; c++) {
        int64_t g = group_of(p, c);
        if (g < 0 || g >= p->n_groups) return refuse(p, "g_idx names a group that does not exist", e);
        if (g != c / p->group) plain = false;
    }
    if (plain) p->order = NULL;
    return 0;
}

/* Zeros are stored one less than meant, except by newer tools: symmetric ones tell, whatever the config says. */
static void find_zero_offset(packed *p) {
    const char *format = json_cstr(json_get(p->m->config.quant.block, "checkpoint_format"));
    int         middle = 1 << (p->bits - 1);
    bool        all = true;
    p->zero_offset = format && strcmp(format, "gptq_v2") == 0 ? 0 : 1;
    int raw = (int)stream_at(p->zeros, 0, 1, 0, p->bits);
    for (int64_t r = 0; r < p->rows && all; r++) all = (int)stream_at(p->zeros, 0, 1, r, p->bits) == raw;
    if (all && raw == middle) p->zero_offset = 0;
    if (all && raw == middle - 1) p->zero_offset = 1;
}

static bool fits(const model_tensor *t, uint64_t a, uint64_t b, size_t element) {
    uint64_t n;
    return t && num_mul_u64(a, b, &n) && num_mul_u64(n, element, &n) && t->bytes == n;
}

static int check_gptq(packed *p, err *e) {
    p->cols = p->words->dims[1] * 32 / p->bits;
    p->rows = p->words->dims[0];
    p->zeros = beside(p, ".qzeros");
    p->scales = beside(p, ".scales");
    p->order = beside(p, ".g_idx");
    if (p->words->dims[1] * 32 % p->bits || p->rows * p->bits % 32 || !is_words(p->zeros) || !p->scales)
        return refuse(p, "its qzeros or scales are missing or do not fit", e);
    p->n_groups = p->scales->dims[1];
    if (!fits(p->zeros, (uint64_t)p->n_groups, (uint64_t)(p->rows * p->bits / 32), 4))
        return refuse(p, "its qzeros do not fit", e);
    find_zero_offset(p);
    return 0;
}

static int check_awq(packed *p, err *e) {
    p->cols = p->words->dims[1];
    p->rows = p->words->dims[0] * 8;
    p->zeros = beside(p, ".qzeros");
    p->scales = beside(p, ".scales");
    if (p->bits != 4 || !is_words(p->zeros) || !p->scales)
        return refuse(p, "only AWQ of 4 bits with qzeros is known", e);
    p->n_groups = p->scales->dims[1];
    if (!fits(p->zeros, (uint64_t)p->n_groups, (uint64_t)(p->rows / 8), 4))
        return refuse(p, "its qzeros do not fit", e);
    return 0;
}

static int check_compressed(packed *p, err *e) {
    p->rows = p->words->dims[1];
    p->cols = p->words->dims[0] * 32 / p->bits;
    p->zeros = beside(p, ".weight_zero_point");
    p->scales = beside(p, ".weight_scale");
    if (p->words->dims[0] * 32 % p->bits || !p->scales) return refuse(p, "its scales are missing or do not fit", e);
    p->n_groups = p->scales->dims[0];
    if (p->zeros && (!is_words(p->zeros) || p->rows * p->bits % 32 ||
                     !fits(p->zeros, (uint64_t)p->n_groups, (uint64_t)(p->rows * p->bits / 32), 4)))
        return refuse(p, "its zero points do not fit", e);
    return 0;
}

/* Fills in what follows from the tensors; everything that is read later was checked here. */
static int check(packed *p, err *e) {
    if (!is_words(p->words) || p->words->n_dims != 2 || p->words->dims[0] < 1 || p->words->dims[1] < 1 ||
        p->words->dims[0] > INT32_MAX || p->words->dims[1] > INT32_MAX)
        return refuse(p, "its packed weight is not a matrix of 32-bit words", e);
    if (p->bits != 2 && p->bits != 3 && p->bits != 4 && p->bits != 8)
        return refuse(p, "only 2, 3, 4 and 8 bits are known", e);
    model_hf_method method = p->m->config.quant.method;
    int             rc = method == MODEL_HF_GPTQ  ? check_gptq(p, e)
                         : method == MODEL_HF_AWQ ? check_awq(p, e)
                                                  : check_compressed(p, e);
    if (rc < 0) return rc;
    tensor_type type = p->scales->type;
    if (type != TENSOR_F16 && type != TENSOR_BF16 && type != TENSOR_F32)
        return refuse(p, "its scales are not floats", e);
    if (p->n_groups < 1 || p->cols % p->n_groups ||
        !fits(p->scales, (uint64_t)p->n_groups, (uint64_t)p->rows, tensor_type_get((int)type)->block_bytes))
        return refuse(p, "its scales do not fit", e);
    p->group = (int)(p->cols / p->n_groups);
    for (p->step = 128; p->step >= 32 && p->group % p->step; p->step /= 2) {
    }
    if (p->step < 32) return refuse(p, "its groups are not multiples of 32 columns", e);
    return check_order(p, e);
}

/* --- making ------------------------------------------------------------------------------------------------------ */

static int add(packed *p, const char *ending, tensor_type type, int64_t cols, const void *data, size_t bytes, err *e) {
    char         name[TABLE_MAX_NAME + 32];
    int          n = snprintf(name, sizeof name, "%s%s", p->name, ending);
    model_tensor t = {
        .type = type, .n_dims = 2, .dims = { cols, p->rows, 1, 1, 1, 1, 1, 1 }, .data = data, .bytes = bytes
    };
    return tensor_table_add(&p->m->tensors, &t, (view){ name, (size_t)n }, e);
}

static void *take(packed *p, int64_t cols, size_t element) {
    size_t bytes;
    if (!num_mul_size((size_t)cols, (size_t)p->rows, &bytes) || !num_mul_size(bytes, element, &bytes)) return NULL;
    return arena_calloc(&p->m->packed, 1, bytes);
}

/* Columns in an order that no packing has. */
static int make_plain(packed *p, err *e) {
    uint16_t *out = take(p, p->cols, sizeof *out);
    if (!out) return err_set_nomem(e);
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t c = 0; c < p->cols; c++) {
            int64_t g = group_of(p, c);
            out[r * p->cols + c] =
                tensor_f32_to_f16(scale_at(p, r, g) * (float)((int)code_at(p, r, c) - zero_at(p, r, g)));
        }
    }
    return add(p, ".weight", TENSOR_F16, p->cols, out, (size_t)(p->rows * p->cols) * 2, e);
}

static int make_packed(packed *p, err *e) {
    int64_t   words = p->cols * p->bits / 32, steps = p->cols / p->step;
    uint32_t *out = take(p, words, sizeof *out);
    float    *scales = take(p, steps, sizeof *scales), *biases = take(p, steps, sizeof *biases);
    if (!out || !scales || !biases) return err_set_nomem(e);
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t c = 0; c < p->cols; c++) {
            uint64_t v = (uint64_t)code_at(p, r, c) << (c * p->bits % 32);
            out[r * words + c * p->bits / 32] |= (uint32_t)v;
            if (v >> 32) out[r * words + c * p->bits / 32 + 1] |= (uint32_t)(v >> 32);
        }
        for (int64_t k = 0; k < steps; k++) {
            int64_t g = k * p->step / p->group;
            float   s = scale_at(p, r, g);
            scales[r * steps + k] = s;
            biases[r * steps + k] = -s * (float)zero_at(p, r, g);
        }
    }
    size_t bytes = (size_t)(p->rows * steps) * sizeof(float), at = (size_t)(p->scales - p->m->tensors.items);
    bool   shares = p->m->config.quant.method != MODEL_HF_COMPRESSED; /* those names are taken: .scales of the source */
    int    rc = add(p, ".weight", TENSOR_U32, words, out, (size_t)(p->rows * words) * 4, e);
    if (rc == 0 && shares) {
        model_tensor *mine = &p->m->tensors.items[at]; /* adding has moved the table */
        mine->type = TENSOR_F32;
        mine->dims[0] = steps;
        mine->dims[1] = p->rows;
        mine->data = (const uint8_t *)scales;
        mine->bytes = bytes;
    } else if (rc == 0) {
        rc = add(p, ".scales", TENSOR_F32, steps, scales, bytes, e);
    }
    if (rc == 0) rc = add(p, ".biases", TENSOR_F32, steps, biases, bytes, e);
    return rc;
}

/* All packed modules of a checkpoint have the same packing; the first one says which. */
static int note_packing(packed *p, err *e) {
    hf_mlx *q = &p->m->config.mlx;
    if (!q->present) {
        q->present = true;
        q->all = (model_quant){ MODEL_QUANT_AFFINE, p->bits, p->step };
    }
    if (q->all.bits != p->bits || q->all.group != p->step)
        return refuse(p, "it is packed in another way than the others", e);
    return 0;
}

static int bits_of(const model_file *m) {
    const json_value *groups = json_get(m->config.quant.block, "config_groups");
    int64_t           bits = 0;
    if (m->config.quant.method != MODEL_HF_COMPRESSED) return m->config.quant.bits ? m->config.quant.bits : 4;
    if (!json_is(groups, JSON_K_OBJECT) || groups->u.object.count == 0) return 0;
    const json_value *weights = json_get(&groups->u.object.members[0].value, "weights");
    return json_int(json_get(weights, "num_bits"), &bits) && bits > 0 && bits <= 8 ? (int)bits : 0;
}

int packed_expand(model_file *m, err *e) {
    model_hf_method method = m->config.quant.method;
    const char     *ending = method == MODEL_HF_COMPRESSED ? ".weight_packed" : ".qweight";
    size_t          n = m->tensors.count, tail = strlen(ending);
    if (method != MODEL_HF_GPTQ && method != MODEL_HF_AWQ && method != MODEL_HF_COMPRESSED) return 0;
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = &m->tensors.items[i];
        packed              p = { .m = m, .bits = bits_of(m), .words = t };
        size_t              len = strlen(t->name);
        if (len <= tail || strcmp(t->name + len - tail, ending) != 0) continue;
        if (method == MODEL_HF_COMPRESSED && t->type == TENSOR_U8) continue; /* floats: packed_floats.c */
        memcpy(p.name, t->name, len - tail);
        int rc = check(&p, e);
        if (rc == 0 && p.order) {
            rc = make_plain(&p, e);
        } else if (rc == 0) {
            rc = note_packing(&p, e);
            if (rc == 0) rc = make_packed(&p, e);
        }
        if (rc < 0) return rc;
    }
    return 0;
}

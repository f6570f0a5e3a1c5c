/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/quantize.h"

#include "base/arena.h"
#include "base/num.h"
#include "base/str.h"
#include "convert/gguf_writer.h"
#include "formats/gguf.h"
#include "tensor/codec.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What general.file_type says of a file whose matrices are mostly of a type; -1: the format has no number for it. */
static int file_type(int type) {
    static const struct {
        int type, number;
    } rows[] = {
        { TENSOR_F32, 0 },    { TENSOR_F16, 1 },    { TENSOR_Q4_0, 2 },    { TENSOR_Q4_1, 3 },    { TENSOR_Q8_0, 7 },
        { TENSOR_Q5_0, 8 },   { TENSOR_Q5_1, 9 },   { TENSOR_Q2_K, 10 },   { TENSOR_Q3_K, 11 },   { TENSOR_Q4_K, 14 },
        { TENSOR_Q5_K, 16 },  { TENSOR_Q6_K, 18 },  { TENSOR_IQ4_NL, 25 }, { TENSOR_IQ4_XS, 30 }, { TENSOR_BF16, 32 },
        { TENSOR_TQ1_0, 36 }, { TENSOR_TQ2_0, 37 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == type) return rows[i].number;
    return -1;
}

static bool is_matrix(const model_tensor *t) {
    static const char *const kept[] = { "norm", "gate_inp", "conv", "position_embd", "token_types", "ssm_a", "ssm_d" };
    size_t                   n = strlen(t->name);
    if (t->n_dims < 2 || t->dims[1] < 2 || n < 7 || strcmp(t->name + n - 7, ".weight") != 0) return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(t->name, kept[i])) return false;
    return tensor_can_dequant((int)t->type);
}

static int type_for(const model_tensor *t, int wanted) {
    size_t bytes;
    if (tensor_row_bytes(wanted, t->dims[0], &bytes)) return wanted;
    return tensor_row_bytes(TENSOR_Q8_0, t->dims[0], &bytes) ? TENSOR_Q8_0 : TENSOR_F16;
}

typedef struct work {
    const model_tensor *t;
    int                 type;
    size_t              from_bytes, to_bytes; /* of a row */
    int64_t             rows;
    uint8_t            *out;
    float              *floats; /* one row per worker */
    atomic_llong        next;
} work;

static void quantize_rows(void *ctx, int worker, int n_workers) {
    work   *w = ctx;
    int64_t cols = w->t->dims[0], row;
    float  *floats = w->floats + (size_t)worker * (size_t)cols;
    (void)n_workers;
    while ((row = atomic_fetch_add(&w->next, 1)) < w->rows) {
        tensor_dequant_row((int)w->t->type, w->t->data + (size_t)row * w->from_bytes, floats, cols);
        tensor_quant_row(w->type, floats, w->out + (size_t)row * w->to_bytes, cols);
    }
}

/* "X.scale" beside "X.weight" belongs to the weight: an NVFP4 file that another tool wrote. */
static int refuse_scaled(const model_file *in, const model_tensor *t, err *e) {
    size_t stem = strlen(t->name) - strlen(".weight");
    str    name;
    str_init(&name);
    str_append(&name, t->name, stem);
    str_puts(&name, ".scale");
    int rc = str_ok(&name) ? 0 : err_set_nomem(e);
    if (rc == 0 && t->type == TENSOR_NVFP4 && model_file_tensor(in, str_cstr(&name)))
        rc = err_set(e, ERR_UNSUPPORTED, "%s: a weight with a scale of its own (%s) cannot be quantized anew", t->name,
                     str_cstr(&name));
    str_deinit(&name);
    return rc;
}

static int add_quantized(gguf_writer *out, const model_file *in, const model_tensor *t, int type, pool *p, arena *mem,
                         err *e) {
    work   w = { .t = t, .type = type, .rows = 1 };
    size_t bytes, floats;
    int    rc;
    for (int d = 1; d < t->n_dims; d++) w.rows *= t->dims[d]; /* the reader checked the product */
    if ((rc = refuse_scaled(in, t, e)) < 0) return rc;
    if (!tensor_row_bytes((int)t->type, t->dims[0], &w.from_bytes) ||
        !tensor_row_bytes(type, t->dims[0], &w.to_bytes) || !num_mul_size(w.to_bytes, (size_t)w.rows, &bytes) ||
        !num_mul_size((size_t)t->dims[0] * sizeof(float), (size_t)pool_threads(p), &floats))
        return err_set(e, ERR_FORMAT, "%s: cannot become %s", t->name, tensor_type_name(type));
    w.out = arena_alloc(mem, bytes);
    w.floats = malloc(floats);
    if (!w.out || !w.floats) {
        free(w.floats);
        return err_set_nomem(e);
    }
    pool_run(p, quantize_rows, &w);
    rc = gguf_writer_add(out, t->name, (tensor_type)type, t->n_dims, t->dims, w.out, bytes, e);
    free(w.floats);
    return rc;
}

static int copy_keys(gguf_writer *out, const model_file *in, int type, err *e) {
    int rc = 0, number = file_type(type);
    for (size_t i = 0; rc == 0 && i < model_file_meta_count(in); i++) {
        const char *key = model_file_meta_key(in, i);
        if (strcmp(key, "general.alignment") == 0 || strncmp(key, "split.", 6) == 0) continue; /* of the old file */
        rc = gguf_writer_set(out, key, model_file_meta_at(in, i), e);
    }
    if (rc == 0 && number >= 0) rc = gguf_writer_set_int(out, "general.file_type", META_U32, number, e);
    return rc;
}

int gguf_quantize_type(const char *name, int *out, err *e) {
    if (!tensor_type_parse(name, out)) return err_set(e, ERR_ARG, "no type '%.40s'", name);
    if (!tensor_can_quant(*out) || *out >= TENSOR_GGML_END || file_type(*out) < 0)
        return err_set(e, ERR_ARG, "a file cannot be quantized to %s", tensor_type_name(*out));
    return 0;
}

int gguf_quantize(const model_file *in, const char *path, int type, pool *p, size_t *fallbacks, err *e) {
    gguf_writer *out = NULL;
    arena        mem;
    int          rc;
    *fallbacks = 0;
    if (model_file_format(in) != MODEL_GGUF)
        return err_set(e, ERR_UNSUPPORTED, "%s: only GGUF files can be quantized", model_file_path(in));
    arena_init(&mem, 0);
    if ((rc = gguf_writer_open(&out, 0, e)) < 0 || (rc = copy_keys(out, in, type, e)) < 0) goto done;
    for (size_t i = 0; i < model_file_tensor_count(in); i++) {
        const model_tensor *t = model_file_tensor_at(in, i);
        int                 become = is_matrix(t) ? type_for(t, type) : (int)t->type;
        if (is_matrix(t) && become != type) ++*fallbacks;
        rc = become == (int)t->type ? gguf_writer_add(out, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes, e)
                                    : add_quantized(out, in, t, become, p, &mem, e);
        if (rc < 0) goto done;
    }
    rc = gguf_writer_write(out, path, e);
done:
    gguf_writer_free(out);
    arena_deinit(&mem);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a Hugging Face or MLX directory as a Hugging Face directory without packing has them: packed matrices
 * as numbers under the same names, experts that MLX stacks (switch_mlp) one by one, everything else as it lies.
 */
#include "convert/hf_plan.h"

#include "formats/model_file.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <string.h>

static bool ends(const char *name, const char *ending, char *stem, size_t bytes) {
    size_t len = strlen(name), n = strlen(ending);
    if (len <= n || len - n >= bytes || strcmp(name + len - n, ending) != 0) return false;
    memcpy(stem, name, len - n);
    stem[len - n] = '\0';
    return true;
}

static const model_tensor *find(const model_file *m, const char *stem, const char *ending) {
    char name[400];
    snprintf(name, sizeof name, "%s%s", stem, ending);
    return model_file_tensor(m, name);
}

static bool is_float8(const model_tensor *t) { return t && (t->type == TENSOR_F8_E4M3 || t->type == TENSOR_F8_E5M2); }

/* A tensor that only says how another one is packed. */
static bool is_companion(const model_file *m, const model_tensor *t) {
    static const char *const of_words[] = { ".scales", ".biases" };
    static const char *const of_packed[] = {
        ".qweight",           ".qzeros",       ".g_idx",          ".weight_packed",       ".weight_shape",
        ".weight_zero_point", ".weight_scale", ".weight_scale_2", ".weight_global_scale", ".input_scale",
        ".input_global_scale"
    };
    static const char *const of_float8[] = { ".weight_scale_inv", ".weight_scale", ".input_scale",
                                             ".activation_scale" };
    static const char *const of_nvfp4[] = {
        ".scale",       ".weight_scale",      ".weight_scale_2", ".weight_packed", ".weight_global_scale",
        ".input_scale", ".input_global_scale"
    };
    char        stem[320];
    model_quant q;
    for (size_t i = 0; i < sizeof of_words / sizeof *of_words; i++)
        if (ends(t->name, of_words[i], stem, sizeof stem) && model_file_quant(m, stem, &q)) return true;
    for (size_t i = 0; i < sizeof of_float8 / sizeof *of_float8; i++)
        if (ends(t->name, of_float8[i], stem, sizeof stem) && is_float8(find(m, stem, ".weight"))) return true;
    for (size_t i = 0; i < sizeof of_packed / sizeof *of_packed; i++)
        if (ends(t->name, of_packed[i], stem, sizeof stem) && find(m, stem, ".weight") &&
            (find(m, stem, ".qweight") || find(m, stem, ".weight_packed") || model_file_quant(m, stem, &q)))
            return true;
    if (ends(t->name, ".nf4_scales", stem, sizeof stem)) return true;
    for (size_t i = 0; i < sizeof of_nvfp4 / sizeof *of_nvfp4; i++) {
        const model_tensor *w = ends(t->name, of_nvfp4[i], stem, sizeof stem) ? find(m, stem, ".weight") : NULL;
        if (w && (w->type == TENSOR_NVFP4 || find(m, stem, ".weight_scale_2"))) return true;
    }
    return strstr(t->name, ".weight.") != NULL && (strstr(t->name, "absmax") || strstr(t->name, "quant_"));
}

static bool is_packed(const model_file *m, const model_tensor *t) {
    char        stem[320];
    model_quant q;
    return ends(t->name, ".weight", stem, sizeof stem) &&
           (is_float8(t) || t->type == TENSOR_NF4 || t->type == TENSOR_NVFP4 || model_file_quant(m, stem, &q));
}

/* What packed matrices become: the type of their scales, or what the other weights are. */
static tensor_type plain_type(const model_file *m) {
    bool bf16 = false;
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        char                stem[320];
        if (ends(t->name, ".scales", stem, sizeof stem) && (t->type == TENSOR_F16 || t->type == TENSOR_BF16))
            return t->type;
        if (t->type == TENSOR_BF16) bf16 = true;
        if (!is_packed(m, t) && t->n_dims == 2 && !is_companion(m, t) &&
            (t->type == TENSOR_F16 || t->type == TENSOR_BF16 || t->type == TENSOR_F32))
            return t->type;
    }
    return bf16 ? TENSOR_BF16 : TENSOR_F16;
}

/* --- experts ------------------------------------------------------------------------------------------------------- */

typedef struct one_expert {
    const tensor_mat *m;
    int64_t           e;
} one_expert;

static const void *expert_raw(const void *ctx, int64_t row) {
    const one_expert *x = ctx;
    return (const uint8_t *)x->m->data + (size_t)x->e * x->m->expert_bytes + (size_t)row * x->m->row_bytes;
}

static void expert_floats(const void *ctx, int64_t row, float *out) {
    const one_expert *x = ctx;
    tensor_mat_dequant_row(x->m, x->e, row, out);
}

/* "P.switch_mlp.gate_proj.weight" of expert 3 is "P.experts.3.gate_proj.weight", or ".w1" in Mixtral's block. */
static char *expert_name(arena *mem, const char *name, int e) {
    static const char *const pairs[][2] = { { "gate_proj", "w1" }, { "up_proj", "w3" }, { "down_proj", "w2" } };
    const char              *at = strstr(name, ".switch_mlp.");
    const char              *rest = at + strlen(".switch_mlp.");
    char                     out[400];
    int                      n = (int)strcspn(rest, ".");
    for (int i = 0; i < 3; i++) {
        if (strncmp(rest, pairs[i][0], (size_t)n) != 0 || strlen(pairs[i][0]) != (size_t)n) continue;
        bool short_name = at - name > 16 && strncmp(at - 16, "block_sparse_moe", 16) == 0;
        snprintf(out, sizeof out, "%.*s.experts.%d.%s%s", (int)(at - name), name, e, pairs[i][short_name ? 1 : 0],
                 rest + n);
        return arena_strdup(mem, out);
    }
    return NULL;
}

static int add_experts(hf_plan *out, const tensor_mat *m, const plan_tensor *whole, arena *mem, err *e) {
    for (int64_t k = 0; k < m->n_experts; k++) {
        one_expert  *x = arena_calloc(mem, 1, sizeof *x);
        plan_tensor *t = &out->tensors[out->n++];
        if (!x) return err_set_nomem(e);
        *x = (one_expert){ m, k };
        *t = *whole;
        t->name = expert_name(mem, whole->name, (int)k);
        t->n_dims = 2;
        t->dims[2] = 1;
        t->from =
            (row_source){ .type = m->type, .raw = m->scales ? NULL : expert_raw, .floats = expert_floats, .ctx = x };
        if (!t->name) return err_set(e, ERR_UNSUPPORTED, "tensor %s: experts of this kind are not known", whole->name);
    }
    return 0;
}

/* --- tensors ------------------------------------------------------------------------------------------------------- */

static bool is_number(tensor_type t) { return t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16; }

/* Rows as they lie, of any type: for what is copied. */
static const void *plain_raw(const void *ctx, int64_t row) {
    const model_tensor *t = ctx;
    size_t              row_bytes = 0;
    tensor_row_bytes((int)t->type, t->dims[0], &row_bytes);
    return t->data + (size_t)row * row_bytes;
}

static int add_tensor(hf_plan *out, const model_file *m, const model_tensor *t, int type, arena *mem, err *e) {
    plan_tensor x = { .name = t->name, .type = t->type, .n_dims = t->n_dims };
    for (int d = 0; d < 4; d++) x.dims[d] = t->dims[d];
    bool packed = is_packed(m, t), experts = strstr(t->name, ".switch_mlp.") && t->n_dims == 3;
    if (t->n_dims > 4) return err_set(e, ERR_UNSUPPORTED, "tensor %s has %d dimensions", t->name, t->n_dims);
    if (packed || experts) {
        tensor_mat *mat = arena_calloc(mem, 1, sizeof *mat);
        if (!mat) return err_set_nomem(e);
        int rc = nn_tensor_describe(m, t, mat, e);
        if (rc < 0) return rc;
        x.dims[0] = mat->cols;
        x.from = row_source_mat(mat);
        x.type = packed || (type >= 0 && is_number(t->type)) ? out->type : t->type;
        if (experts) return add_experts(out, mat, &x, mem, e);
    } else {
        x.from = (row_source){ .type = t->type, .raw = plain_raw, .ctx = t };
        if (type >= 0 && is_number(t->type) && t->n_dims > 1) x.type = out->type;
    }
    out->tensors[out->n++] = x;
    return 0;
}

int hf_plan_dir(hf_plan *out, const model_file *m, int type, arena *mem, err *e) {
    size_t n = 0;
    int    rc = 0;
    memset(out, 0, sizeof *out);
    out->type = type < 0 ? plain_type(m) : (tensor_type)type;
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        n += t->n_dims == 3 && t->dims[2] > 0 ? (size_t)t->dims[2] : 1;
    }
    if (!(out->tensors = arena_calloc(mem, n ? n : 1, sizeof *out->tensors))) return err_set_nomem(e);
    for (size_t i = 0; i < model_file_tensor_count(m) && rc == 0; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        if (!is_companion(m, t)) rc = add_tensor(out, m, t, type, mem, e);
    }
    return rc;
}

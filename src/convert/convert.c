/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/convert.h"

#include "convert/vocab.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- keys -------------------------------------------------------------------------------------------------------- */

static const char *last_part(const char *path, char *out, size_t bytes) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    snprintf(out, bytes, "%.*s", (int)(n - from), path + from);
    return out;
}

/* "7B", "1.2B", "350M": how published files name a size. */
static void size_label(double weights, char *out, size_t bytes) {
    if (weights >= 9.95e8)
        snprintf(out, bytes, weights < 9.95e9 ? "%.1fB" : "%.0fB", weights / 1e9);
    else
        snprintf(out, bytes, "%.0fM", weights / 1e6);
}

static int noted_int(const nn_model *m, const char *key, int dflt) {
    for (const nn_config_note *n = m->config.notes; n; n = n->next)
        if (strcmp(n->key, key) == 0)
            return n->type == 'i' ? (int)n->value : n->n_list > 0 && n->list ? n->list[0] : dflt;
    return dflt;
}

/* Readers take a value's size from the width and the heads unless a key says otherwise, as they do a key's. This key and
 * the next stand before all others, whether the source has them or not, and get its values afterwards. */
static int set_value_length(gguf_writer *w, const nn_model *m, err *e) {
    char key[128];
    int  size = noted_int(m, "attention.key_length", 0);
    if (size <= 0) return 0;
    snprintf(key, sizeof key, "%s.attention.value_length", m->arch->names[0]);
    return gguf_writer_set_int(w, key, META_U32, size, e);
}

/* Readers want a length also of models that have no limit; this is what published files of such models say. */
static int set_context(gguf_writer *w, const nn_model *m, err *e) {
    char key[128];
    snprintf(key, sizeof key, "%s.context_length", m->arch->names[0]);
    return gguf_writer_set_int(w, key, META_U32, m->arch->lacks & NN_LACKS_HEADS ? 1 << 20 : 2048, e);
}

static int set_keys(gguf_writer *w, const nn_model *m, const convert_options *o, double weights, int file_type,
                    err *e) {
    char name[256], size[32];
    size_label(weights, size, sizeof size);
    int rc = gguf_writer_set_string(w, "general.architecture", m->arch->names[0], e);
    if (rc == 0) rc = set_context(w, m, e);
    if (rc == 0) rc = set_value_length(w, m, e);
    if (rc == 0) rc = export_keys(w, m, false, e);
    if (rc == 0) rc = gguf_writer_set_string(w, "general.type", "model", e);
    if (rc == 0)
        rc = gguf_writer_set_string(w, "general.name",
                                    o->name ? o->name : last_part(model_file_path(m->file), name, sizeof name), e);
    if (rc == 0) rc = gguf_writer_set_string(w, "general.size_label", size, e);
    if (rc == 0 && file_type >= 0) rc = gguf_writer_set_int(w, "general.file_type", META_U32, file_type, e);
    if (rc == 0) rc = gguf_writer_set_int(w, "general.quantization_version", META_U32, 2, e);
    if (rc == 0 && o->importance) rc = imatrix_note(o->importance, w, e);
    if (rc == 0 && o->tokenizer) rc = vocab_keys(w, m->file, o->tokenizer, m->dims->n_vocab, e);
    if (rc == 0 && o->tokenizer) rc = vocab_template(w, m->file, e);
    return rc;
}

/* --- types ------------------------------------------------------------------------------------------------------- */

static mix_model describe(const nn_model *m, bool importance) {
    return (mix_model){ .n_layers = m->dims->n_layer,
                        .n_experts = noted_int(m, "expert_count", 0),
                        .heads = m->dims->n_head,
                        .kv_heads = m->dims->n_kv,
                        .falcon = strcmp(m->arch->names[0], "falcon") == 0,
                        .importance = importance };
}

static int apply_mix(const nn_model *m, const convert_options *o, plan_tensor *t, size_t n, quantize_line *lines,
                     err *e) {
    mix_model   about = describe(m, o->importance != NULL);
    mix_tensor *x = calloc(n ? n : 1, sizeof *x);
    if (!x) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++)
        x[i] = (mix_tensor){
            .name = t[i].name, .n_dims = t[i].n_dims, .cols = t[i].dims[0], .stack = t[i].dims[2], .type = t[i].type
        };
    int rc = mix_types(o->mix, &about, x, n, o->pure, NULL, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        bool changes = x[i].type != t[i].from.type || !t[i].from.raw;
        if (changes && mix_needs_importance(o->mix, x[i].type) && !o->importance)
            rc = err_set(e, ERR_ARG, "%s: %s needs an importance matrix", t[i].name, tensor_type_name((int)x[i].type));
        t[i].type = x[i].type;
        lines[i].fallback = x[i].fallback;
        if (!changes || !o->importance) continue;
        t[i].importance = imatrix_find(o->importance, t[i].name, t[i].dims[0], t[i].dims[2]);
        if (t[i].dims[2] > 1) t[i].importance_rows = t[i].dims[1];
    }
    free(x);
    return rc;
}

/* Routers, convolutions, tables of positions: small, felt everywhere, and F32 in published files. */
static void keep_small(plan_tensor *t, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool half = t[i].type == TENSOR_F16 || t[i].type == TENSOR_BF16;
        if (half && !mix_quantizes(t[i].name, t[i].n_dims)) t[i].type = TENSOR_F32;
    }
}

/* 16 bits that hold what was in them: checkpoints of BF16 stay BF16. */
static int plain_file_type(const plan_tensor *t, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (t[i].n_dims < 2 || !mix_quantizes(t[i].name, t[i].n_dims)) continue;
        return t[i].type == TENSOR_F32 ? 0 : t[i].type == TENSOR_BF16 ? 32 : t[i].type == TENSOR_F16 ? 1 : -1;
    }
    return -1;
}

int convert_gguf(const nn_model *m, const convert_options *o, pool *p, quantize_result *out, err *e) {
    gguf_writer *w = NULL;
    plan_tensor *t = NULL;
    arena        mem;
    size_t       n = 0;
    double       weights = 0;
    if (model_file_format(m->file) == MODEL_GGUF) { /* nothing to name anew: only types can change */
        quantize_options q = { .mix = o->mix, .pure = o->pure, .importance = o->importance, .write = o->write };
        if (o->mix) return gguf_quantize(m->file, &q, p, out, e);
        return err_set(e, ERR_ARG, "%s is a GGUF file already; a type would change it", model_file_path(m->file));
    }
    memset(out, 0, sizeof *out);
    arena_init(&mem, 0);
    int rc = export_plan(m, &mem, &t, &n, e);
    if (rc == 0 && !(out->lines = calloc(n ? n : 1, sizeof *out->lines))) rc = err_set_nomem(e);
    if (rc == 0) keep_small(t, n);
    if (rc == 0 && o->mix) rc = apply_mix(m, o, t, n, out->lines, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        out->lines[i].was = t[i].from.type;
        out->lines[i].is = t[i].type;
        out->lines[i].elements = plan_rows(&t[i]) * t[i].dims[0];
        weights += (double)out->lines[i].elements;
    }
    if (rc == 0) rc = gguf_writer_open(&w, 0, e);
    if (rc == 0) rc = set_keys(w, m, o, weights, o->mix ? mix_number(o->mix) : plain_file_type(t, n), e);
    if (rc == 0) {
        plan_options      write = o->write;
        const model_file *from = m->file;
        write.identity = quantize_source_identity(from);
        write.from = &from;
        write.n_from = 1;
        if (o->importance) write.identity ^= imatrix_identity(o->importance);
        rc = plan_write_gguf(w, t, n, &write, p, &out->file, e);
    }
    for (size_t i = 0; i < n && rc == 0; i++) { /* the plan's names end with it; the model's stay */
        out->lines[i].name = t[i].name;
        out->n = n;
    }
    gguf_writer_free(w);
    arena_deinit(&mem);
    if (rc < 0) quantize_result_deinit(out);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/quantize.h"

#include "base/num.h"
#include "base/str.h"
#include "base/xxh64.h"
#include "convert/target.h"
#include "tensor/codec.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* The type of a name that one tensor can be quantized to. */
static int quantize_type(const char *name, int *out, err *e) {
    if (!tensor_type_parse(name, out)) return err_set(e, ERR_ARG, "'%.40s' is not a tensor type", name);
    if (!tensor_can_quant(*out) || *out >= TENSOR_GGML_END)
        return err_set(e, ERR_ARG, "a tensor of a GGUF file cannot become %s", tensor_type_name(*out));
    return 0;
}

int quantize_override_read(quantize_override *out, char *text, err *e) {
    char   *mark = strrchr(text, '=');
    regex_t r;
    int     rc;
    if (!mark || mark == text) return err_set(e, ERR_ARG, "'%.80s' is not REGEX=TYPE", text);
    *mark = '\0';
    out->pattern = text;
    if ((rc = quantize_type(mark + 1, &out->type, e)) < 0) return rc;
    if (regcomp(&r, text, REG_EXTENDED | REG_NOSUB) != 0)
        return err_set(e, ERR_ARG, "'%.80s' is not a regular expression", text);
    regfree(&r);
    return 0;
}

/* types[i]: what the overrides say of tensor i, or -1. */
static int apply_overrides(const model_file *in, const quantize_options *o, int *types, err *e) {
    size_t n = model_file_tensor_count(in);
    for (size_t i = 0; i < n; i++) types[i] = -1;
    for (size_t k = 0; k < o->n_overrides; k++) {
        regex_t r;
        if (regcomp(&r, o->overrides[k].pattern, REG_EXTENDED | REG_NOSUB) != 0)
            return err_set(e, ERR_ARG, "'%.80s' is not a regular expression", o->overrides[k].pattern);
        for (size_t i = 0; i < n; i++) {
            const char *name = model_file_tensor_at(in, i)->name;
            if (types[i] < 0 && regexec(&r, name, 0, NULL, 0) == 0) types[i] = o->overrides[k].type;
        }
        regfree(&r);
    }
    return 0;
}

/* --- what the model is ------------------------------------------------------------------------------------------- */

static int64_t first_int(const model_file *in, const char *arch, const char *key, int64_t dflt) {
    str     name;
    int64_t v = dflt;
    str_init(&name);
    str_printf(&name, "%s.%s", arch, key);
    const meta_value *m = model_file_meta(in, str_cstr(&name));
    if (!meta_int(m, &v) && !meta_at_int(m, 0, &v)) v = dflt;
    str_deinit(&name);
    return v;
}

static mix_model describe(const model_file *in, bool importance) {
    const char *arch = model_file_arch(in) ? model_file_arch(in) : "";
    mix_model   m = { .importance = importance, .falcon = strcmp(arch, "falcon") == 0 };
    m.n_layers = (int)first_int(in, arch, "block_count", 0);
    m.n_experts = (int)first_int(in, arch, "expert_count", 0);
    m.heads = (int)first_int(in, arch, "attention.head_count", 0);
    m.kv_heads = (int)first_int(in, arch, "attention.head_count_kv", m.heads);
    return m;
}

uint64_t quantize_source_identity(const model_file *in) {
    uint64_t sum = model_file_bytes(in);
    for (size_t i = 0; i < model_file_tensor_count(in); i++) {
        const model_tensor *t = model_file_tensor_at(in, i);
        uint64_t            x[4] = { sum, xxh64(t->name, strlen(t->name)), t->bytes,
                                     xxh64(t->data, t->bytes < 256 ? t->bytes : 256) };
        sum = xxh64(x, sizeof x);
    }
    return sum;
}

/* --- the work ---------------------------------------------------------------------------------------------------- */

typedef struct work {
    const model_file       *in;
    const quantize_options *o;
    mix_tensor             *mixed;
    int                    *forced;
    plan_tensor            *plan;
    tensor_mat             *mats;
    size_t                  n;
} work;

static int allocate(work *w, quantize_result *out, err *e) {
    size_t n = w->n ? w->n : 1;
    w->mixed = calloc(n, sizeof *w->mixed);
    w->forced = calloc(n, sizeof *w->forced);
    w->plan = calloc(n, sizeof *w->plan);
    w->mats = calloc(n, sizeof *w->mats);
    out->lines = calloc(n, sizeof *out->lines);
    out->n = w->n;
    return w->mixed && w->forced && w->plan && w->mats && out->lines ? 0 : err_set_nomem(e);
}

static void list_tensors(work *w) {
    for (size_t i = 0; i < w->n; i++) {
        const model_tensor *t = model_file_tensor_at(w->in, i);
        int                 n_dims = t->n_dims;
        while (n_dims > 1 && t->dims[n_dims - 1] == 1) n_dims--; /* a column of numbers is a vector */
        w->mixed[i] =
            (mix_tensor){ .name = t->name, .n_dims = n_dims, .cols = t->dims[0], .stack = t->dims[2], .type = t->type };
    }
}

/* The types of every mix, for the judge. */
static int all_mixes(work *w, const mix_model *model, target_mixes *out, err *e) {
    const mix *m;
    size_t     n = 0;
    int        rc = 0;
    while (mix_at(n)) n++;
    out->types = calloc(n * w->n + 1, sizeof *out->types);
    if (!out->types) return err_set_nomem(e);
    for (size_t k = 0; rc == 0 && (m = mix_at(k)); k++) {
        list_tensors(w);
        rc = mix_types(m, model, w->mixed, w->n, false, w->forced, e);
        for (size_t i = 0; i < w->n; i++) out->types[k * w->n + i] = w->mixed[i].type;
        out->n = k + 1;
    }
    return rc;
}

static int choose_by_damage(work *w, const mix_model *model, pool *p, err *e) {
    target_mixes mixes = { 0 };
    int          rc = w->o->judge ? all_mixes(w, model, &mixes, e) : 0;
    if (rc == 0) rc = target_types(w->in, w->o, &mixes, p, w->forced, e);
    free(mixes.types);
    return rc;
}

static int choose_types(work *w, pool *p, err *e) {
    mix_model model = describe(w->in, w->o->importance != NULL);
    int       rc = apply_overrides(w->in, w->o, w->forced, e);
    if (rc == 0 && w->o->target_bpw > 0) rc = choose_by_damage(w, &model, p, e);
    list_tensors(w);
    if (rc == 0) rc = mix_types(w->o->mix, &model, w->mixed, w->n, w->o->pure, w->forced, e);
    return rc;
}

/* The F32 beside an NVFP4 weight: "X.scale" of "X.weight", one number or one per expert. */
static const float *scale_beside(const model_file *in, const model_tensor *t, int64_t stack) {
    size_t len = strlen(t->name);
    if (t->type != TENSOR_NVFP4 || len < 7 || strcmp(t->name + len - 7, ".weight") != 0) return NULL;
    str name;
    str_init(&name);
    str_append(&name, t->name, len - 7);
    str_puts(&name, ".scale");
    const model_tensor *s = str_ok(&name) ? model_file_tensor(in, str_cstr(&name)) : NULL;
    str_deinit(&name);
    return s && s->type == TENSOR_F32 && s->bytes == (size_t)stack * 4 ? (const float *)(const void *)s->data : NULL;
}

static int refuse_scaled(const work *w, const model_tensor *t, tensor_type become, err *e) {
    if (become == t->type || !scale_beside(w->in, t, t->dims[2])) return 0;
    return err_set(e, ERR_UNSUPPORTED, "%s: a weight with a scale of its own cannot be quantized anew", t->name);
}

static int check_source(const work *w, size_t i, err *e) {
    const model_tensor *t = model_file_tensor_at(w->in, i);
    tensor_type         become = w->mixed[i].type;
    if (become == t->type) return 0;
    if (!tensor_can_dequant((int)t->type) || !tensor_can_quant((int)become))
        return err_set(e, ERR_UNSUPPORTED, "%s: %s cannot become %s", t->name, tensor_type_name((int)t->type),
                       tensor_type_name((int)become));
    if (mix_needs_importance(w->o->mix, become) && !w->o->importance)
        return err_set(e, ERR_ARG,
                       "%s: %s needs an importance matrix; make one with 'hearth imatrix' and name it with "
                       "--imatrix",
                       t->name, tensor_type_name((int)become));
    return refuse_scaled(w, t, become, e);
}

static int plan_one(work *w, size_t i, quantize_line *line, err *e) {
    const model_tensor *t = model_file_tensor_at(w->in, i);
    plan_tensor        *x = &w->plan[i];
    tensor_mat         *m = &w->mats[i];
    int                 rc = check_source(w, i, e);
    if (rc < 0) return rc;
    *x = (plan_tensor){ .name = t->name, .type = w->mixed[i].type, .n_dims = t->n_dims };
    for (int d = 0; d < 4; d++) x->dims[d] = t->dims[d];
    *m = (tensor_mat){ .type = t->type, .rows = plan_rows(x), .cols = t->dims[0], .data = t->data };
    if (!tensor_row_bytes((int)t->type, t->dims[0], &m->row_bytes))
        return err_set(e, ERR_FORMAT, "%s: rows of %lld", t->name, (long long)t->dims[0]);
    x->from = row_source_mat(m);
    *line = (quantize_line){
        .name = t->name, .was = t->type, .is = x->type, .elements = m->rows * m->cols, .fallback = w->mixed[i].fallback
    };
    if (x->type == t->type || !w->o->importance) return 0;
    x->importance = imatrix_find(w->o->importance, t->name, t->dims[0], t->dims[2]);
    if (t->dims[2] > 1) x->importance_rows = t->dims[1];
    line->plain = !x->importance && tensor_type_get((int)x->type)->quantized;
    if (line->plain && mix_needs_importance(w->o->mix, x->type))
        return err_set(e, ERR_ARG, "%s: the importance matrix does not know it, and %s needs one", t->name,
                       tensor_type_name((int)x->type));
    return 0;
}

static int set_keys(gguf_writer *out, const work *w, err *e) {
    int rc = 0, number = w->o->target_bpw > 0 ? -1 : mix_number(w->o->mix); /* chosen types are not a mix */
    for (size_t i = 0; rc == 0 && i < model_file_meta_count(w->in); i++) {
        const char *key = model_file_meta_key(w->in, i);
        if (strcmp(key, "general.alignment") == 0 || strncmp(key, "split.", 6) == 0) continue; /* of the old file */
        if (number < 0 && strcmp(key, "general.file_type") == 0) continue;
        rc = gguf_writer_set(out, key, model_file_meta_at(w->in, i), e);
    }
    if (rc == 0 && number >= 0) rc = gguf_writer_set_int(out, "general.file_type", META_U32, number, e);
    if (rc == 0 && tensor_type_get((int)mix_base(w->o->mix))->quantized)
        rc = gguf_writer_set_int(out, "general.quantization_version", META_U32, 2, e);
    if (rc == 0 && w->o->importance) rc = imatrix_note(w->o->importance, out, e);
    return rc;
}

int gguf_quantize(const model_file *in, const quantize_options *o, pool *p, quantize_result *out, err *e) {
    work         w = { .in = in, .o = o, .n = model_file_tensor_count(in) };
    gguf_writer *writer = NULL;
    int          rc;
    memset(out, 0, sizeof *out);
    if (model_file_format(in) != MODEL_GGUF)
        return err_set(e, ERR_UNSUPPORTED, "%s: only GGUF files can be quantized; 'hearth convert' makes one",
                       model_file_path(in));
    rc = allocate(&w, out, e);
    if (rc == 0) rc = choose_types(&w, p, e);
    for (size_t i = 0; i < w.n && rc == 0; i++) rc = plan_one(&w, i, &out->lines[i], e);
    if (rc == 0) rc = gguf_writer_open(&writer, 0, e);
    if (rc == 0) rc = set_keys(writer, &w, e);
    if (rc == 0) {
        plan_options write = o->write;
        write.identity = quantize_source_identity(in);
        write.from = &in;
        write.n_from = 1;
        if (o->importance) write.identity ^= imatrix_identity(o->importance);
        rc = plan_write_gguf(writer, w.plan, w.n, &write, p, &out->file, e);
    }
    gguf_writer_free(writer);
    free(w.mixed);
    free(w.forced);
    free(w.plan);
    free(w.mats);
    if (rc < 0) quantize_result_deinit(out);
    return rc;
}

void quantize_result_deinit(quantize_result *r) {
    free(r->lines);
    memset(r, 0, sizeof *r);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The binder: names from GGUF and from Hugging Face or MLX, checked shapes, parts of fused tensors. See nn.h. */
#include "nn/bind.h"

#include "nn/bound.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the language model's tensors begin: text-only files, multimodal ones, older MLX ones, GPT-2's, bare backbones,
 * encoders under a head of their own. */
const char *const bind_roots[] = { "model.",
                                   "model.language_model.",
                                   "language_model.model.",
                                   "language_model.",
                                   "transformer.",
                                   "",
                                   "bert.",
                                   "roberta.",
                                   "distilbert.",
                                   "mpnet.",
                                   "new.",
                                   "nomic_bert.",
                                   "deberta.",
                                   "electra.",
                                   "ernie.",
                                   "albert.",
                                   "roberta_prelayernorm.",
                                   "encoder.",
                                   "model.text_model.",
                                   "thinker.model.",
                                   "thinker.",
                                   "language_model.model.encoder.", /* Qianfan-OCR, as transformers saves it */
                                   NULL };

void bind_fail(nn_binder *b, int code, const char *fmt, ...) {
    va_list ap;
    if (b->failed) return;
    b->failed = true;
    va_start(ap, fmt);
    err_setv(&b->error, code, fmt, ap);
    va_end(ap);
}

/* --- names ------------------------------------------------------------------------------------------------------ */

bool bind_next_name(const char **list, const char *prefix, bind_name *out) {
    const char *s = *list;
    char        text[160];
    if (!s || !*s) return false;
    size_t n = strcspn(s, "|");
    if (n >= sizeof text) n = sizeof text - 1;
    memcpy(text, s, n);
    text[n] = '\0';
    *list = s[strcspn(s, "|")] == '|' ? s + strcspn(s, "|") + 1 : NULL;

    *out = (bind_name){ .name = "" };
    char *part = strchr(text, '#');
    if (part) {
        *part++ = '\0';
        out->part = atoi(part);
        out->interleaved = strchr(part, '%') != NULL;
        char *sep = strpbrk(part, "/%");
        out->parts = sep ? atoi(sep + 1) : 0;
    }
    size_t len = strlen(text);
    if (len && text[len - 1] == '^') {
        out->transposed = true;
        text[len - 1] = '\0';
    }
    snprintf(out->name, sizeof out->name, "%s%s", prefix, text);
    return true;
}

static bool find_exact(const nn_binder *b, const char *name, bind_found *out) {
    char full[288];
    snprintf(full, sizeof full, "%s.weight", name);
    snprintf(out->module, sizeof out->module, "%s", name);
    out->ending = '=';
    if ((out->tensor = model_file_tensor(b->file, name))) {
        size_t len = strlen(name), suffix = strlen(".weight");
        if (len > suffix && len < sizeof out->module && strcmp(name + len - suffix, ".weight") == 0) {
            out->module[len - suffix] = '\0';
            out->ending = 'w';
        }
        return true;
    }
    out->ending = 'w';
    if ((out->tensor = model_file_tensor(b->file, full))) return true;
    if (b->gguf) return false;
    snprintf(full, sizeof full, "%s_blocks", name);
    out->ending = 'b';
    return (out->tensor = model_file_tensor(b->file, full)) != NULL;
}

/* Finds `name` (as it stands, with ".weight", with "_blocks"), under every spelling of the root. */
static bool bind_find(nn_binder *b, const char *name, bind_found *out) {
    char               full[256];
    bool               in_model = strncmp(name, "model.", 6) == 0;
    const char *const *known = b->roots ? b->roots : bind_roots;
    int                n = 0;
    if (b->gguf) return find_exact(b, name, out);
    while (known[n]) n++;
    for (int i = 0; i < n; i++) {
        int r = (b->root + i) % n;
        if (in_model)
            snprintf(full, sizeof full, "%s%s", known[r], name + 6);
        else
            snprintf(full, sizeof full, "%s%s", i == 0 ? "" : known[(r + 1) % n], name);
        if (find_exact(b, full, out)) {
            if (in_model) b->root = r;
            return true;
        }
    }
    return false;
}

const model_tensor *bind_companion(nn_binder *b, const bind_found *f, const char *ending) {
    char full[320];
    snprintf(full, sizeof full, "%s%s", f->module, ending);
    return model_file_tensor(b->file, full);
}

/* The name with '*' replaced by an expert's number. */
static void expand(const bind_name *n, int expert, char *out, size_t bytes) {
    const char *star = strchr(n->name, '*');
    char       *rest = star ? (char *)star + 1 : NULL;
    long        first = rest && *rest == '+' ? strtol(rest + 1, &rest, 10) : 0;
    if (star)
        snprintf(out, bytes, "%.*s%ld%s", (int)(star - n->name), n->name, first + expert, rest);
    else
        snprintf(out, bytes, "%s", n->name);
}

/* Tries all alternatives for this kind of file; on success *which is the one found. */
static bool find_any(nn_binder *b, const char *gguf, const char *hf, bind_name *which, bind_found *out) {
    const char *list = b->gguf ? gguf : hf;
    while (bind_next_name(&list, b->gguf ? b->gguf_prefix : b->hf_prefix, which)) {
        char full[256];
        expand(which, 0, full, sizeof full);
        if (bind_find(b, full, out)) return true;
    }
    return false;
}

static void fail_missing(nn_binder *b, const char *gguf, const char *hf) {
    const char *list = b->gguf ? gguf : hf;
    bind_name   n;
    if (!bind_next_name(&list, b->gguf ? b->gguf_prefix : b->hf_prefix, &n))
        bind_fail(b, ERR_UNSUPPORTED, "%s cannot be read from this kind of file", gguf ? gguf : hf);
    else
        bind_fail(b, ERR_NOTFOUND, "tensor %s%s is missing%s", n.name,
                  strchr(n.name, '.') && strstr(n.name, ".bias") ? "" : ".weight",
                  list ? " (other names for it were tried too)" : "");
}

void nn_bind_none(nn_binder *b, const char *gguf, const char *hf) {
    bind_name  n;
    bind_found f;
    if (!b->failed && b->file && find_any(b, gguf, hf, &n, &f))
        bind_fail(b, ERR_UNSUPPORTED, "tensor %s: this variant of the family is not supported", f.tensor->name);
}

bool nn_bind_exists(nn_binder *b, const char *gguf, const char *hf) {
    bind_name  n;
    bind_found f;
    if (!b->file) return gguf != NULL; /* a model that is made up has GGUF names */
    return !b->failed && find_any(b, gguf, hf, &n, &f);
}

int64_t nn_bind_width(nn_binder *b, const char *gguf, const char *hf) {
    bind_name  n;
    bind_found f;
    return b->file && !b->failed && find_any(b, gguf, hf, &n, &f) ? f.tensor->dims[0] : 0;
}

int64_t nn_bind_size(nn_binder *b, const char *gguf, const char *hf) {
    bind_name  name;
    bind_found f;
    int64_t    n = 1;
    if (!b->file || b->failed || !find_any(b, gguf, hf, &name, &f)) return 0;
    for (int i = 0; i < f.tensor->n_dims; i++) n *= f.tensor->dims[i];
    return n;
}

/* --- what was asked for, under its GGUF name -------------------------------------------------------------------- */

/* `first` and `total` count rows of the part that the name says; the note counts rows of the whole tensor. */
static nn_wanted *note(nn_binder *b, const char *gguf, const char *ending, int64_t first, int64_t total) {
    bind_name   n;
    const char *list = gguf;
    char        full[256];
    if (!gguf || b->failed || !bind_next_name(&list, b->gguf_prefix, &n)) return NULL;
    snprintf(full, sizeof full, "%s%s", n.name, ending);
    nn_wanted *w = arena_calloc(b->mem, 1, sizeof *w);
    char      *name = arena_strdup(b->mem, full);
    if (!w || !name) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    int parts = n.parts ? n.parts : 1;
    w->name = name;
    w->step = n.interleaved ? parts : 1;
    w->first = n.interleaved ? n.part + first * parts : n.part * total + first;
    w->total = total * parts;
    w->next = b->model->wanted;
    b->model->wanted = w;
    return w;
}

static void note_mat(nn_binder *b, const char *gguf, const nn_mat *mat, const bind_wish *w) {
    int64_t    rows = mat ? mat->rows : w->rows;
    nn_wanted *n = note(b, gguf, ".weight", w->first, w->flags & NN_AT_LEAST ? rows : w->total);
    if (!n) return;
    n->mat = mat;
    n->cols = w->cols;
    n->rows = rows;
    n->n_stack = w->stack;
    n->rotary = w->flags & NN_ROTARY;
}

static void note_bias(nn_binder *b, const char *gguf, const nn_vec *vec, const bind_wish *w) {
    nn_wanted *n = note(b, gguf, ".bias", w->first, w->total);
    if (!n) return;
    n->vec = vec;
    n->cols = w->rows;
    n->n_stack = w->stack;
    n->rotary = w->flags & NN_ROTARY;
}

static void note_vec(nn_binder *b, const char *gguf, const nn_vec *vec, int64_t count, unsigned flags) {
    /* Parameters that GGUF files name without an ending. */
    bool bare =
        gguf && (flags & NN_BARE || strchr(gguf, '.') || strcmp(gguf, "ssm_a") == 0 || strcmp(gguf, "ssm_d") == 0);
    nn_wanted *n = note(b, gguf, bare ? "" : ".weight", 0, count);
    if (!n) return;
    n->vec = vec;
    n->cols = count;
}

/* --- vectors ---------------------------------------------------------------------------------------------------- */

static const nn_vec *new_vec(nn_binder *b, const char *name, const float *data, int64_t n) {
    nn_vec *v = arena_calloc(b->mem, 1, sizeof *v);
    char   *copy = arena_strdup(b->mem, name);
    if (!v || !copy) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    *v = (nn_vec){ copy, n, data };
    return v;
}

static bool ends_with(const char *name, const char *ending) {
    size_t n = strlen(name), k = strlen(ending);
    return n >= k && strcmp(name + n - k, ending) == 0;
}

bool bind_one_added(const model_file *f) {
    for (size_t i = 0; f && i < model_file_tensor_count(f); i++) {
        const model_tensor *t = model_file_tensor_at(f, i);
        if (ends_with(t->name, "linear_attn.conv1d.weight")) return t->n_dims == 3 && t->dims[0] == 1 && t->dims[1] > 1;
        if (ends_with(t->name, "mlp.gate.router_bias")) return true; /* Step 3.5 */
    }
    return false;
}

void nn_bind_vec(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int64_t n, unsigned flags) {
    bind_name  which;
    bind_found f;
    int64_t    count;
    *out = NULL;
    if (b->failed) return;
    if (!b->file) {
        if (!(flags & NN_OPTIONAL)) note_vec(b, gguf, NULL, n, flags);
        return;
    }
    if (!find_any(b, gguf, hf, &which, &f)) {
        if (!(flags & NN_OPTIONAL)) fail_missing(b, gguf, hf);
        return;
    }
    if (b->gguf && f.ending == 'w' && !(flags & NN_OWN_SCALE) && bind_companion(b, &f, ".scale")) {
        bind_fail(b, ERR_UNSUPPORTED, "tensor %s.scale: this weight cannot have a scale", f.module);
        return;
    }
    const float *data = bind_floats(b, f.tensor, &count);
    if (!data) return;
    int64_t have = which.parts ? count / which.parts : count;
    if (have != n || (which.parts && count % which.parts)) {
        bind_fail(b, ERR_FORMAT, "tensor %s has %lld values where %lld were expected", f.tensor->name, (long long)have,
                  (long long)n);
        return;
    }
    float *mine = arena_alloc(b->mem, (size_t)n * sizeof *mine);
    if (!mine) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float x =
            which.parts ? (which.interleaved ? data[i * which.parts + which.part] : data[which.part * n + i]) : data[i];
        if (!b->gguf && !b->one_added && (flags & NN_PLUS_ONE)) x += 1.0f;
        if (!b->gguf && (flags & NN_NEG_EXP)) x = -expf(x);
        mine[i] = x;
    }
    *out = new_vec(b, f.tensor->name, mine, n);
    note_vec(b, gguf, *out, n, flags);
    bind_record_vec(b, *out, hf, flags);
}

/* For each alternative of a list: it with the ending, and, unless NULL, with `other`, the ending of older files. */
static void with_endings(const char *list, const char *ending, const char *other, char *out, size_t bytes) {
    size_t at = 0;
    *out = '\0';
    while (list && *list && at < bytes) {
        int n = (int)strcspn(list, "|");
        at += (size_t)snprintf(out + at, bytes - at, "%s%.*s%s", at ? "|" : "", n, list, ending);
        if (other && at < bytes) at += (size_t)snprintf(out + at, bytes - at, "|%.*s%s", n, list, other);
        list += n + (list[n] == '|');
    }
}

void nn_bind_norm(nn_binder *b, nn_norm *out, const char *gguf, const char *hf, int64_t n, unsigned flags) {
    char weight[320], bias[320], own[160];
    with_endings(hf, "", ".gamma", weight, sizeof weight);
    with_endings(hf, ".bias", ".beta", bias, sizeof bias);
    with_endings(gguf, ".bias", NULL, own, sizeof own);
    nn_bind_vec(b, &out->w, gguf, weight, n, flags & ~(unsigned)NN_OPTIONAL);
    nn_bind_vec(b, &out->b, gguf ? own : NULL, bias, n, flags & ~(unsigned)NN_PLUS_ONE);
}

/* The newest vector, if it is one of after `before`, lies in rows of this many. */
static void note_fold(nn_binder *b, const nn_wanted *before, const nn_vec *vec, int64_t each) {
    if (b->model->wanted != before) b->model->wanted->fold = each;
    if (vec && b->model->bound_vecs && b->model->bound_vecs->vec == vec) b->model->bound_vecs->fold = each;
}

void nn_bind_vecs(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int count, int64_t each,
                  unsigned flags) {
    bind_name  which;
    bind_found f;
    nn_wanted *before = b->model->wanted;
    if (b->failed || !b->file || b->gguf || !find_any(b, gguf, hf, &which, &f) || !strchr(which.name, '*')) {
        nn_bind_vec(b, out, gguf, hf, each * count, flags);
        note_fold(b, before, *out, each);
        return;
    }
    float *mine = arena_calloc(b->mem, (size_t)(each * count), sizeof *mine);
    *out = NULL;
    if (!mine) bind_fail(b, ERR_NOMEM, "out of memory");
    for (int i = 0; i < count && !b->failed; i++) {
        char         full[240];
        int64_t      n = 0;
        const float *data = NULL;
        expand(&which, i, full, sizeof full);
        if (!bind_find(b, full, &f))
            bind_fail(b, ERR_NOTFOUND, "tensor %s.weight is missing", full);
        else
            data = bind_floats(b, f.tensor, &n);
        if (data && n != each)
            bind_fail(b, ERR_FORMAT, "tensor %s has %lld values where %lld were expected", f.tensor->name, (long long)n,
                      (long long)each);
        if (data && n == each) memcpy(mine + i * each, data, (size_t)each * sizeof *mine);
    }
    if (b->failed) return;
    *out = new_vec(b, which.name, mine, each * count);
    note_vec(b, gguf, *out, each * count, flags);
    bind_record_vec(b, *out, hf, flags);
    note_fold(b, before, *out, each);
}

void nn_bind_grid(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int64_t rows, int64_t cols,
                  unsigned flags) {
    nn_wanted *before = b->model->wanted;
    nn_bind_vec(b, out, gguf, hf, rows * cols, flags);
    note_fold(b, before, *out, cols);
}

void nn_bind_table(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int64_t rows, int64_t cols) {
    nn_bind_grid(b, out, gguf, hf, rows, cols, 0);
}

/* --- matrices --------------------------------------------------------------------------------------------------- */

static bool check_shape(nn_binder *b, const char *name, const tensor_mat *m, int64_t cols, int64_t rows, int64_t stack,
                        unsigned flags) {
    bool rows_ok = flags & NN_AT_LEAST ? m->rows >= rows : m->rows == rows;
    if (m->cols == cols && rows_ok && m->n_experts == stack) return true;
    if (m->cols == cols && (flags & NN_AT_LEAST) && m->n_experts == stack)
        bind_fail(b, ERR_FORMAT, "tensor %s has %lld rows, but the vocabulary has %lld tokens", name,
                  (long long)m->rows, (long long)rows);
    else if (stack || m->n_experts)
        bind_fail(
            b, ERR_FORMAT,
            "tensor %s has shape %lld x %lld x %lld where %lld x %lld x %lld was expected (stack, outputs, inputs)",
            name, (long long)m->n_experts, (long long)m->rows, (long long)m->cols, (long long)stack, (long long)rows,
            (long long)cols);
    else
        bind_fail(b, ERR_FORMAT, "tensor %s has shape %lld x %lld where %lld x %lld was expected (outputs, inputs)",
                  name, (long long)m->rows, (long long)m->cols, (long long)rows, (long long)cols);
    return false;
}

/* One tensor of the file cut to the wish; stack as it lies in the file. */
static bool cut(nn_binder *b, const bind_found *f, const bind_name *n, const bind_wish *w, int64_t stack,
                tensor_mat *m) {
    int parts = n->parts ? n->parts : 1;
    if (!bind_describe(b, f, w->flags, m)) return false;
    if (n->transposed && f->ending != 'b' && !bind_transpose(b, f->tensor->name, m)) return false;
    if (stack == 0 && m->n_experts == 1) m->n_experts = 0;
    if (!check_shape(b, f->tensor->name, m, w->cols, w->total * parts, stack, w->flags)) return false;
    int64_t rows = w->flags & NN_AT_LEAST ? m->rows : w->rows;
    int64_t step = n->interleaved ? parts : 1;
    int64_t first = n->interleaved ? n->part + w->first * step : n->part * w->total + w->first;
    return bind_take_rows(b, f->tensor->name, m, first, step, rows);
}

static const nn_mat *new_mat(nn_binder *b, const char *name, tensor_mat *at, int stack) {
    nn_mat *out = arena_calloc(b->mem, 1, sizeof *out);
    char   *copy = arena_strdup(b->mem, name);
    if (!out || !copy) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    *out = (nn_mat){ copy, at[0].rows, at[0].cols, stack, at, NULL };
    return out;
}

static tensor_mat *new_mats(nn_binder *b, int n) {
    tensor_mat *at = arena_calloc(b->mem, (size_t)n, sizeof *at);
    if (!at) bind_fail(b, ERR_NOMEM, "out of memory");
    return at;
}

/* Expert e of a stacked tensor as a matrix of its own. */
static tensor_mat stack_at(const tensor_mat *m, int64_t e) {
    tensor_mat one = *m;
    one.data = (const uint8_t *)m->data + (size_t)e * m->expert_bytes;
    if (m->scales) one.scales = (const uint8_t *)m->scales + (size_t)e * m->scale_expert_bytes;
    if (m->biases) one.biases = (const uint8_t *)m->biases + (size_t)e * m->scale_expert_bytes;
    one.n_experts = 0;
    one.expert_bytes = one.scale_expert_bytes = 0;
    return one;
}

/* One tensor per expert ("experts.*.w1"). */
static bool cut_each(nn_binder *b, const bind_name *n, const bind_wish *w, tensor_mat *at) {
    for (int e = 0; e < w->stack; e++) {
        char       full[240];
        bind_found f = { 0 };
        expand(n, e, full, sizeof full);
        if (!bind_find(b, full, &f)) {
            bind_fail(b, ERR_NOTFOUND, "tensor %s.weight is missing", full);
            return false;
        }
        if (!cut(b, &f, n, w, 0, &at[e])) return false;
        if (at[e].type != at[0].type || at[e].row_bytes != at[0].row_bytes) {
            bind_fail(b, ERR_UNSUPPORTED, "tensor %s: its type differs from the first expert's", f.tensor->name);
            return false;
        }
    }
    return true;
}

/* A bias beside the matrix: module.bias or module_bias. */
static const nn_vec *bind_bias(nn_binder *b, const bind_found *f, const bind_name *n, const bind_wish *w) {
    const model_tensor *t = f->ending == '=' && b->gguf ? NULL : bind_companion(b, f, ".bias");
    int64_t             count, stack = w->stack ? w->stack : 1, parts = n->parts ? n->parts : 1;
    char                base[240];
    if (!t) t = bind_companion(b, f, "_bias");
    if (!t || strchr(n->name, '*')) return NULL;
    snprintf(base, sizeof base, "%s", t->name);
    const float *data = bind_floats(b, t, &count);
    if (!data) return NULL;
    long long expected = (long long)stack * w->total * parts;
    if (count != expected) {
        bind_fail(b, ERR_FORMAT, "tensor %s has %lld values where %lld were expected", t->name, (long long)count,
                  expected);
        return NULL;
    }
    float *mine = arena_alloc(b->mem, (size_t)(stack * w->rows) * sizeof *mine);
    if (!mine) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    for (int64_t e = 0; e < stack; e++) {
        for (int64_t r = 0; r < w->rows; r++) {
            int64_t at = n->interleaved ? (w->first + r) * parts + n->part : n->part * w->total + w->first + r;
            mine[e * w->rows + r] = data[e * w->total * parts + at];
        }
    }
    return new_vec(b, base, mine, stack * w->rows);
}

static void bind_any(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, const bind_wish *w,
                     bool with_bias) {
    bind_name  n;
    bind_found f;
    *out = (nn_linear){ 0 };
    if (b->failed) return;
    if (w->cols <= 0 || w->rows <= 0 || w->stack < 0 || w->stack > NN_MAX_EXPERTS) {
        bind_fail(b, ERR_FORMAT, "%s: a matrix of %lld outputs, %lld inputs and %d experts", gguf ? gguf : hf,
                  (long long)w->rows, (long long)w->cols, w->stack);
        return;
    }
    if (!b->file) {
        if (!(w->flags & NN_OPTIONAL)) note_mat(b, gguf, NULL, w);
        return;
    }
    if (!find_any(b, gguf, hf, &n, &f)) {
        if (!(w->flags & NN_OPTIONAL)) fail_missing(b, gguf, hf);
        return;
    }
    tensor_mat *at = new_mats(b, w->stack ? w->stack : 1);
    if (!at) return;
    if (w->stack && strchr(n.name, '*')) {
        if (!cut_each(b, &n, w, at)) return;
    } else if (w->stack) {
        tensor_mat all;
        if (!cut(b, &f, &n, w, w->stack, &all)) return;
        for (int e = 0; e < w->stack; e++) at[e] = stack_at(&all, e);
    } else if (!cut(b, &f, &n, w, 0, at)) {
        return;
    }
    const nn_mat *mat = new_mat(b, f.tensor->name, at, w->stack);
    if (!mat) return;
    note_mat(b, gguf, mat, w);
    bind_record(b, mat, gguf, hf, w);
    out->w = mat;
    if (!with_bias) return;
    out->b = bind_bias(b, &f, &n, w);
    if (out->b && (w->flags & NN_NO_BIAS))
        bind_fail(b, ERR_UNSUPPORTED, "tensor %s: this family has no such bias", out->b->name);
    if (out->b) note_bias(b, gguf, out->b, w);
    if (b->model->bound && b->model->bound->mat == mat) b->model->bound->bias = out->b;
}

void nn_bind_mat(nn_binder *b, const nn_mat **out, const char *gguf, const char *hf, int64_t in, int64_t rows,
                 unsigned flags) {
    nn_linear lin;
    bind_any(b, &lin, gguf, hf, &(bind_wish){ in, rows, 0, rows, 0, flags }, false);
    *out = lin.w;
}

void nn_bind_linear(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int64_t rows,
                    unsigned flags) {
    bind_any(b, out, gguf, hf, &(bind_wish){ in, rows, 0, rows, 0, flags }, true);
}

void nn_bind_rows(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int64_t rows,
                  int64_t first, int64_t total, unsigned flags) {
    bind_any(b, out, gguf, hf, &(bind_wish){ in, rows, first, total, 0, flags }, true);
}

void nn_bind_experts(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int n_expert, int64_t in,
                     int64_t rows, unsigned flags) {
    bind_any(b, out, gguf, hf, &(bind_wish){ in, rows, 0, rows, n_expert, flags }, true);
}

/* A model that was saved without its head, for its vectors or with a head that says classes: "Qwen3Model",
 * "Qwen3ForSequenceClassification", not "Qwen3ForCausalLM". */
static bool is_backbone(const nn_config *c) {
    const char *name = json_cstr(json_at(json_get(c->root, "architectures"), 0));
    size_t      n = name ? strlen(name) : 0;
    return (n > 5 && strcmp(name + n - 5, "Model") == 0) || (n && strstr(name, "ForSequenceClassification") != NULL);
}

void nn_bind_head(nn_binder *b, nn_linear *out, const nn_mat *embd, int64_t in, int64_t n_vocab) {
    char layer_gguf[sizeof b->gguf_prefix], layer_hf[sizeof b->hf_prefix];
    memcpy(layer_gguf, b->gguf_prefix, sizeof layer_gguf);
    memcpy(layer_hf, b->hf_prefix, sizeof layer_hf);
    *b->gguf_prefix = *b->hf_prefix = '\0';
    nn_bind_linear(b, out, "output", "lm_head|model.lm_head|embed_out|output|transformer.output_layer|proj_out", in,
                   n_vocab, NN_OPTIONAL | NN_AT_LEAST);
    bool bare = !out->w && !b->model->config.tied && is_backbone(&b->model->config);
    if (!out->w && !b->model->config.tied && !bare)
        bind_fail(b, ERR_NOTFOUND, "tensor lm_head.weight is missing, and the embedding is not tied to it: %s%s",
                  b->model->config.tied_by ? b->model->config.tied_by : "tie_word_embeddings",
                  b->model->config.tied_by ? " is false" : " is not in config.json, and false for this model type");
    if (!out->w && !bare) {
        out->w = embd;
        if (embd && b->file)
            bind_record(b, embd, "output", "lm_head", &(bind_wish){ in, n_vocab, 0, n_vocab, 0, NN_AT_LEAST });
    }
    memcpy(b->gguf_prefix, layer_gguf, sizeof layer_gguf);
    memcpy(b->hf_prefix, layer_hf, sizeof layer_hf);
}

void nn_bind_body(nn_binder *b, nn_ends *out, const nn_dims *d, unsigned norm_flags) {
    nn_bind_mat(
        b, &out->embd, "token_embd",
        "model.embed_tokens|model.word_embeddings|model.tok_embeddings|model.wte|model.embedding.word_embeddings|"
        "model.token_embeddings|transformer.wte|backbone.embeddings|backbone.embedding",
        d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_vec(b, &out->norm, "output_norm",
                "model.norm|model.final_layernorm|model.ln_f|model.encoder.final_layernorm|transformer.norm_f|"
                "backbone.norm_f",
                d->n_embd, norm_flags);
}

void nn_bind_ends(nn_binder *b, nn_ends *out, const nn_dims *d, unsigned norm_flags) {
    nn_bind_body(b, out, d, norm_flags);
    nn_bind_head(b, &out->head, out->embd, d->n_embd, d->n_vocab);
}

/* --- rows from all over a matrix -------------------------------------------------------------------------------- */

/* dst row at, ... = rows [first, first + n) of src, with their scales. */
static void copy_rows(tensor_mat *dst, int64_t at, const tensor_mat *src, int64_t first, int64_t n) {
    for (int64_t r = 0; r < n; r++) {
        memcpy((uint8_t *)(uintptr_t)dst->data + (size_t)(at + r) * dst->row_bytes,
               (const uint8_t *)src->data + (size_t)(first + r) * src->row_bytes, dst->row_bytes);
        if (src->scales)
            memcpy((uint8_t *)(uintptr_t)dst->scales + (size_t)(at + r) * dst->scale_row_bytes,
                   (const uint8_t *)src->scales + (size_t)(first + r) * src->scale_row_bytes, dst->scale_row_bytes);
        if (src->biases)
            memcpy((uint8_t *)(uintptr_t)dst->biases + (size_t)(at + r) * dst->scale_row_bytes,
                   (const uint8_t *)src->biases + (size_t)(first + r) * src->scale_row_bytes, dst->scale_row_bytes);
    }
}

/* A bias whose values lie as the rows of the runs do; NULL: none. */
static const nn_vec *runs_bias(nn_binder *b, const bind_found *f, int parts, int part, const nn_run *runs, int n_runs,
                               int64_t rows) {
    const model_tensor *t = bind_companion(b, f, ".bias");
    int64_t             count = 0, at = 0;
    const float        *data = t ? bind_floats(b, t, &count) : NULL;
    float              *mine = data ? arena_alloc(b->mem, (size_t)rows * sizeof *mine) : NULL;
    if (!data) return NULL;
    if (!mine || count != (int64_t)parts * part) {
        bind_fail(b, mine ? ERR_FORMAT : ERR_NOMEM, "tensor %s has %lld values where %lld were expected", t->name,
                  (long long)count, (long long)parts * part);
        return NULL;
    }
    for (int i = 0; i < n_runs; i++) {
        for (int p = 0; p < parts; p++, at += runs[i].n)
            memcpy(mine + at, data + (int64_t)p * part + runs[i].first, (size_t)runs[i].n * sizeof *mine);
    }
    return new_vec(b, t->name, mine, rows);
}

/* first, total: where these rows lie in GGUF's matrix. */
static void bind_runs(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int parts, int part,
                      const nn_run *runs, int n_runs, int64_t first, int64_t total) {
    int64_t    rows = 0, at = 0;
    bind_name  n;
    bind_found f;
    tensor_mat all, *mine;
    for (int i = 0; i < n_runs; i++) rows += (int64_t)parts * runs[i].n;
    if (b->failed || !b->file || b->gguf || !find_any(b, gguf, hf, &n, &f)) {
        nn_bind_rows(b, out, gguf, hf, in, rows, first, total ? total : rows, 0);
        if (out->w) bind_record_runs(b, parts, part, runs, n_runs);
        return;
    }
    *out = (nn_linear){ 0 };
    if (!bind_describe(b, &f, 0, &all) || !check_shape(b, f.tensor->name, &all, in, (int64_t)parts * part, 0, 0))
        return;
    if (all.group_rows > 1) {
        bind_fail(b, ERR_UNSUPPORTED, "tensor %s: its scales cover several rows", f.tensor->name);
        return;
    }
    if (!(mine = new_mats(b, 1))) return;
    *mine = all;
    mine->rows = rows;
    mine->data = arena_alloc(b->mem, (size_t)rows * all.row_bytes);
    if (all.scales) mine->scales = arena_alloc(b->mem, (size_t)rows * all.scale_row_bytes);
    if (all.biases) mine->biases = arena_alloc(b->mem, (size_t)rows * all.scale_row_bytes);
    if (!mine->data || (all.scales && !mine->scales) || (all.biases && !mine->biases)) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return;
    }
    mine->expert_bytes = (size_t)rows * all.row_bytes;
    mine->scale_expert_bytes = (size_t)rows * all.scale_row_bytes;
    for (int i = 0; i < n_runs; i++) {
        for (int p = 0; p < parts; p++, at += runs[i].n)
            copy_rows(mine, at, &all, (int64_t)p * part + runs[i].first, runs[i].n);
    }
    out->w = new_mat(b, f.tensor->name, mine, 0);
    bind_wish w = { in, rows, first, total ? total : rows, 0, 0 };
    if (out->w) note_mat(b, gguf, out->w, &w);
    if (out->w) bind_record(b, out->w, gguf, hf, &w);
    if (out->w) bind_record_runs(b, parts, part, runs, n_runs);
    out->b = runs_bias(b, &f, parts, part, runs, n_runs, rows);
    if (out->b) note_bias(b, gguf, out->b, &w);
    if (out->w && b->model->bound) b->model->bound->bias = out->b;
}

void nn_bind_runs(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int parts, int part,
                  const nn_run *runs, int n_runs) {
    bind_runs(b, out, gguf, hf, in, parts, part, runs, n_runs, 0, 0);
}

void nn_bind_qkv(nn_binder *b, nn_heads *out, const char *gguf, const char *hf, const nn_dims *d, bool grouped) {
    nn_linear *const to[] = { &out->q, &out->k, &out->v };
    const int        per = d->n_head / d->n_kv, dim = d->head_dim;
    const nn_run     runs[] = { { 0, per * dim }, { per * dim, dim }, { (per + 1) * dim, dim } };
    int64_t          first = 0, total = ((int64_t)d->n_head + 2 * d->n_kv) * dim;
    for (int i = 0; i < 3; i++) {
        int64_t rows = (int64_t)runs[i].n * d->n_kv;
        if (grouped)
            bind_runs(b, to[i], gguf, hf, d->n_embd, d->n_kv, (per + 2) * dim, &runs[i], 1, first, total);
        else
            nn_bind_rows(b, to[i], gguf, hf, d->n_embd, rows, first, total, 0);
        first += rows;
    }
}

/* --- one matrix per head ---------------------------------------------------------------------------------------- */

/* A transposed f32 copy of rows [first, first + in) of m: any type can be read this way, and the matrix is small. */
static bool transpose_head(nn_binder *b, const tensor_mat *m, int64_t first, int64_t in, tensor_mat *out) {
    float *copy = arena_alloc(b->mem, (size_t)(m->cols * in) * sizeof *copy);
    float *row = arena_alloc(b->mem, (size_t)m->cols * sizeof *row);
    if (!copy || !row) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return false;
    }
    for (int64_t r = 0; r < in; r++) {
        tensor_mat_dequant_row(m, 0, first + r, row);
        for (int64_t c = 0; c < m->cols; c++) copy[c * in + r] = row[c];
    }
    *out = (tensor_mat){
        .type = TENSOR_F32, .rows = m->cols, .cols = in, .data = copy, .row_bytes = (size_t)in * sizeof *copy
    };
    return true;
}

static void record_heads(nn_binder *b, int64_t first, int64_t stride, unsigned flags) {
    nn_bound *n = b->model->bound;
    if (!n) return;
    n->heads = true;
    n->turned = flags & NN_HEADS_T;
    n->head_first = first;
    n->head_stride = stride;
}

void nn_bind_heads(nn_binder *b, const nn_mat **out, const char *gguf, const char *hf, int n_head, int64_t in,
                   int64_t rows, int64_t first, int64_t stride, unsigned flags) {
    bind_name  n;
    bind_found f;
    tensor_mat all;
    *out = NULL;
    if (b->failed) return;
    bool missing = b->file && !find_any(b, gguf, hf, &n, &f);
    if (!b->file || missing || f.tensor->n_dims > 2) {
        nn_linear lin;
        nn_bind_experts(b, &lin, gguf, hf, n_head, in, rows, flags | NN_NO_BIAS);
        *out = lin.w;
        if (*out) record_heads(b, first, stride, flags);
        return;
    }
    if (!bind_describe(b, &f, flags, &all)) return;
    bool    turned = flags & NN_HEADS_T;
    int64_t cols = turned ? rows : in;
    if (!check_shape(b, f.tensor->name, &all, cols, stride * n_head, 0, 0)) return;
    tensor_mat *at = new_mats(b, n_head);
    for (int h = 0; at && h < n_head; h++) {
        at[h] = all;
        if (turned ? !transpose_head(b, &all, h * stride + first, in, &at[h])
                   : !bind_take_rows(b, f.tensor->name, &at[h], h * stride + first, 1, rows))
            return;
    }
    if (at) *out = new_mat(b, f.tensor->name, at, n_head);
    if (*out) note_mat(b, gguf, *out, &(bind_wish){ in, rows, 0, rows, n_head, 0 });
    if (*out) bind_record(b, *out, gguf, hf, &(bind_wish){ in, rows, 0, rows, n_head, 0 });
    if (*out) record_heads(b, first, stride, flags);
}

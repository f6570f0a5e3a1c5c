/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/hf_plan.h"

#include "base/map.h"
#include "convert/turned.h"
#include "nn/bound.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that is being put together: rows of matrices, or numbers. */
typedef struct entry {
    const char *name;
    rows_map   *rows;
    rows_heads *heads;  /* instead of rows */
    bool        turned; /* rows: Hugging Face has the matrix inputs by outputs */
    float      *values;
    int64_t     n; /* values */
    int64_t     dims[3];
    int         n_dims;
    unsigned    flags; /* NN_PLUS_ONE, NN_NEG_EXP: what is stored of the values */
} entry;

typedef struct builder {
    const nn_model  *m;
    const hf_family *f;
    arena           *mem;
    map              names;
    entry           *list;
    size_t           n, cap;
    hf_plan         *out;
    turned_tiles    *tiles;
} builder;

/* --- names --------------------------------------------------------------------------------------------------------- */

/* Parameters that are not a module's weight. */
static bool is_bare(const char *name) {
    static const char *const endings[] = { ".bias", "_bias", "sinks", "A_log", ".D", "layer_scalar", "scale" };
    size_t                   len = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (len >= n && strcmp(name + len - n, endings[i]) == 0) return true;
    }
    return false;
}

static void expand(const char *name, int number, const char *ending, char *out, size_t bytes) {
    const char *star = strchr(name, '*');
    if (star)
        snprintf(out, bytes, "%.*s%d%s%s", (int)(star - name), name, number, star + 1, ending);
    else
        snprintf(out, bytes, "%s%s", name, ending);
}

/* The alternative to write, under the root that the family's files have. */
static bool choose(const builder *b, const char *list, const char *prefix, bind_name *out) {
    const char *from = "model.", *to = b->f->root, *sign = to ? strchr(to, '>') : NULL;
    char        rest[sizeof out->name];
    if (!list || !hf_family_choose(b->f, list, prefix, out)) return false;
    size_t n = sign ? (size_t)(sign - to) : strlen(from);
    if (!to || strncmp(out->name, sign ? to : from, n) != 0) return true;
    memcpy(rest, out->name + n, strlen(out->name + n) + 1);
    snprintf(out->name, sizeof out->name, "%.60s%.139s", sign ? sign + 1 : to, rest);
    return true;
}

static entry *find_entry(builder *b, const char *name, bool *fresh, err *e) {
    uint64_t at;
    *fresh = !map_get_c(&b->names, name, &at);
    if (!*fresh) return &b->list[at];
    if (b->n == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 256;
        entry *more = realloc(b->list, cap * sizeof *more);
        if (!more) {
            err_set_nomem(e);
            return NULL;
        }
        b->list = more;
        b->cap = cap;
    }
    char *copy = arena_strdup(b->mem, name);
    if (!copy || !map_put(&b->names, copy, strlen(copy), b->n)) {
        err_set_nomem(e);
        return NULL;
    }
    b->list[b->n] = (entry){ .name = copy };
    return &b->list[b->n++];
}

/* --- rows ---------------------------------------------------------------------------------------------------------- */

/* Where Hugging Face has row r of a bound part. */
static int64_t place_of(const nn_bound *x, const bind_name *a, int64_t r) {
    int64_t parts = a->parts ? a->parts : 1;
    if (x->hf_rows) return x->hf_rows[r];
    return a->interleaved ? a->part + (x->first + r) * parts : a->part * x->total + x->first + r;
}

static int64_t total_of(const nn_bound *x, const bind_name *a) {
    return x->hf_rows ? x->hf_total : x->total * (a->parts ? a->parts : 1);
}

/* Where the file has row r of Hugging Face's order: (j, i) of a rotated head lies at 2i + j. */
static int64_t source_row(const builder *b, const nn_bound *x, int64_t r) {
    int64_t dim = b->m->dims->head_dim, half = dim / 2;
    if (!x->rotary || !b->m->arch->permuted_qk || half < 1 || dim % 2) return r;
    int64_t h = r / dim, k = r % dim;
    return h * dim + 2 * (k % half) + k / half;
}

static int add_rows(builder *b, const nn_bound *x, const bind_name *a, int expert, const char *name, err *e) {
    bool   fresh;
    entry *t = find_entry(b, name, &fresh, e);
    if (!t) return ERR_NOMEM;
    if (fresh) {
        bool stacked = x->stack && expert < 0;
        t->rows = arena_calloc(b->mem, 1, sizeof *t->rows);
        if (!t->rows) return err_set_nomem(e);
        *t->rows = (rows_map){ .total = total_of(x, a), .expert = expert };
        t->n_dims = stacked ? 3 : 2;
        t->dims[0] = x->mat->cols;
        t->dims[1] = t->rows->total;
        t->dims[2] = stacked ? x->stack : 1;
        t->turned = a->transposed;
        int rc = rows_map_alloc(t->rows, b->mem, e);
        if (rc < 0) return rc;
    }
    if (!t->rows || t->rows->n == ROWS_MAX_PARTS || t->dims[0] != x->mat->cols || t->rows->total != total_of(x, a))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: its parts do not fit", name);
    t->rows->parts[t->rows->n] = x->mat;
    for (int64_t r = 0; r < x->rows; r++) {
        int64_t to = place_of(x, a, r);
        if (to < 0 || to >= t->rows->total) return err_set(e, ERR_UNSUPPORTED, "tensor %s: its parts do not fit", name);
        t->rows->part[to] = t->rows->n;
        t->rows->row[to] = source_row(b, x, r);
    }
    t->rows->n++;
    return 0;
}

static int add_bias(builder *b, const nn_bound *x, const bind_name *a, const char *name, err *e) {
    bool    fresh;
    int64_t stack = x->stack ? x->stack : 1, total = total_of(x, a);
    entry  *t = find_entry(b, name, &fresh, e);
    if (!t) return ERR_NOMEM;
    if (fresh) {
        t->n = total * stack;
        t->values = arena_calloc(b->mem, (size_t)t->n, sizeof *t->values);
        t->n_dims = x->stack ? 2 : 1;
        t->dims[0] = total;
        t->dims[1] = stack;
        if (!t->values) return err_set_nomem(e);
    }
    if (!t->values || t->n != total * stack)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: its parts do not fit", name);
    for (int64_t s = 0; s < stack; s++) {
        for (int64_t r = 0; r < x->rows; r++)
            t->values[s * total + place_of(x, a, r)] = x->bias->data[s * x->rows + source_row(b, x, r)];
    }
    return 0;
}

static int add_heads(builder *b, const nn_bound *x, const char *name, err *e) {
    bool   fresh;
    entry *t = find_entry(b, name, &fresh, e);
    if (!t) return ERR_NOMEM;
    int64_t cols = x->turned ? x->mat->rows : x->mat->cols, rows = x->turned ? x->mat->cols : x->mat->rows;
    if (fresh) {
        if (!(t->heads = arena_calloc(b->mem, 1, sizeof *t->heads))) return err_set_nomem(e);
        t->heads->stride = x->head_stride;
        t->n_dims = 2;
        t->dims[0] = cols;
        t->dims[1] = x->head_stride * x->stack;
        t->dims[2] = 1;
    }
    if (!t->heads || t->heads->n == 2 || t->dims[0] != cols || t->dims[1] != x->head_stride * x->stack)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: its parts do not fit", name);
    int p = t->heads->n++;
    t->heads->parts[p].mat = x->mat;
    t->heads->parts[p].first = x->head_first;
    t->heads->parts[p].n = rows;
    t->heads->parts[p].turned = x->turned;
    return 0;
}

static int add_mat(builder *b, const nn_bound *x, err *e) {
    bind_name a;
    char      name[320];
    int       rc = 0;
    if (x->head) return 0; /* the embedding, which has a name */
    if (!choose(b, x->hf, x->hf_prefix, &a))
        return err_set(e, ERR_UNSUPPORTED, "%s%s: it cannot be written as Hugging Face stores it", x->gguf_prefix,
                       x->gguf ? x->gguf : "?");
    if (x->heads) {
        expand(a.name, 0, strstr(a.name, ".experts.") ? "" : ".weight", name, sizeof name);
        return add_heads(b, x, name, e);
    }
    bool star = strchr(a.name, '*') != NULL, bare = x->stack && !star && strstr(a.name, ".experts.");
    for (int i = 0; i < (star ? x->stack : 1) && rc == 0; i++) {
        expand(a.name, i, bare ? "" : ".weight", name, sizeof name);
        rc = add_rows(b, x, &a, star ? i : -1, name, e);
    }
    if (rc < 0 || !x->bias) return rc;
    if (star) return err_set(e, ERR_UNSUPPORTED, "%s: a bias of each expert", a.name);
    expand(a.name, 0, x->stack ? "_bias" : ".bias", name, sizeof name);
    return add_bias(b, x, &a, name, e);
}

/* Vectors in rows of `fold`, and those that have dimensions of one. */
static void shape_values(entry *t, const char *name, int64_t fold) {
    bool conv = strstr(name, "conv") != NULL; /* channels by one by taps */
    if (fold > 1 && !strstr(name, ".norm")) { /* a mixer's norm in groups is one vector */
        t->n_dims = conv ? 3 : 2;
        t->dims[0] = fold;
        t->dims[1] = conv ? 1 : t->n / fold;
        t->dims[2] = conv ? t->n / fold : 1;
    }
    if (strstr(name, "moe_statics")) t->n_dims = 2;
    if (strstr(name, "self_attn.A_log")) { /* Kimi: one by one by heads by one */
        t->n_dims = 4;
        t->dims[0] = 1;
        t->dims[1] = t->n;
    }
}

static int add_vec(builder *b, const nn_bound_vec *x, err *e) {
    bind_name a;
    bool      fresh;
    char      name[320];
    if (!choose(b, x->hf, x->hf_prefix, &a))
        return err_set(e, ERR_UNSUPPORTED, "%s: it cannot be written as Hugging Face stores it", x->vec->name);
    bool    star = strchr(a.name, '*') != NULL;
    int64_t parts = a.parts ? a.parts : 1, each = star && x->fold ? x->fold : x->vec->n;
    for (int64_t k = 0; k < x->vec->n / each; k++) {
        expand(a.name, (int)k, is_bare(a.name) ? "" : ".weight", name, sizeof name);
        entry *t = find_entry(b, name, &fresh, e);
        if (!t) return ERR_NOMEM;
        if (fresh) {
            *t = (entry){ .name = t->name, .n = each * parts, .n_dims = 1, .dims = { each * parts, 1, 1 } };
            t->values = arena_calloc(b->mem, (size_t)t->n, sizeof *t->values);
            t->flags = x->flags & (NN_PLUS_ONE | NN_NEG_EXP);
            if (!t->values) return err_set_nomem(e);
            shape_values(t, a.name, star ? 0 : x->fold);
        }
        if (!t->values || t->n != each * parts)
            return err_set(e, ERR_UNSUPPORTED, "tensor %s: its parts do not fit", name);
        for (int64_t i = 0; i < each; i++)
            t->values[a.interleaved ? i * parts + a.part : a.part * each + i] = x->vec->data[k * each + i];
    }
    return 0;
}

/* --- types --------------------------------------------------------------------------------------------------------- */

static float narrowed(tensor_type type, float x) {
    if (type == TENSOR_F16) return tensor_f16_to_f32(tensor_f32_to_f16(x));
    return type == TENSOR_BF16 ? tensor_bf16_to_f32(tensor_f32_to_bf16(x)) : x;
}

static float forward(unsigned flags, float x) {
    if (flags & NN_PLUS_ONE) return x + 1.0f;
    return flags & NN_NEG_EXP ? -expf(x) : x;
}

/* The logarithm, or a neighbour, whichever gives x again. */
static float inverse(unsigned flags, float x) {
    if (flags & NN_PLUS_ONE) return x - 1.0f;
    if (!(flags & NN_NEG_EXP)) return x;
    float y = logf(-x), below = y, above = y;
    for (int i = 0; i < 16; i++) {
        if (forward(flags, below) == x) return below;
        if (forward(flags, above) == x) return above;
        below = nextafterf(below, -INFINITY);
        above = nextafterf(above, INFINITY);
    }
    return y;
}

/* What was widened when the GGUF file was made is narrow again, if that is what it was. */
static tensor_type value_type(const entry *t, tensor_type wish) {
    for (int64_t i = 0; i < t->n; i++)
        if (forward(t->flags, narrowed(wish, inverse(t->flags, t->values[i]))) != t->values[i]) return TENSOR_F32;
    return wish;
}

static bool fits_narrow(const plan_tensor *t, tensor_type wish, float *row) {
    for (int64_t r = 0; r < plan_rows(t); r++) {
        row_source_floats(&t->from, r, row, t->dims[0]);
        for (int64_t i = 0; i < t->dims[0]; i++)
            if (narrowed(wish, row[i]) != row[i]) return false;
    }
    return true;
}

/* have: the type of all rows; -1: they have none in common. */
static int row_type(const plan_tensor *t, int have, tensor_type wish, bool given, arena *mem, err *e) {
    if (given || (have != TENSOR_F32 && have != TENSOR_F16 && have != TENSOR_BF16)) return (int)wish;
    if (have != TENSOR_F32) return have;
    float *row = arena_calloc(mem, (size_t)t->dims[0], sizeof *row);
    if (!row) return err_set_nomem(e);
    return fits_narrow(t, wish, row) ? (int)wish : TENSOR_F32;
}

/* What most of the weights are; F16 where any is quantized. */
static tensor_type common_type(const builder *b) {
    double n[3] = { 0 };
    for (size_t i = 0; i < b->n; i++) {
        const entry *t = &b->list[i];
        if (!t->rows) continue;
        int type = rows_map_type(t->rows);
        if (type != TENSOR_F32 && type != TENSOR_F16 && type != TENSOR_BF16) return TENSOR_F16;
        n[type == TENSOR_F32   ? 0
          : type == TENSOR_F16 ? 1
                               : 2] += (double)(t->dims[0] * t->dims[1]) * (double)t->dims[2];
    }
    return n[2] >= n[1] && n[2] > 0 ? TENSOR_BF16 : n[1] > 0 ? TENSOR_F16 : TENSOR_F32;
}

/* --- the plan ------------------------------------------------------------------------------------------------------ */

static int plan_values(builder *b, const entry *t, plan_tensor *out, err *e) {
    tensor_mat *rows = arena_calloc(b->mem, 1, sizeof *rows);
    if (!rows) return err_set_nomem(e);
    out->type = value_type(t, b->out->type);
    for (int64_t i = 0; i < t->n; i++) t->values[i] = inverse(t->flags, t->values[i]);
    *rows = (tensor_mat){ .type = TENSOR_F32,
                          .rows = t->n / t->dims[0],
                          .cols = t->dims[0],
                          .data = t->values,
                          .row_bytes = (size_t)t->dims[0] * sizeof(float) };
    out->from = row_source_mat(rows);
    out->from.contiguous = false;
    return 0;
}

static int plan_turned(builder *b, const entry *t, plan_tensor *out) {
    rows_turned *x = arena_calloc(b->mem, 1, sizeof *x);
    if (!x) return ERR_NOMEM;
    *x = (rows_turned){ t->rows, t->dims[0], b->tiles };
    out->dims[0] = t->dims[1];
    out->dims[1] = t->dims[0];
    out->from = rows_turned_source(x);
    return 0;
}

static int plan_entry(builder *b, const entry *t, plan_tensor *out, bool given, err *e) {
    *out = (plan_tensor){ .name = t->name, .n_dims = t->n_dims, .dims = { t->dims[0], t->dims[1], t->dims[2], 1 } };
    for (int d = t->n_dims; d < 3; d++) out->dims[d] = 1;
    if (!t->rows && !t->heads) return plan_values(b, t, out, e);
    if (t->rows ? !rows_map_complete(t->rows) : !rows_heads_complete(t->heads))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: a part is missing", t->name);
    int have = t->rows ? rows_map_type(t->rows) : rows_heads_plain(t->heads) ? TENSOR_F32 : -1;
    if (t->heads)
        out->from = rows_heads_source(t->heads);
    else if (!t->turned)
        out->from = rows_map_source(t->rows);
    else if (plan_turned(b, t, out) < 0)
        return err_set_nomem(e);
    int type = row_type(out, have, b->out->type, given, b->mem, e);
    out->type = type < 0 ? TENSOR_F32 : (tensor_type)type;
    return type < 0 ? type : 0;
}

static int by_name(const void *a, const void *b) {
    return strverscmp(((const plan_tensor *)a)->name, ((const plan_tensor *)b)->name);
}

static int open_tiles(builder *b, err *e) {
    int64_t most = 0;
    for (size_t i = 0; i < b->n; i++)
        if (b->list[i].turned && b->list[i].dims[1] > most) most = b->list[i].dims[1];
    if (most && !(b->out->tiles = b->tiles = turned_tiles_open(most, b->mem))) return err_set_nomem(e);
    return 0;
}

void hf_plan_close(hf_plan *p) { turned_tiles_close(p->tiles); }

int hf_plan_gguf(hf_plan *out, const nn_model *m, const hf_family *f, int type, arena *mem, err *e) {
    builder b = { .m = m, .f = f, .mem = mem, .out = out };
    int     rc = 0;
    memset(out, 0, sizeof *out);
    map_init(&b.names);
    for (const nn_bound *x = m->bound; x && rc == 0; x = x->next) rc = add_mat(&b, x, e);
    for (const nn_bound_vec *x = m->bound_vecs; x && rc == 0; x = x->next) rc = add_vec(&b, x, e);
    out->type = type < 0 ? common_type(&b) : (tensor_type)type;
    if (rc == 0) rc = open_tiles(&b, e);
    out->tensors = arena_calloc(mem, b.n ? b.n : 1, sizeof *out->tensors);
    if (rc == 0 && !out->tensors) rc = err_set_nomem(e);
    for (size_t i = 0; i < b.n && rc == 0; i++) rc = plan_entry(&b, &b.list[i], &out->tensors[i], type >= 0, e);
    if (rc == 0) {
        out->n = b.n;
        qsort(out->tensors, out->n, sizeof *out->tensors, by_name);
    }
    free(b.list);
    map_deinit(&b.names);
    return rc;
}

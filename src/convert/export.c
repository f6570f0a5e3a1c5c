/* SPDX-License-Identifier: Apache-2.0 */
/* A model as a GGUF file. Tensors that lie in the source as GGUF wants them are not copied. */
#include "convert/export.h"

#include "convert/rows.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_list(gguf_writer *w, const char *key, const nn_config_note *n, err *e) {
    size_t count = (size_t)n->n_list;
    if (n->type == 'I') {
        int32_t *v = calloc(count ? count : 1, sizeof *v);
        if (!v) return err_set_nomem(e);
        for (size_t i = 0; i < count; i++) v[i] = n->list[i];
        int rc = gguf_writer_set_array(w, key, META_I32, v, count, e);
        free(v);
        return rc;
    }
    uint8_t *v = calloc(count ? count : 1, sizeof *v);
    if (!v) return err_set_nomem(e);
    for (size_t i = 0; i < count; i++) v[i] = n->list[i] != 0;
    int rc = gguf_writer_set_array(w, key, META_BOOL, v, count, e);
    free(v);
    return rc;
}

/* The number that says a list of windows: every so many layers one is full, the last of them or (Laguna) the first.
 * Readers of these architectures take a number only; 0: none says it, or this is another one. */
static int window_period(const char *arch, const nn_config_note *n) {
    static const char *const archs[] = { "gemma2",  "gemma3",     "gemma-embedding", "gemma3n", "afmoe", "cohere2",
                                         "exaone4", "exaone-moe", "olmo2",           "gpt-oss", "laguna" };
    bool                     laguna = strcmp(arch, "laguna") == 0, known = false;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) known = known || strcmp(arch, archs[i]) == 0;
    if (!known || strcmp(n->key, "attention.sliding_window_pattern") != 0) return 0;
    for (int every = 2; every <= n->n_list; every++) {
        bool same = true;
        for (int i = 0; i < n->n_list && same; i++) same = (n->list[i] != 0) == ((i + (laguna ? 0 : 1)) % every != 0);
        if (same) return every;
    }
    return 0;
}

static int set_note(gguf_writer *w, const char *arch, const nn_config_note *n, bool tensors, err *e) {
    char key[256];
    snprintf(key, sizeof key, "%s.%s", arch, n->key);
    switch (n->type) {
    case 'i': return gguf_writer_set_int(w, key, n->value < 0 ? META_I32 : META_U32, (int64_t)n->value, e);
    case 'f': return gguf_writer_set_real(w, key, META_F32, n->value, e);
    case 'b': return gguf_writer_set_bool(w, key, n->value != 0, e);
    case 's': return gguf_writer_set_string(w, key, n->text, e);
    case 't':
        if (!tensors || n->n_list <= 0) return 0;
        return gguf_writer_add(w, n->key, TENSOR_F32, 1, (int64_t[]){ n->n_list }, n->reals, (size_t)n->n_list * 4, e);
    case 'F': return gguf_writer_set_array(w, key, META_F32, n->reals, (size_t)n->n_list, e);
    default: break;
    }
    int every = window_period(arch, n);
    return every ? gguf_writer_set_int(w, key, META_U32, every, e) : set_list(w, key, n, e);
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(const nn_config_note *const *)a)->key, (*(const nn_config_note *const *)b)->key);
}

/* Sorted: what was looked up first depends on what else a config.json says. */
int export_keys(gguf_writer *w, const nn_model *m, bool tensors, err *e) {
    const char            *arch = m->arch->names[0];
    size_t                 count = 0;
    const nn_config_note **list;
    for (const nn_config_note *n = m->config.notes; n; n = n->next) count++;
    if (!(list = calloc(count + 1, sizeof *list))) return err_set_nomem(e);
    count = 0;
    for (const nn_config_note *n = m->config.notes; n; n = n->next) list[count++] = n;
    qsort(list, count, sizeof *list, by_key);
    int rc = gguf_writer_set_string(w, "general.architecture", arch, e);
    for (size_t i = 0; i < count && rc == 0; i++) rc = set_note(w, arch, list[i], tensors, e);
    free(list);
    return rc;
}

/* Everything that carries one tensor's name: the parts of a fused tensor come as several notes. */
typedef struct whole {
    const nn_wanted *parts[ROWS_MAX_PARTS];
    int              n;
} whole;

static whole collect(const nn_model *m, const nn_wanted *first) {
    whole all = { .n = 0 };
    for (const nn_wanted *w = m->wanted; w; w = w->next) {
        if (strcmp(w->name, first->name) == 0 && all.n < ROWS_MAX_PARTS) all.parts[all.n++] = w;
    }
    return all;
}

/* Where GGUF keeps row r of rotated heads: (j, i) of a head goes to 2i + j. */
static int64_t permuted(const nn_model *m, const nn_wanted *w, int64_t r) {
    int64_t dim = m->dims->head_dim, half = dim / 2;
    if (!w->rotary || !m->arch->permuted_qk || nn_config_gguf(&m->config) || half < 1 || dim % 2) return r;
    int64_t h = r / dim, k = r % dim;
    return h * dim + 2 * (k % half) + k / half;
}

static int plan_vec(plan_tensor *t, const nn_model *m, const whole *all, arena *mem, err *e) {
    const nn_wanted *one = all->parts[0];
    int64_t          stack = one->n_stack ? one->n_stack : 1, dims[2] = { one->total, stack };
    if (one->fold > 0 && !one->n_stack) {
        dims[0] = one->fold;
        dims[1] = one->total / one->fold;
    }
    float      *data = arena_calloc(mem, (size_t)(one->total * stack), sizeof *data);
    tensor_mat *rows = arena_calloc(mem, 1, sizeof *rows);
    if (!data || !rows) return err_set_nomem(e);
    for (int p = 0; p < all->n; p++) {
        const nn_wanted *x = all->parts[p];
        for (int64_t s = 0; s < stack; s++) {
            for (int64_t i = 0; i < x->cols; i++)
                data[s * x->total + x->first + permuted(m, x, i) * x->step] = x->vec->data[s * x->cols + i];
        }
    }
    *rows = (tensor_mat){
        .type = TENSOR_F32, .rows = dims[1], .cols = dims[0], .data = data, .row_bytes = (size_t)dims[0] * sizeof *data
    };
    *t = (plan_tensor){ .name = one->name,
                        .type = TENSOR_F32,
                        .n_dims = one->n_stack || one->fold ? 2 : 1,
                        .dims = { dims[0], dims[1], 1, 1 },
                        .from = row_source_mat(rows) };
    if (strstr(one->name, ".ssm_conv1d_")) { /* Kimi's three: taps by one by channels */
        t->n_dims = 3;
        t->dims[1] = 1;
        t->dims[2] = dims[1];
    }
    t->from.contiguous = false; /* memory of our own, not a file's pages */
    return 0;
}

/* A tensor that follows from the hyper-parameters. */
static int plan_note(plan_tensor *t, const nn_config_note *n, arena *mem, err *e) {
    tensor_mat *rows = arena_calloc(mem, 1, sizeof *rows);
    if (!rows) return err_set_nomem(e);
    *rows = (tensor_mat){
        .type = TENSOR_F32, .rows = 1, .cols = n->n_list, .data = n->reals, .row_bytes = (size_t)n->n_list * 4
    };
    *t = (plan_tensor){
        .name = n->key, .type = TENSOR_F32, .n_dims = 1, .dims = { n->n_list, 1, 1, 1 }, .from = row_source_mat(rows)
    };
    t->from.contiguous = false;
    return 0;
}

/* Which row of which part every output row is; left out where it is the same. */
static int map_rows(rows_map *x, const nn_model *m, const whole *all, arena *mem, err *e) {
    const nn_wanted *one = all->parts[0];
    if (all->n == 1 && one->rows == one->total && !(one->rotary && m->arch->permuted_qk)) return 0;
    int rc = rows_map_alloc(x, mem, e);
    for (int p = 0; p < all->n && rc == 0; p++) {
        const nn_wanted *w = all->parts[p];
        for (int64_t r = 0; r < w->rows; r++) {
            int64_t to = w->first + permuted(m, w, r) * w->step;
            if (to < 0 || to >= x->total) return err_set(e, ERR_FORMAT, "tensor %s: its parts do not fit", w->name);
            x->part[to] = p;
            x->row[to] = r;
        }
    }
    if (rc == 0 && !rows_map_complete(x)) rc = err_set(e, ERR_FORMAT, "tensor %s: a part is missing", one->name);
    return rc;
}

static int plan_mat(plan_tensor *t, const nn_model *m, const whole *all, arena *mem, err *e) {
    const nn_wanted *one = all->parts[0];
    rows_map        *x = arena_calloc(mem, 1, sizeof *x);
    if (!x) return err_set_nomem(e);
    *x = (rows_map){ .n = all->n, .total = one->total, .expert = -1 };
    for (int p = 0; p < all->n; p++) x->parts[p] = all->parts[p]->mat;
    int rc = map_rows(x, m, all, mem, e);
    if (rc < 0) return rc;
    *t = (plan_tensor){ .name = one->name,
                        .n_dims = one->n_stack ? 3 : 2,
                        .dims = { one->cols, one->total, one->n_stack ? one->n_stack : 1, 1 },
                        .from = rows_map_source(x) };
    t->type = t->from.type;
    return 0;
}

static bool seen_before(const nn_model *m, const nn_wanted *w) {
    for (const nn_wanted *o = m->wanted; o != w; o = o->next) {
        if (strcmp(o->name, w->name) == 0) return true;
    }
    return false;
}

int export_plan(const nn_model *m, arena *mem, plan_tensor **out, size_t *n, err *e) {
    size_t count = 0;
    int    rc = 0;
    if (m->arch->reordered && !nn_config_gguf(&m->config))
        return err_set(e, ERR_UNSUPPORTED, "%s: GGUF files of this family have their rows in another order",
                       m->arch->names[0]);
    if (m->config.unsaid) return err_set(e, ERR_UNSUPPORTED, "%s: GGUF has no key for this value", m->config.unsaid);
    for (const nn_wanted *w = m->wanted; w; w = w->next) count++;
    for (const nn_config_note *c = m->config.notes; c; c = c->next) count++;
    plan_tensor *list = arena_calloc(mem, count + 1, sizeof *list);
    if (!list) return err_set_nomem(e);
    *n = 0;
    for (const nn_wanted *w = m->wanted; w && rc == 0; w = w->next) {
        if (seen_before(m, w) || (!w->vec && !w->mat)) continue;
        whole all = collect(m, w);
        rc = w->vec ? plan_vec(&list[*n], m, &all, mem, e) : plan_mat(&list[*n], m, &all, mem, e);
        ++*n;
    }
    for (const nn_config_note *c = m->config.notes; c && rc == 0; c = c->next)
        if (c->type == 't' && c->n_list > 0) rc = plan_note(&list[(*n)++], c, mem, e);
    /* Binding notes the newest first; files have the first layer first. */
    for (size_t i = 0; i < *n / 2; i++) {
        plan_tensor swap = list[i];
        list[i] = list[*n - 1 - i];
        list[*n - 1 - i] = swap;
    }
    *out = list;
    return rc;
}

/* What GGUF has no type for is refused here: a copy keeps types. */
static int refuse_types(const plan_tensor *t, size_t n, err *e) {
    for (size_t i = 0; i < n; i++)
        if (!t[i].from.raw)
            return err_set(e, ERR_UNSUPPORTED, "tensor %s: GGUF has no type for it, or its parts differ in type",
                           t[i].name);
    return 0;
}

int export_gguf(const nn_model *m, const char *path, err *e) {
    gguf_writer *w = NULL;
    pool        *p = NULL;
    plan_tensor *list = NULL;
    plan_result  done;
    arena        mem;
    size_t       n = 0;
    arena_init(&mem, 0);
    int rc = export_plan(m, &mem, &list, &n, e);
    if (rc == 0) rc = refuse_types(list, n, e);
    if (rc == 0) rc = gguf_writer_open(&w, 0, e);
    if (rc == 0) rc = export_keys(w, m, false, e);
    if (rc == 0) rc = pool_open(&p, 1, false, e);
    if (rc == 0) rc = plan_write_gguf(w, list, n, &(plan_options){ .path = path }, p, &done, e);
    pool_free(p);
    gguf_writer_free(w);
    arena_deinit(&mem);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/mlx.h"

#include "base/map.h"
#include "convert/mlx_record.h"
#include "convert/rows.h"
#include "tensor/codec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- recipes ------------------------------------------------------------------------------------------------------- */

static bool affine(model_quant *q, int bits, int group) {
    *q = (model_quant){ MODEL_QUANT_AFFINE, bits, group ? group : 64 };
    bool known_bits = bits == 8 || (bits >= 2 && bits <= 6);
    return known_bits && (q->group == 32 || q->group == 64 || q->group == 128);
}

int mlx_recipe_read(mlx_recipe *out, const char *name, int group, err *e) {
    static const struct {
        const char *name;
        model_quant q;
    } fixed[] = { { "mxfp4", { MODEL_QUANT_MXFP4, 4, 32 } },
                  { "mxfp8", { MODEL_QUANT_MXFP8, 8, 32 } },
                  { "nvfp4", { MODEL_QUANT_NVFP4, 4, 16 } } };
    int a, b, n = 0;
    *out = (mlx_recipe){ .packs = true };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (strcmp(name, fixed[i].name) != 0) continue;
        if (group && group != fixed[i].q.group)
            return err_set(e, ERR_ARG, "%s has groups of %d", name, fixed[i].q.group);
        out->low = fixed[i].q;
        return 0;
    }
    if (sscanf(name, "mixed_%d_%d%n", &a, &b, &n) == 2 && !name[n]) {
        out->mixed = true;
        if (affine(&out->low, a, group) && affine(&out->high, b, group)) return 0;
    } else if (sscanf(name, "%dbit%n", &a, &n) == 1 && n && !name[n]) {
        if (affine(&out->low, a, group)) return 0;
    }
    return err_set(
        e, ERR_ARG,
        "'%.40s' is not a packing of MLX: 2bit to 6bit, 8bit, mixed_A_B, mxfp4, mxfp8, nvfp4, with groups of "
        "32, 64 or 128",
        name);
}

/* --- experts in one tensor ----------------------------------------------------------------------------------------- */

/* "P.experts.7.w1.weight": P, 7 and the name in MLX; false: another kind of name. */
static bool parse_expert(const char *name, char *stacked, size_t bytes, int *number) {
    static const char *const known[][2] = { { "gate_proj", "gate_proj" }, { "up_proj", "up_proj" },
                                            { "down_proj", "down_proj" }, { "w1", "gate_proj" },
                                            { "w3", "up_proj" },          { "w2", "down_proj" } };
    const char              *at = strstr(name, ".experts.");
    int                      n = 0;
    if (!at || sscanf(at, ".experts.%d.%n", number, &n) != 1 || !n) return false;
    const char *rest = at + n;
    size_t      len = strcspn(rest, ".");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i][0]) != len || strncmp(rest, known[i][0], len) != 0) continue;
        int k = snprintf(stacked, bytes, "%.*s.switch_mlp.%s%s", (int)(at - name), name, known[i][1], rest + len);
        return k > 0 && (size_t)k < bytes;
    }
    return false;
}

typedef struct stack {
    rows_stack   rows;
    row_source  *at;
    plan_tensor *t;
    int          filled;
} stack;

/* How many experts every stacked name has. */
static int count_experts(const hf_plan *p, map *names, arena *mem, err *e) {
    char name[400];
    int  k;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t n = 0;
        if (!parse_expert(p->tensors[i].name, name, sizeof name, &k)) continue;
        map_get_c(names, name, &n);
        char *copy = n ? NULL : arena_strdup(mem, name);
        if ((!n && !copy) || !map_put(names, n ? name : copy, strlen(name), n + 1)) return err_set_nomem(e);
    }
    return 0;
}

static int place_expert(stack *s, const plan_tensor *x, int k, err *e) {
    if (k < 0 || k >= s->rows.n || s->at[k].ctx || x->n_dims != 2 || x->dims[0] != s->t->dims[0] ||
        x->dims[1] != s->t->dims[1])
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: the experts differ in shape or in number", x->name);
    s->at[k] = x->from;
    s->filled++;
    return 0;
}

static int begin_stack(stack *s, plan_tensor *t, const plan_tensor *x, const char *name, int n, arena *mem, err *e) {
    s->at = arena_calloc(mem, (size_t)n, sizeof *s->at);
    s->t = t;
    s->rows = (rows_stack){ .at = s->at, .n = n, .rows = x->dims[1] };
    *t = *x;
    t->name = arena_strdup(mem, name);
    t->n_dims = 3;
    t->dims[2] = n;
    return s->at && t->name ? 0 : err_set_nomem(e);
}

static int stack_experts(hf_plan *p, arena *mem, err *e) {
    map    counts, open;
    char   name[400];
    int    k, rc;
    size_t n = 0, n_stacks = 0;
    stack *stacks = arena_calloc(mem, p->n ? p->n : 1, sizeof *stacks);
    map_init(&counts);
    map_init(&open);
    rc = stacks ? count_experts(p, &counts, mem, e) : err_set_nomem(e);
    for (size_t i = 0; i < p->n && rc == 0; i++) {
        plan_tensor x = p->tensors[i];
        uint64_t    at, count = 0;
        if (!parse_expert(x.name, name, sizeof name, &k)) {
            p->tensors[n++] = x;
            continue;
        }
        map_get_c(&counts, name, &count);
        if (!map_get_c(&open, name, &at)) {
            at = n_stacks++;
            rc = begin_stack(&stacks[at], &p->tensors[n++], &x, name, (int)count, mem, e);
            if (rc == 0 && !map_put(&open, stacks[at].t->name, strlen(name), at)) rc = err_set_nomem(e);
        }
        if (rc == 0) rc = place_expert(&stacks[at], &x, k, e);
    }
    for (size_t i = 0; i < n_stacks && rc == 0; i++) stacks[i].t->from = rows_stack_source(&stacks[i].rows);
    p->n = n;
    map_deinit(&counts);
    map_deinit(&open);
    return rc;
}

/* --- packing ------------------------------------------------------------------------------------------------------- */

/*
 * Scales and biases that were fitted with the words of a module: they are written next. There is room for one module, the
 * latest. Rows that are not here (a file that is continued begins anywhere) are fitted again, which gives the same.
 */
typedef struct fits {
    pthread_mutex_t lock; /* guards the rest */
    const char     *of;   /* the module's tensor; NULL: none */
    uint8_t        *rows; /* scales and biases of row r at r * 2 * their bytes */
    bool           *known;
    size_t          n_rows, bytes; /* room */
} fits;

/* One of the tensors of a packed module, made from the rows of the plain one. */
typedef struct pack {
    fits       *fits;
    plan_tensor from;
    tensor_mat  how;
    size_t      data_bytes, scale_bytes; /* of a row */
    int         which;                   /* 0 the words, 1 the scales, 2 the biases */
    bool        recorded;
    mlx_module  was;
} pack;

/* A row whose groups were recorded; those with other numbers now are fitted. */
static bool pack_recorded(const pack *p, int64_t row, const float *x, uint8_t *data, uint8_t *scales, uint8_t *biases) {
    tensor_mat one = p->how;
    int64_t    groups = p->how.cols / p->how.group;
    size_t     data_bytes = p->data_bytes / (size_t)groups, scale_bytes = p->scale_bytes / (size_t)groups;
    one.cols = p->how.group;
    one.row_bytes = data_bytes;
    one.scale_row_bytes = scale_bytes;
    for (int64_t g = 0; g < groups; g++, data += data_bytes, scales += scale_bytes, biases += scale_bytes) {
        const float *at = x + g * p->how.group;
        if (!mlx_record_group(&p->was, row, g, at, data, scales, biases) &&
            !tensor_mat_quant_row(&one, at, data, scales, biases))
            return false;
    }
    return true;
}

static void keep_fit(const pack *p, int64_t row, const uint8_t *scales) {
    fits *f = p->fits;
    pthread_mutex_lock(&f->lock);
    if (f->of != p->from.name) memset(f->known, 0, f->n_rows * sizeof *f->known);
    f->of = p->from.name;
    memcpy(f->rows + (size_t)row * 2 * p->scale_bytes, scales, 2 * p->scale_bytes);
    f->known[row] = true;
    pthread_mutex_unlock(&f->lock);
}

static bool take_fit(const pack *p, int64_t row, uint8_t *out) {
    fits *f = p->fits;
    pthread_mutex_lock(&f->lock);
    bool there = f->of == p->from.name && f->known[row];
    if (there) memcpy(out, f->rows + ((size_t)row * 2 + (p->which == 2)) * p->scale_bytes, p->scale_bytes);
    pthread_mutex_unlock(&f->lock);
    return there;
}

static int make_packed(const void *ctx, int64_t row, void *out, float *scratch, err *e) {
    const pack *p = ctx;
    uint8_t    *data = (uint8_t *)(scratch + p->how.cols), *scales = data + p->data_bytes,
            *biases = scales + p->scale_bytes;
    if (p->which != 0 && take_fit(p, row, out)) return 0;
    row_source_floats(&p->from.from, row, scratch, p->how.cols);
    bool done = p->recorded ? pack_recorded(p, row, scratch, data, scales, biases)
                            : tensor_mat_quant_row(&p->how, scratch, data, scales, biases);
    if (!done) return err_set(e, ERR_UNSUPPORTED, "%s: it cannot be packed", p->from.name);
    if (p->which == 0) keep_fit(p, row, scales);
    memcpy(out, p->which == 0 ? data : p->which == 1 ? scales : biases, p->which == 0 ? p->data_bytes : p->scale_bytes);
    return 0;
}

static bool ends_with(const char *name, const char *ending) {
    size_t a = strlen(name), b = strlen(ending);
    return a >= b && strcmp(name + a - b, ending) == 0;
}

static bool is_router(const char *module) {
    static const char *const endings[] = { ".mlp.gate",           ".block_sparse_moe.gate", ".mlp.router",
                                           ".shared_expert_gate", ".router.gate",           ".feed_forward.gate" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(module, endings[i])) return true;
    return false;
}

static int layer_of(const char *module) {
    const char *at = strstr(module, "layers.");
    return at ? atoi(at + 7) : -1;
}

static bool has_more(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

/* How a module is packed; false: it stays. */
static bool choose(const mlx_recipe *r, const plan_tensor *t, const char *module, int n_layers, model_quant *out) {
    if (r->recorded) return mlx_record_quant(r->record, module, t, out);
    bool matrix = (t->n_dims == 2 || t->n_dims == 3) && ends_with(t->name, ".weight") &&
                  (t->type == TENSOR_F32 || t->type == TENSOR_F16 || t->type == TENSOR_BF16);
    if (!r->packs || !matrix || strstr(module, "norm") || strstr(module, "conv") || t->dims[1] < 2) return false;
    if (strstr(module, "embed_positions")) return false; /* those of encoders are added by the host */
    *out = r->low;
    if (is_router(module) && r->low.mode == MODEL_QUANT_AFFINE) {
        *out = (model_quant){ MODEL_QUANT_AFFINE, 8, r->low.group };
    } else if (is_router(module)) {
        return false;
    } else if (r->mixed) {
        bool v = strstr(module, "v_proj") || strstr(module, "v_a_proj") || strstr(module, "v_b_proj");
        int  i = layer_of(module);
        if (((v || strstr(module, "down_proj")) && i >= 0 && has_more(i, n_layers)) || strstr(module, "lm_head"))
            *out = r->high;
    }
    return t->dims[0] % out->group == 0;
}

static int add_packed(plan_tensor *out, const mlx_recipe *r, const plan_tensor *t, const model_quant *q,
                      const char *module, fits *kept, arena *mem, err *e) {
    static const char *const endings[] = { ".weight", ".scales", ".biases" };
    bool                     is_affine = q->mode == MODEL_QUANT_AFFINE;
    tensor_mat how = { .type = mlx_packed_type(q), .rows = 1, .cols = t->dims[0], .group = q->group, .group_rows = 1 };
    mlx_module was = { 0 };
    bool       recorded = r->record && mlx_record_find(r->record, module, q, t, &was);
    how.scale_type = recorded                       ? was.how.scale_type
                     : is_affine                    ? t->type
                     : q->mode == MODEL_QUANT_NVFP4 ? TENSOR_F8_E4M3
                                                    : TENSOR_F8_E8M0;
    tensor_type scale_type = is_affine ? how.scale_type : TENSOR_U8;
    int64_t     groups = t->dims[0] / q->group;
    size_t      data_bytes, scale_bytes;
    if (!tensor_row_bytes((int)how.type, how.cols, &data_bytes) || data_bytes % 4 ||
        !tensor_row_bytes((int)scale_type, groups, &scale_bytes))
        return err_set(e, ERR_UNSUPPORTED, "%s: rows of %lld cannot be packed", t->name, (long long)how.cols);
    how.row_bytes = data_bytes;
    how.scale_row_bytes = scale_bytes;
    size_t rows = (size_t)plan_rows(t);
    if (rows > kept->n_rows) kept->n_rows = rows;
    if (rows * 2 * scale_bytes > kept->bytes) kept->bytes = rows * 2 * scale_bytes;
    for (int k = 0; k < (is_affine ? 3 : 2); k++) {
        char  name[400];
        pack *p = arena_calloc(mem, 1, sizeof *p);
        snprintf(name, sizeof name, "%s%s", module, endings[k]);
        out[k] = *t;
        out[k].name = arena_strdup(mem, name);
        if (!p || !out[k].name) return err_set_nomem(e);
        *p = (pack){ .fits = kept,
                     .from = *t,
                     .how = how,
                     .data_bytes = data_bytes,
                     .scale_bytes = scale_bytes,
                     .which = k,
                     .recorded = recorded,
                     .was = was };
        out[k].type = k == 0 ? TENSOR_U32 : scale_type;
        out[k].dims[0] = k == 0 ? (int64_t)data_bytes / 4 : groups;
        out[k].from = (row_source){ .make = make_packed,
                                    .ctx = p,
                                    .read_bytes = (size_t)how.cols * (t->type == TENSOR_F32 ? 4 : 2),
                                    .scratch = (size_t)how.cols + (data_bytes + 2 * scale_bytes + 3) / 4 + 1 };
    }
    return is_affine ? 3 : 2;
}

static void put_quant(str *s, const model_quant *q) {
    static const char *const modes[] = { "affine", "mxfp4", "mxfp8", "nvfp4" };
    str_printf(s, "\"group_size\":%d,\"bits\":%d,\"mode\":\"%s\"", q->group, q->bits, modes[q->mode]);
}

static void module_of(const plan_tensor *t, char out[400]) {
    snprintf(out, 400, "%.*s", (int)(strlen(t->name) - (ends_with(t->name, ".weight") ? 7 : 0)), t->name);
}

/* The packing that most recorded modules have: what config.json says of all. */
static void commonest(mlx_recipe *r, const hf_plan *p) {
    enum { KINDS = 24 };
    struct {
        model_quant q;
        int         n;
    } seen[KINDS] = { 0 };
    int  best = 0;
    char module[400];
    for (size_t i = 0; i < p->n; i++) {
        model_quant q;
        int         k = 0;
        module_of(&p->tensors[i], module);
        if (!mlx_record_quant(r->record, module, &p->tensors[i], &q)) continue;
        while (k < KINDS - 1 && seen[k].n && memcmp(&seen[k].q, &q, sizeof q) != 0) k++;
        seen[k].q = q;
        if (++seen[k].n > seen[best].n) best = k;
    }
    r->low = seen[best].q;
    r->packs = seen[best].n > 0;
}

int mlx_plan(hf_plan *p, const mlx_recipe *recipe, int n_layers, arena *mem, str *config, err *e) {
    mlx_recipe r = *recipe;
    int        rc = stack_experts(p, mem, e);
    if (rc == 0 && r.recorded) commonest(&r, p);
    if (rc < 0 || !r.packs) return rc;
    plan_tensor *list = arena_calloc(mem, 3 * p->n + 1, sizeof *list);
    fits        *kept = arena_calloc(mem, 1, sizeof *kept);
    size_t       n = 0;
    if (!list || !kept || pthread_mutex_init(&kept->lock, NULL) != 0) return err_set_nomem(e);
    str_push(config, '{');
    put_quant(config, &r.low);
    for (size_t i = 0; i < p->n; i++) {
        const plan_tensor *t = &p->tensors[i];
        model_quant        q;
        char               module[400];
        module_of(t, module);
        if (!choose(&r, t, module, n_layers, &q)) {
            list[n++] = *t;
            continue;
        }
        rc = add_packed(&list[n], &r, t, &q, module, kept, mem, e);
        if (rc < 0) return rc;
        n += (size_t)rc;
        if (memcmp(&q, &r.low, sizeof q) == 0) continue;
        str_push(config, ',');
        str_put_json(config, module, strlen(module));
        str_puts(config, ":{");
        put_quant(config, &q);
        str_push(config, '}');
    }
    str_push(config, '}');
    p->tensors = list;
    p->n = n;
    kept->rows = arena_alloc(mem, kept->bytes + 1);
    kept->known = arena_calloc(mem, kept->n_rows + 1, sizeof *kept->known);
    if (!kept->rows || !kept->known) return err_set_nomem(e);
    return str_ok(config) ? 0 : err_set_nomem(e);
}

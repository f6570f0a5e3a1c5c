/* SPDX-License-Identifier: Apache-2.0 */
/* Every op kind over random shapes, against the reference. */
#include "backend/ops.h"

#include "backend/backend.h"
#include "backend/gen.h"
#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>

static bool has_twins(const world *w) {
    return w->batch.n_seq >= 2 && w->of[0] == 0 && w->of[1] == 1 && w->q_start[1] * 2 == w->q_start[2] &&
           w->pos[0] == w->pos[w->q_start[1]];
}

/* Whether the pages of both twins hold the same bytes, where this batch has stored something. */
static int same_pages(const world *w, int group, bool *same, err *e) {
    size_t   bytes = w->x->memory.page_bytes[group];
    uint8_t *a = malloc(2 * bytes + 2), *b = a ? a + bytes + 1 : NULL;
    int      P = w->o.limits.page_tokens, rc = a ? 0 : err_set_nomem(e);
    *same = true;
    for (int p = w->pos[0] / P; p <= (w->kv_len[0] - 1) / P && rc == 0; p++) {
        nn_move m[2] = {
            { .kind = NN_MOVE_PAGE, .group = group, .from = w->pages[group][0][p], .to = NN_HOST, .host = a },
            { .kind = NN_MOVE_PAGE, .group = group, .from = w->pages[group][1][p], .to = NN_HOST, .host = b }
        };
        rc = nn_exec_move(w->x, m, 2, e);
        if (rc == 0) *same = *same && memcmp(a, b, bytes) == 0;
    }
    free(a);
    return rc;
}

int ops_check(world *w, nn_exec *reference, int *bad_op, str *report, err *e) {
    const nn_tape *t = w->m->tape;
    bool           twins = has_twins(w);
    int            rc;
    *bad_op = -1;
    if ((rc = w->x->backend->begin(w->x, &w->batch, e)) < 0) return rc;
    if ((rc = reference->backend->begin(reference, &w->batch, e)) < 0) return rc;
    for (int i = 0; i < t->n_ops && rc == 0 && *bad_op < 0; i++) {
        bool bad = false, same = true;
        rc = backend_compare_op(w->x, reference, &w->batch, i, &bad, report, e);
        int group = t->ops[i].layer >= 0 ? w->x->groups.of_layer[t->ops[i].layer] : -1;
        if (rc == 0 && twins && !t->ops[i].out && group >= 0) rc = same_pages(w, group, &same, e);
        if (!same) str_printf(report, "op %d (%s) stores the same rows as other bytes", i, nn_op_name(t->ops[i].kind));
        if (bad || !same) *bad_op = i;
    }
    return rc;
}

/* Pages as they might be found: the same garbage in all of them, so that what twins store can be compared. */
static int fill_pages(world *w, err *e) {
    for (int g = 0; g < w->x->groups.n; g++) {
        size_t bytes = w->x->memory.page_bytes[g];
        void  *host = calloc(bytes + 1, 1);
        int    rc = host ? 0 : err_set_nomem(e);
        for (int p = 0; p < w->o.limits.n_pages && rc == 0; p++) {
            nn_move m = { .kind = NN_MOVE_PAGE, .group = g, .from = NN_HOST, .to = p, .host = host };
            rc = nn_exec_move(w->x, &m, 1, e);
        }
        free(host);
        if (rc < 0) return rc;
    }
    return 0;
}

void ops_check_model(suite *s, const nn_model *m, nn_kv_type k_type, nn_kv_type v_type, int most) {
    nn_exec_options   o = world_options(s);
    const nn_backend *scalar;
    nn_device         d;
    nn_exec          *reference = NULL;
    world            *w = malloc(sizeof *w);
    err               e = { 0 };
    str               report;
    int               bad, rc = 0;
    str_init(&report);
    o.k_type = k_type;
    o.v_type = v_type;
    if (!w || !world_open(w, s, m, &o)) goto done;
    for (int q = 0; q < WORLD_SEQS && most; q++) w->until[q] = w->until[q] % most + 1;
    rc = backend_find("scalar", &scalar, &d, &e);
    if (rc == 0) rc = scalar->open(&reference, &d, m, &o, &e);
    if (rc == 0) rc = fill_pages(w, &e);
    while (rc == 0 && world_random_batch(w, true)) {
        rc = ops_check(w, reference, &bad, &report, &e);
        if (!FACT(s, rc < 0 || bad < 0, "pages of %s and %s: %s", nn_kv_type_name(k_type), nn_kv_type_name(v_type),
                  str_cstr(&report)))
            break;
    }
    FACT(s, rc == 0, "%s", e.msg);
    nn_exec_free(reference);
    world_close(w);
done:
    free(w);
    str_deinit(&report);
}

/* The types of pages that this device has. */
static int page_types(suite *s, nn_kv_type *out) {
    nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = GEN_ATTN, .ffn = GEN_MLP, .n_layer = 1 });
    int       n = 0;
    for (int t = 0; t < NN_KV_TYPE_COUNT; t++) {
        nn_exec_options o = world_options(s);
        nn_memory       mem;
        err             e = { 0 };
        o.k_type = o.v_type = (nn_kv_type)t;
        if (s->backend->measure(&mem, &s->device, m, &o, &e) == 0)
            out[n++] = (nn_kv_type)t;
        else
            FACT(s, e.code == ERR_UNSUPPORTED && strstr(e.msg, nn_kv_type_name((nn_kv_type)t)), "pages of %s: %s",
                 nn_kv_type_name((nn_kv_type)t), e.msg);
    }
    gen_free(m);
    FACT(s, n > 0, "the device has no type of pages");
    return n;
}

/* Whether these heads fit pages of the types; a device that refuses says for which type. */
static bool heads_fit(suite *s, const nn_model *m, nn_kv_type k, nn_kv_type v) {
    nn_exec_options o = world_options(s);
    nn_memory       mem;
    err             e = { 0 };
    o.k_type = k;
    o.v_type = v;
    if (s->backend->measure(&mem, &s->device, m, &o, &e) == 0) return true;
    FACT(s, e.code == ERR_UNSUPPORTED && (strstr(e.msg, nn_kv_type_name(k)) || strstr(e.msg, nn_kv_type_name(v))),
         "pages of %s and %s: %s", nn_kv_type_name(k), nn_kv_type_name(v), e.msg);
    return false;
}

/* Attention that ends before a row's own position. */
static void ends(suite *s, const nn_kv_type *types, int n_types) {
    for (int i = 0; i < suite_models(s, 4); i++) {
        gen_want   want = { .type = GEN_ANY, .mixer = GEN_ATTN, .ffn = GEN_MLP, .until = suite_int(s, 1, 40) };
        nn_model  *m = gen_model(s, want);
        nn_kv_type type = types[i % 2 ? suite_int(s, 0, n_types - 1) : 0];
        if (!heads_fit(s, m, type, type)) type = types[0];
        ops_check_model(s, m, type, type, 0);
        gen_free(m);
    }
}

void suite_ops(suite *s) {
    bool       seen[NN_OP_KINDS] = { false };
    nn_kv_type types[NN_KV_TYPE_COUNT];
    int        n_types = page_types(s, types);
    for (int i = 0; i < 2 * GEN_MIXERS * GEN_FFNS * s->rounds && n_types > 0; i++) {
        gen_want  want = { .type = GEN_ANY, .mixer = i % (GEN_STEP + 1), .ffn = i / GEN_MIXERS % GEN_FFNS };
        nn_model *m = gen_model(s, want);
        for (int k = 0; k < m->tape->n_ops; k++) seen[m->tape->ops[k].kind] = true;
        /* Every other one in f32, where the bound is narrow. */
        bool       wide = i % 2 == 0;
        nn_kv_type k = wide ? types[0] : types[suite_int(s, 0, n_types - 1)];
        nn_kv_type v = wide ? types[0] : types[suite_int(s, 0, n_types - 1)];
        if (!heads_fit(s, m, k, v)) k = v = types[0];
        ops_check_model(s, m, k, v, 0);
        gen_free(m);
    }
    if (n_types > 0) ends(s, types, n_types);
    for (int k = 0; k < NN_OP_KINDS; k++) {
        bool picture = k == NN_OP_ADD_SUPPLIED || k == NN_OP_ADD_EACH || k == NN_OP_CLAMP || k == NN_OP_JOIN;
        FACT(s, seen[k] || (picture && !(s->backend->can & NN_BATCH_DEEP)), "op %s was never run",
             nn_op_name((nn_op_kind)k));
    }
}

/* Heads of more rows than a device brings, or unpacks, at a time. */
static void wide_heads(suite *s) {
    static const int types[] = { TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_IQ4_NL, TENSOR_MLX_MXFP4 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        nn_model *m = gen_product(s, types[i], false, 33000 + suite_int(s, 0, 100));
        ops_check_model(s, m, NN_KV_F32, NN_KV_F32, 6);
        gen_free(m);
    }
}

/* Every weight type: right, or refused by name when a model with it is opened. */
void suite_types(suite *s) {
    wide_heads(s);
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++) {
        if (!tensor_type_get(type) || !tensor_type_get(type)->name) continue;
        bool known = gen_type_known(type);
        for (int embedding = 0; embedding < 2; embedding++) {
            nn_model       *m = gen_product(s, type, embedding, 0);
            nn_exec_options o = world_options(s);
            nn_exec        *x = NULL;
            nn_memory       mem;
            err             e = { 0 }, e2 = { 0 };
            int             rc = s->backend->open(&x, &s->device, m, &o, &e);
            FACT(s, rc == s->backend->measure(&mem, &s->device, m, &o, &e2), "%s: open says \"%s\", measure \"%s\"",
                 tensor_type_name(type), e.msg, e2.msg);
            nn_exec_free(x);
            FACT(s, rc < 0 || known || tensor_can_dequant(type), "%s: accepted, but it is not a weight",
                 tensor_type_name(type));
            if (rc == 0 && known)
                ops_check_model(s, m, NN_KV_F32, NN_KV_F32, 12);
            else if (rc < 0)
                FACT(s, !x && strstr(e.msg, tensor_type_name(type)), "%s: refused with \"%s\"", tensor_type_name(type),
                     e.msg);
            gen_free(m);
            if (rc == 0 && !embedding) { /* and in every place of a model */
                m = gen_model(
                    s, (gen_want){ .type = type, .mixer = type % GEN_MIXERS, .ffn = type % GEN_FFNS, .n_layer = 1 });
                /* A division may have the experts on a device that does not know what the other one does. */
                if (!strpbrk(s->device.id, "/+") || s->backend->measure(&mem, &s->device, m, &o, &e) == 0)
                    ops_check_model(s, m, NN_KV_F32, NN_KV_F32, 12);
                else
                    FACT(s, strstr(e.msg, tensor_type_name(type)), "%s: refused with \"%s\"", tensor_type_name(type),
                         e.msg);
                gen_free(m);
            }
        }
    }
}

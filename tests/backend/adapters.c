/* SPDX-License-Identifier: Apache-2.0 */
/* Adapter sets: rows with sets beside the reference; the same bits in any company; rows without a set keep the base's. */
#include "backend/backend.h"
#include "backend/gen.h"
#include "backend/world.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { SETS = 3 };

static void *need(void *p) {
    if (!p) exit(1);
    return p;
}

static float *floats(suite *s, arena *mem, int64_t n, float middle, float by) {
    float *v = need(arena_alloc(mem, (size_t)n * sizeof *v));
    for (int64_t i = 0; i < n; i++) v[i] = middle + by * suite_normal(s);
    return v;
}

static void random_block(suite *s, lowrank_block *v, int ranks, float by) {
    memset(v, 0, sizeof *v);
    for (int j = 0; j < ranks; j++) {
        for (int i = 0; i < LOWRANK_TILE; i++) (*v)[j][i] = suite_normal(s) * by;
    }
}

static nn_lora random_lora(suite *s, arena *mem, int64_t rows, int64_t cols, bool embed) {
    int           used = suite_chance(s, 20) ? suite_int(s, 17, 40) : suite_int(s, 1, 16), rank = (used + 15) / 16 * 16;
    int64_t       in = embed ? rows : cols, out = embed ? cols : rows, tiles = (out + LOWRANK_TILE - 1) / LOWRANK_TILE;
    lowrank_type  type = (lowrank_type)suite_int(s, LOWRANK_F16, LOWRANK_Q8);
    size_t        panel = lowrank_panel_bytes(type, in), tile = lowrank_tile_bytes(type, used);
    nn_lora       l = { .type = type, .rank = rank, .used = used, .in = in, .out = out, .scale = 0.5f };
    uint8_t      *a = need(arena_calloc(mem, (size_t)(rank / LOWRANK_PANEL), panel));
    uint8_t      *b = need(arena_calloc(mem, (size_t)tiles, tile));
    lowrank_block v;
    l.a = a;
    l.b = b;
    for (int j = 0; j < used; j += LOWRANK_PANEL, a += panel) {
        int n = used - j < LOWRANK_PANEL ? used - j : LOWRANK_PANEL;
        for (int64_t i = 0; i < in; i += LOWRANK_COLS) {
            random_block(s, &v, n, embed ? 0.2f : 0.1f);
            lowrank_put_a(type, a, i, in - i < LOWRANK_COLS ? (int)(in - i) : LOWRANK_COLS, (const lowrank_block *)&v);
        }
        for (int64_t k = 0; k < tiles; k++) {
            random_block(s, &v, n, 0.2f);
            lowrank_put_b(type, b + (size_t)k * tile, j, n, (const lowrank_block *)&v);
        }
    }
    return l;
}

/* A patch of the matrix that an op reads; false: adapters do not touch such an op. */
static bool random_patch(suite *s, const nn_model *m, const nn_op *op, arena *mem, nn_patch *p) {
    bool          embed = op->kind == NN_OP_EMBED, experts = op->kind == NN_OP_EXPERTS;
    const nn_mat *mat = embed ? op->u.embed.table : op->u.linear.w;
    if (!embed && !experts && (op->kind != NN_OP_LINEAR || m->tape->bufs[op->out].mult != 1)) return false;
    int      n = mat->n_stack ? mat->n_stack : 1;
    nn_lora *l = need(arena_calloc(mem, (size_t)n, sizeof *l));
    for (int e = 0; e < n; e++) {
        if (!experts || suite_chance(s, 70)) l[e] = random_lora(s, mem, mat->rows, mat->cols, embed);
    }
    *p = (nn_patch){ .mat = mat, .embed = embed, .lora = l };
    if (embed || experts || suite_chance(s, 50)) return true;
    if (suite_chance(s, 50)) { /* DoRA */
        p->magnitude = floats(s, mem, mat->rows, 1, 0.2f);
        p->w2 = floats(s, mem, mat->rows, 1, 0);
        p->wd = floats(s, mem, mat->rows, 0.1f, 0);
        p->d2 = floats(s, mem, mat->rows, 0.2f, 0);
        return true;
    }
    p->lora = NULL;
    if (suite_chance(s, 50))
        p->out_gain = floats(s, mem, mat->rows, 1, 0.3f);
    else
        p->in_gain = floats(s, mem, mat->cols, 1, 0.3f);
    return true;
}

static nn_adapter *random_adapter(suite *s, const nn_model *m) {
    nn_adapter *a = need(calloc(1, sizeof *a));
    arena_init(&a->mem, 0);
    a->patches = need(arena_calloc(&a->mem, (size_t)m->tape->n_ops, sizeof *a->patches));
    for (int i = 0; i < m->tape->n_ops; i++) {
        const nn_op *op = &m->tape->ops[i];
        if (op->kind != NN_OP_EMBED && op->kind != NN_OP_LINEAR && op->kind != NN_OP_EXPERTS) continue;
        if (suite_chance(s, 80) && random_patch(s, m, op, &a->mem, &a->patches[a->n_patches])) a->n_patches++;
    }
    for (int i = 0; i < SHA256_BYTES; i++) a->key[i] = (uint8_t)suite_u64(s);
    return a;
}

typedef struct fixture {
    world          *w;
    nn_adapter     *adapters[2];
    nn_adapter_set *sets[SETS];
    int32_t         rows[WORLD_TOKENS];
    const int      *set_of; /* of sequences; NULL: none anywhere */
} fixture;

static void use_sets(fixture *f) {
    bool any = false;
    for (int t = 0; t < f->w->batch.n_tok && f->set_of; t++) {
        f->rows[t] = f->set_of[f->w->of[f->w->seq_of[t]]];
        any = any || f->rows[t];
    }
    f->w->batch.adapter = any ? f->rows : NULL;
}

static bool tell(fixture *f, nn_exec *x) {
    err  e = { 0 };
    bool ok = true;
    for (int i = 0; i < SETS; i++)
        ok = FACT(f->w->s, x->backend->adapt(x, 7 * i + 1, f->sets[i], &e) == 0, "a set: %s", e.msg) && ok;
    return ok;
}

static void run(fixture *f, trace *t, const char *what) {
    while (world_random_batch(f->w, false)) {
        err e = { 0 };
        use_sets(f);
        if (!FACT(f->w->s, nn_exec_step(f->w->x, &f->w->batch, &e) == 0, "%s: %s", what, e.msg)) return;
        trace_take(t, f->w, what);
    }
}

static void run_alone(fixture *f, trace *t) {
    world *w = f->w;
    for (int q = 0; q < w->n_seq; q++) {
        err e = { 0 };
        world_begin(w);
        world_add(w, q, w->until[q]);
        world_end(w);
        use_sets(f);
        if (!FACT(w->s, nn_exec_step(w->x, &w->batch, &e) == 0, "alone: %s", e.msg)) return;
        trace_take(t, w, "adapters alone");
    }
}

/* Op by op beside the reference. */
static void beside_reference(fixture *f, const nn_exec_options *o) {
    suite            *s = f->w->s;
    const nn_backend *reference;
    nn_device         device;
    nn_exec          *x = NULL;
    str               report;
    err               e = { 0 };
    int               bad = -1;
    if (!FACT(s, backend_find("scalar", &reference, &device, &e) == 0, "the reference: %s", e.msg)) return;
    if (!FACT(s, reference->open(&x, &device, f->w->m, o, &e) == 0, "the reference: %s", e.msg)) return;
    str_init(&report);
    world_place(f->w);
    if (tell(f, x)) {
        for (int i = 0; i < 3 && bad < 0 && world_random_batch(f->w, false); i++) {
            use_sets(f);
            int rc = backend_compare(f->w->x, x, &f->w->batch, &bad, &report, &e);
            FACT(s, rc == 0 && bad < 0, "beside the reference: %s%s", e.msg, str_cstr(&report));
        }
    }
    str_deinit(&report);
    nn_exec_free(x);
}

static void check_sets(fixture *f, const nn_exec_options *o) {
    static const int mixed[] = { 0, 1, 8, 15, 1 };
    trace            bare, t;
    suite           *s = f->w->s;
    err              e = { 0 };
    trace_init(&bare, f->w->m);
    trace_init(&t, f->w->m);
    run(f, &bare, "without adapters");
    world_place(f->w);
    f->set_of = mixed;
    if (tell(f, f->w->x)) {
        run_alone(f, &t);
        world_place(f->w);
        run(f, &t, "adapters in company");
        FACT(s,
             memcmp(t.logits, bare.logits, (size_t)(WORLD_LEN * t.n_vocab) * sizeof(float)) == 0 || !t.has_logits[0][0],
             "a sequence without a set keeps the base's bits");
        if (s->device.kind != NN_DEVICE_REFERENCE) beside_reference(f, o);
        FACT(s, f->w->x->backend->adapt(f->w->x, 8, NULL, &e) == 0, "taking a set away: %s", e.msg);
        world_place(f->w);
        world_begin(f->w);
        world_add(f->w, 2, 1);
        world_end(f->w);
        use_sets(f);
        FACT(s, nn_exec_step(f->w->x, &f->w->batch, &e) == ERR_ARG && strstr(e.msg, "no adapter set 8"),
             "a set that is not there: %s", e.msg);
    }
    trace_deinit(&bare);
    trace_deinit(&t);
}

static void check_model(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    fixture         f = { .w = need(malloc(sizeof *f.w)) };
    err             e = { 0 };
    for (int i = 0; i < 2; i++) f.adapters[i] = random_adapter(s, m);
    const nn_adapter_use uses[] = { { f.adapters[0], 1 }, { f.adapters[1], -0.5f }, { f.adapters[0], 2 } };
    bool                 ok = FACT(s, nn_adapter_set_open(&f.sets[0], m, uses, 1, &e) == 0, "a set of one: %s", e.msg);
    ok = FACT(s, nn_adapter_set_open(&f.sets[1], m, uses, 2, &e) == 0, "a set of two: %s", e.msg) && ok;
    ok = FACT(s, nn_adapter_set_open(&f.sets[2], m, uses + 1, 2, &e) == 0, "another set of two: %s", e.msg) && ok;
    ok = ok && FACT(s, memcmp(f.sets[1]->key, f.sets[2]->key, SHA256_BYTES) != 0, "other scales, another key");
    if (ok && world_open(f.w, s, m, &o)) {
        f.w->all_logits = true;
        check_sets(&f, &o);
        world_close(f.w);
    }
    for (int i = 0; i < SETS; i++) nn_adapter_set_free(f.sets[i]);
    for (int i = 0; i < 2; i++) nn_adapter_free(f.adapters[i]);
    free(f.w);
}

void suite_adapters(suite *s) {
    if (!(s->backend->can & NN_BATCH_ADAPTER)) { /* that it is refused by name is a fact of batches.c */
        FACT(s, !s->backend->adapt, "no adapters, but a function for them");
        return;
    }
    for (int i = 0; i < suite_models(s, 9); i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = i % GEN_MIXERS, .ffn = i % GEN_FFNS });
        check_model(s, m);
        gen_free(m);
    }
}

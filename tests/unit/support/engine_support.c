/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/engine_support.h"

#include "unit/support/support.h"

#include "kernels/cpu.h"
#include "kernels/kvpage.h"
#include "models/list.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fixture_open(fixture *f, const char *name) {
    char path[512];
    err  e;
    snprintf(path, sizeof path, "%s/tests/golden/models/%s", HEARTH_SOURCE_DIR, name);
    if (model_file_open(&f->file, path, &e) < 0 || nn_model_open(&f->model, f->file, models_list, NULL, &e) < 0)
        fail_msg("%s", e.msg);
}

void fixture_close(fixture *f) {
    nn_model_free(f->model);
    model_file_free(f->file);
}

bool fixture_page_types(const fixture *f, engine_options *o) {
    const char   *said = getenv("HEARTH_TEST_KV");
    char          k[16], v[16];
    engine_memory m;
    err           e;
    o->k_type = o->v_type = NN_KV_F16;
    if (!said) return false;
    if (sscanf(said, "%15[^,],%15[^,],%d", k, v, &o->precise_layers) != 3 || !nn_kv_type_parse(k, &o->k_type) ||
        !nn_kv_type_parse(v, &o->v_type))
        fail_msg("HEARTH_TEST_KV: expected K,V,PRECISE, found '%s'", said);
    if (engine_measure(&m, f->model, o, &e) < 0) o->k_type = o->v_type = NN_KV_Q4_0;
    return true;
}

unsigned fixture_cpu(void) {
    const char *said = getenv("HEARTH_TEST_CPU");
    unsigned    cpu = cpu_detect();
    if (said && !cpu_parse(said, &cpu)) fail_msg("HEARTH_TEST_CPU: no such instruction sets: '%s'", said);
    return cpu & cpu_detect();
}

size_t fixture_page_bytes(const fixture *f, int page_tokens) {
    const nn_model *m = f->model;
    engine_options  o = { .n_ctx = 128, .page_tokens = page_tokens, .cpu = fixture_cpu() };
    engine_memory   all;
    size_t          bytes = 0;
    err             e;
    if (fixture_page_types(f, &o)) {
        if (engine_measure(&all, m, &o, &e) < 0) fail_msg("%s", e.msg);
        return all.all_page_bytes;
    }
    for (int i = 0; i < m->dims->n_layer; i++) {
        const nn_state *s = &m->state[i];
        kv_layout       l;
        bool            latent = s->kind == NN_STATE_PAGED_LATENT;
        if (s->kind == NN_STATE_NONE) continue;
        assert_true(kv_layout_init(&l, KV_F16, KV_F16, page_tokens, latent ? 1 : s->n_kv,
                                   latent ? s->dim_k + s->dim_v : s->dim_k, latent ? s->dim_k : s->dim_v, latent));
        bytes += l.layer_bytes;
    }
    return bytes;
}

engine *fixture_engine(const fixture *f, engine_options o) {
    engine *g;
    err     e;
    if (o.n_ctx == 0) o.n_ctx = 128;
    if (!o.device && !o.backend) o.device = getenv("HEARTH_TEST_DEVICE") ? getenv("HEARTH_TEST_DEVICE") : "cpu";
    o.cpu = fixture_cpu();
    fixture_page_types(f, &o);
    if (engine_open(&g, f->model, NULL, &o, &e) < 0) fail_msg("%s", e.msg);
    return g;
}

uint64_t engine_submit_ok(engine *g, const engine_request *r) {
    uint64_t id;
    err      e;
    if (engine_submit(g, r, &id, &e) < 0) fail_msg("%s", e.msg);
    return id;
}

void answer_collect(void *ctx, const engine_event *ev) {
    answer *a = ctx;
    if (ev->kind == ENGINE_TOKEN && a->n < ANSWER_MAX) {
        a->tokens[a->n] = ev->token;
        a->logprobs[a->n++] = ev->logprob;
    } else if (ev->kind == ENGINE_PROGRESS) {
        a->progress++;
    } else if (ev->kind == ENGINE_DONE || ev->kind == ENGINE_ERROR) {
        a->over = true;
        a->failed = ev->kind == ENGINE_ERROR;
        a->finish = ev->finish;
        a->cached = ev->usage.cached_tokens;
        if (a->failed) a->error = *ev->error;
    }
}

bool answer_same(const answer *a, const answer *b) {
    return a->n == b->n && memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens) == 0 &&
           memcmp(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs) == 0;
}

/* --- the guide ---------------------------------------------------------------------------------------------------- */

typedef struct rule_guide {
    engine_guide base;
    uint64_t     rule;
    int64_t      n_vocab;
    int          length, n;
    int32_t     *said; /* n tokens */
    atomic_int   inside;
} rule_guide;

static atomic_int misuse, alive;

static int32_t last_of(const rule_guide *g) { return g->n ? g->said[g->n - 1] : -1; }

int test_guide_misuse(void) { return atomic_load(&misuse); }
int test_guides_alive(void) { return atomic_load(&alive); }

static void enter(rule_guide *g) {
    if (atomic_fetch_add(&g->inside, 1) != 0) atomic_fetch_add(&misuse, 1);
}
static void leave(rule_guide *g) { atomic_fetch_sub(&g->inside, 1); }

static uint64_t place_of(uint64_t rule, int n, int32_t last) {
    uint64_t seed = rule * 1000003u + (uint64_t)n * 8191u + (uint64_t)last;
    return test_random(&seed);
}

bool test_guide_allows(uint64_t rule, int n_accepted, int32_t last, int32_t token) {
    uint64_t place = place_of(rule, n_accepted, last);
    return place % 4 == 0 || ((uint64_t)token * 2654435761u ^ place) % 97 < 32;
}

bool test_guide_kept(uint64_t rule, int length, const answer *a) {
    for (int i = 0; i < a->n; i++) {
        if (!test_guide_allows(rule, i, i ? a->tokens[i - 1] : -1, a->tokens[i])) return false;
    }
    return length == 0 || a->n <= length;
}

static int rule_mask(engine_guide *self, uint32_t *mask, err *e) {
    rule_guide *g = (rule_guide *)self;
    (void)e;
    enter(g);
    bool all = place_of(g->rule, g->n, last_of(g)) % 4 == 0;
    if (!all) {
        memset(mask, 0, ((size_t)g->n_vocab + 31) / 32 * sizeof *mask);
        for (int32_t t = 0; t < g->n_vocab; t++) {
            if (test_guide_allows(g->rule, g->n, last_of(g), t)) mask[t / 32] |= 1u << (t % 32);
        }
    }
    leave(g);
    return !all;
}

static int rule_accept(engine_guide *self, int32_t token, err *e) {
    rule_guide *g = (rule_guide *)self;
    int         rc = 0;
    enter(g);
    if (!test_guide_allows(g->rule, g->n, last_of(g), token)) rc = err_set(e, ERR_ARG, "token %d is forbidden", token);
    g->said = realloc(g->said, ((size_t)g->n + 1) * sizeof *g->said);
    assert_non_null(g->said);
    g->said[g->n++] = token;
    leave(g);
    return rc;
}

static void rule_rollback(engine_guide *self, int n_tokens) { ((rule_guide *)self)->n -= n_tokens; }

static bool rule_must_stop(engine_guide *self) {
    rule_guide *g = (rule_guide *)self;
    enter(g);
    bool stop = g->length > 0 && g->n >= g->length;
    leave(g);
    return stop;
}

static engine_guide *rule_clone(engine_guide *self, err *e) {
    rule_guide *g = (rule_guide *)self;
    (void)e;
    return test_guide(g->rule, g->n_vocab, g->length);
}

static void rule_free(engine_guide *self) {
    enter((rule_guide *)self);
    free(((rule_guide *)self)->said);
    free(self);
    atomic_fetch_sub(&alive, 1);
}

engine_guide *test_guide(uint64_t rule, int64_t n_vocab, int length) {
    rule_guide *g = calloc(1, sizeof *g);
    assert_non_null(g);
    atomic_fetch_add(&alive, 1);
    g->base = (engine_guide){ rule_mask, rule_accept, rule_rollback, rule_must_stop, rule_clone, rule_free };
    g->rule = rule;
    g->n_vocab = n_vocab;
    g->length = length;
    return &g->base;
}

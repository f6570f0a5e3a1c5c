/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may ask of the engine: guides, embeddings, a fair share, an answer about room.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "backend/backend.h"
#include "bundle/tokenizer.h"
#include "engine/internal.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tools/simple.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 40 };

static void fill(int32_t *tokens, int n, uint64_t seed, const fixture *f) {
    for (int i = 0; i < n; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)f->model->dims->n_vocab);
}

static engine_request request_for(const int32_t *tokens, int n, int max_tokens, answer *a) {
    engine_request r = { .tokens = tokens,
                         .n_tokens = (size_t)n,
                         .max_tokens = max_tokens,
                         .want_logprob = true,
                         .on_event = answer_collect,
                         .ctx = a };
    sampling_params_default(&r.sampling);
    r.sampling.temperature = 0.8f;
    return r;
}

/* --- guides ------------------------------------------------------------------------------------------------------- */

typedef struct choices {
    answer a[4];
} choices;
static void collect_choice(void *ctx, const engine_event *ev) { answer_collect(&((choices *)ctx)->a[ev->choice], ev); }

static void test_guided_choices(void **state) {
    fixture      f;
    int32_t      tokens[PROMPT];
    choices      c = { 0 };
    engine_stats st;
    (void)state;
    fixture_open(&f, "llama");
    fill(tokens, PROMPT, 3, &f);
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
    engine_request r = request_for(tokens, PROMPT, 20, NULL);
    r.n_choices = 4;
    r.on_event = collect_choice;
    r.ctx = &c;
    r.guide = test_guide(77, engine_vocab(g), 0);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    for (int i = 0; i < 4; i++) {
        answer         one = { 0 };
        engine_request alone = request_for(tokens, PROMPT, 20, &one);
        alone.sampling.seed += (uint64_t)i;
        alone.guide = test_guide(77, engine_vocab(g), 0);
        engine_submit_ok(g, &alone);
        engine_wait_idle(g);
        assert_int_equal(one.n, 20);
        assert_true(answer_same(&one, &c.a[i]));
        assert_true(test_guide_kept(77, 0, &c.a[i]));
    }
    engine_stat(g, &st);
    assert_int_equal(st.guide_masks, 8 * 20); /* one per token, none behind the last */
    /* Refused: the guide stays the caller's. */
    uint64_t id;
    err      e;
    r.guide = test_guide(1, engine_vocab(g), 0);
    r.n_top = 100;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_ARG);
    assert_int_equal(test_guides_alive(), 1);
    r.guide->free(r.guide);
    engine_free(g);
    assert_int_equal(test_guide_misuse() + test_guides_alive(), 0);
    fixture_close(&f);
}

/* A guide that allows one token only, fails where told, and stops where told. */
typedef struct one_token {
    engine_guide base;
    int32_t      token;
    int          fail_mask_at, fail_accept_at, stop_at, n;
} one_token;

static int one_mask(engine_guide *self, uint32_t *mask, err *e) {
    one_token *o = (one_token *)self;
    if (o->n == o->fail_mask_at) return err_set(e, ERR_ARG, "no mask here");
    memset(mask, 0, 40);
    mask[o->token / 32] = 1u << (o->token % 32);
    return 1;
}
static int one_accept(engine_guide *self, int32_t token, err *e) {
    one_token *o = (one_token *)self;
    assert_int_equal(token, o->token);
    return o->n++ == o->fail_accept_at ? err_set(e, ERR_ARG, "not this token") : 0;
}
static bool one_must_stop(engine_guide *self) { return ((one_token *)self)->n == ((one_token *)self)->stop_at; }
static void one_rollback(engine_guide *self, int n_tokens) { ((one_token *)self)->n -= n_tokens; }
static void one_free(engine_guide *self) { (void)self; }

static void run_one(engine *g, one_token *o, const int32_t *tokens, answer *a) {
    engine_request r = request_for(tokens, PROMPT, 10, a);
    o->base = (engine_guide){
        .mask = one_mask, .accept = one_accept, .rollback = one_rollback, .must_stop = one_must_stop, .free = one_free
    };
    r.guide = &o->base;
    *a = (answer){ 0 };
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(a->over);
}

static void test_guide_ends(void **state) {
    fixture f;
    int32_t tokens[PROMPT];
    answer  a;
    (void)state;
    fixture_open(&f, "llama");
    assert_true(f.model->dims->n_vocab <= 320);
    fill(tokens, PROMPT, 3, &f);
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
    one_token      lacking = { .base = { one_mask, one_accept, NULL, one_must_stop, NULL, one_free } };
    engine_request r = request_for(tokens, PROMPT, 10, &a);
    uint64_t       id;
    err            e;
    r.guide = &lacking.base;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_ARG);
    assert_string_equal(e.msg, "the guide lacks a function");
    run_one(g, &(one_token){ .token = 99, .fail_mask_at = -1, .fail_accept_at = -1, .stop_at = -1 }, tokens, &a);
    assert_true(a.finish == ENGINE_LENGTH && a.n == 10 && a.tokens[9] == 99);
    run_one(g, &(one_token){ .token = 5, .fail_mask_at = -1, .fail_accept_at = -1, .stop_at = 3 }, tokens, &a);
    assert_true(a.finish == ENGINE_STOP_TOKEN && a.n == 3 && !a.failed);
    run_one(g, &(one_token){ .token = 5, .fail_mask_at = -1, .fail_accept_at = -1, .stop_at = 0 }, tokens, &a);
    assert_true(a.finish == ENGINE_STOP_TOKEN && a.n == 0 && !a.failed);
    run_one(g, &(one_token){ .token = 5, .fail_mask_at = 2, .fail_accept_at = -1, .stop_at = -1 }, tokens, &a);
    assert_true(a.failed && a.n == 2);
    assert_string_equal(a.error.msg, "no mask here");
    run_one(g, &(one_token){ .token = 5, .fail_mask_at = -1, .fail_accept_at = 4, .stop_at = -1 }, tokens, &a);
    assert_true(a.failed && a.n == 4);
    assert_string_equal(a.error.msg, "not this token");
    engine_free(g);
    fixture_close(&f);
}

/* End tokens: min_tokens and ignore_eos take them out of a mask, unless nothing else is left. */
typedef struct two_tokens {
    engine_guide base;
    int32_t      a, b;
} two_tokens;

static int two_mask(engine_guide *self, uint32_t *mask, err *e) {
    two_tokens *t = (two_tokens *)self;
    (void)e;
    memset(mask, 0, (size_t)8192 / 8);
    mask[t->a / 32] |= 1u << (t->a % 32);
    mask[t->b / 32] |= 1u << (t->b % 32);
    return 1;
}
static int two_accept(engine_guide *self, int32_t token, err *e) {
    two_tokens *t = (two_tokens *)self;
    return token == t->a ? 0 : err_set(e, ERR_ARG, "an end token was reported");
}
static void two_rollback(engine_guide *self, int n_tokens) { (void)self, (void)n_tokens; }
static bool two_must_stop(engine_guide *self) {
    (void)self;
    return false;
}

static void test_guide_and_end(void **state) {
    model_file    *f = NULL;
    nn_model      *m = NULL;
    tok           *t = NULL;
    engine        *g = NULL;
    engine_options o = { .n_ctx = 64, .n_threads = 1, .k_type = NN_KV_F16, .v_type = NN_KV_F16 };
    int32_t        tokens[] = { 40, 41, 42 };
    err            e;
    (void)state;
    o.cpu = cpu_detect();
    if (model_file_open(&f, HEARTH_SOURCE_DIR "/models/demo/draft.gguf", &e) < 0 ||
        nn_model_open(&m, f, models_list, NULL, &e) < 0 || bundle_tokenizer_open(&t, f, &(tok_options){ 0 }, &e) < 0 ||
        engine_open(&g, m, t, &o, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(engine_vocab(g), 8192);
    size_t     n_end;
    int32_t    eos = tok_end_ids(t, &n_end)[0];
    two_tokens guide = { .base = { .mask = two_mask,
                                   .accept = two_accept,
                                   .rollback = two_rollback,
                                   .must_stop = two_must_stop,
                                   .free = one_free } };
    for (int way = 0; way < 4; way++) {
        answer         a = { 0 };
        engine_request r = request_for(tokens, 3, 12, &a);
        guide.a = way == 3 ? eos : 50;
        guide.b = eos;
        r.guide = &guide.base;
        r.sampling.temperature = 0;
        /* The end is what the model would say, if it may. */
        r.sampling.bias = &(sampling_bias){ eos, 100 };
        r.sampling.n_bias = 1;
        r.min_tokens = way == 1 || way == 3 ? 5 : 0;
        r.ignore_eos = way == 2;
        engine_submit_ok(g, &r);
        engine_wait_idle(g);
        static const int want[] = { 0, 5, 12, 0 };
        if (a.failed) fail_msg("%s", a.error.msg);
        assert_int_equal(a.n, want[way]);
        assert_int_equal(a.finish, way == 2 ? ENGINE_LENGTH : ENGINE_STOP_TOKEN);
    }
    engine_free(g);
    tok_free(t);
    nn_model_free(m);
    model_file_free(f);
}

/* --- embeddings --------------------------------------------------------------------------------------------------- */

typedef struct embedding {
    float vector[256];
    int   n, count, done;
    bool  failed;
} embedding;

static void collect_embedding(void *ctx, const engine_event *ev) {
    embedding *m = ctx;
    if (ev->kind == ENGINE_EMBEDDING) {
        assert_true(ev->n_vector <= 256);
        m->n = ev->n_vector;
        m->count++;
        memcpy(m->vector, ev->vector, (size_t)ev->n_vector * sizeof(float));
    }
    m->done += ev->kind == ENGINE_DONE;
    m->failed = m->failed || ev->kind == ENGINE_ERROR || ev->kind == ENGINE_TOKEN;
}

static engine_request embed_request(const int32_t *tokens, int n, engine_pooling pooling, embedding *m) {
    return (engine_request){ .tokens = tokens,
                             .n_tokens = (size_t)n,
                             .pooling = pooling,
                             .normalize = true,
                             .on_event = collect_embedding,
                             .ctx = m };
}

/* The reference: final hidden states by the plain backend, pooled in double here. */
static void pooled_reference(const fixture *f, const int32_t *tokens, int n, engine_pooling p, double *out) {
    simple         s;
    err            e;
    simple_options o = { .max_len = n, .max_tokens = n, .k_type = NN_KV_F32, .v_type = NN_KV_F32 };
    double         sum = 0;
    if (simple_open(&s, "scalar", f->model, &o, &e) < 0) fail_msg("%s", e.msg);
    if (simple_step(&s, &(simple_feed){ .ids = tokens, .n = n, .all = true }, 1, &e) < 0) fail_msg("%s", e.msg);
    const float *rows = simple_fetch(&s, NN_FETCH_HIDDEN, &e);
    int64_t      width = nn_exec_width(s.exec, NN_FETCH_HIDDEN);
    for (int64_t i = 0; i < width; i++) {
        out[i] = 0;
        int first = p == ENGINE_POOL_LAST ? n - 1 : 0, last = p == ENGINE_POOL_CLS ? 1 : n;
        for (int r = first; r < last; r++) out[i] += (double)rows[r * width + i];
        sum += out[i] * out[i];
    }
    for (int64_t i = 0; i < width; i++) out[i] /= sqrt(sum);
    simple_close(&s);
}

static const engine_pooling kinds[] = { ENGINE_POOL_LAST, ENGINE_POOL_MEAN, ENGINE_POOL_CLS };

static void check_embeddings(const char *name) {
    enum { TEXTS = 12 };
    static int32_t   tokens[TEXTS][128];
    static embedding solo[TEXTS], got[TEXTS];
    fixture          f;
    int              len[TEXTS];
    fixture_open(&f, name);
    memset(solo, 0, sizeof solo);
    engine *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
    for (int i = 0; i < TEXTS; i++) {
        engine_pooling pooling = kinds[i % 3];
        double         want[256], worst = 0, length = 0;
        len[i] = i == 0 ? 1 : i == 1 ? 128 : 3 + 9 * i; /* as long as the context, too */
        fill(tokens[i], len[i], (uint64_t)i / 4, &f);   /* some begin alike */
        engine_request r = embed_request(tokens[i], len[i], pooling, &solo[i]);
        engine_submit_ok(g, &r);
        engine_wait_idle(g);
        assert_int_equal(solo[i].n, engine_embedding_size(g));
        assert_true(solo[i].count == 1 && solo[i].done == 1 && !solo[i].failed);
        pooled_reference(&f, tokens[i], len[i], pooling, want);
        for (int k = 0; k < solo[i].n; k++) {
            worst = fmax(worst, fabs(want[k] - (double)solo[i].vector[k]));
            length += (double)solo[i].vector[k] * (double)solo[i].vector[k];
        }
        if (worst > 2e-3) fail_msg("%s: text %d differs by %g from the reference", name, i, worst);
        assert_true(fabs(length - 1) < 1e-5);
    }
    engine_free(g);
    /* Together with others that generate, in pieces, with the cache, twice. */
    g = fixture_engine(&f, (engine_options){ .n_threads = 2, .max_seqs = 6, .step_tokens = 23 });
    for (int round = 0; round < 2; round++) {
        answer other[3] = { 0 };
        memset(got, 0, sizeof got);
        for (int i = 0; i < TEXTS; i++) {
            engine_request r = embed_request(tokens[i], len[i], kinds[i % 3], &got[i]);
            engine_request q = request_for(tokens[i], 5, 20, &other[i % 3]);
            engine_submit_ok(g, &r);
            if (i < 3) engine_submit_ok(g, &q);
        }
        engine_wait_idle(g);
        for (int i = 0; i < TEXTS; i++) assert_memory_equal(got[i].vector, solo[i].vector, sizeof solo[i].vector);
        for (int i = 0; i < 3; i++) assert_int_equal(other[i].n, 20);
    }
    engine_free(g);
    fixture_close(&f);
}

static void test_embeddings(void **state) {
    static const char *const names[] = { "llama", "gemma3_text", "deepseek_v3", "qwen3_next", "gpt2" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_embeddings(names[i]);
}

static void test_embedding_limits(void **state) {
    fixture   f;
    int32_t   tokens[130];
    embedding m = { 0 };
    uint64_t  id;
    err       e;
    (void)state;
    fixture_open(&f, "llama");
    fill(tokens, 130, 1, &f);
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
    engine_request r = embed_request(tokens, 129, ENGINE_POOL_LAST, &m);
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_CONTEXT);
    r.n_tokens = 20;
    r.pooling = (engine_pooling)9;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_ARG);
    r.pooling = ENGINE_POOL_MEAN;
    r.n_choices = 2;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_ARG);
    r.n_choices = 1;
    /* Not normalised: the mean itself. */
    double want[256], dot = 0, length = 0;
    r.pooling = ENGINE_POOL_MEAN;
    r.normalize = false;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    pooled_reference(&f, tokens, 20, ENGINE_POOL_MEAN, want);
    for (int k = 0; k < m.n; k++) {
        dot += want[k] * (double)m.vector[k];
        length += (double)m.vector[k] * (double)m.vector[k];
    }
    assert_true(dot / sqrt(length) > 0.9999 && fabs(sqrt(length) - 1) > 1e-3);
    engine_free(g);
    fixture_close(&f);
}

/* --- shares ------------------------------------------------------------------------------------------------------- */

/* Order in which requests end, by client. Everything happens on the engine's thread. */
typedef struct crowd {
    engine        *g;
    const fixture *f;
    int            ended[100], n;
    struct member {
        struct crowd *all;
        int           client;
    } member[4];
} crowd;

static void note_end(void *ctx, const engine_event *ev) {
    struct member *m = ctx;
    if (ev->kind == ENGINE_DONE) m->all->ended[m->all->n++] = m->client;
}

/* With the first token of another one the queue fills. */
static void fill_queue(void *ctx, const engine_event *ev) {
    crowd  *all = ctx;
    int32_t tokens[PROMPT];
    if (ev->kind != ENGINE_TOKEN) return;
    for (int c = 0; c < 4; c++) {
        all->member[c] = (struct member){ all, c };
        for (int i = 0; i < (c ? 4 : 60); i++) {
            fill(tokens, PROMPT, (uint64_t)(c * 100 + i), all->f);
            engine_request r = request_for(tokens, PROMPT, 30, NULL);
            r.client = (uint64_t)c;
            r.on_event = note_end;
            r.ctx = &all->member[c];
            engine_submit_ok(all->g, &r);
        }
    }
}

/* One client has 60 requests in the queue before the others come with 4 each; those are through when it has had about
 * as much as each of them. */
static void test_flood(void **state) {
    fixture f;
    int32_t tokens[1] = { 1 };
    (void)state;
    fixture_open(&f, "llama");
    engine *g = fixture_engine(
        &f, (engine_options){ .n_threads = 1, .max_seqs = 4, .cache_bytes = 64 * fixture_page_bytes(&f, 32) });
    crowd          all = { .g = g, .f = &f };
    engine_request r = request_for(tokens, 1, 1, NULL);
    r.client = 9;
    r.on_event = fill_queue;
    r.ctx = &all;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_int_equal(all.n, 72);
    int last_small = 0, floods = 0;
    for (int i = 0; i < all.n; i++) last_small = all.ended[i] ? i : last_small;
    for (int i = 0; i < last_small; i++) floods += all.ended[i] == 0;
    print_message("the flood had %d requests before the others had their 4 each\n", floods);
    assert_in_range(floods, 3, 6);
    engine_free(g);
    fixture_close(&f);
}

/* Long answers hold every place; a newcomer, who comes with their first token, gets one long before they end. */
typedef struct party {
    engine        *g;
    engine_request newcomer;
    int            tokens, ended, tokens_then; /* of the others; then: when the newcomer was through */
    int            newcomer_tokens;
} party;

static void note_others(void *ctx, const engine_event *ev) {
    party *p = ctx;
    if (ev->kind == ENGINE_TOKEN && p->tokens++ == 0) engine_submit_ok(p->g, &p->newcomer);
    p->ended += ev->kind == ENGINE_DONE;
}

static void note_newcomer(void *ctx, const engine_event *ev) {
    party *p = ctx;
    p->newcomer_tokens += ev->kind == ENGINE_TOKEN;
    if (ev->kind == ENGINE_DONE) {
        p->tokens_then = p->tokens;
        assert_int_equal(p->ended, 0);
    }
}

/* All of them come at once, with the token of an opening request. */
static void let_others_in(void *ctx, const engine_event *ev) {
    party  *p = ctx;
    int32_t tokens[PROMPT] = { 0 };
    if (ev->kind != ENGINE_TOKEN) return;
    for (int i = 0; i < 4; i++) {
        tokens[0] = i;
        engine_request r = request_for(tokens, PROMPT, 800, NULL);
        r.client = 1;
        r.on_event = note_others;
        r.ctx = p;
        engine_submit_ok(p->g, &r);
    }
}

static void test_newcomer(void **state) {
    fixture      f;
    int32_t      few[10] = { 1 };
    engine_stats st;
    (void)state;
    fixture_open(&f, "llama");
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 2, .n_ctx = 1024 });
    party          p = { .g = g, .newcomer = request_for(few, 10, 5, NULL) };
    engine_request r = request_for(few, 1, 1, NULL);
    p.newcomer.client = 2;
    p.newcomer.on_event = note_newcomer;
    p.newcomer.ctx = r.ctx = &p;
    r.client = 3;
    r.on_event = let_others_in;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_int_equal(p.newcomer_tokens, 5);
    assert_int_equal(p.tokens, 4 * 800);
    /* It waited for FAIR_LAG tokens of theirs, of which the prompts are 80. */
    assert_in_range(p.tokens_then, 1, FAIR_LAG + 40);
    engine_stat(g, &st);
    assert_true(st.preemptions >= 1);
    engine_free(g);
    fixture_close(&f);
}

/* A full queue is full for who filled it. */
typedef struct full {
    engine *g;
    answer  a[8];
    int     taken[8]; /* results of submissions, in order */
} full;

static void fill_it(void *ctx, const engine_event *ev) {
    static const uint64_t clients[8] = { 1, 1, 1, 1, 1, 2, 2, 3 };
    full                 *q = ctx;
    int32_t               tokens[] = { 5, 6, 7 };
    if (ev->kind != ENGINE_TOKEN) return;
    for (int i = 0; i < 8; i++) {
        engine_request r = request_for(tokens, 3, 2, &q->a[i]);
        uint64_t       id;
        err            e;
        r.client = clients[i];
        q->taken[i] = engine_submit(q->g, &r, &id, &e);
    }
}

static void test_full_queue(void **state) {
    fixture f;
    int32_t tokens[] = { 1 };
    (void)state;
    fixture_open(&f, "llama");
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 1, .max_waiting = 4 });
    full           q = { .g = g };
    engine_request r = request_for(tokens, 1, 1, NULL);
    r.on_event = fill_it;
    r.ctx = &q;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    for (int i = 0; i < 8; i++) {
        bool refused = i == 4 || i == 6; /* the fifth of the first client, the second of the next one */
        assert_int_equal(q.taken[i], refused ? ERR_BUSY : 0);
        assert_int_equal(q.a[i].over, !refused);
    }
    engine_free(g);
    fixture_close(&f);
}

/* A request of higher priority takes the only place; the one that gave way goes on where it was. */
typedef struct impatient {
    engine        *g;
    engine_request then;
    answer         slow, quick;
    int            order; /* 1: the quick one ended first */
} impatient;

static void note_slow(void *ctx, const engine_event *ev) {
    impatient *p = ctx;
    if (ev->kind == ENGINE_TOKEN && p->slow.n == 20) engine_submit_ok(p->g, &p->then);
    answer_collect(&p->slow, ev);
    if (ev->kind == ENGINE_DONE && p->quick.over && p->order == 0) p->order = 1;
}

static void note_quick(void *ctx, const engine_event *ev) { answer_collect(&((impatient *)ctx)->quick, ev); }

static void test_priority(void **state) {
    static const char *const names[] = { "llama", "gemma3_text", "deepseek_v3", "qwen3_next" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fixture      f;
        int32_t      tokens[PROMPT];
        answer       alone = { 0 };
        engine_stats st;
        fixture_open(&f, names[i]);
        fill(tokens, PROMPT, 8, &f);
        engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 1 });
        impatient      p = { .g = g, .then = request_for(tokens + 5, 20, 8, NULL) };
        engine_request r = request_for(tokens, PROMPT, 50, NULL);
        p.then.on_event = note_quick;
        p.then.priority = 1;
        p.then.ctx = r.ctx = &p;
        r.on_event = note_slow;
        engine_submit_ok(g, &r);
        engine_wait_idle(g);
        engine_stat(g, &st);
        assert_true(p.order == 1 && p.slow.n == 50 && p.quick.n == 8);
        assert_int_equal(st.preemptions, 1);
        /* 60 positions were known; one is evaluated again. */
        assert_in_range(st.tokens_evaluated, PROMPT + 49 + 20 + 7, PROMPT + 49 + 20 + 7 + 1);
        engine_free(g);
        g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
        r = request_for(tokens, PROMPT, 50, &alone);
        engine_submit_ok(g, &r);
        engine_wait_idle(g);
        assert_true(answer_same(&alone, &p.slow));
        engine_free(g);
        fixture_close(&f);
    }
}

static void test_fair_table(void **state) {
    static fair f;
    (void)state;
    /* A client that was alone has no advantage over a new one, and no debt. */
    fair_client *a = fair_enter(&f, 1);
    a->time += 1000;
    fair_client *b = fair_enter(&f, 2);
    assert_int_equal(b->time, 1000);
    b->time += 50;
    fair_leave(&f, a);
    assert_ptr_equal(fair_enter(&f, 1), a);
    assert_int_equal(a->time, 1050); /* being away earns nothing */
    fair_leave(&f, a);
    fair_leave(&f, b);
    /* More busy clients than entries: the rest share one; idle entries are taken over. */
    for (uint64_t c = 10; c < 10 + 2 * FAIR_CLIENTS; c++) (void)fair_enter(&f, c);
    fair_client *shared = fair_enter(&f, 5000);
    assert_ptr_equal(shared, &f.of[0]);
    assert_true(shared->n_open > FAIR_CLIENTS);
    assert_ptr_not_equal(fair_enter(&f, 11), shared);
    fair_leave(&f, &f.of[7]);
    assert_int_equal(f.of[7].n_open, 0);
    assert_ptr_equal(fair_enter(&f, 6000), &f.of[7]);
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static void test_room(void **state) {
    fixture  f;
    int32_t  tokens[200];
    answer   a = { 0 };
    uint64_t id;
    err      e;
    char     missing[64];
    (void)state;
    fixture_open(&f, "llama");
    fill(tokens, 200, 9, &f);
    size_t  page = fixture_page_bytes(&f, 32);
    engine *g =
        fixture_engine(&f, (engine_options){ .n_threads = 1, .n_ctx = 256, .max_waiting = 3, .cache_bytes = 4 * page });
    engine_stats st;
    engine_stat(g, &st); /* known before anything was asked */
    assert_true(st.pages_total == 4 && st.pages_unused == 4 && st.steps == 0);
    engine_request r = request_for(tokens, 160, 1, &a);
    /* 161 positions are 6 pages; there are 4. */
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_CONTEXT);
    snprintf(missing, sizeof missing, "%zu are missing", 2 * page);
    assert_non_null(strstr(e.msg, missing));
    /* An answer that outgrows the cache ends like one that fills the context. */
    r = request_for(tokens, 100, 100, &a);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(a.over && !a.failed && a.n == 28);
    assert_int_equal(a.finish, ENGINE_LENGTH);
    /* Every page for one prompt, while others wait. */
    answer others[2] = { 0 };
    r = request_for(tokens, 127, 1, &a);
    a = (answer){ 0 };
    engine_request small = request_for(tokens + 60, 20, 8, &others[0]);
    engine_submit_ok(g, &small);
    engine_submit_ok(g, &r);
    small.ctx = &others[1];
    engine_submit_ok(g, &small);
    engine_wait_idle(g);
    assert_true(a.over && !a.failed && a.n == 1 && others[0].n == 8 && answer_same(&others[0], &others[1]));
    /* The queue is bounded. */
    r = request_for(tokens, 100, 20, &a);
    r.n_choices = 4;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_BUSY);
    assert_non_null(strstr(e.msg, "queue is full"));
    engine_free(g);
    engine_options tiny = { .cache_bytes = page - 1 };
    assert_int_equal(engine_open(&g, f.model, NULL, &tiny, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "one page"));
    fixture_close(&f);
}

/* A step that took twice as long as it may halves the pieces, one that was quick lets them grow, within bounds. */
static void test_adapt(void **state) {
    int budget = 256;
    (void)state;
    assert_int_equal(schedule_adapt(256, 16, 256, 0.1, 0.05), 128);
    assert_int_equal(schedule_adapt(256, 16, 256, 10, 0.05), 128);
    assert_int_equal(schedule_adapt(64, 16, 256, 0.05, 0.05), 64);
    assert_true(schedule_adapt(64, 16, 256, 0.01, 0.05) >= 128);
    assert_int_equal(schedule_adapt(17, 16, 256, 10, 0.05), 16);
    assert_int_equal(schedule_adapt(250, 16, 256, 0.001, 0.05), 256);
    /* A machine of 1 ms per token and 10 ms per step settles below a target of 50 ms, and comes back when it can. */
    for (int i = 0; i < 20; i++) budget = schedule_adapt(budget, 16, 256, 0.010 + 0.001 * budget, 0.05);
    assert_true(budget >= 25 && budget <= 46);
    for (int i = 0; i < 20; i++) budget = schedule_adapt(budget, 16, 256, 0.010 + 0.0001 * budget, 0.05);
    assert_int_equal(budget, 256);
}

/* While somebody generates, prompts go on in pieces of the adapted size; alone again they may use the whole step. */
typedef struct pieces {
    answer a;
    int    last, n[64], count;
} pieces;

static void note_piece(void *ctx, const engine_event *ev) {
    pieces *p = ctx;
    answer_collect(&p->a, ev);
    if (ev->kind != ENGINE_PROGRESS) return;
    assert_int_equal(ev->total, 2000);
    p->n[p->count++] = ev->done - p->last;
    p->last = ev->done;
}

/* Submits another request at its first token. */
typedef struct speaker {
    engine        *g;
    engine_request then;
    answer         a;
} speaker;

static void speak(void *ctx, const engine_event *ev) {
    speaker *s = ctx;
    if (ev->kind == ENGINE_TOKEN && s->a.n == 0) engine_submit_ok(s->g, &s->then);
    answer_collect(&s->a, ev);
}

static void test_pieces(void **state) {
    fixture        f;
    static int32_t tokens[2000];
    pieces         p = { 0 };
    (void)state;
    fixture_open(&f, "llama");
    fill(tokens, 2000, 9, &f);
    engine *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .n_ctx = 2048, .step_tokens = 512 });
    g->prompt_budget = 32; /* as a latency target would have left it */
    speaker        s = { .g = g, .then = request_for(tokens, 2000, 1, NULL) };
    engine_request r = request_for(tokens, 10, 12, NULL);
    s.then.on_event = note_piece;
    s.then.ctx = &p;
    s.then.no_cache = true;
    r.on_event = speak;
    r.ctx = &s;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(p.a.over && !p.a.failed);
    assert_int_equal(p.count, 11 + 3 + 1); /* 2000 = 11 * 32 + 3 * 512 + 112, which end in a token */
    for (int i = 0; i < p.count; i++) assert_int_equal(p.n[i], i < 11 ? 32 : i < 14 ? 512 : 112);
    engine_free(g);
    fixture_close(&f);
}

/* A short prompt does not wait for a long one that came before. */
typedef struct pair {
    engine        *g;
    engine_request then;
    answer         slow, quick;
    int            pieces_then; /* of the long one, when the short one was through */
} pair;

static void note_long(void *ctx, const engine_event *ev) {
    pair *p = ctx;
    answer_collect(&p->slow, ev);
    if (ev->kind == ENGINE_PROGRESS && p->slow.progress == 1) engine_submit_ok(p->g, &p->then);
}

static void note_short(void *ctx, const engine_event *ev) {
    pair *p = ctx;
    answer_collect(&p->quick, ev);
    if (ev->kind == ENGINE_DONE) p->pieces_then = p->slow.progress;
}

static void test_short_behind_long(void **state) {
    fixture        f;
    static int32_t tokens[2000];
    (void)state;
    fixture_open(&f, "llama");
    fill(tokens, 2000, 5, &f);
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .n_ctx = 2048, .step_tokens = 100 });
    pair           p = { .g = g, .then = request_for(tokens + 1, 25, 1, NULL) };
    engine_request r = request_for(tokens, 2000, 1, NULL);
    p.then.on_event = note_short;
    p.then.ctx = r.ctx = &p;
    r.on_event = note_long;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(p.slow.n == 1 && p.quick.n == 1);
    assert_in_range(p.pieces_then, 1, 2);
    assert_in_range(p.slow.progress, 21, 22); /* it lost a quarter of one step */
    engine_free(g);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guided_choices), cmocka_unit_test(test_guide_ends),
        cmocka_unit_test(test_embeddings),     cmocka_unit_test(test_embedding_limits),
        cmocka_unit_test(test_flood),          cmocka_unit_test(test_newcomer),
        cmocka_unit_test(test_priority),       cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_guide_and_end),  cmocka_unit_test(test_fair_table),
        cmocka_unit_test(test_room),           cmocka_unit_test(test_adapt),
        cmocka_unit_test(test_pieces),         cmocka_unit_test(test_short_behind_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speculation never changes an answer. Random requests (sampling settings, constraints, stop strings, limits, priorities,
 * choices, all a function of the request's number) are answered one by one without drafts, which gives what is right.
 * Then again in random batches, with few pages so that sequences give way, with pauses, and with each drafter:
 *
 *     right      knows the answer
 *     mostly     knows it, and errs at every fourth token
 *     never      always errs, with tokens that may be forbidden, end the answer or not exist
 *     lookup     the engine's own
 *     auto       the engine's own and as deep as it pays
 *     model      a draft model: the model itself, which is right unless it is a penalty's or a constraint's turn; for
 *                the demo the larger one drafts for the smaller
 *     mtp        the head for further tokens of tests/golden/next, or the demo's, which is trained
 *     eagle      the head of EAGLE-3 there
 *
 * Tokens, log-probabilities, rivals, text, finish reasons and which stop string it was are equal, bit for bit; no page,
 * slot or guide is lost. For every kind of state and for the demo model, whose guides are real grammars.
 *
 *     soak_speculate [requests per model] [seed] [device]
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "bundle/tokenizer.h"
#include "engine/internal.h"
#include "grammar/grammar.h"
#include "models/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADS HEARTH_SOURCE_DIR "/tests/golden/next/"

enum { LONGEST = 60, CHOICES = 2, CONTEXT = 160, TEXT = 1024, TOPS = 3 };

static int         n_requests = 24;
static uint64_t    seed = 1;
static const char *device = "cpu";

/* Everything that is said of one choice. */
typedef struct said {
    answer   a;
    uint64_t tops;
    char     text[TEXT];
    size_t   n_text;
    int      stop_index;
} said;

typedef struct item {
    int32_t        tokens[LONGEST];
    int            n_tokens, n_choices;
    engine_request r;
    sampling_bias  bias[2];
    int            guide; /* 0: none; of random models a rule, of the demo a grammar */
    int            guide_length;
    said           want[CHOICES], got[CHOICES];
    const char    *stop[2];
    size_t         stop_bytes[2];
} item;

typedef struct model {
    const char          *name;
    fixture              f;
    tok                 *t;
    const grammar_vocab *vocab;
    grammar             *grammars[3];
    const nn_model      *draft;       /* NULL: fixed states, which a draft model may not have */
    const char          *mtp, *eagle; /* paths of heads; NULL: none */
    bool                 trained;     /* heads that are right, and nothing else is tried */
} model;

static item *items;

static void collect(void *ctx, const engine_event *ev) {
    item *it = ctx;
    said *s = &it->got[ev->choice];
    answer_collect(&s->a, ev);
    for (int i = 0; ev->kind == ENGINE_TOKEN && i < ev->n_top; i++) {
        uint32_t bits;
        memcpy(&bits, &ev->top[i].logprob, sizeof bits);
        s->tops = s->tops * 1099511628211u + (uint64_t)ev->top[i].token * 31 + bits;
    }
    if ((ev->kind == ENGINE_TOKEN || ev->kind == ENGINE_DONE) && s->n_text + ev->text.len <= TEXT && ev->text.len) {
        memcpy(s->text + s->n_text, ev->text.data, ev->text.len);
        s->n_text += ev->text.len;
    }
    if (ev->kind == ENGINE_DONE) {
        s->stop_index = ev->finish == ENGINE_STOP_STRING ? ev->stop_index : -1;
        assert_true(ev->usage.accepted_tokens <= ev->usage.drafted_tokens);
        assert_true(ev->usage.accepted_tokens <= ev->usage.generated_tokens);
    }
}

/* --- requests --- */

static float pick_of(uint64_t *s, const float *values, size_t n) { return values[test_random(s) % n]; }

static void plan_sampling(item *it, uint64_t *s, int64_t n_vocab) {
    sampling_params *p = &it->r.sampling;
    sampling_params_default(p);
    p->seed = test_random(s);
    p->temperature = pick_of(s, (const float[]){ 0, 0, 0.7f, 1.0f, 1.3f }, 5);
    p->top_k = test_random(s) % 3 ? 0 : 20;
    p->top_p = pick_of(s, (const float[]){ 1, 1, 0.9f }, 3);
    p->min_p = pick_of(s, (const float[]){ 0, 0, 0.05f }, 3);
    p->typical_p = pick_of(s, (const float[]){ 1, 1, 1, 0.9f }, 4);
    p->repeat_penalty = pick_of(s, (const float[]){ 1, 1, 1.2f }, 3);
    p->presence_penalty = pick_of(s, (const float[]){ 0, 0, 0.3f }, 3);
    p->frequency_penalty = pick_of(s, (const float[]){ 0, 0, 0.2f }, 3);
    p->dry_multiplier = pick_of(s, (const float[]){ 0, 0, 0, 0.8f }, 4);
    p->xtc_probability = pick_of(s, (const float[]){ 0, 0, 0, 0.5f }, 4);
    p->mirostat = test_random(s) % 5 == 0 ? 1 + (int)(test_random(s) % 2) : 0;
    if (p->mirostat && p->temperature == 0) p->temperature = 1;
    if (test_random(s) % 4 == 0) {
        it->bias[0] = (sampling_bias){ (int32_t)(test_random(s) % (uint64_t)n_vocab), 3 };
        it->bias[1] = (sampling_bias){ (int32_t)(test_random(s) % (uint64_t)n_vocab), -3 };
        p->bias = it->bias;
        p->n_bias = 2;
    }
}

static void plan_stops(item *it, uint64_t *s) {
    static const char *const stops[] = { " the", ".", "a", " was ", "ing", "never said" };
    it->r.n_stop = test_random(s) % 3 == 0 ? 1 + test_random(s) % 2 : 0;
    for (size_t i = 0; i < it->r.n_stop; i++) {
        it->stop[i] = stops[test_random(s) % 6];
        it->stop_bytes[i] = strlen(it->stop[i]);
    }
    it->r.stop = it->stop;
    it->r.stop_bytes = it->stop_bytes;
}

static void plan_prompt(item *it, const model *m, uint64_t *s, int64_t n_vocab) {
    static const char *const asks[] = {
        "<|user|>Tell me a story with the words fox and bread.<|assistant|>",
        "<|user|>Repeat: the moon is a round stone, the moon is a round stone.<|assistant|>",
        "Once there was a child named Kate. Once there was a child named Kate who lived near the river.",
        "{\"name\": \"Anna\", \"age\": 7}\n{\"name\": \"Ben\", \"age\": 9}\n{\"name\": \"",
    };
    it->n_tokens = 1 + (int)(test_random(s) % LONGEST);
    int period = 1 + (int)(test_random(s) % LONGEST);
    for (int i = 0; i < it->n_tokens; i++)
        it->tokens[i] = i < period ? (int32_t)(test_random(s) % (uint64_t)n_vocab) : it->tokens[i - period];
    if (!m->t) return;
    const char *text = asks[test_random(s) % 4];
    tok_ids     ids = { 0 };
    err         e;
    if (tok_encode(m->t, text, strlen(text), TOK_PARSE_SPECIAL, &ids, &e) < 0) fail_msg("%s", e.msg);
    it->n_tokens = ids.count < LONGEST ? (int)ids.count : LONGEST;
    memcpy(it->tokens, ids.data, (size_t)it->n_tokens * sizeof *it->tokens);
    tok_ids_deinit(&ids);
}

static void plan_items(const model *m) {
    uint64_t s = seed * 7919;
    int64_t  n_vocab = m->f.model->dims->n_vocab;
    for (int i = 0; i < n_requests; i++) {
        item *it = &items[i];
        *it = (item){ .n_choices = test_random(&s) % 6 == 0 ? CHOICES : 1 };
        plan_prompt(it, m, &s, n_vocab);
        it->r.max_tokens = 1 + (int)(test_random(&s) % 48);
        it->r.min_tokens = test_random(&s) % 4 == 0 ? (int)(test_random(&s) % 12) : 0;
        it->r.ignore_eos = test_random(&s) % 4 == 0;
        it->r.priority = (int)(test_random(&s) % 3);
        it->r.client = test_random(&s) % 3;
        it->r.no_cache = test_random(&s) % 6 == 0;
        it->r.want_logprob = test_random(&s) % 2;
        it->r.n_top = it->r.want_logprob ? (int)(test_random(&s) % (TOPS + 1)) : 0;
        it->guide = test_random(&s) % 3 == 0 ? 1 + (int)(test_random(&s) % 3) : 0;
        it->guide_length = test_random(&s) % 2 ? 1 + (int)(test_random(&s) % 30) : 0;
        plan_sampling(it, &s, n_vocab);
        plan_stops(it, &s);
    }
}

/* --- guides: a grammar without thoughts and calls --- */

typedef struct matcher_guide {
    engine_guide     base;
    grammar_matcher *m;
} matcher_guide;

static engine_guide *matcher_wrap(grammar_matcher *m);

static int matcher_mask(engine_guide *g, uint32_t *mask, err *e) {
    return grammar_matcher_mask(((matcher_guide *)g)->m, mask, e) < 0 ? -1 : 1;
}
static int matcher_accept(engine_guide *g, int32_t t, err *e) {
    return grammar_matcher_accept(((matcher_guide *)g)->m, t, e);
}
static void matcher_back(engine_guide *g, int n) { grammar_matcher_rollback(((matcher_guide *)g)->m, (size_t)n); }
static bool matcher_stops(engine_guide *g) { return grammar_matcher_must_end(((matcher_guide *)g)->m); }
static void matcher_drop(engine_guide *g) {
    grammar_matcher_free(((matcher_guide *)g)->m);
    free(g);
}
static engine_guide *matcher_copy(engine_guide *g, err *e) {
    grammar_matcher *m;
    return grammar_matcher_clone(&m, ((matcher_guide *)g)->m, e) < 0 ? NULL : matcher_wrap(m);
}
static engine_guide *matcher_wrap(grammar_matcher *m) {
    matcher_guide *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->base = (engine_guide){ matcher_mask, matcher_accept, matcher_back, matcher_stops, matcher_copy, matcher_drop };
    w->m = m;
    return &w->base;
}

static engine_guide *guide_of(const model *m, const item *it, int i) {
    grammar_matcher *g;
    err              e;
    if (it->guide == 0) return NULL;
    if (!m->t) return test_guide((uint64_t)i, m->f.model->dims->n_vocab, it->guide_length);
    if (grammar_matcher_open(&g, m->grammars[it->guide - 1], m->vocab, &e) < 0) fail_msg("%s", e.msg);
    return matcher_wrap(g);
}

/* --- the drafter that knows --- */

typedef struct knowing {
    drafter  base;
    int      errs; /* every so many tokens; 0: never, 1: always */
    uint64_t s;
    int64_t  n_vocab;
} knowing;

/* The answer that a sequence is going to give: of those that begin as it does. */
static const answer *answer_to(const draft_seq *q) {
    int said_so_far = q->n_tokens - q->n_prompt;
    for (int i = 0; i < n_requests; i++) {
        if (items[i].n_tokens != q->n_prompt ||
            memcmp(items[i].tokens, q->tokens, (size_t)q->n_prompt * sizeof *q->tokens) != 0)
            continue;
        for (int c = 0; c < items[i].n_choices; c++) {
            const answer *a = &items[i].want[c].a;
            if (a->n > said_so_far &&
                memcmp(a->tokens, q->tokens + q->n_prompt, (size_t)said_so_far * sizeof *q->tokens) == 0)
                return a;
        }
    }
    return NULL;
}

static void know(drafter *d, draft_ask *asks, int n_asks) {
    knowing *k = (knowing *)d;
    for (int i = 0; i < n_asks; i++) {
        draft_ask    *q = &asks[i];
        const answer *a = answer_to(&q->seq);
        int           at = q->seq.n_tokens - q->seq.n_prompt;
        q->grade = (int)(test_random(&k->s) % DRAFT_GRADES);
        for (; q->n < q->most && (k->errs == 1 || (a && at + q->n < a->n)); q->n++) {
            bool err_now = k->errs && test_random(&k->s) % (uint64_t)k->errs == 0;
            q->draft[q->n] =
                err_now ? (int32_t)(test_random(&k->s) % (uint64_t)(k->n_vocab + 2)) - 1 : a->tokens[at + q->n];
        }
    }
}

/* --- running --- */

static engine *open_engine(const model *m, engine_options o) {
    engine *g;
    err     e;
    o.n_ctx = CONTEXT;
    o.device = device;
    o.cpu = fixture_cpu();
    o.page_tokens = 16;
    fixture_page_types(&m->f, &o);
    if (engine_open(&g, m->f.model, m->t, &o, &e) < 0) fail_msg("%s", e.msg);
    return g;
}

static uint64_t submit(engine *g, const model *m, int i) {
    item          *it = &items[i];
    engine_request r = it->r;
    r.tokens = it->tokens;
    r.n_tokens = (size_t)it->n_tokens;
    r.n_choices = it->n_choices;
    r.on_event = collect;
    r.ctx = it;
    r.guide = guide_of(m, it, i);
    memset(it->got, 0, sizeof it->got);
    return engine_submit_ok(g, &r);
}

static void compare(const char *model_name, const char *way) {
    for (int i = 0; i < n_requests; i++) {
        for (int c = 0; c < items[i].n_choices; c++) {
            const said *w = &items[i].want[c], *s = &items[i].got[c];
            if (!s->a.over || s->a.failed != w->a.failed)
                fail_msg("%s, %s: request %d: %s", model_name, way, i, s->a.failed ? s->a.error.msg : "not over");
            if (!answer_same(&s->a, &w->a) || s->a.finish != w->a.finish || s->stop_index != w->stop_index)
                fail_msg("%s, %s: request %d, choice %d: %d tokens, without drafts %d", model_name, way, i, c, s->a.n,
                         w->a.n);
            if (s->n_text != w->n_text || memcmp(s->text, w->text, s->n_text) != 0 || s->tops != w->tops)
                fail_msg("%s, %s: request %d, choice %d: text or rivals", model_name, way, i, c);
        }
    }
}

/* Everything is free again. */
static void check_pages(engine *g) {
    int all[KV_MAX_GROUPS] = { 0 };
    for (int k = 0; k < g->cache.n_groups; k++) all[k] = kv_pool_total(g->cache.pool, k);
    kv_tree_evict(g->cache.tree, all);
    for (int k = 0; k < g->cache.n_groups; k++) assert_int_equal(kv_pool_unused(g->cache.pool, k), all[k]);
    for (int i = 0; i < g->o.max_seqs + speculate_twins(g); i++) assert_false(g->slot_used[i]);
}

typedef struct way {
    const char      *name;
    engine_speculate speculate;
    int              errs; /* of the one who knows; -1: he is not there */
    bool             always;
} way;

static void run_way(const model *m, const way *w, const nn_next *head, int n_seqs, int pages) {
    uint64_t     s = seed * 31 + (uint64_t)w->errs + 7;
    knowing      k = { { .name = "test", .propose = know }, w->errs, s, m->f.model->dims->n_vocab };
    engine_stats st;
    size_t       page = fixture_page_bytes(&m->f, 16);
    engine      *g = open_engine(m, (engine_options){ .n_threads = 1 + (int)(s % 2),
                                                      .max_seqs = n_seqs,
                                                      .step_tokens = 64,
                                                      .cache_bytes = (size_t)pages * page,
                                                      .speculate = w->speculate,
                                                      .draft_max = 3 + w->errs,
                                                      .draft_model = m->draft,
                                                      .next = head,
                                                      .draft_always = w->always,
                                                      .drafter = w->errs >= 0 ? &k.base : NULL });
    for (int i = 0; i < n_requests; i++) {
        uint64_t id = submit(g, m, i);
        if (test_random(&s) % 8 == 0) {
            engine_pause(g, id);
            engine_resume(g, id);
        }
        if (test_random(&s) % 3 == 0) engine_wait_idle(g);
    }
    engine_wait_idle(g);
    compare(m->name, w->name);
    engine_stat(g, &st);
    print_message(
        "%s, %s, %d at once: %llu steps, %llu tokens; %llu drafts of %llu tokens, %llu right; gave way %llu\n", m->name,
        w->name, n_seqs, (unsigned long long)st.steps, (unsigned long long)st.tokens_generated,
        (unsigned long long)st.drafts, (unsigned long long)st.drafted, (unsigned long long)st.accepted,
        (unsigned long long)st.preemptions);
    if (w->always && w->errs >= 0) assert_true(st.drafted > 0);
    if (w->errs == 0) assert_true(st.accepted * 2 > st.drafted); /* of requests with equal prompts he takes the first */
    if (w->always && head) assert_true(st.drafted > 0);
    if (w->always && head && m->trained && st.drafted >= 20) assert_true(st.accepted * 4 > st.drafted);
    check_pages(g);
    engine_free(g);
}

static void run_sizes(const model *m, const way *w, const nn_next *head) {
    run_way(m, w, head, 4, 26);
    if (n_requests <= 100) return;
    run_way(m, w, head, 1, 60);
    run_way(m, w, head, 12, 200);
}

/* The model's tape is extended for EAGLE-3: the answers without drafts are those of the model as it was. */
static void run_head(const model *m, const char *path, const way *w) {
    model_file *file;
    nn_next    *head = NULL;
    err         e;
    if (!path) return;
    int rc = model_file_open(&file, path, &e);
    if (rc == 0 && w->speculate == ENGINE_SPECULATE_EAGLE)
        rc = nn_eagle_open(&head, m->f.model, file, &models_eagle3, &e);
    else if (rc == 0)
        rc = nn_next_open(&head, m->f.model, file, &e);
    if (rc < 0) fail_msg("%s", e.msg);
    assert_non_null(head);
    run_sizes(m, w, head);
    nn_next_free(head);
    model_file_free(file);
}

static void check_model(model *m) {
    static const way ways[] = {
        { "right", ENGINE_SPECULATE_OFF, 0, true },   { "mostly", ENGINE_SPECULATE_OFF, 4, true },
        { "never", ENGINE_SPECULATE_OFF, 1, true },   { "lookup", ENGINE_SPECULATE_LOOKUP, -1, true },
        { "auto", ENGINE_SPECULATE_AUTO, -1, false }, { "model", ENGINE_SPECULATE_DRAFT, -1, true },
    };
    items = calloc((size_t)n_requests, sizeof *items);
    assert_non_null(items);
    plan_items(m);
    engine *plain = open_engine(m, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
    for (int i = 0; i < n_requests; i++) {
        submit(plain, m, i);
        engine_wait_idle(plain);
        memcpy(items[i].want, items[i].got, sizeof items[i].want);
    }
    engine_free(plain);
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !m->trained; i++) {
        if (ways[i].speculate == ENGINE_SPECULATE_DRAFT && !m->draft) continue;
        run_sizes(m, &ways[i], NULL);
    }
    run_head(m, m->mtp, &(way){ "mtp", ENGINE_SPECULATE_MTP, -1, true });
    run_head(m, m->mtp, &(way){ "auto with mtp", ENGINE_SPECULATE_AUTO, -1, false });
    run_head(m, m->eagle, &(way){ "eagle", ENGINE_SPECULATE_EAGLE, -1, true });
    assert_int_equal(test_guide_misuse() + test_guides_alive(), 0);
    free(items);
}

static void check_random(const char *name, const char *mtp, const char *eagle) {
    model m = { .name = name, .mtp = mtp, .eagle = eagle };
    fixture_open(&m.f, name);
    if (!m.f.model->state[0].rec_heads) m.draft = m.f.model;
    check_model(&m);
    fixture_close(&m.f);
}

static void test_transformer(void **state) {
    (void)state;
    check_random("llama", HEADS "llama", HEADS "eagle3");
}
static void test_sliding_window(void **state) {
    (void)state;
    check_random("gemma3_text", NULL, NULL);
}
static void test_latent(void **state) {
    (void)state;
    check_random("deepseek_v3", HEADS "deepseek_v3", NULL);
}
static void test_hybrid(void **state) {
    (void)state;
    check_random("qwen3_next", HEADS "qwen3_next", NULL);
}
static void test_recurrent(void **state) {
    (void)state;
    check_random("mamba2", NULL, NULL);
}

static void open_demo(model *m, const char *file, grammar_vocab **v) {
    static const char *const texts[] = {
        "root ::= \"{\\\"name\\\": \\\"\" [a-z]+ \"\\\", \\\"age\\\": \" [0-9]+ \"}\"",
        "root ::= (\"yes, certainly\" | \"no, never\" | \"perhaps tomorrow\") \".\"",
        "root ::= line+ \"the end\"\nline ::= [A-Za-z ,]+ \"\\n\"",
    };
    char path[512];
    err  e;
    snprintf(path, sizeof path, "%s/models/demo/%s", HEARTH_SOURCE_DIR, file);
    if (model_file_open(&m->f.file, path, &e) < 0 || nn_model_open(&m->f.model, m->f.file, models_list, NULL, &e) < 0 ||
        bundle_tokenizer_open(&m->t, m->f.file, &(tok_options){ 0 }, &e) < 0 || grammar_vocab_open(v, m->t, &e) < 0)
        fail_msg("%s", e.msg);
    m->vocab = *v;
    for (int i = 0; i < 3; i++) {
        if (grammar_from_gbnf(&m->grammars[i], view_of(texts[i]), &e) < 0) fail_msg("%s", e.msg);
    }
}

static void close_demo(model *m, grammar_vocab *v) {
    for (int i = 0; i < 3; i++) grammar_unref(m->grammars[i]);
    grammar_vocab_free(v);
    tok_free(m->t);
    fixture_close(&m->f);
}

/* The small one, for which the large one drafts. */
static void test_demo(void **state) {
    model          m = { .name = "demo draft" }, larger = { 0 };
    grammar_vocab *v = NULL, *other = NULL;
    (void)state;
    open_demo(&m, "draft.gguf", &v);
    open_demo(&larger, "demo.gguf", &other);
    m.draft = larger.f.model;
    check_model(&m);
    close_demo(&larger, other);
    close_demo(&m, v);
}

/* The large one with its trained head. */
static void test_demo_head(void **state) {
    model          m = { .name = "demo", .mtp = HEARTH_SOURCE_DIR "/models/demo/mtp-demo.gguf", .trained = true };
    grammar_vocab *v = NULL;
    (void)state;
    if (n_requests > 100) n_requests = 100; /* seven layers */
    open_demo(&m, "demo.gguf", &v);
    check_model(&m);
    close_demo(&m, v);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer), cmocka_unit_test(test_sliding_window), cmocka_unit_test(test_latent),
        cmocka_unit_test(test_hybrid),      cmocka_unit_test(test_recurrent),      cmocka_unit_test(test_demo),
        cmocka_unit_test(test_demo_head),
    };
    if (argc > 1) n_requests = atoi(argv[1]);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    if (argc > 3) device = argv[3];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

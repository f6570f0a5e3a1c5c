/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may hold beyond tokens, and what a backend may do beyond the CPU's.
 *
 * Rows with supplied embeddings: the table's own rows give the same answer as the tokens, bit for bit; the same content
 * is computed once, other content under the same placeholders never meets it. Spans that see themselves whole: as the
 * reference backend has them, never cut, used again as a whole. Adapters: refused by name where the
 * backend has none; where it has, every row of a batch names its set and prefixes are shared within a set only. A
 * backend that samples: answers are those of the host's sampler. A device that is lost: everybody is told, nobody else
 * is let in.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "backend/backend.h"
#include "backend/plain_sample.h"
#include "kernels/cpu.h"
#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT = 100, FIRST = 20, ROWS = 40, REPLY = 8, MOST = 512 };

static int32_t tokens[PROMPT];

static const nn_backend *cpu(void) {
    const nn_backend *b;
    nn_device         d;
    err               e;
    if (backend_find("cpu", &b, &d, &e) < 0) fail_msg("%s", e.msg);
    return b;
}

static void fill(const fixture *f, uint64_t seed) {
    for (int i = 0; i < PROMPT; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)f->model->dims->n_vocab);
}

static engine_request prompt(answer *a) {
    engine_request r = { .tokens = tokens,
                         .n_tokens = PROMPT,
                         .max_tokens = REPLY,
                         .want_logprob = true,
                         .on_event = answer_collect,
                         .ctx = a };
    sampling_params_default(&r.sampling);
    r.sampling.seed = 4;
    r.sampling.temperature = 0.7f;
    *a = (answer){ 0 };
    return r;
}

static answer ask(engine *g, engine_request r, answer *a) {
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(a->over && !a->failed && a->n == REPLY);
    return *a;
}

/* The embeddings of the tokens at FIRST .. FIRST + ROWS, as the first op makes them. */
static float *embeddings(const fixture *f) {
    const nn_op  *op = &f->model->tape->ops[0];
    const nn_mat *m = op->u.embed.table;
    float        *out = malloc((size_t)(ROWS * m->cols) * sizeof *out);
    assert_int_equal(op->kind, NN_OP_EMBED);
    for (int i = 0; i < ROWS; i++) {
        float *row = out + i * m->cols;
        tensor_mat_dequant_row(m->at, 0, tokens[FIRST + i], row);
        for (int64_t k = 0; k < m->cols; k++) row[k] *= op->u.embed.scale;
    }
    return out;
}

static void check_supplied(const char *name) {
    fixture f;
    answer  a, plain, image, other;
    fixture_open(&f, name);
    fill(&f, 9);
    float      *rows = embeddings(&f), *moved = embeddings(&f);
    engine     *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .cache_bytes = 4 << 20 });
    engine_rows span = { .first = FIRST, .n = ROWS, .embd = rows, .content = "the first image" };
    assert_int_equal(engine_input_size(g), f.model->dims->n_embd);
    plain = ask(g, prompt(&a), &a);

    engine_request r = prompt(&a);
    for (int i = 0; i < ROWS; i++) tokens[FIRST + i] = -1; /* placeholders may be anything */
    r.rows = &span;
    r.n_rows = 1;
    image = ask(g, r, &a);
    assert_true(answer_same(&plain, &image));
    /* Tokens and supplied rows are never taken for each other: only what stands before them is shared. */
    assert_true(image.cached <= FIRST);

    r = prompt(&a);
    r.rows = &span;
    r.n_rows = 1;
    image = ask(g, r, &a);
    assert_true(answer_same(&plain, &image));
    assert_int_equal(image.cached, PROMPT - 1);

    /* Another picture behind the same placeholders. */
    uint64_t seed = 1;
    for (int i = 0; i < ROWS * engine_input_size(g); i++) moved[i] += (float)(test_random(&seed) % 100) * 0.01f - 0.5f;
    engine_rows second = span;
    second.embd = moved;
    memcpy(second.content, "the other image", 16);
    r = prompt(&a);
    r.rows = &second;
    r.n_rows = 1;
    other = ask(g, r, &a);
    assert_false(answer_same(&plain, &other));
    assert_true(other.cached <= FIRST);
    engine_free(g);

    /* The same in another engine, in small pieces. */
    g = fixture_engine(&f,
                       (engine_options){ .n_threads = 2, .step_tokens = 16, .max_seqs = 4, .no_prefix_cache = true });
    r = prompt(&a);
    r.rows = &second;
    r.n_rows = 1;
    image = ask(g, r, &a);
    assert_true(answer_same(&other, &image));
    engine_free(g);
    free(rows);
    free(moved);
    fixture_close(&f);
}

static void test_supplied_rows(void **state) {
    (void)state;
    check_supplied("llama");
    check_supplied("gemma3_text"); /* the table's rows are scaled, supplied ones are not */
    check_supplied("qwen3_next");
}

static void refuse(engine *g, const engine_request *r, int code, const char *words) {
    err      e = { 0 };
    uint64_t id;
    assert_int_equal(engine_submit(g, r, &id, &e), code);
    if (!strstr(e.msg, words)) fail_msg("\"%s\" does not say \"%s\"", e.msg, words);
}

static void test_refused_by_name(void **state) {
    fixture     f;
    answer      a;
    float       row[4096] = { 0 };
    engine_rows bad;
    (void)state;
    fixture_open(&f, "llama");
    fill(&f, 2);
    nn_backend without = *cpu();
    without.can &= ~(unsigned)NN_BATCH_ADAPTER;
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .backend = &without });
    nn_adapter_set set = { .n_uses = 1 };
    engine_request r = prompt(&a);
    r.adapters = &set;
    refuse(g, &r, ERR_UNSUPPORTED, "adapters are not supported");
    r = prompt(&a);
    r.n_rows = 1;
    r.rows = &bad;
    bad = (engine_rows){ .first = PROMPT - 1, .n = 2, .embd = row };
    refuse(g, &r, ERR_ARG, "supplied rows 0");
    bad = (engine_rows){ .first = 3, .n = 1 };
    refuse(g, &r, ERR_ARG, "supplied rows 0");
    bad = (engine_rows){ .first = -1, .n = 1, .embd = row };
    refuse(g, &r, ERR_ARG, "supplied rows 0");
    (void)ask(g, prompt(&a), &a); /* and the engine goes on */
    engine_free(g);
    fixture_close(&f);
}

/* --- spans that see themselves whole --------------------------------------------------------------------------- */

static engine *open_exact(const fixture *f, const char *device, int step_tokens, bool cached) {
    engine        *g;
    err            e;
    engine_options o = { .n_ctx = 128,
                         .n_threads = 1,
                         .max_seqs = 4,
                         .step_tokens = step_tokens,
                         .no_prefix_cache = !cached,
                         .k_type = NN_KV_F32,
                         .v_type = NN_KV_F32,
                         .cpu = cpu_detect(),
                         .device = device };
    if (engine_open(&g, f->model, NULL, &o, &e) < 0) fail_msg("%s", e.msg);
    return g;
}

static bool same_tokens(const answer *x, const answer *y) {
    if (x->n != y->n || memcmp(x->tokens, y->tokens, (size_t)x->n * sizeof *x->tokens) != 0) return false;
    for (int i = 0; i < x->n; i++) {
        float d = x->logprobs[i] - y->logprobs[i];
        if (d > 1e-4f || d < -1e-4f) return false;
    }
    return true;
}

static answer ask_span(engine *g, const engine_rows *span, int n_tokens) {
    answer         a;
    engine_request r = prompt(&a);
    r.n_tokens = (size_t)n_tokens;
    r.rows = span;
    r.n_rows = 1;
    r.sampling.temperature = 0;
    return ask(g, r, &a);
}

static void check_whole(const char *name) {
    fixture f;
    fixture_open(&f, name);
    fill(&f, 21);
    float      *rows = embeddings(&f);
    engine_rows span = { .first = FIRST, .n = ROWS, .embd = rows, .content = "a picture", .whole = true };
    engine_rows causal = span;
    causal.whole = false;
    /* As the plain reference has it, and other than a causal span. */
    engine *g = open_exact(&f, "scalar", 128, false), *h = open_exact(&f, "cpu", 128, true);
    answer  want = ask_span(g, &span, PROMPT), got = ask_span(h, &span, PROMPT);
    if (!same_tokens(&want, &got)) fail_msg("%s: a whole span differs from the reference", name);
    assert_false(same_tokens(&want, &(answer){ 0 }));
    answer one_way = ask_span(g, &causal, PROMPT);
    assert_false(answer_same(&want, &one_way));
    engine_free(g);

    /* Used again as a whole: behind it, or from where it begins. */
    answer again = ask_span(h, &span, PROMPT);
    assert_true(answer_same(&got, &again));
    assert_int_equal(again.cached, PROMPT - 1);
    answer ends = ask_span(h, &span, FIRST + ROWS); /* its last row is always computed, and with it the others */
    assert_true(ends.cached <= FIRST);
    engine_free(h);

    /* Never cut, however small the pieces are. */
    for (int step = ROWS + 3; step < PROMPT; step += 9) {
        g = open_exact(&f, "cpu", step, false);
        again = ask_span(g, &span, PROMPT);
        assert_true(answer_same(&got, &again));
        again = ask_span(g, &span, FIRST + ROWS);
        assert_true(answer_same(&ends, &again));
        engine_free(g);
    }
    g = open_exact(&f, "cpu", ROWS + 2, false);
    answer         a;
    engine_request r = prompt(&a);
    r.rows = &span;
    r.n_rows = 1;
    refuse(g, &r, ERR_LIMIT, "a step has room for");
    engine_free(g);
    free(rows);
    fixture_close(&f);
}

static void test_whole_spans(void **state) {
    (void)state;
    check_whole("llama");
    check_whole("gemma3_text");
    check_whole("deepseek_v3");
}

/* --- a backend with adapters that change nothing, to see what reaches it --------------------------------------- */

static int32_t seen[MOST]; /* adapter of the rows of the last batch that had any */
static int     n_seen;

static int note_adapters(nn_exec *x, const nn_batch *b, nn_ticket *step, err *e) {
    nn_batch plain = *b;
    for (int i = 0; b->adapter && i < b->n_tok && i < MOST; i++) seen[i] = b->adapter[i];
    if (b->adapter) n_seen = b->n_tok;
    plain.adapter = NULL;
    return cpu()->submit(x, &plain, step, e);
}

static void test_adapters(void **state) {
    fixture    f;
    answer     a;
    nn_backend b = *cpu();
    (void)state;
    b.submit = note_adapters;
    fixture_open(&f, "llama");
    fill(&f, 3);
    engine          *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .cache_bytes = 4 << 20, .backend = &b });
    answer           base = ask(g, prompt(&a), &a);
    engine_request   r = prompt(&a);
    const nn_set_op *none[4096] = { NULL };
    nn_adapter_set   set = { .n_uses = 1, .ops = none, .key = "one set" };
    assert_true(f.model->tape->n_ops <= 4096);
    r.adapters = &set;
    n_seen = 0;
    answer first = ask(g, r, &a);
    assert_int_equal(first.cached, 0); /* the model's own pages are not the set's */
    assert_true(answer_same(&base, &first));
    assert_true(n_seen > 0);
    for (int i = 0; i < n_seen; i++) assert_int_equal(seen[i], 1);
    a = (answer){ 0 };
    assert_int_equal(ask(g, r, &a).cached, PROMPT - 1);
    memcpy(set.key, "another", 8); /* other weights at the same place */
    a = (answer){ 0 };
    assert_int_equal(ask(g, r, &a).cached, 0);
    a = (answer){ 0 };
    memcpy(set.key, "a third", 8); /* counts later: what is before is the model's own */
    r.adapters_from = PROMPT / 2;
    assert_int_equal(ask(g, r, &a).cached, PROMPT / 2);
    a = (answer){ 0 };
    assert_int_equal(ask(g, r, &a).cached, PROMPT - 1);
    a = (answer){ 0 };
    assert_int_equal(ask(g, prompt(&a), &a).cached, PROMPT - 1);
    engine_free(g);
    fixture_close(&f);
}

/* --- a backend that samples ------------------------------------------------------------------------------------- */

static int n_sampled;

static int sample_plainly(nn_exec *x, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out,
                          err *e) {
    int64_t width = nn_exec_width(x, NN_FETCH_LOGITS);
    float  *row = malloc((size_t)width * sizeof *row);
    int     rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = cpu()->fetch(x, NN_FETCH_LOGITS, out_rows[i], 1, row, e);
        if (rc == 0) rc = plain_sample(row, (size_t)width, &rows[i], 1, &out[i], NULL, e);
        n_sampled++;
    }
    free(row);
    return rc;
}

static void test_device_samples(void **state) {
    fixture    f;
    nn_backend b = *cpu();
    (void)state;
    b.sample = sample_plainly;
    fixture_open(&f, "llama");
    engine *host = fixture_engine(&f, (engine_options){ .n_threads = 1 });
    engine *device = fixture_engine(&f, (engine_options){ .n_threads = 1, .backend = &b });
    n_sampled = 0;
    for (int i = 0; i < 24; i++) {
        answer        a, c;
        sampling_bias bias = { .token = 7, .bias = 3.0f };
        fill(&f, 100 + (uint64_t)i);
        engine_request r = prompt(&a), q;
        r.sampling.seed = (uint64_t)i;
        r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
        r.sampling.top_k = i % 4 ? 20 : 0;
        r.sampling.top_p = i % 5 ? 0.9f : 1.0f;
        r.sampling.repeat_penalty = i % 2 ? 1.3f : 1.0f;
        r.sampling.bias = &bias;
        r.sampling.n_bias = i % 6 == 0;
        if (i % 4 == 1) r.guide = test_guide((uint64_t)i, engine_vocab(host), 0);
        q = r;
        q.ctx = &c;
        c = (answer){ 0 };
        if (q.guide) q.guide = test_guide((uint64_t)i, engine_vocab(host), 0);
        answer by_host = ask(host, r, &a), by_device = ask(device, q, &c);
        if (!same_tokens(&by_host, &by_device)) fail_msg("request %d: the device picks otherwise", i);
    }
    assert_int_equal(n_sampled, 24 * REPLY);
    /* What a device does not do, the host does. */
    answer         a;
    engine_request r = prompt(&a);
    r.sampling.mirostat = 2;
    (void)ask(device, r, &a);
    assert_int_equal(n_sampled, 24 * REPLY);
    engine_free(host);
    engine_free(device);
    fixture_close(&f);
}

/* --- a device that is lost -------------------------------------------------------------------------------------- */

static int steps_left;

static int lose(nn_exec *x, const nn_batch *b, nn_ticket *step, err *e) {
    if (steps_left-- <= 0) return err_set(e, ERR_LOST, "the device fell off the bus");
    return cpu()->submit(x, b, step, e);
}

static void test_lost_device(void **state) {
    fixture    f;
    answer     a[6];
    nn_backend b = *cpu();
    (void)state;
    b.submit = lose;
    fixture_open(&f, "qwen3_next");
    fill(&f, 8);
    engine *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 2, .backend = &b });
    steps_left = 3;
    for (int i = 0; i < 6; i++) { /* two run, the others wait */
        engine_request r = prompt(&a[i]);
        uint64_t       id;
        err            e = { 0 };
        r.n_tokens = (size_t)(PROMPT - 10 * i);
        int rc = engine_submit(g, &r, &id, &e);
        if (rc == 0) continue;
        assert_int_equal(rc, ERR_LOST); /* it was gone already */
        a[i].over = a[i].failed = true;
        a[i].error = e;
    }
    engine_wait_idle(g);
    for (int i = 0; i < 6; i++) {
        assert_true(a[i].over && a[i].failed);
        assert_int_equal(a[i].error.code, ERR_LOST);
        assert_non_null(strstr(a[i].error.msg, "fell off the bus"));
    }
    engine_request r = prompt(&a[0]);
    refuse(g, &r, ERR_LOST, "fell off the bus");
    engine_stats st;
    engine_stat(g, &st);
    assert_int_equal(st.running + st.waiting, 0);
    assert_int_equal(st.failed_steps, 1);
    engine_free(g);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_supplied_rows),  cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_whole_spans),    cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_device_samples), cmocka_unit_test(test_lost_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's sampler against the plain sampler of a device, which was written from the definition alone: thousands of
 * random rows with ties, NaN and infinities, masks, bias, penalties, stages in any order, temperatures from next to
 * nothing to a thousand. The token is the same, or the draw lay within 1e-6 of a border.
 */
#include "unit/support/support.h"

#include "backend/plain_sample.h"
#include "sampling/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VOCAB = 50000, MAX_BIAS = 6, MAX_HISTORY = 80, N_TOP = 8 };

static uint64_t seed;

static uint64_t below(uint64_t n) { return test_random(&seed) % n; }
static bool     one_in(uint64_t n) { return below(n) == 0; }
static double   uniform(void) { return (double)(test_random(&seed) >> 11) * 0x1p-53; }
static float    between(double low, double high) { return (float)(low + (high - low) * uniform()); }

static float gaussian(void) {
    double u = uniform() + 0x1p-54;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * uniform()));
}

/* --- random cases --- */

static void random_row(float *x, size_t n) {
    static const float odd[] = { NAN, -INFINITY, INFINITY, 1e35f, -FLT_MAX, 0.0f, -0.0f, 1e-40f };
    static const float scales[] = { 0.01f, 0.5f, 2, 5, 30, 1e4f, 1e29f };
    float              scale = scales[below(7)], shift = one_in(3) ? between(-50, 50) : 0;
    int                kind = (int)below(5);
    for (size_t i = 0; i < n; i++) {
        x[i] = kind == 0 ? shift : scale * gaussian() + shift;
        if (kind == 1) x[i] = roundf(x[i] * 2) / 2; /* ties */
        if (kind == 2 && i % 50) x[i] = -20;        /* a few stand out */
    }
    if (one_in(3)) {
        for (size_t k = 1 + below(n); k > 0; k--) x[below(n)] = odd[below(2)];
    }
    if (one_in(6)) {
        for (int k = 0; k < 3; k++) x[below(n)] = odd[below(8)];
    }
}

static const uint32_t *random_mask(uint32_t *mask, size_t n) {
    size_t words = (n + 31) / 32;
    if (one_in(3)) return NULL;
    memset(mask, 0, words * sizeof *mask);
    if (one_in(3)) { /* one token only */
        size_t id = below(n);
        mask[id / 32] = 1u << (id % 32);
        return mask;
    }
    for (size_t i = 0; i < words; i++) mask[i] = (uint32_t)(test_random(&seed) | (one_in(2) ? test_random(&seed) : 0));
    return mask;
}

static void random_order(sampling_params *p) {
    for (int i = SAMPLING_STAGE_COUNT - 1; i > 0; i--) {
        int            j = (int)below((uint64_t)i + 1);
        sampling_stage t = p->order[i];
        p->order[i] = p->order[j];
        p->order[j] = t;
    }
    if (one_in(4)) p->n_order = (int)below(SAMPLING_STAGE_COUNT + 1);
}

/* Everything that a device does, and now and then something that is off because its stage is not there. */
static void random_params(sampling_params *p, sampling_bias *bias, size_t n_vocab) {
    static const float temperatures[] = { 0, 1e-40f, 1e-30f, 9e-9f, 1e-8f, 1e-4f, 0.1f, 0.7f, 1, 1, 1.5f, 10, 1000 };
    sampling_params_default(p);
    p->seed = test_random(&seed);
    p->temperature = temperatures[below(13)];
    if (one_in(2)) p->top_k = (int)below(one_in(2) ? 8 : 2 * n_vocab);
    if (one_in(2)) p->top_p = one_in(6) ? 0 : between(0, 1);
    if (one_in(3)) p->min_p = one_in(6) ? 1 : between(0, 0.3);
    if (one_in(2)) p->repeat_penalty = between(0.5, 3);
    if (one_in(3)) p->frequency_penalty = between(-1, 2);
    if (one_in(3)) p->presence_penalty = between(-1, 2);
    p->repeat_last_n = one_in(4) ? -1 : (int)below(2 * MAX_HISTORY);
    p->n_bias = one_in(2) ? below(MAX_BIAS) : 0;
    p->bias = bias;
    for (size_t i = 0; i < p->n_bias; i++) {
        bias[i] = (sampling_bias){ (int32_t)below(n_vocab + 3) - 1, between(-5, 5) };
        if (one_in(4)) bias[i].bias = one_in(2) ? INFINITY : -INFINITY;
    }
    if (one_in(2)) random_order(p);
    if (one_in(8)) p->typical_p = between(0.2, 1);
    if (one_in(8)) p->xtc_probability = between(0, 1);
    if (one_in(8)) p->xtc_threshold = between(0, 1);
    if (one_in(8)) p->mirostat = 2;
    if (one_in(8)) p->dry_multiplier = 1;
    if (one_in(8)) p->top_n_sigma = 1;
    if (one_in(8)) p->dynatemp_range = 0.5f;
}

/* The history, and its counts made by looking at every token. */
static size_t random_history(sampler *s, size_t n_vocab, sampling_count *counts) {
    int32_t                history[3 * MAX_HISTORY];
    const sampling_params *p = sampler_params(s);
    size_t                 n = below(3 * MAX_HISTORY), distinct = 0, window = n < MAX_HISTORY ? n : MAX_HISTORY;
    for (size_t i = 0; i < n; i++) {
        history[i] = (int32_t)below(one_in(2) ? 5 : n_vocab);
        sampler_accept(s, history[i]);
    }
    if (p->repeat_last_n >= 0 && (size_t)p->repeat_last_n < window) window = (size_t)p->repeat_last_n;
    if (!sampling_penalizes(p)) window = 0;
    for (size_t i = n - window; i < n; i++) {
        size_t k = 0;
        while (k < distinct && counts[k].token != history[i]) k++;
        if (k == distinct) counts[distinct++] = (sampling_count){ history[i], 0 };
        counts[k].count++;
    }
    return distinct;
}

/* --- the comparison --- */

typedef struct tally {
    int rows, picked, none, drawn, differ;
} tally;

static void assert_close(float got, float want) {
    if (got == want || (isnan(got) && isnan(want))) return;
    if (!(fabs((double)got - (double)want) <= 1e-6 + 2.4e-7 * fabs((double)want)))
        fail_msg("log-probability %.9g, not %.9g", (double)got, (double)want);
}

static void assert_same_counts(sampler *s, sampling_work *w, const sampling_count *counts, size_t n) {
    sampling_count own[MAX_HISTORY];
    assert_int_equal(sampler_counts(s, w, own), n);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < n && own[k].token != counts[i].token) k++;
        assert_true(k < n && own[k].count == counts[i].count);
    }
}

static void compare_row(size_t n_vocab, float *x, float *scratch, uint32_t *mask, sampling_work *w, tally *t) {
    sampling_params  p;
    sampling_bias    bias[MAX_BIAS];
    sampling_count   counts[MAX_HISTORY];
    sampling_logprob host_top[N_TOP], top[N_TOP];
    sampling_result  host, plain;
    sampler         *s;
    double           margin;
    err              e;
    do random_params(&p, bias, n_vocab);
    while (!sampling_on_device(&p));
    random_row(x, n_vocab);
    if (sampler_open(&s, &p, MAX_HISTORY, &e) < 0) fail_msg("%s", e.msg);
    sampling_row r = { .params = sampler_params(s),
                       .mask = random_mask(mask, n_vocab),
                       .counts = counts,
                       .n_counts = random_history(s, n_vocab, counts),
                       .position = test_random(&seed) >> below(64),
                       .want_logprob = !one_in(4),
                       .n_top = one_in(2) ? (int)below(N_TOP + 1) : 0,
                       .top = top };
    assert_same_counts(s, w, counts, r.n_counts);
    sampling_request q = { .logits = scratch,
                           .mask = r.mask,
                           .position = r.position,
                           .want_logprob = r.want_logprob,
                           .n_top = r.n_top,
                           .top = host_top };
    memcpy(scratch, x, n_vocab * sizeof *x);
    int rc = sampler_pick(s, w, &q, &host, &e);
    assert_int_equal(plain_sample(x, n_vocab, &r, 1, &plain, &margin, &e), 0);
    sampler_free(s);
    t->rows++;
    if (plain.token < 0) {
        assert_int_equal(rc, ERR_ARG);
        t->none++;
        return;
    }
    assert_int_equal(rc, 0);
    t->picked++;
    t->drawn += isfinite(margin);
    assert_true(host.mu_step == 0);
    for (int i = 0; i < r.n_top; i++) {
        assert_int_equal(host_top[i].token, top[i].token);
        assert_close(host_top[i].logprob, top[i].logprob);
    }
    if (host.token != plain.token) {
        if (!(margin < 1e-6))
            fail_msg("vocabulary %zu: host %d, plain %d, margin %g", n_vocab, host.token, plain.token, margin);
        t->differ++;
    } else if (r.want_logprob || r.n_top) {
        assert_close(host.logprob, plain.logprob);
    }
}

static void compare_rows(size_t n_vocab, int rows, tally *t) {
    float         *x = calloc(n_vocab, sizeof *x), *scratch = calloc(n_vocab, sizeof *scratch);
    uint32_t      *mask = calloc((n_vocab + 31) / 32, sizeof *mask);
    sampling_work *w;
    assert_true(x && scratch && mask);
    assert_int_equal(sampling_work_open(&w, n_vocab, NULL), 0);
    for (int i = 0; i < rows; i++) compare_row(n_vocab, x, scratch, mask, w, t);
    sampling_work_free(w);
    free(x);
    free(scratch);
    free(mask);
}

static void test_same_picks(void **state) {
    static const size_t vocabs[] = { 7, 8, 31, 32, 33, 64, 100, 317, 1000, 4096, 32000, 50000 };
    tally               t = { 0 };
    (void)state;
    seed = 2;
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        int rows = vocabs[i] < 2000 ? 1500 : vocabs[i] < 5000 ? 300 : 60;
        compare_rows(vocabs[i], TEST_SANITIZED ? rows / 10 : rows, &t);
    }
    print_message("%d rows: %d picks (%d drawn), %d without a token, %d at a border\n", t.rows, t.picked, t.drawn,
                  t.none, t.differ);
    assert_true(t.drawn > t.rows / 4 && t.none > 0);
    assert_true(t.differ <= 1 + t.rows / 1000);
}

/* Several rows in one call are the rows one by one; what is the host's is refused. */
static void test_batch(void **state) {
    enum { N = 50, ROWS = 9 };
    float           x[ROWS][N];
    sampling_params p[ROWS];
    sampling_row    rows[ROWS];
    sampling_result all[ROWS], one;
    err             e;
    (void)state;
    seed = 3;
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < N; k++) x[i][k] = gaussian();
        sampling_params_default(&p[i]);
        p[i].top_k = i;
        p[i].seed = (uint64_t)i;
        rows[i] = (sampling_row){ .params = &p[i], .position = 100, .want_logprob = true };
    }
    assert_int_equal(plain_sample(x[0], N, rows, ROWS, all, NULL, &e), 0);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(plain_sample(x[i], N, &rows[i], 1, &one, NULL, &e), 0);
        assert_int_equal(one.token, all[i].token);
        assert_true(one.logprob == all[i].logprob);
    }
    p[4].mirostat = 1;
    assert_int_equal(plain_sample(x[0], N, rows, ROWS, all, NULL, &e), ERR_ARG);
}

/* Next to no temperature is the most likely token, whatever the size of the logits. */
static void test_cold(void **state) {
    static const float     tops[] = { -5, 0, 5, 3e4f, 1e30f, INFINITY, -3e38f };
    static const float     temperatures[] = { 1e-44f, 1e-38f, 1e-20f, 9e-9f, 1.1e-8f };
    sampling_work         *w;
    sampling_params        p;
    float                  row[4];
    const sampling_request r = { .logits = row, .want_logprob = true };
    (void)state;
    assert_int_equal(sampling_work_open(&w, 4, NULL), 0);
    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++) {
        for (size_t k = 0; k < sizeof temperatures / sizeof *temperatures; k++) {
            sampler        *s;
            sampling_result got;
            float           lower = tops[i] * 0.9f - 1;
            if (tops[i] == -3e38f) lower = -FLT_MAX;
            if (tops[i] == INFINITY) lower = 1;
            row[0] = row[1] = row[3] = lower;
            row[2] = tops[i];
            sampling_params_default(&p);
            p.temperature = temperatures[k];
            assert_int_equal(sampler_open(&s, &p, 1, NULL), 0);
            assert_int_equal(sampler_pick(s, w, &r, &got, NULL), 0);
            /* The coldest that is divided by: both may be too low to be told apart. */
            if (!(tops[i] == -3e38f && p.temperature >= SAMPLING_TINY_TEMPERATURE)) assert_int_equal(got.token, 2);
            assert_true(got.logprob <= 0);
            sampler_free(s);
        }
    }
    sampling_work_free(w);
}

static void test_on_device(void **state) {
    sampling_params p;
    (void)state;
#define DEVICE(want, ...)                                                                                              \
    do {                                                                                                               \
        sampling_params_default(&p);                                                                                   \
        __VA_ARGS__;                                                                                                   \
        assert_int_equal(sampling_on_device(&p), want);                                                                \
    } while (0)
    DEVICE(true, (void)0);
    DEVICE(true, p.top_k = 40; p.top_p = 0.9f; p.min_p = 0.05f; p.repeat_penalty = 1.1f; p.presence_penalty = 1);
    DEVICE(false, p.dry_multiplier = 1);
    DEVICE(false, p.dry_multiplier = 1; p.temperature = 0); /* changes the row itself */
    DEVICE(false, p.top_n_sigma = 1);
    DEVICE(false, p.typical_p = 0.9f);
    DEVICE(false, p.xtc_probability = 0.5f);
    DEVICE(true, p.xtc_probability = 0.5f; p.xtc_threshold = 0.6f);
    DEVICE(false, p.mirostat = 1);
    DEVICE(false, p.mirostat = 2; p.n_order = 0);
    DEVICE(false, p.dynatemp_range = 0.5f);
    DEVICE(false, p.dynatemp_range = 0.5f; p.temperature = 0);
    /* Without randomness the filters are not looked at; without its stage a parameter is nothing. */
    DEVICE(true, p.temperature = 0; p.typical_p = 0.9f; p.mirostat = 2; p.xtc_probability = 1; p.top_n_sigma = 1);
    DEVICE(true, p.n_order = 1; p.typical_p = 0.9f; p.dry_multiplier = 1; p.dynatemp_range = 0.5f);
#undef DEVICE
    sampling_params_default(&p);
    assert_false(sampling_penalizes(&p));
    p.frequency_penalty = 0.1f;
    assert_true(sampling_penalizes(&p));
    p.repeat_last_n = 0;
    assert_false(sampling_penalizes(&p));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_picks),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_cold),
        cmocka_unit_test(test_on_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

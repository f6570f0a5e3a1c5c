/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler chain against plain references: filters against a full sort in double precision, draws against the exact
 * distribution by a chi-square test, the generator against its published vectors.
 */
#include "unit/support/support.h"

#include "params/candidates.h"
#include "params/rng.h"
#include "sampling/sampling.h"
#include "sampling/stages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BIG = 150000 };

static float gaussian(uint64_t *seed) {
    double u = ((double)(test_random(seed) >> 11) + 0.5) * 0x1p-53, v = (double)(test_random(seed) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static void fill_logits(float *logits, size_t n, float scale, uint64_t seed) {
    for (size_t i = 0; i < n; i++) logits[i] = scale * gaussian(&seed);
    for (size_t i = 0; i + 7 < n; i += 97) logits[i + 7] = logits[i]; /* ties */
}

/* -- reference: everything sorted, double precision ------------------------------------------------------------------
 */

typedef struct item {
    double logit, p;
    int    id;
} item;

static int by_logit(const void *x, const void *y) {
    const item *a = x, *b = y;
    return a->logit != b->logit ? (a->logit > b->logit ? -1 : 1) : a->id - b->id;
}

static void reference_softmax(item *it, size_t n) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = fmax(max, it[i].logit);
    for (size_t i = 0; i < n; i++) sum += it[i].p = exp(it[i].logit - max);
    for (size_t i = 0; i < n; i++) it[i].p /= sum;
}

static item *reference_sorted(const float *logits, size_t n) {
    item *it = calloc(n, sizeof *it);
    for (size_t i = 0; i < n; i++) it[i] = (item){ logits[i], 0, (int)i };
    qsort(it, n, sizeof *it, by_logit);
    reference_softmax(it, n);
    return it;
}

static int by_id(const void *x, const void *y) { return ((const cand *)x)->id - ((const cand *)y)->id; }
static int items_by_id(const void *x, const void *y) { return ((const item *)x)->id - ((const item *)y)->id; }

static void assert_same_tokens(cand_set *s, item *it, size_t n) {
    assert_int_equal(s->count, n);
    qsort(s->c, s->count, sizeof *s->c, by_id);
    qsort(it, n, sizeof *it, items_by_id);
    for (size_t i = 0; i < n; i++) assert_int_equal(s->c[i].id, it[i].id);
}

static cand_set whole_set(const float *logits, size_t n) {
    cand_set s = { .c = calloc(n, sizeof(cand)) };
    cand_fill(&s, logits, n);
    return s;
}

static void test_lazy_sort_is_a_sort(void **state) {
    float *logits = calloc(BIG, sizeof *logits);
    (void)state;
    fill_logits(logits, BIG, 3, 1);
    item    *it = reference_sorted(logits, BIG);
    cand_set s = whole_set(logits, BIG);
    size_t   steps[] = { 1, 2, 40, 63, 64, 65, 300, 5000, 20000, BIG };
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        cand_sort(&s, steps[k]);
        assert_int_equal(s.sorted, steps[k]);
        for (size_t i = 0; i < steps[k]; i++) assert_int_equal(s.c[i].id, it[i].id);
    }
    /* All equal: the order is that of the ids. */
    for (size_t i = 0; i < BIG; i++) logits[i] = 1;
    cand_fill(&s, logits, BIG);
    cand_sort(&s, 1000);
    for (size_t i = 0; i < 1000; i++) assert_int_equal(s.c[i].id, i);
    free(s.c);
    free(it);
    free(logits);
}

static void test_filters(void **state) {
    float *logits = calloc(BIG, sizeof *logits);
    (void)state;
    for (int round = 0; round < 12; round++) {
        size_t n = round % 3 == 0 ? BIG : round % 3 == 1 ? 1000 : 17;
        float  scale = round % 2 ? 1.0f : 5.0f;
        fill_logits(logits, n, scale, (uint64_t)round + 10);
        item    *it = reference_sorted(logits, n);
        cand    *scratch = calloc(n, sizeof *scratch);
        cand_set s = whole_set(logits, n);

        stage_top_k(&s, 50);
        assert_same_tokens(&s, it, n < 50 ? n : 50);
        qsort(it, n < 50 ? n : 50, sizeof *it, by_logit);

        for (int k = 0; k < 3; k++) {
            double p = (double[]){ 0.3, 0.9, 0.999 }[k], mass = 0;
            size_t keep = 0;
            while (keep < n && mass < p) mass += it[keep++].p;
            if (fabs(mass - p) < 1e-6 || fabs(mass - it[keep - 1].p - p) < 1e-6) continue; /* decided by rounding */
            cand_fill(&s, logits, n);
            stage_top_p(&s, (float)p);
            assert_same_tokens(&s, it, keep);
            qsort(it, keep, sizeof *it, by_logit);
        }

        size_t keep = 0;
        while (keep < n && it[keep].p >= 0.05 * it[0].p) keep++;
        cand_fill(&s, logits, n);
        stage_min_p(&s, 0.05f);
        assert_same_tokens(&s, it, keep);
        qsort(it, keep, sizeof *it, by_logit);

        double mean = 0, var = 0;
        for (size_t i = 0; i < n; i++) mean += it[i].logit / (double)n;
        for (size_t i = 0; i < n; i++) var += (it[i].logit - mean) * (it[i].logit - mean) / (double)n;
        keep = 0;
        while (keep < n && it[keep].logit >= it[0].logit - 1.5 * sqrt(var)) keep++;
        cand_fill(&s, logits, n);
        stage_top_n_sigma(&s, 1.5f);
        assert_same_tokens(&s, it, keep);
        qsort(it, keep, sizeof *it, by_logit);

        free(scratch);
        free(s.c);
        free(it);
    }
    free(logits);
}

static void test_typical(void **state) {
    enum { N = 3000 };
    float logits[N];
    cand  scratch[N];
    (void)state;
    fill_logits(logits, N, 2, 77);
    item  *it = reference_sorted(logits, N);
    double entropy = 0;
    for (int i = 0; i < N; i++) entropy -= it[i].p * log(it[i].p);
    /* Reuse the sort: key is the negated distance from the entropy. */
    item *dist = calloc(N, sizeof *dist);
    for (int i = 0; i < N; i++) dist[i] = (item){ -fabs(-log(it[i].p) - entropy), it[i].p, it[i].id };
    qsort(dist, N, sizeof *dist, by_logit);
    double mass = 0;
    size_t keep = 0;
    while (mass < 0.5) mass += dist[keep++].p;
    cand_set s = whole_set(logits, N);
    stage_typical(&s, 0.5f, scratch);
    /* Distances that agree to float precision may swap at the border: compare mass and size, not the last token. */
    double got = 0;
    for (size_t i = 0; i < s.count; i++) got += exp(s.c[i].logit - it[0].logit) * it[0].p;
    assert_true(fabs((double)s.count - (double)keep) <= 1);
    assert_true(fabs(got - mass) < 2e-3);
    free(s.c);
    free(dist);
    free(it);
}

static void test_xtc(void **state) {
    float    logits[5] = { logf(0.4f), logf(0.3f), logf(0.2f), logf(0.06f), logf(0.04f) };
    cand_set s = whole_set(logits, 5);
    (void)state;
    stage_xtc(&s, 0.5f, 0.15f, 0.6); /* the draw says no */
    assert_int_equal(s.count, 5);
    stage_xtc(&s, 0.5f, 0.15f, 0.4); /* three reach the threshold: the least likely of them stays */
    assert_int_equal(s.count, 3);
    cand_sort(&s, 1);
    assert_int_equal(s.c[0].id, 2);
    cand_fill(&s, logits, 5);
    stage_xtc(&s, 1.0f, 0.35f, 0.0); /* only one reaches it: nothing happens */
    assert_int_equal(s.count, 5);
    free(s.c);
}

static void test_penalties(void **state) {
    float         logits[6] = { 2, -2, 1, 0, 3, 5 };
    int32_t       counts[6] = { 0 };
    const int32_t recent[] = { 0, 1, 0, 4, 99, -1 };
    (void)state;
    stage_penalties(logits, 6, recent, 6, 2.0f, 0.5f, 0.25f, counts);
    const float want[6] = { 2.0f / 2 - 1.0f - 0.25f, -4 - 0.5f - 0.25f, 1, 0, 1.5f - 0.5f - 0.25f, 5 };
    for (int i = 0; i < 6; i++) {
        assert_true(fabsf(logits[i] - want[i]) < 1e-6f);
        assert_int_equal(counts[i], 0);
    }
}

/* DRY by its definition: for every token the longest suffix of the history that stood before an earlier occurrence. */
static void reference_dry(double *logits, const int32_t *h, int n, double mult, double base, int allowed,
                          int32_t breaker) {
    for (int32_t t = 0; t < 8; t++) {
        int best = 0;
        for (int j = 0; j < n; j++) {
            int length = 0;
            if (h[j] != t || t == breaker) continue;
            while (j - 1 - length >= 0 && h[j - 1 - length] == h[n - 1 - length] && h[n - 1 - length] != breaker)
                length++;
            if (length > best) best = length;
        }
        if (best >= allowed && best > 0) logits[t] -= mult * pow(base, best - allowed);
    }
}

static void test_dry(void **state) {
    uint64_t seed = 5;
    (void)state;
    for (int round = 0; round < 500; round++) {
        int32_t history[60], z[60], best[8] = { 0 };
        int     n = (int)(test_random(&seed) % 60);
        int32_t breaker = round % 3 ? 7 : 3;
        for (int i = 0; i < n; i++) history[i] = (int32_t)(test_random(&seed) % (round % 2 ? 3 : 8));
        float  logits[8] = { 0 };
        double want[8] = { 0 };
        stage_dry(logits, 8, history, (size_t)n, 0.8f, 1.75f, 2, &breaker, 1, z, best);
        reference_dry(want, history, n, 0.8, 1.75, 2, breaker);
        for (int t = 0; t < 8; t++) {
            assert_true(fabs(logits[t] - want[t]) <= 1e-4 * (1 + fabs(want[t])));
            assert_int_equal(best[t], 0);
        }
    }
}

static void test_philox_vectors(void **state) {
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_philox(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
}

/* -- the whole chain --------------------------------------------------------------------------------------------------
 */

enum { FEW = 12, DRAWS = 100000 };

/* Draws DRAWS tokens and compares the counts with the exact probabilities (chi-square at one in a million). */
static void assert_distribution(const sampling_params *p, const float *row, const double *want) {
    sampler       *s;
    sampling_work *w;
    double         counts[FEW] = { 0 };
    assert_int_equal(sampler_open(&s, p, 16, NULL), 0);
    assert_int_equal(sampling_work_open(&w, FEW, NULL), 0);
    for (uint64_t i = 0; i < DRAWS; i++) {
        float            logits[FEW];
        sampling_result  out;
        sampling_request r = { .logits = logits, .position = i };
        memcpy(logits, row, sizeof logits);
        assert_int_equal(sampler_pick(s, w, &r, &out, NULL), 0);
        counts[out.token]++;
    }
    double chi = 0;
    int    free_degrees = -1;
    for (int t = 0; t < FEW; t++) {
        if (want[t] == 0) {
            assert_true(counts[t] == 0);
            continue;
        }
        double expected = want[t] * DRAWS;
        chi += (counts[t] - expected) * (counts[t] - expected) / expected;
        free_degrees++;
    }
    /* Wilson-Hilferty: the 1 - 1e-6 quantile of chi-square. */
    double k = free_degrees, q = k * pow(1 - 2 / (9 * k) + 4.753 * sqrt(2 / (9 * k)), 3);
    if (free_degrees > 0) assert_true(chi < q);
    sampler_free(s);
    sampling_work_free(w);
}

static void exact(const float *row, double temperature, const bool *keep, double *want) {
    double sum = 0;
    for (int t = 0; t < FEW; t++) sum += want[t] = keep && !keep[t] ? 0 : exp(row[t] / temperature);
    for (int t = 0; t < FEW; t++) want[t] /= sum;
}

static void test_draws(void **state) {
    float           row[FEW];
    double          want[FEW];
    sampling_params p;
    (void)state;
    fill_logits(row, FEW, 1.2f, 4242);
    sampling_params_default(&p);
    p.seed = 17;
    exact(row, 1, NULL, want);
    assert_distribution(&p, row, want);
    p.temperature = 0.6f;
    p.seed = 18;
    exact(row, 0.6f, NULL, want);
    assert_distribution(&p, row, want);
    /* top_k before the temperature */
    p.top_k = 4;
    item *it = reference_sorted(row, FEW);
    bool  keep[FEW] = { 0 };
    for (int i = 0; i < 4; i++) keep[it[i].id] = true;
    exact(row, 0.6f, keep, want);
    assert_distribution(&p, row, want);
    free(it);
    /* greedy draws nothing */
    p.temperature = 0;
    memset(want, 0, sizeof want);
    int best = 0;
    for (int t = 1; t < FEW; t++) best = row[t] > row[best] ? t : best;
    want[best] = 1;
    assert_distribution(&p, row, want);
}

/* The most likely token: the lowest id among equals; NaN and -INFINITY never; everything beyond 1e30 is equal. */
static void test_first(void **state) {
    static float row[9001];
    uint64_t     seed = 5;
    (void)state;
    for (size_t n = 0; n <= 9001; n = n < 40 ? n + 1 : n * 2 + (n % 7) - 3) {
        for (int kind = 0; kind < 6; kind++) {
            if (n > 9001) break;
            for (size_t i = 0; i < n; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                int level = (int)(seed >> 60);
                row[i] = kind == 0 ? (float)(int64_t)(seed >> 20) : kind == 1 ? (float)level : -INFINITY;
                if (kind == 2 && level == 3) row[i] = -2;
                if (kind == 3) row[i] = level < 3 ? NAN : (float)-level;
                if (kind == 4) row[i] = level == 9 ? INFINITY : level == 4 ? 2e30f : level == 5 ? NAN : (float)level;
            }
            int32_t want = -1;
            for (size_t i = 0; i < n; i++) {
                float v = fminf(row[i], 1e30f);
                if (!isnan(row[i]) && v > -INFINITY && (want < 0 || v > fminf(row[want], 1e30f))) want = (int32_t)i;
            }
            assert_int_equal(cand_first(row, n), want);
        }
    }
}

static void test_mask_bias_logprobs(void **state) {
    float            row[FEW] = { 0, 1, 2, 3, NAN, -INFINITY, 1, 1, 1, 1, 1, 1 }, logits[FEW];
    sampling_bias    bias[] = { { 3, -INFINITY }, { 0, 50 }, { 999, 1 }, { -4, 1 } };
    sampling_params  p;
    sampler         *s;
    sampling_work   *w;
    sampling_logprob top[3];
    sampling_result  out;
    uint32_t         mask = 0xFFFu;
    err              e;
    (void)state;
    sampling_params_default(&p);
    p.temperature = 0;
    p.bias = bias;
    p.n_bias = 4;
    assert_int_equal(sampler_open(&s, &p, 8, &e), 0);
    assert_int_equal(sampling_work_open(&w, FEW, &e), 0);
    sampling_request r = { .logits = logits, .mask = &mask, .want_logprob = true, .n_top = 3, .top = top };
    memcpy(logits, row, sizeof row);
    assert_int_equal(sampler_pick(s, w, &r, &out, &e), 0);
    assert_int_equal(out.token, 0);
    double sum = exp(0) + exp(1) * 7 + exp(2) + exp(3);
    assert_true(fabs(out.logprob - (0 - log(sum))) < 1e-5); /* raw: the bias does not show */
    assert_int_equal(top[0].token, 3);
    assert_int_equal(top[1].token, 2);
    assert_int_equal(top[2].token, 1); /* a tie: the lower id */
    assert_true(fabs(top[0].logprob - (3 - log(sum))) < 1e-5);
    mask = 1u << 7;
    memcpy(logits, row, sizeof row);
    assert_int_equal(sampler_pick(s, w, &r, &out, &e), 0);
    assert_int_equal(out.token, 7);
    mask = 1u << 3; /* the only one left is forbidden by its bias */
    memcpy(logits, row, sizeof row);
    assert_int_equal(sampler_pick(s, w, &r, &out, &e), ERR_ARG);
    assert_string_equal(e.msg, "no token is allowed at this place");
    sampler_free(s);
    sampling_work_free(w);
}

/* Tokens that say nearly the same count together against each of the others, and then only they are drawn from. */
static void test_together(void **state) {
    enum { FROM = 8 };
    static const struct {
        float alone, each; /* the best of the others; of those together */
        int   n;           /* of them that are possible */
        bool  wins;
    } all[] = { { 2, 1, 4, true }, /* log(4 e) = 2.39 */
                { 2.5f, 1, 4, false },     { 2, 1, 2, false },        { 1.5f, 1, 2, true }, { 0, -INFINITY, 0, false },
                { INFINITY, 1, 4, false }, { -INFINITY, 0, 1, true }, { 88, 87, 4, true } };
    sampling_params p;
    sampling_work  *w;
    err             e;
    (void)state;
    assert_int_equal(sampling_work_open(&w, FEW, &e), 0);
    for (size_t i = 0; i < 2 * sizeof all / sizeof *all; i++) {
        float           logits[FEW] = { -3, -INFINITY, NAN, -4, -5, all[i / 2].alone, -2, -1 };
        sampling_result out;
        sampler        *s;
        bool            wins = false;
        sampling_params_default(&p);
        p.temperature = i % 2 ? 1.0f : 0.0f;
        p.seed = i;
        p.together_from = FROM;
        assert_false(sampling_on_device(&p));
        for (int k = FROM; k < FEW; k++) logits[k] = k - FROM < all[i / 2].n ? all[i / 2].each : -INFINITY;
        assert_int_equal(sampler_open(&s, &p, 8, &e), 0);
        assert_int_equal(sampler_pick(s, w, &(sampling_request){ .logits = logits }, &out, &e), 0);
        wins = all[i / 2].wins;
        if (wins || p.temperature == 0) assert_int_equal(out.token >= FROM, wins);
        sampler_free(s);
    }
    p.together_from = 1 << 20; /* behind the row: as if there were none */
    float           logits[FEW] = { 0, 1 };
    sampler        *s;
    sampling_result out;
    p.temperature = 0;
    assert_int_equal(sampler_open(&s, &p, 8, &e), 0);
    assert_int_equal(sampler_pick(s, w, &(sampling_request){ .logits = logits }, &out, &e), 0);
    assert_int_equal(out.token, 1);
    sampler_free(s);
    sampling_work_free(w);
}

/* Mirostat holds the mean surprise of a long text near tau. */
static void test_mirostat(void **state) {
    enum { N = 2000, TOKENS = 4000 };
    float *row = calloc(N, sizeof *row), *logits = calloc(N, sizeof *logits);
    (void)state;
    for (int i = 0; i < N; i++) row[i] = -1.1f * logf((float)(i + 1)); /* Zipf */
    double sum = 0;
    for (int i = 0; i < N; i++) sum += exp(row[i]);
    for (int version = 1; version <= 2; version++) {
        sampling_params p;
        sampler        *s;
        sampling_work  *w;
        double          surprise = 0;
        sampling_params_default(&p);
        p.mirostat = version;
        p.mirostat_tau = 3.0f;
        p.seed = (uint64_t)version;
        assert_int_equal(sampler_open(&s, &p, 8, NULL), 0);
        assert_int_equal(sampling_work_open(&w, N, NULL), 0);
        for (uint64_t i = 0; i < TOKENS; i++) {
            sampling_result  out;
            sampling_request r = { .logits = logits, .position = i };
            memcpy(logits, row, N * sizeof *row);
            assert_int_equal(sampler_pick(s, w, &r, &out, NULL), 0);
            sampler_accept_pick(s, &out);
            surprise += -log2(exp(row[out.token]) / sum) / TOKENS;
        }
        /* The controller steers the surprise within the truncated set; against the full one it is a little higher. */
        assert_true(surprise > 2.0 && surprise < 5.0);
        sampler_free(s);
        sampling_work_free(w);
    }
    free(row);
    free(logits);
}

static void test_history_and_rollback(void **state) {
    sampling_params p;
    sampler        *s;
    sampling_work  *w;
    sampling_result out;
    float           logits[4];
    (void)state;
    sampling_params_default(&p);
    p.temperature = 0;
    p.presence_penalty = 10;
    p.repeat_last_n = 2;
    assert_int_equal(sampler_open(&s, &p, 3, NULL), 0);
    assert_int_equal(sampling_work_open(&w, 4, NULL), 0);
    sampling_request r = { .logits = logits };
    const float      row[4] = { 4, 3, 2, 1 };
    for (int i = 0; i < 100; i++) sampler_accept(s, i % 2); /* far beyond max_history */
    memcpy(logits, row, sizeof row);
    assert_int_equal(sampler_pick(s, w, &r, &out, NULL), 0);
    assert_int_equal(out.token, 2); /* 0 and 1 stand in the window */
    sampler_accept(s, 2);
    sampler_rollback(s, 2); /* the newest are now ..., 1, 0 */
    sampler_accept(s, 3);
    memcpy(logits, row, sizeof row);
    assert_int_equal(sampler_pick(s, w, &r, &out, NULL), 0);
    assert_int_equal(out.token, 1);
    sampler_free(s);
    sampling_work_free(w);
}

static void test_refused_params(void **state) {
    sampling_params p;
    sampler        *s;
    err             e;
    (void)state;
    sampling_params_default(&p);
    p.temperature = -1;
    assert_int_equal(sampler_open(&s, &p, 8, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "temperature"));
    sampling_params_default(&p);
    p.top_p = NAN;
    assert_int_equal(sampler_open(&s, &p, 8, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "top_p"));
    sampling_params_default(&p);
    p.order[1] = p.order[0];
    assert_int_equal(sampler_open(&s, &p, 8, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "penalties is named twice"));
    sampling_stage stage;
    for (int i = 0; i < SAMPLING_STAGE_COUNT; i++)
        assert_true(sampling_stage_parse(sampling_stage_name((sampling_stage)i), &stage) && (int)stage == i);
    assert_false(sampling_stage_parse("tfs", &stage));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lazy_sort_is_a_sort),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_typical),
        cmocka_unit_test(test_xtc),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_philox_vectors),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_mask_bias_logprobs),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_mirostat),
        cmocka_unit_test(test_history_and_rollback),
        cmocka_unit_test(test_refused_params),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

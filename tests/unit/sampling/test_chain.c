/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pick from the likeliest tokens of a row alone (params/chain.h) is the sampler's pick from the whole row: the same
 * token for random rows, masks, biases, penalties and chains in any order, and left open only where it may be.
 */
#include "unit/support/support.h"

#include "params/chain.h"
#include "sampling/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 90, WIDEST = 40000, HISTORY = 64 };

typedef struct row {
    size_t          n;
    float          *logits, *copy;
    uint32_t       *mask;
    cand           *sorted;
    int32_t         token[LISTED];
    float           x[LISTED];
    chain_list      list;
    sampling_bias   bias[4];
    sampling_count  counts[HISTORY];
    sampling_params p;
    sampling_work  *work;
    sampler        *sampler;
    sampling_row    ask;
    bool            usual;
} row;

static int  number(uint64_t *seed, int n) { return (int)(test_random(seed) % (uint64_t)n); }
static bool chance(uint64_t *seed, int percent) { return number(seed, 100) < percent; }

static float gaussian(uint64_t *seed) {
    double u = ((double)(test_random(seed) >> 11) + 0.5) * 0x1p-53, v = (double)(test_random(seed) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static float possible(float x) { return x > SAMPLING_LARGEST ? SAMPLING_LARGEST : x; }

/* The largest: what a device sends. */
static void make_list(row *r) {
    cand_set s = { .c = r->sorted };
    cand_fill(&s, r->logits, r->n);
    cand_sort(&s, LISTED + 1);
    r->list = (chain_list){ .token = r->token, .x = r->x, .whole = s.count <= LISTED, .floor = -INFINITY };
    if (!r->list.whole) r->list.floor = s.c[LISTED].logit;
    while (r->list.n < LISTED && (size_t)r->list.n < s.count) {
        r->token[r->list.n] = s.c[r->list.n].id;
        r->x[r->list.n] = r->logits[s.c[r->list.n].id];
        r->list.n++;
    }
}

static void make_params(row *r, uint64_t *seed) {
    sampling_params *p = &r->p;
    sampling_params_default(p);
    p->temperature = chance(seed, 20) ? 0 : (float)(1 + number(seed, 20)) * 0.1f;
    p->top_k = chance(seed, 50) ? 1 + number(seed, 100) : 0;
    p->top_p = chance(seed, 50) ? (float)(1 + number(seed, 99)) * 0.01f : 1;
    p->min_p = chance(seed, 30) ? (float)(1 + number(seed, 50)) * 0.01f : 0;
    p->repeat_penalty = chance(seed, 30) ? 0.7f + (float)number(seed, 10) * 0.1f : 1;
    p->presence_penalty = chance(seed, 20) ? 0.5f : 0;
    p->frequency_penalty = chance(seed, 20) ? 0.25f : 0;
    p->seed = test_random(seed);
    p->bias = r->bias;
    p->n_bias = (size_t)number(seed, 4);
    for (size_t i = 0; i < p->n_bias; i++) {
        int32_t token = chance(seed, 50) ? number(seed, (int)r->n) : r->list.n ? r->token[number(seed, r->list.n)] : 0;
        r->bias[i] = (sampling_bias){ token, chance(seed, 20) ? -INFINITY : 3 * gaussian(seed) };
    }
    for (int i = SAMPLING_STAGE_COUNT - 1; i > 0 && chance(seed, 90); i--) {
        int            k = number(seed, i + 1);
        sampling_stage s = p->order[i];
        p->order[i] = p->order[k];
        p->order[k] = s;
    }
}

static void make_row(row *r, uint64_t *seed) {
    err   e = { 0 };
    float scale = (float)(1 + number(seed, 6));
    for (size_t i = 0; i < r->n; i++) r->logits[i] = scale * gaussian(seed);
    for (size_t i = 0; i + 7 < r->n; i += 97) r->logits[i + 7] = r->logits[i];
    bool alike = !r->usual && chance(seed, 20); /* every number many times */
    for (size_t i = 9; i < r->n && alike; i++) r->logits[i] = r->logits[i % 9];
    for (int i = 0; i < 5 && chance(seed, 20); i++)
        r->logits[number(seed, (int)r->n)] = (float[]){ NAN, INFINITY, -INFINITY, 1e35f, 0 }[i];
    make_list(r);
    make_params(r, seed);
    assert_int_equal(sampler_open(&r->sampler, &r->p, HISTORY, &e), 0);
    for (int i = 0; i < HISTORY; i++)
        sampler_accept(r->sampler,
                       chance(seed, 50) && r->list.n ? r->token[number(seed, r->list.n)] : number(seed, (int)r->n));
    r->ask = (sampling_row){ .params = &r->p, .position = (uint64_t)number(seed, 1000), .counts = r->counts };
    r->ask.n_counts = sampler_counts(r->sampler, r->work, r->counts);
    if (chance(seed, 40)) {
        for (size_t i = 0; i < (r->n + 31) / 32; i++) r->mask[i] = (uint32_t)test_random(seed);
        r->ask.mask = r->mask;
    }
}

/* The sum that a device would send, off by less than two implementations differ. */
static double sum_of(const row *r, uint64_t *seed) {
    double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < r->n; i++)
        most = r->logits[i] > -INFINITY ? fmax(most, (double)possible(r->logits[i])) : most;
    for (size_t i = 0; i < r->n; i++) sum += r->logits[i] > -INFINITY ? exp((double)possible(r->logits[i]) - most) : 0;
    return sum * (1 + (number(seed, 3) - 1) * 2e-7);
}

/* Returns whether the list decided. */
static bool check(row *r, uint64_t *seed) {
    cand            room[LISTED];
    cand_set        set = { .c = room };
    sampling_result want;
    err             e = { 0 };
    bool            plain = !r->ask.mask && !r->p.n_bias && !r->ask.n_counts;
    double          sum = plain ? sum_of(r, seed) : 0;
    int32_t got = chain_fill(&set, &r->list, &r->ask) ? chain_pick(&set, &r->list, &r->ask, sum) : SAMPLING_LEFT;
    sampling_request q = { .logits = memcpy(r->copy, r->logits, r->n * sizeof *r->copy),
                           .mask = r->ask.mask,
                           .position = r->ask.position };
    int              rc = sampler_pick(r->sampler, r->work, &q, &want, &e);
    sampler_free(r->sampler);
    if (got == SAMPLING_LEFT) return false;
    assert_int_equal(rc < 0 ? -1 : want.token, got);
    return true;
}

static void open_row(row *r, size_t n) {
    err e = { 0 };
    r->n = n;
    r->logits = calloc(n, sizeof *r->logits);
    r->copy = calloc(n, sizeof *r->copy);
    r->sorted = calloc(n, sizeof *r->sorted);
    r->mask = calloc((n + 31) / 32, sizeof *r->mask);
    assert_int_equal(sampling_work_open(&r->work, n, &e), 0);
}

static void close_row(row *r) {
    free(r->logits);
    free(r->copy);
    free(r->sorted);
    free(r->mask);
    sampling_work_free(r->work);
}

static void test_the_samplers_pick(void **state) {
    const size_t widths[] = { 1, 17, 89, 91, 130, 1000, WIDEST };
    uint64_t     seed = 5;
    int          decided = 0, rounds = 0;
    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        row r = { 0 };
        open_row(&r, widths[w]);
        for (int i = 0; i < (widths[w] == WIDEST ? 150 : 1500); i++, rounds++) {
            make_row(&r, &seed);
            decided += check(&r, &seed);
        }
        close_row(&r);
    }
    assert_in_range(decided, rounds / 2, rounds - 1);
}

/* What most people ask for never needs the whole row. */
static void test_usual_chains_are_decided(void **state) {
    uint64_t seed = 7;
    row      r = { .usual = true };
    (void)state;
    open_row(&r, WIDEST);
    for (int i = 0; i < 40; i++) {
        make_row(&r, &seed);
        sampler_free(r.sampler);
        sampling_params_default(&r.p);
        r.p.temperature = i % 4 ? 0.8f : 0;
        r.p.top_k = 40;
        r.p.top_p = 0.95f;
        r.p.repeat_penalty = i % 2 ? 1.1f : 1;
        r.ask.mask = NULL;
        if (i % 2 == 0) r.ask.n_counts = 0;
        err e = { 0 };
        assert_int_equal(sampler_open(&r.sampler, &r.p, HISTORY, &e), 0);
        for (size_t k = 0; k < r.ask.n_counts; k++)
            for (int c = 0; c < r.counts[k].count; c++) sampler_accept(r.sampler, r.counts[k].token);
        assert_true(check(&r, &seed));
    }
    close_row(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_samplers_pick),
        cmocka_unit_test(test_usual_chains_are_decided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How deep to draft, against a search over all depths: for one sequence and for several the choice gives as many tokens
 * per second as any other. Costs are learned from steps; a drafter that is never right is asked ever more rarely.
 */
#include "unit/support/support.h"

#include "engine/depth.h"

#include <math.h>
#include <string.h>

/* Nearly flat up to four rows, then rising, with a step at eight: as block types behave. */
static double time_of(int rows) {
    return 1e-3 * (1 + 0.02 * rows + (rows > 4 ? 0.15 * (rows - 4) : 0) + (rows > 8 ? 0.5 : 0));
}

static void learn(depth_costs *c) {
    memset(c, 0, sizeof *c);
    for (int round = 0; round < 40; round++) {
        for (int rows = 1; rows <= 32; rows++) depth_measure(c, rows, time_of(rows));
    }
}

static void test_costs(void **state) {
    depth_costs c;
    (void)state;
    learn(&c);
    for (int rows = 1; rows <= 32; rows++)
        assert_true(fabs(depth_ratio(&c, rows) - time_of(rows) / time_of(1)) < 0.02 * depth_ratio(&c, rows));
    double before = depth_ratio(&c, 4);
    depth_measure(&c, 4, 1.0); /* somebody else had the cores */
    assert_true(depth_ratio(&c, 4) < before * 1.1);
    for (int i = 0; i < 40; i++) depth_measure(&c, 1, 2 * time_of(1)); /* contexts have grown: the scale moves */
    assert_true(fabs(c.scale - 2 * time_of(1)) < 0.1 * time_of(1) &&
                fabs(depth_ratio(&c, 8) - time_of(8) / time_of(1)) < 0.1);
}

/* A step that somebody else's work made long is not believed for ever, though its number of rows is not chosen any more. */
static void test_disturbed(void **state) {
    depth_costs c = { 0 };
    depth_offer o = { .n = 8, .p = 0.95 };
    int         deep = 0;
    (void)state;
    for (int i = 0; i < 10; i++) depth_measure(&c, 1, time_of(1));
    for (int rows = 3; rows <= 9; rows++) depth_measure(&c, rows, 20 * time_of(rows));
    for (int i = 0; i < 300; i++) {
        depth_choose(&o, 1, &c, 1, 1, 16);
        depth_measure(&c, 1 + o.take, time_of(1 + o.take));
        deep += i >= 200 && o.take >= 3;
    }
    assert_true(deep >= 90);
}

static double speed(const double *p, const int *n, int sequences, const double *cost) {
    double tokens = sequences, spent = 0;
    int    rows = sequences;
    for (int s = 0; s < sequences; s++) {
        for (int k = 1; k <= n[s]; k++) tokens += pow(p[s], k);
        rows += n[s];
        spent += n[s] * cost[s];
    }
    return tokens / (time_of(rows) + spent);
}

static void test_choice(void **state) {
    depth_costs c;
    uint64_t    seed = 3;
    (void)state;
    learn(&c);
    for (int round = 0; round < 300; round++) {
        double p[3], cost[3];
        int    sequences = 1 + (int)(test_random(&seed) % 3), n[3] = { 0 };
        for (int s = 0; s < 3; s++) {
            p[s] = (double)(test_random(&seed) % 100) / 100;
            cost[s] = test_random(&seed) % 2 ? 0 : 1e-4;
        }
        for (int s = 1; s < 3; s++)
            cost[s] = cost[0]; /* one drafter for all: then falling chances are the best order */
        depth_offer offers[3];
        for (int s = 0; s < sequences; s++) offers[s] = (depth_offer){ .n = 7, .p = p[s], .cost = cost[s] };
        depth_choose(offers, sequences, &c, sequences, sequences, 64);
        double best = 0;
        for (n[0] = 0; n[0] <= 7; n[0]++) {
            for (n[1] = 0; n[1] <= (sequences > 1 ? 7 : 0); n[1]++) {
                for (n[2] = 0; n[2] <= (sequences > 2 ? 7 : 0); n[2]++) best = fmax(best, speed(p, n, sequences, cost));
            }
        }
        for (int s = 0; s < 3; s++) n[s] = s < sequences ? offers[s].take : 0;
        if (speed(p, n, sequences, cost) < 0.97 * best)
            fail_msg("p %.2f %.2f %.2f: depths %d %d %d", p[0], p[1], p[2], n[0], n[1], n[2]);
    }
}

/* Certain tokens are taken, poor ones are not, and a step that is full has none. */
static void test_edges(void **state) {
    depth_costs c;
    depth_offer o = { .n = 6, .n_sure = 3, .p = 0 };
    (void)state;
    learn(&c);
    depth_choose(&o, 1, &c, 1, 1, 64);
    assert_int_equal(o.take, 3);
    o.n_sure = 0;
    depth_choose(&o, 1, &c, 1, 1, 64);
    assert_int_equal(o.take, 0);
    o.p = 0.9;
    depth_choose(&o, 1, &c, 1, 1, 3);
    assert_int_equal(o.take, 2);
    depth_choose(&o, 1, &c, 32, 32, 32);
    assert_int_equal(o.take, 0);
}

/* Of ten thousand rounds with a drafter that is never right, under one per cent draft. */
static void test_never_right(void **state) {
    depth_costs c;
    depth_odds  o = { .p = 0.7, .n = 2 };
    int         tried = 0;
    (void)state;
    learn(&c);
    for (int i = 0; i < 10000; i++) {
        depth_offer offer = { .n = 8, .p = o.p };
        depth_choose(&offer, 1, &c, 1, 1, 64);
        if (offer.take == 0 && !depth_probe(&o)) continue;
        tried++;
        depth_learn(&o, false, DEPTH_OWN);
    }
    assert_true(tried > 10 && tried < 100);
    depth_learn(&o, true, DEPTH_OWN); /* one that is right is followed by others soon */
    int waited = 0;
    while (!depth_probe(&o)) waited++;
    assert_true(waited < 8);
}

/* Of one sequence alone it is the speed of the best choice. */
static void test_worth(void **state) {
    depth_costs c;
    uint64_t    seed = 4;
    (void)state;
    learn(&c);
    for (int round = 0; round < 200; round++) {
        depth_offer o = { .n = (int)(test_random(&seed) % 12),
                          .p = (double)(test_random(&seed) % 100) / 100,
                          .cost = test_random(&seed) % 2 ? 0 : 2e-4 };
        double      best = 0;
        for (int n = 0; n <= o.n; n++) best = fmax(best, speed(&o.p, &n, 1, &o.cost) * time_of(1));
        assert_true(fabs(depth_worth(&o, &c) - best) < 0.03 * best);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs), cmocka_unit_test(test_disturbed), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_worth), cmocka_unit_test(test_edges),     cmocka_unit_test(test_never_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

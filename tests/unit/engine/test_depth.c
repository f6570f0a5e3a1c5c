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
    for (int i = 0; i < 200; i++) depth_measure(&c, 1, 2 * time_of(1)); /* contexts have grown: the scale moves */
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

/* After a while a drafter that is never right is asked in less than one per cent of the rounds. */
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
        tried += i >= 5000;
        depth_learn(&o, false, DEPTH_OWN);
    }
    assert_true(tried > 10 && tried < 50);
    depth_learn(&o, true, DEPTH_OWN); /* one that is right is followed by others soon */
    int waited = 0;
    while (!depth_probe(&o)) waited++;
    assert_true(waited < 8);
}

/* --- a simulated clock --------------------------------------------------------------------------------------------- */

/* A machine, a drafter and all that the engine keeps of them. */
typedef struct world {
    double       t[DEPTH_ROWS + 1]; /* of a step, by rows */
    double       p, guess_s;
    double       disturbed; /* so many of the steps seem to take up to four times as long */
    uint64_t     seed;
    depth_costs  costs;
    depth_odds   all;
    depth_budget budget;
} world;

static double chance(uint64_t *seed) { return (double)(test_random(seed) % 1000000) * 1e-6; }

static world world_of(double p, double first, double guess_s, uint64_t seed) {
    world w = { .p = p, .guess_s = guess_s, .seed = seed, .all = { .p = first, .n = 2 } };
    w.budget.left = DEPTH_CREDIT;
    return w;
}

/* One step of a sequence that wants `left` more tokens; the tokens it gave. */
static int live(world *w, depth_odds *own, int left, bool drafts, double *clock) {
    depth_offer o = { .n = left - 1 < 16 ? left - 1 : 16, .p = own->p, .cost = w->guess_s };
    int         right = 0;
    if (!drafts) o.n = 0;
    depth_choose(&o, 1, &w->costs, 1, 1, 33);
    if (o.take == 0 && o.n > 0 && depth_probe(own)) o.take = 1;
    depth_afford(&w->budget, &o, 1, &w->costs, 1, 1);
    for (bool well = true; well && right < o.take;) {
        well = chance(&w->seed) < w->p;
        depth_learn(own, well, DEPTH_OWN);
        depth_learn(&w->all, well, DEPTH_ALL);
        right += well;
    }
    if (own->pause > 0) w->all.pause = own->pause;
    double step = w->t[1 + o.take];
    double other = chance(&w->seed) < w->disturbed ? 3 * chance(&w->seed) : 0;
    depth_measure(&w->costs, 1 + o.take, step * (1 + other));
    depth_account(&w->budget, &w->costs, 1, 1 + o.take, 1 + right, o.take * w->guess_s);
    *clock += step + o.take * w->guess_s;
    return 1 + right;
}

/* The time of an answer. */
static double answer(world *w, int n, bool drafts) {
    depth_odds own = depth_begin(&w->all);
    double     clock = 0;
    for (int at = 0; at < n;) at += live(w, &own, n - at, drafts, &clock);
    return clock;
}

/* Nearly flat up to some rows, then steeper. */
static void any_costs(world *w, uint64_t *seed) {
    double flat = 0.3 * chance(seed), steep = 0.5 * chance(seed);
    int    bend = 2 + (int)(test_random(seed) % 10);
    for (int r = 1; r <= DEPTH_ROWS; r++) w->t[r] = 1e-3 * (1 + flat * (r - 1) + (r > bend ? steep * (r - bend) : 0));
}

/* A drafter that is never right costs one per cent and the budget's first credit at most, at every moment: whatever steps
 * and guesses take, however well it is thought of at first, however short or long answers are. One
 * that is right for a while and then is not costs what the budget keeps instead of the credit. What is known of costs may
 * be a little wrong: half a step. */
static void test_loses_little(void **state) {
    uint64_t seed = 5;
    (void)state;
    for (int round = 0; round < 80; round++) {
        bool   never = round < 60;
        double spent = 0, most = 0, allowed = (never ? DEPTH_CREDIT : DEPTH_MOST_LEFT) + 0.5;
        int    tokens = 0;
        world  w = world_of(0, chance(&seed), test_random(&seed) % 2 ? 0 : 0.3e-3 * chance(&seed), seed);
        any_costs(&w, &seed);
        for (int a = 0; a < 40; a++) {
            int n = 1 + (int)(test_random(&seed) % 200);
            w.p = never || test_random(&seed) % 3 ? 0 : 0.95;
            tokens += n;
            spent += 1e3 * answer(&w, n, true);
            double saved = 1.01 * tokens - spent;
            most = fmax(most, saved);
            if (most - saved > allowed) fail_msg("round %d, answer %d: %.1f steps lost", round, a, most - saved);
        }
        if (never && spent > 1.01 * tokens) fail_msg("round %d: %.1f steps for %d tokens", round, spent, tokens);
    }
}

/* The best that somebody could do who knows p and t(R) beforehand: the time of n more tokens. */
static double best_time(const world *w, int n) {
    double best[512] = { 0 };
    for (int left = 1; left <= n; left++) {
        for (int take = 0; take <= 16 && take < left; take++) {
            double time = w->t[1 + take], reached = 1;
            for (int k = 0; k <= take; k++, reached *= w->p)
                time += reached * (k < take ? 1 - w->p : 1) * best[left - 1 - k];
            if (take == 0 || time < best[left]) best[left] = time;
        }
    }
    return best[n];
}

/* Answers with drafts, each behind one without, come near that: the costs that were learned are not forgotten while nobody
 * drafts, chances are known soon, and few steps go into trying. Other work, which makes every third step longer than it is,
 * does not change much. */
static void test_reaches_best(void **state) {
    /* Four rows as one, then tiles of eight; and a small model, whose rows cost more. */
    static const double curves[2][18] = {
        { 0, 1, 0.95, 1, 1.05, 1.18, 1.25, 1.23, 1.22, 1.34, 1.46, 1.58, 1.7, 1.8, 1.9, 2, 2.1, 2.2 },
        { 0, 1, 0.91, 1.05, 1.14, 1.59, 1.5, 1.48, 1.72, 2, 2.36, 2.5, 2.64, 2.7, 2.8, 2.9, 3.07, 3.2 },
    };
    static const double chances[] = { 0.5, 0.7, 0.8, 0.9 };
    (void)state;
    for (int k = 0; k < 16; k++) {
        double spent = 0;
        world  w = world_of(chances[k % 4], 0.4, 0, (uint64_t)k + 1);
        w.disturbed = k < 8 ? 0 : 0.33;
        for (int r = 1; r <= DEPTH_ROWS; r++) w.t[r] = 1e-3 * curves[k / 4 % 2][r < 17 ? r : 17];
        for (int a = 0; a < 40; a++) {
            (void)answer(&w, 100, false);
            spent += answer(&w, 100, true);
        }
        double best = 40 * best_time(&w, 100);
        if (best < (k < 8 ? 0.94 : 0.85) * spent)
            fail_msg("case %d, p %.1f: %.3f of the best", k / 4, w.p, best / spent);
    }
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
        cmocka_unit_test(test_costs),        cmocka_unit_test(test_disturbed),    cmocka_unit_test(test_choice),
        cmocka_unit_test(test_worth),        cmocka_unit_test(test_edges),        cmocka_unit_test(test_never_right),
        cmocka_unit_test(test_loses_little), cmocka_unit_test(test_reaches_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

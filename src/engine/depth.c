/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/depth.h"

#include <stddef.h>

enum { FIRST_PAUSE = 4, LONGEST_PAUSE = 128, DOUBT_AFTER = 12, FORGET_AFTER = 512, PLAIN_AFTER = 256 };

static const double LEAST_GAIN = 1.005;   /* less is noise, and not worth the rows of others */
static const double UNKNOWN_SLOPE = 0.05; /* of t(R) where nothing was measured: low, so that it will be */
static const double LEAST_SLOPE = 0.01;
static const double DOUBT_RATE = 0.05, FORGET_RATE = 0.02;
static const double CURIOSITY = 0.95; /* of what lies between two measurements, so that it will be measured, too */
static const double MAY_LOSE = 0.01;  /* of the time that generating takes */
static const double CLAMP = 0.25;
/* How fast a measurement counts. Other work only makes a step longer, so longer ones count less. */
typedef struct pace {
    double shorter, longer;
} pace;
static const pace RATIO_PACE = { 0.3, 0.03 }, SCALE_PACE = { 0.3, 0.03 }, DRIFT_PACE = { 0.1, 0.01 };

static double clamp(double x, double around) {
    double lo = around * (1 - CLAMP), hi = around * (1 + CLAMP);
    return x < lo ? lo : x > hi ? hi : x;
}

static double nearer(double known, double now, pace p) {
    double to = clamp(now, known);
    return known + (to < known ? p.shorter : p.longer) * (to - known);
}

/* What so many rows take at most: two steps could share them. */
static double most_of(const depth_costs *c, int rows) {
    double most[DEPTH_ROWS + 1] = { 0, 1 };
    if (rows > DEPTH_ROWS) rows = DEPTH_ROWS;
    for (int r = 2, known = 1; r <= rows; r++) {
        double halves = most[r / 2] + most[r - r / 2];
        most[r] = most[known] + most[r - known];
        if (halves < most[r]) most[r] = halves;
        if (c->n[r] == 0) continue;
        if (c->measured[r] < most[r]) most[r] = c->measured[r];
        known = r;
    }
    return most[rows];
}

/* Other work only makes a step longer: of the first two measurements the shorter one is believed. */
static void learn_ratio(depth_costs *c, int rows, double now) {
    double *known = &c->measured[rows], most = most_of(c, rows);
    if (c->n[rows] == 2)
        *known = nearer(*known, now, RATIO_PACE);
    else if (c->n[rows] == 0)
        *known = now < most ? now : most;
    else if (now < *known)
        *known = now;
    if (c->n[rows] < 2) c->n[rows]++;
    c->ratio[rows] = *known;
    c->passed[rows] = 0;
}

void depth_measure(depth_costs *c, int rows, double seconds) {
    if (rows < 1 || rows > DEPTH_ROWS || !(seconds > 0)) return;
    if (c->scale <= 0) c->scale = seconds / depth_ratio(c, rows);
    double before = rows == 1 ? 1 : c->n[rows] == 2 ? c->measured[rows] : 0;
    if (rows > 1) learn_ratio(c, rows, seconds / c->scale);
    /* A step that was interrupted says little, and a number of rows that is not known yet says nothing of others. */
    if (before > 0) c->scale = nearer(c->scale, seconds / before, rows == 1 ? SCALE_PACE : DRIFT_PACE);
}

/* Another number of rows was chosen: what was passed over often slowly counts as cheaper. */
static void pass_over(depth_costs *c, int chosen, int below) {
    for (int r = 2; r <= below; r++) {
        bool doubted = c->n[r] == 1;
        if (r == chosen || c->ratio[r] <= 1) continue;
        if (c->passed[r] < (doubted ? DOUBT_AFTER : FORGET_AFTER))
            c->passed[r]++;
        else
            c->ratio[r] -= (doubted ? DOUBT_RATE : FORGET_RATE) * (c->ratio[r] - 1);
    }
}

/* Beyond what was measured the rise goes on as it was lately: from half as many rows to the most. */
static double slope_at(const depth_costs *c, int rows) {
    int half = (rows + 1) / 2;
    if (rows <= 1 || rows > DEPTH_ROWS) return UNKNOWN_SLOPE;
    double slope = (c->ratio[rows] - depth_ratio(c, half)) / (rows - half);
    return slope > LEAST_SLOPE ? slope : LEAST_SLOPE;
}

double depth_ratio(const depth_costs *c, int rows) {
    int lo = rows, hi = rows;
    if (rows <= 1) return 1;
    while (lo > 1 && c->ratio[lo] <= 0) lo--;
    while (hi <= DEPTH_ROWS && c->ratio[hi] <= 0) hi++;
    double low = lo > 1 ? c->ratio[lo] : 1;
    if (lo == rows) return low;
    if (hi <= DEPTH_ROWS) return CURIOSITY * (low + (c->ratio[hi] - low) * (rows - lo) / (hi - lo));
    return low + slope_at(c, lo) * (rows - lo);
}

void depth_learn(depth_odds *o, bool right, int memory) {
    if (o->n < memory) o->n++;
    o->p += ((right ? 1.0 : 0.0) - o->p) / (o->n + 1);
    o->quiet = 0;
    if (right) o->pause = FIRST_PAUSE;
}

depth_odds depth_begin(const depth_odds *all) {
    depth_odds own = *all;
    if (own.n > 2) own.n = 2; /* its own outcomes soon count for more */
    own.quiet = 0;
    return own;
}

bool depth_probe(depth_odds *o) {
    if (o->pause < FIRST_PAUSE) o->pause = FIRST_PAUSE;
    if (++o->quiet < o->pause) return false;
    o->quiet = 0;
    if (o->pause < LONGEST_PAUSE) o->pause *= 2;
    return true;
}

/* What one second of guessing is in steps of one row; before one was measured, a step of a small model. */
static double steps_of(const depth_costs *c, double seconds) { return seconds / (c->scale > 0 ? c->scale : 1e-3); }

double depth_worth(const depth_offer *o, const depth_costs *c) {
    double tokens = 1, chance = 1, cost = 0, best = 1;
    for (int k = 1; k <= o->n && k < DEPTH_ROWS; k++) {
        if (k > o->n_sure) {
            chance *= o->p;
            cost += steps_of(c, o->cost);
        }
        tokens += chance;
        double speed = tokens / (depth_ratio(c, k + 1) + cost);
        if (speed > best) best = speed;
    }
    return best;
}

/* The most rows to try: nothing before something was measured, and then at most twice as many as were. */
static int rows_to_try(const depth_costs *c, int rows) {
    int known = DEPTH_ROWS;
    if (c->scale <= 0) return 0;
    while (known > rows && c->n[known] == 0) known--;
    return 2 * known;
}

static depth_offer *likeliest(depth_offer *offers, int n_offers) {
    depth_offer *best = 0;
    for (int i = 0; i < n_offers; i++) {
        if (offers[i].take < offers[i].n && (!best || offers[i].next > best->next)) best = &offers[i];
    }
    return best;
}

void depth_choose(depth_offer *offers, int n_offers, depth_costs *c, int sequences, int rows, int max_rows) {
    depth_offer *order[DEPTH_ROWS];
    int          n = 0, best_n = 0, least = rows;
    double       tokens = sequences, cost = 0;
    if (max_rows > DEPTH_ROWS) max_rows = DEPTH_ROWS;
    if (max_rows > rows_to_try(c, rows)) max_rows = rows_to_try(c, rows);
    if (c->drafted >= PLAIN_AFTER) max_rows = rows;
    double best = tokens / depth_ratio(c, rows) * LEAST_GAIN;
    for (int i = 0; i < n_offers; i++) {
        offers[i].take = 0;
        offers[i].next = offers[i].n_sure > 0 ? 1 : offers[i].p;
    }
    for (depth_offer *o; rows < max_rows && (o = likeliest(offers, n_offers)); rows++) {
        tokens += o->next;
        if (o->take >= o->n_sure) cost += steps_of(c, o->cost);
        order[n++] = o;
        if (++o->take >= o->n_sure) o->next *= o->p;
        double speed = tokens / (depth_ratio(c, rows + 1) + cost);
        if (speed <= best) continue;
        best = speed;
        best_n = n;
    }
    for (int i = 0; i < n_offers; i++) offers[i].take = 0;
    for (int i = 0; i < best_n; i++) order[i]->take++;
    if (best_n > 0) pass_over(c, least + best_n, rows);
    c->drafted = best_n > 0 ? c->drafted + 1 : 0;
}

/* What is lost if all that is not certain is wrong. */
static double at_stake(const depth_offer *offers, int n_offers, const depth_costs *c, int sequences, int rows) {
    double cost = 0;
    int    sure = 0;
    for (int i = 0; i < n_offers; i++) {
        int guessed = offers[i].take > offers[i].n_sure ? offers[i].take - offers[i].n_sure : 0;
        cost += guessed * steps_of(c, offers[i].cost);
        rows += offers[i].take;
        sure += offers[i].take - guessed;
    }
    return most_of(c, rows) + cost - depth_ratio(c, sequences) * (sequences + sure) / sequences;
}

void depth_afford(const depth_budget *b, depth_offer *offers, int n_offers, const depth_costs *c, int sequences,
                  int rows) {
    while (at_stake(offers, n_offers, c, sequences, rows) > b->left) {
        depth_offer *deepest = NULL;
        int          guessed = 0;
        for (int i = 0; i < n_offers; i++) {
            int n = offers[i].take - offers[i].n_sure;
            if (n <= 0) continue;
            guessed += n;
            if (!deepest || n > deepest->take - deepest->n_sure) deepest = &offers[i];
        }
        if (guessed == 0 || (guessed == 1 && b->left > 0)) return;
        deepest->take--;
    }
}

void depth_account(depth_budget *b, const depth_costs *c, int sequences, int rows, int tokens, double guess_s) {
    if (sequences < 1 || rows > DEPTH_ROWS) return;
    double guess = steps_of(c, guess_s); /* the first time it is that of cold memory, too: within reason */
    double spent = depth_ratio(c, rows) + (guess < rows ? guess : rows);
    double alone = depth_ratio(c, sequences) * tokens / sequences; /* what these tokens take without drafts */
    b->left += alone - spent + MAY_LOSE * alone;
    if (b->left > DEPTH_MOST_LEFT) b->left = DEPTH_MOST_LEFT;
    if (b->left < -DEPTH_MOST_OWED) b->left = -DEPTH_MOST_OWED;
}

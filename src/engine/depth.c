/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/depth.h"

enum { FIRST_PAUSE = 4, LONGEST_PAUSE = 512, FORGET_AFTER = 96 };

static const double LEAST_GAIN = 1.005;   /* less is noise, and not worth the rows of others */
static const double UNKNOWN_SLOPE = 0.05; /* of t(R) where nothing was measured: low, so that it will be */
static const double LEAST_SLOPE = 0.01;
static const double MOST_AT_FIRST = 1.5; /* times what the neighbours let expect */
static const double FORGET_RATE = 0.02;
static const double RATIO_RATE = 0.3, SCALE_RATE = 0.3, DRIFT_RATE = 0.1, CLAMP = 0.25;

static double clamp(double x, double around) {
    double lo = around * (1 - CLAMP), hi = around * (1 + CLAMP);
    return x < lo ? lo : x > hi ? hi : x;
}

/* What was not measured lately moves towards the cost of one row. */
static void forget(depth_costs *c, int rows) {
    c->since[rows] = 0;
    for (int r = 2; r <= DEPTH_ROWS; r++) {
        if (r == rows || c->ratio[r] <= 1) continue;
        if (c->since[r] < FORGET_AFTER)
            c->since[r]++;
        else
            c->ratio[r] -= FORGET_RATE * (c->ratio[r] - 1);
    }
}

static double first_ratio(const depth_costs *c, int rows, double now) {
    double most = MOST_AT_FIRST * depth_ratio(c, rows);
    return now < 1 ? 1 : now > most ? most : now;
}

void depth_measure(depth_costs *c, int rows, double seconds) {
    if (rows < 1 || rows > DEPTH_ROWS || !(seconds > 0)) return;
    if (c->scale <= 0) c->scale = seconds / depth_ratio(c, rows);
    /* A step that was interrupted says little. */
    double scale = clamp(seconds / depth_ratio(c, rows), c->scale);
    if (rows > 1) {
        double known = c->ratio[rows], now = seconds / c->scale;
        c->ratio[rows] = known > 0 ? known + RATIO_RATE * (clamp(now, known) - known) : first_ratio(c, rows, now);
    }
    forget(c, rows);
    c->scale += (rows == 1 ? SCALE_RATE : DRIFT_RATE) * (scale - c->scale);
}

double depth_ratio(const depth_costs *c, int rows) {
    int lo = rows, hi = rows;
    if (rows <= 1) return 1;
    while (lo > 1 && c->ratio[lo] <= 0) lo--;
    while (hi <= DEPTH_ROWS && c->ratio[hi] <= 0) hi++;
    double low = lo > 1 ? c->ratio[lo] : 1;
    if (lo == rows) return low;
    if (hi <= DEPTH_ROWS) return low + (c->ratio[hi] - low) * (rows - lo) / (hi - lo);
    double slope = lo > 1 ? (low - 1) / (lo - 1) : UNKNOWN_SLOPE;
    return low + (slope > LEAST_SLOPE ? slope : LEAST_SLOPE) * (rows - lo);
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

static depth_offer *likeliest(depth_offer *offers, int n_offers) {
    depth_offer *best = 0;
    for (int i = 0; i < n_offers; i++) {
        if (offers[i].take < offers[i].n && (!best || offers[i].next > best->next)) best = &offers[i];
    }
    return best;
}

void depth_choose(depth_offer *offers, int n_offers, const depth_costs *c, int sequences, int rows, int max_rows) {
    depth_offer *order[DEPTH_ROWS];
    int          n = 0, best_n = 0;
    double       tokens = sequences, cost = 0;
    if (max_rows > DEPTH_ROWS) max_rows = DEPTH_ROWS;
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
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the quantizers: the IQ types whose elements are rows of a codebook, IQ1_S to IQ3_S.
 *
 * All of them store x ~ d * unit * (2 s + 1) * v: v is a row of 8 or 4 small numbers, s a few bits per group of elements,
 * d the block's half. A group is fitted in three steps. First every element may take any level (a lane is a trial scale):
 * that finds the few scales worth a closer look. Under each of those the best row of the codebook is found for all groups
 * of the block at once (a lane is a row of elements); the cost of a row is the sum of two entries of small tables, by its
 * halves. Then the scales are solved for. From them follows d; with s and d rounded, every row is chosen once more, under
 * the neighbours of s, too, and d is solved for again; all of this twice. Of rows that cost the same the first counts,
 * whatever the number of lanes.
 *
 * In the types with seven sign bits for eight elements the number of minus signs is even: where it is odd, the element
 * that costs least is given the other sign before anything else; once the scales are known, the next two may be cheaper.
 */
#ifndef TENSOR_QUANT_GRID_H
#define TENSOR_QUANT_GRID_H

#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"
#include "tensor/quant/fit.h"

#include <string.h>

typedef struct grid_shape {
    const uint16_t *grid;
    int             n_points, width, bits; /* elements of a row, bits of a level's index */
    int             n_levels;
    float           level[8];
    int             group, smax;
    float           unit;
    bool            even;  /* an even number of minus signs in eight elements */
    bool            shift; /* IQ1: v is the row plus or minus 1/8, one choice per `shared` elements; no signs */
    int             shared;
    int             looks; /* at scales of a group, before d is known */
    bool            odd;   /* the levels are 1, 3, ... 15 */
} grid_shape;

/* The rows of a codebook by their upper halves: those from first[k] up to first[k + 1] have upper[k]. */
typedef struct grid_runs {
    uint16_t first[257];
    uint8_t  upper[256];
    int      n;
} grid_runs;

/* A block under way: magnitudes (IQ1: the numbers), signs, and what was chosen. */
typedef struct grid_block {
    float        y[256];
    const float *w;
    uint8_t      sign[32];  /* of eight elements, bit set: minus */
    int          point[64]; /* of each row */
    bool         minus[64]; /* IQ1: the shift of each row */
    float        scale[16], curve[16];
    int          s[16];
    uint16_t     d_half;
    grid_runs    runs;
} grid_block;

enum { GRID_TRIALS = 32, GRID_LOOKS = 4, GRID_ROUNDS = 2 };

/* --- codebook rows ----------------------------------------------------------------------------------------------- */

static inline float grid_level(const grid_shape *g, int index, float shift) { return g->level[index] + shift; }

static inline int grid_half(const grid_shape *g) { return g->width * g->bits / 2; }

/* Codebooks are sorted, so equal upper halves follow each other. */
static inline void grid_find_runs(const grid_shape *g, grid_runs *r) {
    int half = grid_half(g), last = -1;
    r->n = 0;
    for (int i = 0; i < g->n_points; i++) {
        int upper = g->grid[i] >> half;
        if (upper == last) continue;
        r->first[r->n] = (uint16_t)i;
        r->upper[r->n++] = (uint8_t)upper;
        last = upper;
    }
    r->first[r->n] = (uint16_t)g->n_points;
}

/* What rows cost: table[0] by their lower, table[1] by their upper halves, LANES rows of elements side by side. */
typedef struct grid_costs {
    float table[2][256][LANES];
    float least[LANES]; /* no lower half costs less */
} grid_costs;

/* Every level of every element: y, w are [width][LANES]. */
static inline void grid_level_costs(const grid_shape *g, const float *y, const float *w, vf scale, float shift,
                                    vf cost[8][8], vf *least) {
    *least = v_set(0);
    for (int j = 0; j < g->width; j++) {
        vf yj = v_load(y + j * LANES), wj = v_load(w + j * LANES), low = v_set(INFINITY);
        for (int l = 0; l < g->n_levels; l++) {
            vf v = scale * v_set(grid_level(g, l, shift));
            cost[j][l] = wj * v * (v - (yj + yj));
            low = v_min(cost[j][l], low);
        }
        if (j < g->width / 2) *least += low;
    }
}

static inline void grid_tables(const grid_shape *g, const float *y, const float *w, vf scale, float shift,
                               grid_costs *out) {
    vf  cost[8][8], least;
    int n = g->n_levels;
    grid_level_costs(g, y, w, scale, shift, cost, &least);
    v_store(out->least, least);
    for (int h = 0; h < 2; h++) {
        const vf(*c)[8] = cost + h * g->width / 2;
        for (int b = 0; b < n; b++) {
            for (int a = 0; a < n; a++) {
                vf pair = c[0][a] + c[1][b];
                if (g->width == 4) v_store(out->table[h][a | b << g->bits], pair);
                for (int e = 0; e < n && g->width == 8; e++) {
                    for (int f = 0; f < n; f++)
                        v_store(out->table[h][a | b << 2 | e << 4 | f << 6], pair + (c[2][e] + c[3][f]));
                }
            }
        }
    }
}

/* A little more than what the rows with the cheapest upper half cost at best: most other rows need not be looked at. */
static inline vf grid_bound(const grid_shape *g, const grid_runs *r, const grid_costs *t) {
    float    bound[LANES], run[LANES];
    unsigned mask = (1u << grid_half(g)) - 1;
    vf       low = v_set(INFINITY), at = v_set(0);
    for (int k = 0; k < r->n; k++) {
        vf c = v_load(t->table[1][r->upper[k]]);
        at = v_pick_less(c, low, v_set((float)k), at);
        low = v_min(c, low);
    }
    v_store(run, at);
    for (int l = 0; l < LANES; l++) {
        float best = INFINITY;
        int   k = (int)run[l];
        for (int i = r->first[k]; i < r->first[k + 1]; i++) {
            float c = t->table[0][g->grid[i] & mask][l] + t->table[1][r->upper[k]][l];
            best = c < best ? c : best;
        }
        bound[l] = best + 1e-6f * fabsf(best) + 1e-38f;
    }
    return v_load(bound);
}

/* The rows of the codebook that cost least for LANES rows of elements, each under its own scale. */
static inline void grid_search(const grid_shape *g, const grid_runs *r, const float *y, const float *w,
                               const float *scale, float shift, float *point, float *cost) {
    grid_costs t;
    unsigned   mask = (1u << grid_half(g)) - 1;
    grid_tables(g, y, w, v_load(scale), shift, &t);
    vf best = grid_bound(g, r, &t), least = v_load(t.least), at = v_set(0);
    for (int k = 0; k < r->n; k++) {
        vf upper = v_load(t.table[1][r->upper[k]]);
        if (!v_any_less(upper + least, best)) continue;
        for (int i = r->first[k]; i < r->first[k + 1]; i++) {
            vf c = v_load(t.table[0][g->grid[i] & mask]) + upper;
            at = v_pick_less(c, best, v_set((float)i), at);
            best = v_min(c, best);
        }
    }
    v_store(point, at);
    v_store(cost, best);
}

/* Adds the products of a row that was chosen. */
static inline void grid_sums(const grid_shape *g, const float *y, const float *w, int point, float shift, float *xv,
                             float *vv) {
    unsigned code = g->grid[point], mask = (1u << g->bits) - 1;
    for (int j = 0; j < g->width; j++) {
        float v = grid_level(g, (int)(code >> (g->bits * j) & mask), shift);
        *xv += w[j] * y[j] * v;
        *vv += w[j] * v * v;
    }
}

/* The best rows of a whole block: point and cost of each, groups under their scales. */
static inline void grid_choose(const grid_shape *g, const grid_block *b, const float *scale, float shift, float *point,
                               float *cost) {
    int rows = 256 / g->width;
    for (int first = 0; first < rows; first += LANES) {
        float y[8 * LANES], w[8 * LANES], s[LANES];
        for (int l = 0; l < LANES; l++) {
            int at = (first + l) * g->width;
            s[l] = scale[at / g->group];
            for (int j = 0; j < g->width; j++) {
                y[j * LANES + l] = b->y[at + j];
                w[j * LANES + l] = b->w[at + j];
            }
        }
        grid_search(g, &b->runs, y, w, s, shift, point + first, cost + first);
    }
}

/* Chooses all rows under the groups' scales; sums of the products of each group. */
static inline void grid_assign(const grid_shape *g, grid_block *b, const float *scale, float *xv, float *vv) {
    float point[2][64], cost[2][64];
    int   rows = 256 / g->width, together = g->shared ? g->shared / g->width : 1;
    for (int side = 0; side < (g->shift ? 2 : 1); side++)
        grid_choose(g, b, scale, g->shift ? (side ? -0.125f : 0.125f) : 0, point[side], cost[side]);
    for (int i = 0; i < 256 / g->group; i++) xv[i] = vv[i] = 0;
    for (int first = 0; first < rows; first += together) {
        float sum[2] = { 0, 0 };
        for (int r = first; r < first + together && g->shift; r++) {
            sum[0] += cost[0][r];
            sum[1] += cost[1][r];
        }
        bool minus = g->shift && sum[1] < sum[0];
        for (int r = first; r < first + together; r++) {
            int at = r * g->width;
            b->point[r] = (int)point[minus][r];
            b->minus[r] = minus;
            grid_sums(g, b->y + at, b->w + at, b->point[r], g->shift ? (minus ? -0.125f : 0.125f) : 0,
                      &xv[at / g->group], &vv[at / g->group]);
        }
    }
}

/* --- scales ------------------------------------------------------------------------------------------------------ */

/* The levels nearest to t. Codes of odd levels are rounded to at once: with eight of them that is a third of the fit. */
static inline vf grid_round(const grid_shape *g, vf t) {
    if (g->odd) return v_max(v_min(v_round((t - v_set(1)) * v_set(0.5f)) * v_set(2) + v_set(1), v_set(15)), v_set(1));
    vf v = v_set(g->level[0]);
    for (int l = 0; l + 1 < g->n_levels; l++)
        v += v_if_greater(t, v_set(0.5f * (g->level[l] + g->level[l + 1])), v_set(g->level[l + 1] - g->level[l]));
    return v;
}

/* How well the elements of a group can be had under each inverse scale, if every row were in the codebook. */
static inline void grid_gains(const grid_shape *g, const float *y, const float *w, const float *inverse,
                              const float *shift, float *gain) {
    for (int k = 0; k < GRID_TRIALS; k += LANES) {
        vf inv = v_load(inverse + k), d = v_load(shift + k), xv = v_set(0), vv = v_set(0);
        for (int i = 0; i < g->group; i++) {
            vf v = grid_round(g, v_set(y[i]) * inv - d) + d, wv = v * v_set(w[i]);
            xv += wv * v_set(y[i]);
            vv += wv * v;
        }
        float a[LANES], b[LANES];
        v_store(a, xv);
        v_store(b, vv);
        for (int l = 0; l < LANES; l++) gain[k + l] = b[l] > 0 && a[l] > 0 ? a[l] * a[l] / b[l] : 0;
    }
}

static inline void grid_trials(const grid_shape *g, float peak, float *inverse, float *shift) {
    for (int k = 0; k < GRID_TRIALS; k++) {
        int   pair = k / 2;
        float t = g->shift ? 1.0f + 0.2f * (float)pair : 0.5f + 0.035f * (float)k;
        inverse[k] = g->level[g->n_levels - 1] * t / peak;
        shift[k] = g->shift ? (k % 2 ? -0.125f : 0.125f) : 0;
    }
}

/* The trials of a group; gains of zero where there is nothing to fit. */
static inline void grid_first(const grid_shape *g, const grid_block *b, int index, float *inverse, float *gain) {
    const float *y = b->y + index * g->group, *w = b->w + index * g->group;
    float        shift[GRID_TRIALS], peak = 0;
    for (int i = 0; i < g->group; i++) peak = fabsf(y[i]) > peak ? fabsf(y[i]) : peak;
    memset(gain, 0, GRID_TRIALS * sizeof *gain);
    if (!(peak > 0)) return;
    grid_trials(g, peak, inverse, shift);
    grid_gains(g, y, w, inverse, shift, gain);
}

/* The scale with the most to gain of those that are left; it and its neighbours are taken out. 0: none. */
static inline float grid_next(const grid_shape *g, const float *inverse, float *gain) {
    int at = 0, step = g->shift ? 4 : 2;
    for (int k = 1; k < GRID_TRIALS; k++)
        if (gain[k] > gain[at]) at = k;
    if (!(gain[at] > 0)) return 0;
    for (int k = at - step; k <= at + step; k++)
        if (k >= 0 && k < GRID_TRIALS) gain[k] = 0;
    return 1 / inverse[at];
}

/* Fits all groups: their scales and how steeply the error grows beside them. */
static inline void grid_fit(const grid_shape *g, grid_block *b) {
    float inverse[16][GRID_TRIALS], gain[16][GRID_TRIALS], best[16] = { 0 }, scale[16], xv[16], vv[16];
    int   groups = 256 / g->group;
    for (int i = 0; i < groups; i++) grid_first(g, b, i, inverse[i], gain[i]);
    for (int look = 0; look <= g->looks; look++) {
        /* The last look: around what was solved for. */
        for (int i = 0; i < groups; i++) scale[i] = look < g->looks ? grid_next(g, inverse[i], gain[i]) : b->scale[i];
        grid_assign(g, b, scale, xv, vv);
        for (int i = 0; i < groups; i++) {
            if (!(scale[i] > 0 && xv[i] > 0 && vv[i] > 0 && xv[i] * xv[i] / vv[i] > best[i])) continue;
            best[i] = xv[i] * xv[i] / vv[i];
            b->scale[i] = xv[i] / vv[i];
            b->curve[i] = vv[i];
        }
    }
}

static inline int grid_code(const grid_shape *g, float scale, float step) {
    return fit_round(fit_divide(scale, 2 * step) - 0.5f, 0, g->smax);
}

/* d from the groups' scales: the step whose odd multiples they are nearest to. */
static inline void grid_set_d(const grid_shape *g, grid_block *b) {
    float top = 0, best = INFINITY, step = 0;
    int   groups = 256 / g->group;
    for (int i = 0; i < groups; i++) top = b->scale[i] > top ? b->scale[i] : top;
    for (int k = 0; k < 48 && top > 0; k++) {
        float d = top / (float)(2 * g->smax + 1) * (0.8f + 0.0125f * (float)k), cost = 0;
        for (int i = 0; i < groups; i++) {
            float off = b->scale[i] - d * (float)(2 * grid_code(g, b->scale[i], d) + 1);
            cost += b->curve[i] * off * off;
        }
        if (cost < best) best = cost, step = d;
    }
    b->d_half = tensor_f32_to_f16(step / g->unit);
}

static inline void grid_signs(const grid_shape *g, grid_block *b, const float *x) {
    for (int i = 0; i < 256; i++) b->y[i] = g->shift ? x[i] : fabsf(x[i]);
    for (int r = 0; r < 32 && !g->shift; r++) {
        unsigned bits = 0;
        for (int j = 0; j < 8; j++) bits |= (unsigned)(x[8 * r + j] < 0) << j;
        b->sign[r] = (uint8_t)bits;
    }
}

/* Of eight elements the one whose other sign costs the least but `skip` others, were its magnitude the smallest. */
static inline int grid_cheapest(const grid_block *b, int r, int skip) {
    bool taken[8] = { false };
    for (int k = 0;; k++) {
        int least = -1;
        for (int j = 0; j < 8; j++) {
            if (taken[j]) continue;
            if (least < 0 ||
                b->w[8 * r + j] * fabsf(b->y[8 * r + j]) < b->w[8 * r + least] * fabsf(b->y[8 * r + least]))
                least = j;
        }
        if (k == skip) return least;
        taken[least] = true;
    }
}

static inline void grid_flip(grid_block *b, int r, int j) {
    b->sign[r] ^= (uint8_t)(1u << j);
    b->y[8 * r + j] = -b->y[8 * r + j];
}

/* Where the number of minus signs is odd, one element gets the other. */
static inline void grid_make_even(grid_block *b) {
    for (int r = 0; r < 32; r++)
        if (__builtin_popcount(b->sign[r]) % 2) grid_flip(b, r, grid_cheapest(b, r, 0));
}

/* What eight elements cost, from the costs of their rows. */
static inline float grid_eight(const grid_shape *g, const float *cost, int r) {
    return g->width == 8 ? cost[r] : cost[2 * r] + cost[2 * r + 1];
}

/* The scales are known: another element's sign may be the one that costs least. */
static inline void grid_resign(const grid_shape *g, grid_block *b) {
    float      step = tensor_f16_to_f32(b->d_half) * g->unit, scale[16], point[64], best[64], cost[64];
    grid_block trial = *b;
    for (int i = 0; i < 256 / g->group; i++) scale[i] = step * (float)(2 * b->s[i] + 1);
    grid_choose(g, b, scale, 0, point, best);
    for (int other = 1; other < 3; other++) {
        memcpy(trial.y, b->y, sizeof trial.y);
        memcpy(trial.sign, b->sign, sizeof trial.sign);
        for (int r = 0; r < 32; r++) {
            int flipped = 0;
            while (flipped < 8 && !(b->y[8 * r + flipped] < 0)) flipped++;
            if (flipped == 8) continue;
            grid_flip(&trial, r, flipped);
            grid_flip(&trial, r, grid_cheapest(b, r, other));
        }
        grid_choose(g, &trial, scale, 0, point, cost);
        for (int r = 0; r < 32; r++) {
            if (!(grid_eight(g, cost, r) < grid_eight(g, best, r))) continue;
            memcpy(b->y + 8 * r, trial.y + 8 * r, 8 * sizeof *b->y);
            b->sign[r] = trial.sign[r];
            for (int k = r * 8 / g->width; k < (r + 1) * 8 / g->width; k++) best[k] = cost[k];
        }
    }
}

/* What was chosen for one group. */
static inline void grid_take(const grid_shape *g, grid_block *to, const grid_block *from, int group) {
    int rows = g->group / g->width, at = group * rows;
    memcpy(to->point + at, from->point + at, (size_t)rows * sizeof *to->point);
    memcpy(to->minus + at, from->minus + at, (size_t)rows * sizeof *to->minus);
    to->s[group] = from->s[group];
}

/* The rows of every group under d and its code, or (beside) the codes beside it where those cost less; sums of the
 * products of the whole block, in units of d. */
static inline void grid_settle(const grid_shape *g, grid_block *b, bool beside, float *all_xv, float *all_vv) {
    float      step = tensor_f16_to_f32(b->d_half) * g->unit, scale[16], xv[16], vv[16], best[16], sum[2][16] = { 0 };
    int        groups = 256 / g->group, was[16];
    grid_block trial = *b;
    memcpy(was, b->s, sizeof was);
    for (int i = 0; i < groups; i++) best[i] = INFINITY;
    for (int by = 0; by < (beside ? 3 : 1); by++) {
        for (int i = 0; i < groups; i++) {
            int s = was[i] + (by == 2 ? -1 : by);
            trial.s[i] = s < 0 ? 0 : s > g->smax ? g->smax : s;
            scale[i] = step * (float)(2 * trial.s[i] + 1);
        }
        grid_assign(g, &trial, scale, xv, vv);
        for (int i = 0; i < groups; i++) {
            float cost = scale[i] * (scale[i] * vv[i] - 2 * xv[i]);
            if (!(cost < best[i])) continue;
            best[i] = cost, sum[0][i] = xv[i], sum[1][i] = vv[i];
            grid_take(g, b, &trial, i);
        }
    }
    *all_xv = *all_vv = 0;
    for (int i = 0; i < groups; i++) {
        float k = (float)(2 * b->s[i] + 1);
        *all_xv += k * sum[0][i];
        *all_vv += k * k * sum[1][i];
    }
}

/*
 * The scale with the least error makes a block smaller, by the share of it that is lost: every product with it, and with
 * all others like it, comes out too small, which a model feels more than noise. Half of it is given back. An error hardly
 * grows near its least: a tenth that is lost becomes a fortieth more.
 */
static inline float grid_restored(const grid_block *b, float xv, float vv) {
    float energy = 0;
    for (int i = 0; i < 256; i++) energy += b->w[i] * b->y[i] * b->y[i];
    float lost = 1 - xv * xv / vv / energy;
    return xv / vv * (1 + 0.5f * (lost > 0 ? lost : 0));
}

static inline void grid_quantize(const grid_shape *g, const float *x, const float *w, grid_block *b) {
    float xv, vv;
    memset(b, 0, sizeof *b);
    b->w = w;
    grid_find_runs(g, &b->runs);
    grid_signs(g, b, x);
    if (g->even) grid_make_even(b);
    grid_fit(g, b);
    grid_set_d(g, b);
    float step = tensor_f16_to_f32(b->d_half) * g->unit;
    for (int i = 0; i < 256 / g->group; i++) b->s[i] = grid_code(g, b->scale[i], step);
    for (int round = 0; round < GRID_ROUNDS; round++) {
        if (round == 1 && g->even) grid_resign(g, b);
        grid_settle(g, b, round + 1 == GRID_ROUNDS || g->looks == GRID_LOOKS, &xv, &vv);
        if (!(xv > 0 && vv > 0)) return;
        float d = round + 1 < GRID_ROUNDS ? xv / vv : grid_restored(b, xv, vv);
        b->d_half = tensor_f32_to_f16(d / g->unit);
    }
}

/* --- blocks ------------------------------------------------------------------------------------------------------ */

/* What the types of one kind share is written once; IQ1 has another group and shift per type only. */
#define IQ2(table, points, size, signs)                                                                                \
    {                                                                                                                  \
        .grid = table, .n_points = points, .width = 8, .bits = 2, .n_levels = 3, .level = { 8, 25, 43 },               \
        .group = size, .smax = 15, .unit = 0.125f, .even = signs, .looks = GRID_LOOKS                                  \
    }
#define IQ3(table, points, one, signs, look, odds, ...)                                                                \
    {                                                                                                                  \
        .grid = table, .n_points = points, .width = 4, .bits = 3, .n_levels = 8, .level = { __VA_ARGS__ },             \
        .group = 32, .smax = 15, .unit = one, .even = signs, .looks = look, .odd = odds                                \
    }
#define IQ1(size, together)                                                                                            \
    {                                                                                                                  \
        .grid = tensor_iq1_s_grid, .n_points = 2048, .width = 8, .bits = 2, .n_levels = 3, .level = { -1, 0, 1 },      \
        .group = size, .smax = 7, .unit = 1, .shift = true, .shared = together, .looks = GRID_LOOKS                    \
    }
static const grid_shape shape_iq2_xxs = IQ2(tensor_iq2_xxs_grid, 256, 32, true);
static const grid_shape shape_iq2_xs = IQ2(tensor_iq2_xs_grid, 512, 16, true);
static const grid_shape shape_iq2_s = IQ2(tensor_iq2_s_grid, 1024, 16, false);
static const grid_shape shape_iq3_xxs =
    IQ3(tensor_iq3_xxs_grid, 256, 0.25f, true, GRID_LOOKS, false, 4, 12, 20, 28, 36, 44, 52, 62);
/* Eight levels and any sign: fewer looks find nearly the best. */
static const grid_shape shape_iq3_s = IQ3(tensor_iq3_s_grid, 512, 1, false, 2, true, 1, 3, 5, 7, 9, 11, 13, 15);
static const grid_shape shape_iq1_s = IQ1(32, 32);
static const grid_shape shape_iq1_m = IQ1(16, 8);
#undef IQ2
#undef IQ3
#undef IQ1

static void quant_iq2_xxs(const float *x, const float *w, void *block) {
    block_iq2_xxs *b = block;
    grid_block     f;
    grid_quantize(&shape_iq2_xxs, x, w, &f);
    b->d = f.d_half;
    for (int i = 0; i < 8; i++) {
        uint32_t low = 0, high = (uint32_t)f.s[i] << 28;
        for (int l = 0; l < 4; l++) {
            low |= (uint32_t)f.point[4 * i + l] << (8 * l);
            high |= (uint32_t)(f.sign[4 * i + l] & 127) << (7 * l);
        }
        b->qs[4 * i] = (uint16_t)low;
        b->qs[4 * i + 1] = (uint16_t)(low >> 16);
        b->qs[4 * i + 2] = (uint16_t)high;
        b->qs[4 * i + 3] = (uint16_t)(high >> 16);
    }
}

static void quant_iq2_xs(const float *x, const float *w, void *block) {
    block_iq2_xs *b = block;
    grid_block    f;
    grid_quantize(&shape_iq2_xs, x, w, &f);
    b->d = f.d_half;
    for (int i = 0; i < 32; i++) b->qs[i] = (uint16_t)(f.point[i] | (f.sign[i] & 127) << 9);
    for (int i = 0; i < 8; i++) b->scales[i] = (uint8_t)(f.s[2 * i] | f.s[2 * i + 1] << 4);
}

static void quant_iq2_s(const float *x, const float *w, void *block) {
    block_iq2_s *b = block;
    grid_block   f;
    grid_quantize(&shape_iq2_s, x, w, &f);
    memset(b->qh, 0, sizeof b->qh);
    b->d = f.d_half;
    for (int i = 0; i < 32; i++) {
        b->qs[i] = (uint8_t)f.point[i];
        b->qh[i / 4] |= (uint8_t)(f.point[i] >> 8 << (2 * (i % 4)));
        b->signs[i] = f.sign[i];
    }
    for (int i = 0; i < 8; i++) b->scales[i] = (uint8_t)(f.s[2 * i] | f.s[2 * i + 1] << 4);
}

static void quant_iq3_xxs(const float *x, const float *w, void *block) {
    block_iq3_xxs *b = block;
    grid_block     f;
    grid_quantize(&shape_iq3_xxs, x, w, &f);
    b->d = f.d_half;
    for (int i = 0; i < 64; i++) b->qs[i] = (uint8_t)f.point[i];
    for (int i = 0; i < 8; i++) {
        uint32_t bits = (uint32_t)f.s[i] << 28;
        for (int l = 0; l < 4; l++) bits |= (uint32_t)(f.sign[4 * i + l] & 127) << (7 * l);
        b->signs[i] = bits;
    }
}

static void quant_iq3_s(const float *x, const float *w, void *block) {
    block_iq3_s *b = block;
    grid_block   f;
    grid_quantize(&shape_iq3_s, x, w, &f);
    memset(b, 0, sizeof *b);
    b->d = f.d_half;
    for (int i = 0; i < 64; i++) {
        b->qs[i] = (uint8_t)f.point[i];
        b->qh[i / 8] |= (uint8_t)(f.point[i] >> 8 << (i % 8));
    }
    memcpy(b->signs, f.sign, sizeof b->signs);
    for (int i = 0; i < 4; i++) b->scales[i] = (uint8_t)(f.s[2 * i] | f.s[2 * i + 1] << 4);
}

static void quant_iq1_s(const float *x, const float *w, void *block) {
    block_iq1_s *b = block;
    grid_block   f;
    grid_quantize(&shape_iq1_s, x, w, &f);
    b->d = f.d_half;
    for (int i = 0; i < 8; i++) {
        unsigned h = (unsigned)f.s[i] << 12 | (unsigned)f.minus[4 * i] << 15;
        for (int l = 0; l < 4; l++) {
            b->qs[4 * i + l] = (uint8_t)f.point[4 * i + l];
            h |= (unsigned)(f.point[4 * i + l] >> 8) << (3 * l);
        }
        b->qh[i] = (uint16_t)h;
    }
}

static void quant_iq1_m(const float *x, const float *w, void *block) {
    block_iq1_m *b = block;
    grid_block   f;
    grid_quantize(&shape_iq1_m, x, w, &f);
    memset(b, 0, sizeof *b);
    for (int i = 0; i < 32; i++) {
        b->qs[i] = (uint8_t)f.point[i];
        b->qh[i / 2] |= (uint8_t)((f.point[i] >> 8 | f.minus[i] << 3) << (4 * (i % 2)));
    }
    for (int i = 0; i < 4; i++) {
        unsigned v = (unsigned)(f.d_half >> (4 * i) & 15) << 12;
        for (int l = 0; l < 4; l++) v |= (unsigned)f.s[4 * i + l] << (3 * l);
        b->scales[i] = (uint16_t)v;
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many tokens to draft.
 *
 * A step over R rows takes t(R): nearly the same time for a few rows as for one, because it reads all weights either
 * way, until the arithmetic costs more than the reading. A drafted row that is accepted saves a step, one that is refused
 * was computed in vain. So with every further row a step gives T tokens, expected, in t(R) + C, where C is the time that
 * guessing takes, and the depth is the one with the most tokens per second:
 *
 *     maximize T / (t(R) + C),    T = sequences + sum of the rows' chances
 *
 * over all sequences of the step together. The chance of the k-th token of a draft is that of all k being right: p to the
 * k-th, where p is what this kind of draft achieved in this sequence lately. Rows are added in the order of falling
 * chances, so what is compared is one best set per number of rows. No row at all is one of the answers: it is the best
 * one where drafts are poor, and where many sequences compute together, since each of them already brings a row and t(R)
 * rises.
 *
 * t(R) is measured: every step that only generates says what its number of rows took. Times drift as contexts grow, so
 * what is kept is a common scale and, for each number of rows, the ratio to one row. A number of rows that is thought to be
 * expensive is not chosen, so nothing would correct a time that somebody else's work made long. Therefore the first time is
 * believed only within reason and is soon measured once more, and what was passed over very often slowly counts as
 * cheaper until it is tried again. Steps in which nobody could choose do not count: they say nothing about other numbers.
 * And since drafts are compared with none, a step without them is measured now and then.
 *
 * Chances and costs are learned by trying, and trying loses time where drafts are poor. What may be lost is bounded: a
 * budget, counted in steps of one row, gets a hundredth of the time that generating takes and what good drafts save, and
 * pays for what poor ones cost. No draft is made whose failure it could not pay for. So all that drafting ever loses is one
 * per cent and what the budget begins with. (A drafter that reads the prompt first is not charged for that.)
 */
#ifndef ENGINE_DEPTH_H
#define ENGINE_DEPTH_H

#include <stdbool.h>

enum { DEPTH_ROWS = 64 }; /* a step with more rows than this does not draft */

typedef struct depth_costs {
    double scale;                 /* seconds of a step with one row; 0: nothing was measured */
    double ratio[DEPTH_ROWS + 1]; /* to that, as it is believed; 0: not measured */
    double measured[DEPTH_ROWS + 1];
    int    n[DEPTH_ROWS + 1];      /* how often it was measured; more than twice is not counted */
    int    passed[DEPTH_ROWS + 1]; /* choices of another number since then */
    int    drafted;                /* choices with drafts since one without */
} depth_costs;

void   depth_measure(depth_costs *c, int rows, double seconds);
double depth_ratio(const depth_costs *c, int rows); /* measured, or from its neighbours */

/* The record of one kind of draft. */
typedef struct depth_odds {
    double p;     /* the chance that a token is right if those before it are */
    int    n;     /* outcomes that it is made of, as far as they count */
    int    quiet; /* rounds without a draft of this kind, though there was one */
    int    pause; /* so many are allowed before one is tried again */
} depth_odds;

enum { DEPTH_OWN = 20, DEPTH_ALL = 60 }; /* how long a sequence's own record and the engine's remember */

void depth_learn(depth_odds *o, bool right, int memory);
/* A sequence's own record begins with what all others achieved. */
depth_odds depth_begin(const depth_odds *all);
/* A draft was there and was not worth it: true where it should be tried nevertheless, with one token. */
bool depth_probe(depth_odds *o);

/* What one sequence could add to the step. */
typedef struct depth_offer {
    int    n_sure, n; /* tokens, the first n_sure of which are certain */
    double p;
    double cost; /* seconds for guessing one of the others */
    int    take; /* the answer */

    double next; /* while choosing: chance of the next one */
} depth_offer;

/* How many times faster a sequence alone would be with the best depth of this offer: to choose between two drafts of it. */
double depth_worth(const depth_offer *o, const depth_costs *c);

/* rows, sequences: of the step without drafts. max_rows: the step's limit. */
void depth_choose(depth_offer *offers, int n_offers, depth_costs *c, int sequences, int rows, int max_rows);

typedef struct depth_budget {
    double left; /* steps of one row */
} depth_budget;

/* What a budget begins with, what it keeps at most, and what it may owe: then nobody drafts for a hundred steps. */
enum { DEPTH_CREDIT = 2, DEPTH_MOST_LEFT = 4, DEPTH_MOST_OWED = 1 };

/* Takes tokens that are not certain out of offers until the budget can pay for all of them being wrong; one is left as long
 * as there is a budget at all, since what guessing costs is only known by doing it. */
void depth_afford(const depth_budget *b, depth_offer *offers, int n_offers, const depth_costs *c, int sequences,
                  int rows);
/* A step over so many rows gave so many tokens; guessing took so many seconds. */
void depth_account(depth_budget *b, const depth_costs *c, int sequences, int rows, int tokens, double guess_s);

#endif

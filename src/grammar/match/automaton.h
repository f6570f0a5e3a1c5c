/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a compiled grammar runs.
 *
 * Two machines on top of each other, both built while texts are read.
 *
 * The lower one (lex.c) runs the terminals. A lex state is a set of pairs (terminal, what may still follow in it); its
 * rows are filled byte by byte with derivatives, so all terminals that are possible at a place run as one automaton.
 *
 * The upper one (chart.c) is an Earley recognizer whose columns lie where terminals end. A column is a core, the set of
 * its dotted rules, which is shared by all columns that look alike and holds everything that follows from them
 * (predictions, the lex state to begin with, who waits for what), and the origins of its items. Loops are items with a
 * counter, so a list of any length costs one item. A thread is a column and a lex state: a terminal that began in that
 * column and is under way. The state of a text is a set of threads, usually one.
 *
 * Columns never change once they are built; taking back tokens is cutting arrays.
 *
 * A mask (mask.c) is the union over the threads. What a token does inside its first terminal depends on the lex state
 * only and is remembered with it: the tokens that stay inside, and the places of the vocabulary's trie where the
 * terminal may end. From there the trie is walked with the recognizer.
 */
#ifndef GRAMMAR_MATCH_AUTOMATON_H
#define GRAMMAR_MATCH_AUTOMATON_H

#include "base/arena.h"
#include "grammar/grammar.h"
#include "grammar/match/vocab.h"
#include "grammar/rx/rx.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- terminals --- */

typedef struct lex_pair {
    int32_t terminal;
    rx      expr;
} lex_pair;

/*
 * Places in a trie where a terminal that began at this lex state may end with more of the token behind, by the
 * accepting state and the byte that follows: nodes[first .. first + n) are the nodes of that byte.
 */
typedef struct lex_run {
    int32_t  state;
    uint32_t first, n;
    uint8_t  byte;
} lex_run;

typedef struct lex_exits {
    uint32_t *nodes;
    lex_run  *runs; /* by state, then by byte */
    uint32_t  n_nodes, n_runs;
} lex_exits;

/* What a lex state allows by itself; the slice of plain tokens (vocab.h) comes on top. */
typedef struct lex_mask {
    uint32_t *bits; /* one per token, or NULL: ids */
    int32_t  *ids;
    uint32_t  n_ids;
    uint32_t  slice;    /* plain tokens of up to this many characters; 0: none */
    lex_exits exits[2]; /* in the tries of other and of plain tokens */
} lex_mask;

typedef struct lex_state {
    int32_t  *row; /* 256 states, -1: not known yet; NULL before the first step */
    lex_pair *pairs;
    uint32_t  n_pairs;
    uint32_t  hash;
    int32_t  *accepts; /* terminals that may end here */
    uint32_t  n_accepts;
    bool      moves;  /* some terminal may go on */
    int32_t   capped; /* the state that stands for this one in masks: lex_capped; 0: not known yet */
    lex_mask *mask;
} lex_state;

enum { LEX_DEAD = 0 };

/* --- rules --- */

/* What a dot stands before: 0 the end of a rule, t + 1 terminal t, -(r + 1) rule r. */
typedef struct gr_pos {
    int32_t sym, rule;
} gr_pos;

typedef struct gr_rule {
    uint32_t first_alt, n_alts; /* into alts: positions where alternatives begin */
    uint32_t min, max;          /* of repeats */
    bool     repeat, nullable;
} gr_rule;

/* Who waits for a symbol in a core: the kernel item number `entry`, or the predicted position ~entry. */
typedef struct gr_wait {
    int32_t sym, entry;
} gr_wait;

typedef struct gr_core {
    int32_t *kernel; /* positions, ascending */
    uint32_t n_kernel;
    gr_wait *waits; /* by symbol */
    uint32_t n_waits;
    int32_t  lex; /* where the terminals begin; LEX_DEAD: none */
    uint32_t hash;
} gr_core;

/* A place in the text: its threads, and how much of the arrays it needs. */
typedef struct chart_row {
    uint32_t threads, n_threads;
    uint32_t n_columns, n_items;
    bool     accepts, ended; /* ended: an end token was accepted */
} chart_row;

/* A column built during one mask, by the column and lex state it comes from. */
typedef struct chart_memo {
    uint32_t column, stamp;
    int32_t  state;
    uint32_t result; /* column, or CHART_NONE */
} chart_memo;

enum { CHART_MEMO = 4096 };

struct grammar {
    atomic_int refs;

    /* Fixed after compiling. */
    gr_pos  *pos;
    gr_rule *rules;
    int32_t *alts;
    rx      *terminals;
    uint32_t n_pos, n_rules, n_alts, n_terminals;
    int32_t  start; /* position of the augmented start rule: its dot before the start symbol */

    /* Guards everything below: what is built while texts are read, and the scratch memory of the builders. */
    pthread_mutex_t lock;
    rx_store        rx;
    arena           mem;
    lex_state      *states;
    uint32_t        n_states, cap_states;
    int32_t        *state_table;
    uint32_t        state_table_cap;
    gr_core        *cores;
    uint32_t        n_cores, cap_cores;
    int32_t        *core_table;
    uint32_t        core_table_cap;
    uint32_t       *stamps; /* per position, for predictions */
    uint32_t        stamp;
    uint64_t        vocab_id; /* whose masks are remembered */
    size_t          mask_bytes;
    lex_pair       *pair_scratch;
    uint32_t        pair_scratch_cap;
    gr_wait        *wait_scratch;
    uint32_t        wait_scratch_cap;

    /* Of the mask that is being filled; here, and not with each matcher, because it is by far the larger part of one
     * and only one mask is filled at a time. */
    chart_memo memo[CHART_MEMO];
    uint32_t   memo_stamp;
    chart_row  path[VOCAB_MAX_TOKEN + 2]; /* of the trie walk */
};

/* Each of the following with the lock held. Failures are kept in g->rx.error. */
int32_t lex_start(grammar *g, const int32_t *terminals, uint32_t n); /* ascending */
int32_t lex_step_slow(grammar *g, int32_t state, uint8_t b);
void    lex_masks_drop(grammar *g); /* in mask.c */

static inline int32_t lex_step(grammar *g, int32_t state, uint8_t b) {
    const int32_t *row = g->states[state].row;
    int32_t        to = row ? row[b] : -1;
    return to >= 0 ? to : lex_step_slow(g, state, b);
}

/*
 * A state that allows the same tokens: counts that no token can exhaust are made equal, so that the places inside a
 * long bounded text share one mask. bytes: of the longest token.
 */
int32_t lex_capped(grammar *g, int32_t state, uint32_t bytes);

/*
 * Of the plain tokens of vocab.h: all of up to *all characters stay inside a terminal, and none of more than *most does
 * or ends one (RX_INF: not known).
 */
void lex_plain_bounds(const grammar *g, int32_t state, uint32_t *all, uint32_t *most);

/* --- one text --- */

typedef struct chart_item {
    int32_t  pos;
    uint32_t origin, count;
} chart_item;

typedef struct chart_column {
    int32_t  core;
    uint32_t items, n_items; /* by position */
    bool     accepts;        /* the text may end here */
} chart_column;

typedef struct chart_thread {
    uint32_t column;
    int32_t  state;
} chart_thread;

typedef struct chart {
    chart_column *columns;
    chart_item   *items;
    chart_thread *threads;
    uint32_t      n_columns, cap_columns, n_items, cap_items, n_threads, cap_threads;

    /* A column under construction. */
    uint32_t *table; /* item index + 1, stamped */
    uint32_t *table_stamp;
    uint32_t  table_cap, stamp;
    uint32_t *work;
    uint32_t  cap_work;
} chart;

#define CHART_NONE 0xFFFFFFFFu

int  chart_init(chart *c, grammar *g, chart_row *first); /* with the lock held */
void chart_deinit(chart *c);
int  chart_copy(chart *to, const chart *from, uint32_t n_columns, uint32_t n_items, uint32_t n_threads);

/*
 * Reads one byte: the threads of *from become those of *to, which lie at the end of the array. False: no text goes on
 * this way, or a failure (kept in g->rx.error). memo: columns of this mask may be used again.
 */
bool chart_step(chart *c, grammar *g, const chart_row *from, uint8_t b, chart_row *to, bool memo);

/* The column after the terminals that end in `state` ended for a thread of `column`. */
uint32_t chart_leave(chart *c, grammar *g, uint32_t column, int32_t state, bool memo);

struct grammar_matcher {
    grammar             *g;
    const grammar_vocab *vocab;
    chart                chart;
    chart_row           *rows; /* one per accepted token, the first before any */
    size_t               n_rows, cap_rows;
};

/* With the lock held. */
int mask_fill(grammar_matcher *m, uint32_t *mask, err *e);

#endif

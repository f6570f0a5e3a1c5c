/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for the prefix tree: a pool, a tree with its tiers, and a device that is as asynchronous as the contract
 * allows. What moves out is written to host memory only when somebody waits for it, what moves in is read from there
 * only then; until that the bytes are rubbish. Calls can be made to fail.
 *
 * What is computed at a position is a hash of the namespace and of everything up to there, so that a page of any other
 * text is told at once.
 */
#ifndef TESTS_KV_WORLD_H
#define TESTS_KV_WORLD_H

#include "kv/tree.h"

enum { WORLD_P = 4, WORLD_PAGES = 24, WORLD_LONGEST = 48, WORLD_INDEXES = WORLD_LONGEST / WORLD_P + 1 };
enum { WORLD_PAGE_BYTES = WORLD_P * (int)sizeof(uint64_t) };

typedef struct world_options {
    int         n_groups, window1;
    bool        states;
    bool        lazy; /* nothing is saved before it has to leave */
    size_t      budget, host, stage;
    uint64_t    disk_bytes;
    const char *dir; /* NULL: no disk */
} world_options;

typedef struct prompt {
    int32_t tokens[WORLD_LONGEST];
    kv_key  rows[WORLD_LONGEST];
    kv_key  space;
    int     n;
} prompt;

typedef struct world_sequence {
    int32_t  pages[KV_MAX_GROUPS][WORLD_INDEXES];
    int32_t *tables[KV_MAX_GROUPS];
    int      n_pages;
} world_sequence;

typedef struct world_transfer world_transfer;

typedef struct world {
    world_options   o;
    kv_pool        *pool;
    kv_tree        *tree;
    kv_disk        *disk;
    uint64_t        content[KV_MAX_GROUPS][WORLD_PAGES][WORLD_P];
    world_transfer *under_way;
    uint64_t        tickets;
    int             n_move, n_moved, n_pages; /* calls; pages that they were asked for */
    int             fail_move, fail_moved;    /* the call with this number fails; 0: none */
    bool            for_good;                 /* all later ones, too */
} world;

void kv_world_open(world *w, const world_options *o);
/* Lets go of everything: no page and no ticket may be left. */
void kv_world_close(world *w);
/* The tree against itself: lists, counts, sums, pages and their references. */
void kv_world_check(const world *w);

kv_text  prompt_text(const prompt *p);
uint64_t prompt_hash(const prompt *p, int n);
/* How many positions of b's beginning are those of a. */
int prompt_common(const prompt *a, const prompt *b);

/* Runs a prompt like the engine does: match, look at what came back, copy a shared page, compute the rest. -1: no room
 * for it; what it has is still to be released. */
int kv_world_run(world *w, world_sequence *q, const prompt *p);
/* Inserts, adds a state, saves. */
void world_finish(world *w, world_sequence *q, const prompt *p);
void world_release(world *w, world_sequence *q);
/* All of it; -1: no room. */
int world_prompt(world *w, const prompt *p);

#endif

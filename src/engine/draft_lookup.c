/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts by looking up: the longest run of the newest tokens that stood somewhere before says what comes next.
 *
 * A text is indexed by pairs of tokens: a table of heads by hash, and for every position the previous one with the same
 * hash. From the newest pair the candidates are walked, newest first, at most LOOKS of them; each is compared backwards
 * and the longest match wins, the newest of equals. The same structure holds each seat's own tokens and one ring of
 * earlier answers and expected texts. Texts of the ring are parted by a number that is not a token.
 *
 * What follows a match in the sequence's own tokens may reach the draft itself: a text that repeats with a period goes on
 * repeating.
 *
 * A text that is copied with changes leaves its original for a word and comes back. So each seat remembers the place in the
 * original up to which it was followed. Where nothing else matches better, the newest token is looked for behind that
 * place, up to twice as far as there are new tokens: one equal token is enough there. If it is not found and only one token
 * is new, it may stand for one of the original, which then goes on behind that.
 */
#include "engine/drafter.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOKS = 48,
    LONGEST = 32,   /* tokens that are compared */
    SHORTEST = 2,   /* that must be equal */
    RING_BITS = 16, /* tokens of earlier answers */
    RING = 1 << RING_BITS,
    NEAR = 12,          /* new tokens after which the place where the original was left is forgotten */
    CONTEXT_BEFORE = 8, /* tokens of the prompt's end that are kept with an answer */
    PARTING = -1,
};

/* Position p of a text lies at p % room; positions are counted from 1, so that 0 means none. */
typedef struct text_index {
    int32_t  *tokens; /* NULL: the caller's */
    uint32_t *head, *prev;
    uint32_t  n, room, mask;
} text_index;

/* Where a seat's newest tokens came from: the token at position n_tokens of its text was expected to be the one at `at`. */
typedef struct trail {
    uint32_t at; /* 0: from nowhere */
    int      n_tokens;
    bool     own;
} trail;

typedef struct lookup {
    drafter     base;
    text_index *seats;
    trail      *trails;
    int         n_seats;
    text_index  ring;
} lookup;

typedef struct match {
    uint32_t at; /* position behind the match */
    int      length;
    bool     own;
} match;

static uint32_t hash2(int32_t a, int32_t b) {
    uint32_t h = (uint32_t)a * 0x9E3779B1u ^ (uint32_t)b * 0x85EBCA77u;
    return h ^ h >> 15;
}

static uint32_t heads_for(uint32_t room) {
    uint32_t heads = 256;
    while (heads < room && heads < 1u << 16) heads *= 2;
    return heads;
}

static bool index_open(text_index *x, uint32_t room, bool own_tokens) {
    uint32_t heads = heads_for(room);
    *x = (text_index){ .room = room, .mask = heads - 1 };
    x->head = calloc(heads, sizeof *x->head);
    x->prev = calloc(room, sizeof *x->prev);
    if (own_tokens) x->tokens = calloc(room, sizeof *x->tokens);
    return x->head && x->prev && (x->tokens || !own_tokens);
}

static void index_deinit(text_index *x) {
    free(x->tokens);
    free(x->head);
    free(x->prev);
}

static void index_clear(text_index *x) {
    memset(x->head, 0, ((size_t)x->mask + 1) * sizeof *x->head);
    x->n = 0;
}

/* The next position holds b and follows a. */
static void index_put(text_index *x, int32_t a, int32_t b) {
    uint32_t p = ++x->n, *head = &x->head[hash2(a, b) & x->mask];
    if (x->tokens) x->tokens[p % x->room] = b;
    x->prev[p % x->room] = *head;
    *head = p;
}

static int32_t token_at(const text_index *x, const int32_t *tokens, uint32_t p) {
    return x->tokens ? x->tokens[p % x->room] : tokens[p - 1];
}

/* The best place where the newest tokens, newest first in `recent`, stood before position `below`. */
static match find(const text_index *x, const int32_t *tokens, const int32_t *recent, int n_recent, uint32_t below) {
    match    best = { 0 };
    uint32_t oldest = x->n > x->room ? x->n - x->room + 1 : 1;
    if (n_recent < SHORTEST) return best;
    uint32_t p = x->head[hash2(recent[1], recent[0]) & x->mask];
    for (int looks = 0; looks < LOOKS && p >= oldest && p > 0; looks++) {
        int      n = 0;
        uint32_t next = x->prev[p % x->room];
        while (p < below && n < n_recent && p >= oldest + (uint32_t)n &&
               token_at(x, tokens, p - (uint32_t)n) == recent[n])
            n++;
        if (n > best.length) best = (match){ .at = p + 1, .length = n };
        if (n == n_recent || next >= p) break;
        p = next;
    }
    return best.length >= SHORTEST ? best : (match){ 0 };
}

/* Whether the text has a position, still. */
static bool index_has(const text_index *x, uint32_t p) { return p > 0 && p <= x->n && p + x->room > x->n; }

/* Moves the trail over the tokens that followed the original; true: up to the last one. */
static bool follow(trail *r, const text_index *x, const draft_seq *s) {
    while (r->n_tokens < s->n_tokens && index_has(x, r->at) &&
           token_at(x, s->tokens, r->at) == s->tokens[r->n_tokens]) {
        r->at++;
        r->n_tokens++;
    }
    return r->n_tokens == s->n_tokens;
}

/* Where the original that was left may go on. */
static match find_near(trail *r, const text_index *x, const draft_seq *s) {
    int32_t newest = s->tokens[s->n_tokens - 1];
    if (r->at == 0 || follow(r, x, s)) return (match){ 0 };
    int n_new = s->n_tokens - r->n_tokens;
    if (n_new > NEAR) return (match){ 0 };
    for (uint32_t p = r->at; p < r->at + 2 * (uint32_t)n_new && index_has(x, p); p++) {
        int32_t t = token_at(x, s->tokens, p);
        if (t < 0 || (r->own && p >= (uint32_t)r->n_tokens)) break;
        if (t == newest) return (match){ .at = p + 1, .length = 1, .own = r->own };
    }
    bool one = n_new == 1 && index_has(x, r->at + 1);
    return one ? (match){ .at = r->at + 1, .own = r->own } : (match){ 0 };
}

/* Of so long a match; each step about doubles how much is right. */
static int grade_of(int length) { return length <= 2 ? 0 : length <= 4 ? 1 : length <= 9 ? 2 : 3; }

static void add_text(lookup *l, const int32_t *tokens, int n) {
    int32_t before = PARTING;
    if (n <= 0) return;
    for (int i = 0; i < n; i++) {
        index_put(&l->ring, before, tokens[i]);
        before = tokens[i];
    }
    index_put(&l->ring, before, PARTING);
}

static void lookup_begin(drafter *d, const draft_seq *s) {
    lookup *l = (lookup *)d;
    index_clear(&l->seats[s->seat]);
    l->trails[s->seat] = (trail){ 0 };
    add_text(l, s->hint, s->n_hint < RING / 4 ? s->n_hint : RING / 4);
}

static void lookup_end(drafter *d, const draft_seq *s) {
    int from = s->n_prompt > CONTEXT_BEFORE ? s->n_prompt - CONTEXT_BEFORE : 0;
    if (s->n_tokens > s->n_prompt) add_text((lookup *)d, s->tokens + from, s->n_tokens - from);
}

/* Appends what followed a match. */
static void copy(const text_index *x, draft_ask *ask, const match *m) {
    for (uint32_t p = m->at; ask->n < ask->most; p++) {
        uint32_t known = m->own ? (uint32_t)ask->seq.n_tokens : x->n;
        bool     drafted = m->own && p > known;
        if (!drafted && p > known) break;
        int32_t t = drafted ? ask->draft[p - known - 1] : token_at(x, ask->seq.tokens, p);
        if (t < 0) break;
        ask->draft[ask->n++] = t;
    }
}

static void propose_one(lookup *l, draft_ask *ask) {
    text_index    *own = &l->seats[ask->seq.seat];
    const int32_t *tokens = ask->seq.tokens;
    int32_t        recent[LONGEST];
    int            n = 0;
    while (own->n < (uint32_t)ask->seq.n_tokens) index_put(own, own->n ? tokens[own->n - 1] : PARTING, tokens[own->n]);
    for (; n < LONGEST && n < ask->n + ask->seq.n_tokens; n++)
        recent[n] = n < ask->n ? ask->draft[ask->n - 1 - n] : tokens[ask->seq.n_tokens - 1 - (n - ask->n)];
    /* Without tokens in front the newest position is the sequence's end, which matches itself. */
    match m = find(own, tokens, recent, n, ask->n ? UINT32_MAX : own->n);
    match other = find(&l->ring, NULL, recent, n, UINT32_MAX);
    m.own = true;
    if (other.length > m.length) m = other;
    trail *r = &l->trails[ask->seq.seat];
    match  near = { 0 };
    if (!ask->n && m.length <= SHORTEST) near = find_near(r, r->own ? own : &l->ring, &ask->seq);
    if (near.at > 0 && (near.length > 0 || m.length == 0)) m = near;
    if (m.at == 0) return;
    ask->grade = near.length ? 1 : grade_of(m.length);
    if (ask->n == 0 && m.length > 0) *r = (trail){ .at = m.at, .n_tokens = ask->seq.n_tokens, .own = m.own };
    copy(m.own ? own : &l->ring, ask, &m);
}

static void lookup_propose(drafter *d, draft_ask *asks, int n_asks) {
    for (int i = 0; i < n_asks; i++) propose_one((lookup *)d, &asks[i]);
}

static void lookup_free(drafter *d) {
    lookup *l = (lookup *)d;
    for (int i = 0; l->seats && i < l->n_seats; i++) index_deinit(&l->seats[i]);
    index_deinit(&l->ring);
    free(l->seats);
    free(l->trails);
    free(l);
}

size_t draft_lookup_bytes(int n_seats, int n_ctx) {
    size_t seat = (size_t)heads_for((uint32_t)n_ctx + 1) + (size_t)n_ctx + 1,
           ring = (size_t)heads_for(RING) + 2 * (size_t)RING;
    return ((size_t)n_seats * seat + ring) * sizeof(uint32_t) + (size_t)n_seats * sizeof(trail);
}

int draft_lookup_open(drafter **out, int n_seats, int n_ctx, err *e) {
    *out = NULL;
    lookup *l = calloc(1, sizeof *l);
    if (!l) return err_set_nomem(e);
    l->base = (drafter){
        .name = "lookup", .begin = lookup_begin, .end = lookup_end, .propose = lookup_propose, .free = lookup_free
    };
    l->n_seats = n_seats;
    l->seats = calloc((size_t)n_seats, sizeof *l->seats);
    l->trails = calloc((size_t)n_seats, sizeof *l->trails);
    bool ok = l->seats && l->trails && index_open(&l->ring, RING, true);
    for (int i = 0; ok && i < n_seats; i++) ok = index_open(&l->seats[i], (uint32_t)n_ctx + 1, false);
    if (!ok) {
        lookup_free(&l->base);
        return err_set_nomem(e);
    }
    *out = &l->base;
    return 0;
}

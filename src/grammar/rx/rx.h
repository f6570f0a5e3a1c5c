/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions over bytes, hash-consed, with derivatives.
 *
 * An expression is a number into a store; equal expressions have equal numbers, so a set of expressions is the state of
 * a deterministic automaton that nobody has to build in advance: the derivative of r by byte b is what may follow b.
 * The constructors keep a normal form (unions sorted, flattened and without duplicates; concatenations to the right),
 * which keeps the number of different derivatives small and finite.
 *
 * Counted repeats count down, intersections and complements derive part by part, and RX_JSON (the JSON spellings of the
 * texts of an expression) derives through a small decoder. Nothing is ever expanded.
 *
 * Without RX_AND, RX_NOT and half-read escapes an expression that is not RX_NONE matches something. With them that
 * needs a search (rx_is_empty), whose result is remembered in the node.
 *
 * Limits: nodes, bytes and steps. The first failure is kept; constructors then give RX_NONE.
 */
#ifndef GRAMMAR_RX_RX_H
#define GRAMMAR_RX_RX_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t rx;

enum { RX_NONE = 0, RX_EPS = 1, RX_ALL_BYTES = 2 }; /* the first three numbers of every store */

#define RX_INF 0xFFFFFFFFu /* as a count or length: no bound */

enum { RX_COUNTED = 32, RX_MAX_DEPTH = 3000 }; /* of nested expressions */

typedef enum rx_kind {
    RX_K_NONE,
    RX_K_EPS,
    RX_K_SET,    /* one byte of a set: data = rx_set */
    RX_K_CLASS,  /* one code point of sorted ranges: data = ranges; a = continuation bytes still missing, 0 at the start
                  */
    RX_K_LIT,    /* data = bytes, at least one */
    RX_K_CAT,    /* a then b; a is not an RX_K_CAT */
    RX_K_ALT,    /* data = numbers, at least two, ascending */
    RX_K_AND,    /* the same */
    RX_K_NOT,    /* every byte string but those of a */
    RX_K_REPEAT, /* a, min to max times */
    RX_K_JSON,   /* rest of a JSON string literal whose decoded rest matches a; min = decoder state */
    RX_K_MULTIPLE, /* rest of a decimal number that is a multiple of a: see rx_multiple */
} rx_kind;

enum {
    RX_F_NULLABLE = 1,  /* matches the empty text */
    RX_F_UNSURE = 2,    /* may be empty although it does not look so */
    RX_F_NONEMPTY = 4,  /* a search found that it is not */
    RX_F_EMPTY = 8,     /* a search found that it is */
    RX_F_TEXT = 16,     /* matches whole valid UTF-8 characters only */
    RX_F_PLAIN = 32,    /* a class that contains every plain character (see lex.h) */
    RX_F_BOOLEAN = 64,  /* contains an intersection or complement */
    RX_F_COUNTED = 128, /* contains a repeat with a count above RX_COUNTED */
};

typedef struct rx_set {
    uint64_t w[4];
} rx_set;

typedef struct rx_range {
    uint32_t first, last;
} rx_range;

typedef struct rx_node {
    uint8_t  kind, flags;
    uint32_t a, b;
    uint32_t min, max;         /* of repeats */
    uint32_t data, n;          /* offset into the store's data, count of elements */
    uint32_t min_len, max_len; /* bounds in bytes; of boolean expressions max_len only, and no promise */
    uint32_t hash;
} rx_node;

typedef struct rx_store {
    rx_node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint8_t *data;
    size_t   data_bytes, data_cap;
    int32_t *table; /* open addressing, 0: free */
    uint32_t table_cap;
    rx       any, all; /* any character; any text */
    uint64_t steps;    /* derivative steps so far */
    uint64_t steps_limit;
    uint32_t depth;
    err      error;
} rx_store;

int  rx_store_init(rx_store *s, err *e);
void rx_store_deinit(rx_store *s);
int  rx_store_fail(rx_store *s, int code, const char *sentence); /* keeps the first error */

rx rx_bytes(rx_store *s, const void *bytes, size_t n);
rx rx_class(rx_store *s, const rx_range *r, size_t n, bool negate); /* any order, may overlap */
rx rx_cat(rx_store *s, rx a, rx b);
rx rx_alt(rx_store *s, rx a, rx b);
rx rx_alt_n(rx_store *s, const rx *list, size_t n);
rx rx_and(rx_store *s, rx a, rx b);
rx rx_and_n(rx_store *s, const rx *list, size_t n);
rx rx_not(rx_store *s, rx a); /* over all byte strings */
rx rx_repeat(rx_store *s, rx a, uint32_t min, uint32_t max);
/* Behind the opening quote. Plain: with no escape that JSON does not demand. */
enum { RX_JSON_ANY = 0, RX_JSON_PLAIN = 1 << 30 };
rx                 rx_json(rx_store *s, rx text, uint32_t state);
static inline bool rx_json_between(uint32_t state) { return (state & ~(uint32_t)RX_JSON_PLAIN) == 0; } /* characters */

/*
 * Digits, and if frac > 0 a point and exactly frac digits, which together (without the point) are a multiple of step,
 * given that what was read so far has this remainder. phase 0: nothing read, 1: before the point, 2: behind it with
 * frac digits to come.
 */
rx rx_multiple(rx_store *s, uint32_t step, uint32_t remainder, uint32_t phase, uint32_t frac);

/* Of a class: see rx.c. */
rx rx_class_part(rx_store *s, rx a, uint32_t first, uint32_t last, uint32_t base, uint32_t missing);

/* What may follow b; *same is reduced to bytes that give the same result (b is always one of them). */
rx rx_deriv(rx_store *s, rx a, uint8_t b, rx_set *same);

bool rx_is_empty(rx_store *s, rx a); /* exact; a search beyond the limit fails the store and says false */

/*
 * Larger counts made `count`: nobody can tell the difference by reading fewer than `count` bytes. Expressions with
 * intersections or complements are left alone.
 */
rx rx_cap(rx_store *s, rx a, uint32_t count);

/* The same expression in another store. known has from->n_nodes elements, zeroed before the first call: 0 unknown. */
rx rx_copy(rx_store *to, const rx_store *from, rx a, rx *known);

static inline const rx_node *rx_get(const rx_store *s, rx a) { return &s->nodes[a]; }
static inline bool           rx_nullable(const rx_store *s, rx a) { return (s->nodes[a].flags & RX_F_NULLABLE) != 0; }
static inline const rx      *rx_kids(const rx_store *s, rx a) { return (const rx *)(s->data + s->nodes[a].data); }
static inline bool           rx_set_has(const rx_set *s, uint8_t b) { return (s->w[b >> 6] >> (b & 63)) & 1; }
static inline void           rx_set_add(rx_set *s, uint8_t b) { s->w[b >> 6] |= (uint64_t)1 << (b & 63); }
static inline void           rx_set_add_range(rx_set *s, unsigned first, unsigned last) {
              for (unsigned b = first; b <= last; b++) rx_set_add(s, (uint8_t)b);
}
static inline void rx_set_keep(rx_set *s, const rx_set *o, bool inside) {
    for (int i = 0; i < 4; i++) s->w[i] &= inside ? o->w[i] : ~o->w[i];
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of a vocabulary as two tries and a few ready masks.
 *
 * A trie is an array of nodes in depth-first order; a node knows where the next node lies that is not below it, so a
 * walk is a loop and skipping a subtree is one assignment. Node 0 is the root.
 *
 * Most places inside JSON strings allow every token that consists of plain characters: those that may stand in a JSON
 * string as they are, in whole (not the pieces of a character), at most 32. Plain tokens have a trie of their own, and
 * one mask per number of characters holds all plain tokens up to that length, so such a place costs one OR.
 */
#ifndef GRAMMAR_MATCH_VOCAB_H
#define GRAMMAR_MATCH_VOCAB_H

#include "grammar/grammar.h"

enum { VOCAB_MAX_TOKEN = 1024, VOCAB_SLICES = 32 };

typedef struct vocab_node {
    uint32_t next;  /* first node behind this subtree */
    int32_t  token; /* -1: none ends here; further tokens of the same bytes: grammar_vocab.same */
    uint16_t depth; /* bytes from the root */
    uint8_t  byte;
    uint8_t  longest; /* characters of the longest plain token here or below; of other tokens 0 */
} vocab_node;

typedef struct vocab_trie {
    vocab_node *nodes;
    uint32_t    n;
} vocab_trie;

enum { VOCAB_OTHER, VOCAB_PLAIN }; /* the tries */

struct grammar_vocab {
    uint64_t   id; /* differs from every other vocabulary of this process */
    uint32_t   n_tokens, n_words;
    uint32_t   longest; /* bytes of the longest token */
    vocab_trie tries[2];
    int32_t   *same;                     /* the next token of the same bytes, or -1 */
    uint32_t  *slices[VOCAB_SLICES + 1]; /* [n]: plain tokens of up to n characters */
    char      *bytes;
    uint32_t  *offsets; /* n_tokens + 1 */
    int32_t   *ends;
    uint32_t   n_ends;
};

#endif

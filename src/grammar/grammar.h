/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constrained output: compiled grammars, and the state of one sequence under one.
 *
 * A grammar says which texts are allowed; a matcher walks one text, token by token, and gives the set of tokens that
 * may come next: exactly those whose bytes leave a text that can still be completed. Every spelling of a text is
 * allowed, not only the one the tokenizer would choose. See automaton.h for how it works.
 */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "base/err.h"
#include "base/str.h"
#include "grammar/ir.h"
#include "tokenizer/tokenizer.h"

/* Immutable to its users and reference counted; may be shared by threads and sequences. */
typedef struct grammar grammar;

/* Each: on success the caller owns one reference of *out; on failure *out is NULL and e says why. */
int grammar_compile(grammar **out, const ir *g, ir_sym start, err *e);    /* g stays the caller's */
int grammar_from_schema(grammar **out, view schema_json, err *e);         /* what is not supported is refused by name */
int grammar_from_schema_steered(grammar **out, view schema_json, err *e); /* for a model to write under: see schema.h */
int grammar_from_regex(grammar **out, view pattern, err *e);              /* the whole text matches */
int grammar_from_gbnf(grammar **out, view source, err *e);
int grammar_from_choices(grammar **out, const view *texts, size_t n, err *e);

grammar *grammar_ref(grammar *g);
void     grammar_unref(grammar *g); /* accepts NULL */
size_t   grammar_bytes(grammar *g); /* memory that it takes now; grows with the texts it has seen. NULL: 0 */

/*
 * The tokens of one model as texts: built once per model, immutable, shared by all its matchers (which must not outlive
 * it). Control tokens are not text: of them only the end tokens are ever allowed, and only where the grammar may end.
 */
typedef struct grammar_vocab grammar_vocab;
int                          grammar_vocab_open(grammar_vocab **out, const tok *t, err *e);
/* The same from plain arrays: texts[i] empty for a token that is not text. Everything is borrowed for the call only. */
int grammar_vocab_open_texts(grammar_vocab **out, const view *texts, size_t n, const int32_t *end_ids, size_t n_end_ids,
                             err *e);
void   grammar_vocab_free(grammar_vocab *v);
size_t grammar_vocab_mask_words(const grammar_vocab *v); /* 32-bit words of a mask */

/* One sequence's state; used by one thread at a time. */
typedef struct grammar_matcher grammar_matcher;
int                            grammar_matcher_open(grammar_matcher **out, grammar *g, const grammar_vocab *v, err *e);
int                            grammar_matcher_clone(grammar_matcher **out, const grammar_matcher *m, err *e);
void                           grammar_matcher_free(grammar_matcher *m);

/* One bit per token, lowest first; words of grammar_vocab_mask_words. An error (ERR_LIMIT) leaves the mask empty. */
int grammar_matcher_mask(grammar_matcher *m, uint32_t *mask, err *e);
/* ERR_ARG: not allowed here, state unchanged. An end token is accepted where the text may end and ends the matcher. */
int  grammar_matcher_accept(grammar_matcher *m, int32_t token, err *e);
bool grammar_matcher_accept_bytes(grammar_matcher *m, const void *p,
                                  size_t n);                        /* all or nothing; counts as one token */
void grammar_matcher_rollback(grammar_matcher *m, size_t n_tokens); /* takes back the last accepted tokens */
bool grammar_matcher_may_end(const grammar_matcher *m);
bool grammar_matcher_must_end(const grammar_matcher *m); /* nothing but the end may follow */

#endif

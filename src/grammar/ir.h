/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every front end (JSON Schema, regex, GBNF, choices, tool-call syntaxes) compiles to.
 *
 * Two layers. The lower one are regular expressions over the bytes of UTF-8 text (ir_rx), with intersection, complement
 * and counted repeats that are never expanded. The upper one is a context-free grammar (ir_sym) whose terminals are
 * such expressions. The accepted language is exactly the one written down: ambiguity is allowed everywhere, terminals
 * need not be disjoint and have no priorities.
 *
 * Equal expressions and equal anonymous symbols are the same number (hash-consing). Builders never fail visibly: the
 * first error (memory, limit, bad argument) is kept and every later call gives something harmless; ask ir_error, or let
 * grammar_compile report it. An ir belongs to one thread.
 *
 * Advice for speed: a mask costs least where a text runs inside one terminal, and a terminal that holds free string
 * content is best shared (the same ir_rx wherever it occurs). Fixed text, optional white space and the literal that
 * follows are best one terminal ("[ \n]{0,8}\"name\"[ ]?:"). A loop is best an ir_repeat, not a recursive rule.
 */
#ifndef GRAMMAR_IR_H
#define GRAMMAR_IR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ir ir;
typedef int32_t   ir_rx;  /* a regular expression over bytes of UTF-8 text */
typedef int32_t   ir_sym; /* a symbol of the context-free part: terminal or rule */

typedef struct ir_range {
    uint32_t first, last; /* code points, inclusive; surrogates are left out */
} ir_range;

int  ir_open(ir **out, err *e);
void ir_free(ir *g);
int  ir_error(const ir *g, err *e); /* 0, or the first error */
void ir_fail(ir *g, int code, const char *fmt, ...)
    BASE_PRINTF(3, 4); /* a front end's own error, kept like the others */

ir_rx ir_rx_none(ir *g);                               /* matches nothing */
ir_rx ir_rx_bytes(ir *g, const void *bytes, size_t n); /* n = 0: the empty text */
ir_rx ir_rx_text(ir *g, const char *text);             /* the same of a C string */
ir_rx ir_rx_class(ir *g, const ir_range *r, size_t n, bool negate);
ir_rx ir_rx_any(ir *g); /* any one character */
ir_rx ir_rx_all(ir *g); /* any text, also the empty one */
ir_rx ir_rx_cat(ir *g, ir_rx a, ir_rx b);
ir_rx ir_rx_alt(ir *g, ir_rx a, ir_rx b);
ir_rx ir_rx_alt_n(ir *g, const ir_rx *list, size_t n); /* n = 0: nothing; for many alternatives far faster than pairs */
ir_rx ir_rx_and(ir *g, ir_rx a, ir_rx b);              /* intersection */
ir_rx ir_rx_not(ir *g, ir_rx a);                       /* complement within valid UTF-8 */
ir_rx ir_rx_opt(ir *g, ir_rx a);
ir_rx ir_rx_multiple(ir *g, uint32_t step, uint32_t frac);     /* digits, with frac > 0 also a point and exactly frac
                                                                  digits:     without the point a multiple of step */
ir_rx ir_rx_repeat(ir *g, ir_rx a, uint32_t min, int64_t max); /* max -1: no limit */

/*
 * ECMA-262 (u flag) as JSON Schema means it. IR_RX_SEARCH: matches anywhere in the text, unless ^ and $ say otherwise;
 * without it the pattern is the whole text. Lookarounds where intersection and complement can express them; otherwise,
 * as \b and back references, refused by name (ERR_UNSUPPORTED). A syntax error is ERR_FORMAT. Neither is kept in g.
 */
enum { IR_RX_SEARCH = 1 };
int ir_rx_parse(ir *g, const char *pattern, size_t n, unsigned flags, ir_rx *out, err *e);

/*
 * The JSON string literals (with quotes) whose decoded text matches: every character raw where JSON allows it or in any
 * legal escape (\n, \/, \uXXXX with surrogate pairs).
 */
ir_rx ir_rx_json_string(ir *g, ir_rx text);
ir_rx ir_rx_json_plain(ir *g, ir_rx text); /* only the escapes that JSON demands, by their letter if they have one */

/* Bounded work; beyond the bound the answer is "not empty" / "no match" and the error is kept. */
bool ir_rx_is_empty(ir *g, ir_rx a);
bool ir_rx_matches(ir *g, ir_rx a, const void *bytes, size_t n);

ir_sym ir_terminal(ir *g, ir_rx a);
ir_sym ir_rule(ir *g, const char *name); /* alternatives are added later: recursion; none: matches nothing */
void   ir_rule_alt(ir *g, ir_sym rule, const ir_sym *body, size_t n); /* n = 0: empty */
ir_sym ir_seq(ir *g, const ir_sym *list, size_t n);
ir_sym ir_alt(ir *g, const ir_sym *list, size_t n); /* n = 0: matches nothing */
ir_sym ir_opt(ir *g, ir_sym a);
ir_sym ir_repeat(ir *g, ir_sym a, uint32_t min, int64_t max); /* max -1: no limit */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an ir, for the builders and for the compiler of grammars. */
#ifndef GRAMMAR_IR_IMPL_H
#define GRAMMAR_IR_IMPL_H

#include "base/arena.h"
#include "base/map.h"
#include "grammar/ir.h"
#include "grammar/rx/rx.h"

typedef enum ir_kind { IR_TERMINAL, IR_RULE, IR_REPEAT } ir_kind;

/* One alternative of a rule. */
typedef struct ir_body ir_body;
struct ir_body {
    ir_body *next;
    size_t   n;
    ir_sym   list[];
};

typedef struct ir_symbol {
    ir_kind     kind;
    const char *name;          /* of rules; may be NULL */
    ir_rx       expr;          /* of terminals */
    ir_body    *first, **last; /* of rules, in order */
    ir_sym      body;          /* of repeats */
    uint32_t    min, max;      /* of repeats; max RX_INF: no limit */
} ir_symbol;

struct ir {
    arena      mem;
    rx_store   rx;
    ir_symbol *syms;
    size_t     n_syms, cap_syms;
    map        known; /* anonymous symbols by content */
    err        error; /* of the builders; the store has its own */
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax tree of a template.
 *
 * One node type for expressions and statements; which fields a kind uses is listed beside it. Names are bound when the
 * template is opened (scope.c): a name node holds how many frames up its variable lives and in which slot. All of it
 * lies in the template's arena and never changes after tmpl_open.
 */
#ifndef TEMPLATE_AST_H
#define TEMPLATE_AST_H

#include "base/arena.h"
#include "base/err.h"
#include "template/template.h"
#include "template/value.h"

#include <setjmp.h>

typedef enum tok_kind {
    TOK_EOF,
    TOK_DATA,
    TOK_VAR_BEGIN,
    TOK_VAR_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_ADD,
    TOK_SUB,
    TOK_MUL,
    TOK_DIV,
    TOK_FLOORDIV,
    TOK_MOD,
    TOK_POW,
    TOK_TILDE,
    TOK_LBRACKET,
    TOK_RBRACKET,
    TOK_LPAREN,
    TOK_RPAREN,
    TOK_LBRACE,
    TOK_RBRACE,
    TOK_EQ,
    TOK_NE,
    TOK_GT,
    TOK_GE,
    TOK_LT,
    TOK_LE,
    TOK_ASSIGN,
    TOK_DOT,
    TOK_COLON,
    TOK_PIPE,
    TOK_COMMA,
    TOK_SEMICOLON,
} tok_kind;

typedef struct token {
    tok_kind kind;
    int      line;
    view     text;  /* names, operators, data, string content after unescaping */
    tv       value; /* INT, FLOAT */
} token;

typedef enum node_kind {
    /* expressions */
    N_CONST,   /* value */
    N_NAME,    /* name; hops, slot */
    N_NSREF,   /* name.attr as an assignment target; hops, slot */
    N_TUPLE,   /* list */
    N_LIST,    /* list */
    N_DICT,    /* list: key, value, key, value, ... */
    N_NEG,     /* a */
    N_POS,     /* a */
    N_NOT,     /* a */
    N_BINARY,  /* op, a, b */
    N_AND,     /* a, b */
    N_OR,      /* a, b */
    N_CONCAT,  /* list */
    N_COMPARE, /* a, list of right sides, ops */
    N_GETATTR, /* a, attr */
    N_GETITEM, /* a, b */
    N_SLICE,   /* a, list of three, each may be NULL */
    N_FILTER,  /* a (NULL: the captured block), attr = name, args, builtin */
    N_TEST,    /* a, attr = name, args, builtin */
    N_CALL,    /* a, args */
    N_COND,    /* a = test, b, c (may be NULL) */
    /* statements */
    N_OUTPUT,      /* list */
    N_IF,          /* a = test, body, list = elif nodes (N_IF with a and body), other */
    N_FOR,         /* a = target, b = iterable, c = filter or NULL, body, other; scopes[0..2]; recursive, extended */
    N_SET,         /* a = target, b = value */
    N_SETBLOCK,    /* a = target, b = filter or NULL, body, scopes[0] */
    N_MACRO,       /* name (hops, slot), params, defaults, body, scopes[0] */
    N_CALLBLOCK,   /* a = call, params, defaults, body, scopes[0] */
    N_GENERATION,  /* body, scopes[0]: renders its body in a scope of its own */
    N_FILTERBLOCK, /* b = filter, body, scopes[0] */
    N_WITH,        /* list = targets, values, body, scopes[0] */
    N_BLOCK,       /* body, scopes[0] */
    N_BREAK,
    N_CONTINUE,
} node_kind;

typedef struct node node;

typedef struct node_list {
    node **items;
    size_t count;
    size_t cap;
} node_list;

typedef struct call_args {
    node_list pos;
    node_list kw_values;
    view     *kw_names;
    node     *dyn_pos, *dyn_kw; /* *args, **kwargs */
} call_args;

/* How a slot gets its value when its frame is entered. */
typedef enum load_kind { LOAD_NONE, LOAD_PARAM, LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNDEFINED } load_kind;

typedef struct scope_symbol {
    view      name;
    load_kind load;
    bool      has_ref, stored;
    int       hops, slot; /* ALIAS: counted from the parent frame */
} scope_symbol;

typedef struct scope {
    struct scope *parent;
    scope_symbol *symbols; /* the slots of a frame */
    int           count, cap;
} scope;

struct node {
    uint8_t     kind;
    uint8_t     op; /* tok_kind of N_BINARY */
    bool        recursive, extended, catch_kwargs, catch_varargs, uses_caller, explicit_caller;
    int         line;
    int         height; /* levels below, itself included */
    int         hops, slot;
    int         caller_slot, kwargs_slot, varargs_slot, loop_slot;
    node       *a, *b, *c;
    node_list   list, values, params, body, other;
    view        name;
    tv          value;
    uint8_t    *ops; /* N_COMPARE: tok_kind, or OP_IN, OP_NOT_IN */
    call_args  *args;
    scope      *scopes[3]; /* body, else, test */
    const void *builtin;   /* tv_filter or tv_test */
};

enum { OP_IN = 200, OP_NOT_IN = 201 };

struct tmpl {
    arena     mem;
    char     *source;
    size_t    source_len;
    node_list body;
    scope    *root;
    view     *uses; /* names that some frame looks up among the variables */
    size_t    n_uses, cap_uses;
};

/* State of one tmpl_open; failures jump back to it, so that a parser of many small functions needs no error paths. */
typedef struct parse_state {
    tmpl   *t;
    token  *toks;
    size_t  n_toks, pos;
    int     depth;
    int     loops; /* enclosing loops that a break may leave */
    size_t  work;  /* spent by the scope analysis */
    int     in_for;
    arena   scratch; /* gone when the template is open */
    jmp_buf fail;
    err    *e;
    int     rc;
} parse_state;

_Noreturn void parse_fail(parse_state *p, int line, const char *fmt, ...) BASE_PRINTF(3, 4);
_Noreturn void parse_nomem(parse_state *p);
void          *parse_alloc(parse_state *p, size_t bytes); /* zeroed */
/* A place for one more: the array, or a copy with twice the room (first: to begin with) where it is full. */
void *parse_grow(parse_state *p, void *items, size_t count, size_t *cap, size_t first, size_t elem);

void  lex_template(parse_state *p); /* fills toks */
node *parse_expression(parse_state *p, bool with_cond);
node *parse_tuple(parse_state *p, bool with_cond, const char *end_name, bool parens);
node *parse_target(parse_state *p, bool with_ns, const char *end_name);
node *parse_filter_chain(parse_state *p, node *on, bool start_inline);
node *node_new(parse_state *p, node_kind kind, int line);
void  node_push(parse_state *p, node_list *l, node *n);
void  node_raise(parse_state *p, node *n, const node *child);
void  scope_bind(parse_state *p); /* names to slots, filters and tests to functions */

/* Token helpers shared by the statement and expression parsers. */
static inline token *tok_now(parse_state *p) { return &p->toks[p->pos]; }
static inline token *tok_next(parse_state *p) {
    token *t = &p->toks[p->pos];
    if (t->kind != TOK_EOF) p->pos++;
    return t;
}
bool   tok_is_name(const token *t, const char *name);
bool   tok_skip(parse_state *p, tok_kind kind);
bool   tok_skip_name(parse_state *p, const char *name);
token *tok_expect(parse_state *p, tok_kind kind, const char *what);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go's templates written in Jinja, within the registry: the parts of a translation.
 *
 *   modelfile_go.c         texts, actions and blocks; the whole
 *   modelfile_go_expr.c    operands, functions and pipes
 *
 * What is known of a value is its kind, which says how it is printed. A variable of Go is an attribute of the Jinja
 * namespace `go`, under a number of its own (go.v3), so that an assignment inside a range reaches the outer variable and
 * a name that is declared again hides the first one. The dot of a range or with is a Jinja variable (dot2); at the root
 * it is not a value.
 */
#ifndef REGISTRY_MODELFILE_GO_H
#define REGISTRY_MODELFILE_GO_H

#include "base/str.h"

#include <stdbool.h>

/* JSON: a structure that prints itself as JSON. ANY: a value from the user's JSON, printed as Go prints values. TYPE: of
 * a tool's parameter, one name or a list of names. */
typedef enum go_kind { GO_TEXT, GO_INT, GO_BOOL, GO_JSON, GO_ANY, GO_TYPE } go_kind;

typedef struct go_value {
    str     text; /* a Jinja expression that can stand before a filter */
    go_kind kind;
    go_kind item; /* of its elements */
} go_value;

enum { GO_MAX_NESTING = 32, GO_MAX_WORD = 64, GO_MAX_VARS = 64 };

typedef enum go_block { GO_IF, GO_RANGE, GO_WITH } go_block;

typedef struct go_scope {
    go_block block;
    int      dot; /* what the dot was before, and how many variables there were */
    go_kind  dot_kind, dot_item;
    int      n_vars;
    bool     chained; /* ends together with the block around it: else with */
    bool     silent;  /* begun behind the cut */
    bool     other;   /* its else was met */
} go_scope;

typedef struct go_var {
    char    name[GO_MAX_WORD];
    int     id;
    go_kind kind, item;
} go_var;

typedef struct go {
    const char *at, *end; /* of the action at hand */
    str        *out;
    str         unheard; /* where everything behind the cut goes */
    go_scope    scopes[GO_MAX_NESTING];
    go_var      vars[GO_MAX_VARS];
    int         n_scopes, n_vars, n_ids, n_dots, depth;
    int         dot; /* number of the dot's variable; 0: the root */
    go_kind     dot_kind, dot_item;
    bool        messages;  /* .Messages was met */
    bool        response;  /* .Response was met, in an action that prints */
    bool        cuts, cut; /* nothing behind .Response is written; it was met */
    bool        bad, nomem;
} go;

void go_value_init(go_value *v);
void go_value_deinit(go_value *v);
void go_value_check(go *g, const go_value *v); /* memory was short: the translation fails */

/* A pipeline of the action; sets g->bad where it is not understood. */
void go_pipeline(go *g, go_value *out);

void go_skip_space(go *g);

/* Takes a symbol or a keyword of the action, if it comes next; a word of letters, digits and _ (perhaps empty). */
bool go_takes(go *g, const char *what);
void go_word(go *g, char out[GO_MAX_WORD]);

go_var *go_var_find(go *g, const char *name);

/* A text as a Jinja string with its quotes. */
void go_put_string(str *out, const char *text, size_t n);

#endif

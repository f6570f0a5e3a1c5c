/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions, by recursive descent with Jinja's precedence, loosest first: inline if, or, and, not, comparisons and
 * in,
 * + -, ~, * / // %, ** (left-associative here), unary + - (which bind tighter than **), then postfix, filters and
 * tests.
 */
#include "template/ast.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 200, MAX_HEIGHT = 600 };

static node *parse_unary(parse_state *p, bool with_filter);
static node *parse_or(parse_state *p);

node *node_new(parse_state *p, node_kind kind, int line) {
    node *n = parse_alloc(p, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = line;
    n->height = 1;
    return n;
}

/* Keeps the height of a tree, so that evaluating a long chain of operators cannot exhaust the stack. */
void node_raise(parse_state *p, node *n, const node *child) {
    if (!child) return;
    if (child->height >= n->height) n->height = child->height + 1;
    if (n->height > MAX_HEIGHT) parse_fail(p, n->line, "the expression is too deep");
}

void node_push(parse_state *p, node_list *l, node *n) {
    l->items = parse_grow(p, l->items, l->count, &l->cap, 4, sizeof *l->items);
    l->items[l->count++] = n;
}

static void push_child(parse_state *p, node *parent, node_list *l, node *n) {
    node_push(p, l, n);
    node_raise(p, parent, n);
}

static node *node_pair(parse_state *p, node_kind kind, int op, node *a, node *b, int line) {
    node *n = node_new(p, kind, line);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    node_raise(p, n, a);
    node_raise(p, n, b);
    return n;
}

bool tok_is_name(const token *t, const char *name) { return t->kind == TOK_NAME && view_eq_c(t->text, name); }

bool tok_skip(parse_state *p, tok_kind kind) {
    if (tok_now(p)->kind != kind) return false;
    tok_next(p);
    return true;
}

bool tok_skip_name(parse_state *p, const char *name) {
    if (!tok_is_name(tok_now(p), name)) return false;
    tok_next(p);
    return true;
}

static void describe(const token *t, char out[64]) {
    if (t->kind == TOK_EOF) {
        strcpy(out, "end of template");
    } else if (t->kind == TOK_VAR_END) {
        strcpy(out, "end of print statement");
    } else if (t->kind == TOK_BLOCK_END) {
        strcpy(out, "end of statement block");
    } else if (t->kind == TOK_INT || t->kind == TOK_FLOAT) {
        strcpy(out, "number");
    } else {
        snprintf(out, 64, "%.*s", (int)(t->text.len < 40 ? t->text.len : 40), t->text.data ? t->text.data : "");
    }
}

token *tok_expect(parse_state *p, tok_kind kind, const char *what) {
    token *t = tok_now(p);
    if (t->kind != kind) {
        char got[64];
        describe(t, got);
        parse_fail(p, t->line, "expected %s, got '%s'", what, got);
    }
    return tok_next(p);
}

static node *parse_cond(parse_state *p) {
    int   line = tok_now(p)->line;
    node *n = parse_or(p);
    while (tok_skip_name(p, "if")) {
        node *cond = node_new(p, N_COND, line);
        cond->b = n;
        cond->a = parse_or(p);
        if (tok_skip_name(p, "else")) cond->c = parse_expression(p, true);
        node_raise(p, cond, cond->a);
        node_raise(p, cond, cond->b);
        node_raise(p, cond, cond->c);
        n = cond;
        line = tok_now(p)->line;
    }
    return n;
}

node *parse_expression(parse_state *p, bool with_cond) {
    if (++p->depth > MAX_NESTING) parse_fail(p, tok_now(p)->line, "the expression nests too deeply");
    node *n = with_cond ? parse_cond(p) : parse_or(p);
    p->depth--;
    return n;
}

static node *parse_concat(parse_state *p);

static node *parse_math1(parse_state *p) {
    node *left = parse_concat(p);
    for (;;) {
        token *t = tok_now(p);
        if (t->kind != TOK_ADD && t->kind != TOK_SUB) return left;
        tok_next(p);
        left = node_pair(p, N_BINARY, (int)t->kind, left, parse_concat(p), t->line);
    }
}

static node *parse_compare(parse_state *p) {
    node   *first = parse_math1(p), *n = NULL;
    uint8_t ops[64];
    size_t  n_ops = 0;
    for (;;) {
        token *t = tok_now(p);
        int    op;
        if (t->kind >= TOK_EQ && t->kind <= TOK_LE) {
            op = (int)t->kind;
        } else if (tok_is_name(t, "in")) {
            op = OP_IN;
        } else if (tok_is_name(t, "not") && tok_is_name(t + 1, "in")) {
            op = OP_NOT_IN;
            tok_next(p);
        } else {
            break;
        }
        tok_next(p);
        if (!n) {
            n = node_new(p, N_COMPARE, t->line);
            n->a = first;
            node_raise(p, n, first);
        }
        if (n_ops == sizeof ops) parse_fail(p, t->line, "too many comparisons in a row");
        ops[n_ops++] = (uint8_t)op;
        push_child(p, n, &n->list, parse_math1(p));
    }
    if (!n) return first;
    n->ops = parse_alloc(p, n_ops);
    memcpy(n->ops, ops, n_ops);
    return n;
}

static node *parse_not(parse_state *p) {
    token *t = tok_now(p);
    if (!tok_is_name(t, "not")) return parse_compare(p);
    tok_next(p);
    if (++p->depth > MAX_NESTING) parse_fail(p, t->line, "the expression nests too deeply");
    node *n = node_pair(p, N_NOT, 0, parse_not(p), NULL, t->line);
    p->depth--;
    return n;
}

static node *parse_and(parse_state *p) {
    node *left = parse_not(p);
    while (tok_skip_name(p, "and")) left = node_pair(p, N_AND, 0, left, parse_not(p), left->line);
    return left;
}

static node *parse_or(parse_state *p) {
    node *left = parse_and(p);
    while (tok_skip_name(p, "or")) left = node_pair(p, N_OR, 0, left, parse_and(p), left->line);
    return left;
}

static node *parse_pow(parse_state *p) {
    node *left = parse_unary(p, true);
    for (token *t = tok_now(p); tok_skip(p, TOK_POW); t = tok_now(p))
        left = node_pair(p, N_BINARY, TOK_POW, left, parse_unary(p, true), t->line);
    return left;
}

static node *parse_math2(parse_state *p) {
    node *left = parse_pow(p);
    for (;;) {
        token *t = tok_now(p);
        if (t->kind < TOK_MUL || t->kind > TOK_MOD) return left;
        tok_next(p);
        left = node_pair(p, N_BINARY, (int)t->kind, left, parse_pow(p), t->line);
    }
}

static node *parse_concat(parse_state *p) {
    node *first = parse_math2(p), *n = NULL;
    while (tok_skip(p, TOK_TILDE)) {
        if (!n) {
            n = node_new(p, N_CONCAT, first->line);
            push_child(p, n, &n->list, first);
        }
        push_child(p, n, &n->list, parse_math2(p));
    }
    return n ? n : first;
}

static call_args *parse_call_args(parse_state *p, node *owner) {
    call_args *args = parse_alloc(p, sizeof *args);
    int        line = tok_expect(p, TOK_LPAREN, "(")->line;
    size_t     kw_cap = 0;
    bool       comma = false;
    while (tok_now(p)->kind != TOK_RPAREN) {
        if (comma) {
            tok_expect(p, TOK_COMMA, ",");
            if (tok_now(p)->kind == TOK_RPAREN) break;
        }
        comma = true;
        token *t = tok_now(p);
        bool   bad = false;
        if (tok_skip(p, TOK_MUL)) {
            bad = args->dyn_pos || args->dyn_kw;
            args->dyn_pos = parse_expression(p, true);
            node_raise(p, owner, args->dyn_pos);
        } else if (tok_skip(p, TOK_POW)) {
            bad = args->dyn_kw != NULL;
            args->dyn_kw = parse_expression(p, true);
            node_raise(p, owner, args->dyn_kw);
        } else if (t->kind == TOK_NAME && t[1].kind == TOK_ASSIGN) {
            bad = args->dyn_kw != NULL;
            tok_next(p);
            tok_next(p);
            for (size_t i = 0; i < args->kw_values.count; i++) {
                if (view_eq(args->kw_names[i], t->text)) parse_fail(p, t->line, "keyword argument repeated");
            }
            if (args->kw_values.count == 256) parse_fail(p, t->line, "too many keyword arguments");
            args->kw_names = parse_grow(p, args->kw_names, args->kw_values.count, &kw_cap, 4, sizeof *args->kw_names);
            args->kw_names[args->kw_values.count] = t->text;
            push_child(p, owner, &args->kw_values, parse_expression(p, true));
        } else {
            bad = args->dyn_pos || args->dyn_kw || args->kw_values.count;
            push_child(p, owner, &args->pos, parse_expression(p, true));
        }
        if (bad) parse_fail(p, line, "invalid syntax for function call expression");
    }
    tok_expect(p, TOK_RPAREN, ")");
    return args;
}

static node *parse_call(parse_state *p, node *callee) {
    node *n = node_pair(p, N_CALL, 0, callee, NULL, tok_now(p)->line);
    n->args = parse_call_args(p, n);
    return n;
}

/* One part of a subscript: an expression or a slice. A slice comes back as N_SLICE without its object. */
static node *parse_subscribed(parse_state *p) {
    int   line = tok_now(p)->line;
    node *parts[3] = { NULL, NULL, NULL };
    if (tok_now(p)->kind != TOK_COLON) {
        parts[0] = parse_expression(p, true);
        if (tok_now(p)->kind != TOK_COLON) return parts[0];
    }
    tok_next(p);
    token *t = tok_now(p);
    if (t->kind != TOK_COLON && t->kind != TOK_RBRACKET && t->kind != TOK_COMMA) parts[1] = parse_expression(p, true);
    if (tok_skip(p, TOK_COLON)) {
        t = tok_now(p);
        if (t->kind != TOK_RBRACKET && t->kind != TOK_COMMA) parts[2] = parse_expression(p, true);
    }
    node *n = node_new(p, N_SLICE, line);
    for (int i = 0; i < 3; i++) {
        node_push(p, &n->list, parts[i]);
        node_raise(p, n, parts[i]);
    }
    return n;
}

static node *parse_subscript(parse_state *p, node *on) {
    token *t = tok_next(p);
    if (t->kind == TOK_DOT) {
        token *attr = tok_next(p);
        if (attr->kind == TOK_NAME) {
            node *n = node_pair(p, N_GETATTR, 0, on, NULL, t->line);
            n->name = attr->text;
            return n;
        }
        if (attr->kind != TOK_INT) parse_fail(p, attr->line, "expected name or number");
        node *key = node_new(p, N_CONST, attr->line);
        key->value = attr->value;
        return node_pair(p, N_GETITEM, 0, on, key, t->line);
    }
    node  *first = NULL, *tuple = NULL;
    size_t count = 0;
    while (tok_now(p)->kind != TOK_RBRACKET) {
        if (count) tok_expect(p, TOK_COMMA, ",");
        node *part = parse_subscribed(p);
        if (count == 0) first = part;
        if (count == 1) {
            tuple = node_new(p, N_TUPLE, t->line);
            push_child(p, tuple, &tuple->list, first);
        }
        if (count) push_child(p, tuple, &tuple->list, part);
        if (part->kind == N_SLICE && !part->a && (count || tuple))
            parse_fail(p, t->line, "slices in a tuple subscript are not supported");
        count++;
    }
    tok_expect(p, TOK_RBRACKET, "]");
    if (count == 1 && first->kind == N_SLICE && !first->a) {
        first->a = on;
        node_raise(p, first, on);
        return first;
    }
    if (tuple && tuple->list.items[0]->kind == N_SLICE && !tuple->list.items[0]->a)
        parse_fail(p, t->line, "slices in a tuple subscript are not supported");
    if (count == 0) tuple = node_new(p, N_TUPLE, t->line);
    return node_pair(p, N_GETITEM, 0, on, count == 1 ? first : tuple, t->line);
}

static node *parse_postfix(parse_state *p, node *n) {
    for (;;) {
        tok_kind k = tok_now(p)->kind;
        if (k == TOK_DOT || k == TOK_LBRACKET)
            n = parse_subscript(p, n);
        else if (k == TOK_LPAREN)
            n = parse_call(p, n);
        else
            return n;
    }
}

/* "a.b.c" after a pipe or "is". */
static view parse_dotted(parse_state *p) {
    view   first = tok_expect(p, TOK_NAME, "name")->text;
    size_t len = first.len;
    if (tok_now(p)->kind != TOK_DOT) return first;
    str s;
    str_init(&s);
    str_append(&s, first.data, len);
    while (tok_skip(p, TOK_DOT)) {
        if (tok_now(p)->kind != TOK_NAME) {
            str_deinit(&s);
            tok_expect(p, TOK_NAME, "name");
        }
        view part = tok_next(p)->text;
        str_push(&s, '.');
        str_append(&s, part.data, part.len);
    }
    char *copy = str_ok(&s) ? arena_strndup(&p->t->mem, str_cstr(&s), s.len) : NULL;
    len = s.len;
    str_deinit(&s);
    if (!copy) parse_nomem(p);
    return (view){ copy, len };
}

node *parse_filter_chain(parse_state *p, node *on, bool start_inline) {
    while (tok_now(p)->kind == TOK_PIPE || start_inline) {
        if (!start_inline) tok_next(p);
        start_inline = false;
        node *n = node_pair(p, N_FILTER, 0, on, NULL, tok_now(p)->line);
        n->name = parse_dotted(p);
        n->args = tok_now(p)->kind == TOK_LPAREN ? parse_call_args(p, n) : parse_alloc(p, sizeof *n->args);
        on = n;
    }
    return on;
}

static node *parse_primary(parse_state *p, bool with_ns);

static node *parse_test(parse_state *p, node *on) {
    int   line = tok_next(p)->line;
    bool  negated = tok_skip_name(p, "not");
    node *n = node_pair(p, N_TEST, 0, on, NULL, line);
    n->name = parse_dotted(p);
    token *t = tok_now(p);
    if (t->kind == TOK_LPAREN) {
        n->args = parse_call_args(p, n);
    } else {
        n->args = parse_alloc(p, sizeof *n->args);
        bool takes = t->kind == TOK_NAME || t->kind == TOK_STRING || t->kind == TOK_INT || t->kind == TOK_FLOAT ||
                     t->kind == TOK_LBRACKET || t->kind == TOK_LBRACE;
        if (takes && !tok_is_name(t, "else") && !tok_is_name(t, "or") && !tok_is_name(t, "and")) {
            if (tok_is_name(t, "is")) parse_fail(p, t->line, "you cannot chain multiple tests with is");
            push_child(p, n, &n->args->pos, parse_postfix(p, parse_primary(p, false)));
        }
    }
    return negated ? node_pair(p, N_NOT, 0, n, NULL, line) : n;
}

static node *parse_unary(parse_state *p, bool with_filter) {
    token *t = tok_now(p);
    node  *n;
    if (t->kind == TOK_SUB || t->kind == TOK_ADD) {
        tok_next(p);
        if (++p->depth > MAX_NESTING) parse_fail(p, t->line, "the expression nests too deeply");
        n = node_pair(p, t->kind == TOK_SUB ? N_NEG : N_POS, 0, parse_unary(p, false), NULL, t->line);
        p->depth--;
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    if (!with_filter) return n;
    for (;;) {
        t = tok_now(p);
        if (t->kind == TOK_PIPE)
            n = parse_filter_chain(p, n, false);
        else if (tok_is_name(t, "is"))
            n = parse_test(p, n);
        else if (t->kind == TOK_LPAREN)
            n = parse_call(p, n);
        else
            return n;
    }
}

static node *parse_list(parse_state *p) {
    node *n = node_new(p, N_LIST, tok_next(p)->line);
    while (tok_now(p)->kind != TOK_RBRACKET) {
        if (n->list.count) tok_expect(p, TOK_COMMA, ",");
        if (tok_now(p)->kind == TOK_RBRACKET) break;
        push_child(p, n, &n->list, parse_expression(p, true));
    }
    tok_expect(p, TOK_RBRACKET, "]");
    return n;
}

static node *parse_dict(parse_state *p) {
    node *n = node_new(p, N_DICT, tok_next(p)->line);
    while (tok_now(p)->kind != TOK_RBRACE) {
        if (n->list.count) tok_expect(p, TOK_COMMA, ",");
        if (tok_now(p)->kind == TOK_RBRACE) break;
        push_child(p, n, &n->list, parse_expression(p, true));
        tok_expect(p, TOK_COLON, ":");
        push_child(p, n, &n->list, parse_expression(p, true));
    }
    tok_expect(p, TOK_RBRACE, "}");
    return n;
}

static node *const_string(parse_state *p) {
    token *t = tok_next(p);
    view   text = t->text;
    node  *n = node_new(p, N_CONST, t->line);
    while (tok_now(p)->kind == TOK_STRING) { /* adjacent literals join */
        view  more = tok_next(p)->text;
        char *joined = parse_alloc(p, text.len + more.len + 1);
        if (text.len) memcpy(joined, text.data, text.len);
        if (more.len) memcpy(joined + text.len, more.data, more.len);
        text = (view){ joined, text.len + more.len };
    }
    if (text.len > UINT32_MAX) parse_fail(p, t->line, "string literal is too long");
    n->value = (tv){ .kind = TV_STR, .len = (uint32_t)text.len, .u.s = text.data };
    if (uc_ascii(text.data, text.len)) n->value.flags = TV_ASCII;
    return n;
}

static node *parse_name(parse_state *p, bool with_ns) {
    token *t = tok_next(p);
    node  *n = node_new(p, N_CONST, t->line);
    if (view_eq_c(t->text, "true") || view_eq_c(t->text, "True")) {
        n->value = tv_bool(true);
    } else if (view_eq_c(t->text, "false") || view_eq_c(t->text, "False")) {
        n->value = tv_bool(false);
    } else if (view_eq_c(t->text, "none") || view_eq_c(t->text, "None")) {
        n->value = tv_none();
    } else {
        n->kind = N_NAME;
        n->name = t->text;
        if (with_ns && tok_skip(p, TOK_DOT)) {
            n->kind = N_NSREF;
            view attr = tok_expect(p, TOK_NAME, "name")->text;
            n->value = (tv){ .kind = TV_STR, .len = (uint32_t)attr.len, .u.s = attr.data };
        }
    }
    return n;
}

static node *parse_primary(parse_state *p, bool with_ns) {
    token *t = tok_now(p);
    node  *n;
    char   got[64];
    switch (t->kind) {
    case TOK_NAME: return parse_name(p, with_ns);
    case TOK_STRING: return const_string(p);
    case TOK_INT:
    case TOK_FLOAT:
        tok_next(p);
        n = node_new(p, N_CONST, t->line);
        n->value = t->value;
        return n;
    case TOK_LPAREN:
        tok_next(p);
        n = parse_tuple(p, true, NULL, true);
        tok_expect(p, TOK_RPAREN, ")");
        return n;
    case TOK_LBRACKET: return parse_list(p);
    case TOK_LBRACE: return parse_dict(p);
    default: describe(t, got); parse_fail(p, t->line, "unexpected '%s'", got);
    }
}

static bool tuple_ends(const token *t, const char *end_name) {
    return t->kind == TOK_VAR_END || t->kind == TOK_BLOCK_END || t->kind == TOK_RPAREN ||
           (end_name && tok_is_name(t, end_name));
}

typedef enum tuple_mode { TUPLE_EXPR, TUPLE_EXPR_PLAIN, TUPLE_TARGET, TUPLE_TARGET_NS } tuple_mode;

static node *tuple_part(parse_state *p, tuple_mode mode) {
    if (mode == TUPLE_EXPR || mode == TUPLE_EXPR_PLAIN) return parse_expression(p, mode == TUPLE_EXPR);
    if (++p->depth > MAX_NESTING) parse_fail(p, tok_now(p)->line, "the target nests too deeply");
    node *n = parse_primary(p, mode == TUPLE_TARGET_NS);
    p->depth--;
    return n;
}

static node *tuple_with(parse_state *p, tuple_mode mode, const char *end_name, bool parens) {
    node_list parts = { 0 };
    int       line = tok_now(p)->line;
    bool      is_tuple = false;
    for (;;) {
        if (parts.count) tok_expect(p, TOK_COMMA, ",");
        if (tuple_ends(tok_now(p), end_name)) break;
        node_push(p, &parts, tuple_part(p, mode));
        if (tok_now(p)->kind != TOK_COMMA) break;
        is_tuple = true;
    }
    if (!is_tuple) {
        if (parts.count) return parts.items[0];
        if (!parens) {
            char got[64];
            describe(tok_now(p), got);
            parse_fail(p, tok_now(p)->line, "expected an expression, got '%s'", got);
        }
    }
    node *n = node_new(p, N_TUPLE, line);
    n->list = parts;
    for (size_t i = 0; i < parts.count; i++) node_raise(p, n, parts.items[i]);
    return n;
}

node *parse_tuple(parse_state *p, bool with_cond, const char *end_name, bool parens) {
    return tuple_with(p, with_cond ? TUPLE_EXPR : TUPLE_EXPR_PLAIN, end_name, parens);
}

static bool reserved(view name) {
    return view_eq_c(name, "true") || view_eq_c(name, "false") || view_eq_c(name, "none") || view_eq_c(name, "True") ||
           view_eq_c(name, "False") || view_eq_c(name, "None");
}

static void check_target(parse_state *p, const node *n) {
    if ((n->kind == N_NAME && !reserved(n->name)) || n->kind == N_NSREF) return;
    if (n->kind != N_TUPLE && n->kind != N_LIST) parse_fail(p, n->line, "can't assign to this expression");
    if (n->kind == N_LIST) parse_fail(p, n->line, "can't assign to 'list'");
    for (size_t i = 0; i < n->list.count; i++) check_target(p, n->list.items[i]);
}

node *parse_target(parse_state *p, bool with_ns, const char *end_name) {
    node *n = tuple_with(p, with_ns ? TUPLE_TARGET_NS : TUPLE_TARGET, end_name, false);
    check_target(p, n);
    return n;
}

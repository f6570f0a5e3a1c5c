/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, and tmpl_open which runs lexer, parser and name binding in turn. */
#include "template/ast.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 100, MAX_SOURCE_BYTES = 1 << 20 };

_Noreturn void parse_fail(parse_state *p, int line, const char *fmt, ...) {
    char    text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->rc = err_set(p->e, ERR_FORMAT, "line %d: %s", line, text);
    longjmp(p->fail, 1);
}

_Noreturn void parse_nomem(parse_state *p) {
    p->rc = p->t->mem.at_limit ? err_set(p->e, ERR_LIMIT, "the template is too large") : err_set_nomem(p->e);
    longjmp(p->fail, 1);
}

void *parse_alloc(parse_state *p, size_t bytes) {
    void *m = arena_calloc(&p->t->mem, 1, bytes ? bytes : 1);
    if (!m) parse_nomem(p);
    return m;
}

void *parse_grow(parse_state *p, void *items, size_t count, size_t *cap, size_t first, size_t elem) {
    if (count < *cap) return items;
    *cap = *cap ? *cap * 2 : first;
    void *grown = parse_alloc(p, *cap * elem);
    if (count) memcpy(grown, items, count * elem);
    return grown;
}

static node *parse_statement(parse_state *p);

typedef struct end_names {
    const char *names[3];
} end_names;

static bool is_end(const token *t, const end_names *ends) {
    for (int i = 0; ends && i < 3 && ends->names[i]; i++) {
        if (tok_is_name(t, ends->names[i])) return true;
    }
    return false;
}

static void push_output(parse_state *p, node_list *out, node **open, node *n) {
    if (!*open) {
        *open = node_new(p, N_OUTPUT, n->line);
        node_push(p, out, *open);
    }
    node_push(p, &(*open)->list, n);
    node_raise(p, *open, n);
}

/* Text, prints and statements up to a block tag whose name is in ends (NULL: up to the end of the template). */
static void parse_until(parse_state *p, node_list *out, const end_names *ends, int line) {
    node *open = NULL;
    if (++p->depth > MAX_BLOCKS) parse_fail(p, tok_now(p)->line, "blocks nest too deeply");
    for (;;) {
        token *t = tok_now(p);
        if (t->kind == TOK_DATA) {
            node *data = node_new(p, N_CONST, t->line);
            if (t->text.len > UINT32_MAX) parse_fail(p, t->line, "too much text");
            data->value = (tv){ .kind = TV_STR, .len = (uint32_t)t->text.len, .u.s = t->text.data };
            push_output(p, out, &open, data);
            tok_next(p);
        } else if (t->kind == TOK_VAR_BEGIN) {
            tok_next(p);
            push_output(p, out, &open, parse_tuple(p, true, NULL, false));
            tok_expect(p, TOK_VAR_END, "end of print statement");
        } else if (t->kind == TOK_BLOCK_BEGIN) {
            tok_next(p);
            open = NULL;
            if (is_end(tok_now(p), ends)) break;
            node *n = parse_statement(p);
            if (n) node_push(p, out, n);
            tok_expect(p, TOK_BLOCK_END, "end of statement block");
        } else {
            if (ends) parse_fail(p, line, "unexpected end of template, looking for '%s'", ends->names[0]);
            break;
        }
    }
    p->depth--;
}

/* The rest of an opening tag and the body behind it; the current token is the end tag's name afterwards. */
static void parse_block_body(parse_state *p, node *n, node_list *out, const end_names *ends) {
    tok_skip(p, TOK_COLON);
    tok_expect(p, TOK_BLOCK_END, "end of statement block");
    parse_until(p, out, ends, n->line);
}

static void parse_body_to(parse_state *p, node *n, const char *end_name) {
    parse_block_body(p, n, &n->body, &(end_names){ { end_name } });
    tok_next(p);
}

static node *parse_for(parse_state *p, int line) {
    node *n = node_new(p, N_FOR, line);
    n->a = parse_target(p, false, "in");
    if (!tok_skip_name(p, "in")) parse_fail(p, tok_now(p)->line, "expected 'in' in a for loop");
    n->b = parse_tuple(p, false, "recursive", false);
    if (tok_skip_name(p, "if")) n->c = parse_expression(p, true);
    n->recursive = tok_skip_name(p, "recursive");
    p->loops++;
    parse_block_body(p, n, &n->body, &(end_names){ { "endfor", "else" } });
    p->loops--;
    if (tok_is_name(tok_next(p), "else")) {
        parse_block_body(p, n, &n->other, &(end_names){ { "endfor" } });
        tok_next(p);
    }
    return n;
}

static node *parse_if(parse_state *p, int line) {
    static const end_names ends = { { "elif", "else", "endif" } };
    node                  *first = node_new(p, N_IF, line), *n = first;
    for (;;) {
        n->a = parse_tuple(p, false, NULL, false);
        parse_block_body(p, n, &n->body, &ends);
        token *t = tok_next(p);
        if (tok_is_name(t, "elif")) {
            n = node_new(p, N_IF, tok_now(p)->line);
            node_push(p, &first->list, n);
            continue;
        }
        if (tok_is_name(t, "else")) {
            parse_block_body(p, first, &first->other, &(end_names){ { "endif" } });
            tok_next(p);
        }
        return first;
    }
}

static node *parse_set(parse_state *p, int line) {
    node *n = node_new(p, N_SET, line);
    n->a = parse_target(p, true, NULL);
    if (tok_skip(p, TOK_ASSIGN)) {
        n->b = parse_tuple(p, true, NULL, false);
        return n;
    }
    n->kind = N_SETBLOCK;
    n->b = parse_filter_chain(p, NULL, false);
    parse_body_to(p, n, "endset");
    return n;
}

static node *parse_param(parse_state *p) {
    token *t = tok_expect(p, TOK_NAME, "name");
    node  *n = node_new(p, N_NAME, t->line);
    n->name = t->text;
    return n;
}

static void parse_signature(parse_state *p, node *n) {
    tok_expect(p, TOK_LPAREN, "(");
    while (tok_now(p)->kind != TOK_RPAREN) {
        if (n->params.count) tok_expect(p, TOK_COMMA, ",");
        node *param = parse_param(p);
        for (size_t i = 0; i < n->params.count; i++) {
            if (view_eq(n->params.items[i]->name, param->name)) parse_fail(p, param->line, "duplicate argument");
        }
        if (n->params.count > 64) parse_fail(p, param->line, "too many parameters");
        if (tok_skip(p, TOK_ASSIGN))
            node_push(p, &n->values, parse_expression(p, true));
        else if (n->values.count)
            parse_fail(p, param->line, "non-default argument follows default argument");
        node_push(p, &n->params, param);
    }
    tok_expect(p, TOK_RPAREN, ")");
}

/* Macro and call bodies are functions of their own: a break inside cannot leave a loop outside. */
static void parse_function_body(parse_state *p, node *n, const char *end_name) {
    int loops = p->loops;
    p->loops = 0;
    parse_body_to(p, n, end_name);
    p->loops = loops;
}

static node *parse_macro(parse_state *p, int line) {
    node *n = node_new(p, N_MACRO, line);
    n->name = parse_param(p)->name;
    parse_signature(p, n);
    parse_function_body(p, n, "endmacro");
    return n;
}

static node *parse_call_block(parse_state *p, int line) {
    node *n = node_new(p, N_CALLBLOCK, line);
    if (tok_now(p)->kind == TOK_LPAREN) parse_signature(p, n);
    n->a = parse_expression(p, true);
    if (n->a->kind != N_CALL) parse_fail(p, line, "expected call");
    parse_function_body(p, n, "endcall");
    return n;
}

static node *parse_with(parse_state *p, int line) {
    node *n = node_new(p, N_WITH, line);
    while (tok_now(p)->kind != TOK_BLOCK_END) {
        if (n->list.count) tok_expect(p, TOK_COMMA, ",");
        node_push(p, &n->list, parse_target(p, false, NULL));
        tok_expect(p, TOK_ASSIGN, "=");
        node_push(p, &n->values, parse_expression(p, true));
    }
    parse_body_to(p, n, "endwith");
    return n;
}

static node *parse_block(parse_state *p, int line) {
    node *n = node_new(p, N_BLOCK, line);
    n->name = tok_expect(p, TOK_NAME, "name")->text;
    if (tok_skip_name(p, "scoped") || tok_skip_name(p, "required"))
        parse_fail(p, line, "scoped and required blocks are not supported");
    int loops = p->loops;
    p->loops = 0;
    parse_body_to(p, n, "endblock");
    p->loops = loops;
    token *t = tok_now(p);
    if (t->kind == TOK_NAME && view_eq(t->text, n->name)) tok_next(p);
    return n;
}

static node *parse_print(parse_state *p, int line) {
    node *n = node_new(p, N_OUTPUT, line);
    while (tok_now(p)->kind != TOK_BLOCK_END) {
        if (n->list.count) tok_expect(p, TOK_COMMA, ",");
        node *part = parse_expression(p, true);
        node_push(p, &n->list, part);
        node_raise(p, n, part);
    }
    return n;
}

static node *parse_statement(parse_state *p) {
    static const char *const refused[] = { "include", "import", "from", "extends", "autoescape" };
    token                   *t = tok_now(p);
    if (t->kind != TOK_NAME) parse_fail(p, t->line, "tag name expected");
    view name = t->text;
    int  line = tok_next(p)->line;
    if (view_eq_c(name, "for")) return parse_for(p, line);
    if (view_eq_c(name, "if")) return parse_if(p, line);
    if (view_eq_c(name, "set")) return parse_set(p, line);
    if (view_eq_c(name, "macro")) return parse_macro(p, line);
    if (view_eq_c(name, "call")) return parse_call_block(p, line);
    if (view_eq_c(name, "with")) return parse_with(p, line);
    if (view_eq_c(name, "block")) return parse_block(p, line);
    if (view_eq_c(name, "print")) return parse_print(p, line);
    if (view_eq_c(name, "filter")) {
        node *n = node_new(p, N_FILTERBLOCK, line);
        n->b = parse_filter_chain(p, NULL, true);
        parse_body_to(p, n, "endfilter");
        return n;
    }
    if (view_eq_c(name, "generation")) {
        node *n = node_new(p, N_GENERATION, line);
        parse_function_body(p, n, "endgeneration");
        return n;
    }
    if (view_eq_c(name, "break") || view_eq_c(name, "continue")) {
        if (!p->loops) parse_fail(p, line, "'%.*s' outside of a loop", (int)name.len, name.data);
        return node_new(p, view_eq_c(name, "break") ? N_BREAK : N_CONTINUE, line);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (view_eq_c(name, refused[i]))
            parse_fail(p, line, "the tag '%s' is not supported in chat templates", refused[i]);
    }
    parse_fail(p, line, "encountered unknown tag '%.*s'", (int)(name.len < 60 ? name.len : 60), name.data);
}

/* The whole template. */
static void parse_body(parse_state *p) {
    parse_until(p, &p->t->body, NULL, 1);
    if (tok_now(p)->kind != TOK_EOF) parse_fail(p, tok_now(p)->line, "unexpected token");
}

int tmpl_open(tmpl **out, const char *source, size_t bytes, err *e) {
    parse_state p = { .e = e };
    *out = NULL;
    if (bytes > MAX_SOURCE_BYTES)
        return err_set(e, ERR_LIMIT, "the template has %zu bytes; at most %d are read", bytes, MAX_SOURCE_BYTES);
    tmpl *t = calloc(1, sizeof *t);
    if (!t) return err_set_nomem(e);
    arena_init(&t->mem, (size_t)768 << 20);
    arena_init(&p.scratch, (size_t)256 << 20);
    p.t = t;
    if (setjmp(p.fail)) {
        arena_deinit(&p.scratch);
        tmpl_free(t);
        return p.rc;
    }
    t->source = parse_alloc(&p, bytes + 1);
    if (bytes) memcpy(t->source, source, bytes);
    t->source_len = bytes;
    lex_template(&p);
    parse_body(&p);
    scope_bind(&p);
    arena_deinit(&p.scratch);
    *out = t;
    return 0;
}

void tmpl_free(tmpl *t) {
    if (!t) return;
    arena_deinit(&t->mem);
    free(t);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer may be, in every form that clients send: OpenAI's and llama.cpp's response_format, the fields of llama.cpp
 * and vLLM. A form leads to one of the runtime's constraints or is refused; none is dropped, and two exclude each other.
 */
#include "server/constraints.h"

#include "grammar/lark.h"
#include "server/params.h"

#include <string.h>

static void set_constraint(exchange *x, const node *n, runtime_request *q, runtime_constraint_kind kind, view text) {
    if (q->constraint.kind != RUNTIME_FREE)
        reader_fail(&x->in, n, "the answer is already constrained by another field");
    q->constraint = (runtime_constraint){ kind, text };
}

/* A schema is an object or a boolean; vLLM also takes its text. */
static void set_schema(exchange *x, const node *n, runtime_request *q) {
    view text = { "", 0 };
    switch (node_is(n)) {
    case NODE_ABSENT: return;
    case NODE_STRING: text = node_text(n); break;
    case NODE_OBJECT:
    case NODE_BOOL:
        if (!params_json(x, n, &text)) return;
        break;
    default: reader_fail(&x->in, n, "expected a JSON schema"); return;
    }
    set_constraint(x, n, q, RUNTIME_SCHEMA, text);
}

static void set_text(exchange *x, const node *n, runtime_request *q, runtime_constraint_kind kind) {
    if (node_is(n) == NODE_ABSENT || !need_kind(&x->in, n, NODE_STRING)) return;
    if (kind == RUNTIME_GBNF && !node_text(n).len) return; /* llama.cpp's "none" */
    set_constraint(x, n, q, kind, node_text(n));
}

/* vLLM takes a grammar in two languages, and tells them apart as here: rules with ::= are GBNF's, others Lark's. */
static void set_grammar(exchange *x, const node *n, runtime_request *q) {
    view source = node_text(n), pattern = { "", 0 };
    err  e = { 0 };
    str  text;
    if (node_is(n) != NODE_STRING || !source.len || memmem(source.data, source.len, "::=", 3)) {
        set_text(x, n, q, RUNTIME_GBNF);
        return;
    }
    str_init(&text);
    str_puts(&text, "^(?:");
    int rc = grammar_lark_pattern(source, &text, &e);
    str_puts(&text, ")$");
    if (rc < 0)
        reader_fail(&x->in, n, "has no ::=, so it is read as Lark: %s", e.msg);
    else if (exchange_copy(x, &text, &pattern))
        set_constraint(x, n, q, RUNTIME_REGEX, pattern);
    str_deinit(&text);
}

static void set_choices(exchange *x, const node *n, runtime_request *q) {
    view text;
    if (node_is(n) == NODE_ABSENT || !need_kind(&x->in, n, NODE_ARRAY)) return;
    if (node_count(n) == 0) reader_fail(&x->in, n, "is empty; at least one choice is required");
    for (size_t i = 0; i < node_count(n); i++) {
        node one = node_at(n, i);
        if (!need_kind(&x->in, &one, NODE_STRING)) return;
    }
    if (params_json(x, n, &text)) set_constraint(x, n, q, RUNTIME_CHOICES, text);
}

/* What no grammar here can say: refused where it asks for something. */
static void refuse(exchange *x, const node *o, const char *const *names) {
    for (size_t i = 0; names[i]; i++) {
        node n = read_any(&x->in, o, names[i]);
        if (node_is(&n) != NODE_ABSENT && (node_is(&n) != NODE_BOOL || node_true(&n)))
            reader_fail(&x->in, &n, "is not supported");
    }
}

/* vLLM's newer form: one object. */
static void read_structured(exchange *x, const node *body, runtime_request *q) {
    static const char *const refused[] = { "structural_tag", "whitespace_pattern", NULL };
    static const char *const hints[] = { "backend", "disable_fallback", "disable_any_whitespace",
                                         "disable_additional_properties", NULL };
    node                     o, n;
    bool                     flag;
    if (!read_object(&x->in, body, "structured_outputs", &o)) return;
    n = read_any(&x->in, &o, "json");
    set_schema(x, &n, q);
    n = read_any(&x->in, &o, "regex");
    set_text(x, &n, q, RUNTIME_REGEX);
    n = read_any(&x->in, &o, "grammar");
    set_grammar(x, &n, q);
    n = read_any(&x->in, &o, "choice");
    set_choices(x, &n, q);
    n = node_get(&o, "json_object");
    if (read_bool(&x->in, &o, "json_object", &flag) && flag) set_constraint(x, &n, q, RUNTIME_JSON, (view){ "", 0 });
    refuse(x, &o, refused);
    for (size_t i = 0; hints[i]; i++) read_any(&x->in, &o, hints[i]);
}

void params_json_form(exchange *x, const node *o, runtime_request *q) {
    bool flag;
    if (read_bool(&x->in, o, "strict_json", &flag)) q->full_json = !flag;
}

void params_grammar(exchange *x, const node *o, runtime_request *q) {
    static const char *const refused[] = { "guided_whitespace_pattern", "structural_tag", "grammar_lazy", NULL };
    static const struct {
        const char             *name;
        runtime_constraint_kind kind;
    } texts[] = { { "grammar", RUNTIME_GBNF }, { "regex", RUNTIME_REGEX }, { "guided_regex", RUNTIME_REGEX } };
    node n;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        n = read_any(&x->in, o, texts[i].name);
        set_text(x, &n, q, texts[i].kind);
    }
    n = read_any(&x->in, o, "guided_grammar");
    set_grammar(x, &n, q);
    n = read_any(&x->in, o, "json_schema");
    set_schema(x, &n, q);
    n = read_any(&x->in, o, "guided_json");
    set_schema(x, &n, q);
    n = read_any(&x->in, o, "guided_choice");
    set_choices(x, &n, q);
    read_any(&x->in, o, "guided_decoding_backend"); /* whose machine compiles it: here there is one */
    read_structured(x, o, q);
    refuse(x, o, refused);
}

void params_format(exchange *x, const node *format, runtime_request *q, bool flat) {
    static const char *const types[] = { "text", "json_object", "json_schema", NULL };
    int                      type = 0;
    view                     text;
    node                     outer = *format, schema;
    if (!need_string(&x->in, format, "type", &text) || !read_choice(&x->in, format, "type", types, &type) || type == 0)
        return;
    schema = read_any(&x->in, format, "schema"); /* llama.cpp: beside either type */
    if (node_is(&schema) == NODE_ABSENT && type == 1) {
        set_constraint(x, format, q, RUNTIME_JSON, (view){ "", 0 });
        return;
    }
    if (node_is(&schema) == NODE_ABSENT && !flat) {
        if (!read_object(&x->in, format, "json_schema", &outer)) {
            need_kind(&x->in, &outer, NODE_OBJECT);
            return;
        }
        schema = read_any(&x->in, &outer, "schema");
    }
    if (need_kind(&x->in, &schema, NODE_OBJECT)) set_schema(x, &schema, q);
}

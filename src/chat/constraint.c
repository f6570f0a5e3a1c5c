/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tool calls as a grammar, in each family's own syntax. Fixed text is written as the model writes it; where models vary
 * in white space one blank or line break is allowed (\1), in lists an indentation as well (\2).
 */
#include "chat/constraint.h"

#include "chat/arguments.h"
#include "chat/values.h"

#include <string.h>

enum { MAX_TOOLS = 1024 };

/* --- pieces --- */

/* One blank or line break at most; wide: or a line break with an indentation. */
static ir_rx blanks(ir *g, bool wide) {
    static const ir_range set[] = { { ' ', ' ' }, { '\n', '\n' } };
    ir_rx                 one = ir_rx_opt(g, ir_rx_class(g, set, 2, false));
    if (!wide) return one;
    return ir_rx_alt(g, one, ir_rx_cat(g, ir_rx_text(g, "\n"), ir_rx_repeat(g, ir_rx_text(g, " "), 0, 12)));
}

/* Text in which \1 stands for at most one blank, \2 for an indentation as well. */
ir_rx chat_rx_pieces(ir *g, const char *text) {
    ir_rx out = ir_rx_bytes(g, "", 0);
    while (*text) {
        size_t n = strcspn(text, "\1\2");
        if (n) out = ir_rx_cat(g, out, ir_rx_bytes(g, text, n));
        text += n;
        if (*text) out = ir_rx_cat(g, out, blanks(g, *text++ == '\2'));
    }
    return out;
}

static ir_sym literal(ir *g, const char *text) { return ir_terminal(g, chat_rx_pieces(g, text)); }

static ir_rx characters(ir *g, const char *first_to_last, uint32_t min, uint32_t max) {
    ir_range set[4];
    size_t   n = 0;
    for (const char *p = first_to_last; *p && n < 4; p += 2) {
        set[n].first = (unsigned char)p[0];
        set[n++].last = (unsigned char)p[1];
    }
    return ir_rx_repeat(g, ir_rx_class(g, set, n, false), min, max);
}

/* --- one call --- */

typedef struct builder {
    ir                *g;
    const chat_format *f;
    const chat_tools  *tools;
    err               *e;
    int                rc;
} builder;

/* What stands before and behind the arguments of one call, as one terminal each. */
static ir_sym wrap(builder *b, const char *before, const char *name, const char *middle, ir_sym inside,
                   const char *behind) {
    ir_rx  rx = ir_rx_cat(b->g, chat_rx_pieces(b->g, before),
                          ir_rx_cat(b->g, ir_rx_text(b->g, name), chat_rx_pieces(b->g, middle)));
    ir_sym list[3] = { ir_terminal(b->g, rx), inside, literal(b->g, behind) };
    return ir_seq(b->g, list, *behind ? 3 : 2);
}

static ir_sym json_call(builder *b, const char *name, ir_sym arguments) {
    const chat_syntax_row *r = b->f->row;
    str                    before, quoted;
    ir_sym                 out;
    str_init(&before);
    str_init(&quoted);
    str_put_json(&quoted, name, strlen(name));
    if (!r->key_name) { /* Apertus: the name is the key */
        out = wrap(b, "{\1", str_cstr(&quoted), "\1:\1", arguments, "\1}");
    } else if (r->syntax == CHAT_SYNTAX_COMMAND_R) { /* the id comes first */
        str_printf(&before, "\",\1\"%s\":\1", r->key_name);
        ir_rx  head = ir_rx_cat(b->g, chat_rx_pieces(b->g, "{\1\"tool_call_id\":\1\""), characters(b->g, "09", 1, 3));
        ir_sym list[2] = { ir_terminal(b->g, head),
                           wrap(b, str_cstr(&before), str_cstr(&quoted), ",\1\"parameters\":\1", arguments, "\1}") };
        out = ir_seq(b->g, list, 2);
    } else {
        str middle;
        str_init(&middle);
        const char *gap = r->syntax == CHAT_SYNTAX_COMMAND_R_PLUS ? "\2" : "\1";
        str_printf(&before, "{%s\"%s\"\1:\1", gap, r->key_name);
        str_printf(&middle, "\1,%s\"%s\"\1:\1", gap, r->key_arguments);
        out = wrap(b, str_cstr(&before), str_cstr(&quoted), str_cstr(&middle), arguments, "");
        ir_rx end = chat_rx_pieces(b->g, r->syntax == CHAT_SYNTAX_COMMAND_R_PLUS ? "\2}" : "\1}");
        if (r->syntax == CHAT_SYNTAX_MISTRAL) {
            ir_rx id = ir_rx_cat(b->g, chat_rx_pieces(b->g, "\1,\1\"id\"\1:\1\""), characters(b->g, "azAZ09", 9, 9));
            end = ir_rx_cat(b->g, ir_rx_opt(b->g, ir_rx_cat(b->g, id, ir_rx_text(b->g, "\""))), end);
        }
        ir_sym list[2] = { out, ir_terminal(b->g, end) };
        out = ir_seq(b->g, list, 2);
        str_deinit(&middle);
    }
    if (before.failed || quoted.failed) ir_fail(b->g, ERR_NOMEM, "out of memory");
    str_deinit(&before);
    str_deinit(&quoted);
    return out;
}

static ir_sym name_json_call(builder *b, const char *name, ir_sym arguments) {
    const chat_syntax_row *r = b->f->row;
    switch (r->syntax) {
    case CHAT_SYNTAX_DEEPSEEK:
        if (!b->f->deepseek_fenced) return wrap(b, r->call_open, name, r->separator, arguments, r->call_close);
        return wrap(b, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", name, "\n```json\n", arguments,
                    "\n```<｜tool▁call▁end｜>");
    case CHAT_SYNTAX_KIMI: {
        ir_rx  id = ir_rx_cat(b->g, ir_rx_text(b->g, ":"), characters(b->g, "09", 1, 2));
        ir_sym list[4] = { ir_terminal(b->g, ir_rx_cat(b->g, ir_rx_text(b->g, "<|tool_call_begin|>functions."),
                                                       ir_rx_cat(b->g, ir_rx_text(b->g, name), id))),
                           literal(b->g, r->separator), arguments, literal(b->g, r->call_close) };
        return ir_seq(b->g, list, 4);
    }
    default: { /* Mistral: each call has the marker */
        ir_rx id = ir_rx_cat(b->g, ir_rx_text(b->g, "[CALL_ID]"), characters(b->g, "azAZ09", 9, 9));
        ir_rx head = ir_rx_cat(b->g, ir_rx_text(b->g, r->open), ir_rx_text(b->g, name));
        if (!b->f->compact) head = ir_rx_cat(b->g, head, ir_rx_opt(b->g, id));
        ir_sym list[2] = { ir_terminal(b->g, ir_rx_cat(b->g, head, ir_rx_text(b->g, r->separator))), arguments };
        return ir_seq(b->g, list, 2);
    }
    }
}

/* The recipient may stand before the channel or behind it. */
static ir_sym harmony_call(builder *b, const char *name, ir_sym arguments) {
    ir_rx front = ir_rx_cat(b->g, ir_rx_text(b->g, " to=functions."), ir_rx_text(b->g, name));
    ir_rx kind =
        ir_rx_alt(b->g, ir_rx_text(b->g, " <|constrain|>json<|message|>"), ir_rx_text(b->g, " json<|message|>"));
    ir_rx  first = ir_rx_cat(b->g, front, ir_rx_cat(b->g, ir_rx_text(b->g, "<|channel|>commentary"), kind));
    ir_rx  then = ir_rx_cat(b->g, ir_rx_text(b->g, "<|channel|>commentary"), ir_rx_cat(b->g, front, kind));
    ir_sym list[2] = { ir_terminal(b->g, ir_rx_alt(b->g, first, then)), arguments };
    return ir_seq(b->g, list, 2);
}

static ir_sym one_call(builder *b, const char *name, const json_value *schema, unsigned how) {
    ir_sym arguments = 0;
    err    why = { 0 };
    b->rc = chat_arguments(b->g, b->f, schema, how, &arguments, &why);
    if (b->rc < 0) {
        b->rc = err_set(b->e, b->rc, "tool %.60s: %.400s", name, why.msg);
        return arguments;
    }
    switch (b->f->row->shape) {
    case CHAT_SHAPE_JSON:
    case CHAT_SHAPE_BARE: return json_call(b, name, arguments);
    case CHAT_SHAPE_NAME_JSON: return name_json_call(b, name, arguments);
    case CHAT_SHAPE_TAGS:
        return b->f->syntax == CHAT_SYNTAX_SEED
                   ? wrap(b, "<seed:tool_call>\n<function=", name, ">\n", arguments, "</function>\n</seed:tool_call>")
                   : wrap(b, "<tool_call>\n<function=", name, ">\n", arguments, "</function>\n</tool_call>");
    case CHAT_SHAPE_PAIRS: return wrap(b, "<tool_call>", name, b->f->compact ? "" : "\n", arguments, "</tool_call>");
    case CHAT_SHAPE_INVOKE: return wrap(b, "<invoke name=\"", name, "\">\n", arguments, "</invoke>\n");
    case CHAT_SHAPE_PYTHON: return wrap(b, "", name, "(", arguments, ")");
    case CHAT_SHAPE_GEMMA: return wrap(b, "<|tool_call>call:", name, "{", arguments, "}<tool_call|>");
    case CHAT_SHAPE_HARMONY: return harmony_call(b, name, arguments);
    case CHAT_SHAPE_NONE: break;
    }
    return arguments;
}

/* --- all calls --- */

/* One call or several, with what stands between them. */
static ir_sym several(builder *b, ir_sym call, const char *between) {
    if (!b->tools->parallel || b->tools->choice == CHAT_TOOLS_NAMED) return call;
    ir_sym next[2] = { literal(b->g, between), call };
    ir_sym list[2] = { call, ir_repeat(b->g, *between ? ir_seq(b->g, next, 2) : call, 0, -1) };
    return ir_seq(b->g, list, 2);
}

static ir_sym around(builder *b, const char *before, ir_sym inside, const char *behind) {
    ir_sym list[3] = { literal(b->g, before), inside, literal(b->g, behind) };
    return ir_seq(b->g, list, *behind ? 3 : 2);
}

static ir_sym all_calls(builder *b, ir_sym call) {
    const chat_syntax_row *r = b->f->row;
    str                    before, behind;
    ir_sym                 out;
    str_init(&before);
    str_init(&behind);
    switch (r->shape) {
    case CHAT_SHAPE_JSON:
        str_printf(&before, r->list ? "%s\1[\2" : "%s\1", r->open);
        str_printf(&behind, r->list ? "\1]%s%s" : "\1%s%s", r->close && r->list ? "\1" : "", r->close ? r->close : "");
        if (r->list) {
            out = around(b, str_cstr(&before), several(b, call, "\1,\2"), str_cstr(&behind));
        } else if (r->close) {
            out = several(b, around(b, str_cstr(&before), call, str_cstr(&behind)), "\n");
        } else {
            out = around(b, str_cstr(&before), call, "");
        }
        break;
    case CHAT_SHAPE_BARE: {
        ir_sym list[2] = { ir_opt(b->g, literal(b->g, r->open)), call };
        out = ir_seq(b->g, list, 2);
        break;
    }
    case CHAT_SHAPE_NAME_JSON:
        out = r->section ? around(b, r->open, several(b, call, b->f->deepseek_fenced ? "\n" : ""), r->close)
                         : several(b, call, "");
        break;
    case CHAT_SHAPE_TAGS:
    case CHAT_SHAPE_PAIRS: out = several(b, call, "\n"); break;
    case CHAT_SHAPE_INVOKE: out = around(b, "<minimax:tool_call>\n", several(b, call, ""), r->close); break;
    case CHAT_SHAPE_PYTHON:
        out = around(b, "<|tool_call_start|>[", several(b, call, ",\1"), "]<|tool_call_end|>");
        break;
    case CHAT_SHAPE_GEMMA: out = several(b, call, ""); break;
    default: out = call; break; /* Harmony ends its turn with a call */
    }
    if (before.failed || behind.failed) ir_fail(b->g, ERR_NOMEM, "out of memory");
    str_deinit(&before);
    str_deinit(&behind);
    return out;
}

/* Names are written into every syntax as they are. */
static bool good_name(view v) {
    if (v.len == 0 || v.len > 256) return false;
    for (size_t i = 0; i < v.len; i++) {
        unsigned char c = (unsigned char)v.data[i];
        if (c <= ' ' || c == 0x7f || strchr("<>\"'\\[](){}=,", c)) return false;
    }
    return true;
}

int chat_tool_grammar(const chat_format *f, const chat_tools *tools, ir *g, ir_sym *start, err *e) {
    builder b = { .g = g, .f = f, .tools = tools, .e = e };
    size_t  n = json_count(tools->list), n_calls = 0;
    ir_sym  calls[MAX_TOOLS];
    *start = 0;
    if (f->row->shape == CHAT_SHAPE_NONE)
        return err_set(e, ERR_UNSUPPORTED, "this model's chat template shows no known way of calling tools");
    if (n == 0 || !json_is(tools->list, JSON_K_ARRAY)) return err_set(e, ERR_ARG, "no tools were offered");
    if (n > MAX_TOOLS) return err_set(e, ERR_LIMIT, "more than %d tools", MAX_TOOLS);
    for (size_t i = 0; i < n; i++) {
        const json_value *fn = chat_tool_function(json_at(tools->list, i));
        if (!fn) return err_set(e, ERR_ARG, "tool %zu has no function name", i + 1);
        view name = json_get(fn, "name")->u.string;
        if (!good_name(name))
            return err_set(e, ERR_ARG, "tool %zu: a name of letters, digits, _ and - is needed", i + 1);
        if (tools->choice == CHAT_TOOLS_NAMED && !view_eq(name, tools->name)) continue;
        /* Where the model may decide whether to call at all, a schema that is too hard costs its enforcement only;
         * unless the caller asked for it. */
        unsigned how = tools->full_json ? CHAT_ARGUMENTS_FULL_JSON : 0;
        if (tools->choice == CHAT_TOOLS_AUTO && !json_bool(json_get(fn, "strict"), false))
            how |= CHAT_ARGUMENTS_LENIENT;
        calls[n_calls++] = one_call(&b, name.data, chat_tool_schema(fn), how);
        if (b.rc < 0) return b.rc;
    }
    if (n_calls == 0)
        return err_set(e, ERR_NOTFOUND, "no tool of the name %.*s was offered",
                       (int)(tools->name.len < 100 ? tools->name.len : 100), tools->name.data);
    *start = all_calls(&b, n_calls == 1 ? calls[0] : ir_alt(g, calls, n_calls));
    return ir_error(g, e);
}

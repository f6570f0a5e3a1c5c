/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml.h"

#include <string.h>
#include <yaml.h>

typedef struct builder {
    arena         *mem;
    config_report *r;
    config_node   *stack[CONFIG_MAX_DEPTH];
    bool           want_key[CONFIG_MAX_DEPTH];
    view           key[CONFIG_MAX_DEPTH];
    int            key_line[CONFIG_MAX_DEPTH], key_column[CONFIG_MAX_DEPTH];
    int            depth;
    config_node   *root;
    int            documents;
    bool           stop;
} builder;

/* --- the text as bytes --- */

static bool check_bytes(view text, config_report *r) {
    int line = 1, column = 1;
    if (text.len > CONFIG_MAX_BYTES) {
        config_report_add(r, 0, 0, "the file has %zu bytes; a configuration has at most %d", text.len,
                          CONFIG_MAX_BYTES);
        return false;
    }
    for (size_t i = 0; i < text.len;) {
        unsigned c;
        size_t   n = utf8_decode(text.data + i, text.len - i, &c);
        if (n == 0) {
            config_report_add(r, line, column, "byte 0x%02x is not UTF-8; save the file as UTF-8",
                              (unsigned)(unsigned char)text.data[i]);
            return false;
        }
        if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f) {
            config_report_add(r, line, column, "there is a control character 0x%02x; remove it", c);
            return false;
        }
        column = c == '\n' ? 1 : column + 1;
        line += c == '\n';
        i += n;
    }
    return true;
}

/* --- what libyaml says, as a sentence with a remedy --- */

static char char_at(view text, int line, int column) {
    size_t i = 0;
    for (int at = 1; at < line && i < text.len; i++) at += text.data[i] == '\n';
    for (; column > 1 && i < text.len && text.data[i] != '\n'; column--) {
        unsigned c;
        size_t   n = utf8_decode(text.data + i, text.len - i, &c);
        i += n ? n : 1;
    }
    return i < text.len ? text.data[i] : '\0';
}

static void syntax_error(const yaml_parser_t *p, view text, config_report *r) {
    static const struct {
        const char *problem, *sentence;
    } rows[] = {
        { "could not find expected ':'",
          "a key is not followed by ':'; write 'key: value', and put text that contains ':' in quotes" },
        { "mapping values are not allowed",
          "there is a ':' where no key is allowed; put the value in quotes, or indent the line like its neighbours" },
        { "did not find expected key",
          "the line is not indented like the other keys of its section; correct the indentation" },
        { "block sequence entries are not allowed",
          "there is a '-' where no list is allowed; begin the list on a new line" },
        { "did not find expected '-' indicator",
          "the line does not belong to a list; indent it, or begin it with '-'" },
        { "did not find expected ',' or ']'", "a list in [ ] is not closed; add ',' or ']'" },
        { "did not find expected ',' or '}'", "a map in { } is not closed; add ',' or '}'" },
        { "found unexpected end of stream", "a quotation mark is missing; add it" },
        { "found unexpected document indicator", "a quotation mark is missing; add it" },
        { "found unknown escape character",
          "there is an unknown escape; write \\\\ for a backslash, or use 'single quotes'" },
        { "found undefined tag handle", "tags (!) are not supported; remove the tag" },
        { "did not find expected <document start>",
          "there is text after the end of the document; write only one document" },
        { "did not find expected whitespace or line break", "'|' or '>' needs the text on the next line" },
    };
    int line = (int)p->problem_mark.line + 1, column = (int)p->problem_mark.column + 1;
    if (p->error == YAML_MEMORY_ERROR) {
        r->no_memory = true;
        return;
    }
    if (char_at(text, line, column) == '\t') {
        config_report_add(r, line, column, "there is a tab; indent with spaces");
        return;
    }
    for (size_t i = 0; p->problem && i < sizeof rows / sizeof rows[0]; i++) {
        if (strncmp(p->problem, rows[i].problem, strlen(rows[i].problem)) != 0) continue;
        config_report_add(r, line, column, "%s", rows[i].sentence);
        return;
    }
    if (p->problem && strstr(p->problem, "cannot start any token")) {
        config_report_add(r, line, column, "'%c' cannot begin a value; put the value in quotes",
                          char_at(text, line, column));
        return;
    }
    config_report_add(r, line, column, "the line is not valid YAML: %s; correct it",
                      p->problem ? p->problem : "unreadable");
}

/* --- events to nodes --- */

/* The arena gave nothing: it is full, or memory is. */
static void too_large(builder *b, int line, int column) {
    if (b->mem->at_limit)
        config_report_add(b->r, line, column, "the file is too large; shorten it");
    else
        b->r->no_memory = true;
    b->stop = true;
}

static view keep(builder *b, const yaml_event_t *ev) {
    size_t n = ev->data.scalar.length;
    char  *text = arena_strndup(b->mem, (const char *)ev->data.scalar.value, n);
    if (!text) too_large(b, (int)ev->start_mark.line + 1, (int)ev->start_mark.column + 1);
    return (view){ text ? text : "", text ? n : 0 };
}

static config_node *find_key(const config_node *map, view key) {
    for (config_node *n = map->first; n; n = n->next)
        if (view_eq(n->key, key)) return n;
    return NULL;
}

/* Looking a key up walks over its siblings, so there are not many. */
static bool is_full(builder *b, config_node *into, const config_node *n) {
    if (into->count++ < CONFIG_MAX_CHILDREN) return false;
    config_report_add(b->r, n->line, n->column, "there are more than %d entries; remove some", CONFIG_MAX_CHILDREN);
    b->stop = true;
    return true;
}

static void twice(builder *b, const config_node *n, const config_node *before) {
    str path;
    str_init(&path);
    for (int i = 1; i < b->depth; i++)
        if (b->stack[i]->key.len) str_printf(&path, "%.60s.", b->stack[i]->key.data);
    config_report_add(b->r, n->key_line, n->key_column,
                      "%s%.100s: appears twice (first in line %d); remove one of them", str_cstr(&path), n->key.data,
                      before->key_line);
    str_deinit(&path);
}

/* Hangs a value into the innermost container. */
static void attach(builder *b, config_node *n) {
    config_node *into = b->depth ? b->stack[b->depth - 1] : NULL;
    if (!into) {
        b->root = n;
        return;
    }
    if (is_full(b, into, n)) return;
    if (into->kind == CONFIG_MAPPING) {
        int                at = b->depth - 1;
        const config_node *before = find_key(into, b->key[at]);
        n->key = b->key[at];
        n->key_line = b->key_line[at];
        n->key_column = b->key_column[at];
        b->want_key[at] = true;
        if (before) {
            twice(b, n, before);
            return;
        }
    }
    if (into->last)
        into->last->next = n;
    else
        into->first = n;
    into->last = n;
}

static config_node *new_node(builder *b, config_kind kind, const yaml_event_t *ev) {
    config_node *n = arena_calloc(b->mem, 1, sizeof *n);
    int          line = (int)ev->start_mark.line + 1, column = (int)ev->start_mark.column + 1;
    if (!n) {
        too_large(b, line, column);
        return NULL;
    }
    n->kind = kind;
    n->line = line;
    n->column = column;
    n->text = (view){ "", 0 };
    return n;
}

static void refuse_decorations(builder *b, const yaml_event_t *ev, const yaml_char_t *anchor, const yaml_char_t *tag) {
    int line = (int)ev->start_mark.line + 1, column = (int)ev->start_mark.column + 1;
    if (anchor)
        config_report_add(b->r, line, column, "anchors (&%.40s) are not supported; write the value out",
                          (const char *)anchor);
    if (tag) config_report_add(b->r, line, column, "tags (%.40s) are not supported; remove the tag", (const char *)tag);
}

/* Whether the event is a mapping's key, which it takes then. */
static bool take_key(builder *b, const yaml_event_t *ev) {
    int at = b->depth - 1, line = (int)ev->start_mark.line + 1, column = (int)ev->start_mark.column + 1;
    if (at < 0 || b->stack[at]->kind != CONFIG_MAPPING || !b->want_key[at]) return false;
    if (ev->type != YAML_SCALAR_EVENT) {
        config_report_add(b->r, line, column, "a key must be plain text; write 'key: value'");
        b->stop = true;
        return true;
    }
    refuse_decorations(b, ev, ev->data.scalar.anchor, ev->data.scalar.tag);
    b->key[at] = keep(b, ev);
    b->key_line[at] = line;
    b->key_column[at] = column;
    b->want_key[at] = false;
    return true;
}

static void open_container(builder *b, const yaml_event_t *ev, config_kind kind) {
    config_node *n = new_node(b, kind, ev);
    if (!n) return;
    attach(b, n);
    if (b->depth == CONFIG_MAX_DEPTH) {
        config_report_add(b->r, n->line, n->column,
                          "the values are nested deeper than %d levels; nest them less deeply", CONFIG_MAX_DEPTH);
        b->stop = true;
        return;
    }
    b->want_key[b->depth] = kind == CONFIG_MAPPING;
    b->stack[b->depth++] = n;
}

static void take_scalar(builder *b, const yaml_event_t *ev) {
    config_node *n = new_node(b, CONFIG_SCALAR, ev);
    if (!n) return;
    refuse_decorations(b, ev, ev->data.scalar.anchor, ev->data.scalar.tag);
    n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    n->text = keep(b, ev);
    attach(b, n);
}

/* Its place stays empty: one complaint is enough. */
static void take_alias(builder *b, const yaml_event_t *ev) {
    config_report_add(b->r, (int)ev->start_mark.line + 1, (int)ev->start_mark.column + 1,
                      "aliases (*%.40s) are not supported; write the value out", (const char *)ev->data.alias.anchor);
    if (b->depth) b->want_key[b->depth - 1] = b->stack[b->depth - 1]->kind == CONFIG_MAPPING;
}

static void take_event(builder *b, const yaml_event_t *ev) {
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++b->documents > 1) {
            config_report_add(b->r, (int)ev->start_mark.line + 1, (int)ev->start_mark.column + 1,
                              "there is a second document ('---'); a file may contain only one");
            b->stop = true;
        }
        break;
    case YAML_SCALAR_EVENT:
        if (!take_key(b, ev)) take_scalar(b, ev);
        break;
    case YAML_ALIAS_EVENT:
        if (!take_key(b, ev)) take_alias(b, ev);
        break;
    case YAML_SEQUENCE_START_EVENT:
        refuse_decorations(b, ev, ev->data.sequence_start.anchor, ev->data.sequence_start.tag);
        if (!take_key(b, ev)) open_container(b, ev, CONFIG_SEQUENCE);
        break;
    case YAML_MAPPING_START_EVENT:
        refuse_decorations(b, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag);
        if (!take_key(b, ev)) open_container(b, ev, CONFIG_MAPPING);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: b->depth--; break;
    case YAML_STREAM_END_EVENT: b->stop = true; break;
    default: break;
    }
}

config_node *config_yaml_read(view text, arena *mem, config_report *r) {
    builder       b = { .mem = mem, .r = r };
    yaml_parser_t parser;
    if (!check_bytes(text, r)) return NULL;
    if (!yaml_parser_initialize(&parser)) {
        r->no_memory = true;
        return NULL;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(text.len ? text.data : ""), text.len);
    while (!b.stop) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&parser, &ev)) {
            syntax_error(&parser, text, r);
            break;
        }
        take_event(&b, &ev);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&parser);
    return b.stop ? b.root : NULL; /* half a tree would only bring further complaints */
}

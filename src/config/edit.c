/* SPDX-License-Identifier: Apache-2.0 */
#include "config/edit.h"

#include <string.h>

enum { EDIT_BYTES = 64 << 20, INDENT = 2 };

/* --- places in the text --- */

static size_t line_start(view text, int line) {
    size_t i = 0;
    for (int at = 1; at < line && i < text.len; i++) at += text.data[i] == '\n';
    return i;
}

static size_t line_end(view text, size_t at) { /* behind its last character */
    while (at < text.len && text.data[at] != '\n') at++;
    return at > 0 && at < text.len && text.data[at - 1] == '\r' ? at - 1 : at;
}

static size_t place(view text, int line, int column) { /* columns are characters */
    size_t at = line_start(text, line);
    for (; column > 1 && at < text.len && text.data[at] != '\n'; column--) {
        unsigned c;
        size_t   n = utf8_decode(text.data + at, text.len - at, &c);
        at += n ? n : 1;
    }
    return at;
}

static const config_node *child(const config_node *map, view key) {
    const config_node *n = map && map->kind == CONFIG_MAPPING ? map->first : NULL;
    while (n && !view_eq(n->key, key)) n = n->next;
    return n;
}

/* Behind a quoted text that begins at `at`; 0: it does not end on this line. */
static size_t quoted_end(view text, size_t at, size_t end) {
    char quote = text.data[at];
    for (size_t i = at + 1; i < end; i++) {
        if (quote == '"' && text.data[i] == '\\')
            i++;
        else if (text.data[i] == quote && quote == '\'' && i + 1 < end && text.data[i + 1] == quote)
            i++;
        else if (text.data[i] == quote)
            return i + 1;
    }
    return 0;
}

static size_t list_end(view text, size_t at, size_t end) {
    for (size_t i = at; i < end; i++) {
        if (text.data[i] == ']') return i + 1;
        if (text.data[i] != '"' && text.data[i] != '\'') continue;
        if ((i = quoted_end(text, i, end)) == 0) return 0;
        i--;
    }
    return 0;
}

/* A plain one ends before a comment. */
static size_t plain_end(view text, size_t at, size_t end) {
    size_t last = at;
    for (size_t i = at; i < end; i++) {
        bool blank = text.data[i] == ' ' || text.data[i] == '\t';
        if (text.data[i] == '#' && (i == at || text.data[i - 1] == ' ' || text.data[i - 1] == '\t')) break;
        if (!blank) last = i + 1;
    }
    return last;
}

/* --- the change --- */

typedef struct change {
    size_t from, to; /* of the text that goes */
    str    in;       /* what comes in its place */
} change;

static int refuse(err *e, const config_key *k, int line, const char *why) {
    return err_set(e, ERR_UNSUPPORTED, "%s: line %d of the file %s; change it there by hand", k->path, line, why);
}

/* Where the value of an entry lies. Every entry of a file that reads has one. */
static int find_value(view text, const config_key *k, const config_node *n, size_t *from, size_t *to, err *e) {
    size_t end = line_end(text, line_start(text, n->key_line));
    if (n->line != n->key_line) return refuse(e, k, n->key_line, "has its value on other lines");
    *from = place(text, n->line, n->column);
    char first = *from < text.len ? text.data[*from] : '\0';
    if (n->kind == CONFIG_SEQUENCE && first == '[')
        *to = list_end(text, *from, end);
    else if (n->kind == CONFIG_SCALAR && (first == '"' || first == '\''))
        *to = quoted_end(text, *from, end);
    else if (n->kind == CONFIG_SCALAR && first != '|' && first != '>')
        *to = plain_end(text, *from, end);
    else
        *to = 0;
    return *to ? 0 : refuse(e, k, n->key_line, "holds a value over several lines");
}

static int change_entry(view text, const config_key *k, const config_node *n, const char *value, change *c, err *e) {
    int rc = find_value(text, k, n, &c->from, &c->to, e);
    if (rc < 0) return rc;
    if (!value) { /* the whole line, with its comment */
        c->from = line_start(text, n->key_line);
        c->to = line_start(text, n->key_line + 1);
        return 0;
    }
    str_puts(&c->in, value);
    return 0;
}

static void add_line(change *c, int indent, view key, const char *value) {
    str_printf(&c->in, "%*s%.*s: %s\n", indent, "", (int)key.len, key.data, value);
}

static int add_entry(view text, const config_node *section, view key, const char *value, change *c) {
    bool empty = section->kind == CONFIG_SCALAR || !section->first;
    int  indent = empty ? section->key_column - 1 + INDENT : section->first->key_column - 1;
    c->from = c->to = line_start(text, section->key_line + 1);
    if (c->from == text.len && text.len && text.data[text.len - 1] != '\n') str_puts(&c->in, "\n");
    add_line(c, indent, key, value);
    return 0;
}

static void add_section(view text, view section, view key, const char *value, change *c) {
    c->from = c->to = text.len;
    if (text.len && text.data[text.len - 1] != '\n') str_puts(&c->in, "\n");
    if (section.len) str_printf(&c->in, "%.*s:\n", (int)section.len, section.data);
    add_line(c, section.len ? INDENT : 0, key, value);
}

/* The reader counts more characters as ends of lines than are counted here: the place may lie behind the text. */
static bool begins_with_brace(view text, const config_node *n) {
    size_t at = place(text, n->line, n->column);
    return at < text.len && text.data[at] == '{';
}

static int find_change(view text, const config_node *root, const config_key *k, const char *value, change *c, err *e) {
    const char        *dot = strchr(k->path, '.');
    view               section = { k->path, dot ? (size_t)(dot - k->path) : 0 };
    view               key = view_of(dot ? dot + 1 : k->path);
    const config_node *map = dot ? child(root, section) : root;
    if (root && (root->kind != CONFIG_MAPPING || begins_with_brace(text, root)))
        return refuse(e, k, root->line, "begins something other than a map over lines");
    if (!map) {
        if (value) add_section(text, section, key, value, c);
        return 0;
    }
    bool empty = map->kind == CONFIG_SCALAR && map->text.len == 0 && !map->quoted;
    if (!empty && (map->kind != CONFIG_MAPPING || begins_with_brace(text, map)))
        return refuse(e, k, map->line, "holds the section in one line");
    const config_node *entry = child(map, key);
    if (entry) return change_entry(text, k, entry, value, c, e);
    if (!value) return 0;
    if (!dot) {
        add_section(text, section, key, value, c);
        return 0;
    }
    return add_entry(text, map, key, value, c);
}

/* --- nothing else may have changed --- */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

bool config_value_same(const config_key *k, const config_value *a, const config_value *b) {
    if ((a->origin == CONFIG_UNSET) != (b->origin == CONFIG_UNSET)) return false;
    if (a->boolean != b->boolean || a->integer != b->integer || a->n_texts != b->n_texts || a->n_items != b->n_items)
        return false;
    if (a->real < b->real || a->real > b->real) return false;
    if ((k->type == CONFIG_TEXT || k->type == CONFIG_CHOICE) && !same_text(a->text, b->text)) return false;
    for (size_t i = 0; i < a->n_texts; i++) {
        if (!same_text(a->texts[i], b->texts[i])) return false;
    }
    for (size_t i = 0; i < a->n_items; i++) {
        if (!same_text(a->items[i].name, b->items[i].name)) return false;
        for (size_t j = 0; j < k->items->n; j++) {
            if (!config_value_same(&k->items->keys[j], &a->items[i].v[j], &b->items[i].v[j])) return false;
        }
    }
    return true;
}

static int read_text(view text, const config_schema *s, config_values *v, arena *mem, err *e) {
    config_report r;
    if (!config_values_init(v, s, mem)) return err_set_nomem(e);
    config_report_init(&r, "server.yaml");
    config_read(v, text, CONFIG_FROM_SERVER, mem, &r);
    int rc = config_report_result(&r, e);
    config_report_deinit(&r);
    return rc;
}

static int check_rest(const config_values *before, view text, const config_key *k, arena *mem, err *e) {
    config_values after;
    int           rc = read_text(text, before->schema, &after, mem, e);
    for (size_t i = 0; rc == 0 && i < before->schema->n; i++) {
        const config_key *other = &before->schema->keys[i];
        if (other != k && !config_value_same(other, &before->v[i], &after.v[i]))
            rc = err_set(e, ERR_UNSUPPORTED, "%s: the change would touch %s, too; change the file by hand", k->path,
                         other->path);
    }
    return rc;
}

int config_edit(view text, const config_schema *s, const config_key *k, const char *value, str *out, err *e) {
    config_values before;
    config_report r;
    arena         mem;
    change        c = { 0 };
    size_t        begin = out->len;
    arena_init(&mem, EDIT_BYTES);
    str_init(&c.in);
    int rc = read_text(text, s, &before, &mem, e);
    config_report_init(&r, "server.yaml");
    const config_node *root = rc == 0 ? config_yaml_read(text, &mem, &r) : NULL;
    if (rc == 0) rc = config_report_result(&r, e);
    if (rc == 0) rc = find_change(text, root, k, value, &c, e);
    if (rc == 0) {
        str_append(out, text.data, c.from);
        str_append(out, str_cstr(&c.in), c.in.len);
        str_append(out, text.data + c.to, text.len - c.to);
        rc = str_ok(out) && str_ok(&c.in) ? 0 : err_set_nomem(e);
    }
    if (rc == 0) rc = check_rest(&before, (view){ str_cstr(out) + begin, out->len - begin }, k, &mem, e);
    config_report_deinit(&r);
    str_deinit(&c.in);
    arena_deinit(&mem);
    return rc;
}

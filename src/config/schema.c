/* SPDX-License-Identifier: Apache-2.0 */
/* A tree against a table: values, and a sentence for everything that does not fit. */
#include "config/schema.h"

#include "config/parse.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 256, MAX_SIBLINGS = 64 };

typedef struct reading {
    config_origin  origin;
    arena         *mem;
    config_report *r;
} reading;

/* --- tables --- */

const config_key *config_find_key(const config_schema *s, const char *path) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->keys[i].path, path) == 0) return &s->keys[i];
    return NULL;
}

static bool is_section(const config_schema *s, const char *path) {
    size_t n = strlen(path);
    for (size_t i = 0; i < s->n; i++)
        if (strncmp(s->keys[i].path, path, n) == 0 && s->keys[i].path[n] == '.') return true;
    return false;
}

/* The names that may stand directly below prefix ("" or "kv_cache."). */
static size_t siblings(const config_schema *s, const char *prefix, const char **out, char (*room)[48]) {
    size_t n = 0, len = strlen(prefix);
    for (size_t i = 0; i < s->n && n < MAX_SIBLINGS; i++) {
        if (strncmp(s->keys[i].path, prefix, len) != 0) continue;
        const char *name = s->keys[i].path + len;
        snprintf(room[n], sizeof room[n], "%.*s", (int)strcspn(name, "."), name);
        if (n && strcmp(room[n - 1], room[n]) == 0) continue;
        out[n] = room[n];
        n++;
    }
    return n;
}

/* --- values --- */

bool config_values_init(config_values *out, const config_schema *s, arena *mem) {
    *out = (config_values){ .schema = s, .v = arena_calloc(mem, s->n, sizeof *out->v) };
    return out->v != NULL;
}

void config_values_defaults(config_values *v, arena *mem) {
    for (size_t i = 0; i < v->schema->n; i++) {
        const config_key *k = &v->schema->keys[i];
        if (!k->dflt) continue;
        int rc = config_set(v, k, k->dflt, 0, CONFIG_FROM_DEFAULT, NULL, mem, NULL);
        assert(rc == 0 || rc == ERR_NOMEM);
        (void)rc;
    }
}

static config_value *slot(config_values *v, const config_key *k) { return &v->v[k - v->schema->keys]; }

const config_value *config_get(const config_values *v, const char *path) {
    const config_key *k = config_find_key(v->schema, path);
    assert(k);
    return &v->v[k - v->schema->keys];
}

const char *config_text(const config_values *v, const char *path) {
    const config_value *x = config_get(v, path);
    return x->origin && x->text && *x->text ? x->text : NULL;
}

int64_t config_int(const config_values *v, const char *path) { return config_get(v, path)->integer; }
double  config_real(const config_values *v, const char *path) { return config_get(v, path)->real; }
bool    config_bool(const config_values *v, const char *path) { return config_get(v, path)->boolean; }

void config_overlay(config_values *dst, const config_values *src) {
    for (size_t i = 0; i < src->schema->n; i++) {
        const config_key *k = config_find_key(dst->schema, src->schema->keys[i].path);
        if (!k || !src->v[i].origin || k->type != src->schema->keys[i].type) continue;
        config_value *to = slot(dst, k);
        if (src->v[i].origin >= to->origin) *to = src->v[i];
    }
}

const char *config_origin_name(config_origin o) {
    static const char *const names[] = { "unset",          "default",     "server.yaml", "registry",
                                         "model settings", "environment", "flag" };
    return names[o];
}

int config_set(config_values *out, const config_key *k, const char *text, double unit, config_origin origin,
               const char *where, arena *mem, err *e) {
    config_value v = { .origin = origin, .where = where ? arena_strdup(mem, where) : NULL };
    char        *copy = arena_strdup(mem, text);
    if (!copy || (where && !v.where)) return err_set_nomem(e);
    if (k->type == CONFIG_LIST || k->type == CONFIG_NAMED)
        return err_set(e, ERR_ARG, "%s can be given in a file only", k->path);
    if (k->type == CONFIG_TEXTS) {
        size_t n = 1;
        for (const char *p = copy; *p; p++) n += *p == ',';
        const char **list = arena_calloc(mem, n, sizeof *list);
        if (!list) return err_set_nomem(e);
        char *rest = NULL;
        for (char *p = strtok_r(copy, ",", &rest); p; p = strtok_r(NULL, ",", &rest)) {
            p += strspn(p, " ");
            if (*p) list[v.n_texts++] = p;
        }
        v.texts = list;
    } else {
        int rc = config_parse_scalar(k, copy, unit, &v, e);
        if (rc < 0) return rc;
    }
    config_value *to = slot(out, k);
    if (origin >= to->origin) *to = v;
    return 0;
}

int config_set_texts(config_values *out, const config_key *k, const char *const *texts, size_t n, config_origin origin,
                     const char *where, arena *mem, err *e) {
    config_value *to = slot(out, k);
    const char  **list = arena_calloc(mem, n + 1, sizeof *list);
    config_value  v = { .origin = origin, .where = arena_strdup(mem, where), .texts = list, .n_texts = n };
    bool          ok = list && v.where && k->type == CONFIG_TEXTS;
    for (size_t i = 0; ok && i < n; i++) ok = (list[i] = arena_strdup(mem, texts[i])) != NULL;
    if (!ok) return err_set_nomem(e);
    if (origin >= to->origin) *to = v;
    return 0;
}

/* --- a file --- */

static void read_map(config_values *out, const config_node *map, const char *prefix, const char *above, reading *r);

static const char *kind_words(const config_node *n) {
    return n->kind == CONFIG_MAPPING ? "a map" : n->kind == CONFIG_SEQUENCE ? "a list" : "a single value";
}

static bool is_null(const config_node *n) {
    return n->kind == CONFIG_SCALAR && !n->quoted &&
           (view_eq_c(n->text, "null") || view_eq_c(n->text, "~") || view_eq_c(n->text, "Null"));
}

static void wrong_kind(const config_key *k, const config_node *n, const char *path, reading *r) {
    str words;
    str_init(&words);
    config_report_add(r->r, n->line, n->column, "%s: expected %s, found %s", path, config_type_words(k, &words),
                      kind_words(n));
    str_deinit(&words);
}

static const char *where_of(const config_node *n, reading *r) {
    char text[512];
    snprintf(text, sizeof text, "%.480s:%d", r->r->label, n->key_line ? n->key_line : n->line);
    return arena_strdup(r->mem, text);
}

static bool read_texts(const config_node *n, const char *path, config_value *v, reading *r) {
    size_t       count = 0;
    const char **list = arena_calloc(r->mem, n->kind == CONFIG_SCALAR ? 1 : (size_t)n->count + 1, sizeof *list);
    if (!list) {
        r->r->no_memory = true;
        return false;
    }
    for (const config_node *i = n->kind == CONFIG_SCALAR ? n : n->first; i; i = i->next) {
        if (i->kind != CONFIG_SCALAR) {
            config_report_add(r->r, i->line, i->column, "%s[%zu]: expected a text, found %s", path, count,
                              kind_words(i));
            return false;
        }
        list[count++] = i->text.data;
        if (n->kind == CONFIG_SCALAR) break;
    }
    v->texts = list;
    v->n_texts = count;
    return true;
}

static void check_required(const config_values *v, const config_node *n, const char *path, reading *r) {
    for (size_t i = 0; i < v->schema->n; i++) {
        const config_node *given = n->first;
        while (given && !view_eq_c(given->key, v->schema->keys[i].path)) given = given->next;
        if (v->schema->keys[i].required && !given)
            config_report_add(r->r, n->line, n->column, "%s.%s: is missing; add it", path, v->schema->keys[i].path);
    }
}

static bool read_items(const config_key *k, const config_node *n, const char *path, config_value *v, reading *r) {
    v->items = arena_calloc(r->mem, (size_t)n->count + 1, sizeof *v->items);
    if (!v->items) {
        r->r->no_memory = true;
        return false;
    }
    for (const config_node *i = n->first; i; i = i->next) {
        char           at[MAX_PATH];
        config_values *item = &v->items[v->n_items];
        if (k->type == CONFIG_LIST)
            snprintf(at, sizeof at, "%.100s[%zu]", path, v->n_items);
        else
            snprintf(at, sizeof at, "%.100s.%.100s", path, i->key.data);
        if (!config_values_init(item, k->items, r->mem)) {
            r->r->no_memory = true;
            return false;
        }
        if (k->type == CONFIG_NAMED) item->name = i->key.data;
        v->n_items++;
        if (i->kind != CONFIG_MAPPING) {
            config_report_add(r->r, i->line, i->column, "%s: expected a map (key: value), found %s", at, kind_words(i));
            continue;
        }
        read_map(item, i, "", at, r);
        check_required(item, i, at, r);
    }
    return true;
}

static bool read_scalar(const config_key *k, const config_node *n, const char *path, config_value *v, reading *r) {
    err e = { 0 };
    if (n->quoted && k->type != CONFIG_TEXT && k->type != CONFIG_CHOICE && k->type != CONFIG_SECONDS &&
        k->type != CONFIG_BYTES) {
        str words;
        str_init(&words);
        config_report_add(r->r, n->line, n->column, "%s: expected %s, found a text in quotes; remove the quotes", path,
                          config_type_words(k, &words));
        str_deinit(&words);
        return false;
    }
    if (memchr(n->text.data, '\0', n->text.len)) {
        config_report_add(r->r, n->line, n->column, "%s: the text contains a NUL character; remove it", path);
        return false;
    }
    if (config_parse_scalar(k, n->text.data, 0, v, &e) == 0) return true;
    config_report_add(r->r, n->line, n->column, "%s: %s", path, e.msg);
    return false;
}

static void read_value(config_values *out, const config_key *k, const config_node *n, const char *path, reading *r) {
    config_value v = { .origin = r->origin };
    bool         ok;
    if (is_null(n)) return;
    if (n->kind == CONFIG_SCALAR && !n->quoted && n->text.len == 0) {
        config_report_add(r->r, n->key_line ? n->key_line : n->line, n->key_column ? n->key_column : n->column,
                          "%s: has no value; add a value, or remove the line", path);
        return;
    }
    switch (k->type) {
    case CONFIG_LIST: ok = n->kind == CONFIG_SEQUENCE; break;
    case CONFIG_NAMED: ok = n->kind == CONFIG_MAPPING; break;
    case CONFIG_TEXTS: ok = n->kind != CONFIG_MAPPING; break;
    default: ok = n->kind == CONFIG_SCALAR; break;
    }
    if (!ok) {
        wrong_kind(k, n, path, r);
        return;
    }
    if (k->refused && k->type != CONFIG_BOOL) {
        config_report_add(r->r, n->key_line, n->key_column, "%s: %s", path, k->refused);
        return;
    }
    if (k->type == CONFIG_TEXTS)
        ok = read_texts(n, path, &v, r);
    else if (k->type == CONFIG_LIST || k->type == CONFIG_NAMED)
        ok = read_items(k, n, path, &v, r);
    else
        ok = read_scalar(k, n, path, &v, r);
    if (!ok) return;
    if (!(v.where = where_of(n, r))) r->r->no_memory = true;
    config_value *to = slot(out, k);
    if (r->origin >= to->origin) *to = v;
}

/* "unknown key", with the name that was meant, the section it belongs to, or the names that there are. */
static void unknown_key(const config_schema *s, const config_node *n, const char *prefix, const char *path,
                        reading *r) {
    const char *valid[MAX_SIBLINGS];
    char        room[MAX_SIBLINGS][48];
    size_t      count = siblings(s, prefix, valid, room);
    const char *best = config_nearest(n->key.data, valid, count);
    str         more;
    if (view_eq_c(n->key, "<<")) {
        config_report_add(r->r, n->key_line, n->key_column, "merge keys (<<) are not supported; write the keys out");
        return;
    }
    str_init(&more);
    if (best) {
        str_printf(&more, "did you mean %s?", best);
    } else {
        for (size_t i = 0; i < s->n && !more.len; i++) {
            const char *dot = strrchr(s->keys[i].path, '.');
            if (dot && strcmp(dot + 1, n->key.data) == 0)
                str_printf(&more, "the key belongs in the section %.*s", (int)(dot - s->keys[i].path), s->keys[i].path);
        }
        if (!more.len) str_puts(&more, "expected one of ");
        for (size_t i = 0; i < count && view_starts((view){ more.data, more.len }, "expected"); i++) {
            str_printf(&more, "%s%s", i ? ", " : "", valid[i]);
        }
    }
    config_report_add(r->r, n->key_line, n->key_column, "%s: unknown key; %s", path, str_cstr(&more));
    str_deinit(&more);
}

/* prefix is the part of the table's paths above this map; above what messages put in front of that. */
static void read_map(config_values *out, const config_node *map, const char *prefix, const char *above, reading *r) {
    for (const config_node *n = map->first; n; n = n->next) {
        char path[MAX_PATH], shown[MAX_PATH * 2], deeper[MAX_PATH];
        snprintf(path, sizeof path, "%s%.100s", prefix, n->key.data);
        snprintf(shown, sizeof shown, "%s%s%s", above, *above ? "." : "", path);
        const config_key *k = strchr(n->key.data, '.') ? NULL : config_find_key(out->schema, path);
        if (strchr(n->key.data, '.')) {
            config_report_add(r->r, n->key_line, n->key_column,
                              "%s: a key may not contain a dot; write the section, and below it the key, indented",
                              shown);
        } else if (k) {
            read_value(out, k, n, shown, r);
        } else if (!is_section(out->schema, path)) {
            unknown_key(out->schema, n, prefix, shown, r);
        } else if (n->kind == CONFIG_MAPPING) {
            snprintf(deeper, sizeof deeper, "%.250s.", path);
            read_map(out, n, deeper, above, r);
        } else if (!is_null(n) && !(n->kind == CONFIG_SCALAR && n->text.len == 0 && !n->quoted)) {
            config_report_add(r->r, n->line, n->column,
                              "%s: expected a section with keys, found %s; put its keys below it, indented", shown,
                              kind_words(n));
        }
    }
}

/* config_read for a tree. */
static void config_read_node(config_values *out, const config_node *root, config_origin origin, arena *mem,
                             config_report *r) {
    reading x = { origin, mem, r };
    if (is_null(root) || (root->kind == CONFIG_SCALAR && !root->quoted && root->text.len == 0)) return;
    if (root->kind != CONFIG_MAPPING) {
        config_report_add(r, root->line, root->column, "expected sections such as 'transport:', found %s",
                          kind_words(root));
        return;
    }
    read_map(out, root, "", "", &x);
}

void config_read(config_values *out, view text, config_origin origin, arena *mem, config_report *r) {
    const config_node *root = config_yaml_read(text, mem, r);
    if (root) config_read_node(out, root, origin, mem, r);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/hf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values -------------------------------------------------------------------------------------------------------- */

static bool value_of(const nn_model *m, const char *key, int64_t *out) {
    bool                  least = *key == '<';
    const nn_config_note *n = hf_note(m, key + least);
    if (*key >= '0' && *key <= '9') {
        *out = strtoll(key, NULL, 10);
        return true;
    }
    if (!n || n->type == 's' || n->type == 't') return false;
    *out = (int64_t)n->value;
    if (n->type != 'I' && n->type != 'B') return true;
    *out = n->n_list ? n->list[0] : 0;
    for (int i = 0; i < n->n_list; i++)
        if (least ? n->list[i] < *out : n->list[i] > *out) *out = n->list[i];
    return true;
}

static bool layer_has(const nn_model *m, const char *what, int layer) {
    const nn_config_note *n = hf_note(m, what);
    char                  name[96];
    if (n && (n->type == 'I' || n->type == 'B')) return layer < n->n_list && n->list[layer] > 0;
    snprintf(name, sizeof name, "blk.%d.%s", layer, what);
    return model_file_tensor(m->file, name) != NULL;
}

/* --- kinds --------------------------------------------------------------------------------------------------------- */

/* "A", "A/B", "A-B", "A*B"; false: a value is missing. */
static bool arithmetic(const nn_model *m, char *text, int64_t *out) {
    int64_t x, y;
    size_t  n = strcspn(text, "/-*");
    char    op = text[n];
    text[n] = '\0';
    if (!value_of(m, text, &x)) return false;
    *out = x;
    if (!op) return true;
    if (!value_of(m, text + n + 1, &y) || (op == '/' && y == 0)) return false;
    *out = op == '/' ? x / y : op == '-' ? x - y : x * y;
    return true;
}

static bool any_layer_has(const nn_model *m, const char *what) {
    int64_t x = 0;
    char    copy[160];
    snprintf(copy, sizeof copy, "%s", what);
    if (arithmetic(m, copy, &x)) return x > 0;
    for (int i = 0; i < m->dims->n_layer; i++)
        if (layer_has(m, what, i)) return true;
    return model_file_tensor(m->file, what) != NULL;
}

/* Cuts "A:x,y" into its three texts. */
static bool cut(char *text, char **yes, char **no) {
    if (!(*yes = strchr(text, ':'))) return false;
    *(*yes)++ = '\0';
    if (!(*no = strchr(*yes, ','))) return false;
    *(*no)++ = '\0';
    return true;
}

static void put_list(hf_writer *w, const char *what, const char *yes, const char *no) {
    str_push(&w->out, '[');
    for (int i = 0; i < w->m->dims->n_layer; i++) {
        if (i) str_puts(&w->out, ", ");
        hf_put_text(&w->out, layer_has(w->m, what, i) ? yes : no);
    }
    str_push(&w->out, ']');
}

/* Numbers from one on. */
static void put_numbers(hf_writer *w, const char *what, bool lacking) {
    bool any = false;
    str_push(&w->out, '[');
    for (int i = 0; i < w->m->dims->n_layer; i++) {
        if (layer_has(w->m, what, i) == lacking) continue;
        str_printf(&w->out, "%s%d", any ? ", " : "", i + 1);
        any = true;
    }
    str_push(&w->out, ']');
}

static void put_letters(hf_writer *w, const char *list) {
    str_push(&w->out, '"');
    for (int i = 0; i < w->m->dims->n_layer; i++) {
        for (const char *p = list; *p;) {
            char   what[64];
            size_t n = strcspn(p, ":"), rest = n + strcspn(p + n, ",");
            snprintf(what, sizeof what, "%.*s", (int)n, p);
            if (p[n] && layer_has(w->m, what, i)) {
                str_push(&w->out, p[n + 1]);
                break;
            }
            p += rest + (p[rest] == ',');
        }
    }
    str_push(&w->out, '"');
}

/* The distance between the layers that have it, and the first; a single one repeats behind the last layer. */
static void regular(const nn_model *m, const char *what, int *distance, int *first) {
    int second = -1;
    *first = -1;
    for (int i = 0; i < m->dims->n_layer && second < 0; i++) {
        if (!layer_has(m, what, i)) continue;
        if (*first < 0)
            *first = i;
        else
            second = i;
    }
    if (*first < 0) *first = m->dims->n_layer;
    *distance = second < 0 ? m->dims->n_layer + 1 : second - *first;
}

static bool is_rule(const json_value *v) {
    const char *s = json_cstr(v);
    return s && *s && strchr("=?@&~#!", *s);
}

static bool is_derived(const json_value *v) {
    if (!json_is(v, JSON_K_OBJECT)) return is_rule(v);
    for (size_t i = 0; i < v->u.object.count; i++)
        if (is_derived(&v->u.object.members[i].value)) return true;
    return false;
}

/* The value of a rule; false: a value that it needs is missing. */
static bool put_rule(hf_writer *w, const char *text) {
    const nn_config_note *real = *text == '=' ? hf_note(w->m, text + 1) : NULL;
    char                  copy[160], *yes, *no;
    int64_t               x = 0;
    int                   distance, first;
    snprintf(copy, sizeof copy, "%s", text + 1);
    if (real && real->type == 'f') {
        hf_put_float(&w->out, real->value);
    } else if (*text == '=') {
        if (!arithmetic(w->m, copy, &x)) return false;
        str_printf(&w->out, "%lld", (long long)x);
    } else if (*text == '&') {
        put_letters(w, copy);
    } else if (*text == '#') {
        put_numbers(w, copy + (*copy == '!'), *copy == '!');
    } else if (*text == '~') {
        char *begins = strchr(copy, '+');
        if (begins) *begins = '\0';
        regular(w->m, copy, &distance, &first);
        str_printf(&w->out, "%d", begins ? first : distance);
    } else if (cut(copy, &yes, &no)) {
        if (*text == '@')
            put_list(w, copy, yes, no);
        else
            str_puts(&w->out, any_layer_has(w->m, copy) ? yes : no);
    }
    return true;
}

/* An object whose members may be rules; those without a value are null. */
static void put_value(hf_writer *w, const json_value *v) {
    if (!json_is(v, JSON_K_OBJECT)) {
        if (!is_rule(v))
            json_write(v, &w->out);
        else if (!put_rule(w, json_cstr(v)))
            str_puts(&w->out, "null");
        return;
    }
    str_push(&w->out, '{');
    for (size_t i = 0; i < v->u.object.count; i++) {
        const json_member *m = &v->u.object.members[i];
        if (i) str_puts(&w->out, ", ");
        str_put_json(&w->out, m->key.data, m->key.len);
        str_puts(&w->out, ": ");
        put_value(w, &m->value);
    }
    str_push(&w->out, '}');
}

static void leave_out(hf_writer *w, const char *name) {
    if (!map_put(&w->said, name, strlen(name), 1)) w->out.failed = true;
}

static void say_derived(hf_writer *w, const char *name, const json_value *v) {
    const char *rule = json_cstr(v);
    int64_t     x;
    char        copy[160];
    if (rule && *rule == '!') {
        leave_out(w, name);
        return;
    }
    if (rule && *rule == '=') {
        snprintf(copy, sizeof copy, "%s", rule + 1);
        if (!arithmetic(w->m, copy, &x)) return;
    }
    if (hf_begin(w, name)) put_value(w, v);
}

int hf_say_fields(hf_writer *w, bool derived, err *e) {
    const json_value *v;
    str               text;
    int               rc = 0;
    if (!w->f->fields) return 0;
    str_init(&text);
    str_printf(&text, "{%s}", w->f->fields);
    rc = json_parse(&v, text.data, text.len, w->mem, e);
    for (size_t i = 0; rc == 0 && i < v->u.object.count; i++) {
        const json_member *m = &v->u.object.members[i];
        char              *name = arena_strndup(w->mem, m->key.data, m->key.len);
        if (!name) rc = err_set_nomem(e);
        if (!name || is_derived(&m->value) != derived) continue;
        if (derived)
            say_derived(w, name, &m->value);
        else if (hf_begin(w, name))
            json_write(&m->value, &w->out);
    }
    str_deinit(&text);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Values of single layers in config.json ("per_layer_config"), beside the one for all; config.h says what they are. */
#include "nn/config.h"

#include <stdio.h>
#include <string.h>

static const json_value *overrides(const nn_config *c) {
    const json_value *v = c->file && !nn_config_gguf(c) ? json_get(c->text, "per_layer_config") : NULL;
    if (!v && c->file && !nn_config_gguf(c)) v = json_get(c->root, "per_layer_config");
    return v && v->kind != JSON_K_NULL ? v : NULL;
}

/* Names are layer numbers with leading zeros, so that they sort; -1: not one. */
static int override_layer(view name) {
    int n = 0;
    for (size_t i = 0; i < name.len; i++) {
        if (name.data[i] < '0' || name.data[i] > '9' || n > NN_MAX_LAYERS) return -1;
        n = 10 * n + (name.data[i] - '0');
    }
    return name.len ? n : -1;
}

const json_value *nn_override_find(const nn_config *c, int layer, const char *hf) {
    const json_value *all = overrides(c);
    char              name[192];
    for (size_t i = 0; json_is(all, JSON_K_OBJECT) && i < json_count(all); i++) {
        const json_member *m = &all->u.object.members[i];
        const char        *list = override_layer(m->key) == layer ? hf : NULL;
        while (nn_config_next_name(&list, name, sizeof name)) {
            const json_value *v = json_get(&m->value, name);
            if (v) return v;
        }
    }
    return NULL;
}

void nn_override_looked(nn_config *c, const char *hf) {
    const int room = (int)(sizeof c->by_layer / sizeof *c->by_layer);
    if (hf && c->n_by_layer < room) c->by_layer[c->n_by_layer++] = hf;
}

static bool is_by_layer(const nn_config *c, view field) {
    char name[192];
    for (int i = 0; i < c->n_by_layer; i++) {
        const char *list = c->by_layer[i];
        while (nn_config_next_name(&list, name, sizeof name)) {
            if (view_eq_c(field, name)) return true;
        }
    }
    return false;
}

/* An override that changes nothing: equal to the value for all layers; no value where there is none; an empty list. */
static bool is_trivial(const json_value *a, const json_value *b) {
    double x, y;
    if (!a || a->kind == JSON_K_NULL) return !b || b->kind == JSON_K_NULL;
    if (json_is(a, JSON_K_ARRAY)) return json_count(a) == 0;
    if (json_is(a, JSON_K_BOOL)) return json_is(b, JSON_K_BOOL) && json_bool(a, false) == json_bool(b, false);
    if (json_number(a, &x)) return json_number(b, &y) && x == y;
    return false;
}

static void check_override(nn_config *c, const json_member *m) {
    int layer = override_layer(m->key);
    if (layer < 0 || layer >= c->n_layer || !json_is(&m->value, JSON_K_OBJECT)) {
        nn_config_fail(c, "the field \"per_layer_config\" has an entry that is not for one of the %d layers",
                       c->n_layer);
        return;
    }
    for (size_t i = 0; i < json_count(&m->value); i++) {
        const json_member *f = &m->value.u.object.members[i];
        char               name[64];
        const json_value  *all;
        snprintf(name, sizeof name, "%.*s", (int)(f->key.len < 63 ? f->key.len : 63), f->key.data);
        all = json_get(c->text, name);
        if (!all) all = json_get(c->root, name);
        if (!is_by_layer(c, f->key) && !is_trivial(&f->value, all))
            nn_config_fail(c,
                           "the field \"per_layer_config\" gives layer %d a \"%s\" of its own; that is not supported",
                           layer, name);
    }
}

void nn_overrides_check(nn_config *c) {
    const json_value *all = overrides(c);
    if (all && !json_is(all, JSON_K_OBJECT)) nn_config_fail(c, "the field \"per_layer_config\" is not an object");
    for (size_t i = 0; !c->failed && all && i < json_count(all); i++) check_override(c, &all->u.object.members[i]);
}

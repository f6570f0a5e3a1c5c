/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/vars.h"

#include <stdlib.h>

void chat_vars_add(chat_vars *v, view name, const json_value *value) {
    if (v->count == v->cap) {
        size_t    cap = v->cap ? 2 * v->cap : 16;
        tmpl_var *items = realloc(v->items, cap * sizeof *items);
        if (!items) {
            v->failed = true;
            return;
        }
        v->items = items;
        v->cap = cap;
    }
    v->items[v->count++] = (tmpl_var){ name, value };
}

void chat_vars_init(chat_vars *v, const bundle_template *b) {
    static const json_value none = { .kind = JSON_K_NULL };
    *v = (chat_vars){ .bos = { .kind = JSON_K_STRING }, .eos = { .kind = JSON_K_STRING } };
    chat_vars_add(v, view_of("tools"), &none);
    chat_vars_add(v, view_of("documents"), &none);
    if (b->bos) {
        v->bos.u.string = view_of(b->bos);
        chat_vars_add(v, view_of("bos_token"), &v->bos);
    }
    if (b->eos) {
        v->eos.u.string = view_of(b->eos);
        chat_vars_add(v, view_of("eos_token"), &v->eos);
    }
}

void chat_vars_deinit(chat_vars *v) {
    free(v->items);
    *v = (chat_vars){ 0 };
}

void chat_vars_add_members(chat_vars *v, const json_value *object, const char *except) {
    if (!json_is(object, JSON_K_OBJECT)) return;
    for (size_t i = 0; i < json_count(object); i++) {
        const json_member *m = &object->u.object.members[i];
        if (!except || !view_eq_c(m->key, except)) chat_vars_add(v, m->key, &m->value);
    }
}

int chat_vars_render(const chat_vars *v, const bundle_template *b, bool with_tools, const tmpl_clock *now,
                     const tmpl_limits *limits, str *out, tmpl_fault *fault, err *e) {
    tmpl_input in = { .vars = v->items, .n_vars = v->count, .now = *now };
    if (limits) in.limits = *limits;
    if (v->failed) return err_set_nomem(e);
    return tmpl_render(bundle_template_pick(b, with_tools), &in, out, fault, e);
}

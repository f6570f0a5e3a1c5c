/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/turns.h"

#include <string.h>

chat_system_place chat_turns_find(chat_turns_probe probe, void *ctx) {
#define TURN(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define SYSTEM TURN("system", "probe_system")
#define USER TURN("user", "probe_user")
    static const char anywhere[] =
        "[" SYSTEM "," USER "," TURN("assistant", "a") "," TURN("system", "probe_late") "," TURN("user", "v") "]";
    static const char ahead[] = "[" SYSTEM "," TURN("system", "probe_late") "," USER "]";
    static const char first[] = "[" SYSTEM "," USER "]";
    static const char none[] = "[" USER "]";
#undef TURN
#undef SYSTEM
#undef USER
    if (probe(ctx, anywhere, "probe_late")) return CHAT_SYSTEM_ANYWHERE;
    if (probe(ctx, ahead, "probe_late")) return CHAT_SYSTEM_LEADING;
    if (probe(ctx, first, "probe_system")) return CHAT_SYSTEM_FIRST;
    /* A template that shows nothing of a user either says nothing about system messages. */
    return probe(ctx, none, "probe_user") ? CHAT_SYSTEM_NOWHERE : CHAT_SYSTEM_ANYWHERE;
}

/* --- folding --- */

static bool has_role(const json_value *m, const char *role) {
    const json_value *r = json_get(m, "role");
    return json_is(r, JSON_K_STRING) && view_eq_c(r->u.string, role);
}

/* A message of this role that has nothing but text. */
static bool is_text(const json_value *m, const char *role) {
    return has_role(m, role) && json_is(json_get(m, "content"), JSON_K_STRING);
}

static bool text_message(json_value *out, const char *role, view text, arena *a) {
    json_member *m = arena_calloc(a, 2, sizeof *m);
    if (!m) return false;
    m[0] = (json_member){ view_of("role"), { .kind = JSON_K_STRING, .u.string = view_of(role) } };
    m[1] = (json_member){ view_of("content"), { .kind = JSON_K_STRING, .u.string = text } };
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, 2 } };
    return true;
}

/* The text of m behind that of `to`, which becomes a plain message of the role. */
static bool join(json_value *to, const char *role, const json_value *m, arena *a) {
    view  one = json_get(to, "content")->u.string, two = json_get(m, "content")->u.string;
    char *text = arena_alloc(a, one.len + two.len + 3);
    if (!text) return false;
    memcpy(text, one.data, one.len);
    memcpy(text + one.len, "\n\n", 2);
    memcpy(text + one.len + 2, two.data, two.len);
    text[one.len + 2 + two.len] = '\0';
    return text_message(to, role, (view){ text, one.len + 2 + two.len }, a);
}

typedef struct folding {
    json_value *list;
    size_t      n;
    bool        made; /* the last one of the list holds text of a system message: a user's joins it */
    arena      *a;
} folding;

static bool add_user_text(folding *f, const json_value *m) {
    json_value *last = f->n ? &f->list[f->n - 1] : NULL;
    f->made = true;
    if (last && is_text(last, "user")) return join(last, "user", m, f->a);
    return text_message(&f->list[f->n++], "user", json_get(m, "content")->u.string, f->a);
}

static bool fold_one(folding *f, const json_value *m, bool leading, chat_system_place place) {
    json_value *last = f->n ? &f->list[f->n - 1] : NULL;
    if (is_text(m, "system")) {
        bool stays = leading && (place == CHAT_SYSTEM_LEADING || (place == CHAT_SYSTEM_FIRST && !last));
        if (!stays && leading && place == CHAT_SYSTEM_FIRST && is_text(last, "system"))
            return join(last, "system", m, f->a);
        if (!stays) return add_user_text(f, m);
    } else if (f->made && last && is_text(m, "user")) {
        f->made = false;
        return join(last, "user", m, f->a);
    }
    f->made = false;
    f->list[f->n++] = *m;
    return true;
}

int chat_turns_fold(chat_system_place place, json_value *all, arena *a, err *e) {
    size_t  n = json_count(all);
    bool    leading = true;
    folding f = { .a = a };
    if (place == CHAT_SYSTEM_ANYWHERE || n == 0) return 0;
    if (!(f.list = arena_calloc(a, n, sizeof *f.list))) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        const json_value *m = json_at(all, i);
        if (!has_role(m, "system")) leading = false;
        if (!fold_one(&f, m, leading, place)) return err_set_nomem(e);
    }
    *all = (json_value){ .kind = JSON_K_ARRAY, .u.array = { f.list, f.n } };
    return 0;
}

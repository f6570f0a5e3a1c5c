/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/messages.h"

#include "base/map.h"

#include <stdio.h>
#include <string.h>

/* --- what a template wants --- */

const char *chat_probe_messages(bool text, bool null) {
#define PROBE(content, arguments)                                                                                      \
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":" content                              \
    ",\"tool_calls\":[{\"id\":\"probe0001\",\"type\":\"function\",\"function\":{\"name\":\"probe_call\","              \
    "\"arguments\":" arguments "}}]},{\"role\":\"tool\",\"tool_call_id\":\"probe0001\",\"name\":\"probe_call\","       \
    "\"content\":\"r\"},{\"role\":\"user\",\"content\":\"v\"}]"
#define OBJECT "{\"probe_key\":\"probe_value\"}"
#define TEXT "\"{\\\"probe_key\\\": \\\"probe_value\\\"}\""
    if (null) return text ? PROBE("null", TEXT) : PROBE("null", OBJECT);
    return text ? PROBE("\"\"", TEXT) : PROBE("\"\"", OBJECT);
#undef PROBE
#undef OBJECT
#undef TEXT
}

const char *chat_probe_two_calls(bool text, bool null) {
#define CALL(id, arguments)                                                                                            \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"probe_call\",\"arguments\":" arguments "}}"
#define RESULT(id) ",{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"name\":\"probe_call\",\"content\":\"r\"}"
#define PROBE(content, first, second)                                                                                  \
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":" content                              \
    ",\"tool_calls\":[" CALL("probe0001", first) "," CALL("probe0002", second) "]}" RESULT("probe0001")                \
        RESULT("probe0002") ",{\"role\":\"user\",\"content\":\"v\"}]"
#define OBJECT(v) "{\"probe_key\":\"" v "\"}"
#define TEXT(v) "\"{\\\"probe_key\\\": \\\"" v "\\\"}\""
    if (null)
        return text ? PROBE("null", TEXT("first"), TEXT(CHAT_PROBE_SECOND))
                    : PROBE("null", OBJECT("first"), OBJECT(CHAT_PROBE_SECOND));
    return text ? PROBE("\"\"", TEXT("first"), TEXT(CHAT_PROBE_SECOND))
                : PROBE("\"\"", OBJECT("first"), OBJECT(CHAT_PROBE_SECOND));
#undef CALL
#undef RESULT
#undef PROBE
#undef OBJECT
#undef TEXT
}

static bool says(view source, const char *what) { return memmem(source.data, source.len, what, strlen(what)) != NULL; }

/* An attribute or key of this name is read. */
static bool reads(view source, const char *name) {
    char a[64], b[64], c[64];
    snprintf(a, sizeof a, ".%s", name);
    snprintf(b, sizeof b, "'%s'", name);
    snprintf(c, sizeof c, "\"%s\"", name);
    return says(source, a) || says(source, b) || says(source, c);
}

/* Python's way of writing an object, or JSON quoted once more, is not what the model should read. */
static bool good_object(const char *t) { return t && strstr(t, "probe_value") && !strstr(t, "{'probe_key'"); }
static bool good_text(const char *t) { return t && strstr(t, "probe_value") && !strstr(t, "\\\"probe_key"); }

void chat_wants_find(chat_wants *w, view source, const char *const probes[4]) {
    bool object = good_object(probes[0]), text = good_text(probes[1]);
    bool null = !object && !text && (good_object(probes[2]) || good_text(probes[3]));
    if (null) {
        object = good_object(probes[2]);
        text = good_text(probes[3]);
    }
    bool shown = false, rendered = false;
    for (int i = 0; i < 4; i++) {
        rendered = rendered || probes[i];
        shown = shown || (probes[i] && strstr(probes[i], "probe_value"));
    }
    *w = (chat_wants){
        .string_arguments = !object && text,
        .null_content = null,
        .short_ids = says(source, "length != 9") || says(source, "length == 9") || says(source, "length 9"),
        .calls_as_text = rendered && !shown,
        .developer = reads(source, "developer"),
        .pictures = says(source, "'image'") || says(source, "\"image\""),
        .sounds = says(source, "'audio'") || says(source, "\"audio\""),
        .thinking = reads(source, "thinking"),
        .reasoning = reads(source, "reasoning"),
        .reasoning_content = reads(source, "reasoning_content"),
        .thought = reads(source, "thought"),
        .one_of_content_or_thoughts = says(source, "Cannot pass both content and thinking"),
        .source = source,
    };
}

/* --- building --- */

typedef struct fitter {
    const chat_wants  *w;
    const chat_format *f;
    arena             *a;
    err               *e;
    const chat_media  *media;
    size_t             n_pictures, n_sounds;
    size_t             index;                /* of the message */
    int                n_ids;                /* ids made up so far */
    view               names[256], ids[256]; /* calls so far, the newest at the end; older ones are forgotten */
    size_t             n_calls, n_answered;
    bool               nomem;
} fitter;

static json_value string_value(view v) { return (json_value){ .kind = JSON_K_STRING, .u.string = v }; }

static view keep(fitter *t, const char *text, size_t n) {
    char *copy = arena_strndup(t->a, text, n);
    if (!copy) {
        t->nomem = true;
        return (view){ "", 0 };
    }
    return (view){ copy, n };
}

static view keep_str(fitter *t, str *s) {
    view v = { "", 0 };
    if (s->failed)
        t->nomem = true;
    else
        v = keep(t, str_cstr(s), s->len);
    str_deinit(s);
    return v;
}

static int refuse(fitter *t, int code, const char *what) {
    return err_set(t->e, code, "message %zu: %s", t->index + 1, what);
}

typedef struct members {
    json_member *items;
    size_t       n;
} members;

static void put(members *m, const char *key, json_value v) {
    for (size_t i = 0; i < m->n; i++) {
        if (!view_eq_c(m->items[i].key, key)) continue;
        m->items[i].value = v;
        return;
    }
    m->items[m->n++] = (json_member){ view_of(key), v };
}

static const json_value *get(const members *m, const char *key) {
    for (size_t i = 0; i < m->n; i++) {
        if (view_eq_c(m->items[i].key, key)) return &m->items[i].value;
    }
    return NULL;
}

static void drop(members *m, const char *key) {
    for (size_t i = 0; i < m->n; i++) {
        if (!view_eq_c(m->items[i].key, key)) continue;
        memmove(m->items + i, m->items + i + 1, (m->n - i - 1) * sizeof *m->items);
        m->n--;
        return;
    }
}

/* --- content --- */

static bool is_text_part(const json_value *part) {
    const char *type = json_cstr(json_get(part, "type"));
    return json_is(json_get(part, "text"), JSON_K_STRING) &&
           (!type || strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 || strcmp(type, "output_text") == 0);
}

static bool part_is(const json_value *part, const char *type) {
    const char *own = json_cstr(json_get(part, "type"));
    return own && strcmp(own, type) == 0;
}

/* A part that is a picture or a sound: what stands for it, else NULL. They are counted in their order. */
static int fit_medium(fitter *t, const json_value *part, const char **piece) {
    bool    image = part_is(part, "image"), sound = part_is(part, "audio");
    int64_t blob = -1;
    *piece = image ? t->media->picture : t->media->sound;
    if (image && !*piece) return refuse(t, ERR_UNSUPPORTED, "this model cannot see: it takes no pictures");
    if (sound && !*piece) return refuse(t, ERR_UNSUPPORTED, "this model cannot hear: it takes no sounds");
    if (!image && !sound) {
        *piece = NULL;
        return 0;
    }
    if (!**piece)
        return refuse(t, ERR_ARG, image ? "the bytes of a picture are missing" : "the bytes of a sound are missing");
    if (!json_int(json_get(part, "blob"), &blob) || blob != (int64_t)(t->n_pictures + t->n_sounds))
        return refuse(t, ERR_ARG,
                      image ? "a picture must name its bytes, in the order of the pictures"
                            : "a sound must name its bytes, in the order of the sounds");
    t->n_pictures += image;
    t->n_sounds += sound;
    return 0;
}

/* For a template that shows parts: texts, pictures and sounds, each a part of the plainest form. */
static int keep_parts(fitter *t, members *m, const json_value *c) {
    size_t       n = json_count(c);
    json_value  *items = arena_calloc(t->a, n + 1, sizeof *items);
    json_member *pair = arena_calloc(t->a, 2 * n + 1, sizeof *pair);
    if (!items || !pair) return err_set_nomem(t->e);
    for (size_t i = 0; i < n; i++, pair += 2) {
        const json_value *part = json_at(c, i), *text = json_get(part, "text");
        bool              medium = !json_is(text, JSON_K_STRING) && part->kind != JSON_K_STRING;
        const char       *type = !medium ? "text" : part_is(part, "audio") ? "audio" : "image";
        pair[0] = (json_member){ view_of("type"), string_value(view_of(type)) };
        if (!medium) pair[1] = (json_member){ view_of("text"), part->kind == JSON_K_STRING ? *part : *text };
        items[i] = (json_value){ .kind = JSON_K_OBJECT, .u.object = { pair, medium ? 1 : 2 } };
    }
    put(m, "content", (json_value){ .kind = JSON_K_ARRAY, .u.array = { items, n } });
    return 0;
}

/* The parts as one text: a line each, but nothing between a sound and its neighbours. */
static int join_parts(fitter *t, const json_value *c, str *text) {
    bool before = false; /* a sound */
    for (size_t i = 0; i < json_count(c); i++) {
        const json_value *part = json_at(c, i);
        const char       *medium, *type = json_cstr(json_get(part, "type"));
        view              piece;
        bool              sound = part_is(part, "audio");
        int               rc = fit_medium(t, part, &medium);
        if (rc < 0) return rc;
        if (medium)
            piece = view_of(medium);
        else if (part->kind == JSON_K_STRING)
            piece = part->u.string;
        else if (is_text_part(part))
            piece = json_get(part, "text")->u.string;
        else
            return err_set(t->e, type ? ERR_UNSUPPORTED : ERR_ARG, "message %zu: content of type %s cannot be read",
                           t->index + 1, type ? type : "unknown");
        if (text->len && !sound && !before) str_push(text, '\n');
        str_append(text, piece.data, piece.len);
        before = sound;
    }
    return 0;
}

static int fit_content(fitter *t, members *m) {
    const json_value *c = get(m, "content");
    str               text;
    if (!c || c->kind == JSON_K_NULL) {
        put(m, "content", string_value(view_of("")));
        return 0;
    }
    if (c->kind == JSON_K_STRING) return 0;
    if (c->kind != JSON_K_ARRAY) return refuse(t, ERR_ARG, "content must be a text or a list of parts");
    str_init(&text);
    size_t seen = t->n_pictures, heard = t->n_sounds;
    int    rc = join_parts(t, c, &text);
    if (rc < 0) {
        str_deinit(&text);
        return rc;
    }
    const json_value *role = get(m, "role");
    bool              pictures = t->n_pictures > seen, sounds = t->n_sounds > heard;
    bool              shown = (!pictures || t->w->pictures) && (!sounds || t->w->sounds);
    if ((pictures || sounds) && shown && role && view_eq_c(role->u.string, "user")) {
        str_deinit(&text);
        return keep_parts(t, m, c);
    }
    put(m, "content", string_value(keep_str(t, &text)));
    return 0;
}

/* --- calls and their results --- */

static view fit_id(fitter *t, view id) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    char              made[16];
    bool              good = id.len == 9;
    if (id.len == 0) {
        snprintf(made, sizeof made, "call%05d", t->n_ids++ % 100000);
        return keep(t, made, 9);
    }
    for (size_t i = 0; i < id.len && good; i++) good = strchr(letters, id.data[i]) != NULL && id.data[i] != '\0';
    if (!t->w->short_ids || good) return id;
    uint64_t h = hash_bytes(id.data, id.len, 0);
    for (size_t i = 0; i < 9; i++, h /= 62) made[i] = letters[h % 62];
    return keep(t, made, 9);
}

static void fit_arguments(fitter *t, const json_value *in, json_value *out) {
    const json_value *parsed = NULL;
    str               text;
    if (!in || in->kind == JSON_K_NULL || (in->kind == JSON_K_STRING && in->u.string.len == 0)) {
        *out = t->w->string_arguments ? string_value(view_of("{}")) : (json_value){ .kind = JSON_K_OBJECT };
        return;
    }
    *out = *in;
    if (t->w->string_arguments && in->kind != JSON_K_STRING) {
        str_init(&text);
        json_write(in, &text);
        *out = string_value(keep_str(t, &text));
    } else if (!t->w->string_arguments && in->kind == JSON_K_STRING) {
        /* A text that is not an object stays a text: what was said was said. */
        if (json_parse(&parsed, in->u.string.data, in->u.string.len, t->a, NULL) == 0 && json_is(parsed, JSON_K_OBJECT))
            *out = *parsed;
    }
}

static void remember(fitter *t, view name, view id) {
    size_t cap = sizeof t->ids / sizeof *t->ids;
    if (t->n_calls == cap) {
        memmove(t->ids, t->ids + 1, (cap - 1) * sizeof *t->ids);
        memmove(t->names, t->names + 1, (cap - 1) * sizeof *t->names);
        t->n_calls--;
        if (t->n_answered) t->n_answered--;
    }
    t->names[t->n_calls] = name;
    t->ids[t->n_calls++] = id;
}

static int fit_call(fitter *t, const json_value *in, json_value *out) {
    const json_value *f = json_get(in, "function"), *name, *id = json_get(in, "id");
    json_member      *fm = arena_calloc(t->a, 2, sizeof *fm), *cm = arena_calloc(t->a, 3, sizeof *cm);
    if (!f) f = in;
    name = json_get(f, "name");
    if (!json_is(name, JSON_K_STRING)) return refuse(t, ERR_ARG, "a tool call has no function name");
    if (!fm || !cm) return err_set_nomem(t->e);
    fm[0] = (json_member){ view_of("name"), *name };
    fm[1] = (json_member){ view_of("arguments"), { .kind = JSON_K_NULL } };
    fit_arguments(t, json_get(f, "arguments"), &fm[1].value);
    view made = fit_id(t, json_is(id, JSON_K_STRING) ? id->u.string : (view){ "", 0 });
    cm[0] = (json_member){ view_of("id"), string_value(made) };
    cm[1] = (json_member){ view_of("type"), string_value(view_of("function")) };
    cm[2] = (json_member){ view_of("function"), { .kind = JSON_K_OBJECT, .u.object = { fm, 2 } } };
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { cm, 3 } };
    remember(t, name->u.string, made);
    return 0;
}

static void write_python(const json_value *v, str *out) {
    switch (v->kind) {
    case JSON_K_NULL: str_puts(out, "None"); break;
    case JSON_K_BOOL: str_puts(out, v->u.boolean ? "True" : "False"); break;
    case JSON_K_ARRAY:
        str_push(out, '[');
        for (size_t i = 0; i < v->u.array.count; i++) {
            if (i) str_puts(out, ", ");
            write_python(&v->u.array.items[i], out);
        }
        str_push(out, ']');
        break;
    case JSON_K_OBJECT:
        str_push(out, '{');
        for (size_t i = 0; i < v->u.object.count; i++) {
            if (i) str_puts(out, ", ");
            str_put_json(out, v->u.object.members[i].key.data, v->u.object.members[i].key.len);
            str_puts(out, ": ");
            write_python(&v->u.object.members[i].value, out);
        }
        str_push(out, '}');
        break;
    default: json_write(v, out); break;
    }
}

/* Calls as the model itself writes them, for templates that leave them out. */
static void write_calls(const chat_format *f, const json_value *calls, str *out) {
    const chat_syntax_row *r = f->row;
    bool                   python = r->shape == CHAT_SHAPE_PYTHON;
    for (size_t i = 0; i < json_count(calls); i++) {
        const json_value *fn = json_get(json_at(calls, i), "function"), *args = json_get(fn, "arguments");
        const json_value *name = json_get(fn, "name");
        if (i == 0 || !r->section) str_puts(out, r->open);
        if (r->list || python)
            str_puts(out, i == 0 ? "[" : ", ");
        else
            str_push(out, '\n');
        if (python) {
            str_append(out, name->u.string.data, name->u.string.len);
            str_push(out, '(');
            for (size_t k = 0; k < json_count(args) && args->kind == JSON_K_OBJECT; k++) {
                const json_member *m = &args->u.object.members[k];
                if (k) str_puts(out, ", ");
                str_append(out, m->key.data, m->key.len);
                str_push(out, '=');
                write_python(&m->value, out);
            }
            str_push(out, ')');
        } else {
            str_printf(out, "{\"%s\": ", r->key_name);
            str_put_json(out, name->u.string.data, name->u.string.len);
            str_printf(out, ", \"%s\": ", r->key_arguments);
            json_write(args, out);
            str_push(out, '}');
        }
        bool last = i + 1 == json_count(calls);
        if (last && (r->list || python)) str_push(out, ']');
        if (!r->list && !python) str_push(out, '\n');
        if (r->close && (last || !r->section)) str_puts(out, r->close);
    }
}

static int fit_calls(fitter *t, members *m) {
    const json_value *calls = get(m, "tool_calls");
    if (!calls) return 0;
    if (calls->kind == JSON_K_NULL || (calls->kind == JSON_K_ARRAY && json_count(calls) == 0)) {
        drop(m, "tool_calls");
        return 0;
    }
    if (calls->kind != JSON_K_ARRAY) return refuse(t, ERR_ARG, "tool_calls must be a list");
    size_t      n = json_count(calls);
    json_value *list = arena_calloc(t->a, n, sizeof *list);
    if (!list) return err_set_nomem(t->e);
    for (size_t i = 0; i < n; i++) {
        int rc = fit_call(t, json_at(calls, i), &list[i]);
        if (rc < 0) return rc;
    }
    json_value fitted = { .kind = JSON_K_ARRAY, .u.array = { list, n } };
    chat_shape shape = t->f->row->shape;
    if (t->w->calls_as_text && ((shape == CHAT_SHAPE_JSON && t->f->row->key_name) || shape == CHAT_SHAPE_PYTHON)) {
        str text;
        str_init(&text);
        view own = get(m, "content")->u.string;
        str_append(&text, own.data, own.len);
        write_calls(t->f, &fitted, &text);
        put(m, "content", string_value(keep_str(t, &text)));
    }
    put(m, "tool_calls", fitted);
    if (t->w->null_content) put(m, "content", (json_value){ .kind = JSON_K_NULL });
    return 0;
}

/* A result belongs to the call of its id; without one, to the oldest call that has none yet. */
static void fit_result(fitter *t, members *m) {
    const json_value *id = get(m, "tool_call_id"), *name = get(m, "name"), *ollama = get(m, "tool_name");
    size_t            at = t->n_answered;
    if (json_is(id, JSON_K_STRING)) {
        view fitted = fit_id(t, id->u.string);
        put(m, "tool_call_id", string_value(fitted));
        for (at = 0; at < t->n_calls && !view_eq(t->ids[at], fitted); at++) {
        }
    } else if (at < t->n_calls) {
        put(m, "tool_call_id", string_value(t->ids[at]));
    }
    if (at >= t->n_answered && at < t->n_calls) t->n_answered = at + 1;
    if (json_is(name, JSON_K_STRING)) return;
    if (json_is(ollama, JSON_K_STRING))
        put(m, "name", *ollama);
    else if (at < t->n_calls)
        put(m, "name", string_value(t->names[at]));
}

/* --- thoughts --- */

static void fit_thoughts(fitter *t, members *m) {
    static const char *const names[] = { "reasoning_content", "reasoning", "thinking" };
    const json_value        *own = NULL;
    for (size_t i = 0; i < 3 && !own; i++) {
        if (json_is(get(m, names[i]), JSON_K_STRING) && get(m, names[i])->u.string.len) own = get(m, names[i]);
    }
    for (size_t i = 0; i < 3; i++) { /* empty ones say nothing, and templates ask whether they are defined */
        const json_value *v = get(m, names[i]);
        if (v && !own) drop(m, names[i]);
    }
    if (!own) return;
    json_value text = *own;
    if (t->w->one_of_content_or_thoughts && get(m, "tool_calls") && json_is(get(m, "content"), JSON_K_STRING) &&
        get(m, "content")->u.string.len) {
        for (size_t i = 0; i < 3; i++) drop(m, names[i]);
        return;
    }
    if (t->w->reasoning_content) put(m, "reasoning_content", text);
    if (t->w->reasoning) put(m, "reasoning", text);
    if (t->w->thinking) put(m, "thinking", text);
    if (t->w->thought) put(m, "thought", text);
}

/* --- messages --- */

static int fit_role(fitter *t, members *m, view *role) {
    static const char *const known[] = { "system", "user", "assistant", "tool", "developer", "function", "ipython" };
    const json_value        *r = get(m, "role");
    char                     text[80];
    if (!json_is(r, JSON_K_STRING)) return refuse(t, ERR_ARG, "the role is missing");
    *role = r->u.string;
    if (view_eq_c(*role, "developer") && !t->w->developer) {
        put(m, "role", string_value(view_of("system")));
        *role = view_of("system");
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (view_eq_c(*role, known[i])) return 0;
    }
    /* Templates pass over roles that they do not know: the message would be lost without a word. */
    snprintf(text, sizeof text, "%.*s", (int)(role->len < 60 ? role->len : 60), role->data);
    if (reads(t->w->source, text)) return 0;
    return err_set(t->e, ERR_ARG, "message %zu: unknown role %s", t->index + 1, text);
}

static int fit_message(fitter *t, const json_value *in, json_value *out) {
    enum { ADDED = 8 };
    members m = { NULL, 0 };
    view    role;
    if (!json_is(in, JSON_K_OBJECT)) return refuse(t, ERR_ARG, "a message must be an object");
    m.n = json_count(in);
    m.items = arena_calloc(t->a, m.n + ADDED, sizeof *m.items);
    if (!m.items) return err_set_nomem(t->e);
    if (m.n) memcpy(m.items, in->u.object.members, m.n * sizeof *m.items);
    int rc = fit_role(t, &m, &role);
    if (rc == 0) rc = fit_content(t, &m);
    if (rc == 0 && view_eq_c(role, "assistant")) {
        rc = fit_calls(t, &m);
        if (rc == 0) fit_thoughts(t, &m);
    } else if (rc == 0 && view_eq_c(role, "tool")) {
        fit_result(t, &m);
    }
    if (rc == 0 && t->nomem) rc = err_set_nomem(t->e);
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m.items, m.n } };
    return rc;
}

/* --- one call per message --- */

static size_t n_calls_of(const json_value *message) { return json_count(json_get(message, "tool_calls")); }

static bool is_result_of(const json_value *message, const json_value *call) {
    const json_value *role = json_get(message, "role"), *id = json_get(message, "tool_call_id"),
                     *own = json_get(call, "id");
    return json_is(role, JSON_K_STRING) && view_eq_c(role->u.string, "tool") && json_is(id, JSON_K_STRING) &&
           view_eq(id->u.string, own->u.string);
}

/* A copy of the message with one of its calls; only the first keeps the text and the thoughts. */
static bool single(fitter *t, const json_value *message, size_t which, json_value *out) {
    members     m = { arena_calloc(t->a, json_count(message), sizeof(json_member)), 0 };
    json_value *one = arena_alloc(t->a, sizeof *one);
    if (!m.items || !one) return false;
    *one = *json_at(json_get(message, "tool_calls"), which);
    for (size_t i = 0; i < json_count(message); i++) {
        json_member k = message->u.object.members[i];
        if (view_eq_c(k.key, "tool_calls"))
            k.value = (json_value){ .kind = JSON_K_ARRAY, .u.array = { one, 1 } };
        else if (which > 0 && view_eq_c(k.key, "content") && k.value.kind == JSON_K_STRING)
            k.value.u.string = view_of("");
        else if (which > 0 && !view_eq_c(k.key, "role") && !view_eq_c(k.key, "content"))
            continue;
        m.items[m.n++] = k;
    }
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m.items, m.n } };
    return true;
}

/* Each call in a message of its own, followed by its result; results of no call of the message keep their place. */
static int split_calls(fitter *t, json_value *all) {
    size_t            n = all->u.array.count, extra = 0, k = 0;
    const json_value *in = all->u.array.items;
    for (size_t i = 0; i < n; i++) extra += n_calls_of(&in[i]) > 1 ? n_calls_of(&in[i]) - 1 : 0;
    if (extra == 0) return 0;
    json_value *list = arena_calloc(t->a, n + extra, sizeof *list);
    bool       *used = arena_calloc(t->a, n, sizeof *used);
    if (!list || !used) return err_set_nomem(t->e);
    for (size_t i = 0; i < n; i++) {
        size_t calls = n_calls_of(&in[i]), end = i + 1;
        if (used[i]) continue;
        if (calls < 2) {
            list[k++] = in[i];
            continue;
        }
        while (end < n && json_is(json_get(&in[end], "tool_call_id"), JSON_K_STRING)) end++;
        for (size_t c = 0; c < calls; c++) {
            if (!single(t, &in[i], c, &list[k++])) return err_set_nomem(t->e);
            for (size_t r = i + 1; r < end; r++) {
                if (used[r] || !is_result_of(&in[r], json_at(json_get(&in[i], "tool_calls"), c))) continue;
                list[k++] = in[r];
                used[r] = true;
            }
        }
    }
    *all = (json_value){ .kind = JSON_K_ARRAY, .u.array = { list, k } };
    return 0;
}

int chat_messages_fit(const chat_wants *w, const chat_format *f, const chat_media *media, const json_value *in,
                      const json_value **out, arena *a, err *e) {
    size_t      n = json_count(in);
    fitter     *t = arena_calloc(a, 1, sizeof *t);
    json_value *all = arena_calloc(a, 1, sizeof *all), *list = arena_calloc(a, n ? n : 1, sizeof *list);
    if (!t || !all || !list) return err_set_nomem(e);
    t->w = w;
    t->f = f;
    t->a = a;
    t->e = e;
    t->media = media;
    for (; t->index < n; t->index++) {
        int rc = fit_message(t, json_at(in, t->index), &list[t->index]);
        if (rc < 0) return rc;
    }
    *all = (json_value){ .kind = JSON_K_ARRAY, .u.array = { list, n } };
    *out = all;
    int rc = chat_turns_fold(w->system, all, a, e);
    return rc == 0 && w->single_calls ? split_calls(t, all) : rc;
}

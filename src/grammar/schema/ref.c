/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References: $id and id make resources, $anchor and "id": "#name" make anchors, a reference is a URI against its base.
 *
 * Only what is inside the document can be reached. Many schemas in the wild carry ids that make their own "#/..."
 * references point nowhere (ids written by generators on every subschema); a pointer that fails inside its resource is
 * tried from the document's root.
 */
#include "grammar/schema/priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static view uri_without_fragment(view u) {
    const char *hash = memchr(u.data, '#', u.len);
    return hash ? (view){ u.data, (size_t)(hash - u.data) } : u;
}

static size_t scheme_length(view u) {
    for (size_t i = 0; i < u.len; i++) {
        char ch = u.data[i];
        bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        if (ch == ':') return i ? i + 1 : 0;
        if (!letter && !(i && ((ch >= '0' && ch <= '9') || ch == '+' || ch == '-' || ch == '.'))) return 0;
    }
    return 0;
}

/* Where the path of an absolute URI begins: behind "scheme://authority". */
static size_t path_start(view u) {
    size_t at = scheme_length(u);
    if (at + 2 <= u.len && u.data[at] == '/' && u.data[at + 1] == '/') {
        at += 2;
        while (at < u.len && u.data[at] != '/') at++;
    }
    return at;
}

/* Takes "." and ".." out of the path that begins at `from`; in place. */
static size_t remove_dots(char *s, size_t from, size_t len) {
    size_t out = from, at = from;
    while (at < len) {
        size_t end = at + (s[at] == '/');
        size_t seg = end;
        while (end < len && s[end] != '/') end++;
        if (end - seg == 1 && s[seg] == '.') {
            if (end == len && out < len) s[out++] = '/';
        } else if (end - seg == 2 && s[seg] == '.' && s[seg + 1] == '.') {
            while (out > from && s[out - 1] != '/') out--;
            if (out > from) out--;
            if (end == len) s[out++] = '/';
        } else {
            memmove(s + out, s + at, end - at);
            out += end - at;
        }
        at = end;
    }
    return out;
}

/* The reference against the base, without its fragment. */
static view uri_join(schema_ctx *c, view base, view ref) {
    size_t keep = 0, root;
    char  *s;
    ref = uri_without_fragment(ref);
    if (!ref.len) return base;
    if (scheme_length(ref)) return ref;
    root = path_start(base);
    if (ref.len >= 2 && ref.data[0] == '/' && ref.data[1] == '/') {
        keep = scheme_length(base);
    } else if (ref.data[0] == '/') {
        keep = root;
    } else {
        for (keep = base.len; keep > root && base.data[keep - 1] != '/';) keep--;
    }
    s = schema_alloc(c, keep + ref.len + 2);
    if (!s) return base;
    memcpy(s, base.data, keep);
    memcpy(s + keep, ref.data, ref.len);
    if (root > keep) root = keep;
    return (view){ s, remove_dots(s, root, keep + ref.len) };
}

static const json_value *own_id(const schema_ctx *c, const json_value *s) {
    const char       *word = c->draft == 4 ? "id" : "$id";
    const json_value *id = s == c->root ? json_get(s, word) : schema_get(c, s, word); /* the document's own always */
    return json_is(id, JSON_K_STRING) ? id : NULL;
}

uint32_t schema_base_of(schema_ctx *c, const json_value *s, uint32_t base) {
    if (c->n_resources <= 1 || !own_id(c, s)) return base;
    for (size_t i = 0; i < c->n_resources; i++) {
        if (c->resources[i].root == s) return (uint32_t)i;
    }
    return base;
}

static void anchor_add(schema_ctx *c, uint32_t base, view name, const json_value *s) {
    char *key = schema_alloc(c, name.len + 16);
    int   n;
    if (!key) return;
    n = snprintf(key, 16, "%u#", base);
    memcpy(key + n, name.data, name.len);
    if (!map_put(&c->anchors, key, (size_t)n + name.len, (uint64_t)(uintptr_t)s))
        schema_fail(c, s, ERR_NOMEM, "memory");
}

typedef struct visit {
    const json_value *v;
    uint32_t          base;
} visit;

static uint32_t enter(schema_ctx *c, const json_value *s, uint32_t base, size_t *cap) {
    const json_value *id = own_id(c, s), *anchor = schema_get(c, s, "$anchor");
    const json_value *dynamic = schema_get(c, s, "$dynamicAnchor");
    if (id && id->u.string.len && id->u.string.data[0] == '#') {
        anchor_add(c, base, (view){ id->u.string.data + 1, id->u.string.len - 1 }, s);
    } else if (id && s != c->root) {
        if (c->n_resources == *cap) {
            schema_resource *grown = schema_alloc(c, *cap * 2 * sizeof *grown);
            if (!grown) return base;
            memcpy(grown, c->resources, c->n_resources * sizeof *grown);
            c->resources = grown;
            *cap *= 2;
        }
        c->resources[c->n_resources] = (schema_resource){ uri_join(c, c->resources[base].uri, id->u.string), s };
        base = (uint32_t)c->n_resources++;
    }
    if (json_is(anchor, JSON_K_STRING)) anchor_add(c, base, anchor->u.string, s);
    if (json_is(dynamic, JSON_K_STRING)) anchor_add(c, base, dynamic->u.string, s);
    return base;
}

/* Walks the whole document once. Ids inside enum, const and default make resources that nobody refers to. */
int schema_resources_find(schema_ctx *c) {
    size_t            cap = 8, n = 0, cap_stack = 256;
    const json_value *id = own_id(c, c->root);
    visit            *stack = malloc(cap_stack * sizeof *stack);
    c->resources = schema_alloc(c, cap * sizeof *c->resources);
    if (!stack || !c->resources) {
        free(stack);
        return schema_fail(c, NULL, ERR_NOMEM, "out of memory");
    }
    c->resources[0] = (schema_resource){ id ? uri_without_fragment(id->u.string) : view_of(""), c->root };
    c->n_resources = 1;
    stack[n++] = (visit){ c->root, 0 };
    while (n && !c->rc) {
        visit  at = stack[--n];
        size_t count = json_count(at.v);
        if (json_is(at.v, JSON_K_OBJECT)) at.base = enter(c, at.v, at.base, &cap);
        if (n + count > cap_stack) {
            visit *grown;
            cap_stack = (n + count) * 2;
            grown = realloc(stack, cap_stack * sizeof *stack);
            if (!grown) {
                schema_fail(c, NULL, ERR_NOMEM, "out of memory");
                break;
            }
            stack = grown;
        }
        for (size_t i = 0; i < count; i++) {
            const json_value *v =
                json_is(at.v, JSON_K_OBJECT) ? &at.v->u.object.members[i].value : &at.v->u.array.items[i];
            if (v->kind == JSON_K_OBJECT || v->kind == JSON_K_ARRAY) stack[n++] = (visit){ v, at.base };
        }
    }
    free(stack);
    return c->rc;
}

static int hex(char ch) {
    return ch >= '0' && ch <= '9'   ? ch - '0'
           : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
           : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                    : -1;
}

static view percent_decode(schema_ctx *c, view t) {
    char  *out = schema_alloc(c, t.len + 1);
    size_t n = 0;
    if (!out) return t;
    for (size_t i = 0; i < t.len; i++) {
        if (t.data[i] == '%' && i + 2 < t.len && hex(t.data[i + 1]) >= 0 && hex(t.data[i + 2]) >= 0) {
            out[n++] = (char)(hex(t.data[i + 1]) * 16 + hex(t.data[i + 2]));
            i += 2;
        } else {
            out[n++] = t.data[i];
        }
    }
    return (view){ out, n };
}

static const json_value *step(const json_value *v, view token) {
    char   buf[256];
    size_t n = 0;
    if (token.len >= sizeof buf) return NULL;
    for (size_t i = 0; i < token.len; i++) {
        char ch = token.data[i];
        if (ch == '~' && i + 1 < token.len && (token.data[i + 1] == '0' || token.data[i + 1] == '1'))
            ch = token.data[++i] == '0' ? '~' : '/';
        buf[n++] = ch;
    }
    if (json_is(v, JSON_K_ARRAY)) {
        size_t index = 0;
        if (!n || n > 9) return NULL;
        for (size_t i = 0; i < n; i++) {
            if (buf[i] < '0' || buf[i] > '9') return NULL;
            index = index * 10 + (size_t)(buf[i] - '0');
        }
        return json_at(v, index);
    }
    if (!json_is(v, JSON_K_OBJECT)) return NULL;
    for (size_t i = v->u.object.count; i-- > 0;) {
        if (view_eq(v->u.object.members[i].key, (view){ buf, n })) return &v->u.object.members[i].value;
    }
    return NULL;
}

static const json_value *pointer(schema_ctx *c, uint32_t base, view p, uint32_t *out_base) {
    const json_value *v = c->resources[base].root;
    size_t            at = 0;
    *out_base = base;
    while (v && at < p.len) {
        size_t end = ++at;
        while (end < p.len && p.data[end] != '/') end++;
        v = step(v, (view){ p.data + at, end - at });
        if (v) *out_base = schema_base_of(c, v, *out_base);
        at = end;
    }
    return v;
}

static const json_value *anchor_get(schema_ctx *c, uint32_t base, view name) {
    char     key[300];
    int      n = snprintf(key, sizeof key, "%u#", base);
    uint64_t v;
    if (name.len > 256) return NULL;
    memcpy(key + n, name.data, name.len);
    return map_get(&c->anchors, key, (size_t)n + name.len, &v) ? (const json_value *)(uintptr_t)v : NULL;
}

static bool resolve(schema_ctx *c, const json_value *at, uint32_t base, view ref, const json_value **out,
                    uint32_t *out_base) {
    const char       *hash = memchr(ref.data, '#', ref.len);
    view              frag = { "", 0 }, target = uri_without_fragment(ref);
    const json_value *v = NULL;
    uint32_t          to = base;
    if (hash) frag = percent_decode(c, (view){ hash + 1, ref.len - (size_t)(hash + 1 - ref.data) });
    if (target.len) {
        view   uri = uri_join(c, c->resources[base].uri, target);
        size_t i;
        for (i = 0; i < c->n_resources; i++) {
            view u = c->resources[i].uri;
            if (view_eq(u, uri) || view_eq(u, target)) break;
        }
        if (i == c->n_resources) {
            schema_fail(c, at, ERR_UNSUPPORTED, "'$ref' to another document (%.*s) is not supported",
                        (int)(ref.len > 120 ? 120 : ref.len), ref.data);
            return false;
        }
        to = (uint32_t)i;
    }
    if (!frag.len) {
        v = c->resources[to].root;
        *out_base = to;
    } else if (frag.data[0] == '/') {
        v = pointer(c, to, frag, out_base);
        if (!v && to) v = pointer(c, 0, frag, out_base);
    } else {
        v = anchor_get(c, to, frag);
        for (uint32_t i = 0; !v && i < c->n_resources; i++) v = anchor_get(c, i, frag);
        *out_base = v ? schema_base_of(c, v, to) : to;
    }
    if (!v || (v->kind != JSON_K_OBJECT && v->kind != JSON_K_BOOL)) {
        schema_fail(c, at, ERR_FORMAT, "'$ref': there is nothing at %.*s", (int)(ref.len > 120 ? 120 : ref.len),
                    ref.data);
        return false;
    }
    *out = v;
    return true;
}

typedef struct target {
    const json_value *v;
    uint32_t          base;
} target;

/* Definitions are referred to again and again: each reference is looked up once. */
bool schema_ref_resolve(schema_ctx *c, const json_value *at, uint32_t base, view ref, const json_value **out,
                        uint32_t *out_base) {
    char     few[256], *key = few;
    size_t   n = sizeof base + ref.len;
    uint64_t known;
    target  *t;
    if (n > sizeof few && !(key = schema_alloc(c, n))) return false;
    memcpy(key, &base, sizeof base);
    memcpy(key + sizeof base, ref.data, ref.len);
    if (map_get(&c->refs, key, n, &known)) {
        t = (target *)(uintptr_t)known;
        *out = t->v;
        *out_base = t->base;
        return true;
    }
    if (!resolve(c, at, base, ref, out, out_base)) return false;
    t = schema_alloc(c, sizeof *t);
    key = t ? arena_strndup(&c->a, key, n) : NULL;
    if (!key) return false;
    *t = (target){ *out, *out_base };
    if (!map_put(&c->refs, key, n, (uint64_t)(uintptr_t)t)) {
        schema_fail(c, at, ERR_NOMEM, "out of memory");
        return false;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The store and the constructors of rx.h. Derivatives are in rx_deriv.c. */
#include "grammar/rx/rx.h"

#include "base/map.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_NODES = 4 << 20,
    MAX_DATA = 256 << 20,
    MAX_KIDS = 1 << 18,
};

int rx_store_fail(rx_store *s, int code, const char *sentence) {
    if (!s->error.code) {
        if (code == ERR_NOMEM)
            err_set_nomem(&s->error);
        else
            err_set(&s->error, code, "%s", sentence);
    }
    return s->error.code;
}

void rx_store_deinit(rx_store *s) {
    free(s->nodes);
    free(s->data);
    free(s->table);
    *s = (rx_store){ 0 };
}

static uint32_t add_sat(uint32_t a, uint32_t b) { return a > RX_INF - b ? RX_INF : a + b; }

static uint32_t mul_sat(uint32_t a, uint32_t b) {
    uint64_t r = (uint64_t)a * b;
    if (a == 0 || b == 0) return 0;
    return a == RX_INF || b == RX_INF || r >= RX_INF ? RX_INF : (uint32_t)r;
}

/* Room in the data area, aligned to 8; RX_INF when there is none. */
static uint32_t data_add(rx_store *s, const void *bytes, size_t n) {
    size_t at = (s->data_bytes + 7) & ~(size_t)7;
    if (n > MAX_DATA || at + n > MAX_DATA) {
        rx_store_fail(s, ERR_LIMIT, "the grammar needs too much memory (256 MiB of expressions)");
        return RX_INF;
    }
    if (at + n > s->data_cap) {
        size_t   cap = s->data_cap ? s->data_cap * 2 : 16384;
        uint8_t *p;
        while (cap < at + n) cap *= 2;
        if (!(p = realloc(s->data, cap))) {
            rx_store_fail(s, ERR_NOMEM, "");
            return RX_INF;
        }
        s->data = p;
        s->data_cap = cap;
    }
    if (n) memcpy(s->data + at, bytes, n);
    s->data_bytes = at + n;
    return (uint32_t)at;
}

static bool table_grow(rx_store *s) {
    uint32_t cap = s->table_cap ? s->table_cap * 2 : 1024;
    int32_t *t = calloc(cap, sizeof *t);
    if (!t) return false;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        uint32_t at = s->nodes[i].hash & (cap - 1);
        while (t[at]) at = (at + 1) & (cap - 1);
        t[at] = (int32_t)i + 1;
    }
    free(s->table);
    s->table = t;
    s->table_cap = cap;
    return true;
}

static size_t element_bytes(rx_kind k) {
    switch (k) {
    case RX_K_SET: return sizeof(rx_set);
    case RX_K_CLASS: return sizeof(rx_range);
    case RX_K_LIT: return 1;
    case RX_K_ALT:
    case RX_K_AND: return sizeof(rx);
    default: return 0;
    }
}

/*
 * The node with this content, a new one if need be. data are t->n elements; where they lie in the store already (the
 * rest of a literal) they are not copied.
 */
static rx intern(rx_store *s, rx_node *t, const void *data) {
    size_t   bytes = element_bytes((rx_kind)t->kind) * t->n;
    uint64_t key[3] = { (uint64_t)t->kind << 32 | t->a, (uint64_t)t->b << 32 | t->min, (uint64_t)t->max << 32 | t->n };
    uint64_t h = hash_bytes(key, sizeof key, 0);
    uint32_t at;
    if (bytes) h = hash_bytes(data, bytes, h);
    if (t->flags & RX_F_NULLABLE) t->flags &= (uint8_t)~RX_F_UNSURE;
    t->hash = (uint32_t)(h ^ h >> 32);
    if (s->error.code) return RX_NONE;
    if (s->n_nodes * 2 >= s->table_cap && !table_grow(s)) {
        rx_store_fail(s, ERR_NOMEM, "");
        return RX_NONE;
    }
    for (at = t->hash & (s->table_cap - 1); s->table[at]; at = (at + 1) & (s->table_cap - 1)) {
        const rx_node *o = &s->nodes[s->table[at] - 1];
        if (o->hash == t->hash && o->kind == t->kind && o->a == t->a && o->b == t->b && o->min == t->min &&
            o->max == t->max && o->n == t->n && (!bytes || memcmp(s->data + o->data, data, bytes) == 0))
            return s->table[at] - 1;
    }
    if (s->n_nodes >= MAX_NODES) {
        rx_store_fail(s, ERR_LIMIT, "the grammar is too large or a pattern is too complex (4 million expressions)");
        return RX_NONE;
    }
    if (s->n_nodes == s->cap_nodes) {
        uint32_t cap = s->cap_nodes ? s->cap_nodes * 2 : 512;
        rx_node *p = realloc(s->nodes, cap * sizeof *p);
        if (!p) {
            rx_store_fail(s, ERR_NOMEM, "");
            return RX_NONE;
        }
        s->nodes = p;
        s->cap_nodes = cap;
    }
    if (bytes) {
        const uint8_t *d = data;
        if (s->data && d >= s->data && d < s->data + s->data_bytes)
            t->data = (uint32_t)(d - s->data);
        else if ((t->data = data_add(s, data, bytes)) == RX_INF)
            return RX_NONE;
    }
    s->nodes[s->n_nodes] = *t;
    s->table[at] = (int32_t)s->n_nodes + 1;
    return (rx)s->n_nodes++;
}

int rx_store_init(rx_store *s, err *e) {
    static const rx_range everything = { 0, 0x10FFFF };
    *s = (rx_store){ .steps_limit = UINT64_MAX };
    intern(s, &(rx_node){ .kind = RX_K_NONE, .flags = RX_F_TEXT }, NULL);
    intern(s, &(rx_node){ .kind = RX_K_EPS, .flags = RX_F_NULLABLE | RX_F_TEXT }, NULL);
    intern(s, &(rx_node){ .kind = RX_K_NOT, .flags = RX_F_NULLABLE | RX_F_BOOLEAN, .a = RX_NONE, .max_len = RX_INF },
           NULL);
    s->any = rx_class(s, &everything, 1, false);
    s->all = rx_repeat(s, s->any, 0, RX_INF);
    if (s->error.code) {
        if (e) *e = s->error;
        rx_store_deinit(s);
        return e ? e->code : ERR_NOMEM;
    }
    return 0;
}

static bool utf8_valid(const uint8_t *p, size_t n) {
    unsigned c;
    for (size_t at = 0, k; at < n; at += k)
        if (!(k = utf8_decode((const char *)p + at, n - at, &c))) return false;
    return true;
}

rx rx_bytes(rx_store *s, const void *bytes, size_t n) {
    bool text;
    if (n == 0) return RX_EPS;
    if (n > MAX_DATA) {
        rx_store_fail(s, ERR_LIMIT, "a literal is too long");
        return RX_NONE;
    }
    text = utf8_valid(bytes, n);
    return intern(s,
                  &(rx_node){ .kind = RX_K_LIT,
                              .flags = text ? RX_F_TEXT : 0,
                              .n = (uint32_t)n,
                              .min_len = (uint32_t)n,
                              .max_len = (uint32_t)n },
                  bytes);
}

static rx rx_byte_set(rx_store *s, const rx_set *set) {
    int     n = 0, one = 0;
    uint8_t b;
    for (int i = 0; i < 4; i++) {
        n += __builtin_popcountll(set->w[i]);
        if (set->w[i]) one = i * 64 + __builtin_ctzll(set->w[i]);
    }
    if (n == 0) return RX_NONE;
    b = (uint8_t)one;
    if (n == 1) return rx_bytes(s, &b, 1);
    return intern(
        s,
        &(rx_node){
            .kind = RX_K_SET, .flags = set->w[2] | set->w[3] ? 0 : RX_F_TEXT, .n = 1, .min_len = 1, .max_len = 1 },
        set);
}

static int by_first(const void *a, const void *b) {
    uint32_t x = ((const rx_range *)a)->first, y = ((const rx_range *)b)->first;
    return x < y ? -1 : x > y;
}

/* Characters that may stand unescaped in a JSON string, without the two line separators that "." leaves out. */
static bool class_is_plain(const rx_range *r, size_t n) {
    static const rx_range plain[] = {
        { 0x20, 0x21 }, { 0x23, 0x5B }, { 0x5D, 0x2027 }, { 0x202A, 0xD7FF }, { 0xE000, 0x10FFFF }
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        while (at < n && r[at].last < plain[i].first) at++;
        if (at == n || r[at].first > plain[i].first || r[at].last < plain[i].last) return false;
    }
    return true;
}

/* Ranges that are sorted, disjoint and do not touch. missing: continuation bytes, 0 for whole characters. */
static rx class_node(rx_store *s, const rx_range *r, size_t n, uint32_t missing) {
    if (n == 0) return RX_NONE;
    if (missing == 0 && n == 1 && r->first == r->last) {
        str one;
        rx  out;
        str_init(&one);
        str_put_utf8(&one, r->first);
        if (!str_ok(&one)) rx_store_fail(s, ERR_NOMEM, "");
        out = rx_bytes(s, str_cstr(&one), one.len);
        str_deinit(&one);
        return out;
    }
    if (missing == 0 && r[n - 1].last < 0x80) {
        rx_set set = { 0 };
        for (size_t i = 0; i < n; i++) rx_set_add_range(&set, r[i].first, r[i].last);
        return rx_byte_set(s, &set);
    }
    return intern(s,
                  &(rx_node){ .kind = RX_K_CLASS,
                              .flags = missing                ? 0
                                       : class_is_plain(r, n) ? RX_F_TEXT | RX_F_PLAIN
                                                              : RX_F_TEXT,
                              .a = missing,
                              .n = (uint32_t)n,
                              .min_len = missing             ? missing
                                         : r[0].first < 0x80 ? 1
                                                             : 2,
                              .max_len = missing ? missing : 4 },
                  r);
}

/* Sorts and joins in place, without surrogates when text; gives the new count. */
static size_t ranges_join(rx_range *r, size_t n) {
    size_t k = 0;
    qsort(r, n, sizeof *r, by_first);
    for (size_t i = 0; i < n; i++) {
        if (k && r[i].first <= r[k - 1].last + 1) {
            if (r[i].last > r[k - 1].last) r[k - 1].last = r[i].last;
        } else {
            r[k++] = r[i];
        }
    }
    return k;
}

rx rx_class(rx_store *s, const rx_range *r, size_t n, bool negate) {
    rx_range *t = malloc((n + 2) * 2 * sizeof *t), *u;
    size_t    k = 0, m = 0;
    uint32_t  at = 0;
    rx        out;
    if (!t) {
        rx_store_fail(s, ERR_NOMEM, "");
        return RX_NONE;
    }
    for (size_t i = 0; i < n; i++) {
        rx_range x = r[i];
        if (x.last > 0x10FFFF) x.last = 0x10FFFF;
        if (x.first <= x.last) t[k++] = x;
    }
    /* Surrogates are not characters: part of the excluded set when negating, cut out otherwise. */
    if (negate) t[k++] = (rx_range){ 0xD800, 0xDFFF };
    k = ranges_join(t, k);
    u = t + n + 2;
    if (negate) {
        for (size_t i = 0; i < k; i++) {
            if (t[i].first > at) u[m++] = (rx_range){ at, t[i].first - 1 };
            at = t[i].last + 1;
        }
        if (at <= 0x10FFFF) u[m++] = (rx_range){ at, 0x10FFFF };
    } else {
        for (size_t i = 0; i < k; i++) {
            if (t[i].last < 0xD800 || t[i].first > 0xDFFF) {
                u[m++] = t[i];
                continue;
            }
            if (t[i].first < 0xD800) u[m++] = (rx_range){ t[i].first, 0xD7FF };
            if (t[i].last > 0xDFFF) u[m++] = (rx_range){ 0xE000, t[i].last };
        }
    }
    out = class_node(s, u, m, 0);
    free(t);
    return out;
}

/* The part of a class within [first, last] behind the byte that says so: values from base on, in 6 * missing bits. */
rx rx_class_part(rx_store *s, rx a, uint32_t first, uint32_t last, uint32_t base, uint32_t missing) {
    const rx_node  *t = rx_get(s, a);
    const rx_range *r = (const rx_range *)(s->data + t->data);
    rx_range        few[64], *out = few;
    size_t          k = 0;
    rx              result;
    if (t->n > 64 && !(out = malloc(t->n * sizeof *out))) {
        rx_store_fail(s, ERR_NOMEM, "");
        return RX_NONE;
    }
    for (uint32_t i = 0; i < t->n; i++) {
        if (r[i].last < first || r[i].first > last) continue;
        out[k++] = (rx_range){ (r[i].first < first ? first : r[i].first) - base,
                               (r[i].last > last ? last : r[i].last) - base };
    }
    result = missing ? class_node(s, out, k, missing) : k ? RX_EPS : RX_NONE;
    if (out != few) free(out);
    return result;
}

/* The literal x followed by the literal l. */
static rx literal_join(rx_store *s, const rx_node *x, const rx_node *l) {
    size_t  n = (size_t)x->n + l->n;
    uint8_t few[256], *p = n <= sizeof few ? few : malloc(n);
    rx      out;
    if (!p) {
        rx_store_fail(s, ERR_NOMEM, "");
        return RX_NONE;
    }
    memcpy(p, s->data + x->data, x->n);
    memcpy(p + x->n, s->data + l->data, l->n);
    out = rx_bytes(s, p, n);
    if (p != few) free(p);
    return out;
}

rx rx_cat(rx_store *s, rx a, rx b) {
    const rx_node *x, *y;
    uint8_t        flags;
    if (a == RX_NONE || b == RX_NONE) return RX_NONE;
    if (a == RX_EPS) return b;
    if (b == RX_EPS) return a;
    x = rx_get(s, a);
    if (x->kind == RX_K_CAT) {
        /* To the right: a = p q, so p (q b). Loops over long chains from the end would need a stack; chains grow one
         * element at a time from the left in practice, and depth is bounded. */
        rx p = (rx)x->a, q = (rx)x->b;
        if (++s->depth > RX_MAX_DEPTH) {
            rx_store_fail(s, ERR_LIMIT, "an expression is nested too deeply");
            s->depth--;
            return RX_NONE;
        }
        q = rx_cat(s, q, b);
        s->depth--;
        return rx_cat(s, p, q);
    }
    y = rx_get(s, b);
    if (x->kind == RX_K_LIT &&
        (y->kind == RX_K_LIT || (y->kind == RX_K_CAT && rx_get(s, (rx)y->a)->kind == RX_K_LIT))) {
        rx rest = y->kind == RX_K_LIT ? RX_EPS : (rx)y->b;
        a = literal_join(s, x, y->kind == RX_K_LIT ? y : rx_get(s, (rx)y->a));
        if (a == RX_NONE) return RX_NONE;
        if (rest == RX_EPS) return a;
        b = rest;
        x = rx_get(s, a);
        y = rx_get(s, b);
    }
    flags = x->flags & y->flags & (RX_F_NULLABLE | RX_F_TEXT);
    flags |= (x->flags | y->flags) & (RX_F_UNSURE | RX_F_BOOLEAN | RX_F_COUNTED);
    return intern(s,
                  &(rx_node){ .kind = RX_K_CAT,
                              .flags = flags,
                              .a = (uint32_t)a,
                              .b = (uint32_t)b,
                              .min_len = add_sat(x->min_len, y->min_len),
                              .max_len = add_sat(x->max_len, y->max_len) },
                  NULL);
}

static int by_number(const void *a, const void *b) {
    rx x = *(const rx *)a, y = *(const rx *)b;
    return x < y ? -1 : x > y;
}

typedef struct rx_list {
    rx    *v;
    size_t n, cap;
    rx     few[32];
} rx_list;

static bool list_push(rx_store *s, rx_list *l, rx a) {
    if (l->n == l->cap) {
        size_t cap = l->cap * 2;
        rx    *p;
        if (l->n >= MAX_KIDS) {
            rx_store_fail(s, ERR_LIMIT, "a pattern is too complex (an expression with 262144 alternatives)");
            return false;
        }
        p = l->v == l->few ? malloc(cap * sizeof *p) : realloc(l->v, cap * sizeof *p);
        if (!p) {
            rx_store_fail(s, ERR_NOMEM, "");
            return false;
        }
        if (l->v == l->few) memcpy(p, l->few, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = a;
    return true;
}

static void list_init(rx_list *l) {
    l->v = l->few;
    l->n = 0;
    l->cap = 32;
}

static void list_deinit(rx_list *l) {
    if (l->v != l->few) free(l->v);
}

/* Flattens nodes of `kind`, sorts, drops duplicates and `unit`. */
static bool list_fill(rx_store *s, rx_list *l, const rx *list, size_t n, rx_kind kind, rx unit) {
    size_t k = 0;
    s->steps += n / 4; /* long lists are work too */
    for (size_t i = 0; i < n; i++) {
        const rx_node *t = rx_get(s, list[i]);
        if (t->kind == kind) {
            s->steps += t->n / 4;
            for (uint32_t j = 0; j < t->n; j++)
                if (!list_push(s, l, rx_kids(s, list[i])[j])) return false;
        } else if (list[i] != unit && !list_push(s, l, list[i])) {
            return false;
        }
    }
    for (size_t i = 1; i < l->n; i++) {
        if (l->v[i - 1] > l->v[i]) {
            qsort(l->v, l->n, sizeof *l->v, by_number);
            break;
        }
    }
    for (size_t i = 0; i < l->n; i++)
        if (!k || l->v[k - 1] != l->v[i]) l->v[k++] = l->v[i];
    l->n = k;
    return true;
}

/* Sets, classes and one-byte literals of a union become one node. */
static void alt_join_sets(rx_store *s, rx_list *l) {
    rx_set set = { 0 };
    size_t k = 0, n_sets = 0;
    rx     joined;
    for (size_t i = 0; i < l->n; i++) {
        const rx_node *t = rx_get(s, l->v[i]);
        if (t->kind == RX_K_SET || (t->kind == RX_K_LIT && t->n == 1)) n_sets++;
    }
    if (n_sets < 2) return;
    for (size_t i = 0; i < l->n; i++) {
        const rx_node *t = rx_get(s, l->v[i]);
        if (t->kind == RX_K_SET) {
            const rx_set *o = (const rx_set *)(s->data + t->data);
            for (int j = 0; j < 4; j++) set.w[j] |= o->w[j];
        } else if (t->kind == RX_K_LIT && t->n == 1) {
            rx_set_add(&set, s->data[t->data]);
        } else {
            l->v[k++] = l->v[i];
        }
    }
    joined = rx_byte_set(s, &set);
    for (l->n = k + 1; k > 0 && l->v[k - 1] > joined; k--) l->v[k] = l->v[k - 1];
    l->v[k] = joined;
}

rx rx_alt_n(rx_store *s, const rx *list, size_t n) {
    rx_list l;
    rx_node t = { .kind = RX_K_ALT, .flags = RX_F_TEXT, .min_len = RX_INF };
    rx      out = RX_NONE;
    bool    has_all = false, text = true;
    if (n == 2 && list[0] == list[1]) return list[0];
    list_init(&l);
    if (!list_fill(s, &l, list, n, RX_K_ALT, RX_NONE)) goto done;
    alt_join_sets(s, &l);
    for (size_t i = 0; i < l.n; i++) {
        const rx_node *k = rx_get(s, l.v[i]);
        if (l.v[i] == RX_ALL_BYTES) {
            out = RX_ALL_BYTES;
            goto done;
        }
        has_all |= l.v[i] == s->all;
        text &= (k->flags & RX_F_TEXT) != 0;
        t.flags |= k->flags & (RX_F_NULLABLE | RX_F_UNSURE | RX_F_BOOLEAN | RX_F_COUNTED);
        if (k->min_len < t.min_len) t.min_len = k->min_len;
        if (k->max_len > t.max_len) t.max_len = k->max_len;
    }
    if (!text) t.flags &= (uint8_t)~RX_F_TEXT;
    /* One certain alternative is enough. */
    if (t.flags & RX_F_UNSURE) {
        for (size_t i = 0; i < l.n; i++)
            if (!(rx_get(s, l.v[i])->flags & RX_F_UNSURE)) t.flags &= (uint8_t)~RX_F_UNSURE;
    }
    if (l.n < 2)
        out = l.n ? l.v[0] : RX_NONE;
    else if (has_all && text)
        out = s->all;
    else {
        t.n = (uint32_t)l.n;
        out = intern(s, &t, l.v);
    }
done:
    list_deinit(&l);
    return out;
}

rx rx_alt(rx_store *s, rx a, rx b) {
    if (a == b || b == RX_NONE) return a;
    if (a == RX_NONE) return b;
    return rx_alt_n(s, (rx[]){ a, b }, 2);
}

static bool is_json(const rx_store *s, rx a, uint32_t *state) {
    const rx_node *t = rx_get(s, a);
    if (t->kind == RX_K_NOT) t = rx_get(s, (rx)t->a);
    *state = t->min;
    return t->kind == RX_K_JSON;
}

/* JSON spellings are unique in what they decode to, so intersection and complement move inside: J(a) & !J(b) = J(a &
 * !b). */
static bool and_join_json(rx_store *s, rx_list *l) {
    rx_list  in;
    uint32_t state = 0, other;
    rx       joined = RX_NONE;
    size_t   k = 0, n_json = 0;
    bool     found = false;
    for (size_t i = 0; i < l->n; i++) {
        if (rx_get(s, l->v[i])->kind == RX_K_JSON && !found) {
            state = rx_get(s, l->v[i])->min;
            found = true;
        }
        if (is_json(s, l->v[i], &other)) n_json++;
    }
    if (!found || n_json < 2) return true;
    list_init(&in);
    for (size_t i = 0; i < l->n; i++) {
        const rx_node *t = rx_get(s, l->v[i]);
        if (!is_json(s, l->v[i], &other) || other != state) {
            l->v[k++] = l->v[i];
        } else {
            rx x = t->kind == RX_K_JSON ? (rx)t->a : rx_not(s, (rx)rx_get(s, (rx)t->a)->a);
            if (!list_push(s, &in, x)) break;
        }
    }
    joined = rx_json(s, rx_and_n(s, in.v, in.n), state);
    list_deinit(&in);
    l->n = k;
    list_push(s, l, joined);
    qsort(l->v, l->n, sizeof *l->v, by_number);
    return !s->error.code && joined != RX_NONE;
}

/* A certain infinite language minus a finite one is not empty: the usual "any key but these". */
static bool and_is_sure(const rx_store *s, const rx_list *l) {
    size_t positive = 0;
    for (size_t i = 0; i < l->n; i++) {
        const rx_node *t = rx_get(s, l->v[i]);
        if (t->kind == RX_K_NOT) {
            const rx_node *x = rx_get(s, (rx)t->a);
            if (x->max_len == RX_INF || (x->flags & RX_F_BOOLEAN)) return false;
        } else if (++positive > 1 || (t->flags & RX_F_UNSURE) || t->max_len != RX_INF || (t->flags & RX_F_BOOLEAN)) {
            return false;
        }
    }
    return positive == 1;
}

rx rx_and_n(rx_store *s, const rx *list, size_t n) {
    rx_list l;
    rx_node t = { .kind = RX_K_AND, .flags = RX_F_NULLABLE | RX_F_UNSURE | RX_F_BOOLEAN, .max_len = RX_INF };
    rx      out = RX_NONE;
    size_t  k = 0, positive = 0;
    bool    text = false;
    list_init(&l);
    if (!list_fill(s, &l, list, n, RX_K_AND, RX_ALL_BYTES) || !and_join_json(s, &l)) goto done;
    for (size_t i = 0; i < l.n; i++) {
        const rx_node *x = rx_get(s, l.v[i]);
        if (l.v[i] == RX_NONE) goto done;
        if (l.v[i] != s->all && (x->flags & RX_F_TEXT)) text = true;
        if (x->kind != RX_K_NOT) positive++;
    }
    for (size_t i = 0; i < l.n; i++) {
        const rx_node *x = rx_get(s, l.v[i]);
        if (l.v[i] == s->all && text) continue; /* the others are texts already */
        t.flags &= x->flags | (uint8_t)~RX_F_NULLABLE;
        if (x->flags & RX_F_TEXT) t.flags |= RX_F_TEXT;
        if (x->kind != RX_K_NOT && x->min_len > t.min_len) t.min_len = x->min_len;
        if (x->kind != RX_K_NOT && x->max_len < t.max_len) t.max_len = x->max_len;
        l.v[k++] = l.v[i];
    }
    l.n = k;
    if (l.n == 0)
        out = RX_ALL_BYTES;
    else if (l.n == 1)
        out = l.v[0];
    else if (positive > 0 && t.min_len > t.max_len)
        out = RX_NONE;
    else {
        if (t.flags & RX_F_NULLABLE || and_is_sure(s, &l)) t.flags &= (uint8_t)~RX_F_UNSURE;
        t.n = (uint32_t)l.n;
        out = intern(s, &t, l.v);
    }
done:
    list_deinit(&l);
    return out;
}

rx rx_and(rx_store *s, rx a, rx b) { return a == b ? a : rx_and_n(s, (rx[]){ a, b }, 2); }

rx rx_not(rx_store *s, rx a) {
    const rx_node *x = rx_get(s, a);
    if (x->kind == RX_K_NOT) return (rx)x->a;
    return intern(s,
                  &(rx_node){ .kind = RX_K_NOT,
                              .flags = (uint8_t)(RX_F_BOOLEAN | (x->flags & RX_F_NULLABLE ? 0 : RX_F_NULLABLE) |
                                                 (x->flags & RX_F_BOOLEAN ? RX_F_UNSURE : 0)),
                              .a = (uint32_t)a,
                              .max_len = RX_INF },
                  NULL);
}

rx rx_repeat(rx_store *s, rx a, uint32_t min, uint32_t max) {
    const rx_node *x = rx_get(s, a);
    uint8_t        flags;
    if (max == 0 || a == RX_EPS) return min == 0 || a == RX_EPS ? RX_EPS : RX_NONE;
    if (min > max) return RX_NONE;
    if (a == RX_NONE) return min == 0 ? RX_EPS : RX_NONE;
    if (x->flags & RX_F_NULLABLE) min = 0;
    if (min == 1 && max == 1) return a;
    if (x->kind == RX_K_REPEAT && x->min == 0 && x->max == RX_INF) return a;
    if (x->kind == RX_K_REPEAT && x->min <= 1 && max == RX_INF && x->max >= 1) /* (x{0,9})* = x*, (x{1,9})* = x* */
        return rx_repeat(s, (rx)x->a, x->min == 0 || min == 0 ? 0 : min, RX_INF);
    flags = x->flags & (RX_F_TEXT | RX_F_BOOLEAN | RX_F_COUNTED);
    if ((max != RX_INF && max > RX_COUNTED) || min > RX_COUNTED) flags |= RX_F_COUNTED;
    if (min == 0)
        flags |= RX_F_NULLABLE;
    else
        flags |= x->flags & RX_F_UNSURE;
    return intern(s,
                  &(rx_node){ .kind = RX_K_REPEAT,
                              .flags = flags,
                              .a = (uint32_t)a,
                              .min = min,
                              .max = max,
                              .min_len = mul_sat(x->min_len, min),
                              .max_len = mul_sat(x->max_len, max) },
                  NULL);
}

rx rx_json(rx_store *s, rx text, uint32_t state) {
    const rx_node *x = rx_get(s, text);
    uint8_t        flags = x->flags & (RX_F_BOOLEAN | RX_F_COUNTED);
    if (text == RX_NONE) return RX_NONE;
    if (rx_json_between(state))
        flags |= (x->flags & RX_F_UNSURE) | (x->flags & RX_F_TEXT);
    else
        flags |= RX_F_UNSURE;
    return intern(s,
                  &(rx_node){ .kind = RX_K_JSON,
                              .flags = flags,
                              .a = (uint32_t)text,
                              .min = state,
                              .min_len = 1,
                              .max_len = x->max_len == RX_INF ? RX_INF : add_sat(mul_sat(x->max_len, 6), 8) },
                  NULL);
}

rx rx_multiple(rx_store *s, uint32_t step, uint32_t remainder, uint32_t phase, uint32_t frac) {
    uint64_t span = 1, at = remainder;
    bool     nullable;
    if (!step || step > 100000000 || frac > 9 || phase > 2) {
        rx_store_fail(s, ERR_LIMIT, "a multiple of this size is not supported");
        return RX_NONE;
    }
    for (uint32_t i = 0; phase == 2 && i < frac; i++) {
        span *= 10;
        at = at * 10 % step;
    }
    if (phase == 2 && (step - at) % step >= span) return RX_NONE; /* the digits left cannot make it one */
    nullable = phase && !frac && !remainder;
    return intern(s,
                  &(rx_node){ .kind = RX_K_MULTIPLE,
                              .flags = (uint8_t)(RX_F_TEXT | (nullable ? RX_F_NULLABLE : 0)),
                              .a = step,
                              .b = remainder,
                              .min = phase,
                              .max = frac,
                              .min_len = 0,
                              .max_len = phase == 2 ? frac : RX_INF },
                  NULL);
}

rx rx_cap(rx_store *s, rx a, uint32_t count) {
    const rx_node *t = rx_get(s, a);
    rx             x, y;
    if ((t->flags & (RX_F_COUNTED | RX_F_BOOLEAN)) != RX_F_COUNTED) return a;
    switch ((rx_kind)t->kind) {
    case RX_K_CAT:
        y = (rx)t->b;
        x = rx_cap(s, (rx)t->a, count);
        return rx_cat(s, x, rx_cap(s, y, count));
    case RX_K_REPEAT: {
        uint32_t min = t->min > count ? count : t->min, max = t->max != RX_INF && t->max > count ? count : t->max;
        return rx_repeat(s, rx_cap(s, (rx)t->a, count), min, max);
    }
    case RX_K_JSON: {
        uint32_t state = t->min;
        return rx_json(s, rx_cap(s, (rx)t->a, count), state);
    }
    case RX_K_ALT: {
        rx_list  l;
        uint32_t n = t->n;
        list_init(&l);
        for (uint32_t i = 0; i < n; i++)
            if (!list_push(s, &l, rx_cap(s, rx_kids(s, a)[i], count))) break;
        x = rx_alt_n(s, l.v, l.n);
        list_deinit(&l);
        return x;
    }
    default: return a;
    }
}

rx rx_copy(rx_store *to, const rx_store *from, rx a, rx *known) {
    const rx_node *t = rx_get(from, a);
    rx             out = RX_NONE;
    if (a <= RX_ALL_BYTES) return a;
    if (known[a]) return known[a];
    if (++to->depth > RX_MAX_DEPTH) {
        rx_store_fail(to, ERR_LIMIT, "an expression is nested too deeply");
        to->depth--;
        return RX_NONE;
    }
    switch ((rx_kind)t->kind) {
    case RX_K_NONE:
    case RX_K_EPS: out = a; break;
    case RX_K_SET: out = rx_byte_set(to, (const rx_set *)(from->data + t->data)); break;
    case RX_K_CLASS: out = class_node(to, (const rx_range *)(from->data + t->data), t->n, t->a); break;
    case RX_K_LIT: out = rx_bytes(to, from->data + t->data, t->n); break;
    case RX_K_CAT: {
        rx x = rx_copy(to, from, (rx)t->a, known);
        out = rx_cat(to, x, rx_copy(to, from, (rx)t->b, known));
        break;
    }
    case RX_K_ALT:
    case RX_K_AND: {
        rx_list l;
        list_init(&l);
        for (uint32_t i = 0; i < t->n; i++)
            if (!list_push(to, &l, rx_copy(to, from, rx_kids(from, a)[i], known))) break;
        out = t->kind == RX_K_ALT ? rx_alt_n(to, l.v, l.n) : rx_and_n(to, l.v, l.n);
        list_deinit(&l);
        break;
    }
    case RX_K_NOT: out = rx_not(to, rx_copy(to, from, (rx)t->a, known)); break;
    case RX_K_REPEAT: out = rx_repeat(to, rx_copy(to, from, (rx)t->a, known), t->min, t->max); break;
    case RX_K_JSON: out = rx_json(to, rx_copy(to, from, (rx)t->a, known), t->min); break;
    case RX_K_MULTIPLE: out = rx_multiple(to, t->a, t->b, t->min, t->max); break;
    }
    to->depth--;
    known[a] = out;
    return out;
}

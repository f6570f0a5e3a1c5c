/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '.' || c == '%';
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

void reader_next(reader *r) {
    const char *p = r->at;
    for (; p < r->end; p++) {
        if (*p == '\n')
            r->line++;
        else if (*p == '/' && p + 1 < r->end && p[1] == '/') {
            while (p + 1 < r->end && p[1] != '\n') p++;
        } else if (*p != ' ' && *p != '\t' && *p != '\r') {
            break;
        }
    }
    r->now = (word){ p, 0, 0 };
    r->at = p;
    if (p >= r->end) return;
    const char *s = p;
    if (is_digit(*p)) {
        while (p < r->end && is_name(*p) && *p != '.') p++;
        r->now.kind = '0';
    } else if (is_name(*p)) {
        /* "shared::cta" is one word; a single colon ends a label. */
        while (p < r->end && (is_name(*p) || (*p == ':' && p + 1 < r->end && p[1] == ':'))) p += *p == ':' ? 2 : 1;
        r->now.kind = 'w';
    } else if (*p == '"') {
        for (p++; p < r->end && *p != '"'; p++) {
        }
        if (p < r->end) p++;
        r->now.kind = '"';
    } else {
        r->now.kind = *p++;
    }
    r->now.n = (int)(p - s);
    r->at = p;
}

void reader_open(reader *r, const char *at, const char *end, uint32_t line) {
    *r = (reader){ .at = at, .end = end, .line = line };
    reader_next(r);
}

bool word_is(word w, const char *s) { return (int)strlen(s) == w.n && memcmp(w.at, s, (size_t)w.n) == 0; }

bool reader_take(reader *r, const char *s) {
    if (!word_is(r->now, s)) return false;
    reader_next(r);
    return true;
}

int type_bytes(const char *at, int n) {
    if (n > 1 && at[0] == '.') at++, n--;
    if (n < 2 || !strchr("busf", at[0]) || !is_digit(at[1])) return 0;
    return atoi(at + 1) / 8;
}

slot_kind type_kind(const char *at, int n) {
    if (n == 5 && memcmp(at, ".pred", 5) == 0) return SLOT_PRED;
    const int bytes = type_bytes(at, n);
    return bytes == 8 ? SLOT_64 : bytes ? SLOT_32 : SLOT_NONE;
}

int number_bits(word w, uint64_t *out) {
    if (w.n > 2 && w.at[0] == '0' && (w.at[1] == 'f' || w.at[1] == 'F' || w.at[1] == 'd' || w.at[1] == 'D')) {
        *out = strtoull(w.at + 2, NULL, 16);
        return 0;
    }
    *out = strtoull(w.at, NULL, 0);
    return 0;
}

static uint64_t take_number(reader *r) {
    uint64_t v = 0;
    if (r->now.kind == '0') number_bits(r->now, &v);
    reader_next(r);
    return v;
}

int reader_declared(reader *r, declared *out, err *e) {
    *out = (declared){ .align = 1, .count = 1 };
    if (reader_take(r, ".align")) out->align = take_number(r);
    out->element = (size_t)type_bytes(r->now.at, r->now.n);
    if (!out->element) return err_set(e, ERR_FORMAT, "line %u: a type was expected", r->line);
    if (out->align < out->element) out->align = out->element;
    reader_next(r);
    out->name = r->now;
    reader_next(r);
    if (reader_take(r, "[")) {
        out->count = r->now.kind == '0' ? take_number(r) : 0;
        if (!reader_take(r, "]")) return err_set(e, ERR_FORMAT, "line %u: ']' was expected", r->line);
    }
    return 0;
}

/* Appends a zeroed element to an array of the module. */
static void *grow(arena *mem, void *array, int *n, size_t bytes) {
    if ((*n & (*n - 1)) == 0) { /* doubles at powers of two; what it leaves behind goes with the arena */
        char *more = arena_calloc(mem, (size_t)(*n ? *n * 2 : 1), bytes);
        if (!more) return NULL;
        if (*n) memcpy(more, array, (size_t)*n * bytes);
        array = more;
    }
    ++*n;
    return array;
}

static int read_variable(gpu_module *m, reader *r, err *e) {
    declared d;
    int      rc = reader_declared(r, &d, e);
    if (rc != 0) return rc;
    m->vars = grow(&m->mem, m->vars, &m->n_vars, sizeof *m->vars);
    if (!m->vars) return err_set_nomem(e);
    module_var *v = &m->vars[m->n_vars - 1];
    v->name = arena_strndup(&m->mem, d.name.at, (size_t)d.name.n);
    v->bytes = d.element * d.count;
    char *at = arena_calloc(&m->mem, 1, v->bytes + 256);
    if (!v->name || !at) return err_set_nomem(e);
    at += (256 - (uintptr_t)at % 256) % 256;
    v->at = at;
    gpu_memory_add(v->at, v->bytes);
    if (reader_take(r, "=")) {
        size_t at_element = 0;
        while (!word_is(r->now, ";") && r->now.kind) {
            const bool minus = reader_take(r, "-");
            if (r->now.kind == '0') {
                uint64_t bits = 0;
                number_bits(r->now, &bits);
                if (minus) bits = -bits;
                if (at_element < d.count) memcpy(at + at_element++ * d.element, &bits, d.element);
            } else if (r->now.kind == 'w') {
                return err_set(e, ERR_UNSUPPORTED, "line %u: the address of a symbol in a variable", r->line);
            }
            reader_next(r);
        }
    }
    return 0;
}

static int read_shared(gpu_module *m, reader *r, err *e) {
    declared d;
    int      rc = reader_declared(r, &d, e);
    if (rc != 0) return rc;
    m->shared = grow(&m->mem, m->shared, &m->n_shared, sizeof *m->shared);
    if (!m->shared) return err_set_nomem(e);
    module_shared *s = &m->shared[m->n_shared - 1];
    *s = (module_shared){ arena_strndup(&m->mem, d.name.at, (size_t)d.name.n), d.element * d.count, d.align };
    return s->name ? 0 : err_set_nomem(e);
}

/* "(.param .b32 a, .param .align 8 .b8 b[16])" */
static int read_params(reader *r, declared *out, int cap, int *n, err *e) {
    *n = 0;
    if (!reader_take(r, "(")) return 0;
    while (!reader_take(r, ")")) {
        reader_take(r, ",");
        if (!reader_take(r, ".param")) return err_set(e, ERR_FORMAT, "line %u: a parameter was expected", r->line);
        if (*n == cap) return err_set(e, ERR_LIMIT, "line %u: more than %d parameters", r->line, cap);
        int rc = reader_declared(r, &out[*n], e);
        if (rc != 0) return rc;
        ++*n;
    }
    return 0;
}

static int read_function(gpu_module *m, reader *r, bool entry, err *e) {
    module_fn f = { .entry = entry };
    int       n = 0, rc;
    if (!entry && word_is(r->now, "(")) {
        rc = read_params(r, &f.result, 1, &n, e);
        if (rc != 0) return rc;
        f.has_result = n == 1;
    }
    f.name = arena_strndup(&m->mem, r->now.at, (size_t)r->now.n);
    if (!f.name) return err_set_nomem(e);
    reader_next(r);
    rc = read_params(r, f.params, 64, &f.n_params, e);
    if (rc != 0) return rc;
    while (!word_is(r->now, "{")) {
        if (!r->now.kind) return err_set(e, ERR_FORMAT, "%s: its body was expected", f.name);
        if (reader_take(r, ";")) return 0; /* only announced */
        if (reader_take(r, ".maxntid") || reader_take(r, ".reqntid")) {
            f.threads_max = (int)take_number(r);
            while (reader_take(r, ",")) f.threads_max *= (int)take_number(r);
        } else {
            reader_next(r);
        }
    }
    f.body = r->at;
    f.line = r->line;
    /* To the closing brace, character by character: braces stand neither in strings nor in comments here. */
    int         depth = 1;
    const char *p = r->at;
    for (; p < r->end; p++) {
        if (*p == '\n') r->line++;
        if (*p == '{') depth++;
        if (*p == '/' && p + 1 < r->end && p[1] == '/') {
            while (p + 1 < r->end && p[1] != '\n') p++;
        }
        if (*p == '}' && --depth == 0) break;
    }
    if (p == r->end) return err_set(e, ERR_FORMAT, "%s: its body has no end", f.name);
    f.end = p;
    r->at = p + 1;
    reader_next(r);
    m->fns = grow(&m->mem, m->fns, &m->n_fns, sizeof *m->fns);
    if (!m->fns) return err_set_nomem(e);
    m->fns[m->n_fns - 1] = f;
    return 0;
}

int gpu_module_open(gpu_module **out, const char *text, size_t bytes, err *e) {
    gpu_module *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return err_set_nomem(e);
    arena_init(&m->mem, 0);
    const char *nul = memchr(text, 0, bytes);
    reader      r;
    int         rc = 0;
    reader_open(&r, text, nul ? nul : text + bytes, 1);
    while (r.now.kind && rc == 0) {
        if (reader_take(&r, ".version") || reader_take(&r, ".target") || reader_take(&r, ".address_size")) {
            const uint32_t line = r.line;
            while (r.now.kind && r.line == line) reader_next(&r);
        } else if (reader_take(&r, ".entry")) {
            rc = read_function(m, &r, true, e);
        } else if (reader_take(&r, ".func")) {
            rc = read_function(m, &r, false, e);
        } else if (reader_take(&r, ".global") || reader_take(&r, ".const")) {
            rc = read_variable(m, &r, e);
        } else if (reader_take(&r, ".shared")) {
            rc = read_shared(m, &r, e);
        } else {
            reader_next(&r); /* .visible, .weak, .extern, ; */
        }
    }
    if (rc != 0) {
        gpu_module_free(m);
        return err_wrap(e, rc, "PTX");
    }
    *out = m;
    return 0;
}

static bool is_named(const char *have, const char *name, int n) {
    return strncmp(have, name, (size_t)n) == 0 && have[n] == 0;
}

const module_fn *module_fn_find(const gpu_module *m, const char *name, int n) {
    for (int i = 0; i < m->n_fns; i++) {
        if (is_named(m->fns[i].name, name, n)) return &m->fns[i];
    }
    return NULL;
}

const module_var *module_var_find(const gpu_module *m, const char *name, int n) {
    for (int i = 0; i < m->n_vars; i++) {
        if (is_named(m->vars[i].name, name, n)) return &m->vars[i];
    }
    return NULL;
}

const module_shared *module_shared_find(const gpu_module *m, const char *name, int n) {
    for (int i = 0; i < m->n_shared; i++) {
        if (is_named(m->shared[i].name, name, n)) return &m->shared[i];
    }
    return NULL;
}

int gpu_module_variable(void **at, size_t *bytes, gpu_module *m, const char *name, err *e) {
    const module_var *v = module_var_find(m, name, (int)strlen(name));
    if (!v) return err_set(e, ERR_NOTFOUND, "PTX: no variable %s", name);
    *at = v->at;
    *bytes = v->bytes;
    return 0;
}

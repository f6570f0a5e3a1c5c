/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, constants and arguments of a kernel that is read. Names live in scopes (`{ }`, as inline assembly uses them).
 * A number in an instruction becomes a constant with 32 equal lanes, so that instructions need not tell it from a
 * register.
 */
#include "gpu/build.h"

#include <stdlib.h>
#include <string.h>

int ptx_fail(build *b, const char *what, word w) {
    return err_set(b->e, ERR_UNSUPPORTED, "%s: line %u: %s: %.*s", b->k->name, b->line, what, w.n, w.at);
}

/* ---- names ---- */

static unsigned hash_of(word w) {
    unsigned h = 5381;
    for (int i = 0; i < w.n; i++) h = h * 33 + (unsigned char)w.at[i];
    return h % 32;
}

static bool same_word(word a, word b) { return a.n == b.n && memcmp(a.at, b.at, (size_t)a.n) == 0; }

sym *ptx_find_in(const scope *s, word w) {
    for (; s; s = s->up) {
        for (sym *y = s->names[hash_of(w)]; y; y = y->next) {
            if (same_word(y->name, w)) return y;
        }
    }
    return NULL;
}

sym *ptx_add_name(build *b, word w, sym_kind kind) {
    sym *y = arena_calloc(&b->k->mem, 1, sizeof *y);
    if (!y) return NULL;
    y->name = w;
    y->kind = kind;
    sym **at = &b->scope->names[hash_of(w)];
    y->next = *at;
    *at = y;
    return y;
}

int ptx_open_scope(build *b) {
    scope *s = arena_calloc(&b->k->mem, 1, sizeof *s);
    if (!s) return err_set_nomem(b->e);
    s->up = b->scope;
    b->scope = s;
    return 0;
}

/* Number in the family of "%r12" -> "%r". */
static sym *find_reg(build *b, word w, int *number) {
    sym *y = ptx_find_in(b->scope, w);
    *number = 0;
    if (y && y->kind == SYM_REG) return y;
    word stem = w;
    while (stem.n > 1 && stem.at[stem.n - 1] >= '0' && stem.at[stem.n - 1] <= '9') stem.n--;
    if (stem.n == w.n) return NULL;
    y = ptx_find_in(b->scope, stem);
    *number = atoi(stem.at + stem.n);
    return y && y->kind == SYM_FAMILY && *number < y->count ? y : NULL;
}

static uint32_t *count_of(build *b, slot_kind kind) {
    return kind == SLOT_PRED ? &b->k->n_pred : kind == SLOT_32 ? &b->k->n32 : &b->k->n64;
}

/* ".reg .b32 %r<12>;" or ".reg .pred p, q;" */
int ptx_read_regs(build *b) {
    reader         *r = &b->r;
    const slot_kind kind = type_kind(r->now.at, r->now.n);
    const int       bytes = type_bytes(r->now.at, r->now.n);
    if (kind == SLOT_NONE) return ptx_fail(b, "registers of type", r->now);
    reader_next(r);
    do {
        const word name = r->now;
        uint64_t   count = 1;
        reader_next(r);
        const bool family = reader_take(r, "<");
        if (family) {
            number_bits(r->now, &count);
            reader_next(r);
            reader_next(r); /* > */
        }
        sym *y = ptx_add_name(b, name, family ? SYM_FAMILY : SYM_REG);
        if (!y) return err_set_nomem(b->e);
        y->reg = (operand){ .at = *count_of(b, kind), .kind = kind };
        y->count = (int)count;
        y->bytes = bytes;
        *count_of(b, kind) += (uint32_t)count;
    } while (reader_take(r, ","));
    return 0;
}

/* ---- constants ---- */

static int constant(build *b, slot_kind kind, uint64_t bits, operand *out) {
    gpu_kernel *k = b->k;
    uint32_t   *n = &b->c_n[kind], *cap = &b->c_cap[kind];
    for (uint32_t i = *n > 512 ? *n - 512 : 0; i < *n; i++) {
        const uint64_t have = kind == SLOT_PRED ? k->c_pred[i] : kind == SLOT_32 ? k->c32[i][0] : k->c64[i][0];
        if (have == bits) {
            *out = (operand){ .at = i, .kind = kind, .constant = true };
            return 0;
        }
    }
    if (*n == *cap) {
        const size_t each = kind == SLOT_PRED ? sizeof *k->c_pred : kind == SLOT_32 ? sizeof *k->c32 : sizeof *k->c64;
        void **at = kind == SLOT_PRED ? (void **)&k->c_pred : kind == SLOT_32 ? (void **)&k->c32 : (void **)&k->c64;
        *cap = *cap ? *cap * 2 : 64;
        void *more = realloc(*at, *cap * each);
        if (!more) return err_set_nomem(b->e);
        *at = more;
    }
    for (int l = 0; l < LANES; l++) {
        if (kind == SLOT_PRED)
            k->c_pred[*n] = (uint32_t)bits;
        else if (kind == SLOT_32)
            k->c32[*n][l] = (uint32_t)bits;
        else
            k->c64[*n][l] = bits;
    }
    *out = (operand){ .at = (*n)++, .kind = kind, .constant = true };
    return 0;
}

/* ---- variables ---- */

size_t ptx_round_up(size_t v, size_t to) { return (v + to - 1) / to * to; }

int ptx_declare(build *b, sym_kind kind) {
    declared d;
    int      rc = reader_declared(&b->r, &d, b->e);
    if (rc != 0) return rc;
    size_t *room = kind == SYM_SHARED ? &b->k->static_smem : &b->k->local_bytes;
    *room = ptx_round_up(*room, d.align);
    sym *y = ptx_add_name(b, d.name, kind);
    if (!y) return err_set_nomem(b->e);
    y->at = *room + (kind == SYM_SHARED ? SMEM_BASE : 0);
    *room += d.element * d.count;
    return 0;
}

/* The address of a symbol as a constant of that kind. */
int ptx_address_of(build *b, word name, slot_kind kind, int64_t offset, operand *out, uint8_t *space) {
    const sym *y = ptx_find_in(b->scope, name);
    if (y && (y->kind == SYM_LOCAL || y->kind == SYM_SHARED)) {
        *space = y->kind == SYM_LOCAL ? SPACE_LOCAL : SPACE_SHARED;
        return constant(b, kind, y->at + (uint64_t)offset, out);
    }
    if (y && y->kind == SYM_PARAM) {
        *space = SPACE_PARAM;
        return constant(b, kind, y->at + (uint64_t)offset, out);
    }
    const module_shared *s = module_shared_find(b->m, name.at, name.n);
    if (s && s->bytes) {
        scope *here = b->scope;
        while (b->scope->up) b->scope = b->scope->up; /* one place for the whole kernel */
        b->k->static_smem = ptx_round_up(b->k->static_smem, s->align);
        sym *own = ptx_add_name(b, name, SYM_SHARED);
        b->scope = here;
        if (!own) return err_set_nomem(b->e);
        own->at = b->k->static_smem + SMEM_BASE;
        b->k->static_smem += s->bytes;
        *space = SPACE_SHARED;
        return constant(b, kind, own->at + (uint64_t)offset, out);
    }
    if (s) { /* its place is known when all others have theirs */
        *space = SPACE_SHARED;
        if (s->align > b->dynamic_align) b->dynamic_align = s->align;
        /* No number that any other constant has. */
        int rc =
            constant(b, kind, (kind == SLOT_64 ? 0xdadadada00000000u : 0u) | (0xd0000000u + (uint32_t)offset), out);
        if (rc != 0) return rc;
        for (int i = 0; i < b->n_dynamic; i++) {
            if (b->dynamic[i] == (int)(out->at * 2 + (kind == SLOT_64))) return 0;
        }
        int *more = realloc(b->dynamic, (size_t)(b->n_dynamic + 1) * sizeof *more);
        if (!more) return err_set_nomem(b->e);
        b->dynamic = more;
        b->dynamic[b->n_dynamic++] = (int)(out->at * 2 + (kind == SLOT_64));
        return 0;
    }
    const module_var *v = module_var_find(b->m, name.at, name.n);
    if (!v) return ptx_fail(b, "an unknown name", name);
    *space = SPACE_GLOBAL;
    return constant(b, kind, (uint64_t)(uintptr_t)v->at + (uint64_t)offset, out);
}

void ptx_place_dynamic(build *b) {
    gpu_kernel *k = b->k;
    k->static_smem = ptx_round_up(k->static_smem, b->dynamic_align ? b->dynamic_align : 16);
    for (int i = 0; i < b->n_dynamic; i++) {
        const int at = b->dynamic[i] / 2;
        for (int l = 0; l < LANES; l++) {
            const uint32_t offset = (b->dynamic[i] & 1 ? (uint32_t)k->c64[at][l] : k->c32[at][l]) - 0xd0000000u;
            if (b->dynamic[i] & 1)
                k->c64[at][l] = SMEM_BASE + k->static_smem + offset;
            else
                k->c32[at][l] = (uint32_t)(SMEM_BASE + k->static_smem) + offset;
        }
    }
}

/* ---- arguments ---- */

static int read_number(build *b, uint64_t *out) {
    const bool minus = reader_take(&b->r, "-");
    if (b->r.now.kind != '0') return ptx_fail(b, "a number was expected", b->r.now);
    number_bits(b->r.now, out);
    if (minus) *out = -*out;
    reader_next(&b->r);
    return 0;
}

static int read_list(build *b, arg *a) {
    operand items[256];
    int     n = 0;
    a->kind = 'l';
    do {
        arg one = { 0 };
        int rc = ptx_read_arg(b, &one);
        if (rc != 0) return rc;
        if (n == 256) return ptx_fail(b, "a long list", b->r.now);
        if (one.kind == 'i') {
            rc = constant(b, SLOT_32, one.bits & 0xffffffffu, &one.reg);
            if (rc != 0) return rc;
        } else if (one.kind == '_') {
            one.reg = (operand){ .kind = SLOT_NONE };
        } else if (one.kind != 'r') {
            return ptx_fail(b, "a register was expected", b->r.now);
        }
        if (one.bytes) a->item_bytes = one.bytes;
        items[n++] = one.reg;
    } while (reader_take(&b->r, ","));
    if (!reader_take(&b->r, "}")) return ptx_fail(b, "'}' was expected", b->r.now);
    a->items = arena_alloc(&b->k->mem, (size_t)n * sizeof *items);
    if (!a->items) return err_set_nomem(b->e);
    memcpy(a->items, items, (size_t)n * sizeof *items);
    a->n_items = n;
    return 0;
}

static int read_address(build *b, arg *a) {
    reader *r = &b->r;
    a->kind = 'a';
    if (r->now.kind == 'w') {
        int  number;
        sym *y = find_reg(b, r->now, &number);
        a->name = r->now;
        if (y) {
            a->reg = y->reg;
            a->reg.at += (uint32_t)number;
            a->name.n = 0;
        }
        reader_next(r);
    } else {
        uint64_t v;
        int      rc = read_number(b, &v);
        if (rc == 0) rc = constant(b, SLOT_64, v, &a->reg);
        if (rc != 0) return rc;
    }
    if (reader_take(r, "+") || word_is(r->now, "-")) {
        uint64_t v;
        int      rc = read_number(b, &v);
        if (rc != 0) return rc;
        a->offset = (int64_t)v;
    }
    return reader_take(r, "]") ? 0 : ptx_fail(b, "']' was expected", r->now);
}

int ptx_read_arg(build *b, arg *a) {
    reader *r = &b->r;
    *a = (arg){ 0 };
    if (reader_take(r, "{")) return read_list(b, a);
    if (reader_take(r, "[")) return read_address(b, a);
    if (r->now.kind == '0' || r->now.kind == '-') {
        a->kind = 'i';
        return read_number(b, &a->bits);
    }
    const bool negated = reader_take(r, "!");
    if (r->now.kind != 'w') return ptx_fail(b, "an operand was expected", r->now);
    if (reader_take(r, "_")) {
        a->kind = '_';
        return 0;
    }
    int  number;
    sym *y = find_reg(b, r->now, &number);
    a->name = r->now;
    reader_next(r);
    if (!y) {
        a->kind = a->name.at[0] == '%' ? 'x' : 's';
    } else {
        a->kind = 'r';
        a->reg = y->reg;
        a->reg.at += (uint32_t)number;
        a->reg.negated = negated;
        a->bytes = y->bytes;
    }
    if (reader_take(r, "|")) {
        arg second;
        int rc = ptx_read_arg(b, &second);
        if (rc != 0) return rc;
        a->has_second = second.kind == 'r';
        a->second = second.reg;
    }
    return 0;
}

/* The argument as an operand of that kind. */
int ptx_operand_of(build *b, const arg *a, slot_kind kind, bool half, operand *out) {
    uint8_t space;
    switch (a->kind) {
    case 'r':
        *out = a->reg;
        if (a->reg.kind != kind) return ptx_fail(b, "a register of another size", a->name);
        return 0;
    case 'i':
        return constant(b, kind,
                        kind == SLOT_PRED ? (a->bits ? ALL_LANES : 0)
                        : half            ? a->bits & 0xffff
                        : kind == SLOT_32 ? a->bits & 0xffffffffu
                                          : a->bits,
                        out);
    case 's': return ptx_address_of(b, a->name, kind, 0, out, &space);
    case '_': *out = (operand){ .kind = SLOT_NONE }; return 0;
    default: return ptx_fail(b, "an operand of this kind", b->r.now);
    }
}

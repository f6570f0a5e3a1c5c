/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and stores of all lanes at once. Nearly always all addresses of an instruction lie in one region and are
 * aligned, which a few operations on vectors say; then nothing is left to be checked, and lanes that read side by side
 * or the same place are served by one copy. In all other cases memory.c goes from lane to lane, and faults.
 *
 * Lanes that store to the same place do it in their order: what is aligned to its size overlaps as a whole or not at
 * all, so element after element of vectors gives the same.
 */
#include "gpu/access.h"
#include "gpu/lanes.h"

/* Where lanes reach: lane k at base + at[k]; idle ones where one of the others does. */
typedef struct reach {
    uint8_t *base;
    bool     same, row; /* all at one place; one behind the other from lane 0 on */
    u64      at[LANES];
} reach;

/* at[k] = address + offset, and whether all are at most `room` and multiples of `size`. */
#define WITHIN(address)                                                                                                \
    LANE_LOOP {                                                                                                        \
        const u64 x = (address);                                                                                       \
        r->at[k] = x;                                                                                                  \
        beyond |= x > room ? 1 : 0;                                                                                    \
        odd |= x;                                                                                                      \
        apart |= x ^ first;                                                                                            \
        out_of_row |= x ^ (first + (u64)k * size);                                                                     \
    }
LANE_CLONES static bool within(reach *r, const u64 *wide, const u32 *words, u64 offset, u64 room, u64 size,
                               uint32_t m) {
    const u64 first = (wide ? wide[__builtin_ctz(m)] : words[__builtin_ctz(m)]) + offset;
    u64       beyond = 0, odd = 0, apart = 0, out_of_row = 0;
    if (m == ALL_LANES && wide) {
        WITHIN(wide[k] + offset)
    } else if (m == ALL_LANES) {
        WITHIN(words[k] + offset)
    } else if (wide) {
        WITHIN(m >> k & 1 ? wide[k] + offset : first)
    } else {
        WITHIN(m >> k & 1 ? words[k] + offset : first)
    }
    r->same = !apart;
    r->row = !out_of_row;
    return !beyond && !(odd & (size - 1));
}

/* Looks at the instruction's addresses, each `size` bytes. */
static bool reach_of(reach *r, warp *w, const insn *i, u64 size, uint32_t m) {
    warp_state   *s = state_of(w);
    const operand o = i->o[1];
    const u64    *wide = o.kind == SLOT_64 ? lanes64(w, o) : NULL;
    const u32    *words = wide ? NULL : lanes32(w, o);
    const u64     first = (wide ? wide[__builtin_ctz(m)] : words[__builtin_ctz(m)]) + (u64)i->offset;
    const u64     tag = i->space == SPACE_GENERIC ? first & TAG_MASK : 0;
    u64           from, bytes;
    size_t        step = 0;
    int           space = i->space;
    if (space == SPACE_GENERIC)
        space = tag == TAG_SHARED ? SPACE_SHARED : tag == TAG_LOCAL ? SPACE_LOCAL : SPACE_GLOBAL;
    switch (space) {
    case SPACE_GLOBAL: {
        const known_region *k = memory_region(s, i, first, size);
        if (!k) return false;
        from = k->from;
        bytes = k->to - k->from;
        r->base = (uint8_t *)k->from;
        break;
    }
    case SPACE_SHARED:
    case SPACE_CLUSTER:
        from = tag + SMEM_BASE;
        bytes = s->block->smem_bytes - SMEM_BASE;
        r->base = s->block->smem + SMEM_BASE;
        break;
    case SPACE_LOCAL:
        from = tag;
        bytes = s->block->cluster->grid->launch->kernel->local_bytes;
        step = memory_local_step(s);
        r->base = s->local;
        break;
    default: {
        const gpu_launch *l = s->block->cluster->grid->launch;
        from = 0;
        bytes = l->kernel->shape.params_bytes;
        r->base = (uint8_t *)(uintptr_t)l->params;
    }
    }
    /* Regions begin at multiples of 16 and more, or the addresses that are looked at would not be aligned. */
    if (bytes < size || (space == SPACE_GLOBAL && from & (size - 1))) return false;
    if (o.constant && !step) {
        const u64 at = first - from;
        if (at > bytes - size || at & (size - 1)) return false;
        r->at[0] = at; /* where all are at the same place nobody looks at the others */
        r->same = true;
        r->row = false;
        return true;
    }
    if (!within(r, wide, words, (u64)i->offset - from, bytes - size, size, m)) return false;
    if (step) {
        for (int k = 0; k < LANES; k++) r->at[k] += (u64)k * step;
        r->same = r->row = false;
        if (m != ALL_LANES) { /* idle lanes stay where one of the others is */
            const int one = __builtin_ctz(m);
            for (int k = 0; k < LANES; k++) r->at[k] = m >> k & 1 ? r->at[k] : r->at[one];
        }
    }
    return true;
}

/* ---- loads ---- */

/*
 * Elements of type T, `each` of them per lane, of which the one at `which` becomes D by an expression in x. `each` is a
 * number that the compiler sees.
 */
#define TAKE_EACH(T, D, each, expr)                                                                                    \
    if (r->same) {                                                                                                     \
        T x;                                                                                                           \
        memcpy(&x, r->base + r->at[0] + which * sizeof(T), sizeof x);                                                  \
        const D v = (D)(expr);                                                                                         \
        LANE_LOOP { d[k] = m >> k & 1 ? v : d[k]; }                                                                    \
        return;                                                                                                        \
    }                                                                                                                  \
    T got[LANES];                                                                                                      \
    if (r->row) {                                                                                                      \
        const T *p = (const T *)(const void *)(r->base + r->at[0]) + which;                                            \
        LANE_LOOP { got[k] = p[k * (each)]; }                                                                          \
    } else {                                                                                                           \
        for (int k = 0; k < LANES; k++) memcpy(&got[k], r->base + r->at[k] + which * sizeof(T), sizeof(T));            \
    }                                                                                                                  \
    if (m == ALL_LANES) {                                                                                              \
        LANE_LOOP {                                                                                                    \
            const T x = got[k];                                                                                        \
            d[k] = (D)(expr);                                                                                          \
        }                                                                                                              \
    } else {                                                                                                           \
        LANE_LOOP {                                                                                                    \
            const T x = got[k];                                                                                        \
            d[k] = m >> k & 1 ? (D)(expr) : d[k];                                                                      \
        }                                                                                                              \
    }

#define TAKE(fn, T, D, each, expr)                                                                                     \
    LANE_FN fn(D *d, const reach *r, size_t which, uint32_t m) { TAKE_EACH(T, D, each, expr) }

typedef uint8_t  b8 __attribute__((may_alias));
typedef uint16_t b16 __attribute__((may_alias));
typedef u32      b32 __attribute__((may_alias));
typedef u64      b64 __attribute__((may_alias));

TAKE(take_u8, b8, u32, 1, x)
TAKE(take_s8, b8, u32, 1, (u32)(int8_t)x)
TAKE(take_s8_in_16, b8, u32, 1, (uint16_t)(int8_t)x)
TAKE(take_u16, b16, u32, 1, x)
TAKE(take_s16, b16, u32, 1, (u32)(int16_t)x)
TAKE(take_u32, b32, u32, 1, x)
TAKE(take_u64, b64, u64, 1, x)
TAKE(take_2_u32, b32, u32, 2, x)
TAKE(take_4_u32, b32, u32, 4, x)
TAKE(take_2_u64, b64, u64, 2, x)

/* Vectors of small elements, which are rare. */
#define TAKE_ANY(fn, T)                                                                                                \
    static void fn(u32 *d, const reach *r, size_t which, uint32_t m) {                                                 \
        for (int k = 0; k < LANES; k++) {                                                                              \
            T x;                                                                                                       \
            memcpy(&x, r->base + r->at[r->same ? 0 : k] + which * sizeof(T), sizeof x);                                \
            d[k] = m >> k & 1 ? x : d[k];                                                                              \
        }                                                                                                              \
    }
TAKE_ANY(take_any_u8, uint8_t)
TAKE_ANY(take_any_u16, uint16_t)

typedef void (*take32)(u32 *d, const reach *r, size_t which, uint32_t m);

static take32 take_one(const insn *i) {
    switch (i->bytes) {
    case 1: return i->mode == EXTEND_ZERO ? take_u8 : i->mode == EXTEND_16 ? take_s8_in_16 : take_s8;
    case 2: return i->mode == EXTEND_32 ? take_s16 : take_u16;
    default: return take_u32;
    }
}

bool access_load(warp *w, const insn *i, uint32_t m) {
    const int n = i->listed[0], bytes = i->bytes;
    reach     r;
    if (!i->alike || (n > 1 && i->mode != EXTEND_ZERO && bytes < 4)) return false;
    if (!reach_of(&r, w, i, (u64)(n * bytes), m)) return false;
    if (bytes == 8) {
        for (int k = 0; k < n; k++) (n == 1 ? take_u64 : take_2_u64)(lanes64(w, i->list[0][k]), &r, (size_t)k, m);
        return true;
    }
    const take32 take = n == 1       ? take_one(i)
                        : bytes == 1 ? take_any_u8
                        : bytes == 2 ? take_any_u16
                        : n == 2     ? take_2_u32
                                     : take_4_u32;
    for (int k = 0; k < n; k++) take(lanes32(w, i->list[0][k]), &r, (size_t)k, m);
    return true;
}

/* ---- stores ---- */

#define GIVE(fn, T, S, each)                                                                                           \
    LANE_FN fn(const S *d, const reach *r, size_t which, uint32_t m) {                                                 \
        if (r->row && m == ALL_LANES) {                                                                                \
            T *p = (T *)(void *)(r->base + r->at[0]) + which;                                                          \
            LANE_LOOP { p[k * (each)] = (T)d[k]; }                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        if (r->same) { /* the last one stays */                                                                        \
            const T x = (T)d[31 - __builtin_clz(m)];                                                                   \
            memcpy(r->base + r->at[0] + which * sizeof x, &x, sizeof x);                                               \
            return;                                                                                                    \
        }                                                                                                              \
        EACH_LANE(m, k) {                                                                                              \
            const T x = (T)d[k];                                                                                       \
            memcpy(r->base + r->at[k] + which * sizeof x, &x, sizeof x);                                               \
        }                                                                                                              \
    }
GIVE(give_u8, b8, u32, 1)
GIVE(give_u16, b16, u32, 1)
GIVE(give_u32, b32, u32, 1)
GIVE(give_u64, b64, u64, 1)
GIVE(give_2_u32, b32, u32, 2)
GIVE(give_4_u32, b32, u32, 4)
GIVE(give_2_u64, b64, u64, 2)
GIVE(give_2_u16, b16, u32, 2)
GIVE(give_4_u16, b16, u32, 4)
GIVE(give_2_u8, b8, u32, 2)
GIVE(give_4_u8, b8, u32, 4)

typedef void (*give32)(const u32 *d, const reach *r, size_t which, uint32_t m);

bool access_store(warp *w, const insn *i, uint32_t m) {
    static const give32 gives[3][3] = { { give_u8, give_2_u8, give_4_u8 },
                                        { give_u16, give_2_u16, give_4_u16 },
                                        { give_u32, give_2_u32, give_4_u32 } };
    const int           n = i->listed[0], bytes = i->bytes;
    reach               r;
    if (!i->alike || i->space == SPACE_PARAM || !reach_of(&r, w, i, (u64)(n * bytes), m)) return false;
    if (bytes == 8) {
        for (int k = 0; k < n; k++) (n == 1 ? give_u64 : give_2_u64)(lanes64(w, i->list[0][k]), &r, (size_t)k, m);
        return true;
    }
    const give32 give = gives[bytes >> 1][n >> 1];
    for (int k = 0; k < n; k++) give(lanes32(w, i->list[0][k]), &r, (size_t)k, m);
    return true;
}

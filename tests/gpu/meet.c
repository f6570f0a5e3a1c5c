/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of a warp exchange values. What a lane that is not there would have given is rubbish, as on a device. */
#include "gpu/lanes.h"
#include "gpu/run.h"

enum { RUBBISH = 0x7fc0dead };

/* mode of shfl: which lane is asked, and whether there is such a lane. */
#define SHUFFLED(fn, asked, there)                                                                                     \
    LANE_CLONES static u32 fn(u32 *to, const u32 *from, const u32 *by, const u32 *how, uint32_t m) {                   \
        u32 yes = 0, at[LANES];                                                                                        \
        LANE_LOOP {                                                                                                    \
            const s32 b = by[k] & 31, clamp = how[k] & 31, segment = how[k] >> 8 & 31;                                 \
            const s32 most = (k & segment) | (clamp & ~segment), least = k & segment, j = (asked);                     \
            (void)least;                                                                                               \
            at[k] = (there) ? (u32)j : (u32)k;                                                                         \
            yes |= (there) ? 1u << k : 0;                                                                              \
        }                                                                                                              \
        for (int k = 0; k < LANES; k++) {                                                                              \
            const u32 v = m >> at[k] & 1 ? from[at[k]] : RUBBISH;                                                      \
            to[k] = m >> k & 1 ? v : to[k];                                                                            \
        }                                                                                                              \
        return yes;                                                                                                    \
    }
SHUFFLED(shfl_idx, least | (b & ~segment), j <= most)
SHUFFLED(shfl_up, k - b, j >= most)
SHUFFLED(shfl_down, k + b, j <= most)
SHUFFLED(shfl_bfly, k ^ b, j <= most)

void do_shfl(warp *w, const insn *i, uint32_t m) {
    u32        from[LANES];
    u32       *to = lanes32(w, i->o[0]);
    const u32 *by = lanes32(w, i->o[2]), *how = lanes32(w, i->o[3]);
    memcpy(from, lanes32(w, i->o[1]), sizeof from);
    const u32 yes = i->mode == 0   ? shfl_idx(to, from, by, how, m)
                    : i->mode == 1 ? shfl_up(to, from, by, how, m)
                    : i->mode == 2 ? shfl_down(to, from, by, how, m)
                                   : shfl_bfly(to, from, by, how, m);
    if (i->listed[0]) set_pred(w, i->list[0][0], m, yes);
}

void do_vote(warp *w, const insn *i, uint32_t m) {
    const u32  yes = lanes_pred(w, i->o[1]) & m;
    const u32 *named = lanes32(w, i->o[2]);
    u32        said = 0;
    EACH_LANE(m, l) {
        const u32 of = named[l] & m;
        if (i->mode == 0)
            lanes32(w, i->o[0])[l] = yes & of;
        else
            said |= (u32)(i->mode == 1 ? (yes & of) == of : (yes & of) != 0) << l;
    }
    if (i->mode) set_pred(w, i->o[0], m, said);
}

static u32 reduced(const u32 *from, uint32_t of, int mode) {
    u32 v = from[__builtin_ctz(of)];
    EACH_LANE(of & (of - 1), k) {
        const u32  x = from[k];
        const bool less = mode & ATOM_SIGNED ? (s32)x < (s32)v : x < v;
        switch (mode & 31) {
        case ATOM_ADD: v += x; break;
        case ATOM_MIN: v = less ? x : v; break;
        case ATOM_MAX: v = less ? v : x; break;
        case ATOM_AND: v &= x; break;
        case ATOM_OR: v |= x; break;
        default: v ^= x; break;
        }
    }
    return v;
}

/* Lanes nearly always name the same lanes as the one in front of them. */
void do_redux(warp *w, const insn *i, uint32_t m) {
    u32        from[LANES], of = 0, v = 0;
    u32       *to = lanes32(w, i->o[0]);
    const u32 *named = lanes32(w, i->o[2]);
    memcpy(from, lanes32(w, i->o[1]), sizeof from);
    EACH_LANE(m, l) {
        const u32 here = named[l] & m;
        if (here != of) v = reduced(from, here, i->mode);
        of = here;
        to[l] = v;
    }
}

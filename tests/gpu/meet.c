/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of a warp exchange values. What a lane that is not there would have given is rubbish, as on a device. */
#include "gpu/run.h"

#include <string.h>

enum { RUBBISH = 0x7fc0dead };

void do_shfl(warp *w, const insn *i, uint32_t m) {
    uint32_t  from[LANES], yes = 0;
    uint32_t *to = lanes32(w, i->o[0]);
    memcpy(from, lanes32(w, i->o[1]), sizeof from);
    EACH_LANE(m, l) {
        const uint32_t b = lanes32(w, i->o[2])[l] & 31, c = lanes32(w, i->o[3])[l];
        const uint32_t clamp = c & 31, segment = c >> 8 & 31, lane = (uint32_t)l;
        const uint32_t most = (lane & segment) | (clamp & ~segment), least = lane & segment;
        int32_t        j;
        bool           p;
        switch (i->mode) {
        case 0: j = (int32_t)(least | (b & ~segment)), p = j <= (int32_t)most; break;
        case 1: j = (int32_t)lane - (int32_t)b, p = j >= (int32_t)most; break;
        case 2: j = (int32_t)(lane + b), p = j <= (int32_t)most; break;
        default: j = (int32_t)(lane ^ b), p = j <= (int32_t)most; break;
        }
        if (!p) j = l;
        to[l] = m >> j & 1 ? from[j] : RUBBISH;
        yes |= (uint32_t)p << l;
    }
    if (i->listed[0]) set_pred(w, i->list[0][0], m, yes);
}

void do_vote(warp *w, const insn *i, uint32_t m) {
    const uint32_t yes = lanes_pred(w, i->o[1]) & m;
    EACH_LANE(m, l) {
        const uint32_t of = lanes32(w, i->o[2])[l] & m;
        if (i->mode == 0)
            lanes32(w, i->o[0])[l] = yes & of;
        else
            set_pred(w, i->o[0], 1u << l, (i->mode == 1 ? (yes & of) == of : (yes & of) != 0) ? ALL_LANES : 0);
    }
}

void do_redux(warp *w, const insn *i, uint32_t m) {
    uint32_t  from[LANES];
    uint32_t *to = lanes32(w, i->o[0]);
    memcpy(from, lanes32(w, i->o[1]), sizeof from);
    EACH_LANE(m, l) {
        const uint32_t of = lanes32(w, i->o[2])[l] & m;
        uint32_t       v = from[__builtin_ctz(of)];
        EACH_LANE(of & (of - 1), k) {
            const uint32_t x = from[k];
            const bool     less = i->mode & ATOM_SIGNED ? (int32_t)x < (int32_t)v : x < v;
            switch (i->mode & 31) {
            case ATOM_ADD: v += x; break;
            case ATOM_MIN: v = less ? x : v; break;
            case ATOM_MAX: v = less ? v : x; break;
            case ATOM_AND: v &= x; break;
            case ATOM_OR: v |= x; break;
            default: v ^= x; break;
            }
        }
        to[l] = v;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Values that only change places: packing, special registers, kinds of addresses. */
#include "gpu/access.h"
#include "gpu/lanes.h"

#include "base/clock.h"

/* ---- addresses ---- */

LANE_FN tagged(u64 *to, const u64 *from, u64 keep, u64 tag, u64 base, uint32_t m) {
    LANE_LOOP { to[k] = m >> k & 1 ? ((from[k] & keep) | tag) + base : to[k]; }
}

void do_cvta(warp *w, const insn *i, uint32_t m) {
    const u64 tag = i->space == SPACE_LOCAL                               ? TAG_LOCAL
                    : i->space == SPACE_GLOBAL || i->space == SPACE_PARAM ? 0
                                                                          : TAG_SHARED;
    const u64 base =
        i->space == SPACE_PARAM && !i->mode ? (u64)(uintptr_t)state_of(w)->block->cluster->grid->launch->params : 0;
    if (i->mode)
        tagged(lanes64(w, i->o[0]), lanes64(w, i->o[1]), tag ? ~TAG_MASK : ~(u64)0, 0, 0, m);
    else
        tagged(lanes64(w, i->o[0]), lanes64(w, i->o[1]), ~(u64)0, tag, base, m);
}

void do_mapa(warp *w, const insn *i, uint32_t m) {
    const u32 *from = lanes32(w, i->o[1]), *rank = lanes32(w, i->o[2]);
    u32       *to = lanes32(w, i->o[0]);
    EACH_LANE(m, l) to[l] = (from[l] & ((1u << RANK_SHIFT) - 1)) | (rank[l] + 1) << RANK_SHIFT;
}

/* ---- packing ---- */

LANE_FN pack_pair_64(u64 *d, const u32 *a, const u32 *b, uint32_t m) {
    LANE_LOOP { d[k] = m >> k & 1 ? a[k] | (u64)b[k] << 32 : d[k]; }
}
LANE_FN pack_pair_32(u32 *d, const u32 *a, const u32 *b, uint32_t m) {
    LANE_LOOP { d[k] = m >> k & 1 ? a[k] | b[k] << 16 : d[k]; }
}

static u64 value_of(const warp *w, operand o, int lane) {
    return o.kind == SLOT_64 ? lanes64(w, o)[lane] : o.kind == SLOT_32 ? lanes32(w, o)[lane] : 0;
}

void do_pack(warp *w, const insn *i, uint32_t m) {
    const int      n = i->listed[0], bits = (i->o[0].kind == SLOT_64 ? 64 : 32) / n;
    const operand *from = i->list[0];
    if (n == 2 && from[0].kind == SLOT_32 && from[1].kind == SLOT_32) {
        if (i->o[0].kind == SLOT_64)
            pack_pair_64(lanes64(w, i->o[0]), lanes32(w, from[0]), lanes32(w, from[1]), m);
        else
            pack_pair_32(lanes32(w, i->o[0]), lanes32(w, from[0]), lanes32(w, from[1]), m);
        return;
    }
    EACH_LANE(m, l) {
        u64 v = 0;
        for (int k = 0; k < n; k++) v |= value_of(w, from[k], l) << (k * bits);
        if (i->o[0].kind == SLOT_64)
            lanes64(w, i->o[0])[l] = v;
        else
            lanes32(w, i->o[0])[l] = (u32)v;
    }
}

LANE_FN unpack_64(u32 *d, const u64 *a, int shift, u64 low, uint32_t m) {
    LANE_LOOP { d[k] = m >> k & 1 ? (u32)(a[k] >> shift & low) : d[k]; }
}
LANE_FN unpack_32(u32 *d, const u32 *a, int shift, u32 low, uint32_t m) {
    LANE_LOOP { d[k] = m >> k & 1 ? a[k] >> shift & low : d[k]; }
}

/* A register may be unpacked into itself: its old value is kept until all parts have been taken. */
void do_unpack(warp *w, const insn *i, uint32_t m) {
    const int n = i->listed[0], bits = (i->o[1].kind == SLOT_64 ? 64 : 32) / n;
    const u64 low = bits == 64 ? ~(u64)0 : ((u64)1 << bits) - 1;
    u64       wide[LANES];
    u32       words[LANES];
    if (i->o[1].kind == SLOT_64)
        memcpy(wide, lanes64(w, i->o[1]), sizeof wide);
    else
        memcpy(words, lanes32(w, i->o[1]), sizeof words);
    for (int k = 0; k < n; k++) {
        const operand to = i->list[0][k];
        if (to.kind == SLOT_32 && i->o[1].kind == SLOT_64) {
            unpack_64(lanes32(w, to), wide, k * bits, low, m);
        } else if (to.kind == SLOT_32) {
            unpack_32(lanes32(w, to), words, k * bits, (u32)low, m);
        } else if (to.kind == SLOT_64) {
            EACH_LANE(m, l) lanes64(w, to)[l] = (i->o[1].kind == SLOT_64 ? wide[l] : words[l]) >> (k * bits) & low;
        }
    }
}

/* ---- special registers ---- */

LANE_FN all_one_value(u32 *d, u32 v, uint32_t m) {
    LANE_LOOP { d[k] = m >> k & 1 ? v : d[k]; }
}
LANE_FN each_own_value(u32 *d, const u32 *v, uint32_t m) {
    LANE_LOOP { d[k] = m >> k & 1 ? v[k] : d[k]; }
}

/* What all lanes have in common; false: each has its own. */
static bool common(const warp_state *s, int which, u64 *v) {
    const gpu_block  *b = s->block;
    const gpu_launch *l = b->cluster->grid->launch;
    switch (which) {
    case SPECIAL_NTID:
    case SPECIAL_NTID + 1:
    case SPECIAL_NTID + 2: *v = l->block[which - SPECIAL_NTID]; break;
    case SPECIAL_CTAID:
    case SPECIAL_CTAID + 1:
    case SPECIAL_CTAID + 2: *v = b->id[which - SPECIAL_CTAID]; break;
    case SPECIAL_NCTAID:
    case SPECIAL_NCTAID + 1:
    case SPECIAL_NCTAID + 2: *v = l->grid[which - SPECIAL_NCTAID]; break;
    case SPECIAL_WARP: *v = (unsigned)s->index; break;
    case SPECIAL_NWARP: *v = (unsigned)b->n_warps; break;
    case SPECIAL_RANK: *v = b->rank; break;
    case SPECIAL_CLUSTER: *v = (unsigned)b->cluster->n; break;
    case SPECIAL_CLUSTER_ID: *v = b->id[0] / (unsigned)b->cluster->n; break;
    case SPECIAL_CLOCK: *v = (u64)(clock_s() * 1e9); break;
    case SPECIAL_SM: *v = b->id[0] % (unsigned)b->cluster->grid->chip->sms; break;
    default: return false;
    }
    return true;
}

static u32 own(int which, int lane) {
    switch (which) {
    case SPECIAL_LT: return (1u << lane) - 1;
    case SPECIAL_LE: return (2u << lane) - 1;
    case SPECIAL_GT: return ~((2u << lane) - 1);
    case SPECIAL_GE: return ~((1u << lane) - 1);
    case SPECIAL_EQ: return 1u << lane;
    default: return (u32)lane; /* SPECIAL_LANE */
    }
}

void do_special(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    const int   which = i->mode;
    u32         values[LANES];
    u64         v = 0;
    const bool  one = common(s, which, &v), tid = which >= SPECIAL_TID && which < SPECIAL_TID + 3;
    if (which == SPECIAL_CLOCK) note_change(s);
    if (one && i->o[0].kind == SLOT_32) {
        all_one_value(lanes32(w, i->o[0]), (u32)v, m);
        return;
    }
    for (int l = 0; l < LANES && !one; l++) values[l] = tid ? s->tid[which - SPECIAL_TID][l] : own(which, l);
    if (i->o[0].kind == SLOT_32) {
        each_own_value(lanes32(w, i->o[0]), values, m);
        return;
    }
    EACH_LANE(m, l) lanes64(w, i->o[0])[l] = one ? v : values[l];
}

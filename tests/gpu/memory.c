/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses. Memory of the device is memory of this process, and an address of it is a pointer; a table says which of
 * it there is. An address of shared memory is an offset in the block's own, or one with the block's rank in the cluster
 * and 1 in its upper byte. In a generic address the upper byte says which of the two it is, or that it is a lane's own
 * memory.
 */
#include "gpu/run.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct region {
    uintptr_t from, to;
} region;

static struct {
    pthread_mutex_t  lock; /* guards regions, n, cap */
    region          *regions;
    size_t           n, cap;
    _Atomic uint64_t version;
} memory = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The first region that ends behind `at`. */
static size_t region_at(uintptr_t at) {
    size_t from = 0, to = memory.n;
    while (from < to) {
        const size_t mid = (from + to) / 2;
        if (memory.regions[mid].to <= at)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

void gpu_memory_add(void *at, size_t bytes) {
    if (!bytes) bytes = 1;
    pthread_mutex_lock(&memory.lock);
    if (memory.n == memory.cap) {
        const size_t cap = memory.cap ? memory.cap * 2 : 256;
        region      *more = realloc(memory.regions, cap * sizeof *more);
        if (!more) abort(); /* a test without memory for a table of addresses */
        memory.regions = more;
        memory.cap = cap;
    }
    const size_t p = region_at((uintptr_t)at);
    memmove(memory.regions + p + 1, memory.regions + p, (memory.n - p) * sizeof *memory.regions);
    memory.regions[p] = (region){ (uintptr_t)at, (uintptr_t)at + bytes };
    memory.n++;
    memory.version++;
    pthread_mutex_unlock(&memory.lock);
}

void gpu_memory_remove(void *at) {
    pthread_mutex_lock(&memory.lock);
    const size_t p = region_at((uintptr_t)at);
    if (p < memory.n && memory.regions[p].from == (uintptr_t)at) {
        memmove(memory.regions + p, memory.regions + p + 1, (memory.n - p - 1) * sizeof *memory.regions);
        memory.n--;
        memory.version++;
    }
    pthread_mutex_unlock(&memory.lock);
}

/* Whether [at, at + bytes) lies in [from, to); an address may be the last there is. */
static bool lies_in(uint64_t at, size_t bytes, uint64_t from, uint64_t to) {
    return at >= from && at <= to && bytes <= to - at;
}

static bool look_up(warp_state *s, uintptr_t at, size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    const size_t p = region_at(at);
    const bool   found = p < memory.n && lies_in(at, bytes, memory.regions[p].from, memory.regions[p].to);
    if (found) {
        s->known_from = memory.regions[p].from;
        s->known_to = memory.regions[p].to;
        s->known_version = memory.version;
    }
    pthread_mutex_unlock(&memory.lock);
    return found;
}

uint8_t *memory_global(warp_state *s, const insn *i, uint64_t at, size_t bytes) {
    const bool known = lies_in(at, bytes, s->known_from, s->known_to) && s->known_version == memory.version;
    if (!known && !look_up(s, (uintptr_t)at, bytes)) {
        const gpu_launch *l = s->block->cluster->grid->launch;
        const uintptr_t   params = (uintptr_t)l->params;
        if (!lies_in(at, bytes, params, params + l->kernel->shape.params_bytes))
            gpu_fault(s, i, "%zu bytes at %#llx, where nothing is", bytes, (unsigned long long)at);
    }
    return (uint8_t *)(uintptr_t)at;
}

gpu_block *memory_block(warp_state *s, const insn *i, uint32_t at, uint32_t *offset) {
    const uint32_t rank = at >> RANK_SHIFT;
    gpu_cluster   *c = s->block->cluster;
    *offset = at & ((1u << RANK_SHIFT) - 1);
    if (rank == 0) return s->block;
    if (rank > (uint32_t)c->n) gpu_fault(s, i, "shared memory of block %u in a cluster of %d", rank - 1, c->n);
    return &c->blocks[rank - 1];
}

uint8_t *memory_shared(warp_state *s, const insn *i, uint32_t at, size_t bytes, bool cluster) {
    uint32_t   offset;
    gpu_block *b = memory_block(s, i, at, &offset);
    if (b != s->block && !cluster) gpu_fault(s, i, "another block's shared memory");
    if (offset < SMEM_BASE || offset + bytes > b->smem_bytes)
        gpu_fault(s, i, "%zu bytes at %d of %zu bytes of shared memory", bytes, (int)offset - SMEM_BASE,
                  b->smem_bytes - SMEM_BASE);
    if (b != s->block && !b->live) gpu_fault(s, i, "shared memory of a block that has ended");
    return b->smem + offset;
}

static uint8_t *memory_local(warp_state *s, const insn *i, uint64_t at, size_t bytes, int lane) {
    const size_t each = s->block->cluster->grid->launch->kernel->local_bytes;
    if (!lies_in(at, bytes, 0, each))
        gpu_fault(s, i, "%zu bytes at %lld of %zu of its own memory", bytes, (long long)at, each);
    return s->local + (size_t)lane * ((each + 63) & ~(size_t)63) + at;
}

static uint8_t *memory_at(warp_state *s, const insn *i, uint64_t at, size_t bytes, int lane) {
    if (at & (bytes - 1))
        gpu_fault(s, i, "%zu bytes at an address that is not a multiple of them (%#llx)", bytes,
                  (unsigned long long)at);
    switch (i->space) {
    case SPACE_GLOBAL: return memory_global(s, i, at, bytes);
    case SPACE_SHARED: return memory_shared(s, i, (uint32_t)at, bytes, false);
    case SPACE_CLUSTER: return memory_shared(s, i, (uint32_t)at, bytes, true);
    case SPACE_LOCAL: return memory_local(s, i, at, bytes, lane);
    case SPACE_PARAM: {
        const gpu_launch *l = s->block->cluster->grid->launch;
        if (!lies_in(at, bytes, 0, l->kernel->shape.params_bytes)) gpu_fault(s, i, "beyond the parameters");
        return (uint8_t *)(uintptr_t)l->params + at; /* only read */
    }
    default: break;
    }
    if ((at & TAG_MASK) == TAG_SHARED) return memory_shared(s, i, (uint32_t)at, bytes, true);
    if ((at & TAG_MASK) == TAG_LOCAL) return memory_local(s, i, at & ~TAG_MASK, bytes, lane);
    return memory_global(s, i, at, bytes);
}

static uint64_t widen(uint64_t v, int bytes, uint8_t mode) {
    if (mode == EXTEND_ZERO || bytes == 8) return v;
    const uint64_t wide = (uint64_t)((int64_t)(v << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    return mode == EXTEND_16 ? wide & 0xffff : wide;
}

/* The most frequent kind by itself: one word per lane. */
static void load_words(warp *w, const insn *i, uint32_t m) {
    uint32_t *to = lanes32(w, i->list[0][0]);
    EACH_LANE(m, l) memcpy(&to[l], memory_at(state_of(w), i, lane_address(w, i, i->o[1], l), 4, l), 4);
}

void do_load(warp *w, const insn *i, uint32_t m) {
    const int n = i->listed[0], bytes = i->bytes;
    if (n == 1 && bytes == 4 && i->list[0][0].kind == SLOT_32) {
        load_words(w, i, m);
        return;
    }
    EACH_LANE(m, l) {
        const uint8_t *from = memory_at(state_of(w), i, lane_address(w, i, i->o[1], l), (size_t)(bytes * n), l);
        for (int k = 0; k < n; k++, from += bytes) {
            const operand to = i->list[0][k];
            uint64_t      v = 0;
            memcpy(&v, from, (size_t)bytes);
            v = widen(v, bytes, i->mode);
            if (to.kind == SLOT_64)
                lanes64(w, to)[l] = v;
            else if (to.kind == SLOT_32)
                lanes32(w, to)[l] = (uint32_t)v;
        }
    }
}

void do_store(warp *w, const insn *i, uint32_t m) {
    const int n = i->listed[0], bytes = i->bytes;
    if (i->space == SPACE_PARAM) gpu_fault(state_of(w), i, "parameters are not written");
    EACH_LANE(m, l) {
        uint8_t *to = memory_at(state_of(w), i, lane_address(w, i, i->o[1], l), (size_t)(bytes * n), l);
        for (int k = 0; k < n; k++, to += bytes) {
            const operand from = i->list[0][k];
            if (from.kind == SLOT_64)
                memcpy(to, &lanes64(w, from)[l], (size_t)bytes);
            else
                memcpy(to, &lanes32(w, from)[l], (size_t)bytes);
        }
    }
}

static float as_float(uint64_t v) {
    const uint32_t u = (uint32_t)v;
    float          f;
    memcpy(&f, &u, 4);
    return f;
}

static uint64_t combine(warp_state *s, const insn *i, uint64_t old, uint64_t b, uint64_t c) {
    const bool is_signed = i->mode & ATOM_SIGNED;
    const int  shift = 64 - 8 * i->bytes;
    const bool less = is_signed ? (int64_t)(b << shift) < (int64_t)(old << shift) : b < old;
    if (i->mode & ATOM_FLOAT) {
        if ((i->mode & 31) != ATOM_ADD || i->bytes != 4) gpu_fault(s, i, "not known here");
        const float sum = as_float(old) + as_float(b);
        uint32_t    u;
        memcpy(&u, &sum, 4);
        return u;
    }
    switch (i->mode & 31) {
    case ATOM_ADD: return old + b;
    case ATOM_MIN: return less ? b : old;
    case ATOM_MAX: return less ? old : b;
    case ATOM_INC: return old >= b ? 0 : old + 1;
    case ATOM_DEC: return old == 0 || old > b ? b : old - 1;
    case ATOM_EXCH: return b;
    case ATOM_CAS: return old == b ? c : old;
    case ATOM_AND: return old & b;
    case ATOM_OR: return old | b;
    default: return old ^ b;
    }
}

static uint64_t value_of(const warp *w, operand o, int lane) {
    return o.kind == SLOT_64 ? lanes64(w, o)[lane] : o.kind == SLOT_32 ? lanes32(w, o)[lane] : 0;
}

void do_atom(warp *w, const insn *i, uint32_t m) {
    EACH_LANE(m, l) {
        uint8_t *at = memory_at(state_of(w), i, lane_address(w, i, i->o[1], l), i->bytes, l);
        uint64_t old = 0;
        memcpy(&old, at, i->bytes);
        const uint64_t now = combine(state_of(w), i, old, value_of(w, i->o[2], l), value_of(w, i->o[3], l));
        memcpy(at, &now, i->bytes);
        if (i->o[0].kind == SLOT_64)
            lanes64(w, i->o[0])[l] = old;
        else if (i->o[0].kind == SLOT_32)
            lanes32(w, i->o[0])[l] = (uint32_t)old;
    }
}

void do_cvta(warp *w, const insn *i, uint32_t m) {
    const uint64_t *from = lanes64(w, i->o[1]);
    uint64_t       *to = lanes64(w, i->o[0]);
    const uint64_t  tag = i->space == SPACE_LOCAL                               ? TAG_LOCAL
                          : i->space == SPACE_GLOBAL || i->space == SPACE_PARAM ? 0
                                                                                : TAG_SHARED;
    const uint64_t  base = i->space == SPACE_PARAM && !i->mode
                               ? (uint64_t)(uintptr_t)state_of(w)->block->cluster->grid->launch->params
                               : 0;
    EACH_LANE(m, l) to[l] = i->mode ? (tag ? from[l] & ~TAG_MASK : from[l]) : (from[l] | tag) + base;
}

void do_mapa(warp *w, const insn *i, uint32_t m) {
    const uint32_t *from = lanes32(w, i->o[1]), *rank = lanes32(w, i->o[2]);
    uint32_t       *to = lanes32(w, i->o[0]);
    EACH_LANE(m, l) to[l] = (from[l] & ((1u << RANK_SHIFT) - 1)) | (rank[l] + 1) << RANK_SHIFT;
}

void do_pack(warp *w, const insn *i, uint32_t m) {
    const int n = i->listed[0], bits = (i->o[0].kind == SLOT_64 ? 64 : 32) / n;
    EACH_LANE(m, l) {
        uint64_t v = 0;
        for (int k = 0; k < n; k++) v |= value_of(w, i->list[0][k], l) << (k * bits);
        if (i->o[0].kind == SLOT_64)
            lanes64(w, i->o[0])[l] = v;
        else
            lanes32(w, i->o[0])[l] = (uint32_t)v;
    }
}

void do_unpack(warp *w, const insn *i, uint32_t m) {
    const int      n = i->listed[0], bits = (i->o[1].kind == SLOT_64 ? 64 : 32) / n;
    const uint64_t low = bits == 64 ? ~0ull : (1ull << bits) - 1;
    EACH_LANE(m, l) {
        const uint64_t v = value_of(w, i->o[1], l);
        for (int k = 0; k < n; k++) {
            const operand to = i->list[0][k];
            if (to.kind == SLOT_64)
                lanes64(w, to)[l] = v >> (k * bits) & low;
            else if (to.kind == SLOT_32)
                lanes32(w, to)[l] = (uint32_t)(v >> (k * bits) & low);
        }
    }
}

void do_special(warp *w, const insn *i, uint32_t m) {
    const warp_state *s = state_of(w);
    const gpu_block  *b = s->block;
    const gpu_launch *l = b->cluster->grid->launch;
    EACH_LANE(m, lane) {
        const unsigned t = (unsigned)(s->index * LANES + lane);
        uint64_t       v = 0;
        switch (i->mode) {
        case SPECIAL_TID: v = t % l->block[0]; break;
        case SPECIAL_TID + 1: v = t / l->block[0] % l->block[1]; break;
        case SPECIAL_TID + 2: v = t / l->block[0] / l->block[1]; break;
        case SPECIAL_NTID:
        case SPECIAL_NTID + 1:
        case SPECIAL_NTID + 2: v = l->block[i->mode - SPECIAL_NTID]; break;
        case SPECIAL_CTAID:
        case SPECIAL_CTAID + 1:
        case SPECIAL_CTAID + 2: v = b->id[i->mode - SPECIAL_CTAID]; break;
        case SPECIAL_NCTAID:
        case SPECIAL_NCTAID + 1:
        case SPECIAL_NCTAID + 2: v = l->grid[i->mode - SPECIAL_NCTAID]; break;
        case SPECIAL_LANE: v = (unsigned)lane; break;
        case SPECIAL_WARP: v = (unsigned)s->index; break;
        case SPECIAL_NWARP: v = (unsigned)b->n_warps; break;
        case SPECIAL_RANK: v = b->rank; break;
        case SPECIAL_CLUSTER: v = (unsigned)b->cluster->n; break;
        case SPECIAL_CLUSTER_ID: v = b->id[0] / (unsigned)b->cluster->n; break;
        case SPECIAL_CLOCK: v = (uint64_t)(clock_s() * 1e9); break;
        case SPECIAL_LT: v = (1u << lane) - 1; break;
        case SPECIAL_LE: v = (2u << lane) - 1; break;
        case SPECIAL_GT: v = ~((2u << lane) - 1); break;
        case SPECIAL_GE: v = ~((1u << lane) - 1); break;
        case SPECIAL_EQ: v = 1u << lane; break;
        default: v = b->id[0] % (unsigned)b->cluster->grid->chip->sms; break; /* SPECIAL_SM */
        }
        if (i->o[0].kind == SLOT_64)
            lanes64(w, i->o[0])[lane] = v;
        else
            lanes32(w, i->o[0])[lane] = (uint32_t)v;
    }
}

void do_nothing(warp *w, const insn *i, uint32_t m) {
    (void)w;
    (void)i;
    (void)m;
}

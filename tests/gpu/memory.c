/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses. Memory of the device is memory of this process, and an address of it is a pointer; a table says which of
 * it there is. An address of shared memory is an offset in the block's own, or one with the block's rank in the cluster
 * and 1 in its upper byte. In a generic address the upper byte says which of the two it is, or that it is a lane's own
 * memory.
 */
#include "gpu/access.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct region {
    uintptr_t from, to;
    int       device; /* EVERY: any */
} region;

enum { EVERY = -1 };

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
    memory.regions[p] = (region){ (uintptr_t)at, (uintptr_t)at + bytes, EVERY };
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

void gpu_memory_of(void *at, int device) {
    pthread_mutex_lock(&memory.lock);
    const size_t p = region_at((uintptr_t)at);
    if (p < memory.n && memory.regions[p].from == (uintptr_t)at) memory.regions[p].device = device;
    pthread_mutex_unlock(&memory.lock);
}

/* Whether [at, at + bytes) lies in [from, to); an address may be the last there is. */
static bool lies_in(uint64_t at, size_t bytes, uint64_t from, uint64_t to) {
    return at >= from && at <= to && bytes <= to - at;
}

static bool look_up(known_region *k, uintptr_t at, size_t bytes, int device) {
    pthread_mutex_lock(&memory.lock);
    const size_t  p = region_at(at);
    const region *r = &memory.regions[p];
    const bool    found =
        p < memory.n && lies_in(at, bytes, r->from, r->to) && (r->device == EVERY || r->device == device);
    if (found) *k = (known_region){ memory.regions[p].from, memory.regions[p].to, memory.version };
    pthread_mutex_unlock(&memory.lock);
    return found;
}

const known_region *memory_region(warp_state *s, const insn *i, uint64_t at, size_t bytes) {
    known_region *k = &s->known[i->line % KNOWN_REGIONS];
    if (lies_in(at, bytes, k->from, k->to) && k->version == memory.version) return k;
    const gpu_launch *l = s->block->cluster->grid->launch; /* parameters have addresses, too */
    if (look_up(k, (uintptr_t)at, bytes, l->device)) return k;
    const uintptr_t params = (uintptr_t)l->params;
    if (!lies_in(at, bytes, params, params + l->kernel->shape.params_bytes)) return NULL;
    *k = (known_region){ params, params + l->kernel->shape.params_bytes, memory.version };
    return k;
}

uint8_t *memory_global(warp_state *s, const insn *i, uint64_t at, size_t bytes) {
    if (!memory_region(s, i, at, bytes))
        gpu_fault(s, i, "%zu bytes at %#llx, where nothing is", bytes, (unsigned long long)at);
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

size_t memory_local_step(const warp_state *s) {
    return (s->block->cluster->grid->launch->kernel->local_bytes + 63) & ~(size_t)63;
}

static uint8_t *memory_local(warp_state *s, const insn *i, uint64_t at, size_t bytes, int lane) {
    const size_t each = s->block->cluster->grid->launch->kernel->local_bytes;
    if (!lies_in(at, bytes, 0, each))
        gpu_fault(s, i, "%zu bytes at %lld of %zu of its own memory", bytes, (long long)at, each);
    return s->local + (size_t)lane * memory_local_step(s) + at;
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

void do_load(warp *w, const insn *i, uint32_t m) {
    const int n = i->listed[0], bytes = i->bytes;
    if (access_load(w, i, m)) return;
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
    note_change(state_of(w));
    if (access_store(w, i, m)) return;
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
        if (memcmp(at, &now, i->bytes) != 0) note_change(state_of(w));
        memcpy(at, &now, i->bytes);
        if (i->o[0].kind == SLOT_64)
            lanes64(w, i->o[0])[l] = old;
        else if (i->o[0].kind == SLOT_32)
            lanes32(w, i->o[0])[l] = (uint32_t)old;
    }
}

void do_nothing(warp *w, const insn *i, uint32_t m) {
    (void)w;
    (void)i;
    (void)m;
}

void do_let_begin(warp *w, const insn *i, uint32_t m) {
    (void)i;
    (void)m;
    state_of(w)->block->lets = true;
}

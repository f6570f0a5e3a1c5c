/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers in shared memory, and copies in the background. A copy is made when somebody waits for it and not before,
 * and it reads its source then: a program that uses the target too early, or changes the source too early, gets what it
 * deserves.
 *
 * A barrier's 64 bits: 0..19 arrivals that a phase needs, 20..39 those that are missing, 40 the parity of the phase,
 * 41..63 bytes that are missing (signed).
 */
#include "gpu/run.h"

#include <stdlib.h>
#include <string.h>

typedef struct mbar {
    uint32_t wanted, missing, parity;
    int32_t  bytes;
} mbar;

static mbar mbar_read(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, 8);
    return (mbar){ v & 0xfffff, v >> 20 & 0xfffff, v >> 40 & 1, (int32_t)((int64_t)v >> 41) };
}

static void mbar_write(uint8_t *at, mbar b) {
    if (b.missing == 0 && b.bytes == 0) {
        b.parity ^= 1;
        b.missing = b.wanted;
    }
    const uint64_t v =
        (uint64_t)b.wanted | (uint64_t)b.missing << 20 | (uint64_t)b.parity << 40 | (uint64_t)(int64_t)b.bytes << 41;
    memcpy(at, &v, 8);
}

static uint8_t *mbar_at(warp_state *s, const insn *i, uint64_t at) {
    if (at & 7) gpu_fault(s, i, "a barrier at an odd address");
    return memory_shared(s, i, (uint32_t)at, 8, true);
}

void do_mbar_init(warp *w, const insn *i, uint32_t m) {
    EACH_LANE(m, l) {
        const uint32_t n = lanes32(w, i->o[2])[l];
        uint8_t       *at = mbar_at(state_of(w), i, lane_address(w, i, i->o[1], l));
        if (!n || n > 0xfffff) gpu_fault(state_of(w), i, "a barrier of %u", n);
        mbar_write(at, (mbar){ .wanted = n, .missing = n });
    }
}

static void mbar_arrive(warp_state *s, const insn *i, uint8_t *at, uint32_t n, int32_t bytes) {
    mbar b = mbar_read(at);
    note_change(s);
    if (b.missing < n) gpu_fault(s, i, "%u arrive where %u of %u are missing", n, b.missing, b.wanted);
    b.missing -= n;
    b.bytes += bytes;
    mbar_write(at, b);
}

void do_mbar_arrive(warp *w, const insn *i, uint32_t m) {
    EACH_LANE(m, l) {
        uint8_t       *at = mbar_at(state_of(w), i, lane_address(w, i, i->o[1], l));
        const uint32_t given = i->n > 2 ? lanes32(w, i->o[2])[l] : 0;
        if (i->mode)
            mbar_arrive(state_of(w), i, at, 1, (int32_t)given);
        else
            mbar_arrive(state_of(w), i, at, i->n > 2 ? given : 1, 0);
    }
}

/* ---- large copies ---- */

static void bulk_finish(warp_state *s, gpu_block *b, int which) {
    const bulk_copy c = b->bulk[which];
    note_change(s);
    memmove(b->bulk + which, b->bulk + which + 1, (size_t)(b->n_bulk - which - 1) * sizeof *b->bulk);
    b->n_bulk--;
    memcpy(b->smem + c.to, memory_global(s, c.by, c.from, c.bytes), c.bytes);
    mbar bar = mbar_read(b->smem + c.bar);
    bar.bytes -= (int32_t)c.bytes;
    mbar_write(b->smem + c.bar, bar);
}

static void bulk_start(warp_state *s, const insn *i, gpu_block *b, bulk_copy c) {
    if (c.to < SMEM_BASE || c.to + c.bytes > b->smem_bytes || c.bar < SMEM_BASE || c.bar + 8 > b->smem_bytes)
        gpu_fault(s, i, "%u bytes to %d of %zu bytes of shared memory", c.bytes, (int)c.to - SMEM_BASE,
                  b->smem_bytes - SMEM_BASE);
    if (b->n_bulk == b->cap_bulk) {
        const int  cap = b->cap_bulk ? b->cap_bulk * 2 : 32;
        bulk_copy *more = realloc(b->bulk, (size_t)cap * sizeof *more);
        if (!more) gpu_fault(s, i, "no memory");
        b->bulk = more;
        b->cap_bulk = cap;
    }
    b->bulk[b->n_bulk++] = c;
}

void do_bulk_copy(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    EACH_LANE(m, l) {
        uint32_t       to, bar;
        gpu_block     *b = memory_block(s, i, (uint32_t)lane_address(w, i, i->o[0], l), &to);
        gpu_block     *b_bar = memory_block(s, i, (uint32_t)lane_address(w, i, i->o[3], l), &bar);
        const uint32_t bytes = lanes32(w, i->o[2])[l];
        const uint64_t from = lane_address(w, i, i->o[1], l);
        if (b != b_bar) gpu_fault(s, i, "target and barrier in different blocks");
        if (bytes % 16 || to % 16 || from % 16)
            gpu_fault(s, i, "%u bytes from %#llx to %u: multiples of 16", bytes, (unsigned long long)from, to);
        if (bytes) memory_global(s, i, from, bytes);
        const bulk_copy c = { to, bytes, bar, from, i };
        if (i->n < 5) {
            bulk_start(s, i, b, c);
            continue;
        }
        const uint32_t blocks = lanes32(w, i->o[4])[l];
        if (blocks >> s->block->cluster->n)
            gpu_fault(s, i, "blocks %#x in a cluster of %d", blocks, s->block->cluster->n);
        for (int k = 0; k < s->block->cluster->n; k++) {
            if (blocks >> k & 1) bulk_start(s, i, &s->block->cluster->blocks[k], c);
        }
    }
}

void do_bulk_prefetch(warp *w, const insn *i, uint32_t m) {
    EACH_LANE(m, l) {
        const uint32_t bytes = lanes32(w, i->o[2])[l];
        const uint64_t from = lane_address(w, i, i->o[1], l);
        if (bytes % 16 || from % 16)
            gpu_fault(state_of(w), i, "%u bytes from %#llx: multiples of 16", bytes, (unsigned long long)from);
        if (bytes) memory_global(state_of(w), i, from, bytes);
    }
}

void do_mbar_wait(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    EACH_LANE(m, l) {
        uint32_t       offset;
        const uint64_t a = lane_address(w, i, i->o[1], l);
        uint8_t       *at = mbar_at(s, i, a);
        gpu_block     *b = memory_block(s, i, (uint32_t)a, &offset);
        const uint32_t parity = lanes32(w, i->o[2])[l] & 1;
        bool           over = mbar_read(at).parity != parity;
        for (int k = 0; !over && k < b->n_bulk; k++) {
            if (b->bulk[k].bar != offset) continue;
            bulk_finish(s, b, k--);
            over = mbar_read(at).parity != parity;
        }
        set_pred(w, i->o[0], 1u << l, over ? ALL_LANES : 0);
        if (!over) s->ask_again = true;
    }
}

void copies_forget(gpu_block *b) {
    if (b->n_bulk) gpu_fault(&b->warps[0], b->bulk[0].by, "still copying when the block has ended");
}

/* ---- small copies ---- */

void do_copy_async(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    EACH_LANE(m, l) {
        const uint32_t to = (uint32_t)lane_address(w, i, i->o[0], l);
        const uint64_t from = lane_address(w, i, i->o[1], l);
        uint32_t       read = i->n > 3 ? lanes32(w, i->o[2])[l] : i->bytes;
        if (read > i->bytes) read = i->bytes;
        if (to % i->bytes || from % i->bytes)
            gpu_fault(s, i, "%d bytes from %#llx to %u", i->bytes, (unsigned long long)from, to);
        memory_shared(s, i, to, i->bytes, false);
        if (read) memory_global(s, i, from, read);
        if (s->n_copies == s->cap_copies) {
            const int   cap = s->cap_copies ? s->cap_copies * 2 : 256;
            small_copy *more = realloc(s->copies, (size_t)cap * sizeof *more);
            if (!more) gpu_fault(s, i, "no memory");
            s->copies = more;
            s->cap_copies = cap;
        }
        s->copies[s->n_copies++] =
            (small_copy){ to, from, (uint8_t)i->bytes, (uint8_t)read, (uint8_t)l, s->copy_group[l] };
    }
}

void do_copy_commit(warp *w, const insn *i, uint32_t m) {
    (void)i;
    EACH_LANE(m, l) state_of(w)->copy_group[l]++;
}

void copies_finish(warp_state *s, const insn *i, int lane, uint32_t before) {
    int kept = 0;
    for (int n = 0; n < s->n_copies; n++) {
        const small_copy c = s->copies[n];
        if (c.lane != lane || c.group >= before) {
            s->copies[kept++] = c;
            continue;
        }
        uint8_t *to = memory_shared(s, i, c.to, c.bytes, false);
        note_change(s);
        memset(to, 0, c.bytes);
        if (c.read) memcpy(to, memory_global(s, i, c.from, c.read), c.read);
    }
    s->n_copies = kept;
}

void do_copy_wait(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    EACH_LANE(m, l) {
        const uint32_t made = s->copy_group[l], under_way = (uint32_t)i->offset;
        if (i->mode)
            copies_finish(s, i, l, UINT32_MAX);
        else if (made > under_way && s->n_copies)
            copies_finish(s, i, l, made - under_way);
    }
}

void do_copy_arrive(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    EACH_LANE(m, l) {
        copies_finish(s, i, l, UINT32_MAX);
        if (i->mode) mbar_arrive(s, i, mbar_at(s, i, lane_address(w, i, i->o[1], l)), 1, 0);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix instructions: which lane holds what; the arithmetic is mma.c's. Each warp of a warpgroup does its 16 rows of
 * wgmma by itself, when it comes there; wgmma.fence and wgmma.wait_group around it are where the four meet.
 */
#include "gpu/races.h"

#include <string.h>

void do_ldmatrix(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    uint16_t    rows[4][8][8];
    (void)m;
    for (int k = 0; k < i->listed[0]; k++) {
        for (int r = 0; r < 8; r++) {
            const uint64_t at = lane_address(w, i, i->o[1], 8 * k + r);
            if (at & 15) gpu_fault(s, i, "a row at an odd address");
            memcpy(rows[k][r], memory_shared(s, i, (uint32_t)at, 16, false), 16);
        }
    }
    for (int k = 0; k < i->listed[0]; k++) {
        uint32_t *to = lanes32(w, i->list[0][k]);
        for (int l = 0; l < LANES; l++) {
            const int a = l / 4, b = l % 4 * 2;
            to[l] = i->mode ? rows[k][b][a] | (uint32_t)rows[k][b + 1][a] << 16
                            : rows[k][a][b] | (uint32_t)rows[k][a][b + 1] << 16;
        }
    }
}

static void put_pair(uint16_t *to, uint32_t v) {
    to[0] = (uint16_t)v;
    to[1] = (uint16_t)(v >> 16);
}

/* 16 rows of 16 from the registers of a warp. */
static void held_a(const warp *w, const operand *list, uint16_t a[16][16]) {
    for (int k = 0; k < 4; k++) {
        const uint32_t *from = lanes32(w, list[k]);
        for (int l = 0; l < LANES; l++) put_pair(&a[l / 4 + 8 * (k & 1)][l % 4 * 2 + 8 * (k >> 1)], from[l]);
    }
}

/* 16 rows of n sums, in the registers of list: four for each 8 columns. */
static void sums_in(const warp *w, const operand *list, int n, float *c) {
    for (int k = 0; k < n / 2; k++) {
        const uint32_t *from = lanes32(w, list[k]);
        for (int l = 0; l < LANES; l++)
            memcpy(&c[(l / 4 + 8 * (k >> 1 & 1)) * n + k / 4 * 8 + l % 4 * 2 + (k & 1)], &from[l], 4);
    }
}

static void sums_out(const warp *w, const operand *list, int n, const float *c) {
    for (int k = 0; k < n / 2; k++) {
        uint32_t *to = lanes32(w, list[k]);
        for (int l = 0; l < LANES; l++)
            memcpy(&to[l], &c[(l / 4 + 8 * (k >> 1 & 1)) * n + k / 4 * 8 + l % 4 * 2 + (k & 1)], 4);
    }
}

void do_mma(warp *w, const insn *i, uint32_t m) {
    uint16_t a[16][16], b[8][16];
    float    c[16 * 8];
    (void)m;
    held_a(w, i->list[1], a);
    for (int k = 0; k < 2; k++) {
        const uint32_t *from = lanes32(w, i->list[2][k]);
        for (int l = 0; l < LANES; l++) put_pair(&b[l / 4][l % 4 * 2 + 8 * k], from[l]);
    }
    sums_in(w, i->list[3], 8, c);
    mma_k16(state_of(w)->block->cluster->grid->chip->mma, i->mode, 16, 8, a[0], b[0], c);
    sums_out(w, i->list[0], 8, c);
}

/* Where a descriptor points: address, and how far the pieces are apart. */
typedef struct described {
    uint32_t at, lead, stride;
} described;

static described describe(warp_state *s, const insn *i, uint64_t d) {
    if (d >> 62 != 1) gpu_fault(s, i, "a layout other than 128 bytes swizzled");
    if (d >> 49 & 7) gpu_fault(s, i, "a layout with an offset");
    return (described){ (uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4,
                        (uint32_t)(d >> 32 & 0x3fff) << 4 };
}

/* The 16-bit value at an address of the swizzle: bits 4 to 6 are turned by bits 7 to 9. */
static uint16_t swizzled(warp_state *s, const insn *i, uint32_t at) {
    uint16_t v;
    at ^= (at >> 7 & 7) << 4;
    memcpy(&v, memory_shared(s, i, at, 2, false), 2);
    return v;
}

static void races_row(warp_state *s, const insn *i, uint32_t at, uint32_t bytes) {
    for (uint32_t k = 0; k < bytes; k += 16) races_wgmma(s, i, (at + k) ^ ((at + k) >> 7 & 7) << 4, 16);
}

/* Rows of 16 that lie in rows of 128 bytes, 8 of them together. */
static void rows_of(warp_state *s, const insn *i, described d, int first, int n, uint16_t (*out)[16]) {
    for (int r = 0; r < n; r++) {
        const uint32_t at = d.at + (uint32_t)((first + r) / 8) * d.stride + (uint32_t)((first + r) % 8) * 128;
        for (uint32_t k = 0; k < 16; k++) out[r][k] = swizzled(s, i, at + 2 * k);
        if (s->block->cluster->races) races_row(s, i, at, 32);
    }
}

/* The same where the 16 lie below each other, 64 columns in 128 bytes. */
static void turned_rows_of(warp_state *s, const insn *i, described d, int n, uint16_t (*out)[16]) {
    for (uint32_t k = 0; k < 16; k++) {
        for (int r = 0; r < n; r++) {
            const uint32_t at =
                d.at + (uint32_t)(r / 64) * d.lead + k / 8 * d.stride + k % 8 * 128 + (uint32_t)(r % 64) * 2;
            out[r][k] = swizzled(s, i, at);
            if (s->block->cluster->races && r % 8 == 0) races_row(s, i, at, 16);
        }
    }
}

void do_wgmma(warp *w, const insn *i, uint32_t m) {
    warp_state *s = state_of(w);
    const int   n = i->bytes;
    uint16_t    a[16][16], b[256][16];
    float       c[16 * 256];
    (void)m;
    if (i->listed[0] != n / 2) gpu_fault(s, i, "%d registers for %d columns", i->listed[0], n);
    if (i->mode & WGMMA_HELD)
        held_a(w, i->list[1], a);
    else
        rows_of(s, i, describe(s, i, lanes64(w, i->o[1])[0]), s->index % 4 * 16, 16, a);
    const described d = describe(s, i, lanes64(w, i->o[2])[0]);
    if (i->mode & WGMMA_TURNED)
        turned_rows_of(s, i, d, n, b);
    else
        rows_of(s, i, d, 0, n, b);
    if (lanes_pred(w, i->o[3]) & 1)
        sums_in(w, i->list[0], n, c);
    else
        memset(c, 0, sizeof(float) * 16 * (size_t)n);
    mma_k16(s->block->cluster->grid->chip->mma, i->mode & WGMMA_BF16, 16, n, a[0], b[0], c);
    sums_out(w, i->list[0], n, c);
}

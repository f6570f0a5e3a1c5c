/* SPDX-License-Identifier: Apache-2.0 */
/* Writing low-rank factors. Loops are plain and have constant bounds where it matters, so that compilers vectorize them. */
#include "tensor/lowrank.h"

#include <math.h>

enum { Q8_MOST = 127, Q8_LIFT = 14 };

bool lowrank_type_parse(const char *name, lowrank_type *out) {
    static const char *const names[] = { "auto", "f16", "f32", "q8" };
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (lowrank_type)i;
        return true;
    }
    return false;
}

float lowrank_lift(lowrank_type t, float by) {
    if (t == LOWRANK_F32) return 1;
    return t == LOWRANK_Q8 ? ldexpf(by, Q8_LIFT)
                           : by; /* scales of blocks that are a million times smaller are normal */
}

/* A value of at most 1 to the nearest f16: as tensor_f32_to_f16, without branches. */
static inline uint16_t to_half(float v) {
    uint32_t bits = tensor_f32_bits(v), sign = bits >> 16 & 0x8000u, mag = bits & 0x7fffffffu;
    uint32_t small = tensor_f32_bits(tensor_bits_f32(mag) + 0.5f) - 0x3f000000u;
    uint32_t large = (mag + 0xfffu + (mag >> 13 & 1u) - (112u << 23)) >> 13;
    return (uint16_t)(sign | (mag < 0x38800000u ? small : large));
}

/* One rank of a block as bytes; returns their scale. */
static uint16_t to_bytes(const float *v, int8_t *out) {
    uint32_t most = 0;
    for (int i = 0; i < LOWRANK_TILE; i++) {
        uint32_t bits = tensor_f32_bits(v[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    uint16_t half = tensor_f32_to_f16(tensor_bits_f32(most) / Q8_MOST);
    float    scale = tensor_f16_to_f32(half), by = scale > 0 ? 1 / scale : 0;
    for (int i = 0; i < LOWRANK_TILE; i++) {
        /* Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits. */
        float q = v[i] * by;
        q = q > Q8_MOST ? Q8_MOST : q < -Q8_MOST ? -Q8_MOST : q;
        out[i] = (int8_t)(tensor_f32_bits(q + 12582912.0f) & 0xff);
    }
    return half;
}

/* The ranks of a block as bytes, and their scales. */
static void pack_bytes(const lowrank_block *v, int n, int8_t out[][LOWRANK_TILE], uint8_t *scales) {
    uint16_t s[LOWRANK_PANEL] = { 0 };
    for (int j = 0; j < n; j++) s[j] = to_bytes((*v)[j], out[j]);
    memcpy(scales, s, sizeof s);
}

static void put_a_halves(uint16_t *to, int n, const lowrank_block *v) {
    uint16_t turn[LOWRANK_PANEL][LOWRANK_COLS];
    for (int j = 0; j < LOWRANK_PANEL; j++) {
        for (int i = 0; i < LOWRANK_COLS; i++) turn[j][i] = to_half((*v)[j][i]);
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < LOWRANK_PANEL; j++) to[i * LOWRANK_PANEL + j] = turn[j][i];
    }
}

void lowrank_put_a(lowrank_type t, void *panel, int64_t col, int n, const lowrank_block *v) {
    uint8_t *to = (uint8_t *)panel + lowrank_panel_at(t, col);
    if (t == LOWRANK_F32) {
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < LOWRANK_PANEL; j++) ((float *)(void *)to)[i * LOWRANK_PANEL + j] = (*v)[j][i];
        }
    } else if (t == LOWRANK_F16) {
        put_a_halves((uint16_t *)(void *)to, n, v);
    } else {
        int8_t bytes[LOWRANK_PANEL][LOWRANK_TILE];
        pack_bytes(v, LOWRANK_PANEL, bytes, to);
        to += LOWRANK_SCALES;
        for (int i = 0; i < LOWRANK_COLS; i++) {
            for (int j = 0; j < LOWRANK_PANEL; j++) to[i * LOWRANK_PANEL + j] = (uint8_t)bytes[j][i];
        }
    }
}

void lowrank_put_b(lowrank_type t, void *tile, int rank, int n, const lowrank_block *v) {
    uint8_t *to = (uint8_t *)tile + lowrank_tile_at(t, rank);
    if (t == LOWRANK_F32) {
        memcpy(to, v, (size_t)n * sizeof **v);
    } else if (t == LOWRANK_F16) {
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < LOWRANK_TILE; i++) ((uint16_t *)(void *)to)[j * LOWRANK_TILE + i] = to_half((*v)[j][i]);
        }
    } else {
        pack_bytes(v, n, (int8_t(*)[LOWRANK_TILE])(void *)(to + LOWRANK_SCALES), to);
    }
}

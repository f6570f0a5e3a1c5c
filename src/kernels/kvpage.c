/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kvpage.h"

#include "base/num.h"

#include <assert.h>
#include <string.h>

static const kv_type_info infos[KV_TYPE_COUNT] = {
    [KV_F32] = { .value_bits = 32 },
    [KV_F16] = { .value_bits = 16 },
    [KV_BF16] = { .value_bits = 16 },
    [KV_Q8_0] = { .value_bits = 8, .scaled = true, .rotated = true },
    [KV_Q4_0] = { .value_bits = 4, .scaled = true, .rotated = true },
    [KV_Q5_0] = { .value_bits = 5, .scaled = true, .rotated = true },
    [KV_TQ4] = { .value_bits = 4, .scaled = true, .rotated = true, .coded = true },
    [KV_TQ3] = { .value_bits = 3, .scaled = true, .rotated = true, .coded = true },
    [KV_TQ2] = { .value_bits = 2, .scaled = true, .rotated = true, .coded = true },
    [KV_FP8] = { .value_bits = 8 },
};

/* Bytes of 128 dimensions with a scale per `per` of them, as docs/kv-cache.md promises them. */
#define BYTES_OF_128(bits, per) (128 * (bits) / 8 + 128 / (per) * (int)sizeof(uint16_t))
static_assert(BYTES_OF_128(8, KV_GROUP) == 136, "q8_0");
static_assert(BYTES_OF_128(5, KV_GROUP) == 88, "q5_0");
static_assert(BYTES_OF_128(4, KV_GROUP) == 72, "q4_0");
static_assert(BYTES_OF_128(4, KV_BLOCK_MAX) == 66, "tq4");
static_assert(BYTES_OF_128(3, KV_BLOCK_MAX) == 50, "tq3");
static_assert(BYTES_OF_128(2, KV_BLOCK_MAX) == 34, "tq2");
static_assert(KV_DIM_MAX % KV_BLOCK_MAX == 0 && KV_BLOCK_MAX % KV_GROUP == 0, "blocks hold whole groups");

static const int8_t code4[16] = { -127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127 };
static const int8_t code3[16] = { -127, -79, -45, -14, 14, 45, 79, 127, -127, -79, -45, -14, 14, 45, 79, 127 };
static const int8_t code2[16] = { -127, -38, 38, 127, -127, -38, 38, 127, -127, -38, 38, 127, -127, -38, 38, 127 };

const uint32_t kv_signs[KV_BLOCK_MAX / 32] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };

const kv_type_info *kv_type_get(int type) { return type >= 0 && type < KV_TYPE_COUNT ? &infos[type] : NULL; }

const int8_t *kv_codes(kv_type type) { return type == KV_TQ4 ? code4 : type == KV_TQ3 ? code3 : code2; }

/* Largest rotation block for heads of this size. */
static int kv_block(int dim) {
    int b = 1;
    while (b < KV_BLOCK_MAX && dim % (2 * b) == 0) b *= 2;
    return b;
}

bool kv_type_fits(kv_type type, int dim) {
    const bool plain = !infos[type].rotated || type == KV_Q8_0 || type == KV_Q4_0;
    return plain || kv_block(dim) >= KV_GROUP;
}

/* Rotation block and scale group of one side. */
static void choose_block(kv_type type, int block, int *rotation, int *group) {
    *rotation = infos[type].rotated && block >= KV_GROUP ? block : 0;
    *group = infos[type].coded ? block : KV_GROUP;
}

static size_t area_bytes(kv_type type, int tokens, int dim, int group) {
    const kv_type_info *t = &infos[type];
    const size_t        values = (size_t)tokens * (size_t)dim * (size_t)t->value_bits / 8;
    const size_t scales = t->scaled ? (size_t)tokens * (size_t)((dim + group - 1) / group) * sizeof(uint16_t) : 0;
    return (values + scales + 63) / 64 * 64;
}

static bool sizes_fit(int tokens, int n_kv, int k_dim, int v_dim, bool v_in_k) {
    if (tokens != 16 && tokens != 32 && tokens != 64 && tokens != 128) return false;
    if (n_kv < 1 || n_kv > 1 << 16) return false;
    if (k_dim < 8 || k_dim > KV_DIM_MAX || k_dim % 8 || v_dim < 8 || v_dim > KV_DIM_MAX || v_dim % 8) return false;
    return !v_in_k || v_dim <= k_dim;
}

bool kv_layout_init(kv_layout *l, kv_type k_type, kv_type v_type, int tokens, int n_kv, int k_dim, int v_dim,
                    bool v_in_k) {
    memset(l, 0, sizeof *l);
    if (!kv_type_get((int)k_type) || !kv_type_get((int)v_type)) return false;
    if (!sizes_fit(tokens, n_kv, k_dim, v_dim, v_in_k)) return false;
    if (!kv_type_fits(k_type, v_in_k ? k_dim | v_dim : k_dim)) return false;
    if (!v_in_k && !kv_type_fits(v_type, v_dim)) return false;
    l->k_type = k_type;
    l->v_type = v_in_k ? k_type : v_type;
    l->tokens = tokens;
    l->n_kv = n_kv;
    l->k_dim = k_dim;
    l->v_dim = v_dim;
    l->v_in_k = v_in_k;
    choose_block(l->k_type, kv_block(v_in_k ? k_dim | v_dim : k_dim), &l->k_block, &l->k_group);
    choose_block(l->v_type, kv_block(v_in_k ? k_dim | v_dim : v_dim), &l->v_block, &l->v_group);
    l->k_bytes = area_bytes(k_type, tokens, k_dim, l->k_group);
    l->v_bytes = v_in_k ? 0 : area_bytes(v_type, tokens, v_dim, l->v_group);
    l->head_bytes = l->k_bytes + l->v_bytes;
    return num_mul_size((size_t)n_kv, l->head_bytes, &l->layer_bytes);
}

/* Elements slots[0 .. n) of each row of a transposed area, side by side. */
#define GATHER(name, type)                                                                                             \
    static void name(const uint8_t *from, size_t from_row, const int *slots, int n, uint8_t *to, size_t to_row,        \
                     size_t rows) {                                                                                    \
        for (size_t r = 0; r < rows; r++, from += from_row, to += to_row) {                                            \
            const type *x = (const type *)(const void *)from;                                                          \
            type       *y = (type *)(void *)to;                                                                        \
            for (int i = 0; i < n; i++) y[i] = x[slots[i]];                                                            \
        }                                                                                                              \
    }
GATHER(gather_1, uint8_t)
GATHER(gather_2, uint16_t)
GATHER(gather_4, uint32_t)

/* n positions of one page, in these slots, to one page from slot `at` on. */
static void gather_k(const kv_layout *from, const uint8_t *x, const int *slots, int n, const kv_layout *to, uint8_t *y,
                     int at) {
    const kv_type_info *t = &infos[from->k_type];
    const size_t        unit = t->value_bits < 8 ? 1 : (size_t)t->value_bits / 8;
    const size_t        rows = (size_t)from->k_dim * (size_t)t->value_bits / 8 / unit;
    const size_t        x_row = (size_t)from->tokens * unit, y_row = (size_t)to->tokens * unit;
    (unit == 4 ? gather_4 : unit == 2 ? gather_2 : gather_1)(x, x_row, slots, n, y + (size_t)at * unit, y_row, rows);
    if (!t->scaled) return;
    gather_2(x + rows * x_row, (size_t)from->tokens * 2, slots, n, y + rows * y_row + (size_t)at * 2,
             (size_t)to->tokens * 2, (size_t)kv_k_groups(from));
}

static void gather_v(const kv_layout *from, const uint8_t *x, const int *slots, int n, const kv_layout *to, uint8_t *y,
                     int at) {
    const kv_type_info *t = &infos[from->v_type];
    const size_t        row = (size_t)from->v_dim * (size_t)t->value_bits / 8;
    const size_t        scales = t->scaled ? (size_t)kv_v_groups(from) * sizeof(uint16_t) : 0;
    const uint8_t      *xs = x + (size_t)from->tokens * row;
    uint8_t            *ys = y + (size_t)to->tokens * row;
    for (int i = 0; i < n; i++, at++) {
        memcpy(y + (size_t)at * row, x + (size_t)slots[i] * row, row);
        memcpy(ys + (size_t)at * scales, xs + (size_t)slots[i] * scales, scales);
    }
}

void kv_take_positions(const kv_layout *from, const void *const *pages, size_t page_off, int head,
                       const int32_t *positions, int n, const kv_layout *gathered, uint8_t *to) {
    for (int i = 0, run; i < n; i += run) {
        const int32_t  page = positions[i] / from->tokens;
        const int      at = i % gathered->tokens, most = gathered->tokens - at;
        const uint8_t *x = (const uint8_t *)pages[page] + page_off;
        uint8_t       *y = to + (size_t)(i / gathered->tokens) * gathered->layer_bytes;
        int            slots[128];
        for (run = 0; run < most && i + run < n && positions[i + run] / from->tokens == page; run++)
            slots[run] = positions[i + run] % from->tokens;
        gather_k(from, x + kv_k_offset(from, head), slots, run, gathered, y, at);
        if (!from->v_in_k)
            gather_v(from, x + kv_v_offset(from, head), slots, run, gathered, y + kv_v_offset(gathered, 0), at);
    }
}

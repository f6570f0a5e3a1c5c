/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How keys and values lie in a cache page.
 *
 * A page holds `tokens` consecutive positions (16, 32, 64 or 128), position p in slot p % tokens of page p / tokens.
 * One layer's part of a page is n_kv heads, each a K area followed by a V area; areas begin at multiples of 64 bytes.
 *
 *   K area, transposed: the slots of one dimension lie side by side, so that the lanes of a vector are positions, a
 *   score is one chain of multiply-adds along the dimensions whatever the tile, and no kernel ever transposes K.
 *     f32, f16, bf16   element [k_dim][tokens]
 *     fp8, q8_0        byte [k_dim][tokens]
 *     q4_0, tq4        byte [k_dim / 2][tokens]; low nibble: even dimension, high nibble: odd one
 *     q5_0             of every 8 dimensions 5 rows byte [tokens]: four as above, then bit i: the fifth bit of dimension i
 *     tq3              of every 8 dimensions 3 rows byte [tokens]: bits 0-7, 8-15 and 16-23 of the sum of n[i] << 3 i
 *     tq2              of every 8 dimensions 2 rows byte [tokens]: those of n[i] << 2 i; dimensions 0-3, then 4-7
 *     then, with scales, f16 [k_dim / k_group][tokens]
 *   V area, row by row: the lanes are dimensions.
 *     f32, f16, bf16   element [tokens][v_dim]
 *     fp8, q8_0        byte [tokens][v_dim]
 *     q4_0, tq4        of every 32 dimensions 16 bytes; byte i holds dimension i (low nibble) and dimension i + 16
 *     q5_0             the same, then 4 bytes: the fifth bits, that of dimension i in bit i % 8 of byte i / 8
 *     tq3              of every 32 dimensions 12 bytes: with w[i] = n[i] | n[i + 8] << 3 | n[i + 16] << 6 | n[i + 24] << 9,
 *                      byte i < 8 holds the low 8 bits of w[i], byte 8 + i the upper four of w[i] and of w[i + 4] (high)
 *     tq2              of every 32 dimensions 8 bytes: n[i] | n[i + 8] << 2 | n[i + 16] << 4 | n[i + 24] << 6
 *     then, with scales, f16 [tokens][v_dim / v_group]
 *
 * What the numbers mean, scale d and stored number n:
 *
 *     q8_0, q5_0, q4_0   d n, d (n - 16), d (n - 8); a scale per KV_GROUP dimensions of one position
 *     tq4, tq3, tq2      d c[n], c the codebook of kv_codes: Lloyd and Max's for the normal distribution, as whole numbers
 *                        up to 127, so that d c[n] is exact in f32; a scale per rotation block
 *     fp8                e4m3 without infinities; larger than 448 is stored as 448
 *
 * Rotation. Outliers sit in single dimensions, where they spoil the scale of their group. The types q8_0, q5_0, q4_0 and
 * tq4 to tq2 therefore store x' = H (s x) / sqrt(B) of each block of B dimensions: signs s (the 128 bits of Philox4x32-10
 * with counter and key 0, a set bit of dimension i % B means minus), then the Hadamard matrix. B is the largest power of
 * two that divides the dimension, at most KV_BLOCK_MAX; in the latent form it divides both its parts. Attention rotates the
 * query instead of what it reads, adds up V in rotated space and rotates the result back once.
 * Where B < KV_GROUP, q8_0 and q4_0 are stored without rotation (the last group and its bytes may be shorter) and the
 * others are refused.
 *
 * A value beyond +-2^20 is taken as that, NaN as 0, before it is rotated. A zero block has scale 0. A scale that f16
 * cannot hold is 65504.
 *
 * k_dim and v_dim are multiples of 8 up to KV_DIM_MAX. The latent form (MLA) stores one head with v_in_k set: there is no
 * V area, the values are the first v_dim dimensions of K.
 *
 * A type is one row of the table in kvpage.c and one case in the pack and unpack kernels (cpu/impl/kv_*.h).
 */
#ifndef KERNELS_KVPAGE_H
#define KERNELS_KVPAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_DIM_MAX = 1024, KV_GROUP = 32, KV_BLOCK_MAX = 128 };

typedef enum kv_type {
    KV_F32,
    KV_F16,
    KV_BF16,
    KV_Q8_0,
    KV_Q4_0,
    KV_Q5_0,
    KV_TQ4,
    KV_TQ3,
    KV_TQ2,
    KV_FP8,
    KV_TYPE_COUNT
} kv_type;

typedef struct kv_type_info {
    int  value_bits; /* of one element, without its scale */
    bool scaled;     /* f16 scales follow the values */
    bool rotated;
    bool coded; /* one scale per rotation block; the numbers are indices into kv_codes */
} kv_type_info;

/* One layer's part of a page. Filled by kv_layout_init, then read only. */
typedef struct kv_layout {
    kv_type k_type, v_type;
    int     tokens; /* positions per page */
    int     n_kv;   /* heads */
    int     k_dim, v_dim;
    bool    v_in_k;
    int     k_block, v_block; /* of the rotation; 0: none */
    int     k_group, v_group; /* dimensions that share a scale */
    size_t  k_bytes, v_bytes; /* one head's areas, padded */
    size_t  head_bytes;       /* k_bytes + v_bytes */
    size_t  layer_bytes;      /* n_kv * head_bytes */
} kv_layout;

const kv_type_info *kv_type_get(int type); /* NULL: no such type */

/* The codebook of tq2, tq3 and tq4 in rising order, repeated up to 16 entries. */
const int8_t *kv_codes(kv_type type);

/* Signs of the rotation: bit i % 32 of word i / 32 set: dimension i of a block changes its sign. */
extern const uint32_t kv_signs[KV_BLOCK_MAX / 32];

/* Whether a head of this size can be stored in this type; kv_layout_init refuses it otherwise. */
bool kv_type_fits(kv_type type, int dim);

/* False when a size is out of range: tokens not 16, 32, 64 or 128, a dimension not a multiple of 8, ... */
bool kv_layout_init(kv_layout *l, kv_type k_type, kv_type v_type, int tokens, int n_kv, int k_dim, int v_dim,
                    bool v_in_k);

/*
 * Copies n positions of one head, rising, to the slots 0, 1, ... of pages of their own, which stand behind each other at
 * `to`. The layout of these has one head and the dimensions and types of `from`.
 */
void kv_take_positions(const kv_layout *from, const void *const *pages, size_t page_off, int head,
                       const int32_t *positions, int n, const kv_layout *gathered, uint8_t *to);

/* Scales of one position. */
static inline int kv_k_groups(const kv_layout *l) { return (l->k_dim + l->k_group - 1) / l->k_group; }
static inline int kv_v_groups(const kv_layout *l) { return (l->v_dim + l->v_group - 1) / l->v_group; }

/* Byte offset of a head's K and V area inside the layer's part. */
static inline size_t kv_k_offset(const kv_layout *l, int head) { return (size_t)head * l->head_bytes; }
static inline size_t kv_v_offset(const kv_layout *l, int head) { return (size_t)head * l->head_bytes + l->k_bytes; }

#endif

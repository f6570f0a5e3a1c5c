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
 *     q8_0             int8 [k_dim][tokens], then f16 scale [ceil(k_dim / 32)][tokens]
 *     q4_0             byte [k_dim / 2][tokens] (low nibble: even dimension, high nibble: odd one, value n - 8), then
 *                      f16 scale [ceil(k_dim / 32)][tokens]
 *   V area, row by row: the lanes are dimensions.
 *     f32, f16, bf16   element [tokens][v_dim]
 *     q8_0             int8 [tokens][v_dim], then f16 scale [tokens][ceil(v_dim / 32)]
 *     q4_0             byte [tokens][v_dim / 2], then f16 scale [tokens][ceil(v_dim / 32)]; in a group of g dimensions
 *                      byte i holds dimension i (low nibble) and dimension i + g / 2 (high nibble)
 *
 * Quantized values share a scale per 32 dimensions (the last group may be shorter) of one position. k_dim and v_dim are
 * multiples of 8 up to KV_DIM_MAX. The latent form (MLA) stores one head with v_in_k set: there is no V area, the
 * values are the first v_dim dimensions of K.
 *
 * A type is one row of the table in kvpage.c and one case in the pack and unpack kernels; a compressed type is one
 * more.
 */
#ifndef KERNELS_KVPAGE_H
#define KERNELS_KVPAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_DIM_MAX = 1024, KV_GROUP = 32 };

typedef enum kv_type { KV_F32, KV_F16, KV_BF16, KV_Q8_0, KV_Q4_0, KV_TYPE_COUNT } kv_type;

typedef struct kv_type_info {
    int value_bits;  /* of one element, without its scale */
    int scale_bytes; /* per KV_GROUP elements; 0: no scale */
} kv_type_info;

/* One layer's part of a page. Filled by kv_layout_init, then read only. */
typedef struct kv_layout {
    kv_type k_type, v_type;
    int     tokens; /* positions per page */
    int     n_kv;   /* heads */
    int     k_dim, v_dim;
    bool    v_in_k;
    size_t  k_bytes, v_bytes; /* one head's areas, padded */
    size_t  head_bytes;       /* k_bytes + v_bytes */
    size_t  layer_bytes;      /* n_kv * head_bytes */
} kv_layout;

const kv_type_info *kv_type_get(int type); /* NULL: no such type */

/* False when a size is out of range: tokens not 16, 32, 64 or 128, a dimension not a multiple of 8, ... */
bool kv_layout_init(kv_layout *l, kv_type k_type, kv_type v_type, int tokens, int n_kv, int k_dim, int v_dim,
                    bool v_in_k);

static inline int kv_groups(int dim) { return (dim + KV_GROUP - 1) / KV_GROUP; }

/* Byte offset of a head's K and V area inside the layer's part. */
static inline size_t kv_k_offset(const kv_layout *l, int head) { return (size_t)head * l->head_bytes; }
static inline size_t kv_v_offset(const kv_layout *l, int head) { return (size_t)head * l->head_bytes + l->k_bytes; }

#endif

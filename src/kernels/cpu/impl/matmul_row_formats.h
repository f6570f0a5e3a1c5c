/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight formats as the matrix-vector kernels of x86 take them, along the rows, written once for both vector lengths.
 *
 * The including file brings the vector words of impl/matmul_formats.h, which it includes before, and
 *
 *     row_set                           where the weight rows of a register lie
 *     rows_of(r, q, at)                 16 bytes of rows q, q + 4, ..., one row per 128-bit lane
 *     rows_transpose16(r, at, out)      16 bytes of all rows, transposed
 *     rows_f16(r, at), rows_u8(r, at)   one f16 or byte of each row, as floats or 32-bit integers
 *     ROW_SIGNED                        whether values that may pass 127 are wanted with their zero, 128, taken off
 *
 * A format NAME has, beside NAME_bytes and NAME_scale,
 *
 *     NAME_row_head(r, h)                  what the scales of a unit come from
 *     NAME_raw(r, q, part, raw)            bytes of the part, of the rows of q: NAME_n_raw registers
 *     NAME_pieces(raw, bits, part, q, v)   v[j]: inputs 16j.. of the part; two pieces are a group of 32
 *     NAME_bits                            what is kept for all parts of a unit, or NULL
 */
#ifndef KERNELS_CPU_IMPL_MATMUL_ROW_FORMATS_H
#define KERNELS_CPU_IMPL_MATMUL_ROW_FORMATS_H

/* What a format keeps for the parts of a unit: the fifth bits of q5_k. */
typedef struct unit_bits {
    vi v[4][2];
} unit_bits;

typedef void raw_fn(const row_set *r, int q, int part, vi *raw);
typedef void pieces_fn(const vi *raw, const unit_bits *bits, int part, int q, vi *v);
typedef void bits_fn(const row_set *r, unit_bits *bits);
typedef void row_head_fn(const row_set *r, format_head *h);
typedef vf   scale_fn(const format_head *h, int g);

#define PIECES(NAME) INLINE void NAME##_pieces(const vi *raw, const unit_bits *bits, int part, int q, vi *v)
#define PIECES_UNUSED (void)bits, (void)part, (void)q

INLINE void q4_0_row_head(const row_set *r, format_head *h) { h->d = rows_f16(r, 0); }
INLINE void q4_0_raw(const row_set *r, int q, int part, vi *raw) {
    (void)part;
    raw[0] = rows_of(r, q, 2);
}
PIECES(q4_0) {
    PIECES_UNUSED;
    v[0] = low_nibbles(raw[0]);
    v[1] = high_nibbles(raw[0]);
}
#define q4_0_n_raw 1
#define q4_0_bits NULL

#define q8_0_row_head q4_0_row_head
INLINE void q8_0_raw(const row_set *r, int q, int part, vi *raw) {
    (void)part;
    raw[0] = rows_of(r, q, 2);
    raw[1] = rows_of(r, q, 18);
}
PIECES(q8_0) {
    PIECES_UNUSED;
    for (int h = 0; h < 2; h++) v[h] = ROW_SIGNED ? raw[h] : v_xor(raw[h], v_set8(0x80));
}
#define q8_0_n_raw 2
#define q8_0_bits NULL

#define iq4_nl_row_head q4_0_row_head
#define iq4_nl_raw q4_0_raw
PIECES(iq4_nl) {
    vi table = ROW_SIGNED ? v_xor(iq4_table(), v_set8(0x80)) : iq4_table();
    q4_0_pieces(raw, bits, part, q, v);
    for (int h = 0; h < 2; h++) v[h] = v_lookup(table, v[h]);
}
#define iq4_nl_n_raw 1
#define iq4_nl_bits NULL

INLINE void mxfp4_row_head(const row_set *r, format_head *h) { h->d = e8m0_half(rows_u8(r, 0)); }
INLINE void mxfp4_raw(const row_set *r, int q, int part, vi *raw) {
    (void)part;
    raw[0] = rows_of(r, q, 1);
}
PIECES(mxfp4) {
    q4_0_pieces(raw, bits, part, q, v);
    for (int h = 0; h < 2; h++) v[h] = v_lookup(fp4_table(), v[h]);
}
#define mxfp4_n_raw 1
#define mxfp4_bits NULL

INLINE void q4_k_row_head(const row_set *r, format_head *h) {
    vi t[4];
    rows_transpose16(r, 0, t);
    q4_k_fields(t, h);
}
INLINE void q4_k_raw(const row_set *r, int q, int part, vi *raw) {
    raw[0] = rows_of(r, q, 16 + 32 * (size_t)part);
    raw[1] = rows_of(r, q, 32 + 32 * (size_t)part);
}
PIECES(q4_k) {
    PIECES_UNUSED;
    for (int h = 0; h < 2; h++) {
        v[h] = low_nibbles(raw[h]);
        v[2 + h] = high_nibbles(raw[h]);
    }
}
#define q4_k_n_raw 2
#define q4_k_bits NULL

#define q5_k_row_head q4_k_row_head
INLINE void q5_k_raw(const row_set *r, int q, int part, vi *raw) {
    raw[0] = rows_of(r, q, 48 + 32 * (size_t)part);
    raw[1] = rows_of(r, q, 64 + 32 * (size_t)part);
}
INLINE void q5_k_bits(const row_set *r, unit_bits *bits) {
    UNROLL
    for (int q = 0; q < 4; q++) {
        bits->v[q][0] = rows_of(r, q, 16);
        bits->v[q][1] = rows_of(r, q, 32);
    }
}
PIECES(q5_k) {
    for (int h = 0; h < 2; h++) {
        v[h] = with_fifth(raw[h], bits->v[q][h], 2 * part);
        v[2 + h] = with_fifth(v_srl16(raw[h], 4), bits->v[q][h], 2 * part + 1);
    }
}
#define q5_k_n_raw 2

INLINE void iq4_xs_row_head(const row_set *r, format_head *h) {
    vi t[4];
    rows_transpose16(r, 0, t);
    iq4_xs_fields(t, h);
}
INLINE void iq4_xs_raw(const row_set *r, int q, int part, vi *raw) { raw[0] = rows_of(r, q, 8 + 16 * (size_t)part); }
#define iq4_xs_pieces iq4_nl_pieces
#define iq4_xs_n_raw 1
#define iq4_xs_bits NULL

#endif

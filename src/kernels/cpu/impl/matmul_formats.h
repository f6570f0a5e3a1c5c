/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight formats of the x86 matmul kernels, written once for both vector lengths: the lanes are V_LANES weight rows.
 *
 * The including file brings the vector words (vi, vf, v_and ...), transpose16 and the column readers
 * (avx512/matmul_avx512.h, avx2/matmul_avx2.h). Each format here has NAME_bytes, NAME_scales and NAME_part (see there);
 * NAME_scales is made of NAME_head, which reads what a unit's scales come from, and NAME_scale and NAME_min, which give
 * those of one group. NAME_part emits the quads in the order of K.
 *
 * Block layouts: tensor/blocks.h. Headers of 256-wide blocks are transposed like the values, so that the scales of all
 * rows are decoded together.
 */
#ifndef KERNELS_CPU_IMPL_MATMUL_FORMATS_H
#define KERNELS_CPU_IMPL_MATMUL_FORMATS_H

/* Half of an E8M0 scale, for fp4 values held times two: 2^(e - 128); 255 is NaN. */
INLINE vf e8m0_half(vi e) {
    vi bits = v_sll32(v_sub32(e, v_set32(1)), 23);
    bits = v_if_equal(e, v_set32(0), v_set32(0x200000), bits);
    bits = v_if_equal(e, v_set32(1), v_set32(0x400000), bits);
    return v_as_float(v_if_equal(e, v_set32(255), v_set32(0x7fc00000), bits));
}

/* Values of 4-bit codes above their zero points: 128 and 12. */
INLINE vi iq4_table(void) {
    return v_table(_mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166, (char)181,
                                 (char)197, (char)217, (char)241));
}
INLINE vi fp4_table(void) { return v_table(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)); }

INLINE vi low_nibbles(vi v) { return v_and(v, v_set8(15)); }
INLINE vi high_nibbles(vi v) { return v_and(v_srl16(v, 4), v_set8(15)); }

/* 16 bytes of nibbles j | j + 16, looked up in a table. */
INLINE void nibble_values(const uint8_t *p, size_t stride, vi table, void *sink, emit_fn *emit) {
    vi v[4];
    transpose16(p, stride, v);
    UNROLL
    for (int j = 0; j < 4; j++) emit(sink, j, v_lookup(table, low_nibbles(v[j])));
    UNROLL
    for (int j = 0; j < 4; j++) emit(sink, 4 + j, v_lookup(table, high_nibbles(v[j])));
}

typedef struct format_head {
    vf d, m;
    vi s[4];
} format_head;

/* Formats without a minimum name NAME_scale twice: it is not called. */
#define FORMAT_SCALES(NAME, GROUPS, MIN, MIN_OF)                                                                       \
    INLINE void NAME##_scales(format_at *at, vf *scale, vf *min) {                                                     \
        format_head h;                                                                                                 \
        NAME##_head(at, &h);                                                                                           \
        UNROLL for (int g = 0; g < (GROUPS); g++) {                                                                    \
            scale[g] = NAME##_scale(&h, g);                                                                            \
            if (MIN) min[g] = MIN_OF(&h, g);                                                                           \
        }                                                                                                              \
    }

#define q4_0_bytes 18
INLINE void q4_0_head(format_at *at, format_head *h) { h->d = column_f16(at->data, at->stride); }
INLINE vf   q4_0_scale(const format_head *h, int g) {
      (void)g;
      return h->d;
}
FORMAT_SCALES(q4_0, 1, false, q4_0_scale)
INLINE void q4_0_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    vi v[4];
    (void)part;
    transpose16(at->data + 2, at->stride, v);
    UNROLL
    for (int j = 0; j < 4; j++) emit(sink, j, low_nibbles(v[j]));
    UNROLL
    for (int j = 0; j < 4; j++) emit(sink, 4 + j, high_nibbles(v[j]));
}

#define q8_0_bytes 34
#define q8_0_head q4_0_head
#define q8_0_scale q4_0_scale
FORMAT_SCALES(q8_0, 1, false, q8_0_scale)
INLINE void q8_0_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    UNROLL
    for (int h = 0; h < 2; h++) {
        vi v[4];
        transpose16(at->data + 2 + 16 * h, at->stride, v);
        UNROLL
        for (int j = 0; j < 4; j++) emit(sink, 4 * h + j, v_xor(v[j], v_set8((char)0x80)));
    }
}

#define iq4_nl_bytes 18
#define iq4_nl_head q4_0_head
#define iq4_nl_scale q4_0_scale
FORMAT_SCALES(iq4_nl, 1, false, iq4_nl_scale)
INLINE void iq4_nl_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    nibble_values(at->data + 2, at->stride, iq4_table(), sink, emit);
}

#define mxfp4_bytes 17
INLINE void mxfp4_head(format_at *at, format_head *h) { h->d = e8m0_half(column_u8(at->data, at->stride)); }
#define mxfp4_scale q4_0_scale
FORMAT_SCALES(mxfp4, 1, false, mxfp4_scale)
INLINE void mxfp4_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    (void)part;
    nibble_values(at->data + 1, at->stride, fp4_table(), sink, emit);
}

/* Byte j of each lane, to float. */
INLINE vf byte_float(vi v, int j) {
    const int pick = (int)0x80808000 + j;
    return v_float(v_lookup(v, v_table(_mm_setr_epi32(pick, pick + 4, pick + 8, pick + 12))));
}

/* The 16-byte header of q4_k and q5_k, transposed: d, dmin, twelve bytes of 6-bit scales and minima. */
INLINE void q4_k_fields(const vi h[4], format_head *out) {
    const vi m6 = v_set8(0x3f), m4 = v_set8(0x0f), m2 = v_set8(0x30);
    out->d = low_f16(h[0]);
    out->m = v_negate(high_f16(h[0]));
    out->s[0] = v_and(h[1], m6);
    out->s[1] = v_or(v_and(h[3], m4), v_and(v_srl32(h[1], 2), m2));
    out->s[2] = v_and(h[2], m6);
    out->s[3] = v_or(v_and(v_srl32(h[3], 4), m4), v_and(v_srl32(h[2], 2), m2));
}
INLINE void q4_k_head(format_at *at, format_head *out) {
    vi h[4];
    transpose16(at->data, at->stride, h);
    q4_k_fields(h, out);
}
INLINE vf q4_k_scale(const format_head *h, int g) { return v_mul(h->d, byte_float(h->s[g / 4], g % 4)); }
INLINE vf q4_k_min(const format_head *h, int g) { return v_mul(h->m, byte_float(h->s[2 + g / 4], g % 4)); }
FORMAT_SCALES(q4_k, 8, true, q4_k_min)

#define q4_k_bytes 144
INLINE void q4_k_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    vi v[8];
    transpose16(at->data + 16 + 32 * part, at->stride, v);
    transpose16(at->data + 32 + 32 * part, at->stride, v + 4);
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, j, low_nibbles(v[j]));
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, 8 + j, high_nibbles(v[j]));
}

/* (v & 15) | (h & mask), the mask above 15. */
INLINE vi join_bits(vi v, vi h, int mask) { return v_join(v, h, mask); }

/* Bit `at` of each byte of h becomes bit 4 above the low nibble of v. */
INLINE vi with_fifth(vi v, vi h, int at) {
    vi moved = at <= 4 ? v_sll16(h, 4 - (unsigned)at) : v_srl16(h, (unsigned)at - 4);
    return join_bits(v, moved, 16);
}

#define q5_k_bytes 176
#define q5_k_head q4_k_head
#define q5_k_scale q4_k_scale
#define q5_k_min q4_k_min
FORMAT_SCALES(q5_k, 8, true, q5_k_min)
INLINE void q5_k_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    vi v[8], h[8];
    UNROLL
    for (int half = 0; half < 2; half++) {
        transpose16(at->data + 48 + 32 * part + 16 * half, at->stride, v + 4 * half);
        transpose16(at->data + 16 + 16 * half, at->stride, h + 4 * half);
    }
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, j, with_fifth(v[j], h[j], 2 * part));
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, 8 + j, with_fifth(v_srl16(v[j], 4), h[j], 2 * part + 1));
}

#define q6_k_bytes 210
INLINE void q6_k_fields(vf d, const vi s[4], format_head *h) {
    h->d = d;
    h->m = v_mul(d, v_setf(128));
    UNROLL
    for (int j = 0; j < 4; j++) h->s[j] = v_xor(s[j], v_set8((char)0x80));
}
INLINE void q6_k_head(format_at *at, format_head *h) {
    vi s[4];
    transpose16(at->data + 192, at->stride, s);
    q6_k_fields(column_f16(at->data + 208, at->stride), s, h);
}
/* d * (u - 128) with u = s + 128: exact, as d has 11 bits. */
INLINE vf q6_k_scale(const format_head *h, int g) { return v_fmsub(byte_float(h->s[g / 4], g % 4), h->d, h->m); }
FORMAT_SCALES(q6_k, 16, false, q6_k_scale)
/* Half a block. */
INLINE void q6_k_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    const uint8_t *ql = at->data + 64 * part, *qh = at->data + 128 + 32 * part;
    vi             a[8], b[8], h[8];
    UNROLL
    for (int half = 0; half < 2; half++) {
        transpose16(ql + 16 * half, at->stride, a + 4 * half);
        transpose16(ql + 32 + 16 * half, at->stride, b + 4 * half);
        transpose16(qh + 16 * half, at->stride, h + 4 * half);
    }
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, j, join_bits(a[j], v_sll16(h[j], 4), 0x30));
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, 8 + j, join_bits(b[j], v_sll16(h[j], 2), 0x30));
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, 16 + j, join_bits(v_srl16(a[j], 4), h[j], 0x30));
    UNROLL
    for (int j = 0; j < 8; j++) emit(sink, 24 + j, join_bits(v_srl16(b[j], 4), v_srl16(h[j], 2), 0x30));
}

/* d, scales_h, four bytes of low scale nibbles: one dword and another. */
#define iq4_xs_bytes 136
INLINE void iq4_xs_fields(const vi s[4], format_head *h) {
    h->s[0] = s[0];
    h->s[1] = s[1];
    h->d = low_f16(s[0]);
}
INLINE void iq4_xs_head(format_at *at, format_head *h) {
    vi s[4];
    transpose16(at->data, at->stride, s);
    iq4_xs_fields(s, h);
}
INLINE vf iq4_xs_scale(const format_head *h, int g) {
    vi low = v_and(v_srl32(h->s[1], (unsigned)g * 4), v_set32(15));
    vi two = v_and(v_srl32(h->s[0], 12 + (unsigned)g * 2), v_set32(0x30));
    return v_mul(h->d, v_float(v_sub32(v_or(low, two), v_set32(32))));
}
FORMAT_SCALES(iq4_xs, 8, false, iq4_xs_scale)
INLINE void iq4_xs_part(const format_at *at, int part, void *sink, emit_fn *emit) {
    nibble_values(at->data + 8 + 16 * part, at->stride, iq4_table(), sink, emit);
}

/* MATMUL_FORMAT(NAME, unit, part, group, zero, has a minimum, largest value) of the formats above. */
#define MATMUL_FORMATS_BLOCKS                                                                                          \
    MATMUL_FORMAT(q4_0, 32, 32, 32, 8, false, 15)                                                                      \
    MATMUL_FORMAT(q8_0, 32, 32, 32, 128, false, 255)                                                                   \
    MATMUL_FORMAT(iq4_nl, 32, 32, 32, 128, false, 255)                                                                 \
    MATMUL_FORMAT(mxfp4, 32, 32, 32, 12, false, 24)

#define MATMUL_FORMATS_K                                                                                               \
    MATMUL_FORMAT(q4_k, 256, 64, 32, 0, true, 15)                                                                      \
    MATMUL_FORMAT(q5_k, 256, 64, 32, 0, true, 31)                                                                      \
    MATMUL_FORMAT(q6_k, 256, 128, 16, 32, false, 63)                                                                   \
    MATMUL_FORMAT(iq4_xs, 256, 32, 32, 128, false, 255)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference codecs on this machine: no access outside their blocks, any alignment, and the same bytes as
 * everywhere.
 *
 * `want` holds a hash of the quantized bytes per type, taken on x86-64; other processors and compilers must agree. The
 * instruction-set mask plays no part.
 */
#include "kernels/check.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1024 };

static uint64_t hash(uint64_t h, const void *data, size_t bytes) {
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static void release(check *c, const char *name, check_guard **list, int n) {
    for (int i = 0; i < n; i++) CHECK(c, check_guard_free(list[i]), "%s: wrote outside", name);
}

/* Random bytes as blocks at the very end of a page and off by one: the same floats, nothing else touched. */
static void check_reading(check *c, int type) {
    size_t      bytes;
    const char *name = tensor_type_name(type);
    if (!CHECK(c, tensor_row_bytes(type, N, &bytes), "%s: %d elements", name, N)) return;
    check_guard a = check_guard_alloc(bytes, 0), b = check_guard_alloc(bytes, 1);
    check_guard x = check_guard_alloc(N * sizeof(float), 0), y = check_guard_alloc(N * sizeof(float), 4);
    check_fill_bytes(c, a.data, bytes);
    memcpy(b.data, a.data, bytes);
    CHECK(c, tensor_dequant_row(type, a.data, (float *)x.data, N), "%s refused", name);
    CHECK(c, tensor_dequant_row(type, b.data, (float *)y.data, N), "%s refused", name);
    CHECK(c, memcmp(x.data, y.data, N * sizeof(float)) == 0, "%s depends on the alignment", name);
    CHECK(c, !tensor_dequant_row(type, a.data, (float *)x.data, -1), "%s: a negative count", name);
    check_guard *all[] = { &a, &b, &x, &y };
    release(c, name, all, 4);
}

/* The same for a matrix with scales beside it: one row and a span of it. */
static void check_reading_mat(check *c, int type, int group, int scale_type) {
    tensor_mat  m = { .type = (tensor_type)type,
                      .rows = 3,
                      .cols = N,
                      .scale_type = (tensor_type)scale_type,
                      .group = group,
                      .group_rows = 1 };
    const char *name = tensor_type_name(type);
    if (!CHECK(c, tensor_row_bytes(type, N, &m.row_bytes), "%s: %d elements", name, N)) return;
    m.scale_row_bytes = (size_t)(N / group) * tensor_type_get(scale_type)->block_bytes;
    check_guard data = check_guard_alloc(3 * m.row_bytes, 0), scales = check_guard_alloc(3 * m.scale_row_bytes, 0);
    check_guard biases = check_guard_alloc(3 * m.scale_row_bytes, 0), x = check_guard_alloc(N * sizeof(float), 0);
    float       whole[N];
    check_fill_bytes(c, data.data, data.bytes);
    check_fill_bytes(c, scales.data, scales.bytes);
    check_fill_bytes(c, biases.data, biases.bytes);
    m.data = data.data;
    m.scales = scales.data;
    if (type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8) m.biases = biases.data;
    CHECK(c, tensor_mat_valid(&m), "%s is not valid", name);
    for (int64_t row = 0; row < 3; row++) {
        tensor_mat_dequant_row(&m, 0, row, (float *)x.data);
        memcpy(whole, x.data, sizeof whole);
        for (int i = 0; i < 20; i++) {
            int64_t from = check_int(c, 0, N - 1), n = N - from;
            float  *end = (float *)x.data + from;
            tensor_mat_dequant_span(&m, 0, row, from, n, end);
            CHECK(c, memcmp(end, whole + from, (size_t)n * sizeof(float)) == 0, "%s: span from %lld", name,
                  (long long)from);
        }
    }
    check_guard *all[] = { &data, &scales, &biases, &x };
    release(c, name, all, 4);
}

static const struct {
    int      type, group, scale_type;
    uint64_t want;
} quants[] = {
    { TENSOR_F16, 0, 0, 0x637b2e0a00186606u },
    { TENSOR_BF16, 0, 0, 0x50d629fcda8542b1u },
    { TENSOR_Q4_0, 0, 0, 0xe2738f4d865ed883u },
    { TENSOR_Q4_1, 0, 0, 0x0c73646f0bb9a025u },
    { TENSOR_Q5_0, 0, 0, 0x5ccb486d4753ed6cu },
    { TENSOR_Q5_1, 0, 0, 0x919b0bb2cbaeffabu },
    { TENSOR_Q8_0, 0, 0, 0x5680eda11e9309e5u },
    { TENSOR_Q8_1, 0, 0, 0xb6b30567733b3a4au },
    { TENSOR_Q2_K, 0, 0, 0x5e3f003e167704c4u },
    { TENSOR_Q3_K, 0, 0, 0x2af9f2f27426efc3u },
    { TENSOR_Q4_K, 0, 0, 0x1188cc5931171078u },
    { TENSOR_Q5_K, 0, 0, 0xbdcb0bb017a087c1u },
    { TENSOR_Q6_K, 0, 0, 0x3e7b8fe8705cd136u },
    { TENSOR_Q8_K, 0, 0, 0xb93fbc9579238999u },
    { TENSOR_IQ4_NL, 0, 0, 0xeb6e3204c0345f91u },
    { TENSOR_IQ4_XS, 0, 0, 0xaab2ba216093b6fbu },
    { TENSOR_IQ1_S, 0, 0, 0xa59642abc8f3834eu },
    { TENSOR_IQ1_M, 0, 0, 0x8d85bf2796179a3au },
    { TENSOR_IQ2_XXS, 0, 0, 0x27132ab6e818def2u },
    { TENSOR_IQ2_XS, 0, 0, 0x2e92fdf21a907bc0u },
    { TENSOR_IQ2_S, 0, 0, 0x33b9f9deacc086e6u },
    { TENSOR_IQ3_XXS, 0, 0, 0xe4cb7d6eb3760bebu },
    { TENSOR_IQ3_S, 0, 0, 0x42c4977656336ed9u },
    { TENSOR_TQ1_0, 0, 0, 0x8b79b2bfdf1cb75cu },
    { TENSOR_TQ2_0, 0, 0, 0xa50af3bad002233au },
    { TENSOR_MXFP4, 0, 0, 0x0f5c26dbe9afc902u },
    { TENSOR_NVFP4, 0, 0, 0xd59dd1ae32ee5de5u },
    { TENSOR_F8_E4M3, 128, TENSOR_F32, 0x9c10eaf9199f5ce2u },
    { TENSOR_F8_E5M2, 128, TENSOR_F32, 0x459f2d0d5552a66bu },
    { TENSOR_NF4, 64, TENSOR_F32, 0x7187bfacd78ae377u },
    { TENSOR_MLX_AFF2, 32, TENSOR_F16, 0xe2a576dbe0e0cbbcu },
    { TENSOR_MLX_AFF2, 64, TENSOR_F16, 0xde5f0d1c16e525adu },
    { TENSOR_MLX_AFF3, 64, TENSOR_F16, 0x5b14e7e3565d64b6u },
    { TENSOR_MLX_AFF4, 32, TENSOR_F16, 0x3ddea3eb7b1d6bb3u },
    { TENSOR_MLX_AFF4, 64, TENSOR_BF16, 0x541277a308ab3b28u },
    { TENSOR_MLX_AFF4, 128, TENSOR_F32, 0x34421b2c8779e289u },
    { TENSOR_MLX_AFF5, 64, TENSOR_F16, 0xf095ebc2496f2c57u },
    { TENSOR_MLX_AFF6, 64, TENSOR_F16, 0x02eaaedd6971862fu },
    { TENSOR_MLX_AFF8, 64, TENSOR_F16, 0x59e3ebe53a53a3bdu },
    { TENSOR_MLX_MXFP4, 32, TENSOR_F8_E8M0, 0x286518bfc6121f5cu },
    { TENSOR_MLX_MXFP8, 32, TENSOR_F8_E8M0, 0x99b477dd6d1d33b8u },
    { TENSOR_MLX_NVFP4, 16, TENSOR_F8_E4M3, 0xf84a7447b3024a07u },
};

static void check_writing(check *c, const float *x, size_t which) {
    int         type = quants[which].type, group = quants[which].group, scale_type = quants[which].scale_type;
    const char *name = tensor_type_name(type);
    size_t      bytes;
    uint64_t    h = 0xcbf29ce484222325u;
    if (!CHECK(c, tensor_row_bytes(type, N, &bytes), "%s: %d elements", name, N)) return;
    check_guard out = check_guard_alloc(bytes, 0);
    if (group == 0) {
        CHECK(c, tensor_quant_row(type, x, out.data, N), "%s refused", name);
        h = hash(h, out.data, bytes);
    } else {
        tensor_mat  m = { .type = (tensor_type)type,
                          .rows = 1,
                          .cols = N,
                          .scale_type = (tensor_type)scale_type,
                          .group = group,
                          .group_rows = 1 };
        size_t      scale_bytes = (size_t)(N / group) * tensor_type_get(scale_type)->block_bytes;
        check_guard scales = check_guard_alloc(scale_bytes, 0), biases = check_guard_alloc(scale_bytes, 0);
        memset(biases.data, 0, scale_bytes);
        CHECK(c, tensor_mat_quant_row(&m, x, out.data, scales.data, biases.data), "%s refused", name);
        h = hash(hash(hash(h, out.data, bytes), scales.data, scale_bytes), biases.data, scale_bytes);
        check_guard *all[] = { &scales, &biases };
        release(c, name, all, 2);
    }
    CHECK(c, check_guard_free(&out), "%s: wrote outside", name);
    CHECK(c, h == quants[which].want, "%s group %d: hash 0x%016llx, expected 0x%016llx", name, group,
          (unsigned long long)h, (unsigned long long)quants[which].want);
}

int main(int argc, char **argv) {
    check c;
    float x[N];
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    uint64_t rng = c.rng;
    c.rng =
        11; /* the hashes belong to these numbers; sums of uniform numbers, because libraries differ in log and cos */
    for (int i = 0; i < N; i++) {
        float s = 0;
        for (int k = 0; k < 8; k++) s += (float)(check_u64(&c) >> 44) * 0x1p-20f - 0.5f;
        x[i] = s * 0.025f;
    }
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++) check_writing(&c, x, i);
    c.rng = rng;
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++) {
        if (tensor_can_dequant(type)) check_reading(&c, type);
    }
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++) {
        if (quants[i].group) check_reading_mat(&c, quants[i].type, quants[i].group, quants[i].scale_type);
    }
    return check_end(&c);
}

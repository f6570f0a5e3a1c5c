/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs compute on the software GPU: short PTX texts whose results are worked out here another way. Addresses
 * and variables, lanes that part and meet, atomics, matrices, places of registers. What it does to programs that are
 * wrong, or that are in a hurry, is in test_gpu_faults.c.
 */
#include "gpu/code.h"
#include "gpu/ptx_case.h"
#include "tensor/half.h"

#include <stddef.h>

/* ---- arithmetic and addresses ---- */

static void test_grid_of_two_dimensions(void **state) {
    (void)state;
    case_run(PTX_HEAD PTX_BEGIN "mov.u32 %r10, %tid.y;\nmov.u32 %r11, %ctaid.y;\nmov.u32 %r12, %ntid.y;\n"
                                "mov.u32 %r13, %nctaid.x;\nmad.lo.s32 %r14, %r11, %r12, %r10;\n"
                                "mul.lo.s32 %r15, %r13, %r3;\nmad.lo.s32 %r16, %r14, %r15, %r4;\n"
                                "mul.wide.u32 %rd10, %r16, 4;\nadd.s64 %rd10, %rd1, %rd10;\n"
                                "shl.b32 %r17, %r11, 24;\nshl.b32 %r18, %r2, 16;\nshl.b32 %r19, %r10, 8;\n"
                                "or.b32 %r17, %r17, %r18;\nor.b32 %r17, %r17, %r19;\nor.b32 %r17, %r17, %r1;\n"
                                "st.global.u32 [%rd10], %r17;\n" PTX_END,
             (gpu_launch){ .grid = { 3, 2 }, .block = { 8, 5 } });
    for (unsigned y = 0; y < 10; y++) {
        for (unsigned x = 0; x < 24; x++)
            assert_int_equal(case_out[y * 24 + x], y / 5 << 24 | x / 8 << 16 | y % 5 << 8 | x % 8);
    }
    assert_int_equal(case_out[240], 0xeeeeeeee);
}

static void test_parameters(void **state) {
    (void)state;
    static const char text[] =
        PTX_HEAD ".visible .entry k(\n.param .u8 k_a,\n.param .u16 k_b,\n.param .u64 k_out,\n.param .u32 k_c,\n"
                 ".param .align 16 .b8 k_d[12],\n.param .f64 k_e,\n.param .s8 k_f\n)\n{\n" PTX_REGS
                 "ld.param.u8 %rs1, [k_a];\nld.param.u16 %rs2, [k_b];\nld.param.u64 %rd1, [k_out];\n"
                 "ld.param.u32 %r3, [k_c];\nld.param.v2.u32 {%r4, %r5}, [k_d];\nld.param.u32 %r6, [k_d+8];\n"
                 "ld.param.u64 %rd2, [k_e];\nld.param.s8 %r7, [k_f];\n"
                 "cvt.u32.u16 %r1, %rs1;\ncvt.u32.u16 %r2, %rs2;\n"
                 "st.global.v2.u32 [%rd1], {%r1, %r2};\nst.global.u32 [%rd1+8], %r3;\n"
                 "st.global.v4.u32 [%rd1+16], {%r4, %r5, %r6, %r7};\nst.global.u64 [%rd1+32], %rd2;\n" PTX_END;
    struct {
        uint8_t   a;
        uint16_t  b;
        uint32_t *out;
        uint32_t  c;
        _Alignas(16) uint8_t d[12];
        double e;
        int8_t f;
    } p = { 200, 50000, case_out, 0x80000001u, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255 }, 0.3, -5 };
    const size_t at[7] = { 0,
                           2,
                           offsetof(__typeof__(p), out),
                           offsetof(__typeof__(p), c),
                           offsetof(__typeof__(p), d),
                           offsetof(__typeof__(p), e),
                           offsetof(__typeof__(p), f) };
    const size_t bytes[7] = { 1, 2, 8, 4, 12, 8, 1 };
    gpu_launch   l = { .params = &p };
    gpu_module  *m;
    gpu_shape    shape;
    err          e = { 0 };
    case_open(&m, text, &l, &e);
    gpu_kernel_shape(l.kernel, &shape);
    assert_int_equal(shape.n_params, 7);
    for (int k = 0; k < 7; k++) {
        assert_int_equal(shape.param_at[k], at[k]);
        assert_int_equal(shape.param_bytes[k], bytes[k]);
    }
    assert_int_equal(shape.params_bytes, at[6] + 1);
    assert_int_equal(gpu_run(&case_chip, &l, &e), 0);
    gpu_module_free(m);
    const uint32_t want[8] = { 200, 50000, 0x80000001u, case_out[3], 0x04030201, 0x08070605, 0xff0b0a09, 0xfffffffb };
    assert_memory_equal(case_out, want, sizeof want);
    assert_memory_equal(case_out + 8, &p.e, 8);
}

/* twist(a, b): 3 a + b, but b alone where a > 10. */
static uint32_t twist(uint32_t a, uint32_t b) { return a > 10 ? b : 3 * a + b; }

static void test_function_unfolded_twice(void **state) {
    (void)state;
    case_run(PTX_HEAD
             ".func (.param .b32 func_retval0) twist(\n.param .b32 twist_param_0,\n.param .b32 twist_param_1\n)\n"
             "{\n.reg .pred %p<3>;\n.reg .b32 %r<6>;\n"
             "ld.param.u32 %r1, [twist_param_0];\nld.param.u32 %r2, [twist_param_1];\n"
             "setp.gt.u32 %p1, %r1, 10;\n@%p1 bra $L_large;\nmad.lo.s32 %r3, %r1, 3, %r2;\n"
             "st.param.b32 [func_retval0+0], %r3;\nret;\n$L_large:\nst.param.b32 [func_retval0+0], %r2;\nret;\n}\n"
             // What the caller keeps in registers of the same names must stay.
             PTX_BEGIN "add.s32 %r5, %r1, 1000;\n"
             "{\n.param .b32 param0;\nst.param.b32 [param0+0], %r1;\n.param .b32 param1;\n"
             "st.param.b32 [param1+0], 5;\n.param .b32 retval0;\ncall.uni (retval0),\ntwist,\n(\nparam0,\nparam1\n);\n"
             "ld.param.b32 %r10, [retval0+0];\n}\n"
             "{\n.param .b32 param0;\nst.param.b32 [param0+0], %r10;\n.param .b32 param1;\n"
             "st.param.b32 [param1+0], %r1;\n.param .b32 retval0;\ncall.uni (retval0), twist, (param0, param1);\n"
             "ld.param.b32 %r11, [retval0+0];\n}\n"
             "mul.wide.u32 %rd10, %r1, 4;\nadd.s64 %rd10, %rd3, %rd10;\n"
             "st.global.v2.u32 [%rd10], {%r11, %r5};\n" PTX_END,
             (gpu_launch){ .block = { 32 } });
    for (uint32_t t = 0; t < 32; t++) {
        assert_int_equal(case_out[2 * t], twist(twist(t, 5), t));
        assert_int_equal(case_out[2 * t + 1], 1000 + t);
    }
}

static void test_local_memory(void **state) {
    (void)state;
    /* Through both kinds of address; the lane's number chooses which word is read. */
    case_run(PTX_HEAD PTX_BEGIN
             ".local .align 16 .b8 __local_depot0[16];\n.reg .b64 %SP;\n.reg .b64 %SPL;\n"
             "mov.u64 %SPL, __local_depot0;\ncvta.local.u64 %SP, %SPL;\n"
             "mul.lo.s32 %r10, %r4, 100;\nadd.s32 %r11, %r10, 1;\nadd.s32 %r12, %r10, 2;\n"
             "st.local.v2.u32 [%SPL], {%r10, %r11};\nst.u32 [%SP+8], %r12;\nst.local.u32 [%SPL+12], 7;\n"
             "and.b32 %r13, %r1, 3;\nmul.wide.u32 %rd10, %r13, 4;\nadd.s64 %rd11, %SP, %rd10;\n"
             "bar.sync 0;\nld.u32 %r14, [%rd11];\ncvta.to.local.u64 %rd12, %rd11;\n"
             "ld.local.u32 %r15, [%rd12];\nsub.s32 %r15, %r15, %r14;\nadd.s32 %r14, %r14, %r15;\n"
             "st.global.u32 [%rd3], %r14;\n" PTX_END,
             (gpu_launch){ .grid = { 2 }, .block = { 64 } });
    for (uint32_t t = 0; t < 128; t++) assert_int_equal(case_out[t], t % 4 == 3 ? 7 : 100 * t + t % 4);
}

static void test_variables_of_the_module(void **state) {
    (void)state;
    static const char text[] = PTX_HEAD
        ".global .align 4 .u32 table[6] = {5, 0x70, -8, 0f3F800000};\n.global .align 2 .b8 bytes[3] = {1, 255, 3};\n"
        ".const .align 8 .b8 fixed[8] = {9, 0, 0, 0, 10};\n" PTX_BEGIN
        "mov.u64 %rd10, table;\nmul.wide.u32 %rd11, %r1, 4;\nadd.s64 %rd10, %rd10, %rd11;\n"
        "ld.global.u32 %r10, [%rd10];\nld.global.u8 %rs1, [bytes+1];\ncvt.u32.u16 %r11, %rs1;\n"
        "ld.const.u32 %r12, [fixed+4];\nadd.s32 %r10, %r10, %r11;\nadd.s32 %r10, %r10, %r12;\n"
        "st.global.u32 [%rd3], %r10;\nst.global.u32 [%rd10], %r1;\n" PTX_END;
    gpu_launch  l = { .block = { 6 } };
    gpu_module *m;
    void       *at;
    size_t      bytes;
    err         e = { 0 };
    case_open(&m, text, &l, &e);
    assert_int_equal(gpu_run(&case_chip, &l, &e), 0);
    const uint32_t first[6] = { 5, 0x70, (uint32_t)-8, 0x3f800000, 0, 0 };
    for (int t = 0; t < 6; t++) assert_int_equal(case_out[t], first[t] + 265);
    assert_int_equal(gpu_module_variable(&at, &bytes, m, "table", &e), 0);
    assert_int_equal(bytes, 24);
    for (int t = 0; t < 6; t++) assert_int_equal(((uint32_t *)at)[t], t);
    assert_int_equal(gpu_module_variable(&at, &bytes, m, "tables", &e), ERR_NOTFOUND);
    gpu_module_free(m);
}

static void test_shared_memory_lies_in_order(void **state) {
    (void)state;
    static const char text[] = PTX_HEAD PTX_BEGIN
        ".shared .align 4 .b8 one[12];\n.shared .align 8 .b8 two[20];\n"
        "mov.u32 %r10, one;\nmov.u32 %r11, two;\nmov.u32 %r12, dyn;\n"
        // All three to their last bytes, then back.
        "st.shared.v2.u32 [two+8], {%r11, %r12};\nst.shared.u32 [two+16], 16;\n"
        "st.shared.u32 [one], 1;\nst.shared.u32 [one+8], 8;\nst.shared.u32 [dyn], 100;\n"
        "st.shared.u32 [%r12+60], 160;\n"
        "ld.shared.u32 %r13, [one+8];\nld.shared.u32 %r14, [%r11+16];\nld.shared.u32 %r15, [dyn];\n"
        "ld.shared.u32 %r16, [dyn+60];\ncvt.u64.u32 %rd10, %r12;\ncvta.shared.u64 %rd11, %rd10;\n"
        "ld.u32 %r17, [%rd11+60];\nld.shared.u32 %r18, [two+12];\n"
        "st.global.v4.u32 [%rd1], {%r10, %r11, %r12, %r13};\n"
        "st.global.v4.u32 [%rd1+16], {%r14, %r15, %r16, %r17};\nst.global.u32 [%rd1+32], %r18;\n" PTX_END;
    gpu_launch  l = { .smem = 64 };
    gpu_module *m;
    gpu_shape   shape;
    err         e = { 0 };
    case_open(&m, text, &l, &e);
    gpu_kernel_shape(l.kernel, &shape);
    if (gpu_run(&case_chip, &l, &e)) fail_msg("%s", e.msg);
    gpu_module_free(m);
    const uint32_t one = case_out[0], two = case_out[1], dyn = case_out[2];
    assert_true(one > 0 && one % 4 == 0 && two >= one + 12 && two % 8 == 0);
    assert_true(dyn >= two + 20 && dyn % 1024 == 0);
    assert_int_equal(shape.static_smem, dyn - one);
    const uint32_t want[6] = { 8, 16, 100, 160, 160, dyn };
    assert_memory_equal(case_out + 3, want, sizeof want);
}

static void test_vectors(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 64; i++) case_in[i] = 0x01020304u * (i + 1);
    case_run(PTX_HEAD PTX_BEGIN
             "mul.wide.u32 %rd10, %r1, 16;\nadd.s64 %rd11, %rd1, %rd10;\nadd.s64 %rd12, %rd2, %rd10;\n"
             "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd12];\n"
             "st.global.v4.u32 [%rd11], {%r13, %r12, %r11, %r10};\n"
             "ld.global.v2.u64 {%rd20, %rd21}, [%rd12];\n"
             "st.global.v2.u64 [%rd11+1024], {%rd21, %rd20};\n"
             "ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [%rd12+4];\n"
             "st.global.v4.u8 [%rd11+2048], {%rs4, %rs3, %rs2, %rs1};\n"
             "ld.global.v2.u16 {%rs5, %rs6}, [%rd12+8];\nst.global.v2.u16 [%rd11+2052], {%rs6, %rs5};\n"
             "ld.global.v2.f32 {%f1, _}, [%rd12];\nst.global.v2.f32 [%rd11+2056], {%f1, 0f3F800000};\n" PTX_END,
             (gpu_launch){ .block = { 16 } });
    for (int t = 0; t < 16; t++) {
        const uint32_t *from = case_in + 4 * t, *to = case_out + 4 * t;
        for (int k = 0; k < 4; k++) {
            assert_int_equal(to[k], from[3 - k]);
            assert_int_equal(to[256 + k], from[k ^ 2]);
        }
        assert_int_equal(to[512], __builtin_bswap32(from[1]));
        assert_int_equal(to[513], from[2] >> 16 | from[2] << 16);
        assert_int_equal(to[514], from[0]);
        assert_int_equal(to[515], 0x3f800000);
    }
}

static void test_signed_bytes(void **state) {
    (void)state;
    static const uint8_t bytes[8] = { 0x80, 0xff, 0x7f, 0x01, 0x00, 0xfe, 0x81, 0x40 };
    memcpy(case_in, bytes, 8);
    case_run(PTX_HEAD PTX_BEGIN
             "cvt.u64.u32 %rd10, %r1;\nadd.s64 %rd11, %rd2, %rd10;\n"
             "ld.global.s8 %rs1, [%rd11];\nld.global.s8 %r10, [%rd11];\nld.global.u8 %rs2, [%rd11];\n"
             "ld.global.s8 %rd20, [%rd11];\n"
             // A register of 16 bits is 16 bits, whatever was loaded into it.
             "cvt.u32.u16 %r11, %rs1;\ncvt.s32.s16 %r12, %rs1;\ncvt.u32.u16 %r13, %rs2;\nmov.b32 %r14, {%rs1, %rs2};\n"
             "mul.wide.u32 %rd12, %r1, 32;\nadd.s64 %rd12, %rd1, %rd12;\n"
             "st.global.v4.u32 [%rd12], {%r10, %r11, %r12, %r13};\nst.global.u64 [%rd12+16], %rd20;\n"
             "st.global.u32 [%rd12+24], %r14;\n" PTX_END,
             (gpu_launch){ .block = { 8 } });
    for (int t = 0; t < 8; t++) {
        const int v = (int8_t)bytes[t];
        assert_int_equal(case_out[8 * t], (uint32_t)v);
        assert_int_equal(case_out[8 * t + 1], (uint16_t)v);
        assert_int_equal(case_out[8 * t + 2], (uint32_t)v);
        assert_int_equal(case_out[8 * t + 3], bytes[t]);
        assert_int_equal(case_out[8 * t + 4], (uint32_t)v);
        assert_int_equal(case_out[8 * t + 5], v < 0 ? 0xffffffff : 0);
        assert_int_equal(case_out[8 * t + 6], (uint32_t)bytes[t] << 16 | (uint16_t)v);
    }
}

static void test_guards_and_loops(void **state) {
    (void)state;
    /* The squares below the lane's number, odd ones doubled; a guard that is false leaves everything as it was. */
    case_run(PTX_HEAD PTX_BEGIN "mov.u32 %r10, 0;\nmov.u32 %r11, 0;\nmov.u32 %r14, 77;\n$L_next:\n"
                                "setp.ge.u32 %p1, %r10, %r1;\n@%p1 bra $L_end;\nmul.lo.s32 %r12, %r10, %r10;\n"
                                "and.b32 %r13, %r10, 1;\nsetp.eq.u32 %p2, %r13, 1;\n@%p2 add.s32 %r12, %r12, %r12;\n"
                                "@!%p2 mov.u32 %r14, %r10;\nadd.s32 %r11, %r11, %r12;\nadd.s32 %r10, %r10, 1;\n"
                                "bra.uni $L_next;\n$L_end:\nsetp.lt.u32 %p3, %r1, 60;\n"
                                "@%p3 st.global.u32 [%rd3], %r11;\n@!%p3 st.global.u32 [%rd3+256], %r14;\n" PTX_END,
             (gpu_launch){ .block = { 64 } });
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < t; i++) sum += i * i * (1 + i % 2);
        assert_int_equal(case_out[t], t < 60 ? sum : 0xeeeeeeee);
        assert_int_equal(case_out[64 + t], t < 60 ? 0xeeeeeeee : (t - 1) / 2 * 2);
    }
}

/* ---- lanes ---- */

static void test_lanes_meet_behind_a_choice(void **state) {
    (void)state;
    case_run(PTX_HEAD PTX_BEGIN
             "and.b32 %r10, %r1, 1;\nsetp.eq.u32 %p1, %r10, 1;\n@%p1 bra $L_odd;\nadd.s32 %r11, %r1, 100;\n"
             "bra.uni $L_both;\n$L_odd:\nmul.lo.s32 %r11, %r1, 10;\n$L_both:\nxor.b32 %r12, %r1, 1;\n"
             "shfl.sync.idx.b32 %r13|%p2, %r11, %r12, 31, -1;\nst.global.u32 [%rd3], %r13;\n" PTX_END,
             (gpu_launch){ .block = { 64 } });
    for (uint32_t t = 0; t < 64; t++) assert_int_equal(case_out[t], t & 1 ? (t ^ 1) + 100 : (t ^ 1) * 10);
}

static void test_lanes_meet_behind_loops(void **state) {
    (void)state;
    /* Lane t goes round t times; what the others wrote behind it is there when all have met. */
    case_run(PTX_HEAD PTX_BEGIN
             ".shared .align 4 .b8 words[128];\nmov.u32 %r10, words;\nmov.u32 %r11, 0;\nmov.u32 %r12, 1;\n"
             "$L_next:\nsetp.ge.u32 %p1, %r11, %r1;\n@%p1 bra $L_end;\nmul.lo.s32 %r12, %r12, 3;\n"
             "add.s32 %r11, %r11, 1;\nbra $L_next;\n$L_end:\nshl.b32 %r13, %r1, 2;\n"
             "add.s32 %r14, %r10, %r13;\nst.shared.u32 [%r14], %r12;\nbar.warp.sync -1;\n"
             "xor.b32 %r13, %r13, 124;\nadd.s32 %r14, %r10, %r13;\nld.shared.u32 %r15, [%r14];\n"
             "st.global.u32 [%rd3], %r15;\n" PTX_END,
             (gpu_launch){ .block = { 32 } });
    uint32_t power = 1;
    for (int t = 0; t < 32; t++, power *= 3) assert_int_equal(case_out[31 - t], power);
}

static void test_votes_of_parts(void **state) {
    (void)state;
    /* 20 lanes and 12, each asking among themselves: on ways of their own, then side by side at one instruction. */
    case_run(PTX_HEAD PTX_BEGIN
             "rem.u32 %r10, %r1, 3;\nsetp.eq.u32 %p1, %r10, 0;\nsetp.lt.u32 %p2, %r1, 20;\n"
             "sub.s32 %r20, %r1, 10;\nmul.wide.u32 %rd10, %r1, 28;\nadd.s64 %rd10, %rd3, %rd10;\n"
             "@%p2 bra $L_low;\nmov.u32 %r11, 0xfff00000;\nvote.sync.ballot.b32 %r12, %p1, 0xfff00000;\n"
             "redux.sync.add.s32 %r13, %r20, 0xfff00000;\nbra.uni $L_both;\n"
             "$L_low:\nmov.u32 %r11, 0x000fffff;\nvote.sync.ballot.b32 %r12, %p1, 0x000fffff;\n"
             "redux.sync.add.s32 %r13, %r20, 0x000fffff;\n$L_both:\n"
             "redux.sync.min.s32 %r14, %r20, %r11;\nredux.sync.max.u32 %r15, %r20, %r11;\n"
             "redux.sync.xor.b32 %r16, %r1, %r11;\nsetp.lt.u32 %p3, %r1, 21;\n"
             "vote.sync.all.pred %p4, %p3, %r11;\nvote.sync.any.pred %p5, !%p3, %r11;\n"
             "selp.b32 %r17, 1, 0, %p4;\nselp.b32 %r18, 1, 0, %p5;\n"
             "st.global.u32 [%rd10], %r12;\nst.global.u32 [%rd10+4], %r13;\nst.global.u32 [%rd10+8], %r14;\n"
             "st.global.u32 [%rd10+12], %r15;\nst.global.u32 [%rd10+16], %r16;\n"
             "st.global.u32 [%rd10+20], %r17;\nst.global.u32 [%rd10+24], %r18;\n" PTX_END,
             (gpu_launch){ .block = { 32 } });
    for (int t = 0; t < 32; t++) {
        uint32_t ballot = 0, odd = 0, most = 0;
        int      sum = 0, least = 1000;
        for (int o = t < 20 ? 0 : 20; o < (t < 20 ? 20 : 32); o++) {
            ballot |= (uint32_t)(o % 3 == 0) << o;
            sum += o - 10;
            odd ^= (uint32_t)o;
            if (o - 10 < least) least = o - 10;
            if ((uint32_t)(o - 10) > most) most = (uint32_t)(o - 10);
        }
        const uint32_t want[7] = { ballot, (uint32_t)sum, (uint32_t)least, most, odd, t < 20, t >= 20 };
        assert_memory_equal(case_out + 8 * t, want, sizeof want);
    }
}

static void test_a_part_waits_for_all_of_its_own(void **state) {
    (void)state;
    /* At one instruction the lower half need not wait for the upper one, whose last lanes come late by a longer way. */
    case_run(PTX_HEAD PTX_BEGIN
             "setp.lt.u32 %p1, %r1, 16;\nselp.b32 %r10, 0xffff, 0xffff0000, %p1;\nmov.u32 %r11, 0;\n"
             "setp.ge.u32 %p2, %r1, 24;\n@%p2 bra $L_late;\n$L_vote:\n"
             "redux.sync.add.s32 %r12, %r1, %r10;\nadd.s32 %r12, %r12, %r11;\nst.global.u32 [%rd3], %r12;\nret;\n"
             "$L_late:\nadd.s32 %r11, %r11, 1;\nsetp.lt.u32 %p3, %r11, 5;\n@%p3 bra $L_late;\n"
             "bra $L_vote;\n}\n",
             (gpu_launch){ .block = { 32 } });
    for (uint32_t t = 0; t < 32; t++) assert_int_equal(case_out[t], t < 16 ? 120 : t < 24 ? 376 : 381);
}

static void test_shuffles_of_segments(void **state) {
    (void)state;
    enum { WIDTHS = 6, BLOCKS = WIDTHS * 32 };
    for (uint32_t i = 0; i < BLOCKS; i++) {
        case_in[2 * i] = i % 32;
        case_in[2 * i + 1] = (32 - (1u << i / 32)) << 8;
    }
    case_run(PTX_HEAD PTX_BEGIN
             "mul.wide.u32 %rd10, %r2, 8;\nadd.s64 %rd10, %rd2, %rd10;\nld.global.v2.u32 {%r10, %r11}, [%rd10];\n"
             "or.b32 %r12, %r11, 31;\nadd.s32 %r13, %r1, 1000;\n"
             "shfl.sync.idx.b32 %r20|%p1, %r13, %r10, %r12, -1;\nshfl.sync.up.b32 %r21|%p2, %r13, %r10, %r11, -1;\n"
             "shfl.sync.down.b32 %r22|%p3, %r13, %r10, %r12, -1;\n"
             "shfl.sync.bfly.b32 %r23|%p4, %r13, %r10, %r12, -1;\n"
             "@!%p1 add.s32 %r20, %r20, 5000;\n@!%p2 add.s32 %r21, %r21, 5000;\n"
             "@!%p3 add.s32 %r22, %r22, 5000;\n@!%p4 add.s32 %r23, %r23, 5000;\n"
             "cvt.u16.u32 %rs1, %r20;\ncvt.u16.u32 %rs2, %r21;\ncvt.u16.u32 %rs3, %r22;\ncvt.u16.u32 %rs4, %r23;\n"
             "mul.wide.u32 %rd11, %r4, 8;\nadd.s64 %rd11, %rd1, %rd11;\n"
             "st.global.v4.u16 [%rd11], {%rs1, %rs2, %rs3, %rs4};\n" PTX_END,
             (gpu_launch){ .grid = { BLOCKS }, .block = { 32 } });
    /* As the CUDA guide puts it for __shfl_sync and its like, with a width. */
    for (int i = 0; i < BLOCKS * 32; i++) {
        const int lane = i % 32, by = i / 32 % 32, width = 1 << i / 32 / 32, first = lane / width * width;
        const int from[4] = { first + by % width, lane - by, lane + by, lane ^ by };
        const int in[4] = { 1, from[1] >= first, from[2] < first + width, from[3] < first + width };
        for (int k = 0; k < 4; k++)
            assert_int_equal(((const uint16_t *)case_out)[4 * i + k], 1000 + (in[k] ? from[k] : lane + 5000));
    }
}

static void test_lanes_wait_for_each_other(void **state) {
    (void)state;
    /* By a word in shared memory, the waiting loop in front of what ends it and behind it: lanes go on independently. */
    for (int front = 0; front < 2; front++) {
        char text[4096];
        snprintf(text, sizeof text,
                 "%s.shared .align 4 .b8 flag[8];\nst.shared.u32 [flag], 0;\nst.shared.u32 [flag+4], 0;\n"
                 "bar.warp.sync -1;\nsetp.eq.u32 %%p1, %%r1, %d;\n@%%p1 bra $L_writes;\n"
                 "setp.ne.u32 %%p1, %%r1, %d;\n@%%p1 bra $L_end;\n"
                 "$L_waits:\nld.volatile.shared.u32 %%r10, [flag];\nsetp.eq.u32 %%p2, %%r10, 0;\n"
                 "@%%p2 bra $L_waits;\nst.volatile.shared.u32 [flag+4], 2;\nbra $L_end;\n"
                 "$L_writes:\nst.volatile.shared.u32 [flag], 1;\n$L_back:\n"
                 "ld.volatile.shared.u32 %%r11, [flag+4];\nsetp.eq.u32 %%p3, %%r11, 0;\n@%%p3 bra $L_back;\n"
                 "$L_end:\nbar.warp.sync -1;\nld.shared.u32 %%r12, [flag+4];\n"
                 "st.global.u32 [%%rd3], %%r12;\n" PTX_END,
                 PTX_HEAD PTX_BEGIN, front ? 0 : 7, front ? 7 : 0);
        case_run(text, (gpu_launch){ .block = { 32 } });
        for (int t = 0; t < 32; t++) assert_int_equal(case_out[t], 2);
    }
}

/* ---- atomics ---- */

static void test_atomics(void **state) {
    (void)state;
    enum { N = 512 };
    memset(case_in, 0, sizeof case_in);
    case_in[2] = (uint32_t)-1000;
    case_run(
        PTX_HEAD PTX_BEGIN // A number for everyone, at whose place everyone says who he is.
        "atom.global.add.u32 %r10, [%rd2], 1;\nmul.wide.u32 %rd10, %r10, 4;\nadd.s64 %rd10, %rd1, %rd10;\n"
        "st.global.u32 [%rd10], %r4;\nmul.lo.s32 %r11, %r4, 37;\nand.b32 %r11, %r11, 511;\nsub.s32 %r12, %r11, 600;\n"
        "atom.global.max.u32 %r13, [%rd2+4], %r11;\natom.global.max.s32 %r13, [%rd2+8], %r12;\n"
        "atom.global.min.s32 %r13, [%rd2+44], %r12;\n"
        // Round and round: 0 to 10.
        "atom.global.inc.u32 %r14, [%rd2+12], 10;\nmul.wide.u32 %rd11, %r14, 4;\nadd.s64 %rd11, %rd2, %rd11;\n"
        "red.global.add.u32 [%rd11+256], 1;\n"
        "ld.global.u32 %r15, [%rd2+16];\n$L_again:\nadd.s32 %r16, %r15, %r4;\n"
        "atom.global.cas.b32 %r17, [%rd2+16], %r15, %r16;\nsetp.ne.u32 %p1, %r17, %r15;\nmov.u32 %r15, %r17;\n"
        "@%p1 bra $L_again;\ncvt.u64.u32 %rd12, %r4;\nshl.b64 %rd12, %rd12, 30;\n"
        "red.global.add.u64 [%rd2+24], %rd12;\nred.global.add.f32 [%rd2+32], 0f3F000000;\n"
        "atom.global.exch.b32 %r18, [%rd2+36], 5;\nred.global.or.b32 [%rd2+40], %r4;\n" PTX_END,
        (gpu_launch){ .grid = { N / 64 }, .block = { 64 } });
    char     seen[N] = { 0 };
    uint64_t sum;
    float    halves;
    for (int i = 0; i < N; i++) {
        assert_true(case_out[i] < N && !seen[case_out[i]]);
        seen[case_out[i]] = 1;
    }
    memcpy(&sum, case_in + 6, 8);
    memcpy(&halves, case_in + 8, 4);
    assert_int_equal(case_in[0], N);
    assert_int_equal(case_in[1], 511); /* 37 is odd, so all of 0 to 511 come */
    assert_int_equal((int32_t)case_in[2], -89);
    assert_int_equal((int32_t)case_in[11], -600);
    assert_int_equal(case_in[3], N % 11);
    for (int k = 0; k < 11; k++) assert_int_equal(case_in[64 + k], N / 11 + (k < N % 11));
    assert_int_equal(case_in[4], N * (N - 1) / 2);
    assert_int_equal(sum, (uint64_t)N * (N - 1) / 2 << 30);
    assert_float_equal(halves, N / 2, 0);
    assert_int_equal(case_in[9], 5);
    assert_int_equal(case_in[10], N - 1);
}

/* ---- matrices ---- */

static int small(int i, int k) { return (i * 7 + k * 13 + i * k) % 9 - 4; }

static uint16_t coded(bool bf16, int v) { return bf16 ? tensor_f32_to_bf16((float)v) : tensor_f32_to_f16((float)v); }

static void test_mma(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++) {
        const bool bf16 = which & 1, identity = which & 2;
        char       text[2048];
        int        a[16][16], b[16][8], c[16][8];
        for (int i = 0; i < 16; i++) {
            for (int k = 0; k < 16; k++) a[i][k] = identity ? i == k : small(i, k);
            for (int n = 0; n < 8; n++) b[i][n] = small(n + 20, i), c[i][n] = identity ? 0 : small(i + 3, n + 50);
        }
        for (int l = 0; l < 32; l++) { /* PTX ISA, "Matrix Fragments for mma.m16n8k16" */
            const int g = l / 4, t = l % 4;
            uint16_t *to = (uint16_t *)(case_in + 16 * l);
            float     sums[4];
            for (int i = 0; i < 8; i++) {
                const int row = i < 2 || (i >= 4 && i < 6) ? g : g + 8, col = 2 * t + (i & 1) + (i >= 4 ? 8 : 0);
                to[i] = coded(bf16, a[row][col]);
            }
            for (int i = 0; i < 4; i++) {
                to[8 + i] = coded(bf16, b[2 * t + (i & 1) + (i >= 2 ? 8 : 0)][g]);
                sums[i] = (float)c[i < 2 ? g : g + 8][2 * t + (i & 1)];
            }
            memcpy(case_in + 16 * l + 8, sums, 16);
        }
        snprintf(text, sizeof text,
                 "%smul.wide.u32 %%rd10, %%r1, 64;\nadd.s64 %%rd11, %%rd2, %%rd10;\n"
                 "ld.global.v4.u32 {%%r10, %%r11, %%r12, %%r13}, [%%rd11];\n"
                 "ld.global.v2.u32 {%%r14, %%r15}, [%%rd11+16];\n"
                 "ld.global.v4.f32 {%%f1, %%f2, %%f3, %%f4}, [%%rd11+32];\n"
                 "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%%f1,%%f2,%%f3,%%f4}, "
                 "{%%r10,%%r11,%%r12,%%r13}, {%%r14,%%r15}, {%%f1,%%f2,%%f3,%%f4};\n"
                 "mul.wide.u32 %%rd10, %%r1, 16;\nadd.s64 %%rd11, %%rd1, %%rd10;\n"
                 "st.global.v4.f32 [%%rd11], {%%f1, %%f2, %%f3, %%f4};\n" PTX_END,
                 PTX_HEAD PTX_BEGIN, bf16 ? "bf16" : "f16", bf16 ? "bf16" : "f16");
        case_run(text, (gpu_launch){ .block = { 32 } });
        for (int l = 0; l < 32; l++) {
            for (int i = 0; i < 4; i++) {
                const int row = l / 4 + (i < 2 ? 0 : 8), col = l % 4 * 2 + (i & 1);
                int       want = c[row][col];
                for (int k = 0; k < 16; k++) want += a[row][k] * b[k][col];
                assert_float_equal(((const float *)case_out)[4 * l + i], (float)want, 0);
            }
        }
    }
}

static void test_ldmatrix(void **state) {
    (void)state;
    /* Value 8 r + c in row r, column c of 32 rows; lane l names row 31 - l. */
    case_run(PTX_HEAD PTX_BEGIN
             ".shared .align 16 .b8 rows[512];\nmov.u32 %r10, rows;\nmov.u32 %r11, 0;\n"
             "shl.b32 %r12, %r1, 4;\nadd.s32 %r13, %r10, %r12;\nshl.b32 %r14, %r1, 3;\n"
             "$L_next:\ncvt.u16.u32 %rs1, %r14;\nst.shared.u16 [%r13], %rs1;\nadd.s32 %r13, %r13, 2;\n"
             "add.s32 %r14, %r14, 1;\nadd.s32 %r11, %r11, 1;\nsetp.lt.u32 %p1, %r11, 8;\n@%p1 bra $L_next;\n"
             "bar.warp.sync -1;\nsub.s32 %r15, 31, %r1;\nshl.b32 %r15, %r15, 4;\nadd.s32 %r15, %r10, %r15;\n"
             "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r15];\n"
             "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r24, %r25, %r26, %r27}, [%r15];\n"
             "mul.wide.u32 %rd10, %r1, 32;\nadd.s64 %rd10, %rd1, %rd10;\n"
             "st.global.v4.u32 [%rd10], {%r20, %r21, %r22, %r23};\n"
             "st.global.v4.u32 [%rd10+16], {%r24, %r25, %r26, %r27};\n" PTX_END,
             (gpu_launch){ .block = { 32 } });
    for (int l = 0; l < 32; l++) {
        for (int k = 0; k < 4; k++) {
            for (int half = 0; half < 2; half++) {
                const int row = 31 - (8 * k + l / 4), col = l % 4 * 2 + half;
                const int turned_row = 31 - (8 * k + l % 4 * 2 + half), turned_col = l / 4;
                assert_int_equal(((const uint16_t *)(case_out + 8 * l + k))[half], 8 * row + col);
                assert_int_equal(((const uint16_t *)(case_out + 8 * l + 4 + k))[half], 8 * turned_row + turned_col);
            }
        }
    }
}

/* A row of 64 halves fills 128 bytes, whose eight pieces of 16 bytes change places by the row's number. */
static void put_swizzled(uint8_t *at, int row, int k, int v) {
    const uint16_t h = coded(false, v);
    memcpy(at + row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2, &h, 2);
}

static void test_wgmma(void **state) {
    (void)state;
    enum { DEPTH = 64, B_AT = 64 * 128 };
    char text[8192];
    int  n = snprintf(text, sizeof text,
                      "%smov.u32 %%r10, dyn;\nmov.u32 %%r11, %%r1;\n$L_next:\nmul.wide.u32 %%rd10, %%r11, 16;\n"
                       "add.s64 %%rd10, %%rd2, %%rd10;\nld.global.v4.u32 {%%r20, %%r21, %%r22, %%r23}, [%%rd10];\n"
                       "shl.b32 %%r12, %%r11, 4;\nadd.s32 %%r12, %%r10, %%r12;\n"
                       "st.shared.v4.u32 [%%r12], {%%r20, %%r21, %%r22, %%r23};\nadd.s32 %%r11, %%r11, 128;\n"
                       "setp.lt.u32 %%p1, %%r11, 576;\n@%%p1 bra $L_next;\nfence.proxy.async.shared::cta;\n"
                       "bar.sync 0;\nshr.u32 %%r13, %%r10, 4;\ncvt.u64.u32 %%rd20, %%r13;\n"
                       "or.b64 %%rd20, %%rd20, 0x4000004000010000;\nadd.s64 %%rd21, %%rd20, %d;\n"
                       "setp.ne.u32 %%p2, 0, 0;\nwgmma.fence.sync.aligned;\n",
                      PTX_HEAD PTX_BEGIN, B_AT / 16);
    for (int k = 0; k < DEPTH / 16; k++) /* the first of them begins with nothing, not with the rubbish in %f */
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%%f1,%%f2,%%f3,%%f4}, %%rd20, %%rd21, %%p2, "
                      "1, 1, 0, 0;\n"
                      "add.s64 %%rd20, %%rd20, 2;\nadd.s64 %%rd21, %%rd21, 2;\nsetp.eq.u32 %%p2, 0, 0;\n");
    snprintf(text + n, sizeof text - (size_t)n,
             "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nmul.wide.u32 %%rd10, %%r1, 16;\n"
             "add.s64 %%rd10, %%rd1, %%rd10;\nst.global.v4.f32 [%%rd10], {%%f1, %%f2, %%f3, %%f4};\n" PTX_END);
    for (int k = 0; k < DEPTH; k++) {
        for (int i = 0; i < 64; i++) put_swizzled((uint8_t *)case_in, i, k, small(i, k));
        for (int j = 0; j < 8; j++) put_swizzled((uint8_t *)case_in + B_AT, j, k, small(j + 100, k));
    }
    case_run(text, (gpu_launch){ .block = { 128 }, .smem = B_AT + 1024 });
    for (int t = 0; t < 128; t++) {
        for (int i = 0; i < 4; i++) {
            const int row = t / 32 * 16 + t % 32 / 4 + (i < 2 ? 0 : 8), col = t % 4 * 2 + (i & 1);
            int       want = 0;
            for (int k = 0; k < DEPTH; k++) want += small(row, k) * small(col + 100, k);
            assert_float_equal(((const float *)case_out)[4 * t + i], (float)want, 0);
        }
    }
}

/* ---- registers ---- */

static void test_long_chain(void **state) {
    (void)state;
    enum { LONG = 4000 };
    char *text = malloc(LONG * 64 + 4096);
    int   n =
        sprintf(text, "%s.reg .b32 %%v<%d>;\nmov.u32 %%v0, %%r1;\nadd.s32 %%v1, %%r1, 7;\n", PTX_HEAD PTX_BEGIN, LONG);
    gpu_launch  l = { .block = { 32 } };
    gpu_module *m;
    err         e = { 0 };
    for (int i = 2; i < LONG; i++) {
        if (i % 5) n += sprintf(text + n, "mad.lo.s32 %%v%d, %%v%d, 3, %%v%d;\n", i, i - 1, i - 2);
        if (i % 5 == 0) n += sprintf(text + n, "xor.b32 %%v%d, %%v%d, %%v%d;\n", i, i - 2, i < 500 ? i - 1 : i - 400);
    }
    sprintf(text + n, "st.global.u32 [%%rd3], %%v%d;\n" PTX_END, LONG - 1);
    case_open(&m, text, &l, &e);
    assert_true(l.kernel->n32 < 200); /* one of five of the last 400 is still wanted, and a few more */
    assert_int_equal(gpu_run(&case_chip, &l, &e), 0);
    gpu_module_free(m);
    free(text);
    for (uint32_t t = 0; t < 32; t++) {
        static uint32_t v[LONG];
        v[0] = t, v[1] = t + 7;
        for (int i = 2; i < LONG; i++) v[i] = i % 5 ? 3 * v[i - 1] + v[i - 2] : v[i - 2] ^ v[i < 500 ? i - 1 : i - 400];
        assert_int_equal(case_out[t], v[LONG - 1]);
    }
}

static void test_values_live_across_a_loop(void **state) {
    (void)state;
    /*
     * %r10 is made in front and wanted behind; %r20 and %r21 change places; %r30 is written at the loop's end and read at its
     * beginning, the first time under a guard that is false; %r50 is written
     * the first time only; what lies between has short lives.
     */
    case_run(PTX_HEAD PTX_BEGIN "mul.lo.s32 %r10, %r1, 11;\nmov.u32 %r20, 0;\nmov.u32 %r21, 1;\nmov.u32 %r22, "
                                "0;\nmov.u32 %r31, 0;\nmov.u32 %r51, 0;\n"
                                "$L_next:\nsetp.ne.u32 %p1, %r22, 0;\n@%p1 add.s32 %r31, %r31, %r30;\n"
                                "@!%p1 add.s32 %r50, %r1, 3;\nadd.s32 %r51, %r51, %r50;\n"
                                "add.s32 %r40, %r20, %r21;\nmov.u32 %r20, %r21;\nmov.u32 %r21, %r40;\n"
                                "mul.lo.s32 %r41, %r22, 5;\nadd.s32 %r42, %r41, %r1;\nmov.u32 %r30, %r42;\n"
                                "add.s32 %r22, %r22, 1;\nsetp.lt.u32 %p2, %r22, 20;\n@%p2 bra $L_next;\n"
                                "mul.wide.u32 %rd10, %r1, 16;\nadd.s64 %rd10, %rd1, %rd10;\n"
                                "st.global.v4.u32 [%rd10], {%r10, %r20, %r31, %r51};\n" PTX_END,
             (gpu_launch){ .block = { 32 } });
    for (uint32_t t = 0; t < 32; t++) {
        const uint32_t want[4] = { 11 * t, 6765, 5 * (18 * 19 / 2) + 19 * t, 20 * (t + 3) };
        assert_memory_equal(case_out + 4 * t, want, sizeof want);
    }
}

/* A source may lie in a register that is wider than its type; then the lower bits count. */
static void test_wide_sources(void **state) {
    (void)state;
    case_run(PTX_HEAD PTX_BEGIN
             "mov.u64 %rd10, 0x123456789abcfedc;\ncvt.s64.s32 %rd11, %rd10;\ncvt.s64.s16 %rd12, %rd10;\n"
             "cvt.u64.u8 %rd13, %rd10;\ncvt.rn.f32.s32 %f1, %rd10;\nmov.b32 %r10, %f1;\ncvt.u32.u16 %r11, %rd10;\n"
             "st.global.u64 [%rd1], %rd11;\nst.global.u64 [%rd1+8], %rd12;\nst.global.u64 [%rd1+16], %rd13;\n"
             "st.global.v2.u32 [%rd1+24], {%r10, %r11};\n" PTX_END,
             (gpu_launch){ 0 });
    uint64_t got[3];
    memcpy(got, case_out, sizeof got);
    assert_true(got[0] == 0xffffffff9abcfedcu && got[1] == 0xfffffffffffffedcu && got[2] == 0xdc);
    float f = (float)(int32_t)0x9abcfedcu, is;
    memcpy(&is, &case_out[6], 4);
    assert_true(is == f && case_out[7] == 0xfedc);
}

/* Copies between registers are left out where that changes nothing, and only there. */
static void test_copies(void **state) {
    (void)state;
    case_run(PTX_HEAD PTX_BEGIN
             /* Two values change places in every round. */
             "mov.u32 %r10, 100;\nadd.s32 %r11, %r1, 7;\nmov.u32 %r12, 0;\n$L_swap:\nmov.u32 %r13, %r10;\n"
             "mov.u32 %r10, %r11;\nmov.u32 %r11, %r13;\nadd.s32 %r12, %r12, 1;\nsetp.lt.u32 %p1, %r12, 5;\n"
             "@%p1 bra $L_swap;\n"
             /* A copy outlives the round in which its source was made; the sum is that of the round before. */
             "mov.u32 %r14, 0;\nmov.u32 %r15, 0;\n$L_sum:\nmov.u32 %r16, %r14;\nadd.s32 %r17, %r16, 3;\n"
             "mov.u32 %r14, %r17;\nadd.s32 %r15, %r15, 1;\nsetp.lt.u32 %p2, %r15, 4;\n@%p2 bra $L_sum;\n"
             /* The source changes behind the copy; only some lanes copy. */
             "mov.u32 %r18, %r1;\nmov.u32 %r19, %r18;\nadd.s32 %r18, %r18, 1;\nsetp.ge.u32 %p3, %r1, 9;\n"
             "not.pred %p4, %p3;\nnot.pred %p5, %p4;\nmov.u32 %r20, 50;\n@%p4 mov.u32 %r20, %r18;\n"
             "selp.b32 %r21, 1, 2, %p5;\nmov.pred %p6, %p4;\n@!%p6 add.s32 %r21, %r21, 10;\n"
             "mul.wide.u32 %rd10, %r1, 32;\nadd.s64 %rd10, %rd1, %rd10;\n"
             "st.global.v4.u32 [%rd10], {%r10, %r11, %r16, %r17};\n"
             "st.global.v4.u32 [%rd10+16], {%r18, %r19, %r20, %r21};\n" PTX_END,
             (gpu_launch){ .block = { 32 } });
    for (uint32_t t = 0; t < 32; t++) {
        const uint32_t want[8] = { t + 7, 100, 9, 12, t + 1, t, t >= 9 ? 50 : t + 1, t >= 9 ? 11 : 2 };
        assert_memory_equal(case_out + 8 * t, want, sizeof want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid_of_two_dimensions),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_function_unfolded_twice),
        cmocka_unit_test(test_local_memory),
        cmocka_unit_test(test_variables_of_the_module),
        cmocka_unit_test(test_shared_memory_lies_in_order),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_signed_bytes),
        cmocka_unit_test(test_guards_and_loops),
        cmocka_unit_test(test_lanes_meet_behind_a_choice),
        cmocka_unit_test(test_lanes_meet_behind_loops),
        cmocka_unit_test(test_votes_of_parts),
        cmocka_unit_test(test_a_part_waits_for_all_of_its_own),
        cmocka_unit_test(test_shuffles_of_segments),
        cmocka_unit_test(test_lanes_wait_for_each_other),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_mma),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_wgmma),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_wide_sources),
        cmocka_unit_test(test_values_live_across_a_loop),
    };
    return cmocka_run_group_tests(tests, case_setup, NULL);
}

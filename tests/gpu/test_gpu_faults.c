/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the software GPU judges programs: what a device would fault for, or hang in, ends the launch with a sentence that
 * names the kernel and the line; copies in the background come as late as they may; what nobody wrote is rubbish.
 * Beside each fault stands the nearest program that is right, which must run.
 */
#include "gpu/ptx_case.h"

/* One instruction at %rd10, that far from the beginning of the array; words NULL: must end well. */
static void access_at(uint8_t *array, int offset, const char *line, const char *words) {
    char             text[2048];
    const void      *params[2] = { case_out, array };
    const gpu_launch l = { .params = params };
    snprintf(text, sizeof text, "%sadd.s64 %%rd10, %%rd2, %d;\n%s // here\n%s", PTX_HEAD PTX_BEGIN, offset, line,
             PTX_END);
    if (words)
        case_fails(text, l, words);
    else
        case_run(text, l);
}

static void test_global_bounds(void **state) {
    (void)state;
    uint8_t *all = aligned_alloc(64, 256), *array = all + 64;
    memset(all, 1, 256);
    gpu_memory_add(array, 63);
    access_at(array, 62, "ld.global.u8 %rs1, [%rd10];", NULL);
    access_at(array, 63, "ld.global.u8 %rs1, [%rd10];", "1 bytes at");
    access_at(array, 0, "st.global.u8 [%rd10], 1;", NULL);
    access_at(array, -1, "st.global.u8 [%rd10], 1;", "where nothing is");
    access_at(array, 56, "ld.global.u32 %r10, [%rd10];", NULL);
    access_at(array, 60, "ld.global.u32 %r10, [%rd10];", "4 bytes at");
    access_at(array, 60, "ld.u32 %r10, [%rd10];", "4 bytes at"); /* generic */
    access_at(array, 32, "ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd10];", NULL);
    access_at(array, 48, "ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd10];", "16 bytes at");
    access_at(array, 60, "red.global.add.u32 [%rd10], 1;", "4 bytes at");
    access_at(array, 8, "ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd10];", "not a multiple");
    access_at(array, 4, "ld.global.u64 %rd11, [%rd10];", "not a multiple");
    access_at(array, 2, "ld.global.v2.u16 {%rs1, %rs2}, [%rd10];", "not a multiple");
    access_at(array, 2, "st.global.u16 [%rd10], 1;", NULL);
    /* Gone: from one launch to the next. */
    gpu_memory_remove(array);
    access_at(array, 0, "ld.global.u8 %rs1, [%rd10];", "where nothing is");
    free(all);
}

/* The sentence says whose lane it was. */
static void test_one_lane_of_many(void **state) {
    (void)state;
    uint32_t   *array = aligned_alloc(64, 4096);
    const void *params[2] = { case_out, array };
    gpu_memory_add(array, 100 * 4);
    memset(array, 0, 4096);
    static const char text[] = PTX_HEAD PTX_BEGIN "ld.global.u32 %r10, [%rd4]; // here\n" PTX_END;
    case_fails(text, (gpu_launch){ .grid = { 1 }, .block = { 101 }, .params = params }, "k, block 0, warp 3, ");
    case_run(text, (gpu_launch){ .grid = { 5 }, .block = { 20 }, .params = params });
    gpu_memory_remove(array);
    free(array);
}

static void test_null(void **state) {
    (void)state;
    access_at(NULL, 0, "ld.global.u32 %r10, [%rd10];", "where nothing is");
    access_at(NULL, 0, "ld.u32 %r10, [%rd10];", "where nothing is");
    access_at(NULL, -4, "ld.global.u32 %r10, [%rd10];", "where nothing is");
    access_at(NULL, 8, "st.global.u64 [%rd10], %rd1;", "where nothing is");
    access_at(NULL, 0, "ld.shared.u32 %r10, [%rd10];", "shared memory");
    /* -4 also right behind an access that is fine, whose place is remembered. */
    case_fails(PTX_HEAD PTX_BEGIN
               "ld.global.u32 %r10, [%rd2];\nmov.u64 %rd10, -4;\nst.global.u32 [%rd10], %r10; // here\n" PTX_END,
               (gpu_launch){ 0 }, "4 bytes at");
}

static void test_gone_while_it_runs(void **state) {
    (void)state;
    static const char text[] = PTX_HEAD PTX_BEGIN
        "ld.global.u32 %r10, [%rd2];\nst.global.u32 [%rd3], %r10;\n"
        "ld.global.u32 %r10, [%rd2];\ngriddepcontrol.wait;\nld.global.u32 %r11, [%rd2]; // here\n" PTX_END;
    uint32_t   *array = aligned_alloc(64, 64);
    const void *params[2] = { case_out, array };
    array[0] = 11;
    for (int gone = 0; gone < 2; gone++) {
        gpu_launch   l = { .params = params };
        gpu_module  *m;
        gpu_started *s;
        err          e = { 0 };
        gpu_memory_add(array, 64);
        case_open(&m, text, &l, &e);
        assert_int_equal(gpu_start(&s, &case_chip, &l, true, &e), 0);
        assert_int_equal(case_out[0], 11);
        if (gone) gpu_memory_remove(array);
        const int rc = gpu_finish(s, &e);
        if (gone)
            case_is_fault(rc, &e, text, "where nothing is");
        else
            assert_int_equal(rc, 0);
        gpu_module_free(m);
        if (!gone) gpu_memory_remove(array);
    }
    free(array);
}

static void test_own_memory_bounds(void **state) {
    (void)state;
    static const struct {
        const char *insn, *words;
    } cases[] = {
        { "ld.shared.u32 %r10, [dyn+60];", NULL },
        { "ld.shared.u32 %r10, [dyn+64];", "4 bytes at 64 of 64" },
        { "ld.shared.u8 %rs1, [dyn+64];", "1 bytes at 64 of 64" },
        { "st.shared.v4.u32 [dyn+48], {%r1,%r1,%r1,%r1};", NULL },
        { "st.shared.v4.u32 [dyn+64], {%r1,%r1,%r1,%r1};", "shared memory" },
        { "st.shared.v2.u32 [dyn+4], {%r1,%r1};", "not a multiple" },
        { "st.shared.u32 [dyn-4], %r1;", "shared memory" },
        { "st.u32 [%rd11+60], %r1;", NULL },
        { "st.u32 [%rd11+64], %r1;", "shared memory" },
        { "atom.shared.add.u32 %r10, [dyn+64], 1;", "shared memory" },
        { "st.local.u32 [mine+12], %r1;", NULL },
        { "st.local.u32 [mine+16], %r1;", "its own memory" },
        { "st.local.u32 [mine-4], %r1;", "its own memory" },
        { "st.u32 [%rd12+16], %r1;", "its own memory" },
        { "st.u32 [%rd12-4], %r1;", "shared memory" },
        { "ld.param.u32 %r10, [k_in+4];", NULL },
        { "ld.param.u32 %r10, [k_in+8];", "parameters" },
        { "ld.param.u32 %r10, [k_out-4];", "parameters" },
        { "st.param.u32 [k_in], %r10;", "parameters" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "%s.local .align 16 .b8 mine[16];\nmov.u64 %%rd10, dyn;\ncvta.shared.u64 %%rd11, %%rd10;\n"
                 "mov.u64 %%rd10, mine;\ncvta.local.u64 %%rd12, %%rd10;\n%s // here\n%s",
                 PTX_HEAD PTX_BEGIN, cases[k].insn, PTX_END);
        if (cases[k].words)
            case_fails(text, (gpu_launch){ .smem = 64 }, cases[k].words);
        else
            case_run(text, (gpu_launch){ .smem = 64 });
    }
}

/* ---- waiting ---- */

static void test_barriers(void **state) {
    (void)state;
    case_fails(PTX_HEAD PTX_BEGIN "bar.sync 1, 48; // here\n" PTX_END, (gpu_launch){ .block = { 64 } },
               "barrier 1 of 48 threads");
    case_fails(PTX_HEAD PTX_BEGIN "bar.sync 16; // here\n" PTX_END, (gpu_launch){ .block = { 64 } }, "barrier 16");
    /* Three warps at a barrier of two. */
    case_fails(PTX_HEAD PTX_BEGIN "bar.sync 1, 64; // here\n" PTX_END, (gpu_launch){ .block = { 96 } },
               "waits forever");
    /* Two opinions how many. */
    case_fails(PTX_HEAD PTX_BEGIN
               "setp.lt.u32 %p1, %r1, 32;\nselp.b32 %r10, 64, 96, %p1;\nbar.sync 2, %r10; // here\n" PTX_END,
               (gpu_launch){ .block = { 64 } }, "by");
    /* One warp is at another barrier, or gone. */
    case_fails(PTX_HEAD PTX_BEGIN "shr.u32 %r10, %r1, 5;\nbar.sync %r10; // here\n" PTX_END,
               (gpu_launch){ .block = { 64 } }, "waits forever");
    case_fails(PTX_HEAD PTX_BEGIN "setp.ge.u32 %p1, %r1, 32;\n@%p1 ret;\nbar.sync 3, 64; // here\n" PTX_END,
               (gpu_launch){ .block = { 64 } }, "waits forever");
    /* A lane that is named does not come. */
    case_fails(PTX_HEAD PTX_BEGIN
               "setp.eq.u32 %p1, %r1, 5;\n@%p1 bra $L_never;\nbar.warp.sync -1; // here\nret;\n$L_never:\n"
               "bra $L_never;\n}\n",
               (gpu_launch){ .block = { 32 } }, "waits forever");
    /* What one part hands over with bar.arrive the other has behind bar.sync, round after round. */
    case_run(
        PTX_HEAD PTX_BEGIN
        "mov.u32 %r10, 0;\nmov.u32 %r20, 0;\nsetp.ge.u32 %p1, %r1, 32;\nshl.b32 %r11, %r1, 2;\nmov.u32 %r12, dyn;\n"
        "add.s32 %r12, %r12, %r11;\n@%p1 bra $L_takes;\n$L_gives:\nmad.lo.s32 %r13, %r10, 100, %r1;\n"
        "st.shared.u32 [%r12], %r13;\nbar.arrive 1, 64;\nbar.sync 2, 64;\nadd.s32 %r10, %r10, 1;\n"
        "setp.lt.u32 %p2, %r10, 9;\n@%p2 bra $L_gives;\nret;\n$L_takes:\nbar.sync 1, 64;\n"
        "ld.shared.u32 %r13, [%r12-128];\nbar.arrive 2, 64;\nadd.s32 %r20, %r20, %r13;\n"
        "add.s32 %r10, %r10, 1;\nsetp.lt.u32 %p2, %r10, 9;\n@%p2 bra $L_takes;\n"
        "st.global.u32 [%rd3], %r20;\n" PTX_END,
        (gpu_launch){ .block = { 64 }, .smem = 128 });
    for (uint32_t t = 0; t < 32; t++) assert_int_equal(case_out[32 + t], 3600 + 9 * t);
    /* Lanes of a warp that come to it one part behind the other. */
    case_run(PTX_HEAD PTX_BEGIN
             "and.b32 %r10, %r1, 31;\nsetp.ge.u32 %p1, %r10, 24;\nmov.u32 %r11, dyn;\nshl.b32 %r12, %r1, 2;\n"
             "add.s32 %r12, %r11, %r12;\nxor.b32 %r13, %r1, 63;\nshl.b32 %r13, %r13, 2;\nadd.s32 %r13, %r11, %r13;\n"
             "mov.u32 %r14, 0;\n@%p1 bra $L_late;\n$L_here:\nst.shared.u32 [%r12], %r1;\nbarrier.sync 0;\n"
             "ld.shared.u32 %r15, [%r13];\nst.global.u32 [%rd3], %r15;\nret;\n$L_late:\n"
             "add.s32 %r14, %r14, 1;\nsetp.lt.u32 %p2, %r14, 9;\n@%p2 bra $L_late;\nbra $L_here;\n}\n",
             (gpu_launch){ .block = { 64 }, .smem = 256 });
    for (uint32_t t = 0; t < 64; t++) assert_int_equal(case_out[t], 63 - t);
    /* Votes of the whole block. */
    case_run(PTX_HEAD PTX_BEGIN
             "setp.eq.u32 %p1, %r1, 70;\nbar.red.popc.u32 %r10, 0, !%p1;\nbar.red.or.pred %p2, 0, %p1;\n"
             "selp.b32 %r11, 1000, 0, %p2;\nadd.s32 %r10, %r10, %r11;\nbar.red.popc.u32 %r12, 0, %p1;\nmad.lo.s32 "
             "%r10, %r12, 10000, %r10;\n"
             "setp.ne.u32 %p3, 0, 0;\nbar.red.or.pred %p4, 0, %p3;\n@%p4 add.s32 %r10, %r10, 5;\nst.global.u32 [%rd3], "
             "%r10;\n" PTX_END,
             (gpu_launch){ .block = { 96 } });
    for (int t = 0; t < 96; t++) assert_int_equal(case_out[t], 11095);
}

static void test_block_that_waits_for_another(void **state) {
    (void)state;
    /* Each says that it is there, then waits for the other: only a cluster promises that both are. */
    static const char text[] = PTX_HEAD PTX_BEGIN
        "mov.u32 %r10, 1;\nst.volatile.global.u32 [%rd4], %r10;\nxor.b32 %r11, %r2, 1;\n"
        "mul.wide.u32 %rd10, %r11, 4;\nadd.s64 %rd10, %rd2, %rd10;\n"
        "$L_wait: ld.volatile.global.u32 %r12, [%rd10]; setp.eq.u32 %p1, %r12, 0; @%p1 bra $L_wait; // here\n"
        "st.global.u32 [%rd3], %r12;\n" PTX_END;
    memset(case_in, 0, 8);
    case_fails(text, (gpu_launch){ .grid = { 2 } }, "waits forever");
    memset(case_in, 0, 8);
    case_run(text, (gpu_launch){ .grid = { 2 }, .cluster = 2 });
    assert_int_equal(case_out[0], 1);
    assert_int_equal(case_out[1], 1);
}

static void test_long_loop(void **state) {
    (void)state;
    /* Nothing that others could see happens for millions of instructions, and yet it ends. */
    case_run(PTX_HEAD PTX_BEGIN "mov.u32 %r10, 0;\n$L_count:\nadd.s32 %r10, %r10, 1;\nsetp.lt.u32 %p1, %r10, 4000000;\n"
                                "@%p1 bra $L_count;\nst.global.u32 [%rd3], %r10;\n" PTX_END,
             (gpu_launch){ 0 });
    assert_int_equal(case_out[0], 4000000);
}

/* ---- barriers in memory ---- */

static void test_mbarrier_rounds(void **state) {
    (void)state;
    /* Warp 0 fills 32 words, warp 1 takes them: two barriers, seven rounds, parities. */
    case_run(
        PTX_HEAD PTX_BEGIN
        ".shared .align 8 .b8 bars[16];\n.reg .pred done;\nmov.u32 %r10, bars;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra "
        "$L_begin;\n"
        "mbarrier.init.shared.b64 [%r10], 32;\nmbarrier.init.shared.b64 [%r10+8], 32;\n$L_begin:\nbar.sync 0;\n"
        "mov.u32 %r11, 0;\nmov.u32 %r12, dyn;\nand.b32 %r13, %r1, 31;\nshl.b32 %r14, %r13, 2;\n"
        "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra $L_takes;\nadd.s32 %r15, %r12, %r14;\n"
        "$L_gives:\nand.b32 %r16, %r11, 1;\nxor.b32 %r16, %r16, 1;\n"
        "$L_empty:\nmbarrier.try_wait.parity.shared.b64 done, [%r10+8], %r16;\n@!done bra $L_empty;\n"
        "mad.lo.s32 %r17, %r11, 1000, %r1;\nst.shared.u32 [%r15], %r17;\nmbarrier.arrive.shared.b64 _, [%r10];\n"
        "add.s32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 7;\n@%p2 bra $L_gives;\nret;\n"
        "$L_takes:\nxor.b32 %r14, %r14, 124;\nadd.s32 %r15, %r12, %r14;\n"
        "$L_round:\nand.b32 %r16, %r11, 1;\n"
        "$L_full:\nmbarrier.try_wait.parity.shared.b64 done, [%r10], %r16;\n@!done bra $L_full;\n"
        "ld.shared.u32 %r17, [%r15];\nmbarrier.arrive.shared.b64 _, [%r10+8];\n"
        "shl.b32 %r18, %r11, 5;\nadd.s32 %r18, %r18, %r13;\nmul.wide.u32 %rd10, %r18, 4;\nadd.s64 %rd10, %rd1, %rd10;\n"
        "st.global.u32 [%rd10], %r17;\nadd.s32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 7;\n@%p2 bra $L_round;\n" PTX_END,
        (gpu_launch){ .block = { 64 }, .smem = 128 });
    for (uint32_t i = 0; i < 7 * 32; i++) assert_int_equal(case_out[i], i / 32 * 1000 + 31 - i % 32);
}

#define MBAR_INIT(n) ".shared .align 8 .b8 bar[8];\nmov.u32 %r10, bar;\nmbarrier.init.shared.b64 [%r10], " n ";\n"

static void test_mbarrier_counts(void **state) {
    (void)state;
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") "mbarrier.arrive.shared.b64 _, [%r10], 2; // here\n" PTX_END,
               (gpu_launch){ 0 }, "2 arrive where 1 of 1 are missing");
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 16;\n"
                                                 "mbarrier.arrive.shared.b64 _, [%r10]; // here\n" PTX_END,
               (gpu_launch){ 0 }, "1 arrive where 0 of 1 are missing");
    case_fails(PTX_HEAD PTX_BEGIN "mbarrier.init.shared.b64 [dyn], 0; // here\n" PTX_END, (gpu_launch){ .smem = 8 },
               "a barrier of 0");
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT(
                   "2") "mbarrier.arrive.shared.b64 _, [%r10];\n$L_wait: "
                        "mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0; @!%p1 bra $L_wait; // here\n" PTX_END,
               (gpu_launch){ 0 }, "waits forever");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_global_bounds),
        cmocka_unit_test(test_one_lane_of_many),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_gone_while_it_runs),
        cmocka_unit_test(test_own_memory_bounds),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_block_that_waits_for_another),
        cmocka_unit_test(test_long_loop),
        cmocka_unit_test(test_mbarrier_rounds),
        cmocka_unit_test(test_mbarrier_counts),
    };
    return cmocka_run_group_tests(tests, case_setup, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time on the software GPU: copies in the background come as late as they may and read their source then, a kernel
 * begins before the one in front has ended, blocks of a cluster meet, and what nobody has written yet is rubbish.
 */
#include "gpu/ptx_case.h"

#define MBAR_INIT(n)                                                                                                   \
    ".shared .align 8 .b8 bar[8];\nmov.u32 %r10, bar;\nmov.u32 %r11, dyn;\nmbarrier.init.shared.b64 [%r10], " n ";\n"
#define MBAR_ASK(to, parity)                                                                                           \
    "mbarrier.test_wait.parity.shared.b64 %p1, [%r10], " parity ";\nselp.b32 " to ", 1, 0, %p1;\n"
#define MBAR_WAIT "$L_wait:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0;\n@!%p1 bra $L_wait;\n"
#define MBAR_EXPECT "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], "
#define BULK "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
#define CLUSTER_SYNC "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"

/* ---- copies ---- */

static void test_copies_wait_for_their_group(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 12 * 32; i++) case_in[i] = 1000 + i;
    /* Three groups of 16 bytes into a lane's 48, the third of which brings 4 of its 16 and zeros. */
    case_run(PTX_HEAD PTX_BEGIN
             "mov.u32 %r10, dyn;\nmul.lo.s32 %r11, %r1, 48;\nadd.s32 %r11, %r10, %r11;\nadd.s32 %r12, %r11, 16;\n"
             "add.s32 %r13, %r11, 32;\nst.shared.u32 [%r11], 7;\nst.shared.u32 [%r12], 8;\n"
             "st.shared.v2.u32 [%r13], {9, 10};\nmul.wide.u32 %rd10, %r1, 48;\nadd.s64 %rd11, %rd2, %rd10;\n"
             "add.s64 %rd12, %rd11, 16;\nadd.s64 %rd13, %rd11, 32;\nmov.u32 %r14, 4;\n"
             "cp.async.cg.shared.global [%r11], [%rd11], 16;\ncp.async.commit_group;\n"
             "cp.async.cg.shared.global [%r12], [%rd12], 16;\ncp.async.commit_group;\n"
             "cp.async.cg.shared.global [%r13], [%rd13], 16, %r14;\ncp.async.commit_group;\n"
             "ld.shared.u32 %r20, [%r11];\nld.shared.u32 %r21, [%r12];\n"
             "cp.async.wait_group 2;\nld.shared.u32 %r22, [%r11];\nld.shared.u32 %r23, [%r12];\n"
             "ld.shared.u32 %r24, [%r13];\ncp.async.wait_group 1;\nld.shared.u32 %r25, [%r12+12];\n"
             "ld.shared.u32 %r26, [%r13+4];\ncp.async.wait_group 0;\nld.shared.v2.u32 {%r27, %r28}, [%r13];\n"
             "mul.wide.u32 %rd10, %r1, 64;\nadd.s64 %rd10, %rd1, %rd10;\n"
             "st.global.v4.u32 [%rd10], {%r20, %r21, %r22, %r23};\n"
             "st.global.v4.u32 [%rd10+16], {%r24, %r25, %r26, %r27};\nst.global.u32 [%rd10+32], %r28;\n" PTX_END,
             (gpu_launch){ .block = { 32 }, .smem = 48 * 32 });
    for (uint32_t t = 0; t < 32; t++) {
        const uint32_t first = 1000 + 12 * t;
        const uint32_t want[9] = { 7, 8, first, 8, 9, first + 7, 10, first + 8, 0 };
        assert_memory_equal(case_out + 16 * t, want, sizeof want);
    }
}

static void test_bulk_copy_is_late(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 32; i++) case_in[i] = 100 + i;
    /* Old until the phase is over, and then what lies at the source by now. */
    case_run(PTX_HEAD PTX_BEGIN MBAR_INIT(
                 "1") "st.shared.u32 [%r11], 5;\n" MBAR_EXPECT "64;\n" BULK
                      "[%r11], [%rd2], 64, [%r10];\nld.shared.u32 %r20, [%r11];\n"
                      "st.global.u32 [%rd2], 999;\n" MBAR_WAIT
                      "ld.shared.u32 %r21, [%r11];\nld.shared.u32 %r22, [%r11+60];\n"
                      "st.global.u32 [%rd1], %r20;\nst.global.v2.u32 [%rd1+8], {%r21, %r22};\n" PTX_END,
             (gpu_launch){ .smem = 64 });
    assert_int_equal(case_out[0], 5);
    assert_int_equal(case_out[2], 999);
    assert_int_equal(case_out[3], 115);
}

static void test_a_barrier_brings_its_own_copies(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) case_in[i] = 100 + i;
    /* Two barriers: behind the wait for the second copy the first one may still be under way. */
    case_run(
        PTX_HEAD PTX_BEGIN MBAR_INIT("1") "add.s32 %r12, %r11, 16;\nadd.s32 %r13, %r11, 32;\nadd.s64 %rd10, %rd2, 16;\n"
                                          "mbarrier.init.shared.b64 [%r13], 1;\nst.shared.u32 [%r12], 5;\n"
                                          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r13], 16;\n" BULK
                                          "[%r12], [%rd10], 16, [%r13];\n" MBAR_EXPECT "16;\n" BULK
                                          "[%r11], [%rd2], 16, [%r10];\n" MBAR_WAIT "ld.shared.u32 %r20, [%r11];\n"
                                          "ld.shared.u32 %r21, [%r12];\n$L_other:\n"
                                          "mbarrier.try_wait.parity.shared.b64 %p1, [%r13], 0;\n@!%p1 bra $L_other;\n"
                                          "ld.shared.u32 %r22, [%r12];\n"
                                          "st.global.v4.u32 [%rd1], {%r20, %r21, %r22, %r22};\n" PTX_END,
        (gpu_launch){ .smem = 40 });
    const uint32_t want[3] = { 100, 5, 104 };
    assert_memory_equal(case_out, want, sizeof want);
}

static void test_phase_wants_all_its_bytes(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 32; i++) case_in[i] = 100 + i;
    /* 96 bytes are expected; 64 are not enough, and the next phase needs its own. */
    case_run(PTX_HEAD PTX_BEGIN MBAR_INIT("1") "add.s64 %rd10, %rd2, 64;\nadd.s32 %r12, %r11, 64;\n" MBAR_EXPECT
                                               "96;\n" BULK "[%r11], [%rd2], 64, [%r10];\n" MBAR_ASK("%r20", "0") BULK
             "[%r12], [%rd10], 32, [%r10];\n" MBAR_ASK("%r21", "0") MBAR_ASK("%r22", "1") MBAR_EXPECT
             "16;\n" MBAR_ASK("%r23", "1") BULK "[%r11], [%rd10], 16, [%r10];\n" MBAR_ASK("%r24", "1")
                 MBAR_ASK("%r25", "0") "ld.shared.u32 %r26, [%r11];\nld.shared.u32 %r27, [%r12+28];\n"
                                       "st.global.v4.u32 [%rd1], {%r20, %r21, %r22, %r23};\n"
                                       "st.global.v4.u32 [%rd1+16], {%r24, %r25, %r26, %r27};\n" PTX_END,
             (gpu_launch){ .smem = 96 });
    const uint32_t want[8] = { 0, 1, 0, 0, 1, 0, 116, 123 };
    assert_memory_equal(case_out, want, sizeof want);
}

static void test_bulk_copies_that_are_wrong(void **state) {
    (void)state;
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") MBAR_EXPECT "64;\n" BULK
                                                             "[%r11], [%rd2], 64, [%r10]; // here\n" PTX_END,
               (gpu_launch){ .smem = 64 }, "still copying");
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") MBAR_EXPECT "64;\n" BULK
                                                             "[%r11], [%rd2], 64, [%r10]; // here\n" MBAR_WAIT PTX_END,
               (gpu_launch){ .smem = 48 }, "64 bytes to");
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") MBAR_EXPECT "24;\n" BULK
                                                             "[%r11], [%rd2], 24, [%r10]; // here\n" MBAR_WAIT PTX_END,
               (gpu_launch){ .smem = 64 }, "multiples of 16");
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") "add.s64 %rd2, %rd2, 8;\n" MBAR_EXPECT "16;\n" BULK
                                                 "[%r11], [%rd2], 16, [%r10]; // here\n" MBAR_WAIT PTX_END,
               (gpu_launch){ .smem = 64 }, "multiples of 16");
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") MBAR_EXPECT "16;\nmov.u64 %rd2, 0;\n" BULK
                                                             "[%r11], [%rd2], 16, [%r10]; // here\n" MBAR_WAIT PTX_END,
               (gpu_launch){ .smem = 64 }, "where nothing is");
    /* Fewer bytes than were expected. */
    case_fails(PTX_HEAD PTX_BEGIN MBAR_INIT("1") MBAR_EXPECT
               "80;\n" BULK "[%r11], [%rd2], 64, [%r10];\n$L_wait: "
               "mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0; @!%p1 bra $L_wait; // here\n" PTX_END,
               (gpu_launch){ .smem = 64 }, "waits forever");
}

/* ---- the kernel in front ---- */

static void test_begins_early(void **state) {
    (void)state;
    /* A word read on both sides of the wait; the other kernel changes it in between. */
    static const char text[] = PTX_HEAD PTX_BEGIN
        "ld.volatile.global.u32 %r10, [%rd2];\nst.global.u32 [%rd3], %r10;\ngriddepcontrol.launch_dependents;\n"
        "griddepcontrol.wait;\nld.volatile.global.u32 %r11, [%rd2];\nst.global.u32 [%rd3+1024], %r11;\n" PTX_END;
    for (int early = 0; early < 2; early++) {
        gpu_launch   l = { .grid = { 6 }, .block = { 40 } };
        gpu_module  *m;
        gpu_started *s;
        err          e = { 0 };
        int          before = 0;
        case_open(&m, text, &l, &e);
        memset(case_out, CASE_UNTOUCHED, sizeof case_out);
        case_in[0] = 1;
        assert_int_equal(gpu_start(&s, &case_chip, &l, early, &e), 0);
        for (int i = 0; i < 240; i++) {
            before += case_out[i] == 1;
            assert_int_equal(case_out[256 + i], 0xeeeeeeee);
        }
        assert_true(early ? before >= 40 && before < 240 && before % 40 == 0 : before == 0);
        case_in[0] = 2;
        assert_int_equal(gpu_finish(s, &e), 0);
        for (int i = 0; i < 240; i++) {
            before -= case_out[i] == 1;
            assert_true(case_out[i] == 1 || case_out[i] == 2);
            assert_int_equal(case_out[256 + i], 2);
        }
        assert_int_equal(before, 0);
        gpu_module_free(m);
    }
}

/* The one behind it may begin when all of its blocks have said so; not before, if they wait first. */
static void test_lets_begin(void **state) {
    (void)state;
    static const char lets[] = PTX_HEAD  PTX_BEGIN "griddepcontrol.launch_dependents;\ngriddepcontrol.wait;\n" PTX_END,
                      waits[] = PTX_HEAD PTX_BEGIN "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\n" PTX_END,
                      leaves[] = PTX_HEAD PTX_BEGIN PTX_END;
    static const struct {
        const char *text;
        bool        may;
    } cases[] = { { lets, true }, { waits, false }, { leaves, true } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        gpu_launch   l = { .grid = { 2 }, .block = { 40 } };
        gpu_module  *m;
        gpu_started *s;
        err          e = { 0 };
        case_open(&m, cases[k].text, &l, &e);
        assert_int_equal(gpu_start(&s, &case_chip, &l, true, &e), 0);
        assert_int_equal(gpu_lets_begin(s), cases[k].may);
        assert_int_equal(gpu_finish(s, &e), 0);
        gpu_module_free(m);
    }
}

/* ---- clusters ---- */

static void test_cluster_neighbours(void **state) {
    (void)state;
    /* Two clusters of four: what the next block wrote, and who everybody is. */
    case_run(PTX_HEAD PTX_BEGIN
             "mov.u32 %r10, %cluster_ctarank;\nmov.u32 %r11, %cluster_nctarank;\nmov.u32 %r12, %clusterid.x;\n"
             "mov.u32 %r13, dyn;\nshl.b32 %r14, %r1, 2;\nadd.s32 %r13, %r13, %r14;\nadd.s32 %r15, %r4, 5000;\n"
             "st.shared.u32 [%r13], %r15;\n" CLUSTER_SYNC
             "add.s32 %r16, %r10, 1;\nand.b32 %r16, %r16, 3;\nmapa.shared::cluster.u32 %r17, %r13, %r16;\n"
             "ld.shared::cluster.u32 %r18, [%r17];\n" CLUSTER_SYNC // Now write there, and see that it came.
             "add.s32 %r19, %r15, 100000;\nst.shared::cluster.u32 [%r17], %r19;\n" CLUSTER_SYNC
             "ld.shared.u32 %r20, [%r13];\nmad.lo.s32 %r21, %r12, 100, %r11;\nmad.lo.s32 %r21, %r21, 10, %r10;\n"
             "mul.wide.u32 %rd10, %r4, 16;\nadd.s64 %rd10, %rd1, %rd10;\n"
             "st.global.v4.u32 [%rd10], {%r18, %r20, %r21, %r4};\n" PTX_END,
             (gpu_launch){ .grid = { 8 }, .block = { 48 }, .cluster = 4, .smem = 192 });
    for (uint32_t i = 0; i < 8 * 48; i++) {
        const uint32_t block = i / 48, rank = block % 4, base = block / 4 * 4, t = i % 48;
        const uint32_t want[4] = { 5000 + (base + (rank + 1) % 4) * 48 + t, 105000 + (base + (rank + 3) % 4) * 48 + t,
                                   (block / 4 * 100 + 4) * 10 + rank, i };
        assert_memory_equal(case_out + 4 * i, want, sizeof want);
    }
}

static void test_cluster_memory_faults(void **state) {
    (void)state;
    const gpu_launch two = { .grid = { 2 }, .cluster = 2, .smem = 64 };
    /* Another block's memory needs an instruction of the cluster's. */
    case_fails(PTX_HEAD PTX_BEGIN
               "mov.u32 %r10, %cluster_ctarank;\nxor.b32 %r10, %r10, 1;\nmov.u32 %r11, dyn;\n"
               "mapa.shared::cluster.u32 %r12, %r11, %r10;\nld.shared.u32 %r13, [%r12]; // here\n" CLUSTER_SYNC PTX_END,
               two, "another block's shared memory");
    case_fails(PTX_HEAD PTX_BEGIN "mov.u32 %r11, dyn;\nmapa.shared::cluster.u32 %r12, %r11, 2;\n"
                                  "ld.shared::cluster.u32 %r13, [%r12]; // here\n" CLUSTER_SYNC PTX_END,
               two, "block 2 in a cluster of 2");
    case_fails(PTX_HEAD PTX_BEGIN "mov.u32 %r11, dyn;\nmapa.shared::cluster.u32 %r12, %r11, 1;\n"
                                  "ld.shared::cluster.u32 %r13, [%r12+64]; // here\n" CLUSTER_SYNC PTX_END,
               two, "4 bytes at 64 of 64");
    /* Nobody waited for the block that reads: the other one has long ended. */
    case_fails(PTX_HEAD PTX_BEGIN
               "mov.u32 %r10, %cluster_ctarank;\nsetp.eq.u32 %p1, %r10, 0;\n@%p1 ret;\nmov.u32 %r11, 0;\n"
               "$L_long:\nadd.s32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 20000;\n@%p2 bra $L_long;\n"
               "mov.u32 %r12, dyn;\nmapa.shared::cluster.u32 %r12, %r12, 0;\n"
               "ld.shared::cluster.u32 %r13, [%r12]; // here\n" PTX_END,
               two, "a block that has ended");
}

static void test_cluster_barrier_of_memory(void **state) {
    (void)state;
    /* All four arrive at the barrier of block 0, which waits for them and reads what they put into its memory. */
    case_run(PTX_HEAD PTX_BEGIN MBAR_INIT(
                 "4") "fence.mbarrier_init.release.cluster;\nmov.u32 %r12, %cluster_ctarank;\n" CLUSTER_SYNC
                      "mapa.shared::cluster.u32 %r13, %r10, 0;\nmapa.shared::cluster.u32 %r14, %r11, 0;\n"
                      "shl.b32 %r15, %r12, 2;\nadd.s32 %r14, %r14, %r15;\nadd.s32 %r16, %r12, 70;\n"
                      "st.shared::cluster.u32 [%r14], %r16;\nmbarrier.arrive.shared::cluster.b64 _, [%r13];\n"
                      "setp.ne.u32 %p2, %r12, 0;\n@%p2 bra $L_end;\n" MBAR_WAIT
                      "ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r11];\n"
                      "st.global.v4.u32 [%rd1], {%r20, %r21, %r22, %r23};\n$L_end:\n" CLUSTER_SYNC PTX_END,
             (gpu_launch){ .grid = { 4 }, .cluster = 4, .smem = 16 });
    for (uint32_t k = 0; k < 4; k++) assert_int_equal(case_out[k], 70 + k);
}

static void test_multicast(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 16; i++) case_in[i] = 300 + i;
    /* One copy to blocks 0, 2 and 3 of four, each of which has a barrier of its own; block 1 gets nothing. */
    static const char      text[] =
        PTX_HEAD PTX_BEGIN MBAR_INIT("1") "st.shared.u32 [%r11+60], 9;\nmov.u32 %r12, %cluster_ctarank;\nsetp.eq.u32 "
                                          "%p2, %r12, 1;\n@%p2 bra $L_ready;\n" MBAR_EXPECT
                                          "64;\n$L_ready:\nfence.mbarrier_init.release.cluster;\n" CLUSTER_SYNC
                                          "setp.ne.u32 %p3, %r12, 2;\n@%p3 bra $L_sent;\nmov.u16 %rs1, 13;\n"
                                          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast:"
                                          ":cluster [%r11], [%rd2], 64, [%r10], %rs1; // here\n"
                                          "$L_sent:\n@%p2 bra $L_done;\n" MBAR_WAIT "$L_done:\n" CLUSTER_SYNC
                                          "ld.shared.u32 %r13, [%r11+60];\nst.global.u32 [%rd3], %r13;\n" PTX_END;
    case_run(text, (gpu_launch){ .grid = { 4 }, .cluster = 4, .smem = 64 });
    for (int k = 0; k < 4; k++) assert_int_equal(case_out[k], k == 1 ? 9 : 315);
    case_fails(text, (gpu_launch){ .grid = { 3 }, .cluster = 3, .smem = 64 }, "blocks 0xd in a cluster of 3");
}

/* ---- what nobody wrote ---- */

static void test_rubbish(void **state) {
    (void)state;
    /* Shared memory of 64 + 64 words and a lane's own, read first and then cleared, block after block. */
    case_run(
        PTX_HEAD PTX_BEGIN
        ".shared .align 4 .b8 fixed[256];\n.local .align 4 .b8 mine[4];\nmov.u32 %r10, fixed;\nmov.u32 %r11, dyn;\n"
        "shl.b32 %r12, %r1, 2;\nadd.s32 %r10, %r10, %r12;\nadd.s32 %r11, %r11, %r12;\n"
        "ld.shared.u32 %r13, [%r10];\nld.shared.u32 %r14, [%r11];\nld.local.u32 %r15, [mine];\n"
        "st.shared.u32 [%r10], 0;\nst.shared.u32 [%r11], 0;\nst.local.u32 [mine], 0;\n"
        "mul.wide.u32 %rd10, %r4, 16;\nadd.s64 %rd10, %rd1, %rd10;\n"
        "st.global.v4.u32 [%rd10], {%r13, %r14, %r15, %r16};\n" PTX_END,
        (gpu_launch){ .grid = { 8 }, .block = { 64 }, .smem = 256 });
    for (int i = 0; i < 4 * 8 * 64; i++) assert_true(case_out[i] != 0 && case_out[i] != 0xeeeeeeee);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_wait_for_their_group),
        cmocka_unit_test(test_bulk_copy_is_late),
        cmocka_unit_test(test_a_barrier_brings_its_own_copies),
        cmocka_unit_test(test_phase_wants_all_its_bytes),
        cmocka_unit_test(test_bulk_copies_that_are_wrong),
        cmocka_unit_test(test_begins_early),
        cmocka_unit_test(test_lets_begin),
        cmocka_unit_test(test_cluster_neighbours),
        cmocka_unit_test(test_cluster_memory_faults),
        cmocka_unit_test(test_cluster_barrier_of_memory),
        cmocka_unit_test(test_multicast),
        cmocka_unit_test(test_rubbish),
    };
    return cmocka_run_group_tests(tests, case_setup, NULL);
}

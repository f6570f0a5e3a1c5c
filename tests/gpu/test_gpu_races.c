/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The race detector: for each kind of order a program that has it, which must run, and the same program without, which
 * must end with a sentence that names both accesses. In which order the machine happens to run them has no part in it.
 */
#include "gpu/ptx_case.h"

/* How the two differ: what stands in the program that is right and in the one that is not. */
typedef struct order {
    const char *right, *wrong;
} order;

static void fill(char *text, size_t bytes, const char *form, const char *between) {
    const char *at = strstr(form, "<>");
    assert_non_null(at);
    snprintf(text, bytes, "%s%.*s%s%s", PTX_HEAD PTX_BEGIN, (int)(at - form), form, between, at + 2);
}

static int line_of(const char *text, const char *mark) {
    const char *end = strstr(text, mark);
    int         line = 1;
    assert_non_null(end);
    for (const char *p = text; p < end; p++) line += *p == '\n';
    return line;
}

/* The sentence names both lines; which of them came second is chance. */
static void names_both(const char *text, const char *msg) {
    const int a = line_of(text, "// one"), b = strstr(text, "// other") ? line_of(text, "// other") : a;
    char      either[2][2][32];
    snprintf(either[0][0], 32, ", line %d, ", a);
    snprintf(either[0][1], 32, " in line %d, ", b);
    snprintf(either[1][0], 32, ", line %d, ", b);
    snprintf(either[1][1], 32, " in line %d, ", a);
    for (int k = 0; k < 2; k++) {
        if (strstr(msg, either[k][0]) && strstr(msg, either[k][1])) return;
    }
    fail_msg("\"%s\", not of lines %d and %d", msg, a, b);
}

/* `<>` in the form is where the order stands; `// one`, `// other` the lines that are found in the wrong one. */
static void judge(const char *form, order o, gpu_launch l, const char *words) {
    char text[8192];
    err  e = { 0 };
    fill(text, sizeof text, form, o.right);
    case_run(text, l);
    fill(text, sizeof text, form, o.wrong);
    if (case_try(text, l, &e) != ERR_LOST || strncmp(e.msg, "k, ", 3) != 0 || !strstr(e.msg, ": a race: lane ") ||
        !strstr(e.msg, words))
        fail_msg("\"%s\", not \"%s\"", e.msg, words);
    names_both(text, e.msg);
}

/* %r10 the thread's word of shared memory, %r11 that of thread xor n. */
#define WORDS(n)                                                                                                       \
    "mov.u32 %r12, dyn;\nshl.b32 %r10, %r1, 2;\nadd.s32 %r10, %r12, %r10;\nxor.b32 %r11, %r1, " n                      \
    ";\nshl.b32 %r11, %r11, 2;\nadd.s32 %r11, %r12, %r11;\n"
#define CLUSTER_SYNC "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
#define MBAR_WAIT "$L_wait:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r30], 0;\n@!%p1 bra $L_wait;\n"
#define MBAR_INIT(n)                                                                                                   \
    ".shared .align 8 .b8 bar[8];\nmov.u32 %r30, bar;\nsetp.ne.u32 %p5, %r1, 0;\n@%p5 bra $L_ready;\n"                 \
    "mbarrier.init.shared.b64 [%r30], " n ";\nfence.proxy.async.shared::cta;\n$L_ready:\nbar.sync 0;\n"
#define BULK "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "

static const gpu_launch two_warps = { .block = { 64 }, .smem = 1024 }, one_warp = { .block = { 32 }, .smem = 1024 };

/* ---- within a block ---- */

static void test_block_barrier(void **state) {
    (void)state;
    const char *after_write =
        WORDS("32") "st.shared.u32 [%r10], %r1; // other\n<>ld.shared.u32 %r13, [%r11]; // one\n" PTX_END;
    judge(after_write, (order){ "bar.sync 0;\n", "" }, two_warps, "");
    judge(after_write, (order){ "barrier.sync 1, 64;\n", "bar.warp.sync -1;\n" }, two_warps, "");
    judge(WORDS("32") "ld.shared.u32 %r13, [%r11]; // other\n<>st.shared.u32 [%r10], %r1; // one\n" PTX_END,
          (order){ "bar.sync 0;\n", "" }, two_warps, "");
    /* Lane 7 and what it had read: both are named. */
    judge("mov.u32 %r12, dyn;\nsetp.ne.u32 %p1, %r1, 39;\n@%p1 bra $L_other;\nld.shared.u32 %r13, [%r12+8]; // "
          "other\n$L_other:\n"
          "<>setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n"
          "mov.u32 %r14, 0;\n$L_late: add.s32 %r14, %r14, 1;\nsetp.lt.u32 %p2, %r14, 9999;\n@%p2 bra $L_late;\n"
          "st.shared.u32 [%r12+8], %r1; // one\n" PTX_END,
          (order){ "bar.sync 0;\n", "" }, two_warps,
          "block 0, warp 0, line 35, st.shared.u32: a race: lane 3 writes 4 bytes at 8 of shared memory, read by lane "
          "7 of "
          "warp 1 of block 0 in line 27, ld.shared.u32");
}

static void test_barrier_of_some(void **state) {
    (void)state;
    /* Warp 0 gives and does not wait, warp 1 takes. */
    judge(WORDS("32") "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra $L_takes;\nst.shared.u32 [%r10], %r1; // other\n"
                      "bar.arrive 1, 64;\nret;\n$L_takes:\n<>ld.shared.u32 %r13, [%r11]; // one\n" PTX_END,
          (order){ "bar.sync 1, 64;\n", "mov.u32 %r20, 0;\n$L_late: add.s32 %r20, %r20, 1;\nsetp.lt.u32 %p2, %r20, "
                                        "9999;\n@%p2 bra $L_late;\n" },
          two_warps, "");
}

static void test_lanes_of_a_warp(void **state) {
    (void)state;
    const char *form = WORDS("1") "st.shared.u32 [%r10], %r1; // other\n<>ld.shared.u32 %r13, [%r11]; // one\n" PTX_END;
    judge(form, (order){ "bar.warp.sync -1;\n", "" }, one_warp, "written by lane 1 of warp 0");
    /* Lanes that exchange values are together, which orders no memory. */
    judge(form, (order){ "bar.warp.sync -1;\n", "shfl.sync.idx.b32 %r14, %r1, 0, 31, -1;\n" }, one_warp, "a race");
    /* Halves of a warp, each by itself. */
    judge(form,
          (order){ "setp.lt.u32 %p1, %r1, 16;\nselp.b32 %r15, 0xffff, 0xffff0000, %p1;\nbar.warp.sync %r15;\n",
                   "setp.lt.u32 %p1, %r1, 16;\nselp.b32 %r15, 0xffff, 0xffff0000, %p1;\n@%p1 bar.warp.sync %r15;\n" },
          one_warp, "written by lane 17 of warp 0");
}

static void test_bytes_of_a_word(void **state) {
    (void)state;
    /* Neighbours in one word do not meet; two in one byte do. */
    judge("mov.u32 %r12, dyn;\n<>add.s32 %r12, %r12, %r13;\ncvt.u16.u32 %rs1, %r1;\n"
          "st.shared.u8 [%r12], %rs1; // one\n" PTX_END,
          (order){ "mov.u32 %r13, %r1;\n", "and.b32 %r13, %r1, 31;\n" }, two_warps, "writes 1 bytes at");
    judge("mov.u32 %r12, dyn;\n<>shl.b32 %r13, %r13, 1;\nadd.s32 %r12, %r12, %r13;\ncvt.u16.u32 %rs1, %r1;\n"
          "st.shared.u16 [%r12], %rs1; // one\n" PTX_END,
          (order){ "mov.u32 %r13, %r1;\n", "shr.u32 %r13, %r1, 1;\n" }, one_warp, "writes 2 bytes at");
}

static void test_same_value(void **state) {
    (void)state;
    /* All lanes, and both warps, write one word: the same, or each its own. */
    judge("mov.u32 %r12, dyn;\n<>st.shared.u32 [%r12], %r13; // one\n" PTX_END,
          (order){ "mov.u32 %r13, 7;\n", "mov.u32 %r13, %r1;\n" }, one_warp, "lane 1 writes 4 bytes at 0");
    judge("mov.u32 %r12, dyn;\n<>st.shared.u32 [%r12], %r13; // one\n" PTX_END,
          (order){ "mov.u32 %r13, 7;\n", "shr.u32 %r13, %r1, 5;\n" }, two_warps, "written by lane");
    /* Who reads it must be behind both of them. */
    judge("mov.u32 %r12, dyn;\nst.shared.u32 [%r12], 7; // other\n<>ld.shared.u32 %r13, [%r12]; // one\n" PTX_END,
          (order){ "bar.sync 0;\n", "" }, two_warps, "reads 4 bytes");
}

static void test_atomics_in_a_block(void **state) {
    (void)state;
    judge(
        "mov.u32 %r12, dyn;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra $L_go;\nst.shared.u32 [%r12], 0;\n$L_go:\nbar.sync 0;\n"
        "atom.shared.add.u32 %r13, [%r12], 1; // other\n<>ld.shared.u32 %r14, [%r12]; // one\n" PTX_END,
        (order){ "bar.sync 0;\n", "" }, two_warps, "changed by an atomic of lane");
}

/* ---- barriers in memory ---- */

static void test_mbarrier(void **state) {
    (void)state;
    const char *form = MBAR_INIT("32") WORDS("32") "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra $L_takes;\n"
                                                   "st.shared.u32 [%r10], %r1;\n<>ret;\n$L_takes:\n" MBAR_WAIT
                                                   "ld.shared.u32 %r13, [%r11]; // one\n" PTX_END;
    judge(form,
          (order){ "mbarrier.arrive.shared.b64 _, [%r30];\n",
                   "mbarrier.arrive.shared.b64 _, [%r30];\nst.shared.u32 [%r10], 5; // other\n" },
          two_warps, "");
    /* One lane arrives for all of the warp, which must have met. */
    const char *one =
        MBAR_INIT("1") WORDS("32") "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra $L_takes;\n"
                                   "st.shared.u32 [%r10], %r1; // other\n<>setp.ne.u32 %p2, %r1, 0;\n@%p2 ret;\n"
                                   "mbarrier.arrive.shared.b64 _, [%r30];\nret;\n$L_takes:\n" MBAR_WAIT
                                   "ld.shared.u32 %r13, [%r11]; // one\n" PTX_END;
    judge(one, (order){ "bar.warp.sync -1;\n", "" }, two_warps, "written by lane 1 of warp 0");
    /* The barrier itself must be there for all. */
    judge(".shared .align 8 .b8 bar[8];\nmov.u32 %r30, bar;\nsetp.ne.u32 %p5, %r1, 0;\n@%p5 bra $L_ready;\n"
          "mbarrier.init.shared.b64 [%r30], 64; // other\n$L_ready:\n<>mbarrier.arrive.shared.b64 _, [%r30]; // "
          "one\n" PTX_END,
          (order){ "bar.sync 0;\n", "bar.warp.sync -1;\n" }, two_warps, "");
}

static void test_rounds_of_mbarriers(void **state) {
    (void)state;
    /* Warp 0 fills 32 words, warp 1 takes them, seven rounds; without the second barrier it overwrites what is read. */
    const char *form =
        ".shared .align 8 .b8 bars[16];\nmov.u32 %r10, bars;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra $L_begin;\n"
        "mbarrier.init.shared.b64 [%r10], 32;\nmbarrier.init.shared.b64 [%r10+8], 32;\n$L_begin:\nbar.sync 0;\n"
        "mov.u32 %r11, 0;\nmov.u32 %r12, dyn;\nand.b32 %r13, %r1, 31;\nshl.b32 %r14, %r13, 2;\n"
        "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra $L_takes;\nadd.s32 %r15, %r12, %r14;\n"
        "$L_gives:\nand.b32 %r16, %r11, 1;\nxor.b32 %r16, %r16, 1;\n"
        "$L_empty:\n<>@!%p3 bra $L_empty;\n"
        "st.shared.u32 [%r15], %r1; // one\nmbarrier.arrive.shared.b64 _, [%r10];\n"
        "add.s32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 7;\n@%p2 bra $L_gives;\nret;\n"
        "$L_takes:\nxor.b32 %r14, %r14, 124;\nadd.s32 %r15, %r12, %r14;\n"
        "$L_round:\nand.b32 %r16, %r11, 1;\n"
        "$L_full:\nmbarrier.try_wait.parity.shared.b64 %p3, [%r10], %r16;\n@!%p3 bra $L_full;\n"
        "ld.shared.u32 %r17, [%r15]; // other\nmbarrier.arrive.shared.b64 _, [%r10+8];\n"
        "add.s32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 7;\n@%p2 bra $L_round;\n" PTX_END;
    /* The wrong one waits for its own barrier, of the round before: that the other warp has read nobody knows. */
    judge(
        form,
        (order){ "mbarrier.try_wait.parity.shared.b64 %p3, [%r10+8], %r16;\n",
                 "mov.u32 %r20, 0;\n$L_late: add.s32 %r20, %r20, 1;\nsetp.lt.u32 %p2, %r20, 9999;\n@%p2 bra $L_late;\n"
                 "mbarrier.try_wait.parity.shared.b64 %p3, [%r10], %r16;\n" },
        two_warps, "");
}

/* ---- copies and products ---- */

static void test_small_copies(void **state) {
    (void)state;
    const char *form = WORDS("32") "mul.wide.u32 %rd10, %r1, 4;\nadd.s64 %rd10, %rd2, %rd10;\n"
                                   "cp.async.ca.shared.global [%r10], [%rd10], 4; // other\ncp.async.commit_group;\n"
                                   "<>ld.shared.u32 %r13, [%r11]; // one\n" PTX_END;
    judge(form, (order){ "cp.async.wait_group 0;\nbar.sync 0;\n", "bar.sync 0;\n" }, two_warps,
          "a copy under way of lane");
    judge(form, (order){ "cp.async.wait_all;\nbar.sync 0;\n", "cp.async.wait_group 0;\n" }, two_warps, "");
    /* Of two groups one may be under way. */
    judge(
        WORDS(
            "0") "cp.async.ca.shared.global [%r10], [%rd4], 4;\ncp.async.commit_group;\nadd.s32 %r11, %r10, 256;\n"
                 "cp.async.ca.shared.global [%r11], [%rd4], 4; // other\ncp.async.commit_group;\n"
                 "cp.async.wait_group 1;\nld.shared.u32 %r13, [%r10];\n<>ld.shared.u32 %r13, [%r11]; // one\n" PTX_END,
        (order){ "cp.async.wait_group 0;\n", "" }, two_warps, "a copy under way of lane 0 of warp ");
    /* Told of at a barrier in memory. */
    judge(MBAR_INIT("64") WORDS("32") "mul.wide.u32 %rd10, %r1, 4;\nadd.s64 %rd10, %rd2, %rd10;\n"
                                      "cp.async.ca.shared.global [%r10], [%rd10], 4; // other\n<>" MBAR_WAIT
                                      "ld.shared.u32 %r13, [%r11]; // one\n" PTX_END,
          (order){ "cp.async.mbarrier.arrive.noinc.shared.b64 [%r30];\n", "mbarrier.arrive.shared.b64 _, [%r30];\n" },
          two_warps, "a copy under way");
}

static void test_bulk_copies(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 64; k++) case_in[k] = k;
    const char *form = MBAR_INIT("1") WORDS("32") "@%p5 bra $L_asked;\n"
                                                  "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 256;\n" BULK
                                                  "[%r12], [%rd2], 256, [%r30]; // other\n$L_asked:\n<>"
                                                  "ld.shared.u32 %r13, [%r11]; // one\n" MBAR_WAIT PTX_END;
    judge(form,
          (order){ "$L_arrived:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r30], 0;\n@!%p1 bra $L_arrived;\n",
                   "bar.sync 0;\n" },
          two_warps, "written by a bulk copy under way");
    /* Over what others have read, and over what others have written. */
    const char *over = MBAR_INIT("1") WORDS("32") "<>@%p5 bra $L_asked;\n"
                                                  "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 256;\n"
                                                  "mov.u32 %r20, 0;\n$L_late: add.s32 %r20, %r20, 1;\n"
                                                  "setp.lt.u32 %p2, %r20, 9999;\n@%p2 bra $L_late;\n" BULK
                                                  "[%r12], [%rd2], 256, [%r30]; // one\n$L_asked:\n" MBAR_WAIT PTX_END;
    judge(over, (order){ "ld.shared.u32 %r13, [%r11];\nbar.sync 0;\n", "ld.shared.u32 %r13, [%r11]; // other\n" },
          two_warps, "read by lane ");
    judge(over,
          (order){ "st.shared.u32 [%r10], %r1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n",
                   "st.shared.u32 [%r10], %r1; // other\nbar.sync 0;\n" },
          two_warps, "written by lane ");
    /* The barrier that it completes at was initialized by an ordinary write, too. */
    judge(".shared .align 8 .b8 bar[8];\nmov.u32 %r30, bar;\nmov.u32 %r12, dyn;\nsetp.ne.u32 %p5, %r1, 0;\n@%p5 ret;\n"
          "mbarrier.init.shared.b64 [%r30], 1; // other\n<>"
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 256;\n" BULK
          "[%r12], [%rd2], 256, [%r30]; // one\n" MBAR_WAIT PTX_END,
          (order){ "fence.mbarrier_init.release.cluster;\n", "" }, one_warp, "a barrier without a fence");
    /* The source, too. */
    judge(
        MBAR_INIT("1") "@%p5 ret;\nmov.u32 %r12, dyn;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 256;\n" BULK
                       "[%r12], [%rd2], 256, [%r30]; // other\n<>st.global.u32 [%rd2], 9; // one\n"
                       "$L_end: mbarrier.try_wait.parity.shared.b64 %p1, [%r30], 0;\n@!%p1 bra $L_end;\n" PTX_END,
        (order){ MBAR_WAIT, "" }, one_warp, "read by a bulk copy under way");
}

static void test_products(void **state) {
    (void)state;
    const gpu_launch l = { .block = { 128 }, .smem = 16384 };
    /* 64 x 16 by 8 x 16 from shared memory, which is then written again. */
    const char *form =
        "mov.u32 %r10, dyn;\nmov.u32 %r11, %r1;\n$L_next:\nshl.b32 %r12, %r11, 4;\nadd.s32 %r12, %r10, %r12;\n"
        "st.shared.v4.u32 [%r12], {0, 0, 0, 0}; // other\nadd.s32 %r11, %r11, 128;\nsetp.lt.u32 %p1, %r11, 576;\n"
        "@%p1 bra $L_next;\n<>bar.sync 0;\nshr.u32 %r13, %r10, 4;\ncvt.u64.u32 %rd20, %r13;\n"
        "or.b64 %rd20, %rd20, 0x4000004000010000;\nadd.s64 %rd21, %rd20, 512;\nsetp.ne.u32 %p2, 0, 0;\n"
        "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%f1,%f2,%f3,%f4}, %rd20, %rd21, %p2, 1, 1, 0, 0; // one\n"
        "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nbar.sync 0;\n" PTX_END;
    judge(form, (order){ "fence.proxy.async.shared::cta;\n", "" }, l, "written by lane ");
    const char *again = "mov.u32 %r10, dyn;\nshr.u32 %r13, %r10, 4;\ncvt.u64.u32 %rd20, %r13;\n"
                        "or.b64 %rd20, %rd20, 0x4000004000010000;\nadd.s64 %rd21, %rd20, 512;\nsetp.ne.u32 %p2, 0, 0;\n"
                        "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                        "{%f1,%f2,%f3,%f4}, %rd20, %rd21, %p2, 1, 1, 0, 0; // other\nwgmma.commit_group.sync.aligned;\n"
                        "<>bar.sync 0;\nst.shared.u32 [%r10+8192], 0; // one\n" PTX_END;
    judge(again, (order){ "wgmma.wait_group.sync.aligned 0;\n", "wgmma.wait_group.sync.aligned 1;\n" }, l,
          "read by a product under way of warp ");
}

/* ---- clusters ---- */

static void test_clusters(void **state) {
    (void)state;
    const gpu_launch l = { .grid = { 2 }, .block = { 32 }, .cluster = 2, .smem = 1024 };
    const char      *rank = "mov.u32 %r20, %cluster_ctarank;\nxor.b32 %r21, %r20, 1;\n" WORDS(
             "0") "mapa.shared::cluster.u32 %r22, %r10, %r21;\n";
    char form[4096];
    /* Read from the neighbour; a barrier of the block does not help, one that hands over shared memory alone does. */
    snprintf(form, sizeof form,
             "%sst.shared.u32 [%%r10], %%r1; // other\n<>ld.shared::cluster.u32 %%r23, [%%r22]; // one\n%s", rank,
             CLUSTER_SYNC PTX_END);
    judge(form, (order){ CLUSTER_SYNC, "bar.sync 0;\n" }, l, "");
    judge(form,
          (order){ "fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\n"
                   "barrier.cluster.wait.aligned;\nfence.acquire.sync_restrict::shared::cluster.cluster;\n",
                   "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n" },
          l, "");
    /* Global memory, and what was written to the neighbour, need all of it. */
    snprintf(form, sizeof form,
             "%sst.global.u32 [%%rd3], %%r1; // other\nxor.b32 %%r24, %%r4, 32;\nmul.wide.u32 %%rd10, %%r24, 4;\n"
             "add.s64 %%rd10, %%rd1, %%rd10;\n<>ld.global.u32 %%r23, [%%rd10]; // one\n%s",
             rank, PTX_END);
    judge(form,
          (order){ CLUSTER_SYNC,
                   "fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\n"
                   "barrier.cluster.wait.aligned;\nfence.acquire.sync_restrict::shared::cluster.cluster;\n" },
          l, "");
    snprintf(form, sizeof form,
             "%s%sst.shared::cluster.u32 [%%r22], %%r1; // other\n<>ld.shared.u32 %%r23, [%%r10]; // one\n%s", rank,
             CLUSTER_SYNC, CLUSTER_SYNC PTX_END);
    judge(form,
          (order){ CLUSTER_SYNC,
                   "fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\n"
                   "barrier.cluster.wait.aligned;\nfence.acquire.sync_restrict::shared::cluster.cluster;\n" },
          l, "");
}

/* ---- blocks ---- */

static void test_blocks(void **state) {
    (void)state;
    const gpu_launch l = { .grid = { 3 }, .block = { 64 }, .smem = 64 };
    judge("<>add.s64 %rd10, %rd1, %rd10;\nst.global.u32 [%rd10], %r4; // one\n" PTX_END,
          (order){ "mul.wide.u32 %rd10, %r4, 4;\n", "mul.wide.u32 %rd10, %r1, 4;\n" }, l, "written by lane 0 of warp ");
    /* What one block reads another one changes. */
    judge("<>add.s64 %rd10, %rd1, %rd10;\nld.global.u32 %r13, [%rd10]; // other\nst.global.u32 [%rd3], %r4; // "
          "one\n" PTX_END,
          (order){ "mul.wide.u32 %rd10, %r4, 4;\n", "mul.wide.u32 %rd10, %r1, 4;\n" }, l, "");
}

static void test_last_block(void **state) {
    (void)state;
    const gpu_launch l = { .grid = { 3 }, .block = { 64 }, .smem = 64 };
    /* All write, one counts; whoever is last reads what the others wrote. %r20 how far the count went. */
    const char *form = "st.global.u32 [%%rd3], %%r4;\n%sbar.sync 0;\nmov.u32 %%r12, dyn;\nsetp.ne.u32 %%p1, %%r1, 0;\n"
                       "@%%p1 bra $L_told;\n%satom.global.inc.u32 %%r20, [%%rd2], 2;\nst.shared.u32 [%%r12], %%r20;\n"
                       "$L_told:\nbar.sync 0;\nld.shared.u32 %%r20, [%%r12];\nsetp.ne.u32 %%p2, %%r20, 2;\n@%%p2 ret;\n"
                       "%sld.global.u32 %%r21, [%%rd1];\nld.global.u32 %%r21, [%%rd1+256];\n"
                       "ld.global.u32 %%r21, [%%rd1+512];\n%s";
    char        text[2048], whole[4096];
    static const char *const fences[][3] = {
        { "", "membar.gl;\n", "membar.gl;\n" },
        { "membar.gl;\n", "", "membar.gl;\n" },
        { "", "fence.acq_rel.gpu;\n", "fence.acq_rel.gpu;\n" },
        { "", "", "membar.gl;\n" },
        { "", "membar.gl;\n", "" },
    };
    for (int k = 0; k < 5; k++) {
        case_in[0] = 0;
        snprintf(text, sizeof text, form, fences[k][0], fences[k][1], fences[k][2], PTX_END);
        snprintf(whole, sizeof whole, "%s%s", PTX_HEAD PTX_BEGIN, text);
        if (k < 3) {
            case_run(whole, l);
        } else { /* any of the three lines, depending on which block is last */
            err e = { 0 };
            assert_int_equal(case_try(whole, l, &e), ERR_LOST);
            assert_non_null(strstr(e.msg, "written by lane 0 of warp 0 of block "));
        }
    }
    /* Acquire and release in the atomic itself. */
    case_in[0] = 0;
    snprintf(text, sizeof text, form, "", "", "", PTX_END);
    char *at = strstr(text, "atom.global.inc");
    snprintf(whole, sizeof whole, "%s%.*satom.acq_rel.gpu.global.inc%s", PTX_HEAD PTX_BEGIN, (int)(at - text), text,
             at + strlen("atom.global.inc"));
    case_run(whole, l);
}

/* ---- kernels that begin early ---- */

typedef struct chain {
    gpu_module  *m[3];
    gpu_launch   l[3];
    gpu_started *s[3];
} chain;

/* Each is started before the first has ended, then each runs to its end. */
static int run_chain(const char *const *bodies, int n, err *e) {
    chain c = { 0 };
    char  text[2048];
    int   rc = 0;
    for (int k = 0; k < n; k++) {
        c.l[k] = (gpu_launch){ .grid = { 4 }, .block = { 32 } };
        snprintf(text, sizeof text, "%s%s%s", PTX_HEAD PTX_BEGIN, bodies[k], PTX_END);
        case_open(&c.m[k], text, &c.l[k], e);
        if (rc == 0) rc = gpu_start(&c.s[k], &case_chip, &c.l[k], k > 0, e);
    }
    for (int k = 0; k < n; k++) {
        if (rc == 0)
            rc = gpu_finish(c.s[k], e);
        else
            gpu_abandon(c.s[k]);
    }
    for (int k = 0; k < n; k++) gpu_module_free(c.m[k]);
    return rc;
}

static void test_kernels_that_begin_early(void **state) {
    (void)state;
    static const char writes[] = "st.global.u32 [%rd4], %r1;\n",
                      reads[] = "griddepcontrol.wait;\nld.global.u32 %r10, [%rd4];\n",
                      early[] = "ld.global.u32 %r10, [%rd4];\ngriddepcontrol.wait;\n",
                      waits[] = "griddepcontrol.wait;\n", nothing[] = "mov.u32 %r10, 0;\n",
                      block[] = "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $L_meet;\n"
                                "griddepcontrol.wait;\n$L_meet:\nbar.sync 0;\n"
                                "ld.global.u32 %r10, [%rd4];\n";
    static const struct {
        const char *bodies[3];
        const char *words;
    } cases[] = {
        { { writes, reads }, NULL },
        { { writes, block }, NULL }, /* one thread waits for all */
        { { writes, early }, "of kernel k" },
        { { early, writes }, "of kernel k" }, /* the first need not wait; the second overwrites what it reads */
        { { writes, waits, reads }, NULL },
        { { writes, nothing, reads }, "of kernel k" }, /* the one in front has not waited itself */
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        err       e = { 0 };
        const int n = cases[k].bodies[2] ? 3 : 2, rc = run_chain(cases[k].bodies, n, &e);
        if (!cases[k].words && rc) fail_msg("%zu: %s", k, e.msg);
        if (cases[k].words && (rc != ERR_LOST || !strstr(e.msg, cases[k].words))) fail_msg("%zu: %d %s", k, rc, e.msg);
    }
}

/* ---- the switch ---- */

static void test_switched(void **state) {
    (void)state;
    const char            *text =
        PTX_HEAD PTX_BEGIN WORDS("32") "st.shared.u32 [%r10], %r1;\nld.shared.u32 %r13, [%r11];\n" PTX_END;
    setenv("HEARTH_GPU_RACES", "2", 1); /* told on stderr, and it goes on */
    case_run(text, two_warps);
    setenv("HEARTH_GPU_RACES", "0", 1);
    case_run(text, two_warps);
    unsetenv("HEARTH_GPU_RACES");
    case_run(text, two_warps);
    setenv("HEARTH_GPU_RACES", "1", 1);
    err e = { 0 };
    assert_int_equal(case_try(text, two_warps, &e), ERR_LOST);
}

static int setup(void **state) {
    setenv("HEARTH_GPU_RACES", "1", 1);
    return case_setup(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_barrier),
        cmocka_unit_test(test_barrier_of_some),
        cmocka_unit_test(test_lanes_of_a_warp),
        cmocka_unit_test(test_bytes_of_a_word),
        cmocka_unit_test(test_same_value),
        cmocka_unit_test(test_atomics_in_a_block),
        cmocka_unit_test(test_mbarrier),
        cmocka_unit_test(test_rounds_of_mbarriers),
        cmocka_unit_test(test_small_copies),
        cmocka_unit_test(test_bulk_copies),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_last_block),
        cmocka_unit_test(test_kernels_that_begin_early),
        cmocka_unit_test(test_switched),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

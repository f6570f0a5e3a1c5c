/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the machine share: a short PTX text is run on two arrays, and either must end well or with a
 * sentence that names the kernel and the line that bears the mark `// here`.
 *
 * Time goes by the number of times the machine looks at the clock. So a program that waits forever is found at once,
 * and one that must not is not excused by a slow computer.
 */
#ifndef TESTS_GPU_PTX_CASE_H
#define TESTS_GPU_PTX_CASE_H

#include "gpu/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { CASE_WORDS = 16384, CASE_UNTOUCHED = 0xee };

static const gpu_chip case_chip = { "test", 90, 4, 232448, 233472, { 16, 25 } };

/* Of the process: the machine's clock.h is inline. A hundredth of a second each time. */
int clock_gettime(clockid_t which, struct timespec *out) {
    static int64_t now;
    (void)which;
    now += 10000000;
    *out = (struct timespec){ .tv_sec = (time_t)(now / 1000000000), .tv_nsec = (long)(now % 1000000000) };
    return 0;
}

/* What a kernel of PTX_BEGIN gets as its parameters. */
static _Alignas(128) uint32_t case_out[CASE_WORDS], case_in[CASE_WORDS];

/*
 * A kernel k: %rd1 where it writes, %rd2 where it reads, %r1 thread, %r2 block, %r3 threads, %r4 the thread's number in
 * all of them, %rd3 and %rd4 its word in both.
 */
#define PTX_HEAD                                                                                                       \
    ".version 8.4\n.target sm_90a\n.address_size 64\n"                                                                 \
    ".extern .shared .align 1024 .b8 dyn[];\n"
#define PTX_REGS ".reg .pred %p<32>;\n.reg .b16 %rs<32>;\n.reg .b32 %r<128>;\n.reg .f32 %f<64>;\n.reg .b64 %rd<64>;\n"
#define PTX_BEGIN                                                                                                      \
    ".visible .entry k(\n.param .u64 k_out,\n.param .u64 k_in\n)\n{\n" PTX_REGS                                        \
    "ld.param.u64 %rd1, [k_out];\nld.param.u64 %rd2, [k_in];\n"                                                        \
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmad.lo.s32 %r4, %r2, %r3, %r1;\n"            \
    "mul.wide.u32 %rd4, %r4, 4;\nadd.s64 %rd3, %rd1, %rd4;\nadd.s64 %rd4, %rd2, %rd4;\n"
#define PTX_END "ret;\n}\n"

/* Sizes that are 0 become 1, missing parameters the two arrays; the module stays open for the caller. */
static inline int case_open(gpu_module **m, const char *text, gpu_launch *l, err *e) {
    static const void *const params[2] = { case_out, case_in };
    if (gpu_module_open(m, text, strlen(text), e) || gpu_module_kernel(&l->kernel, *m, "k", e)) fail_msg("%s", e->msg);
    for (int d = 0; d < 3; d++) {
        if (!l->grid[d]) l->grid[d] = 1;
        if (!l->block[d]) l->block[d] = 1;
    }
    if (!l->params) l->params = params;
    return 0;
}

static inline int case_try(const char *text, gpu_launch l, err *e) {
    gpu_module *m;
    case_open(&m, text, &l, e);
    const int rc = gpu_run(&case_chip, &l, e);
    gpu_module_free(m);
    return rc;
}

/* On an array out that nobody has written. */
static inline void case_run(const char *text, gpu_launch l) {
    err e = { 0 };
    memset(case_out, CASE_UNTOUCHED, sizeof case_out);
    if (case_try(text, l, &e)) fail_msg("%s", e.msg);
}

/* The sentence of a fault: which kernel, in which line, and those words. */
static inline void case_is_fault(int rc, const err *e, const char *text, const char *words) {
    const char *mark = strstr(text, "// here");
    int         line = 1;
    char        where[32];
    assert_non_null(mark);
    for (const char *p = text; p < mark; p++) line += *p == '\n';
    snprintf(where, sizeof where, ", line %d, ", line);
    if (rc != ERR_LOST || strncmp(e->msg, "k, ", 3) != 0 || !strstr(e->msg, where) || !strstr(e->msg, words))
        fail_msg("%d \"%s\", not of k%s\"%s\"", rc, rc ? e->msg : "", where, words);
}

/* Must end with a fault in the line that bears the mark. */
static inline void case_fails(const char *text, gpu_launch l, const char *words) {
    err       e = { 0 };
    const int rc = case_try(text, l, &e);
    case_is_fault(rc, &e, text, words);
}

static inline int case_setup(void **state) {
    (void)state;
    gpu_memory_add(case_out, sizeof case_out);
    gpu_memory_add(case_in, sizeof case_in);
    return 0;
}

#endif

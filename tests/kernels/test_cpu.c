/* SPDX-License-Identifier: Apache-2.0 */
/* CPU detection agrees with what the operating system says; masks are read, printed and closed. */
#include "kernels/cpu.h"
#include "kernels/kernels.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <string.h>

/* Every word must stand in the "flags" line of /proc/cpuinfo. */
static bool cpuinfo_has(const char *words) {
    static char text[1 << 16];
    FILE       *f = fopen("/proc/cpuinfo", "r");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *flags = strstr(text, "flags");
    if (!flags) return false;
    char *end = strchr(flags, '\n');
    if (end) strcpy(end, " ");
    while (*words) {
        char   word[40];
        size_t len = strcspn(words, " ");
        snprintf(word, sizeof word, " %.*s ", (int)len, words);
        if (!strstr(flags, word)) return false;
        words += len + (words[len] == ' ');
    }
    return true;
}

static void test_detect(void **state) {
    (void)state;
    unsigned cpu = cpu_detect();
    assert_int_equal(cpu, cpu_close(cpu));
    assert_int_equal(!!(cpu & CPU_AVX2), cpuinfo_has("avx2 fma f16c bmi2"));
    assert_int_equal(!!(cpu & CPU_AVX512), cpuinfo_has("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni"));
    assert_int_equal(!!(cpu & CPU_AVX512_BF16), cpuinfo_has("avx512f avx512_bf16"));
    assert_int_equal(!!(cpu & CPU_AVXVNNI), cpuinfo_has("avx_vnni"));
    if (cpu & CPU_AMX_BF16) assert_true(cpuinfo_has("avx512f amx_tile amx_bf16")); /* the kernel may refuse them */
}

static void test_parse(void **state) {
    (void)state;
    unsigned m = 99;
    assert_true(cpu_parse("scalar", &m));
    assert_int_equal(m, 0);
    assert_true(cpu_parse("avx2", &m));
    assert_int_equal(m, CPU_AVX2);
    assert_true(cpu_parse("avx512", &m));
    assert_int_equal(m, CPU_AVX2 | CPU_AVX512);
    assert_true(cpu_parse("avx2,avxvnni", &m));
    assert_int_equal(m, CPU_AVX2 | CPU_AVXVNNI);
    assert_true(cpu_parse("i8mm", &m));
    assert_int_equal(m, CPU_NEON | CPU_DOTPROD | CPU_I8MM);
    assert_true(cpu_parse("-avx512", &m));
    assert_int_equal(m & (CPU_AVX512 | CPU_AVX512_BF16 | CPU_AMX_BF16), 0);
    assert_true(cpu_parse("amxbf16", &m));
    assert_int_equal(m, CPU_AVX2 | CPU_AVX512 | CPU_AMX_BF16);
    assert_true(cpu_parse("-avx512", &m));
    assert_int_equal(m & CPU_AVX2, CPU_AVX2);
    assert_true(cpu_parse("all,-avx2", &m));
    assert_int_equal(m, CPU_NEON | CPU_DOTPROD | CPU_I8MM);
    m = 7;
    assert_false(cpu_parse("", &m));
    assert_false(cpu_parse("avx3", &m));
    assert_false(cpu_parse("avx2,", &m));
    assert_false(cpu_parse("avx2,,neon", &m));
    assert_false(cpu_parse("-", &m));
    assert_int_equal(m, 7);
}

static void test_names(void **state) {
    (void)state;
    char buf[64];
    cpu_names(0, buf, sizeof buf);
    assert_string_equal(buf, "scalar");
    cpu_names(CPU_AVX2 | CPU_AVX512, buf, sizeof buf);
    assert_string_equal(buf, "avx2,avx512");
    cpu_names(CPU_AVX2 | CPU_AVX512, buf, 6);
    assert_string_equal(buf, "avx2,");
    cpu_describe(buf, 4);
    assert_int_equal(strlen(buf), 3);
}

static void count_slot(void *ctx, const char *slot, const char *set) {
    char *want = ctx;
    assert_non_null(slot);
    assert_non_null(set);
    if (*want) assert_string_equal(set, want);
}

/* Every slot is filled under every mask; without instruction sets all of them are scalar. */
static void test_table(void **state) {
    (void)state;
    kernels k;
    char    scalar[] = "scalar", any[] = "";
    kernels_init(&k, 0);
    kernels_list(&k, count_slot, scalar);
    kernels_init(&k, cpu_detect() & (CPU_AVX2 | CPU_NEON));
    kernels_list(&k, count_slot, any);
    kernels_init(&k, cpu_detect());
    kernels_list(&k, count_slot, any);
    assert_int_equal(k.cpu, cpu_detect());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detect),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

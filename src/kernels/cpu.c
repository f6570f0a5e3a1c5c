/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static const struct {
    const char *name;
    unsigned    flag, needs;
} sets[] = {
    { "avx2", CPU_AVX2, 0 },
    { "avxvnni", CPU_AVXVNNI, CPU_AVX2 },
    { "avx512", CPU_AVX512, CPU_AVX2 },
    { "avx512bf16", CPU_AVX512_BF16, CPU_AVX512 | CPU_AVX2 },
    { "neon", CPU_NEON, 0 },
    { "dotprod", CPU_DOTPROD, CPU_NEON },
    { "i8mm", CPU_I8MM, CPU_NEON | CPU_DOTPROD },
    { "amxbf16", CPU_AMX_BF16, CPU_AVX512 | CPU_AVX2 },
};
#define N_SETS (sizeof sets / sizeof *sets)
#define ALL_SETS ((1u << N_SETS) - 1)

unsigned cpu_close(unsigned cpu) {
    for (size_t i = 0; i < N_SETS; i++) {
        if ((cpu & sets[i].needs) != sets[i].needs) cpu &= ~sets[i].flag;
    }
    return cpu;
}

#if defined(__x86_64__)

static uint64_t xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

/* Linux lets a process use tiles once it has asked, whichever of its threads asks; asking again changes nothing. */
static bool tiles_allowed(void) {
    enum { ASK = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}

unsigned cpu_detect(void) {
    unsigned a, b, c, d, b7 = 0, c7 = 0, d7 = 0, a71 = 0, cpu = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return 0;
    uint64_t saved = xcr0(); /* 2 xmm, 4 ymm, 0x20 mask registers, 0xc0 zmm */
    if ((saved & 0x6) != 0x6) return 0;
    if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) && a >= 1) __get_cpuid_count(7, 1, &a71, &b, &c, &d);
    if (has(b7, bit_AVX2 | bit_BMI2)) cpu |= CPU_AVX2;
    if (a71 & 1u << 4) cpu |= CPU_AVXVNNI;
    if ((saved & 0xe6) == 0xe6) {
        if (has(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) && has(c7, bit_AVX512VNNI))
            cpu |= CPU_AVX512;
        if (a71 & 1u << 5) cpu |= CPU_AVX512_BF16;
        /* 0x60000 in xcr0: the tiles and their configuration; 24 in cpuid: tiles, 22: their BF16 products. */
        if ((saved & 0x60000) == 0x60000 && has(d7, 1u << 24 | 1u << 22) && tiles_allowed()) cpu |= CPU_AMX_BF16;
    }
    return cpu_close(cpu);
}

/* cpuid leaves 0x80000002..4 spell the brand in 48 bytes, padded with blanks. */
static void model_name(char out[64]) {
    unsigned words[12];
    char     text[49];
    size_t   n = 0;
    for (unsigned i = 0; i < 3; i++) {
        unsigned *w = words + 4 * i;
        if (!__get_cpuid(0x80000002u + i, w, w + 1, w + 2, w + 3)) memset(w, 0, 16);
    }
    memcpy(text, words, 48);
    text[48] = 0;
    for (const char *p = text; *p; p++) {
        if (*p == ' ' && (n == 0 || out[n - 1] == ' ')) continue;
        out[n++] = *p;
    }
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = 0;
    if (n == 0) strcpy(out, "x86-64");
}

#elif defined(__aarch64__)

unsigned cpu_detect(void) {
    unsigned cpu = CPU_NEON;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) cpu |= CPU_DOTPROD;
    if (getauxval(AT_HWCAP2) & HWCAP2_I8MM) cpu |= CPU_I8MM;
    return cpu_close(cpu);
}

static void model_name(char out[64]) { strcpy(out, "AArch64"); }

#else

unsigned cpu_detect(void) { return 0; }

static void model_name(char out[64]) { strcpy(out, "unknown CPU"); }

#endif

bool cpu_parse(const char *text, unsigned *out) {
    unsigned cpu = 0;
    if (*text == '-') cpu = ALL_SETS;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        bool   minus = *p == '-', known = false;
        if (minus) p++, n--;
        if (!minus && n == 6 && memcmp(p, "scalar", n) == 0) known = true;
        if (!minus && n == 3 && memcmp(p, "all", n) == 0) cpu = ALL_SETS, known = true;
        for (size_t i = 0; i < N_SETS && !known; i++) {
            if (strlen(sets[i].name) != n || memcmp(sets[i].name, p, n) != 0) continue;
            cpu = minus ? cpu_close(cpu & ~sets[i].flag) : cpu | sets[i].flag | sets[i].needs;
            known = true;
        }
        if (!known) return false;
        p += n;
        if (*p == 0) break;
    }
    *out = cpu_close(cpu);
    return true;
}

void cpu_names(unsigned cpu, char *buf, size_t bytes) {
    size_t used = 0;
    if (bytes == 0) return;
    snprintf(buf, bytes, "scalar");
    for (size_t i = 0; i < N_SETS; i++) {
        if (!(cpu & sets[i].flag) || used >= bytes) continue;
        int n = snprintf(buf + used, bytes - used, "%s%s", used ? "," : "", sets[i].name);
        if (n > 0) used += (size_t)n;
    }
}

void cpu_describe(char *buf, size_t bytes) {
    char model[64], names[128];
    model_name(model);
    cpu_names(cpu_detect(), names, sizeof names);
    snprintf(buf, bytes, "%s (%s)", model, names);
}

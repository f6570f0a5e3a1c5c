/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this CPU can do, found at run time.
 *
 * A flag stands for a bundle of instructions that our kernel files are compiled with, and is set only when the CPU has
 * all of them and the operating system saves their registers. CPU_AVX512 implies CPU_AVX2; CPU_AVXVNNI implies
 * CPU_AVX2; CPU_AVX512_BF16 and CPU_AMX_BF16 imply CPU_AVX512; CPU_DOTPROD and CPU_I8MM imply CPU_NEON. cpu_close keeps a
 * mask that way.
 */
#ifndef KERNELS_CPU_H
#define KERNELS_CPU_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CPU_AVX2 = 1u << 0,        /* avx2, fma, f16c, bmi2 */
    CPU_AVXVNNI = 1u << 1,     /* vpdpbusd on ymm without AVX-512 */
    CPU_AVX512 = 1u << 2,      /* f, bw, dq, vl, vnni */
    CPU_AVX512_BF16 = 1u << 3, /* vdpbf16ps */
    CPU_NEON = 1u << 4,        /* Armv8 Advanced SIMD with fp16 conversion: every AArch64 */
    CPU_DOTPROD = 1u << 5,     /* sdot, udot */
    CPU_I8MM = 1u << 6,        /* smmla, usdot */
    CPU_AMX_BF16 = 1u << 7,    /* tiles of 8 KB in all, tdpbf16ps; Linux is asked for the tiles */
};

unsigned cpu_detect(void);

/* Drops every flag of the mask whose prerequisite is missing. */
unsigned cpu_close(unsigned cpu);

/*
 * Reads a comma-separated list for options and tests: "scalar" (nothing), "all", names as printed by cpu_names. A name
 * brings what it implies: "avx512" is avx2 and avx512. "-name" takes a set away (and what needs it) and begins from
 * everything when it comes first: "-avx512". False for an unknown or empty name.
 */
bool cpu_parse(const char *text, unsigned *out);

/* "avx2,avx512" or "scalar"; always terminated. */
void cpu_names(unsigned cpu, char *buf, size_t bytes);

/* "AMD EPYC 9B14 (avx2,avx512,avx512bf16)": the model where it is known, and the detected sets. */
void cpu_describe(char *buf, size_t bytes);

#endif

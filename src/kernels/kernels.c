/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <string.h>

void kernels_init(kernels *k, unsigned cpu) {
    cpu = cpu_close(cpu);
    memset(k, 0, sizeof *k);
    k->cpu = cpu;
    kernels_matmul_init_scalar(&k->matmul);
#if KERNELS_X86
    if (cpu & CPU_AVX2) {
    }
    if (cpu & CPU_AVX512) {
        kernels_matmul_init_avx512(&k->matmul, cpu);
    }
#elif KERNELS_ARM
    if (cpu & CPU_NEON) {
    }
#endif
}

void kernels_list(const kernels *k, kernels_visit *visit, void *ctx) { kernels_matmul_list(&k->matmul, visit, ctx); }

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <string.h>

void kernels_init(kernels *k, unsigned cpu) {
    cpu = cpu_close(cpu);
    memset(k, 0, sizeof *k);
    k->cpu = cpu;
#if KERNELS_X86
    if (cpu & CPU_AVX2) {
    }
    if (cpu & CPU_AVX512) {
    }
#elif KERNELS_ARM
    if (cpu & CPU_NEON) {
    }
#endif
}

void kernels_list(const kernels *k, kernels_visit *visit, void *ctx) {
    (void)k;
    (void)visit;
    (void)ctx;
}

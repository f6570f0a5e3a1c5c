/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <string.h>

void kernels_init(kernels *k, unsigned cpu) {
    cpu = cpu_close(cpu);
    memset(k, 0, sizeof *k);
    k->cpu = cpu;
    kernels_matmul_init_scalar(&k->matmul);
    kernels_attn_init_scalar(&k->attn);
    kernels_ops_init_scalar(&k->ops);
    kernels_recur_init_scalar(&k->recur);
#if KERNELS_X86
    if (cpu & CPU_AVX2) {
        kernels_matmul_init_avx2(&k->matmul, cpu);
        kernels_attn_init_avx2(&k->attn, cpu);
        kernels_ops_init_avx2(&k->ops, cpu);
        kernels_recur_init_avx2(&k->recur, cpu);
    }
    if (cpu & CPU_AVX512) {
        kernels_matmul_init_avx512(&k->matmul, cpu);
        kernels_attn_init_avx512(&k->attn, cpu);
        kernels_ops_init_avx512(&k->ops, cpu);
        kernels_recur_init_avx512(&k->recur, cpu);
    }
#elif KERNELS_ARM
    if (cpu & CPU_NEON) {
        kernels_matmul_init_neon(&k->matmul, cpu);
        kernels_attn_init_neon(&k->attn, cpu);
        kernels_ops_init_neon(&k->ops, cpu);
        kernels_recur_init_neon(&k->recur, cpu);
    }
#endif
}

void kernels_list(const kernels *k, kernels_visit *visit, void *ctx) {
    kernels_matmul_list(&k->matmul, visit, ctx);
    kernels_attn_list(&k->attn, visit, ctx);
    kernels_ops_list(&k->ops, visit, ctx);
    kernels_recur_list(&k->recur, visit, ctx);
}

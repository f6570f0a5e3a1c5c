/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions of one float. */
#ifndef KERNELS_CUDA_ACT_CUH
#define KERNELS_CUDA_ACT_CUH

#include "kernels/cuda/ops.h"

__device__ static inline float act_of(cuda_act act, float v) {
    switch (act) {
    case CUDA_ACT_NONE: return v;
    case CUDA_ACT_SILU: return v / (1.0f + expf(-v));
    case CUDA_ACT_GELU: return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
    case CUDA_ACT_GELU_TANH: return 0.5f * v * (1.0f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v)));
    case CUDA_ACT_RELU: return v > 0 ? v : 0;
    case CUDA_ACT_RELU2: return v > 0 ? v * v : 0;
    case CUDA_ACT_SIGMOID: return 1.0f / (1.0f + expf(-v));
    case CUDA_ACT_SOFTPLUS: return v > 20 ? v : log1pf(expf(v));
    case CUDA_ACT_TANH: return tanhf(v);
    }
    return v;
}

/* A gated unit with limits. */
__device__ static inline float clamped_glu(float g, float up, float limit, float alpha) {
    g = fminf(g, limit);
    up = fminf(fmaxf(up, -limit), limit);
    return g / (1.0f + expf(-alpha * g)) * (up + 1.0f);
}

#endif

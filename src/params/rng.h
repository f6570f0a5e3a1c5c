/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers: Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2,
 * 3", 2011). The key is the request's seed; the counter holds the token's position and the number of the draw, so every
 * draw can be made again, in any order, on any machine. Integers only up to the last step, and that one is exact: hosts
 * and devices agree bit for bit.
 */
#ifndef PARAMS_RNG_H
#define PARAMS_RNG_H

#include <stdint.h>

static inline void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1) with 53 bits. `draw` numbers the draws at one position. */
static inline double rng_uniform(uint64_t seed, uint64_t position, uint32_t draw) {
    const uint32_t counter[4] = { (uint32_t)position, (uint32_t)(position >> 32), draw, 0 };
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t       r[4];
    rng_philox(counter, key, r);
    return (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) * 0x1p-53;
}

#endif

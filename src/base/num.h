/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic for sizes that come from files, and small integer helpers. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns false on overflow and leaves *out alone. */
static inline bool num_add_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool num_mul_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool num_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool num_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Rounds up to a multiple of align (a power of two); false on overflow. */
static inline bool num_align_up(uint64_t value, uint64_t align, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(value, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

static inline bool num_is_pow2(uint64_t v) { return v != 0 && (v & (v - 1)) == 0; }

static inline int64_t num_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t num_max(int64_t a, int64_t b) { return a > b ? a : b; }

#endif

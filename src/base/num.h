/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic for sizes that come from files, and small integer helpers. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns false on overflow and leaves *out alone. */
#define NUM_CHECKED(name, type, operation)                                                                             \
    static inline bool name(type a, type b, type *out) {                                                               \
        type r;                                                                                                        \
        if (operation(a, b, &r)) return false;                                                                         \
        *out = r;                                                                                                      \
        return true;                                                                                                   \
    }
NUM_CHECKED(num_add_size, size_t, __builtin_add_overflow)
NUM_CHECKED(num_mul_size, size_t, __builtin_mul_overflow)
NUM_CHECKED(num_add_u64, uint64_t, __builtin_add_overflow)
NUM_CHECKED(num_mul_u64, uint64_t, __builtin_mul_overflow)
#undef NUM_CHECKED

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

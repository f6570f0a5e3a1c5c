/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How methods, filters and tests are defined: METHOD(id) { UNUSED_METHOD; ... }, or in one line METHOD_IS(id, expression).
 * s or v is what they are called on, a their arguments in the order of their table's parameters, raw those as given.
 */
#ifndef TEMPLATE_DEFINE_H
#define TEMPLATE_DEFINE_H

#include "template/value.h"

#define METHOD(id) static tv id(tr *r, tv s, const tv *a, const tv_args *raw)
#define FILTER(id) static tv id(tr *r, tv v, const tv *a, const tv_args *raw)
#define TEST(id) static bool id(tr *r, tv v, const tv *a)
#define UNUSED_METHOD (void)r, (void)s, (void)a, (void)raw
#define UNUSED_FILTER (void)r, (void)v, (void)a, (void)raw
#define UNUSED_TEST (void)r, (void)v, (void)a

#define METHOD_IS(id, ...)                                                                                             \
    METHOD(id) {                                                                                                       \
        UNUSED_METHOD;                                                                                                 \
        return __VA_ARGS__;                                                                                            \
    }
#define FILTER_IS(id, ...)                                                                                             \
    FILTER(id) {                                                                                                       \
        UNUSED_FILTER;                                                                                                 \
        return __VA_ARGS__;                                                                                            \
    }
#define TEST_IS(id, ...)                                                                                               \
    TEST(id) {                                                                                                         \
        UNUSED_TEST;                                                                                                   \
        return __VA_ARGS__;                                                                                            \
    }

/* An argument that switches something on. */
static inline bool template_flag(tr *r, tv v) { return tv_given(v) && tv_truth(r, v); }

#endif

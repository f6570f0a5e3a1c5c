/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters for the golden model "llama" in the form that PEFT saves, made in memory of random numbers. */
#ifndef TESTS_UNIT_SUPPORT_ADAPTER_SUPPORT_H
#define TESTS_UNIT_SUPPORT_ADAPTER_SUPPORT_H

#include "base/str.h"
#include "nn/adapter.h"

typedef struct test_peft {
    str config, data;
} test_peft;

/* Both factors of every matrix of every layer; the same seed gives the same bytes. */
void test_peft_make(test_peft *p, uint64_t seed, int rank);
void test_peft_free(test_peft *p);
void test_peft_write(const test_peft *p, const char *dir); /* makes the directory */

nn_adapter *test_peft_open(const test_peft *p, const nn_model *m); /* fails the test */

/* A safetensors file of one tensor after another. */
typedef struct test_tensor {
    const char *name, *type; /* "F32" */
    int64_t     rows, cols;  /* rows 0: one dimension */
    const void *data;
    size_t      bytes;
} test_tensor;
void test_safetensors(str *out, const test_tensor *t, size_t n);

#endif

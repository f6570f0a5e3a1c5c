/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of model files share. */
#ifndef TESTS_MODEL_H
#define TESTS_MODEL_H

#include "formats/model_file.h"

/* Opens tests/fixtures/formats/<relative>; fails the test with the sentence when that fails. */
model_file *test_model_open(const char *relative);

/* The tensor exists with this type, shape (fastest first, ends with 0) and the fixtures' byte pattern of this seed. */
void test_tensor_check(const model_file *m, const char *name, tensor_type type, const int64_t *dims, unsigned seed);

/* The fixtures' byte pattern (tests/golden/make_format_fixtures.py). */
uint8_t test_pattern(unsigned seed, size_t i);

/* Opening path fails with this code and a sentence that holds the text. */
void test_refused(const char *path, int code, const char *text);

/* Reads every key, every array element, and the first and last byte of every tensor; returns a sum so that nothing is
 * optimized away. A reader that let a bad range through crashes here (at the latest under a sanitizer). */
uint64_t test_model_walk(const model_file *m);
uint64_t test_value_walk(const meta_value *v);

void test_write_file(const char *path, const void *data, size_t bytes);

#endif

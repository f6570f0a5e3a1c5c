/* SPDX-License-Identifier: Apache-2.0 */
/* What unit tests share: cmocka with its includes, the corpus, temporary directories, a seeded generator. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs the ones above */

/* 1 under a sanitizer, where programs are slow and long tests take a part of their cases. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Skips the case where the corpus is absent. Before anything is allocated. */
void test_need_corpus(void);
/* Path of a file below the corpus (HEARTH_CORPUS, else ../shared/corpus beside the source tree), or NULL after printing
 * "skipped: corpus not found (...)". The caller frees. */
char *test_corpus_path(const char *relative);

/* Path of a file below tests/fixtures. The caller frees. */
char *test_fixture_path(const char *relative);

/* A new empty directory below $TMPDIR; removed with everything in it by test_temp_dir_remove, which frees the name. */
char *test_temp_dir(void);
void  test_temp_dir_remove(char *dir);

/* Runs only the tests whose names fit HEARTH_TEST_FILTER ("test_c*"), if that is set: for builds in which all take too
 * long. */
void test_filter(void);

/* splitmix64: the same numbers on every machine. */
uint64_t test_random(uint64_t *state);

/* HEARTH_TEST_SMALL: a test that would take hours on a device in software leaves something out, and says what. */
bool test_small(void);

#endif

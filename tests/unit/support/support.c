/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/support.h"

#include "base/file.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NULL after saying so: there is none. */
static const char *corpus_root(void) {
    const char *root = getenv("HEARTH_CORPUS");
    if (!root || !*root) root = HEARTH_SOURCE_DIR "/../shared/corpus";
    if (dir_exists(root)) return root;
    printf("skipped: corpus not found (HEARTH_CORPUS is not set to it and %s does not exist)\n", root);
    return NULL;
}

void test_need_corpus(void) {
    if (!corpus_root()) skip();
}

char *test_corpus_path(const char *relative) {
    const char *root = corpus_root();
    return root ? path_join(root, relative) : NULL;
}

char *test_fixture_path(const char *relative) { return path_join(HEARTH_SOURCE_DIR "/tests/fixtures", relative); }

char *test_temp_dir(void) {
    const char *base = getenv("TMPDIR");
    char       *dir = path_join(base && *base ? base : "/tmp", "hearth-test-XXXXXX");
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    return dir;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void test_temp_dir_remove(char *dir) {
    (void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

bool test_small(void) { return getenv("HEARTH_TEST_SMALL") != NULL; }

void test_filter(void) {
    const char *filter = getenv("HEARTH_TEST_FILTER");
    if (filter) cmocka_set_test_filter(filter);
}

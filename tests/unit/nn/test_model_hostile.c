/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json is untrusted: with any number in it replaced by nonsense, or with fields of other families beside its own, a
 * model opens or is refused with a sentence, and one that opens can be run. Meant for the sanitizer build; every family's tiny
 * model takes part. HEARTH_HOSTILE and HEARTH_SEED as in unit/support/hostile.h.
 */
#include "backend/backend.h"
#include "base/file.h"
#include "base/str.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tools/simple.h"
#include "unit/support/hostile.h"
#include "unit/support/support.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VARIANTS = 60 };

static const char *const nonsense[] = {
    "0",    "-1",    "1",   "2",    "3",        "7",  "16", "100",  "65536",  "2147483647", "-2147483648",
    "1e30", "1e300", "0.5", "null", "\"text\"", "[]", "{}", "true", "[1, 2]", "4294967296", "9007199254740993"
};

static const char *one_of(const char *const *values, size_t n, uint64_t *random) {
    return values[test_random(random) % n];
}

/* A field more in front of the others, which has another name than they. */
static void add_field(const char *text, uint64_t *random, str *out) {
    char quoted[80];
    str_clear(out);
    snprintf(quoted, sizeof quoted, "\"%s\":", hostile_name(random));
    if (*text == '{' && !strstr(text, quoted))
        str_printf(out, "{%s %s,", quoted, one_of(nonsense, sizeof nonsense / sizeof *nonsense, random)), text++;
    str_puts(out, text);
}

/* The text with one or two of its values (numbers, true, false, null) replaced. */
static void mutate(const char *text, uint64_t *random, str *out) {
    size_t starts[512], ends[512], n = 0;
    for (const char *p = text; *p && n < 512; p++) {
        if (*p != ':' && *p != '[' && *p != ',') continue;
        const char *q = p + 1 + strspn(p + 1, " \n");
        if (!isdigit((unsigned char)*q) && *q != '-' && *q != 't' && *q != 'f' && *q != 'n') continue;
        starts[n] = (size_t)(q - text);
        ends[n++] = (size_t)(q - text) + strcspn(q, ",]}\n ");
    }
    str_clear(out);
    if (n == 0) return;
    size_t at = test_random(random) % n, other = test_random(random) % n, from = 0;
    for (size_t i = 0; i < n; i++) {
        if (i != at && (i != other || test_random(random) % 2)) continue;
        str_append(out, text + from, starts[i] - from);
        str_puts(out, one_of(nonsense, sizeof nonsense / sizeof *nonsense, random));
        from = ends[i];
    }
    str_puts(out, text + from);
}

/* True when it opened; then a step was run as well, or refused. */
static bool try_model(const char *dir) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    simple      s;
    err         e = { 0 };
    bool        opened = false;
    if (model_file_open(&f, dir, &e) == 0 && nn_model_open(&m, f, models_list, NULL, &e) == 0) {
        simple_options o = {
            .max_len = 8, .max_tokens = 4, .n_threads = 1, .k_type = NN_KV_F16, .v_type = NN_KV_F16, .cpu = cpu_detect()
        };
        int32_t ids[] = { 1, 2, 3 };
        opened = true;
        if (simple_open(&s, "cpu", m, &o, &e) == 0) {
            if (simple_step(&s, &(simple_feed){ .ids = ids, .n = 3 }, 1, &e) < 0) assert_true(e.msg[0]);
            simple_close(&s);
        }
    }
    if (!opened) assert_true(e.msg[0]);
    nn_model_free(m);
    model_file_free(f);
    return opened;
}

typedef struct count {
    int opened, refused;
} count;

static void try_variants(const char *dir, const char *config_path, const char *tensors, int most, uint64_t *random,
                         count *n) {
    char   target[900], *config;
    size_t bytes;
    err    e;
    str    text, wider;
    str_init(&text);
    str_init(&wider);
    assert_int_equal(file_read(&config, &bytes, config_path, 1 << 20, &e), 0);
    snprintf(target, sizeof target, "%s/model.safetensors", dir);
    unlink(target);
    assert_int_equal(symlink(tensors, target), 0);
    for (int i = 0; i < most; i++) {
        add_field(config, random, &wider);
        mutate(i % 3 ? config : str_cstr(&wider), random, &text);
        if (i % 3 == 1) add_field(config, random, &text);
        snprintf(target, sizeof target, "%s/config.json", dir);
        FILE *f = fopen(target, "wb");
        assert_non_null(f);
        fwrite(str_cstr(&text), 1, text.len, f);
        fclose(f);
        if (try_model(dir))
            n->opened++;
        else
            n->refused++;
    }
    free(config);
    str_deinit(&text);
    str_deinit(&wider);
}

/* Every model of a folder of tests/golden. */
static void try_folder(const char *folder, count *n) {
    char           root[400], path[800], tensors[800], *dir = test_temp_dir();
    struct dirent *d;
    uint64_t       random = 1;
    const int      most = hostile_rounds(VARIANTS, &random);
    snprintf(root, sizeof root, "%.300s/tests/golden/%s", HEARTH_SOURCE_DIR, folder);
    DIR *all = opendir(root);
    assert_non_null(all);
    while ((d = readdir(all))) {
        if (d->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.200s/config.json", root, d->d_name);
        snprintf(tensors, sizeof tensors, "%s/%.200s/model.safetensors", root, d->d_name);
        try_variants(dir, path, tensors, most, &random, n);
    }
    closedir(all);
    test_temp_dir_remove(dir);
}

/* How many names of fields are known. */
static int learn_folder(const char *folder) {
    char           root[400], path[800], *config;
    struct dirent *d;
    size_t         bytes;
    int            known = 0;
    err            e;
    snprintf(root, sizeof root, "%.300s/tests/golden/%s", HEARTH_SOURCE_DIR, folder);
    DIR *all = opendir(root);
    assert_non_null(all);
    while ((d = readdir(all))) {
        snprintf(path, sizeof path, "%s/%.200s/config.json", root, d->d_name);
        if (d->d_name[0] == '.' || file_read(&config, &bytes, path, 1 << 20, &e) < 0) continue;
        known = hostile_learn_text(config);
        free(config);
    }
    closedir(all);
    return known;
}

static void test_configs(void **state) {
    static const char *const folders[] = { "models", "encoders" };
    (void)state;
    for (int i = 0; i < 2; i++) assert_true(learn_folder(folders[i]) > 200);
    for (int i = 0; i < 2; i++) {
        count n = { 0 };
        try_folder(folders[i], &n);
        print_message("%s: %d opened, %d refused\n", folders[i], n.opened, n.refused);
        assert_true(n.opened > 100 && n.refused > 100);
    }
}

/* Families without tensors of their own (tests/golden/relay.py): their fields are read before tensors are missed. */
static void test_relaid_configs(void **state) {
    char           root[400], path[800], tensors[800], *dir = test_temp_dir();
    struct dirent *d;
    uint64_t       random = 2;
    const int      most = hostile_rounds(VARIANTS, &random);
    count          n = { 0 };
    (void)state;
    snprintf(root, sizeof root, "%.300s/tests/golden/relaid", HEARTH_SOURCE_DIR);
    snprintf(tensors, sizeof tensors, "%.300s/tests/golden/models/llama/model.safetensors", HEARTH_SOURCE_DIR);
    DIR *all = opendir(root);
    assert_non_null(all);
    while ((d = readdir(all))) {
        if (d->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.200s", root, d->d_name);
        try_variants(dir, path, tensors, most, &random, &n);
    }
    closedir(all);
    assert_true(n.refused > 500);
    test_temp_dir_remove(dir);
}

/* A decoder whose golden stands with those that hear: their ears are test_hearing_hostile's. */
static void test_decoder_of_sounds(void **state) {
    const char *folder = HEARTH_SOURCE_DIR "/tests/golden/hearing/whisper";
    char        path[800], tensors[800], *dir = test_temp_dir();
    uint64_t    random = 3;
    const int   most = 4 * hostile_rounds(VARIANTS, &random);
    count       n = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%.600s/config.json", folder);
    snprintf(tensors, sizeof tensors, "%.600s/model.safetensors", folder);
    try_variants(dir, path, tensors, most, &random, &n);
    print_message("whisper: %d opened, %d refused\n", n.opened, n.refused);
    assert_true(n.opened > 20 && n.refused > 20);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_configs), cmocka_unit_test(test_relaid_configs),
                                        cmocka_unit_test(test_decoder_of_sounds) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

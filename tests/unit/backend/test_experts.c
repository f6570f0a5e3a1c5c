/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streamed experts: the same bits as with all of them in memory, for every mixture among the reference models, in every
 * form that files have, with any number of slots and threads and any cut of the prompt; and what happens when a file
 * cannot be read.
 */
#include "backend/backend.h"
#include "base/clock.h"
#include "convert/export.h"
#include "convert/to_dir.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/divide.h"
#include "tools/simple.h"
#include "unit/support/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PROMPT = 20, ANSWER = 4, MAX_MODELS = 256, N_WAYS = 6, ALL = (1 << N_WAYS) - 1 };

typedef struct opened {
    model_file *file;
    nn_model   *model;
} opened;

static opened model_at(const char *path) {
    opened o = { 0 };
    err    e = { 0 };
    if (model_file_open(&o.file, path, &e) < 0 ||
        nn_model_open(&o.model, o.file, models_list, &(nn_model_options){ .rope_context = 64 }, &e) < 0)
        fail_msg("%s", e.msg);
    return o;
}

static void model_close(opened *o) {
    nn_model_free(o->model);
    model_file_free(o->file);
}

/* --- one run ---------------------------------------------------------------------------------------------------------- */

typedef struct way {
    const char             *device;
    size_t                  experts; /* bytes; 0: resident */
    int                     chunk, threads;
    const file_reader_hook *reader;
} way;

static int open_way(simple *s, const nn_model *m, const way *w, err *e) {
    simple_options o = { .n_seq = 2,
                         .max_len = PROMPT + ANSWER,
                         .max_tokens = 2 * PROMPT,
                         .n_threads = w->threads,
                         .steady = true,
                         .cpu = cpu_detect(),
                         .expert_bytes = w->experts,
                         .reader = w->reader };
    return simple_open(s, w->device ? w->device : "cpu", m, &o, e);
}

/* The logits of a prompt beside another one, and of some tokens behind each, by position; the number of floats. */
static size_t run(simple *s, const nn_model *m, int chunk, float *out) {
    size_t  n_vocab = (size_t)nn_exec_width(s->exec, NN_FETCH_LOGITS);
    int32_t ids[2][PROMPT + ANSWER];
    err     e = { 0 };
    for (int i = 0; i < PROMPT + ANSWER; i++) {
        ids[0][i] = (int32_t)((i * 37 + 5) % m->dims->n_vocab);
        ids[1][i] = (int32_t)((i * 11 + 3) % m->dims->n_vocab);
    }
    simple_reset(s, 0);
    simple_reset(s, 1);
    for (int at = 0; at < PROMPT + ANSWER;) {
        int         len = at < PROMPT ? (PROMPT - at < chunk ? PROMPT - at : chunk) : 1;
        simple_feed feeds[2] = { { .seq = 0, .ids = ids[0] + at, .n = len, .all = true },
                                 { .seq = 1, .ids = ids[1] + at, .n = len, .all = true } };
        if (simple_step(s, feeds, 2, &e) < 0) fail_msg("%s", e.msg);
        const float *rows = simple_fetch(s, NN_FETCH_LOGITS, &e);
        for (int k = 0; k < 2; k++)
            memcpy(out + (size_t)(k * (PROMPT + ANSWER) + at) * n_vocab, rows + (size_t)(k * len) * n_vocab,
                   (size_t)len * n_vocab * sizeof *out);
        at += len;
    }
    return 2 * (PROMPT + ANSWER) * n_vocab;
}

static float *run_once(const nn_model *m, const way *w, size_t *n, nn_streaming *seen) {
    simple s;
    err    e = { 0 };
    if (open_way(&s, m, w, &e) < 0) fail_msg("%s", e.msg);
    float *out = malloc((size_t)(2 * (PROMPT + ANSWER)) * (size_t)nn_exec_width(s.exec, NN_FETCH_LOGITS) * sizeof *out);
    *n = run(&s, m, w->chunk, out);
    if (seen) *seen = s.exec->streaming ? *s.exec->streaming : (nn_streaming){ 0 };
    simple_close(&s);
    return out;
}

/* The bytes that streaming may take; false: the model's experts cannot be streamed, e says why. */
static bool sizes(const nn_model *m, nn_expert_memory *out, err *e) {
    simple s;
    int    rc = open_way(&s, m, &(way){ .experts = SIZE_MAX, .threads = 1 }, e);
    if (rc < 0) return false;
    *out = s.exec->memory.experts;
    simple_close(&s);
    return true;
}

/* --- the same bits ---------------------------------------------------------------------------------------------------- */

/* which: bits of the ways below. */
static void check_model(const char *name, const char *form, const nn_model *m, unsigned which) {
    nn_expert_memory size = { 0 };
    err              e = { 0 };
    if (!sizes(m, &size, &e)) fail_msg("%s (%s): %s", name, form, e.msg);
    assert_true(size.least > 0 && size.least <= size.most && size.file > 0);
    size_t between = size.least + (size.most - size.least) / 3;
    way    ways[N_WAYS] = { { .experts = size.least, .chunk = PROMPT, .threads = 1 },
                            { .experts = size.least, .chunk = 5, .threads = 3 },
                            { .experts = between, .chunk = PROMPT, .threads = 2 },
                            { .experts = between, .chunk = 1, .threads = 1 },
                            { .experts = size.most, .chunk = 7, .threads = 2 },
                            { .experts = between, .chunk = 7, .threads = 1, .device = "cpu/experts:0" } };
    size_t n, k;
    float *one = run_once(m, &(way){ .chunk = PROMPT, .threads = 1 }, &n, NULL);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        nn_streaming seen;
        if (!(which >> i & 1)) continue;
        float *two = run_once(m, &ways[i], &k, &seen);
        assert_int_equal(n, k);
        if (memcmp(one, two, n * sizeof *one) != 0)
            fail_msg("%s (%s): other bits with %zu bytes for experts in chunks of %d on %d threads", name, form,
                     ways[i].experts, ways[i].chunk, ways[i].threads);
        assert_true(seen.misses > 0 && seen.slots > 0 && seen.bytes > 0);
        if (ways[i].experts == size.most) assert_true(seen.misses <= (uint64_t)seen.experts && !seen.evicted);
        free(two);
    }
    free(one);
    print_message("  %-22s %-8s %d layers with experts, %.0f KiB of them, least %.0f KiB\n", name, form,
                  nn_mixtures(m->tape), (double)size.file / 1024, (double)size.least / 1024);
}

static char names[MAX_MODELS][64];
static int  n_names;
static char root[512];

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

static int find_models(void **state) {
    struct dirent *d;
    (void)state;
    snprintf(root, sizeof root, "%s/tests/golden/models", HEARTH_SOURCE_DIR);
    DIR *dir = opendir(root);
    if (!dir) return -1;
    while ((d = readdir(dir)) && n_names < MAX_MODELS) {
        if (d->d_name[0] != '.') snprintf(names[n_names++], sizeof names[0], "%.63s", d->d_name);
    }
    closedir(dir);
    qsort(names, (size_t)n_names, sizeof names[0], by_name);
    return n_names > 0 ? 0 : -1;
}

static opened golden_at(const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%.500s/%.63s", root, name);
    return model_at(path);
}

/* Experts that Hugging Face stores inputs by outputs are turned when the file is opened: they are in memory already. */
static bool is_turned(const char *name) {
    static const char *const all[] = { "dbrx", "gpt_oss", "llama4_text", "llama4_text_scout" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i], name) == 0) return true;
    }
    return false;
}

static void test_every_mixture(void **state) {
    int n = 0, turned = 0;
    (void)state;
    for (int i = 0; i < n_names; i++) {
        opened           o = golden_at(names[i]);
        nn_expert_memory size;
        err              e = { 0 };
        if (nn_mixtures(o.model->tape) && is_turned(names[i])) {
            assert_false(sizes(o.model, &size, &e));
            assert_int_equal(e.code, ERR_UNSUPPORTED);
            assert_non_null(strstr(e.msg, "does not lie in the file"));
            turned++;
        } else if (nn_mixtures(o.model->tape) && (!TEST_SANITIZED || n++ % 6 == 0)) {
            check_model(names[i], "HF", o.model, 1u << n % N_WAYS | 1u << (n / 2 + 3) % N_WAYS);
            n += !TEST_SANITIZED;
        }
        model_close(&o);
    }
    assert_true(n >= (TEST_SANITIZED ? 5 : 30) && turned == 4);
}

/* All experts of a layer in one tensor, as GGUF has them; and turned ones the right way. */
static void test_gguf(void **state) {
    static const char *const some[] = { "qwen3_moe", "gpt_oss", "deepseek_v2", "llama4_text", "granitemoe" };
    char                    *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        opened o = golden_at(some[i]);
        err    e = { 0 };
        if (export_gguf(o.model, path, &e) < 0) fail_msg("%s: %s", some[i], e.msg);
        model_close(&o);
        o = model_at(path);
        check_model(some[i], "GGUF", o.model, ALL);
        model_close(&o);
    }
    test_temp_dir_remove(dir);
}

/* Packed as MLX does it: words, scales and biases in tensors of their own, the experts of a layer in one. */
static void test_mlx(void **state) {
    static const char *const recipes[] = { "4bit", "8bit", "mxfp4" };
    char                    *dir = test_temp_dir(), path[600];
    pool                    *p;
    err                      e = { 0 };
    (void)state;
    assert_int_equal(pool_open(&p, 1, false, &e), 0);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        opened         o = golden_at("qwen3_moe");
        to_dir_options d = { .mlx = true, .type = -1 };
        plan_result    result;
        size_t         n;
        snprintf(path, sizeof path, "%s/%s", dir, recipes[i]);
        d.write.path = path;
        assert_int_equal(mlx_recipe_read(&d.recipe, recipes[i], 0, &e), 0);
        if (convert_to_dir(o.model, &d, p, &result, &n, &e) < 0) fail_msg("%s", e.msg);
        model_close(&o);
        o = model_at(path);
        assert_int_equal(model_file_format(o.file), MODEL_MLX);
        check_model("qwen3_moe", recipes[i], o.model, ALL);
        model_close(&o);
    }
    pool_free(p);
    test_temp_dir_remove(dir);
}

static void write_synthetic(const char *path, int type, int layers, int experts, int used) {
    const nn_config_set set[] = { { "block_count", layers, false },
                                  { "vocab_size", 300, false },
                                  { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                  { "embedding_length", 256, false },
                                  { "attention.head_count", 4, false },
                                  { "attention.head_count_kv", 2, false },
                                  { "feed_forward_length", 256, false },
                                  { "context_length", 256, false },
                                  { "expert_count", experts, false },
                                  { "expert_used_count", used, false },
                                  { "expert_feed_forward_length", 256, false } };
    synth_options       s = { .arch = nn_arch_find(models_list, "qwen3moe"),
                              .set = set,
                              .n_set = sizeof set / sizeof *set,
                              .type = type,
                              .n_vocab = 300,
                              .seed = 7 };
    err                 e = { 0 };
    if (synth_gguf(&s, path, &e) < 0) fail_msg("%s", e.msg);
}

/* Block types of GGUF, with extents that do not begin at a page. */
static void test_block_types(void **state) {
    static const int types[] = { TENSOR_Q4_K, TENSOR_Q8_0, TENSOR_MXFP4, TENSOR_F16 };
    char            *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        write_synthetic(path, types[i], 3, 12, 3);
        opened o = model_at(path);
        check_model("synthetic", tensor_type_name(types[i]), o.model, ALL);
        model_close(&o);
    }
    test_temp_dir_remove(dir);
}

/* Low-rank factors of experts are added behind each wave, or behind all of them. */
static void test_adapters(void **state) {
    opened           o = golden_at("qwen3_moe");
    nn_adapter      *a;
    nn_adapter_set  *set;
    nn_expert_memory size = { 0 };
    err              e = { 0 };
    char             path[700];
    float           *one = NULL;
    (void)state;
    snprintf(path, sizeof path, "%s/tests/golden/adapters/qwen3_moe_params", HEARTH_SOURCE_DIR);
    assert_true(sizes(o.model, &size, &e));
    if (nn_adapter_open(&a, o.model, path, LOWRANK_F32, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(nn_adapter_set_open(&set, o.model, &(nn_adapter_use){ a, 1 }, 1, &e), 0);
    const size_t experts[] = { 0, size.least, size.least + (size.most - size.least) / 3, size.most };
    for (int i = 0; i < 4; i++) {
        simple  s;
        int32_t ids[2][PROMPT];
        way     w = { .experts = experts[i], .threads = 1 + i % 2 };
        if (open_way(&s, o.model, &w, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(s.exec->backend->adapt(s.exec, 1, set, &e), 0);
        for (int k = 0; k < PROMPT; k++) {
            ids[0][k] = (int32_t)((k * 37 + 5) % o.model->dims->n_vocab);
            ids[1][k] = (int32_t)((k * 11 + 3) % o.model->dims->n_vocab);
        }
        simple_feed feeds[2] = { { .seq = 0, .ids = ids[0], .n = PROMPT, .all = true, .set = 1 },
                                 { .seq = 1, .ids = ids[1], .n = PROMPT, .all = true } };
        size_t      bytes = 2 * PROMPT * (size_t)nn_exec_width(s.exec, NN_FETCH_LOGITS) * sizeof *one;
        if (simple_step(&s, feeds, 2, &e) < 0) fail_msg("%s", e.msg);
        const float *rows = simple_fetch(&s, NN_FETCH_LOGITS, &e);
        if (i == 0)
            one = memcpy(malloc(bytes), rows, bytes);
        else
            assert_memory_equal(one, rows, bytes);
        simple_close(&s);
    }
    free(one);
    nn_adapter_set_free(set);
    nn_adapter_free(a);
    model_close(&o);
}

/* What a product was shown: sums per matrix and expert (importance of columns). */
static void add_up(void *ctx, const nn_mat *w, int expert, const float *row) {
    double *sum = ctx;
    for (int64_t i = 0; i < w->cols; i++) sum[expert] += (double)row[i] * (double)row[i];
}

static void test_observed(void **state) {
    opened           o = golden_at("qwen3_moe");
    nn_expert_memory size = { 0 };
    double           seen[3][256] = { { 0 } };
    int32_t          ids[PROMPT];
    err              e = { 0 };
    (void)state;
    for (int k = 0; k < PROMPT; k++) ids[k] = (int32_t)((k * 37 + 5) % o.model->dims->n_vocab);
    assert_true(sizes(o.model, &size, &e));
    for (int i = 0; i < 3; i++) {
        simple         s;
        simple_options options = { .max_len = PROMPT,
                                   .n_threads = 1 + i,
                                   .cpu = cpu_detect(),
                                   .observe = add_up,
                                   .observe_ctx = seen[i],
                                   .expert_bytes = i == 0   ? 0
                                                   : i == 1 ? size.least
                                                            : size.most };
        assert_int_equal(simple_open(&s, "cpu", o.model, &options, &e), 0);
        assert_int_equal(simple_step(&s, &(simple_feed){ .ids = ids, .n = PROMPT }, 1, &e), 0);
        simple_close(&s);
    }
    assert_true(seen[0][1] > 0);
    for (int k = 1; k < 256; k++) /* the first also counts plain products, whose order among experts is another */
        assert_true(seen[0][k] == seen[1][k] && seen[0][k] == seen[2][k]);
    model_close(&o);
}

/* --- reading ----------------------------------------------------------------------------------------------------------- */

/* How reads go wrong. */
typedef struct trouble {
    atomic_int n;
    int        fail_at, code; /* the n-th read; 0: none. code -1: the file ends */
    bool       torn;          /* short and interrupted reads */
    bool       late;          /* reads end in another order */
} trouble;

static ssize_t read_badly(void *ctx, int fd, void *to, size_t bytes, off_t at) {
    trouble *t = ctx;
    int      k = atomic_fetch_add(&t->n, 1) + 1;
    if (k == t->fail_at) {
        errno = t->code;
        return t->code < 0 ? 0 : -1;
    }
    if (t->torn && k % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    size_t some = FILE_READER_ALIGN * (size_t)(1 + k % 2) - (k % 5 == 0 ? 100 : 0);
    if (t->torn && bytes > some) bytes = some;
    if (t->late && k % 4 == 1) nanosleep(&(struct timespec){ .tv_nsec = 300000 * (1 + k % 3) }, NULL);
    return pread(fd, to, bytes, at);
}

static opened synthetic(const char *dir, char path[600]) {
    snprintf(path, 600, "%s/m.gguf", dir);
    write_synthetic(path, TENSOR_Q8_0, 2, 8, 2);
    return model_at(path);
}

static void test_torn_and_late_reads(void **state) {
    char            *dir = test_temp_dir(), path[600];
    opened           o = synthetic(dir, path);
    nn_expert_memory size = { 0 };
    err              e = { 0 };
    size_t           n, k;
    (void)state;
    assert_true(sizes(o.model, &size, &e));
    float *one = run_once(o.model, &(way){ .chunk = 9, .threads = 1 }, &n, NULL);
    for (int i = 0; i < 6; i++) {
        trouble          t = { .torn = i & 1, .late = i >= 2 };
        file_reader_hook hook = { read_badly, &t };
        way    w = { .experts = i % 2 ? size.least : size.most / 2, .chunk = 9, .threads = 1 + i % 3, .reader = &hook };
        float *two = run_once(o.model, &w, &k, NULL);
        assert_int_equal(n, k);
        assert_memory_equal(one, two, n * sizeof *one);
        free(two);
    }
    free(one);
    model_close(&o);
    test_temp_dir_remove(dir);
}

/* Each read fails once, in turn: the step fails with a sentence, and the same step afterwards gives the resident bits. */
static void test_failed_reads(void **state) {
    static const int codes[] = { EIO, -1, ENOMEM };
    char            *dir = test_temp_dir(), path[600];
    opened           o = synthetic(dir, path);
    nn_expert_memory size = { 0 };
    err              e = { 0 };
    size_t           n;
    (void)state;
    assert_true(sizes(o.model, &size, &e));
    float *one = run_once(o.model, &(way){ .chunk = PROMPT, .threads = 1 }, &n, NULL), *two = malloc(n * sizeof *two);
    for (int at = 1; at <= 24; at += TEST_SANITIZED ? 3 : 1) {
        trouble          t = { .fail_at = at, .code = codes[at % 3], .late = at % 2 };
        file_reader_hook hook = { read_badly, &t };
        int32_t          ids[PROMPT];
        simple           s;
        bool             failed = false;
        for (int i = 0; i < PROMPT; i++) ids[i] = (int32_t)(i * 37 + 5) % 300;
        way w = { .experts = at % 2 ? size.least : size.most / 2, .threads = 1 + at % 3, .reader = &hook };
        if (open_way(&s, o.model, &w, &e) < 0) fail_msg("%s", e.msg);
        for (int step = 0; step < 3 && !failed; step++) {
            simple_reset(&s, 0);
            e = (err){ 0 };
            failed = simple_step(&s, &(simple_feed){ .ids = ids, .n = PROMPT }, 1, &e) < 0;
        }
        assert_true(failed);
        assert_int_equal(e.code, ERR_IO);
        assert_non_null(strstr(e.msg, "layer "));
        assert_non_null(strstr(e.msg, "expert "));
        assert_non_null(strstr(e.msg, path));
        assert_non_null(strstr(e.msg, t.code == EIO ? "Input/output" : t.code < 0 ? "ends within" : "memory"));
        assert_int_equal(run(&s, o.model, PROMPT, two), n);
        assert_memory_equal(one, two, n * sizeof *one);
        simple_close(&s);
    }
    free(one);
    free(two);
    model_close(&o);
    test_temp_dir_remove(dir);
}

static void test_refusals(void **state) {
    char            *dir = test_temp_dir(), path[600], other[700];
    opened           o = synthetic(dir, path);
    nn_expert_memory size = { 0 };
    err              e = { 0 };
    simple           s;
    (void)state;
    assert_true(sizes(o.model, &size, &e));
    assert_int_equal(open_way(&s, o.model, &(way){ .experts = size.least - 1, .threads = 1 }, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "at least"));
    snprintf(other, sizeof other, "%s.moved", path);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(open_way(&s, o.model, &(way){ .experts = size.least, .threads = 1 }, &e), ERR_IO);
    opened again = synthetic(dir, path);
    assert_int_equal(open_way(&s, o.model, &(way){ .experts = size.least, .threads = 1 }, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "was replaced"));
    model_close(&again);
    model_close(&o);
    o = golden_at("llama");
    assert_int_equal(open_way(&s, o.model, &(way){ .experts = 1 << 20, .threads = 1 }, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "no experts that the CPU"));
    model_close(&o);
    test_temp_dir_remove(dir);
}

/* A token's experts are still there at the next token when every layer has its share. */
static void test_counts(void **state) {
    char            *dir = test_temp_dir(), path[600];
    opened           o = synthetic(dir, path);
    nn_expert_memory size = { 0 };
    err              e = { 0 };
    simple           s;
    nn_streaming     before;
    int32_t          id = 5;
    (void)state;
    assert_true(sizes(o.model, &size, &e));
    assert_int_equal(open_way(&s, o.model, &(way){ .experts = size.most / 2, .threads = 1 }, &e), 0);
    assert_int_equal(s.exec->memory.experts.bytes, size.most / 2);
    assert_int_equal(simple_step(&s, &(simple_feed){ .ids = &id, .n = 1 }, 1, &e), 0);
    before = *s.exec->streaming;
    assert_int_equal(before.hits, 0);
    assert_int_equal(before.misses, 4);
    assert_int_equal(before.slots, 8);
    simple_reset(&s, 0);
    assert_int_equal(simple_step(&s, &(simple_feed){ .ids = &id, .n = 1 }, 1, &e), 0);
    assert_int_equal(s.exec->streaming->hits, 4);
    assert_int_equal(s.exec->streaming->misses, 4);
    assert_int_equal(s.exec->streaming->bytes, before.bytes);
    simple_close(&s);
    model_close(&o);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mixture),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_mlx),
        cmocka_unit_test(test_block_types),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_observed),
        cmocka_unit_test(test_torn_and_late_reads),
        cmocka_unit_test(test_failed_reads),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_counts),
    };
    test_filter();
    return cmocka_run_group_tests(tests, find_models, NULL);
}

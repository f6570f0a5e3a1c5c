/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every family against the logits of its reference implementation (tests/golden/models), through the Hugging Face
 * directory and through GGUF; and the promise that a token's logits have the same bits however the prompt is cut,
 * whatever else is in the batch and on however many threads.
 */
#include "backend/backend.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/export.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/divide.h"
#include "tools/simple.h"
#include "unit/support/support.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MODELS = 256, MAX_IDS = 256 };

typedef struct golden {
    char    dir[512], name[64];
    int32_t prompt[MAX_IDS], greedy[MAX_IDS];
    int     n_prompt, n_greedy, n_vocab;
    double  std;
    float  *logits;
    bool    quantized; /* weights whose activations become int8: close, not equal */
} golden;

static int read_ids(const json_value *v, int32_t *out) {
    int64_t id;
    int     n = 0;
    for (size_t i = 0; i < json_count(v) && n < MAX_IDS; i++) {
        assert_true(json_int(json_at(v, i), &id));
        out[n++] = (int32_t)id;
    }
    return n;
}

static void golden_open(golden *g, const char *root_dir, const char *name) {
    char              path[700], *text;
    size_t            bytes;
    arena             mem;
    const json_value *doc;
    err               e;
    int64_t           vocab = 0;
    *g = (golden){ 0 };
    snprintf(g->dir, sizeof g->dir, "%.400s/%.63s", root_dir, name);
    snprintf(g->name, sizeof g->name, "%s", name);
    g->quantized = strstr(name, "mlx") || strstr(name, "mxfp4");
    snprintf(path, sizeof path, "%.511s/golden.json", g->dir);
    assert_int_equal(file_read(&text, &bytes, path, 1 << 20, &e), 0);
    arena_init(&mem, 0);
    assert_int_equal(json_parse(&doc, text, bytes, &mem, &e), 0);
    g->n_prompt = read_ids(json_get(doc, "prompt"), g->prompt);
    g->n_greedy = read_ids(json_get(doc, "greedy"), g->greedy);
    assert_true(json_number(json_get(doc, "logit_std"), &g->std) && json_int(json_get(doc, "vocab"), &vocab));
    g->n_vocab = (int)vocab;
    arena_deinit(&mem);
    free(text);
    snprintf(path, sizeof path, "%.511s/logits.f32", g->dir);
    assert_int_equal(file_read((char **)&g->logits, &bytes, path, 1 << 24, &e), 0);
    assert_int_equal(bytes, (size_t)g->n_prompt * (size_t)g->n_vocab * sizeof(float));
}

typedef struct opened {
    model_file *file;
    nn_model   *model;
} opened;

static void model_close(opened *o) {
    nn_model_free(o->model);
    model_file_free(o->file);
}

static opened model_at(const char *path, int rope_context) {
    opened o = { 0 };
    err    e = { 0 };
    if (model_file_open(&o.file, path, &e) < 0 ||
        nn_model_open(&o.model, o.file, models_list, &(nn_model_options){ .rope_context = rope_context }, &e) < 0)
        fail_msg("%s", e.msg);
    return o;
}

/* How a run is cut and shared. */
typedef struct way {
    int        chunk, threads;
    bool       company; /* a second sequence, of other tokens and other lengths, in the same batches */
    unsigned   cpu;
    nn_kv_type kv;
} way;

/* Logits of the whole prompt into out; then n_greedy further ids. */
static void run(const char *device, const nn_model *m, const golden *g, way w, float *out, int32_t *greedy) {
    simple         s;
    err            e = { 0 };
    int64_t        n_vocab = g->n_vocab;
    int            len = g->n_prompt + g->n_greedy;
    simple_options o = { .n_seq = 2,
                         .max_len = len,
                         .max_tokens = 2 * g->n_prompt,
                         .n_threads = w.threads,
                         .k_type = w.kv,
                         .v_type = w.kv,
                         .page_tokens = w.company ? 16 : 32,
                         .cpu = w.cpu };
    int32_t        other[MAX_IDS];
    const float   *last = NULL;
    for (int i = 0; i < g->n_prompt; i++) other[i] = g->prompt[g->n_prompt - 1 - i];
    if (simple_open(&s, device, m, &o, &e) < 0) fail_msg("%s: %s", g->name, e.msg);
    for (int at = 0, to = 0; at < g->n_prompt; at += w.chunk) {
        int         n = g->n_prompt - at < w.chunk ? g->n_prompt - at : w.chunk, more = n + 3;
        simple_feed feeds[2] = { { .seq = 1, .ids = other + to, .n = more },
                                 { .seq = 0, .ids = g->prompt + at, .n = n, .all = true } };
        if (to + more > g->n_prompt) feeds[0].n = g->n_prompt - to;
        bool both = w.company && feeds[0].n > 0;
        if (simple_step(&s, both ? feeds : feeds + 1, both ? 2 : 1, &e) < 0) fail_msg("%s: %s", g->name, e.msg);
        assert_int_equal(nn_exec_width(s.exec, NN_FETCH_LOGITS), g->n_vocab);
        last = simple_fetch(&s, NN_FETCH_LOGITS, &e) + (both ? n_vocab : 0); /* the other sequence's row comes first */
        memcpy(out + (size_t)at * (size_t)n_vocab, last, (size_t)n * (size_t)n_vocab * sizeof *out);
        last += (n - 1) * n_vocab;
        to += both ? feeds[0].n : 0;
    }
    for (int i = 0; greedy && i < g->n_greedy; i++) {
        int32_t best = 0;
        for (int32_t v = 1; v < g->n_vocab; v++) best = last[v] > last[best] ? v : best;
        greedy[i] = best;
        if (i + 1 == g->n_greedy) break;
        simple_feed feed = { .ids = &best, .n = 1 };
        if (simple_step(&s, &feed, 1, &e) < 0) fail_msg("%s: %s", g->name, e.msg);
        last = simple_fetch(&s, NN_FETCH_LOGITS, &e);
    }
    simple_close(&s);
}

static double worst_of(const golden *g, const float *logits, int row) {
    double worst = 0;
    for (int64_t i = (int64_t)row * g->n_vocab; i < (int64_t)(row + 1) * g->n_vocab; i++) {
        double d = fabs((double)logits[i] - (double)g->logits[i]) / g->std;
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

/* How many rows may be further off: int8 activations may send a token to another expert where two are close. */
static int strays(const golden *g, const nn_model *m) {
    bool mixture = false;
    for (int i = 0; i < m->tape->n_ops; i++) mixture = mixture || m->tape->ops[i].kind == NN_OP_ROUTE;
    return g->quantized && mixture ? 1 + g->n_prompt / 32 : 0;
}

/* Int8 activations may choose another token where two are close: exact says whether the continuation must agree. */
static void check_reference(const golden *g, const char *device, const nn_model *m, double bound, bool exact,
                            const char *form) {
    float  *logits = malloc((size_t)g->n_prompt * (size_t)g->n_vocab * sizeof *logits);
    int32_t greedy[MAX_IDS];
    run(device, m, g, (way){ .chunk = g->n_prompt, .threads = 1, .cpu = cpu_detect(), .kv = NN_KV_F32 }, logits,
        greedy);
    double worst = 0;
    for (int r = 0, free_rows = exact ? 0 : strays(g, m); r < g->n_prompt; r++) {
        double d = worst_of(g, logits, r);
        if (!(d <= bound) && d < 2 && free_rows-- > 0) continue;
        if (!(d <= bound))
            fail_msg("%s (%s): logits %d differ by %.3g standard deviations, bound %.3g", g->name, form, r, d, bound);
        worst = fmax(worst, d);
    }
    for (int i = 0; exact && i < g->n_greedy; i++) {
        if (greedy[i] != g->greedy[i])
            fail_msg("%s (%s): greedy token %d is %d, expected %d", g->name, form, i, greedy[i], g->greedy[i]);
    }
    print_message("  %-20s %-8s %.1e\n", g->name, form, worst);
    free(logits);
}

/* HEARTH_TEST_DEVICE: then only what runs on that device is done; the rest is the same without it. */
static const char *other_device(void) { return getenv("HEARTH_TEST_DEVICE"); }

/* Of a device whose products may take 16-bit numbers. Zamba 2's models make ten times as much of a rounding as others: in f32,
 * too, they are as much further from the reference. */
static double device_bound(const golden *g) {
    return g->quantized ? 0.3 : strncmp(g->name, "zamba2", 6) == 0 ? 0.15 : 0.05;
}

static void check_same_bits(const golden *g, const nn_model *m, unsigned cpu, int kv) {
    static const way ways[] = { { 1, 1, false, 0, 0 },
                                { 7, 2, false, 0, 0 },
                                { 32, 1, false, 0, 0 },
                                { 5, 1, true, 0, 0 },
                                { MAX_IDS, 2, true, 0, 0 } };
    size_t           bytes = (size_t)g->n_prompt * (size_t)g->n_vocab * sizeof(float);
    float           *whole = malloc(bytes), *other = malloc(bytes);
    const char      *device = other_device() ? other_device() : "cpu";
    run(device, m, g, (way){ .chunk = MAX_IDS, .threads = 1, .cpu = cpu, .kv = kv }, whole, NULL);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        way w = ways[i];
        w.cpu = cpu;
        w.kv = kv;
        run(device, m, g, w, other, NULL);
        if (memcmp(whole, other, bytes) != 0)
            fail_msg("%s: other bits in chunks of %d on %d threads%s", g->name, w.chunk, w.threads,
                     w.company ? " beside another sequence" : "");
    }
    free(whole);
    free(other);
}

/* What one executor gives, from several. False: the model cannot be divided in this way. */
static bool is_same_divided(const golden *g, const nn_model *m, const float *one, float *two, const char *device) {
    const way         w = { .chunk = 7, .threads = 1, .company = true, .cpu = cpu_detect(), .kv = NN_KV_F32 };
    const nn_backend *backend;
    nn_device         d;
    nn_memory         memory;
    nn_exec_options   o = { .limits = { 1, 1, 1, 1, 32, 1, 1, 1 }, .n_threads = 1, .cpu = w.cpu };
    err               e = { 0 };
    assert_int_equal(backend_find(device, &backend, &d, &e), 0);
    if (backend->measure(&memory, &d, m, &o, &e) < 0) {
        if (e.code != ERR_UNSUPPORTED) fail_msg("%s on %s: %s", g->name, device, e.msg);
        return false;
    }
    run(device, m, g, w, two, NULL);
    if (memcmp(one, two, (size_t)g->n_prompt * (size_t)g->n_vocab * sizeof *one) != 0)
        fail_msg("%s: other bits on %s", g->name, device);
    return true;
}

/* Every number of layers and of mixtures that the family allows. Returns in how many ways it is divided. */
static int check_divided(const golden *g, const nn_model *m) {
    size_t bytes = (size_t)g->n_prompt * (size_t)g->n_vocab * sizeof(float);
    float *one = malloc(bytes), *two = malloc(bytes);
    char   device[32];
    int    n = 0;
    run("cpu", m, g, (way){ .chunk = 7, .threads = 1, .company = true, .cpu = cpu_detect(), .kv = NN_KV_F32 }, one,
        NULL);
    for (int layers = 1; layers <= m->tape->n_layer; layers++) {
        snprintf(device, sizeof device, "cpu/%d", layers);
        n += is_same_divided(g, m, one, two, device);
        snprintf(device, sizeof device, "cpu+cpu/%d+cpu/1", layers);
        if (layers < m->tape->n_layer) (void)is_same_divided(g, m, one, two, device);
    }
    (void)is_same_divided(g, m, one, two, "cpu+cpu+cpu");
    for (int mixtures = 0; nn_mixtures(m->tape) && mixtures <= nn_mixtures(m->tape); mixtures++) {
        snprintf(device, sizeof device, "cpu/experts:%d", mixtures);
        assert_true(is_same_divided(g, m, one, two, device));
    }
    assert_true(is_same_divided(g, m, one, two, "cpu/9999"));
    free(one);
    free(two);
    return n;
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
    return n_names >= 30 && n_names < MAX_MODELS ? 0 : -1; /* a full table may have lost some */
}

/* Of the small form (test_small) every eighth model. */
static int stride(void) { return test_small() ? 8 : 1; }

static void test_reference_logits(void **state) {
    (void)state;
    for (int i = 0; i < n_names; i += stride()) {
        golden g;
        golden_open(&g, root, names[i]);
        opened o = model_at(g.dir, g.n_prompt);
        if (other_device()) {
            check_reference(&g, other_device(), o.model, device_bound(&g), false, other_device());
        } else {
            check_reference(&g, "scalar", o.model, 2e-3, true, "scalar");
            check_reference(&g, "cpu", o.model, g.quantized ? 0.3 : 2e-3, !g.quantized,
                            g.quantized ? "cpu int8" : "cpu");
        }
        model_close(&o);
        free(g.logits);
    }
}

static void test_reference_logits_through_gguf(void **state) {
    (void)state;
    if (other_device()) return;
    char *dir = test_temp_dir(), path[600];
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    for (int i = 0; i < n_names; i++) {
        golden g;
        err    e = { 0 };
        golden_open(&g, root, names[i]);
        if (!g.quantized) {
            opened o = model_at(g.dir, g.n_prompt);
            int    rc = export_gguf(o.model, path, &e);
            bool   reordered = o.model->arch->reordered || o.model->config.unsaid;
            model_close(&o);
            if (rc == ERR_UNSUPPORTED && reordered) { /* golden_gguf reads these from an independent converter */
                print_message("  %-20s not written: %s\n", g.name, e.msg);
                free(g.logits);
                continue;
            }
            if (rc < 0) fail_msg("%s: %s", g.name, e.msg);
            o = model_at(path, g.n_prompt);
            assert_int_equal(model_file_format(o.file), MODEL_GGUF);
            check_reference(&g, "cpu", o.model, 2e-3, true, "gguf");
            model_close(&o);
        }
        free(g.logits);
    }
    test_temp_dir_remove(dir);
}

static void test_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < n_names; i += stride()) {
        golden g;
        golden_open(&g, root, names[i]);
        opened o = model_at(g.dir, g.n_prompt);
        check_same_bits(&g, o.model, cpu_detect(), NN_KV_F32);
        model_close(&o);
        free(g.logits);
    }
}

static void test_divided(void **state) {
    (void)state;
    for (int i = 0; i < n_names; i++) {
        golden g;
        golden_open(&g, root, names[i]);
        opened o = model_at(g.dir, g.n_prompt);
        int    n = check_divided(&g, o.model);
        if (n < 1) fail_msg("%s: none of %d layers can be apart", g.name, o.model->tape->n_layer);
        model_close(&o);
        free(g.logits);
    }
}

/* Quantized weights and pages, and each instruction set; a sanitizer looks around the kernels, not at them. */
static void test_same_bits_quantized(void **state) {
    static const char *const types[] = { "Q4_K", "Q8_0", "Q6_K", "F16" }, *const sets[] = { "scalar", "avx2", "all" };
    static const int kvs[] = { NN_KV_F16, NN_KV_Q8_0, NN_KV_F16, NN_KV_Q4_0 };
    char            *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/r.gguf", dir);
    for (int i = 0; i < 4; i++) {
        const nn_config_set set[] = { { "block_count", 2, false },
                                      { "embedding_length", 256, false },
                                      { "feed_forward_length", 512, false },
                                      { "attention.head_count", 4, false },
                                      { "attention.head_count_kv", 2, false },
                                      { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                      { "expert_count", i % 2 ? 5 : 0, false },
                                      { "expert_used_count", i % 2 ? 2 : 0, false },
                                      { "vocab_size", 300, false } };
        synth_options       o = { .arch = nn_arch_find(models_list, "llama"),
                                  .set = set,
                                  .n_set = sizeof set / sizeof *set,
                                  .n_vocab = 300,
                                  .seed = 5 };
        golden              g = { .n_prompt = 40, .n_greedy = 4, .n_vocab = 300 };
        err                 e = { 0 };
        snprintf(g.name, sizeof g.name, "random %s", types[i]);
        for (int k = 0; k < g.n_prompt; k++) g.prompt[k] = (k * 37 + 11) % 300;
        assert_true(tensor_type_parse(types[i], &o.type));
        if (synth_gguf(&o, path, &e) < 0) fail_msg("%s", e.msg);
        opened m = model_at(path, 0);
        for (int k = TEST_SANITIZED || other_device() ? 2 : 0; k < 3; k++) {
            unsigned mask;
            assert_true(cpu_parse(sets[k], &mask));
            check_same_bits(&g, m.model, cpu_detect() & mask, kvs[i]);
        }
        model_close(&m);
    }
    test_temp_dir_remove(dir);
}

int main(void) {
    test_filter();
    if (test_small()) print_message("small: every eighth model\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_logits),    cmocka_unit_test(test_reference_logits_through_gguf),
        cmocka_unit_test(test_same_bits),           cmocka_unit_test(test_divided),
        cmocka_unit_test(test_same_bits_quantized),
    };
    return cmocka_run_group_tests(tests, find_models, NULL);
}

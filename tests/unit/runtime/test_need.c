/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a model needs, computed from its file: against what an engine really takes, and what the process
 * grows by.
 */
#include "unit/support/support.h"

#include "base/machine.h"
#include "host/parent/budget.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/kv_type.h"
#include "runtime/need.h"
#include "unit/support/engine_support.h"
#include "unit/support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static need need_of(const fixture *f, const engine_options *o, int n_sequences) {
    need n;
    err  e = { 0 };
    if (need_of_model(&n, f->file, o, n_sequences, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(n.bytes.n, 1);
    assert_int_equal(device_memory_on(&n.bytes, DEVICE_CPU),
                     n.weights_bytes + n.cache_bytes + n.scratch_bytes + n.other_bytes);
    return n;
}

/* Every kind of memory: paged, windows, latent, fixed states beside pages, fixed states alone; several page types. */
static void test_same_as_opened(void **state) {
    static const char *const names[] = { "llama",       "gemma3_text", "gpt_oss", "deepseek_v3",
                                         "kimi_linear", "qwen3_next",  "lfm2",    "mamba2" };
    static const int         types[] = { NN_KV_F16, NN_KV_Q8_0, NN_KV_F32 };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fixture f;
        fixture_open(&f, names[i]);
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            engine_options o = {
                .n_ctx = 300, .max_seqs = 3, .n_threads = 2, .k_type = types[k], .v_type = types[k], .cpu = cpu_detect()
            };
            engine      *g;
            engine_stats s;
            err          e = { 0 };
            need         n = need_of(&f, &o, 0);
            if (engine_open(&g, f.model, NULL, &o, &e) < 0) fail_msg("%s", e.msg);
            engine_stat(g, &s);
            engine_free(g);
            assert_int_equal(n.n_ctx, 300);
            assert_int_equal(n.weights_bytes, model_file_bytes(f.file));
            assert_true(s.heap_bytes > 0);
            assert_int_equal(n.scratch_bytes, s.heap_bytes + f.model->mem.used_bytes);
            if (n.cache_bytes < s.pages_bytes)
                fail_msg("%s: %llu of %zu", names[i], (unsigned long long)n.cache_bytes, s.pages_bytes);
            bool fixed =
                n.sequence_bytes > 0 && strcmp(names[i], "gemma3_text") != 0 && strcmp(names[i], "gpt_oss") != 0;
            if (!fixed) assert_int_equal(n.cache_bytes, s.pages_bytes);
        }
        fixture_close(&f);
    }
}

/* By hand: keys and values of 1000 tokens in 16 bits each, layer by layer as the configurations say. */
static void test_by_hand(void **state) {
    engine_options o = { .n_ctx = 256, .k_type = NN_KV_F16, .v_type = NN_KV_F16 };
    fixture        f;
    need           n;
    (void)state;
    fixture_open(&f, "llama");
    n = need_of(&f, &o, 0);
    const nn_state *s = &f.model->state[0];
    uint64_t        token = (uint64_t)f.model->dims->n_layer * (uint64_t)s->n_kv * (uint64_t)(s->dim_k + s->dim_v) * 2;
    assert_int_equal(n.cache_bytes_per_1k, 1000 * token);
    assert_int_equal(n.sequence_bytes, 0);
    assert_int_equal(n.n_sequences, (2 * 8 + 16) / 8); /* two, and a page for each of 16 that run */
    assert_int_equal(need_of(&f, &o, 5).cache_bytes, 5 * 256 * token);
    assert_int_equal(need_of(&f, &o, 5).n_sequences, 5);
    o.n_ctx = 512;
    assert_int_equal(need_of(&f, &o, 5).cache_bytes, 5 * 512 * token);
    fixture_close(&f);

    fixture_open(&f, "deepseek_v3"); /* one latent and one rotated key per token and layer */
    o.n_ctx = 256;
    n = need_of(&f, &o, 1);
    s = &f.model->state[0];
    token = (uint64_t)f.model->dims->n_layer * (uint64_t)(s->dim_k + s->dim_v) * 2;
    assert_int_equal(n.cache_bytes_per_1k, 1000 * token);
    fixture_close(&f);

    fixture_open(&f, "mamba2"); /* nothing grows */
    n = need_of(&f, &o, 1);
    assert_int_equal(n.cache_bytes_per_1k, 0);
    assert_true(n.sequence_bytes > 0);
    fixture_close(&f);

    fixture_open(&f, "gemma3_text"); /* only the layers that see everything grow */
    n = need_of(&f, &o, 1);
    token = 0;
    for (int i = 0; i < f.model->dims->n_layer; i++) {
        s = &f.model->state[i];
        if (s->kind == NN_STATE_PAGED_KV) token += (uint64_t)s->n_kv * (uint64_t)(s->dim_k + s->dim_v) * 2;
    }
    assert_true(token > 0);
    assert_int_equal(n.cache_bytes_per_1k, 1000 * token);
    assert_true(n.sequence_bytes > 0);
    fixture_close(&f);
}

/* Where nobody says how long a sequence may be: the model's own length, as far as the cache reaches. */
static void test_own_context(void **state) {
    enum { TRAINED = 131072 };
    fixture       f;
    engine_memory m;
    err           e = { 0 };
    (void)state;
    fixture_open(&f, "llama");
    *(int *)(uintptr_t)&f.model->dims->context = TRAINED;
    engine_options o = { .max_seqs = 4, .cpu = cpu_detect(), .cache_room = (size_t)64 << 30 };
    assert_int_equal(engine_measure(&m, f.model, &o, &e), 0);
    assert_int_equal(m.n_ctx, TRAINED); /* room for two of them is taken, not more */
    assert_int_equal(m.full_sequences, 2);
    size_t page = m.all_page_bytes, per_seq = TRAINED / (size_t)m.page_tokens;
    assert_int_equal(m.pages_bytes, (2 * per_seq + 4) * page);

    o.cache_room = (per_seq / 2 + 4) * page; /* half of it fits */
    assert_int_equal(engine_measure(&m, f.model, &o, &e), 0);
    assert_int_equal(m.n_ctx, TRAINED / 2);
    assert_int_equal(m.pages_bytes, o.cache_room);

    o.cache_room = 0; /* 8192 always do, twice */
    assert_int_equal(engine_measure(&m, f.model, &o, &e), 0);
    assert_int_equal(m.n_ctx, 8192);
    assert_int_equal(m.pages_bytes, (2 * 8192 / (size_t)m.page_tokens + 4) * page);

    o.cache_bytes = (per_seq / 4 + 1) * page; /* a cache that was chosen bounds it alike */
    assert_int_equal(engine_measure(&m, f.model, &o, &e), 0);
    assert_int_equal(m.n_ctx, TRAINED / 4);
    o.n_ctx = TRAINED / 2; /* and a context that was chosen stays */
    assert_int_equal(engine_measure(&m, f.model, &o, &e), 0);
    assert_int_equal(m.n_ctx, TRAINED / 2);
    fixture_close(&f);
}

/* --- what the process grows by ------------------------------------------------------------------------------------ */

static uint64_t resident(void) {
    unsigned long long size, pages = 0;
    FILE              *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%llu %llu", &size, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

enum { CONTEXT = 512 };

/* In a process of its own: opens the model and fills the cache with two full sequences. Growth in *out. */
static int grow(const char *path, const engine_options *o, uint64_t *out) {
    uint64_t       before = resident(), seed = 3;
    err            e = { 0 };
    model_file    *f;
    nn_model      *m;
    engine        *g;
    static int32_t tokens[CONTEXT];
    static answer  a;
    if (model_file_open(&f, path, &e) < 0 || nn_model_open(&m, f, models_list, NULL, &e) < 0 ||
        engine_open(&g, m, NULL, o, &e) < 0)
        return 1;
    for (int k = 0; k < 2; k++) {
        engine_request r = {
            .tokens = tokens, .n_tokens = CONTEXT - 2, .max_tokens = 1, .on_event = answer_collect, .ctx = &a
        };
        uint64_t id;
        for (int i = 0; i < CONTEXT; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)m->dims->n_vocab);
        sampling_params_default(&r.sampling);
        if (engine_submit(g, &r, &id, &e) < 0) return 2;
        engine_wait_idle(g);
    }
    *out = resident() - before;
    return 0;
}

/* Weights, cache and scratch are all that grows: not more than said, not much less. */
static void test_resident(void **state) {
    static const char *const models[] = { "llama", "gemma3 --set attention.sliding_window=128", "deepseek2",
                                          "qwen3next" };
    char                    *dir, path[600], command[1024];
    (void)state;
    if (TEST_SANITIZED) {
        printf("skipped: under a sanitizer the heap is larger than what was asked for\n");
        skip();
    }
    dir = test_temp_dir();
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        engine_options o = { .n_ctx = CONTEXT,
                             .max_seqs = 2,
                             .n_threads = 2,
                             .k_type = NN_KV_F32,
                             .v_type = NN_KV_F32,
                             .cpu = cpu_detect() };
        uint64_t       grown = 0;
        int            pipes[2], status;
        need           n;
        err            e = { 0 };
        char          *said;
        snprintf(command, sizeof command,
                 "debug random-model '%s' --arch %s --layers 4 --dim 512 --vocab 8000 --type Q8_0", path, models[i]);
        assert_int_equal(program_run("", command, &said), 0);
        free(said);
        if (need_of_path(&n, path, &o, 0, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(pipe(pipes), 0);
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            int rc = grow(path, &o, &grown);
            if (rc == 0 && write(pipes[1], &grown, sizeof grown) != sizeof grown) rc = 3;
            _exit(rc);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(read(pipes[0], &grown, sizeof grown), sizeof grown);
        close(pipes[0]);
        close(pipes[1]);
        uint64_t said_bytes = n.weights_bytes + n.cache_bytes + n.scratch_bytes;
        printf("%s: %.1f MiB said, %.1f MiB grown\n", models[i], (double)said_bytes / 1048576, (double)grown / 1048576);
        assert_true(grown <= device_memory_on(&n.bytes, DEVICE_CPU));
        assert_true((double)grown <= 1.1 * (double)said_bytes + 4e6);
        assert_true((double)grown >= 0.5 * (double)said_bytes);
    }
    test_temp_dir_remove(dir);
}

static void test_mistakes(void **state) {
    engine_options o = { .n_ctx = 256 };
    need           n;
    err            e = { 0 };
    (void)state;
    assert_int_equal(need_of_path(&n, "/nowhere/x.gguf", &o, 0, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "/nowhere/x.gguf"));
    o.page_tokens = 33;
    assert_true(need_of_path(&n, HEARTH_SOURCE_DIR "/models/demo/demo.gguf", &o, 0, &e) < 0);
}

static void test_available(void **state) {
    const char *from = NULL;
    uint64_t    bytes = machine_memory_available(&from);
    (void)state;
    assert_non_null(from);
    assert_true(bytes > 16 << 20);
}

static device_memory two(uint64_t cpu, uint64_t gpu) {
    device_memory m = { 0 };
    if (cpu) assert_true(device_memory_add(&m, DEVICE_CPU, cpu));
    if (gpu) assert_true(device_memory_add(&m, "cuda:0", gpu));
    return m;
}

static void test_device_memory(void **state) {
    device_memory m = { 0 };
    char          name[80];
    (void)state;
    assert_null(device_memory_find(&m, DEVICE_CPU));
    assert_int_equal(device_memory_on(&m, DEVICE_CPU), 0);
    assert_true(device_memory_add(&m, DEVICE_CPU, 5) && device_memory_add(&m, DEVICE_CPU, 6));
    assert_true(device_memory_add(&m, "cuda:0", UINT64_MAX) && device_memory_add(&m, "cuda:0", 1));
    assert_true(m.n == 2 && device_memory_on(&m, DEVICE_CPU) == 11 && device_memory_on(&m, "cuda:0") == UINT64_MAX);
    assert_true(device_memory_sum(&m) == UINT64_MAX);
    assert_true(device_memory_beside(&m) == UINT64_MAX);
    assert_true(device_memory_set(&m, "cuda:0", 4) && device_memory_sum(&m) == 15 && device_memory_beside(&m) == 4);
    memset(name, 'x', sizeof name);
    name[64] = '\0';
    assert_false(device_memory_add(&m, name, 1));
    name[63] = '\0';
    assert_true(device_memory_add(&m, name, 1));
    assert_false(device_memory_add(&m, "", 1));
    assert_false(device_memory_add(&m, "a b", 1));
    assert_false(device_memory_add(&m, "\xff", 1));
    for (size_t i = m.n; i < DEVICE_MEMORY_MAX; i++) {
        snprintf(name, sizeof name, "d:%zu", i);
        assert_true(device_memory_add(&m, name, 1));
    }
    assert_false(device_memory_add(&m, "one-more", 1));
    assert_true(device_memory_add(&m, "d:9", 1) && m.n == DEVICE_MEMORY_MAX);
}

/* Less and less of a model, and then nothing: the host counts how often a worker asks for another place. */
static void test_smaller(void **state) {
    (void)state;
    for (int layers = 1; layers <= 256; layers++) {
        for (int mixtures = 0; mixtures <= layers; mixtures += layers) {
            need n = {
                .device = "cuda:0", .limits = { { { "cuda:0", 1 } }, 1 }, .n_layer = layers, .n_mixtures = mixtures
            };
            int times = 0;
            while (need_smaller(&n, n.device)) {
                if (++times > 16) fail_msg("%d layers, %d with experts: still %s", layers, mixtures, n.device);
                assert_memory_equal(n.device, "cuda:0/", 7);
            }
            if (layers >= 2 && times == 0) fail_msg("%d layers: nothing smaller", layers);
        }
    }
    need cpu = { .device = DEVICE_CPU, .n_layer = 8 };
    assert_false(need_smaller(&cpu, cpu.device));
    need several = { .device = "cuda:0+cuda:1",
                     .limits = { { { "cuda:0", 100 }, { "cuda:1", 300 } }, 2 },
                     .n_layer = 32 };
    assert_true(need_smaller(&several, several.device));
    assert_string_equal(several.device, "cuda:0/6+cuda:1/18");
    assert_true(need_smaller(&several, several.device));
    assert_string_equal(several.device, "cuda:0/5+cuda:1/13"); /* 18 of them, as the memory is divided */
}

/* Where a device is named, or none is there, nothing is left; a device that is too small says what would fit. */
static void test_device(void **state) {
    engine_options o = { .device = DEVICE_CPU };
    model_file    *f;
    need           n, more;
    err            e = { 0 };
    (void)state;
    assert_int_equal(model_file_open(&f, HEARTH_SOURCE_DIR "/models/demo/demo.gguf", &e), 0);
    assert_int_equal(need_of_model(&n, f, &o, 0, &e), 0);
    assert_string_equal(n.device, DEVICE_CPU);
    assert_true(!n.left[0] && n.limits.n == 0 && n.cache_room > 0);
    assert_false(need_may_leave(DEVICE_CPU, ERR_NOMEM));
    assert_int_equal(need_check_device(&n, HEARTH_SOURCE_DIR "/models/demo/demo.gguf", &o, &e), 0);
    uint64_t all = device_memory_on(&n.bytes, DEVICE_CPU);
    assert_true(need_fits(&n, all) && need_fits(&n, 0) && !need_fits(&n, all - 1));
    int context = need_fitting_context(&n, f, &o, 0, all - 1);
    assert_true(context > 0 && context < n.n_ctx);
    o.n_ctx = context;
    assert_int_equal(need_of_model(&more, f, &o, 0, &e), 0);
    assert_true(device_memory_on(&more.bytes, DEVICE_CPU) < all);
    (void)device_memory_set(&n.limits, DEVICE_CPU, all - 1); /* as though it had memory of its own */
    assert_int_equal(need_check_device(&n, HEARTH_SOURCE_DIR "/models/demo/demo.gguf", &o, &e), ERR_NOMEM);
    assert_non_null(strstr(e.msg, "where models may take"));
    model_file_free(f);
}

/* A model fits where it fits on every device; only those that have something where it does not can help. */
static void test_budget(void **state) {
    device_memory budget = two(100, 50), none = { 0 }, unlimited = two(UINT64_MAX, 0), w, taken;
    (void)state;
    w = two(100, 50);
    assert_null(budget_lacking(&budget, &none, &w));
    w = two(101, 1);
    assert_string_equal(budget_lacking(&budget, &none, &w), "cpu");
    w = two(1, 51);
    assert_string_equal(budget_lacking(&budget, &none, &w), "cuda:0");
    assert_null(budget_unknown(&budget, &w));
    assert_string_equal(budget_unknown(&unlimited, &w), "cuda:0");
    w = two(UINT64_MAX, 0);
    assert_null(budget_lacking(&unlimited, &none, &w));
    /* Beside others. */
    taken = two(60, 40);
    w = two(40, 10);
    assert_null(budget_lacking(&budget, &taken, &w));
    w = two(40, 11);
    assert_string_equal(budget_lacking(&budget, &taken, &w), "cuda:0");
    taken = two(0, 50);
    w = two(40, 0); /* a full device that it does not need is not its concern */
    assert_null(budget_lacking(&budget, &taken, &w));
    taken = two(UINT64_MAX, 0);
    assert_string_equal(budget_lacking(&budget, &taken, &w), "cpu");

    device_memory on_cpu = two(60, 0), on_gpu = two(0, 40), on_both = two(10, 10);
    taken = two(60, 40);
    w = two(10, 20); /* lacks cuda:0 only */
    assert_false(budget_helps(&budget, &taken, &w, &on_cpu));
    assert_true(budget_helps(&budget, &taken, &w, &on_gpu));
    assert_true(budget_helps(&budget, &taken, &w, &on_both));
    w = two(50, 20); /* lacks both */
    assert_true(budget_helps(&budget, &taken, &w, &on_cpu) && budget_helps(&budget, &taken, &w, &on_gpu));
    w = two(10, 10); /* lacks nothing but a place: anybody's will do */
    assert_true(budget_helps(&budget, &taken, &w, &on_cpu) && budget_helps(&budget, &taken, &w, &on_gpu));
}

/* A mixture within less memory than it needs: never more than there is, what is opened is what was measured, and below the
 * least a refusal with the numbers. */
static void test_streamed(void **state) {
    fixture f;
    (void)state;
    fixture_open(&f, "qwen3_moe");
    engine_options o = {
        .n_ctx = 300, .max_seqs = 3, .step_tokens = 8, .n_threads = 2, .device = "cpu", .cpu = cpu_detect()
    };
    need     resident = need_of(&f, &o, 0);
    uint64_t all = device_memory_on(&resident.bytes, DEVICE_CPU);
    int      streamed = 0, refused = 0;
    o.experts_auto = true;
    for (uint64_t room = all + 4096; room > all - (256 << 10); room -= 4096) {
        need n;
        err  e = { 0 };
        o.memory_room = room;
        if (need_of_model(&n, f.file, &o, 0, &e) < 0) {
            assert_int_equal(e.code, ERR_NOMEM);
            assert_non_null(strstr(e.msg, "with as few of its experts as can be"));
            refused++;
            continue;
        }
        assert_int_equal(refused, 0);
        assert_true(device_memory_on(&n.bytes, DEVICE_CPU) <= room);
        assert_true((n.experts.bytes == 0) == (room >= all));
        if (!n.experts.bytes) continue;
        streamed++;
        assert_int_equal(device_memory_on(&n.bytes, DEVICE_CPU), n.weights_bytes - n.experts.streamed +
                                                                     n.experts.bytes + n.cache_bytes + n.scratch_bytes +
                                                                     n.other_bytes);
        engine_options opened = o;
        engine        *g;
        engine_stats   st;
        opened.expert_bytes = n.experts.bytes;
        if (engine_open(&g, f.model, NULL, &opened, &e) < 0) fail_msg("%s", e.msg);
        engine_stat(g, &st);
        engine_free(g);
        assert_int_equal(st.experts.slots, n.experts.slots);
        assert_int_equal(n.scratch_bytes, st.heap_bytes + f.model->mem.used_bytes);
    }
    assert_true(refused > 0 && streamed > 5);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_opened), cmocka_unit_test(test_streamed),      cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_own_context),    cmocka_unit_test(test_resident),      cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_available),      cmocka_unit_test(test_device_memory), cmocka_unit_test(test_device),
        cmocka_unit_test(test_smaller),        cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

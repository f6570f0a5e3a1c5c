/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap while the engine runs. The program is linked with the allocator's functions wrapped: every call looks at
 * the promise of base/noalloc.h and keeps the balance of live blocks. Facts: no thread allocates or frees inside a
 * step, and after thousands of steps exactly as much is alive as after the first few hundred. The number of steps may
 * be given: ten thousand in `make soak`.
 */
#include "nn/kv_type.h"
#include "unit/support/adapter_support.h"
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "base/noalloc.h"
#include "bundle/tokenizer.h"
#include "kernels/cpu.h"
#include "models/list.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t n_steps_long = 2500;

static atomic_long live_blocks, live_bytes, calls, broken;

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
char *__real_strdup(const char *);
void  __real_free(void *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
char *__wrap_strdup(const char *);
void  __wrap_free(void *);

static void look(void) {
    atomic_fetch_add(&calls, 1);
    if (noalloc_depth > 0) atomic_fetch_add(&broken, 1);
}

static void *count(void *p) {
    if (p) {
        atomic_fetch_add(&live_blocks, 1);
        atomic_fetch_add(&live_bytes, (long)malloc_usable_size(p));
    }
    return p;
}

static void uncount(void *p) {
    if (!p) return;
    atomic_fetch_sub(&live_blocks, 1);
    atomic_fetch_sub(&live_bytes, (long)malloc_usable_size(p));
}

void *__wrap_malloc(size_t n) {
    look();
    return count(__real_malloc(n));
}
void *__wrap_calloc(size_t n, size_t m) {
    look();
    return count(__real_calloc(n, m));
}
void *__wrap_realloc(void *p, size_t n) {
    look();
    uncount(p);
    void *q = __real_realloc(p, n);
    if (!q && p) count(p);
    return count(q);
}
void *__wrap_aligned_alloc(size_t a, size_t n) {
    look();
    return count(__real_aligned_alloc(a, n));
}
char *__wrap_strdup(const char *s) {
    look();
    return count(__real_strdup(s));
}
void __wrap_free(void *p) {
    look();
    uncount(p);
    __real_free(p);
}

static void forget(void *ctx, const engine_event *ev) {
    if (ev->kind == ENGINE_ERROR) fail_msg("%s", ev->error->msg);
    *(size_t *)ctx += ev->text.len;
}

/* The promise is looked at: a test of the test. */
static void test_promise(void **state) {
    (void)state;
    long before = atomic_load(&broken);
    noalloc_begin();
    void *volatile p = malloc(100);
    int depth = noalloc_pause();
    free(p);
    noalloc_resume(depth);
    noalloc_end();
    assert_int_equal(atomic_exchange(&broken, before), before + 1);
}

/* The same mixed requests again and again; everything they leave fits into the cache. */
static nn_adapter_set *sets[2]; /* that some requests use; NULL: none */

static void run_round(engine *g, size_t *bytes) {
    static const char *const stops[] = { "never in the text", "zzzz" };
    static const size_t      lengths[] = { 17, 4 };
    int32_t                  tokens[60];
    for (int i = 0; i < 12; i++) {
        uint64_t seed = (uint64_t)i;
        for (int k = 0; k < 60; k++) tokens[k] = (int32_t)(test_random(&seed) % 256);
        engine_request r = { .tokens = tokens,
                             .n_tokens = (size_t)(5 + 5 * i),
                             .max_tokens = 40,
                             .ignore_eos = true,
                             .want_logprob = i % 2,
                             .n_top = i % 2 ? 5 : 0,
                             .stop = stops,
                             .stop_bytes = lengths,
                             .n_stop = i % 3 ? 0 : 2,
                             .n_choices = i == 7 ? 2 : 1,
                             .client = (uint64_t)(i % 3),
                             .pooling = i == 5   ? ENGINE_POOL_MEAN
                                        : i == 6 ? ENGINE_POOL_LAST
                                                 : ENGINE_POOL_NONE,
                             .on_event = forget,
                             .ctx = bytes };
        sampling_params_default(&r.sampling);
        r.sampling.temperature = 0.9f;
        r.sampling.top_p = 0.95f;
        r.sampling.repeat_penalty = 1.1f;
        r.sampling.dry_multiplier = i % 4 == 1 ? 0.8f : 0.0f;
        if (i % 4 == 0) r.guide = test_guide((uint64_t)i, engine_vocab(g), i == 8 ? 12 : 0);
        if (i % 3) r.adapters = sets[i % 3 - 1];
        engine_submit_ok(g, &r);
    }
    engine_wait_idle(g);
}

static long resident_pages(void) {
    long  size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident;
}

/* Drafts, too. Where they end decides at which positions a model with fixed states leaves some in the cache: of those how
 * many there are is not compared. */
static void check_steps(const nn_model *m, const tok *t, const char *name, int n_threads, uint64_t n_steps) {
    bool           states = m->state[0].rec_heads > 0;
    engine        *g;
    engine_stats   st = { 0 };
    engine_options o = {
        .n_ctx = 128, .n_threads = n_threads, .max_seqs = 5, .step_tokens = 32, .k_type = NN_KV_F16, .v_type = NN_KV_F16
    };
    err    e;
    size_t bytes = 0;
    o.cpu = cpu_detect();
    o.cache_bytes = (size_t)64 << 20;
    o.speculate = ENGINE_SPECULATE_AUTO;
    o.draft_always = true;
    if (engine_open(&g, m, t, &o, &e) < 0) fail_msg("%s", e.msg);
    for (int i = 0; i < 3; i++) run_round(g, &bytes);
    long     broken_before = atomic_load(&broken);
    long     blocks = atomic_load(&live_blocks), alive = atomic_load(&live_bytes), resident = resident_pages();
    uint64_t warm = (engine_stat(g, &st), st.steps);
    while (st.steps < n_steps) {
        run_round(g, &bytes);
        engine_stat(g, &st);
    }
    print_message(
        "%s: %llu steps behind a warm-up of %llu: %ld blocks, %ld bytes more; resident pages %+ld; %ld heap calls "
        "in steps; %zu bytes of text\n",
        name, (unsigned long long)(st.steps - warm), (unsigned long long)warm, atomic_load(&live_blocks) - blocks,
        atomic_load(&live_bytes) - alive, resident_pages() - resident, atomic_load(&broken) - broken_before, bytes);
    assert_int_equal(atomic_load(&broken), broken_before);
    if (!states) assert_int_equal(atomic_load(&live_blocks), blocks);
    if (!states) assert_int_equal(atomic_load(&live_bytes), alive);
    assert_true(st.drafted > 0);
    assert_true(!t || bytes > 0);
    engine_free(g);
}

/* With text: the small model that comes with the demo, then its tokenizer with a smaller model. */
static void test_many_steps(void **state) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    tok        *t = NULL;
    fixture     llama;
    char        path[512];
    err         e;
    (void)state;
    snprintf(path, sizeof path, "%s/models/demo/draft.gguf", HEARTH_SOURCE_DIR);
    if (model_file_open(&f, path, &e) < 0 || nn_model_open(&m, f, models_list, NULL, &e) < 0 ||
        bundle_tokenizer_open(&t, f, &(tok_options){ 0 }, &e) < 0)
        fail_msg("%s", e.msg);
    check_steps(m, t, "demo draft", 2, 300);
    fixture_open(&llama, "llama");
    test_peft   files[2];
    nn_adapter *adapters[2];
    for (int i = 0; i < 2; i++) {
        test_peft_make(&files[i], (uint64_t)i, 3 + 20 * i);
        adapters[i] = test_peft_open(&files[i], llama.model);
        if (nn_adapter_set_open(&sets[i], llama.model, &(nn_adapter_use){ adapters[i], 0.5f }, 1, &e) < 0)
            fail_msg("%s", e.msg);
    }
    check_steps(llama.model, t, "llama", 1, n_steps_long);
    for (int i = 0; i < 2; i++) {
        nn_adapter_set_free(sets[i]);
        nn_adapter_free(adapters[i]);
        test_peft_free(&files[i]);
        sets[i] = NULL;
    }
    fixture_close(&llama);
    tok_free(t);
    nn_model_free(m);
    model_file_free(f);
}

static void test_state_kinds(void **state) {
    static const char *const names[] = { "gemma3_text", "deepseek_v3", "qwen3_next" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fixture f;
        fixture_open(&f, names[i]);
        check_steps(f.model, NULL, names[i], 1, n_steps_long / 4);
        fixture_close(&f);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promise),
        cmocka_unit_test(test_many_steps),
        cmocka_unit_test(test_state_kinds),
    };
    if (argc > 1) n_steps_long = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters of an opened model: read when they are named, kept within a budget, read again when their file was replaced;
 * requests with and without them from several threads while others come and go.
 */
#include "unit/support/adapter_support.h"
#include "unit/support/model.h"
#include "unit/support/runtime_support.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "formats/model_file.h"
#include "models/list.h"
#include "nn/bound.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char home[64];

/* Both factors of every matrix of the demo model's first layers, in PEFT's form. */
static void write_adapter(const char *name, uint64_t seed) {
    static test_tensor t[64];
    static char        names[64][160];
    model_file        *file;
    nn_model          *m = NULL;
    err                e = { 0 };
    int                n = 0;
    test_peft          p;
    if (model_file_open(&file, TEST_DEMO, &e) < 0 || nn_model_open(&m, file, models_list, NULL, &e) < 0)
        fail_msg("%s", e.msg);
    for (const nn_bound *b = m->bound; b && n < 40; b = b->next) {
        int length = (int)strcspn(b->hf, "|#");
        if (!*b->hf_prefix || b->hf[length] == '#') continue;
        for (int k = 0; k < 2; k++, n++) {
            int64_t rows = k ? b->mat->rows : 4, cols = k ? 4 : b->mat->cols;
            float  *v = malloc((size_t)(rows * cols) * sizeof *v);
            assert_non_null(v);
            for (int64_t i = 0; i < rows * cols; i++) v[i] = ((float)(test_random(&seed) % 2001) - 1000) * 3e-4f;
            snprintf(names[n], sizeof names[n], "base_model.model.%s%.*s.lora_%c.weight", b->hf_prefix, length, b->hf,
                     k ? 'B' : 'A');
            t[n] = (test_tensor){ names[n], "F32", rows, cols, v, (size_t)(rows * cols) * sizeof *v };
        }
    }
    str_init(&p.config);
    str_init(&p.data);
    str_puts(&p.config, "{\"peft_type\":\"LORA\",\"lora_alpha\":8}");
    test_safetensors(&p.data, t, (size_t)n);
    char dir[160];
    snprintf(dir, sizeof dir, "%s/%s", home, name);
    test_peft_write(&p, dir);
    test_peft_free(&p);
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)t[i].data);
    nn_model_free(m);
    model_file_free(file);
}

typedef struct wish {
    runtime_request q;
    runtime_lora    lora[2];
    char            paths[2][160];
} wish;

static void ask_for(wish *w, const char *one, const char *two) {
    runtime_request_init(&w->q);
    w->q.task = RUNTIME_COMPLETE;
    w->q.text = view_of("Once upon a time");
    w->q.max_tokens = 12;
    w->q.ignore_eos = true;
    w->q.sampling.temperature = 0;
    w->q.sampling_set = RUNTIME_SET_TEMPERATURE;
    const char *names[] = { one, two };
    for (int i = 0; i < 2 && names[i]; i++) {
        snprintf(w->paths[i], sizeof w->paths[i], "%s/%s", home, names[i]);
        w->lora[w->q.n_lora++] = (runtime_lora){ view_of(w->paths[i]), i ? 0.5 : 1 };
    }
    w->q.lora = w->lora;
}

static char *text_of(runtime *r, const char *one, const char *two) {
    wish        w;
    test_result out;
    ask_for(&w, one, two);
    test_ask(r, &w.q, &out);
    if (out.failed) fail_msg("%s", out.why.msg);
    char *text = strdup(str_cstr(&out.a[0].content));
    test_result_deinit(&out);
    return text;
}

static runtime *open_runtime(size_t adapter_bytes) {
    runtime        *r;
    err             e = { 0 };
    runtime_options o = { .path = TEST_DEMO, .adapter_bytes = adapter_bytes };
    o.engine.n_threads = 1;
    o.engine.max_seqs = 4;
    o.engine.n_ctx = 128;
    if (runtime_open(&r, &o, &e) < 0) fail_msg("%s", e.msg);
    return r;
}

static int make_files(void **state) {
    (void)state;
    snprintf(home, sizeof home, "/tmp/hearth-adapters-%ld", (long)getpid());
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        write_adapter(name, 100 + (uint64_t)i);
    }
    return 0;
}

static int remove_files(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", home);
    return system(command);
}

static void test_chosen(void **state) {
    runtime      *r = open_runtime(0);
    runtime_stats st;
    wish          w;
    (void)state;
    char *base = text_of(r, NULL, NULL), *one = text_of(r, "a0", NULL), *both = text_of(r, "a0", "a1");
    char *again = text_of(r, NULL, NULL);
    assert_string_equal(base, again);
    assert_string_not_equal(base, one);
    assert_string_not_equal(one, both);
    runtime_stat(r, &st);
    assert_int_equal(st.adapters, 2);
    assert_true(st.adapter_bytes > 0);
    ask_for(&w, "nothing", NULL);
    test_request_refused(r, &w.q, ERR_IO, "lora");
    free(base);
    free(one);
    free(both);
    free(again);
    runtime_free(r);
}

/* Another file under the same name: the answer is that of the new one. */
static void test_replaced(void **state) {
    runtime *r = open_runtime(0), *fresh;
    (void)state;
    write_adapter("changing", 1);
    char *first = text_of(r, "changing", NULL);
    write_adapter("changing", 2);
    char *second = text_of(r, "changing", NULL);
    assert_string_not_equal(first, second);
    fresh = open_runtime(0);
    char *wanted = text_of(fresh, "changing", NULL);
    assert_string_equal(second, wanted);
    free(first);
    free(second);
    free(wanted);
    runtime_free(fresh);
    runtime_free(r);
}

/* Room for one: the others come and go; too little for any is said. */
static void test_budget(void **state) {
    runtime_stats st;
    runtime      *r = open_runtime(0);
    wish          w;
    (void)state;
    free(text_of(r, "a0", NULL));
    runtime_stat(r, &st);
    size_t one = (size_t)st.adapter_bytes;
    runtime_free(r);
    r = open_runtime(one + one / 2);
    for (int i = 0; i < 8; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i % 4);
        free(text_of(r, name, NULL));
        runtime_stat(r, &st);
        assert_int_equal(st.adapters, 1);
    }
    runtime_free(r);
    r = open_runtime(1000);
    ask_for(&w, "a0", NULL);
    test_request_refused(r, &w.q, ERR_LIMIT, "adapters may take 1000");
    runtime_free(r);
}

typedef struct client {
    runtime    *r;
    int         number;
    const char *wanted[5];
    bool        wrong;
} client;

static void *client_main(void *ctx) {
    client *c = ctx;
    char    names[4][8];
    for (int i = 0; i < 4; i++) snprintf(names[i], sizeof names[i], "a%d", i);
    for (int i = 0; i < (TEST_SANITIZED ? 4 : 10); i++) {
        int         k = (c->number + i) % 5;
        wish        w;
        test_result out;
        ask_for(&w, k < 4 ? names[k] : NULL, NULL);
        test_ask(c->r, &w.q, &out);
        /* With a small budget a request may find everything in use. */
        bool same = out.failed ? out.why.code == ERR_BUSY : strcmp(str_cstr(&out.a[0].content), c->wanted[k]) == 0;
        c->wrong = c->wrong || !same;
        test_result_deinit(&out);
    }
    return NULL;
}

static void test_under_load(void **state) {
    runtime      *r = open_runtime(0);
    runtime_stats st;
    client        clients[4];
    pthread_t     threads[4];
    char         *wanted[5];
    (void)state;
    for (int k = 0; k < 5; k++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", k);
        wanted[k] = text_of(r, k < 4 ? name : NULL, NULL);
    }
    runtime_stat(r, &st);
    size_t all = (size_t)st.adapter_bytes;
    runtime_free(r);
    r = open_runtime(all * 3 / 4); /* they make room for each other all the time */
    for (int i = 0; i < 4; i++) {
        clients[i] = (client){ .r = r, .number = i };
        memcpy(clients[i].wanted, wanted, sizeof wanted);
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, &clients[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_false(clients[i].wrong);
    }
    runtime_free(r);
    for (int k = 0; k < 5; k++) free(wanted[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_under_load),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}

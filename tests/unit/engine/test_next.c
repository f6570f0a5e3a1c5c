/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads for further tokens against their references (tests/golden/next): the states that the model gives them, what they
 * say and hand on at every position, and the drafts that the drafter makes with them, token by token. In a file of their own
 * and in the model's.
 *
 *     test_next [device]
 */
#include "backend/backend.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/drafter.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tensor/codec.h"
#include "tools/simple.h"
#include "unit/support/model.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_IDS = 64, DRAFT = 4 };

#define GOLDEN HEARTH_SOURCE_DIR "/tests/golden/"

/* In standard deviations; that of the families' logits (test_models_golden). A GPU's products have 16-bit inputs. */
static double bound = 2e-3;

static const char *device_id = "cpu";

typedef struct golden {
    char    name[64], base[64];
    bool    eagle;
    int32_t prompt[MAX_IDS], draft[DRAFT];
    int     n;
    double  logit_std, hidden_std;
    float  *hidden, *logits, *behind;
    size_t  hidden_bytes, logits_bytes, behind_bytes;
} golden;

typedef struct opened {
    model_file *file, *head_file;
    nn_model   *model;
    nn_next    *next;
} opened;

static int read_ids(const json_value *v, int32_t *out, int most) {
    int64_t id;
    int     n = (int)json_count(v);
    assert_true(n <= most);
    for (int i = 0; i < n; i++) {
        assert_true(json_int(json_at(v, (size_t)i), &id));
        out[i] = (int32_t)id;
    }
    return n;
}

static float *read_floats(const char *name, const char *file, size_t *bytes) {
    char path[512], *data;
    err  e;
    snprintf(path, sizeof path, GOLDEN "next/%s/%s", name, file);
    if (file_read(&data, bytes, path, 1 << 24, &e) < 0) fail_msg("%s", e.msg);
    return (float *)data;
}

static void golden_open(golden *g, const char *name) {
    char              path[512], *text;
    size_t            bytes;
    arena             mem;
    const json_value *doc;
    err               e;
    *g = (golden){ 0 };
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(path, sizeof path, GOLDEN "next/%s/golden.json", name);
    if (file_read(&text, &bytes, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    arena_init(&mem, 0);
    assert_int_equal(json_parse(&doc, text, bytes, &mem, &e), 0);
    snprintf(g->base, sizeof g->base, "%s", json_cstr(json_get(doc, "base")));
    g->eagle = strcmp(json_cstr(json_get(doc, "kind")), "eagle3") == 0;
    g->n = read_ids(json_get(doc, "prompt"), g->prompt, MAX_IDS);
    assert_int_equal(read_ids(json_get(doc, "draft"), g->draft, DRAFT), DRAFT);
    assert_true(json_number(json_get(doc, "logit_std"), &g->logit_std));
    assert_true(json_number(json_get(doc, "hidden_std"), &g->hidden_std));
    arena_deinit(&mem);
    free(text);
    g->hidden = read_floats(name, "hidden.f32", &g->hidden_bytes);
    g->logits = read_floats(name, "logits.f32", &g->logits_bytes);
    g->behind = read_floats(name, "behind.f32", &g->behind_bytes);
}

static void golden_close(golden *g) {
    free(g->hidden);
    free(g->logits);
    free(g->behind);
}

static opened open_pair(const golden *g) {
    opened o = { 0 };
    err    e = { 0 };
    char   path[512];
    snprintf(path, sizeof path, GOLDEN "models/%s", g->base);
    int rc = model_file_open(&o.file, path, &e);
    if (rc == 0) rc = nn_model_open(&o.model, o.file, models_list, NULL, &e);
    snprintf(path, sizeof path, GOLDEN "next/%s", g->name);
    if (rc == 0) rc = model_file_open(&o.head_file, path, &e);
    if (rc == 0 && g->eagle) rc = nn_eagle_open(&o.next, o.model, o.head_file, &models_eagle3, &e);
    if (rc == 0 && !g->eagle) rc = nn_next_open(&o.next, o.model, o.head_file, &e);
    if (rc < 0) fail_msg("%s: %s", g->name, e.msg);
    if (!o.next) fail_msg("%s: no head was found", g->name);
    assert_true(o.next->alone);
    return o;
}

static void close_pair(opened *o) {
    nn_next_free(o->next);
    nn_model_free(o->model);
    model_file_free(o->head_file);
    model_file_free(o->file);
}

static void compare(const golden *g, const char *what, const float *is, const float *want, size_t bytes, double std) {
    double worst = 0;
    for (size_t i = 0; i < bytes / sizeof *is; i++) {
        double d = fabs((double)is[i] - (double)want[i]) / std;
        if (!(d <= worst)) worst = d;
    }
    if (!(worst <= bound)) fail_msg("%s: %s differ by %.3g standard deviations", g->name, what, worst);
    print_message("  %-18s %-8s %.1e\n", g->name, what, worst);
}

static simple open_simple(const nn_model *m) {
    simple         s;
    err            e = { 0 };
    simple_options o = { .max_len = MAX_IDS, .max_tokens = MAX_IDS, .n_threads = 1, .cpu = cpu_detect() };
    if (simple_open(&s, device_id, m, &o, &e) < 0) fail_msg("%s", e.msg);
    return s;
}

/* What the model gives the head at every position of the prompt: [n][n_hidden]. */
static float *states_of(const golden *g, const opened *o) {
    simple      s = open_simple(o->model);
    err         e = { 0 };
    simple_feed feed = { .ids = g->prompt, .n = g->n, .all = true };
    if (simple_step(&s, &feed, 1, &e) < 0) fail_msg("%s: %s", g->name, e.msg);
    size_t       bytes = (size_t)g->n * (size_t)o->next->n_hidden * sizeof(float);
    float       *out = malloc(bytes);
    const float *rows = simple_fetch(&s, o->next->reads, &e);
    assert_non_null(out);
    if (!rows) fail_msg("%s: %s", g->name, e.msg);
    memcpy(out, rows, bytes);
    simple_close(&s);
    return out;
}

/* The reference has the inner states of EAGLE-3 before fc: this is what fc makes of them. */
static float *wanted_states(const golden *g, const opened *o) {
    int n = o->next->n_hidden;
    if (!g->eagle) return g->hidden;
    const nn_eagle_top *top = o->next->model->net.top;
    int64_t             cols = top->fc->cols;
    float              *out = calloc((size_t)g->n * (size_t)n, sizeof *out), *row = malloc((size_t)cols * sizeof *row);
    for (int r = 0; r < n; r++) {
        tensor_mat_dequant_row(top->fc->at, 0, r, row);
        for (int p = 0; p < g->n; p++) {
            double sum = 0;
            for (int64_t c = 0; c < cols; c++) sum += (double)row[c] * (double)g->hidden[p * cols + c];
            out[p * n + r] = (float)sum;
        }
    }
    free(row);
    return out;
}

/* Every position behind the first at once. */
static void check_head(const golden *g, const opened *o, const float *states) {
    simple        s = open_simple(o->next->model);
    err           e = { 0 };
    int           n = o->next->n_hidden, rows = g->n - 1;
    float        *in = malloc((size_t)rows * 2 * (size_t)n * sizeof *in);
    const float **embd = malloc((size_t)rows * sizeof *embd);
    simple_feed   feed = { .ids = g->prompt + 1, .n = rows, .all = true };
    for (int i = 0; i < rows; i++) {
        embd[i] = in + (size_t)i * 2 * (size_t)n;
        nn_next_embed(o->next, g->prompt[i + 1], in + (size_t)i * 2 * (size_t)n);
        memcpy(in + (size_t)i * 2 * (size_t)n + n, states + (size_t)i * (size_t)n, (size_t)n * sizeof *in);
    }
    assert_int_equal(simple_batch(&s, &feed, 1, &e), 0);
    s.batch.embd = embd;
    if (nn_exec_step(s.exec, &s.batch, &e) < 0) fail_msg("%s: %s", g->name, e.msg);
    assert_int_equal(nn_exec_width(s.exec, NN_FETCH_LOGITS) * rows * (int64_t)sizeof *in, g->logits_bytes);
    compare(g, "logits", simple_fetch(&s, NN_FETCH_LOGITS, &e), g->logits, g->logits_bytes, g->logit_std);
    compare(g, "behind", simple_fetch(&s, NN_FETCH_HIDDEN, &e), g->behind, g->behind_bytes, g->hidden_std);
    simple_close(&s);
    free(in);
    free(embd);
}

/* Asks for n tokens behind the prompt. */
static void check_draft(const golden *g, drafter *d, const draft_seq *s, int n, const char *when) {
    int32_t   out[DRAFT_MOST] = { 0 };
    draft_ask a = { .seq = *s, .draft = out, .most = n };
    d->propose(d, &a, 1);
    assert_int_equal(a.n, n);
    for (int i = 0; i < n; i++) {
        if (out[i] != g->draft[i]) fail_msg("%s, %s: token %d is %d, not %d", g->name, when, i, out[i], g->draft[i]);
    }
}

/* The states come at once, in pieces, twice, or late; a token that is certain already is taken as it is. */
static void check_drafter(const golden *g, const opened *o, const float *states) {
    const nn_backend *backend;
    nn_device         device;
    drafter          *d;
    err               e = { 0 };
    size_t            n = (size_t)o->next->n_hidden;
    draft_model_shape shape = { .n_places = 2,
                                .n_ctx = MAX_IDS,
                                .page_tokens = 16,
                                .step_tokens = 8,
                                .n_vocab = o->model->dims->n_vocab,
                                .n_threads = 1,
                                .cpu = cpu_detect() };
    draft_seq         s = { .seat = 1, .tokens = g->prompt, .n_tokens = g->n, .n_prompt = g->n };
    assert_int_equal(backend_find(device_id, &backend, &device, &e), 0);
    if (draft_next_open(&d, &device, backend, o->next, &shape, &e) < 0) fail_msg("%s: %s", g->name, e.msg);
    d->begin(d, &s);
    d->see(d, &s, 0, g->n - 1, states);
    check_draft(g, d, &s, DRAFT, "at once");
    check_draft(g, d, &s, 2, "again");
    d->begin(d, &s);
    for (int i = 0; i < g->n - 1; i++) d->see(d, &s, i, 1, states + (size_t)i * n);
    d->see(d, &s, g->n - 3, 2, states + (size_t)(g->n - 3) * n);
    check_draft(g, d, &s, DRAFT, "one by one");

    int32_t   out[DRAFT_MOST] = { g->draft[0], g->draft[1] };
    draft_ask forced = { .seq = s, .draft = out, .n = 2, .most = 3 };
    d->propose(d, &forced, 1);
    assert_int_equal(forced.n, 3);
    assert_int_equal(out[2], g->draft[2]);

    /* Without the state before the newest token there is no draft; an unknown seat has none, either. */
    draft_ask none = { .seq = s, .draft = out, .most = 3 };
    d->begin(d, &s);
    d->see(d, &s, 0, g->n - 2, states);
    d->propose(d, &none, 1);
    assert_int_equal(none.n, 0);
    none = (draft_ask){ .seq = s, .draft = out, .most = 3 };
    none.seq.seat = 2;
    d->see(d, &none.seq, 0, g->n - 1, states);
    d->propose(d, &none, 1);
    assert_int_equal(none.n, 0);
    d->free(d);
}

static void check_golden(const char *name) {
    golden g;
    golden_open(&g, name);
    opened o = open_pair(&g);
    float *states = states_of(&g, &o), *want = wanted_states(&g, &o);
    size_t bytes = (size_t)g.n * (size_t)o.next->n_hidden * sizeof *states;
    double sum = 0;
    for (size_t i = 0; i < bytes / sizeof *want; i++) sum += (double)want[i] * (double)want[i];
    compare(&g, "states", states, want, bytes, sqrt(sum / (double)(bytes / sizeof *want)));
    check_head(&g, &o, states);
    check_drafter(&g, &o, states);
    if (want != g.hidden) free(want);
    free(states);
    close_pair(&o);
    golden_close(&g);
}

static void test_goldens(void **state) {
    static const char *const names[] = { "deepseek_v3",  "glm4_moe",         "glm4_moe_lite", "qwen3_next",
                                         "qwen3_5_text", "qwen3_5_moe_text", "llama",         "eagle3" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_golden(names[i]);
}

/* --- in the model's file --- */

static void put_index(str *out, const model_file *f, const char *shard, bool *first) {
    for (size_t i = 0; i < model_file_tensor_count(f); i++) {
        str_printf(out, "%s\"%s\":\"%s\"", *first ? "" : ",", model_file_tensor_at(f, i)->name, shard);
        *first = false;
    }
}

/* One directory of the model's tensors and the head's. */
static char *join(const golden *g, const opened *o) {
    static const char *const shards[] = { "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors" };
    char                    *dir = test_temp_dir(), from[512], to[600];
    bool                     first = true;
    str                      index;
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, GOLDEN "%s/%s/model.safetensors", i ? "next" : "models", i ? g->name : g->base);
        snprintf(to, sizeof to, "%s/%s", dir, shards[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    snprintf(from, sizeof from, GOLDEN "next/%s/config.json", g->name);
    snprintf(to, sizeof to, "%s/config.json", dir);
    assert_int_equal(symlink(from, to), 0);
    str_init(&index);
    str_puts(&index, "{\"metadata\":{},\"weight_map\":{");
    put_index(&index, o->file, shards[0], &first);
    put_index(&index, o->head_file, shards[1], &first);
    str_puts(&index, "}}");
    snprintf(to, sizeof to, "%s/model.safetensors.index.json", dir);
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    fputs(str_cstr(&index), f);
    fclose(f);
    str_deinit(&index);
    return dir;
}

static void check_joined(const char *name) {
    golden g;
    opened both = { 0 };
    err    e = { 0 };
    golden_open(&g, name);
    opened parts = open_pair(&g);
    char  *dir = join(&g, &parts);
    if (model_file_open(&both.file, dir, &e) < 0 || nn_model_open(&both.model, both.file, models_list, NULL, &e) < 0 ||
        nn_next_open(&both.next, both.model, NULL, &e) < 0)
        fail_msg("%s: %s", name, e.msg);
    assert_non_null(both.next);
    assert_false(both.next->alone);
    float *states = states_of(&g, &both);
    check_head(&g, &both, states);
    free(states);
    close_pair(&both);
    close_pair(&parts);
    golden_close(&g);
    test_temp_dir_remove(dir);
}

static void test_in_the_models_file(void **state) {
    (void)state;
    check_joined("deepseek_v3");
    check_joined("qwen3_next");
    check_joined("qwen3_5_text");
    check_joined("glm4_moe");
}

/* --- what does not fit --- */

static void refused(const char *model, const char *head, const char *sentence) {
    opened o = { 0 };
    err    e = { 0 };
    char   path[512];
    snprintf(path, sizeof path, GOLDEN "models/%s", model);
    assert_int_equal(model_file_open(&o.file, path, &e), 0);
    assert_int_equal(nn_model_open(&o.model, o.file, models_list, NULL, &e), 0);
    snprintf(path, sizeof path, GOLDEN "next/%s", head);
    assert_int_equal(model_file_open(&o.head_file, path, &e), 0);
    bool eagle = nn_eagle_is(o.head_file);
    int  rc = eagle ? nn_eagle_open(&o.next, o.model, o.head_file, &models_eagle3, &e)
                    : nn_next_open(&o.next, o.model, o.head_file, &e);
    if (rc >= 0 || !strstr(e.msg, sentence)) fail_msg("%s for %s: no '%s' in: %s", head, model, sentence, e.msg);
    assert_null(o.next);
    close_pair(&o);
}

static void test_misfits(void **state) {
    golden g;
    (void)state;
    refused("deepseek_v3", "glm4_moe", "does not fit a model of");
    refused("llama_rope3", "llama", "stands behind 3 layers, the model has 2");
    refused("llama_rope3", "eagle3", "it reads the input of layer 2, the model has 2");
    /* A model without a head has none, and that is no error. */
    golden_open(&g, "llama");
    opened   o = open_pair(&g);
    nn_next *none;
    err      e = { 0 };
    assert_int_equal(nn_next_open(&none, o.model, NULL, &e), 0);
    assert_null(none);
    close_pair(&o);
    golden_close(&g);
}

/* --- files that nobody trusts --- */

/* A head whose config.json was changed opens, or says what is wrong. */
static bool try_head(const golden *g, const char *config) {
    char  *dir = test_temp_dir(), from[512], to[600];
    opened o = { 0 };
    err    e = { 0 };
    snprintf(from, sizeof from, GOLDEN "next/%s/model.safetensors", g->name);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    assert_int_equal(symlink(from, to), 0);
    snprintf(to, sizeof to, "%s/config.json", dir);
    test_write_file(to, config, strlen(config));
    snprintf(from, sizeof from, GOLDEN "models/%s", g->base);
    assert_int_equal(model_file_open(&o.file, from, &e), 0);
    assert_int_equal(nn_model_open(&o.model, o.file, models_list, NULL, &e), 0);
    int rc = model_file_open(&o.head_file, dir, &e);
    if (rc == 0 && g->eagle) rc = nn_eagle_open(&o.next, o.model, o.head_file, &models_eagle3, &e);
    if (rc == 0 && !g->eagle) rc = nn_next_open(&o.next, o.model, o.head_file, &e);
    if (rc < 0) assert_true(e.msg[0]);
    assert_true(rc == 0 || !o.next);
    close_pair(&o);
    test_temp_dir_remove(dir);
    return rc == 0;
}

/* Every number of config.json in turn becomes another one. */
static void check_hostile(const char *name) {
    static const char *const others[] = { "-1", "0", "3", "4294967297", "1e300" };
    golden                   g;
    char                     path[512], *text;
    size_t                   bytes;
    err                      e;
    int                      tried = 0, taken = 0;
    golden_open(&g, name);
    snprintf(path, sizeof path, GOLDEN "next/%s/config.json", name);
    if (file_read(&text, &bytes, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    for (size_t at = 0; at < bytes; at++) {
        size_t n = strspn(text + at, "0123456789.e-+");
        if (n == 0 || at == 0 || !strchr(" :[,", text[at - 1])) continue;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++, tried++) {
            str s;
            str_init(&s);
            str_append(&s, text, at);
            str_puts(&s, others[k]);
            str_puts(&s, text + at + n);
            taken += try_head(&g, str_cstr(&s));
            str_deinit(&s);
        }
        at += n - 1;
    }
    print_message("  %s: %d of %d changed configurations open\n", name, taken, tried);
    assert_true(tried > 20 && taken < tried);
    free(text);
    golden_close(&g);
}

static void test_hostile(void **state) {
    (void)state;
    check_hostile("llama");
    check_hostile("eagle3");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_in_the_models_file),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_hostile),
    };
    if (argc > 1) device_id = argv[1];
    if (strcmp(device_id, "cpu") != 0) bound = 0.03;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

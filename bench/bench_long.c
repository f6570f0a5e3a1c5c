/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long prompts through the engine: how the time of a prefill grows with its length.
 *
 * Attention looks at n * n / 2 pairs of positions, everything else at n, so a prompt of twice the length may take
 * between two and four times as long. Beside the times stand the steps, the longest pause between progress events and
 * the time from a cancel in the middle of the prompt to the end of the request.
 *
 *   bench_long [MODEL] [--threads N] [--max TOKENS]
 *
 * Without a model: two layers of width 256 with 4 heads, random weights.
 */
#include "base/clock.h"
#include "convert/export.h"
#include "engine/engine.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/kv_type.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int make_model(const char *path, err *e) {
    const nn_config_set set[] = { { "block_count", 2, false },
                                  { "embedding_length", 256, false },
                                  { "feed_forward_length", 768, false },
                                  { "attention.head_count", 4, false },
                                  { "attention.head_count_kv", 2, false },
                                  { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                  { "vocab_size", 1024, false } };
    synth_options       o = { .arch = nn_arch_find(models_list, "llama"),
                              .set = set,
                              .n_set = sizeof set / sizeof *set,
                              .type = TENSOR_Q8_0,
                              .n_vocab = 1024,
                              .seed = 1 };
    return synth_gguf(&o, path, e);
}

typedef struct watch {
    engine  *g;
    uint64_t id;
    int      cancel_at; /* tokens; 0: never */
    double   at, gap, cancelled_at, took_to_cancel;
} watch;

static void note(void *ctx, const engine_event *ev) {
    watch *w = ctx;
    double t = clock_s();
    if (t - w->at > w->gap) w->gap = t - w->at;
    w->at = t;
    if (ev->kind == ENGINE_ERROR) fprintf(stderr, "%s\n", ev->error->msg);
    if (ev->kind == ENGINE_PROGRESS && w->cancel_at && ev->done >= w->cancel_at && w->cancelled_at == 0) {
        w->cancelled_at = t;
        engine_cancel(w->g, w->id);
    }
    if (ev->kind == ENGINE_DONE && w->cancelled_at > 0) w->took_to_cancel = t - w->cancelled_at;
}

static int run(engine *g, watch *w, int n, err *e) {
    int32_t *tokens = calloc((size_t)n, sizeof *tokens);
    if (!tokens) return err_set_nomem(e);
    for (int i = 0; i < n; i++) tokens[i] = (i * 7919 + n) % 1000;
    engine_request r = { .tokens = tokens, .n_tokens = (size_t)n, .max_tokens = 1, .no_cache = true, .on_event = note };
    sampling_params_default(&r.sampling);
    r.ctx = w;
    w->g = g;
    w->at = clock_s();
    int rc = engine_submit(g, &r, &w->id, e);
    free(tokens);
    if (rc < 0) return rc;
    engine_wait_idle(g);
    return 0;
}

static int measure(engine *g, int longest, err *e) {
    double before = 0;
    int    rc;
    printf("%8s %9s %10s %12s %7s %14s %12s\n", "tokens", "seconds", "tok/s", "of half", "steps", "pause at most",
           "to a cancel");
    for (int n = longest / 16; n <= longest; n *= 2) {
        watch        whole = { 0 }, half = { .cancel_at = n / 2 };
        engine_stats a, b;
        engine_stat(g, &a);
        double begin = clock_s();
        if ((rc = run(g, &whole, n, e)) < 0) return rc;
        double took = clock_s() - begin;
        engine_stat(g, &b);
        if ((rc = run(g, &half, n, e)) < 0) return rc;
        printf("%8d %9.3f %10.0f", n, took, n / took);
        if (before > 0)
            printf(" %11.2fx", took / before);
        else
            printf(" %12s", "-");
        printf(" %7llu %11.0f ms %9.2f ms\n", (unsigned long long)(b.steps - a.steps), whole.gap * 1e3,
               half.took_to_cancel * 1e3);
        before = took;
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *path = NULL;
    char        made[64] = "";
    int         n_threads = 0, longest = 32768, rc = 0;
    model_file *f = NULL;
    nn_model   *m = NULL;
    engine     *g = NULL;
    err         e = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            n_threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc)
            longest = atoi(argv[++i]);
        else
            path = argv[i];
    }
    if (!path) {
        snprintf(made, sizeof made, "/tmp/hearth-bench-long-%d.gguf", (int)getpid());
        path = made;
        rc = make_model(made, &e);
    }
    if (rc == 0) rc = model_file_open(&f, path, &e);
    if (made[0]) unlink(made);
    if (rc == 0) rc = nn_model_open(&m, f, models_list, NULL, &e);
    if (rc == 0) {
        engine_options o = { .n_ctx = longest + 32, .n_threads = n_threads, .k_type = NN_KV_F16, .v_type = NN_KV_F16 };
        o.cpu = cpu_detect();
        o.max_seqs = 1;
        rc = engine_open(&g, m, NULL, &o, &e);
    }
    if (rc == 0) rc = measure(g, longest, &e);
    if (rc < 0) fprintf(stderr, "bench_long: %s\n", e.msg);
    engine_free(g);
    nn_model_free(m);
    model_file_free(f);
    return rc < 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a file in the page cache to the first evaluated token, as a program that answers does it: file, model, tokenizer
 * and chat template's tokens, engine with its defaults, one request with a prompt of one token.
 *
 *   bench_open MODEL.gguf [--reps N] [--threads N]
 *
 * Prints the median of every part in milliseconds. Without a model there is nothing to measure, and it says so.
 */
#include "base/clock.h"
#include "bench/measure.h"
#include "bundle/tokenizer.h"
#include "engine/engine.h"
#include "formats/model_file.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/kv_type.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPS = 101, FILE_PART = 0, MODEL_PART, TOKENIZER_PART, ENGINE_PART, TOKEN_PART, ALL_PARTS, N_PARTS };

static const char *const names[N_PARTS] = { "file", "model", "tokenizer", "engine", "first token", "all" };

typedef struct arrival {
    double at;
    err    why;
    bool   failed;
} arrival;

static void on_event(void *ctx, const engine_event *ev) {
    arrival *a = ctx;
    if (ev->kind == ENGINE_TOKEN && a->at == 0) a->at = clock_s();
    if (ev->kind == ENGINE_ERROR) {
        a->failed = true;
        a->why = *ev->error;
    }
}

static int first_token(engine *g, arrival *a, err *e) {
    int32_t        token = 1;
    uint64_t       id;
    engine_request r = {
        .tokens = &token, .n_tokens = 1, .max_tokens = 1, .ignore_eos = true, .on_event = on_event, .ctx = a
    };
    sampling_params_default(&r.sampling);
    r.sampling.temperature = 0;
    int rc = engine_submit(g, &r, &id, e);
    if (rc == 0) engine_wait_idle(g);
    if (rc == 0 && a->failed) {
        *e = a->why;
        rc = a->why.code;
    }
    return rc;
}

/* part[]: seconds. */
static int measure(const char *path, int threads, double *part, err *e) {
    model_file    *file = NULL;
    nn_model      *model = NULL;
    tok           *tokenizer = NULL;
    engine        *g = NULL;
    arrival        a = { 0 };
    engine_options o = { .n_threads = threads, .k_type = NN_KV_F16, .v_type = NN_KV_F16, .cpu = cpu_detect() };
    double         begin = clock_s(), t[N_PARTS] = { 0 };
    int            rc = model_file_open(&file, path, e);
    t[FILE_PART] = clock_s();
    if (rc == 0) rc = nn_model_open(&model, file, models_list, &(nn_model_options){ 0 }, e);
    t[MODEL_PART] = clock_s();
    if (rc == 0) rc = bundle_tokenizer_open(&tokenizer, file, NULL, e);
    t[TOKENIZER_PART] = clock_s();
    if (rc == 0) rc = engine_open(&g, model, tokenizer, &o, e);
    t[ENGINE_PART] = clock_s();
    if (rc == 0) rc = first_token(g, &a, e);
    t[TOKEN_PART] = a.at;
    for (int i = 0; rc == 0 && i < ALL_PARTS; i++) part[i] = t[i] - (i > 0 ? t[i - 1] : begin);
    part[ALL_PARTS] = t[TOKEN_PART] - begin;
    engine_free(g);
    tok_free(tokenizer);
    nn_model_free(model);
    model_file_free(file);
    return rc;
}

int main(int argc, char **argv) {
    const char   *path = NULL;
    int           reps = 7, threads = 2;
    static double part[N_PARTS][MAX_REPS];
    err           e = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--reps") == 0 && i + 1 < argc)
            reps = atoi(argv[++i]);
        else
            path = argv[i];
    }
    if (!path || reps < 1 || reps > MAX_REPS) {
        printf("bench_open: skipped: no model named (bench_open MODEL.gguf [--reps N] [--threads N])\n");
        return 0;
    }
    for (int i = -1; i < reps; i++) { /* the first one brings the file into the page cache */
        double p[N_PARTS];
        if (measure(path, threads, p, &e) < 0) {
            fprintf(stderr, "bench_open: %s\n", e.msg);
            return 1;
        }
        for (int k = 0; i >= 0 && k < N_PARTS; k++) part[k][i] = p[k];
    }
    printf("opening, medians of %d, ms:", reps);
    for (int k = 0; k < N_PARTS; k++) {
        qsort(part[k], (size_t)reps, sizeof *part[k], by_value);
        printf(" %s %.1f", names[k], 1e3 * part[k][reps / 2]);
    }
    printf("\n");
    return 0;
}

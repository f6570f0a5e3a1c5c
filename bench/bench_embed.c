/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts per second of embedding models: inputs of 128 tokens through the engine, many at once.
 *
 *   bench_embed [MODEL] [--threads N] [--tokens N] [--texts N] [--out DIR]
 *
 * Without a model: the shapes of all-MiniLM-L6 and bge-base with random weights, in F16 and Q8_0. --out keeps their files,
 * for measuring another program with them.
 */
#include "base/clock.h"
#include "convert/export.h"
#include "engine/engine.h"
#include "kernels/cpu.h"
#include "models/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VOCAB = 30522 };

typedef struct shape {
    const char *name;
    int         n_layer, n_embd, n_ff;
} shape;

static const shape shapes[] = { { "MiniLM-L6", 6, 384, 1536 }, { "bge-base", 12, 768, 3072 } };

typedef struct job {
    int n_threads, tokens, texts;
} job;

static int make_model(const shape *s, int type, const char *path, err *e) {
    const nn_config_set set[] = { { "block_count", s->n_layer, false },
                                  { "embedding_length", s->n_embd, false },
                                  { "feed_forward_length", s->n_ff, false },
                                  { "attention.head_count", 12, false },
                                  { "attention.layer_norm_epsilon", 1e-12, false },
                                  { "context_length", 512, false },
                                  { "vocab_size", VOCAB, false } };
    synth_options       o = { .arch = nn_arch_find(models_list, "bert"),
                              .set = set,
                              .n_set = sizeof set / sizeof *set,
                              .type = type,
                              .n_vocab = VOCAB,
                              .seed = 1 };
    return synth_gguf(&o, path, e);
}

static void note(void *ctx, const engine_event *ev) {
    if (ev->kind == ENGINE_EMBEDDING) ++*(int *)ctx;
    if (ev->kind == ENGINE_ERROR) fprintf(stderr, "%s\n", ev->error->msg);
}

static int submit(engine *g, const job *j, int n, int *count, err *e) {
    int32_t *tokens = calloc((size_t)j->tokens, sizeof *tokens);
    int      rc = tokens ? 0 : err_set_nomem(e);
    for (int t = 0; t < n && rc == 0; t++) {
        uint64_t id;
        for (int i = 0; i < j->tokens; i++) tokens[i] = (i * 7919 + t * 31) % VOCAB;
        engine_request r = { .tokens = tokens,
                             .n_tokens = (size_t)j->tokens,
                             .pooling = ENGINE_POOL_MEAN,
                             .normalize = true,
                             .on_event = note,
                             .ctx = count };
        sampling_params_default(&r.sampling);
        rc = engine_submit(g, &r, &id, e);
    }
    free(tokens);
    return rc;
}

/* Of all threads: says what a text costs where others hold the cores, too. */
static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

static int measure(const job *j, const char *path, const char *name, err *e) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    engine     *g = NULL;
    int         count = 0, rc = model_file_open(&f, path, e);
    if (rc == 0) rc = nn_model_open(&m, f, models_list, NULL, e);
    if (rc == 0) {
        engine_options o = { .n_threads = j->n_threads, .k_type = NN_KV_F32, .v_type = NN_KV_F32, .cpu = cpu_detect() };
        rc = engine_open(&g, m, NULL, &o, e);
    }
    if (rc == 0) rc = submit(g, j, 16, &count, e); /* warms pages and threads */
    if (rc == 0) engine_wait_idle(g);
    double begin = clock_s(), cpu = cpu_s();
    count = 0;
    if (rc == 0) rc = submit(g, j, j->texts, &count, e);
    if (rc == 0) {
        engine_wait_idle(g);
        double took = clock_s() - begin, spent = cpu_s() - cpu;
        printf("%-18s %5d tokens %6d texts %8.1f texts/s %9.0f tok/s %8.2f CPU ms/text\n", name, j->tokens, count,
               count / took, (double)count * j->tokens / took, spent / count * 1e3);
    }
    engine_free(g);
    nn_model_free(m);
    model_file_free(f);
    return rc;
}

static int measure_shapes(const job *j, const char *out, err *e) {
    static const int types[] = { TENSOR_F16, TENSOR_Q8_0 };
    int              rc = 0;
    for (int s = 0; s < 2; s++) {
        for (int t = 0; t < 2 && rc == 0; t++) {
            char path[512], name[64];
            snprintf(name, sizeof name, "%s-%s", shapes[s].name, t ? "Q8_0" : "F16");
            snprintf(path, sizeof path, "%s/hearth-bench-%s.gguf", out ? out : "/tmp", name);
            rc = make_model(&shapes[s], types[t], path, e);
            if (rc == 0) rc = measure(j, path, name, e);
            if (!out) unlink(path);
        }
    }
    return rc;
}

int main(int argc, char **argv) {
    const char *path = NULL, *out = NULL;
    job         j = { .tokens = 128, .texts = 192 };
    err         e = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            j.n_threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--tokens") == 0 && i + 1 < argc)
            j.tokens = atoi(argv[++i]);
        else if (strcmp(argv[i], "--texts") == 0 && i + 1 < argc)
            j.texts = atoi(argv[++i]);
        else if (strcmp(argv[i], "--out") == 0 && i + 1 < argc)
            out = argv[++i];
        else
            path = argv[i];
    }
    int rc = path ? measure(&j, path, "model", &e) : measure_shapes(&j, out, &e);
    if (rc < 0) fprintf(stderr, "bench_embed: %s\n", e.msg);
    return rc < 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streamed experts beside what they are measured by: plain reading of the same file by as many threads, and the same
 * model with all experts in memory. Everything in turns, medians.
 *
 *   bench_experts [--reps N] [--threads N] [--file PATH]     PATH: where the mixture is written; it is removed
 *
 * The mixture is random, so its router chooses all experts alike: real ones repeat their choices and find more in memory.
 */
#include "base/clock.h"
#include "base/file_reader.h"
#include "base/huge.h"
#include "bench/measure.h"
#include "convert/export.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tools/simple.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LAYERS = 12,
    EXPERTS = 64,
    USED = 8,
    VOCAB = 8192,
    MAX_REPS = 31,
    TOKENS = 24,
    PROMPT = 256,
    PIECE = 108 * FILE_READER_ALIGN
};

/* --- plain reading -------------------------------------------------------------------------------------------------- */

typedef struct plain {
    int        fd;
    size_t     pieces, all; /* to read, and of the file */
    atomic_int next;
} plain;

static void *plain_main(void *arg) {
    plain *p = arg;
    void  *room = huge_map(2 << 20, false); /* as slots are: a disk is faster with few large pieces of memory */
    for (size_t i; room && (i = (size_t)atomic_fetch_add(&p->next, 1)) < p->pieces;) {
        if (pread(p->fd, room, PIECE, (off_t)(i * 613 % p->all * PIECE)) < 0) break;
    }
    if (room) munmap(room, 2 << 20);
    return NULL;
}

/* Bytes a second of 256 MB, in pieces of an expert's matrix from all over the file. */
static double read_plainly(const char *path) {
    pthread_t threads[FILE_READER_THREADS];
    plain     p = { .fd = open(path, O_RDONLY | O_DIRECT), .pieces = (256 << 20) / PIECE };
    if (p.fd < 0) p.fd = open(path, O_RDONLY);
    struct stat st;
    if (fstat(p.fd, &st) < 0) exit(1);
    p.all = (size_t)st.st_size / PIECE;
    double begin = clock_s();
    for (int i = 0; i < FILE_READER_THREADS; i++) {
        if (pthread_create(&threads[i], NULL, plain_main, &p) != 0) exit(1);
    }
    for (int i = 0; i < FILE_READER_THREADS; i++) pthread_join(threads[i], NULL);
    double took = clock_s() - begin;
    close(p.fd);
    return (double)p.pieces * PIECE / took;
}

/* --- the model ------------------------------------------------------------------------------------------------------- */

static void stop_at(const err *e) {
    fprintf(stderr, "bench_experts: %s\n", e->msg);
    exit(1);
}

static void write_mixture(const char *path) {
    const nn_config_set set[] = { { "block_count", LAYERS, false },
                                  { "vocab_size", VOCAB, false },
                                  { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                  { "embedding_length", 1024, false },
                                  { "attention.head_count", 16, false },
                                  { "attention.head_count_kv", 4, false },
                                  { "feed_forward_length", 768, false },
                                  { "context_length", 2048, false },
                                  { "expert_count", EXPERTS, false },
                                  { "expert_used_count", USED, false },
                                  { "expert_feed_forward_length", 768, false } };
    synth_options       s = { .arch = nn_arch_find(models_list, "qwen3moe"),
                              .set = set,
                              .n_set = sizeof set / sizeof *set,
                              .type = TENSOR_Q4_K,
                              .n_vocab = VOCAB,
                              .seed = 5 };
    err                 e = { 0 };
    if (synth_gguf(&s, path, &e) < 0) stop_at(&e);
}

static simple open_model(const nn_model *m, size_t experts, int threads) {
    simple         s;
    simple_options o = { .max_len = 2048,
                         .max_tokens = PROMPT,
                         .n_threads = threads,
                         .steady = true,
                         .k_type = NN_KV_F16,
                         .v_type = NN_KV_F16,
                         .cpu = cpu_detect(),
                         .expert_bytes = experts };
    err            e = { 0 };
    if (simple_open(&s, "cpu", m, &o, &e) < 0) stop_at(&e);
    return s;
}

/* Seconds of n steps of `at_once` random tokens. */
static double run(simple *s, int n, int at_once) {
    static uint32_t random = 12345;
    int32_t         ids[PROMPT];
    err             e = { 0 };
    double          begin = clock_s();
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < at_once; k++) ids[k] = (int32_t)((random = random * 1664525 + 1013904223) >> 8) % VOCAB;
        if (s->len[0] + at_once > 1024) simple_reset(s, 0);
        if (simple_step(s, &(simple_feed){ .ids = ids, .n = at_once }, 1, &e) < 0) stop_at(&e);
    }
    return clock_s() - begin;
}

/* The median seconds of a token on each of two models, token by token in turns: other programs disturb both alike. */
static void run_in_turns(simple *a, simple *b, double *of_a, double *of_b) {
    double one[TOKENS], two[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        if (i % 2) two[i] = run(b, 1, 1);
        one[i] = run(a, 1, 1);
        if (i % 2 == 0) two[i] = run(b, 1, 1);
    }
    qsort(one, TOKENS, sizeof *one, by_value);
    qsort(two, TOKENS, sizeof *two, by_value);
    *of_a = one[TOKENS / 2];
    *of_b = two[TOKENS / 2];
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

typedef struct series {
    double plain[MAX_REPS], none[MAX_REPS], none_share[MAX_REPS], fetch[MAX_REPS], all[MAX_REPS], resident[MAX_REPS],
        ratio[MAX_REPS], prompt[MAX_REPS], prompt_share[MAX_REPS], prompt_resident[MAX_REPS], half[MAX_REPS],
        hits[MAX_REPS];
} series;

typedef struct world {
    const char *path;
    simple      resident, all, none, half;
    size_t      token_bytes, all_bytes;
} world;

static void round_of(world *w, series *out, int i) {
    double       front = read_plainly(w->path), resident_s, all_s;
    nn_streaming before = *w->none.exec->streaming;
    double       took = run(&w->none, TOKENS, 1);
    double       bytes = (double)(w->none.exec->streaming->bytes - before.bytes);
    double       disk = out->plain[i] = (front + read_plainly(w->path)) / 2;
    out->none[i] = TOKENS / took;
    out->none_share[i] = bytes / took / disk;
    out->fetch[i] = bytes / (w->none.exec->streaming->wait_s - before.wait_s);
    run_in_turns(&w->resident, &w->all, &resident_s, &all_s);
    out->resident[i] = 1 / resident_s;
    out->all[i] = 1 / all_s;
    out->ratio[i] = resident_s / all_s;
    before = *w->half.exec->streaming;
    out->half[i] = TOKENS / run(&w->half, TOKENS, 1);
    double hits = (double)(w->half.exec->streaming->hits - before.hits);
    out->hits[i] = hits / (hits + (double)(w->half.exec->streaming->misses - before.misses));
    before = *w->none.exec->streaming;
    double prompt = run(&w->none, 1, PROMPT), resident = run(&w->resident, 1, PROMPT);
    double least = (double)(w->none.exec->streaming->bytes - before.bytes) / disk;
    out->prompt[i] = PROMPT / prompt;
    out->prompt_resident[i] = PROMPT / resident;
    out->prompt_share[i] = (least > resident ? least : resident) / prompt;
}

static void report(const world *w, series *s, int reps) {
    double gb = 1e9;
    printf("%d layers of %d experts, %d used: %.2f GB, %.1f MB per token; medians of %d\n", LAYERS, EXPERTS, USED,
           (double)w->all_bytes / gb, (double)w->token_bytes / 1e6, reps);
    printf("plain reading            %7.2f GB/s (%d threads)\n", median(s->plain, reps) / gb, FILE_READER_THREADS);
    printf("no hits, generation      %7.1f tokens/s, %.0f%% of plain reading; while waiting %.2f GB/s\n",
           median(s->none, reps), 100 * median(s->none_share, reps), median(s->fetch, reps) / gb);
    printf("half of them in memory   %7.1f tokens/s, %.0f%% hits\n", median(s->half, reps),
           100 * median(s->hits, reps));
    printf("all hits, generation     %7.1f tokens/s\n", median(s->all, reps));
    printf("resident                 %7.1f tokens/s; all hits are %.1f%% of it\n", median(s->resident, reps),
           100 * median(s->ratio, reps));
    printf("prompt of %d, no hits   %7.1f tokens/s, resident %.1f; %.0f%% of the slower of reading and computing\n",
           PROMPT, median(s->prompt, reps), median(s->prompt_resident, reps), 100 * median(s->prompt_share, reps));
}

int main(int argc, char **argv) {
    const char   *path = "/tmp/bench_experts.gguf";
    int           reps = 5, threads = 2;
    model_file   *file;
    nn_model     *model;
    static series s;
    err           e = { 0 };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0) threads = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--reps") == 0) reps = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--file") == 0) path = argv[i + 1];
    }
    if (reps < 1 || reps > MAX_REPS) return 1;
    write_mixture(path);
    if (model_file_open(&file, path, &e) < 0 ||
        nn_model_open(&model, file, models_list, &(nn_model_options){ 0 }, &e) < 0)
        stop_at(&e);
    world w = { .path = path, .resident = open_model(model, 0, threads), .all = open_model(model, SIZE_MAX, threads) };
    const nn_expert_memory *m = &w.all.exec->memory.experts;
    w.token_bytes = m->token;
    w.all_bytes = m->file;
    w.none = open_model(model, m->least, threads);
    w.half = open_model(model, m->most / 2, threads);
    for (simple *x[] = { &w.resident, &w.all, &w.half, NULL }, **at = x; *at; at++) run(*at, 3, PROMPT); /* warm */
    for (int i = 0; i < reps; i++) round_of(&w, &s, i);
    report(&w, &s, reps);
    simple_close(&w.resident);
    simple_close(&w.all);
    simple_close(&w.none);
    simple_close(&w.half);
    nn_model_free(model);
    model_file_free(file);
    unlink(path);
    return 0;
}

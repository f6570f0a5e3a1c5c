/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth bench: prompt and generation speed of a model, through the engine that serves requests.
 *
 * Prompt: P random tokens of the vocabulary from an empty cache, until the first token is picked. Generation: N tokens
 * after a prompt of one token (or --depth of them), end tokens forbidden. With a batch of B there are B such requests at
 * once; the clock runs from the step in which the last of them has begun to the one in which the first ends, so that every
 * counted step has B tokens. Each figure is the median over the repetitions; the part of the time between
 * two steps, in which a device has nothing to do, is that of all of them. Weights are moved into huge pages first where hearth
 * run would do so too; --mapped leaves them in the page cache. --speculate measures something else: bench_speculate.c.
 */
#include "base/clock.h"
#include "base/machine.h"
#include "base/str.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/dev/bench_speculate.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "formats/summary.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "runtime/need.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BATCHES = 16, MAX_BATCH = 256, MAX_REPS = 100, MAX_TOKENS = 1 << 20 };

typedef struct bench {
    int         n_prompt, n_generate, depth, reps, threads;
    nn_kv_type  kv;
    const char *device;
    unsigned    cpu; /* instruction sets that may be used */
    int         batch[MAX_BATCHES], n_batch;
    bool        mapped;
    model_file *file;
    nn_model   *model;
    tok        *tok; /* NULL: the model comes without one */
    engine     *engine;
    uint64_t    random;
    float       temperature;
    double      prompt_speed, speed[MAX_BATCHES]; /* tokens per second */
    double      between[MAX_BATCHES];             /* part of the time between steps */
} bench;

/* What the callbacks of one measurement see. Only the engine's thread writes; it is read when the engine is idle. */
typedef struct gauge {
    int    wanted, begun, ended, tokens; /* tokens: since all have begun */
    double from, to, prompt_s;
    bool   failed;
    err    why;
} gauge;

typedef struct runner {
    gauge *g;
    bool   begun;
} runner;

static void on_event(void *ctx, const engine_event *ev) {
    runner *r = ctx;
    gauge  *g = r->g;
    if (ev->kind == ENGINE_ERROR) {
        g->failed = true;
        g->why = *ev->error;
    } else if (ev->kind == ENGINE_DONE) {
        g->ended++;
        g->prompt_s = ev->usage.prompt_s;
    } else if (ev->kind == ENGINE_TOKEN && !r->begun) {
        r->begun = true;
        if (++g->begun == g->wanted) g->from = g->to = clock_s();
    } else if (ev->kind == ENGINE_TOKEN && g->begun == g->wanted && g->ended == 0) {
        g->tokens++;
        g->to = clock_s();
    }
}

static int32_t random_token(bench *b) {
    for (;;) {
        b->random = b->random * 6364136223846793005u + 1442695040888963407u;
        int32_t id = (int32_t)((b->random >> 33) % (uint64_t)b->model->dims->n_vocab);
        if (!b->tok || id >= tok_count(b->tok) || tok_class_of(b->tok, id) == TOK_NORMAL) return id;
    }
}

/* n_seq requests with prompts of n_prompt tokens, each answered with n_answer tokens. */
static int measure(bench *b, gauge *g, int n_seq, int n_prompt, int n_answer, err *e) {
    int32_t *tokens = calloc((size_t)n_prompt, sizeof *tokens);
    runner  *runners = calloc((size_t)n_seq, sizeof *runners);
    uint64_t id;
    int      rc = tokens && runners ? 0 : err_set_nomem(e);
    *g = (gauge){ .wanted = n_seq };
    for (int i = 0; rc == 0 && i < n_seq; i++) {
        runners[i].g = g;
        for (int k = 0; k < n_prompt; k++) tokens[k] = random_token(b);
        engine_request r = { .tokens = tokens,
                             .n_tokens = (size_t)n_prompt,
                             .max_tokens = n_answer,
                             .ignore_eos = true,
                             .no_cache = true,
                             .on_event = on_event,
                             .ctx = &runners[i] };
        sampling_params_default(&r.sampling);
        r.sampling.temperature = b->temperature;
        r.sampling.top_k = 40;
        r.sampling.top_p = 0.95f;
        rc = engine_submit(b->engine, &r, &id, e);
    }
    if (b->engine) engine_wait_idle(b->engine);
    if (rc == 0 && g->failed) {
        *e = g->why;
        rc = g->why.code;
    }
    free(tokens);
    free(runners);
    return rc;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

/* Generation with batch k. */
static int measure_batch(bench *b, int k, err *e) {
    double       v[MAX_REPS] = { 0 };
    gauge        g;
    engine_stats from, to;
    int          rc = 0;
    engine_stat(b->engine, &from);
    for (int i = 0; rc == 0 && i < b->reps; i++) {
        rc = measure(b, &g, b->batch[k], b->depth, b->n_generate + 1, e);
        v[i] = g.to > g.from ? g.tokens / (g.to - g.from) : 0;
    }
    if (rc < 0) return rc;
    engine_stat(b->engine, &to);
    double between = to.between_s - from.between_s, all = between + to.step_s - from.step_s;
    b->speed[k] = median(v, b->reps);
    b->between[k] = all > 0 ? between / all : 0;
    return 0;
}

static int measure_all(bench *b, err *e) {
    double v[MAX_REPS];
    gauge  g;
    int    rc = measure(b, &g, 1, b->n_prompt < 32 ? b->n_prompt : 32, 2, e); /* pages in, threads up */
    for (int i = 0; rc == 0 && i < b->reps; i++) {
        rc = measure(b, &g, 1, b->n_prompt, 1, e);
        v[i] = g.prompt_s > 0 ? b->n_prompt / g.prompt_s : 0;
    }
    if (rc == 0) b->prompt_speed = median(v, b->reps);
    for (int k = 0; rc == 0 && k < b->n_batch; k++) rc = measure_batch(b, k, e);
    return rc;
}

/* --- opening and showing --- */

static int open_engine(bench *b, const char *path, err *e) {
    int rc, most = 1, answer = b->depth + b->n_generate + 1;
    int longest = b->n_prompt + 1 > answer ? b->n_prompt + 1 : answer;
    for (int i = 0; i < b->n_batch; i++) most = b->batch[i] > most ? b->batch[i] : most;
    if ((rc = model_file_open(&b->file, path, e)) < 0) return rc;
    if ((rc = nn_model_open(&b->model, b->file, models_list, &(nn_model_options){ 0 }, e)) < 0) return rc;
    if (b->model->dims->context > 0 && longest > b->model->dims->context)
        return err_set(e, ERR_ARG, "the model's context holds %d tokens, but -p %d -n %d --depth %d need %d",
                       b->model->dims->context, b->n_prompt, b->n_generate, b->depth, longest);
    (void)bundle_tokenizer_open(&b->tok, b->file, NULL, NULL);
    if (!b->mapped && machine_memory_available(NULL) / 2 > model_file_bytes(b->file))
        (void)model_file_settle(b->file, NULL);
    /* The engine's cache holds two full sequences: long enough ones for every sequence of the largest batch. */
    int            half = most * ((answer + 31) / 32 * 32) / 2;
    engine_options o = { .n_ctx = longest > half ? longest : half,
                         .max_seqs = most,
                         .n_threads = b->threads,
                         .device = b->device,
                         .k_type = b->kv,
                         .v_type = b->kv,
                         .cpu = b->cpu,
                         .no_prefix_cache = true };
    return engine_open(&b->engine, b->model, b->tok, &o, e);
}

static void close_engine(bench *b) {
    engine_free(b->engine);
    tok_free(b->tok);
    nn_model_free(b->model);
    model_file_free(b->file);
}

static void show(const bench *b, const char *path, bool json) {
    model_summary m;
    char          cpu[160];
    str           out;
    model_summary_read(&m, b->file);
    cpu_describe(cpu, sizeof cpu);
    str_init(&out);
    if (json) {
        str_puts(&out, "{\"model\":");
        str_put_json(&out, path, strlen(path));
        str_puts(&out, ",\"architecture\":");
        str_put_json(&out, m.arch.data, m.arch.len);
        str_puts(&out, ",\"type\":");
        str_put_json(&out, m.level, strlen(m.level));
        str_printf(&out, ",\"parameters\":%llu,\"cpu\":", (unsigned long long)m.parameters);
        str_put_json(&out, cpu, strlen(cpu));
        str_printf(&out, ",\"threads\":%d,\"kv\":\"%s\",\"repetitions\":%d", b->threads, nn_kv_type_name(b->kv),
                   b->reps);
        str_printf(&out, ",\"depth\":%d,\"prompt\":{\"tokens\":%d,\"tokens_per_second\":%.2f},\"generation\":[",
                   b->depth, b->n_prompt, b->prompt_speed);
        for (int i = 0; i < b->n_batch; i++)
            str_printf(&out, "%s{\"batch\":%d,\"tokens\":%d,\"tokens_per_second\":%.2f,\"between_steps\":%.4f}",
                       i ? "," : "", b->batch[i], b->n_generate, b->speed[i], b->between[i]);
        str_puts(&out, "]}\n");
    } else {
        str_printf(&out, "%s\n%s\n%d threads, keys and values in %s, medians of %d\n\n", path, cpu, b->threads,
                   nn_kv_type_name(b->kv), b->reps);
        str_printf(&out, "%-12s %8s %8s %12s %15s\n", "test", "tokens", "batch", "tok/s", "between steps");
        str_printf(&out, "%-12s %8d %8d %12.2f\n", "prompt", b->n_prompt, 1, b->prompt_speed);
        for (int i = 0; i < b->n_batch; i++)
            str_printf(&out, "%-12s %8d %8d %12.2f %14.1f%%\n", "generation", b->n_generate, b->batch[i], b->speed[i],
                       100 * b->between[i]);
    }
    fputs(str_cstr(&out), stdout);
    str_deinit(&out);
    model_summary_deinit(&m);
}

static bool in_range(long long v, long long low, long long high) { return v >= low && v <= high; }

/* "1,4,16" */
static bool read_batches(bench *b, const char *text) {
    while (b->n_batch < MAX_BATCHES) {
        char     *end;
        long long v = strtoll(text, &end, 10);
        if (end == text || !in_range(v, 1, MAX_BATCH)) return false;
        b->batch[b->n_batch++] = (int)v;
        if (*end == '\0') return true;
        if (*end != ',') return false;
        text = end + 1;
    }
    return false;
}

static int compare_drafts(const cli_args *a, const bench *b, const char *path, const char *who, err *e) {
    const char *name = cli_string(a, "draft", NULL);
    char       *draft = NULL;
    int         rc = name ? cli_model_path(&draft, name, e) : 0;
    if (rc == 0) rc = bench_speculate(a, path, draft, who, b->threads, b->reps, b->n_generate, e);
    free(draft);
    return rc;
}

static int run(const cli_args *a) {
    bench       b = { .random = 1, .cpu = cpu_detect() };
    const char *kv = cli_string(a, "kv", "f16"), *sets = cli_string(a, "cpu", NULL);
    unsigned    mask;
    char       *path = NULL;
    long long   p = cli_int(a, "prompt", 512), n = cli_int(a, "generate", 64), reps = cli_int(a, "reps", 3);
    long long   depth = cli_int(a, "depth", 1);
    long long   threads = cli_int(a, "threads", sysconf(_SC_NPROCESSORS_ONLN));
    err         e = { 0 };
    if (!in_range(p, 1, MAX_TOKENS) || !in_range(n, 1, MAX_TOKENS) || !in_range(depth, 1, MAX_TOKENS))
        return cli_usage_error(a, "-p, -n and --depth must lie between 1 and %d", MAX_TOKENS);
    if (!in_range(reps, 1, MAX_REPS)) return cli_usage_error(a, "--reps must lie between 1 and %d", MAX_REPS);
    if (!in_range(threads, 1, 1024)) return cli_usage_error(a, "-t must lie between 1 and 1024");
    if (!read_batches(&b, cli_string(a, "batch", "1")))
        return cli_usage_error(a, "--batch: expected up to %d numbers from 1 to %d, separated by commas", MAX_BATCHES,
                               MAX_BATCH);
    b.device = cli_string(a, "device", NULL);
    b.temperature = strtof(cli_string(a, "temp", "0"), NULL);
    if (!(b.temperature >= 0 && b.temperature <= 100)) return cli_usage_error(a, "--temp must lie between 0 and 100");
    if (!nn_kv_type_parse(kv, &b.kv)) return cli_usage_error(a, "--kv: '%s' is not a page type", kv);
    if (sets && !cpu_parse(sets, &mask))
        return cli_usage_error(a, "--cpu: '%s' is not a list of instruction sets", sets);
    if (sets) b.cpu &= mask;
    b.n_prompt = (int)p;
    b.n_generate = (int)n;
    b.depth = (int)depth;
    b.reps = (int)reps;
    b.threads = (int)threads;
    b.mapped = cli_flag(a, "mapped");
    int         rc = cli_model_path(&path, cli_arg(a, 0), &e);
    const char *who = cli_string(a, "speculate", NULL);
    if (rc == 0 && who) {
        rc = compare_drafts(a, &b, path, who, &e);
        free(path);
        return rc == 0 ? CLI_OK : cli_fail(a, &e);
    }
    if (rc == 0) rc = open_engine(&b, path, &e);
    if (rc == 0) rc = measure_all(&b, &e);
    if (rc == 0) show(&b, path, cli_flag(a, "json"));
    close_engine(&b);
    free(path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "prompt", CLI_INT, "N", "number of tokens in the prompt (512)", 'p' },
    { "generate", CLI_INT, "N", "number of tokens to generate (64)", 'n' },
    { "depth", CLI_INT, "N", "number of tokens in front of the generated ones (1)", 0 },
    { "threads", CLI_INT, "N", "number of compute threads (one per core)", 't' },
    { "batch", CLI_STRING, "LIST", "numbers of sequences at the same time, as 1,4,16 (1)", 'b' },
    { "reps", CLI_INT, "N", "number of repetitions; the median is reported (3)", 'r' },
    { "temp", CLI_REAL, "T", "pick with this temperature among the 40 likeliest tokens and 95% of their mass (0)", 0 },
    CLI_DEVICE_OPTION,
    CLI_CPU_OPTION,
    CLI_KV_OPTION("kv"),
    { "speculate", CLI_STRING, "WHO", "compare answers with and without drafts: auto, lookup, draft, mtp or eagle", 0 },
    { "draft", CLI_STRING, "MODEL", "draft model for --speculate", 0 },
    { "cpu-time", CLI_FLAG, NULL, "with --speculate and one thread: count CPU time", 0 },
    { "mapped", CLI_FLAG, NULL, "read the weights from the mapped file", 0 },
    CLI_JSON_OPTION,
    { 0 },
};

const cli_command cli_cmd_bench = {
    "bench", "[MODEL] [-p 512] [-n 64] [-t 2] [--batch 1,4,16]", "Measure prompt and generation speed.", options, 0, 1,
    run,
};

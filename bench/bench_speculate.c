/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What speculation brings, with a drafter that is right with probability p.
 *
 * First an answer is made without drafts. A scripted drafter then knows it, and errs at random: so the acceptance is p by
 * construction, and drafting itself costs nothing. t(R), the time of a step with R rows, is measured with drafts that are
 * always wrong: every step then gives one token. What p should bring follows from t(R) alone,
 *
 *     max over n of (1 + p + ... + p^n) t(1) / t(1 + n),
 *
 * and stands beside what the engine achieves, which chooses the depth by itself. Answers with and without drafts follow
 * each other; the figures are medians of their ratios.
 *
 *   bench_speculate [MODEL.gguf] [--threads N] [--tokens N] [--reps N] [--depths N,N...] [--chances P,P...] [--cpu]
 *
 * --cpu counts the process's CPU time instead of the clock's, for a machine that has other work; with one thread, since a
 * thread that waits for another one counts, too.
 *
 * Without a model: 1.24 B, random Q4_K weights, which --write FILE leaves in a file and measures nothing.
 */
#include "base/clock.h"
#include "bench/measure.h"
#include "bench/shape.h"
#include "convert/export.h"
#include "engine/engine.h"
#include "kernels/cpu.h"
#include "models/list.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PROMPT = 32, MOST = 1024, MAX_REPS = 32, WARM = 8 };

enum { LISTED = 16 };

typedef struct list {
    int    n;
    double v[LISTED];
} list;

/* What the answer is, and how often the drafter says so. */
typedef struct script {
    drafter  base;
    int32_t  answer[MOST];
    int      n;
    double   p;
    uint64_t random;
} script;

typedef struct result {
    script *record; /* NULL: the answer is known */
    int     n;
    double  first, last, mid; /* when the first, the last and the first token behind the warm-up came */
    err     failed;
} result;

typedef struct bench {
    const nn_model *model;
    int             threads, tokens, reps;
    list            depths, chances;
    script          s;
} bench;

static bool cpu_time;

static double now(void) {
    struct timespec t;
    if (!cpu_time || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0) return clock_s();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t next_random(uint64_t *s) {
    *s += 0x9E3779B97F4A7C15u;
    uint64_t z = (*s ^ *s >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static void propose(drafter *d, draft_ask *asks, int n_asks) {
    script *s = (script *)d;
    for (int i = 0; i < n_asks; i++) {
        draft_ask *q = &asks[i];
        for (int at = q->seq.n_tokens - q->seq.n_prompt; q->n < q->most && at + q->n < s->n; q->n++) {
            bool right = (double)(next_random(&s->random) >> 11) * 0x1p-53 < s->p;
            q->draft[q->n] = right ? s->answer[at + q->n] : (s->answer[at + q->n] + 1) % 256;
        }
    }
}

static void on_event(void *ctx, const engine_event *ev) {
    result *r = ctx;
    if (ev->kind == ENGINE_ERROR) r->failed = *ev->error;
    if (ev->kind != ENGINE_TOKEN) return;
    r->last = now();
    if (r->record && r->n < MOST) r->record->answer[r->n] = ev->token;
    if (++r->n == WARM) r->mid = r->last;
}

/* Tokens per second of one answer behind its first WARM tokens; negative: it failed. */
static double speed(bench *b, engine *g, bool drafts, bool record, err *e) {
    int32_t        prompt[PROMPT];
    uint64_t       id;
    result         r = { .record = record ? &b->s : NULL };
    engine_request q = { .tokens = prompt,
                         .n_tokens = PROMPT,
                         .max_tokens = b->tokens + WARM,
                         .ignore_eos = true,
                         .no_drafts = !drafts,
                         .on_event = on_event,
                         .ctx = &r };
    sampling_params_default(&q.sampling);
    q.sampling.temperature = 0;
    q.sampling.repeat_penalty = 1.1f; /* random weights would say one thing again and again */
    for (int i = 0; i < PROMPT; i++) prompt[i] = i * 7 % 250;
    if (engine_submit(g, &q, &id, e) < 0) return -1;
    engine_wait_idle(g);
    if (record) b->s.n = r.n;
    if (r.failed.code) *e = r.failed;
    return r.failed.code ? -1 : (r.n - WARM) / (r.last - r.mid);
}

static engine *open_engine(bench *b, engine_options o, err *e) {
    engine *g;
    o.n_ctx = PROMPT + b->tokens + WARM + 1;
    o.n_threads = b->threads;
    o.max_seqs = 4;
    o.k_type = o.v_type = NN_KV_F16;
    o.cpu = cpu_detect();
    o.device = "cpu";
    o.drafter = &b->s.base;
    return engine_open(&g, b->model, NULL, &o, e) < 0 ? NULL : g;
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* t: of the listed depths, one row = 1. Between two of them it is taken to rise evenly. */
static double predicted(const list *depths, const double *t, double p) {
    double best = 1, tokens = 1, low_t = 1;
    int    depth = 0, low = 0;
    for (int i = 0; i < depths->n; i++) {
        for (; depth < (int)depths->v[i];
             best = fmax(best, tokens / (low_t + (t[i] - low_t) * (depth - low) / (depths->v[i] - low))))
            tokens += pow(p, ++depth);
        low = depth;
        low_t = t[i];
    }
    return best;
}

/* How many times faster answers with drafts are: the median over pairs of answers that follow each other. */
static int compare(bench *b, engine_options o, double p, double *ratio, double *per_s, err *e) {
    double  ratios[MAX_REPS], speeds[MAX_REPS];
    engine *g = open_engine(b, o, e);
    int     rc = g ? 0 : e->code;
    b->s.p = p;
    for (int i = -1; i < b->reps && rc == 0; i++) { /* once in vain: the engine learns what steps cost */
        double off = speed(b, g, false, false, e), on = off < 0 ? -1 : speed(b, g, true, false, e);
        if (on < 0) rc = e->code;
        if (i < 0 || rc < 0) continue;
        ratios[i] = on / off;
        speeds[i] = on;
    }
    engine_free(g);
    if (rc < 0) return rc;
    *ratio = median(ratios, b->reps);
    *per_s = median(speeds, b->reps);
    return 0;
}

static int measure(bench *b, err *e) {
    double  t[LISTED], ratio, per_s;
    engine *g = open_engine(b, (engine_options){ 0 }, e);
    if (!g) return e->code;
    double first = speed(b, g, false, true, e);
    engine_free(g);
    if (first < 0) return e->code;
    printf("rows  t(rows) / t(1)\n");
    for (int i = 0; i < b->depths.n; i++) {
        engine_options o = { .draft_max = (int)b->depths.v[i], .draft_always = true };
        if (compare(b, o, 0, &ratio, &per_s, e) < 0) return e->code;
        t[i] = 1 / ratio;
        printf("%4d  %5.2f\n", o.draft_max + 1, t[i]);
        fflush(stdout);
    }
    printf("p     tok/s  speed-up  predicted\n");
    for (int i = 0; i < b->chances.n; i++) {
        double p = b->chances.v[i];
        if (compare(b, (engine_options){ 0 }, p, &ratio, &per_s, e) < 0) return e->code;
        printf("%.1f  %6.1f  %7.2fx  %8.2fx\n", p, per_s, ratio, predicted(&b->depths, t, p));
        fflush(stdout);
    }
    return 0;
}

/* "1,2,5"; numbers that do not rise are left out. */
static list list_of(const char *text) {
    list l = { 0 };
    for (char *end; l.n < LISTED; text = end + 1) {
        double v = strtod(text, &end);
        if (end == text) break;
        if (l.n == 0 || v > l.v[l.n - 1]) l.v[l.n++] = v;
        if (*end != ',') break;
    }
    return l;
}

/* The path of the model, or NULL. */
static const char *read_options(bench *b, int argc, char **argv, const char **write) {
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (more && strcmp(argv[i], "--threads") == 0)
            b->threads = atoi(argv[++i]);
        else if (more && strcmp(argv[i], "--tokens") == 0)
            b->tokens = atoi(argv[++i]);
        else if (more && strcmp(argv[i], "--reps") == 0)
            b->reps = atoi(argv[++i]);
        else if (more && strcmp(argv[i], "--depths") == 0)
            b->depths = list_of(argv[++i]);
        else if (more && strcmp(argv[i], "--chances") == 0)
            b->chances = list_of(argv[++i]);
        else if (more && strcmp(argv[i], "--write") == 0)
            *write = argv[++i];
        else if (strcmp(argv[i], "--cpu") == 0)
            cpu_time = true;
        else
            path = argv[i];
    }
    return path;
}

int main(int argc, char **argv) {
    char  temp[] = "/tmp/hearth-bench-XXXXXX";
    bench b = { .threads = 2, .tokens = 48, .reps = 3, .s = { .base = { .name = "script", .propose = propose } } };
    int   rc = 0, fd = -1;
    model_file *file = NULL;
    nn_model   *model = NULL;
    const char *write = NULL;
    err         e = { 0 };
    b.depths = list_of("1,2,3,4,5,7,11,15");
    b.chances = list_of("0,0.5,0.7,0.8,0.9");
    const char *path = read_options(&b, argc, argv, &write);
    if (b.tokens < 8 || b.tokens + WARM > MOST || b.reps < 1 || b.reps > MAX_REPS) return 1;
    if (write) {
        if ((rc = shape_1b(write, &e)) < 0) fprintf(stderr, "bench_speculate: %s\n", e.msg);
        return rc < 0;
    }
    if (!path) {
        fd = mkstemp(temp);
        if (fd < 0) return 1;
        close(fd);
        path = temp;
        rc = shape_1b(path, &e);
    }
    if (rc == 0) rc = model_file_open(&file, path, &e);
    if (rc == 0) rc = nn_model_open(&model, file, models_list, NULL, &e);
    b.model = model;
    if (rc == 0) rc = measure(&b, &e);
    if (rc < 0) fprintf(stderr, "bench_speculate: %s\n", e.msg);
    nn_model_free(model);
    model_file_free(file);
    if (fd >= 0) unlink(temp);
    return rc < 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What speculation brings, with a drafter that is right with probability p.
 *
 * First an answer is made without drafts. A scripted drafter then knows it, and errs at random: so the acceptance is p by
 * construction, and drafting itself costs nothing. t(R), the time of a step with R rows, is the median over steps whose
 * drafts are all wrong, so that each gives one token; the numbers of rows take turns. What p should bring follows from
 * t(R) alone: the least time V(n) that n more tokens take if p and t(R) are known beforehand,
 *
 *     V(n) = min over k < n of t(1 + k) + sum over j <= k of P(j right) V(n - 1 - j).
 *
 * For long answers that is max over k of (1 + p + ... + p^k) t(1) / t(1 + k), times t(1) n. It stands beside what the
 * engine achieves, which knows neither. Each p has an engine of its own, and one answer goes by to learn. Then answers
 * without drafts and with each p take turns; a figure is the median of the ratios to the answers without drafts before and
 * behind it. The first token, which the prompt's step gives, begins the time.
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

enum { PROMPT = 32, MOST = 1024, MAX_REPS = 32, DEEPEST = 32, STEPS = 12, ROUNDS = 4 };

enum { LISTED = 16 };

typedef struct list {
    int    n;
    double v[LISTED];
} list;

/* What the answer is, and how often the drafter says so. */
typedef struct script {
    drafter        base;
    const int32_t *answer;
    int            n;
    double         p;
    uint64_t       random;
} script;

typedef struct result {
    int32_t *record; /* NULL: the answer is known */
    int      n;
    double   at[MOST]; /* when each token came */
    err      failed;
} result;

typedef struct bench {
    const nn_model *model;
    int             threads, tokens, reps;
    list            depths, chances;
    int32_t         answer[MOST];
    script          scripts[LISTED + 1]; /* one per chance, and one that is always wrong */
    result          r;
} bench;

/* An engine, what its drafter says, and what became of its answers. */
typedef struct subject {
    engine *g;
    double  ratios[MAX_REPS], speeds[MAX_REPS];
} subject;

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
    if (ev->kind != ENGINE_TOKEN || r->n >= MOST) return;
    if (r->record) r->record[r->n] = ev->token;
    r->at[r->n++] = now();
}

typedef struct wish {
    int  tokens, depth; /* depth 0: no drafts; -1: as the engine likes */
    bool record;
} wish;

/* Seconds from the first token to the last; negative: it failed. */
static double ask(bench *b, engine *g, wish w, err *e) {
    int32_t        prompt[PROMPT];
    uint64_t       id;
    engine_request q = { .tokens = prompt,
                         .n_tokens = PROMPT,
                         .max_tokens = w.tokens,
                         .ignore_eos = true,
                         .no_drafts = w.depth == 0,
                         .draft_max = w.depth > 0 ? w.depth : 0,
                         .on_event = on_event,
                         .ctx = &b->r };
    b->r = (result){ .record = w.record ? b->answer : NULL };
    sampling_params_default(&q.sampling);
    q.sampling.temperature = 0;
    q.sampling.repeat_penalty = 1.1f; /* random weights would say one thing again and again */
    for (int i = 0; i < PROMPT; i++) prompt[i] = i * 7 % 250;
    if (engine_submit(g, &q, &id, e) < 0) return -1;
    engine_wait_idle(g);
    if (b->r.failed.code) *e = b->r.failed;
    return b->r.failed.code ? -1 : b->r.at[b->r.n - 1] - b->r.at[0];
}

static engine *open_engine(bench *b, int which, double p, bool always, err *e) {
    engine *g;
    script *s = &b->scripts[which];
    *s = (script){ .base = { .name = "script", .propose = propose }, .answer = b->answer, .n = MOST, .p = p };
    engine_options o = { .n_ctx = PROMPT + MOST,
                         .n_threads = b->threads,
                         .max_seqs = 1,
                         .k_type = NN_KV_F16,
                         .v_type = NN_KV_F16,
                         .cpu = cpu_detect(),
                         .device = "cpu",
                         .drafter = &s->base,
                         .draft_max = always ? DEEPEST : 0,
                         .draft_always = always };
    return engine_open(&g, b->model, NULL, &o, e) < 0 ? NULL : g;
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* --- what steps cost --------------------------------------------------------------------------------------------- */

/* Of every depth STEPS steps, in turns, ROUNDS times. The last tokens of an answer have no room for a draft. */
static int measure_costs(bench *b, engine *plain, double *t, err *e) {
    double(*took)[ROUNDS * STEPS] = calloc(LISTED + 1, sizeof *took);
    int rc = took ? 0 : err_set_nomem(e);
    for (int round = 0; round < ROUNDS && rc == 0; round++) {
        for (int i = 0; i <= b->depths.n && rc == 0; i++) {
            int depth = i > 0 ? (int)b->depths.v[i - 1] : 0;
            if (ask(b, plain, (wish){ STEPS + depth + 1, depth, false }, e) < 0) rc = e->code;
            for (int k = 0; k < STEPS; k++) took[i][round * STEPS + k] = b->r.at[k + 1] - b->r.at[k];
        }
    }
    double one = rc == 0 ? median(took[0], ROUNDS * STEPS) : 0;
    if (rc == 0) printf("rows  t(rows) / t(1); t(1) = %.2f ms\n", one * 1e3);
    for (int i = 0; i < b->depths.n && rc == 0; i++) {
        t[i] = median(took[i + 1], ROUNDS * STEPS) / one;
        printf("%4d  %5.2f\n", (int)b->depths.v[i] + 1, t[i]);
    }
    fflush(stdout);
    free(took);
    return rc;
}

/* Between two depths that were measured t is taken to rise evenly. */
static double cost_at(const list *depths, const double *t, int depth) {
    double low = 1;
    int    from = 0;
    if (depth == 0) return 1;
    for (int i = 0; i < depths->n; i++) {
        int to = (int)depths->v[i];
        if (depth <= to) return low + (t[i] - low) * (depth - from) / (to - from);
        low = t[i];
        from = to;
    }
    return HUGE_VAL;
}

/* How many times faster n tokens can be. */
static double predicted(const list *depths, const double *t, double p, int n) {
    static double least[MOST + 1];
    for (int left = 1; left <= n; left++) {
        least[left] = HUGE_VAL;
        for (int depth = 0; depth < left && depth <= DEEPEST; depth++) {
            double time = cost_at(depths, t, depth), reached = 1;
            for (int k = 0; k <= depth; k++, reached *= p)
                time += reached * (k < depth ? 1 - p : 1) * least[left - 1 - k];
            least[left] = fmin(least[left], time);
        }
    }
    return n / least[n];
}

/* --- what drafts bring ------------------------------------------------------------------------------------------- */

/* One answer without drafts, and one of each p. Round -1 goes by in vain: the engines learn. */
static int take_turns(bench *b, engine *plain, subject *s, double *off, err *e) {
    for (int rep = -1; rep <= b->reps; rep++) {
        double alone = ask(b, plain, (wish){ b->tokens + 1, 0, false }, e);
        if (alone < 0) return e->code;
        if (rep >= 0) off[rep] = alone;
        for (int i = 0; i < b->chances.n && rep < b->reps; i++) {
            double took = ask(b, s[i].g, (wish){ b->tokens + 1, -1, false }, e);
            if (took < 0) return e->code;
            if (rep >= 0) s[i].speeds[rep] = b->tokens / took;
        }
    }
    for (int i = 0; i < b->chances.n; i++) {
        for (int rep = 0; rep < b->reps; rep++)
            s[i].ratios[rep] = s[i].speeds[rep] * (off[rep] + off[rep + 1]) / 2 / b->tokens;
    }
    return 0;
}

static void show(bench *b, subject *s, const double *t, double p) {
    engine_stats st;
    engine_stat(s->g, &st);
    double drafts = st.drafts > 0 ? (double)st.drafts : 1;
    double ratio = median(s->ratios, b->reps), best = predicted(&b->depths, t, p, b->tokens);
    printf("%.1f  %6.1f  %7.2fx  %8.2fx  %6.2f  %5.2f .. %.2f  %5.1f of %5.1f\n", p, median(s->speeds, b->reps), ratio,
           best, ratio / best, s->ratios[0], s->ratios[b->reps - 1], (double)st.accepted / drafts,
           (double)st.drafted / drafts);
}

static int measure(bench *b, err *e) {
    double  t[LISTED], off[MAX_REPS + 1];
    subject s[LISTED] = { 0 };
    engine *plain = open_engine(b, LISTED, 0, true, e);
    int     rc = plain && ask(b, plain, (wish){ b->tokens + DEEPEST, 0, true }, e) >= 0 ? 0 : e->code;
    if (rc == 0) rc = measure_costs(b, plain, t, e);
    for (int i = 0; i < b->chances.n && rc == 0; i++) {
        if (!(s[i].g = open_engine(b, i, b->chances.v[i], false, e))) rc = e->code;
    }
    if (rc == 0) rc = take_turns(b, plain, s, off, e);
    if (rc == 0) printf("p     tok/s  speed-up  predicted   ratio  least .. most  right of drafted\n");
    for (int i = 0; i < b->chances.n; i++) {
        if (rc == 0) show(b, &s[i], t, b->chances.v[i]);
        engine_free(s[i].g);
    }
    engine_free(plain);
    return rc;
}

/* "1,2,5"; numbers that do not rise are left out. */
static list list_of(const char *text) {
    list l = { 0 };
    for (char *end; l.n < LISTED; text = end + 1) {
        double v = strtod(text, &end);
        if (end == text) break;
        if (l.n == 0 ? v >= 0 : v > l.v[l.n - 1]) l.v[l.n++] = v;
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
    char         temp[] = "/tmp/hearth-bench-XXXXXX";
    static bench b = { .threads = 2, .tokens = 100, .reps = 5 };
    int          rc = 0, fd = -1;
    model_file  *file = NULL;
    nn_model    *model = NULL;
    const char  *write = NULL;
    err          e = { 0 };
    b.depths = list_of("1,2,3,4,5,6,7,9,11,15");
    b.chances = list_of("0,0.5,0.7,0.8,0.9");
    const char *path = read_options(&b, argc, argv, &write);
    if (b.tokens < 8 || b.tokens + DEEPEST > MOST || b.reps < 1 || b.reps > MAX_REPS) return 1;
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

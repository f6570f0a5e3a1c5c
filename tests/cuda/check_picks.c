/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Picks from rows on the device are the sampler's from the same rows: the same token, bit for bit, for random masks,
 * biases, penalties and chains, many rows in one call or one by one; the lists that come with a step are a plain sort's,
 * and where they decide alone, the guesses beside them are what is picked.
 * --time says how long both take for 128 rows of 128,256 logits.
 */
#include "backend/cuda/sampler.h"
#include "base/clock.h"
#include "kernels/check.h"
#include "sampling/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24, HISTORY = 48, TOPS = 5, BIASES = 3 };

typedef struct question {
    sampling_params  p;
    sampling_bias    bias[BIASES];
    sampling_count   counts[HISTORY];
    sampling_logprob top[TOPS];
    sampler         *sampler;
    uint32_t        *mask;
} question;

typedef struct stage {
    check         *c;
    int            rows;
    size_t         width;
    float         *logits, *copy; /* of the host */
    cand          *sorted;
    void          *on_device, *room, *guess;
    cuda_stream    stream;
    cuda_sampler   sampler;
    sampling_work *work;
    question       q[ROWS];
    sampling_row   ask[ROWS];
    long           left, asked, logprobs_off, guessed, missed;
} stage;

static bool chance(check *c, int percent) { return check_int(c, 1, 100) <= percent; }

static void fill(stage *s) {
    check *c = s->c;
    for (int r = 0; r < s->rows; r++) {
        float *x = s->logits + (size_t)r * s->width, scale = (float)check_int(c, 1, 6);
        check_fill_normal(c, x, s->width, scale);
        for (size_t i = 0; i + 7 < s->width && r % 2; i += 97) x[i + 7] = x[i];
        for (size_t i = 0; i < s->width && r % 8 == 5; i++) x[i] = i > s->width / 2 ? 1 : 0; /* all alike */
        for (size_t i = 0; i < s->width && r % 8 == 6; i++) x[i] += i < 300 ? 40 : 0;        /* neighbours */
        for (int i = 0; i < 5 && chance(c, 30); i++)
            x[check_int(c, 0, (int)s->width - 1)] = (float[]){ NAN, INFINITY, -INFINITY, 1e35f, -0.0f }[i];
    }
}

static void ask(stage *s, int i) {
    check           *c = s->c;
    question        *q = &s->q[i];
    sampling_params *p = &q->p;
    int              last = (int)s->width - 1;
    err              e = { 0 };
    sampling_params_default(p);
    p->temperature = chance(c, 20) ? 0 : (float)check_int(c, 1, 20) * 0.1f;
    p->top_k = chance(c, 40) ? check_int(c, 1, 90) : 0;
    p->top_p = chance(c, 40) ? (float)check_int(c, 1, 99) * 0.01f : 1;
    p->min_p = chance(c, 20) ? (float)check_int(c, 1, 50) * 0.01f : 0;
    p->repeat_penalty = chance(c, 30) ? 0.7f + (float)check_int(c, 0, 9) * 0.1f : 1;
    p->presence_penalty = chance(c, 20) ? 0.5f : 0;
    p->seed = check_u64(c);
    p->bias = q->bias;
    p->n_bias = chance(c, 30) ? (size_t)check_int(c, 1, BIASES) : 0;
    for (size_t k = 0; k < p->n_bias; k++)
        q->bias[k] = (sampling_bias){ check_int(c, 0, last), chance(c, 20) ? -INFINITY : 9 * check_normal(c) };
    CHECK(c, sampler_open(&q->sampler, p, HISTORY, &e) == 0, "%s", e.msg);
    for (int k = 0; k < HISTORY; k++) sampler_accept(q->sampler, check_int(c, 0, last));
    s->ask[i] = (sampling_row){ .params = p,
                                .position = (uint64_t)check_int(c, 0, 1000),
                                .counts = q->counts,
                                .n_counts = sampler_counts(q->sampler, s->work, q->counts),
                                .want_logprob = chance(c, 20),
                                .top = q->top };
    if (s->ask[i].want_logprob) s->ask[i].n_top = check_int(c, 0, TOPS);
    if (!chance(c, 40)) return;
    for (size_t k = 0; k < (s->width + 31) / 32; k++) q->mask[k] = (uint32_t)(check_u64(c) & check_u64(c));
    s->ask[i].mask = q->mask;
}

static int make_lists(stage *s, int n, err *e) {
    int rc = cuda_sampler_step(&s->sampler, n, s->stream, e);
    if (rc == 0) rc = cuda_sampler_send(&s->sampler, n, 0, s->stream, e);
    return rc < 0 ? rc : cuda_wait(s->stream, e);
}

static int send_guesses(stage *s, const int32_t *rows, err *e) {
    cuda_guess guess[ROWS];
    for (int i = 0; i < s->rows; i++) guess[rows[i]] = cuda_sampler_guess(&s->ask[i]);
    return cuda_copy_in(s->guess, guess, (size_t)s->rows * sizeof *guess, e);
}

/* Sums that are added in another order may make another token of one in a million. */
static void check_guess(stage *s, int i, const sampling_result *got) {
    const sampling_row *r = &s->ask[i];
    bool                by_list = chain_greedy(r->params) || (r->params->top_k > 0 && r->params->top_k <= 64);
    bool                cuts = chain_greedy(r->params) || (size_t)r->params->top_k + 8 < s->width; /* else unordered */
    CHECK(s->c, got->guess >= 0 && (size_t)got->guess < s->width, "a guess that is not a token");
    if (!by_list || !cuts || r->mask || r->params->n_bias || r->n_counts || got->token < 0) return;
    s->guessed++;
    s->missed += got->guess != got->token;
}

static void compare(stage *s, int i, int row, const sampling_result *got) {
    sampling_logprob    top[TOPS];
    const sampling_row *r = &s->ask[i];
    sampling_result     want;
    err                 e = { 0 };
    memcpy(s->copy, s->logits + (size_t)row * s->width, s->width * sizeof *s->copy);
    sampling_request q = { .logits = s->copy,
                           .mask = r->mask,
                           .position = r->position,
                           .want_logprob = r->want_logprob,
                           .n_top = r->n_top,
                           .top = top };
    int              rc = sampler_pick(s->q[i].sampler, s->work, &q, &want, &e);
    s->asked++;
    if (got->token == SAMPLING_LEFT) {
        s->left++;
        return;
    }
    CHECK(s->c, got->token == (rc < 0 ? -1 : want.token), "width %zu: token %d instead of %d", s->width, got->token,
          want.token);
    if (!r->want_logprob || got->token < 0) return;
    CHECK(s->c, fabs((double)got->logprob - (double)want.logprob) < 1e-5, "log-probability %g instead of %g",
          (double)got->logprob, (double)want.logprob);
    s->logprobs_off += got->logprob != want.logprob;
    for (int k = 0; k < r->n_top; k++) CHECK(s->c, r->top[k].token == top[k].token, "rival %d", k);
}

/* The list is the beginning of a sorted row. */
static void check_list(stage *s, int row) {
    const cuda_likely *l = &s->sampler.likely[row];
    cand_set           set = { .c = s->sorted };
    bool               same = true;
    cand_fill(&set, s->logits + (size_t)row * s->width, s->width);
    cand_sort(&set, CUDA_LIKELY + 1);
    for (int i = 0; i < l->n && same; i++) same = (size_t)i < set.count && set.c[i].id == l->token[i];
    CHECK(s->c, same, "width %zu: a list that is not sorted", s->width);
    if (l->floor > -INFINITY)
        CHECK(s->c, (size_t)l->n < set.count && set.c[l->n].logit == l->floor, "a floor that is not the next");
    else
        CHECK(s->c, set.count == (size_t)l->n, "a list that is not whole");
}

static void round_of(stage *s) {
    int32_t         rows[ROWS];
    sampling_result together[ROWS], alone;
    err             e = { 0 };
    size_t          bytes = (size_t)s->rows * s->width * sizeof *s->logits;
    fill(s);
    for (int i = 0; i < s->rows; i++) {
        rows[i] = s->rows - 1 - i;
        ask(s, i);
    }
    if (!CHECK(s->c, cuda_copy_in(s->on_device, s->logits, bytes, &e) == 0, "%s", e.msg)) return;
    if (!CHECK(s->c, send_guesses(s, rows, &e) == 0, "%s", e.msg)) return;
    if (!CHECK(s->c, make_lists(s, s->rows, &e) == 0, "%s", e.msg)) return;
    for (int i = 0; i < s->rows; i++) check_list(s, i);
    CHECK(s->c, cuda_sampler_pick(&s->sampler, rows, s->ask, s->rows, true, together, s->stream, &e) == 0, "%s", e.msg);
    for (int i = 0; i < s->rows; i++) {
        compare(s, i, rows[i], &together[i]);
        check_guess(s, i, &together[i]);
        CHECK(s->c, cuda_sampler_pick(&s->sampler, &rows[i], &s->ask[i], 1, true, &alone, s->stream, &e) == 0, "%s",
              e.msg);
        CHECK(s->c, alone.token == together[i].token && alone.logprob == together[i].logprob, "another alone");
        sampler_free(s->q[i].sampler);
    }
}

static bool stage_open(stage *s, err *e) {
    size_t n = (size_t)s->rows * s->width;
    s->logits = malloc(n * sizeof *s->logits);
    s->copy = malloc(s->width * sizeof *s->copy);
    s->sorted = malloc(s->width * sizeof *s->sorted);
    for (int i = 0; i < ROWS; i++) s->q[i].mask = malloc((s->width + 31) / 32 * sizeof(uint32_t));
    cuda_sampler_plan(&s->sampler, s->rows, (int64_t)s->width);
    return sampling_work_open(&s->work, s->width, e) == 0 && cuda_stream_open(&s->stream, e) == 0 &&
           cuda_alloc(&s->on_device, n * sizeof *s->logits, e) == 0 &&
           cuda_alloc(&s->room, cuda_sampler_bytes(&s->sampler), e) == 0 &&
           cuda_alloc(&s->guess, (size_t)s->rows * sizeof(cuda_guess), e) == 0 &&
           cuda_sampler_open(&s->sampler, s->room, s->on_device, e) == 0;
}

static void stage_close(stage *s) {
    cuda_sampler_close(&s->sampler);
    cuda_free(s->on_device);
    cuda_free(s->room);
    cuda_free(s->guess);
    cuda_stream_free(s->stream);
    sampling_work_free(s->work);
    for (int i = 0; i < ROWS; i++) free(s->q[i].mask);
    free(s->logits);
    free(s->copy);
    free(s->sorted);
}

static void check_width(check *c, size_t width, int rounds) {
    stage *s = calloc(1, sizeof *s);
    err    e = { 0 };
    s->c = c;
    s->rows = width > 100000 ? 8 : ROWS;
    s->width = width;
    if (CHECK(c, stage_open(s, &e), "%s", e.msg)) {
        s->sampler.picks.guess = s->guess;
        for (int i = 0; i < rounds; i++) round_of(s);
    }
    CHECK(c, s->missed * 100 <= s->guessed, "%ld of %ld guesses were wrong", s->missed, s->guessed);
    printf(
        "%zu logits: %ld rows, %ld left to the host, %ld log-probabilities with another last bit, %ld of %ld guesses "
        "wrong\n",
        width, s->asked, s->left, s->logprobs_off, s->missed, s->guessed);
    stage_close(s);
    free(s);
}

/* Medians would need more runs; the least of five says what the kernels cost. */
static void time_picks(check *c) {
    enum { N = 128 };
    const size_t     width = 128256;
    stage           *s = calloc(1, sizeof *s);
    sampling_row    *rows = calloc(N, sizeof *rows);
    sampling_result *out = calloc(N, sizeof *out);
    int32_t          at[N];
    err              e = { 0 };
    s->c = c;
    s->rows = N;
    s->width = width;
    if (CHECK(c, stage_open(s, &e), "%s", e.msg)) {
        check_fill_normal(c, s->logits, N * width, 3);
        CHECK(c, cuda_copy_in(s->on_device, s->logits, N * width * sizeof(float), &e) == 0, "%s", e.msg);
        for (int n = 1; n <= N; n *= 128) {
            double best[3] = { 1, 1, 1 };
            for (int round = 0; round < 5; round++) {
                sampling_params p[2];
                double          t[4];
                t[0] = clock_s();
                (void)make_lists(s, n, &e);
                t[1] = clock_s();
                for (int k = 0; k < 2; k++) {
                    sampling_params_default(&p[k]);
                    p[k].temperature = 0.8f;
                    p[k].top_k = k ? 0 : 40;
                    p[k].top_p = k ? 1 : 0.95f;
                    for (int i = 0; i < n; i++) {
                        at[i] = i;
                        rows[i] = (sampling_row){ .params = &p[k], .position = (uint64_t)i };
                    }
                    (void)cuda_sampler_pick(&s->sampler, at, rows, n, true, out, s->stream, &e);
                    t[2 + k] = clock_s();
                }
                for (int k = 0; k < 3; k++) best[k] = fmin(best[k], t[k + 1] - t[k]);
            }
            printf("%d rows: lists %.1f us, top_k and top_p %.1f us, draw over whole rows %.1f us\n", n, best[0] * 1e6,
                   best[1] * 1e6, best[2] * 1e6);
        }
    }
    stage_close(s);
    free(s);
    free(rows);
    free(out);
}

int main(int argc, char **argv) {
    const size_t widths[] = { 1, 17, 300, 4096, 32000, 128256, 262144, 600001 };
    bool         time = argc > 1 && strcmp(argv[1], "--time") == 0;
    check        c;
    cuda_device  d;
    err          e = { 0 };
    if (!check_begin(&c, time ? 1 : argc, argv)) return check_end(&c);
    if (cuda_device_count(&e) == 0 || cuda_device_open(&d, 0, &e) < 0) {
        printf("skipped: no device\n");
        return 0;
    }
    if (time) time_picks(&c);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0] && !time; i++) {
        if (c.quick && widths[i] > 5000) break;
        check_width(&c, widths[i], c.quick ? 2 : widths[i] > 40000 ? 6 : 20);
    }
    return check_end(&c);
}

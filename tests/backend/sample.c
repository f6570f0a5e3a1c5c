/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that samples picks what the definition in params/sampling.h says, from its own logits, wherever no decision
 * is so close that the last bit of a sum may turn it. States nothing where the backend leaves `sample` out. */
#include "backend/gen.h"
#include "backend/plain_sample.h"
#include "backend/world.h"

#include <math.h>
#include <stdlib.h>

enum { TOPS = 5, BIASES = 3, COUNTS = 8 };

/* What one row is asked. */
typedef struct question {
    sampling_params  params;
    sampling_bias    bias[BIASES];
    sampling_count   counts[COUNTS];
    sampling_logprob top[TOPS];
    uint32_t        *mask;
} question;

static sampling_row ask(suite *s, question *q, int n_vocab) {
    sampling_params *p = &q->params;
    sampling_params_default(p);
    p->temperature = suite_chance(s, 25) ? 0 : (float)suite_int(s, 1, 30) * 0.1f;
    p->top_k = suite_chance(s, 50) ? suite_int(s, 1, n_vocab) : 0;
    p->top_p = suite_chance(s, 50) ? (float)suite_int(s, 1, 99) * 0.01f : 1;
    p->min_p = suite_chance(s, 30) ? (float)suite_int(s, 1, 50) * 0.01f : 0;
    p->repeat_penalty = suite_chance(s, 40) ? 1.3f : 1;
    p->presence_penalty = suite_chance(s, 20) ? 0.5f : 0;
    p->seed = suite_u64(s);
    p->bias = q->bias;
    p->n_bias = (size_t)suite_int(s, 0, BIASES);
    for (size_t i = 0; i < p->n_bias; i++)
        q->bias[i] = (sampling_bias){ suite_int(s, 0, n_vocab - 1), suite_chance(s, 20) ? -INFINITY : suite_normal(s) };
    sampling_row row = { .params = p,
                         .position = (uint64_t)suite_int(s, 0, 100000),
                         .want_logprob = suite_chance(s, 50),
                         .n_top = suite_int(s, 0, TOPS),
                         .top = q->top };
    if (sampling_penalizes(p)) {
        row.counts = q->counts;
        for (int i = 0; i < COUNTS; i++) q->counts[i] = (sampling_count){ i * (n_vocab / COUNTS), suite_int(s, 1, 4) };
        row.n_counts = COUNTS;
    }
    if (suite_chance(s, 50)) {
        for (int i = 0; i < (n_vocab + 31) / 32; i++) q->mask[i] = (uint32_t)suite_u64(s) | 1u << (i % 32);
        row.mask = q->mask;
    }
    return row;
}

static void compare(suite *s, const sampling_row *row, const sampling_result *got, const float *logits, int n_vocab) {
    sampling_logprob top[TOPS];
    sampling_row     copy = *row;
    sampling_result  want;
    double           margin;
    err              e = { 0 };
    copy.top = top;
    if (!FACT(s, plain_sample(logits, (size_t)n_vocab, &copy, 1, &want, &margin, &e) == 0, "plain: %s", e.msg)) return;
    FACT(s, got->token == want.token || margin < 1e-6, "token %d instead of %d", (int)got->token, (int)want.token);
    if (got->token != want.token || !row->want_logprob) return;
    FACT(s, fabs((double)got->logprob - (double)want.logprob) < 1e-4, "log-probability %g instead of %g",
         (double)got->logprob, (double)want.logprob);
    for (int i = 0; i < row->n_top; i++)
        FACT(s, row->top[i].token == top[i].token, "rival %d is %d instead of %d", i, (int)row->top[i].token,
             (int)top[i].token);
}

/* All rows of one batch in one call. */
static void check_batch(world *w, question *q, float *row) {
    suite           *s = w->s;
    int              n = w->batch.n_out - w->batch.n_hidden, n_vocab = (int)nn_exec_width(w->x, NN_FETCH_LOGITS);
    int32_t         *at = calloc((size_t)n + 1, sizeof *at);
    sampling_row    *rows = calloc((size_t)n + 1, sizeof *rows);
    sampling_result *out = calloc((size_t)n + 1, sizeof *out);
    err              e = { 0 };
    if (!at || !rows || !out) exit(1);
    for (int i = 0; i < n; i++) {
        at[i] = n - 1 - i; /* in any order */
        rows[i] = ask(s, &q[i], n_vocab);
    }
    if (FACT(s, s->backend->sample(w->x, at, rows, n, out, &e) == 0, "sample: %s", e.msg)) {
        for (int i = 0; i < n; i++) {
            FACT(s, s->backend->fetch(w->x, NN_FETCH_LOGITS, at[i], 1, row, &e) == 0, "fetch: %s", e.msg);
            if (out[i].token == SAMPLING_LEFT) continue;
            compare(s, &rows[i], &out[i], row, n_vocab);
        }
    }
    free(at);
    free(rows);
    free(out);
}

static void check_model(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(sizeof *w);
    question       *q = calloc(WORLD_TOKENS, sizeof *q);
    size_t          n_vocab = (size_t)m->dims->n_vocab;
    float          *row = malloc(n_vocab * sizeof *row);
    if (!w || !q || !row) exit(1);
    for (int i = 0; i < WORLD_TOKENS; i++) {
        if (!(q[i].mask = malloc((n_vocab + 31) / 32 * sizeof *q[i].mask))) exit(1);
    }
    if (world_open(w, s, m, &o)) {
        err e = { 0 };
        w->all_logits = true;
        while (world_random_batch(w, false)) {
            if (!FACT(s, nn_exec_step(w->x, &w->batch, &e) == 0, "a step: %s", e.msg)) break;
            check_batch(w, q, row);
        }
        world_close(w);
    }
    for (int i = 0; i < WORLD_TOKENS; i++) free(q[i].mask);
    free(q);
    free(row);
    free(w);
}

void suite_sample(suite *s) {
    if (!s->backend->sample) {
        FACT(s, true, "the host samples");
        return;
    }
    for (int i = 0; i < suite_models(s, 3); i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = GEN_ANY, .ffn = GEN_ANY });
        check_model(s, m);
        gen_free(m);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/convert/judge.h"

#include "bundle/tokenizer.h"
#include "cli/convert/compare.h"

#include <math.h>
#include <stdlib.h>

enum { LIKELY = 32, WINDOW = 512 };

typedef struct judge_token {
    int32_t id[LIKELY]; /* the most likely first */
    float   log_p[LIKELY];
} judge_token;

static void keep_likely(judge_token *t, const float *row, int n) {
    double log_sum = compare_log_sum(row, n);
    int    have = 0;
    for (int32_t i = 0; i < n; i++) {
        if (have == LIKELY && !(row[i] > row[t->id[LIKELY - 1]])) continue;
        int at = have < LIKELY ? have++ : LIKELY - 1;
        for (; at > 0 && row[i] > row[t->id[at - 1]]; at--) t->id[at] = t->id[at - 1];
        t->id[at] = i;
    }
    for (int i = 0; i < LIKELY; i++) {
        if (i >= have) t->id[i] = -1;
        t->log_p[i] = i < have ? (float)((double)row[t->id[i]] - log_sum) : 0;
    }
}

static double divergence_of(const judge_token *t, const float *row, int n) {
    double log_sum = compare_log_sum(row, n), kl = 0, p_rest = 1, q_rest = 1;
    for (int i = 0; i < LIKELY && t->id[i] >= 0; i++) {
        double log_p = t->log_p[i], log_q = (double)row[t->id[i]] - log_sum, p = exp(log_p);
        kl += p * (log_p - log_q);
        p_rest -= p;
        q_rest -= exp(log_q);
    }
    if (p_rest > 1e-9 && q_rest > 1e-9) kl += p_rest * log(p_rest / q_rest);
    return kl > 0 ? kl : 0;
}

/* Evaluates the text; the first time (sum NULL) predictions are kept, then their divergences are added up. */
static int evaluate(judge *j, double *sum, err *e) {
    int    n_vocab = j->model.model->dims->n_vocab, rc = 0;
    size_t at_token = 0;
    for (size_t i = 0; i < j->w.n && rc == 0; i++) {
        const int32_t *ids = j->w.ids.data + j->w.start[i];
        int            n = (int)(j->w.start[i + 1] - j->w.start[i]);
        simple_reset(&j->model.run, 0);
        for (int at = 0; at < n && rc == 0; at += OPENED_STEP) {
            simple_feed  f = { .ids = ids + at, .n = n - at < OPENED_STEP ? n - at : OPENED_STEP, .all = true };
            const float *rows;
            if ((rc = simple_step(&j->model.run, &f, 1, e)) < 0) break;
            if (!(rows = simple_fetch(&j->model.run, NN_FETCH_LOGITS, e))) return ERR_NOMEM;
            for (int r = 0; r < f.n; r++, at_token++) {
                if (sum)
                    *sum += divergence_of(&j->tokens[at_token], rows + (int64_t)r * n_vocab, n_vocab);
                else
                    keep_likely(&j->tokens[at_token], rows + (int64_t)r * n_vocab, n_vocab);
            }
        }
    }
    return rc;
}

static int pass(judge *j, double *sum, err *e) {
    int rc = opened_bind(&j->model, WINDOW, e);
    if (rc == 0) rc = opened_ready(&j->model, WINDOW, j->o.threads, NULL, NULL, e);
    if (rc == 0) rc = windows_check(&j->w, j->model.model->dims->n_vocab, e);
    if (rc == 0) rc = evaluate(j, sum, e);
    opened_unbind(&j->model);
    return rc;
}

int judge_divergence(void *ctx, size_t trial, size_t trials, double *kl, err *e) {
    judge *j = ctx;
    double sum = 0;
    int    rc = pass(j, &sum, e);
    *kl = sum / (double)j->n;
    progress_of(j->o.bar, "trials");
    if (rc == 0 && !progress_at(j->o.bar, trial, trials)) rc = err_set(e, ERR_CANCELLED, "it was asked to stop");
    return rc;
}

int judge_open(judge *j, const char *model, const judge_options *o, err *e) {
    tok *t = NULL;
    j->o = *o;
    int rc = opened_open(&j->model, model, WINDOW, e);
    if (rc == 0) rc = bundle_tokenizer_open(&t, j->model.file, NULL, e);
    if (rc == 0)
        rc =
            o->documents ? windows_documents(&j->w, t, o->text, WINDOW, e) : windows_text(&j->w, t, o->text, WINDOW, e);
    for (size_t i = 0; i < j->w.n && rc == 0 && !o->documents && tok_adds_bos(t); i++)
        if (tok_bos(t) >= 0) j->w.ids.data[j->w.start[i]] = tok_bos(t);
    tok_free(t);
    opened_unbind(&j->model);
    j->n = rc == 0 && j->w.n ? j->w.start[j->w.n] : 0;
    if (rc == 0 && j->n == 0) rc = err_set(e, ERR_ARG, "%s: no tokens", o->text);
    if (rc == 0 && !(j->tokens = calloc(j->n, sizeof *j->tokens))) rc = err_set_nomem(e);
    return rc == 0 ? pass(j, NULL, e) : rc;
}

void judge_deinit(judge *j) {
    opened_deinit(&j->model);
    windows_deinit(&j->w);
    free(j->tokens);
    *j = (judge){ 0 };
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth perplexity: how well a model predicts a text.
 *
 * The text is tokenized once and cut into windows of N tokens that do not overlap. Each window is evaluated from an
 * empty state; the tokens of its second half are scored, so that every scored token has at least N/2 tokens before it.
 * (The widely used C++ engine does the same, so that figures can be compared.) Where the model wants a begin token it
 * replaces the first token of each window. Tokens behind the last whole window are left out; a text shorter than one
 * window is one window of its own length. The result is exp of the mean negative log-likelihood.
 */
#include "backend/backend.h"
#include "backend/simple.h"
#include "base/file.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "kernels/cpu.h"
#include "kernels/kvpage.h"
#include "models/list.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 30, CHUNK = 128 };

typedef struct score {
    double    sum, squares; /* of the negative log-likelihoods */
    long long count;
} score;

static double surprise(const float *row, int64_t n, int32_t token) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = row[i] > most ? row[i] : most;
    for (int64_t i = 0; i < n; i++) sum += exp(row[i] - most);
    return log(sum) + most - row[token];
}

static int score_window(simple *x, const int32_t *ids, int n, score *s, err *e) {
    simple_reset(x, 0);
    for (int at = 0; at < n; at += CHUNK) {
        int         k = n - at < CHUNK ? n - at : CHUNK, rc;
        simple_feed feed = { .ids = ids + at, .n = k, .all = true };
        int64_t     n_vocab;
        if ((rc = simple_step(x, &feed, 1, e)) < 0) return rc;
        const float *logits = nn_exec_logits(x->exec, &n_vocab);
        for (int i = 0; i < k; i++) {
            int next = at + i + 1; /* what this row predicts */
            if (next >= n || next <= n / 2) continue;
            double v = surprise(logits + i * n_vocab, n_vocab, ids[next]);
            s->sum += v;
            s->squares += v * v;
            s->count++;
        }
    }
    return 0;
}

static int read_text(tok_ids *out, const tok *t, const char *path, err *e) {
    char  *text = NULL;
    size_t bytes = 0;
    int    rc = file_read(&text, &bytes, path, MAX_TEXT_BYTES, e);
    if (rc == 0) rc = tok_encode(t, text, bytes, 0, out, e);
    free(text);
    if (rc == 0 && out->count < 4) rc = err_set(e, ERR_ARG, "%s: a text of %zu tokens is too short", path, out->count);
    return rc;
}

static int check_ids(const tok_ids *ids, const nn_model *m, err *e) {
    for (size_t i = 0; i < ids->count; i++) {
        if (ids->data[i] < 0 || ids->data[i] >= m->dims->n_vocab)
            return err_set(e, ERR_FORMAT, "the tokenizer gives token %d, the model has %d", ids->data[i],
                           m->dims->n_vocab);
    }
    return 0;
}

static int evaluate(const cli_args *a, const nn_model *m, const tok *t, tok_ids *ids, int ctx, err *e) {
    simple         x;
    score          s = { 0 };
    int            window = ids->count < (size_t)ctx ? (int)ids->count : ctx;
    size_t         n_windows = ids->count / (size_t)window;
    simple_options o = { .max_len = window,
                         .max_tokens = CHUNK,
                         .n_threads = (int)cli_int(a, "threads", 0),
                         .k_type = KV_F16,
                         .v_type = KV_F16,
                         .cpu = cpu_detect() };
    int            rc = simple_open(&x, &backend_cpu, m, &o, e);
    if (rc < 0) return rc;
    for (size_t i = 0; rc == 0 && i < n_windows; i++) {
        int32_t *at = ids->data + i * (size_t)window;
        if (tok_adds_bos(t) && tok_bos(t) >= 0) at[0] = tok_bos(t);
        rc = score_window(&x, at, window, &s, e);
    }
    simple_close(&x);
    if (rc < 0) return rc;
    double mean = s.sum / (double)s.count, spread = s.squares / (double)s.count - mean * mean;
    double error = s.count > 1 && spread > 0 ? sqrt(spread / (double)(s.count - 1)) : 0;
    printf("perplexity %.4f +/- %.4f\n", exp(mean), error * exp(mean));
    printf("scored %lld of %zu tokens in %zu windows of %d\n", s.count, ids->count, n_windows, window);
    return 0;
}

static int run(const cli_args *a) {
    model_file *file = NULL;
    nn_model   *model = NULL;
    tok        *t = NULL;
    tok_ids     ids = { 0 };
    char       *path = NULL;
    err         e = { 0 };
    int         rc;
    long long   ctx = cli_int(a, "ctx", 512), threads = cli_int(a, "threads", 0);
    if (ctx < 4 || ctx > 1 << 24) return cli_usage_error(a, "--ctx must lie between 4 and %d", 1 << 24);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if ((rc = cli_model_path(&path, cli_arg(a, 0), &e)) < 0) goto done;
    if ((rc = model_file_open(&file, path, &e)) < 0) goto done;
    if ((rc = nn_model_open(&model, file, models_list, &(nn_model_options){ .rope_context = (int)ctx }, &e)) < 0)
        goto done;
    if (model->dims->context > 0 && ctx > model->dims->context) {
        if (cli_string(a, "ctx", NULL)) {
            rc = err_set(&e, ERR_ARG, "--ctx %lld: the model's context has %d tokens", ctx, model->dims->context);
            goto done;
        }
        ctx = model->dims->context;
    }
    if ((rc = bundle_tokenizer_open(&t, file, NULL, &e)) < 0) goto done;
    if ((rc = read_text(&ids, t, cli_arg(a, 1), &e)) < 0) goto done;
    if ((rc = check_ids(&ids, model, &e)) < 0) goto done;
    rc = evaluate(a, model, t, &ids, (int)ctx, &e);
done:
    tok_ids_deinit(&ids);
    tok_free(t);
    nn_model_free(model);
    model_file_free(file);
    free(path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "ctx", CLI_INT, "N", "tokens of a window (512, or the model's context if that is less)", 0 },
    { "threads", CLI_INT, "N", "threads; 0: one per core (0)", 't' },
    { 0 },
};

const cli_command cli_cmd_perplexity = {
    "perplexity",
    "MODEL FILE [--ctx N]",
    "Measure how well a model predicts a text; the second half of each window is scored.",
    options,
    2,
    2,
    run,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth perplexity: how well a model predicts a text.
 *
 * The text is tokenized once and cut into windows of N tokens that do not overlap. Each window is evaluated from an
 * empty state; the tokens of its second half are scored, so that every scored token has at least N/2 tokens before it.
 * (The widely used C++ engine does the same, so that figures can be compared.) Where the model wants a begin token it
 * replaces the first token of each window. Tokens behind the last whole window are left out; a text shorter than one
 * window is one window of its own length. The result is exp of the mean negative log-likelihood.
 *
 * With --documents FILE holds one JSON value per line, a string or an object with "text". Every document is a window of
 * its own (cut where it is longer than N), special tokens are recognised in it, and all but its first token is scored.
 */
#include "backend/backend.h"
#include "base/file.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tools/simple.h"

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
    /* cppcheck-suppress invalidFunctionArg ; n is the size of a vocabulary: sum is at least 1 */
    return log(sum) + most - row[token];
}

/* Scores the tokens ids[first] .. ids[n - 1], each by what stands before it. */
static int score_window(simple *x, const int32_t *ids, int n, int first, score *s, err *e) {
    simple_reset(x, 0);
    for (int at = 0; at < n; at += CHUNK) {
        int         k = n - at < CHUNK ? n - at : CHUNK, rc;
        simple_feed feed = { .ids = ids + at, .n = k, .all = true };
        int64_t     n_vocab = nn_exec_width(x->exec, NN_FETCH_LOGITS);
        if ((rc = simple_step(x, &feed, 1, e)) < 0) return rc;
        const float *logits = simple_fetch(x, NN_FETCH_LOGITS, e);
        if (!logits) return ERR_NOMEM;
        for (int i = 0; i < k; i++) {
            int next = at + i + 1; /* what this row predicts */
            if (next >= n || next < first) continue;
            double v = surprise(logits + i * n_vocab, n_vocab, ids[next]);
            s->sum += v;
            s->squares += v * v;
            s->count++;
        }
    }
    return 0;
}

/* Windows over one list of tokens: window i is ids[start[i]] .. ids[start[i + 1] - 1]. */
typedef struct windows {
    tok_ids ids;
    size_t *start;
    size_t  n;
} windows;

static int cut_windows(windows *w, size_t size) {
    w->n = w->ids.count / size;
    if (!(w->start = calloc(w->n + 1, sizeof *w->start))) return -1;
    for (size_t i = 0; i <= w->n; i++) w->start[i] = i * size;
    return 0;
}

static int read_text(windows *w, const tok *t, const char *path, size_t ctx, err *e) {
    char  *text = NULL;
    size_t bytes = 0;
    int    rc = file_read(&text, &bytes, path, MAX_TEXT_BYTES, e);
    if (rc == 0) rc = tok_encode(t, text, bytes, 0, &w->ids, e);
    free(text);
    if (rc < 0) return rc;
    if (w->ids.count < 4) return err_set(e, ERR_ARG, "%s: a text of %zu tokens is too short", path, w->ids.count);
    return cut_windows(w, w->ids.count < ctx ? w->ids.count : ctx) < 0 ? err_set_nomem(e) : 0;
}

/* One line of --documents. */
static int read_document(windows *w, const tok *t, const char *line, size_t bytes, size_t ctx, err *e) {
    arena             mem;
    const json_value *v = NULL;
    size_t            before = w->ids.count;
    int               rc;
    arena_init(&mem, 0);
    if ((rc = json_parse(&v, line, bytes, &mem, e)) < 0) goto done;
    const json_value *text = v->kind == JSON_K_OBJECT ? json_get(v, "text") : v;
    if (!text || text->kind != JSON_K_STRING) {
        rc = err_set(e, ERR_FORMAT, "expected a string, or an object with a string \"text\"");
        goto done;
    }
    if ((rc = tok_encode(t, text->u.string.data, text->u.string.len, TOK_PARSE_SPECIAL, &w->ids, e)) < 0) goto done;
    size_t  pieces = (w->ids.count - before + ctx - 1) / ctx;
    size_t *more = realloc(w->start, (w->n + pieces + 1) * sizeof *more);
    if (!more) {
        rc = err_set_nomem(e);
        goto done;
    }
    w->start = more;
    for (size_t i = 0; i < pieces; i++) w->start[w->n++] = before + i * ctx;
    w->start[w->n] = w->ids.count;
done:
    arena_deinit(&mem);
    return rc;
}

static int read_documents(windows *w, const tok *t, const char *path, size_t ctx, err *e) {
    char  *text = NULL;
    size_t bytes = 0, number = 1;
    int    rc = file_read(&text, &bytes, path, MAX_TEXT_BYTES, e);
    for (const char *at = text, *end = text + bytes; rc == 0 && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t      n = (size_t)((stop ? stop : end) - at);
        if (n > 0 && (rc = read_document(w, t, at, n, ctx, e)) < 0) rc = err_wrap(e, rc, "%s, line %zu", path, number);
        at += n + 1;
    }
    free(text);
    return rc == 0 && w->n == 0 ? err_set(e, ERR_ARG, "%s does not contain a document", path) : rc;
}

static int check_ids(const tok_ids *ids, const nn_model *m, err *e) {
    for (size_t i = 0; i < ids->count; i++) {
        if (ids->data[i] < 0 || ids->data[i] >= m->dims->n_vocab)
            return err_set(e, ERR_FORMAT, "the tokenizer produced token %d, but the model has only %d tokens",
                           ids->data[i], m->dims->n_vocab);
    }
    return 0;
}

static int evaluate(const cli_args *a, const nn_model *m, const tok *t, windows *w, int ctx, err *e) {
    simple         x;
    score          s = { 0 };
    bool           documents = cli_flag(a, "documents"), begin = tok_adds_bos(t) && tok_bos(t) >= 0;
    simple_options o = { .max_len = ctx,
                         .max_tokens = CHUNK,
                         .n_threads = (int)cli_int(a, "threads", 0),
                         .k_type = NN_KV_F16,
                         .v_type = NN_KV_F16,
                         .cpu = cpu_detect() };
    int            rc = simple_open(&x, "cpu", m, &o, e);
    if (rc < 0) return rc;
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        int32_t *at = w->ids.data + w->start[i];
        int      n = (int)(w->start[i + 1] - w->start[i]);
        if (begin && !documents) at[0] = tok_bos(t);
        rc = score_window(&x, at, n, documents ? 1 : n / 2 + 1, &s, e);
    }
    simple_close(&x);
    if (rc < 0) return rc;
    if (s.count == 0) return err_set(e, ERR_ARG, "there is nothing to score: every document has only one token");
    double mean = s.sum / (double)s.count, spread = s.squares / (double)s.count - mean * mean;
    double error = s.count > 1 && spread > 0 ? sqrt(spread / (double)(s.count - 1)) : 0;
    printf("perplexity %.5f +/- %.5f\n", exp(mean), error * exp(mean));
    if (documents)
        printf("scored %lld of %zu tokens in %zu documents\n", s.count, w->ids.count, w->n);
    else
        printf("scored %lld of %zu tokens in %zu windows of %zu\n", s.count, w->ids.count, w->n, w->start[1]);
    return 0;
}

static int run(const cli_args *a) {
    model_file *file = NULL;
    nn_model   *model = NULL;
    tok        *t = NULL;
    windows     w = { 0 };
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
            rc =
                err_set(&e, ERR_ARG, "--ctx %lld: the model's context holds only %d tokens", ctx, model->dims->context);
            goto done;
        }
        ctx = model->dims->context;
    }
    if (!model->tape->logits) {
        rc = err_set(&e, ERR_UNSUPPORTED, "%s turns texts into vectors; it does not predict tokens", path);
        goto done;
    }
    if ((rc = bundle_tokenizer_open(&t, file, NULL, &e)) < 0) goto done;
    rc = cli_flag(a, "documents") ? read_documents(&w, t, cli_arg(a, 1), (size_t)ctx, &e)
                                  : read_text(&w, t, cli_arg(a, 1), (size_t)ctx, &e);
    if (rc < 0 || (rc = check_ids(&w.ids, model, &e)) < 0) goto done;
    rc = evaluate(a, model, t, &w, (int)ctx, &e);
done:
    tok_ids_deinit(&w.ids);
    free(w.start);
    tok_free(t);
    nn_model_free(model);
    model_file_free(file);
    free(path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "documents", CLI_FLAG, NULL, "FILE contains JSON lines, each a document that is scored separately", 0 },
    { "ctx", CLI_INT, "N", "number of tokens per window (512, or the model's context if that is less)", 0 },
    CLI_THREADS_OPTION,
    { 0 },
};

const cli_command cli_cmd_perplexity = {
    "perplexity",
    "MODEL FILE [--documents] [--ctx N]",
    "Measure how well a model predicts a text; the second half of each window is scored.",
    options,
    2,
    2,
    run,
};

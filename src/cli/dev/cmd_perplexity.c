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
 *
 * With page types (--kv ...) a second executor with f32 pages reads the same tokens in lockstep: how far the predictions
 * of the two are apart says more about a page type than perplexity does.
 */
#include "backend/backend.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/convert/compare.h"
#include "cli/convert/progress.h"
#include "cli/dev/divergence.h"
#include "cli/dev/windows.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "runtime/runtime.h"
#include "tools/simple.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 128 };

typedef struct score {
    double    sum, squares; /* of the negative log-likelihoods */
    long long count;
} score;

/* The executor that is measured, and one with f32 pages beside it. */
typedef struct pair {
    simple     x, exact;
    bool       both;
    divergence apart;
} pair;

/* One step; the rows until the next call. */
static const float *step_rows(simple *x, const simple_feed *feed, err *e) {
    return simple_step(x, feed, 1, e) < 0 ? NULL : simple_fetch(x, NN_FETCH_LOGITS, e);
}

/* Scores the tokens ids[first] .. ids[n - 1], each by what stands before it. */
static int score_window(pair *p, const int32_t *ids, int n, int first, score *s, err *e) {
    simple_reset(&p->x, 0);
    if (p->both) simple_reset(&p->exact, 0);
    for (int at = 0; at < n; at += CHUNK) {
        int          k = n - at < CHUNK ? n - at : CHUNK;
        simple_feed  feed = { .ids = ids + at, .n = k, .all = true };
        int64_t      n_vocab = nn_exec_width(p->x.exec, NN_FETCH_LOGITS);
        const float *logits = step_rows(&p->x, &feed, e), *exact = p->both ? step_rows(&p->exact, &feed, e) : NULL;
        if (!logits || (p->both && !exact)) return e->code ? e->code : ERR_NOMEM;
        for (int i = 0; i < k; i++) {
            int next = at + i + 1; /* what this row predicts */
            if (next >= n || next < first) continue;
            double v = compare_surprise(logits + i * n_vocab, n_vocab, ids[next]);
            s->sum += v;
            s->squares += v * v;
            s->count++;
            if (exact && divergence_add(&p->apart, exact + i * n_vocab, logits + i * n_vocab, n_vocab, ids[next]) < 0)
                return err_set_nomem(e);
        }
    }
    return 0;
}

/* The page types that were asked for; f16 without any. */
static int page_types(const cli_args *a, simple_options *o, bool *asked, err *e) {
    engine_options g = { 0 };
    const char    *both = cli_string(a, "kv", NULL), *k = cli_string(a, "kv-k", NULL), *v = cli_string(a, "kv-v", NULL);
    int            rc = runtime_cache_types(both, k, v, &g, e);
    if (rc == 0 && g.kv_auto) rc = err_set(e, ERR_ARG, "--kv auto: name the type that is to be measured");
    o->k_type = g.k_type;
    o->v_type = g.v_type;
    o->k_open = g.k_open;
    o->precise_layers = (int)cli_int(a, "kv-precise", NN_KV_PRECISE_USUAL);
    *asked = both || k || v;
    return rc;
}

static int open_pair(pair *p, const cli_args *a, const nn_model *m, int ctx, err *e) {
    simple_options o = {
        .max_len = ctx, .max_tokens = CHUNK, .n_threads = (int)cli_int(a, "threads", 0), .cpu = cpu_detect()
    };
    int rc = page_types(a, &o, &p->both, e);
    if (rc == 0) rc = simple_open(&p->x, "cpu", m, &o, e);
    if (rc < 0 || !p->both) return rc;
    o.k_type = o.v_type = NN_KV_F32;
    o.precise_layers = 0;
    o.k_open = false;
    if ((rc = simple_open(&p->exact, "cpu", m, &o, e)) < 0) simple_close(&p->x);
    return rc;
}

static void show(const score *s, pair *p, const windows *w, const cli_args *a) {
    double mean = s->sum / (double)s->count, spread = s->squares / (double)s->count - mean * mean;
    double error = s->count > 1 && spread > 0 ? sqrt(spread / (double)(s->count - 1)) : 0;
    if (cli_flag(a, "json")) {
        printf("{\"perplexity\":%.9g,\"perplexity_error\":%.9g,\"scored\":%lld,\"tokens\":%zu,\"windows\":%zu",
               exp(mean), error * exp(mean), s->count, w->ids.count, w->n);
        divergence_print_json(&p->apart, s->sum);
        puts("}");
        return;
    }
    printf("perplexity %.5f +/- %.5f\n", exp(mean), error * exp(mean));
    if (cli_flag(a, "documents"))
        printf("scored %lld of %zu tokens in %zu documents\n", s->count, w->ids.count, w->n);
    else
        printf("scored %lld of %zu tokens in %zu windows of %zu\n", s->count, w->ids.count, w->n, w->start[1]);
    divergence_print(&p->apart, s->sum);
}

static int score_all(pair *p, const cli_args *a, const tok *t, windows *w, score *s, err *e) {
    bool     documents = cli_flag(a, "documents"), begin = tok_adds_bos(t) && tok_bos(t) >= 0;
    progress bar;
    int      rc = progress_begin(&bar, cli_flag(a, "json"), documents ? "documents" : "windows", e);
    if (rc < 0) return rc;
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        int32_t *at = w->ids.data + w->start[i];
        int      n = (int)(w->start[i + 1] - w->start[i]);
        if (begin && !documents) at[0] = tok_bos(t);
        rc = score_window(p, at, n, documents ? 1 : n / 2 + 1, s, e);
        if (rc == 0 && !progress_at(&bar, i + 1, w->n)) rc = err_set(e, ERR_CANCELLED, "it was asked to stop");
    }
    progress_end(&bar);
    return rc;
}

static int evaluate(const cli_args *a, const nn_model *m, const tok *t, windows *w, int ctx, err *e) {
    pair  p = { 0 };
    score s = { 0 };
    int   rc = open_pair(&p, a, m, ctx, e);
    if (rc < 0) return rc;
    rc = score_all(&p, a, t, w, &s, e);
    if (rc == 0 && s.count == 0)
        rc = err_set(e, ERR_ARG, "there is nothing to score: every document has only one token");
    if (rc == 0) show(&s, &p, w, a);
    simple_close(&p.x);
    if (p.both) simple_close(&p.exact);
    divergence_deinit(&p.apart);
    return rc;
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
    rc = cli_flag(a, "documents") ? windows_documents(&w, t, cli_arg(a, 1), (size_t)ctx, &e)
                                  : windows_text(&w, t, cli_arg(a, 1), (size_t)ctx, &e);
    if (rc < 0 || (rc = windows_check(&w, model->dims->n_vocab, &e)) < 0) goto done;
    rc = evaluate(a, model, t, &w, (int)ctx, &e);
done:
    windows_deinit(&w);
    tok_free(t);
    nn_model_free(model);
    model_file_free(file);
    free(path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "documents", CLI_FLAG, NULL, "FILE contains JSON lines, each a document that is scored separately", 0 },
    { "ctx", CLI_INT, "N", "number of tokens per window (512, or the model's context if that is less)", 0 },
    CLI_JSON_OPTION,
    CLI_THREADS_OPTION,
    CLI_KV_OPTIONS,
    { 0 },
};

const cli_command cli_cmd_perplexity = {
    "perplexity",
    "MODEL FILE [--documents] [--ctx N] [--kv TYPE]",
    "Measure how well a model predicts a text; the second half of each window is scored. "
    "With --kv: also how far cache pages of this type change its predictions.",
    options,
    2,
    2,
    run,
};

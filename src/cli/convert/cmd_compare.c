/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth compare: what a model lost against another one of the same vocabulary, mostly itself before quantizing.
 *
 * Both read the text in lockstep, window by window as `hearth perplexity` does it, so nothing is stored but a few
 * numbers per token. The first model is the truth: the divergence of a token is that of the second one's prediction
 * from the first one's.
 */
#include "cli/convert/compare.h"

#include "base/file.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/convert/opened.h"
#include "cli/convert/progress.h"
#include "cli/dev/windows.h"
#include "cli/options.h"
#include "convert/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    opened         a, b;
    tok           *t;
    windows        w;
    compare_token *tokens;
    size_t         n, cap;
} job;

static int keep(job *j, const compare_token *t, err *e) {
    if (j->n == j->cap) {
        size_t         cap = j->cap ? j->cap * 2 : 1024;
        compare_token *more = realloc(j->tokens, cap * sizeof *more);
        if (!more) return err_set_nomem(e);
        j->tokens = more;
        j->cap = cap;
    }
    j->tokens[j->n++] = *t;
    return 0;
}

/* One step of both; the rows whose next token is scored are compared. */
static int step(job *j, size_t start, int at, int n, int first, err *e) {
    const int32_t *ids = j->w.ids.data + start;
    int            k = n - at < OPENED_STEP ? n - at : OPENED_STEP, rc;
    int64_t        n_vocab = j->a.model->dims->n_vocab;
    simple_feed    f = { .ids = ids + at, .n = k, .all = true };
    if ((rc = simple_step(&j->a.run, &f, 1, e)) < 0 || (rc = simple_step(&j->b.run, &f, 1, e)) < 0) return rc;
    const float *x = simple_fetch(&j->a.run, NN_FETCH_LOGITS, e), *y = simple_fetch(&j->b.run, NN_FETCH_LOGITS, e);
    if (!x || !y) return ERR_NOMEM;
    for (int i = 0; i < k && rc == 0; i++) {
        int next = at + i + 1;
        if (next >= n || next < first) continue;
        compare_token t = compare_rows(x + i * n_vocab, y + i * n_vocab, n_vocab, ids[next]);
        t.at = start + (size_t)next;
        rc = keep(j, &t, e);
    }
    return rc;
}

static int walk(job *j, bool documents, progress *bar, err *e) {
    bool begin = tok_adds_bos(j->t) && tok_bos(j->t) >= 0 && !documents;
    int  rc = 0;
    for (size_t i = 0; rc == 0 && i < j->w.n; i++) {
        size_t start = j->w.start[i];
        int    n = (int)(j->w.start[i + 1] - start);
        if (begin) j->w.ids.data[start] = tok_bos(j->t);
        simple_reset(&j->a.run, 0);
        simple_reset(&j->b.run, 0);
        for (int at = 0; at < n && rc == 0; at += OPENED_STEP) rc = step(j, start, at, n, documents ? 1 : n / 2 + 1, e);
        if (rc == 0 && !progress_at(bar, i + 1, j->w.n)) rc = err_set(e, ERR_CANCELLED, "it was asked to stop");
    }
    return rc == 0 && j->n == 0 ? err_set(e, ERR_ARG, "the text is too short: no token is scored") : rc;
}

/* --- what is said ------------------------------------------------------------------------------------------------ */

/* A token in its text: the tokens before it and itself in brackets. */
static void put_place(const job *j, const compare_token *t, str *out, err *e) {
    size_t from = t->at > 6 ? t->at - 6 : 0;
    (void)tok_decode(j->t, j->w.ids.data + from, t->at - from, false, out, e);
    str_puts(out, " [");
    (void)tok_decode(j->t, &t->id, 1, false, out, e);
    str_puts(out, "]");
    for (size_t i = 0; i < out->len; i++)
        if ((unsigned char)out->data[i] < 32) out->data[i] = ' ';
}

static void say_worst(const job *j, int worst, err *e) {
    for (int i = 0; i < worst && (size_t)i < j->n; i++) {
        str text;
        str_init(&text);
        put_place(j, &j->tokens[i], &text, e);
        printf("  %8.4f  %s\n", (double)j->tokens[i].kl, str_cstr(&text));
        str_deinit(&text);
    }
}

static void say_text(const job *j, const compare_figures *f, int worst, err *e) {
    printf("tokens       %zu\n", f->n);
    printf("KL mean      %.6f +/- %.6f\n", f->kl_mean, f->kl_error);
    printf("KL median    %.6f\nKL 90%%       %.6f\nKL 99%%       %.6f\nKL max       %.6f\n", f->kl_median, f->kl_90,
           f->kl_99, f->kl_max);
    printf("same top-1   %.3f%% +/- %.3f%%\n", 100 * f->same, 100 * f->same_error);
    printf("perplexity   %.5f +/- %.5f, then %.5f +/- %.5f\n", f->ppl_a, f->ppl_a_error, f->ppl_b, f->ppl_b_error);
    printf("ratio        %.5f +/- %.5f\n", f->ratio, f->ratio_error);
    if (worst > 0) printf("largest divergences:\n");
    say_worst(j, worst, e);
}

static void say_json(const job *j, const compare_figures *f, int worst, err *e) {
    str s;
    str_init(&s);
    str_printf(&s,
               "{\"tokens\":%zu,\"kl_mean\":%.9g,\"kl_error\":%.9g,\"kl_median\":%.9g,\"kl_90\":%.9g,\"kl_99\":%.9g,"
               "\"kl_max\":%.9g,\"same_top\":%.9g,\"same_top_error\":%.9g,",
               f->n, f->kl_mean, f->kl_error, f->kl_median, f->kl_90, f->kl_99, f->kl_max, f->same, f->same_error);
    str_printf(&s,
               "\"perplexity_a\":%.9g,\"perplexity_a_error\":%.9g,\"perplexity_b\":%.9g,\"perplexity_b_error\":%.9g,"
               "\"ratio\":%.9g,\"ratio_error\":%.9g,\"worst\":[",
               f->ppl_a, f->ppl_a_error, f->ppl_b, f->ppl_b_error, f->ratio, f->ratio_error);
    for (int i = 0; i < worst && (size_t)i < j->n; i++) {
        const compare_token *t = &j->tokens[i];
        str                  text;
        str_init(&text);
        put_place(j, t, &text, e);
        str_printf(&s, "%s{\"kl\":%.9g,\"token\":%d,\"at\":%zu,\"text\":", i ? "," : "", (double)t->kl, t->id, t->at);
        str_put_json(&s, str_cstr(&text), text.len);
        str_puts(&s, "}");
        str_deinit(&text);
    }
    printf("%s]}\n", str_cstr(&s));
    str_deinit(&s);
}

static int write_svg(const job *j, const compare_figures *f, const char *path, err *e) {
    file_replace r;
    str          s;
    str_init(&s);
    compare_svg(j->tokens, j->n, f, j->a.path, j->b.path, &s);
    int rc = str_ok(&s) ? stream_check_room(path, s.len, e) : err_set_nomem(e);
    if (rc == 0) rc = file_replace_begin(&r, path, e);
    if (rc == 0) {
        fwrite(s.data, 1, s.len, r.out);
        rc = file_replace_commit(&r, e);
    }
    str_deinit(&s);
    return rc;
}

/* --- the command ------------------------------------------------------------------------------------------------- */

static int open_all(job *j, const cli_args *a, int ctx, err *e) {
    bool documents = cli_flag(a, "documents");
    int  threads = (int)cli_int(a, "threads", 0), rc;
    if ((rc = opened_open(&j->a, cli_arg(a, 0), ctx, e)) < 0 || (rc = opened_open(&j->b, cli_arg(a, 1), ctx, e)) < 0)
        return rc;
    int n = j->a.model->dims->n_vocab, m = j->b.model->dims->n_vocab;
    if (n != m) return err_set(e, ERR_ARG, "the models cannot be compared: %d tokens and %d tokens", n, m);
    if ((rc = bundle_tokenizer_open(&j->t, j->a.file, NULL, e)) < 0) return rc;
    rc = documents ? windows_documents(&j->w, j->t, cli_string(a, "text", NULL), (size_t)ctx, e)
                   : windows_text(&j->w, j->t, cli_string(a, "text", NULL), (size_t)ctx, e);
    if (rc == 0) rc = windows_check(&j->w, n, e);
    if (rc == 0) rc = opened_ready(&j->a, ctx, threads, NULL, NULL, e);
    if (rc == 0) rc = opened_ready(&j->b, ctx, threads, NULL, NULL, e);
    return rc;
}

static int compare(job *j, const cli_args *a, int ctx, compare_figures *f, err *e) {
    progress    bar;
    const char *svg = cli_string(a, "svg", NULL);
    int         worst = (int)cli_int(a, "worst", 5), drawn = 0, rc = open_all(j, a, ctx, e);
    if (rc == 0 && (rc = progress_begin(&bar, cli_flag(a, "json"), "windows", e)) == 0) {
        rc = walk(j, cli_flag(a, "documents"), &bar, e);
        if (rc == 0) compare_figures_of(j->tokens, j->n, f);
        if (rc == 0 && svg) drawn = write_svg(j, f, svg, e); /* Ctrl-C does not tear it */
        progress_end(&bar);
    }
    if (rc < 0) return rc;
    err unsaid = { 0 };
    if (cli_flag(a, "json"))
        say_json(j, f, worst, &unsaid);
    else
        say_text(j, f, worst, &unsaid);
    return drawn;
}

static int run(const cli_args *a) {
    job             j = { 0 };
    compare_figures f = { 0 };
    err             e = { 0 };
    const char     *most = cli_string(a, "max-kl", NULL);
    long long       ctx = cli_int(a, "ctx", 512), threads = cli_int(a, "threads", 0), worst = cli_int(a, "worst", 5);
    char           *end = NULL;
    double          limit = most ? strtod(most, &end) : 0;
    if (!cli_string(a, "text", NULL)) return cli_usage_error(a, "--text FILE is required");
    if (ctx < 4 || ctx > 1 << 20) return cli_usage_error(a, "--ctx must lie between 4 and %d", 1 << 20);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (worst < 0 || worst > 1000) return cli_usage_error(a, "--worst must lie between 0 and 1000");
    if (most && (*end || !(limit > 0))) return cli_usage_error(a, "--max-kl must be a positive number");
    int rc = compare(&j, a, (int)ctx, &f, &e);
    if (rc == 0 && most && f.kl_mean > limit)
        rc = err_set(&e, ERR_LIMIT, "the mean divergence %.6f is above %.6f", f.kl_mean, limit);
    opened_deinit(&j.a);
    opened_deinit(&j.b);
    tok_free(j.t);
    windows_deinit(&j.w);
    free(j.tokens);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "text", CLI_STRING, "FILE", "the text that both read", 0 },
    { "documents", CLI_FLAG, NULL, "FILE contains JSON lines, each a document that is scored separately", 0 },
    { "ctx", CLI_INT, "N", "tokens per window (512)", 0 },
    { "worst", CLI_INT, "N", "show the N tokens with the largest divergence (5)", 0 },
    { "max-kl", CLI_STRING, "X", "fail when the mean divergence is above X", 0 },
    { "svg", CLI_STRING, "FILE", "draw the distribution of the divergences", 0 },
    CLI_JSON_OPTION,
    CLI_THREADS_OPTION,
    { 0 },
};

const cli_command cli_cmd_compare = {
    "compare",
    "MODEL OTHER --text FILE [--documents] [--svg FILE]",
    "Measure what a model lost against another: divergence, favourites, perplexity.",
    options,
    2,
    2,
    run,
};

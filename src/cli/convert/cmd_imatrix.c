/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth imatrix: how much each column of each weight matters, from what a text makes of it (convert/imatrix.h).
 *
 * The text is cut into windows, each evaluated from an empty state; every product's input is seen on its way
 * (nn_exec_options.observe), and the squares of its columns are added up in the order of the tokens: the same sums for
 * any number of threads. The output matrix is left out unless it is asked for, because its importance makes quantizers
 * spend too much on frequent directions.
 */
#include "convert/imatrix.h"

#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/convert/opened.h"
#include "cli/convert/progress.h"
#include "cli/dev/windows.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A matrix of the model and the sums that its inputs go to. */
typedef struct target {
    const nn_mat *mat;
    size_t        entry;
} target;

typedef struct watch {
    imatrix *sums;
    target  *targets; /* by address */
    size_t   n;
} watch;

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)((const target *)a)->mat, y = (uintptr_t)((const target *)b)->mat;
    return x < y ? -1 : x > y;
}

static bool counts(const nn_wanted *w, bool output) {
    return w->mat && (strncmp(w->name, "blk.", 4) == 0 || (output && strcmp(w->name, "output.weight") == 0));
}

/* Several parts of one tensor have the same input: the first one counts. */
static int add_target(watch *x, const nn_wanted *w, err *e) {
    int64_t        stack = w->mat->n_stack ? w->mat->n_stack : 1;
    imatrix_entry *entry;
    size_t         before = imatrix_count(x->sums);
    int            rc = imatrix_entry_for(x->sums, w->name, w->mat->cols, stack, &entry, e);
    if (rc < 0 || imatrix_count(x->sums) == before) return rc;
    x->targets[x->n++] = (target){ w->mat, before };
    return 0;
}

static int watch_open(watch *x, const nn_model *m, bool output, err *e) {
    size_t n = 0;
    int    rc = imatrix_open(&x->sums, e);
    for (const nn_wanted *w = m->wanted; w; w = w->next) n++;
    if (rc == 0 && !(x->targets = calloc(n ? n : 1, sizeof *x->targets))) rc = err_set_nomem(e);
    for (const nn_wanted *w = m->wanted; w && rc == 0; w = w->next)
        if (counts(w, output)) rc = add_target(x, w, e);
    if (rc == 0) qsort(x->targets, x->n, sizeof *x->targets, by_address);
    return rc;
}

static void see(void *ctx, const nn_mat *w, int expert, const float *row) {
    watch  *x = ctx;
    target  key = { .mat = w };
    target *t = bsearch(&key, x->targets, x->n, sizeof key, by_address);
    if (!t) return;
    const imatrix_entry *entry = imatrix_at(x->sums, t->entry);
    double              *sums = entry->sums + (int64_t)expert * entry->cols;
    for (int64_t i = 0; i < entry->cols; i++) sums[i] += (double)row[i] * (double)row[i];
    entry->counts[expert] += 1;
}

static int feed(opened *m, windows *w, size_t limit, int32_t bos, progress *bar, err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < limit; i++) {
        int32_t *ids = w->ids.data + w->start[i];
        int      n = (int)(w->start[i + 1] - w->start[i]);
        if (bos >= 0) ids[0] = bos;
        simple_reset(&m->run, 0);
        for (int at = 0; at < n && rc == 0; at += OPENED_STEP) {
            simple_feed f = { .ids = ids + at, .n = n - at < OPENED_STEP ? n - at : OPENED_STEP };
            rc = simple_step(&m->run, &f, 1, e);
        }
        if (rc == 0 && !progress_at(bar, i + 1, limit)) rc = err_set(e, ERR_CANCELLED, "it was asked to stop");
    }
    return rc;
}

static int add_files(imatrix *sums, const cli_args *a, err *e) {
    const char *path;
    int         rc = 0;
    for (int i = 0; rc == 0 && (path = cli_string_at(a, "add", i)); i++) {
        imatrix *more;
        if ((rc = imatrix_read(&more, path, e)) < 0) return rc;
        if ((rc = imatrix_add(sums, more, e)) < 0) rc = err_wrap(e, rc, "%s", path);
        imatrix_free(more);
    }
    return rc;
}

static void say(const watch *x, const cli_args *a, size_t windows_read) {
    size_t starved = 0;
    for (size_t i = 0; i < imatrix_count(x->sums); i++) {
        const imatrix_entry *t = imatrix_at(x->sums, i);
        for (int64_t k = 0; k < t->experts; k++) starved += !(t->counts[k] > 0);
    }
    long long all = (long long)imatrix_chunks(x->sums); /* with what was added */
    if (cli_flag(a, "json"))
        printf("{\"weights\":%zu,\"windows\":%zu,\"windows_in_all\":%lld,\"experts_without_tokens\":%zu}\n",
               imatrix_count(x->sums), windows_read, all, starved);
    else
        fprintf(stderr, "%s: %zu weights, %lld windows\n", cli_arg(a, 2), imatrix_count(x->sums), all);
    if (starved && !cli_flag(a, "json"))
        fprintf(stderr, "%zu experts saw no token: more text is needed for them\n", starved);
}

static int collect(opened *m, watch *x, const cli_args *a, int ctx, err *e) {
    tok      *t = NULL;
    windows   w = { 0 };
    progress  bar;
    bool      documents = cli_flag(a, "documents");
    long long chunks = cli_int(a, "chunks", 0);
    int       rc = opened_open(m, cli_arg(a, 0), ctx, e);
    if (rc == 0) rc = watch_open(x, m->model, cli_flag(a, "output"), e);
    if (rc == 0) rc = bundle_tokenizer_open(&t, m->file, NULL, e);
    if (rc == 0)
        rc = documents ? windows_documents(&w, t, cli_arg(a, 1), (size_t)ctx, e)
                       : windows_text(&w, t, cli_arg(a, 1), (size_t)ctx, e);
    if (rc == 0) rc = windows_check(&w, m->model->dims->n_vocab, e);
    if (rc == 0) rc = opened_ready(m, ctx, (int)cli_int(a, "threads", 0), see, x, e);
    size_t limit = chunks > 0 && (size_t)chunks < w.n ? (size_t)chunks : w.n;
    if (rc == 0 && (rc = progress_begin(&bar, cli_flag(a, "json"), "windows", e)) == 0) {
        rc = feed(m, &w, limit, tok_adds_bos(t) && !documents ? tok_bos(t) : -1, &bar, e);
        if (rc == 0) rc = imatrix_add_text(x->sums, cli_arg(a, 1), (int64_t)limit, ctx, e);
        if (rc == 0) rc = add_files(x->sums, a, e);
        if (rc == 0) rc = imatrix_write(x->sums, cli_arg(a, 2), e); /* Ctrl-C does not tear it */
        progress_end(&bar);
    }
    if (rc == 0) say(x, a, limit);
    windows_deinit(&w);
    tok_free(t);
    return rc;
}

static int run(const cli_args *a) {
    opened    m = { 0 };
    watch     x = { 0 };
    err       e = { 0 };
    long long ctx = cli_int(a, "ctx", 512), threads = cli_int(a, "threads", 0);
    if (ctx < 4 || ctx > 1 << 20) return cli_usage_error(a, "--ctx must lie between 4 and %d", 1 << 20);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    int rc = collect(&m, &x, a, (int)ctx, &e);
    opened_deinit(&m);
    imatrix_free(x.sums);
    free(x.targets);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "add", CLI_STRING, "FILE", "add the sums of this importance matrix; may be repeated", 0 },
    { "documents", CLI_FLAG, NULL, "TEXT contains JSON lines, each a document that is read separately", 0 },
    { "chunks", CLI_INT, "N", "read so many windows of the text; 0: all (0)", 0 },
    { "ctx", CLI_INT, "N", "tokens per window (512)", 0 },
    { "output", CLI_FLAG, NULL, "the output matrix, too", 0 },
    { "json", CLI_FLAG, NULL, "the result as JSON", 0 },
    CLI_THREADS_OPTION,
    { 0 },
};

const cli_command cli_cmd_imatrix = {
    "imatrix",
    "MODEL TEXT OUT.gguf [--add FILE]",
    "Measure how much each column of the weights matters, for 'hearth quantize --imatrix'.",
    options,
    3,
    3,
    run,
};

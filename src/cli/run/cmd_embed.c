/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth embed: texts to vectors, or pairs of texts to scores; with --labels what the texts or pairs are.
 *
 * Every line of the files (or of standard input) is a text; with --whole every file is one; with --jsonl a line is a JSON
 * string, or an array of a query and a document, which gets a score. Out come JSON lines in the order of the texts, or
 * with --out an array in numpy's format. All texts are under way together, so that a step is full.
 */
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "runtime/runtime.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUT_BYTES = 1 << 30, IN_FLIGHT = 128 };

typedef struct item {
    struct work *work;
    view         text, document; /* document.data NULL: a text */
    float       *vector;
    char        *labels; /* of a classifier: a JSON array */
    int          n;
} item;

typedef struct work {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  done;
    int             in_flight;
    err             why;
    item           *items;
    size_t          n, cap;
    arena           mem;
} work;

static void on_event(void *ctx, const runtime_event *ev) {
    item *x = ctx;
    work *w = x->work;
    pthread_mutex_lock(&w->lock);
    if (ev->kind == RUNTIME_EMBEDDING || ev->kind == RUNTIME_SCORE || ev->kind == RUNTIME_CLASSES) {
        x->n = ev->kind == RUNTIME_SCORE ? 1 : ev->n_vector;
        x->vector = malloc((size_t)x->n * sizeof *x->vector);
        if (x->vector)
            memcpy(x->vector, ev->kind == RUNTIME_SCORE ? &ev->score : ev->vector, (size_t)x->n * sizeof *x->vector);
        if (ev->kind == RUNTIME_CLASSES) x->labels = strndup(ev->text.data, ev->text.len);
        if (!x->vector || (ev->kind == RUNTIME_CLASSES && !x->labels)) err_set_nomem(&w->why);
    }
    if (ev->kind == RUNTIME_ERROR && !w->why.code)
        err_set(&w->why, ev->error->code, "text %zu: %s", (size_t)(x - w->items) + 1, ev->error->msg);
    if (ev->last) {
        w->in_flight--;
        pthread_cond_signal(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
}

static void wait_for(work *w, int most) {
    pthread_mutex_lock(&w->lock);
    while (w->in_flight > most) pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static int run_all(work *w, runtime *r, const runtime_request *form, bool labels, err *e) {
    int rc = 0;
    for (size_t i = 0; i < w->n && rc == 0 && !w->why.code; i++) {
        runtime_request q = *form;
        uint64_t        id;
        wait_for(w, IN_FLIGHT - 1);
        q.text = w->items[i].text;
        q.task = labels ? RUNTIME_CLASSIFY : w->items[i].document.data ? RUNTIME_RERANK : RUNTIME_EMBED;
        q.pair = w->items[i].document.data != NULL;
        if (q.pair) q.suffix = w->items[i].document;
        q.on_event = on_event;
        q.ctx = &w->items[i];
        pthread_mutex_lock(&w->lock);
        w->in_flight++;
        pthread_mutex_unlock(&w->lock);
        rc = runtime_submit(r, &q, &id, e);
        if (rc == 0) continue;
        pthread_mutex_lock(&w->lock);
        w->in_flight--;
        pthread_mutex_unlock(&w->lock);
    }
    wait_for(w, 0);
    return rc < 0 ? rc : w->why.code ? err_set(e, w->why.code, "%s", w->why.msg) : 0;
}

/* --- in --- */

static int add_item(work *w, view text, view document, err *e) {
    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 64;
        item  *items = realloc(w->items, cap * sizeof *items);
        if (!items) return err_set_nomem(e);
        w->items = items;
        w->cap = cap;
    }
    w->items[w->n++] = (item){ .work = w, .text = text, .document = document };
    return 0;
}

static int add_json(work *w, view line, err *e) {
    const json_value *v;
    view              none = { NULL, 0 };
    int               rc = json_parse(&v, line.data, line.len, &w->mem, e);
    if (rc < 0) return err_wrap(e, rc, "text %zu", w->n + 1);
    if (json_is(v, JSON_K_STRING)) return add_item(w, v->u.string, none, e);
    const json_value *a = json_at(v, 0), *b = json_at(v, 1);
    if (json_count(v) == 2 && json_is(a, JSON_K_STRING) && json_is(b, JSON_K_STRING))
        return add_item(w, a->u.string, b->u.string, e);
    return err_set(e, ERR_FORMAT, "text %zu is neither a string nor an array of two strings", w->n + 1);
}

/* The file's bytes live in the arena from here on. */
static int add_file(work *w, const cli_args *a, const char *path, err *e) {
    char  *data = NULL;
    size_t bytes = 0;
    int    rc = path ? file_read(&data, &bytes, path, MAX_INPUT_BYTES, e)
                     : file_read_stream(&data, &bytes, stdin, "standard input", MAX_INPUT_BYTES, e);
    char  *kept = rc == 0 ? arena_strndup(&w->mem, data, bytes) : NULL;
    free(data);
    if (rc == 0 && !kept) rc = err_set_nomem(e);
    if (rc == 0 && cli_flag(a, "whole")) return add_item(w, (view){ kept, bytes }, (view){ NULL, 0 }, e);
    for (size_t at = 0; rc == 0 && at < bytes;) {
        const char *end = memchr(kept + at, '\n', bytes - at);
        view        line = { kept + at, end ? (size_t)(end - kept) - at : bytes - at };
        at += line.len + 1;
        rc = cli_flag(a, "jsonl") ? add_json(w, line, e) : add_item(w, line, (view){ NULL, 0 }, e);
    }
    return rc;
}

static int read_input(work *w, const cli_args *a, err *e) {
    int rc = cli_count(a) < 2 ? add_file(w, a, NULL, e) : 0;
    for (int i = 1; i < cli_count(a) && rc == 0; i++) rc = add_file(w, a, cli_arg(a, i), e);
    return rc;
}

/* --- out --- */

/* JSON has no word for what is not a number. */
static void put_number(str *line, float v) {
    if (isfinite(v))
        str_printf(line, "%.9g", (double)v);
    else
        str_puts(line, "null");
}

/* {"index": 0, "label": "joy", "probs": {"joy": 0.9, ...}} */
static void put_classes(str *line, work *w, size_t i) {
    const item       *x = &w->items[i];
    const json_value *labels = NULL;
    int               best = 0;
    (void)json_parse(&labels, x->labels, strlen(x->labels), &w->mem, NULL);
    for (int k = 1; k < x->n; k++) {
        if (x->vector[k] > x->vector[best]) best = k;
    }
    for (int k = -1; k < x->n; k++) {
        const json_value *v = json_at(labels, (size_t)(k < 0 ? best : k));
        view              name = json_is(v, JSON_K_STRING) ? v->u.string : (view){ "", 0 };
        if (k < 0) str_puts(line, "\"label\": ");
        str_put_json(line, name.data, name.len);
        str_puts(line, k < 0 ? ", \"probs\": {" : ": ");
        if (k >= 0) put_number(line, x->vector[k]);
        if (k >= 0) str_puts(line, k + 1 < x->n ? ", " : "}");
    }
}

static void put_line(str *line, work *w, size_t i) {
    const item *x = &w->items[i];
    str_printf(line, "{\"index\": %zu, ", i);
    if (x->labels) {
        put_classes(line, w, i);
    } else if (x->document.data) {
        str_puts(line, "\"score\": ");
        put_number(line, x->vector[0]);
    } else {
        str_puts(line, "\"embedding\": [");
        for (int k = 0; k < x->n; k++) {
            if (k) str_puts(line, ", ");
            put_number(line, x->vector[k]);
        }
        str_push(line, ']');
    }
    str_push(line, '}');
}

static int print_lines(work *w, err *e) {
    str  line;
    bool ok = true;
    str_init(&line);
    for (size_t i = 0; ok && i < w->n; i++) {
        str_clear(&line);
        put_line(&line, w, i);
        if ((ok = str_ok(&line))) puts(str_cstr(&line));
    }
    str_deinit(&line);
    return ok ? 0 : err_set_nomem(e);
}

/* numpy's format 1.0: magic, version, length of a header that ends at a multiple of 64, the rows. */
static int write_npy(const work *w, const char *path, err *e) {
    file_replace out;
    char         head[128];
    int          width = w->n ? w->items[0].n : 0, rc = file_replace_begin(&out, path, e);
    if (rc < 0) return rc;
    static const unsigned char magic[10] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0x76, 0 };
    memset(head, ' ', sizeof head);
    memcpy(head, magic, sizeof magic);
    int len = snprintf(head + 10, sizeof head - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }",
                       w->n, width);
    head[10 + len] = ' ';
    head[sizeof head - 1] = '\n';
    bool ok = fwrite(head, 1, sizeof head, out.out) == sizeof head;
    for (size_t i = 0; i < w->n; i++)
        ok = ok && fwrite(w->items[i].vector, sizeof(float), (size_t)width, out.out) == (size_t)width;
    if (ok) return file_replace_commit(&out, e);
    rc = err_set_errno(e, "%s", path);
    file_replace_abort(&out);
    return rc;
}

/* What would have no effect; NULL: all has one. what: on which it has none. */
static const char *idle_option(const cli_args *a, const work *w, const char **what) {
    const char *of_texts = cli_int(a, "dimensions", 0)         ? "dimensions"
                           : cli_string(a, "prompt", NULL)     ? "prompt"
                           : cli_string(a, "input-type", NULL) ? "input-type"
                                                               : NULL;
    bool        pairs = false;
    for (size_t i = 0; i < w->n && !pairs; i++) pairs = w->items[i].document.data != NULL;
    *what = cli_flag(a, "labels") ? "with --labels" : "on pairs of texts";
    if (of_texts && (cli_flag(a, "labels") || pairs)) return of_texts;
    *what = "on pairs of texts, which are always cut";
    return pairs && cli_flag(a, "no-truncate") ? "no-truncate" : NULL;
}

static void work_deinit(work *w) {
    for (size_t i = 0; i < w->n; i++) {
        free(w->items[i].vector);
        free(w->items[i].labels);
    }
    free(w->items);
    arena_deinit(&w->mem);
}

static int run(const cli_args *a) {
    work            w = { .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER };
    runtime        *r = NULL;
    runtime_request q;
    cli_model       model = { 0 };
    cli_model_wish  wish = { 0 };
    const char     *out = cli_string(a, "out", NULL), *side = cli_string(a, "input-type", NULL), *idle, *what;
    long long       dimensions = cli_int(a, "dimensions", 0), threads = cli_int(a, "threads", 0);
    err             e = { 0 };
    if (dimensions < 0 || dimensions > 1 << 20)
        return cli_usage_error(a, "--dimensions must lie between 1 and %d", 1 << 20);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (cli_flag(a, "jsonl") && cli_flag(a, "whole"))
        return cli_usage_error(a, "--jsonl and --whole cannot be used together");
    runtime_request_init(&q);
    q.prompt_name = view_of(cli_string(a, "prompt", side ? side : ""));
    q.prompt_is_side = side && !cli_string(a, "prompt", NULL);
    q.dimensions = (int)dimensions;
    q.truncate = !cli_flag(a, "no-truncate");
    if ((idle = idle_option(a, &w, &what))) return cli_usage_error(a, "--%s has no effect %s", idle, what);
    arena_init(&w.mem, 0);
    int rc = cli_model_wish_read(&wish, a, &e);
    if (rc == 0) rc = cli_model_find(&model, cli_arg(a, 0), &wish, &e);
    if (rc == 0) rc = read_input(&w, a, &e);
    if (rc == 0 && (idle = idle_option(a, &w, &what))) {
        work_deinit(&w);
        cli_model_deinit(&model);
        return cli_usage_error(a, "--%s has no effect %s", idle, what);
    }
    runtime_options o = { .path = model.path, .engine = { .n_threads = (int)threads } };
    if (rc == 0) rc = runtime_open(&r, &o, &e);
    if (rc == 0) rc = run_all(&w, r, &q, cli_flag(a, "labels"), &e);
    if (rc == 0 && out) rc = write_npy(&w, out, &e);
    if (rc == 0 && !out) rc = print_lines(&w, &e);
    runtime_free(r);
    work_deinit(&w);
    cli_model_deinit(&model);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "out", CLI_STRING, "FILE", "write a numpy array (.npy) instead of JSON lines", 'o' },
    { "prompt", CLI_STRING, "NAME", "put this prompt of the model before every text", 0 },
    { "input-type", CLI_STRING, "SIDE", "put the model's prompt for query or document first", 0 },
    { "dimensions", CLI_INT, "N", "cut vectors to N numbers and scale them to length 1", 0 },
    { "whole", CLI_FLAG, NULL, "treat every file, not every line, as a text", 0 },
    { "jsonl", CLI_FLAG, NULL, "read JSON lines: a text, or [query, document]", 0 },
    { "labels", CLI_FLAG, NULL, "say what each text or pair is, with a classifier", 0 },
    { "no-truncate", CLI_FLAG, NULL, "refuse texts that are too long; do not cut them off", 0 },
    CLI_THREADS_OPTION,
    CLI_MODEL_OPTIONS,
    { 0 },
};

const cli_command cli_cmd_embed = {
    "embed", "MODEL [FILE...] [--out FILE]", "Turn texts into vectors, scores or labels.", options, 1, -1, run
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama: errors, times, options; the parts of its API that need no model. */
#include "server/ollama/ollama.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/constraints.h"
#include "server/handlers.h"
#include "server/internal.h"
#include "server/params.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- errors --- */

static void put_error(str *out, const failure *f) {
    jw w = jw_of(out);
    jw_open(&w, '{');
    jw_put_cstr(&w, "error", f->message);
    jw_close(&w, '}');
}

static void put_stream_error(exchange *x, const failure *f, const str *body) {
    (void)f;
    exchange_put(x, str_cstr(body), body->len);
    exchange_put(x, "\n", 1);
}

/* Lines of JSON have no comments: nothing to put while a prompt is read. */
const api api_ollama = { "ollama", put_error, put_stream_error, .heartbeat = NULL };

/* --- small parts --- */

static void put_moment(jw *w, const char *key, const struct timespec *t) {
    struct tm tm;
    char      text[64];
    gmtime_r(&t->tv_sec, &tm);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof text - n, ".%09ldZ", t->tv_nsec);
    jw_put_cstr(w, key, text);
}

void ollama_put_now(jw *w, const char *key) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    put_moment(w, key, &t);
}

void ollama_put_time(jw *w, const char *key, int64_t seconds) {
    put_moment(w, key, &(struct timespec){ .tv_sec = (time_t)seconds });
}

void ollama_put_name(jw *w, const char *key, const char *name) {
    char text[160];
    snprintf(text, sizeof text, "%s%s", name, strchr(name, ':') ? "" : ":latest");
    jw_put_cstr(w, key, text);
}

void ollama_put_durations(jw *w, int64_t begin_us, const runtime_usage *u) {
    jw_put_int(w, "total_duration", (clock_us() - begin_us) * 1000);
    jw_put_int(w, "load_duration", (int64_t)(u->prepare_s * 1e9));
    jw_put_int(w, "prompt_eval_count", u->prompt_tokens);
    jw_put_int(w, "prompt_eval_duration", (int64_t)(u->prompt_s * 1e9));
    jw_put_int(w, "eval_count", u->generated_tokens);
    jw_put_int(w, "eval_duration", (int64_t)(u->generate_s * 1e9));
}

/* --- options --- */

/* How their engine is set up for speed; ours is set up when the model is loaded, and answers are the same either way.
 * Checked, and said once. */
static void read_setup(exchange *x, const node *options) {
    static const char *const numbers[] = { "num_batch", "num_gpu", "num_thread", "main_gpu" };
    static const char *const flags[] = { "use_mmap", "numa", "use_mlock", "low_vram" };
    static atomic_bool       said;
    int64_t                  n;
    bool                     any = false, flag;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        any |= read_int(&x->in, options, numbers[i], -1, INT32_MAX, &n);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) any |= read_bool(&x->in, options, flags[i], &flag);
    if (any && !atomic_exchange(&said, true))
        log_info("server", "options such as num_thread, num_batch and num_gpu have no effect on a single request");
}

/* Pages are shared by all requests of a loaded model: a request cannot have types of its own. */
static void refuse_page_types(exchange *x, const node *options) {
    static const char *const names[][2] = { { "cache_type_k", "type_k" },
                                            { "cache_type_v", "type_v" },
                                            { "kv_cache_type", "type" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        node at = read_any(&x->in, options, names[i][0]);
        if (node_is(&at) != NODE_ABSENT)
            reader_fail(&x->in, &at, "is not an option of a request; pages have the server's types: kv_cache.%s",
                        names[i][1]);
    }
}

void ollama_read_options(exchange *x, runtime_request *q) {
    node    options;
    int64_t n;
    bool    flag;
    if (!read_object(&x->in, &x->body, "options", &options)) return;
    if (read_int(&x->in, &options, "num_ctx", 1, INT32_MAX, &n)) q->n_ctx = (int)n;
    /* How much stays when their context is shifted. Ours never is: all of it stays, whatever the number. */
    read_int(&x->in, &options, "num_keep", -1, INT32_MAX, &n);
    if (read_bool(&x->in, &options, "vocab_only", &flag) && flag) {
        node at = node_get(&options, "vocab_only");
        reader_fail(&x->in, &at, "is not supported; /tokenize works without it");
    }
    read_setup(x, &options);
    refuse_page_types(x, &options);
    params_sampling(x, &options, SAMPLING_BY_OLLAMA, q);
    params_stop(x, &options, "stop", q);
    if (read_int(&x->in, &options, "num_predict", -2, PARAMS_MAX_TOKENS, &n)) {
        node at = node_get(&options, "num_predict");
        if (n == 0) reader_fail(&x->in, &at, "must not be 0; -1 means that there is no limit");
        q->max_tokens = n < 0 ? 0 : (int)n;
    }
}

void ollama_read_format(exchange *x, runtime_request *q) {
    node format = read_any(&x->in, &x->body, "format");
    view text;
    params_json_form(x, &x->body, q);
    switch (node_is(&format)) {
    case NODE_ABSENT: return;
    case NODE_STRING:
        if (view_eq_c(node_text(&format), "json"))
            q->constraint.kind = RUNTIME_JSON;
        else if (node_text(&format).len)
            reader_fail(&x->in, &format, "expected \"json\" or a JSON schema");
        return;
    case NODE_OBJECT:
        if (params_json(x, &format, &text)) q->constraint = (runtime_constraint){ RUNTIME_SCHEMA, text };
        return;
    default: reader_fail(&x->in, &format, "expected \"json\" or a JSON schema");
    }
}

void ollama_read_think(exchange *x, runtime_request *q) {
    static const char *const levels[] = { "low", "medium", "high", NULL };
    node                     think = read_any(&x->in, &x->body, "think");
    int                      level = 0;
    if (node_is(&think) == NODE_BOOL) {
        q->thinking = node_true(&think) ? RUNTIME_THINK_ON : RUNTIME_THINK_OFF;
    } else if (node_is(&think) == NODE_STRING) {
        if (!read_choice(&x->in, &x->body, "think", levels, &level)) return;
        q->thinking = RUNTIME_THINK_ON;
        q->effort = view_of(levels[level]);
    } else if (node_is(&think) != NODE_ABSENT) {
        reader_fail(&x->in, &think, "expected true, false, low, medium or high");
    }
}

/* --- without a model --- */

void ollama_root(exchange *x) {
    str b;
    str_init(&b);
    str_puts(&b, "Ollama is running"); /* what their clients look for */
    exchange_reply(x, 200, "text/plain; charset=utf-8", &b);
}

/* Of the program whose API this is: clients decide by it what they may ask. Ours is in /health. */
#define OLLAMA_VERSION "0.14.2"

void ollama_version(exchange *x) {
    str b;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "version", OLLAMA_VERSION);
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

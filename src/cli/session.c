/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "cli/models.h"
#include "formats/text.h"
#include "kernels/cpu.h"
#include "models/list.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int session_open(session *s, const char *model, const session_options *o, err *e) {
    int rc;
    memset(s, 0, sizeof *s);
    if ((rc = cli_model_path(&s->path, model, e)) < 0) return rc;
    if ((rc = model_file_open(&s->file, s->path, e)) < 0) return rc;
    nn_model_options m = { .rope_context = o->n_ctx };
    if ((rc = nn_model_open(&s->model, s->file, models_list, &m, e)) < 0) return rc;
    if ((rc = chat_open(&s->chat, s->path, e)) < 0) return rc;
    engine_options g = { .n_ctx = o->n_ctx,
                         .max_seqs = 1,
                         .n_threads = o->n_threads,
                         .k_type = o->kv_type,
                         .v_type = o->kv_type,
                         .cpu = cpu_detect() };
    if ((rc = engine_open(&s->engine, s->model, chat_tokenizer(s->chat), &g, e)) < 0) return rc;
    session_sampling(&s->sampling, s->file);
    s->safe = isatty(STDOUT_FILENO);
    s->colour = s->safe && !getenv("NO_COLOR");
    s->progress = isatty(STDERR_FILENO);
    return 0;
}

void session_close(session *s) {
    engine_free(s->engine);
    chat_free(s->chat);
    nn_model_free(s->model);
    model_file_free(s->file);
    free(s->path);
    free(s->stop);
    free(s->stop_bytes);
    memset(s, 0, sizeof *s);
}

/* --- one answer --- */

typedef struct answer {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t  moved;
    str             fresh; /* text that was not printed yet */
    int             done, total;
    bool            over, failed;
    engine_finish   finish;
    engine_usage    usage;
    err             why;
} answer;

static void on_event(void *ctx, const engine_event *ev) {
    answer *a = ctx;
    pthread_mutex_lock(&a->lock);
    if (ev->kind == ENGINE_TOKEN || ev->kind == ENGINE_DONE) str_append(&a->fresh, ev->text.data, ev->text.len);
    if (ev->kind == ENGINE_PROGRESS) {
        a->done = ev->done;
        a->total = ev->total;
    }
    if (ev->kind == ENGINE_DONE) {
        a->finish = ev->finish;
        a->usage = ev->usage;
        a->over = true;
    }
    if (ev->kind == ENGINE_ERROR) {
        a->why = *ev->error;
        a->failed = a->over = true;
    }
    pthread_cond_signal(&a->moved);
    pthread_mutex_unlock(&a->lock);
}

/* A terminal obeys control characters, and the text is a model's. */
static void print_text(const session *s, const str *text) {
    str shown;
    if (!s->safe) {
        fwrite(str_cstr(text), 1, text->len, stdout);
        fflush(stdout);
        return;
    }
    str_init(&shown);
    for (size_t i = 0; i < text->len;) {
        size_t n = i;
        while (n < text->len && text->data[n] != '\n' && text->data[n] != '\t') n++;
        text_put_safe(&shown, (view){ text->data + i, n - i });
        if (n < text->len) str_push(&shown, text->data[n++]);
        i = n;
    }
    fwrite(str_cstr(&shown), 1, shown.len, stdout);
    fflush(stdout);
    str_deinit(&shown);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits for news or 50 ms, so that an interrupt is seen soon. */
static void wait_moved(answer *a) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 50 * 1000 * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    pthread_cond_timedwait(&a->moved, &a->lock, &t);
}

/* Returns when the answer is over. */
static void follow(session *s, answer *a, uint64_t id, const volatile sig_atomic_t *interrupt, session_result *r) {
    double begin = now();
    bool   shown = false, cancelled = false, over = false;
    str    text;
    str_init(&text);
    while (!over) {
        pthread_mutex_lock(&a->lock);
        if (a->fresh.len == 0 && !a->over) wait_moved(a);
        str swap = text;
        text = a->fresh;
        a->fresh = swap;
        str_clear(&a->fresh);
        int done = a->done, total = a->total;
        over = a->over;
        pthread_mutex_unlock(&a->lock);
        if (shown && (text.len || over)) {
            fprintf(stderr, "\r\033[K");
            shown = false;
        } else if (s->progress && r->text.len == 0 && !over && total && now() - begin > 2.0) {
            fprintf(stderr, "\rreading the prompt: %d of %d tokens", done, total);
            shown = true;
        }
        if (text.len) print_text(s, &text);
        str_append(&r->text, str_cstr(&text), text.len);
        str_clear(&text);
        if (interrupt && *interrupt && !cancelled) {
            engine_cancel(s->engine, id);
            cancelled = true;
        }
    }
    str_deinit(&text);
}

int session_answer(session *s, const tok_ids *ids, const int32_t *marks, size_t n_marks,
                   const volatile sig_atomic_t *interrupt, session_result *result, err *e) {
    answer         a = { .over = false };
    uint64_t       id;
    engine_request r = { .tokens = ids->data,
                         .n_tokens = ids->count,
                         .sampling = s->sampling,
                         .max_tokens = s->max_tokens,
                         .stop = s->stop,
                         .stop_bytes = s->stop_bytes,
                         .n_stop = s->n_stop,
                         .marks = marks,
                         .n_marks = n_marks,
                         .on_event = on_event,
                         .ctx = &a };
    memset(result, 0, sizeof *result);
    str_init(&result->text);
    str_init(&a.fresh);
    pthread_mutex_init(&a.lock, NULL);
    pthread_cond_init(&a.moved, NULL);
    int rc = engine_submit(s->engine, &r, &id, e);
    if (rc == 0) {
        follow(s, &a, id, interrupt, result);
        engine_wait_idle(s->engine); /* the engine's thread has left the callback */
        result->finish = a.finish;
        result->usage = a.usage;
        if (a.failed) {
            if (e) *e = a.why;
            rc = a.why.code;
        }
        if (rc == 0 && !str_ok(&result->text)) rc = err_set_nomem(e);
    }
    pthread_cond_destroy(&a.moved);
    pthread_mutex_destroy(&a.lock);
    str_deinit(&a.fresh);
    return rc;
}

void session_describe(const engine_usage *u, str *out) {
    int evaluated = u->prompt_tokens - u->cached_tokens;
    str_printf(out, "prompt %d tokens (%d cached)", u->prompt_tokens, u->cached_tokens);
    if (u->prompt_s > 0) str_printf(out, ", %.1f tok/s", evaluated / u->prompt_s);
    str_printf(out, "; answer %d tokens", u->generated_tokens);
    /* The first token belongs to the prompt's time. */
    if (u->generate_s > 0 && u->generated_tokens > 1)
        str_printf(out, ", %.1f tok/s", (u->generated_tokens - 1) / u->generate_s);
}

/* --- what the model recommends --- */

static bool recommended(const model_file *m, const char *hf, const char *gguf, double *out) {
    char key[64];
    snprintf(key, sizeof key, "general.sampling.%s", gguf);
    return json_real(json_get(model_file_generation_config(m), hf), out) || meta_real(model_file_meta(m, key), out);
}

void session_sampling(sampling_params *p, const model_file *m) {
    sampling_params own;
    double          v;
    sampling_params_default(p);
    p->temperature = 0.8f;
    p->top_k = 40;
    p->top_p = 0.95f;
    own = *p;
    if (recommended(m, "temperature", "temp", &v)) own.temperature = (float)v;
    if (recommended(m, "top_k", "top_k", &v) && v >= 0 && v < 1e9) own.top_k = (int)v;
    if (recommended(m, "top_p", "top_p", &v)) own.top_p = (float)v;
    if (recommended(m, "min_p", "min_p", &v)) own.min_p = (float)v;
    if (recommended(m, "repetition_penalty", "penalty_repeat", &v)) own.repeat_penalty = (float)v;
    if (sampling_params_check(&own, NULL) == 0) *p = own; /* a file's nonsense is not an error of the user */
}

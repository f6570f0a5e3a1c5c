/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/session.h"

#include "base/clock.h"
#include "base/machine.h"
#include "cli/run/wrap.h"
#include "formats/text.h"
#include "runtime/need.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int session_open(session *s, cli_model *model, const runtime_options *o, err *e) {
    runtime_options r = *o;
    int             rc;
    memset(s, 0, sizeof *s);
    s->model = *model;
    *model = (cli_model){ 0 };
    r.path = s->model.path;
    r.spare_bytes = machine_memory_available(NULL);
    if ((rc = runtime_open(&s->runtime, &r, e)) < 0) return rc;
    runtime_describe(s->runtime, &s->info);
    runtime_sampling(s->runtime, &s->sampling);
    s->max_tokens = o->settings.max_tokens;
    s->thinking = s->info.can_think ? RUNTIME_THINK_OFF : RUNTIME_THINK_DEFAULT;
    s->think_budget = -1;
    s->safe = isatty(STDOUT_FILENO);
    s->colour = s->safe && !getenv("NO_COLOR");
    s->progress = isatty(STDERR_FILENO);
    return 0;
}

void session_close(session *s) {
    for (size_t i = 0; i < s->n_pictures; i++) free((void *)(uintptr_t)s->pictures[i].data);
    free(s->pictures);
    runtime_free(s->runtime);
    cli_model_deinit(&s->model);
    free(s->tools);
    free(s->constraint_text);
    memset(s, 0, sizeof *s);
}

/* --- events come in --- */

typedef struct answer {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t  moved;
    /* Text that was not printed yet: thoughts, then content, in the order in which they came. A switch back waits
     * until what is here was taken. */
    str             thought, content, thought_later;
    session_result *r; /* calls, finish, usage */
    int             done, total;
    bool            over, failed, no_memory;
    err             why;
} answer;

static session_call *call_at(answer *a, int index) {
    session_result *r = a->r;
    while (index >= 0 && (size_t)index >= r->n_calls) {
        session_call *grown = realloc(r->calls, (r->n_calls + 1) * sizeof *grown);
        if (!grown) {
            a->no_memory = true;
            return NULL;
        }
        r->calls = grown;
        memset(&grown[r->n_calls++], 0, sizeof *grown);
    }
    return index >= 0 ? &r->calls[index] : NULL;
}

static void on_call(answer *a, const runtime_event *ev) {
    session_call *c = call_at(a, ev->index);
    if (!c) return;
    if (ev->kind == RUNTIME_TOOL_BEGIN) {
        str_append(&c->id, ev->id.data, ev->id.len);
        str_append(&c->name, ev->name.data, ev->name.len);
    } else {
        str_append(&c->arguments, ev->text.data, ev->text.len);
    }
}

static void on_event(void *ctx, const runtime_event *ev) {
    answer *a = ctx;
    pthread_mutex_lock(&a->lock);
    switch (ev->kind) {
    case RUNTIME_CONTENT: str_append(&a->content, ev->text.data, ev->text.len); break;
    case RUNTIME_REASONING:
        str_append(a->content.len ? &a->thought_later : &a->thought, ev->text.data, ev->text.len);
        break;
    case RUNTIME_TOOL_BEGIN:
    case RUNTIME_TOOL_ARGUMENTS: on_call(a, ev); break;
    case RUNTIME_PROGRESS:
        a->done = ev->done;
        a->total = ev->total;
        break;
    case RUNTIME_DONE:
        a->r->finish = ev->finish;
        a->r->usage = ev->usage;
        break;
    case RUNTIME_ERROR:
        a->why = *ev->error;
        a->failed = true;
        break;
    default: break;
    }
    a->over = ev->last;
    pthread_cond_signal(&a->moved);
    pthread_mutex_unlock(&a->lock);
}

/* --- and are printed --- */

/* A terminal obeys control characters, and the text is a model's. */
static void put_safe(str *out, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        size_t n = i;
        while (n < bytes && text[n] != '\n' && text[n] != '\t') n++;
        text_put_safe(out, (view){ text + i, n - i });
        if (n < bytes) str_push(out, text[n++]);
        i = n;
    }
}

void session_print(const session *s, const char *text, size_t bytes) {
    str shown;
    if (!s->safe) {
        fwrite(text, 1, bytes, stdout);
        fflush(stdout);
        return;
    }
    str_init(&shown);
    put_safe(&shown, text, bytes);
    fwrite(str_cstr(&shown), 1, shown.len, stdout);
    fflush(stdout);
    str_deinit(&shown);
}

/* Waits for news or 50 ms, so that an interrupt is seen soon. */
static void wait_moved(answer *a) {
    struct timespec t = clock_after(50);
    pthread_cond_timedwait(&a->moved, &a->lock, &t);
}

/* What was on the screen last. */
typedef struct screen {
    const session *s;
    bool           thinking;
    wrap           wrap; /* on a terminal */
} screen;

/* Words that were held back, before something else comes. */
static void end_words(screen *p) {
    str rest;
    str_init(&rest);
    wrap_finish(&p->wrap, &rest);
    fwrite(str_cstr(&rest), 1, rest.len, stdout);
    fflush(stdout);
    str_deinit(&rest);
}

static void print_part(screen *p, bool thought, const str *text) {
    const session *s = p->s;
    if (text->len == 0 || s->silent) return;
    if (thought != p->thinking) {
        end_words(p);
        p->wrap.column = 0;
        p->wrap.markdown = s->markdown && !thought;
    }
    if (thought && !p->thinking) fputs(s->colour ? "\033[2m" : "<think>\n", stdout);
    if (!thought && p->thinking) fputs(s->colour ? "\033[0m\n\n" : "\n</think>\n\n", stdout);
    p->thinking = thought;
    if (!s->safe) {
        session_print(s, str_cstr(text), text->len);
        return;
    }
    str safe, shown;
    str_init(&safe);
    str_init(&shown);
    put_safe(&safe, str_cstr(text), text->len);
    wrap_put(&p->wrap, (view){ str_cstr(&safe), safe.len }, &shown);
    fwrite(str_cstr(&shown), 1, shown.len, stdout);
    fflush(stdout);
    str_deinit(&safe);
    str_deinit(&shown);
}

static void swap(str *a, str *b) {
    str t = *a;
    *a = *b;
    *b = t;
    str_clear(b);
}

/* Returns when the answer is over. */
static void follow(session *s, answer *a, uint64_t id, const volatile sig_atomic_t *interrupt, session_result *r) {
    double begin = clock_s();
    bool   shown = false, cancelled = false, over = false;
    screen p = { .s = s };
    wrap_init(&p.wrap, s->markdown);
    str thought, content;
    str_init(&thought);
    str_init(&content);
    while (!over) {
        pthread_mutex_lock(&a->lock);
        if (a->content.len == 0 && a->thought.len == 0 && !a->over) wait_moved(a);
        swap(&thought, &a->thought);
        swap(&content, &a->content);
        swap(&a->thought, &a->thought_later);
        int done = a->done, total = a->total;
        over = a->over && a->thought.len == 0;
        pthread_mutex_unlock(&a->lock);
        bool news = thought.len || content.len || over;
        if (shown && news) {
            fprintf(stderr, "\r\033[K");
            shown = false;
        } else if (s->progress && !news && r->text.len == 0 && r->reasoning.len == 0 && total &&
                   clock_s() - begin > 2.0) {
            fprintf(stderr, "\rreading the prompt: %d of %d tokens", done, total);
            shown = true;
        }
        print_part(&p, true, &thought);
        print_part(&p, false, &content);
        str_append(&r->reasoning, str_cstr(&thought), thought.len);
        str_append(&r->text, str_cstr(&content), content.len);
        str_clear(&thought);
        str_clear(&content);
        if (interrupt && *interrupt && !cancelled) {
            runtime_cancel(s->runtime, id);
            cancelled = true;
        }
    }
    end_words(&p);
    wrap_deinit(&p.wrap);
    if (p.thinking) fputs(s->colour ? "\033[0m\n" : "\n</think>\n", stdout);
    str_deinit(&thought);
    str_deinit(&content);
}

static int collect(session *s, runtime_request q, const volatile sig_atomic_t *interrupt, session_result *r, err *e) {
    answer   a = { .r = r };
    uint64_t id;
    memset(r, 0, sizeof *r);
    q.sampling = s->sampling;
    q.sampling_set = RUNTIME_SET_ALL;
    q.max_tokens = s->max_tokens;
    q.constraint = s->constraint;
    q.want_progress = s->progress;
    q.on_event = on_event;
    q.ctx = &a;
    pthread_mutex_init(&a.lock, NULL);
    clock_cond_init(&a.moved);
    int rc = runtime_submit(s->runtime, &q, &id, e);
    if (rc == 0) {
        follow(s, &a, id, interrupt, r);
        if (a.failed) {
            if (e) *e = a.why;
            rc = a.why.code;
        }
        if (rc == 0 && (a.no_memory || !str_ok(&r->text) || !str_ok(&r->reasoning))) rc = err_set_nomem(e);
    }
    pthread_cond_destroy(&a.moved);
    pthread_mutex_destroy(&a.lock);
    str_deinit(&a.thought);
    str_deinit(&a.content);
    str_deinit(&a.thought_later);
    return rc;
}

int session_answer(session *s, view messages, const volatile sig_atomic_t *interrupt, session_result *result, err *e) {
    runtime_request q;
    runtime_request_init(&q);
    q.task = RUNTIME_CHAT;
    q.messages = messages;
    q.blobs = s->pictures;
    q.n_blobs = s->n_pictures;
    if (s->tools && !s->tools_off) {
        q.tools = view_of(s->tools);
        q.tool_choice = s->tool_choice;
        if (s->tool_name) q.tool_name = view_of(s->tool_name);
    }
    q.thinking = s->thinking;
    q.thinking_budget = s->think_budget;
    return collect(s, q, interrupt, result, e);
}

int session_continue(session *s, view text, session_result *result, err *e) {
    runtime_request q;
    runtime_request_init(&q);
    q.task = RUNTIME_COMPLETE;
    q.text = text;
    return collect(s, q, NULL, result, e);
}

void session_result_deinit(session_result *r) {
    for (size_t i = 0; i < r->n_calls; i++) {
        str_deinit(&r->calls[i].id);
        str_deinit(&r->calls[i].name);
        str_deinit(&r->calls[i].arguments);
    }
    free(r->calls);
    str_deinit(&r->text);
    str_deinit(&r->reasoning);
    memset(r, 0, sizeof *r);
}

bool session_context_full(const session *s, const session_result *r) {
    return r->finish == RUNTIME_LENGTH && (s->max_tokens == 0 || r->usage.generated_tokens < s->max_tokens);
}

void session_describe(const runtime_usage *u, str *out) {
    int evaluated = u->prompt_tokens - u->cached_tokens;
    str_printf(out, "prompt %d tokens (%d cached)", u->prompt_tokens, u->cached_tokens);
    if (u->prompt_s > 0) str_printf(out, ", %.1f tok/s", evaluated / u->prompt_s);
    str_printf(out, "; answer %d tokens", u->generated_tokens);
    /* The first token belongs to the prompt's time. */
    if (u->generate_s > 0 && u->generated_tokens > 1)
        str_printf(out, ", %.1f tok/s", (u->generated_tokens - 1) / u->generate_s);
    if (u->drafted_tokens > 0)
        str_printf(out, "; %d of %d drafted tokens were right", u->accepted_tokens, u->drafted_tokens);
}

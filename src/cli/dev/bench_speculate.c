/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drafts bring on real texts: a model is asked the same things with and without them, in turns, greedily. Answers
 * must be equal; that is checked. Copying is where looking up helps most, a story where it helps least: "copy" asks for a
 * story that was told before once more, "edit" for that story with another word in it. (They are asked for in the words
 * that the demo model was trained on; it does copy then.) Each repetition opens the model anew, since an answer that was
 * given once can be looked up; the task "again" measures just that, and "predicted" comes with a prediction: the answer
 * with every twelfth word replaced.
 *
 * With --cpu-time a busy machine can measure, too: of an answer counts what the process computed while it was asked for. Its
 * prompt is in the cache by then.
 */
#include "cli/dev/bench_speculate.h"

#include "cli/run/once.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_REPS = 100 };

typedef enum kind { PLAIN, AGAIN, EDIT } kind;

typedef struct task {
    const char *name, *ask;
    kind        kind;
    const char *asked, *told; /* said before; NULL: nothing */
} task;

#define BOAT "Write a story with these words: boat, lamp and garden."
#define BOAT_STORY                                                                                                     \
    "It was a windy morning, and Zoe walked to the garden. She saw a round boat on the ground. It was orange and had " \
    "no owner. On the way she passed a lamp. Soon Olga came along. She looked at the boat and wanted to play. They "   \
    "played with the boat together until it was dark. She never forgot that day at the garden."
#define KEY "Write a short story that uses the words key, dog and tower."
#define KEY_STORY                                                                                                      \
    "It was a windy morning, and Zoe walked to the market. She carried her green key in a bag. But on the way the "    \
    "key fell out, and Zoe did not notice. A strong wind began to blow, and the leaves flew everywhere. A small dog "  \
    "sat by the water. \"Hello,\" said Zoe. \"Are you alone?\" The dog ran away and came back with the key. Zoe "      \
    "laughed and hugged the dog. Zoe also saw a tower that day. Zoe told her mother everything and then fell asleep."

#define STORY "Tell me a story with the words fox, bread and river."

static const task tasks[] = {
    { "copy", "Tell me the same story with the words boat, lamp and garden.", PLAIN, BOAT, BOAT_STORY },
    { "edit", "Tell me the same story with the words key, dog and castle.", PLAIN, KEY, KEY_STORY },
    { "story", STORY, PLAIN, NULL, NULL },
    { "facts", "What is the capital of France? Then count from one to twenty in words.", PLAIN, NULL, NULL },
    { "again", STORY, AGAIN, NULL, NULL },
    { "predicted", "Tell me a story with the words moon, hat and bridge.", EDIT, NULL, NULL },
};
enum { N_TASKS = sizeof tasks / sizeof *tasks };

/* How answers are asked for. */
typedef struct manner {
    bool chats, cpu_time;
    int  n_tokens;
} manner;

typedef struct outcome {
    double        speed[2][MAX_REPS]; /* without and with drafts */
    runtime_usage usage;
    str           text[2];
} outcome;

static void put_message(str *json, const char *role, const char *text) {
    str_printf(json, "%s{\"role\":\"%s\",\"content\":", json->len > 1 ? "," : "", role);
    str_put_json(json, text, strlen(text));
    str_puts(json, "}");
}

/* A model that cannot chat goes on with the text. */
static int ask(runtime *r, const task *t, const manner *how, bool drafts, view prediction, str *text, runtime_usage *u,
               err *e) {
    runtime_request q;
    str             json;
    runtime_request_init(&q);
    str_init(&json);
    str_puts(&json, "[");
    if (t->asked) put_message(&json, "user", t->asked);
    if (t->told) put_message(&json, "assistant", t->told);
    put_message(&json, "user", t->ask);
    str_puts(&json, "]");
    q.task = how->chats ? RUNTIME_CHAT : RUNTIME_COMPLETE;
    if (how->chats)
        q.messages = (view){ str_cstr(&json), json.len };
    else
        q.text = view_of(t->ask);
    q.sampling.temperature = 0;
    q.sampling_set = RUNTIME_SET_TEMPERATURE;
    q.max_tokens = how->n_tokens;
    q.no_drafts = !drafts;
    q.prediction = prediction;
    str_clear(text);
    int rc = str_ok(&json) ? once_ask(r, &q, text, u, e) : err_set_nomem(e);
    str_deinit(&json);
    return rc;
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tokens per second. */
static int measure_ask(runtime *r, const task *t, const manner *how, bool drafts, view prediction, str *text,
                       runtime_usage *u, double *speed, err *e) {
    manner one = { .chats = how->chats, .n_tokens = 1 };
    int    rc = how->cpu_time ? ask(r, t, &one, false, prediction, text, u, e) : 0;
    double begin = cpu_s();
    if (rc == 0) rc = ask(r, t, how, drafts, prediction, text, u, e);
    double seconds = how->cpu_time ? cpu_s() - begin : u->generate_s;
    *speed = rc == 0 && seconds > 0 ? (u->generated_tokens - 1) / seconds : 0;
    return rc;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The text with every twelfth word replaced. */
static void edit(const str *text, str *out) {
    int words = 0;
    for (size_t i = 0; i < text->len; i++) {
        char c = str_cstr(text)[i];
        if (c == ' ' && ++words % 12 == 0) {
            str_puts(out, " something");
            while (i + 1 < text->len && str_cstr(text)[i + 1] != ' ') i++;
        } else {
            str_push(out, c);
        }
    }
}

static int measure_task(runtime *r, const task *t, const manner *how, int rep, outcome *out, err *e) {
    str           prediction;
    runtime_usage u = { 0 };
    int           rc = 0;
    str_init(&prediction);
    for (int k = 0; k < 2 && rc == 0; k++) {
        if (k == 1 && t->kind == EDIT) edit(&out->text[0], &prediction);
        view hint = { str_cstr(&prediction), prediction.len };
        if (k == 1 && t->kind == AGAIN) rc = ask(r, t, how, true, hint, &out->text[1], &u, e);
        if (rc == 0) rc = measure_ask(r, t, how, k == 1, hint, &out->text[k], &u, &out->speed[k][rep], e);
    }
    out->usage = u;
    if (rc == 0 && strcmp(str_cstr(&out->text[0]), str_cstr(&out->text[1])) != 0)
        rc = err_set(e, ERR_FORMAT, "%s: the answer with drafts is another one", t->name);
    str_deinit(&prediction);
    return rc;
}

/* All tasks once, without and with drafts. */
static int measure(const runtime_options *o, const manner *asked, int rep, outcome *outs, err *e) {
    static const task warm = { "", "What is 12 plus 30?", PLAIN, NULL, NULL };
    runtime_info      info;
    runtime_usage     u;
    runtime          *r;
    int               rc = runtime_open(&r, o, e);
    if (rc < 0) return rc;
    runtime_describe(r, &info);
    manner how = *asked;
    how.chats = info.can_chat;
    manner brief = { .chats = how.chats, .n_tokens = 32 };
    for (int k = 0; k < 2 && rc == 0; k++) rc = ask(r, &warm, &brief, k == 1, (view){ "", 0 }, &outs[0].text[k], &u, e);
    for (int i = 0; i < N_TASKS && rc == 0; i++) rc = measure_task(r, &tasks[i], &how, rep, &outs[i], e);
    runtime_free(r);
    return rc;
}

static void show(const task *t, outcome *o, int reps, bool json, bool first) {
    for (int k = 0; k < 2; k++) qsort(o->speed[k], (size_t)reps, sizeof o->speed[k][0], by_value);
    double without = o->speed[0][reps / 2], with = o->speed[1][reps / 2], ratio = without > 0 ? with / without : 0;
    if (json)
        printf("%s{\"task\":\"%s\",\"tokens\":%d,\"without\":%.2f,\"with\":%.2f,\"drafted\":%d,\"accepted\":%d}",
               first ? "" : ",", t->name, o->usage.generated_tokens, without, with, o->usage.drafted_tokens,
               o->usage.accepted_tokens);
    else
        printf("%-9s %7d %12.1f %12.1f %8.2fx %9d %9d\n", t->name, o->usage.generated_tokens, without, with, ratio,
               o->usage.drafted_tokens, o->usage.accepted_tokens);
}

int bench_speculate(const cli_args *a, const char *path, const char *draft, const char *who, int threads, int reps,
                    int n_tokens, err *e) {
    runtime_options o = { .path = path, .engine = { .n_threads = threads, .max_seqs = 1 } };
    manner          how = { .cpu_time = cli_flag(a, "cpu-time"), .n_tokens = n_tokens };
    bool            json = cli_flag(a, "json");
    int             rc = 0;
    outcome        *outs = calloc(N_TASKS, sizeof *outs);
    if (!outs) return err_set_nomem(e);
    o.settings.speculate = who;
    o.settings.draft = draft;
    o.engine.k_type = o.engine.v_type = NN_KV_F16;
    for (int i = 0; i < reps && rc == 0; i++) rc = measure(&o, &how, i, outs, e);
    if (rc == 0 && json)
        printf("{\"speculate\":\"%s\",\"tasks\":[", who);
    else if (rc == 0)
        printf("%-9s %7s %12s %12s %9s %9s %9s\n", "task", "tokens", "tok/s off", "tok/s on", "", "drafted", "right");
    for (int i = 0; i < N_TASKS; i++) {
        if (rc == 0) show(&tasks[i], &outs[i], reps, json, i == 0);
        str_deinit(&outs[i].text[0]);
        str_deinit(&outs[i].text[1]);
    }
    if (rc == 0 && json) printf("]}\n");
    free(outs);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines are questions; lines that begin with / are commands. What went wrong is said, and the chat goes on: a command
 * or an answer that fails leaves the conversation as it was.
 */
#include "cli/run/run_chat.h"

#include "base/nearest.h"
#include "cli/run/dragged.h"
#include "cli/run/interrupt.h"
#include "cli/run/line.h"
#include "formats/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct talk {
    session      *s;
    conversation *c;
    line_editor  *line;
    runtime_usage last; /* of the last answer */
    bool          verbose, over;
} talk;

static const char *dim(const talk *t) { return t->s->colour ? "\033[2m" : ""; }
static const char *plain(const talk *t) { return t->s->colour ? "\033[0m" : ""; }

/* It may quote a model's or a saved file's text: without control characters. */
static void note(const talk *t, const char *text) {
    str shown;
    str_init(&shown);
    text_put_safe(&shown, view_of(text));
    printf("%s%s%s\n", dim(t), str_cstr(&shown), plain(t));
    str_deinit(&shown);
}

/* --- commands --- */

/* A parameter of the table, or max_tokens. */
static int set_value(talk *t, const char *name, const char *value, err *e) {
    const sampling_param p = sampling_param_find(name, SAMPLING_BY_SETTINGS);
    const bool           tokens = strcmp(name, "max_tokens") == 0;
    if (!tokens && p == SAMPLING_PARAM_COUNT)
        return err_set(e, ERR_ARG, "'%.40s' is not a parameter; /set without arguments lists all parameters", name);
    sampling_limits r = tokens ? (sampling_limits){ 0, INT32_MAX } : sampling_range(p, SAMPLING_BY_SETTINGS);
    bool            whole = tokens || sampling_param_fields[p].type != SAMPLING_IS_FLOAT;
    char           *end;
    errno = 0;
    long long n = whole ? strtoll(value, &end, 10) : 0;
    double    v = whole ? (double)n : strtod(value, &end);
    if (!*value || *end || errno)
        return err_set(e, ERR_ARG, "%s: '%.40s' is not %s", name, value, whole ? "a whole number" : "a number");
    if (!(v >= r.low && v <= r.high))
        return err_set(e, ERR_ARG, "%s: %s is not between %.10g and %.10g", name, value, r.low, r.high);
    if (tokens)
        t->s->max_tokens = (int)n;
    else if (whole)
        sampling_set_int(&t->s->sampling, p, n);
    else
        sampling_set_real(&t->s->sampling, p, v);
    return 0;
}

static int do_set(talk *t, char *rest, err *e) {
    char *name = strtok(rest, " \t"), *value = strtok(NULL, " \t");
    if (name && value) return set_value(t, name, value, e);
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++) {
        if (i == SAMPLING_PARAM_SEED)
            printf("seed %llu, ", (unsigned long long)t->s->sampling.seed); /* with all its digits */
        else
            printf("%s %g, ", sampling_param_fields[i].key, sampling_get(&t->s->sampling, (sampling_param)i));
    }
    printf("max_tokens %d\n", t->s->max_tokens);
    return 0;
}

static int do_system(talk *t, char *rest, err *e) {
    if (*rest) return conversation_set_system(t->c, rest, e);
    const char *now = conversation_system(t->c);
    note(t, now ? now : "there is no system message; set one with /system TEXT");
    return 0;
}

static int do_stats(talk *t, char *rest, err *e) {
    runtime_stats all;
    engine_stats  st;
    str           line;
    (void)rest;
    (void)e;
    runtime_stat(t->s->runtime, &all);
    st = all.engine;
    str_init(&line);
    session_describe(&t->last, &line);
    printf("last answer: %s\n", str_cstr(&line));
    printf("conversation: %zu messages, context of %d tokens\n", t->c->count, t->s->info.n_ctx);
    printf("evaluated %llu tokens, found %llu in the cache, generated %llu in %llu steps\n",
           (unsigned long long)st.tokens_evaluated, (unsigned long long)st.tokens_cached,
           (unsigned long long)st.tokens_generated, (unsigned long long)st.steps);
    str_deinit(&line);
    return 0;
}

static int do_save(talk *t, char *rest, err *e) {
    if (!*rest) return err_set(e, ERR_ARG, "/save needs a file name");
    int rc = conversation_save(t->c, rest, e);
    if (rc == 0) printf("%zu messages saved\n", t->c->count);
    return rc;
}

static int do_load(talk *t, char *rest, err *e) {
    if (!*rest) return err_set(e, ERR_ARG, "/load needs a file name");
    int rc = conversation_load(t->c, rest, e);
    if (rc == 0) printf("%zu messages loaded\n", t->c->count);
    return rc;
}

/* The system message stays: it is a setting rather than a part of the talk. */
static int do_clear(talk *t, char *rest, err *e) {
    (void)rest;
    (void)e;
    conversation_shorten(t->c, conversation_system(t->c) ? 1 : 0);
    t->c->hidden = 0;
    return 0;
}

/* "on" or "off"; empty leaves *value alone. */
static int read_switch(const char *name, const char *rest, bool *value, err *e) {
    if (*rest && strcmp(rest, "on") != 0 && strcmp(rest, "off") != 0)
        return err_set(e, ERR_ARG, "%s must be on or off", name);
    if (*rest) *value = strcmp(rest, "on") == 0;
    return 0;
}

static int do_tools(talk *t, char *rest, err *e) {
    bool on = !t->s->tools_off;
    if (!t->s->tools) return err_set(e, ERR_ARG, "there are no tools; start 'hearth run' with --tools FILE");
    int rc = read_switch("/tools", rest, &on, e);
    if (rc < 0) return rc;
    t->s->tools_off = !on;
    printf("tools are %s\n", on ? "on" : "off");
    return 0;
}

static int do_think(talk *t, char *rest, err *e) {
    bool on = t->s->thinking == RUNTIME_THINK_ON;
    if (!t->s->info.can_think) return err_set(e, ERR_ARG, "this model's chat template has no switch for thinking");
    int rc = read_switch("/think", rest, &on, e);
    if (rc < 0) return rc;
    t->s->thinking = on ? RUNTIME_THINK_ON : RUNTIME_THINK_OFF;
    printf("thinking is %s\n", on ? "on" : "off");
    return 0;
}

static int do_bye(talk *t, char *rest, err *e) {
    (void)rest;
    (void)e;
    t->over = true;
    return 0;
}

static int do_help(talk *t, char *rest, err *e);

static const struct chat_command {
    const char *name, *usage, *help;
    int (*run)(talk *t, char *rest, err *e);
} commands[] = {
    { "/system", "[TEXT]", "show or set the system message", do_system },
    { "/set", "[NAME VALUE]", "set temperature, top_k, seed, ... or max_tokens; without arguments list all of them",
      do_set },
    { "/think", "[on|off]", "let the model reason before it answers", do_think },
    { "/tools", "[on|off]", "offer the tools of --tools to the model", do_tools },
    { "/stats", "", "show token counts and speeds", do_stats },
    { "/save", "FILE", "write the conversation as JSON messages", do_save },
    { "/load", "FILE", "continue a saved conversation", do_load },
    { "/clear", "", "forget the conversation", do_clear },
    { "/help", "", "show this text", do_help },
    { "/bye", "", "end the conversation (also Ctrl-D)", do_bye },
};

static int do_help(talk *t, char *rest, err *e) {
    (void)t;
    (void)rest;
    (void)e;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        printf("  %-8s %-13s %s\n", commands[i].name, commands[i].usage, commands[i].help);
    printf("  \"\"\"                    begins and ends a text of several lines\n"
           "                         several pasted lines are one message\n"
           "                         a text file that is dragged in is sent with the message\n"
           "  Ctrl-C                 stops an answer; pressed twice at the prompt, it ends the conversation\n");
    return 0;
}

static int do_command(talk *t, char *line, err *e) {
    size_t n = strcspn(line, " \t");
    char  *rest = line + n;
    rest += strspn(rest, " \t");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strlen(commands[i].name) == n && strncmp(line, commands[i].name, n) == 0)
            return commands[i].run(t, rest, e);
    }
    const char *names[sizeof commands / sizeof commands[0]], *best;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) names[i] = commands[i].name;
    line[n] = '\0';
    best = nearest_of(line, names, sizeof names / sizeof *names);
    if (best) return err_set(e, ERR_ARG, "%.40s is not a command; did you mean %s?", line, best);
    return err_set(e, ERR_ARG, "%.40s is not a command; /help lists all commands", line);
}

/* --- questions --- */

static bool read_result(void *ctx, const session_call *call, str *out) {
    talk *t = ctx;
    (void)call;
    return line_read(t->line, "result> ", out) == LINE_OK;
}

/* Whether the oldest turns may go. */
static bool may_drop(talk *t) {
    str  answer;
    bool yes = false;
    str_init(&answer);
    if (line_read(t->line, "The context is full. Leave out the oldest turns? [Y/n] ", &answer) == LINE_OK)
        yes = answer.len == 0 || answer.data[0] == 'y' || answer.data[0] == 'Y';
    interrupt_clear();
    str_deinit(&answer);
    return yes;
}

static void say_dropped(talk *t, size_t before) {
    char text[120];
    snprintf(text, sizeof text, "(%zu messages are left out from here on; /save still writes them)",
             t->c->hidden - before);
    note(t, text);
}

/* The question is in the conversation: its turn, without the oldest ones where they no longer fit and may go. */
static int run_turn(talk *t, session_result *r, err *e) {
    turn_options o = { .interrupt = &interrupt_seen, .read_result = read_result, .ctx = t };
    size_t       hidden = t->c->hidden;
    int          rc = turn_run(t->c, t->s, &o, r, e);
    if (rc != ERR_CONTEXT || !conversation_drop_oldest(t->c)) return rc;
    if (!may_drop(t)) {
        t->c->hidden = hidden;
        return rc;
    }
    do {
        session_result_deinit(r);
        rc = turn_run(t->c, t->s, &o, r, e);
    } while (rc == ERR_CONTEXT && conversation_drop_oldest(t->c));
    if (rc == 0)
        say_dropped(t, hidden);
    else
        t->c->hidden = hidden;
    return rc;
}

/* The answer filled the context: half of the turns make room for what follows. */
static void make_room(talk *t) {
    size_t hidden = t->c->hidden, half = hidden + (t->c->count - hidden) / 2;
    if (!conversation_drop_oldest(t->c)) {
        note(t, "(the context is full; /clear starts a new conversation)");
        return;
    }
    if (!may_drop(t)) {
        t->c->hidden = hidden;
        return;
    }
    while (t->c->hidden < half && conversation_drop_oldest(t->c)) {
    }
    say_dropped(t, hidden);
}

static int ask(talk *t, const char *text, err *e) {
    session_result r = { 0 };
    size_t         before = t->c->count;
    int            rc = conversation_add(t->c, "user", text, e);
    if (rc < 0) return rc;
    interrupt_clear();
    rc = run_turn(t, &r, e);
    if (rc < 0) {
        conversation_shorten(t->c, before);
        session_result_deinit(&r);
        return rc;
    }
    t->last = r.usage;
    if (r.finish == RUNTIME_TOOL_CALLS) {
        conversation_shorten(t->c, before);
        note(t, "(no result was given: the question is dropped)");
    }
    if (r.finish == RUNTIME_CANCELLED) note(t, "(stopped)");
    if (session_context_full(t->s, &r)) make_room(t);
    if (t->verbose) {
        str line;
        str_init(&line);
        session_describe(&r.usage, &line);
        note(t, str_cstr(&line));
        str_deinit(&line);
    }
    session_result_deinit(&r);
    return 0;
}

static int ask_with_files(talk *t, const char *text, err *e) {
    str full;
    int n;
    str_init(&full);
    int rc = dragged_add(text, &full, &n, e);
    if (rc == 0 && n > 0) printf("%s(%d %s)%s\n", dim(t), n, n == 1 ? "file" : "files", plain(t));
    if (rc == 0) rc = ask(t, str_cstr(&full), e);
    str_deinit(&full);
    return rc;
}

/* Goes on reading until a line ends with """; text holds the first line behind its """. */
static line_result read_block(talk *t, str *text) {
    str         line;
    line_result r = LINE_OK;
    str_init(&line);
    while (!view_ends((view){ str_cstr(text), text->len }, "\"\"\"")) {
        if ((r = line_read(t->line, "... ", &line)) != LINE_OK) break;
        if (text->len) str_push(text, '\n');
        str_append(text, str_cstr(&line), line.len);
    }
    if (r == LINE_OK) {
        text->len -= 3;
        text->data[text->len] = '\0';
        if (text->len && text->data[text->len - 1] == '\n') text->data[--text->len] = '\0';
    }
    str_deinit(&line);
    return r;
}

static line_result read_input(talk *t, str *text) {
    line_result r = line_read(t->line, ">>> ", text);
    if (r != LINE_OK || !view_starts((view){ str_cstr(text), text->len }, "\"\"\"")) {
        if (r == LINE_OK) line_remember(t->line, str_cstr(text));
        return r;
    }
    memmove(text->data, text->data + 3, text->len - 2);
    text->len -= 3;
    return read_block(t, text);
}

int run_chat(session *s, conversation *c, bool verbose, err *e) {
    talk t = { .s = s, .c = c, .verbose = verbose };
    str  text;
    int  rc = line_open(&t.line, e), interrupts = 0;
    if (rc < 0) return rc;
    str_init(&text);
    note(&t, "/help lists the commands; Ctrl-D ends the conversation.");
    while (!t.over && !text.failed) {
        err         failed = { 0 };
        line_result r = read_input(&t, &text);
        interrupts = r == LINE_INTERRUPTED ? interrupts + 1 : 0;
        if (r == LINE_END || interrupts == 2) break;
        if (r == LINE_INTERRUPTED) note(&t, "(press Ctrl-C again or Ctrl-D, or type /bye, to end the conversation)");
        if (r != LINE_OK || text.len == 0) continue;
        bool command = text.data[0] == '/' && !dragged_first(text.data);
        if ((command ? do_command(&t, text.data, &failed) : ask_with_files(&t, text.data, &failed)) < 0)
            note(&t, failed.msg);
    }
    line_close(t.line);
    str_deinit(&text);
    return 0;
}

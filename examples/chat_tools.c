/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat_tools [MODEL [QUESTION]]: a chat with a tool. The model calls get_weather, the program prints the call, looks
 * the weather up and gives the result back, and the model answers from it.
 */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char TOOLS[] = "[{\"type\": \"function\", \"function\": {"
                            " \"name\": \"get_weather\","
                            " \"description\": \"Get the weather in a city\","
                            " \"parameters\": {\"type\": \"object\","
                            "  \"properties\": {\"city\": {\"type\": \"string\"}},"
                            "  \"required\": [\"city\"]}}}]";

enum { MAX_TEXT = 64 << 10, MAX_CALLS = 8 };

/* A text that grows to MAX_TEXT; what does not fit is cut, and the model's answer ends there. */
typedef struct text {
    char   data[MAX_TEXT];
    size_t n;
} text;

static void add(text *t, const char *more, size_t bytes) {
    if (bytes > MAX_TEXT - 1 - t->n) bytes = MAX_TEXT - 1 - t->n;
    memcpy(t->data + t->n, more, bytes);
    t->n += bytes;
    t->data[t->n] = '\0';
}

static void add_text(text *t, const char *more) { add(t, more, strlen(more)); }

static void add_json_string(text *t, const char *s) {
    char escape[8];
    add_text(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') {
            snprintf(escape, sizeof escape, "\\%c", *s);
            add_text(t, escape);
        } else if ((unsigned char)*s < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", *s);
            add_text(t, escape);
        } else {
            add(t, s, 1);
        }
    }
    add_text(t, "\"");
}

typedef struct call {
    char id[64], name[64];
    text arguments;
} call;

typedef struct turn {
    text content;
    call calls[MAX_CALLS];
    int  n_calls;
    int  failed;
} turn;

/* One answer of the model: its text is printed, its calls are kept. */
static void ask(hearth_model *m, const text *messages, turn *out) {
    hearth_error   e;
    hearth_request q;
    memset(out, 0, sizeof *out);
    hearth_request_init(&q, sizeof q);
    q.messages = messages->data;
    q.tools = TOOLS;
    q.temperature = 0;
    hearth_answer *a = hearth_submit(m, &q, &e);
    if (!a) {
        fprintf(stderr, "%s\n", e.text);
        out->failed = 1;
        return;
    }
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        call *c = ev->call < MAX_CALLS ? &out->calls[ev->call] : NULL;
        switch (ev->kind) {
        case HEARTH_CONTENT:
            fwrite(ev->text, 1, ev->text_bytes, stdout);
            add(&out->content, ev->text, ev->text_bytes);
            break;
        case HEARTH_TOOL_BEGIN:
            if (!c) break;
            snprintf(c->id, sizeof c->id, "%s", ev->id);
            snprintf(c->name, sizeof c->name, "%s", ev->name);
            break;
        case HEARTH_TOOL_ARGUMENTS:
            if (c) add(&c->arguments, ev->text, ev->text_bytes);
            break;
        case HEARTH_TOOL_END: /* without it the call was cut off */
            if (c) out->n_calls = ev->call + 1;
            break;
        case HEARTH_FAILED:
            fprintf(stderr, "%s\n", ev->text);
            out->failed = 1;
            break;
        default: break;
        }
    }
    hearth_answer_free(a);
}

/* What a real program would do: look at the arguments, do the work, answer with JSON. */
static const char *do_call(const call *c) {
    if (strcmp(c->name, "get_weather") != 0) return "{\"error\": \"no such tool\"}";
    return "{\"weather\": \"sunny\", \"degrees\": 21}";
}

/* The model's calls and their results become part of the conversation. */
static void add_calls(text *messages, const turn *t) {
    add_text(messages, ", {\"role\": \"assistant\", \"content\": ");
    add_json_string(messages, t->content.data);
    add_text(messages, ", \"tool_calls\": [");
    for (int i = 0; i < t->n_calls; i++) {
        add_text(messages, i ? ", {\"id\": " : "{\"id\": ");
        add_json_string(messages, t->calls[i].id);
        add_text(messages, ", \"type\": \"function\", \"function\": {\"name\": ");
        add_json_string(messages, t->calls[i].name);
        add_text(messages, ", \"arguments\": ");
        add_json_string(messages, t->calls[i].arguments.data);
        add_text(messages, "}}");
    }
    add_text(messages, "]}");
    for (int i = 0; i < t->n_calls; i++) {
        const char *result = do_call(&t->calls[i]);
        printf("call %s %s -> %s\n", t->calls[i].name, t->calls[i].arguments.data, result);
        add_text(messages, ", {\"role\": \"tool\", \"tool_call_id\": ");
        add_json_string(messages, t->calls[i].id);
        add_text(messages, ", \"content\": ");
        add_json_string(messages, result);
        add_text(messages, "}");
    }
}

int main(int argc, char **argv) {
    static text  messages;
    static turn  t;
    hearth_error e;
    int          rounds = 0;

    hearth_model *m = hearth_model_open(argc > 1 ? argv[1] : "demo", NULL, &e);
    if (!m) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    add_text(&messages, "[{\"role\": \"user\", \"content\": ");
    add_json_string(&messages, argc > 2 ? argv[2] : "What is the weather in Paris?");
    add_text(&messages, "}");
    do {
        size_t open = messages.n;
        add_text(&messages, "]");
        ask(m, &messages, &t);
        messages.n = open; /* the list goes on */
        if (t.n_calls) add_calls(&messages, &t);
    } while (!t.failed && t.n_calls && ++rounds < 8);
    printf("\n");
    hearth_model_free(m);
    return t.failed;
}

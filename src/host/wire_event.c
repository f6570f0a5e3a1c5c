/* SPDX-License-Identifier: Apache-2.0 */
/* Events: of each kind only what it has, because most are a few bytes of text. */
#include "host/wire_tables.h"

#include <assert.h>
#include <string.h>

static const wire_field err_fields[] = {
    WIRE_INT(err, code, "code", -64, 0),
    WIRE_CHARS(err, msg, "message"),
};
const wire_table wire_table_err = WIRE_TABLE(err, err_fields);

static const wire_field top_fields[] = {
    { .kind = WIRE_K_I32, WIRE_MEMBER(runtime_top, token, int32_t) },
    { .kind = WIRE_K_F32, WIRE_MEMBER(runtime_top, logprob, float) },
    { .kind = WIRE_K_VIEW, WIRE_MEMBER(runtime_top, bytes, view), .max = WIRE_MAX_PIECE },
};
static const wire_table top_table = WIRE_ITEM(runtime_top, top_fields, 12);

static const wire_field usage_fields[] = {
    WIRE_COUNTER(runtime_usage, prompt_tokens, "usage"),    WIRE_COUNTER(runtime_usage, cached_tokens, "usage"),
    WIRE_COUNTER(runtime_usage, generated_tokens, "usage"), WIRE_COUNTER(runtime_usage, reasoning_tokens, "usage"),
    WIRE_COUNTER(runtime_usage, drafted_tokens, "usage"),   WIRE_COUNTER(runtime_usage, accepted_tokens, "usage"),
    WIRE_BOOL(runtime_usage, predicted, "usage"),           WIRE_DOUBLE(runtime_usage, prepare_s, "usage"),
    WIRE_DOUBLE(runtime_usage, queued_s, "usage"),          WIRE_DOUBLE(runtime_usage, prompt_s, "usage"),
    WIRE_DOUBLE(runtime_usage, generate_s, "usage"),
};
static const wire_table usage_table = WIRE_TABLE(runtime_usage, usage_fields);

static const wire_field started_fields[] = {
    WIRE_COUNTER(runtime_event, prompt_tokens, "prompt_tokens"),
};
static const wire_field progress_fields[] = {
    WIRE_COUNTER(runtime_event, done, "done"),
    WIRE_COUNTER(runtime_event, total, "total"),
    WIRE_COUNTER(runtime_event, cached, "cached"),
};
static const wire_field token_fields[] = {
    WIRE_ANY_INT(runtime_event, token, "token"),
    WIRE_BOOL(runtime_event, of_prompt, "of_prompt"),
    WIRE_FLOAT(runtime_event, logprob, "logprob"),
    WIRE_BYTES(runtime_event, bytes, "bytes", WIRE_MAX_PIECE),
    WIRE_LIST(runtime_event, top, n_top, "top", WIRE_MAX_TOP, top_table),
};
static const wire_field text_fields[] = {
    WIRE_TEXT(runtime_event, text, "text", WIRE_MAX_UP),
};
static const wire_field tool_begin_fields[] = {
    WIRE_COUNTER(runtime_event, index, "index"),
    WIRE_TEXT(runtime_event, id, "id", WIRE_MAX_UP),
    WIRE_TEXT(runtime_event, name, "name", WIRE_MAX_UP),
};
static const wire_field tool_arguments_fields[] = {
    WIRE_COUNTER(runtime_event, index, "index"),
    WIRE_TEXT(runtime_event, text, "text", WIRE_MAX_UP),
};
static const wire_field tool_end_fields[] = {
    WIRE_COUNTER(runtime_event, index, "index"),
};
static const wire_field embedding_fields[] = {
    WIRE_LIST(runtime_event, vector, n_vector, "vector", WIRE_MAX_VECTOR, wire_item_float),
};
static const wire_field score_fields[] = {
    WIRE_FLOAT(runtime_event, score, "score"),
};
static const wire_field classes_fields[] = {
    WIRE_LIST(runtime_event, vector, n_vector, "vector", WIRE_MAX_VECTOR, wire_item_float),
    WIRE_TEXT(runtime_event, text, "text", WIRE_MAX_UP),
};
static const wire_field done_fields[] = {
    WIRE_ENUM(runtime_event, finish, "finish", RUNTIME_CANCELLED + 1),
    WIRE_ANY_INT(runtime_event, stop_index, "stop_index"),
    WIRE_STRUCT(runtime_event, usage, usage_table),
    WIRE_LIST(runtime_event, context, n_context, "context", WIRE_MAX_IDS, wire_item_int),
};
static const wire_field error_fields[] = {
    WIRE_POINTER(runtime_event, error, "error", wire_table_err),
};

static const wire_table cases[] = {
    [RUNTIME_STARTED] = WIRE_TABLE(runtime_event, started_fields),
    [RUNTIME_PROGRESS] = WIRE_TABLE(runtime_event, progress_fields),
    [RUNTIME_TOKEN] = WIRE_TABLE(runtime_event, token_fields),
    [RUNTIME_CONTENT] = WIRE_TABLE(runtime_event, text_fields),
    [RUNTIME_REASONING] = WIRE_TABLE(runtime_event, text_fields),
    [RUNTIME_TOOL_BEGIN] = WIRE_TABLE(runtime_event, tool_begin_fields),
    [RUNTIME_TOOL_ARGUMENTS] = WIRE_TABLE(runtime_event, tool_arguments_fields),
    [RUNTIME_TOOL_END] = WIRE_TABLE(runtime_event, tool_end_fields),
    [RUNTIME_EMBEDDING] = WIRE_TABLE(runtime_event, embedding_fields),
    [RUNTIME_SCORE] = WIRE_TABLE(runtime_event, score_fields),
    [RUNTIME_CLASSES] = WIRE_TABLE(runtime_event, classes_fields),
    [RUNTIME_DONE] = WIRE_TABLE(runtime_event, done_fields),
    [RUNTIME_ERROR] = WIRE_TABLE(runtime_event, error_fields),
};
enum { N_KINDS = sizeof cases / sizeof *cases };
static_assert(N_KINDS == RUNTIME_ERROR + 1, "every kind of event has a table");

/* Names every kind: one that is new does not compile before it is here. */
static const char *check_event(const void *message) {
    const runtime_event *ev = message;
    switch (ev->kind) {
    case RUNTIME_DONE:
    case RUNTIME_ERROR: return NULL;
    case RUNTIME_STARTED:
    case RUNTIME_PROGRESS:
    case RUNTIME_TOKEN:
    case RUNTIME_CONTENT:
    case RUNTIME_REASONING:
    case RUNTIME_TOOL_BEGIN:
    case RUNTIME_TOOL_ARGUMENTS:
    case RUNTIME_TOOL_END:
    case RUNTIME_EMBEDDING:
    case RUNTIME_SCORE:
    case RUNTIME_CLASSES: break;
    }
    return ev->last ? "last is set in the middle" : NULL;
}

static const wire_field event_fields[] = {
    WIRE_ENUM(runtime_event, kind, "kind", N_KINDS),
    WIRE_INT(runtime_event, choice, "choice", -1, WIRE_MAX_CHOICES - 1),
    WIRE_BOOL(runtime_event, last, "last"),
    WIRE_CASES(runtime_event, kind, cases),
};
const wire_table wire_table_event = {
    .name = "runtime_event", WIRE_ROWS(event_fields), .bytes = sizeof(runtime_event), .check = check_event
};

/* The first fields of event_fields as they lie. */
int wire_get_event_head(view body, wire_event_head *h, err *e) {
    int32_t       kind, choice;
    unsigned char last;
    if (body.len < sizeof kind + sizeof choice + sizeof last) return err_set(e, ERR_FORMAT, "an event is cut off");
    memcpy(&kind, body.data, sizeof kind);
    memcpy(&choice, body.data + sizeof kind, sizeof choice);
    memcpy(&last, body.data + sizeof kind + sizeof choice, sizeof last);
    if (kind < 0 || kind >= N_KINDS) return err_set(e, ERR_FORMAT, "an event of unknown kind %d", kind);
    if (choice < -1 || choice >= WIRE_MAX_CHOICES || last > 1 ||
        (last && kind != RUNTIME_DONE && kind != RUNTIME_ERROR))
        return err_set(e, ERR_FORMAT, "an event whose beginning makes no sense");
    *h = (wire_event_head){ (runtime_event_kind)kind, choice, last != 0 };
    return 0;
}

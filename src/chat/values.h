/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Argument values of calls that are not written as JSON, turned into JSON.
 *
 * chat_json_scan follows JSON text byte by byte, wherever it is cut, and writes it down again; raw control characters
 * inside strings, which models do write, become escapes. What it calls complete is valid JSON.
 */
#ifndef CHAT_VALUES_H
#define CHAT_VALUES_H

#include "base/json.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum chat_scan {
    CHAT_SCAN_MORE,   /* the byte belongs to the value, which is not complete */
    CHAT_SCAN_DONE,   /* the byte completes it */
    CHAT_SCAN_BEFORE, /* it was complete before this byte, which does not belong to it */
    CHAT_SCAN_BAD,
} chat_scan;

typedef struct chat_json_scan {
    uint8_t state, escape, n_depth;
    uint8_t word; /* which literal */
    char    kind; /* first byte of the value: { [ " 0 t f n */
    bool    is_object[JSON_MAX_DEPTH];
} chat_json_scan;

void      chat_json_scan_init(chat_json_scan *s);
chat_scan chat_json_scan_byte(chat_json_scan *s, char c, str *out);
bool      chat_json_scan_complete(const chat_json_scan *s); /* at the end of the text: the value is whole */

/* What follows if the text ends here; see partial.h. */
typedef enum chat_place {
    CHAT_PLACE_OPEN,   /* a key or a value is missing, or is half there */
    CHAT_PLACE_STRING, /* inside a string that is a value */
    CHAT_PLACE_NUMBER, /* inside a number, which may go on */
    CHAT_PLACE_CLOSES, /* at most closing brackets are missing */
} chat_place;
chat_place chat_json_scan_place(const chat_json_scan *s);

/* The tool of this name, as OpenAI writes it (its "function" member) or flat; NULL: not offered. */
const json_value *chat_tool_find(const json_value *tools, view name);
const json_value *chat_tool_function(const json_value *tool);   /* the object with the name, or NULL */
const json_value *chat_tool_schema(const json_value *function); /* of the arguments; NULL: none given */

/* Kinds of JSON values that a schema allows, one bit each by json_kind; JSON_K_INT stands for all numbers. */
enum { CHAT_KINDS_ALL = 0x7f, CHAT_KIND_STRING = 1 << JSON_K_STRING };
unsigned chat_param_kinds(const json_value *schema, view key); /* of a member of the arguments */

/* Appends the value that a text stands for, as JSON. */
void chat_text_to_json(view text, unsigned kinds, str *out);

void chat_string_to_json(view text, str *out); /* the inside of a JSON string, without quotes */

/* Calls as Python writes them, "[f(a=1, s='x'), g()]": each is handed on. False: not of this form; unfinished: because
 * the text ends inside a string. */
typedef bool (*chat_call_sink)(void *ctx, view name, view arguments);
bool chat_python_calls(view text, chat_call_sink sink, void *ctx, bool *unfinished);
bool chat_python_value(view text, str *out); /* appends one literal as JSON; on false some of it may be there */
/* A call of Gemma 4: "call:f{a:1,s:<|"|>x<|"|>}". */
bool chat_gemma_call(view text, chat_call_sink sink, void *ctx, bool *unfinished);
/* The same where the text ends anywhere: begun gets the call that is not complete, if its name is, with the beginning
 * of a JSON object. False: however it went on, it would not be of this form. */
bool chat_python_begun(view text, chat_call_sink sink, chat_call_sink begun, void *ctx);
bool chat_gemma_begun(view text, chat_call_sink sink, chat_call_sink begun, void *ctx);

#endif

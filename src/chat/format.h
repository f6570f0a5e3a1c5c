/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model's answers look like: how it marks its thoughts and how it writes tool calls.
 *
 * A format is found once per model from the text of its chat template, which shows both the history and the
 * instructions that the model was trained on. Nothing is guessed from a model's name. A template that shows no known
 * way of calling tools gives CHAT_SYNTAX_NONE; a chat with such a template offers tools in a generic form.
 *
 * Every string is a constant of this program; a format may be copied and kept.
 */
#ifndef CHAT_FORMAT_H
#define CHAT_FORMAT_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum chat_syntax {
    CHAT_SYNTAX_NONE,
    CHAT_SYNTAX_HERMES,       /* <tool_call>{"name":"f","arguments":{..}}</tool_call> */
    CHAT_SYNTAX_LLAMA3,       /* {"name":"f","parameters":{..}}, maybe behind <|python_tag|> */
    CHAT_SYNTAX_QWEN_XML,     /* <tool_call><function=f><parameter=a>1</parameter></function></tool_call> */
    CHAT_SYNTAX_MISTRAL,      /* [TOOL_CALLS][{"name":"f","arguments":{..},"id":"123456789"}] */
    CHAT_SYNTAX_MISTRAL_ARGS, /* [TOOL_CALLS]f[ARGS]{..}, maybe with [CALL_ID]123456789 before [ARGS] */
    CHAT_SYNTAX_DEEPSEEK, /* <｜tool▁call▁begin｜>f<｜tool▁sep｜>{..}<｜tool▁call▁end｜> in a section */
    CHAT_SYNTAX_GLM,      /* <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call> */
    CHAT_SYNTAX_KIMI,     /* <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{..}<|tool_call_end|> */
    CHAT_SYNTAX_HARMONY,  /* <|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|> */
    CHAT_SYNTAX_LFM2,     /* <|tool_call_start|>[f(a=1, s="x")]<|tool_call_end|> */
    CHAT_SYNTAX_GEMMA4,   /* <|tool_call>call:f{a:1,s:<|"|>x<|"|>}<tool_call|> */
    CHAT_SYNTAX_MINIMAX,  /* <minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke>.. */
    CHAT_SYNTAX_COMMAND_R,      /* <|START_ACTION|>[{"tool_call_id":"0","tool_name":"f","parameters":{..}}].. */
    CHAT_SYNTAX_SEED,           /* as QWEN_XML in <seed:tool_call>, values without line breaks around them */
    CHAT_SYNTAX_NEMOTRON,       /* <TOOLCALL>[{"name":"f","arguments":{..}}]</TOOLCALL> */
    CHAT_SYNTAX_TOOL_CALLS,     /* <tool_calls>[{"name":"f","arguments":{..}}]</tool_calls> */
    CHAT_SYNTAX_GRANITE3,       /* <|tool_call|>[{"name":"f","arguments":{..}}] */
    CHAT_SYNTAX_APERTUS,        /* <|tools_prefix|>[{"f":{..}}]<|tools_suffix|> */
    CHAT_SYNTAX_COMMAND_R_PLUS, /* Action:, a fenced JSON list of {"tool_name":"f","parameters":{..}} */
    CHAT_SYNTAX_GIGACHAT,       /* <|message_sep|>, then function call<|role_sep|> and {"name":"f","arguments":{..}} */
    CHAT_SYNTAX_COUNT,
} chat_syntax;

/* How the inside of a call is laid out; several syntaxes share one. */
typedef enum chat_shape {
    CHAT_SHAPE_NONE,
    CHAT_SHAPE_JSON,      /* objects with the name, the arguments and perhaps an id; alone or in a list */
    CHAT_SHAPE_BARE,      /* such an object at the very start of the answer, without a marker */
    CHAT_SHAPE_NAME_JSON, /* the name, a separator, the arguments as JSON */
    CHAT_SHAPE_TAGS,      /* <function=f> and <parameter=a> */
    CHAT_SHAPE_PAIRS,     /* the name, then <arg_key> and <arg_value> */
    CHAT_SHAPE_INVOKE,    /* <invoke name="f"> and <parameter name="a"> */
    CHAT_SHAPE_PYTHON,    /* a list of calls as Python writes them */
    CHAT_SHAPE_GEMMA,     /* call:f{a:1} with its own string quotes */
    CHAT_SHAPE_HARMONY,   /* messages with channels and recipients */
} chat_shape;

/* One row of the table of syntaxes. Markers are NULL where the syntax has none. */
typedef struct chat_syntax_row {
    chat_syntax syntax;
    chat_shape  shape;
    const char *name;         /* "hermes", ... */
    const char *open, *close; /* around all calls (section) or each call */
    const char *call_open;    /* NAME_JSON: before each name */
    const char *separator;    /* NAME_JSON: between name and arguments */
    const char *call_close;   /* NAME_JSON: behind the arguments */
    const char *key_name;     /* JSON, BARE: the members of a call; key_name NULL: the name is the only key */
    const char *key_arguments;
    const char *key_id;  /* NULL: calls have no id of their own */
    bool        list;    /* JSON: the calls are written as one list; else each is an object */
    bool        section; /* open and close stand around all calls of an answer, not around each */
    bool        special; /* the markers are tokens of their own, which text never contains */
} chat_syntax_row;

typedef struct chat_format {
    chat_syntax            syntax;
    const chat_syntax_row *row;
    /* Thoughts. NULL: the model has no marked thoughts (HARMONY marks them by channel). */
    const char *think_open, *think_close;
    const char *think_empty;  /* an empty block as the template writes it, with the line breaks around it */
    const char *think_end;    /* what closes a block that is cut off, with the line breaks around it */
    const char *content_open; /* wrappers around the answer proper, which are not part of it; NULL: none */
    const char *content_close;
    bool        think_anywhere;  /* the markers are special tokens: a block may begin behind text too */
    bool        think_implicit;  /* an answer begins with thoughts, without a marker: prompts end inside them */
    bool        deepseek_fenced; /* DEEPSEEK of R1: function<｜tool▁sep｜>f and a fenced block of JSON */
    bool        generic;         /* the template knows no tools: see generic.h; the syntax is HERMES */
    bool        compact;         /* GLM: no line breaks between the tags; MISTRAL_ARGS: no [CALL_ID] */
} chat_format;

/* For a model whose template is not its own: its thoughts are marked by tokens that its vocabulary has. */
void chat_format_think_by_tokens(chat_format *f, bool (*knows)(const void *ctx, const char *token), const void *ctx);

/* For a template that shows no way of calling tools: calls as HERMES writes them. */
void chat_format_make_generic(chat_format *f);

/* Reads a template's text. Never fails: what is not recognised is absent. */
void chat_format_detect(chat_format *out, const char *template_text, size_t bytes);

const chat_syntax_row *chat_syntax_get(chat_syntax s); /* the row of NONE for a number out of range */
bool                   chat_format_thinks(const chat_format *f);

/* Every literal that this format may write around content, thoughts and calls; NULL beyond the last. For vocabularies
 * in which such tokens must count as text. */
const char *chat_format_marker(const chat_format *f, size_t index);

#endif

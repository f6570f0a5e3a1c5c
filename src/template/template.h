/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: the Jinja dialect that Hugging Face models carry.
 *
 * A template is parsed once (tmpl_open) and is immutable afterwards; any number of threads may render it at the same
 * time. A rendering sees its variables, a clock that the caller gives, and nothing else. It is bounded in steps,
 * nesting, memory and output, because templates come from model files. The dialect is described in docs/templates.md.
 *
 * Variables are JSON values; the names that a rendering knows are exactly those given. Of two entries with the same
 * name the later one wins.
 */
#ifndef TEMPLATE_TEMPLATE_H
#define TEMPLATE_TEMPLATE_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct tmpl tmpl;

typedef struct tmpl_var {
    view              name;
    const json_value *value;
} tmpl_var;

/* What strftime_now() shows. Local time, English names, no zone. */
typedef struct tmpl_clock {
    int year, month, day; /* 2026, 1..12, 1..31 */
    int hour, minute, second;
} tmpl_clock;

/* Zero means the default. */
typedef struct tmpl_limits {
    size_t steps;        /* evaluated nodes, loop turns and scanned text; default 50 million */
    size_t depth;        /* nested evaluation, macro calls included; default 2400, which needs about 1.5 MiB of stack */
    size_t output_bytes; /* default 64 MiB */
    size_t memory_bytes; /* values made while rendering; default 256 MiB */
} tmpl_limits;

typedef struct tmpl_input {
    const tmpl_var *vars;
    size_t          n_vars;
    tmpl_clock      now;
    tmpl_limits     limits;
} tmpl_input;

typedef enum tmpl_fault_kind {
    TMPL_FAULT_NONE,
    TMPL_FAULT_SYNTAX,  /* the template does not parse */
    TMPL_FAULT_RAISED,  /* the template called raise_exception; message is its argument, byte for byte */
    TMPL_FAULT_RUNTIME, /* the evaluation failed: wrong types, attribute of an undefined value, ... */
    TMPL_FAULT_LIMIT,   /* a limit of this rendering was reached */
} tmpl_fault_kind;

typedef struct tmpl_fault {
    tmpl_fault_kind kind;
    int             line;    /* of the template's source, from 1 */
    str             message; /* without the line */
} tmpl_fault;

void tmpl_fault_init(tmpl_fault *f);
void tmpl_fault_deinit(tmpl_fault *f);

/* Parses. The source is copied. e says "line 12: reason". */
int  tmpl_open(tmpl **out, const char *source, size_t bytes, err *e);
void tmpl_free(tmpl *t);

/*
 * Appends the rendered text to out. On failure out is as it was, e says "line 12: reason", and fault (may be NULL)
 * holds the kind and the exact message. ERR_ARG: the template raised or failed; ERR_LIMIT: a limit; ERR_NOMEM.
 */
int tmpl_render(const tmpl *t, const tmpl_input *in, str *out, tmpl_fault *fault, err *e);

/* The text it was parsed from. */
view tmpl_source(const tmpl *t);

/* True when the template reads a variable of this name somewhere ("tools", "enable_thinking", ...). */
bool tmpl_uses(const tmpl *t, const char *name);

/* Reads "2026-01-02T15:04:05" (also with a blank, or the date alone). */
int tmpl_clock_parse(tmpl_clock *out, const char *text, err *e);

/*
 * Templates of common families, for models that carry none: "chatml", "llama2", "llama3", "mistral", "gemma", "phi3",
 * "zephyr", "vicuna", "alpaca", "deepseek", "command-r", ... NULL when there is none of that name; index beyond the end
 * gives NULL.
 */
const char *tmpl_builtin(const char *name);
const char *tmpl_builtin_name(size_t index);

#endif

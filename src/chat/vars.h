/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables of one rendering: what every template expects to exist (tools and documents as none, the begin and end
 * tokens where the model has them), then the caller's. Of two with one name the later wins.
 */
#ifndef CHAT_VARS_H
#define CHAT_VARS_H

#include "base/json.h"
#include "bundle/template.h"
#include "template/template.h"

typedef struct chat_vars {
    tmpl_var  *items;
    size_t     count, cap;
    json_value bos, eos;
    bool       failed; /* memory was out; chat_vars_render says so */
} chat_vars;

void chat_vars_init(chat_vars *v, const bundle_template *b);
void chat_vars_deinit(chat_vars *v);
void chat_vars_add(chat_vars *v, view name, const json_value *value);                   /* value is borrowed */
void chat_vars_add_members(chat_vars *v, const json_value *object, const char *except); /* except may be NULL */

/* Appends the text of the model's template; the one for tools where with_tools and there is one. fault may be NULL. */
int chat_vars_render(const chat_vars *v, const bundle_template *b, bool with_tools, const tmpl_clock *now,
                     const tmpl_limits *limits, str *out, tmpl_fault *fault, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chat template of a model on disk, with the tokens it prints.
 *
 * Sources, first one that is there: a plain template file; chat_template.jinja, chat_template.json or the chat_template
 * of tokenizer_config.json in a directory; tokenizer.chat_template of a GGUF; else a built-in one, chosen by the
 * special tokens that the vocabulary has and by the architecture's name. A model may carry a second template named
 * "tool_use".
 */
#ifndef BUNDLE_TEMPLATE_H
#define BUNDLE_TEMPLATE_H

#include "base/err.h"
#include "template/template.h"

#include <stdbool.h>

typedef struct bundle_template {
    tmpl *chat;
    tmpl *tool_use;   /* NULL when the model has only one template */
    char *bos, *eos;  /* NULL when unknown */
    char  origin[64]; /* "chat_template.jinja", "built-in chatml", ... */
} bundle_template;

/* path: a template file, a GGUF, or a Hugging Face or MLX directory. On failure *out is empty. */
int  bundle_template_open(bundle_template *out, const char *path, err *e);
void bundle_template_deinit(bundle_template *b); /* accepts a zeroed one */

/* The template for a request: the one for tools when there are tools and the model has one. */
const tmpl *bundle_template_pick(const bundle_template *b, bool with_tools);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Modelfile: a text that makes a named model out of another model, a file or a directory.
 *
 *   # a comment
 *   FROM name-or-path
 *   PARAMETER temperature 0.7
 *   PARAMETER stop "<|end|>"
 *   SYSTEM """text
 *   of several lines"""
 *   TEMPLATE ...    ADAPTER path    LICENSE ...    MESSAGE user|assistant|system ...    DRAFT name-or-path
 *
 * An instruction begins a line, in any letter case. Its text goes to the end of the line; in " or """ it goes to the
 * first line that ends with the same quotes. There are no escapes. Every mistake names its line.
 *
 * What it sets is kept in the registry as the tag `settings`: JSON with the keys of a model's configuration file
 * (context, system, template, sampling, messages, adapters, draft, license). modelfile_print is the way back.
 */
#ifndef REGISTRY_MODELFILE_H
#define REGISTRY_MODELFILE_H

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>

#define MODELFILE_SETTINGS "settings" /* the tag's key */

typedef struct modelfile_pair {
    char *name, *value; /* of a parameter: its key in the settings; of a message: the role */
    int   kind;         /* of a parameter */
} modelfile_pair;

typedef struct modelfile {
    char           *from, *template_text, *system, *license, *draft; /* NULL: not there; several licenses are joined */
    char           *mmproj; /* the model's vision tower, of a projector layer; NULL: none */
    char          **adapters;
    modelfile_pair *params, *messages; /* in the order of the text */
    size_t          n_adapters, n_params, n_messages;
    str             notes; /* one line for each thing that was read and set aside; empty otherwise */
} modelfile;

void modelfile_init(modelfile *m);
void modelfile_deinit(modelfile *m);

/* On failure *m is deinit'ed. label stands in front of "line 3: ..." */
int modelfile_parse(modelfile *m, const char *text, size_t bytes, const char *label, err *e);

/* One parameter by Ollama's name, as a PARAMETER line has it; unknown ones are refused with the nearest name. */
int modelfile_add_param(modelfile *m, const char *name, const char *value, err *e);
int modelfile_add_message(modelfile *m, const char *role, const char *content, err *e);
int modelfile_add_adapter(modelfile *m, const char *path, err *e);
int modelfile_set_template(modelfile *m, const char *text, err *e); /* refuses what is not a template for us */

/* JSON of what m sets over the settings of the model it is made from (JSON or NULL). "{}" if there is nothing. */
int modelfile_settings(const modelfile *m, const char *base, str *out, err *e);

/* A Modelfile that gives these settings (JSON or NULL). ERR_UNSUPPORTED: a text that the format cannot hold. */
int modelfile_print(const char *from, const char *settings, str *out, err *e);
/* Only the lines "name value" of its parameters, as /api/show has them. */
int modelfile_print_params(const char *settings, str *out, err *e);

#endif

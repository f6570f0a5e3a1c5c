/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the Modelfile share: the parameters, and the way from Go's templates to ours. */
#ifndef REGISTRY_MODELFILE_PARAMS_H
#define REGISTRY_MODELFILE_PARAMS_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum modelfile_kind { PARAM_INT, PARAM_REAL, PARAM_BOOL, PARAM_STOP, PARAM_PAGES } modelfile_kind;

typedef struct modelfile_param {
    const char    *name;    /* Ollama's, or llama.cpp's */
    const char    *key;     /* in the settings; NULL: set aside */
    const char    *section; /* of the settings that has the key; NULL: none */
    modelfile_kind kind;
    double         min, max;
} modelfile_param;

extern const modelfile_param modelfile_params[];
extern const size_t          modelfile_n_params;

/* Writes a template of Go, as Ollama has them, in Jinja (modelfile_go.c). ERR_UNSUPPORTED: the sentence quotes the part. */
int modelfile_go_template(const char *text, str *out, err *e);

#endif

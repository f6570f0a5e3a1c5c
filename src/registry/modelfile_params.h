/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the Modelfile share: the parameters, and the way from Go's templates to ours. */
#ifndef REGISTRY_MODELFILE_PARAMS_H
#define REGISTRY_MODELFILE_PARAMS_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum modelfile_kind { PARAM_INT, PARAM_REAL, PARAM_BOOL, PARAM_STOP } modelfile_kind;

typedef struct modelfile_param {
    const char    *name; /* Ollama's */
    const char    *key;  /* in the settings; NULL: set aside. All but "context" stand in `sampling` */
    modelfile_kind kind;
    double         min, max;
} modelfile_param;

extern const modelfile_param modelfile_params[];
extern const size_t          modelfile_n_params;

/*
 * Turns the plain templates that many Modelfiles have into Jinja: text around {{ .System }}, {{ .Prompt }} and
 * {{ .Response }}, the first two perhaps in an {{ if }} of their own. False: it is of another shape.
 */
bool modelfile_go_template(const char *text, str *out);
bool modelfile_go_messages(const char *text, str *out); /* one that walks through .Messages */
void modelfile_go_text(str *out, view v);               /* a text as a Jinja string */

#endif

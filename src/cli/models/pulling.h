/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls as commands do them: settings from the environment, progress on the terminal, Ctrl-C. */
#ifndef CLI_MODELS_PULLING_H
#define CLI_MODELS_PULLING_H

#include "registry/pull.h"

/* Endpoints and token for a request: HF_ENDPOINT, HEARTH_OLLAMA_REGISTRY, SSL_CERT_FILE; HEARTH_HF_TOKEN, HF_TOKEN or
 * the file that the hub's own tools keep it in. *token is the caller's to free. Other fields are left alone. */
int pulling_settings(pull_request *q, char **token, err *e);

typedef enum pulling_style { PULLING_TEXT, PULLING_JSON, PULLING_QUIET } pulling_style; /* TEXT: a bar, or lines */

/* Ctrl-C ends it with ERR_CANCELLED. */
int pulling_run(registry *r, const pull_request *q, pulling_style style, pull_result *out, err *e);

#endif

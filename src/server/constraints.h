/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of an answer, as clients write them. Mistakes stay in x->in. */
#ifndef SERVER_CONSTRAINTS_H
#define SERVER_CONSTRAINTS_H

#include "server/exchange.h"

/* strict_json: whether constrained JSON is steered (the default) or may be every text of its schema. */
void params_json_form(exchange *x, const node *o, runtime_request *q);
/* grammar, json_schema, regex; guided_json, guided_choice, guided_regex, guided_grammar; structured_outputs: at most
 * one. */
void params_grammar(exchange *x, const node *o, runtime_request *q);
/* response_format, or with `flat` the format of /v1/responses, which has the schema beside its type as llama.cpp has. */
void params_format(exchange *x, const node *format, runtime_request *q, bool flat);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings: one request per text, a vector each, one answer when all are there. What differs between protocols is how
 * the answer is written. */
#ifndef SERVER_VECTORS_H
#define SERVER_VECTORS_H

#include "server/exchange.h"
#include "server/http/json_out.h"

enum { VECTORS_MAX_TEXTS = 2048 };

typedef struct vectors {
    view        model;
    int         form; /* the adapter's own: which of its forms the answer has */
    int64_t     begin_us;
    float     **at;
    int        *sizes;
    size_t      n;
    int64_t     prompt_tokens; /* of all */
    bool        failed;        /* out of memory */
    const char *type;          /* of what put writes */
    void (*put)(const struct vectors *v, str *out);
} vectors;

/* The prompt that stands before the texts: "prompt_name" names one of the model's, "input_type" a side of a search. */
typedef struct vectors_prompt {
    view name;
    bool side;
} vectors_prompt;
void vectors_read_prompt(exchange *x, vectors_prompt *out);

void vectors_put(jw *w, const vectors *v, size_t i); /* the numbers of the i-th one as an array */

/* Starts the requests (texts or tokens filled in); x answers with what put writes. */
void vectors_run(exchange *x, view model, int64_t keep_alive_ms, runtime_request *q, size_t n, int dimensions,
                 const vectors_prompt *prompt, int form, const char *type, void (*put)(const vectors *v, str *out));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/embeddings; /embedding in llama.cpp's form: a list, each with one vector in a list of its own. */
#include "server/handlers.h"
#include "server/http/base64.h"
#include "server/openai/openai.h"
#include "server/params.h"
#include "server/vectors.h"

enum { FORM_FLOAT, FORM_BASE64 };

static void put_vector(jw *w, const vectors *v, size_t i) {
    if (v->form == FORM_BASE64) {
        str_push(w->out, '"');
        base64_put(w->out, v->at[i], (size_t)v->sizes[i] * sizeof(float));
        str_push(w->out, '"');
        w->comma = true;
        return;
    }
    vectors_put(w, v, i);
}

static void put_answer(const vectors *v, str *out) {
    jw w = jw_list(out);
    for (size_t i = 0; i < v->n; i++) {
        jw_open(&w, '{');
        jw_put_cstr(&w, "object", "embedding");
        jw_put_int(&w, "index", (int64_t)i);
        jw_key(&w, "embedding");
        put_vector(&w, v, i);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_put_text(&w, "model", v->model);
    jw_key(&w, "usage");
    jw_open(&w, '{');
    jw_put_int(&w, "prompt_tokens", v->prompt_tokens);
    jw_put_int(&w, "total_tokens", v->prompt_tokens);
    jw_close(&w, '}');
    jw_close(&w, '}');
}

void openai_embed_with(exchange *x, const char *type, void (*put)(const vectors *v, str *out)) {
    static const char *const formats[] = { "float", "base64", NULL };
    runtime_request         *q = NULL;
    size_t                   n = 0;
    int                      form = FORM_FLOAT;
    int64_t                  dimensions = 0;
    vectors_prompt           prompt;
    view                     model;
    bool                     known = params_model(x, &x->body, !params_one_model(x), &model);
    if (!known && !x->in.failed) return;
    read_choice(&x->in, &x->body, "encoding_format", formats, &form);
    read_int(&x->in, &x->body, "dimensions", 1, 1 << 20, &dimensions);
    read_any(&x->in, &x->body, "user");
    vectors_read_prompt(x, &prompt);
    node input = read_any(&x->in, &x->body, "input");
    params_prompts(x, &input, VECTORS_MAX_TEXTS, &q, &n);
    if (x->in.failed)
        exchange_reject(x);
    else if (q)
        vectors_run(x, model, HOST_KEEP_DEFAULT, q, n, (int)dimensions, &prompt, form, type, put);
}

void openai_embed(exchange *x) { openai_embed_with(x, "application/json", put_answer); }

static void put_native(const vectors *v, str *out) {
    jw w = jw_of(out);
    jw_open(&w, '[');
    for (size_t i = 0; i < v->n; i++) {
        jw_open(&w, '{');
        jw_put_int(&w, "index", (int64_t)i);
        jw_key(&w, "embedding");
        jw_open(&w, '[');
        put_vector(&w, v, i);
        jw_close(&w, ']');
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
}

void native_embed(exchange *x) {
    runtime_request *q = NULL;
    size_t           n = 0;
    vectors_prompt   prompt;
    view             model;
    bool             known = params_model(x, &x->body, false, &model);
    if (!known && !x->in.failed) return;
    vectors_read_prompt(x, &prompt);
    node content = read_any(&x->in, &x->body, "content"), input = read_any(&x->in, &x->body, "input");
    vectors_read_prompt(x, &prompt);
    params_prompts(x, node_is(&content) == NODE_ABSENT ? &input : &content, VECTORS_MAX_TEXTS, &q, &n);
    if (x->in.failed)
        exchange_reject(x);
    else if (q)
        vectors_run(x, model, HOST_KEEP_DEFAULT, q, n, 0, &prompt, FORM_FLOAT, "application/json", put_native);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/embeddings */
#include "server/handlers.h"
#include "server/openai.h"
#include "server/params.h"
#include "server/vectors.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 2048 };

typedef struct embed_state {
    view    model;
    bool    base64;
    vectors v;
} embed_state;

static void state_free(void *p) {
    embed_state *s = p;
    vectors_deinit(&s->v);
    free(s);
}

static void put_base64(str *out, const unsigned char *p, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        char     c[4] = { digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                      i + 2 < n ? digits[v & 63] : '=' };
        str_append(out, c, 4);
    }
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    embed_state *s = x->state;
    vectors_event(&s->v, request, ev);
}

static void on_over(exchange *x) {
    embed_state *s = x->state;
    str          b;
    if (s->v.failed) {
        exchange_error(x, 503, "out_of_memory", NULL, "out of memory");
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "object", "list");
    jw_key(&w, "data");
    jw_open(&w, '[');
    for (size_t i = 0; i < s->v.n; i++) {
        jw_open(&w, '{');
        jw_put_cstr(&w, "object", "embedding");
        jw_put_int(&w, "index", (int64_t)i);
        jw_key(&w, "embedding");
        if (s->base64) {
            str_push(&b, '"');
            put_base64(&b, (const unsigned char *)s->v.at[i], (size_t)s->v.sizes[i] * sizeof(float));
            str_push(&b, '"');
            w.comma = true;
        } else {
            jw_open(&w, '[');
            for (int k = 0; k < s->v.sizes[i]; k++) jw_real(&w, s->v.at[i][k]);
            jw_close(&w, ']');
        }
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_put_text(&w, "model", s->model);
    jw_key(&w, "usage");
    jw_open(&w, '{');
    jw_put_int(&w, "prompt_tokens", s->v.prompt_tokens);
    jw_put_int(&w, "total_tokens", s->v.prompt_tokens);
    jw_close(&w, '}');
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

void openai_embed(exchange *x) {
    static const char *const formats[] = { "float", "base64", NULL };
    runtime_request         *q = NULL;
    size_t                   n = 0;
    int                      format = 0;
    int64_t                  dimensions = 0;
    view                     model;
    bool                     known = params_model(x, &x->body, true, &model);
    if (!known && !x->in.failed) return;
    read_choice(&x->in, &x->body, "encoding_format", formats, &format);
    read_int(&x->in, &x->body, "dimensions", 1, 1 << 20, &dimensions);
    read_any(&x->in, &x->body, "user");
    node input = read_any(&x->in, &x->body, "input");
    params_prompts(x, &input, MAX_INPUTS, &q, &n);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (!q) return;
    embed_state *s = calloc(1, sizeof *s);
    if (s) {
        x->state = s;
        x->state_free = state_free;
    }
    if (!s || !vectors_init(&s->v, n)) {
        exchange_error(x, 503, "out_of_memory", NULL, "out of memory");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        q[i].task = RUNTIME_EMBED;
        q[i].dimensions = (int)dimensions;
    }
    s->model = model;
    s->base64 = format == 1;
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = q,
                                      .n_requests = n,
                                      .on_event = on_event,
                                      .on_over = on_over });
}

/* SPDX-License-Identifier: Apache-2.0 */
/* POST /classify, in vLLM's form: what texts, or pairs of texts, are. Labels of all classes stand behind the data. */
#include "base/json.h"
#include "server/handlers.h"
#include "server/internal.h"
#include "server/params.h"
#include "server/vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct classified {
    float *probs;
    int    n;
} classified;

typedef struct classify_state {
    view        model;
    classified *items;
    size_t      n;
    str         labels; /* JSON */
    int64_t     prompt_tokens;
    bool        failed; /* memory */
} classify_state;

static void state_free(void *p) {
    classify_state *s = p;
    for (size_t i = 0; s->items && i < s->n; i++) free(s->items[i].probs);
    free(s->items);
    str_deinit(&s->labels);
    free(s);
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    classify_state *s = x->state;
    classified     *c = &s->items[request];
    if (ev->kind == RUNTIME_STARTED) s->prompt_tokens += ev->prompt_tokens;
    if (ev->kind != RUNTIME_CLASSES || ev->n_vector < 1) return;
    size_t bytes = (size_t)ev->n_vector * sizeof *c->probs;
    free(c->probs);
    c->probs = malloc(bytes);
    c->n = c->probs ? ev->n_vector : 0;
    if (c->probs) memcpy(c->probs, ev->vector, bytes);
    if (s->labels.len == 0) str_append(&s->labels, ev->text.data, ev->text.len);
    s->failed = s->failed || !c->probs || !str_ok(&s->labels);
}

static void put_item(jw *w, const classified *c, size_t index, const json_value *labels) {
    int best = 0;
    for (int i = 1; i < c->n; i++) {
        if (c->probs[i] > c->probs[best]) best = i;
    }
    const json_value *label = json_at(labels, (size_t)best);
    jw_open(w, '{');
    jw_put_int(w, "index", (int64_t)index);
    jw_put_text(w, "label", json_is(label, JSON_K_STRING) ? label->u.string : (view){ "", 0 });
    jw_key(w, "probs");
    jw_open(w, '[');
    for (int i = 0; i < c->n; i++) jw_real(w, c->probs[i]);
    jw_close(w, ']');
    jw_put_int(w, "num_classes", c->n);
    jw_close(w, '}');
}

static void put_answer(const exchange *x, str *out, const json_value *labels) {
    const classify_state *s = x->state;
    char                  id[sizeof x->id + 16];
    snprintf(id, sizeof id, "classify-%s", x->id + 4);
    jw w = jw_of(out);
    jw_open(&w, '{');
    jw_put_cstr(&w, "id", id);
    jw_put_cstr(&w, "object", "list");
    jw_put_int(&w, "created", x->created);
    jw_put_text(&w, "model", s->model);
    jw_key(&w, "data");
    jw_open(&w, '[');
    for (size_t i = 0; i < s->n; i++) put_item(&w, &s->items[i], i, labels);
    jw_close(&w, ']');
    jw_key(&w, "labels");
    jw_raw(&w, (view){ str_cstr(&s->labels), s->labels.len });
    jw_key(&w, "usage");
    jw_open(&w, '{');
    jw_put_int(&w, "prompt_tokens", s->prompt_tokens);
    jw_put_int(&w, "total_tokens", s->prompt_tokens);
    jw_put_int(&w, "completion_tokens", 0);
    jw_close(&w, '}');
    jw_close(&w, '}');
}

static void on_over(exchange *x) {
    classify_state   *s = x->state;
    const json_value *labels = NULL;
    err               e = { 0 };
    str               b;
    if (s->failed) {
        exchange_error_nomem(x);
        return;
    }
    if (json_parse(&labels, str_cstr(&s->labels), s->labels.len, &x->arena, &e) < 0) {
        exchange_error_from(x, &e);
        return;
    }
    str_init(&b);
    put_answer(x, &b, labels);
    exchange_reply(x, 200, "application/json", &b);
}

/* vLLM's names for it: how many tokens are left, -1 as many as the model takes, and of which end; whether numbers
 * become probabilities; whether the model's own tokens stand around a text. */
static void read_vllm(exchange *x, bool *truncate, int64_t *most) {
    static const struct {
        const char *name, *why;
    } flags[] = { { "use_activation", "the numbers are probabilities" },
                  { "activation", "the numbers are probabilities" },
                  { "add_special_tokens", "a text stands in the form that the model was made for" } };
    int64_t n = 0;
    view    side;
    if (read_int(&x->in, &x->body, "truncate_prompt_tokens", -1, INT32_MAX, &n)) {
        node at = node_get(&x->body, "truncate_prompt_tokens");
        if (n == 0) reader_fail(&x->in, &at, "leaves no token");
        *truncate = true;
        *most = n > 0 ? n : 0;
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool on = true;
        node at = node_get(&x->body, flags[i].name);
        if (read_bool(&x->in, &x->body, flags[i].name, &on) && !on)
            reader_fail(&x->in, &at, "only true is supported: %s", flags[i].why);
    }
    if (read_string(&x->in, &x->body, "truncation_side", &side) && !view_eq_c(side, "right")) {
        node at = node_get(&x->body, "truncation_side");
        reader_fail(&x->in, &at, "only \"right\" is supported: texts lose their end");
    }
}

void native_classify(exchange *x) {
    view             model;
    bool             truncate = false;
    int64_t          most = 0;
    runtime_request *q = NULL;
    size_t           n = 0;
    bool             known = params_model(x, &x->body, false, &model);
    if (!known && !x->in.failed) return;
    read_bool(&x->in, &x->body, "truncate", &truncate);
    read_vllm(x, &truncate, &most);
    read_any(&x->in, &x->body, "user");
    node input = read_any(&x->in, &x->body, "input");
    params_pairs(x, &input, VECTORS_MAX_TEXTS, &q, &n);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (!q) return;
    classify_state *s = calloc(1, sizeof *s);
    if (s) {
        str_init(&s->labels);
        x->state = s;
        x->state_free = state_free;
        s->items = calloc(n, sizeof *s->items);
    }
    if (!s || !s->items) {
        exchange_error_nomem(x);
        return;
    }
    s->model = model;
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        q[i].task = RUNTIME_CLASSIFY;
        q[i].truncate = truncate;
        q[i].n_ctx = (int)most;
    }
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = q,
                                      .n_requests = n,
                                      .on_event = on_event,
                                      .on_over = on_over });
}

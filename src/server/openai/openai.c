/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI: errors, usage, log-probabilities, server-sent events. */
#include "server/openai/openai.h"

#include "server/error_table.h"
#include "server/handlers.h"

#include <string.h>

void openai_put_error(str *out, const failure *f) {
    jw w = jw_of(out);
    jw_open(&w, '{');
    jw_key(&w, "error");
    jw_open(&w, '{');
    jw_put_cstr(&w, "message", f->message);
    jw_put_cstr(&w, "type", error_status_of(f->status)->openai);
    jw_put_cstr(&w, "param", f->param[0] ? f->param : NULL);
    jw_put_cstr(&w, "code", f->code[0] ? f->code : NULL);
    jw_close(&w, '}');
    jw_close(&w, '}');
}

void openai_put_event(exchange *x, const str *json) {
    exchange_put(x, "data: ", 6);
    exchange_put(x, str_cstr(json), json->len);
    exchange_put(x, "\n\n", 2);
}

static void openai_put_stream_error(exchange *x, const failure *f, const str *body) {
    (void)f;
    openai_put_event(x, body);
}

void openai_heartbeat(exchange *x) { exchange_put(x, ": waiting\n\n", 11); }

const api api_openai = { "openai", openai_put_error, openai_put_stream_error, .heartbeat = openai_heartbeat };
const api api_native = { "native", openai_put_error, openai_put_stream_error, .heartbeat = openai_heartbeat };

void openai_put_usage(jw *w, const runtime_usage *u) {
    jw_key(w, "usage");
    jw_open(w, '{');
    jw_put_int(w, "prompt_tokens", u->prompt_tokens);
    jw_put_int(w, "completion_tokens", u->generated_tokens);
    jw_put_int(w, "total_tokens", u->prompt_tokens + u->generated_tokens);
    jw_key(w, "prompt_tokens_details");
    jw_open(w, '{');
    jw_put_int(w, "cached_tokens", u->cached_tokens);
    jw_close(w, '}');
    jw_key(w, "completion_tokens_details");
    jw_open(w, '{');
    jw_put_int(w, "reasoning_tokens", u->reasoning_tokens);
    jw_put_int(w, "accepted_prediction_tokens", u->predicted ? u->accepted_tokens : 0);
    jw_put_int(w, "rejected_prediction_tokens", u->predicted ? u->drafted_tokens - u->accepted_tokens : 0);
    jw_close(w, '}');
    jw_close(w, '}');
}

void openai_put_timings(jw *w, const runtime_usage *u) {
    int evaluated = u->prompt_tokens - u->cached_tokens;
    jw_key(w, "timings");
    jw_open(w, '{');
    jw_put_int(w, "cache_n", u->cached_tokens);
    jw_put_int(w, "prompt_n", evaluated);
    jw_put_real(w, "prompt_ms", u->prompt_s * 1e3);
    jw_put_real(w, "prompt_per_second", u->prompt_s > 0 ? evaluated / u->prompt_s : 0);
    jw_put_int(w, "predicted_n", u->generated_tokens);
    jw_put_real(w, "predicted_ms", u->generate_s * 1e3);
    jw_put_real(w, "predicted_per_second", u->generate_s > 0 ? u->generated_tokens / u->generate_s : 0);
    jw_put_int(w, "draft_n", u->drafted_tokens);
    jw_put_int(w, "draft_n_accepted", u->accepted_tokens);
    jw_close(w, '}');
}

const char *openai_finish(runtime_finish f) {
    switch (f) {
    case RUNTIME_LENGTH: return "length";
    case RUNTIME_TOOL_CALLS: return "tool_calls";
    default: return "stop";
    }
}

static void put_token(jw *w, view bytes, double logprob) {
    jw_put_text(w, "token", bytes);
    jw_put_real(w, "logprob", logprob < -9999 ? -9999.0 : logprob);
    jw_key(w, "bytes");
    jw_open(w, '[');
    for (size_t i = 0; i < bytes.len; i++) jw_int(w, (unsigned char)bytes.data[i]);
    jw_close(w, ']');
}

void openai_put_logprob(jw *w, const runtime_event *ev, bool ids) {
    jw_open(w, '{');
    if (ids) jw_put_int(w, "id", ev->token);
    put_token(w, ev->bytes, ev->logprob);
    jw_key(w, "top_logprobs");
    jw_open(w, '[');
    for (int i = 0; i < ev->n_top; i++) {
        jw_open(w, '{');
        if (ids) jw_put_int(w, "id", ev->top[i].token);
        put_token(w, ev->top[i].bytes, ev->top[i].logprob);
        jw_close(w, '}');
    }
    jw_close(w, ']');
    jw_close(w, '}');
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "server/grpc/grpc.h"

#include "base/log.h"
#include "server/error_table.h"
#include "server/handlers.h"
#include "server/http/base64.h"
#include "server/internal.h"
#include "server/ollama/ollama.h"
#include "server/openai/openai.h"

#include <stdio.h>
#include <string.h>

/* --- messages in bodies --- */

size_t grpc_open(str *out) {
    str_append(out, "\0\0\0\0", 5);
    return out->len;
}

void grpc_close(str *out, size_t at) {
    size_t n = out->len - at;
    if (!str_ok(out)) return;
    for (int i = 0; i < 4; i++) out->data[at - 4 + (size_t)i] = (char)(n >> (24 - 8 * i));
}

bool grpc_next(view *body, view *message, err *e) {
    const uint8_t *p = (const uint8_t *)body->data;
    if (body->len < 5) return false;
    size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (p[0] > 1) {
        err_set(e, ERR_FORMAT, "a message does not begin with a flag of 0 or 1");
        return false;
    }
    if (p[0] == 1) {
        err_set(e, ERR_UNSUPPORTED, "compressed messages are not supported; send them as they are");
        return false;
    }
    if (n > body->len - 5) return false;
    *message = (view){ body->data + 5, n };
    *body = (view){ body->data + 5 + n, body->len - 5 - n };
    return true;
}

static const grpc_method *method_of(const exchange *x) {
    return (const grpc_method *)(const void *)((const char *)x->route - offsetof(grpc_method, route));
}

/* The one message that a call of these methods has. */
static bool read_body(exchange *x) {
    view body = { str_cstr(&x->http->body), x->http->body.len }, message;
    err  e = { 0 };
    if (!grpc_next(&body, &message, &e)) {
        if (e.code == ERR_UNSUPPORTED) {
            exchange_header(x, "grpc-accept-encoding", "identity");
            exchange_error(x, 501, "unsupported_encoding", NULL, "%s", e.msg);
        } else {
            exchange_error(x, 400, "invalid_message", NULL, "%s",
                           e.code     ? e.msg
                           : body.len ? "the message is cut off"
                                      : "the call has no message");
        }
        return false;
    }
    if (body.len) {
        exchange_error(x, 400, "invalid_message", NULL, "the call has more than one message");
        return false;
    }
    if (pb_read(method_of(x)->in, message, &x->doc.root, &e) == 0) return true;
    if (e.code == ERR_NOMEM)
        exchange_error_nomem(x);
    else
        exchange_error(x, 400, "invalid_message", NULL, "%s", e.msg);
    return false;
}

/* --- answers --- */

/* A handler's JSON as a message; nothing is an empty one. */
static int write_message(const pb_message *m, const str *json, str *out, err *e) {
    json_doc d = { NULL };
    int      rc = json->len ? json_doc_parse(&d, str_cstr(json), json->len, e) : 0;
    if (rc == 0) {
        size_t at = grpc_open(out);
        rc = d.root ? pb_write(m, d.root, out, e) : 0;
        grpc_close(out, at);
    }
    json_doc_deinit(&d);
    return rc;
}

static int put_reply(exchange *x, int status, const char *type, str *body) {
    str out;
    err e = { 0 };
    if (strcmp(type, GRPC_TYPE) == 0) return status;
    str_init(&out);
    if (write_message(method_of(x)->out, body, &out, &e) < 0) {
        log_error("server", "%s: %s", x->route->path, e.msg);
        str_clear(&out);
        status = 500;
    }
    str_deinit(body);
    *body = out;
    return status;
}

/* Text as a header has it: what is not printable, and the percent sign, as %XX. */
static void put_encoded(str *out, const char *text) {
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p >= 0x20 && *p <= 0x7e && *p != '%')
            str_push(out, (char)*p);
        else
            str_printf(out, "%%%02X", *p);
    }
}

/* google.rpc.Status with an ErrorInfo: the failure's code and field for programs. */
static void put_details(str *out, int code, const failure *f) {
    enum { STATUS_CODE = 1, STATUS_MESSAGE, STATUS_DETAILS };
    enum { ANY_TYPE = 1, ANY_VALUE };
    enum { INFO_REASON = 1, INFO_DOMAIN, INFO_METADATA };
    str s;
    str_init(&s);
    pb_put_int(&s, STATUS_CODE, code);
    pb_put_text(&s, STATUS_MESSAGE, view_of(f->message));
    size_t any = pb_open(&s, STATUS_DETAILS);
    pb_put_text(&s, ANY_TYPE, view_of("type.googleapis.com/google.rpc.ErrorInfo"));
    size_t info = pb_open(&s, ANY_VALUE);
    pb_put_text(&s, INFO_REASON, view_of(f->code));
    pb_put_text(&s, INFO_DOMAIN, view_of("hearth"));
    if (f->param[0]) {
        size_t entry = pb_open(&s, INFO_METADATA);
        pb_put_text(&s, 1, view_of("param"));
        pb_put_text(&s, 2, view_of(f->param));
        pb_close(&s, entry);
    }
    pb_close(&s, info);
    pb_close(&s, any);
    str_puts(out, "grpc-status-details-bin: ");
    if (str_ok(&s)) base64_put(out, s.data, s.len);
    str_puts(out, "\r\n");
    str_deinit(&s);
}

static void put_trailers(const exchange *x, str *out) {
    const exchange_core *c = x->core;
    int                  code = error_status_of(c->failed ? c->failure.status : c->status)->grpc;
    str_printf(out, "grpc-status: %d\r\n", code);
    if (code == 0) return;
    str_puts(out, "grpc-message: ");
    put_encoded(out, c->failed ? c->failure.message : "the answer could not be written");
    str_puts(out, "\r\n");
    if (c->failed && (c->failure.code[0] || c->failure.param[0])) put_details(out, code, &c->failure);
}

const api api_grpc = { .name = "grpc",
                       .put_error = openai_put_error,
                       .read_body = read_body,
                       .put_reply = put_reply,
                       .put_trailers = put_trailers };

bool grpc_timeout(view text, int64_t *out_us) {
    static const struct {
        char   unit;
        double us;
    } units[] = { { 'H', 3600e6 }, { 'M', 60e6 }, { 'S', 1e6 }, { 'm', 1e3 }, { 'u', 1 }, { 'n', 1e-3 } };
    double n = 0;
    if (text.len < 2 || text.len > 9) return false;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        n = n * 10 + (text.data[i] - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (units[i].unit != text.data[text.len - 1]) continue;
        *out_us = (int64_t)(n * units[i].us);
        return true;
    }
    return false;
}

/* --- models --- */

static void get_model(exchange *x) {
    read_string(&x->in, &x->body, "model", &x->tail);
    openai_model(x);
}

static void write_pull(str *out, const pull_progress *p) {
    size_t at = grpc_open(out);
    pb_put_text(out, PULL_STATUS, view_of(p->status));
    if (p->digest) pb_put_text(out, PULL_DIGEST, view_of(p->digest));
    pb_put_int(out, PULL_TOTAL, p->total);
    pb_put_int(out, PULL_COMPLETED, p->completed);
    grpc_close(out, at);
}

static void call_pull(exchange *x) { ollama_pull_with(x, write_pull, GRPC_TYPE); }

/* --- the methods --- */

#define METHOD(service, name, in, out, streams, handler, flags)                                                        \
    {                                                                                                                  \
        name, &(in), &(out), false, streams, { "POST", "/" service "/" name, &api_grpc, handler, flags }               \
    }

#define INFERENCE "hearth.v1.Inference"
static const grpc_method inference[] = {
    METHOD(INFERENCE, "Chat", pb_chat_request, pb_answer, false, grpc_chat, ROUTE_BODY),
    METHOD(INFERENCE, "ChatStream", pb_chat_request, pb_event, true, grpc_chat_stream, ROUTE_BODY),
    METHOD(INFERENCE, "Complete", pb_complete_request, pb_answer, false, grpc_complete, ROUTE_BODY),
    METHOD(INFERENCE, "CompleteStream", pb_complete_request, pb_event, true, grpc_complete_stream, ROUTE_BODY),
    METHOD(INFERENCE, "Embed", pb_embed_request, pb_vector, true, grpc_embed, ROUTE_BODY),
    METHOD(INFERENCE, "Rerank", pb_rerank_request, pb_rerank_answer, false, native_rerank, ROUTE_BODY),
};

#define TEXT "hearth.v1.Text"
static const grpc_method text[] = {
    METHOD(TEXT, "Tokenize", pb_tokenize_request, pb_tokenize_answer, false, native_tokenize, ROUTE_BODY | ROUTE_SLOW),
    METHOD(TEXT, "Detokenize", pb_detokenize_request, pb_detokenize_answer, false, native_detokenize,
           ROUTE_BODY | ROUTE_SLOW),
    METHOD(TEXT, "Render", pb_chat_request, pb_render_answer, false, native_apply_template, ROUTE_BODY | ROUTE_SLOW),
    METHOD(TEXT, "Count", pb_chat_request, pb_count_answer, false, native_count, ROUTE_BODY | ROUTE_SLOW),
};

#define MODELS "hearth.v1.Models"
#define REGISTRY (ROUTE_BODY | ROUTE_NAMES | ROUTE_SLOW)
static const grpc_method models[] = {
    METHOD(MODELS, "List", pb_list_models_request, pb_list_models_answer, false, openai_models, ROUTE_BODY),
    METHOD(MODELS, "Get", pb_get_model_request, pb_model, false, get_model, ROUTE_BODY),
    METHOD(MODELS, "Load", pb_load_model_request, pb_model_status, false, native_load, ROUTE_BODY | ROUTE_SLOW),
    METHOD(MODELS, "Unload", pb_unload_model_request, pb_model_status, false, native_unload, ROUTE_BODY | ROUTE_SLOW),
    METHOD(MODELS, "Pull", pb_pull_model_request, pb_pull_progress, true, call_pull, REGISTRY),
    METHOD(MODELS, "Copy", pb_copy_model_request, pb_copy_model_answer, false, ollama_copy_model, REGISTRY),
    METHOD(MODELS, "Delete", pb_delete_model_request, pb_delete_model_answer, false, ollama_delete, REGISTRY),
};

#define HEALTH "grpc.health.v1.Health"
#define OPEN (ROUTE_BODY | ROUTE_NAMES | ROUTE_INLINE | ROUTE_OPEN | ROUTE_QUIET)
static const grpc_method health[] = {
    METHOD(HEALTH, "Check", pb_health_request, pb_health_response, false, health_check, OPEN),
    METHOD(HEALTH, "Watch", pb_health_request, pb_health_response, true, health_watch, OPEN),
};

/* What the messages of reflection are, reflect.c knows: they are not described. */
#define REFLECTION "ServerReflectionInfo"
#define V1 "grpc.reflection.v1.ServerReflection"
#define V1_ALPHA "grpc.reflection.v1alpha.ServerReflection"
#define REFLECT (ROUTE_PIECES | ROUTE_QUIET)
static const grpc_method reflection[] = {
    { REFLECTION, NULL, NULL, true, true, { "POST", "/" V1 "/" REFLECTION, &api_grpc, reflect_call, REFLECT } },
};
static const grpc_method reflection_alpha[] = {
    { REFLECTION, NULL, NULL, true, true, { "POST", "/" V1_ALPHA "/" REFLECTION, &api_grpc, reflect_call, REFLECT } },
};

#define SERVICE(name, methods)                                                                                         \
    { name, methods, sizeof(methods) / sizeof((methods)[0]) }
static const grpc_service inference_service = SERVICE(INFERENCE, inference), text_service = SERVICE(TEXT, text),
                          models_service = SERVICE(MODELS, models), health_service = SERVICE(HEALTH, health),
                          reflection_service = SERVICE(V1, reflection),
                          alpha_service = SERVICE(V1_ALPHA, reflection_alpha);

static const char *const no_imports[] = { NULL }, *const text_imports[] = { "hearth/v1/inference.proto", NULL };
static const pb_message *const          no_messages[] = { NULL };
static const grpc_service *const        inference_services[] = { &inference_service, NULL },
                                 *const text_services[] = { &text_service, NULL },
                                 *const models_services[] = { &models_service, NULL },
                                 *const health_services[] = { &health_service, NULL },
                                 *const reflection_services[] = { &reflection_service, &alpha_service, NULL };

static const grpc_file inference_file = { "hearth/v1/inference.proto", "hearth.v1", no_imports,
                                          pb_inference_messages,       &pb_finish,  inference_services },
                       text_file = { "hearth/v1/text.proto", "hearth.v1", text_imports,
                                     pb_text_messages,       NULL,        text_services },
                       models_file = { "hearth/v1/models.proto", "hearth.v1", no_imports,
                                       pb_models_messages,       NULL,        models_services },
                       health_file = { "grpc/health/v1/health.proto",
                                       "grpc.health.v1",
                                       no_imports,
                                       pb_health_messages,
                                       NULL,
                                       health_services },
                       reflection_file = { NULL, NULL, no_imports, no_messages, NULL, reflection_services };

const grpc_file *const grpc_files[] = {
    &inference_file, &text_file, &models_file, &health_file, &reflection_file, NULL
};

const route *grpc_find(view path) {
    for (const grpc_file *const *f = grpc_files; *f; f++) {
        for (const grpc_service *const *s = (*f)->services; *s; s++) {
            for (size_t i = 0; i < (*s)->n_methods; i++) {
                if (view_eq_c(path, (*s)->methods[i].route.path)) return &(*s)->methods[i].route;
            }
        }
    }
    return NULL;
}

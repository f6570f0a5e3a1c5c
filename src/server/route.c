/* SPDX-License-Identifier: Apache-2.0 */
/* The routing table: every endpoint of the server, in one place. HEAD works wherever GET does, OPTIONS everywhere. */
#include "server/handlers.h"

#include <string.h>

const route server_routes[] = {
    { "GET", "/health", &api_native, ops_health, ROUTE_STATS | ROUTE_INLINE | ROUTE_OPEN },
    { "GET", "/v1/health", &api_native, ops_health, ROUTE_STATS | ROUTE_INLINE | ROUTE_OPEN },
    { "GET", "/health/live", &api_native, ops_live, ROUTE_INLINE | ROUTE_OPEN | ROUTE_QUIET },
    { "GET", "/health/ready", &api_native, ops_ready, ROUTE_INLINE | ROUTE_OPEN | ROUTE_QUIET },
    { "GET", "/metrics", &api_native, ops_metrics, ROUTE_STATS | ROUTE_INLINE | ROUTE_UNCOUNTED },
    { "GET", "/v1/stats", &api_native, ops_stats, ROUTE_STATS | ROUTE_INLINE },
    { "GET", "/v1/requests", &api_native, ops_requests, ROUTE_INLINE },
    { "POST", "/v1/requests/{id}/cancel", &api_native, ops_cancel, ROUTE_INLINE | ROUTE_RAW },
    { "GET", "/v1/events", &api_native, ops_events, ROUTE_INLINE | ROUTE_UNCOUNTED | ROUTE_QUIET },
    { "GET", "/v1/logs", &api_native, ops_logs, ROUTE_INLINE },
    { "GET", "/v1/pulls", &api_native, ops_pulls, 0 },
    { "POST", "/v1/pulls", &api_native, ops_pull, ROUTE_BODY | ROUTE_NAMES | ROUTE_SLOW },
    { "DELETE", "/v1/pulls", &api_native, ops_pull_end, 0 },
    { "GET", "/v1/config", &api_native, ops_config, ROUTE_INLINE },
    { "PUT", "/v1/config", &api_native, ops_config_put, ROUTE_BODY | ROUTE_NAMES | ROUTE_SLOW },
    { "POST", "/v1/config/check", &api_native, ops_config_check, ROUTE_BODY | ROUTE_NAMES },
    { "GET", "/v1/doctor", &api_native, ops_doctor, ROUTE_SLOW },
    { "GET", "/v1/fit", &api_native, ops_fit, ROUTE_SLOW },
    { "GET", "/v1/catalogue", &api_native, ops_catalogue, ROUTE_SLOW },
    { "GET", "/v1/hub", &api_native, ops_hub, ROUTE_SLOW },
    { "GET", "/v1/chats", &api_native, ops_chats, ROUTE_SLOW },
    { "GET", "/v1/chats/{id}", &api_native, ops_chat_get, ROUTE_SLOW },
    { "PUT", "/v1/chats/{id}", &api_native, ops_chat_put, ROUTE_RAW | ROUTE_SLOW },
    { "DELETE", "/v1/chats/{id}", &api_native, ops_chat_delete, ROUTE_RAW | ROUTE_SLOW },
    { "GET", "/ui", &api_native, ops_ui, ROUTE_INLINE | ROUTE_PUBLIC | ROUTE_QUIET },
    { "GET", "/assets/{name}", &api_native, ops_asset, ROUTE_INLINE | ROUTE_PUBLIC | ROUTE_QUIET },
    { "GET", "/slots", &api_native, ops_slots, ROUTE_INLINE },
    { "GET", "/lora-adapters", &api_native, native_adapters, 0 },
    { "POST", "/lora-adapters", &api_native, native_set_adapters, ROUTE_RAW | ROUTE_SLOW },
    { "GET", "/props", &api_native, native_props, ROUTE_SLOW },
    { "POST", "/tokenize", &api_native, native_tokenize, ROUTE_BODY | ROUTE_SLOW },
    { "POST", "/detokenize", &api_native, native_detokenize, ROUTE_BODY | ROUTE_SLOW },
    { "POST", "/apply-template", &api_native, native_apply_template, ROUTE_BODY | ROUTE_SLOW },
    { "POST", "/completion", &api_native, native_complete, ROUTE_BODY },
    { "POST", "/completions", &api_native, native_complete, ROUTE_BODY },
    { "POST", "/embedding", &api_native, native_embed, ROUTE_BODY },
    { "POST", "/embeddings", &api_native, native_embed, ROUTE_BODY },
    { "POST", "/chat/completions", &api_openai, openai_chat, ROUTE_BODY },
    { "GET", "/models", &api_openai, openai_models, 0 },
    { "POST", "/infill", &api_native, native_infill, ROUTE_BODY },
    { "POST", "/rerank", &api_native, native_rerank, ROUTE_BODY },
    { "POST", "/reranking", &api_native, native_rerank, ROUTE_BODY },
    { "POST", "/v1/reranking", &api_native, native_rerank, ROUTE_BODY },
    { "POST", "/v1/rerank", &api_native, native_rerank, ROUTE_BODY },
    { "POST", "/classify", &api_native, native_classify, ROUTE_BODY },
    { "POST", "/v1/classify", &api_native, native_classify, ROUTE_BODY },
    { "POST", "/v1/models/load", &api_native, native_load, ROUTE_BODY | ROUTE_SLOW },
    { "POST", "/v1/models/unload", &api_native, native_unload, ROUTE_BODY | ROUTE_SLOW },

    { "POST", "/v1/chat/completions", &api_openai, openai_chat, ROUTE_BODY },
    { "POST", "/v1/completions", &api_openai, openai_complete, ROUTE_BODY },
    { "POST", "/v1/embeddings", &api_openai, openai_embed, ROUTE_BODY },
    { "POST", "/v1/audio/transcriptions", &api_openai_form, openai_transcribe, ROUTE_BODY },
    { "POST", "/v1/audio/translations", &api_openai_form, openai_translate, ROUTE_BODY },
    { "POST", "/v1/responses", &api_responses, openai_responses, ROUTE_BODY },
    { "POST", "/v1/responses/input_tokens", &api_openai, openai_responses_count, ROUTE_BODY | ROUTE_SLOW },
    { "GET", "/v1/responses/{id}/input_items", &api_openai, openai_response_items, 0 },
    { "GET", "/v1/responses/{id}", &api_openai, openai_response_get, 0 },
    { "DELETE", "/v1/responses/{id}", &api_openai, openai_response_delete, ROUTE_RAW },
    { "POST", "/v1/conversations", &api_openai, openai_conversations, ROUTE_RAW },
    { "GET", "/v1/conversations/{id}", &api_openai, openai_conversations, 0 },
    { "POST", "/v1/conversations/{id}", &api_openai, openai_conversations, ROUTE_RAW },
    { "DELETE", "/v1/conversations/{id}", &api_openai, openai_conversations, ROUTE_RAW },
    { "GET", "/v1/models", &api_openai, openai_models, 0 },
    { "GET", "/v1/models/{id}", &api_openai, openai_model, 0 },

    { "POST", "/v1/messages", &api_anthropic, anthropic_messages, ROUTE_BODY },
    { "POST", "/v1/messages/count_tokens", &api_anthropic, anthropic_count, ROUTE_BODY | ROUTE_SLOW },

    { "GET", "/", &api_ollama, ops_root, ROUTE_INLINE | ROUTE_PUBLIC | ROUTE_QUIET },
    { "GET", "/api/version", &api_ollama, ollama_version, ROUTE_INLINE },
    { "POST", "/api/generate", &api_ollama, ollama_generate, ROUTE_BODY | ROUTE_SLOW },
    { "POST", "/api/chat", &api_ollama, ollama_chat, ROUTE_BODY | ROUTE_SLOW },
    { "POST", "/api/embed", &api_ollama, ollama_embed, ROUTE_BODY },
    { "POST", "/api/embeddings", &api_ollama, ollama_embeddings, ROUTE_BODY },
    { "GET", "/api/tags", &api_ollama, ollama_tags, 0 },
    { "GET", "/api/ps", &api_ollama, ollama_ps, ROUTE_INLINE },
    { "POST", "/api/show", &api_ollama, ollama_show, ROUTE_BODY | ROUTE_SLOW },
    { "POST", "/api/pull", &api_ollama, ollama_pull, ROUTE_BODY | ROUTE_NAMES | ROUTE_SLOW },
    { "POST", "/api/push", &api_ollama, ollama_push, ROUTE_INLINE | ROUTE_RAW },
    { "POST", "/api/create", &api_ollama, ollama_create, ROUTE_BODY | ROUTE_NAMES | ROUTE_SLOW },
    { "POST", "/api/copy", &api_ollama, ollama_copy_model, ROUTE_BODY | ROUTE_NAMES | ROUTE_SLOW },
    { "DELETE", "/api/delete", &api_ollama, ollama_delete, ROUTE_BODY | ROUTE_NAMES | ROUTE_SLOW },
    { "HEAD", "/api/blobs/{digest}", &api_ollama, ollama_blob_head, ROUTE_SLOW },
    { "POST", "/api/blobs/{digest}", &api_ollama, ollama_blob_put, ROUTE_RAW | ROUTE_SLOW | ROUTE_UPLOAD },
    { 0 },
};

static bool matches(const char *pattern, view path, view *tail) {
    const char *open = strchr(pattern, '{');
    *tail = (view){ "", 0 };
    if (!open) return view_eq_c(path, pattern);
    size_t      before = (size_t)(open - pattern);
    const char *after = strchr(open, '}') + 1;
    size_t      n_after = strlen(after);
    if (path.len <= before + n_after || memcmp(path.data, pattern, before) != 0) return false;
    if (memcmp(path.data + path.len - n_after, after, n_after) != 0) return false;
    *tail = (view){ path.data + before, path.len - before - n_after };
    return true;
}

const route *route_find(view method, view path, view *tail, bool *path_known) {
    *path_known = false;
    for (const route *r = server_routes; r->method; r++) {
        if (!matches(r->path, path, tail)) continue;
        *path_known = true;
        if (view_eq_c(method, r->method)) return r;
    }
    return NULL;
}

void route_allow(view path, str *out) {
    view tail;
    for (const route *r = server_routes; r->method; r++) {
        if (!matches(r->path, path, &tail) || strstr(str_cstr(out), r->method)) continue;
        str_printf(out, "%s%s%s", out->len ? ", " : "", r->method, strcmp(r->method, "GET") == 0 ? ", HEAD" : "");
    }
    str_printf(out, "%sOPTIONS", out->len ? ", " : "");
}

const api *route_api(view path) {
    view tail;
    for (const route *r = server_routes; r->method; r++) {
        if (matches(r->path, path, &tail)) return r->api;
    }
    if (view_starts(path, "/api/")) return &api_ollama;
    return view_starts(path, "/v1/messages/") ? &api_anthropic : &api_openai;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Every endpoint is one function; route.c binds them to paths. */
#ifndef SERVER_HANDLERS_H
#define SERVER_HANDLERS_H

#include "server/exchange.h"
#include "server/library.h"

extern const api api_openai;      /* also the shape of native errors */
extern const api api_openai_form; /* the same, with bodies that may be forms */
extern const api api_native;
extern const api api_responses; /* OpenAI's, with the events of its newer streams */
extern const api api_anthropic;
extern const api api_ollama;
extern const api api_grpc;

typedef void handler(exchange *x);

/* ops/health.c */
extern handler ops_health, ops_live, ops_ready;

/* ops.c */
extern handler ops_metrics, ops_stats, ops_requests, ops_cancel, ops_slots;

/* ops/events.c, ops/pulls.c, ops/logs.c */
extern handler ops_events, ops_logs, ops_pulls, ops_pull, ops_pull_end;
bool           ops_own_origin(exchange *x, const char *what); /* false: a page of elsewhere asks (answered) */
library       *ops_library(exchange *x);                      /* NULL: the models are fixed (answered) */

/* ops/settings.c, ops/fit.c */
extern handler ops_config, ops_config_put, ops_config_check, ops_doctor, ops_fit, ops_catalogue, ops_hub;

/* ops/chats.c */
extern handler ops_chats, ops_chat_get, ops_chat_put, ops_chat_delete;

/* ops/ui.c */
extern handler ops_root, ops_ui, ops_asset;

/* native.c */
extern handler native_adapters, native_set_adapters, native_props, native_tokenize, native_detokenize,
    native_apply_template, native_count, native_infill, native_complete, native_embed, native_rerank, native_load,
    native_unload, native_classify;

/* openai*.c */
extern handler openai_transcribe, openai_translate, openai_chat, openai_complete, openai_embed, openai_models,
    openai_model, openai_responses, openai_responses_count, openai_response_get, openai_response_delete,
    openai_response_items, openai_conversations;

/* anthropic.c */
extern handler anthropic_messages, anthropic_count;

/* ollama*.c */
extern handler ollama_root, ollama_version, ollama_generate, ollama_chat, ollama_embed, ollama_embeddings, ollama_tags,
    ollama_ps, ollama_show, ollama_pull, ollama_push, ollama_create, ollama_copy_model, ollama_delete, ollama_blob_head,
    ollama_blob_put;

#endif

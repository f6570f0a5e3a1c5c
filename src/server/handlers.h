/* SPDX-License-Identifier: Apache-2.0 */
/* Every endpoint is one function; route.c binds them to paths. */
#ifndef SERVER_HANDLERS_H
#define SERVER_HANDLERS_H

#include "server/exchange.h"

extern const api api_openai; /* also the shape of native errors */
extern const api api_native;
extern const api api_responses; /* OpenAI's, with the events of its newer streams */
extern const api api_anthropic;
extern const api api_ollama;

/* ops.c */
void ops_health(exchange *x);
void ops_metrics(exchange *x);
void ops_stats(exchange *x);
void ops_requests(exchange *x);
void ops_cancel(exchange *x);
void ops_slots(exchange *x);

/* ops/events.c, ops/pulls.c, ops/logs.c */
void ops_events(exchange *x);
void ops_logs(exchange *x);
void ops_pulls(exchange *x);
void ops_pull(exchange *x);
void ops_pull_end(exchange *x);

/* ops/settings.c, ops/fit.c */
void ops_config(exchange *x);
void ops_config_check(exchange *x);
void ops_doctor(exchange *x);
void ops_fit(exchange *x);
void ops_catalogue(exchange *x);

/* ops/ui.c */
void ops_root(exchange *x);
void ops_ui(exchange *x);
void ops_asset(exchange *x);

/* native.c */
void native_adapters(exchange *x);
void native_set_adapters(exchange *x);
void native_props(exchange *x);
void native_tokenize(exchange *x);
void native_detokenize(exchange *x);
void native_apply_template(exchange *x);
void native_infill(exchange *x);
void native_complete(exchange *x);
void native_embed(exchange *x);
void native_rerank(exchange *x);
void native_load(exchange *x);
void native_unload(exchange *x);

/* openai*.c */
void openai_chat(exchange *x);
void openai_complete(exchange *x);
void openai_embed(exchange *x);
void openai_models(exchange *x);
void openai_model(exchange *x);
void openai_responses(exchange *x);
void openai_responses_count(exchange *x);
void openai_response_get(exchange *x);
void openai_response_delete(exchange *x);
void openai_response_items(exchange *x);
void openai_conversations(exchange *x);

/* anthropic.c */
void anthropic_messages(exchange *x);
void anthropic_count(exchange *x);

/* ollama*.c */
void ollama_root(exchange *x);
void ollama_version(exchange *x);
void ollama_generate(exchange *x);
void ollama_chat(exchange *x);
void ollama_embed(exchange *x);
void ollama_embeddings(exchange *x);
void ollama_tags(exchange *x);
void ollama_ps(exchange *x);
void ollama_show(exchange *x);
void ollama_pull(exchange *x);
void ollama_push(exchange *x);
void ollama_create(exchange *x);
void ollama_copy_model(exchange *x);
void ollama_delete(exchange *x);
void ollama_blob_head(exchange *x);
void ollama_blob_put(exchange *x);

#endif

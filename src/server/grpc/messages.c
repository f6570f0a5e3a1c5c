/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of all messages, in the order of proto/, and where their values stand in the JSON of the REST paths.
 */
#include "server/grpc/schema.h"

static const char *const finish_values[] = { "FINISH_UNSPECIFIED", "FINISH_STOP", "FINISH_LENGTH", "FINISH_TOOL_CALLS",
                                             NULL };
const pb_enum            pb_finish = { "Finish", finish_values };

/* clang-format off */
static const pb_field logit_bias_entry_fields[] = {
    { 1, PB_INT32, 0, .name = "key" },
    { 2, PB_DOUBLE, 0, .name = "value" },
    { 0 },
};
static const pb_message pb_logit_bias_entry = { "hearth.v1.Sampling.LogitBiasEntry", .fields = logit_bias_entry_fields };

static const pb_field sampling_fields[] = {
    { 1, PB_DOUBLE, PB_OPTIONAL, .name = "temperature" },
    { 2, PB_INT32, PB_OPTIONAL, .name = "top_k" },
    { 3, PB_DOUBLE, PB_OPTIONAL, .name = "top_p" },
    { 4, PB_DOUBLE, PB_OPTIONAL, .name = "min_p" },
    { 5, PB_DOUBLE, PB_OPTIONAL, .name = "typical_p" },
    { 6, PB_DOUBLE, PB_OPTIONAL, .name = "top_n_sigma" },
    { 7, PB_DOUBLE, PB_OPTIONAL, .name = "repeat_penalty" },
    { 8, PB_INT32, PB_OPTIONAL, .name = "repeat_last_n" },
    { 9, PB_DOUBLE, PB_OPTIONAL, .name = "presence_penalty" },
    { 10, PB_DOUBLE, PB_OPTIONAL, .name = "frequency_penalty" },
    { 11, PB_INT32, PB_OPTIONAL, .name = "mirostat" },
    { 12, PB_DOUBLE, PB_OPTIONAL, .name = "mirostat_tau" },
    { 13, PB_DOUBLE, PB_OPTIONAL, .name = "mirostat_eta" },
    { 14, PB_INT64, PB_OPTIONAL, .name = "seed" },
    { 15, PB_DOUBLE, PB_OPTIONAL, .name = "xtc_probability" },
    { 16, PB_DOUBLE, PB_OPTIONAL, .name = "xtc_threshold" },
    { 17, PB_DOUBLE, PB_OPTIONAL, .name = "dry_multiplier" },
    { 18, PB_DOUBLE, PB_OPTIONAL, .name = "dry_base" },
    { 19, PB_INT32, PB_OPTIONAL, .name = "dry_allowed_length" },
    { 20, PB_INT32, PB_OPTIONAL, .name = "dry_penalty_last_n" },
    { 21, PB_DOUBLE, PB_OPTIONAL, .name = "dynatemp_range" },
    { 22, PB_DOUBLE, PB_OPTIONAL, .name = "dynatemp_exponent" },
    { 23, PB_MESSAGE, PB_REPEATED | PB_MAP, .name = "logit_bias", .message = &pb_logit_bias_entry },
    { 24, PB_STRING, PB_REPEATED, .name = "samplers" },
    { 25, PB_STRING, PB_REPEATED, .name = "dry_sequence_breakers" },
    { 0 },
};
static const pb_message pb_sampling = { "hearth.v1.Sampling", .fields = sampling_fields };

static const pb_field token_list_fields[] = {
    { 1, PB_INT32, PB_REPEATED, .name = "ids" },
    { 0 },
};
static const pb_message pb_token_list = { "hearth.v1.TokenList", .fields = token_list_fields, .list = true };

static const pb_field text_list_fields[] = {
    { 1, PB_STRING, PB_REPEATED, .name = "texts" },
    { 0 },
};
static const pb_message pb_text_list = { "hearth.v1.TextList", .fields = text_list_fields, .list = true };

static const pb_field constraint_fields[] = {
    { 1, PB_STRING, PB_JSON, .name = "json_schema", .oneof = "kind" },
    { 2, PB_STRING, 0, .name = "grammar", .oneof = "kind" },
    { 3, PB_STRING, 0, .name = "regex", .oneof = "kind" },
    { 4, PB_MESSAGE, 0, .name = "choice", .message = &pb_text_list, .oneof = "kind", .json = "guided_choice" },
    { 5, PB_BOOL, 0, .name = "json_object", .oneof = "kind", .beside = "{\"response_format\":{\"type\":\"json_object\"}}" },
    { 6, PB_BOOL, PB_OPTIONAL, .name = "strict_json" },
    { 0 },
};
static const pb_message pb_constraint = { "hearth.v1.Constraint", .fields = constraint_fields };

static const pb_field part_fields[] = {
    { 1, PB_STRING, 0, .name = "text", .oneof = "kind", .beside = "{\"type\":\"text\"}" },
    { 2, PB_STRING, 0, .name = "image_url", .oneof = "kind", .json = "image_url.url", .beside = "{\"type\":\"image_url\"}" },
    { 3, PB_BYTES, PB_DATA, .name = "image", .oneof = "kind", .json = "image_url.url", .beside = "{\"type\":\"image_url\"}", .prefix = "data:image/*;base64," },
    { 4, PB_BYTES, PB_DATA, .name = "wav", .oneof = "kind", .json = "input_audio.data", .beside = "{\"type\":\"input_audio\",\"input_audio\":{\"format\":\"wav\"}}" },
    { 5, PB_BYTES, PB_DATA, .name = "mp3", .oneof = "kind", .json = "input_audio.data", .beside = "{\"type\":\"input_audio\",\"input_audio\":{\"format\":\"mp3\"}}" },
    { 0 },
};
static const pb_message pb_part = { "hearth.v1.Part", .fields = part_fields };

static const pb_field tool_call_fields[] = {
    { 1, PB_STRING, PB_DEFAULT, .name = "id" },
    { 2, PB_STRING, 0, .name = "name", .json = "function.name" },
    { 3, PB_STRING, 0, .name = "arguments", .json = "function.arguments" },
    { 0 },
};
static const pb_message pb_tool_call = { "hearth.v1.ToolCall", .fields = tool_call_fields, .beside = "{\"type\":\"function\"}" };

static const pb_field chat_message_fields[] = {
    { 1, PB_STRING, 0, .name = "role" },
    { 2, PB_STRING, PB_OPTIONAL, .name = "content" },
    { 3, PB_MESSAGE, PB_REPEATED, .name = "parts", .message = &pb_part, .json = "content" },
    { 4, PB_STRING, PB_OPTIONAL, .name = "name" },
    { 5, PB_STRING, PB_OPTIONAL, .name = "reasoning_content" },
    { 6, PB_MESSAGE, PB_REPEATED, .name = "tool_calls", .message = &pb_tool_call },
    { 7, PB_STRING, PB_OPTIONAL, .name = "tool_call_id" },
    { 0 },
};
static const pb_message pb_chat_message = { "hearth.v1.Message", .fields = chat_message_fields };

static const pb_field tool_fields[] = {
    { 1, PB_STRING, 0, .name = "name", .json = "function.name" },
    { 2, PB_STRING, PB_OPTIONAL, .name = "description", .json = "function.description" },
    { 3, PB_STRING, PB_OPTIONAL | PB_JSON, .name = "parameters", .json = "function.parameters" },
    { 0 },
};
static const pb_message pb_tool = { "hearth.v1.Tool", .fields = tool_fields, .beside = "{\"type\":\"function\"}" };

static const pb_field lora_fields[] = {
    { 1, PB_STRING, 0, .name = "name" },
    { 2, PB_DOUBLE, PB_OPTIONAL, .name = "scale" },
    { 0 },
};
static const pb_message pb_lora = { "hearth.v1.Lora", .fields = lora_fields };

static const pb_field chat_request_fields[] = {
    { 1, PB_STRING, PB_OPTIONAL, .name = "model" },
    { 2, PB_MESSAGE, PB_REPEATED, .name = "messages", .message = &pb_chat_message },
    { 3, PB_MESSAGE, PB_REPEATED, .name = "tools", .message = &pb_tool },
    { 4, PB_STRING, 0, .name = "tool_choice", .oneof = "choice_of_tool" },
    { 5, PB_STRING, 0, .name = "tool_name", .oneof = "choice_of_tool", .json = "tool_choice.function.name", .beside = "{\"tool_choice\":{\"type\":\"function\"}}" },
    { 6, PB_BOOL, PB_OPTIONAL, .name = "parallel_tool_calls" },
    { 7, PB_MESSAGE, PB_INLINE, .name = "sampling", .message = &pb_sampling },
    { 8, PB_MESSAGE, PB_INLINE, .name = "constraint", .message = &pb_constraint },
    { 9, PB_INT32, PB_OPTIONAL, .name = "max_tokens" },
    { 10, PB_INT32, PB_OPTIONAL, .name = "min_tokens" },
    { 11, PB_INT32, PB_OPTIONAL, .name = "n" },
    { 12, PB_STRING, PB_REPEATED, .name = "stop" },
    { 13, PB_BOOL, PB_OPTIONAL, .name = "logprobs" },
    { 14, PB_INT32, PB_OPTIONAL, .name = "top_logprobs" },
    { 15, PB_BOOL, PB_OPTIONAL, .name = "enable_thinking" },
    { 16, PB_STRING, PB_OPTIONAL, .name = "reasoning_effort" },
    { 17, PB_INT32, PB_OPTIONAL, .name = "thinking_budget" },
    { 18, PB_STRING, PB_OPTIONAL | PB_JSON, .name = "template_vars", .json = "chat_template_kwargs" },
    { 19, PB_BOOL, PB_OPTIONAL, .name = "continue_final_message" },
    { 20, PB_BOOL, PB_OPTIONAL, .name = "cache_prompt" },
    { 21, PB_BOOL, PB_OPTIONAL, .name = "ignore_eos" },
    { 22, PB_INT32, PB_OPTIONAL, .name = "priority" },
    { 23, PB_BOOL, PB_OPTIONAL, .name = "return_progress" },
    { 24, PB_MESSAGE, PB_REPEATED, .name = "lora", .message = &pb_lora },
    { 25, PB_STRING, PB_OPTIONAL, .name = "prediction", .json = "prediction.content", .beside = "{\"prediction\":{\"type\":\"content\"}}" },
    { 0 },
};
const pb_message pb_chat_request = { "hearth.v1.ChatRequest", .fields = chat_request_fields };

static const pb_field complete_request_fields[] = {
    { 1, PB_STRING, PB_OPTIONAL, .name = "model" },
    { 2, PB_STRING, PB_REPEATED, .name = "prompt" },
    { 3, PB_MESSAGE, PB_REPEATED, .name = "prompt_tokens", .message = &pb_token_list, .json = "prompt" },
    { 4, PB_STRING, PB_OPTIONAL, .name = "suffix" },
    { 5, PB_BOOL, PB_OPTIONAL, .name = "echo" },
    { 7, PB_MESSAGE, PB_INLINE, .name = "sampling", .message = &pb_sampling },
    { 8, PB_MESSAGE, PB_INLINE, .name = "constraint", .message = &pb_constraint },
    { 9, PB_INT32, PB_OPTIONAL, .name = "max_tokens" },
    { 10, PB_INT32, PB_OPTIONAL, .name = "min_tokens" },
    { 11, PB_INT32, PB_OPTIONAL, .name = "n" },
    { 12, PB_STRING, PB_REPEATED, .name = "stop" },
    { 14, PB_INT32, PB_OPTIONAL, .name = "top_logprobs", .json = "logprobs" },
    { 20, PB_BOOL, PB_OPTIONAL, .name = "cache_prompt" },
    { 21, PB_BOOL, PB_OPTIONAL, .name = "ignore_eos" },
    { 22, PB_INT32, PB_OPTIONAL, .name = "priority" },
    { 23, PB_BOOL, PB_OPTIONAL, .name = "return_progress" },
    { 24, PB_MESSAGE, PB_REPEATED, .name = "lora", .message = &pb_lora },
    { 0 },
};
const pb_message pb_complete_request = { "hearth.v1.CompleteRequest", .fields = complete_request_fields };

static const pb_field embed_request_fields[] = {
    { 1, PB_STRING, PB_OPTIONAL, .name = "model" },
    { 2, PB_STRING, PB_REPEATED, .name = "input" },
    { 3, PB_MESSAGE, PB_REPEATED, .name = "input_tokens", .message = &pb_token_list, .json = "input" },
    { 4, PB_INT32, PB_OPTIONAL, .name = "dimensions" },
    { 5, PB_STRING, PB_OPTIONAL, .name = "prompt_name" },
    { 6, PB_STRING, PB_OPTIONAL, .name = "input_type" },
    { 0 },
};
const pb_message pb_embed_request = { "hearth.v1.EmbedRequest", .fields = embed_request_fields };

static const pb_field rerank_request_fields[] = {
    { 1, PB_STRING, PB_OPTIONAL, .name = "model" },
    { 2, PB_STRING, PB_DEFAULT, .name = "query" },
    { 3, PB_STRING, PB_REPEATED | PB_DEFAULT, .name = "documents" },
    { 4, PB_INT32, PB_OPTIONAL, .name = "top_n" },
    { 0 },
};
const pb_message pb_rerank_request = { "hearth.v1.RerankRequest", .fields = rerank_request_fields };

static const pb_field usage_fields[] = {
    { 1, PB_INT32, 0, .name = "prompt_tokens" },
    { 2, PB_INT32, 0, .name = "cached_tokens" },
    { 3, PB_INT32, 0, .name = "generated_tokens" },
    { 4, PB_INT32, 0, .name = "reasoning_tokens" },
    { 5, PB_INT32, 0, .name = "drafted_tokens" },
    { 6, PB_INT32, 0, .name = "accepted_tokens" },
    { 7, PB_DOUBLE, 0, .name = "queued_seconds" },
    { 8, PB_DOUBLE, 0, .name = "prompt_seconds" },
    { 9, PB_DOUBLE, 0, .name = "generate_seconds" },
    { 0 },
};
static const pb_message pb_usage = { "hearth.v1.Usage", .fields = usage_fields };

static const pb_field top_token_fields[] = {
    { 1, PB_INT32, 0, .name = "id" },
    { 2, PB_BYTES, 0, .name = "text" },
    { 3, PB_DOUBLE, 0, .name = "logprob" },
    { 0 },
};
static const pb_message pb_top_token = { "hearth.v1.TopToken", .fields = top_token_fields };

static const pb_field token_fields[] = {
    { 1, PB_INT32, 0, .name = "id" },
    { 2, PB_BYTES, 0, .name = "text" },
    { 3, PB_DOUBLE, 0, .name = "logprob" },
    { 4, PB_MESSAGE, PB_REPEATED, .name = "top", .message = &pb_top_token },
    { 5, PB_BOOL, 0, .name = "of_prompt" },
    { 0 },
};
static const pb_message pb_token = { "hearth.v1.Token", .fields = token_fields };

static const pb_field choice_fields[] = {
    { 1, PB_INT32, 0, .name = "index" },
    { 2, PB_STRING, 0, .name = "content" },
    { 3, PB_STRING, 0, .name = "reasoning" },
    { 4, PB_MESSAGE, PB_REPEATED, .name = "tool_calls", .message = &pb_tool_call },
    { 5, PB_ENUM, 0, .name = "finish", .values = &pb_finish },
    { 6, PB_MESSAGE, PB_REPEATED, .name = "tokens", .message = &pb_token },
    { 0 },
};
static const pb_message pb_choice = { "hearth.v1.Choice", .fields = choice_fields };

static const pb_field answer_fields[] = {
    { 1, PB_STRING, 0, .name = "id" },
    { 2, PB_STRING, 0, .name = "model" },
    { 3, PB_MESSAGE, PB_REPEATED, .name = "choices", .message = &pb_choice },
    { 4, PB_MESSAGE, 0, .name = "usage", .message = &pb_usage },
    { 0 },
};
const pb_message pb_answer = { "hearth.v1.Answer", .fields = answer_fields };

static const pb_field started_fields[] = {
    { 1, PB_STRING, 0, .name = "id" },
    { 2, PB_STRING, 0, .name = "model" },
    { 3, PB_INT32, 0, .name = "prompt_tokens" },
    { 0 },
};
static const pb_message pb_started = { "hearth.v1.Started", .fields = started_fields };

static const pb_field prompt_progress_fields[] = {
    { 1, PB_INT32, 0, .name = "done" },
    { 2, PB_INT32, 0, .name = "total" },
    { 3, PB_INT32, 0, .name = "cached" },
    { 0 },
};
static const pb_message pb_prompt_progress = { "hearth.v1.PromptProgress", .fields = prompt_progress_fields };

static const pb_field tool_begin_fields[] = {
    { 1, PB_INT32, 0, .name = "index" },
    { 2, PB_STRING, 0, .name = "id" },
    { 3, PB_STRING, 0, .name = "name" },
    { 0 },
};
static const pb_message pb_tool_begin = { "hearth.v1.ToolBegin", .fields = tool_begin_fields };

static const pb_field tool_arguments_fields[] = {
    { 1, PB_INT32, 0, .name = "index" },
    { 2, PB_STRING, 0, .name = "text" },
    { 0 },
};
static const pb_message pb_tool_arguments = { "hearth.v1.ToolArguments", .fields = tool_arguments_fields };

static const pb_field tool_end_fields[] = {
    { 1, PB_INT32, 0, .name = "index" },
    { 0 },
};
static const pb_message pb_tool_end = { "hearth.v1.ToolEnd", .fields = tool_end_fields };

static const pb_field done_fields[] = {
    { 1, PB_ENUM, 0, .name = "finish", .values = &pb_finish },
    { 2, PB_MESSAGE, 0, .name = "usage", .message = &pb_usage },
    { 0 },
};
static const pb_message pb_done = { "hearth.v1.Done", .fields = done_fields };

static const pb_field event_fields[] = {
    { 1, PB_INT32, 0, .name = "choice" },
    { 2, PB_MESSAGE, 0, .name = "started", .message = &pb_started, .oneof = "kind" },
    { 3, PB_MESSAGE, 0, .name = "progress", .message = &pb_prompt_progress, .oneof = "kind" },
    { 4, PB_MESSAGE, 0, .name = "token", .message = &pb_token, .oneof = "kind" },
    { 5, PB_STRING, 0, .name = "content", .oneof = "kind" },
    { 6, PB_STRING, 0, .name = "reasoning", .oneof = "kind" },
    { 7, PB_MESSAGE, 0, .name = "tool_begin", .message = &pb_tool_begin, .oneof = "kind" },
    { 8, PB_MESSAGE, 0, .name = "tool_arguments", .message = &pb_tool_arguments, .oneof = "kind" },
    { 9, PB_MESSAGE, 0, .name = "tool_end", .message = &pb_tool_end, .oneof = "kind" },
    { 10, PB_MESSAGE, 0, .name = "done", .message = &pb_done, .oneof = "kind" },
    { 0 },
};
const pb_message pb_event = { "hearth.v1.Event", .fields = event_fields };

static const pb_field vector_fields[] = {
    { 1, PB_INT32, 0, .name = "index" },
    { 2, PB_FLOAT, PB_REPEATED, .name = "values" },
    { 3, PB_INT64, 0, .name = "prompt_tokens" },
    { 0 },
};
const pb_message pb_vector = { "hearth.v1.Vector", .fields = vector_fields };

static const pb_field ranked_fields[] = {
    { 1, PB_INT32, 0, .name = "index" },
    { 2, PB_DOUBLE, 0, .name = "relevance_score" },
    { 0 },
};
static const pb_message pb_ranked = { "hearth.v1.Ranked", .fields = ranked_fields };

static const pb_field rerank_answer_fields[] = {
    { 1, PB_STRING, 0, .name = "model" },
    { 2, PB_MESSAGE, PB_REPEATED, .name = "results", .message = &pb_ranked },
    { 3, PB_INT64, 0, .name = "prompt_tokens", .json = "usage.prompt_tokens" },
    { 0 },
};
const pb_message pb_rerank_answer = { "hearth.v1.RerankAnswer", .fields = rerank_answer_fields };

static const pb_field list_models_request_fields[] = {
    { 0 },
};
const pb_message pb_list_models_request = { "hearth.v1.ListModelsRequest", .fields = list_models_request_fields };

static const pb_field model_fields[] = {
    { 1, PB_STRING, 0, .name = "id" },
    { 2, PB_INT64, 0, .name = "created" },
    { 3, PB_STRING, 0, .name = "status" },
    { 4, PB_STRING, 0, .name = "parent" },
    { 5, PB_STRING, PB_REPEATED, .name = "input_modalities" },
    { 6, PB_STRING, 0, .name = "family", .json = "meta.family" },
    { 7, PB_STRING, 0, .name = "quantization", .json = "meta.quantization" },
    { 8, PB_INT64, 0, .name = "n_params", .json = "meta.n_params" },
    { 9, PB_INT64, 0, .name = "size_bytes", .json = "meta.size" },
    { 10, PB_INT32, 0, .name = "n_ctx", .json = "meta.n_ctx" },
    { 11, PB_INT32, 0, .name = "n_ctx_train", .json = "meta.n_ctx_train" },
    { 12, PB_INT32, 0, .name = "n_embd", .json = "meta.n_embd" },
    { 13, PB_INT64, 0, .name = "n_vocab", .json = "meta.n_vocab" },
    { 0 },
};
const pb_message pb_model = { "hearth.v1.Model", .fields = model_fields };

static const pb_field list_models_answer_fields[] = {
    { 1, PB_MESSAGE, PB_REPEATED, .name = "models", .message = &pb_model, .json = "data" },
    { 0 },
};
const pb_message pb_list_models_answer = { "hearth.v1.ListModelsAnswer", .fields = list_models_answer_fields };

static const pb_field get_model_request_fields[] = {
    { 1, PB_STRING, 0, .name = "model" },
    { 0 },
};
const pb_message pb_get_model_request = { "hearth.v1.GetModelRequest", .fields = get_model_request_fields };

static const pb_field load_model_request_fields[] = {
    { 1, PB_STRING, 0, .name = "model" },
    { 2, PB_STRING, PB_OPTIONAL, .name = "keep_alive" },
    { 0 },
};
const pb_message pb_load_model_request = { "hearth.v1.LoadModelRequest", .fields = load_model_request_fields };

static const pb_field unload_model_request_fields[] = {
    { 1, PB_STRING, 0, .name = "model" },
    { 0 },
};
const pb_message pb_unload_model_request = { "hearth.v1.UnloadModelRequest", .fields = unload_model_request_fields };

static const pb_field model_status_fields[] = {
    { 1, PB_STRING, 0, .name = "model" },
    { 2, PB_STRING, 0, .name = "status" },
    { 0 },
};
const pb_message pb_model_status = { "hearth.v1.ModelStatus", .fields = model_status_fields };

static const pb_field pull_model_request_fields[] = {
    { 1, PB_STRING, 0, .name = "model" },
    { 0 },
};
const pb_message pb_pull_model_request = { "hearth.v1.PullModelRequest", .fields = pull_model_request_fields };

static const pb_field pull_progress_fields[] = {
    { 1, PB_STRING, 0, .name = "status" },
    { 2, PB_STRING, 0, .name = "digest" },
    { 3, PB_INT64, 0, .name = "total" },
    { 4, PB_INT64, 0, .name = "completed" },
    { 0 },
};
const pb_message pb_pull_progress = { "hearth.v1.PullProgress", .fields = pull_progress_fields };

static const pb_field copy_model_request_fields[] = {
    { 1, PB_STRING, 0, .name = "source" },
    { 2, PB_STRING, 0, .name = "destination" },
    { 0 },
};
const pb_message pb_copy_model_request = { "hearth.v1.CopyModelRequest", .fields = copy_model_request_fields };

static const pb_field copy_model_answer_fields[] = {
    { 0 },
};
const pb_message pb_copy_model_answer = { "hearth.v1.CopyModelAnswer", .fields = copy_model_answer_fields };

static const pb_field delete_model_request_fields[] = {
    { 1, PB_STRING, 0, .name = "model" },
    { 0 },
};
const pb_message pb_delete_model_request = { "hearth.v1.DeleteModelRequest", .fields = delete_model_request_fields };

static const pb_field delete_model_answer_fields[] = {
    { 0 },
};
const pb_message pb_delete_model_answer = { "hearth.v1.DeleteModelAnswer", .fields = delete_model_answer_fields };

static const pb_field tokenize_request_fields[] = {
    { 1, PB_STRING, PB_OPTIONAL, .name = "model" },
    { 2, PB_STRING, PB_DEFAULT, .name = "text", .json = "content" },
    { 3, PB_BOOL, PB_OPTIONAL, .name = "add_special" },
    { 4, PB_BOOL, PB_OPTIONAL, .name = "parse_special" },
    { 0 },
};
const pb_message pb_tokenize_request = { "hearth.v1.TokenizeRequest", .fields = tokenize_request_fields };

static const pb_field tokenize_answer_fields[] = {
    { 1, PB_INT32, PB_REPEATED, .name = "tokens" },
    { 0 },
};
const pb_message pb_tokenize_answer = { "hearth.v1.TokenizeAnswer", .fields = tokenize_answer_fields };

static const pb_field detokenize_request_fields[] = {
    { 1, PB_STRING, PB_OPTIONAL, .name = "model" },
    { 2, PB_INT32, PB_REPEATED | PB_DEFAULT, .name = "tokens" },
    { 3, PB_BOOL, PB_OPTIONAL, .name = "keep_special" },
    { 0 },
};
const pb_message pb_detokenize_request = { "hearth.v1.DetokenizeRequest", .fields = detokenize_request_fields };

static const pb_field detokenize_answer_fields[] = {
    { 1, PB_STRING, 0, .name = "text", .json = "content" },
    { 0 },
};
const pb_message pb_detokenize_answer = { "hearth.v1.DetokenizeAnswer", .fields = detokenize_answer_fields };

static const pb_field render_answer_fields[] = {
    { 1, PB_STRING, 0, .name = "prompt" },
    { 0 },
};
const pb_message pb_render_answer = { "hearth.v1.RenderAnswer", .fields = render_answer_fields };

static const pb_field count_answer_fields[] = {
    { 1, PB_INT64, 0, .name = "tokens", .json = "input_tokens" },
    { 0 },
};
const pb_message pb_count_answer = { "hearth.v1.CountAnswer", .fields = count_answer_fields };

/* --- health --- */

static const char *const serving_values[] = { "UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN", NULL };
static const pb_enum     serving_status = { "ServingStatus", serving_values };

static const pb_field health_request_fields[] = {
    { 1, PB_STRING, 0, .name = "service" },
    { 0 },
};
const pb_message pb_health_request = { "grpc.health.v1.HealthCheckRequest", .fields = health_request_fields };

static const pb_field health_response_fields[] = {
    { 1, PB_ENUM, 0, .name = "status", .values = &serving_status },
    { 0 },
};
const pb_message pb_health_response = { "grpc.health.v1.HealthCheckResponse", .fields = health_response_fields, .nested = &serving_status };

/* --- by file --- */

const pb_message *const pb_inference_messages[] = {
    &pb_sampling, &pb_token_list, &pb_text_list, &pb_constraint, &pb_part, &pb_tool_call, &pb_chat_message, &pb_tool, &pb_lora, &pb_chat_request, &pb_complete_request, &pb_embed_request, &pb_rerank_request, &pb_usage, &pb_top_token, &pb_token, &pb_choice, &pb_answer, &pb_started, &pb_prompt_progress, &pb_tool_begin, &pb_tool_arguments, &pb_tool_end, &pb_done, &pb_event, &pb_vector, &pb_ranked, &pb_rerank_answer, NULL,
};
const pb_message *const pb_text_messages[] = {
    &pb_tokenize_request, &pb_tokenize_answer, &pb_detokenize_request, &pb_detokenize_answer, &pb_render_answer, &pb_count_answer, NULL,
};
const pb_message *const pb_models_messages[] = {
    &pb_list_models_request, &pb_model, &pb_list_models_answer, &pb_get_model_request, &pb_load_model_request, &pb_unload_model_request, &pb_model_status, &pb_pull_model_request, &pb_pull_progress, &pb_copy_model_request, &pb_copy_model_answer, &pb_delete_model_request, &pb_delete_model_answer, NULL,
};
const pb_message *const pb_health_messages[] = { &pb_health_request, &pb_health_response, NULL };
/* clang-format on */

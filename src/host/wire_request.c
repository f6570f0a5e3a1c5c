/* SPDX-License-Identifier: Apache-2.0 */
/* What a request says, and the sampling values that it shares with a model's settings. */
#include "host/wire_tables.h"

static const wire_field bias_fields[] = {
    { .kind = WIRE_K_I32, WIRE_MEMBER(sampling_bias, token, int32_t) },
    { .kind = WIRE_K_F32, WIRE_MEMBER(sampling_bias, bias, float) },
};
static const wire_table bias_table = WIRE_PLAIN_ITEM(sampling_bias, bias_fields);

static const wire_field stage_fields[] = {
    { .kind = WIRE_K_I32, .flags = WIRE_BOUNDED, .bytes = 4, .max = SAMPLING_STAGE_COUNT - 1 }
};
static const wire_table stage_table = WIRE_PLAIN_ITEM(sampling_stage, stage_fields);

/* clang-format off */
#define SAMPLING_VALUES                                                             \
    WIRE_FLOAT(sampling_params, temperature, "temperature"),                        \
    WIRE_FLOAT(sampling_params, dynatemp_range, "dynatemp_range"),                  \
    WIRE_FLOAT(sampling_params, dynatemp_exponent, "dynatemp_exponent"),            \
    WIRE_ANY_INT(sampling_params, top_k, "top_k"),                                  \
    WIRE_FLOAT(sampling_params, top_p, "top_p"),                                    \
    WIRE_FLOAT(sampling_params, min_p, "min_p"),                                    \
    WIRE_FLOAT(sampling_params, typical_p, "typical_p"),                            \
    WIRE_FLOAT(sampling_params, top_n_sigma, "top_n_sigma"),                        \
    WIRE_FLOAT(sampling_params, xtc_probability, "xtc_probability"),                \
    WIRE_FLOAT(sampling_params, xtc_threshold, "xtc_threshold"),                    \
    WIRE_ANY_INT(sampling_params, repeat_last_n, "repeat_last_n"),                  \
    WIRE_FLOAT(sampling_params, repeat_penalty, "repeat_penalty"),                  \
    WIRE_FLOAT(sampling_params, frequency_penalty, "frequency_penalty"),            \
    WIRE_FLOAT(sampling_params, presence_penalty, "presence_penalty"),              \
    WIRE_FLOAT(sampling_params, dry_multiplier, "dry_multiplier"),                  \
    WIRE_FLOAT(sampling_params, dry_base, "dry_base"),                              \
    WIRE_ANY_INT(sampling_params, dry_allowed_length, "dry_allowed_length"),        \
    WIRE_ANY_INT(sampling_params, dry_last_n, "dry_last_n"),                        \
    WIRE_ANY_INT(sampling_params, mirostat, "mirostat"),                            \
    WIRE_FLOAT(sampling_params, mirostat_tau, "mirostat_tau"),                      \
    WIRE_FLOAT(sampling_params, mirostat_eta, "mirostat_eta"),                      \
    WIRE_UINT64(sampling_params, seed, "seed"),                                     \
    WIRE_UNSENT(sampling_params, together_from), /* the runtime's */                \
    WIRE_ARRAY(sampling_params, order, n_order, "samplers", stage_table)
/* clang-format on */

static const wire_field sampling_fields[] = {
    SAMPLING_VALUES,
    WIRE_LIST(sampling_params, bias, n_bias, "logit_bias", WIRE_MAX_IDS, bias_table),
    WIRE_LIST(sampling_params, dry_breakers, n_dry_breakers, "dry_breakers", WIRE_MAX_IDS, wire_item_int),
};
static const wire_table sampling_table = WIRE_TABLE(sampling_params, sampling_fields);

static const wire_field settings_sampling_fields[] = {
    SAMPLING_VALUES,
    WIRE_UNSENT(sampling_params, bias), /* the arrays of settings are not used (runtime.h) */
    WIRE_UNSENT(sampling_params, n_bias),
    WIRE_UNSENT(sampling_params, dry_breakers),
    WIRE_UNSENT(sampling_params, n_dry_breakers),
};
const wire_table wire_table_settings_sampling = WIRE_TABLE(sampling_params, settings_sampling_fields);

static const wire_field lora_fields[] = {
    WIRE_TEXT(runtime_lora, path, "lora", WIRE_MAX_SHORT),
    WIRE_DOUBLE(runtime_lora, scale, "lora"),
};
const wire_table wire_item_lora = WIRE_ITEM(runtime_lora, lora_fields, 12);

static const wire_field constraint_fields[] = {
    WIRE_ENUM(runtime_constraint, kind, "constraint", RUNTIME_CHOICES + 1),
    WIRE_TEXT(runtime_constraint, text, "constraint", WIRE_MAX_DOWN),
};
static const wire_table constraint_table = WIRE_TABLE(runtime_constraint, constraint_fields);

static const wire_field request_fields[] = {
    WIRE_ENUM(runtime_request, task, "task", RUNTIME_CLASSIFY + 1),
    WIRE_TEXT(runtime_request, messages, "messages", WIRE_MAX_DOWN),
    WIRE_TEXT(runtime_request, tools, "tools", WIRE_MAX_DOWN),
    WIRE_TEXT(runtime_request, template_vars, "template variables", WIRE_MAX_DOWN),
    WIRE_TEXT(runtime_request, template_text, "template", WIRE_MAX_DOWN),
    WIRE_BOOL(runtime_request, continue_final, "continue_final"),
    WIRE_BOOL(runtime_request, transcribe, "transcribe"),
    WIRE_TEXT(runtime_request, text, "text", WIRE_MAX_DOWN),
    WIRE_TEXT(runtime_request, suffix, "suffix", WIRE_MAX_DOWN),
    WIRE_LIST(runtime_request, tokens, n_tokens, "tokens", WIRE_MAX_IDS, wire_item_int),
    WIRE_BOOL(runtime_request, echo, "echo"),
    WIRE_BOOL(runtime_request, no_answer, "no_answer"),
    WIRE_ENUM(runtime_request, tool_choice, "tool_choice", RUNTIME_TOOLS_NAMED + 1),
    WIRE_TEXT(runtime_request, tool_name, "tool name", WIRE_MAX_DOWN),
    WIRE_BOOL(runtime_request, parallel_tools, "parallel_tools"),
    WIRE_BOOL(runtime_request, stream_calls, "stream_calls"),
    WIRE_ENUM(runtime_request, thinking, "thinking", RUNTIME_THINK_WISH + 1),
    WIRE_TEXT(runtime_request, effort, "effort", WIRE_MAX_DOWN),
    WIRE_ANY_INT(runtime_request, thinking_budget, "thinking budget"),
    WIRE_BOOL(runtime_request, raw_answer, "raw_answer"),
    WIRE_STRUCT(runtime_request, constraint, constraint_table),
    WIRE_BOOL(runtime_request, full_json, "full_json"),
    WIRE_STRUCT(runtime_request, sampling, sampling_table),
    WIRE_UINT(runtime_request, sampling_set, "sampling_set", RUNTIME_SET_ALL | RUNTIME_SET_DYNATEMP),
    WIRE_LIST(runtime_request, dry_breakers, n_dry_breakers, "dry breakers", WIRE_MAX_LIST, wire_item_text),
    WIRE_ANY_INT(runtime_request, max_tokens, "max_tokens"),
    WIRE_ANY_INT(runtime_request, min_tokens, "min_tokens"),
    WIRE_ANY_INT(runtime_request, n_ctx, "n_ctx"),
    WIRE_BOOL(runtime_request, pair, "pair"),
    WIRE_BOOL(runtime_request, truncate, "truncate"),
    WIRE_BOOL(runtime_request, want_context, "want_context"),
    WIRE_BOOL(runtime_request, ignore_eos, "ignore_eos"),
    WIRE_LIST(runtime_request, stop, n_stop, "stop", WIRE_MAX_LIST, wire_item_text),
    WIRE_INT(runtime_request, n_choices, "n", 0, WIRE_MAX_CHOICES),
    WIRE_ANY_INT(runtime_request, priority, "priority"),
    WIRE_UINT64(runtime_request, client, "client"),
    WIRE_BOOL(runtime_request, want_logprob, "logprobs"),
    WIRE_INT(runtime_request, n_top, "top_logprobs", 0, WIRE_MAX_TOP),
    WIRE_BOOL(runtime_request, no_cache, "no_cache"),
    WIRE_BOOL(runtime_request, want_progress, "want_progress"),
    WIRE_LIST(runtime_request, lora, n_lora, "lora", RUNTIME_MAX_LORA, wire_item_lora),
    WIRE_BOOL(runtime_request, own_lora, "lora"),
    WIRE_POINTER_OR_NULL(runtime_request, settings, "settings", wire_table_settings),
    WIRE_BOOL(runtime_request, no_drafts, "no_drafts"),
    WIRE_COUNTER(runtime_request, draft_max, "draft_max"),
    WIRE_COUNTER(runtime_request, draft_min, "draft_min"),
    WIRE_FLOAT(runtime_request, draft_p_min, "draft_p_min"),
    WIRE_TEXT(runtime_request, prediction, "prediction", WIRE_MAX_DOWN),
    WIRE_ENUM(runtime_request, pooling, "pooling", RUNTIME_POOL_MAX + 1),
    WIRE_ANY_INT(runtime_request, dimensions, "dimensions"),
    WIRE_TEXT(runtime_request, prompt_name, "prompt name", WIRE_MAX_DOWN),
    WIRE_BOOL(runtime_request, prompt_is_side, "prompt_is_side"),
    WIRE_BLOBS(runtime_request, blobs, n_blobs, "images", RUNTIME_MAX_BLOBS, RUNTIME_MAX_BLOB_BYTES),
    WIRE_UNSENT(runtime_request, on_event), /* each side has its own */
    WIRE_UNSENT(runtime_request, ctx),
};
const wire_table wire_table_request = WIRE_TABLE(runtime_request, request_fields);

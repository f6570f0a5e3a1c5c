/* SPDX-License-Identifier: Apache-2.0 */
/* How a worker begins: what it is to open, how much memory that needs, and what the model turned out to be. */
#include "host/wire_tables.h"

#include "base/log.h"

#include <limits.h>

static const wire_field engine_fields[] = {
    WIRE_COUNTER(engine_options, n_ctx, "n_ctx"),
    WIRE_SIZE(engine_options, cache_bytes, "cache_bytes"),
    WIRE_UNSENT(engine_options, cache_room), /* the worker finds out */
    WIRE_COUNTER(engine_options, page_tokens, "page_tokens"),
    WIRE_COUNTER(engine_options, max_seqs, "max_seqs"),
    WIRE_COUNTER(engine_options, step_tokens, "step_tokens"),
    WIRE_UNSENT(engine_options, span_tokens), /* the worker finds out */
    WIRE_COUNTER(engine_options, max_waiting, "max_waiting"),
    WIRE_COUNTER(engine_options, target_step_ms, "target_step_ms"),
    WIRE_COUNTER(engine_options, n_threads, "n_threads"),
    WIRE_ENUM(engine_options, k_type, "k_type", NN_KV_TYPE_COUNT),
    WIRE_ENUM(engine_options, v_type, "v_type", NN_KV_TYPE_COUNT),
    WIRE_INT(engine_options, precise_layers, "precise_layers", NN_KV_PRECISE_USUAL, INT_MAX),
    WIRE_BOOL(engine_options, k_open, "k_open"),
    WIRE_BOOL(engine_options, kv_auto, "kv_auto"),
    WIRE_UINT(engine_options, cpu, "cpu", UINT_MAX),
    WIRE_BOOL(engine_options, no_prefix_cache, "no_prefix_cache"),
    WIRE_ENUM(engine_options, speculate, "speculate", ENGINE_SPECULATE_COUNT),
    WIRE_COUNTER(engine_options, draft_max, "draft_max"),
    WIRE_UNSENT(engine_options, draft_always), /* tests only */
    WIRE_UNSENT(engine_options, draft_model),  /* the worker opens it */
    WIRE_UNSENT(engine_options, next),         /* likewise */
    WIRE_UNSENT(engine_options, drafter),      /* tests only */
    WIRE_SIZE(engine_options, expert_bytes, "expert_bytes"),
    WIRE_BOOL(engine_options, experts_auto, "experts_auto"),
    WIRE_UINT64(engine_options, memory_room, "memory_room"),
    WIRE_CSTR_OR_NULL(engine_options, device, "device", WIRE_MAX_SHORT),
    WIRE_UNSENT(engine_options, max_gpus), /* the worker's own: those it has prepared */
    WIRE_UNSENT(engine_options, late),     /* tests only */
    WIRE_UNSENT(engine_options, backend),  /* tests only, within one process */
    WIRE_UNSENT(engine_options, on_batch), /* the worker's own */
    WIRE_UNSENT(engine_options, batch_ctx),
    WIRE_SIZE(engine_options, host_cache_bytes, "host_cache_bytes"),
    WIRE_CSTR_OR_NULL(engine_options, disk_cache_dir, "disk_cache_dir", WIRE_MAX_SHORT),
    WIRE_UINT64(engine_options, disk_cache_bytes, "disk_cache_bytes"),
};
static const wire_table engine_table = WIRE_TABLE(engine_options, engine_fields);

static const wire_field settings_fields[] = {
    WIRE_CSTR_OR_NULL(runtime_settings, system, "system", WIRE_MAX_DOWN),
    WIRE_CSTR_OR_NULL(runtime_settings, messages, "messages", WIRE_MAX_DOWN),
    WIRE_CSTR_OR_NULL(runtime_settings, template_text, "template", WIRE_MAX_DOWN),
    WIRE_STRUCT(runtime_settings, sampling, wire_table_settings_sampling),
    WIRE_UINT(runtime_settings, sampling_set, "sampling_set", RUNTIME_SET_ALL | RUNTIME_SET_DYNATEMP),
    WIRE_LIST(runtime_settings, stop, n_stop, "stop", WIRE_MAX_LIST, wire_item_cstr),
    WIRE_ANY_INT(runtime_settings, max_tokens, "max_tokens"),
    WIRE_ANY_INT(runtime_settings, min_tokens, "min_tokens"),
    WIRE_COUNTER(runtime_settings, n_ctx, "n_ctx"),
    WIRE_CSTR_OR_NULL(runtime_settings, rope_type, "rope_type", WIRE_MAX_SHORT),
    WIRE_DOUBLE(runtime_settings, rope_factor, "rope_factor"),
    WIRE_COUNTER(runtime_settings, rope_original_context, "rope_original_context"),
    WIRE_CSTR_OR_NULL(runtime_settings, mmproj, "mmproj", WIRE_MAX_SHORT),
    WIRE_BOOL(runtime_settings, mmproj_may_fail, "mmproj_may_fail"),
    WIRE_LIST(runtime_settings, lora, n_lora, "lora", RUNTIME_MAX_LORA, wire_item_lora),
    WIRE_CSTR_OR_NULL(runtime_settings, speculate, "speculate", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_settings, draft, "draft", WIRE_MAX_SHORT),
    WIRE_COUNTER(runtime_settings, draft_max, "draft_max"),
    WIRE_CSTR_OR_NULL(runtime_settings, adapter_type, "adapter_type", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_settings, page_type, "page_type", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_settings, page_type_k, "page_type_k", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_settings, page_type_v, "page_type_v", WIRE_MAX_SHORT),
    WIRE_INT(runtime_settings, precise_layers, "precise_layers", NN_KV_PRECISE_USUAL, INT_MAX),
};
const wire_table wire_table_settings = WIRE_TABLE(runtime_settings, settings_fields);

static const wire_field runtime_fields[] = {
    WIRE_CSTR(runtime_options, path, "path", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_options, template_text, "template", WIRE_MAX_DOWN),
    WIRE_STRUCT(runtime_options, engine, engine_table),
    WIRE_STRUCT(runtime_options, settings, wire_table_settings),
    WIRE_COUNTER(runtime_options, max_preparing, "max_preparing"),
    WIRE_SIZE(runtime_options, grammar_bytes, "grammar_bytes"),
    WIRE_SIZE(runtime_options, adapter_bytes, "adapter_bytes"),
    WIRE_CSTR_OR_NULL(runtime_options, adapter_dir, "adapter_dir", WIRE_MAX_SHORT),
    WIRE_LIST(runtime_options, adapter_paths, n_adapter_paths, "adapter_paths", WIRE_MAX_LIST, wire_item_cstr),
    WIRE_UINT64(runtime_options, spare_bytes, "spare_bytes"),
    WIRE_UNSENT(runtime_options, on_progress), /* the worker's own */
    WIRE_UNSENT(runtime_options, progress_ctx),
    WIRE_UNSENT(runtime_options, on_adapters),
    WIRE_UNSENT(runtime_options, adapters_ctx),
};
static const wire_table runtime_table = WIRE_TABLE(runtime_options, runtime_fields);

static const wire_field open_fields[] = {
    WIRE_STRUCT(wire_open, runtime, runtime_table),
    WIRE_CSTR(wire_open, name, "name", WIRE_MAX_SHORT),
    WIRE_CSTR(wire_open, fault, "fault", WIRE_MAX_SHORT),
    WIRE_BOOL(wire_open, no_sandbox, "no_sandbox"),
    WIRE_INT(wire_open, log_level, "log level", LOG_DEBUG, LOG_OFF),
    WIRE_SIZE(wire_open, queue_bytes, "queue_bytes"),
};
const wire_table wire_table_open = WIRE_TABLE(wire_open, open_fields);

static const wire_field device_fields[] = {
    WIRE_CHARS(device_bytes, device, "device"),
    WIRE_UINT64(device_bytes, bytes, "device"),
};
static const wire_table device_table = WIRE_ITEM(device_bytes, device_fields, 12);

static const wire_field memory_fields[] = {
    WIRE_ARRAY(device_memory, on, n, "devices", device_table),
};
static const wire_table memory_table = WIRE_TABLE(device_memory, memory_fields);

static const wire_field need_fields[] = {
    WIRE_COUNTER(need, n_ctx, "n_ctx"),
    WIRE_COUNTER(need, n_ctx_train, "n_ctx_train"),
    WIRE_COUNTER(need, n_sequences, "n_sequences"),
    WIRE_UINT64(need, weights_bytes, "weights"),
    WIRE_UINT64(need, cache_bytes_per_1k, "cache"),
    WIRE_UINT64(need, sequence_bytes, "cache"),
    WIRE_UINT64(need, cache_bytes, "cache"),
    WIRE_UINT64(need, scratch_bytes, "scratch"),
    WIRE_UINT64(need, other_bytes, "other"),
    WIRE_STRUCT(need, bytes, memory_table),
    WIRE_CHARS(need, device, "device"),
    WIRE_UNSENT(need, memory), /* the worker chose it, and says what the host must know */
    WIRE_UNSENT(need, limits),
    WIRE_UNSENT(need, left),
    WIRE_UNSENT(need, n_layer),
    WIRE_UNSENT(need, n_mixtures),
    WIRE_UNSENT(need, cache_room),
    WIRE_UNSENT(need, experts), /* bytes has what they take */
    WIRE_UINT64(need, token_bytes, "token"),
    WIRE_UINT64(need, token_products, "token"),
    WIRE_INT(need, has_draft, "drafters", 0, 1),
    WIRE_INT(need, has_next, "drafters", 0, 1),
};
const wire_table wire_table_need = WIRE_TABLE(need, need_fields);

static const wire_field info_fields[] = {
    WIRE_CSTR_OR_NULL(runtime_info, path, "path", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_info, name, "name", WIRE_MAX_UP),
    WIRE_CSTR_OR_NULL(runtime_info, family, "family", WIRE_MAX_UP),
    WIRE_CSTR_OR_NULL(runtime_info, format, "format", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_info, quant, "quant", WIRE_MAX_SHORT),
    WIRE_UINT64(runtime_info, n_params, "n_params"),
    WIRE_UINT64(runtime_info, file_bytes, "file_bytes"),
    WIRE_COUNTER(runtime_info, n_ctx, "n_ctx"),
    WIRE_COUNTER(runtime_info, n_ctx_train, "n_ctx_train"),
    WIRE_COUNTER(runtime_info, n_layer, "n_layer"),
    WIRE_COUNTER(runtime_info, n_embd, "n_embd"),
    WIRE_COUNTER(runtime_info, n_seqs, "n_seqs"),
    WIRE_COUNTER(runtime_info, n_vector, "n_vector"),
    WIRE_INT64(runtime_info, n_vocab, "n_vocab", 0, INT32_MAX),
    WIRE_BOOL(runtime_info, can_chat, "can_chat"),
    WIRE_BOOL(runtime_info, can_tools, "can_tools"),
    WIRE_BOOL(runtime_info, can_think, "can_think"),
    WIRE_BOOL(runtime_info, can_embed, "can_embed"),
    WIRE_BOOL(runtime_info, can_infill, "can_infill"),
    WIRE_BOOL(runtime_info, can_rerank, "can_rerank"),
    WIRE_BOOL(runtime_info, can_generate, "can_generate"),
    WIRE_BOOL(runtime_info, can_see, "can_see"),
    WIRE_BOOL(runtime_info, can_hear, "can_hear"),
    WIRE_CSTR_OR_NULL(runtime_info, template_text, "template", WIRE_MAX_UP),
    WIRE_CSTR_OR_NULL(runtime_info, template_origin, "template origin", WIRE_MAX_SHORT),
    WIRE_CSTR_OR_NULL(runtime_info, drafters, "drafters", WIRE_MAX_SHORT),
};
const wire_table wire_table_info = WIRE_TABLE(runtime_info, info_fields);

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and their results, and signs of life. */
#include "host/wire_tables.h"

#include "base/log.h"

static const wire_field text_call_fields[] = {
    WIRE_TEXT(wire_text_call, text, "text", WIRE_MAX_DOWN),
    WIRE_BOOL(wire_text_call, add_special, "add_special"),
    WIRE_BOOL(wire_text_call, parse_special, "parse_special"),
};
const wire_table wire_table_text_call = WIRE_TABLE(wire_text_call, text_call_fields);

static const wire_field ids_call_fields[] = {
    WIRE_LIST(wire_ids_call, ids, n, "tokens", WIRE_MAX_IDS, wire_item_int),
    WIRE_BOOL(wire_ids_call, keep_special, "keep_special"),
};
const wire_table wire_table_ids_call = WIRE_TABLE(wire_ids_call, ids_call_fields);

static const wire_field result_fields[] = {
    WIRE_STRUCT(wire_result, error, wire_table_err),
    WIRE_BYTES(wire_result, text, "text", WIRE_MAX_UP),
    WIRE_LIST(wire_result, ids, n_ids, "tokens", WIRE_MAX_IDS, wire_item_int),
    WIRE_UINT64(wire_result, count, "count"),
};
const wire_table wire_table_result = WIRE_TABLE(wire_result, result_fields);

static const wire_field ping_fields[] = {
    { .name = "log level",
      .kind = WIRE_K_I32,
      .flags = WIRE_BOUNDED,
      .bytes = sizeof(int),
      .min = LOG_DEBUG,
      .max = LOG_OFF },
};
const wire_table wire_table_ping = WIRE_TABLE(int, ping_fields);

static const wire_field loading_fields[] = {
    { .name = "fraction", .kind = WIRE_K_F32, .flags = WIRE_BOUNDED, .bytes = sizeof(float), .min = 0, .max = 1 },
};
const wire_table wire_table_loading = WIRE_TABLE(float, loading_fields);

static const wire_field engine_fields[] = {
    WIRE_UINT64(engine_stats, steps, "statistics"),
    WIRE_UINT64(engine_stats, tokens_evaluated, "statistics"),
    WIRE_UINT64(engine_stats, tokens_cached, "statistics"),
    WIRE_UINT64(engine_stats, tokens_generated, "statistics"),
    WIRE_UINT64(engine_stats, preemptions, "statistics"),
    WIRE_DOUBLE(engine_stats, step_s, "statistics"),
    WIRE_DOUBLE(engine_stats, between_s, "statistics"),
    WIRE_UINT64(engine_stats, failed_steps, "statistics"),
    WIRE_COUNTER(engine_stats, running, "statistics"),
    WIRE_COUNTER(engine_stats, waiting, "statistics"),
    WIRE_COUNTER(engine_stats, paused, "statistics"),
    WIRE_COUNTER(engine_stats, pages_total, "statistics"),
    WIRE_COUNTER(engine_stats, pages_unused, "statistics"),
    WIRE_COUNTER(engine_stats, pages_cached, "statistics"),
    WIRE_UINT64(engine_stats, guide_masks, "statistics"),
    WIRE_DOUBLE(engine_stats, guide_s, "statistics"),
    WIRE_DOUBLE(engine_stats, guide_wait_s, "statistics"),
    WIRE_SIZE(engine_stats, states, "statistics"),
    WIRE_SIZE(engine_stats, state_bytes, "statistics"),
    WIRE_SIZE(engine_stats, host_pages, "statistics"),
    WIRE_SIZE(engine_stats, host_bytes, "statistics"),
    WIRE_SIZE(engine_stats, disk_entries, "statistics"),
    WIRE_UINT64(engine_stats, disk_bytes, "statistics"),
    WIRE_UINT64(engine_stats, to_host, "statistics"),
    WIRE_UINT64(engine_stats, from_host, "statistics"),
    WIRE_UINT64(engine_stats, from_disk, "statistics"),
    WIRE_UINT64(engine_stats, to_disk, "statistics"),
    WIRE_UINT64(engine_stats, not_written, "statistics"),
    WIRE_UINT64(engine_stats, evictions, "statistics"),
    WIRE_UINT64(engine_stats, drafts, "statistics"),
    WIRE_UINT64(engine_stats, drafted, "statistics"),
    WIRE_UINT64(engine_stats, accepted, "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[0], "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[1], "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[2], "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[3], "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[4], "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[5], "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[6], "statistics"),
    WIRE_UINT64(engine_stats, drafted_at[7], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[0], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[1], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[2], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[3], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[4], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[5], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[6], "statistics"),
    WIRE_UINT64(engine_stats, accepted_at[7], "statistics"),
    WIRE_COUNTER(engine_stats, experts.slots, "statistics"),
    WIRE_COUNTER(engine_stats, experts.experts, "statistics"),
    WIRE_UINT64(engine_stats, experts.hits, "statistics"),
    WIRE_UINT64(engine_stats, experts.misses, "statistics"),
    WIRE_UINT64(engine_stats, experts.evicted, "statistics"),
    WIRE_UINT64(engine_stats, experts.bytes, "statistics"),
    WIRE_DOUBLE(engine_stats, experts.wait_s, "statistics"),
    WIRE_UNSENT(engine_stats, pages_bytes), /* known from NEED */
    WIRE_UNSENT(engine_stats, heap_bytes),
};
static const wire_table engine_table = WIRE_TABLE(engine_stats, engine_fields);

static const wire_field stats_fields[] = {
    WIRE_STRUCT(runtime_stats, engine, engine_table),         WIRE_COUNTER(runtime_stats, preparing, "statistics"),
    WIRE_UINT64(runtime_stats, requests, "statistics"),       WIRE_UINT64(runtime_stats, errors, "statistics"),
    WIRE_UINT64(runtime_stats, cancelled, "statistics"),      WIRE_UINT64(runtime_stats, grammar_hits, "statistics"),
    WIRE_UINT64(runtime_stats, grammar_misses, "statistics"), WIRE_COUNTER(runtime_stats, grammars, "statistics"),
    WIRE_COUNTER(runtime_stats, adapters, "statistics"),      WIRE_UINT64(runtime_stats, adapter_bytes, "statistics"),
};
static const wire_table stats_table = WIRE_TABLE(runtime_stats, stats_fields);

static const wire_field pong_fields[] = {
    WIRE_UINT64(wire_pong, stamp, "statistics"),
    WIRE_STRUCT(wire_pong, stats, stats_table),
};
const wire_table wire_table_pong = WIRE_TABLE(wire_pong, pong_fields);

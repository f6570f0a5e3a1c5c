/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging through a callback.
 *
 * The library never prints. It hands each record to the sink that the program installed (none by default). Records
 * below the level are not even formatted. Two ready-made formatters turn a record into a text or a JSON line.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF } log_level;

typedef struct log_record {
    log_level   level;
    const char *module;  /* "gguf", "engine", ... */
    const char *message; /* one line, no newline */
    int64_t     unix_us; /* microseconds since 1970 */
    const char *fields;  /* members of a JSON object for log_format_json, or NULL; the message says the same in words */
} log_record;

typedef void (*log_sink)(void *ctx, const log_record *r);

/* Installs the sink and level for the whole process. Call before threads start, or from a quiet moment. */
void log_set_sink(log_sink sink, void *ctx, log_level level);
void log_set_level(log_level level);
bool log_enabled(log_level level);
void log_write(log_level level, const char *module, const char *fmt, ...) BASE_PRINTF(3, 4);
/* fields: "\"status\":200,\"ms\":1.5" */
void log_write_fields(log_level level, const char *module, const char *fields, const char *fmt, ...) BASE_PRINTF(4, 5);

#define log_debug(module, ...)                                                                                         \
    do {                                                                                                               \
        if (log_enabled(LOG_DEBUG)) log_write(LOG_DEBUG, module, __VA_ARGS__);                                         \
    } while (0)
#define log_info(module, ...) log_write(LOG_INFO, module, __VA_ARGS__)
#define log_warn(module, ...) log_write(LOG_WARN, module, __VA_ARGS__)
#define log_error(module, ...) log_write(LOG_ERROR, module, __VA_ARGS__)

void log_format_text(const log_record *r, str *out); /* "2026-01-02T15:04:05.123Z warn gguf: message\n" */
void log_format_json(const log_record *r, str *out); /* {"time":...,"level":...,"module":...,"message":...}\n */
bool log_level_parse(const char *name, log_level *out);

#endif

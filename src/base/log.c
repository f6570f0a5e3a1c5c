/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static log_sink   the_sink;
static void      *the_ctx;
static atomic_int the_level = LOG_OFF;

void log_set_sink(log_sink sink, void *ctx, log_level level) {
    the_sink = sink;
    the_ctx = ctx;
    atomic_store(&the_level, sink ? (int)level : LOG_OFF);
}

void log_set_level(log_level level) { atomic_store(&the_level, the_sink ? (int)level : LOG_OFF); }

bool log_enabled(log_level level) { return (int)level >= atomic_load_explicit(&the_level, memory_order_relaxed); }

static void write_record(log_level level, const char *module, const char *fields, const char *fmt, va_list ap) {
    char            message[1024];
    struct timespec now;
    vsnprintf(message, sizeof message, fmt, ap);
    for (char *p = message; *p; p++) {
        if (*p == '\n' || *p == '\r') *p = ' ';
    }
    clock_gettime(CLOCK_REALTIME, &now);
    log_record r = { level, module, message, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000, fields };
    the_sink(the_ctx, &r);
}

void log_write(log_level level, const char *module, const char *fmt, ...) {
    va_list ap;
    if (level >= LOG_OFF || !log_enabled(level)) return;
    va_start(ap, fmt);
    write_record(level, module, NULL, fmt, ap);
    va_end(ap);
}

void log_write_fields(log_level level, const char *module, const char *fields, const char *fmt, ...) {
    va_list ap;
    if (level >= LOG_OFF || !log_enabled(level)) return;
    va_start(ap, fmt);
    write_record(level, module, fields, fmt, ap);
    va_end(ap);
}

static void put_time(int64_t unix_us, str *out) {
    time_t    seconds = (time_t)(unix_us / 1000000);
    struct tm tm;
    char      text[32];
    gmtime_r(&seconds, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    str_printf(out, "%s.%03dZ", text, (int)(unix_us / 1000 % 1000));
}

static const char *const level_names[] = { "debug", "info", "warn", "error", "off" };

static const char *log_level_name(log_level level) { return level <= LOG_OFF ? level_names[level] : "?"; }

void log_format_text(const log_record *r, str *out) {
    put_time(r->unix_us, out);
    str_printf(out, " %s %s: %s\n", log_level_name(r->level), r->module, r->message);
}

void log_format_json(const log_record *r, str *out) {
    str_puts(out, "{\"time\":\"");
    put_time(r->unix_us, out);
    str_printf(out, "\",\"level\":\"%s\",\"module\":", log_level_name(r->level));
    str_put_json(out, r->module, strlen(r->module));
    str_puts(out, ",\"message\":");
    str_put_json(out, r->message, strlen(r->message));
    if (r->fields) str_printf(out, ",%s", r->fields);
    str_puts(out, "}\n");
}

bool log_level_parse(const char *name, log_level *out) {
    for (int i = 0; i <= LOG_OFF; i++) {
        if (strcasecmp(name, level_names[i]) == 0) {
            *out = (log_level)i;
            return true;
        }
    }
    return false;
}

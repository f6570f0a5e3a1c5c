/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve/log.h"

#include "base/file.h"
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards file and json */
static FILE           *file;                             /* NULL: stderr */
static bool            json;

static void write_record(void *ctx, const log_record *r) {
    str line;
    str_init(&line);
    log_ring_add(ctx, r);
    pthread_mutex_lock(&lock);
    if (json)
        log_format_json(r, &line);
    else
        log_format_text(r, &line);
    FILE *to = file ? file : stderr;
    fputs(str_cstr(&line), to);
    if (file) fflush(file);
    pthread_mutex_unlock(&lock);
    str_deinit(&line);
}

static int read_level(const config_values *v, log_level *out, err *e) {
    const char *name = config_text(v, "telemetry.log_level"), *path = config_text(v, "telemetry.log_level_file");
    char       *text = NULL;
    size_t      n = 0;
    *out = LOG_INFO;
    if (path) {
        int rc = file_read(&text, &n, path, 4096, e);
        if (rc < 0) return rc;
        text[strcspn(text, " \t\r\n")] = '\0';
        name = text;
    }
    int rc = !name || log_level_parse(name, out)
                 ? 0
                 : err_set(e, ERR_ARG, "log level '%.20s': expected debug, info, warn, error or off", name);
    free(text);
    return rc;
}

int serve_log_set(const config_values *v, log_ring *ring, err *e) {
    const char *path = config_text(v, "telemetry.log_file");
    FILE       *opened = NULL;
    log_level   level;
    int         rc = read_level(v, &level, e);
    if (rc < 0) return rc;
    if (path && !(opened = fopen(path, "ae"))) return err_set_errno(e, "cannot open the log file %s", path);
    pthread_mutex_lock(&lock);
    FILE *old = file;
    file = opened;
    json = strcmp(config_text(v, "telemetry.log_format"), "json") == 0;
    pthread_mutex_unlock(&lock);
    if (old) fclose(old);
    static bool installed;
    if (installed)
        log_set_level(level);
    else
        log_set_sink(write_record, ring, level);
    installed = true;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ops/log_ring.h"

#include "server/http/json_out.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_RECORDS = 2000 };

typedef struct entry {
    log_level level;
    int64_t   unix_us;
    char      module[16], message[480];
} entry;

struct log_ring {
    pthread_mutex_t lock; /* guards the rest */
    int64_t         n;    /* records so far: the next one's number */
    entry           entries[N_RECORDS];
};

int log_ring_open(log_ring **out, err *e) {
    log_ring *r = calloc(1, sizeof *r);
    *out = r;
    if (!r) return err_set_nomem(e);
    pthread_mutex_init(&r->lock, NULL);
    return 0;
}

void log_ring_free(log_ring *r) {
    if (!r) return;
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void log_ring_add(log_ring *r, const log_record *record) {
    pthread_mutex_lock(&r->lock);
    entry *at = &r->entries[r->n++ % N_RECORDS];
    at->level = record->level;
    at->unix_us = record->unix_us;
    snprintf(at->module, sizeof at->module, "%s", record->module);
    snprintf(at->message, sizeof at->message, "%s", record->message);
    pthread_mutex_unlock(&r->lock);
}

static void put_entry(jw *w, const entry *at, int64_t seq) {
    static const char *const levels[] = { "debug", "info", "warn", "error", "off" };
    struct tm                tm;
    time_t                   seconds = (time_t)(at->unix_us / 1000000);
    char                     text[32], time[48];
    gmtime_r(&seconds, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(time, sizeof time, "%s.%03dZ", text, (int)(at->unix_us / 1000 % 1000));
    jw_open(w, '{');
    jw_put_int(w, "seq", seq);
    jw_put_cstr(w, "time", time);
    jw_put_cstr(w, "level", levels[at->level]);
    jw_put_cstr(w, "module", at->module);
    jw_put_cstr(w, "message", at->message);
    jw_close(w, '}');
}

int64_t log_ring_write(log_ring *r, int64_t after, log_level least, str *out) {
    jw w = jw_of(out);
    pthread_mutex_lock(&r->lock);
    int64_t newest = r->n - 1;
    int64_t from = after + 1 > r->n - N_RECORDS ? after + 1 : r->n - N_RECORDS;
    for (int64_t i = from < 0 ? 0 : from; i < r->n; i++) {
        const entry *at = &r->entries[i % N_RECORDS];
        if (at->level >= least) put_entry(&w, at, i);
    }
    pthread_mutex_unlock(&r->lock);
    return newest > after ? newest : after;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and histograms of the server, written as Prometheus text. Touched by the I/O thread only. */
#ifndef SERVER_OPS_METRICS_H
#define SERVER_OPS_METRICS_H

#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

enum { METRICS_BUCKETS = 18, METRICS_CODES = 96 };

typedef struct histogram {
    uint64_t count[METRICS_BUCKETS + 1]; /* the last: beyond all bounds */
    uint64_t total;
    double   sum;
} histogram;

typedef struct metrics_code {
    const char *api;
    int         code;
    uint64_t    n;
} metrics_code;

typedef struct metrics {
    metrics_code codes[METRICS_CODES];
    size_t       n_codes;
    histogram    duration, first_token, inter_token;
    uint64_t     prompt_tokens, cached_tokens, generated_tokens;
    uint64_t     connections_refused;
} metrics;

void metrics_request(metrics *m, const char *api, int code, double seconds); /* api: a constant */
void metrics_observe(histogram *h, double seconds);

/* "# HELP", "# TYPE" and one line; name without its prefix. kind: "counter" or "gauge". */
void   metrics_put(str *out, const char *name, const char *kind, const char *help, double value);
void   metrics_put_head(str *out, const char *name, const char *kind, const char *help);
void   metrics_put_histogram(str *out, const char *name, const char *help, const histogram *h);
double metrics_bound(int bucket); /* upper, in seconds; of a bucket below METRICS_BUCKETS */
/* From a bucket's bounds: what share q of the observations lies below; 0 without any. */
double metrics_quantile(const histogram *h, double q);

#endif

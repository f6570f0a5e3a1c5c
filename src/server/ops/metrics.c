/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ops/metrics.h"

#include <inttypes.h>
#include <string.h>

static const double bounds[METRICS_BUCKETS] = { .0005, .001, .0025, .005, .01, .025, .05, .1,  .25,
                                                .5,    1,    2.5,   5,    10,  30,   60,  300, 1800 };

double metrics_bound(int bucket) { return bounds[bucket]; }

void metrics_observe(histogram *h, double seconds) {
    size_t i = 0;
    while (i < METRICS_BUCKETS && seconds > bounds[i]) i++;
    h->count[i]++;
    h->total++;
    h->sum += seconds;
}

void metrics_request(metrics *m, const char *api, int code, double seconds) {
    size_t i = 0;
    while (i < m->n_codes && !(m->codes[i].code == code && strcmp(m->codes[i].api, api) == 0)) i++;
    if (i == m->n_codes) {
        if (i == METRICS_CODES) return;
        m->codes[m->n_codes++] = (metrics_code){ api, code, 0 };
    }
    m->codes[i].n++;
    metrics_observe(&m->duration, seconds);
}

void metrics_put_head(str *out, const char *name, const char *kind, const char *help) {
    str_printf(out, "# HELP hearth_%s %s\n# TYPE hearth_%s %s\n", name, help, name, kind);
}

void metrics_put(str *out, const char *name, const char *kind, const char *help, double value) {
    metrics_put_head(out, name, kind, help);
    str_printf(out, "hearth_%s %.17g\n", name, value);
}

void metrics_put_histogram(str *out, const char *name, const char *help, const histogram *h) {
    uint64_t below = 0;
    metrics_put_head(out, name, "histogram", help);
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        below += h->count[i];
        str_printf(out, "hearth_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], below);
    }
    str_printf(out, "hearth_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->total);
    str_printf(out, "hearth_%s_sum %.9g\nhearth_%s_count %" PRIu64 "\n", name, h->sum, name, h->total);
}

double metrics_quantile(const histogram *h, double q) {
    double   wanted = q * (double)h->total;
    uint64_t below = 0;
    if (h->total == 0) return 0;
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        below += h->count[i];
        if ((double)below >= wanted) return bounds[i];
    }
    return bounds[METRICS_BUCKETS - 1];
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "server/params.h"

#include "server/adapters.h"

#include "server/constraints.h"
#include "server/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BIAS = 4096, MAX_BREAKERS = 64 };

static bool out_of_memory(exchange *x) {
    reader_fail(&x->in, NULL, "out of memory");
    return false;
}

static void read_bias(exchange *x, const node *o, runtime_request *q) {
    node        map, entry;
    void       *cursor = NULL;
    const char *key;
    size_t      n = 0;
    if (!read_object(&x->in, o, "logit_bias", &map)) return;
    if (node_count(&map) > MAX_BIAS) reader_fail(&x->in, &map, "has more than %d entries", MAX_BIAS);
    sampling_bias *list = arena_calloc(&x->arena, node_count(&map) + 1, sizeof *list);
    if (!list) out_of_memory(x);
    while (!x->in.failed && node_next(&map, &cursor, &key, &entry)) {
        char *end;
        long  token = strtol(key, &end, 10);
        if (!*key || *end || token < 0 || token > INT32_MAX)
            reader_fail(&x->in, &entry, "the key must be the number of a token");
        else if (node_is(&entry) != NODE_INT && node_is(&entry) != NODE_REAL)
            reader_fail(&x->in, &entry, "expected a number");
        else if (!(fabs(node_real(&entry)) <= 100))
            reader_fail(&x->in, &entry, "must lie between -100 and 100");
        else
            list[n++] = (sampling_bias){ (int32_t)token, (float)node_real(&entry) };
    }
    q->sampling.bias = list;
    q->sampling.n_bias = n;
}

/* "samplers": the order of the chain. */
static void read_order(exchange *x, const node *o, runtime_request *q) {
    node list;
    int  n = 0;
    if (!read_array(&x->in, o, "samplers", SAMPLING_STAGE_COUNT, &list)) return;
    for (size_t i = 0; i < node_count(&list); i++) {
        node item = node_at(&list, i);
        if (!need_kind(&x->in, &item, NODE_STRING)) return;
        if (!sampling_stage_parse(node_text(&item).data, &q->sampling.order[n]))
            reader_fail(&x->in, &item, "'%.30s' is not a sampler", node_text(&item).data);
        else
            n++;
    }
    q->sampling.n_order = n;
    q->sampling_set |= RUNTIME_SET_ORDER;
}

static void read_breakers(exchange *x, const node *o, runtime_request *q) {
    node list;
    if (!read_array(&x->in, o, "dry_sequence_breakers", MAX_BREAKERS, &list)) return;
    view *texts = arena_calloc(&x->arena, node_count(&list) + 1, sizeof *texts);
    if (!texts) {
        out_of_memory(x);
        return;
    }
    for (size_t i = 0; i < node_count(&list); i++) {
        node item = node_at(&list, i);
        if (!need_kind(&x->in, &item, NODE_STRING)) return;
        texts[i] = node_text(&item);
    }
    q->dry_breakers = texts;
    q->n_dry_breakers = node_count(&list);
}

static void read_parameter(reader *in, const node *o, sampling_param p, sampling_protocol by, runtime_request *q) {
    const sampling_limits r = sampling_range(p, by);
    const char           *name;
    double                real;
    int64_t               integer;
    for (size_t i = 0; (name = sampling_param_name(p, by, i)); i++) {
        if (sampling_param_fields[p].type == SAMPLING_IS_FLOAT) {
            if (!read_real(in, o, name, r.low, r.high, &real)) continue;
            sampling_set_real(&q->sampling, p, real);
        } else {
            if (!read_int(in, o, name, sampling_low_int(r), sampling_high_int(r), &integer)) continue;
            if (p == SAMPLING_PARAM_SEED && integer == SAMPLING_RANDOM_SEED) continue;
            sampling_set_int(&q->sampling, p, integer);
        }
        q->sampling_set |= runtime_set_bits[p];
    }
}

void params_numbers(reader *in, const node *o, sampling_protocol by, runtime_request *q) {
    for (int p = 0; p < SAMPLING_PARAM_COUNT; p++) read_parameter(in, o, (sampling_param)p, by, q);
}

void params_sampling(exchange *x, const node *o, sampling_protocol by, runtime_request *q) {
    params_numbers(&x->in, o, by, q);
    read_bias(x, o, q);
    read_order(x, o, q);
    read_breakers(x, o, q);
}

/* llama.cpp's names, flat or as an object. Which drafters there are was decided when the model was opened. */
static void read_speculative(exchange *x, const node *o, runtime_request *q) {
    node    inner;
    bool    flag;
    int64_t n;
    double  p;
    if (read_bool(&x->in, o, "speculative.enabled", &flag)) q->no_drafts = !flag;
    if (read_int(&x->in, o, "speculative.n_max", 0, PARAMS_MAX_DRAFT, &n)) q->draft_max = (int)n, q->no_drafts = n == 0;
    if (read_int(&x->in, o, "speculative.n_min", 0, PARAMS_MAX_DRAFT, &n)) q->draft_min = (int)n;
    if (read_real(&x->in, o, "speculative.p_min", 0, 1, &p)) q->draft_p_min = (float)p;
    (void)read_any(&x->in, o, "speculative.type");
    if (!read_object(&x->in, o, "speculative", &inner)) return;
    if (read_bool(&x->in, &inner, "enabled", &flag)) q->no_drafts = !flag;
    if (read_int(&x->in, &inner, "max", 0, PARAMS_MAX_DRAFT, &n)) q->draft_max = (int)n, q->no_drafts = n == 0;
    if (read_int(&x->in, &inner, "min", 0, PARAMS_MAX_DRAFT, &n)) q->draft_min = (int)n;
    if (read_real(&x->in, &inner, "min_p", 0, 1, &p)) q->draft_p_min = (float)p;
}

void params_extras(exchange *x, const node *o, runtime_request *q) {
    bool    flag;
    int64_t integer;
    adapters_read(x, o, q);
    if (read_bool(&x->in, o, "cache_prompt", &flag)) q->no_cache = !flag;
    params_json_form(x, o, q);
    read_speculative(x, o, q);
    if (read_bool(&x->in, o, "ignore_eos", &flag)) q->ignore_eos = flag;
    if (read_int(&x->in, o, "priority", -1000, 1000, &integer)) q->priority = (int)integer;
    if (read_int(&x->in, o, "min_tokens", 0, PARAMS_MAX_TOKENS, &integer)) q->min_tokens = (int)integer;
    if (read_bool(&x->in, o, "return_progress", &flag)) q->want_progress = flag;
    const view *asked = http_request_get(x->http, "x-prefill-progress");
    if (asked && !view_eq_c(*asked, "0")) q->want_progress = true;
}

void params_max_tokens(exchange *x, const node *o, const char *key, runtime_request *q) {
    int64_t n;
    if (!read_int(&x->in, o, key, -1, PARAMS_MAX_TOKENS, &n)) return;
    node at = node_get(o, key);
    if (n == 0) reader_fail(&x->in, &at, "must lie between 1 and %d, or be -1 for no limit", PARAMS_MAX_TOKENS);
    q->max_tokens = n > 0 ? (int)n : 0;
}

void params_stop(exchange *x, const node *o, const char *key, runtime_request *q) {
    node   n = read_any(&x->in, o, key);
    size_t count = node_is(&n) == NODE_STRING ? 1 : node_count(&n);
    if (node_is(&n) == NODE_ABSENT) return;
    if (node_is(&n) != NODE_STRING && node_is(&n) != NODE_ARRAY) {
        reader_fail(&x->in, &n, "expected a string or an array of strings");
        return;
    }
    if (count > PARAMS_MAX_STOPS) {
        reader_fail(&x->in, &n, "has %zu texts; at most %d are allowed", count, PARAMS_MAX_STOPS);
        return;
    }
    view *stops = arena_calloc(&x->arena, count + 1, sizeof *stops);
    if (!stops) {
        out_of_memory(x);
        return;
    }
    q->n_stop = 0;
    for (size_t i = 0; i < count; i++) {
        node item = node_is(&n) == NODE_ARRAY ? node_at(&n, i) : n;
        if (!need_kind(&x->in, &item, NODE_STRING)) return;
        view v = node_text(&item);
        if (v.len > 1024) reader_fail(&x->in, &item, "is longer than 1024 bytes");
        if (v.len) stops[q->n_stop++] = v; /* an empty one stops nothing */
    }
    q->stop = stops;
}

bool params_one_model(exchange *x) {
    host_model *list = NULL;
    size_t      n = 0;
    bool        one = host_list(x->host, &list, &n, NULL) == 0 && n == 1;
    free(list);
    return one;
}

bool params_model(exchange *x, const node *o, bool required, view *out) {
    host_model  m;
    err         e = { 0 };
    const char *dflt = x->server->options.default_model;
    *out = (view){ "", 0 };
    if (!read_string(&x->in, o, "model", out) && !x->in.failed) {
        if (required || !dflt)
            need_string(&x->in, o, "model", out);
        else
            *out = view_of(dflt);
    }
    if (x->in.failed) return false;
    if (host_find(x->host, *out, &m, &e) == 0 || adapters_known(x, *out)) return true;
    exchange_error(x, 404, "model_not_found", "model", "The model '%.*s' does not exist here",
                   (int)(out->len > 100 ? 100 : out->len), out->data);
    return false;
}

bool params_json(exchange *x, const node *n, view *out) {
    str text;
    str_init(&text);
    node_write(n, &text);
    char *p = str_ok(&text) ? arena_strndup(&x->arena, str_cstr(&text), text.len) : NULL;
    *out = (view){ p, p ? text.len : 0 };
    str_deinit(&text);
    return p || out_of_memory(x);
}

/* --- prompts --- */

static void read_tokens(exchange *x, const node *list, runtime_request *q) {
    size_t   n = node_count(list);
    int32_t *tokens = arena_calloc(&x->arena, n + 1, sizeof *tokens);
    if (n == 0) reader_fail(&x->in, list, "is empty");
    if (!tokens) out_of_memory(x);
    for (size_t i = 0; i < n && !x->in.failed; i++) {
        node item = node_at(list, i);
        if (!need_kind(&x->in, &item, NODE_INT)) return;
        if (node_int(&item) < 0 || node_int(&item) > INT32_MAX) reader_fail(&x->in, &item, "is not a token");
        tokens[i] = (int32_t)node_int(&item);
    }
    q->tokens = tokens;
    q->n_tokens = n;
}

static void read_text(exchange *x, const node *n, runtime_request *q) {
    q->text = node_text(n);
    if (q->text.len == 0) reader_fail(&x->in, n, "is an empty text");
}

/* Two texts that are one input. */
static void read_pair(exchange *x, const node *list, runtime_request *q) {
    runtime_request second = { 0 };
    node            a = node_at(list, 0), b = node_at(list, 1);
    if (node_count(list) != 2) reader_fail(&x->in, list, "has %zu texts; a pair has two", node_count(list));
    if (!need_kind(&x->in, &a, NODE_STRING) || !need_kind(&x->in, &b, NODE_STRING)) return;
    read_text(x, &a, q);
    read_text(x, &b, &second);
    q->suffix = second.text;
    q->pair = true;
}

static void read_prompts(exchange *x, const node *input, size_t max, bool pairs, runtime_request **out, size_t *n) {
    node   first = node_at(input, 0);
    bool   single = node_is(input) == NODE_STRING || node_is(&first) == NODE_INT;
    size_t count = single ? 1 : node_count(input);
    *out = NULL;
    *n = 0;
    if (node_is(input) != NODE_STRING && node_is(input) != NODE_ARRAY) {
        reader_fail(&x->in, input,
                    node_is(input) == NODE_ABSENT ? "is required"
                                                  : "expected a string, an array of strings, or token numbers");
        return;
    }
    if (count == 0) reader_fail(&x->in, input, "is empty");
    if (count > max) reader_fail(&x->in, input, "has %zu items; at most %zu are allowed", count, max);
    if (x->in.failed) return;
    runtime_request *q = exchange_requests(x, count);
    if (!q) return;
    for (size_t i = 0; i < count && !x->in.failed; i++) {
        node item = single ? *input : node_at(input, i), inner = node_at(&item, 0);
        if (node_is(&item) == NODE_STRING)
            read_text(x, &item, &q[i]);
        else if (pairs && node_is(&inner) == NODE_STRING)
            read_pair(x, &item, &q[i]);
        else if (node_is(&item) == NODE_ARRAY)
            read_tokens(x, &item, &q[i]);
        else
            reader_fail(&x->in, &item, "expected a string or an array of token numbers");
    }
    *out = q;
    *n = count;
}

void params_prompts(exchange *x, const node *input, size_t max, runtime_request **out, size_t *n) {
    read_prompts(x, input, max, false, out, n);
}

void params_pairs(exchange *x, const node *input, size_t max, runtime_request **out, size_t *n) {
    read_prompts(x, input, max, true, out, n);
}

/* --- durations --- */

/* "1h30m", "90s", "250ms", "300": milliseconds; false: no duration. */
static bool parse_duration(const char *s, double *out) {
    double total = 0, sign = 1;
    if (*s == '-') {
        sign = -1;
        s++;
    }
    if (!*s) return false;
    while (*s) {
        char  *end;
        double v = strtod(s, &end);
        if (end == s || !isfinite(v) || v < 0) return false;
        double unit = strncmp(end, "ms", 2) == 0 ? 1
                      : *end == 's' || !*end     ? 1000
                      : *end == 'm'              ? 60000
                      : *end == 'h'              ? 3600000
                                                 : 0;
        if (unit == 0) return false;
        total += v * unit;
        s = end + (unit == 1 ? 2 : *end ? 1 : 0);
    }
    *out = sign * total;
    return true;
}

bool params_keep_alive(exchange *x, const node *o, const char *key, int64_t *out_ms) {
    node   n = read_any(&x->in, o, key);
    double ms = 0;
    switch (node_is(&n)) {
    case NODE_ABSENT: return false;
    case NODE_INT:
    case NODE_REAL: ms = node_real(&n) * 1000; break;
    case NODE_STRING:
        if (parse_duration(node_text(&n).data, &ms)) break;
        /* fall through */
    default: reader_fail(&x->in, &n, "expected seconds or a duration such as \"5m\""); return false;
    }
    *out_ms = ms < 0 || ms > 1e15 ? HOST_KEEP_FOREVER : (int64_t)ms;
    return true;
}

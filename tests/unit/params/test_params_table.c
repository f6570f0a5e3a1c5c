/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of sampling parameters: it is complete, its names are clear, and whoever reads a parameter draws the line
 * where the table does.
 */
#include "unit/support/support.h"

#include "api/api.h"
#include "config/model.h"
#include "params/sampling_table.h"
#include "registry/modelfile.h"
#include "server/params.h"
#include "unit/support/program.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __has_builtin
#define __has_builtin(x) 0
#endif

static size_t size_of(sampling_type t) {
    return t == SAMPLING_IS_FLOAT ? sizeof(float) : t == SAMPLING_IS_INT ? sizeof(int) : sizeof(uint64_t);
}

/* Every byte of sampling_params that is not padding belongs to a row, or to a member that is not a parameter. */
static void test_complete(void **state) {
    static const struct {
        size_t offset, bytes;
    } others[] = {
#define OTHER(member) { offsetof(sampling_params, member), sizeof(((sampling_params *)0)->member) }
        OTHER(bias),          OTHER(n_bias), OTHER(dry_breakers), OTHER(n_dry_breakers),
        OTHER(together_from), OTHER(order),  OTHER(n_order),
    };
    unsigned char   marks[sizeof(sampling_params)] = { 0 }, real[sizeof(sampling_params)];
    sampling_params p;
    (void)state;
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++)
        for (size_t b = 0; b < size_of(sampling_param_fields[i].type); b++)
            marks[sampling_param_fields[i].offset + b]++;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (size_t b = 0; b < others[i].bytes; b++) marks[others[i].offset + b]++;
    memset((void *)&p, 0xff, sizeof p);
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&p);
#else
    printf("skipped: this compiler does not tell padding\n");
    skip();
#endif
    memcpy(real, (const void *)&p, sizeof p);
    for (size_t b = 0; b < sizeof p; b++)
        if (marks[b] != (real[b] ? 1 : 0)) fail_msg("byte %zu of sampling_params has %d rows", b, marks[b]);
}

static void test_names(void **state) {
    (void)state;
    for (int by = 0; by < SAMPLING_PROTOCOLS; by++) {
        int n = 0;
        for (int p = 0; p < SAMPLING_PARAM_COUNT; p++) {
            const char *name;
            for (size_t i = 0; (name = sampling_param_name((sampling_param)p, (sampling_protocol)by, i)); i++, n++)
                if (sampling_param_find(name, (sampling_protocol)by) != (sampling_param)p)
                    fail_msg("protocol %d: two parameters are called %s", by, name);
        }
        assert_true(n > 0);
        assert_int_equal(sampling_param_find("warmth", (sampling_protocol)by), SAMPLING_PARAM_COUNT);
    }
    assert_int_equal(sampling_param_find("repetition_penalty", SAMPLING_BY_OPENAI), SAMPLING_PARAM_REPEAT_PENALTY);
    assert_int_equal(sampling_param_find("temp", SAMPLING_BY_FLAG), SAMPLING_PARAM_TEMPERATURE);
    assert_int_equal(sampling_param_find("temp", SAMPLING_BY_OPENAI), SAMPLING_PARAM_COUNT);
    assert_int_equal(sampling_param_find("min_p", SAMPLING_BY_ANTHROPIC), SAMPLING_PARAM_COUNT);
}

/* Defaults lie in the range and switch stages off; a protocol never allows what the sampler refuses. */
static void test_defaults(void **state) {
    sampling_params p;
    err             e = { 0 };
    (void)state;
    sampling_params_default(&p);
    assert_int_equal(sampling_params_check(&p, &e), 0);
    assert_true(p.temperature == 1 && p.top_k == 0 && p.top_p == 1 && p.min_p == 0 && p.typical_p == 1);
    assert_true(p.repeat_last_n == 64 && p.dry_last_n == -1 && p.dry_base == 1.75f && p.mirostat_eta == 0.1f);
    assert_true(!sampling_penalizes(&p) && sampling_on_device(&p));
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++) {
        assert_true(sampling_get(&p, (sampling_param)i) == (double)(float)sampling_param_fields[i].dflt);
        for (int by = 0; by < SAMPLING_PROTOCOLS; by++) {
            sampling_limits r = sampling_range((sampling_param)i, (sampling_protocol)by);
            assert_true(r.low >= sampling_param_fields[i].low && r.high <= sampling_param_fields[i].high &&
                        r.low < r.high);
        }
    }
}

/* The sampler's own check: the borders are in, what lies just beyond them and NaN are not. */
static void test_check(void **state) {
    (void)state;
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++) {
        const sampling_field *f = &sampling_param_fields[i];
        sampling_params       p, bad;
        err                   e = { 0 };
        sampling_params_default(&p);
        if (f->type == SAMPLING_IS_UINT64) continue;
        sampling_set_real(&p, (sampling_param)i, f->low);
        assert_int_equal(sampling_params_check(&p, &e), 0);
        sampling_set_real(&p, (sampling_param)i, f->high);
        assert_int_equal(sampling_params_check(&p, &e), 0);
        for (int k = 0; k < 3; k++) {
            double beyond = k == 2 ? NAN
                            : f->type == SAMPLING_IS_FLOAT
                                ? (double)nextafterf((float)(k ? f->high : f->low), k ? INFINITY : -INFINITY)
                            : k ? f->high + 1
                                : f->low - 1;
            bad = p;
            if (f->type == SAMPLING_IS_INT && (k == 2 || beyond > INT32_MAX)) continue;
            sampling_set_real(&bad, (sampling_param)i, beyond);
            if (sampling_params_check(&bad, &e) != ERR_ARG) fail_msg("%s: %g was accepted", f->key, beyond);
            if (strncmp(e.msg, f->key, strlen(f->key)) != 0) fail_msg("%s is not named: %s", f->key, e.msg);
        }
    }
}

/* --- readers --- */

/* Whether a reader takes this text as the value of a name; `out` gets what it understood. */
typedef bool (*judge)(sampling_protocol by, const char *name, const char *text, sampling_params *out);

typedef struct border {
    char text[40];
    bool inside;
} border;

/* The two ends of a range and what lies just beyond them, as people write numbers. */
static void borders_of(sampling_param p, sampling_limits r, border out[4]) {
    if (p == SAMPLING_PARAM_SEED) {
        out[0] = (border){ "-9223372036854775808", true };
        out[1] = (border){ "9223372036854775807", true };
        out[2] = (border){ "-9223372036854777856", false };
        out[3] = (border){ "9223372036854777856", false };
        return;
    }
    bool   is_float = sampling_param_fields[p].type == SAMPLING_IS_FLOAT;
    double below = is_float ? r.low - fmax(1e-9, fabs(r.low) * 1e-3) : r.low - 1;
    double above = is_float ? r.high + fmax(1e-9, fabs(r.high) * 1e-3) : r.high + 1;
    double values[4] = { r.low, r.high, below, above };
    for (int i = 0; i < 4; i++) {
        snprintf(out[i].text, sizeof out[i].text, is_float ? "%.17g" : "%.0f", values[i]);
        out[i].inside = i < 2;
    }
}

static void says(const sampling_params *got, sampling_param p, const char *text) {
    double v = strtod(text, NULL), want = sampling_param_fields[p].type == SAMPLING_IS_FLOAT ? (double)(float)v : v;
    if (p == SAMPLING_PARAM_SEED)
        assert_true(got->seed == (uint64_t)strtoll(text, NULL, 10));
    else if (sampling_get(got, p) != want)
        fail_msg("%s %s became %g", sampling_param_fields[p].key, text, sampling_get(got, p));
}

/* Of every parameter that the protocol has, by all of its names. */
static void check_borders(sampling_protocol by, judge accepts) {
    for (int p = 0; p < SAMPLING_PARAM_COUNT; p++) {
        border      b[4];
        const char *name;
        borders_of((sampling_param)p, sampling_range((sampling_param)p, by), b);
        for (size_t n = 0; (name = sampling_param_name((sampling_param)p, by, n)); n++) {
            for (int i = 0; i < 4; i++) {
                sampling_params got;
                bool            taken;
                sampling_params_default(&got);
                taken = accepts(by, name, b[i].text, &got);
                if (taken != b[i].inside)
                    fail_msg("protocol %d: %s %s was %s", (int)by, name, b[i].text, taken ? "accepted" : "refused");
                if (taken) says(&got, (sampling_param)p, b[i].text);
                if (taken) assert_int_equal(sampling_params_check(&got, NULL), 0);
            }
        }
    }
}

static bool http_accepts(sampling_protocol by, const char *name, const char *text, sampling_params *out) {
    char            body[120];
    json_doc        d;
    reader          in;
    runtime_request q;
    snprintf(body, sizeof body, "{\"%s\": %s}", name, text);
    if (json_doc_parse(&d, body, strlen(body), NULL) < 0) return false;
    reader_init(&in);
    runtime_request_init(&q);
    node root = node_root(&d);
    params_numbers(&in, &root, by, &q);
    json_doc_deinit(&d);
    if (!in.failed) assert_int_equal(q.sampling_set, runtime_set_bits[sampling_param_find(name, by)]);
    *out = q.sampling;
    return !in.failed;
}

static void test_http(void **state) {
    sampling_params p;
    (void)state;
    check_borders(SAMPLING_BY_OPENAI, http_accepts);
    check_borders(SAMPLING_BY_ANTHROPIC, http_accepts);
    check_borders(SAMPLING_BY_OLLAMA, http_accepts);
    check_borders(SAMPLING_BY_NATIVE, http_accepts);
    /* What a protocol promises less than the sampler can do. */
    assert_false(http_accepts(SAMPLING_BY_OPENAI, "temperature", "2.1", &p));
    assert_true(http_accepts(SAMPLING_BY_OLLAMA, "temperature", "2.1", &p));
    assert_false(http_accepts(SAMPLING_BY_ANTHROPIC, "temperature", "1.1", &p));
    assert_false(http_accepts(SAMPLING_BY_ANTHROPIC, "top_k", "-1", &p));
    assert_true(http_accepts(SAMPLING_BY_OPENAI, "top_k", "-1", &p));
    assert_false(http_accepts(SAMPLING_BY_OPENAI, "presence_penalty", "-2.5", &p));
}

/* The settings as they are stored, JSON or YAML. */
static bool settings_accept(sampling_protocol by, const char *name, const char *text, sampling_params *out) {
    char         body[120];
    config_model m;
    (void)by;
    snprintf(body, sizeof body, "{\"sampling\": {\"%s\": %s}}", name, text);
    if (config_model_read(&m, view_of(body), "settings", NULL) < 0) return false;
    assert_int_equal(m.sampling.set, CONFIG_SET(sampling_param_find(name, SAMPLING_BY_SETTINGS)));
    *out = m.sampling.values;
    config_model_deinit(&m);
    return true;
}

/* Also as a preset, which has its own table of keys. */
static bool presets_accept(sampling_protocol by, const char *name, const char *text, sampling_params *out) {
    char         body[120];
    config_model m;
    (void)by;
    snprintf(body, sizeof body, "preset: a\npresets: {a: {%s: %s}}\n", name, text);
    if (config_model_read(&m, view_of(body), "settings", NULL) < 0) return false;
    *out = m.sampling.values;
    config_model_deinit(&m);
    return true;
}

/* A PARAMETER line, and the settings that it becomes. */
static bool modelfile_accepts(sampling_protocol by, const char *name, const char *text, sampling_params *out) {
    char         body[120];
    config_model m;
    modelfile    file;
    str          json;
    err          e = { 0 };
    (void)by;
    snprintf(body, sizeof body, "FROM x\nPARAMETER %s %s\n", name, text);
    if (modelfile_parse(&file, body, strlen(body), "Modelfile", &e) < 0) return false;
    str_init(&json);
    assert_int_equal(modelfile_settings(&file, NULL, &json, &e), 0);
    if (config_model_read(&m, view_of(str_cstr(&json)), "settings", &e) < 0)
        fail_msg("a Modelfile may say %s %s, but settings may not: %s", name, text, e.msg);
    *out = m.sampling.values;
    config_model_deinit(&m);
    str_deinit(&json);
    modelfile_deinit(&file);
    return true;
}

static void test_settings(void **state) {
    (void)state;
    check_borders(SAMPLING_BY_SETTINGS, settings_accept);
    check_borders(SAMPLING_BY_SETTINGS, presets_accept);
}

static void test_modelfile(void **state) {
    sampling_params p;
    (void)state;
    check_borders(SAMPLING_BY_MODELFILE, modelfile_accepts);
    assert_true(modelfile_accepts(SAMPLING_BY_MODELFILE, "top_k", "-1", &p) && p.top_k == -1);
    assert_true(modelfile_accepts(SAMPLING_BY_MODELFILE, "seed", "-1", &p) && (int64_t)p.seed == SAMPLING_RANDOM_SEED);
}

/* The program itself, for one token. */
static bool flag_accepts(sampling_protocol by, const char *name, const char *text, sampling_params *out) {
    char           arguments[200], *said = NULL, want[60];
    sampling_param p = sampling_param_find(name, by);
    snprintf(arguments, sizeof arguments, "run demo Hi --no-config -n 1 --%s %s 2>&1", name, text);
    int status = program_run("", arguments, &said);
    snprintf(want, sizeof want, "--%s: ", name);
    if (status != 0 && !(status == 2 && strstr(said, want))) fail_msg("%s: status %d, %s", arguments, status, said);
    free(said);
    if (sampling_param_fields[p].type == SAMPLING_IS_FLOAT) /* what it understood shows in no output */
        sampling_set_real(out, p, strtod(text, NULL));
    else
        sampling_set_int(out, p, strtoll(text, NULL, 10));
    return status == 0;
}

static void test_flags(void **state) {
    (void)state;
    check_borders(SAMPLING_BY_FLAG, flag_accepts);
}

/* A member of hearth_request, by its name. */
static void *api_member(hearth_request *q, const char *name) {
    static const struct {
        const char *name;
        size_t      offset;
    } rows[] = {
#define AT(member) { #member, offsetof(hearth_request, member) }
        AT(temperature),      AT(top_p), AT(min_p), AT(typical_p), AT(top_k), AT(repeat_penalty), AT(frequency_penalty),
        AT(presence_penalty), AT(seed),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0) return (char *)q + rows[i].offset;
    fail_msg("hearth_request has no %s", name);
    return NULL;
}

/* What the type cannot hold cannot be asked for. */
static bool api_accepts(sampling_protocol by, const char *name, const char *text, sampling_params *out) {
    sampling_param  p = sampling_param_find(name, by);
    hearth_request  q;
    runtime_request r;
    view           *stop = NULL;
    errno = 0;
    long long n = strtoll(text, NULL, 10);
    hearth_request_init(&q, sizeof q);
    void *at = api_member(&q, name);
    switch (sampling_param_fields[p].type) {
    case SAMPLING_IS_FLOAT: *(float *)at = strtof(text, NULL); break;
    case SAMPLING_IS_INT:
        if (n > INT32_MAX) return false;
        *(int *)at = (int)n;
        break;
    case SAMPLING_IS_UINT64:
        if (errno) return false;
        *(int64_t *)at = n;
        break;
    }
    assert_int_equal(api_runtime_request(&q, &r, &stop, NULL), 0);
    assert_int_equal(r.sampling_set, runtime_set_bits[p]);
    *out = r.sampling;
    return sampling_params_check(out, NULL) == 0; /* as the runtime does with every request */
}

static void test_c_api(void **state) {
    hearth_request  q;
    runtime_request r;
    view           *stop = NULL;
    (void)state;
    check_borders(SAMPLING_BY_C_API, api_accepts);
    hearth_request_init(&q, sizeof q);
    assert_int_equal(api_runtime_request(&q, &r, &stop, NULL), 0);
    assert_int_equal(r.sampling_set, 0);
    q.seed = SAMPLING_RANDOM_SEED;
    assert_int_equal(api_runtime_request(&q, &r, &stop, NULL), 0);
    assert_int_equal(r.sampling_set, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),  cmocka_unit_test(test_names), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_check),     cmocka_unit_test(test_http),  cmocka_unit_test(test_settings),
        cmocka_unit_test(test_modelfile), cmocka_unit_test(test_flags), cmocka_unit_test(test_c_api),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth debug masks: schemas with instances from stdin, one JSON object per line with "name", "schema" and "tests", a
 * list of {"valid", "data"}. Each schema is compiled, each instance is written as Python's json.dumps would (", " and
 * ": ", non-ASCII kept), tokenized and walked token by token with a mask before each. One JSON line per schema, totals
 * at the end. One thread.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct times {
    double *us;
    size_t  n, cap;
} times;

typedef struct bench {
    tok           *t;
    grammar_vocab *v;
    uint32_t      *mask;
    times          masks, compiles;
    size_t         n_schemas, n_passed, n_refused, n_valid_rejected, n_invalid_accepted, n_errors, n_tokens;
    const char    *only;
    bool           steered;
} bench;

/* One schema's result. */
typedef struct outcome {
    size_t n_tests, n_tokens, n_masks;
    double compile_us, mask_us, mask_max_us;
    bool   valid_rejected, invalid_accepted, failed;
    str    detail;
} outcome;

static double now_us(void) { return 1e-3 * (double)clock_ns(); }

static bool times_push(times *t, double us) {
    if (t->n == t->cap) {
        size_t  cap = t->cap ? t->cap * 2 : 1024;
        double *p = realloc(t->us, cap * sizeof *p);
        if (!p) return false;
        t->us = p;
        t->cap = cap;
    }
    t->us[t->n++] = us;
    return true;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void times_print(const char *name, times *t) {
    double sum = 0;
    if (t->n) qsort(t->us, t->n, sizeof *t->us, by_value);
    for (size_t i = 0; i < t->n; i++) sum += t->us[i];
#define AT(p) (t->n ? t->us[(size_t)((double)(t->n - 1) * (p))] : 0.0)
    printf(",\"%s\":{\"count\":%zu,\"average\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}",
           name, t->n, t->n ? sum / (double)t->n : 0.0, AT(0.5), AT(0.9), AT(0.99), AT(0.999), AT(1.0));
#undef AT
}

static void put_string(str *out, view s) {
    str_push(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        static const char plain[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
        unsigned char     c = (unsigned char)s.data[i];
        const char       *p = c ? strchr(plain, c) : NULL;
        if (p)
            str_push(out, '\\'), str_push(out, letter[p - plain]);
        else if (c < 0x20)
            str_printf(out, "\\u%04x", c);
        else
            str_push(out, (char)c);
    }
    str_push(out, '"');
}

/* Writes the value that begins with event ev; numbers keep their spelling. */
static bool put_value(json_reader *r, json_event ev, str *out) {
    int    depth = 0;
    bool   first = true, key = false;
    size_t base = out->len;
    for (;; ev = json_next(r)) {
        bool closes = ev == JSON_OBJECT_END || ev == JSON_ARRAY_END;
        if (ev == JSON_ERROR || ev == JSON_END) return false;
        if (!closes && !key && !first && out->len > base) str_puts(out, ", ");
        first = key = false;
        switch (ev) {
        case JSON_OBJECT_BEGIN:
        case JSON_ARRAY_BEGIN:
            str_push(out, ev == JSON_OBJECT_BEGIN ? '{' : '[');
            depth++;
            first = true;
            break;
        case JSON_OBJECT_END:
        case JSON_ARRAY_END:
            str_push(out, ev == JSON_OBJECT_END ? '}' : ']');
            depth--;
            break;
        case JSON_KEY:
            put_string(out, r->text);
            str_puts(out, ": ");
            key = true;
            break;
        case JSON_STRING: put_string(out, r->text); break;
        case JSON_TRUE: str_puts(out, "true"); break;
        case JSON_FALSE: str_puts(out, "false"); break;
        case JSON_NULL: str_puts(out, "null"); break;
        default: str_append(out, r->src + r->start, r->pos - r->start); break;
        }
        if (depth == 0 && !key) return true;
    }
}

/* The first token of some tokenizers carries a space that the text does not have. */
static bool accept_first(bench *b, grammar_matcher *m, int32_t id, const str *text, bool *done) {
    str  s;
    bool ok = true;
    str_init(&s);
    tok_bytes(b->t, id, &s);
    *done = s.len > 0 && str_cstr(&s)[0] == ' ' && str_cstr(text)[0] != ' ';
    if (*done) ok = s.len == 1 || grammar_matcher_accept_bytes(m, str_cstr(&s) + 1, s.len - 1);
    str_deinit(&s);
    return ok;
}

/* 1: the whole text is accepted, 0: not, negative: an error. */
static int walk(bench *b, grammar *g, const str *text, outcome *o, size_t *where, err *e) {
    grammar_matcher *m;
    tok_ids          ids = { 0 };
    int              rc = tok_encode(b->t, str_cstr(text), text->len, 0, &ids, e);
    if (rc == 0) rc = grammar_matcher_open(&m, g, b->v, e);
    if (rc < 0) {
        tok_ids_deinit(&ids);
        return rc;
    }
    rc = 1;
    for (*where = 0; *where < ids.count && rc == 1; ++*where) {
        int32_t id = ids.data[*where];
        bool    done = false;
        double  t0 = now_us(), us;
        int     bad = grammar_matcher_mask(m, b->mask, e);
        us = now_us() - t0;
        if (bad < 0) {
            rc = bad;
            break;
        }
        o->mask_us += us;
        if (us > o->mask_max_us) o->mask_max_us = us;
        o->n_masks++;
        o->n_tokens++;
        times_push(&b->masks, us);
        if (*where == 0) rc = accept_first(b, m, id, text, &done);
        if (done) continue;
        if (!((b->mask[id >> 5] >> (id & 31)) & 1))
            rc = 0;
        else if ((bad = grammar_matcher_accept(m, id, e)) < 0)
            rc = bad;
        if (rc != 1) break;
    }
    if (rc == 1 && !grammar_matcher_may_end(m)) rc = 0;
    grammar_matcher_free(m);
    tok_ids_deinit(&ids);
    return rc;
}

/* One of "tests": its object was begun. */
static bool run_test(bench *b, grammar *g, json_reader *r, outcome *o) {
    bool       valid = false;
    str        text;
    json_event ev;
    err        e = { 0 };
    size_t     where = 0;
    int        rc;
    str_init(&text);
    while ((ev = json_next(r)) == JSON_KEY) {
        if (view_eq_c(r->text, "valid")) {
            valid = json_next(r) == JSON_TRUE;
        } else if (view_eq_c(r->text, "data")) {
            if (!put_value(r, json_next(r), &text)) break;
        } else if (!json_skip(r, json_next(r))) {
            break;
        }
    }
    if (ev != JSON_OBJECT_END || !str_ok(&text)) {
        str_deinit(&text);
        return false;
    }
    rc = walk(b, g, &text, o, &where, &e);
    o->n_tests++;
    if (rc < 0) {
        o->failed = true;
        if (!o->detail.len) str_puts(&o->detail, e.msg);
    } else if ((rc == 1) != valid) {
        if (valid)
            o->valid_rejected = true;
        else
            o->invalid_accepted = true;
        if (!o->detail.len)
            str_printf(&o->detail, "test %zu, token %zu: %.300s", o->n_tests - 1, where, str_cstr(&text));
    }
    str_deinit(&text);
    return true;
}

static void report(bench *b, const str *name, outcome *o, const err *refused) {
    str out;
    str_init(&out);
    str_puts(&out, "{\"name\":");
    str_put_json(&out, str_cstr(name), name->len);
    b->n_schemas++;
    if (refused) {
        b->n_refused++;
        str_puts(&out, ",\"status\":\"refused\",\"reason\":");
        str_put_json(&out, refused->msg, strlen(refused->msg));
        str_printf(&out, ",\"code\":\"%s\",\"compile_us\":%.1f}", err_code_name(refused->code), o->compile_us);
    } else {
        const char *status = o->invalid_accepted ? "invalid_accepted"
                             : o->failed         ? "error"
                             : o->valid_rejected ? "valid_rejected"
                                                 : "passed";
        b->n_passed += !o->invalid_accepted && !o->failed && !o->valid_rejected;
        b->n_invalid_accepted += o->invalid_accepted;
        b->n_valid_rejected += o->valid_rejected;
        b->n_errors += o->failed;
        b->n_tokens += o->n_tokens;
        str_printf(&out, ",\"status\":\"%s\"", status);
        if (o->detail.len) {
            str_puts(&out, ",\"detail\":");
            str_put_json(&out, o->detail.data, o->detail.len);
        }
        str_printf(
            &out, ",\"compile_us\":%.1f,\"tests\":%zu,\"tokens\":%zu,\"mask_us_average\":%.1f,\"mask_us_max\":%.1f}",
            o->compile_us, o->n_tests, o->n_tokens, o->n_masks ? o->mask_us / (double)o->n_masks : 0.0, o->mask_max_us);
    }
    puts(str_cstr(&out));
    str_deinit(&out);
}

static int compile_case(bench *b, view schema, grammar **g, outcome *o, err *e) {
    double           t0 = now_us();
    grammar_matcher *m = NULL;
    int              rc = b->steered ? grammar_from_schema_steered(g, schema, e) : grammar_from_schema(g, schema, e);
    if (rc == 0) rc = grammar_matcher_open(&m, *g, b->v, e); /* the first mask needs nothing more */
    o->compile_us = now_us() - t0;
    grammar_matcher_free(m);
    if (rc < 0) {
        grammar_unref(*g);
        *g = NULL;
        return rc;
    }
    times_push(&b->compiles, o->compile_us);
    return 0;
}

/* One line. "tests" may come before "schema", so both are found first. */
static int run_case(bench *b, const char *line, size_t len, err *e) {
    json_reader r;
    json_event  ev;
    str         name;
    view        schema = { 0 }, tests = { 0 };
    outcome     o = { 0 };
    grammar    *g = NULL;
    int         rc = 0;
    str_init(&name);
    str_init(&o.detail);
    json_reader_init(&r, line, len);
    ev = json_next(&r);
    while (ev == JSON_OBJECT_BEGIN && json_next(&r) == JSON_KEY) {
        bool is_name = view_eq_c(r.text, "name"), is_schema = view_eq_c(r.text, "schema"),
             is_tests = view_eq_c(r.text, "tests");
        json_event value = json_next(&r);
        size_t     start = r.start;
        if (is_name && value == JSON_STRING) str_append(&name, r.text.data, r.text.len);
        if (!json_skip(&r, value)) break;
        if (is_schema) schema = (view){ line + start, r.pos - start };
        if (is_tests) tests = (view){ line + start, r.pos - start };
    }
    if (r.failed || !schema.data) {
        rc = r.failed ? err_set(e, ERR_FORMAT, "a case is not valid JSON: %s", r.error.msg)
                      : err_set(e, ERR_FORMAT, "a case has no \"schema\"");
    }
    json_reader_deinit(&r);
    if (rc == 0 && (!b->only || strcmp(b->only, str_cstr(&name)) == 0)) {
        err refused = { 0 };
        if (compile_case(b, schema, &g, &o, &refused) < 0) {
            report(b, &name, &o, &refused);
        } else {
            json_reader_init(&r, tests.data ? tests.data : "[]", tests.data ? tests.len : 2);
            if (json_next(&r) == JSON_ARRAY_BEGIN)
                while (json_next(&r) == JSON_OBJECT_BEGIN && run_test(b, g, &r, &o)) {
                }
            if (r.failed) rc = err_set(e, ERR_FORMAT, "%s: the tests are not valid: %s", str_cstr(&name), r.error.msg);
            json_reader_deinit(&r);
            report(b, &name, &o, NULL);
        }
    }
    grammar_unref(g);
    str_deinit(&o.detail);
    str_deinit(&name);
    return rc;
}

static int run(const cli_args *args) {
    const char *model = cli_string(args, "vocab", NULL);
    bench       b = { .only = cli_string(args, "only", NULL), .steered = cli_flag(args, "steered") };
    char       *line = NULL;
    size_t      cap = 0;
    ssize_t     len;
    double      t0;
    err         e = { 0 };
    int         rc;
    if (!model) return cli_usage_error(args, "--vocab is missing");
    if (bundle_tokenizer_open_path(&b.t, model, NULL, &e) < 0) return cli_fail(args, &e);
    t0 = now_us();
    rc = grammar_vocab_open(&b.v, b.t, &e);
    double vocab_ms = (now_us() - t0) / 1e3;
    if (rc == 0 && !(b.mask = malloc(grammar_vocab_mask_words(b.v) * sizeof *b.mask))) rc = err_set_nomem(&e);
    while (rc == 0 && (len = getline(&line, &cap, stdin)) > 0)
        if (len > 1) rc = run_case(&b, line, (size_t)len, &e);
    if (rc == 0) {
        printf("{\"totals\":{\"schemas\":%zu,\"passed\":%zu,\"refused\":%zu,\"valid_rejected\":%zu,\"invalid_"
               "accepted\":%zu,"
               "\"errors\":%zu,\"tokens\":%zu,\"vocabulary\":%d,\"vocabulary_ms\":%.1f",
               b.n_schemas, b.n_passed, b.n_refused, b.n_valid_rejected, b.n_invalid_accepted, b.n_errors, b.n_tokens,
               (int)tok_count(b.t), vocab_ms);
        times_print("mask_us", &b.masks);
        times_print("compile_us", &b.compiles);
        printf("}}\n");
    }
    free(line);
    free(b.mask);
    free(b.masks.us);
    free(b.compiles.us);
    grammar_vocab_free(b.v);
    tok_free(b.t);
    return rc < 0 ? cli_fail(args, &e) : CLI_OK;
}

static const cli_option options[] = {
    CLI_VOCAB_OPTION,
    CLI_ONLY_OPTION,
    CLI_STEERED_OPTION,
    { 0 },
};

const cli_command cli_cmd_debug_masks = {
    "masks",
    "--vocab MODEL < cases.jsonl",
    "Compile schemas, walk through their instances and time every mask.",
    options,
    0,
    0,
    run,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth debug sample: random walks under a schema, without a model. Schemas come from stdin, one JSON object per line
 * with "name" and "schema"; each walk is a JSON line with how it ended ("stop", "length") and its text. A schema that
 * is refused gets one line with the reason.
 *
 * A token is drawn from those the mask allows: half of the time from all of them, half of the time from those that
 * begin with a structural character, and in the second half of a walk from those that close something, so that walks
 * end. Whatever is drawn is allowed; a mask without a token is an error.
 */
#include "base/json.h"
#include "base/str.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sampler {
    tok           *t;
    grammar_vocab *v;
    uint32_t      *mask;
    uint8_t       *first; /* of each token's text; 0: it has none */
    int32_t       *drawn; /* scratch: candidates */
    size_t         n_tokens, max_tokens, count;
    uint64_t       state; /* xorshift */
    const char    *only;
    bool           steered;
} sampler;

static uint32_t draw(sampler *s, size_t below) {
    s->state ^= s->state << 13;
    s->state ^= s->state >> 7;
    s->state ^= s->state << 17;
    return (uint32_t)((s->state >> 32) % below);
}

/* The allowed tokens whose first byte is one of set (NULL: any; "": those without a text, which end the walk). */
static size_t candidates(sampler *s, const char *set) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_tokens; i++) {
        if (!(s->mask[i >> 5] >> (i & 31) & 1)) continue;
        if (set && !*set ? s->first[i] != 0 : set && (!s->first[i] || !strchr(set, s->first[i]))) continue;
        s->drawn[n++] = (int32_t)i;
    }
    return n;
}

static int32_t pick(sampler *s, size_t at) {
    static const char *const closing[] = { "", "}", "]", "\"", ":", "0123456789tfn", "," };
    size_t                   n = 0;
    if (at * 2 > s->max_tokens) {
        for (size_t i = 0; i < sizeof closing / sizeof *closing; i++) {
            if (draw(s, 8) && (n = candidates(s, closing[i])) > 0) return s->drawn[draw(s, n)];
        }
    } else if (draw(s, 2)) {
        static const char *const often[] = { "\"", "}]", ",", ":", "" };
        n = candidates(s, often[draw(s, sizeof often / sizeof *often)]);
    }
    if (!n) n = candidates(s, NULL);
    return n ? s->drawn[draw(s, n)] : -1;
}

/* 1: ended, 0: out of tokens. */
static int walk(sampler *s, grammar *g, str *text, size_t *at, err *e) {
    grammar_matcher *m;
    int              rc = grammar_matcher_open(&m, g, s->v, e);
    if (rc < 0) return rc;
    for (*at = 0; rc == 0 && *at < s->max_tokens; ++*at) {
        int32_t id;
        if ((rc = grammar_matcher_mask(m, s->mask, e)) < 0) break;
        if ((id = pick(s, *at)) < 0) {
            rc = err_set(e, ERR_FORMAT, "after %zu tokens no further token is allowed", *at);
            break;
        }
        if ((rc = grammar_matcher_accept(m, id, e)) < 0) break;
        if (!s->first[id])
            rc = 1;
        else
            tok_bytes(s->t, id, text);
    }
    grammar_matcher_free(m);
    return rc;
}

static int run_case(sampler *s, const json_value *v, view schema, err *e) {
    const char *name = json_cstr(json_get(v, "name"));
    grammar    *g = NULL;
    str         out, text;
    int         rc = 0;
    if (s->only && (!name || strcmp(name, s->only) != 0)) return 0;
    str_init(&out);
    str_init(&text);
    if ((s->steered ? grammar_from_schema_steered : grammar_from_schema)(&g, schema, e) < 0) {
        str_puts(&out, "{\"name\":");
        str_put_json(&out, name ? name : "", name ? strlen(name) : 0);
        str_puts(&out, ",\"finish\":\"refused\",\"reason\":");
        str_put_json(&out, e->msg, strlen(e->msg));
        str_push(&out, '}');
        puts(str_cstr(&out));
    }
    for (size_t i = 0; g && i < s->count && rc >= 0; i++) {
        size_t at = 0;
        str_clear(&text);
        str_clear(&out);
        if ((rc = walk(s, g, &text, &at, e)) < 0) break;
        str_puts(&out, "{\"name\":");
        str_put_json(&out, name ? name : "", name ? strlen(name) : 0);
        str_printf(&out, ",\"finish\":\"%s\",\"tokens\":%zu,\"text\":", rc ? "stop" : "length", at);
        str_put_json(&out, str_cstr(&text), text.len);
        str_push(&out, '}');
        puts(str_cstr(&out));
    }
    grammar_unref(g);
    str_deinit(&text);
    str_deinit(&out);
    return rc < 0 ? err_wrap(e, rc, "%s", name ? name : "schema") : 0;
}

static int run_line(sampler *s, const char *line, size_t len, err *e) {
    const json_value *v;
    arena             a;
    str               schema;
    int               rc;
    arena_init(&a, 64 << 20);
    str_init(&schema);
    rc = json_parse(&v, line, len, &a, e);
    if (rc == 0 && !json_get(v, "schema")) rc = err_set(e, ERR_FORMAT, "a case has no \"schema\"");
    if (rc == 0) {
        json_write(json_get(v, "schema"), &schema);
        rc = run_case(s, v, (view){ str_cstr(&schema), schema.len }, e);
    }
    str_deinit(&schema);
    arena_deinit(&a);
    return rc;
}

static int open_vocab(sampler *s, const char *model, err *e) {
    str one;
    int rc = bundle_tokenizer_open_path(&s->t, model, NULL, e);
    if (rc == 0) rc = grammar_vocab_open(&s->v, s->t, e);
    if (rc < 0) return rc;
    s->n_tokens = (size_t)tok_count(s->t);
    s->mask = malloc(grammar_vocab_mask_words(s->v) * sizeof *s->mask);
    s->first = calloc(s->n_tokens + 1, 1);
    s->drawn = malloc((s->n_tokens + 1) * sizeof *s->drawn);
    if (!s->mask || !s->first || !s->drawn) return err_set_nomem(e);
    str_init(&one);
    for (size_t i = 0; i < s->n_tokens; i++) {
        str_clear(&one);
        tok_bytes(s->t, (int32_t)i, &one);
        if (one.len && !tok_is_end(s->t, (int32_t)i)) s->first[i] = (uint8_t)one.data[0];
    }
    str_deinit(&one);
    return 0;
}

static int run(const cli_args *args) {
    const char *model = cli_string(args, "vocab", NULL);
    sampler     s = { .only = cli_string(args, "only", NULL),
                      .steered = cli_flag(args, "steered"),
                      .state = 88172645463325252u + (uint64_t)cli_int(args, "seed", 0) * 2654435761u,
                      .count = (size_t)cli_int(args, "count", 1),
                      .max_tokens = (size_t)cli_int(args, "max-tokens", 400) };
    char       *line = NULL;
    size_t      cap = 0;
    ssize_t     len;
    err         e = { 0 };
    int         rc;
    if (!model) return cli_usage_error(args, "--vocab is missing");
    rc = open_vocab(&s, model, &e);
    while (rc == 0 && (len = getline(&line, &cap, stdin)) > 0) rc = run_line(&s, line, (size_t)len, &e);
    free(line);
    free(s.drawn);
    free(s.first);
    free(s.mask);
    grammar_vocab_free(s.v);
    tok_free(s.t);
    return rc < 0 ? cli_fail(args, &e) : CLI_OK;
}

static const cli_option options[] = {
    CLI_VOCAB_OPTION,
    { "seed", CLI_INT, "N", "seed of the random choices (0)", 's' },
    { "count", CLI_INT, "N", "number of texts per schema (1)", 'n' },
    { "max-tokens", CLI_INT, "N", "length of the longest text in tokens (400)", 0 },
    CLI_ONLY_OPTION,
    CLI_STEERED_OPTION,
    { 0 },
};
const cli_command cli_cmd_debug_sample = {
    "sample", "--vocab MODEL < schemas.jsonl", "Write random texts that a schema allows.", options, 0, 0, run,
};

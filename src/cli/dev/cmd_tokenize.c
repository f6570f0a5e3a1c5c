/* SPDX-License-Identifier: Apache-2.0 */
/* hearth tokenize: text to ids; hearth detokenize (cmd_detokenize.c) is its inverse. */
#include "base/json.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/dev/text_source.h"
#include "cli/options.h"

#include <stdio.h>

typedef struct encoding {
    const tok *tok;
    unsigned   flags;
} encoding;

static int print_ids(void *ctx, const char *text, size_t bytes, err *e) {
    const encoding *c = ctx;
    tok_ids         ids = { 0 };
    int             rc = tok_encode(c->tok, text, bytes, c->flags, &ids, e);
    if (rc == 0) {
        putchar('[');
        for (size_t i = 0; i < ids.count; i++) printf(i ? ",%d" : "%d", ids.data[i]);
        puts("]");
    }
    tok_ids_deinit(&ids);
    return rc;
}

static int print_json_ids(void *ctx, const char *line, size_t bytes, err *e) {
    arena             a;
    const json_value *v = NULL;
    arena_init(&a, TEXT_SOURCE_MAX_BYTES);
    int rc = json_parse(&v, line, bytes, &a, e);
    if (rc == 0 && !json_is(v, JSON_K_STRING)) rc = err_set(e, ERR_FORMAT, "the line is not a JSON string");
    if (rc == 0) rc = print_ids(ctx, v->u.string.data, v->u.string.len, e);
    arena_deinit(&a);
    return rc;
}

static int run(const cli_args *args) {
    err         e = { 0 };
    tok        *t = NULL;
    tok_options o = { .pre = cli_string(args, "pre", NULL) };
    const char *text = cli_string(args, "text", NULL);
    bool        lines = cli_flag(args, "lines");
    if (text && lines) return cli_usage_error(args, "--text and --lines cannot be used together");
    int      rc = bundle_tokenizer_open_path(&t, cli_arg(args, 0), &o, &e);
    encoding c = { t, (cli_flag(args, "no-bos") ? 0 : TOK_ADD_SPECIAL) |
                          (cli_flag(args, "no-special") ? 0 : TOK_PARSE_SPECIAL) };
    if (rc == 0) rc = text_source_each(text, lines, lines ? print_json_ids : print_ids, &c, &e);
    tok_free(t);
    return rc < 0 ? cli_fail(args, &e) : CLI_OK;
}

static const cli_option options[] = {
    { "text", CLI_STRING, "TEXT", "the text to encode; without this option it is read from standard input", 't' },
    { "no-bos", CLI_FLAG, NULL, "do not add BOS, EOS, CLS or SEP", 0 },
    { "no-special", CLI_FLAG, NULL, "treat the text of special tokens as plain text", 0 },
    { "lines", CLI_FLAG, NULL, "read one JSON string per line and print one array per line", 0 },
    CLI_PRE_OPTION,
    { 0 },
};

const cli_command cli_cmd_tokenize = {
    "tokenize",
    "MODEL [--text TEXT | < text] [--no-bos] [--no-special] [--lines]",
    "Print the token ids of a text as JSON.",
    options,
    1,
    1,
    run,
};

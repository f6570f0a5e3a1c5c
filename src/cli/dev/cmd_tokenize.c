/* SPDX-License-Identifier: Apache-2.0 */
/* hearth tokenize: text to ids; hearth detokenize (cmd_detokenize.c) is its inverse. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/dev/text_source.h"

#include <stdio.h>

static int print_ids(const text_source *s, const char *text, size_t bytes, err *e) {
    unsigned flags = (s->no_bos ? 0 : TOK_ADD_SPECIAL) | (s->no_special ? 0 : TOK_PARSE_SPECIAL);
    tok_ids  ids = { 0 };
    int      rc = tok_encode(s->tok, text, bytes, flags, &ids, e);
    if (rc == 0) {
        putchar('[');
        for (size_t i = 0; i < ids.count; i++) printf(i ? ",%d" : "%d", ids.data[i]);
        puts("]");
    }
    tok_ids_deinit(&ids);
    return rc;
}

static int print_json_ids(const text_source *s, const char *line, size_t bytes, err *e) {
    arena             a;
    const json_value *v = NULL;
    arena_init(&a, TEXT_SOURCE_MAX_BYTES);
    int rc = json_parse(&v, line, bytes, &a, e);
    if (rc == 0 && !json_is(v, JSON_K_STRING)) rc = err_set(e, ERR_FORMAT, "the line is not a JSON string");
    if (rc == 0) rc = print_ids(s, v->u.string.data, v->u.string.len, e);
    arena_deinit(&a);
    return rc;
}

static int run(const cli_args *args) {
    bool lines = cli_flag(args, "lines");
    if (lines && cli_string(args, "text", NULL))
        return cli_usage_error(args, "--text and --lines cannot be used together");
    return text_source_run(args, "text", lines ? print_json_ids : print_ids);
}

static const cli_option options[] = {
    { "text", CLI_STRING, "TEXT", "the text to encode; without this option it is read from standard input", 't' },
    TEXT_SOURCE_OPTIONS("do not add BOS, EOS, CLS or SEP", "treat the text of special tokens as plain text",
                        "read one JSON string per line and print one array per line"),
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

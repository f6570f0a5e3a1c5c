/* SPDX-License-Identifier: Apache-2.0 */
/* hearth tokenize: text to ids; hearth detokenize (cmd_detokenize.c) is its inverse. */
#include "base/file.h"
#include "base/json.h"
#include "bundle/tokenizer.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUT_BYTES = 1 << 30 };

static int print_ids(const tok *t, const char *text, size_t bytes, unsigned flags, err *e) {
    tok_ids ids = { 0 };
    int     rc = tok_encode(t, text, bytes, flags, &ids, e);
    if (rc == 0) {
        putchar('[');
        for (size_t i = 0; i < ids.count; i++) printf(i ? ",%d" : "%d", ids.data[i]);
        puts("]");
    }
    tok_ids_deinit(&ids);
    return rc;
}

/* One JSON string per line. */
static int encode_lines(const tok *t, unsigned flags, err *e) {
    char   *line = NULL;
    size_t  cap = 0, number = 0;
    ssize_t n;
    int     rc = 0;
    while (rc == 0 && (n = getline(&line, &cap, stdin)) >= 0) {
        arena             a;
        const json_value *v = NULL;
        size_t            used = strspn(line, " \t\r\n");
        number++;
        if (used == (size_t)n) continue; /* an empty line */
        arena_init(&a, MAX_INPUT_BYTES);
        rc = json_parse(&v, line, (size_t)n, &a, e);
        if (rc == 0 && !json_is(v, JSON_K_STRING)) rc = err_set(e, ERR_FORMAT, "not a JSON string");
        if (rc == 0) rc = print_ids(t, v->u.string.data, v->u.string.len, flags, e);
        arena_deinit(&a);
        if (rc < 0) err_wrap(e, rc, "line %zu", number);
        if (rc == 0) fflush(stdout);
    }
    free(line);
    return rc;
}

static int run(const cli_args *args) {
    err         e = { 0 };
    tok        *t = NULL;
    tok_options o = { .pre = cli_string(args, "pre", NULL) };
    const char *text = cli_string(args, "text", NULL);
    unsigned    flags =
        (cli_flag(args, "no-bos") ? 0 : TOK_ADD_SPECIAL) | (cli_flag(args, "no-special") ? 0 : TOK_PARSE_SPECIAL);
    if (text && cli_flag(args, "lines")) return cli_usage_error(args, "--text and --lines exclude each other");
    int rc = bundle_tokenizer_open_path(&t, cli_arg(args, 0), &o, &e);
    if (rc == 0 && cli_flag(args, "lines")) {
        rc = encode_lines(t, flags, &e);
    } else if (rc == 0 && text) {
        rc = print_ids(t, text, strlen(text), flags, &e);
    } else if (rc == 0) {
        char  *data = NULL;
        size_t bytes = 0;
        rc = file_read_stream(&data, &bytes, stdin, "standard input", MAX_INPUT_BYTES, &e);
        if (rc == 0) rc = print_ids(t, data, bytes, flags, &e);
        free(data);
    }
    tok_free(t);
    return rc < 0 ? cli_fail(args, &e) : CLI_OK;
}

static const cli_option options[] = {
    { "text", CLI_STRING, "TEXT", "the text; standard input is read without it", 't' },
    { "no-bos", CLI_FLAG, NULL, "add nothing: neither BOS nor EOS, CLS or SEP", 0 },
    { "no-special", CLI_FLAG, NULL, "take the text of special tokens as plain text", 0 },
    { "lines", CLI_FLAG, NULL, "read one JSON string per line, print one array per line", 0 },
    { "pre", CLI_STRING, "NAME", "pre-tokenizer to use instead of the one a GGUF names", 0 },
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

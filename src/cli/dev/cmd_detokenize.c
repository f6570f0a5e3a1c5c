/* SPDX-License-Identifier: Apache-2.0 */
/* hearth detokenize: ids (a JSON array) to text. The begin and end tokens that `tokenize` adds are left out. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/dev/text_source.h"

#include <stdio.h>
#include <stdlib.h>

static int print_text(const text_source *s, const char *json, size_t bytes, err *e) {
    arena             a;
    const json_value *v = NULL;
    int32_t          *ids = NULL;
    str               text, line;
    int               rc;
    arena_init(&a, TEXT_SOURCE_MAX_BYTES);
    str_init(&text);
    str_init(&line);
    rc = json_parse(&v, json, bytes, &a, e);
    if (rc == 0 && !json_is(v, JSON_K_ARRAY)) rc = err_set(e, ERR_FORMAT, "the input is not a JSON array of ids");
    size_t n = json_count(v);
    if (rc == 0 && !(ids = malloc(n * sizeof *ids + 1))) rc = err_set_nomem(e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        int64_t id;
        if (!json_int(json_at(v, i), &id) || id < 0 || id > INT32_MAX)
            rc = err_set(e, ERR_FORMAT, "element %zu is not a token id", i);
        else
            ids[i] = (int32_t)id;
    }
    const int32_t *p = ids;
    if (rc == 0 && !s->no_bos) tok_trim_added(s->tok, &p, &n);
    if (rc == 0) rc = tok_decode(s->tok, p, n, s->no_special, &text, e);
    if (rc == 0 && s->lines) {
        str_put_json(&line, str_cstr(&text), text.len);
        puts(str_cstr(&line));
    } else if (rc == 0) {
        fwrite(str_cstr(&text), 1, text.len, stdout);
    }
    free(ids);
    str_deinit(&text);
    str_deinit(&line);
    arena_deinit(&a);
    return rc;
}

static int run(const cli_args *args) { return text_source_run(args, "ids", print_text); }

static const cli_option options[] = {
    { "ids", CLI_STRING, "JSON", "the ids to decode; without this option they are read from standard input", 0 },
    TEXT_SOURCE_OPTIONS("do not remove begin and end tokens: the ids were made without them",
                        "leave out special tokens", "read one array per line and print one JSON string per line"),
    { 0 },
};

const cli_command cli_cmd_detokenize = {
    "detokenize",
    "MODEL [--ids JSON | < ids] [--no-bos] [--no-special] [--lines]",
    "Print the text of token ids.",
    options,
    1,
    1,
    run,
};

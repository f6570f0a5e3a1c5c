/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth render: a chat template on a case from stdin.
 *
 * The case is a JSON object. Its members are the template's variables; `tools` and `documents` are none when absent,
 * `bos_token` and `eos_token` come from the model when absent; the members of a member `kwargs` are variables too and
 * win. The text goes to stdout as it is, without a newline behind it; on an error nothing goes there.
 */
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "bundle/template.h"
#include "chat/vars.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CASE_BYTES = 256 << 20 };

static int read_clock(tmpl_clock *out, const char *text, err *e) {
    if (text) return tmpl_clock_parse(out, text, e);
    time_t    now = time(NULL);
    struct tm tm;
    if (!localtime_r(&now, &tm)) return err_set_errno(e, "cannot read the clock");
    *out = (tmpl_clock){ tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec };
    return 0;
}

static int render(const bundle_template *b, const json_value *one, const tmpl_clock *now, str *out, tmpl_fault *fault,
                  err *e) {
    const json_value *kwargs = json_get(one, "kwargs"), *tools = json_get(one, "tools");
    chat_vars         v;
    if (!json_is(kwargs, JSON_K_OBJECT)) kwargs = NULL;
    chat_vars_init(&v, b);
    chat_vars_add_members(&v, one, kwargs ? "kwargs" : NULL);
    chat_vars_add_members(&v, kwargs, NULL);
    int rc = chat_vars_render(&v, b, tools && !json_is(tools, JSON_K_NULL), now, NULL, out, fault, e);
    chat_vars_deinit(&v);
    return rc;
}

static int run(const cli_args *args) {
    bundle_template   b = { 0 };
    tmpl_clock        now;
    tmpl_fault        fault;
    err               e = { 0 };
    char             *text = NULL;
    size_t            bytes = 0;
    arena             a;
    str               out;
    const json_value *one = NULL;
    int               rc;
    tmpl_fault_init(&fault);
    str_init(&out);
    arena_init(&a, 0);
    if ((rc = read_clock(&now, cli_string(args, "now", NULL), &e)) < 0) goto end;
    if ((rc = bundle_template_open(&b, cli_arg(args, 0), &e)) < 0) goto end;
    if ((rc = file_read_stream(&text, &bytes, stdin, "stdin", MAX_CASE_BYTES, &e)) < 0) goto end;
    if ((rc = json_parse(&one, text, bytes, &a, &e)) < 0) {
        err_wrap(&e, rc, "the case on standard input");
        goto end;
    }
    if (!json_is(one, JSON_K_OBJECT)) {
        rc = err_set(&e, ERR_ARG, "the case on standard input is not a JSON object");
        goto end;
    }
    rc = render(&b, one, &now, &out, &fault, &e);
    if (rc < 0) err_wrap(&e, rc, "%s", cli_arg(args, 0));
    if (rc >= 0) fwrite(str_cstr(&out), 1, out.len, stdout);
end:
    bundle_template_deinit(&b);
    free(text);
    arena_deinit(&a);
    str_deinit(&out);
    tmpl_fault_deinit(&fault);
    return rc < 0 ? cli_fail(args, &e) : CLI_OK;
}

static const cli_option options[] = {
    { "now", CLI_STRING, "TIME", "the time that strftime_now reports, such as 2026-01-02T15:04:05 (now)", 0 },
    { 0 },
};

const cli_command cli_cmd_render = {
    "render",
    "TEMPLATE_OR_MODEL [--now TIME] < case.json",
    "Render a chat template: a template file, a GGUF or a model directory, with the variables of a JSON case on "
    "standard input.",
    options,
    1,
    1,
    run,
};

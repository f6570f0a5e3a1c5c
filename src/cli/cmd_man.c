/* SPDX-License-Identifier: Apache-2.0 */
/* hearth man (hidden): man pages from the command tables. The build writes all of them for `make install`. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_page(const char *dir, const cli_command *c, err *e) {
    char         name[96];
    file_replace f;
    str          text;
    snprintf(name, sizeof name, c ? "hearth-%s.1" : "hearth.1", c ? c->name : "");
    char *path = path_join(dir, name);
    if (!path) return err_set_nomem(e);
    str_init(&text);
    help_man(c, &text);
    int rc = file_replace_begin(&f, path, e);
    if (rc == 0) {
        fputs(str_cstr(&text), f.out);
        rc = file_replace_commit(&f, e);
    }
    str_deinit(&text);
    free(path);
    return rc;
}

/* --- the tables as JSON, for tests and tools --- */

static void put_text(const char *name, const char *text, str *out) {
    str_printf(out, "\"%s\": ", name);
    if (text)
        str_put_json(out, text, strlen(text));
    else
        str_puts(out, "null");
}

static void put_command(const cli_command *c, const char *prefix, bool hidden, bool *first, str *out) {
    static const char *const kinds[] = { "flag", "string", "int", "real", "switch" };
    char                     name[96];
    bool                     comma = false;
    snprintf(name, sizeof name, "%s%s", prefix, c->name);
    str_puts(out, *first ? "[\n  {" : ",\n  {");
    *first = false;
    put_text("name", name, out);
    str_puts(out, ", ");
    put_text("usage", c->usage, out);
    str_puts(out, ", ");
    put_text("summary", c->summary, out);
    str_printf(out, ", \"min_args\": %d, \"max_args\": %d, \"group\": %s, \"hidden\": %s, \"options\": [", c->min_args,
               c->max_args, cli_subcommands(c) ? "true" : "false", hidden ? "true" : "false");
    for (const cli_option *o = c->options; o && o->name; o++) {
        if (o->kind == CLI_GROUP) continue;
        str_puts(out, comma ? ", {" : "{");
        comma = true;
        put_text("name", o->name, out);
        str_printf(out, ", \"kind\": \"%s\", ", kinds[o->kind]);
        put_text("value", o->value_name, out);
        str_push(out, '}');
    }
    str_puts(out, "]}");
    snprintf(name, sizeof name, "%s%s ", prefix, c->name);
    for (const cli_command *const *s = cli_subcommands(c); s && *s; s++) put_command(*s, name, hidden, first, out);
}

static int print_json(void) {
    bool first = true;
    str  out;
    str_init(&out);
    for (const cli_command *const *c = cli_commands; *c; c++) put_command(*c, "", false, &first, &out);
    for (const cli_command *const *c = cli_hidden_commands; *c; c++) put_command(*c, "", true, &first, &out);
    str_puts(&out, "\n]\n");
    fputs(str_cstr(&out), stdout);
    str_deinit(&out);
    return CLI_OK;
}

static int run(const cli_args *a) {
    const char        *dir = cli_string(a, "write", NULL), *name = cli_arg(a, 0);
    const cli_command *c = NULL;
    err                e = { 0 };
    int                rc = 0;
    if (cli_flag(a, "json")) return print_json();
    if (dir) {
        rc = write_page(dir, NULL, &e);
        for (size_t i = 0; rc == 0 && cli_commands[i]; i++) rc = write_page(dir, cli_commands[i], &e);
        return rc < 0 ? cli_fail(a, &e) : CLI_OK;
    }
    for (size_t i = 0; name && cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) c = cli_commands[i];
    if (name && !c) return cli_usage_error(a, "unknown command '%s'", name);
    str text;
    str_init(&text);
    help_man(c, &text);
    fputs(str_cstr(&text), stdout);
    str_deinit(&text);
    return CLI_OK;
}

static const cli_option options[] = {
    { "json", CLI_FLAG, NULL, "print the tables of all commands as JSON", 0 },
    { "write", CLI_STRING, "DIR", "write a page for every command into DIR", 0 },
    { 0 },
};

const cli_command cli_cmd_man = { "man", "[COMMAND]", "Print a man page.", options, 0, 1, run };

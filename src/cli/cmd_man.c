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

static int run(const cli_args *a) {
    const char        *dir = cli_string(a, "write", NULL), *name = cli_arg(a, 0);
    const cli_command *c = NULL;
    err                e = { 0 };
    int                rc = 0;
    if (dir) {
        rc = write_page(dir, NULL, &e);
        for (size_t i = 0; rc == 0 && cli_commands[i]; i++) rc = write_page(dir, cli_commands[i], &e);
        return rc < 0 ? cli_fail(a, &e) : CLI_OK;
    }
    for (size_t i = 0; name && cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) c = cli_commands[i];
    if (name && !c) return cli_usage_error(a, "no command '%s'", name);
    str text;
    str_init(&text);
    help_man(c, &text);
    fputs(str_cstr(&text), stdout);
    str_deinit(&text);
    return CLI_OK;
}

static const cli_option options[] = {
    { "write", CLI_STRING, "DIR", "write a page for every command there", 0 },
    { 0 },
};

const cli_command cli_cmd_man = { "man", "[COMMAND]", "Print a man page.", options, 0, 1, run };

/* SPDX-License-Identifier: Apache-2.0 */
/* hearth cp: another name for a model. */
#include "cli/catalogue.h"
#include "cli/cli.h"

static int run(const cli_args *a) {
    registry *r = NULL;
    err       e = { 0 };
    int       rc = catalogue_open(&r, &e);
    if (rc == 0) rc = registry_copy(r, cli_arg(a, 0), cli_arg(a, 1), &e);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

const cli_command cli_cmd_cp = { "cp", "NAME NEW-NAME", "Give a model another name, too.", NULL, 2, 2, run };

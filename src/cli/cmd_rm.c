/* SPDX-License-Identifier: Apache-2.0 */
/* hearth rm: forgets names. The files of a model that was created from disk are its owner's and stay. */
#include "cli/catalogue.h"
#include "cli/cli.h"

static int run(const cli_args *a) {
    registry *r = NULL;
    err       e = { 0 };
    int       rc = catalogue_open(&r, &e);
    for (int i = 0; rc == 0 && i < cli_count(a); i++) rc = registry_remove(r, cli_arg(a, i), &e);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

const cli_command cli_cmd_rm = { "rm", "NAME...", "Forget names of models; their files stay.", NULL, 1, -1, run };

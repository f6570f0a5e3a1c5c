/* SPDX-License-Identifier: Apache-2.0 */
/* hearth version */
#include "cli/cli.h"
#include "hearth.h"

#include <stdio.h>

static int run(const cli_args *args) {
    (void)args;
    printf("hearth %s\n", hearth_version());
    return CLI_OK;
}

static const cli_option options[] = { { 0 } };

const cli_command cli_cmd_version = { "version", "", "Print the version.", options, 0, 0, run };

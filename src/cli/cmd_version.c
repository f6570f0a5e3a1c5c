/* SPDX-License-Identifier: Apache-2.0 */
/* hearth version */
#include "cli/cli.h"
#include "hearth.h"
#include "kernels/cpu.h"

#include <stdio.h>

static int run(const cli_args *args) {
    printf("hearth %s\n", hearth_version());
    if (cli_flag(args, "verbose")) {
        char cpu[256];
        cpu_describe(cpu, sizeof cpu);
        printf("cpu    %s\n", cpu);
    }
    return CLI_OK;
}

static const cli_option options[] = {
    { "verbose", CLI_FLAG, NULL, "also the CPU and the instruction sets that kernels may use", 'v' },
    { 0 },
};

const cli_command cli_cmd_version = { "version", "[--verbose]", "Print the version.", options, 0, 0, run };

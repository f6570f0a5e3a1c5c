/* SPDX-License-Identifier: Apache-2.0 */
/* hearth version */
#include "base/str.h"
#include "cli/cli.h"
#include "hearth.h"
#include "kernels/cpu.h"

#include <stdio.h>
#include <string.h>

static int run(const cli_args *args) {
    char cpu[256];
    cpu_describe(cpu, sizeof cpu);
    if (cli_flag(args, "json")) {
        str out;
        str_init(&out);
        str_printf(&out, "{\"version\": \"%s\", \"cpu\": ", hearth_version());
        str_put_json(&out, cpu, strlen(cpu));
        str_push(&out, '}');
        puts(str_cstr(&out));
        str_deinit(&out);
        return CLI_OK;
    }
    printf("hearth %s\n", hearth_version());
    if (cli_flag(args, "verbose")) printf("cpu    %s\n", cpu);
    return CLI_OK;
}

static const cli_option options[] = {
    { "verbose", CLI_FLAG, NULL, "also print the CPU and the instruction sets that kernels may use", 'v' },
    { "json", CLI_FLAG, NULL, "print JSON", 0 },
    { 0 },
};

const cli_command cli_cmd_version = { "version", "[--verbose] [--json]", "Print the version.", options, 0, 0, run };

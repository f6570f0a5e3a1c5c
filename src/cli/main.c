/* SPDX-License-Identifier: Apache-2.0 */
/* Entry point: finds the command, installs the log sink, runs it. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: one per line */
const cli_command *const cli_commands[] = {
    &cli_cmd_run,
    &cli_cmd_serve,
    &cli_cmd_pull,
    &cli_cmd_bench,
    &cli_cmd_perplexity,
    &cli_cmd_quantize,
    &cli_cmd_list,
    &cli_cmd_create,
    &cli_cmd_cp,
    &cli_cmd_rm,
    &cli_cmd_show,
    &cli_cmd_info,
    &cli_cmd_ps,
    &cli_cmd_stop,
    &cli_cmd_debug,
    &cli_cmd_version,
    &cli_cmd_tokenize,
    &cli_cmd_detokenize,
    &cli_cmd_logits,
    &cli_cmd_render,
    NULL,
};
/* clang-format on */

static void print_commands(FILE *out) {
    fprintf(out, "Hearth runs language models on this machine.\n\nusage: hearth COMMAND [arguments]\n\ncommands:\n");
    for (const cli_command *const *c = cli_commands; *c; c++) fprintf(out, "  %-12s %s\n", (*c)->name, (*c)->summary);
    fprintf(out, "\n'hearth COMMAND --help' explains one of them.\n");
}

static void log_to_stderr(void *ctx, const log_record *r) {
    str line;
    (void)ctx;
    str_init(&line);
    log_format_text(r, &line);
    fputs(str_cstr(&line), stderr);
    str_deinit(&line);
}

int main(int argc, char **argv) {
    const char *level_name = getenv("HEARTH_LOG");
    log_level   level = LOG_WARN;
    if (level_name && !log_level_parse(level_name, &level)) {
        fprintf(stderr, "hearth: HEARTH_LOG=%s: expected debug, info, warn, error or off\n", level_name);
        return CLI_USAGE;
    }
    log_set_sink(log_to_stderr, NULL, level);
    if (argc < 2) {
        print_commands(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return CLI_OK;
    }
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    for (const cli_command *const *c = cli_commands; *c; c++) {
        if (strcmp((*c)->name, name) == 0) return cli_run_command(*c, "hearth", argc - 2, argv + 2);
    }
    if (strcmp(name, "worker") == 0) return cli_run_command(&cli_cmd_worker, "hearth", argc - 2, argv + 2);
    fprintf(stderr, "hearth: no command '%s'\n", argv[1]);
    print_commands(stderr);
    return CLI_USAGE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Entry point: finds the command, installs the log sink, runs it. */
#include "cli/cli.h"
#include "cli/help.h"
#include "config/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One per line. */
/* clang-format off */
const cli_command *const cli_commands[] = {
    &cli_cmd_run,
    &cli_cmd_serve,
    &cli_cmd_pull,
    &cli_cmd_bench,
    &cli_cmd_perplexity,
    &cli_cmd_convert,
    &cli_cmd_quantize,
    &cli_cmd_imatrix,
    &cli_cmd_merge,
    &cli_cmd_compare,
    &cli_cmd_embed,
    &cli_cmd_list,
    &cli_cmd_create,
    &cli_cmd_adapter,
    &cli_cmd_cp,
    &cli_cmd_rm,
    &cli_cmd_search,
    &cli_cmd_show,
    &cli_cmd_info,
    &cli_cmd_ps,
    &cli_cmd_stop,
    &cli_cmd_config,
    &cli_cmd_completion,
    &cli_cmd_doctor,
    &cli_cmd_debug,
    &cli_cmd_version,
    &cli_cmd_tokenize,
    &cli_cmd_detokenize,
    &cli_cmd_logits,
    &cli_cmd_render,
    NULL,
};
/* clang-format on */

const cli_command *const cli_hidden_commands[] = {
    &cli_cmd_worker,
    &cli_cmd_complete,
    &cli_cmd_man,
    NULL,
};

const cli_command *const *cli_subcommands(const cli_command *c) {
    return c == &cli_cmd_debug     ? cli_debug_commands
           : c == &cli_cmd_config  ? cli_config_commands
           : c == &cli_cmd_adapter ? cli_adapter_commands
                                   : NULL;
}

static void print_commands(FILE *out) {
    str text;
    str_init(&text);
    help_commands(&text);
    fputs(str_cstr(&text), out);
    str_deinit(&text);
}

static const cli_command *find(const cli_command *const *list, const char *name) {
    while (*list && strcmp((*list)->name, name) != 0) list++;
    return *list;
}

static void log_to_stderr(void *ctx, const log_record *r) {
    str line;
    (void)ctx;
    str_init(&line);
    log_format_text(r, &line);
    fputs(str_cstr(&line), stderr);
    str_deinit(&line);
}

static int unknown_command(const char *name) {
    const char *names[64], *best;
    size_t      n = 0;
    for (const cli_command *const *c = cli_commands; *c && n < 64; c++) names[n++] = (*c)->name;
    best = config_nearest(name, names, n);
    fprintf(stderr, "hearth: unknown command '%s'", name);
    if (best) fprintf(stderr, "; did you mean %s?", best);
    fprintf(stderr, "\nTry 'hearth --help'.\n");
    return CLI_USAGE;
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
    if (strcmp(argv[1], "help") == 0 && argc > 2) { /* hearth help COMMAND [SUB-COMMAND] */
        char              *help = "--help", *words[3] = { argv[3], help, NULL };
        const cli_command *about = find(cli_commands, argv[2]);
        if (!about) return unknown_command(argv[2]);
        return argc > 3 && cli_subcommands(about) ? cli_run_command(about, "hearth", 2, words)
                                                  : cli_run_command(about, "hearth", 1, &help);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return CLI_OK;
    }
    const char        *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    const cli_command *c = find(cli_commands, name);
    if (!c) c = find(cli_hidden_commands, name);
    if (c) return cli_run_command(c, "hearth", argc - 2, argv + 2);
    return unknown_command(argv[1]);
}

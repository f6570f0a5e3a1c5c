/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `hearth` program: a table of commands, each described as data.
 *
 * A command lists its arguments and options in a table; parsing, --help, completions and man pages come from that one
 * table. Only this folder exits the process, reads the environment or prints.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>

/* Exit codes, the same for every command. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* A SWITCH takes "on" or "off" where one follows; alone it means "on". A GROUP is not an option: what stands behind it is
 * less often needed, and --help only names it; its help is the group's title. */
typedef enum cli_kind { CLI_FLAG, CLI_STRING, CLI_INT, CLI_REAL, CLI_SWITCH, CLI_GROUP } cli_kind;

typedef struct cli_option {
    const char *name; /* without dashes; NULL ends the table */
    cli_kind    kind;
    const char *value_name; /* "FILE"; NULL for flags */
    const char *help;
    char        letter; /* a one-letter form, or 0 */
} cli_option;

typedef struct cli_args cli_args;

/* As max_args: the first argument names a sub-command; `run` hands everything on with cli_run_subcommand. */
enum { CLI_SUBCOMMANDS = -2 };

typedef struct cli_command {
    const char       *name;
    const char       *usage; /* "MODEL [--json]" */
    const char       *summary;
    const cli_option *options;
    int               min_args, max_args; /* positional arguments; max -1: any number, or CLI_SUBCOMMANDS */
    int (*run)(const cli_args *args);
} cli_command;

/* What was typed. Absent options give false, NULL or the default. */
int         cli_count(const cli_args *a);
const char *cli_arg(const cli_args *a, int index); /* NULL beyond the end */
bool        cli_flag(const cli_args *a, const char *name);
const char *cli_string(const cli_args *a, const char *name, const char *dflt);
const char *cli_string_at(const cli_args *a, const char *name, int index); /* of a repeated option; NULL at the end */
long long   cli_int(const cli_args *a, const char *name, long long dflt);

/* Prints "hearth COMMAND: sentence" to stderr and returns CLI_FAILED. */
int cli_fail(const cli_args *a, const err *e);
/* The same with CLI_USAGE and a pointer to --help. */
int cli_usage_error(const cli_args *a, const char *fmt, ...) BASE_PRINTF(2, 3);

/* Every command; the list ends with a NULL. The hidden ones are for scripts and for the program itself. */
extern const cli_command *const cli_commands[];
extern const cli_command *const cli_hidden_commands[];

/* Of a command with CLI_SUBCOMMANDS; NULL: it is none. */
const cli_command *const       *cli_subcommands(const cli_command *c);
extern const cli_command *const cli_debug_commands[], *const cli_config_commands[], *const cli_adapter_commands[];

extern const cli_command cli_cmd_config, cli_cmd_completion, cli_cmd_complete, cli_cmd_man;
extern const cli_command cli_cmd_version, cli_cmd_show, cli_cmd_tokenize, cli_cmd_detokenize, cli_cmd_render,
    cli_cmd_debug, cli_cmd_embed, cli_cmd_logits, cli_cmd_run, cli_cmd_bench, cli_cmd_serve, cli_cmd_perplexity,
    cli_cmd_quantize, cli_cmd_create, cli_cmd_list, cli_cmd_cp, cli_cmd_rm, cli_cmd_search;
extern const cli_command cli_cmd_ps, cli_cmd_stop, cli_cmd_info, cli_cmd_doctor;
extern const cli_command cli_cmd_pull, cli_cmd_adapter;
extern const cli_command cli_cmd_convert, cli_cmd_imatrix, cli_cmd_merge, cli_cmd_compare;

/* Not in the list: started by `hearth serve`. */
extern const cli_command cli_cmd_worker;

/* Of `hearth debug`. */
extern const cli_option  cli_serve_options[];
extern const cli_command cli_cmd_debug_options;
extern const cli_command cli_cmd_debug_gguf, cli_cmd_debug_random_model, cli_cmd_debug_masks, cli_cmd_debug_sample;

/* Runs argv against one command: used by main and by commands with sub-commands. */
int cli_run_command(const cli_command *c, const char *program, int argc, char **argv);

/* Runs the sub-command that the first argument names, or prints the list for --help. The list ends with a NULL. */
int cli_run_subcommand(const cli_args *a, const cli_command *const *list);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that come from the command tables: --help, the list of commands, man pages. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "base/str.h"
#include "cli/cli.h"

enum { HELP_WIDTH = 80 };

/* all: also what --help only names (--help-all). */
void help_command(const cli_command *c, const char *program, bool all, str *out);
void help_commands(str *out);
void help_subcommands(const cli_command *c, const char *program, const cli_command *const *list, str *out);

/* A page of section 1; c NULL: the one of the program. */
void help_man(const cli_command *c, str *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_COLUMN = 28, COMMAND_COLUMN = 15 };

static void put_spaces(str *out, size_t n) {
    while (n--) str_push(out, ' ');
}

/* Words from `column` on; further lines are indented. Ends with a newline. */
static void put_wrapped(str *out, const char *text, size_t column, size_t indent) {
    bool first = true;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (!first && column + 1 + n > HELP_WIDTH) {
            str_push(out, '\n');
            put_spaces(out, indent);
            column = indent;
            first = true;
        }
        if (!first) {
            str_push(out, ' ');
            column++;
        }
        str_append(out, text, n);
        column += n;
        first = false;
        text += n;
        text += strspn(text, " ");
    }
    str_push(out, '\n');
}

static void put_row(str *out, const char *left, const char *text, size_t column) {
    size_t n = strlen(left);
    str_puts(out, left);
    if (n + 2 > column) {
        put_spaces(out, 2);
        put_wrapped(out, text, n + 2, column);
    } else {
        put_spaces(out, column - n);
        put_wrapped(out, text, column, column);
    }
}

static void put_option(const cli_option *o, str *out) {
    char left[80];
    snprintf(left, sizeof left, "  %s%c%s--%s%s%s", o->letter ? "-" : " ", o->letter ? o->letter : ' ',
             o->letter ? ", " : "  ", o->name, o->value_name ? " " : "", o->value_name ? o->value_name : "");
    put_row(out, left, o->help, OPTION_COLUMN);
}

/* "  limits: --a, --b": the names of a group's options. Returns the row behind the group. */
static const cli_option *put_group_names(const cli_option *group, str *out) {
    const cli_option *o = group + 1;
    str               names;
    char              left[64];
    str_init(&names);
    for (; o->name && o->kind != CLI_GROUP; o++) str_printf(&names, "%s--%s", o == group + 1 ? "" : ", ", o->name);
    snprintf(left, sizeof left, "  %s:", group->help);
    put_row(out, left, str_cstr(&names), 4);
    str_deinit(&names);
    return o;
}

static void put_options(const cli_command *c, const char *program, bool all, str *out) {
    const cli_option *o = c->options;
    bool              more = false;
    str_puts(out, "\noptions:\n");
    for (; o && o->name && o->kind != CLI_GROUP; o++) put_option(o, out);
    put_row(out, "  -h, --help", "show this text", OPTION_COLUMN);
    while (o && o->name) {
        if (all) {
            if (o->kind == CLI_GROUP)
                str_printf(out, "\n%s:\n", o->help);
            else
                put_option(o, out);
            o++;
            continue;
        }
        if (!more) {
            char line[128];
            snprintf(line, sizeof line, "further options, explained by '%s %s --help-all':", program, c->name);
            str_push(out, '\n');
            put_wrapped(out, line, 0, 2);
        }
        more = true;
        o = put_group_names(o, out);
    }
}

void help_command(const cli_command *c, const char *program, bool all, str *out) {
    char left[128];
    snprintf(left, sizeof left, "usage: %s %s", program, c->name);
    str_puts(out, left);
    if (*c->usage) str_push(out, ' ');
    put_wrapped(out, c->usage, strlen(left) + 1, 7);
    str_push(out, '\n');
    put_wrapped(out, c->summary, 0, 0);
    put_options(c, program, all, out);
}

/* Lists have one line for a command: the first sentence, or the first part of it that can stand alone. */
static void put_summary(const cli_command *c, str *out) {
    char        left[64], text[200];
    const char *end = strstr(c->summary, ". ");
    snprintf(text, sizeof text, "%.*s", end ? (int)(end - c->summary) : (int)strlen(c->summary), c->summary);
    if (strlen(text) > HELP_WIDTH - COMMAND_COLUMN) text[strcspn(text, ":;")] = '\0';
    if (strlen(text) > HELP_WIDTH - COMMAND_COLUMN) text[strcspn(text, ",")] = '\0';
    if (text[0] && text[strlen(text) - 1] == '.') text[strlen(text) - 1] = '\0';
    snprintf(left, sizeof left, "  %s", c->name);
    put_row(out, left, text, COMMAND_COLUMN);
}

void help_commands(str *out) {
    str_puts(out, "Hearth runs language models on this machine.\n\nusage: hearth COMMAND [arguments]\n\ncommands:\n");
    for (const cli_command *const *c = cli_commands; *c; c++) put_summary(*c, out);
    str_puts(out, "\n'hearth COMMAND --help' explains a command.\n");
}

void help_subcommands(const cli_command *c, const char *program, const cli_command *const *list, str *out) {
    str_printf(out, "usage: %s COMMAND [arguments]\n\n", program);
    put_wrapped(out, c->summary, 0, 0);
    str_puts(out, "\ncommands:\n");
    for (; *list; list++) put_summary(*list, out);
    str_printf(out, "\n'%s COMMAND --help' explains a command.\n", program);
}

/* --- man pages --- */

/* Text of a page: a dash is a minus, a backslash itself, and no line begins a request. */
static void put_roff(str *out, const char *text) {
    if (*text == '.' || *text == '\'') str_puts(out, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            str_puts(out, "\\e");
        else if (*text == '-')
            str_puts(out, "\\-");
        else
            str_push(out, *text);
    }
}

static void put_line(str *out, const char *before, const char *text) {
    str_puts(out, before);
    put_roff(out, text);
    str_push(out, '\n');
}

static void man_head(const char *title, const char *name, const char *summary, str *out) {
    size_t end = strcspn(summary, ".");
    str    upper;
    str_init(&upper);
    for (const char *p = title; *p; p++) str_push(&upper, (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p));
    str_puts(out, ".TH \"");
    put_roff(out, str_cstr(&upper));
    str_deinit(&upper);
    str_puts(out, "\" \"1\" \"\" \"Hearth\" \"Hearth\"\n.SH NAME\n");
    put_roff(out, name);
    str_puts(out, " \\- ");
    char *text = strndup(summary, end);
    put_roff(out, text ? text : "");
    free(text);
    str_push(out, '\n');
}

static void man_options(const cli_command *c, str *out) {
    str_puts(out, ".SH OPTIONS\n");
    for (const cli_option *o = c->options; o && o->name; o++) {
        if (o->kind == CLI_GROUP) {
            put_line(out, ".SS ", o->help);
            continue;
        }
        str_puts(out, ".TP\n.B ");
        if (o->letter) str_printf(out, "\\-%c, ", o->letter);
        str_puts(out, "\\-\\-");
        put_roff(out, o->name);
        if (o->value_name) {
            str_puts(out, " \\fI");
            put_roff(out, o->value_name);
            str_puts(out, "\\fR");
        }
        put_line(out, "\n", o->help);
    }
    str_puts(out, ".TP\n.B \\-h, \\-\\-help\nshow a short help\n");
}

static void man_foot(str *out) {
    str_puts(out, ".SH EXIT STATUS\n"
                  ".TP\n.B 0\nThe command succeeded.\n"
                  ".TP\n.B 1\nThe command failed because of a file, a model, the network or the running server; a "
                  "message on stderr says why.\n"
                  ".TP\n.B 2\nThe command line or a value of the environment is wrong.\n"
                  ".SH FILES\n"
                  ".TP\n.I $XDG_CONFIG_HOME/hearth/server.yaml\nsettings; see \\fBhearth\\-config\\fR(1)\n"
                  ".TP\n.I $XDG_CONFIG_HOME/hearth/models/NAME.yaml\nsettings of one model\n"
                  ".TP\n.I $XDG_DATA_HOME/hearth\nmodels that were pulled or named\n");
}

static void man_list(const cli_command *const *list, const char *prefix, str *out) {
    str_puts(out, ".SH COMMANDS\n");
    for (; *list; list++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s %s", prefix, (*list)->name, (*list)->usage);
        put_line(out, ".TP\n.B ", name);
        put_roff(out, (*list)->summary);
        str_push(out, '\n');
    }
}

/* Sub-commands have no pages of their own: their options stand in that of the command. */
static void man_subcommands(const cli_command *c, str *out) {
    const cli_command *const *list = cli_subcommands(c);
    char                      prefix[64];
    if (!list) {
        man_options(c, out);
        return;
    }
    snprintf(prefix, sizeof prefix, "hearth %s ", c->name);
    man_list(list, prefix, out);
    for (; *list; list++) {
        if (!(*list)->options || !(*list)->options->name) continue;
        str_puts(out, ".SH OPTIONS OF ");
        for (const char *p = (*list)->name; *p; p++)
            str_push(out, (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p == '-' ? ' ' : *p));
        str_push(out, '\n');
        for (const cli_option *o = (*list)->options; o->name; o++) {
            str_puts(out, ".TP\n.B \\-\\-");
            put_roff(out, o->name);
            if (o->value_name) {
                str_push(out, ' ');
                put_roff(out, o->value_name);
            }
            put_line(out, "\n", o->help);
        }
    }
}

void help_man(const cli_command *c, str *out) {
    char title[64], line[256];
    if (!c) {
        man_head("hearth", "hearth", "run language models on this machine.", out);
        str_puts(out, ".SH SYNOPSIS\n.B hearth\n.I COMMAND\n[arguments]\n.SH DESCRIPTION\n"
                      "Every command has a page of its own, \\fBhearth\\-COMMAND\\fR(1), and a \\-\\-help.\n");
        man_list(cli_commands, "hearth ", out);
        man_foot(out);
        return;
    }
    snprintf(title, sizeof title, "hearth-%s", c->name);
    man_head(title, title, c->summary, out);
    snprintf(line, sizeof line, "hearth %s %s", c->name, c->usage);
    put_line(out, ".SH SYNOPSIS\n", line);
    str_puts(out, ".SH DESCRIPTION\n");
    put_roff(out, c->summary);
    str_push(out, '\n');
    man_subcommands(c, out);
    man_foot(out);
    str_puts(out, ".SH SEE ALSO\n.BR hearth (1)\n");
}

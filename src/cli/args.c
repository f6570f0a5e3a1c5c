/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of a command line against a command's table, and the --help text from the same table. */
#include "cli/cli.h"
#include "cli/help.h"
#include "config/schema.h"
#include "formats/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SET = 64 };

typedef struct set_option {
    const cli_option *option;
    const char       *value;
} set_option;

struct cli_args {
    const cli_command *command;
    const char        *program;
    char             **positional;
    int                n_positional;
    set_option         set[MAX_SET];
    int                n_set;
};

static void print_help(const cli_command *c, const char *program, bool all) {
    str text;
    str_init(&text);
    help_command(c, program, all, &text);
    fputs(str_cstr(&text), stdout);
    str_deinit(&text);
}

static const cli_option *find_option(const cli_command *c, const char *name, size_t len, char letter) {
    for (const cli_option *o = c->options; o && o->name; o++) {
        if (o->kind == CLI_GROUP) continue;
        if (letter ? o->letter == letter : name && strlen(o->name) == len && memcmp(o->name, name, len) == 0) return o;
    }
    return NULL;
}

static bool value_ok(const cli_option *o, const char *value) {
    char *end = NULL;
    errno = 0;
    if (o->kind == CLI_INT) {
        (void)strtoll(value, &end, 10);
        return *value && *end == '\0' && errno == 0;
    }
    if (o->kind == CLI_REAL) {
        (void)strtod(value, &end);
        return *value && *end == '\0' && errno == 0;
    }
    return true;
}

static bool is_switch(const char *text) { return strcmp(text, "on") == 0 || strcmp(text, "off") == 0; }

static int unknown_option(const cli_args *a, const char *text) {
    const char *names[128], *best = NULL;
    size_t      n = 0;
    for (const cli_option *o = a->command->options; o && o->name && n < 128; o++)
        if (o->kind != CLI_GROUP) names[n++] = o->name;
    if (text[1] == '-') best = config_nearest(text + 2, names, n);
    return best ? cli_usage_error(a, "unknown option %s; did you mean --%s?", text, best)
                : cli_usage_error(a, "unknown option %s", text);
}

/* Names that other programs have for an option. */
static const struct {
    const char *typed, *name;
} elsewhere[] = {
    { "-ctk", "kv-k" },
    { "-ctv", "kv-v" },
    { "--cache-type-k", "kv-k" },
    { "--cache-type-v", "kv-v" },
    { "-md", "draft" },
    { "--model-draft", "draft" },
    { "--spec-draft-model", "draft" },
    { "--spec-type", "speculate" },
    { "--draft-n", "draft-max" },
    { "--spec-draft-n-max", "draft-max" },
};

/* And for who guesses ahead. */
static const char *drafter_elsewhere(const char *value) {
    static const char *const known[][2] = { { "none", "off" },
                                            { "draft-simple", "draft" },
                                            { "draft-model", "draft" },
                                            { "draft-mtp", "mtp" },
                                            { "draft-eagle3", "eagle" },
                                            { "eagle3", "eagle" },
                                            { "ngram-simple", "lookup" },
                                            { "ngram-mod", "lookup" },
                                            { "ngram", "lookup" } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(value, known[i][0]) == 0) return known[i][1];
    }
    return value;
}

/* The option that text is another name of; NULL: it is none of these, or the command does not have it. */
static const cli_option *find_elsewhere(const cli_command *c, const char *text) {
    size_t len = strcspn(text, "=");
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        if (strlen(elsewhere[i].typed) == len && memcmp(elsewhere[i].typed, text, len) == 0)
            return find_option(c, elsewhere[i].name, strlen(elsewhere[i].name), 0);
    }
    return NULL;
}

/* Takes one option at argv[*i]; returns CLI_OK or CLI_USAGE after printing. */
static int take_option(cli_args *a, int argc, char **argv, int *i) {
    const char       *text = argv[*i];
    const char       *value = NULL;
    const cli_option *o = find_elsewhere(a->command, text);
    if (o) {
        value = strchr(text, '=');
        if (value) value++;
    } else if (text[1] == '-') {
        const char *equals = strchr(text, '=');
        size_t      len = equals ? (size_t)(equals - text - 2) : strlen(text + 2);
        o = find_option(a->command, text + 2, len, 0);
        if (equals) value = equals + 1;
    } else {
        o = find_option(a->command, NULL, 0, text[1]);
        if (o && text[2]) value = text + 2;
    }
    if (!o) return unknown_option(a, text);
    if (o->kind == CLI_FLAG) {
        if (value) return cli_usage_error(a, "--%s does not take a value", o->name);
    } else if (o->kind == CLI_SWITCH) {
        if (!value) value = *i + 1 < argc && is_switch(argv[*i + 1]) ? argv[++*i] : "on";
        if (!is_switch(value)) return cli_usage_error(a, "--%s: expected on or off, got '%s'", o->name, value);
    } else if (!value) {
        if (*i + 1 >= argc) return cli_usage_error(a, "--%s needs a value: %s", o->name, o->value_name);
        value = argv[++*i];
    }
    if (value && strcmp(o->name, "speculate") == 0) value = drafter_elsewhere(value);
    if (value && !value_ok(o, value)) return cli_usage_error(a, "--%s: '%s' is not a number", o->name, value);
    if (a->n_set == MAX_SET) return cli_usage_error(a, "there are too many options");
    a->set[a->n_set++] = (set_option){ o, value };
    return CLI_OK;
}

int cli_run_command(const cli_command *c, const char *program, int argc, char **argv) {
    cli_args a = { .command = c, .program = program };
    int      rc = CLI_OK;
    bool     options_over = c->max_args == CLI_SUBCOMMANDS;
    a.positional = calloc((size_t)argc + 1, sizeof *a.positional);
    if (!a.positional) return CLI_FAILED;
    for (int i = 0; i < argc && rc == CLI_OK; i++) {
        const char *text = argv[i];
        if (!options_over && strcmp(text, "--") == 0) {
            options_over = true;
        } else if (!options_over &&
                   (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0 || strcmp(text, "--help-all") == 0)) {
            print_help(c, program, strcmp(text, "--help-all") == 0);
            free(a.positional);
            return CLI_OK;
        } else if (!options_over && text[0] == '-' && text[1]) {
            rc = take_option(&a, argc, argv, &i);
        } else {
            a.positional[a.n_positional++] = argv[i];
        }
    }
    if (rc == CLI_OK && a.n_positional < c->min_args) rc = cli_usage_error(&a, "an argument is missing");
    if (rc == CLI_OK && c->max_args >= 0 && a.n_positional > c->max_args)
        rc = cli_usage_error(&a, "unexpected argument '%s'", a.positional[c->max_args]);
    if (rc == CLI_OK) rc = c->run(&a);
    free(a.positional);
    if (fflush(stdout) != 0 && rc == CLI_OK) {
        fprintf(stderr, "%s %s: cannot write the output: %s\n", program, c->name, strerror(errno));
        rc = CLI_FAILED;
    }
    return rc;
}

int cli_run_subcommand(const cli_args *a, const cli_command *const *list) {
    const char *name = cli_arg(a, 0);
    char        program[128];
    if (!name) return cli_usage_error(a, "an argument is missing");
    snprintf(program, sizeof program, "%s %s", a->program, a->command->name);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        str text;
        str_init(&text);
        help_subcommands(a->command, program, list, &text);
        fputs(str_cstr(&text), stdout);
        str_deinit(&text);
        return CLI_OK;
    }
    for (; *list; list++) {
        if (strcmp((*list)->name, name) == 0)
            return cli_run_command(*list, program, a->n_positional - 1, a->positional + 1);
    }
    return cli_usage_error(a, "unknown command '%s'", name);
}

int cli_count(const cli_args *a) { return a->n_positional; }

const char *cli_arg(const cli_args *a, int index) { return index < a->n_positional ? a->positional[index] : NULL; }

/* The last one typed wins. */
static const set_option *find_set(const cli_args *a, const char *name) {
    for (int i = a->n_set - 1; i >= 0; i--) {
        if (strcmp(a->set[i].option->name, name) == 0) return &a->set[i];
    }
    return NULL;
}

bool cli_flag(const cli_args *a, const char *name) { return find_set(a, name) != NULL; }

const char *cli_string(const cli_args *a, const char *name, const char *dflt) {
    const set_option *s = find_set(a, name);
    return s ? s->value : dflt;
}

const char *cli_string_at(const cli_args *a, const char *name, int index) {
    for (int i = 0; i < a->n_set; i++) {
        if (strcmp(a->set[i].option->name, name) == 0 && index-- == 0) return a->set[i].value;
    }
    return NULL;
}

long long cli_int(const cli_args *a, const char *name, long long dflt) {
    const set_option *s = find_set(a, name);
    return s ? strtoll(s->value, NULL, 10) : dflt;
}

int cli_fail(const cli_args *a, const err *e) {
    str text;
    str_init(&text);
    /* A sentence may quote a model file: no control character but its line breaks reaches the terminal. */
    for (const char *p = e->msg; *p;) {
        size_t n = strcspn(p, "\n");
        text_put_safe(&text, (view){ p, n });
        if (p[n]) str_push(&text, p[n++]);
        p += n;
    }
    fflush(stdout);
    fprintf(stderr, "%s %s: %s\n", a->program, a->command->name, str_cstr(&text));
    str_deinit(&text);
    return CLI_FAILED;
}

int cli_usage_error(const cli_args *a, const char *fmt, ...) {
    va_list ap;
    fflush(stdout);
    fprintf(stderr, "%s %s: ", a->program, a->command->name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nusage: %s %s %s\nTry '%s %s --help'.\n", a->program, a->command->name, a->command->usage,
            a->program, a->command->name);
    return CLI_USAGE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth completion: scripts for shells, and the hidden `hearth __complete WORDS...` that they call.
 *
 * __complete gets the words behind `hearth`, the last one unfinished (perhaps empty), and prints what may stand there,
 * one per line: the word, a tab, what it means. Everything comes from the command tables and the registry, so a script
 * never needs to be made again. Where it prints nothing the shell offers files.
 */
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "config/server.h"
#include "runtime/demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char bash_script[] = "# bash completion of hearth: source <(hearth completion bash)\n"
                                  "_hearth() {\n"
                                  "    local line=${COMP_LINE:0:COMP_POINT} cur prefix IFS=$' \\t\\n'\n"
                                  "    local -a words\n"
                                  "    read -ra words <<<\"$line\"\n"
                                  "    case $line in *[[:space:]]) words+=('') ;; esac\n"
                                  "    cur=${words[${#words[@]}-1]}\n"
                                  "    local IFS=$'\\n'\n"
                                  "    COMPREPLY=($(compgen -W \"$(\"${words[0]}\" __complete -- \"${words[@]:1}\" "
                                  "2>/dev/null | cut -f 1)\" -- \"$cur\"))\n"
                                  "    # Readline ends a word at a colon; names of models contain colons.\n"
                                  "    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then\n"
                                  "        prefix=${cur%\"${cur##*:}\"}\n"
                                  "        COMPREPLY=(\"${COMPREPLY[@]#\"$prefix\"}\")\n"
                                  "    fi\n"
                                  "}\n"
                                  "complete -o bashdefault -o default -F _hearth hearth\n";

static const char zsh_script[] =
    "#compdef hearth\n"
    "# zsh completion of hearth: source <(hearth completion zsh)\n"
    "_hearth() {\n"
    "    local -a lines candidates\n"
    "    local line\n"
    "    lines=(\"${(@f)$(\"${words[1]}\" __complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "    for line in \"${lines[@]}\"; do\n"
    "        [[ -n $line ]] && candidates+=(\"${line%%$'\\t'*}\")\n"
    "    done\n"
    "    if (( ${#candidates} )); then\n"
    "        compadd -- \"${candidates[@]}\"\n"
    "    else\n"
    "        _files\n"
    "    fi\n"
    "}\n"
    "# As a file of $fpath this is the function's first call; sourced, it makes the function known.\n"
    "if [[ ${funcstack[1]} = _hearth ]]; then _hearth \"$@\"; else compdef _hearth hearth; fi\n";

static const char fish_script[] = "# fish completion of hearth: hearth completion fish | source\n"
                                  "function __hearth_complete\n"
                                  "    set -l words (commandline -opc) (commandline -ct)\n"
                                  "    hearth __complete -- $words[2..-1] 2>/dev/null\n"
                                  "end\n"
                                  "complete -c hearth -a '(__hearth_complete)'\n";

static const struct {
    const char *shell, *script;
} scripts[] = { { "bash", bash_script }, { "zsh", zsh_script }, { "fish", fish_script } };

static int run(const cli_args *a) {
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        if (strcmp(cli_arg(a, 0), scripts[i].shell) != 0) continue;
        fputs(scripts[i].script, stdout);
        return CLI_OK;
    }
    return cli_usage_error(a, "'%s' is not a supported shell; expected bash, zsh or fish", cli_arg(a, 0));
}

static const cli_option options[] = { { 0 } };

const cli_command cli_cmd_completion = { "completion",
                                         "bash|zsh|fish",
                                         "Print a completion script for a shell: source <(hearth completion bash)",
                                         options,
                                         1,
                                         1,
                                         run };

/* --- what may stand at the end of a line --- */

static void offer(const char *typed, const char *word, const char *meaning) {
    if (strncmp(word, typed, strlen(typed)) == 0) printf("%s\t%.*s\n", word, (int)strcspn(meaning, "\n"), meaning);
}

static void offer_commands(const char *typed, const cli_command *const *list) {
    for (; *list; list++) offer(typed, (*list)->name, (*list)->summary);
}

static void offer_options(const char *typed, const cli_command *c) {
    char word[80];
    for (const cli_option *o = c->options; o && o->name; o++) {
        if (o->kind == CLI_GROUP) continue;
        snprintf(word, sizeof word, "--%s", o->name);
        offer(typed, word, o->help);
    }
    offer(typed, "--help", "show the options");
}

static void offer_models(const char *typed) {
    registry       *r = NULL;
    registry_model *list = NULL;
    size_t          n = 0;
    offer(typed, RUNTIME_DEMO, "the model that ships with Hearth");
    offer(typed, RUNTIME_VISION_DEMO, "the one that sees");
    if (catalogue_open_existing(&r, NULL) == 0 && r && registry_list(r, &list, &n, NULL) == 0) {
        for (size_t i = 0; i < n; i++) {
            if (!runtime_is_demo(list[i].name)) offer(typed, list[i].name, "model");
            registry_model_deinit(&list[i]);
        }
        free(list);
    }
    registry_close(r);
}

static void offer_choices(const char *typed, const char *choices, const char *meaning) {
    char word[64];
    while (*choices) {
        size_t n = strcspn(choices, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, choices);
        offer(typed, word, meaning);
        choices += n + (choices[n] != '\0');
    }
}

/* Values of an option; files are left to the shell. */
static void offer_values(const char *typed, const cli_option *o) {
    if (o->kind == CLI_SWITCH) offer_choices(typed, "on|off", o->help);
    if (o->value_name && strcmp(o->value_name, "MODEL") == 0) offer_models(typed);
    for (size_t i = 0; i < config_server_schema.n; i++) {
        const config_key *k = &config_server_schema.keys[i];
        if (k->choices && k->flag && strcmp(k->flag, o->name) == 0) offer_choices(typed, k->choices, o->help);
    }
}

static const cli_option *option_named(const cli_command *c, const char *word) {
    for (const cli_option *o = c->options; o && o->name; o++) {
        if (o->kind == CLI_GROUP) continue;
        if (word[1] == '-' ? strcmp(o->name, word + 2) == 0 : o->letter && word[1] == o->letter && !word[2]) return o;
    }
    return NULL;
}

static const cli_command *command_named(const cli_command *const *list, const char *word) {
    while (*list && strcmp((*list)->name, word) != 0) list++;
    return *list;
}

/* A command's arguments are models where its usage says so; one of several words where it lists them. */
static void offer_arguments(const char *typed, const cli_command *c) {
    if (strstr(c->usage, "MODEL") || strcmp(c->name, "rm") == 0 || strcmp(c->name, "cp") == 0)
        offer_models(typed);
    else if (strchr(c->usage, '|') && !strchr(c->usage, '[') && !strchr(c->usage, ' '))
        offer_choices(typed, c->usage, c->summary);
}

static int run_complete(const cli_args *a) {
    int                       n = cli_count(a), at = 0;
    const char               *typed = n ? cli_arg(a, n - 1) : "";
    const cli_command *const *list = cli_commands;
    const cli_command        *c = NULL;
    while (at < n - 1 && (c = command_named(list, cli_arg(a, at)))) {
        at++;
        if (!(list = cli_subcommands(c))) break;
    }
    if (at >= n - 1 && (!c || list)) {
        offer_commands(typed, list);
        return CLI_OK;
    }
    if (!c) return CLI_OK;
    const char       *before = n - 1 > at ? cli_arg(a, n - 2) : "";
    const cli_option *o = before[0] == '-' && before[1] ? option_named(c, before) : NULL;
    if (o && o->kind != CLI_FLAG && !(o->kind == CLI_SWITCH && typed[0] == '-'))
        offer_values(typed, o);
    else if (typed[0] == '-')
        offer_options(typed, c);
    else
        offer_arguments(typed, c);
    return CLI_OK;
}

const cli_command cli_cmd_complete = {
    "__complete", "-- WORD...", "Print what could complete a command line.", options, 0, -1, run_complete
};

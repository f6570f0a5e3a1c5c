/* SPDX-License-Identifier: Apache-2.0 */
/* hearth run: one answer, or a chat on a terminal. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/lora.h"
#include "cli/options.h"
#include "cli/run/pictures.h"
#include "cli/run/run_chat.h"
#include "cli/settings.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PROMPT_BYTES = 64 << 20, MAX_FILE_BYTES = 16 << 20 };

/* --- options --- */

/* The name under which a model has settings: a file has none. */
static const char *name_of(const cli_args *a, const cli_model *m) {
    const char *typed = cli_arg(a, 0);
    return m->name ? m->name : !typed || strcmp(typed, "demo") == 0 ? "demo" : NULL;
}

/* --lora: instead of the adapters of the model's settings. */
static int read_lora(const cli_args *a, const cli_lora *named, model_settings *own, runtime_options *o, err *e) {
    runtime_lora *list = arena_calloc(&own->mem, RUNTIME_MAX_LORA, sizeof *list);
    size_t        n = 0;
    if (!list) return err_set_nomem(e);
    if (named->path) list[n++] = (runtime_lora){ view_of(named->path), named->scale };
    for (const char *text; (text = cli_string_at(a, "lora", (int)n - (named->path != NULL))); n++) {
        cli_lora l;
        if (n == RUNTIME_MAX_LORA) return err_set(e, ERR_ARG, "--lora: at most %d adapters", RUNTIME_MAX_LORA);
        int rc = cli_lora_parse(&l, text, e);
        if (rc < 0) return rc;
        char *path = arena_strdup(&own->mem, l.path);
        free(l.path);
        if (!path) return err_set_nomem(e);
        list[n] = (runtime_lora){ view_of(path), l.scale };
    }
    if (n == 0) return 0;
    o->settings.lora = list;
    o->settings.n_lora = n;
    return 0;
}

static int read_options(const cli_args *a, settings *s, const cli_model *m, const cli_lora *named, model_settings *own,
                        runtime_options *o, err *e) {
    int rc = settings_model(s, a, name_of(a, m), NULL, own, e);
    if (rc == 0) rc = settings_engine(s, o, e);
    o->engine.max_seqs = 1;
    o->settings = own->runtime;
    return rc < 0 ? rc : read_lora(a, named, own, o, e);
}

static int choose_seed(const runtime_settings *r, sampling_params *p, err *e) {
    uint64_t fresh = 0;
    if (r->sampling_set & RUNTIME_SET_SEED) return 0;
    if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh) return err_set_errno(e, "cannot get a random seed");
    p->seed = fresh >> 1;
    return 0;
}

static int read_thinking(const cli_args *a, session *s, err *e) {
    const char *think = cli_string(a, "think", NULL);
    long long   budget = cli_int(a, "think-budget", -1);
    bool        on = (think && strcmp(think, "on") == 0) || (!think && budget >= 0);
    if (budget > INT32_MAX || (budget < 0 && cli_string(a, "think-budget", NULL)))
        return err_set(e, ERR_ARG, "--think-budget must lie between 0 and %d", INT32_MAX);
    if (on && !s->info.can_think)
        return err_set(e, ERR_UNSUPPORTED, "--think: the chat template of this model has no switch for thinking");
    if (on) s->thinking = RUNTIME_THINK_ON;
    s->think_budget = (int)budget;
    return 0;
}

static int read_constraint(const cli_args *a, session *s, err *e) {
    static const struct {
        const char             *option;
        runtime_constraint_kind kind;
        bool                    file;
    } rows[] = { { "json-schema", RUNTIME_SCHEMA, true },
                 { "grammar", RUNTIME_GBNF, true },
                 { "regex", RUNTIME_REGEX, false } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *value = cli_string(a, rows[i].option, NULL);
        size_t      bytes = 0;
        if (!value) continue;
        if (s->constraint.kind != RUNTIME_FREE)
            return err_set(e, ERR_ARG, "only one of --json-schema, --regex and --grammar can be used at a time");
        s->constraint.kind = rows[i].kind;
        if (rows[i].file) {
            int rc = file_read(&s->constraint_text, &bytes, value, MAX_FILE_BYTES, e);
            if (rc < 0) return rc;
            s->constraint.text = (view){ s->constraint_text, bytes };
        } else {
            s->constraint.text = view_of(value);
        }
    }
    return 0;
}

static int read_tools(const cli_args *a, session *s, err *e) {
    const char *file = cli_string(a, "tools", NULL), *choice = cli_string(a, "tool-choice", NULL);
    size_t      bytes = 0;
    if (!file) return choice ? err_set(e, ERR_ARG, "--tool-choice needs --tools") : 0;
    int rc = file_read(&s->tools, &bytes, file, MAX_FILE_BYTES, e);
    if (rc < 0) return rc;
    if (!choice || strcmp(choice, "auto") == 0) return 0;
    s->tool_choice = strcmp(choice, "none") == 0       ? RUNTIME_TOOLS_NONE
                     : strcmp(choice, "required") == 0 ? RUNTIME_TOOLS_REQUIRED
                                                       : RUNTIME_TOOLS_NAMED;
    if (s->tool_choice == RUNTIME_TOOLS_NAMED) s->tool_name = choice;
    return 0;
}

/* --- one answer --- */

/* A line of stdin; the prompt goes to stderr where a person sits there. */
static bool read_result(void *ctx, const session_call *call, str *out) {
    bool from_stdin = *(const bool *)ctx;
    int  c;
    if (from_stdin) return false; /* the question was on stdin, up to its end */
    if (isatty(STDIN_FILENO)) fprintf(stderr, "result of %s: ", str_cstr(&call->name));
    while ((c = getchar()) != EOF && c != '\n') str_push(out, (char)c);
    return (c != EOF || out->len) && str_ok(out);
}

static const char *finish_name(runtime_finish f) {
    return f == RUNTIME_TOOL_CALLS ? "tool_calls" : f == RUNTIME_LENGTH ? "length" : "stop";
}

static void put_member(str *out, const char *key, const str *text) {
    str_printf(out, ",\"%s\":", key);
    str_put_json(out, str_cstr(text), text->len);
}

/* The whole answer as one line of JSON. */
static int print_json(const session_result *r, err *e) {
    str out;
    str_init(&out);
    str_printf(&out, "{\"finish_reason\":\"%s\"", finish_name(r->finish));
    put_member(&out, "content", &r->text);
    if (r->reasoning.len) put_member(&out, "reasoning", &r->reasoning);
    for (size_t i = 0; i < r->n_calls; i++) {
        const session_call *call = &r->calls[i];
        str_puts(&out, i ? ",{\"id\":" : ",\"tool_calls\":[{\"id\":");
        str_put_json(&out, str_cstr(&call->id), call->id.len);
        put_member(&out, "name", &call->name);
        put_member(&out, "arguments", &call->arguments);
        str_puts(&out, i + 1 == r->n_calls ? "}]" : "}");
    }
    str_printf(&out, ",\"usage\":{\"prompt_tokens\":%d,\"cached_tokens\":%d,\"completion_tokens\":%d}}",
               r->usage.prompt_tokens, r->usage.cached_tokens, r->usage.generated_tokens);
    int rc = str_ok(&out) ? 0 : err_set_nomem(e);
    if (rc == 0) puts(str_cstr(&out));
    str_deinit(&out);
    return rc;
}

static int answer_once(const cli_args *a, session *s, conversation *c, const char *prompt, err *e) {
    session_result r = { 0 };
    bool           from_stdin = !cli_arg(a, 1);
    turn_options   o = { .read_result = read_result, .ctx = &from_stdin };
    int            rc;
    if (cli_flag(a, "raw")) {
        rc = session_continue(s, view_of(prompt), &r, e);
        if (!s->silent && r.text.len && r.text.data[r.text.len - 1] != '\n') putchar('\n');
    } else if ((rc = s->n_pictures ? conversation_add_media(c, prompt, s->pictures, s->n_pictures, e)
                                   : conversation_add(c, "user", prompt, e)) == 0) {
        rc = turn_run(c, s, &o, &r, e);
    }
    if (rc == 0 && s->silent) rc = print_json(&r, e);
    fflush(stdout);
    if (rc == 0 && session_context_full(s, &r))
        fprintf(stderr, "hearth run: the context of %d tokens is full\n", s->info.n_ctx);
    if (rc == 0 && cli_flag(a, "verbose")) {
        str line;
        str_init(&line);
        session_describe(&r.usage, &line);
        fprintf(stderr, "%s\n", str_cstr(&line));
        str_deinit(&line);
    }
    session_result_deinit(&r);
    return rc;
}

/* Every --image, then every --audio, in their order. */
static int read_pictures(const cli_args *a, session *s, bool prompt, err *e) {
    const char *path;
    int         seen = 0, heard = 0, rc = 0;
    while (cli_string_at(a, "image", seen)) seen++;
    while (cli_string_at(a, "audio", heard)) heard++;
    if (seen + heard == 0) return 0;
    if (!prompt) return err_set(e, ERR_ARG, "--%s needs a prompt", seen ? "image" : "audio");
    if (seen + heard > RUNTIME_MAX_BLOBS)
        return err_set(e, ERR_ARG, "--image, --audio: %d pictures and sounds at most", RUNTIME_MAX_BLOBS);
    if (!(s->pictures = calloc((size_t)(seen + heard), sizeof *s->pictures))) return err_set_nomem(e);
    for (int i = 0; rc == 0 && (path = cli_string_at(a, "image", i)); i++) {
        rc = picture_read(path, &s->pictures[s->n_pictures], e);
        if (rc == 0) s->n_pictures++;
    }
    for (int i = 0; rc == 0 && (path = cli_string_at(a, "audio", i)); i++) {
        rc = sound_file_read(path, &s->pictures[s->n_pictures], e);
        if (rc == 0) s->n_pictures++;
    }
    return rc;
}

/* A file or a pipe on stdin, not a terminal and not /dev/null: with a prompt beside it, it is what the prompt speaks of.
 * Results of tools come from there, too, and are left alone. */
static bool has_input(const cli_args *a) {
    struct stat st;
    if (cli_string(a, "tools", NULL) || fstat(STDIN_FILENO, &st) < 0) return false;
    return S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode);
}

static int read_input(const cli_args *a, char **out, err *e) {
    size_t bytes = 0;
    int    rc = file_read_stream(out, &bytes, stdin, "stdin", MAX_PROMPT_BYTES, e);
    if (rc < 0) return rc;
    if (memchr(*out, '\0', bytes)) return err_set(e, ERR_ARG, "the prompt on standard input contains a NUL byte");
    /* echo puts a newline there that nobody meant; a raw text is continued as it stands. */
    while (!cli_flag(a, "raw") && bytes && (*out)[bytes - 1] == '\n') (*out)[--bytes] = '\0';
    return 0;
}

/* The prompt, and below it what is on stdin. */
static int join_input(const cli_args *a, char **out, err *e) {
    char *input = NULL;
    str   both;
    int   rc = read_input(a, &input, e);
    str_init(&both);
    str_puts(&both, cli_arg(a, 1));
    if (rc == 0 && *input) str_printf(&both, "\n\n%s", input);
    free(input);
    if (rc == 0 && !(*out = str_take(&both))) rc = err_set_nomem(e);
    str_deinit(&both);
    return rc;
}

/* The prompt that was typed or piped; *out stays NULL for a chat. A sound may come without words. */
static int read_prompt(const cli_args *a, char **out, err *e) {
    int rc = 0;
    if (cli_arg(a, 1) && has_input(a)) {
        rc = join_input(a, out, e);
    } else if (cli_arg(a, 1)) {
        *out = strdup(cli_arg(a, 1));
        if (!*out) return err_set_nomem(e);
    } else if (!isatty(STDIN_FILENO)) {
        rc = read_input(a, out, e);
    }
    bool heard = cli_string(a, "audio", NULL) != NULL;
    if (rc == 0 && !*out && heard && !(*out = strdup(""))) rc = err_set_nomem(e);
    if (rc < 0) return rc;
    if (!*out && cli_flag(a, "json")) return err_set(e, ERR_ARG, "--json needs a prompt");
    if (!*out && !isatty(STDOUT_FILENO)) return err_set(e, ERR_ARG, "a conversation needs a terminal; give a prompt");
    if (*out && !**out && !heard) return err_set(e, ERR_ARG, "the prompt is empty");
    if (cli_flag(a, "raw") && !*out) return err_set(e, ERR_ARG, "--raw needs a prompt");
    return 0;
}

static bool raw_with_chat_options(const cli_args *a) {
    return cli_flag(a, "raw") &&
           (cli_string(a, "system", NULL) || cli_string(a, "think", NULL) || cli_string(a, "think-budget", NULL) ||
            cli_string(a, "tools", NULL) || cli_string(a, "image", NULL) || cli_string(a, "audio", NULL));
}

static int run(const cli_args *args) {
    session         s = { 0 };
    log_level       level;
    settings        all = { 0 };
    model_settings  own = { 0 };
    runtime_options o = { 0 };
    cli_model_wish  wish;
    cli_model       model = { 0 };
    conversation    c = { 0 };
    cli_lora        named = { 0 };
    char           *prompt = NULL, *base = NULL;
    err             e = { 0 };
    int             rc;
    if (raw_with_chat_options(args))
        return cli_usage_error(args, "--raw does not use a chat template, so it cannot be used together with --system, "
                                     "--think, --tools, --image or --audio");
    if (cli_model_wish_read(&wish, args, &e) < 0) return cli_usage_error(args, "%s", e.msg);
    if ((rc = settings_load(&all, args, &e)) < 0) goto done;
    if (config_text(&all.server, "telemetry.log_level") &&
        log_level_parse(config_text(&all.server, "telemetry.log_level"), &level))
        log_set_level(level);
    if ((rc = cli_lora_named(&base, &named, cli_arg(args, 0), &e)) < 0) goto done;
    if ((rc = cli_model_find(&model, base ? base : cli_arg(args, 0), &wish, &e)) < 0) goto done;
    if ((rc = read_prompt(args, &prompt, &e)) < 0) goto done; /* a wrong name is said first */
    if ((rc = read_options(args, &all, &model, &named, &own, &o, &e)) < 0) goto done;
    o.settings.mmproj = cli_string(args, "mmproj", o.settings.mmproj);
    if ((rc = session_open(&s, &model, &o, &e)) < 0) goto done;
    if ((rc = read_pictures(args, &s, prompt != NULL, &e)) < 0) goto done;
    if ((rc = read_thinking(args, &s, &e)) < 0) goto done;
    if ((rc = choose_seed(&o.settings, &s.sampling, &e)) < 0) goto done;
    if ((rc = read_constraint(args, &s, &e)) < 0) goto done;
    if ((rc = read_tools(args, &s, &e)) < 0) goto done;
    s.silent = cli_flag(args, "json");
    s.markdown = s.colour && cli_flag(args, "markdown");
    (void)setlocale(LC_CTYPE, ""); /* the width of characters */
    if ((rc = conversation_set_system(&c, cli_string(args, "system", NULL), &e)) < 0) goto done;
    rc = prompt ? answer_once(args, &s, &c, prompt, &e) : run_chat(&s, &c, cli_flag(args, "verbose"), &e);
done:
    conversation_clear(&c);
    session_close(&s);
    cli_model_deinit(&model);
    model_settings_deinit(&own);
    settings_deinit(&all);
    free(prompt);
    free(base);
    free(named.path);
    return rc == 0 ? CLI_OK : rc == ERR_ARG ? cli_usage_error(args, "%s", e.msg) : cli_fail(args, &e);
}

/* The words of the table; values are read by the settings, which know the flags, too. */
#define SAMPLING_OPTION(ID, MEMBER, KIND, KEY, LOW, HIGH, DEFAULT, GROUP, ENV, FLAG, VALUE, HELP)                      \
    { FLAG, CLI_##KIND, VALUE, HELP, 0 }

static const cli_option options[] = {
    { "system", CLI_STRING, "TEXT", "use this system message", 0 },
    SAMPLING_ROW_TEMPERATURE(SAMPLING_OPTION),
    SAMPLING_ROW_SEED(SAMPLING_OPTION),
    { "max-tokens", CLI_INT, "N", "end the answer after N tokens", 'n' },
    { "think", CLI_SWITCH, "on|off", "let the model reason before it answers (off)", 0 },
    { "json-schema", CLI_STRING, "FILE", "make the answer JSON that is valid by this schema", 0 },
    { "image", CLI_STRING, "FILE", "send this picture with the prompt; may be repeated", 0 },
    { "tools", CLI_STRING, "FILE", "offer these tools; call results come from stdin", 0 },
    CLI_CTX_OPTION(0),
    CLI_THREADS_OPTION,
    { "verbose", CLI_FLAG, NULL, "print token counts and speeds after the answer", 'v' },
    { "answers", CLI_GROUP, NULL, "answers", 0 },
    { "audio", CLI_STRING, "FILE", "send this sound with the prompt; may be repeated", 0 },
    SAMPLING_ROW_TOP_K(SAMPLING_OPTION),
    SAMPLING_ROW_TOP_P(SAMPLING_OPTION),
    SAMPLING_ROW_MIN_P(SAMPLING_OPTION),
    SAMPLING_ROW_REPEAT_PENALTY(SAMPLING_OPTION),
    { "stop", CLI_STRING, "TEXT", "end the answer before this text; may be repeated", 0 },
    { "think-budget", CLI_INT, "N", "end the reasoning after N tokens", 0 },
    { "regex", CLI_STRING, "RE", "make the whole answer match this regular expression", 0 },
    { "grammar", CLI_STRING, "FILE", "make the answer fit this GBNF grammar", 0 },
    { "json", CLI_FLAG, NULL, "print the whole answer as one line of JSON", 0 },
    { "markdown", CLI_FLAG, NULL, "show Markdown in colours on a terminal", 0 },
    { "tool-choice", CLI_STRING, "CHOICE",
      "which tools the model calls: auto (default), none, required, or the name of one", 0 },
    { "raw", CLI_FLAG, NULL, "continue the prompt without a chat template", 0 },
    { "memory", CLI_GROUP, NULL, "memory", 0 },
    CLI_DEVICE_OPTION,
    CLI_GPU_LAYERS_OPTION,
    CLI_EXPERTS_OPTION,
    CLI_KV_OPTIONS,
    { "adapter-type", CLI_STRING, "TYPE", "how adapters are kept: auto, f32 (exactly), f16 or q8 (auto)", 0 },
    { "cache-dir", CLI_STRING, "DIR", "store the computed keys and values in this directory for the next run", 0 },
    { "cache-mem", CLI_INT, "MIB", "memory for keys and values that no longer fit into the context's cache (0)", 0 },
    { "model", CLI_GROUP, NULL, "model", 0 },
    { "lora", CLI_STRING, "FILE[:SCALE]", "use this adapter (GGUF file, or directory of PEFT or MLX); may be repeated",
      0 },
    { "mmproj", CLI_STRING, "FILE", "read the model's eyes and ears from this GGUF file (the one beside the model)",
      0 },
    CLI_MODEL_OPTIONS,
    CLI_CONFIG_OPTIONS,
    { "preset", CLI_STRING, "NAME", "use this sampling preset of the model's settings", 0 },
    { "speculate", CLI_STRING, "WHO",
      "who guesses ahead: auto (default), off, lookup, draft, mtp, eagle; answers stay the same", 0 },
    { "draft", CLI_STRING, "MODEL",
      "guess ahead with this smaller model of the same vocabulary, or head (MTP, EAGLE-3)", 0 },
    { "draft-max", CLI_INT, "N", "number of tokens guessed in one step at most; 0: 16 (0)", 0 },
    { 0 },
};

const cli_command cli_cmd_run = {
    "run",
    "[MODEL] [PROMPT]",
    "Talk to a model: a GGUF file, a model directory or the demo (default). Standard input is added to the prompt; "
    "without a prompt, a conversation starts.",
    options,
    0,
    2,
    run,
};

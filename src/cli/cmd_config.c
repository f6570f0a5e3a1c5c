/* SPDX-License-Identifier: Apache-2.0 */
/* hearth config: what holds and why, are the files right, a file to begin with, where the files are. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "cli/settings.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- show --- */

typedef struct shown {
    bool json, origin;
    str  out;
} shown;

static void put_origin(const config_value *v, str *out) {
    str_puts(out, config_origin_name(v->origin));
    if (v->where) str_printf(out, " (%s)", v->where);
}

static void put_json_value(shown *s, const config_key *k, const config_value *v) {
    if (!s->origin) {
        config_value_write(k, v, true, &s->out);
        return;
    }
    str_puts(&s->out, "{\"value\": ");
    config_value_write(k, v, true, &s->out);
    str_printf(&s->out, ", \"origin\": \"%s\", \"where\": ", config_origin_name(v->origin));
    if (v->where)
        str_put_json(&s->out, v->where, strlen(v->where));
    else
        str_puts(&s->out, "null");
    str_push(&s->out, '}');
}

static void put_yaml_value(shown *s, const char *indent, const char *name, const config_key *k, const config_value *v) {
    size_t begin = s->out.len;
    str_printf(&s->out, "%s%s: ", indent, name);
    config_value_write(k, v, false, &s->out);
    if (s->origin) {
        while (s->out.len - begin < 40) str_push(&s->out, ' ');
        str_puts(&s->out, "  # ");
        put_origin(v, &s->out);
    }
    str_push(&s->out, '\n');
}

/* Keys stand in the table section by section. */
static void put_values(shown *s, const config_values *v) {
    const char *section = "";
    size_t      len = 0;
    if (s->json) str_puts(&s->out, "{");
    for (size_t i = 0; i < v->schema->n; i++) {
        const config_key *k = &v->schema->keys[i];
        const char       *dot = strchr(k->path, '.'), *name = dot ? dot + 1 : k->path;
        size_t            n = dot ? (size_t)(dot - k->path) : 0;
        bool              other = n != len || strncmp(section, k->path, n) != 0;
        if (s->json) {
            if (other && len) str_puts(&s->out, "\n  }");
            if (i) str_puts(&s->out, ",");
            if (other && n) str_printf(&s->out, "\n  \"%.*s\": {", (int)n, k->path);
            str_printf(&s->out, "\n%s\"%s\": ", n ? "    " : "  ", name);
            put_json_value(s, k, &v->v[i]);
        } else {
            if (other && n) str_printf(&s->out, "%.*s:\n", (int)n, k->path);
            put_yaml_value(s, n ? "  " : "", name, k, &v->v[i]);
        }
        section = k->path;
        len = n;
    }
    if (s->json) str_puts(&s->out, len ? "\n  }\n}\n" : "\n}\n");
}

static int show_model(const cli_args *a, const settings *all, shown *s, err *e) {
    cli_model      found = { 0 };
    model_settings m;
    const char    *name = cli_arg(a, 0);
    int            rc = cli_model_find(&found, name, NULL, e);
    if (rc == 0 && !file_exists(found.path) && !dir_exists(found.path))
        rc = err_set(e, ERR_NOTFOUND, "there is no model '%s'", name);
    if (rc == 0)
        rc = settings_model(all, a, found.name ? found.name : strcmp(name, "demo") == 0 ? name : NULL, NULL, &m, e);
    if (rc == 0) {
        put_values(s, &m.values);
        model_settings_deinit(&m);
    }
    cli_model_deinit(&found);
    return rc;
}

static int run_show(const cli_args *a) {
    settings all;
    shown    s = { .json = cli_flag(a, "json"), .origin = cli_flag(a, "origin") };
    err      e = { 0 };
    int      rc = settings_load(&all, a, &e);
    str_init(&s.out);
    if (rc == 0 && cli_arg(a, 0))
        rc = show_model(a, &all, &s, &e);
    else if (rc == 0)
        put_values(&s, &all.server);
    if (rc == 0) fputs(str_cstr(&s.out), stdout);
    str_deinit(&s.out);
    settings_deinit(&all);
    return rc == 0 ? CLI_OK : rc == ERR_ARG ? cli_usage_error(a, "%s", e.msg) : cli_fail(a, &e);
}

/* --- check --- */

/* A file in a directory `models` holds settings of a model. */
static bool is_model_file(const char *path) {
    const char *slash = strrchr(path, '/');
    size_t      n = slash ? (size_t)(slash - path) : 0;
    return n >= 6 && strncmp(slash - 6, "models", 6) == 0 && (n == 6 || slash[-7] == '/');
}

/* false: there are problems, which were printed. */
static bool check_file(const char *path, bool model) {
    const config_schema *schema = model ? &config_model_schema : &config_server_schema;
    config_report        r;
    config_values        v;
    arena                mem;
    char                *text = NULL;
    size_t               n = 0;
    err                  e = { 0 };
    str                  out;
    config_report_init(&r, path);
    arena_init(&mem, (size_t)64 << 20);
    str_init(&out);
    if (file_read(&text, &n, path, (size_t)CONFIG_MAX_BYTES + 1, &e) < 0) {
        config_report_add(&r, 0, 0, "%s", e.msg);
    } else if (!config_values_init(&v, schema, &mem)) {
        r.no_memory = true;
    } else {
        config_values_defaults(&v, &mem);
        config_read(&v, (view){ text, n }, CONFIG_FROM_SERVER, &mem, &r);
        if (r.n == 0) (model ? config_model_check : config_server_check)(&v, &r);
    }
    bool ok = r.n == 0 && !r.no_memory;
    if (ok) {
        printf("%s: ok\n", path);
    } else {
        config_report_write(&r, &out);
        fflush(stdout);
        fputs(r.no_memory ? "out of memory\n" : str_cstr(&out), stderr);
    }
    str_deinit(&out);
    free(text);
    arena_deinit(&mem);
    config_report_deinit(&r);
    return ok;
}

/* Every file that would be read; none is not a mistake. */
static int check_all(bool *ok, err *e) {
    str  path;
    DIR *d = NULL;
    str_init(&path);
    settings_directory(&path);
    if (path.len == 0) {
        str_deinit(&path);
        return err_set(e, ERR_NOTFOUND, "neither XDG_CONFIG_HOME nor HOME is set");
    }
    size_t dir = path.len;
    str_puts(&path, "/server.yaml");
    if (getenv("HEARTH_CONFIG") && *getenv("HEARTH_CONFIG"))
        *ok = check_file(getenv("HEARTH_CONFIG"), false);
    else if (file_exists(str_cstr(&path)))
        *ok = check_file(str_cstr(&path), false);
    else
        printf("%s does not exist; the defaults apply\n", str_cstr(&path));
    path.len = dir;
    str_puts(&path, "/models");
    d = opendir(str_cstr(&path));
    for (struct dirent *f; d && (f = readdir(d));) {
        size_t n = strlen(f->d_name);
        char  *file = n > 5 && strcmp(f->d_name + n - 5, ".yaml") == 0 ? path_join(str_cstr(&path), f->d_name) : NULL;
        if (file && !check_file(file, true)) *ok = false;
        free(file);
    }
    if (d) closedir(d);
    str_deinit(&path);
    return 0;
}

/* Variables that are none of the settings'. */
static const char *const other_variables[] = { "HEARTH_CONFIG", "HEARTH_HOST", "HEARTH_API_KEY",
                                               "HEARTH_OLLAMA_REGISTRY" };

static size_t list_variables(const char **out, size_t cap) {
    const config_schema *all[] = { &config_server_schema, &config_model_schema };
    size_t               n = 0;
    for (size_t i = 0; i < sizeof other_variables / sizeof other_variables[0]; i++)
        out[n++] = other_variables[i] + strlen("HEARTH_");
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < all[s]->n && n < cap; i++)
            if (all[s]->keys[i].env) out[n++] = all[s]->keys[i].env + strlen("HEARTH_");
    return n;
}

/* A variable that looks like one of ours and is none may be somebody else's: it is only pointed out. */
static void check_variables(void) {
    const char *known[256];
    size_t      n = list_variables(known, 256);
    for (char **v = environ; *v; v++) {
        char        name[64];
        const char *best;
        size_t      len = strcspn(*v, "="), i = 0;
        if (strncmp(*v, "HEARTH_", 7) != 0 || len - 7 >= sizeof name) continue;
        memcpy(name, *v + 7, len - 7);
        name[len - 7] = '\0';
        while (i < n && strcmp(known[i], name) != 0) i++;
        if (i < n || !(best = config_nearest(name, known, n))) continue;
        fprintf(stderr, "HEARTH_%s is not a known variable; did you mean HEARTH_%s?\n", name, best);
    }
}

static int run_check(const cli_args *a) {
    bool     ok = true;
    settings all = { 0 };
    err      e = { 0 };
    for (int i = 0; i < cli_count(a); i++)
        if (!check_file(cli_arg(a, i), cli_flag(a, "model") || is_model_file(cli_arg(a, i)))) ok = false;
    if (cli_count(a) == 0) {
        if (check_all(&ok, &e) < 0) return cli_fail(a, &e);
        check_variables();
        if (ok && settings_load(&all, a, &e) < 0) { /* the values of variables */
            fprintf(stderr, "%s\n", e.msg);
            ok = false;
        }
        settings_deinit(&all);
    }
    return ok ? CLI_OK : CLI_FAILED;
}

/* --- init and path --- */

static int server_path(const cli_args *a, str *out, err *e) {
    const char *env = getenv("HEARTH_CONFIG"), *flag = cli_string(a, "config", NULL);
    if (flag || (env && *env)) {
        str_puts(out, flag ? flag : env);
        return 0;
    }
    settings_directory(out);
    if (out->len == 0) return err_set(e, ERR_NOTFOUND, "neither XDG_CONFIG_HOME nor HOME is set");
    str_puts(out, "/server.yaml");
    return 0;
}

static int make_parents(const char *path, err *e) {
    char *copy = strdup(path);
    int   rc = copy ? 0 : err_set_nomem(e);
    for (char *p = copy ? strchr(copy + 1, '/') : NULL; p && rc == 0; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) rc = err_set_errno(e, "cannot create %s", copy);
        *p = '/';
    }
    free(copy);
    return rc;
}

static int write_file(const char *path, bool model, err *e) {
    file_replace f;
    str          text;
    int          rc = make_parents(path, e);
    if (rc < 0) return rc;
    str_init(&text);
    if (model)
        config_document_yaml(&config_model_schema,
                             "Settings of one model. Remove the # in front of a value to set it. "
                             "'hearth config check' checks this file.",
                             &text);
    else
        config_document_yaml(
            &config_server_schema,
            "Settings of Hearth. The values below are the defaults; remove the # in front of a value to "
            "change it. 'hearth config check' checks this file; docs/configuration.md explains it.",
            &text);
    rc = str_ok(&text) ? file_replace_begin(&f, path, e) : err_set_nomem(e);
    if (rc == 0) {
        fputs(str_cstr(&text), f.out);
        rc = file_replace_commit(&f, e);
    }
    str_deinit(&text);
    return rc;
}

static int run_init(const cli_args *a) {
    const char *model = cli_string(a, "model", NULL);
    str         path;
    err         e = { 0 };
    int         rc = 0;
    str_init(&path);
    if (model) {
        settings_model_path(model, &path);
        if (path.len == 0) rc = err_set(&e, ERR_NOTFOUND, "neither XDG_CONFIG_HOME nor HOME is set");
    } else {
        rc = server_path(a, &path, &e);
    }
    if (rc == 0 && file_exists(str_cstr(&path)) && !cli_flag(a, "force"))
        rc = err_set(&e, ERR_IO, "%s already exists; replace it with --force", str_cstr(&path));
    if (rc == 0) rc = write_file(str_cstr(&path), model != NULL, &e);
    if (rc == 0) printf("%s\n", str_cstr(&path));
    str_deinit(&path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static int run_path(const cli_args *a) {
    str path;
    err e = { 0 };
    str_init(&path);
    int rc = 0;
    if (cli_arg(a, 0)) {
        settings_model_path(cli_arg(a, 0), &path);
        if (path.len == 0) rc = err_set(&e, ERR_NOTFOUND, "neither XDG_CONFIG_HOME nor HOME is set");
    } else {
        rc = server_path(a, &path, &e);
    }
    if (rc == 0) printf("%s\n", str_cstr(&path));
    str_deinit(&path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

/* --- docs --- */

static void put_reference(const config_schema *s) {
    str words;
    str_init(&words);
    printf("| key | value | default | environment | flag | meaning |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < s->n; i++) {
        const config_key *k = &s->keys[i];
        printf("| `%s` | %s | %s%s%s | %s%s%s | %s%s%s | %s |\n", k->path, config_type_words(k, &words),
               k->dflt ? "`" : "", k->dflt ? k->dflt : "", k->dflt ? "`" : "", k->env ? "`" : "", k->env ? k->env : "",
               k->env ? "`" : "", k->flag ? "`--" : "", k->flag ? k->flag : "", k->flag ? "`" : "", k->help);
    }
    str_deinit(&words);
}

static int run_reference(const cli_args *a) {
    (void)a;
    printf("### server.yaml\n\n");
    put_reference(&config_server_schema);
    printf("\n### models/NAME.yaml\n\n");
    put_reference(&config_model_schema);
    return CLI_OK;
}

/* --- tables --- */

static const cli_option show_options[] = {
    CLI_JSON_OPTION,
    { "origin", CLI_FLAG, NULL, "also print where each value comes from", 0 },
    CLI_CONFIG_OPTIONS,
    { 0 },
};
static const cli_command cmd_show = { "show",
                                      "[MODEL] [--json] [--origin]",
                                      "Print the current value of every setting: server.yaml, the environment and the "
                                      "defaults; with MODEL, the settings of that model.",
                                      show_options,
                                      0,
                                      1,
                                      run_show };

static const cli_option check_options[] = {
    { "model", CLI_FLAG, NULL, "the files contain settings of models (assumed for files in a directory named 'models')",
      0 },
    { 0 },
};
static const cli_command cmd_check = { "check",
                                       "[FILE...]",
                                       "Report every mistake in configuration files, with line, key and remedy. "
                                       "Without FILE, check every file that would be read.",
                                       check_options,
                                       0,
                                       -1,
                                       run_check };

static const cli_option init_options[] = {
    { "force", CLI_FLAG, NULL, "replace an existing file", 0 },
    { "model", CLI_STRING, "MODEL", "write the settings of this model instead of server.yaml", 0 },
    { "config", CLI_STRING, "FILE", "write to this file", 0 },
    { 0 },
};
static const cli_command cmd_init = {
    "init",       "[--force]", "Write a server.yaml with every key and its default, as comments, and print its path.",
    init_options, 0,           0,
    run_init
};

static const cli_option path_options[] = {
    { "config", CLI_STRING, "FILE", "the server.yaml that other commands are given", 0 }, { 0 }
};
static const cli_command cmd_path = {
    "path", "[MODEL]", "Print the path of server.yaml, or of the settings of MODEL.", path_options, 0, 1, run_path
};

static const cli_command cmd_reference = { "reference",      "", "Print every key as a Markdown table.",
                                           path_options + 1, 0,  0,
                                           run_reference };

const cli_command *const cli_config_commands[] = {
    &cmd_show, &cmd_check, &cmd_init, &cmd_path, &cmd_reference, NULL,
};

static int run(const cli_args *args) { return cli_run_subcommand(args, cli_config_commands); }

const cli_command cli_cmd_config = { "config",
                                     "show|check|init|path|reference",
                                     "Show settings, check and create configuration files.",
                                     NULL,
                                     0,
                                     CLI_SUBCOMMANDS,
                                     run };

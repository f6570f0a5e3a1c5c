/* SPDX-License-Identifier: Apache-2.0 */
/* hearth adapter: fine-tunes beside a model, by name. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "models/list.h"
#include "nn/adapter.h"
#include "registry/adapters.h"
#include "registry/names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *format_name(nn_adapter_format f) {
    return f == NN_ADAPTER_GGUF ? "GGUF" : f == NN_ADAPTER_MLX ? "MLX" : "PEFT";
}

/* --- add --- */

/* "french-lora" for "/x/french-lora/", "a" for "/x/a.gguf". */
static char *name_from(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    if (end - begin > 5 && memcmp(path + end - 5, ".gguf", 5) == 0) end -= 5;
    return strndup(path + begin, end - begin);
}

/* Reads it as a worker would: what does not fit the model is said now. */
static int look_at(const registry_model *m, const char *path, registry_adapter *a, double *seconds, err *e) {
    model_file *file = NULL;
    nn_model   *model = NULL;
    nn_adapter *own = NULL;
    char        hex[2 * SHA256_BYTES + 1];
    int         rc = model_file_open(&file, m->path, e);
    if (rc == 0) rc = nn_model_open(&model, file, models_list, NULL, e);
    double begin = clock_s();
    if (rc == 0) rc = nn_adapter_open(&own, model, path, LOWRANK_AUTO, e);
    *seconds = clock_s() - begin;
    if (rc == 0) {
        for (int i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", own->key[i]);
        a->sha256 = strdup(hex);
        a->type = strdup(own->n_invocation ? "alora" : own->kind);
        a->format = strdup(format_name(own->format));
        a->rank = own->rank;
        a->alpha = own->alpha;
        if (!a->sha256 || !a->type || !a->format) rc = err_set_nomem(e);
    }
    nn_adapter_free(own);
    nn_model_free(model);
    model_file_free(file);
    return rc;
}

static int read_scale(const cli_args *a, double *out, err *e) {
    const char *text = cli_string(a, "scale", NULL);
    char       *end = NULL;
    *out = text ? strtod(text, &end) : 1;
    if (text && (end == text || *end || !isfinite(*out) || *out == 0))
        return err_set(e, ERR_ARG, "--scale: '%.40s' is not a number other than 0", text);
    return 0;
}

static int add(const cli_args *args, registry *r, const registry_model *m, registry_adapter *a, err *e) {
    const char *path = cli_arg(args, 1), *name = cli_string(args, "name", NULL);
    double      seconds;
    int         rc = read_scale(args, &a->scale, e);
    if (rc < 0) return rc;
    if (!(a->name = name ? strdup(name) : name_from(path))) return err_set_nomem(e);
    if (!registry_adapter_name_ok(a->name))
        return err_set(e, ERR_ARG, "'%.80s' is not a name for an adapter (letters, digits and . _ - only); say --name",
                       a->name);
    if ((rc = look_at(m, path, a, &seconds, e)) < 0) return rc;
    if ((rc = registry_adapter_store(r, path, a->sha256, &a->path, &a->size, e)) < 0) return rc;
    rc = registry_adapter_add(r, m->name, a, cli_flag(args, "replace"), e);
    err swept = { 0 };
    (void)registry_adapter_sweep(r, &swept);
    if (rc < 0) return rc;
    printf("added %s to %s: %s of rank %lld, read in %.0f ms; use the model %s+%s\n", a->name, m->name, a->type,
           (long long)a->rank, seconds * 1e3, m->name, a->name);
    return 0;
}

static int run_add(const cli_args *args) {
    registry        *r = NULL;
    registry_model   m = { 0 };
    registry_adapter a = { 0 };
    err              e = { 0 };
    int              rc = catalogue_open(&r, &e);
    if (rc == 0) rc = names_find(r, cli_arg(args, 0), NULL, &m, &e);
    if (rc == 0) rc = add(args, r, &m, &a, &e);
    registry_adapter_deinit(&a);
    registry_model_deinit(&m);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(args, &e);
}

/* --- list and show --- */

static void put_json(str *out, const char *model, const registry_adapter *a) {
    const char *const rows[][2] = { { "name", a->name },     { "parent", model }, { "type", a->type },
                                    { "format", a->format }, { "path", a->path }, { "sha256", a->sha256 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str_printf(out, "%s\"%s\": ", i ? ", " : "{", rows[i][0]);
        str_put_json(out, rows[i][1], strlen(rows[i][1]));
    }
    str_printf(out, ", \"rank\": %lld, \"alpha\": %g, \"scale\": %g, \"size\": %lld}", (long long)a->rank, a->alpha,
               a->scale, (long long)a->size);
}

static int print_list(const cli_args *args, const char *model, registry *r, err *e) {
    registry_adapter *list = NULL;
    char            **models = NULL;
    size_t            n = 0;
    str               out;
    int               rc = r ? registry_adapter_list(r, model, &list, &models, &n, e) : 0;
    if (rc < 0) return rc;
    str_init(&out);
    if (cli_flag(args, "json"))
        str_push(&out, '[');
    else if (n)
        str_printf(&out, "%-32s %-20s %-7s %-6s %5s %6s\n", "MODEL", "ADAPTER", "TYPE", "FORMAT", "RANK", "SCALE");
    for (size_t i = 0; i < n; i++) {
        if (cli_flag(args, "json")) {
            str_puts(&out, i ? ", " : "");
            put_json(&out, models[i], &list[i]);
        } else {
            str_printf(&out, "%-32s %-20s %-7s %-6s %5lld %6g\n", models[i], list[i].name, list[i].type, list[i].format,
                       (long long)list[i].rank, list[i].scale);
        }
        registry_adapter_deinit(&list[i]);
        free(models[i]);
    }
    if (cli_flag(args, "json")) str_puts(&out, "]\n");
    fputs(str_cstr(&out), stdout);
    str_deinit(&out);
    free(list);
    free(models);
    return 0;
}

static int run_list(const cli_args *args) {
    registry      *r = NULL;
    registry_model m = { 0 };
    err            e = { 0 };
    int            rc = catalogue_open_existing(&r, &e);
    if (rc == 0 && cli_arg(args, 0) && !r) rc = err_set(&e, ERR_NOTFOUND, "there is no model '%s'", cli_arg(args, 0));
    if (rc == 0 && cli_arg(args, 0)) rc = names_find(r, cli_arg(args, 0), NULL, &m, &e);
    if (rc == 0) rc = print_list(args, m.name, r, &e);
    registry_model_deinit(&m);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(args, &e);
}

static void print_one(const char *model, const registry_adapter *a) {
    char bytes[16];
    printf("model     %s\nadapter   %s\ntype      %s\nformat    %s\nrank      %lld\n", model, a->name, a->type,
           a->format, (long long)a->rank);
    if (a->alpha != 0) printf("alpha     %g\n", a->alpha);
    printf("scale     %g\nsize      %s\nsha256    %s\npath      %s\n", a->scale, name_bytes(bytes, (double)a->size),
           a->sha256, a->path);
}

/* MODEL NAME, or MODEL+NAME as requests say it. */
static int find_one(const cli_args *args, registry *r, registry_model *m, registry_adapter *a, err *e) {
    const char *model = cli_arg(args, 0), *name = cli_arg(args, 1), *plus = strrchr(model, '+');
    if (!name && !plus) return err_set(e, ERR_ARG, "which adapter of %.100s? Say MODEL NAME or MODEL+NAME", model);
    char *base = name ? strdup(model) : strndup(model, (size_t)(plus - model));
    int   rc = base ? names_find(r, base, NULL, m, e) : err_set_nomem(e);
    if (rc == 0) rc = registry_adapter_find(r, m->name, name ? name : plus + 1, a, e);
    free(base);
    return rc;
}

static int with_one(const cli_args *args, bool remove) {
    registry        *r = NULL;
    registry_model   m = { 0 };
    registry_adapter a = { 0 };
    err              e = { 0 };
    int              rc = catalogue_open(&r, &e);
    if (rc == 0) rc = find_one(args, r, &m, &a, &e);
    if (rc == 0 && remove) rc = registry_adapter_remove(r, m.name, a.name, &e);
    if (rc == 0 && remove) {
        printf("removed %s of %s\n", a.name, m.name);
    } else if (rc == 0) {
        print_one(m.name, &a);
    }
    registry_adapter_deinit(&a);
    registry_model_deinit(&m);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(args, &e);
}

static int run_show(const cli_args *args) { return with_one(args, false); }

static int run_rm(const cli_args *args) { return with_one(args, true); }

/* --- the table --- */

static const cli_option add_options[] = {
    { "name", CLI_STRING, "NAME", "what it is called; otherwise as its file or directory is", 0 },
    { "scale", CLI_REAL, "S", "scale of the adapter where a request does not give one (1)", 0 },
    { "replace", CLI_FLAG, NULL, "take the name away from the adapter that has it", 0 },
    { 0 },
};
static const cli_option json_options[] = { { "json", CLI_FLAG, NULL, "print JSON", 0 }, { 0 } };

static const cli_command cmd_add = {
    "add",
    "MODEL PATH [--name NAME]",
    "Check an adapter and keep a copy of it for a model: a directory of PEFT or MLX, or a GGUF file.",
    add_options,
    2,
    2,
    run_add,
};
static const cli_command cmd_list = {
    "list", "[MODEL] [--json]", "List the adapters of one model or of all.", json_options, 0, 1, run_list
};
static const cli_command cmd_show = { "show", "MODEL NAME", "Print what is known about an adapter.", NULL, 1,
                                      2,      run_show };
static const cli_command cmd_rm = { "rm", "MODEL NAME", "Remove an adapter and delete its copy.", NULL, 1, 2, run_rm };

const cli_command *const cli_adapter_commands[] = { &cmd_add, &cmd_list, &cmd_show, &cmd_rm, NULL };

static int run(const cli_args *args) { return cli_run_subcommand(args, cli_adapter_commands); }

const cli_command cli_cmd_adapter = { "adapter", "COMMAND", "Manage adapters: fine-tunes that run beside a model.",
                                      NULL,      0,         CLI_SUBCOMMANDS,
                                      run };

/* SPDX-License-Identifier: Apache-2.0 */
/* hearth create: gives a model a name, and settings by a Modelfile. Files on disk stay where they are. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "registry/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MODELFILE = 16 << 20 };

/* A path of the Modelfile, relative to its folder; NULL in *out where nothing lies there. */
static int beside(char **out, const char *file, const char *path, err *e) {
    const char *slash = strcmp(file, "-") == 0 ? NULL : strrchr(file, '/'), *home = getenv("HOME");
    str         full;
    *out = NULL;
    str_init(&full);
    if (path[0] == '~' && path[1] == '/' && home)
        str_printf(&full, "%s%s", home, path + 1);
    else if (path[0] == '/' || !slash)
        str_puts(&full, path);
    else
        str_printf(&full, "%.*s/%s", (int)(slash - file), file, path);
    if (!str_ok(&full)) {
        str_deinit(&full);
        return err_set_nomem(e);
    }
    *out = realpath(str_cstr(&full), NULL);
    str_deinit(&full);
    return 0;
}

static int read_modelfile(modelfile *m, const char *file, err *e) {
    char  *text = NULL;
    size_t bytes = 0;
    int    rc = strcmp(file, "-") == 0 ? file_read_stream(&text, &bytes, stdin, "stdin", MAX_MODELFILE, e)
                                       : file_read(&text, &bytes, file, MAX_MODELFILE, e);
    if (rc == 0) rc = modelfile_parse(m, text, bytes, file, e);
    free(text);
    return rc;
}

/* Adapters get the paths that they have for everybody. */
static int place_adapters(modelfile *m, const char *file, err *e) {
    for (size_t i = 0; i < m->n_adapters; i++) {
        char *path;
        int   rc = beside(&path, file, m->adapters[i], e);
        if (rc < 0) return rc;
        if (!path) return err_set(e, ERR_NOTFOUND, "%s: ADAPTER %s: there is no such file", file, m->adapters[i]);
        free(m->adapters[i]);
        m->adapters[i] = path;
    }
    return 0;
}

static int create(const cli_args *a, create_request *q, err *e) {
    registry      *r = NULL;
    registry_model m = { 0 };
    int            rc = catalogue_open(&r, e);
    if (rc == 0) rc = registry_create(r, q, &m, e);
    if (rc == 0) printf("%s now names %s\n", cli_arg(a, 0), m.path);
    registry_model_deinit(&m);
    registry_close(r);
    return rc;
}

static int create_from_modelfile(const cli_args *a, const char *file, err *e) {
    modelfile      m;
    cli_model      from = { 0 };
    cli_model_wish w;
    create_request q = { .name = cli_arg(a, 0), .replace = cli_flag(a, "replace"), .modelfile = &m };
    char          *path = NULL;
    int            rc = read_modelfile(&m, file, e);
    if (rc < 0) return rc;
    if ((rc = cli_model_wish_read(&w, a, e)) == 0 && (rc = place_adapters(&m, file, e)) == 0)
        rc = beside(&path, file, m.from, e);
    if (rc == 0 && !path && (rc = cli_model_find(&from, m.from, &w, e)) == 0 && !from.name)
        path = realpath(from.path, NULL);
    if (rc < 0) err_wrap(e, rc, "%s: FROM", file);
    q.base = from.name;
    q.path = path;
    if (rc == 0) rc = create(a, &q, e);
    if (rc == 0) fputs(str_cstr(&m.notes), stderr);
    free(path);
    cli_model_deinit(&from);
    modelfile_deinit(&m);
    return rc;
}

static int run(const cli_args *a) {
    const char *file = cli_string(a, "file", NULL), *path = cli_arg(a, 1);
    err         e = { 0 };
    int         rc;
    if (!registry_name_ok(cli_arg(a, 0)))
        return cli_usage_error(a, "'%s' is not a name for a model: letters, digits and . _ - : / @ only",
                               cli_arg(a, 0));
    if (file && path) return cli_usage_error(a, "give either a path or --file, not both");
    if (path) {
        char          *full = realpath(path, NULL);
        create_request q = { .name = cli_arg(a, 0), .path = full, .replace = cli_flag(a, "replace") };
        rc = full ? create(a, &q, &e) : err_set_errno(&e, "%s", path);
        free(full);
    } else if (!file && !file_exists("Modelfile")) {
        return cli_usage_error(a, "./Modelfile does not exist: give a path or --file");
    } else {
        rc = create_from_modelfile(a, file ? file : "Modelfile", &e);
    }
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "file", CLI_STRING, "FILE", "read this Modelfile; - means standard input (./Modelfile if no PATH is given)",
      'f' },
    CLI_REPLACE_OPTION,
    CLI_MODEL_OPTIONS,
    { 0 },
};

const cli_command cli_cmd_create = {
    "create",
    "NAME [PATH] [-f Modelfile] [--replace]",
    "Give a name to a model: a file or directory on disk, or what a Modelfile describes. Files stay where they are.",
    options,
    1,
    2,
    run,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models/models.h"

#include "base/file.h"
#include "base/nearest.h"
#include "cli/models/catalogue.h"
#include "cli/models/pulling.h"
#include "runtime/demo.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void cli_model_deinit(cli_model *m) {
    free(m->path);
    free(m->name);
    memset(m, 0, sizeof *m);
}

int cli_model_wish_read(cli_model_wish *out, const cli_args *a, err *e) {
    const char *gguf = cli_string(a, "gguf-file", NULL), *mlx = cli_string(a, "mlx-file", NULL);
    bool        want_gguf = gguf || cli_flag(a, "gguf"), want_mlx = mlx || cli_flag(a, "mlx");
    *out = (cli_model_wish){ .pull = !cli_flag(a, "no-pull") };
    if (want_gguf && want_mlx)
        return err_set(e, ERR_ARG, "a model is either GGUF or safetensors: give --gguf or --mlx, not both");
    out->wish.format = want_gguf ? NAME_GGUF : want_mlx ? NAME_MLX : NAME_ANY_FORMAT;
    out->wish.file = gguf ? gguf : mlx;
    return 0;
}

/* *out stays empty where no model has the name; near: another one may be meant, and e says which. */
static int find_registered(cli_model *out, const char *name, const name_wish *w, bool *near, err *e) {
    registry      *r = NULL;
    registry_model m = { 0 };
    int            rc = catalogue_open_existing(&r, e);
    if (rc < 0 || !r) return rc;
    rc = names_find(r, name, w, &m, e);
    if (rc == 0) {
        out->path = strdup(m.path);
        out->name = strdup(m.name);
        rc = out->path && out->name ? registry_touch(r, m.name, e) : err_set_nomem(e);
    } else if (rc == ERR_NOTFOUND) {
        *near = names_near(r, name);
        rc = 0;
    } else if (rc == ERR_ARG) {
        rc = e->code = ERR_NOTFOUND; /* several: which one cannot be found out; not a mistake of the command line */
    }
    registry_model_deinit(&m);
    registry_close(r);
    return rc;
}

/* Written as a path: opening it says what is wrong with it. */
static bool is_path(const char *name) {
    name_ref n;
    bool     path = name_parse(&n, name, NULL) == 0 && n.kind == NAME_PATH;
    name_ref_deinit(&n);
    return path;
}

static int pull(cli_model *out, const char *name, const cli_model_wish *w, err *e) {
    static const pull_format formats[] = {
        [NAME_ANY_FORMAT] = PULL_ANY, [NAME_GGUF] = PULL_GGUF, [NAME_MLX] = PULL_MLX
    };
    pull_request q = { .name = name, .format = formats[w->wish.format], .file = w->wish.file };
    pull_result  got = { 0 };
    registry    *r = NULL;
    char        *token = NULL;
    int          rc = pulling_settings(&q, &token, e);
    if (rc == 0) rc = catalogue_open(&r, e);
    if (rc == 0) rc = pulling_run(r, &q, PULLING_TEXT, &got, e);
    bool adapter = rc == 0 && got.adapter;
    if (adapter)
        rc = err_set(e, ERR_ARG, "'%.80s' is an adapter, and is here now: use the model %.200s", name, got.name);
    if (rc == 0) {
        out->path = got.path;
        out->name = got.name;
        got.path = got.name = NULL;
    }
    pull_result_deinit(&got);
    registry_close(r);
    free(token);
    if (adapter) return rc;
    return rc < 0 ? err_wrap(e, rc, "'%.80s' is not on this machine and cannot be pulled", name) : 0;
}

/* May it be fetched? A bare word that is near to a name that is here is rather a slip of the fingers. */
static bool can_pull(const char *name, bool near) {
    name_ref n;
    if (name_parse(&n, name, NULL) < 0) return false;
    bool remote = n.kind == NAME_HF || n.kind == NAME_OLLAMA, said = n.explicit_kind || strchr(name, '/');
    name_ref_deinit(&n);
    return remote && (said || !near);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool holds_model(const char *dir) {
    DIR                 *d = opendir(dir);
    const struct dirent *f;
    bool                 found = false;
    while (d && !found && (f = readdir(d))) {
        found = strcmp(f->d_name, "config.json") == 0 || ends_with(f->d_name, ".gguf") ||
                ends_with(f->d_name, ".safetensors");
    }
    if (d) closedir(d);
    return found;
}

static int take_path(cli_model *out, const char *path, err *e) {
    out->path = strdup(path);
    return out->path ? 0 : err_set_nomem(e);
}

static int find(cli_model *out, const char *name, const cli_model_wish *w, err *e) {
    int  rc;
    bool near = false, path = is_path(name), folder = dir_exists(name);
    if (path && !folder && !file_exists(name)) {
        errno = ENOENT;
        return err_set_errno(e, "cannot open %.200s", name);
    }
    /* A folder that merely has the same name as a model does not stand in its way. */
    if (folder ? path || holds_model(name) : file_exists(name)) return take_path(out, name, e);
    rc = find_registered(out, name, w ? &w->wish : NULL, &near, e);
    if (rc < 0 || out->path) return rc;
    if (runtime_is_demo(name)) return runtime_demo_path(&out->path, name, e);
    const char *demo = near ? NULL : nearest_of(name, (const char *const[]){ RUNTIME_DEMO, RUNTIME_VISION_DEMO }, 2);
    if (w && w->pull && !folder && can_pull(name, near || demo)) return pull(out, name, w, e);
    if (folder) return take_path(out, name, e); /* and hear what it lacks */
    if (demo) return err_set(e, ERR_NOTFOUND, "there is no model '%.100s'; did you mean '%s'?", name, demo);
    if (near) return ERR_NOTFOUND; /* with the sentence of names_find */
    return err_set(e, ERR_NOTFOUND,
                   "there is no model '%.120s': expected a GGUF file, a model directory, a name of 'hearth list' or "
                   "'demo' or 'vision-demo'",
                   name);
}

int cli_model_find(cli_model *out, const char *name, const cli_model_wish *w, err *e) {
    memset(out, 0, sizeof *out);
    int rc = find(out, name ? name : "demo", w, e);
    if (rc < 0) cli_model_deinit(out);
    return rc;
}

int cli_model_path(char **out, const char *name, err *e) {
    cli_model m;
    int       rc = cli_model_find(&m, name, NULL, e);
    *out = m.path;
    m.path = NULL;
    cli_model_deinit(&m);
    return rc;
}

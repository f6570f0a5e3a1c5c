/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/catalogue.h"

#include "base/file.h"
#include "base/str.h"
#include "formats/summary.h"

#include <stdlib.h>
#include <string.h>

static int catalogue_path(char **out, err *e) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    str         path;
    *out = NULL;
    if ((!data || data[0] != '/') && (!home || home[0] != '/'))
        return err_set(e, ERR_ARG, "there is no place for the registry: neither XDG_DATA_HOME nor HOME is set");
    str_init(&path);
    if (data && data[0] == '/')
        str_printf(&path, "%s/hearth/registry.db", data);
    else
        str_printf(&path, "%s/.local/share/hearth/registry.db", home);
    *out = str_take(&path);
    str_deinit(&path);
    return *out ? 0 : err_set_nomem(e);
}

int catalogue_open(registry **out, err *e) {
    char *path;
    int   rc = catalogue_path(&path, e);
    *out = NULL;
    if (rc == 0) rc = registry_open(out, path, e);
    free(path);
    return rc;
}

int catalogue_open_existing(registry **out, err *e) {
    char *path;
    int   rc = catalogue_path(&path, e);
    *out = NULL;
    if (rc < 0) return rc == ERR_ARG ? 0 : rc; /* no home: nothing is registered */
    if (file_exists(path)) rc = registry_open(out, path, e);
    free(path);
    return rc;
}

static int copy(char **out, view text, err *e) {
    *out = text.len ? strndup(text.data, text.len) : NULL;
    return text.len && !*out ? err_set_nomem(e) : 0;
}

int catalogue_describe(registry_model *m, const char *path, err *e) {
    model_file   *file = NULL;
    model_summary s;
    int           rc;
    if (!(m->path = realpath(path, NULL))) return err_set_errno(e, "%s", path);
    if ((rc = model_file_open(&file, m->path, e)) < 0) return rc;
    model_summary_read(&s, file);
    view label = view_of(s.n_types ? s.types[0].label : "");
    if ((rc = copy(&m->family, s.arch, e)) == 0 && (rc = copy(&m->format, view_of(s.format), e)) == 0)
        rc = copy(&m->quant, label, e);
    m->params = (int64_t)s.parameters;
    m->n_ctx = s.context;
    m->n_layer = s.layers;
    m->vocab_size = s.vocabulary ? s.vocabulary : s.tokens;
    m->size = (int64_t)s.file_bytes;
    model_summary_deinit(&s);
    model_file_free(file);
    return rc;
}

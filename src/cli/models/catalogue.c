/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models/catalogue.h"

#include "base/file.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

int catalogue_path(char **out, err *e) {
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models.h"

#include "base/file.h"
#include "cli/catalogue.h"
#include "runtime/demo.h"

#include <string.h>

/* *out stays NULL where no model has the name. */
static int registered_path(char **out, const char *name, err *e) {
    registry      *r = NULL;
    registry_model m;
    int            rc = catalogue_open_existing(&r, e);
    if (rc < 0 || !r) return rc;
    rc = registry_find(r, name, &m, e);
    if (rc == 0) {
        *out = strdup(m.path);
        rc = *out ? registry_touch(r, name, e) : err_set_nomem(e);
        registry_model_deinit(&m);
    } else if (rc == ERR_NOTFOUND) {
        rc = 0;
    }
    registry_close(r);
    return rc;
}

int cli_model_path(char **out, const char *name, err *e) {
    *out = NULL;
    if (!name) name = "demo";
    if (file_exists(name) || dir_exists(name)) {
        *out = strdup(name);
        return *out ? 0 : err_set_nomem(e);
    }
    int rc = registered_path(out, name, e);
    if (rc < 0 || *out) return rc;
    if (strcmp(name, "demo") == 0) return runtime_demo_path(out, e);
    return err_set(e, ERR_NOTFOUND,
                   "there is no model '%s': expected a GGUF file, a model directory, a name of 'hearth list' or 'demo'",
                   name);
}

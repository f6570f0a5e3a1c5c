/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models.h"

#include "base/file.h"
#include "runtime/demo.h"

#include <string.h>

int cli_model_path(char **out, const char *name, err *e) {
    *out = NULL;
    if (!name) name = "demo";
    if (file_exists(name) || dir_exists(name)) {
        *out = strdup(name);
        return *out ? 0 : err_set_nomem(e);
    }
    if (strcmp(name, "demo") == 0) return runtime_demo_path(out, e);
    return err_set(e, ERR_NOTFOUND, "there is no model '%s': expected a GGUF file, a model directory or 'demo'", name);
}

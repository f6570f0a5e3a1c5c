/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lora.h"

#include "base/file.h"
#include "cli/models/catalogue.h"
#include "registry/adapters.h"
#include "registry/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int cli_lora_parse(cli_lora *out, const char *text, err *e) {
    const char *colon = strrchr(text, ':');
    size_t      n = strlen(text);
    *out = (cli_lora){ .scale = 1 };
    if (colon && colon[1] && !file_exists(text) && !dir_exists(text)) {
        char *end;
        out->scale = strtod(colon + 1, &end);
        if (*end || !isfinite(out->scale) || out->scale == 0)
            return err_set(e, ERR_ARG, "--lora %.200s: '%.40s' is not a scale (a number other than 0)", text,
                           colon + 1);
        n = (size_t)(colon - text);
    }
    if (n == 0) return err_set(e, ERR_ARG, "--lora needs a file or a directory");
    out->path = strndup(text, n);
    return out->path ? 0 : err_set_nomem(e);
}

int cli_lora_named(char **base, cli_lora *out, const char *model, err *e) {
    const char      *plus = model ? strrchr(model, '+') : NULL;
    registry        *r = NULL;
    registry_model   m = { 0 };
    registry_adapter a = { 0 };
    *base = NULL;
    *out = (cli_lora){ 0 };
    if (!plus || plus == model || file_exists(model) || dir_exists(model)) return 0;
    int rc = catalogue_open_existing(&r, e);
    if (rc < 0 || !r) return rc;
    char *name = strndup(model, (size_t)(plus - model));
    if (!name) rc = err_set_nomem(e);
    if (rc == 0 && names_find(r, model, NULL, &m, NULL) < 0 && names_find(r, name, NULL, &m, NULL) == 0) {
        rc = registry_adapter_find(r, m.name, plus + 1, &a, e);
        if (rc < 0) rc = err_wrap(e, rc, "there is no model '%.100s'", model);
    }
    if (rc == 0 && a.path) {
        *out = (cli_lora){ strdup(a.path), a.scale };
        *base = out->path ? name : NULL;
        if (!*base) rc = err_set_nomem(e);
    }
    if (!*base) free(name);
    registry_adapter_deinit(&a);
    registry_model_deinit(&m);
    registry_close(r);
    return rc;
}

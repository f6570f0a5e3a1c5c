/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lora.h"

#include "base/file.h"

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

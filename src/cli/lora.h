/* SPDX-License-Identifier: Apache-2.0 */
/* What --lora takes, FILE or FILE:SCALE; and models named "base+adapter". */
#ifndef CLI_LORA_H
#define CLI_LORA_H

#include "base/err.h"

typedef struct cli_lora {
    char  *path; /* the caller frees it */
    double scale;
} cli_lora;

/* A scale is what stands behind the last colon, unless a file or directory of the whole name exists. */
int cli_lora_parse(cli_lora *out, const char *text, err *e);

/* "base+name" where the registry has such an adapter: *base (the caller frees it) and the adapter. Otherwise *base is
 * NULL. */
int cli_lora_named(char **base, cli_lora *out, const char *model, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What --lora takes: FILE or FILE:SCALE. */
#ifndef CLI_LORA_H
#define CLI_LORA_H

#include "base/err.h"

typedef struct cli_lora {
    char  *path; /* the caller frees it */
    double scale;
} cli_lora;

/* A scale is what stands behind the last colon, unless a file or directory of the whole name exists. */
int cli_lora_parse(cli_lora *out, const char *text, err *e);

#endif

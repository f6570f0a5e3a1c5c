/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model named on the command line lies. */
#ifndef CLI_MODELS_MODELS_H
#define CLI_MODELS_MODELS_H

#include "base/err.h"
#include "cli/cli.h"
#include "registry/names.h"

typedef struct cli_model {
    char *path; /* a GGUF file or a directory */
    char *name; /* in the registry; NULL: it is not there */
} cli_model;
void cli_model_deinit(cli_model *m); /* accepts a zeroed one */

typedef struct cli_model_wish {
    name_wish wish;
    bool      pull; /* what is not here is fetched first; progress goes to stderr */
} cli_model_wish;

/* Rows for the option table of a command that names a model. */
#define CLI_MODEL_FORMAT_OPTIONS                                                                                       \
    { "gguf", CLI_FLAG, NULL, "prefer GGUF where a repository has both formats", 0 },                                  \
        { "mlx", CLI_FLAG, NULL, "prefer safetensors where a repository has both", 0 },                                \
        { "gguf-file", CLI_STRING, "FILE", "use this GGUF file of the repository", 0 }, {                              \
        "mlx-file", CLI_STRING, "FILE", "use this safetensors file or index", 0                                        \
    }
/* And whether it may be downloaded. */
#define CLI_MODEL_OPTIONS                                                                                              \
    CLI_MODEL_FORMAT_OPTIONS, { "no-pull", CLI_FLAG, NULL, "do not download a model that is not on this machine", 0 }

/* What those options say; pull unless --no-pull. ERR_ARG: they contradict each other. */
int cli_model_wish_read(cli_model_wish *out, const cli_args *a, err *e);

/*
 * A path is used as it is; then come names of the registry (names.h); `demo` (or NULL) is the model that ships with
 * Hearth. w may be NULL: any format, no pull. Marks a registered model as used.
 */
int cli_model_find(cli_model *out, const char *name, const cli_model_wish *w, err *e);

/* The path alone, without a pull. The caller frees *out. */
int cli_model_path(char **out, const char *name, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model named on the command line lies. */
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include "base/err.h"

/* A path is used as it is; then come names of the registry; `demo` (or NULL) is the model that ships with Hearth. The
 * caller frees *out. */
int cli_model_path(char **out, const char *name, err *e);

#endif

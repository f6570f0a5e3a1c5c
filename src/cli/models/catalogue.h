/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of this user, as commands use it: at $XDG_DATA_HOME/hearth/registry.db. */
#ifndef CLI_MODELS_CATALOGUE_H
#define CLI_MODELS_CATALOGUE_H

#include "registry/registry.h"

/* ERR_ARG: there is no place for it, because neither XDG_DATA_HOME nor HOME is set. The caller frees *out. */
int catalogue_path(char **out, err *e);
int catalogue_open(registry **out, err *e);
/* As catalogue_open, but *out is NULL where nothing was ever registered: looking must not make a file. */
int catalogue_open_existing(registry **out, err *e);

#endif

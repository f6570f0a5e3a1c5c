/* SPDX-License-Identifier: Apache-2.0 */
/* What the registry wants to know about a model, read from its files. */
#ifndef REGISTRY_DESCRIBE_H
#define REGISTRY_DESCRIBE_H

#include "registry/registry.h"

/* Fills everything but id, name, sha256, source and times; the path is taken as it is. */
int registry_describe(registry_model *m, const char *path, err *e);

#endif

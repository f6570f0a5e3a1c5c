/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pulled adapter: which files of a repository it is, and whose it becomes.
 *
 * A repository of PEFT or MLX with an adapter has adapter_config.json beside the weights, and no config.json of its own. The
 * adapter becomes one of the model that it was trained on, as the registry has that: the config names it by its
 * repository. Whether it fits is seen when it is first used; only a worker reads weights that came from elsewhere.
 */
#ifndef REGISTRY_PULL_ADAPTER_H
#define REGISTRY_PULL_ADAPTER_H

#include "registry/adapters.h"
#include "registry/hub.h"

/* False: it is not a repository of an adapter. ERR_UNSUPPORTED in e: it is, in files that nobody should open. */
bool pull_adapter_find(const hub_listing *l, size_t *config, size_t *weights, err *e);

typedef struct pull_adapter {
    const char *config, *weights; /* paths of the files */
    const char *weights_name;     /* as the repository calls it */
    const char *name;             /* for the adapter */
    const char *base;             /* a model of the registry; NULL: the one that the config names */
} pull_adapter;

/* Keeps a copy and gives it to its model, instead of one that has its name. *model is "base+name"; both texts are the
 * caller's. */
int pull_adapter_enter(registry *r, const pull_adapter *a, char **model, char **path, err *e);

#endif

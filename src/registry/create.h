/* SPDX-License-Identifier: Apache-2.0 */
/* Making a named model out of a file, a directory or another model, with what a Modelfile sets. */
#ifndef REGISTRY_CREATE_H
#define REGISTRY_CREATE_H

#include "registry/modelfile.h"
#include "registry/registry.h"

typedef struct create_request {
    const char        *name;    /* of the new model */
    const char        *base;    /* a name of the registry: its files, settings and blobs; or NULL */
    const char        *path;    /* without base: a file or directory, absolute */
    const char        *source;  /* without base: where it came from; NULL: "local" */
    const char *const *digests; /* without base: the blobs that path consists of, pinned by the caller */
    size_t             n_digests;
    const char        *settings_of; /* without base: a model of the registry whose settings are the base; or NULL */
    const modelfile   *modelfile;   /* what it sets; NULL: nothing. Its FROM is not looked at */
    bool               replace;     /* take the name away from the model that has it */
} create_request;

/* All or nothing: the model, its settings, adapters and blobs. out may be NULL; the caller deinits it. */
int registry_create(registry *r, const create_request *q, registry_model *out, err *e);

/* A folder of links to pinned blobs, for a model of several files; the same files give the same folder. A sweep removes
 * it if no model is in it: hold registry_folders_lock until one is. The caller frees *out. */
int registry_link_folder(registry *r, const char *const *names, const char *const *digests, size_t n, char **out,
                         err *e);

/* The tag `settings`, or NULL where there is none; the caller frees. */
int registry_settings(registry *r, const char *name, char **out, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters of a model by name: rows of the table adapters, and a copy of the files in D/adapters/<content>, where D is
 * the folder of the registry's file and <content> the SHA-256 of what is in them. A copy is never changed: a name that
 * gets other content gets another folder, so that nothing can go on with the old one. Rows of a Modelfile's ADAPTER have
 * no name and are not listed here.
 *
 * A name is 1 to 63 letters, digits and . _ - and begins with a letter or digit.
 */
#ifndef REGISTRY_ADAPTERS_H
#define REGISTRY_ADAPTERS_H

#include "registry/registry.h"

/* Texts are owned (registry_adapter_deinit). */
typedef struct registry_adapter {
    int64_t id;
    char   *name, *path, *sha256, *type, *format; /* type "lora", "dora", ...; format "PEFT", "MLX", "GGUF" */
    int64_t rank, size;
    double  alpha;
    double  scale;  /* where a request names it without one */
    double  always; /* where a request names no adapter: with this scale; 0: not */
    int64_t created_at;
} registry_adapter;
void registry_adapter_deinit(registry_adapter *a); /* accepts a zeroed one */

bool registry_adapter_name_ok(const char *name);

/* The names of the files that an adapter consists of, from its path (a directory or a GGUF file), into the store.
 * sha256: 64 hex digits of the content. *out: the path of the copy (the caller frees); *size: its bytes. */
int registry_adapter_store(registry *r, const char *path, const char *sha256, char **out, int64_t *size, err *e);
/* The same of files that lie elsewhere, under these names; *out: the folder. */
int registry_adapter_keep(registry *r, const char *const *names, const char *const *paths, size_t n, const char *sha256,
                          char **out, int64_t *size, err *e);

/* Gives a model an adapter (id and created_at are not looked at). A name that it has already is ERR_ARG unless
 * replace. */
int registry_adapter_add(registry *r, const char *model, const registry_adapter *a, bool replace, err *e);
/* In the order in which they were added; the caller deinits each and frees *out. model NULL: of all, then models (may be
 * NULL) gets their models' names, to be freed alike. */
int registry_adapter_list(registry *r, const char *model, registry_adapter **out, char ***models, size_t *n, err *e);
int registry_adapter_find(registry *r, const char *model, const char *name, registry_adapter *out, err *e);
int registry_adapter_always(registry *r, const char *model, int64_t id, double scale, err *e);
/* Forgets it, and removes copies that no row names any more. */
int registry_adapter_remove(registry *r, const char *model, const char *name, err *e);
int registry_adapter_sweep(registry *r, err *e);

#endif

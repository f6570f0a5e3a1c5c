/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listing of an Ollama registry: the manifest of a model, whose layers are blobs.
 *
 *   GET {registry}/v2/{owner}/{name}/manifests/{tag}
 *   GET {registry}/v2/{owner}/{name}/blobs/{digest}
 *
 * A registry may answer 401 and name a place that hands out a token to anyone (WWW-Authenticate: Bearer realm=...).
 */
#ifndef REGISTRY_OLLAMA_HUB_H
#define REGISTRY_OLLAMA_HUB_H

#include "registry/http.h"
#include "registry/modelfile.h"

typedef enum ollama_kind {
    OLLAMA_MODEL,
    OLLAMA_PROJECTOR,
    OLLAMA_ADAPTER,
    OLLAMA_TEMPLATE,
    OLLAMA_SYSTEM,
    OLLAMA_PARAMS,
    OLLAMA_LICENSE,
    OLLAMA_MESSAGES,
    OLLAMA_OTHER,
} ollama_kind;

typedef struct ollama_layer {
    ollama_kind kind;
    char        digest[72]; /* checked: a sha256 digest */
    int64_t     size;
} ollama_layer;

enum { OLLAMA_MAX_LAYERS = 64 };

typedef struct ollama_manifest {
    ollama_layer layers[OLLAMA_MAX_LAYERS];
    size_t       n;
} ollama_manifest;

/* Exactly one layer is the model. */
int ollama_read_manifest(ollama_manifest *out, const char *text, size_t len, err *e);

/* *token is set where the registry asks for one; the caller frees it, and gives it to c. */
int ollama_get_manifest(ollama_manifest *out, http_client *c, const char *owner, const char *name, const char *tag,
                        char **token, err *e);

void ollama_blob_url(str *out, const char *endpoint, const char *owner, const char *name, const char *digest);

/*
 * What a small layer (of template, system, params, license or messages) says becomes part of m. What does not fit our
 * settings is left aside, with a line in the log.
 */
int ollama_read_layer(modelfile *m, ollama_kind kind, const char *text, size_t len, err *e);

#endif

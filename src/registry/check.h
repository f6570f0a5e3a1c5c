/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks whether a registry and the files it speaks of are in order. Changes nothing.
 *
 * Findings are counted, and the first one of each kind is kept as an example. A blob that is being downloaded, or that
 * a pull has just finished and not yet registered, counts as unused for a moment: that is not damage.
 */
#ifndef REGISTRY_CHECK_H
#define REGISTRY_CHECK_H

#include "registry/registry.h"

typedef struct registry_finding {
    int     n;
    int64_t bytes;        /* of files */
    char    example[300]; /* the first one; "" without any */
} registry_finding;

typedef struct registry_health {
    bool             intact;      /* SQLite finds the file in order */
    char             damage[300]; /* what it says, if not */
    int              n_models;
    registry_finding lost_models;  /* names whose file or folder is not there */
    registry_finding lost_blobs;   /* digests that a model uses and that are not there, or have another size */
    registry_finding unused_blobs; /* complete blobs that no model uses */
    registry_finding partial;      /* downloads that were broken off, or are under way */
} registry_health;

int registry_check(registry *r, registry_health *out, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids of several devices that share a model. In the order of the layers:
 *
 *     cuda:0/20             the last 20 layers and the head are on cuda:0, all in front of them on the CPU
 *     cuda:0+cuda:1/12      the last 12 and the head are on cuda:1, all in front of them on cuda:0
 *     cuda:0/16+cuda:1/16   the last 16 and the head on cuda:1, the 16 in front of those on cuda:0, the rest on the CPU
 *     cuda:0+cuda:1         as many layers on each as its share of their memory
 *     cuda:0/experts:8      experts are on the CPU but for those of the last 8 mixtures, and the table of embeddings; all
 *                           else is on cuda:0
 *
 * A model that is smaller than what an id says (one that drafts, say) is on the last device as a whole.
 */
#ifndef BACKEND_PARTS_H
#define BACKEND_PARTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { BACKEND_MAX_PARTS = 9 };

typedef struct backend_part {
    char device[32];
    int  n; /* layers, or mixtures; -1: what the others leave, or what its memory's share is */
} backend_part;

typedef struct backend_parts {
    backend_part part[BACKEND_MAX_PARTS];
    int          n;       /* 1: one device, which has all of a model */
    bool         experts; /* of two: n of the second counts mixtures */
} backend_parts;

/* Reads an id; NULL and "" are "auto". */
int backend_parts_read(backend_parts *out, const char *id, err *e);
/* Writes it; ERR_LIMIT: there is no room for it. */
int backend_parts_write(const backend_parts *p, char id[64], err *e);

/* The one device that has all of a model with so many layers, and so many of them with experts; NULL: it is divided. */
const char *backend_parts_whole(const backend_parts *p, int n_layer, int n_mixtures);

/* Divides n by shares: share[i] becomes a part of it. Shares of which none is known are equal. */
void backend_parts_share(int n, const uint64_t *of, int n_parts, int *share);

#endif

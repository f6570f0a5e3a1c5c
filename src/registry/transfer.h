/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads one blob whose digest and size are known: several ranges at a time where the server can, one stream where
 * it cannot; goes on where an earlier download broke off; tries again after what may pass; and stores the blob only
 * when its bytes have its digest.
 *
 * If another process (or thread) downloads the same blob, this one waits, reports the other's progress, and uses the
 * result, or takes over where the other stopped.
 */
#ifndef REGISTRY_TRANSFER_H
#define REGISTRY_TRANSFER_H

#include "registry/blobs.h"
#include "registry/http.h"

typedef enum transfer_phase {
    TRANSFER_LOADING,
    TRANSFER_ELSEWHERE, /* another process does it */
    TRANSFER_PAUSED,    /* before another try; why says the reason */
    TRANSFER_VERIFYING,
} transfer_phase;

typedef struct transfer_job {
    const char *url;
    const char *name;   /* for sentences */
    const char *digest; /* sha256:... */
    int64_t     size;
    const char *commit; /* what x-repo-commit must be, if the server says it; NULL: anything */

    void *ctx;
    bool (*report)(void *ctx, transfer_phase phase, int64_t bytes, const char *why); /* false: stop. Often */
} transfer_job;

/* On success the blob is there and pinned. *fetched grows by the bytes that came over the network. */
int transfer_blob(const http_client *c, registry *r, const transfer_job *j, int64_t *fetched, blob_lock *pin, err *e);

#endif

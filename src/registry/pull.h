/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulling a model: from its name to a verified model in the registry.
 *
 * pull_model finds out what the name stands for (a repository of a Hugging Face hub or of an Ollama registry), chooses
 * the files, downloads what is missing into the blobs (blobs.h, transfer.h), and registers the model. It blocks, may be
 * called from any thread, and is stopped through the callback or the flag; what was downloaded until then is kept and
 * used by the next pull of the same files. A registry handle is used by one thread, so each pull brings its own.
 */
#ifndef REGISTRY_PULL_H
#define REGISTRY_PULL_H

#include "base/err.h"
#include "registry/registry.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PULL_HF_ENDPOINT "https://huggingface.co"
#define PULL_OLLAMA_REGISTRY "https://registry.ollama.ai"

typedef enum pull_format { PULL_ANY, PULL_GGUF, PULL_MLX } pull_format;

/* How patient a download is; zeros are the defaults. */
typedef struct pull_patience {
    int     ranges;      /* connections per file: 4 */
    int64_t piece_bytes; /* what is remembered as done or not: 16 MiB */
    int     tries;       /* in a row without a byte of progress: 6 */
    int     backoff_ms;  /* before the second try, doubled each time up to a minute: 500 */
    int     stall_ms;    /* a connection that brings nothing for so long is given up: 30 s */
    int     max_wait_s;  /* a longer Retry-After ends the pull: 300 */
} pull_patience;

typedef struct pull_request {
    const char *name;     /* as typed; names.h says what it may be */
    const char *as;       /* the name in the registry; NULL: what was typed, normalised */
    pull_format format;   /* what is preferred where a repository has both */
    const char *file;     /* this file of the repository, or NULL */
    const char *revision; /* instead of the name's; NULL */
    const char *base;     /* an adapter: the model that it is for, instead of the one that it names; NULL */

    const char   *hf_endpoint;     /* NULL: PULL_HF_ENDPOINT */
    const char   *hf_token;        /* NULL: none. Goes to the endpoint's host, port and scheme only */
    const char   *ollama_registry; /* NULL: PULL_OLLAMA_REGISTRY */
    const char   *ca_file;         /* certificates instead of the system's; NULL */
    pull_patience patience;
} pull_request;

/* Texts are the caller's only until the callback returns. */
typedef struct pull_progress {
    const char *status; /* "pulling manifest", "pulling <12 hex>", "verifying sha256 digest", "writing manifest",
                           "success"; also "waiting 30 s: ..." */
    const char *digest; /* "sha256:..." of the file under way; NULL: none */
    const char *file;   /* its name; NULL: none */
    int64_t     total, completed;         /* bytes of that file; 0 if none */
    int64_t     all_total, all_completed; /* bytes of the whole model, what was there before included */
    int64_t     all_present;              /* of all_completed: was there before this pull began */
} pull_progress;

typedef struct pull_events {
    void *ctx;
    bool (*progress)(void *ctx, const pull_progress *p); /* NULL: none. false: stop. About ten times a second */
    const atomic_bool *cancel;                           /* NULL: none. true: stop */
} pull_events;

typedef struct pull_result {
    char   *name; /* in the registry; of an adapter "base+name" */
    char   *path;
    int64_t bytes;   /* of all files */
    int64_t fetched; /* of these, from the network in this pull */
    bool    adapter; /* it is one, of a model that was there before */
} pull_result;
void pull_result_deinit(pull_result *p); /* accepts a zeroed one */

/* ERR_CANCELLED: stopped, can be resumed. ev and out may be NULL. */
int pull_model(registry *r, const pull_request *q, const pull_events *ev, pull_result *out, err *e);

#endif

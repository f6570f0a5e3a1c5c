/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Hugging Face hub finds for a few words.
 *
 *     GET {endpoint}/api/models?search=...&sort=downloads&direction=-1&limit=...
 *     an array of {"id", "downloads", "likes", "tags": ["gguf", ...], "lastModified"}
 */
#ifndef REGISTRY_SEARCH_H
#define REGISTRY_SEARCH_H

#include "base/str.h"
#include "registry/pull.h"

typedef struct search_hit {
    char   *repo; /* owner/name */
    int64_t downloads, likes;
    bool    gguf, mlx, safetensors;
    char    modified[11]; /* 2026-01-31, or "" */
} search_hit;

typedef struct search_hits {
    search_hit *list;
    size_t      n;
} search_hits;
void search_hits_deinit(search_hits *h); /* accepts a zeroed one */

/* The answer's text, for tests and fuzzing as well. Entries without a proper name are left out. */
int search_read(search_hits *out, const char *text, size_t bytes, err *e);

/* q: endpoint, token, certificates and patience are used. */
int search_hub(search_hits *out, const pull_request *q, const char *words, int limit, err *e);

/* {"repository", "downloads", "likes", "gguf", "mlx", "safetensors", "modified"} */
void search_write_json(const search_hit *h, str *out);

#endif

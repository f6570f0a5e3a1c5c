/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listing of a Hugging Face hub: which files a repository has at a revision, how large they are and what is in
 * them.
 *
 *   GET {endpoint}/api/models/{owner}/{repo}/revision/{revision}          "sha": the commit
 *   GET {endpoint}/api/models/{owner}/{repo}/tree/{commit}?recursive=true  pages, chained by the Link header
 *   GET {endpoint}/{owner}/{repo}/resolve/{commit}/{path}                  a file, usually behind a redirect
 *
 * Large files have "lfs": {"oid": sha256, "size"}; the others a git object name: the sha1 of "blob <size>\0" and the
 * bytes.
 */
#ifndef REGISTRY_HUB_H
#define REGISTRY_HUB_H

#include "registry/http.h"

typedef struct hub_file {
    char   *path; /* passed hub_path_ok */
    int64_t size;
    char    digest[72]; /* "sha256:..."; "" if the hub does not say */
    char    sha1[41];   /* git's name of the content; "" where digest is given */
} hub_file;

typedef struct hub_listing {
    char      commit[65];
    hub_file *files;
    size_t    n, room;
} hub_listing;
void hub_listing_deinit(hub_listing *l); /* accepts a zeroed one */

/* A relative path that stays inside its folder and has nothing odd in it. */
bool hub_path_ok(view path);

/* The two documents, for tests and fuzzing as well. hub_read_tree adds to what is there. */
int hub_read_revision(char commit[65], const char *text, size_t len, err *e);
int hub_read_tree(hub_listing *l, const char *text, size_t len, err *e);

/* repo: "owner/name"; revision NULL: "main". */
int hub_list(hub_listing *out, const http_client *c, const char *repo, const char *revision, err *e);

/* The address of a file. */
void hub_url(str *out, const char *endpoint, const char *repo, const char *commit, const char *path);

/* Do the bytes have git's name for them? */
bool hub_sha1_fits(const char *sha1, const void *data, size_t bytes);

#endif

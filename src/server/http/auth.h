/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys.
 *
 * A key is kept as its SHA-256; a client's key is hashed and compared with all of them in constant time, so neither
 * its length nor its beginning can be guessed from the time it takes. Each key has a name (for logs and metrics) and
 * two buckets: requests and tokens per minute. A request is charged when it is admitted, tokens when they are known, so
 * a bucket of tokens may go below zero and the next request waits until it is filled again.
 *
 * A key file has one key per line: `key`, `name:key`, or `name:key rpm=60 tpm=10000`; # begins a comment.
 */
#ifndef SERVER_HTTP_AUTH_H
#define SERVER_HTTP_AUTH_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct auth     auth;
typedef struct auth_key auth_key;

int  auth_open(auth **out, err *e); /* no keys: nobody needs one */
void auth_free(auth *a);            /* accepts NULL */

/* rpm, tpm: limits of keys that state none; 0: unlimited. */
void auth_set_limits(auth *a, double rpm, double tpm);
int  auth_add_owner(auth *a, view token, err *e);                           /* the capability token, named "token" */
int  auth_add_lines(auth *a, const char *text, const char *origin, err *e); /* lines, or entries between commas */
void auth_require(auth *a, bool tcp_only); /* keys are asked for; tcp_only: not on the Unix socket */
bool auth_required(const auth *a, bool is_unix);

auth_key   *auth_find(auth *a, view presented); /* NULL: no such key */
auth_key   *auth_by_id(auth *a, uint64_t id);
const char *auth_key_name(const auth_key *k);
uint64_t    auth_key_id(const auth_key *k); /* not 0 */
bool        auth_key_is_owner(const auth_key *k);

/* Takes one request from the key's buckets; or says after how many seconds to come back. */
bool auth_admit(auth_key *k, int64_t now_us, double *retry_s);
void auth_charge(auth_key *k, int64_t now_us, int64_t tokens);

/* Carries the buckets of keys that are in both over: a reload is not a way around a limit. */
void auth_inherit(auth *to, const auth *from);

/* Reads the token of a file that only its owner may read, or creates it with a new one. */
int auth_token_file(const char *path, str *out, err *e);

#endif

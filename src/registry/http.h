/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the servers that models come from: small documents as a whole, and what downloads share with them.
 *
 * Redirects are followed by hand, so that the token goes to the endpoint's own scheme, host and port and nowhere else,
 * and so that no redirect leads from https to http. Failures that may pass (cuts, time-outs, 5xx, 429) are tried again
 * with a growing pause, or with the one that the server asks for.
 */
#ifndef REGISTRY_HTTP_H
#define REGISTRY_HTTP_H

#include "base/err.h"
#include "base/str.h"
#include "registry/headers.h"
#include "registry/pull.h"

#include <curl/curl.h>

enum { HTTP_MAX_REDIRECTS = 10 };

typedef struct http_client {
    const char   *origin; /* URL of the endpoint */
    const char   *token;  /* NULL: none */
    const char   *hint;   /* how a user gives a token, for sentences; NULL: there is no way */
    const char   *ca_file;
    CURLM        *multi;    /* http_open; connections are kept in it from one request to the next */
    pull_patience patience; /* without zeros: http_patience */
    void         *ctx;
    bool (*go_on)(void *ctx, const char *waiting); /* often; waiting: why nothing happens just now, or NULL */
} http_client;

int  http_open(CURLM **out, err *e);  /* starts libcurl, too; ended with curl_multi_cleanup */
void http_patience(pull_patience *p); /* fills in the defaults */

bool http_same_origin(const char *a, const char *b); /* scheme, host and port; false for what is not a URL */
/* Where a redirect leads; refused: another protocol, and http after https. The caller frees *out. */
int http_redirect(const char *from, const char *location, char **out, err *e);
/* The text as a part of a URL's path; slashes stay. */
void http_put_escaped(str *out, const char *text);
/* The host of a URL, for sentences. */
void http_host(const char *url, char out[128]);

/* Options that every request has. *headers is the caller's to free after the request, also on failure. */
int http_prepare(const http_client *c, CURL *easy, const char *url, const char *accept, struct curl_slist **headers,
                 err *e);

bool    http_may_pass(CURLcode code); /* worth another try */
bool    http_status_may_pass(int status);
int64_t http_pause_ms(const pull_patience *p, int failures); /* before the next try, after so many in a row */

/*
 * A document of at most limit bytes; *body is replaced. Returns 0 for every answer that another try would not change:
 * look at head->status. head is the caller's to deinit, whatever is returned.
 */
int http_get(const http_client *c, const char *url, const char *accept, size_t limit, str *body, http_head *head,
             err *e);

/* The sentence for a status that is not 200. */
int http_explain(const http_client *c, int status, const char *url, const char *what, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fetch.h"

#include "base/log.h"
#include "registry/http.h"
#include "server/http/address.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_URL = 4096, CONNECT_MS = 5000, WHOLE_MS = 10000, SLOW_BYTES = 1024, SLOW_SECONDS = 5 };

typedef struct fetch {
    const fetch_rules *rules;
    str               *out;
    bool               not_public; /* an address was refused */
} fetch;

/* --- whom --- */

static bool host_matches(const char *entry, const char *host, const char *port) {
    const char *colon = strrchr(entry, ':');
    bool        ported = colon && !strchr(colon, ']');
    size_t      n = ported ? (size_t)(colon - entry) : strlen(entry), own = strlen(host);
    if (strcmp(port, ported ? colon + 1 : "443") != 0) return false;
    if (n > 1 && entry[0] == '*' && entry[1] == '.')
        return own > n - 1 && strncasecmp(host + own - (n - 1), entry + 1, n - 1) == 0;
    return own == n && strncasecmp(host, entry, n) == 0;
}

/* Says no to everything that is not an https address of a host on the list. */
static int check_url(const fetch_rules *r, CURLU *u, view url, err *e) {
    char *text, *host = NULL, *port = NULL, *scheme = NULL;
    int   rc = 0;
    bool  listed = false;
    if (url.len > MAX_URL) return err_set(e, ERR_LIMIT, "the address has more than %d bytes", MAX_URL);
    if (memchr(url.data, '\0', url.len) || !(text = strndup(url.data, url.len)))
        return err_set(e, ERR_ARG, "the address cannot be read");
    bool read = curl_url_set(u, CURLUPART_URL, text, CURLU_DISALLOW_USER) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    for (size_t i = 0; read && i < r->n_hosts; i++) listed = listed || host_matches(r->hosts[i], host, port);
    if (!read)
        rc = err_set(e, ERR_ARG, "the address cannot be read");
    else if (strcmp(scheme, "https") != 0)
        rc = err_set(e, ERR_ARG, "pictures are not fetched by %.20s; send https or data:image/...;base64,...", scheme);
    else if (!listed)
        rc = err_set(e, ERR_ARG, "pictures are not fetched from '%.100s', port %s: it is not in security.image_hosts",
                     host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    free(text);
    return rc;
}

static bool may_connect(const fetch_rules *r, const struct sockaddr *to) {
    address       a;
    address_range network;
    if (!address_of(&a, to)) return false;
    if (address_is_public(&a)) return true;
    for (size_t i = 0; i < r->n_networks; i++) {
        if (address_range_read(&network, r->networks[i], NULL) == 0 && address_is_within(&a, &network)) return true;
    }
    return false;
}

int fetch_rules_check(const fetch_rules *r, err *e) {
    address_range network;
    for (size_t i = 0; i < r->n_networks; i++) {
        int rc = address_range_read(&network, r->networks[i], e);
        if (rc < 0) return err_wrap(e, rc, "security.image_networks");
    }
    for (size_t i = 0; i < r->n_hosts; i++) {
        if (!*r->hosts[i] || strpbrk(r->hosts[i], "/@ ") || strcmp(r->hosts[i], "*") == 0)
            return err_set(e, ERR_ARG,
                           "security.image_hosts: '%.60s' is not a host; expected name, name:port or *.name",
                           r->hosts[i]);
    }
    return 0;
}

/* --- how --- */

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *to) {
    fetch *f = ctx;
    if (purpose != CURLSOCKTYPE_IPCXN || !may_connect(f->rules, &to->addr)) {
        f->not_public = true;
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    fetch *f = ctx;
    str_append(f->out, data, size * n);
    return f->out->failed ? 0 : size * n;
}

static void set_up(CURL *easy, CURLU *u, fetch *f, size_t most_bytes, char *why) {
    curl_easy_setopt(easy, CURLOPT_CURLU, u); /* what was checked is what is asked: nothing is parsed twice */
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* one of the environment would be connected to instead */
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "hearth");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)WHOLE_MS);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)SLOW_SECONDS);
    curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)most_bytes);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, f);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    if (f->rules->ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, f->rules->ca_file);
}

static int explain(const fetch *f, CURLcode code, long status, size_t most_bytes, const char *why, err *e) {
    if (f->not_public && code != CURLE_OK)
        return err_set(e, ERR_ARG, "the picture's host has an address that is not public");
    if (f->out->failed || code == CURLE_FILESIZE_EXCEEDED)
        return err_set(e, ERR_LIMIT, "the picture has more than %zu bytes", most_bytes);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return err_set(e, ERR_IO, "the picture did not come within %d seconds", WHOLE_MS / 1000);
    if (code != CURLE_OK)
        return err_set(e, ERR_IO, "the picture cannot be fetched: %.200s", why[0] ? why : curl_easy_strerror(code));
    if (status >= 300 && status < 400)
        return err_set(e, ERR_ARG, "the picture's host answers %ld; redirects are not followed", status);
    if (status != 200) return err_set(e, ERR_IO, "the picture's host answers %ld", status);
    return 0;
}

int fetch_file(const fetch_rules *r, view url, size_t most_bytes, str *out, err *e) {
    fetch  f = { .rules = r, .out = out };
    char   why[CURL_ERROR_SIZE] = "";
    long   status = 0;
    CURLM *multi = NULL;
    int    rc = http_open(&multi, e); /* starts libcurl */
    CURLU *u = rc == 0 ? curl_url() : NULL;
    CURL  *easy = rc == 0 ? curl_easy_init() : NULL;
    if (rc == 0 && (!u || !easy)) rc = err_set_nomem(e);
    if (rc == 0) rc = check_url(r, u, url, e);
    if (rc == 0) {
        out->limit = most_bytes;
        set_up(easy, u, &f, most_bytes, why);
        CURLcode code = curl_easy_perform(easy);
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        rc = explain(&f, code, status, most_bytes, why, e);
        log_debug("fetch", "a picture by address: %s", rc == 0 ? "came" : e->msg);
    }
    curl_easy_cleanup(easy);
    curl_url_cleanup(u);
    if (multi) curl_multi_cleanup(multi);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve/client.h"

#include "base/file.h"
#include "base/json.h"
#include "cli/settings.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_PLACES = 2, MAX_ANSWER = 64 << 20, DEFAULT_PORT = 11434, CONNECT_MS = 3000, TOTAL_MS = 120000 };

typedef struct place {
    char *socket; /* NULL: TCP */
    char *url;    /* without a path */
    char *shown;
    bool  local; /* this machine: the capability token may go there */
} place;

struct client {
    CURL *curl;
    place at[MAX_PLACES];
    int   n, answered;
    char *key; /* given; NULL: none */
    char *token;
};

static char *text_of(const char *fmt, const char *value) {
    str s;
    str_init(&s);
    for (const char *p = fmt; *p; p++) {
        if (*p == '%')
            str_puts(&s, value);
        else
            str_push(&s, *p);
    }
    return str_take(&s);
}

static int add_socket(client *c, const char *path, err *e) {
    place *p = &c->at[c->n++];
    *p = (place){ strdup(path), strdup("http://localhost"), text_of("unix:%", path), true };
    return p->socket && p->url && p->shown ? 0 : err_set_nomem(e);
}

static bool is_this_machine(const char *url) {
    const char *host = strstr(url, "://") + 3;
    size_t      n = strcspn(host, ":/");
    return (n == 9 && strncasecmp(host, "localhost", 9) == 0) || strncmp(host, "127.", 4) == 0 ||
           strncmp(host, "[::1]", 5) == 0;
}

/* "name", "name:port", "::1", "http://name:port/" */
static int add_tcp(client *c, const char *given, err *e) {
    place      *p = &c->at[c->n++];
    str         url;
    const char *host = strstr(given, "://");
    size_t      scheme = host ? (size_t)(host - given) + 3 : 0;
    if (strlen(given) > 300 || !given[scheme])
        return err_set(e, ERR_ARG, "'%.60s' is not the address of a server", given);
    str_init(&url);
    str_append(&url, host ? given : "http://", host ? scheme : 7);
    host = given + scheme;
    const char *colon = strchr(host, ':'), *bracket = strchr(host, ']');
    size_t      n = strcspn(host, "/");
    bool        bare6 = colon && !bracket && strchr(colon + 1, ':');
    str_puts(&url, bare6 ? "[" : "");
    str_append(&url, host, n);
    str_puts(&url, bare6 ? "]" : "");
    if (bare6 || !colon || (bracket && bracket[1] != ':')) {
        if (scheme == 0 || view_starts(view_of(given), "http://")) str_printf(&url, ":%d", DEFAULT_PORT);
    }
    p->url = str_take(&url);
    p->shown = p->url ? strdup(p->url) : NULL;
    if (!p->url || !p->shown) return err_set_nomem(e);
    p->local = is_this_machine(p->url);
    return 0;
}

/* Where `hearth serve` would listen: server.yaml and the environment, as far as they can be read. */
static int add_configured(client *c, const config_values *v, err *e) {
    const char *socket = config_text(v, "transport.socket"), *host = config_text(v, "transport.host");
    const char *dir = getenv("XDG_RUNTIME_DIR");
    str         text;
    int         rc = 0;
    str_init(&text);
    if (socket)
        str_puts(&text, socket);
    else if (dir && dir[0] == '/')
        str_printf(&text, "%s/hearth.sock", dir);
    if (text.len && config_bool(v, "transport.unix_socket")) rc = add_socket(c, str_cstr(&text), e);
    str_clear(&text);
    if (!host || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) host = "127.0.0.1";
    bool colons = strchr(host, ':') != NULL;
    str_printf(&text, "%s%s%s%s:%lld", config_text(v, "transport.tls_cert") ? "https://" : "http://", colons ? "[" : "",
               host, colons ? "]" : "", (long long)config_int(v, "transport.port"));
    /* A port that was picked freely is not known here. */
    if (rc == 0 && (c->n == 0 || (config_bool(v, "transport.tcp") && config_int(v, "transport.port"))))
        rc = str_ok(&text) ? add_tcp(c, str_cstr(&text), e) : err_set_nomem(e);
    str_deinit(&text);
    return rc;
}

static int find_places(client *c, const cli_args *a, err *e) {
    const char   *socket = cli_string(a, "socket", NULL), *host = cli_string(a, "host", getenv("HEARTH_HOST"));
    arena         mem;
    config_values v;
    if (socket) return add_socket(c, socket, e);
    if (host && host[0]) return add_tcp(c, host, e);
    arena_init(&mem, 0);
    int rc = settings_peek(&v, &mem, e);
    if (rc == 0) rc = add_configured(c, &v, e);
    arena_deinit(&mem);
    return rc;
}

/* The token of `hearth serve`, if there is one that only its owner can read. */
static char *read_token(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char       *path = NULL, *text = NULL;
    size_t      n;
    struct stat st;
    if (state && state[0] == '/')
        path = path_join(state, "hearth/token");
    else if (home && home[0] == '/')
        path = path_join(home, ".local/state/hearth/token");
    if (path && stat(path, &st) == 0 && (st.st_mode & 077) == 0 && file_read(&text, &n, path, 4096, NULL) == 0)
        text[strcspn(text, " \t\r\n")] = '\0';
    free(path);
    return text;
}

int client_open(client **out, const cli_args *a, err *e) {
    client     *c = calloc(1, sizeof *c);
    const char *key = cli_string(a, "api-key", getenv("HEARTH_API_KEY"));
    *out = NULL;
    if (!c) return err_set_nomem(e);
    int rc = find_places(c, a, e);
    if (rc == 0 && key && strpbrk(key, "\r\n")) rc = err_set(e, ERR_ARG, "the key contains a line break");
    if (rc == 0 && (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(c->curl = curl_easy_init())))
        rc = err_set(e, ERR_NOMEM, "cannot start an HTTP client");
    if (rc == 0 && key && key[0] && !(c->key = strdup(key))) rc = err_set_nomem(e);
    if (rc < 0) {
        client_free(c);
        return rc;
    }
    if (!c->key) c->token = read_token();
    *out = c;
    return 0;
}

void client_free(client *c) {
    if (!c) return;
    if (c->curl) curl_easy_cleanup(c->curl);
    for (int i = 0; i < c->n; i++) {
        free(c->at[i].socket);
        free(c->at[i].url);
        free(c->at[i].shown);
    }
    free(c->key);
    free(c->token);
    free(c);
}

const char *client_where(const client *c) { return c->at[c->answered].shown; }

static size_t take(char *data, size_t size, size_t n, void *ctx) {
    str *out = ctx;
    str_append(out, data, size * n);
    return str_ok(out) ? size * n : 0;
}

static int ask_at(client *c, const place *p, const char *path, const char *body, str *out, long *status, char *why) {
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    const char        *key = c->key ? c->key : p->local ? c->token : NULL;
    char              *bearer = key && key[0] ? text_of("Authorization: Bearer %", key) : NULL;
    str                whole;
    if (bearer) headers = curl_slist_append(headers, bearer);
    str_init(&whole);
    str_puts(&whole, p->url);
    str_puts(&whole, path);
    curl_easy_reset(c->curl);
    curl_easy_setopt(c->curl, CURLOPT_URL, str_cstr(&whole));
    if (p->socket) curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, p->socket);
    if (p->local) curl_easy_setopt(c->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)TOTAL_MS);
    curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, why);
    if (body) curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
    CURLcode rc = str_ok(&whole) ? curl_easy_perform(c->curl) : CURLE_OUT_OF_MEMORY;
    if (rc == CURLE_OK) curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, status);
    if (rc != CURLE_OK && !why[0]) strncpy(why, curl_easy_strerror(rc), CURL_ERROR_SIZE - 1);
    curl_slist_free_all(headers);
    str_deinit(&whole);
    free(bearer);
    return rc == CURLE_OK ? 0 : rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST ? ERR_NOTFOUND : ERR_IO;
}

int client_ask(client *c, const char *path, const char *body, str *out, int *status, err *e) {
    char why[CURL_ERROR_SIZE] = "";
    out->limit = MAX_ANSWER;
    *status = 0;
    for (int i = 0; i < c->n; i++) {
        long code = 0;
        str_clear(out);
        why[0] = '\0';
        int rc = ask_at(c, &c->at[i], path, body, out, &code, why);
        if (rc == ERR_NOTFOUND) continue;
        if (rc < 0) return err_set(e, rc, "%s: %s", c->at[i].shown, why);
        c->answered = i;
        *status = (int)code;
        return 0;
    }
    return err_set(e, ERR_NOTFOUND, "no server answers at %s%s%s; start one with 'hearth serve'", c->at[0].shown,
                   c->n > 1 ? " or " : "", c->n > 1 ? c->at[1].shown : "");
}

/* The sentence of an error body: {"error": {"message": ...}} or {"error": ...}. */
static void server_sentence(const str *body, int status, const char *where, err *e) {
    const json_value *v = NULL;
    arena             a;
    arena_init(&a, 1 << 20);
    const char *text = NULL;
    if (body->len && json_parse(&v, body->data, body->len, &a, NULL) == 0) {
        const json_value *x = json_get(v, "error");
        text = json_cstr(x) ? json_cstr(x) : json_cstr(json_get(x, "message"));
    }
    if (status == 401)
        err_set(e, ERR_ARG, "%s needs a key: give --api-key or set HEARTH_API_KEY", where);
    else if (text)
        err_set(e, status == 404 ? ERR_NOTFOUND : ERR_ARG, "%s", text);
    else
        err_set(e, ERR_FORMAT, "%s answered with status %d; this may not be a Hearth server", where, status);
    arena_deinit(&a);
}

int client_get(client *c, const char *path, const char *body, str *out, err *e) {
    int status, rc = client_ask(c, path, body, out, &status, e);
    if (rc < 0 || status == 200) return rc;
    server_sentence(out, status, client_where(c), e);
    return e ? e->code : ERR_ARG;
}

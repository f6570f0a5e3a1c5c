/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/hub.h"

#include "base/arena.h"
#include "base/json.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DOCUMENT = 16 << 20,         /* bytes of one answer */
    DOCUMENT_MEMORY = 192 << 20, /* of its tree */
    MAX_FILES = 100000,
    MAX_PAGES = 200,
    MAX_PATH_BYTES = 512,
    MAX_PARTS = 12,
};

void hub_listing_deinit(hub_listing *l) {
    for (size_t i = 0; i < l->n; i++) free(l->files[i].path);
    free(l->files);
    memset(l, 0, sizeof *l);
}

bool hub_path_ok(view path) {
    size_t begin = 0, parts = 0;
    if (path.len == 0 || path.len > MAX_PATH_BYTES) return false;
    for (size_t i = 0; i <= path.len; i++) {
        if (i < path.len && path.data[i] != '/') {
            unsigned char c = (unsigned char)path.data[i];
            if (c < 0x20 || c == 0x7f || c == '\\') return false;
            continue;
        }
        view part = { path.data + begin, i - begin };
        if (part.len == 0 || part.len > 255 || view_eq_c(part, ".") || view_eq_c(part, "..") || ++parts > MAX_PARTS)
            return false;
        begin = i + 1;
    }
    return true;
}

static bool is_hex(const char *text, size_t n) { return text && strspn(text, "0123456789abcdef") == n && !text[n]; }

int hub_read_revision(char commit[65], const char *text, size_t len, err *e) {
    arena             a;
    const json_value *v;
    arena_init(&a, DOCUMENT_MEMORY);
    int rc = json_parse(&v, text, len, &a, e);
    if (rc < 0) {
        err_wrap(e, rc, "the hub's answer");
    } else {
        const char *sha = json_cstr(json_get(v, "sha"));
        if (is_hex(sha, 40) || is_hex(sha, 64))
            memcpy(commit, sha, strlen(sha) + 1);
        else
            rc = err_set(e, ERR_FORMAT, "the hub's answer does not name a commit");
    }
    arena_deinit(&a);
    return rc;
}

/* One file of the tree into the list. */
static int add_file(hub_listing *l, const json_value *v, err *e) {
    const json_value *path = json_get(v, "path"), *lfs = json_get(v, "lfs");
    hub_file          f = { 0 };
    if (!json_is(path, JSON_K_STRING) || !json_int(json_get(v, "size"), &f.size) || f.size < 0)
        return err_set(e, ERR_FORMAT, "the hub lists a file without a path or a size");
    if (!hub_path_ok(path->u.string))
        return err_set(e, ERR_FORMAT,
                       "the hub lists a file '%.100s': such a name could lead out of the model's folder; "
                       "nothing is taken from this repository",
                       path->u.string.data);
    const char *sha256 = json_cstr(json_get(lfs, "oid")), *sha1 = json_cstr(json_get(v, "oid"));
    if (sha256 && strncmp(sha256, "sha256:", 7) == 0) sha256 += 7;
    if (is_hex(sha256, 64)) {
        int64_t size;
        snprintf(f.digest, sizeof f.digest, "sha256:%s", sha256);
        if (json_int(json_get(lfs, "size"), &size) && size >= 0) f.size = size;
    } else if (is_hex(sha1, 40)) {
        memcpy(f.sha1, sha1, 41);
    } else {
        return err_set(e, ERR_FORMAT, "the hub lists %.200s without saying what is in it", path->u.string.data);
    }
    if (l->n == MAX_FILES) return err_set(e, ERR_LIMIT, "the repository has more than %d files", MAX_FILES);
    if (l->n == l->room) {
        size_t    room = l->room ? 2 * l->room : 64;
        hub_file *more = realloc(l->files, room * sizeof *more);
        if (!more) return err_set_nomem(e);
        l->files = more;
        l->room = room;
    }
    if (!(f.path = strndup(path->u.string.data, path->u.string.len))) return err_set_nomem(e);
    l->files[l->n++] = f;
    return 0;
}

int hub_read_tree(hub_listing *l, const char *text, size_t len, err *e) {
    arena             a;
    const json_value *v;
    arena_init(&a, DOCUMENT_MEMORY);
    int rc = json_parse(&v, text, len, &a, e);
    if (rc < 0)
        err_wrap(e, rc, "the hub's listing");
    else if (!json_is(v, JSON_K_ARRAY))
        rc = err_set(e, ERR_FORMAT, "the hub's listing is not a list");
    for (size_t i = 0; rc == 0 && i < json_count(v); i++) {
        const json_value *item = json_at(v, i);
        const char       *type = json_cstr(json_get(item, "type"));
        if (!type) rc = err_set(e, ERR_FORMAT, "the hub's listing has an entry that is neither file nor folder");
        if (type && strcmp(type, "file") == 0) rc = add_file(l, item, e);
    }
    arena_deinit(&a);
    return rc;
}

static int get_document(const http_client *c, const char *url, const char *what, str *body, http_head *head, err *e) {
    int rc = http_get(c, url, "application/json", DOCUMENT, body, head, e);
    if (rc == 0 && head->status != 200) rc = http_explain(c, head->status, url, what, e);
    return rc;
}

static int read_pages(hub_listing *out, const http_client *c, const char *first, const char *what, err *e) {
    str       body, next;
    http_head head = { 0 };
    char     *url = strdup(first), *more;
    int       rc = url ? 0 : err_set_nomem(e), pages = 0;
    str_init(&body);
    str_init(&next);
    while (rc == 0) {
        http_head_deinit(&head);
        if ((rc = get_document(c, url, what, &body, &head, e)) < 0) break;
        if ((rc = hub_read_tree(out, str_cstr(&body), body.len, e)) < 0) break;
        if (!head.link || !header_link_next(view_of(head.link), &next)) break;
        if (++pages == MAX_PAGES) rc = err_set(e, ERR_LIMIT, "%s: the listing does not end", what);
        /* The next page is the same server's; anything else would be a strange listing. */
        if (rc == 0 && (rc = http_redirect(url, str_cstr(&next), &more, e)) == 0) {
            free(url);
            url = more;
            if (!http_same_origin(url, first))
                rc = err_set(e, ERR_FORMAT, "%s: the listing continues on another server", what);
        }
    }
    http_head_deinit(&head);
    str_deinit(&body);
    str_deinit(&next);
    free(url);
    return rc;
}

static void api_url(str *out, const http_client *c, const char *repo, const char *what, const char *revision) {
    str_clear(out);
    str_puts(out, c->origin);
    while (out->len && out->data[out->len - 1] == '/') out->data[--out->len] = '\0';
    str_puts(out, "/api/models/");
    http_put_escaped(out, repo);
    str_printf(out, "/%s/", what);
    for (const char *p = revision; *p; p++) { /* a branch's own slashes are not a path */
        char one[2] = { *p, 0 };
        if (*p == '/')
            str_puts(out, "%2F");
        else
            http_put_escaped(out, one);
    }
}

int hub_list(hub_listing *out, const http_client *c, const char *repo, const char *revision, err *e) {
    str       url, body;
    http_head head = { 0 };
    char      what[256];
    int       rc;
    if (!revision) revision = "main";
    memset(out, 0, sizeof *out);
    str_init(&url);
    str_init(&body);
    if (strcmp(revision, "main") == 0)
        snprintf(what, sizeof what, "the repository %s", repo);
    else
        snprintf(what, sizeof what, "the repository %s at revision %s", repo, revision);
    api_url(&url, c, repo, "revision", revision);
    rc = str_ok(&url) ? get_document(c, str_cstr(&url), what, &body, &head, e) : err_set_nomem(e);
    if (rc == 0 && (rc = hub_read_revision(out->commit, str_cstr(&body), body.len, e)) < 0) err_wrap(e, rc, "%s", what);
    if (rc == 0) {
        api_url(&url, c, repo, "tree", out->commit);
        str_puts(&url, "?recursive=true");
        rc = str_ok(&url) ? read_pages(out, c, str_cstr(&url), what, e) : err_set_nomem(e);
    }
    if (rc == 0 && out->n == 0) rc = err_set(e, ERR_NOTFOUND, "%s has no files", what);
    http_head_deinit(&head);
    str_deinit(&url);
    str_deinit(&body);
    if (rc < 0) hub_listing_deinit(out);
    return rc;
}

void hub_url(str *out, const char *endpoint, const char *repo, const char *commit, const char *path) {
    str_puts(out, endpoint);
    while (out->len && out->data[out->len - 1] == '/') out->data[--out->len] = '\0';
    str_push(out, '/');
    http_put_escaped(out, repo);
    str_printf(out, "/resolve/%s/", commit);
    http_put_escaped(out, path);
}

bool hub_sha1_fits(const char *sha1, const void *data, size_t bytes) {
    char        head[64], hex[41];
    uint8_t     sum[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int         n = snprintf(head, sizeof head, "blob %zu", bytes);
    bool ok = md && EVP_DigestInit_ex(md, EVP_sha1(), NULL) == 1 && EVP_DigestUpdate(md, head, (size_t)n + 1) == 1 &&
              EVP_DigestUpdate(md, data, bytes) == 1 && EVP_DigestFinal_ex(md, sum, NULL) == 1;
    EVP_MD_CTX_free(md);
    for (int i = 0; ok && i < 20; i++) snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    return ok && strcmp(hex, sha1) == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/ollama_hub.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "registry/blobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOCUMENT = 4 << 20, DOCUMENT_MEMORY = 64 << 20 };

#define MANIFEST_TYPE "application/vnd.docker.distribution.manifest.v2+json"

static ollama_kind kind_of(const char *media) {
    static const char        prefix[] = "application/vnd.ollama.image.";
    static const char *const names[] = { "model",  "projector", "adapter", "template",
                                         "system", "params",    "license", "messages" };
    if (!media || strncmp(media, prefix, sizeof prefix - 1) != 0) return OLLAMA_OTHER;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(media + sizeof prefix - 1, names[i]) == 0) return (ollama_kind)i;
    }
    return OLLAMA_OTHER;
}

static int read_layers(ollama_manifest *out, const json_value *v, err *e) {
    const json_value *layers = json_get(v, "layers");
    int               models = 0;
    if (!json_is(layers, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "the manifest has no layers");
    if (json_count(layers) > OLLAMA_MAX_LAYERS)
        return err_set(e, ERR_LIMIT, "the manifest has %zu layers", json_count(layers));
    for (size_t i = 0; i < json_count(layers); i++) {
        const json_value *item = json_at(layers, i);
        ollama_layer     *l = &out->layers[i];
        const char       *digest = json_cstr(json_get(item, "digest"));
        l->kind = kind_of(json_cstr(json_get(item, "mediaType")));
        if (!digest || !blob_digest_ok(digest))
            return err_set(e, ERR_FORMAT, "layer %zu of the manifest has no sha256 digest", i);
        if (!json_int(json_get(item, "size"), &l->size) || l->size < 0)
            return err_set(e, ERR_FORMAT, "layer %zu of the manifest has no size", i);
        memcpy(l->digest, digest, sizeof l->digest);
        models += l->kind == OLLAMA_MODEL;
    }
    out->n = json_count(layers);
    if (models == 1) return 0;
    if (models == 0) return err_set(e, ERR_UNSUPPORTED, "the manifest does not name a model file");
    return err_set(e, ERR_UNSUPPORTED, "the manifest names %d model files; only one is supported", models);
}

int ollama_read_manifest(ollama_manifest *out, const char *text, size_t len, err *e) {
    arena             a;
    const json_value *v;
    memset(out, 0, sizeof *out);
    arena_init(&a, DOCUMENT_MEMORY);
    int rc = json_parse(&v, text, len, &a, e);
    if (rc == 0) rc = read_layers(out, v, e);
    arena_deinit(&a);
    return rc < 0 ? err_wrap(e, rc, "the registry's answer") : 0;
}

static void begin_url(str *out, const char *endpoint, const char *owner, const char *name) {
    str_clear(out);
    str_puts(out, endpoint);
    while (out->len && out->data[out->len - 1] == '/') out->data[--out->len] = '\0';
    str_puts(out, "/v2/");
    http_put_escaped(out, owner);
    str_push(out, '/');
    http_put_escaped(out, name);
}

void ollama_blob_url(str *out, const char *endpoint, const char *owner, const char *name, const char *digest) {
    begin_url(out, endpoint, owner, name);
    str_printf(out, "/blobs/%s", digest);
}

/* --- tokens for anyone --- */

static bool token_of(const char *text, size_t len, char **out) {
    arena             a;
    const json_value *v;
    const char       *token = NULL;
    arena_init(&a, DOCUMENT_MEMORY);
    if (json_parse(&v, text, len, &a, NULL) == 0) {
        token = json_cstr(json_get(v, "token"));
        if (!token) token = json_cstr(json_get(v, "access_token"));
    }
    *out = token && *token && strlen(token) < 16384 && !strpbrk(token, "\r\n") ? strdup(token) : NULL;
    arena_deinit(&a);
    return *out != NULL;
}

static void put_query(str *url, const char *key, const str *value) {
    if (!value->len) return;
    str_printf(url, "%c%s=", strchr(str_cstr(url), '?') ? '&' : '?', key);
    for (const char *p = str_cstr(value); *p; p++) {
        char one[2] = { *p, 0 };
        if (*p == '/')
            str_puts(url, "%2F");
        else
            http_put_escaped(url, one);
    }
}

static int get_token(const http_client *c, const char *from, const char *challenge, char **out, err *e) {
    str         realm, service, scope, body;
    char       *url = NULL;
    http_head   head = { 0 };
    http_client anonymous = *c;
    int         rc;
    anonymous.token = NULL;
    str_init(&realm);
    str_init(&service);
    str_init(&scope);
    str_init(&body);
    if (!header_challenge(view_of(challenge), &realm, &service, &scope)) {
        rc = err_set(e, ERR_ARG, "the registry asks for a kind of login that Hearth does not know: %.120s", challenge);
    } else if ((rc = http_redirect(from, str_cstr(&realm), &url, e)) == 0) {
        str_clear(&realm);
        str_puts(&realm, url);
        put_query(&realm, "service", &service);
        put_query(&realm, "scope", &scope);
        rc = str_ok(&realm) ? http_get(&anonymous, str_cstr(&realm), "application/json", DOCUMENT, &body, &head, e)
                            : err_set_nomem(e);
        if (rc == 0 && (head.status != 200 || !token_of(str_cstr(&body), body.len, out)))
            rc = err_set(e, ERR_ARG, "the registry wants a token, but does not hand one out (%d)", head.status);
    }
    http_head_deinit(&head);
    free(url);
    str_deinit(&realm);
    str_deinit(&service);
    str_deinit(&scope);
    str_deinit(&body);
    return rc;
}

int ollama_get_manifest(ollama_manifest *out, http_client *c, const char *owner, const char *name, const char *tag,
                        char **token, err *e) {
    str       url, body;
    http_head head = { 0 };
    char      what[256];
    int       rc;
    *token = NULL;
    memset(out, 0, sizeof *out);
    str_init(&url);
    str_init(&body);
    snprintf(what, sizeof what, "the model %s%s%s:%s", strcmp(owner, "library") == 0 ? "" : owner,
             strcmp(owner, "library") == 0 ? "" : "/", name, tag);
    begin_url(&url, c->origin, owner, name);
    str_puts(&url, "/manifests/");
    http_put_escaped(&url, tag);
    rc = str_ok(&url) ? http_get(c, str_cstr(&url), MANIFEST_TYPE, DOCUMENT, &body, &head, e) : err_set_nomem(e);
    if (rc == 0 && head.status == 401 && head.challenge && !c->token) {
        rc = get_token(c, str_cstr(&url), head.challenge, token, e);
        http_head_deinit(&head);
        c->token = *token;
        if (rc == 0) rc = http_get(c, str_cstr(&url), MANIFEST_TYPE, DOCUMENT, &body, &head, e);
    }
    if (rc == 0 && head.status != 200) rc = http_explain(c, head.status, str_cstr(&url), what, e);
    if (rc == 0 && (rc = ollama_read_manifest(out, str_cstr(&body), body.len, e)) < 0) err_wrap(e, rc, "%s", what);
    http_head_deinit(&head);
    str_deinit(&url);
    str_deinit(&body);
    return rc;
}

/* --- layers --- */

static void add_param(modelfile *m, const char *name, const json_value *v) {
    str text;
    err e = { 0 };
    str_init(&text);
    if (json_is(v, JSON_K_STRING))
        str_append(&text, v->u.string.data, v->u.string.len);
    else
        json_write(v, &text);
    if (!str_ok(&text) || modelfile_add_param(m, name, str_cstr(&text), &e) < 0)
        log_info("pull", "the parameter %s is ignored: %s", name, e.msg);
    str_deinit(&text);
}

static int read_params(modelfile *m, const json_value *v, err *e) {
    if (!json_is(v, JSON_K_OBJECT)) return err_set(e, ERR_FORMAT, "the parameters are not a JSON object");
    for (size_t i = 0; i < v->u.object.count; i++) {
        const json_member *k = &v->u.object.members[i];
        if (memchr(k->key.data, '\0', k->key.len)) continue;
        if (!json_is(&k->value, JSON_K_ARRAY)) add_param(m, k->key.data, &k->value);
        for (size_t n = 0; n < json_count(&k->value) && json_is(&k->value, JSON_K_ARRAY); n++)
            add_param(m, k->key.data, json_at(&k->value, n));
    }
    return 0;
}

static int read_messages(modelfile *m, const json_value *v, err *e) {
    if (!json_is(v, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "the messages are not a JSON list");
    for (size_t i = 0; i < json_count(v); i++) {
        const char *role = json_cstr(json_get(json_at(v, i), "role"));
        const char *content = json_cstr(json_get(json_at(v, i), "content"));
        err         why = { 0 };
        if (!role || !content || modelfile_add_message(m, role, content, &why) < 0)
            log_info("pull", "a message of the model is ignored: %s", why.msg[0] ? why.msg : "it has no text");
    }
    return 0;
}

static int join(char **to, const char *text, err *e) {
    str s;
    str_init(&s);
    if (*to) str_printf(&s, "%s\n\n", *to);
    str_puts(&s, text);
    char *both = str_take(&s);
    if (!both) return err_set_nomem(e);
    free(*to);
    *to = both;
    return 0;
}

int ollama_read_layer(modelfile *m, ollama_kind kind, const char *text, size_t len, err *e) {
    arena             a;
    const json_value *v;
    err               why = { 0 };
    int               rc = 0;
    switch (kind) {
    case OLLAMA_SYSTEM: return join(&m->system, text, e);
    case OLLAMA_LICENSE: return join(&m->license, text, e);
    case OLLAMA_TEMPLATE:
        if (modelfile_set_template(m, text, &why) < 0)
            log_info("pull", "the template of the registry is ignored, the model file's own is used: %s", why.msg);
        return 0;
    case OLLAMA_PARAMS:
    case OLLAMA_MESSAGES:
        arena_init(&a, DOCUMENT_MEMORY);
        rc = json_parse(&v, text, len, &a, e);
        if (rc == 0) rc = kind == OLLAMA_PARAMS ? read_params(m, v, e) : read_messages(m, v, e);
        arena_deinit(&a);
        return rc;
    default: return 0;
    }
}

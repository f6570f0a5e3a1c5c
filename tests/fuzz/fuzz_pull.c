/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pulls read from a server that is not trusted. The first byte says as what the rest is read: the hub's listing,
 * its revision, an index of weights, an Ollama manifest, a layer with settings, or the lines of an answer's head. What
 * is accepted keeps its promises: paths stay inside their folder, digests are digests, sizes are sizes.
 */
#include "registry/blobs.h"
#include "registry/choose.h"
#include "registry/hub.h"
#include "registry/ollama_hub.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
    if (!ok) abort();
}

static void check_choice(const hub_listing *l) {
    static const choose_wish wishes[] = {
        { .repo = "a/b" },
        { .repo = "a/b", .quant = "Q8_0" },
        { .repo = "a/b", .format = PULL_MLX },
        { .repo = "a/b", .file = "x.gguf" },
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        choice c;
        err    e = { 0 };
        int    rc = choose_files(&c, l, &wishes[i], &e);
        need(rc == 0 || (e.code == rc && e.msg[0]));
        if (rc < 0) continue;
        need(c.main < l->n && c.take[c.main]);
        choice_deinit(&c);
    }
}

static void read_tree(const char *text, size_t len) {
    hub_listing l = { 0 };
    err         e = { 0 };
    if (hub_read_tree(&l, text, len, &e) == 0) {
        for (size_t i = 0; i < l.n; i++) {
            const hub_file *f = &l.files[i];
            need(f->path[0] != '/' && strncmp(f->path, "../", 3) != 0 && !strstr(f->path, "/../") &&
                 !strchr(f->path, '\\') && f->size >= 0);
            need(f->digest[0] ? blob_digest_ok(f->digest) : strlen(f->sha1) == 40);
        }
        check_choice(&l);
    } else {
        need(e.msg[0] != '\0');
    }
    hub_listing_deinit(&l);
}

static void read_index(const char *text, size_t len) {
    static const char list[] =
        "[{\"type\":\"file\",\"path\":\"config.json\",\"size\":1,\"oid\":\"e69de29bb2d1d6434b8b29ae775ad8c2"
        "e48c5391\"},{\"type\":\"file\",\"path\":\"model.safetensors.index.json\",\"size\":1,\"oid\":\"e69de"
        "29bb2d1d6434b8b29ae775ad8c2e48c5391\"},{\"type\":\"file\",\"path\":\"a.safetensors\",\"size\":1,\""
        "oid\":\"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\"},{\"type\":\"file\",\"path\":\"b.safetensors\","
        "\"size\":1,\"oid\":\"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\"}]";
    hub_listing l = { 0 };
    choice      c;
    choose_wish w = { .repo = "a/b" };
    need(hub_read_tree(&l, list, strlen(list), NULL) == 0 && choose_files(&c, &l, &w, NULL) == 0);
    (void)choose_weights(&c, &l, text, len, NULL);
    choice_deinit(&c);
    hub_listing_deinit(&l);
}

static void read_manifest(const char *text, size_t len) {
    ollama_manifest *m = calloc(1, sizeof *m);
    int              models = 0;
    if (ollama_read_manifest(m, text, len, NULL) == 0) {
        for (size_t i = 0; i < m->n; i++) {
            need(blob_digest_ok(m->layers[i].digest) && m->layers[i].size >= 0);
            models += m->layers[i].kind == OLLAMA_MODEL;
        }
        need(models == 1);
    }
    free(m);
}

static void read_layer(const char *text, size_t len) {
    modelfile m;
    str       out;
    modelfile_init(&m);
    str_init(&out);
    for (int k = OLLAMA_TEMPLATE; k <= OLLAMA_MESSAGES; k++)
        (void)ollama_read_layer(&m, (ollama_kind)k, text, len, NULL);
    (void)modelfile_settings(&m, NULL, &out, NULL);
    str_deinit(&out);
    modelfile_deinit(&m);
}

static void read_head(const char *text, size_t len) {
    http_head h = { 0 };
    str       next, service, scope;
    str_init(&next);
    str_init(&service);
    str_init(&scope);
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t      n = end ? (size_t)(end + 1 - text - at) : len - at;
        http_head_line(&h, (view){ text + at, n }, 1700000000);
        at += n;
    }
    if (h.has_range) need(h.range_first >= 0 && h.range_last >= h.range_first);
    need(h.content_length >= -1 && h.retry_after >= -1 && strlen(h.etag) < sizeof h.etag);
    if (h.link) (void)header_link_next(view_of(h.link), &next);
    if (h.challenge) (void)header_challenge(view_of(h.challenge), &next, &service, &scope);
    if (h.location) {
        char *to = NULL;
        if (http_redirect("https://a/b", h.location, &to, NULL) == 0) need(strncmp(to, "https://", 8) == 0);
        free(to);
    }
    http_head_deinit(&h);
    str_deinit(&next);
    str_deinit(&service);
    str_deinit(&scope);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char commit[65];
    if (size == 0) return 0;
    char *text = malloc(size); /* the layers' texts end with a NUL */
    if (!text) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 6) {
    case 0: read_tree(text, size - 1); break;
    case 1: (void)hub_read_revision(commit, text, size - 1, NULL); break;
    case 2: read_index(text, size - 1); break;
    case 3: read_manifest(text, size - 1); break;
    case 4: read_layer(text, size - 1); break;
    case 5: read_head(text, size - 1); break;
    }
    free(text);
    return 0;
}

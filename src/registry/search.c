/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/search.h"

#include "base/json.h"
#include "registry/http.h"
#include "registry/names.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWER = 16 << 20, MAX_HITS = 1000 };

void search_hits_deinit(search_hits *h) {
    for (size_t i = 0; i < h->n; i++) free(h->list[i].repo);
    free(h->list);
    memset(h, 0, sizeof *h);
}

static bool has_tag(const json_value *v, const char *tag) {
    const json_value *tags = json_get(v, "tags");
    for (size_t i = 0; i < json_count(tags); i++) {
        const char *text = json_cstr(json_at(tags, i));
        if (text && strcmp(text, tag) == 0) return true;
    }
    return false;
}

/* A name that the other commands would not take is of no use. */
static bool repo_ok(const char *id) {
    name_ref n;
    bool     ok = id && name_parse(&n, id, NULL) == 0;
    if (!ok) return false;
    ok = n.kind == NAME_HF && !n.file && !n.quant && !n.revision;
    name_ref_deinit(&n);
    return ok;
}

static int add_hit(search_hits *out, const json_value *v, err *e) {
    const char *id = json_cstr(json_get(v, "id")), *date = json_cstr(json_get(v, "lastModified"));
    search_hit *h = &out->list[out->n];
    if (!repo_ok(id)) return 0;
    memset(h, 0, sizeof *h);
    if (!(h->repo = strdup(id))) return err_set_nomem(e);
    json_int(json_get(v, "downloads"), &h->downloads);
    json_int(json_get(v, "likes"), &h->likes);
    h->gguf = has_tag(v, "gguf");
    h->mlx = has_tag(v, "mlx");
    h->safetensors = has_tag(v, "safetensors");
    if (date && strspn(date, "0123456789-") >= 10) memcpy(h->modified, date, 10);
    out->n++;
    return 0;
}

int search_read(search_hits *out, const char *text, size_t bytes, err *e) {
    const json_value *v;
    arena             a;
    memset(out, 0, sizeof *out);
    arena_init(&a, 256 << 20);
    int rc = json_parse(&v, text, bytes, &a, e);
    if (rc == 0 && !json_is(v, JSON_K_ARRAY)) rc = err_set(e, ERR_FORMAT, "expected a list of models");
    size_t n = rc == 0 ? json_count(v) : 0;
    if (n > MAX_HITS) n = MAX_HITS;
    if (n && !(out->list = calloc(n, sizeof *out->list))) rc = err_set_nomem(e);
    for (size_t i = 0; rc == 0 && i < n; i++) rc = add_hit(out, json_at(v, i), e);
    arena_deinit(&a);
    if (rc < 0) search_hits_deinit(out);
    return rc;
}

void search_write_json(const search_hit *h, str *out) {
    str_puts(out, "{\"repository\":");
    str_put_json(out, h->repo, strlen(h->repo));
    str_printf(out, ",\"downloads\":%lld,\"likes\":%lld,\"gguf\":%s,\"mlx\":%s,\"safetensors\":%s,\"modified\":\"%s\"}",
               (long long)h->downloads, (long long)h->likes, h->gguf ? "true" : "false", h->mlx ? "true" : "false",
               h->safetensors ? "true" : "false", h->modified);
}

static bool go_on(void *ctx, const char *waiting) {
    (void)ctx;
    (void)waiting;
    return true;
}

int search_hub(search_hits *out, const pull_request *q, const char *words, int limit, err *e) {
    http_client c = { .origin = q->hf_endpoint ? q->hf_endpoint : PULL_HF_ENDPOINT,
                      .token = q->hf_token,
                      .ca_file = q->ca_file,
                      .patience = q->patience,
                      .go_on = go_on };
    http_head   head = { 0 };
    str         url, body;
    memset(out, 0, sizeof *out);
    http_patience(&c.patience);
    str_init(&url);
    str_init(&body);
    str_printf(&url, "%s/api/models?search=", c.origin);
    for (const char *p = words; *p; p++) { /* a slash and all that is not plain is escaped */
        if (strchr("-._~", *p) || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z'))
            str_push(&url, *p);
        else
            str_printf(&url, "%%%02X", (unsigned char)*p);
    }
    str_printf(&url, "&sort=downloads&direction=-1&limit=%d", limit);
    int rc = str_ok(&url) ? http_open(&c.multi, e) : err_set_nomem(e);
    if (rc == 0) rc = http_get(&c, str_cstr(&url), "application/json", MAX_ANSWER, &body, &head, e);
    if (rc == 0 && head.status != 200) rc = http_explain(&c, head.status, str_cstr(&url), words, e);
    if (rc == 0) {
        char host[128];
        http_host(c.origin, host);
        rc = search_read(out, str_cstr(&body), body.len, e);
        if (rc < 0) err_wrap(e, rc, "the answer of %s", host);
    }
    curl_multi_cleanup(c.multi); /* accepts NULL */
    http_head_deinit(&head);
    str_deinit(&url);
    str_deinit(&body);
    return rc;
}

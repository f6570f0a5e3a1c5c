/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/create.h"

#include "base/file.h"
#include "base/sha256.h"
#include "config/model.h"
#include "registry/blobs.h"
#include "registry/db.h"
#include "registry/describe.h"
#include "template/template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int registry_settings(registry *r, const char *name, char **out, err *e) {
    int rc = registry_tag_get(r, name, MODELFILE_SETTINGS, out, e);
    return rc == ERR_NOTFOUND ? 0 : rc;
}

int registry_link_folder(registry *r, const char *const *names, const char *const *digests, size_t n, char **out,
                         err *e) {
    sha256  s;
    uint8_t sum[SHA256_BYTES];
    str     dir;
    char   *inside = NULL;
    int     rc = 0;
    *out = NULL;
    sha256_init(&s);
    for (size_t i = 0; i < n; i++) {
        sha256_feed(&s, names[i], strlen(names[i]) + 1);
        sha256_feed(&s, digests[i], strlen(digests[i]) + 1);
    }
    sha256_finish(&s, sum);
    str_init(&dir);
    str_puts(&dir, "models/local/created/");
    for (int i = 0; i < 16; i++) str_printf(&dir, "%02x", sum[i]);
    rc = registry_data_path(r, str_cstr(&dir), out, e);
    str_puts(&dir, "/x"); /* every folder above it is made */
    if (rc == 0 && (rc = registry_data_path(r, str_cstr(&dir), &inside, e)) == 0) rc = registry_make_folder(inside, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *at = path_join(*out, names[i]), target[128];
        snprintf(target, sizeof target, "../../../../blobs/sha256-%.64s", digests[i] + 7);
        if (!at)
            rc = err_set_nomem(e);
        else if (symlink(target, at) != 0 && errno != EEXIST)
            rc = err_set_errno(e, "cannot make the link %s", at);
        free(at);
    }
    free(inside);
    str_deinit(&dir);
    return rc;
}

typedef struct parts {
    registry_model model;
    char          *settings; /* of the base */
    char         **digests;  /* of the base */
    size_t         n_digests;
    str            json;
} parts;

static void parts_deinit(parts *p) {
    registry_model_deinit(&p->model);
    free(p->settings);
    for (size_t i = 0; i < p->n_digests; i++) free(p->digests[i]);
    free(p->digests);
    str_deinit(&p->json);
}

static int gather(registry *r, const create_request *q, parts *p, err *e) {
    int rc;
    if (q->base) {
        if ((rc = registry_find(r, q->base, &p->model, e)) < 0 ||
            (rc = registry_blob_list(r, p->model.id, &p->digests, &p->n_digests, e)) < 0 ||
            (rc = registry_settings(r, q->base, &p->settings, e)) < 0)
            return rc;
        p->model.created_at = p->model.last_used = 0;
    } else {
        if ((rc = registry_describe(&p->model, q->path, e)) < 0) return rc;
        p->model.source = strdup(q->source ? q->source : "local");
        if (!p->model.source) return err_set_nomem(e);
        if (q->settings_of && (rc = registry_settings(r, q->settings_of, &p->settings, e)) < 0) return rc;
    }
    free(p->model.name);
    if (!(p->model.name = strdup(q->name))) return err_set_nomem(e);
    if (q->modelfile) return modelfile_settings(q->modelfile, p->settings, &p->json, e);
    str_puts(&p->json, p->settings ? p->settings : "");
    return str_ok(&p->json) ? 0 : err_set_nomem(e);
}

/* What cannot be used later is said now. */
static int check_settings(const modelfile *m, const char *json, err *e) {
    config_model c;
    tmpl        *t = NULL;
    int          rc = 0;
    if (m && m->template_text) rc = tmpl_open(&t, m->template_text, strlen(m->template_text), e);
    tmpl_free(t);
    if (rc < 0) return err_wrap(e, rc, "the template");
    if (!*json) return 0;
    rc = config_model_read(&c, view_of(json), "settings", e);
    if (rc == 0) config_model_deinit(&c);
    return rc;
}

static int add_adapters(registry *r, int64_t id, const modelfile *m, err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && m && i < m->n_adapters; i++) {
        sqlite3_stmt *s = NULL;
        rc = registry_db_prepare(r, &s, "INSERT INTO adapters (model_id, type, path) VALUES (?, 'lora', ?)", e);
        if (rc < 0) break;
        sqlite3_bind_int64(s, 1, id);
        sqlite3_bind_text(s, 2, m->adapters[i], -1, SQLITE_TRANSIENT);
        rc = registry_db_finish(r, s, e);
    }
    return rc;
}

static int link_blob(registry *r, int64_t id, const char *digest, err *e) {
    int64_t size = 0;
    if (!registry_blob_has(r, digest, &size)) return err_set(e, ERR_NOTFOUND, "there is no blob %.80s", digest);
    return registry_blob_link(r, id, digest, size, e);
}

static int store(registry *r, const create_request *q, parts *p, err *e) {
    int rc = q->modelfile ? check_settings(q->modelfile, str_cstr(&p->json), e) : 0;
    if (rc == 0) rc = registry_add(r, &p->model, q->replace, e);
    if (rc == 0 && p->json.len && strcmp(str_cstr(&p->json), "{}") != 0)
        rc = registry_tag(r, q->name, MODELFILE_SETTINGS, str_cstr(&p->json), e);
    if (rc == 0) rc = add_adapters(r, p->model.id, q->modelfile, e);
    for (size_t i = 0; rc == 0 && i < p->n_digests; i++) rc = link_blob(r, p->model.id, p->digests[i], e);
    for (size_t i = 0; rc == 0 && !q->base && i < q->n_digests; i++) rc = link_blob(r, p->model.id, q->digests[i], e);
    return rc;
}

int registry_create(registry *r, const create_request *q, registry_model *out, err *e) {
    parts p = { 0 };
    int   rc;
    if (out) memset(out, 0, sizeof *out);
    if (!registry_name_ok(q->name))
        return err_set(e, ERR_ARG, "'%.100s' is not a name for a model: letters, digits and . _ - : / @ only", q->name);
    str_init(&p.json);
    /* A base must not change meanwhile; a file is described before others have to wait. */
    rc = q->base ? 0 : gather(r, q, &p, e);
    if (rc == 0 && (rc = registry_db_begin(r, e)) == 0) {
        if (q->base) rc = gather(r, q, &p, e);
        if (rc == 0) rc = store(r, q, &p, e);
        rc = registry_db_end(r, rc, e);
    }
    if (rc == 0 && out) {
        *out = p.model;
        memset(&p.model, 0, sizeof p.model);
    }
    parts_deinit(&p);
    return rc;
}

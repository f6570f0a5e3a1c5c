/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/pull.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "registry/choose.h"
#include "registry/db.h"
#include "registry/describe.h"
#include "registry/hub.h"
#include "registry/known.h"
#include "registry/names.h"
#include "registry/ollama_hub.h"
#include "registry/partial.h"
#include "registry/pull_adapter.h"
#include "registry/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL_FILE = 64 << 20, SMALL_LAYER = 8 << 20, TELL_MS = 100 };

typedef struct item {
    char       *path; /* inside the model's folder; NULL for a layer that is not a file of it */
    char       *url;
    char        digest[BLOB_DIGEST_CHARS]; /* "" until a small file came */
    char        sha1[41];
    int64_t     size;
    ollama_kind kind;
    blob_lock   pin;
} item;

typedef struct pull {
    registry           *r;
    const pull_request *q;
    const pull_events  *ev;
    http_client         c;
    name_ref            ref;
    const known_model  *known; /* what the name is in the program's own table, or NULL */
    char               *repo;  /* "owner/name" */
    char                commit[65];
    item               *items;
    size_t              n;
    const item         *now;  /* under way, or NULL */
    int64_t             at;   /* bytes of it */
    int64_t             done; /* bytes of the items before it */
    int64_t             total, present, fetched;
    int64_t             told_ms;
} pull;

/* --- telling --- */

static bool stopped(const pull *p) { return p->ev && p->ev->cancel && atomic_load(p->ev->cancel); }

static bool tell(pull *p, const char *status) {
    pull_progress s = { .status = status, .all_total = p->total, .all_completed = p->done, .all_present = p->present };
    if (stopped(p)) return false;
    if (!p->ev || !p->ev->progress) return true;
    p->told_ms = clock_ms();
    if (p->now) {
        s.digest = p->now->digest[0] ? p->now->digest : NULL;
        s.file = p->now->path;
        s.total = p->now->size;
        s.completed = p->at;
        s.all_completed += p->at;
    }
    return p->ev->progress(p->ev->ctx, &s);
}

static int say(pull *p, const char *status, err *e) {
    return tell(p, status) ? 0 : err_set(e, ERR_CANCELLED, "stopped");
}

static void pulling(const pull *p, char out[96], const char *behind) {
    const item *i = p->now;
    if (i->digest[0])
        snprintf(out, 96, "pulling %.12s%s", i->digest + 7, behind);
    else
        snprintf(out, 96, "pulling %.60s%s", i->path, behind);
}

static bool on_wait(void *ctx, const char *waiting) {
    pull *p = ctx;
    char  text[96];
    if (stopped(p)) return false;
    if (clock_ms() - p->told_ms < TELL_MS) return true;
    if (!waiting && p->now) pulling(p, text, "");
    return tell(p, waiting ? waiting : p->now ? text : "pulling manifest");
}

static bool on_transfer(void *ctx, transfer_phase phase, int64_t bytes, const char *why) {
    pull *p = ctx;
    char  text[96], longer[400];
    if (phase != TRANSFER_VERIFYING) p->at = bytes;
    switch (phase) {
    case TRANSFER_VERIFYING: return tell(p, "verifying sha256 digest");
    case TRANSFER_PAUSED: snprintf(longer, sizeof longer, "waiting to try again: %s", why); return tell(p, longer);
    case TRANSFER_ELSEWHERE: pulling(p, text, " (by another process)"); return tell(p, text);
    case TRANSFER_LOADING: break;
    }
    pulling(p, text, "");
    return tell(p, text);
}

/* --- what is to be fetched --- */

static item *add_item(pull *p, err *e) {
    item *more = realloc(p->items, (p->n + 1) * sizeof *more);
    if (!more) {
        err_set_nomem(e);
        return NULL;
    }
    p->items = more;
    more[p->n] = (item){ .pin = BLOB_LOCK_NONE, .kind = OLLAMA_OTHER };
    return &more[p->n++];
}

static int add_hub_file(pull *p, const hub_file *f, err *e) {
    item *i = add_item(p, e);
    str   url;
    if (!i) return ERR_NOMEM;
    str_init(&url);
    hub_url(&url, p->c.origin, p->repo, p->commit, f->path);
    i->url = str_take(&url);
    i->path = strdup(f->path);
    i->size = f->size;
    memcpy(i->digest, f->digest, sizeof i->digest);
    memcpy(i->sha1, f->sha1, sizeof i->sha1);
    return i->url && i->path ? 0 : err_set_nomem(e);
}

static int add_layer(pull *p, const ollama_layer *l, err *e) {
    item *i = add_item(p, e);
    str   url;
    if (!i) return ERR_NOMEM;
    str_init(&url);
    ollama_blob_url(&url, p->c.origin, p->ref.owner, p->ref.repo, l->digest);
    i->url = str_take(&url);
    i->size = l->size;
    i->kind = l->kind;
    memcpy(i->digest, l->digest, sizeof i->digest);
    return i->url ? 0 : err_set_nomem(e);
}

/* --- fetching --- */

/* Where a file of this model is linked, or would be; the caller frees. */
static int link_path(pull *p, const char *path, char **out, err *e) {
    str s;
    str_init(&s);
    str_printf(&s, "models/%s/%s", p->repo, p->commit);
    if (path) str_printf(&s, "/%s", path);
    int rc = str_ok(&s) ? registry_data_path(p->r, str_cstr(&s), out, e) : err_set_nomem(e);
    str_deinit(&s);
    return rc;
}

/* A small file whose sha256 the hub does not say: an earlier pull of the same commit may have linked it. */
static bool linked_before(pull *p, item *i) {
    char   *path = NULL, *text = NULL, target[512];
    size_t  len;
    ssize_t n = -1;
    bool    ok = false;
    if (link_path(p, i->path, &path, NULL) == 0) n = readlink(path, target, sizeof target - 1);
    if (n >= 71) {
        target[n] = '\0';
        const char *name = strrchr(target, '/');
        char        digest[BLOB_DIGEST_CHARS];
        if (name && strlen(name) == 72 && strncmp(name, "/sha256-", 8) == 0) {
            snprintf(digest, sizeof digest, "sha256:%s", name + 8);
            if (blob_digest_ok(digest) && registry_blob_pin(p->r, digest, &i->pin, NULL) == 0) {
                ok = file_read(&text, &len, path, SMALL_FILE, NULL) == 0 && hub_sha1_fits(i->sha1, text, len);
                if (ok)
                    memcpy(i->digest, digest, sizeof i->digest);
                else
                    blob_unlock(&i->pin);
            }
        }
    }
    free(text);
    free(path);
    return ok;
}

static int fetch_small(pull *p, item *i, err *e) {
    http_head   head = { 0 };
    blob_writer w;
    str         body;
    int         rc;
    if (linked_before(p, i)) return 0;
    if (i->size > SMALL_FILE)
        return err_set(e, ERR_LIMIT, "%s: %lld bytes without a sha256 digest", i->path, (long long)i->size);
    str_init(&body);
    rc = http_get(&p->c, i->url, NULL, (size_t)i->size + 1, &body, &head, e);
    if (rc == 0 && head.status != 200) rc = http_explain(&p->c, head.status, i->url, i->path, e);
    if (rc == 0) p->fetched += (int64_t)body.len;
    if (rc == 0 && ((int64_t)body.len != i->size || !hub_sha1_fits(i->sha1, str_cstr(&body), body.len)))
        rc = err_set(e, ERR_FORMAT,
                     "%s: what arrived is not what was promised (sha1 %s, %lld bytes); it was thrown away", i->path,
                     i->sha1, (long long)i->size);
    if (rc == 0 && (rc = blob_writer_begin(&w, p->r, NULL, e)) == 0) {
        rc = blob_writer_put(&w, str_cstr(&body), body.len, e);
        if (rc == 0)
            rc = blob_writer_commit(&w, i->digest, &i->pin, e);
        else
            blob_writer_abort(&w);
    }
    http_head_deinit(&head);
    str_deinit(&body);
    return rc;
}

static int fetch_item(pull *p, item *i, err *e) {
    char name[160];
    p->now = i;
    p->at = 0;
    int rc = 0;
    if (i->pin.fd >= 0) { /* fetched already, to see what else there is */
    } else if (i->digest[0]) {
        snprintf(name, sizeof name, "%s%.150s", i->path ? "" : "layer ", i->path ? i->path : i->digest + 7);
        if (!i->path) name[18] = '\0'; /* twelve digits are enough to tell them apart */
        transfer_job j = { .url = i->url,
                           .name = name,
                           .digest = i->digest,
                           .size = i->size,
                           .ctx = p,
                           .commit = p->commit[0] ? p->commit : NULL,
                           .report = on_transfer };
        rc = transfer_blob(&p->c, p->r, &j, &p->fetched, &i->pin, e);
    } else {
        rc = fetch_small(p, i, e);
    }
    if (rc == 0) {
        char text[96];
        p->at = i->size;
        pulling(p, text, "");
        rc = say(p, text, e);
        p->done += i->size;
    }
    p->now = NULL;
    return rc;
}

/* Sums up, and looks at the disk before anything large comes. */
static int prepare(pull *p, err *e) {
    int64_t need = 0;
    char   *blobs;
    int     rc;
    for (size_t k = 0; k < p->n; k++) {
        item   *i = &p->items[k];
        int64_t have = 0;
        if (__builtin_add_overflow(p->total, i->size, &p->total))
            return err_set(e, ERR_FORMAT, "the sizes of the files make no sense");
        if (i->pin.fd >= 0 || (i->digest[0] && registry_blob_has(p->r, i->digest, NULL)))
            have = i->size;
        else if (i->digest[0])
            have = partial_peek(p->r, i->digest);
        if (have < 0 || have > i->size) have = 0;
        p->present += have;
        need += i->size - have;
    }
    if ((rc = registry_data_path(p->r, "blobs/x", &blobs, e)) < 0) return rc;
    rc = registry_make_folder(blobs, e);
    blobs[strlen(blobs) - 2] = '\0';
    if (rc == 0) rc = partial_room(blobs, need, e);
    free(blobs);
    return rc;
}

static int fetch_all(pull *p, err *e) {
    int rc = prepare(p, e);
    for (size_t i = 0; rc == 0 && i < p->n; i++) rc = fetch_item(p, &p->items[i], e);
    return rc;
}

/* --- registering --- */

static int make_link(pull *p, const item *i, err *e) {
    char *path, *old;
    str   target, temp;
    int   rc = link_path(p, i->path, &path, e);
    if (rc < 0) return rc;
    str_init(&target);
    str_init(&temp);
    str_puts(&target, "../../../../"); /* models/owner/repo/commit */
    for (const char *s = i->path; (s = strchr(s, '/')); s++) str_puts(&target, "../");
    str_printf(&target, "blobs/sha256-%s", i->digest + 7);
    str_printf(&temp, "%s.new", path);
    old = calloc(1, target.len + 2);
    if (!str_ok(&target) || !str_ok(&temp) || !old) {
        rc = err_set_nomem(e);
    } else if (readlink(path, old, target.len + 1) < 0 || strcmp(old, str_cstr(&target)) != 0) {
        rc = registry_make_folder(path, e);
        unlink(str_cstr(&temp));
        if (rc == 0 && (symlink(str_cstr(&target), str_cstr(&temp)) < 0 || rename(str_cstr(&temp), path) < 0))
            rc = err_set_errno(e, "cannot make the link %s", path);
    }
    free(old);
    free(path);
    str_deinit(&target);
    str_deinit(&temp);
    return rc;
}

/* What was typed, in the short form, with letters that a name may have. */
static int model_name(const pull *p, char **out, err *e) {
    str s;
    if (p->q->as || p->known) {
        *out = strdup(p->q->as ? p->q->as : p->known->name);
        return *out ? 0 : err_set_nomem(e);
    }
    str_init(&s);
    name_alias(&p->ref, &s);
    *out = str_take(&s);
    if (!*out) return err_set_nomem(e);
    for (char *c = *out; *c; c++) {
        char two[3] = { 'a', *c, 0 };
        if (!registry_name_ok(two)) *c = '-';
    }
    while (strlen(*out) > 1 && !registry_name_ok(*out)) (*out)[strlen(*out) - 1] = '\0'; /* it is too long */
    return 0;
}

static int source_of(pull *p, const char *main_file, char **out, err *e) {
    str      s;
    name_ref full = p->ref;
    str_init(&s);
    if (main_file) {
        full.file = (char *)main_file; /* borrowed for the call */
        full.quant = NULL;
    }
    if (p->q->revision) full.revision = (char *)p->q->revision;
    name_source(&full, &s);
    *out = str_take(&s);
    return *out ? 0 : err_set_nomem(e);
}

/* The row, the blobs and the tags: all or nothing. */
static int write_rows(pull *p, registry_model *m, const char *settings, err *e) {
    int rc = registry_db_begin(p->r, e);
    if (rc < 0) return rc;
    registry_model before;
    if (registry_find(p->r, m->name, &before, NULL) == 0) {
        m->last_used = before.last_used;
        registry_model_deinit(&before);
    }
    rc = registry_add(p->r, m, true, e);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = registry_blob_link(p->r, m->id, p->items[i].digest, p->items[i].size, e);
    if (rc == 0 && settings) rc = registry_tag(p->r, m->name, MODELFILE_SETTINGS, settings, e);
    if (rc == 0 && p->commit[0]) rc = registry_tag(p->r, m->name, "revision", p->commit, e);
    return registry_db_end(p->r, rc, e);
}

typedef struct finding { /* what the listing came to */
    const item *main;    /* the GGUF file or its first part; NULL: a folder */
    bool        links;   /* several files: they need their names */
    const char *settings;
} finding;

static int describe(pull *p, registry_model *m, const finding *f, err *e) {
    char *path;
    int   rc;
    if (f->links)
        rc = link_path(p, f->main ? f->main->path : NULL, &path, e);
    else
        rc = registry_blob_path(p->r, f->main->digest, "", &path, e);
    if (rc < 0) return rc;
    rc = registry_describe(m, path, e);
    free(path);
    if (rc < 0) return err_wrap(e, rc, "everything came as promised, but it is not a model that Hearth can open");
    if (f->main && f->main->path) {
        view label = choose_label(f->main->path);
        if (label.len) {
            free(m->quant);
            if (!(m->quant = strndup(label.data, label.len))) return err_set_nomem(e);
        }
    }
    if (f->main && !f->links && !(m->sha256 = strdup(f->main->digest + 7))) return err_set_nomem(e);
    return 0;
}

static int enter(pull *p, const finding *f, pull_result *out, err *e) {
    registry_model m = { 0 };
    blob_lock      lock = BLOB_LOCK_NONE;
    err            ignored;
    int            rc = say(p, "writing manifest", e);
    if (rc == 0) rc = registry_folders_lock(p->r, &lock, e);
    for (size_t i = 0; rc == 0 && f->links && i < p->n; i++) rc = make_link(p, &p->items[i], e);
    if (rc == 0) rc = describe(p, &m, f, e);
    if (rc == 0) rc = model_name(p, &m.name, e);
    if (rc == 0) rc = source_of(p, f->main ? f->main->path : NULL, &m.source, e);
    if (rc == 0) rc = write_rows(p, &m, f->settings, e);
    blob_unlock(&lock);
    if (rc == 0 && registry_blob_sweep(p->r, NULL, &ignored) < 0) log_warn("pull", "%s", ignored.msg);
    if (rc == 0 && out) {
        *out = (pull_result){ .name = m.name, .path = m.path, .bytes = p->total, .fetched = p->fetched };
        m.name = m.path = NULL;
    }
    registry_model_deinit(&m);
    return rc;
}

/* --- from a Hugging Face hub --- */

static int add_taken(pull *p, const hub_listing *l, const choice *c, size_t but, err *e) {
    int rc = 0;
    /* Small files first: what is wrong with a model is often seen in them. */
    for (int large = 0; large < 2; large++) {
        for (size_t i = 0; rc == 0 && i < l->n; i++) {
            if (c->take[i] && i != but && (l->files[i].size > SMALL_LAYER) == large)
                rc = add_hub_file(p, &l->files[i], e);
        }
    }
    return rc;
}

/* The index is fetched before the rest is known. */
static int read_index(pull *p, const hub_listing *l, choice *c, err *e) {
    char  *path = NULL, *text = NULL;
    size_t len;
    int    rc = add_hub_file(p, &l->files[c->index], e);
    if (rc == 0) rc = fetch_item(p, &p->items[0], e);
    p->done = 0;
    if (rc == 0) rc = registry_blob_path(p->r, p->items[0].digest, "", &path, e);
    if (rc == 0) rc = file_read(&text, &len, path, SMALL_FILE, e);
    if (rc == 0) rc = choose_weights(c, l, text, len, e);
    free(text);
    free(path);
    return rc;
}

/* Settings that name the tower, where it lies in another folder than the model: beside it, it is found by its name. */
static int projector_settings(pull *p, const hub_listing *l, const choice *c, char **out, err *e) {
    const char *model = l->files[c->main].path, *tower = l->files[c->mmproj].path;
    const char *a = strrchr(model, '/'), *b = strrchr(tower, '/');
    size_t      folder = a ? (size_t)(a - model) : 0;
    modelfile   m;
    str         json;
    if (folder == (b ? (size_t)(b - tower) : 0) && memcmp(model, tower, folder) == 0) return 0;
    modelfile_init(&m);
    str_init(&json);
    int rc = link_path(p, tower, &m.mmproj, e);
    if (rc == 0) rc = modelfile_settings(&m, NULL, &json, e);
    if (rc == 0 && !(*out = str_take(&json))) rc = err_set_nomem(e);
    str_deinit(&json);
    modelfile_deinit(&m);
    return rc;
}

/* What an adapter is called: as the repository, with letters that a name may have. */
static char *adapter_name(const pull *p) {
    char *name = strdup(p->q->as ? p->q->as : p->ref.repo);
    for (char *c = name; c && *c && !p->q->as; c++) {
        char two[3] = { 'a', *c, 0 };
        if (!registry_adapter_name_ok(two)) *c = '-';
    }
    while (name && !p->q->as && strlen(name) > 1 && !registry_adapter_name_ok(name)) name[strlen(name) - 1] = '\0';
    return name;
}

static int pull_as_adapter(pull *p, const hub_file *config, const hub_file *weights, pull_result *out, err *e) {
    char *paths[2] = { NULL }, *name = adapter_name(p), *model = NULL, *path = NULL;
    err   ignored;
    int   rc = name ? add_hub_file(p, config, e) : err_set_nomem(e);
    if (rc == 0) rc = add_hub_file(p, weights, e);
    if (rc == 0) rc = fetch_all(p, e);
    if (rc == 0) rc = say(p, "writing manifest", e);
    for (size_t i = 0; rc == 0 && i < 2; i++) rc = registry_blob_path(p->r, p->items[i].digest, "", &paths[i], e);
    pull_adapter a = { paths[0], paths[1], weights->path, name, p->q->base };
    if (rc == 0) rc = pull_adapter_enter(p->r, &a, &model, &path, e);
    for (size_t i = 0; i < p->n; i++) blob_unlock(&p->items[i].pin); /* there is a copy */
    if (rc == 0 && registry_blob_sweep(p->r, NULL, &ignored) < 0) log_warn("pull", "%s", ignored.msg);
    if (rc == 0 && out) {
        *out = (pull_result){ .name = model, .path = path, .bytes = p->total, .fetched = p->fetched, .adapter = true };
        model = path = NULL;
    }
    free(model);
    free(path);
    free(name);
    for (size_t i = 0; i < 2; i++) free(paths[i]);
    return rc;
}

static int pull_hub(pull *p, pull_result *out, err *e) {
    hub_listing l = { 0 };
    size_t      config, weights;
    err         odd = { 0 };
    choice      c = { 0 };
    choose_wish w = { p->repo, p->ref.quant, p->q->file ? p->q->file : p->ref.file, p->q->format };
    const char *revision = p->q->revision ? p->q->revision : p->ref.revision;
    size_t      index = SIZE_MAX;
    int         rc = hub_list(&l, &p->c, p->repo, revision, e);
    if (rc == 0) {
        memcpy(p->commit, l.commit, sizeof p->commit);
        if (!w.file && pull_adapter_find(&l, &config, &weights, &odd)) {
            rc = pull_as_adapter(p, &l.files[config], &l.files[weights], out, e);
            hub_listing_deinit(&l);
            return rc;
        }
        if (odd.code) rc = err_set(e, odd.code, "%s: %s", p->repo, odd.msg);
        if (rc == 0 && p->q->base) rc = err_set(e, ERR_ARG, "%s is not an adapter: it needs no --base", p->repo);
        if (rc == 0) rc = choose_files(&c, &l, &w, e);
    }
    if (rc == 0 && c.index != SIZE_MAX) {
        index = c.index;
        rc = read_index(p, &l, &c, e);
    }
    if (rc == 0) rc = add_taken(p, &l, &c, index, e);
    if (rc == 0) rc = fetch_all(p, e);
    char *settings = NULL;
    if (rc == 0 && c.mmproj != SIZE_MAX) rc = projector_settings(p, &l, &c, &settings, e);
    if (rc == 0) {
        finding f = { .links = c.folder || p->n > 1, .settings = settings };
        for (size_t i = 0; i < p->n && !c.folder; i++) {
            if (strcmp(p->items[i].path, l.files[c.main].path) == 0) f.main = &p->items[i];
        }
        rc = enter(p, &f, out, e);
    }
    free(settings);
    choice_deinit(&c);
    hub_listing_deinit(&l);
    return rc;
}

/* --- from an Ollama registry --- */

static bool is_setting(ollama_kind k) {
    return k == OLLAMA_TEMPLATE || k == OLLAMA_SYSTEM || k == OLLAMA_PARAMS || k == OLLAMA_LICENSE ||
           k == OLLAMA_MESSAGES;
}

static int add_layers(pull *p, const ollama_manifest *m, err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        const ollama_layer *l = &m->layers[i];
        if (is_setting(l->kind) && l->size > SMALL_LAYER)
            rc = err_set(e, ERR_LIMIT, "a layer with settings of %lld bytes", (long long)l->size);
        else if (l->kind != OLLAMA_OTHER)
            rc = add_layer(p, l, e);
    }
    return rc;
}

static int read_settings(pull *p, str *out, err *e) {
    modelfile m;
    int       rc = 0;
    modelfile_init(&m);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const item *it = &p->items[i];
        char       *path = NULL, *text = NULL;
        size_t      len;
        if (!is_setting(it->kind) && it->kind != OLLAMA_ADAPTER && it->kind != OLLAMA_PROJECTOR) continue;
        rc = registry_blob_path(p->r, it->digest, "", &path, e);
        if (rc == 0 && it->kind == OLLAMA_ADAPTER) {
            rc = modelfile_add_adapter(&m, path, e);
        } else if (rc == 0 && it->kind == OLLAMA_PROJECTOR) {
            free(m.mmproj);
            m.mmproj = path;
            path = NULL;
        } else if (rc == 0 && (rc = file_read(&text, &len, path, SMALL_LAYER, e)) == 0) {
            rc = ollama_read_layer(&m, it->kind, text, len, e);
        }
        free(text);
        free(path);
    }
    if (rc == 0) rc = modelfile_settings(&m, NULL, out, e);
    modelfile_deinit(&m);
    return rc;
}

static int pull_ollama(pull *p, pull_result *out, err *e) {
    ollama_manifest *m = calloc(1, sizeof *m);
    char            *token = NULL;
    str              settings;
    finding          f = { 0 };
    if (!m) return err_set_nomem(e);
    str_init(&settings);
    int rc = ollama_get_manifest(m, &p->c, p->ref.owner, p->ref.repo, p->ref.tag, &token, e);
    if (rc == 0) rc = add_layers(p, m, e);
    if (rc == 0) rc = fetch_all(p, e);
    if (rc == 0) rc = read_settings(p, &settings, e);
    for (size_t i = 0; i < p->n; i++) {
        if (p->items[i].kind == OLLAMA_MODEL) f.main = &p->items[i];
    }
    if (rc == 0) {
        f.settings = settings.len && strcmp(str_cstr(&settings), "{}") != 0 ? str_cstr(&settings) : NULL;
        rc = enter(p, &f, out, e);
    }
    str_deinit(&settings);
    free(token);
    free(m);
    return rc;
}

/* --- any --- */

void pull_result_deinit(pull_result *p) {
    free(p->name);
    free(p->path);
    memset(p, 0, sizeof *p);
}

static int pull_any(pull *p, pull_result *out, err *e) {
    char other[300];
    if (p->q->as && !registry_name_ok(p->q->as)) return err_set(e, ERR_ARG, "'%s' is not a name for a model", p->q->as);
    if (p->ref.kind == NAME_DEMO || p->ref.kind == NAME_PATH)
        return err_set(e, ERR_ARG,
                       p->ref.kind == NAME_DEMO ? "'%s' ships with Hearth; there is nothing to pull"
                                                : "'%s' is a path; 'hearth create NAME PATH' gives it a name",
                       p->q->name);
    bool hub = p->ref.kind == NAME_HF;
    if (hub) {
        p->c.origin = p->q->hf_endpoint ? p->q->hf_endpoint : PULL_HF_ENDPOINT;
        p->c.token = p->q->hf_token && *p->q->hf_token ? p->q->hf_token : NULL;
        p->c.hint = "HF_TOKEN";
    } else {
        p->c.origin = p->q->ollama_registry ? p->q->ollama_registry : PULL_OLLAMA_REGISTRY;
        if (p->ref.host) {
            snprintf(other, sizeof other, "https://%s", p->ref.host);
            p->c.origin = other;
        }
        if (p->q->file || p->q->revision || p->q->format == PULL_MLX)
            return err_set(e, ERR_ARG, "'%s' is a model of an Ollama registry: it has one file and no revisions",
                           p->q->name);
    }
    if (!http_same_origin(p->c.origin, p->c.origin))
        return err_set(e, ERR_ARG, "'%s' is not a web address to pull from", p->c.origin);
    str s;
    str_init(&s);
    str_printf(&s, "%s/%s", p->ref.owner, p->ref.repo);
    if (!(p->repo = str_take(&s))) return err_set_nomem(e);
    if (!hub_path_ok(view_of(p->repo))) return err_set(e, ERR_ARG, "'%s' is not a name of a repository", p->repo);
    int rc = say(p, "pulling manifest", e);
    if (rc == 0) rc = hub ? pull_hub(p, out, e) : pull_ollama(p, out, e);
    if (rc == 0) tell(p, "success");
    return rc;
}

int pull_model(registry *r, const pull_request *q, const pull_events *ev, pull_result *out, err *e) {
    pull p = { .r = r, .q = q, .ev = ev };
    err  own;
    int  rc;
    if (!e) e = &own; /* sentences are put together on the way */
    if (out) memset(out, 0, sizeof *out);
    p.c = (http_client){ .ca_file = q->ca_file, .patience = q->patience, .ctx = &p, .go_on = on_wait };
    http_patience(&p.c.patience);
    rc = http_open(&p.c.multi, e);
    if (rc == 0) rc = name_parse(&p.ref, q->name, e);
    p.known = known_find(q->name); /* one that only the hub has keeps the short name */
    if (rc == 0) rc = pull_any(&p, out, e);
    for (size_t i = 0; i < p.n; i++) {
        blob_unlock(&p.items[i].pin);
        free(p.items[i].path);
        free(p.items[i].url);
    }
    curl_multi_cleanup(p.c.multi); /* accepts NULL */
    free(p.items);
    free(p.repo);
    name_ref_deinit(&p.ref);
    return rc;
}

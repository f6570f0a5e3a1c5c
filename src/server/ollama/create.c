/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/create: a model out of another one, or out of uploaded files, with what a Modelfile could set.
 *
 * The handler reads and checks the request; the work (files are opened and described, perhaps quantized) is done by a
 * thread of the library, which tells the client how far it is.
 */
#include "registry/create.h"
#include "base/file.h"
#include "convert/quantize.h"
#include "registry/blobs.h"
#include "registry/names.h"
#include "runtime/need.h"
#include "server/handlers.h"
#include "server/http/feed.h"
#include "server/http/json_out.h"
#include "server/internal.h"
#include "server/ollama/ollama.h"
#include "tensor/codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 256 };

typedef struct upload_file {
    char     *name, *digest;
    blob_lock pin;
} upload_file;

typedef struct creation {
    library    *library;
    feed       *feed;
    bool        quiet;
    char       *name, *base, *path; /* from a model of the registry, or a path */
    modelfile   modelfile;
    upload_file files[MAX_FILES], adapters[16], quantized;
    const mix  *quantize; /* NULL: not */
    size_t      n_files, n_adapters;
} creation;

static void creation_free(creation *c) {
    for (size_t i = 0; i < c->n_files + c->n_adapters; i++) {
        upload_file *f = i < c->n_files ? &c->files[i] : &c->adapters[i - c->n_files];
        blob_unlock(&f->pin);
        free(f->name);
        free(f->digest);
    }
    blob_unlock(&c->quantized.pin);
    free(c->quantized.digest);
    modelfile_deinit(&c->modelfile);
    free(c->name);
    free(c->base);
    free(c->path);
    free(c);
}

static void say(creation *c, const char *status) {
    str line;
    if (c->quiet && strcmp(status, "success") != 0) return;
    str_init(&line);
    jw w = jw_of(&line);
    jw_open(&w, '{');
    jw_put_cstr(&w, "status", status);
    jw_close(&w, '}');
    str_push(&line, '\n');
    feed_put(c->feed, str_cstr(&line), line.len);
    str_deinit(&line);
}

/* --- the request --- */

/* {"file name": "sha256:..."} */
static void read_files(exchange *x, const char *key, upload_file *out, size_t max, size_t *n) {
    node        files, value;
    void       *cursor = NULL;
    const char *name;
    if (!read_object(&x->in, &x->body, key, &files)) return;
    while (!x->in.failed && node_next(&files, &cursor, &name, &value)) {
        view digest = node_text(&value);
        if (*n == max) {
            reader_fail(&x->in, &files, "at most %zu files are allowed", max);
        } else if (!*name || strchr(name, '/') || name[0] == '.' || strlen(name) > 200) {
            reader_fail(&x->in, &files, "'%.60s' is not a file name", name);
        } else {
            upload_file *f = &out[*n];
            *f = (upload_file){ strdup(name), strndup(digest.data ? digest.data : "", digest.len), BLOB_LOCK_NONE };
            ++*n;
            if (!f->name || !f->digest)
                reader_fail(&x->in, &value, "out of memory");
            else if (!blob_digest_ok(f->digest))
                reader_fail(&x->in, &value, "expected \"sha256:\" and 64 hexadecimal digits");
        }
    }
}

static char *text_of(const node *value) {
    str s;
    str_init(&s);
    if (node_is(value) == NODE_STRING) {
        view v = node_text(value);
        str_append(&s, v.data, v.len);
        str_append(&s, "", 0);
    } else {
        node_write(value, &s);
    }
    char *text = strdup(str_cstr(&s));
    str_deinit(&s);
    return text;
}

static void add_param(exchange *x, modelfile *m, const char *name, const node *value) {
    err   e = { 0 };
    char *text = text_of(value);
    if (!text || modelfile_add_param(m, name, text, &e) < 0) reader_fail(&x->in, value, "%s", e.msg);
    free(text);
}

static void read_parameters(exchange *x, modelfile *m) {
    node        table, value;
    void       *cursor = NULL;
    const char *name;
    if (!read_object(&x->in, &x->body, "parameters", &table)) return;
    while (!x->in.failed && node_next(&table, &cursor, &name, &value)) {
        if (node_is(&value) != NODE_ARRAY) add_param(x, m, name, &value);
        for (size_t i = 0; i < node_count(&value) && node_is(&value) == NODE_ARRAY; i++) {
            node item = node_at(&value, i);
            add_param(x, m, name, &item);
        }
    }
}

static void read_messages(exchange *x, modelfile *m) {
    node list;
    err  e = { 0 };
    if (!read_array(&x->in, &x->body, "messages", 1024, &list)) return;
    for (size_t i = 0; i < node_count(&list) && !x->in.failed; i++) {
        node at = node_at(&list, i);
        view role = { 0 }, content = { 0 };
        if (!need_kind(&x->in, &at, NODE_OBJECT) || !need_string(&x->in, &at, "role", &role) ||
            !need_string(&x->in, &at, "content", &content))
            return;
        char *r = strndup(role.data, role.len), *c = strndup(content.data, content.len);
        if (!r || !c || modelfile_add_message(m, r, c, &e) < 0) reader_fail(&x->in, &at, "%s", e.msg);
        free(r);
        free(c);
    }
}

static void read_text(exchange *x, const char *key, char **out) {
    view v;
    if (read_string(&x->in, &x->body, key, &v)) *out = strndup(v.data, v.len);
}

/* A text, or several of them. */
static void read_license(exchange *x, modelfile *m) {
    node at = read_any(&x->in, &x->body, "license");
    str  all;
    str_init(&all);
    if (node_is(&at) == NODE_ARRAY) {
        for (size_t i = 0; i < node_count(&at); i++) {
            node item = node_at(&at, i);
            if (!need_kind(&x->in, &item, NODE_STRING)) break;
            str_printf(&all, "%s%.*s", i ? "\n" : "", (int)node_text(&item).len, node_text(&item).data);
        }
    } else if (node_is(&at) == NODE_STRING) {
        str_append(&all, node_text(&at).data, node_text(&at).len);
    } else if (node_is(&at) != NODE_ABSENT) {
        reader_fail(&x->in, &at, "expected a text or a list of texts");
    }
    if (all.len) m->license = strdup(str_cstr(&all));
    str_deinit(&all);
}

static void read_modelfile(exchange *x, modelfile *m) {
    char *template_text = NULL;
    err   e = { 0 };
    read_text(x, "template", &template_text);
    if (template_text && modelfile_set_template(m, template_text, &e) < 0) {
        node at = node_get(&x->body, "template");
        reader_fail(&x->in, &at, "%s", e.msg);
    }
    free(template_text);
    read_text(x, "system", &m->system);
    read_parameters(x, m);
    read_messages(x, m);
    read_license(x, m);
}

/* --- the work --- */

/* Copies a file into the blobs. */
static int adopt_file(registry *r, const char *path, upload_file *out, err *e) {
    blob_writer w;
    file_map    m;
    char        digest[BLOB_DIGEST_CHARS];
    int         rc = file_map_open(&m, path, e);
    if (rc < 0) return rc;
    if ((rc = blob_writer_begin(&w, r, NULL, e)) == 0) {
        for (size_t at = 0; rc == 0 && at < m.bytes; at += 4 << 20) {
            size_t n = m.bytes - at < 4 << 20 ? m.bytes - at : 4 << 20;
            rc = blob_writer_put(&w, m.data + at, n, e);
        }
        if (rc == 0) rc = blob_writer_commit(&w, digest, &out->pin, e);
        blob_writer_abort(&w);
    }
    file_map_close(&m);
    if (rc == 0 && !(out->digest = strdup(digest))) rc = err_set_nomem(e);
    return rc;
}

static int pin_all(registry *r, upload_file *files, size_t n, err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = registry_blob_pin(r, files[i].digest, &files[i].pin, e);
        if (rc == ERR_NOTFOUND)
            err_set(e, ERR_ARG, "%s: there is no blob %s; send it to /api/blobs first", files[i].name, files[i].digest);
    }
    return rc < 0 ? e->code : 0;
}

/* A blob with the model's matrices in another type; it is pinned in c->files[0]. */
static int quantize(registry *r, creation *c, const char *path, err *e) {
    model_file     *in = NULL;
    pool           *p = NULL;
    char           *temp = NULL;
    char            name[64];
    quantize_result done = { 0 };
    /* A sweep knows such names, should this process be killed meanwhile. */
    snprintf(name, sizeof name, "blobs/put-%ld-%llx", (long)getpid(), (unsigned long long)(uintptr_t)c);
    char *folder = NULL;
    int   rc = registry_data_path(r, "blobs", &folder, e);
    if (rc == 0 && mkdir(folder, 0700) != 0 && errno != EEXIST) rc = err_set_errno(e, "cannot create %s", folder);
    free(folder);
    if (rc == 0) rc = registry_data_path(r, name, &temp, e);
    if (rc == 0) rc = model_file_open(&in, path, e);
    if (rc == 0) rc = pool_open(&p, 1, false, e); /* the cores belong to the requests */
    if (rc == 0) {
        quantize_options o = { .mix = c->quantize, .write = { .path = temp } };
        rc = gguf_quantize(in, &o, p, &done, e);
        quantize_result_deinit(&done);
    }
    pool_free(p);
    model_file_free(in);
    if (rc == 0) rc = adopt_file(r, temp, &c->quantized, e);
    if (temp) unlink(temp);
    free(temp);
    return rc;
}

/* The model that is quantized, with the settings of the base; its file takes the place of what the request named. */
static int quantize_source(registry *r, creation *c, create_request *q, const char **digests, char **path, err *e) {
    registry_model base = { 0 };
    int            rc = q->base ? registry_find(r, q->base, &base, e) : 0;
    if (rc == 0) rc = quantize(r, c, base.path ? base.path : q->path, e);
    if (rc == 0) {
        char *to = NULL;
        rc = registry_blob_path(r, c->quantized.digest, "", &to, e);
        free(*path);
        *path = to;
        q->path = to;
        for (size_t i = 0; i < c->n_adapters; i++) digests[i] = c->adapters[i].digest;
        digests[c->n_adapters] = c->quantized.digest;
        q->n_digests = c->n_adapters + 1;
        q->settings_of = q->base;
        q->base = NULL;
    }
    registry_model_deinit(&base);
    return rc;
}

static int create(registry *r, creation *c, err *e) {
    const char    *digests[MAX_FILES + 16], *names[MAX_FILES];
    create_request q = { .name = c->name, .base = c->base, .modelfile = &c->modelfile, .replace = true };
    char          *path = NULL;
    int            rc;
    if ((rc = pin_all(r, c->files, c->n_files, e)) < 0 || (rc = pin_all(r, c->adapters, c->n_adapters, e)) < 0)
        return rc;
    for (size_t i = 0; i < c->n_files; i++) {
        names[i] = c->files[i].name;
        digests[q.n_digests++] = c->files[i].digest;
    }
    for (size_t i = 0; rc == 0 && i < c->n_adapters; i++) {
        char *at = NULL;
        digests[q.n_digests++] = c->adapters[i].digest;
        if ((rc = registry_blob_path(r, c->adapters[i].digest, "", &at, e)) == 0)
            rc = modelfile_add_adapter(&c->modelfile, at, e);
        free(at);
    }
    q.digests = digests;
    blob_lock folders = BLOB_LOCK_NONE;
    if (rc == 0 && c->n_files > 1) rc = registry_folders_lock(r, &folders, e);
    if (rc == 0 && c->n_files > 1)
        rc = registry_link_folder(r, names, digests, c->n_files, &path, e);
    else if (rc == 0 && c->n_files == 1)
        rc = registry_blob_path(r, c->files[0].digest, "", &path, e);
    q.path = path ? path : c->path;
    if (rc == 0 && c->quantize) {
        char status[64];
        snprintf(status, sizeof status, "quantizing to %s", mix_name(c->quantize));
        say(c, status);
        rc = quantize_source(r, c, &q, digests, &path, e);
    }
    if (rc == 0) {
        say(c, "reading model metadata");
        rc = registry_create(r, &q, NULL, e);
    }
    blob_unlock(&folders);
    if (rc == 0) say(c, "writing manifest");
    free(path);
    return rc;
}

static void create_work(void *ctx) {
    creation *c = ctx;
    registry *r = NULL;
    err       e = { 0 };
    int       rc = library_registry(c->library, &r, &e);
    if (rc == 0) rc = create(r, c, &e);
    registry_close(r);
    feed *f = c->feed;
    if (rc == 0) {
        library_refresh(c->library);
        say(c, "success");
    }
    creation_free(c);
    feed_end(f, rc < 0 ? &e : NULL);
}

/* --- the handler --- */

/* Files of an upload, or a model that is here. */
static int find_source(exchange *x, creation *c, const char *from, err *e) {
    registry      *r = NULL;
    registry_model m = { 0 };
    int            rc;
    if (c->n_files) return from ? err_set(e, ERR_ARG, "give from or files, not both") : 0;
    if (!from || !*from) return err_set(e, ERR_ARG, "either from or files is required");
    if ((rc = library_registry(c->library, &r, e)) == 0) rc = ollama_find_base(x, r, from, &m, e);
    if (rc == 0 && m.name) {
        c->base = m.name;
        m.name = NULL;
    } else if (rc == 0) {
        c->path = m.path;
        m.path = NULL;
    }
    registry_model_deinit(&m);
    registry_close(r);
    return rc;
}

void ollama_create(exchange *x) {
    library  *l = ollama_library(x);
    creation *c = l ? calloc(1, sizeof *c) : NULL;
    bool      stream = true;
    view      quantize_to;
    char     *from = NULL;
    err       e = { 0 };
    if (!l) return;
    if (!c) {
        exchange_error_nomem(x);
        return;
    }
    modelfile_init(&c->modelfile);
    c->library = l;
    c->quantized.pin = BLOB_LOCK_NONE;
    char *name = ollama_need_model(x);
    if (name && !(c->name = strdup(name))) name = NULL;
    if (name && !x->in.failed && !registry_name_ok(name))
        reader_fail(&x->in, NULL, "model: '%.60s' is not a name for a model", name);
    read_bool(&x->in, &x->body, "stream", &stream);
    c->quiet = !stream;
    read_text(x, "from", &from);
    read_files(x, "files", c->files, MAX_FILES, &c->n_files);
    read_files(x, "adapters", c->adapters, 16, &c->n_adapters);
    read_modelfile(x, &c->modelfile);
    if (read_string(&x->in, &x->body, "quantize", &quantize_to) && quantize_to.len) {
        node  at = node_get(&x->body, "quantize");
        char *type = ollama_copy(x, quantize_to);
        if (type && mix_find(&c->quantize, type, &e) < 0) reader_fail(&x->in, &at, "%s", e.msg);
    }
    if (node_is(&x->body) == NODE_OBJECT && node_get(&x->body, "modelfile").json) {
        node at = node_get(&x->body, "modelfile");
        reader_fail(&x->in, &at, "is an obsolete field; use from, system, parameters, ...");
    }
    if (name && !x->in.failed && find_source(x, c, from, &e) < 0) {
        exchange_error_from(x, &e);
    } else if (x->in.failed) {
        exchange_reject(x);
    } else if (name && (c->feed = exchange_feed(x, stream ? "application/x-ndjson" : NULL))) {
        feed *f = c->feed;
        if (library_start(l, create_work, c, &e) == 0)
            c = NULL;
        else
            feed_end(f, &e);
    }
    free(from);
    if (c) creation_free(c);
}

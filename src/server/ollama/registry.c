/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/pull, /api/push, /api/copy; DELETE /api/delete */
#include "base/log.h"
#include "registry/blobs.h"
#include "registry/create.h"
#include "registry/names.h"
#include "server/handlers.h"
#include "server/http/feed.h"
#include "server/http/json_out.h"
#include "server/internal.h"
#include "server/ollama/ollama.h"

#include <stdlib.h>
#include <string.h>

library *ollama_library(exchange *x) {
    library *l = x->server->options.library;
    if (!l)
        exchange_error(x, 501, "not_implemented", NULL,
                       "this server offers only the models it was started with (hearth serve --model NAME=PATH): it "
                       "does not pull, create, copy or delete models");
    return l;
}

char *ollama_copy(exchange *x, view text) {
    char *copy = arena_strndup(&x->arena, text.data, text.len);
    if (!copy) exchange_error_nomem(x);
    return copy;
}

char *ollama_need_model(exchange *x) {
    view name = { 0 };
    if (!read_string(&x->in, &x->body, "model", &name))
        need_string(&x->in, &x->body, "name", &name); /* older clients */
    return ollama_copy(x, name);
}

static void write_progress(str *out, const pull_progress *p) {
    jw w = jw_of(out);
    jw_open(&w, '{');
    jw_put_cstr(&w, "status", p->status);
    if (p->digest && strncmp(p->status, "pulling ", 8) == 0) { /* clients make a bar of what has a digest */
        jw_put_cstr(&w, "digest", p->digest);
        jw_put_int(&w, "total", p->total);
        if (p->completed) jw_put_int(&w, "completed", p->completed);
    }
    jw_close(&w, '}');
    str_push(out, '\n');
}

/* Where models are fixed, one that is here was pulled already: clients ask before every run. */
static bool is_here(exchange *x) {
    node name = read_any(&x->in, &x->body, "model"), old = read_any(&x->in, &x->body, "name");
    view said = node_is(&name) == NODE_STRING ? node_text(&name) : node_text(&old);
    str  b;
    if (x->server->options.library || !said.len || host_find(x->host, said, &(host_model){ 0 }, NULL) < 0) return false;
    read_any(&x->in, &x->body, "stream");
    str_init(&b);
    str_puts(&b, "{\"status\":\"success\"}\n");
    exchange_reply(x, 200, "application/x-ndjson", &b);
    return true;
}

void ollama_pull_with(exchange *x, pull_writer *write, const char *stream_type) {
    if (is_here(x)) return;
    library *l = ollama_library(x);
    bool     stream = true, insecure = false;
    err      e = { 0 };
    if (!l) return;
    char *name = ollama_need_model(x);
    read_bool(&x->in, &x->body, "stream", &stream);
    if (read_bool(&x->in, &x->body, "insecure", &insecure) && insecure) {
        node at = node_get(&x->body, "insecure");
        reader_fail(&x->in, &at, "certificates are always checked");
    }
    read_any(&x->in, &x->body, "username");
    read_any(&x->in, &x->body, "password");
    if (!name) return;
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    feed *f = exchange_feed(x, stream ? stream_type : NULL);
    if (f && library_pull(l, name, !stream, write, f, &e) < 0) feed_end(f, &e);
}

void ollama_pull(exchange *x) { ollama_pull_with(x, write_progress, "application/x-ndjson"); }

void ollama_push(exchange *x) {
    exchange_error(x, 501, "not_implemented", NULL,
                   "this server does not push models: it has no registry of its own to push to");
}

/* A model of the registry, by any of its names; or one that the server was started with, as a path. */
int ollama_find_base(exchange *x, registry *r, const char *name, registry_model *m, err *e) {
    host_model h;
    int        rc = names_find(r, name, NULL, m, e);
    if (rc != ERR_NOTFOUND || host_find(x->host, view_of(name), &h, NULL) < 0) return rc;
    m->path = strdup(h.path);
    return m->path ? 0 : err_set_nomem(e);
}

static void answer_empty(exchange *x, int rc, const err *e) {
    str b;
    str_init(&b);
    if (rc < 0)
        exchange_error_from(x, e);
    else
        exchange_reply(x, 200, "text/plain", &b);
}

void ollama_copy_model(exchange *x) {
    library       *l = ollama_library(x);
    registry      *r = NULL;
    registry_model m = { 0 };
    view           source = { 0 }, destination = { 0 };
    err            e = { 0 };
    if (!l) return;
    need_string(&x->in, &x->body, "source", &source);
    need_string(&x->in, &x->body, "destination", &destination);
    char *from = ollama_copy(x, source), *to = ollama_copy(x, destination);
    if (!from || !to) return;
    if (!x->in.failed && !registry_name_ok(to)) {
        node at = node_get(&x->body, "destination");
        reader_fail(&x->in, &at, "is not a name for a model");
    }
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    int rc = library_registry(l, &r, &e);
    if (rc == 0) rc = ollama_find_base(x, r, from, &m, &e);
    if (rc == 0 && m.name)
        rc = registry_copy(r, m.name, to, true, &e);
    else if (rc == 0)
        rc = registry_create(r, &(create_request){ .name = to, .path = m.path, .replace = true }, NULL, &e);
    registry_model_deinit(&m);
    registry_close(r);
    library_refresh(l);
    answer_empty(x, rc, &e);
}

void ollama_delete(exchange *x) {
    library       *l = ollama_library(x);
    registry      *r = NULL;
    registry_model m = { 0 };
    int64_t        freed = 0;
    err            e = { 0 };
    if (!l) return;
    char *name = ollama_need_model(x);
    if (!name) return;
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    int rc = library_registry(l, &r, &e);
    if (rc == 0) rc = names_find(r, name, NULL, &m, &e);
    if (rc == ERR_NOTFOUND && host_find(x->host, view_of(name), &(host_model){ 0 }, NULL) == 0)
        rc = err_set(&e, ERR_ARG, "'%.100s' is not in the registry: the server was started with it", name);
    if (rc == 0) rc = registry_remove(r, m.name, &e);
    if (rc == 0) {
        library_refresh(l); /* the host lets go of it before its file goes */
        err why = { 0 };
        if (registry_blob_sweep(r, &freed, &why) < 0) log_warn("library", "%s", why.msg);
        log_info("library", "removed %s, freed %lld bytes", m.name, (long long)freed);
    }
    registry_model_deinit(&m);
    registry_close(r);
    answer_empty(x, rc, &e);
}

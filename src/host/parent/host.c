/* SPDX-License-Identifier: Apache-2.0 */
/* Names, requests and calls: what callers of the host see. The keeper decides what is loaded. */
#include "host/host.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "host/decoder/decoder.h"
#include "host/parent/internal.h"
#include "runtime/need.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DEFAULT_LOADED = 4,
    DEFAULT_KEEP_MS = 5 * 60 * 1000,
    DEFAULT_WAIT_MS = 5 * 60 * 1000,
    DEFAULT_YIELD_MS = 2000,
    STAT_WAIT_MS = 30 /* an answer takes about 100 us; the I/O thread may be waiting */
};

/* --- names --- */

static view bare_name(view name) {
    static const char tag[] = ":latest";
    if (view_ends(name, tag)) name.len -= sizeof tag - 1;
    return name;
}

static model *find_model(host *h, view name) {
    name = bare_name(name);
    for (model *m = h->models; m; m = m->next) {
        if (!m->removed && view_eq_c(name, m->info.name)) return m;
    }
    return NULL;
}

static model *need_model(host *h, view name, err *e) {
    model *m = find_model(h, name);
    if (!m) err_set(e, ERR_NOTFOUND, "model '%.*s' not found", (int)(name.len > 100 ? 100 : name.len), name.data);
    return m;
}

static uint64_t path_bytes(const char *path, int64_t *modified) {
    struct stat st;
    if (stat(path, &st) != 0) return 0;
    *modified = (int64_t)st.st_mtime;
    return S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

int host_add_model(host *h, const char *name, const char *path, err *e) {
    return host_add_model_with(h, name, path, &(host_model_options){ .keep_alive_ms = HOST_KEEP_DEFAULT }, e);
}

int host_add_model_with(host *h, const char *name, const char *path, const host_model_options *o, err *e) {
    view   bare = bare_name(view_of(name));
    model *m;
    if (bare.len == 0 || bare.len >= sizeof m->info.name)
        return err_set(e, ERR_ARG, "model name '%.40s': bad length", name);
    for (size_t i = 0; i < bare.len; i++) {
        unsigned char c = (unsigned char)bare.data[i];
        if (c <= 0x20 || c >= 0x7f || c == '"' || c == '\\')
            return err_set(e, ERR_ARG, "model name '%.40s': letters, digits and punctuation only", name);
    }
    if (strlen(path) >= sizeof m->info.path) return err_set(e, ERR_ARG, "model %s: the path is too long", name);
    if (!file_exists(path) && !dir_exists(path))
        return err_set(e, ERR_NOTFOUND, "model %s: there is no %s", name, path);
    m = calloc(1, sizeof *m);
    if (!m) return err_set_nomem(e);
    memcpy(m->info.name, bare.data, bare.len);
    snprintf(m->info.path, sizeof m->info.path, "%s", path);
    m->host = h;
    arena_init(&m->mem, 0);
    m->info.file_bytes = path_bytes(path, &m->info.modified);
    m->own_keep_ms = o->keep_alive_ms;
    m->info.pinned = o->pinned;
    if (o->settings && !(m->settings = runtime_settings_copy(o->settings))) {
        model_free(m);
        return err_set_nomem(e);
    }
    pthread_mutex_lock(&h->lock);
    model **end = &h->models;
    bool    known = find_model(h, bare) != NULL;
    while (*end) end = &(*end)->next;
    if (!known) *end = m;
    if (!known) model_join(h, m);
    m->worker = ++h->last_worker;
    pthread_mutex_unlock(&h->lock);
    if (!known) return 0;
    model_free(m);
    return err_set(e, ERR_ARG, "model %s was given twice", name);
}

int host_remove_model(host *h, view name, err *e) {
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    if (m) m->removed = true;
    pthread_cond_signal(&h->keeper_wake);
    pthread_mutex_unlock(&h->lock);
    return m ? 0 : ERR_NOTFOUND;
}

void model_free(model *m) {
    arena_deinit(&m->mem);
    runtime_settings_free(m->settings);
    free(m->template_text);
    free(m);
}

/* --- opening and closing --- */

static void fill_defaults(host_options *o) {
    if (o->max_loaded <= 0) o->max_loaded = DEFAULT_LOADED;
    if (o->keep_alive_ms == HOST_KEEP_DEFAULT) o->keep_alive_ms = DEFAULT_KEEP_MS;
    if (o->wait_ms <= 0) o->wait_ms = DEFAULT_WAIT_MS;
    if (o->yield_ms <= 0) o->yield_ms = DEFAULT_YIELD_MS;
    if (!device_memory_on(&o->budget, DEVICE_CPU)) {
        uint64_t most = machine_memory_available(NULL) / 5 * 4;
        (void)device_memory_set(&o->budget, DEVICE_CPU, most ? most : HOST_NO_LIMIT); /* 0: the system does not say */
    }
    nn_device devices[NN_MAX_DEVICES];
    for (int i = 0, n = backend_devices(devices, NN_MAX_DEVICES); i < n; i++) {
        if (devices[i].kind == NN_DEVICE_GPU && !device_memory_on(&o->budget, devices[i].id))
            (void)device_memory_set(&o->budget, devices[i].id, devices[i].total_bytes / 10 * 9);
    }
}

int host_open(host **out, const host_options *o, err *e) {
    host *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return err_set_nomem(e);
    h->options = *o;
    fill_defaults(&h->options);
    pthread_mutex_init(&h->lock, NULL);
    clock_cond_init(&h->keeper_wake);
    clock_cond_init(&h->changed);
    int rc = pthread_create(&h->keeper, NULL, keeper_main, h);
    h->keeper_runs = rc == 0;
    if (rc != 0) {
        host_free(h);
        return err_set(e, ERR_IO, "cannot start the host's thread: %s", strerror(rc));
    }
    *out = h;
    return 0;
}

void host_on_batch(host *h, void (*fn)(void *ctx, bool begins), void *ctx) {
    pthread_mutex_lock(&h->lock);
    h->on_batch = fn;
    h->batch_ctx = ctx;
    pthread_mutex_unlock(&h->lock);
}

/* All workers end at the same time; each thread delivers the last events of its own. */
static void end_workers(host *h) {
    pthread_mutex_lock(&h->lock);
    for (model *m = h->models; m; m = m->next) {
        if (!m->child) continue;
        if (m->phase != MODEL_OVER) m->phase = MODEL_STOPPING; /* nobody begins to use it any more */
        child_stop(m->child);
    }
    for (model *m = h->models; m; m = m->next) {
        child *c = m->child;
        while (m->holders) pthread_cond_wait(&h->changed, &h->lock);
        m->child = NULL;
        pthread_mutex_unlock(&h->lock);
        child_free(c);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
}

void host_free(host *h) {
    err why = { 0 };
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->closing = true;
    pthread_cond_broadcast(&h->keeper_wake);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (h->keeper_runs) pthread_join(h->keeper, NULL);
    err_set(&why, ERR_CANCELLED, "the server is stopping");
    pthread_mutex_lock(&h->lock);
    for (model *m = h->models; m; m = m->next) host_request_fail_waiting(h, m, UINT64_MAX, &why);
    pthread_mutex_unlock(&h->lock);
    end_workers(h);
    pthread_mutex_lock(&h->lock);
    while (h->inside) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
    while (h->models) {
        model *m = h->models;
        h->models = m->next;
        model_free(m);
    }
    pthread_cond_destroy(&h->keeper_wake);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* --- requests --- */

static bool is_open(const model *m) { return m->phase == MODEL_UP && !m->leaving && !m->yielding; }

/* By this name, which may share another's worker. */
static void want(host *h, model *m, int64_t keep_ms) {
    model *w = model_carrier(m);
    if (keep_ms != HOST_KEEP_DEFAULT)
        m->keep_ms = keep_ms;
    else if (w->phase != MODEL_UP || !m->used)
        m->keep_ms = m->own_keep_ms != HOST_KEEP_DEFAULT ? m->own_keep_ms : h->options.keep_alive_ms;
    m->used = true;
    m->last_used = w->last_used = clock_ms();
    if (!is_open(w)) {
        w->wanted = true;
        pthread_cond_signal(&h->keeper_wake);
    }
}

/* It begins again when what it works on is over. */
static void widen(host *h, model *m) {
    model *w = model_carrier(m);
    if (!is_open(w) || model_reaches(h, w, m)) return;
    w->leaving = w->wanted = true;
    pthread_cond_signal(&h->keeper_wake);
}

int host_submit(host *h, view name, const runtime_request *q, int64_t keep_alive_ms,
                void (*on_event)(void *ctx, const host_event *ev), void *ctx, uint64_t *id, err *e) {
    host_request *r = calloc(1, sizeof *r);
    if (!r) return err_set_nomem(e);
    *r = (host_request){ .q = q, .on_event = on_event, .ctx = ctx };
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    int    rc = m ? 0 : ERR_NOTFOUND;
    if (rc == 0) rc = host_request_enlist(h, m, r, e);
    if (rc < 0) {
        pthread_mutex_unlock(&h->lock);
        free(r);
        return rc;
    }
    *id = r->id;
    want(h, m, keep_alive_ms);
    widen(h, m);
    if (is_open(r->model)) host_request_send(h, r);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

static host_request *find_request(host *h, uint64_t id) {
    host_request *r = h->slots[id % HOST_MAX_REQUESTS];
    return r && r->id == id && r->q ? r : NULL;
}

void host_cancel(host *h, uint64_t id) {
    err why = { 0 };
    pthread_mutex_lock(&h->lock);
    host_request *r = find_request(h, id);
    if (r && r->sent) {
        if (!r->cancelled) {
            r->cancelled = true;
            host_request_steer(r, WIRE_CANCEL);
        }
        r = NULL;
    }
    if (r) host_request_end(h, r);
    pthread_mutex_unlock(&h->lock);
    if (!r) return;
    err_set(&why, ERR_CANCELLED, "cancelled");
    host_request_fail(r, &why);
}

static void set_paused(host *h, uint64_t id, bool paused) {
    pthread_mutex_lock(&h->lock);
    host_request *r = find_request(h, id);
    if (r && r->paused != paused) {
        r->paused = paused;
        if (r->sent) r->model->paused += paused ? 1 : -1;
        host_request_steer(r, paused ? WIRE_PAUSE : WIRE_RESUME);
    }
    pthread_mutex_unlock(&h->lock);
}

void host_pause(host *h, uint64_t id) { set_paused(h, id, true); }

void host_resume(host *h, uint64_t id) { set_paused(h, id, false); }

int host_read_event(const runtime_request *q, view body, arena *mem, runtime_event *out, err *e) {
    int rc = wire_get_event(body, mem, out, e);
    if (rc < 0) return rc;
    bool stopped = out->kind == RUNTIME_DONE && out->finish == RUNTIME_STOP_STRING;
    if (stopped && (out->stop_index < -1 || out->stop_index >= (int)q->n_stop)) /* -1: a text of the settings */
        return err_set(e, ERR_FORMAT, "a stop text that the request does not have");
    return 0;
}

void host_distrust(host *h, uint64_t worker, err *why) {
    child_not_understood(why);
    pthread_mutex_lock(&h->lock);
    for (model *m = h->models; m; m = m->next) {
        if (m->worker == worker && m->child) child_distrust(m->child, why);
    }
    pthread_mutex_unlock(&h->lock);
}

/* --- blocking calls --- */

/* With the lock held: waits until the worker of a name is there; it stays until put. */
static int hold(host *h, view name, int64_t keep_ms, model **out, err *e) {
    model *m = need_model(h, name, e), *w = m ? model_carrier(m) : NULL;
    int    rc = m ? 0 : ERR_NOTFOUND;
    *out = m;
    if (!m) return rc;
    uint64_t loads = w->loads;
    h->inside++;
    want(h, m, keep_ms);
    w->waiters++;
    m->asked++;
    while (!h->closing && !is_open(w) && w->loads == loads) pthread_cond_wait(&h->changed, &h->lock);
    w->waiters--;
    pthread_cond_signal(&h->keeper_wake);
    if (h->closing)
        rc = err_set(e, ERR_CANCELLED, "the server is stopping");
    else if (is_open(w))
        w->users++;
    else
        rc = err_set(e, w->load_error.code == ERR_BUSY ? ERR_BUSY : ERR_UNLOADED, "cannot load model %s: %s",
                     m->info.name, w->load_error.code ? w->load_error.msg : "it is being unloaded");
    if (rc < 0) {
        m->asked--;
        h->inside--;
        pthread_cond_broadcast(&h->changed);
    }
    return rc;
}

static void put(host *h, model *m) {
    model *w = model_carrier(m);
    w->users--;
    m->asked--;
    m->last_used = w->last_used = clock_ms();
    h->inside--;
    pthread_cond_signal(&h->keeper_wake);
    if (h->closing) pthread_cond_broadcast(&h->changed);
}

typedef struct question {
    wire_type              type;
    wire_text_call         text;
    wire_ids_call          ids;
    const runtime_request *q;
} question;

static int put_question(str *s, uint64_t id, const question *a, const model *m, err *e) {
    runtime_request q;
    switch (a->type) {
    case WIRE_TOKENIZE: return wire_put_text_call(s, id, &a->text, e);
    case WIRE_DETOKENIZE: return wire_put_ids_call(s, id, &a->ids, e);
    default:
        q = *a->q;
        q.settings = model_wishes(m);
        return wire_put_request(s, a->type, id, &q, e);
    }
}

/* Sends a call to a model that is held and waits for its result. With the lock held; releases it meanwhile. */
static int ask_worker(host *h, model *named, const question *a, host_request *r, err *e) {
    model *m = model_carrier(named);
    str    s;
    r->sent = r->done = false;
    if (m->phase != MODEL_UP) return err_set(e, ERR_IO, "%s", m->end_why.msg);
    int rc = host_request_enlist(h, named, r, e);
    if (rc < 0) return rc;
    child *c = m->child;
    r->sent = true;
    m->users++;
    m->holders++;
    pthread_mutex_unlock(&h->lock);
    str_init(&s);
    rc = put_question(&s, r->id, a, named, e);
    if (rc == 0) rc = child_send(c, s.data, s.len, e);
    str_deinit(&s);
    pthread_mutex_lock(&h->lock);
    model_release(m);
    if (rc == ERR_IO && m->phase == MODEL_UP) m->phase = MODEL_STOPPING; /* by itself */
    while (rc == 0 && !r->done) pthread_cond_wait(&h->changed, &h->lock);
    host_request_end(h, r);
    if (rc == 0 && r->result.code < 0) {
        rc = r->result.code;
        if (e) *e = r->result;
    }
    return rc;
}

static int ask(host *h, view name, const question *a, host_request *r, err *e) {
    model *m;
    pthread_mutex_lock(&h->lock);
    int rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e);
    if (rc == 0) {
        rc = ask_worker(h, m, a, r, e);
        put(h, m);
    }
    if (rc == ERR_IO && !r->done && (rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e)) == 0) { /* it never saw the call */
        rc = ask_worker(h, m, a, r, e);
        put(h, m);
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

int host_want(host *h, view name, err *e) {
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    if (m) {
        want(h, m, HOST_KEEP_DEFAULT);
        model_carrier(m)->ahead = true;
    }
    pthread_mutex_unlock(&h->lock);
    return m ? 0 : ERR_NOTFOUND;
}

int host_load(host *h, view name, int64_t keep_alive_ms, err *e) {
    model *m;
    pthread_mutex_lock(&h->lock);
    if ((m = find_model(h, name))) quarantine_forgive(&h->quarantine, quarantine_identity(m->info.path));
    int rc = hold(h, name, keep_alive_ms, &m, e);
    if (rc == 0) put(h, m);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Ends what came by this name. */
static void cancel_named(model *m) {
    for (host_request *r = model_carrier(m)->requests; r; r = r->next) {
        if (r->named != m || !r->sent || !r->q || r->cancelled) continue; /* one that waits will load the model anew */
        r->cancelled = true;
        host_request_steer(r, WIRE_CANCEL);
    }
}

int host_unload(host *h, view name, err *e) {
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e), *w = m ? model_carrier(m) : NULL;
    bool   stays = m && model_used_otherwise(m);
    if (m && w->phase == MODEL_UP) cancel_named(m);
    if (stays) m->used = false;
    if (m && w->phase == MODEL_UP && !stays) {
        w->leaving = true;
        w->wanted = false;
        pthread_cond_signal(&h->keeper_wake);
        h->inside++;
        w->waiters++;
        while (w->leaving && !h->closing) pthread_cond_wait(&h->changed, &h->lock);
        w->waiters--;
        h->inside--;
        pthread_cond_signal(&h->keeper_wake);
        if (h->closing) pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return m ? 0 : ERR_NOTFOUND;
}

int host_tokenize(host *h, view name, view text, bool add_special, bool parse_special, tok_ids *out, err *e) {
    question     a = { .type = WIRE_TOKENIZE, .text = { text, add_special, parse_special } };
    host_request r = { .ids = out };
    return ask(h, name, &a, &r, e);
}

int host_detokenize(host *h, view name, const int32_t *tokens, size_t n, bool keep_special, str *out, err *e) {
    question     a = { .type = WIRE_DETOKENIZE, .ids = { tokens, n, keep_special } };
    host_request r = { .text = out };
    return ask(h, name, &a, &r, e);
}

int host_render(host *h, view name, const runtime_request *q, str *out, err *e) {
    question     a = { .type = WIRE_RENDER, .q = q };
    host_request r = { .text = out };
    return ask(h, name, &a, &r, e);
}

int host_count(host *h, view name, const runtime_request *q, size_t *out, err *e) {
    question     a = { .type = WIRE_COUNT, .q = q };
    host_request r = { .count = out };
    return ask(h, name, &a, &r, e);
}

static decoder_options decoder_of(const host *h) {
    return (decoder_options){ .program = h->options.program,
                              .env = h->options.worker_env,
                              .no_sandbox = h->options.no_sandbox };
}

int host_read_picture(host *h, view file, pixels *out, err *e) {
    decoder_options o = decoder_of(h);
    return decoder_read(out, file, &o, e);
}

int host_read_sound(host *h, view file, sound *out, err *e) {
    decoder_options o = decoder_of(h);
    return decoder_hear(out, file, &o, e);
}

int host_template(host *h, view name, str *out, err *e) {
    model *m;
    pthread_mutex_lock(&h->lock);
    int rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e);
    if (rc == 0) {
        if (model_carrier(m)->template_text) str_puts(out, model_carrier(m)->template_text);
        if (!str_ok(out)) rc = err_set_nomem(e);
        put(h, m);
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* --- what is there --- */

/* What is said of a worker that several names share: memory under one of them, the rest under those that used it. */
static void snapshot_shared(const model *m, const model *w, host_model *out) {
    memcpy(out->name, m->info.name, sizeof out->name);
    out->pinned = m->info.pinned;
    out->active = m->asked;
    if (!m->used) out->state = HOST_UNLOADED;
    if (!m->used) out->pid = 0;
    if (model_bears(m) || !w->placed) return;
    out->need_bytes = 0;
    out->need = (device_memory){ 0 };
}

static void snapshot(host *h, model *m, host_model *out) {
    const model *w = model_carrier(m);
    *out = w->info;
    model_parent(m, out->parent, sizeof out->parent);
    out->active = w->users;
    out->state = w->phase == MODEL_UP                                 ? HOST_LOADED
                 : w->phase >= MODEL_MEASURING && w->phase < MODEL_UP ? HOST_LOADING
                                                                      : HOST_UNLOADED;
    out->quarantined = quarantine_holds_path(&h->quarantine, w->info.path);
    if (out->state == HOST_LOADING) out->load_seconds = (double)(clock_ms() - w->load_begin) / 1000;
    if (w->child) out->pid = (int)child_pid(w->child);
    if (m->shares || w->sharers) snapshot_shared(m, w, out);
    if (w->phase != MODEL_UP || out->state != HOST_LOADED) return;
    int64_t expiry = model_expiry(w);
    out->expires_ms = expiry == INT64_MAX ? HOST_KEEP_FOREVER : w->users ? m->keep_ms : expiry - clock_ms();
}

int host_list(host *h, host_model **out, size_t *n, err *e) {
    size_t count = 0, i = 0;
    pthread_mutex_lock(&h->lock);
    for (model *m = h->models; m; m = m->next) count += !m->removed;
    *n = count;
    *out = calloc(count + 1, sizeof **out);
    for (model *m = h->models; m && *out; m = m->next) {
        if (!m->removed) snapshot(h, m, &(*out)[i++]);
    }
    pthread_mutex_unlock(&h->lock);
    return *out ? 0 : err_set_nomem(e);
}

int host_find(host *h, view name, host_model *out, err *e) {
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    if (m) snapshot(h, m, out);
    pthread_mutex_unlock(&h->lock);
    return m ? 0 : ERR_NOTFOUND;
}

void host_stat(host *h, host_stats *out) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&h->lock);
    out->runtime = h->gone;
    out->limit_bytes = device_memory_on(&h->options.budget, DEVICE_CPU);
    out->budget = h->options.budget;
    out->crashes = h->crashes;
    h->inside++;
    for (model *m = h->models; m; m = m->next) {
        out->n_models += !m->removed;
        out->n_loading += m->phase >= MODEL_MEASURING && m->phase < MODEL_UP;
        out->n_loaded += m->phase == MODEL_UP;
        if (m->phase == MODEL_UP) out->loaded_bytes += m->info.file_bytes;
        if (m->placed) out->need_bytes += device_memory_on(&m->need, DEVICE_CPU);
        if (m->placed) (void)device_memory_add_all(&out->need, &m->need);
    }
    for (model *m = h->models; m; m = m->next) {
        runtime_stats s = { 0 };
        child        *c = m->child;
        if (m->phase != MODEL_UP) continue;
        m->holders++; /* also keeps m in the list */
        pthread_mutex_unlock(&h->lock);
        child_stat(c, &s, STAT_WAIT_MS);
        pthread_mutex_lock(&h->lock);
        model_release(m);
        model_add_stats(&out->runtime, &s, m->phase == MODEL_UP);
    }
    h->inside--;
    if (h->closing) pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

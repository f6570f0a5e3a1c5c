/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host in one process: every loaded model is a runtime of this program.
 *
 * One thread (the keeper) loads and unloads, so callers never wait for a file. A model in use is held by `users`: a
 * request from submit to its last event, or a caller of the blocking functions. The keeper frees a runtime only with no
 * users; freeing joins the runtime's threads, so a callback that is just returning is safe.
 *
 * Locking: h->lock guards everything in host, model and ticket. No callback and no runtime function that may wait is
 * called with it held.
 */
#include "host/host.h"

#include "base/file.h"
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { DEFAULT_LOADED = 4, DEFAULT_KEEP_MS = 5 * 60 * 1000, MAX_TICKETS = 4096 };

typedef struct model model;

/* A request between submit and its last event. */
typedef struct ticket ticket;
struct ticket {
    ticket                *prev, *next; /* of its model */
    host                  *host;
    model                 *model;
    uint64_t               id, runtime_id;
    const runtime_request *q;
    bool                   submitted, cancelled, paused;
};

struct model {
    model     *next;
    host_model info;
    runtime   *runtime;
    bool       wanted;    /* somebody waits for it */
    bool       leaving;   /* unload as soon as nobody uses it */
    bool       removed;   /* nobody finds it any more; the keeper frees it as soon as nobody uses it */
    int        users;     /* requests in the runtime, and callers that hold it */
    int        waiters;   /* callers that wait for it */
    int64_t    keep_ms;   /* of the last request */
    int64_t    last_used; /* monotonic ms */
    ticket    *tickets;
    err        load_error; /* of the last attempt */
    uint64_t   loads;      /* attempts that are over */
    /* As the owner wishes; never changed. */
    runtime_settings *settings;
    int64_t           own_keep_ms;
    bool              pinned;
};

struct host {
    host_options    options;
    pthread_mutex_t lock;
    pthread_cond_t  keeper_wake, changed;
    pthread_t       keeper;
    bool            keeper_runs, closing;
    model          *models;
    uint64_t        next_id;
    int             n_tickets;
    runtime_stats   gone; /* counters of runtimes that were freed */
};

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

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

static void free_model(model *m) {
    runtime_settings_free(m->settings);
    free(m);
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
    m->info.file_bytes = path_bytes(path, &m->info.modified);
    m->own_keep_ms = o->keep_alive_ms;
    m->pinned = o->pinned;
    if (o->settings && !(m->settings = runtime_settings_copy(o->settings))) {
        free_model(m);
        return err_set_nomem(e);
    }
    pthread_mutex_lock(&h->lock);
    model **end = &h->models;
    bool    known = find_model(h, bare) != NULL;
    while (*end) end = &(*end)->next;
    if (!known) *end = m;
    pthread_mutex_unlock(&h->lock);
    if (!known) return 0;
    free_model(m);
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

/* --- loading and unloading: the keeper --- */

static void describe(model *m) {
    runtime_info i;
    host_model  *d = &m->info;
    runtime_describe(m->runtime, &i);
    snprintf(d->family, sizeof d->family, "%s", i.family ? i.family : "");
    snprintf(d->format, sizeof d->format, "%s", i.format ? i.format : "");
    snprintf(d->quant, sizeof d->quant, "%s", i.quant ? i.quant : "");
    d->n_params = i.n_params;
    d->file_bytes = i.file_bytes ? i.file_bytes : d->file_bytes;
    d->n_ctx = i.n_ctx;
    d->n_ctx_train = i.n_ctx_train;
    d->n_layer = i.n_layer;
    d->n_embd = i.n_embd;
    d->n_vocab = i.n_vocab;
    d->can_chat = i.can_chat;
    d->can_tools = i.can_tools;
    d->can_think = i.can_think;
    d->can_embed = i.can_embed;
    d->can_infill = i.can_infill;
    d->described = true;
}

static void add_counters(runtime_stats *to, const runtime_stats *s) {
    to->engine.steps += s->engine.steps;
    to->engine.tokens_evaluated += s->engine.tokens_evaluated;
    to->engine.tokens_cached += s->engine.tokens_cached;
    to->engine.tokens_generated += s->engine.tokens_generated;
    to->engine.preemptions += s->engine.preemptions;
    to->engine.evictions += s->engine.evictions;
    to->requests += s->requests;
    to->errors += s->errors;
    to->cancelled += s->cancelled;
    to->grammar_hits += s->grammar_hits;
    to->grammar_misses += s->grammar_misses;
}

/* With the lock held; releases it while the runtime ends. */
static void unload(host *h, model *m) {
    runtime      *r = m->runtime;
    runtime_stats s = { 0 };
    m->runtime = NULL;
    m->info.state = HOST_UNLOADED;
    m->leaving = false;
    pthread_mutex_unlock(&h->lock);
    runtime_stat(r, &s);
    runtime_free(r);
    log_info("host", "unloaded %s", m->info.name);
    pthread_mutex_lock(&h->lock);
    add_counters(&h->gone, &s);
    pthread_cond_broadcast(&h->changed);
}

static model *least_recent(host *h, const model *except) {
    model *found = NULL;
    for (model *m = h->models; m; m = m->next) {
        if (m == except || m->pinned || !m->runtime || m->users || m->waiters || m->tickets) continue;
        if (!found || m->last_used < found->last_used) found = m;
    }
    return found;
}

/* True when there is room; unloads idle models for it. */
static bool make_room(host *h, const model *m) {
    for (;;) {
        int      loaded = 0;
        uint64_t bytes = m->info.file_bytes;
        for (model *o = h->models; o; o = o->next) {
            if (o->runtime) {
                loaded++;
                bytes += o->info.file_bytes;
            }
        }
        bool fits =
            loaded < h->options.max_loaded && (!h->options.max_bytes || bytes <= h->options.max_bytes || !loaded);
        model *victim = fits ? NULL : least_recent(h, m);
        if (!victim) return fits;
        unload(h, victim);
    }
}

static void load(host *h, model *m) {
    runtime        *r = NULL;
    runtime_options o = h->options.runtime;
    err             e = { 0 };
    int64_t         begin = now_ms();
    o.path = m->info.path;
    if (m->settings) o.settings = *m->settings;
    m->info.state = HOST_LOADING;
    m->wanted = false;
    pthread_mutex_unlock(&h->lock);
    int rc = runtime_open(&r, &o, &e);
    if (rc == 0)
        log_info("host", "loaded %s in %lld ms", m->info.name, (long long)(now_ms() - begin));
    else
        log_error("host", "cannot load %s: %s", m->info.name, e.msg);
    pthread_mutex_lock(&h->lock);
    m->runtime = r;
    m->info.state = rc == 0 ? HOST_LOADED : HOST_UNLOADED;
    m->load_error = e;
    m->loads++;
    m->last_used = now_ms();
    if (rc == 0) describe(m);
    pthread_cond_broadcast(&h->changed);
}

static void end_ticket(host *h, ticket *t) {
    model *m = t->model;
    if (m->tickets == t) m->tickets = t->next;
    if (t->prev) t->prev->next = t->next;
    if (t->next) t->next->prev = t->prev;
    if (t->submitted) m->users--;
    h->n_tickets--;
    m->last_used = now_ms();
    pthread_cond_signal(&h->keeper_wake);
}

static void fail_ticket(ticket *t, const err *why) {
    runtime_event ev = { .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = why };
    t->q->on_event(t->q->ctx, &ev);
    free(t);
}

static void on_event(void *ctx, const runtime_event *ev) {
    ticket                *t = ctx;
    const runtime_request *q = t->q;
    if (ev->last) {
        pthread_mutex_lock(&t->host->lock);
        end_ticket(t->host, t);
        pthread_mutex_unlock(&t->host->lock);
        free(t);
    }
    q->on_event(q->ctx, ev);
}

/* With the lock held; releases it, because a cancelled request may get its last event at once. */
static void cancel_ticket(host *h, ticket *t) {
    model   *m = t->model;
    runtime *r = m->runtime;
    uint64_t id = t->runtime_id;
    t->cancelled = true;
    if (!t->submitted || !id) return; /* start_ticket sees the mark */
    m->users++;
    pthread_mutex_unlock(&h->lock);
    runtime_cancel(r, id);
    pthread_mutex_lock(&h->lock);
    m->users--;
}

/* Hands one waiting request to the runtime. With the lock held; releases it. */
static void start_ticket(host *h, ticket *t) {
    runtime_request q = *t->q;
    runtime        *r = t->model->runtime;
    err             e = { 0 };
    q.on_event = on_event;
    q.ctx = t;
    t->submitted = true;
    /* The event thread may end the ticket before submit returns; this function's own use keeps the model. */
    t->model->users += 2;
    model   *m = t->model;
    uint64_t id = t->id, runtime_id = 0;
    pthread_mutex_unlock(&h->lock);
    int rc = runtime_submit(r, &q, &runtime_id, &e);
    if (rc < 0) {
        if (rc == ERR_LIMIT) e.code = ERR_BUSY;
        pthread_mutex_lock(&h->lock);
        end_ticket(h, t);
        pthread_mutex_unlock(&h->lock);
        fail_ticket(t, &e);
    }
    pthread_mutex_lock(&h->lock);
    if (rc == 0) {
        for (ticket *o = m->tickets; o; o = o->next) {
            if (o->id != id) continue;
            o->runtime_id = runtime_id;
            if (o->paused) runtime_pause(r, runtime_id);
            if (o->cancelled) cancel_ticket(h, o);
            break;
        }
    }
    m->users--;
    pthread_cond_signal(&h->keeper_wake);
}

/* Starts or fails what waits for m, which was just loaded or not. */
static void serve_waiting(host *h, model *m) {
    for (;;) {
        ticket *t = m->tickets, *oldest = NULL;
        for (; t; t = t->next) {
            /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): an ended ticket is in no list */
            if (!t->submitted && (!oldest || t->id < oldest->id)) oldest = t;
        }
        if (!oldest) return;
        if (oldest->cancelled || !m->runtime) {
            err why = m->load_error;
            if (oldest->cancelled)
                err_set(&why, ERR_CANCELLED, "cancelled");
            else
                err_wrap(&why, why.code, "cannot load model %s", m->info.name);
            if (!oldest->cancelled) why.code = ERR_IO; /* a server's fault, whatever the file's */
            end_ticket(h, oldest);
            pthread_mutex_unlock(&h->lock);
            fail_ticket(oldest, &why);
            pthread_mutex_lock(&h->lock);
        } else {
            start_ticket(h, oldest);
        }
    }
}

static bool has_waiting(const model *m) {
    for (const ticket *t = m->tickets; t; t = t->next) {
        if (!t->submitted) return true;
    }
    return false;
}

static int64_t expiry(const model *m) {
    return m->keep_ms == HOST_KEEP_FOREVER ? INT64_MAX : m->last_used + m->keep_ms;
}

/* A removed model that nobody uses: unloaded first, freed in the next round. */
static bool forget(host *h, model *m) {
    model **at = &h->models;
    if (!m->removed || m->users || m->waiters || m->tickets) return false;
    if (m->runtime) {
        unload(h, m);
        return true;
    }
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    free_model(m);
    return true;
}

/* One thing that is due; false: nothing is, and *wake says when the next may be. */
static bool keeper_act(host *h, int64_t *wake) {
    *wake = INT64_MAX;
    for (model *m = h->models; m; m = m->next) {
        if (forget(h, m)) return true;
        if (m->runtime) {
            if (!m->leaving) m->wanted = false;
            if (has_waiting(m) && !m->leaving) {
                serve_waiting(h, m);
                return true;
            }
            if (m->users == 0 && (m->leaving || (!m->waiters && now_ms() >= expiry(m)))) {
                unload(h, m);
                return true;
            }
            if (m->users == 0 && expiry(m) < *wake) *wake = expiry(m);
        } else if ((m->wanted || has_waiting(m)) && make_room(h, m)) {
            load(h, m);
            serve_waiting(h, m);
            return true;
        }
    }
    return false;
}

static void *keeper_main(void *ctx) {
    host   *h = ctx;
    int64_t wake;
    pthread_mutex_lock(&h->lock);
    while (!h->closing) {
        if (keeper_act(h, &wake)) continue;
        if (wake == INT64_MAX) {
            pthread_cond_wait(&h->keeper_wake, &h->lock);
        } else {
            struct timespec t = { .tv_sec = wake / 1000, .tv_nsec = wake % 1000 * 1000000 };
            pthread_cond_timedwait(&h->keeper_wake, &h->lock, &t);
        }
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* --- opening and closing --- */

int host_open(host **out, const host_options *o, err *e) {
    host              *h = calloc(1, sizeof *h);
    pthread_condattr_t mono;
    *out = NULL;
    if (!h) return err_set_nomem(e);
    h->options = *o;
    if (h->options.max_loaded <= 0) h->options.max_loaded = DEFAULT_LOADED;
    if (h->options.keep_alive_ms == HOST_KEEP_DEFAULT) h->options.keep_alive_ms = DEFAULT_KEEP_MS;
    h->next_id = 1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&mono);
    pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
    pthread_cond_init(&h->keeper_wake, &mono);
    pthread_cond_init(&h->changed, &mono);
    pthread_condattr_destroy(&mono);
    int rc = pthread_create(&h->keeper, NULL, keeper_main, h);
    h->keeper_runs = rc == 0;
    if (rc != 0) {
        host_free(h);
        return err_set(e, ERR_IO, "cannot start the host's thread: %s", strerror(rc));
    }
    *out = h;
    return 0;
}

void host_free(host *h) {
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->closing = true;
    pthread_cond_broadcast(&h->keeper_wake);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (h->keeper_runs) pthread_join(h->keeper, NULL);
    while (h->models) {
        model *m = h->models;
        runtime_free(m->runtime); /* its requests get their last events */
        err_set(&m->load_error, ERR_CANCELLED, "the server is stopping");
        while (m->tickets) { /* those that never reached a runtime */
            ticket *t = m->tickets;
            end_ticket(h, t);
            fail_ticket(t, &m->load_error);
        }
        h->models = m->next;
        free_model(m);
    }
    pthread_cond_destroy(&h->keeper_wake);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* --- requests --- */

static void want(host *h, model *m, int64_t keep_ms) {
    if (keep_ms != HOST_KEEP_DEFAULT)
        m->keep_ms = keep_ms;
    else if (!m->runtime)
        m->keep_ms = m->own_keep_ms != HOST_KEEP_DEFAULT ? m->own_keep_ms : h->options.keep_alive_ms;
    if (m->pinned) m->keep_ms = HOST_KEEP_FOREVER;
    m->last_used = now_ms();
    if (!m->runtime || m->leaving) m->wanted = true;
    pthread_cond_signal(&h->keeper_wake);
}

int host_submit(host *h, view name, const runtime_request *q, int64_t keep_alive_ms, uint64_t *id, err *e) {
    ticket *t = calloc(1, sizeof *t);
    if (!t) return err_set_nomem(e);
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    int    rc = m ? 0 : ERR_NOTFOUND;
    if (rc == 0 && h->n_tickets >= MAX_TICKETS)
        rc = err_set(e, ERR_BUSY, "%d requests are under way already", MAX_TICKETS);
    if (rc < 0) {
        pthread_mutex_unlock(&h->lock);
        free(t);
        return rc;
    }
    t->host = h;
    t->model = m;
    t->id = *id = h->next_id++;
    t->q = q;
    t->next = m->tickets;
    if (t->next) t->next->prev = t;
    m->tickets = t;
    h->n_tickets++;
    want(h, m, keep_alive_ms);
    if (m->runtime && !m->leaving) start_ticket(h, t);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

void host_cancel(host *h, uint64_t id) {
    err     why = { 0 };
    ticket *dead = NULL;
    pthread_mutex_lock(&h->lock);
    for (model *m = h->models; m; m = m->next) {
        for (ticket *t = m->tickets; t; t = t->next) {
            if (t->id != id) continue;
            if (t->submitted)
                cancel_ticket(h, t);
            else
                dead = t;
            goto found; /* the list may have changed */
        }
    }
found:
    if (dead) end_ticket(h, dead);
    pthread_mutex_unlock(&h->lock);
    if (!dead) return;
    err_set(&why, ERR_CANCELLED, "cancelled");
    fail_ticket(dead, &why);
}

static void set_paused(host *h, uint64_t id, bool paused) {
    pthread_mutex_lock(&h->lock);
    for (model *m = h->models; m; m = m->next) {
        for (ticket *t = m->tickets; t; t = t->next) {
            if (t->id != id) continue;
            t->paused = paused; /* start_ticket sees the mark */
            if (t->runtime_id) (paused ? runtime_pause : runtime_resume)(m->runtime, t->runtime_id);
        }
    }
    pthread_mutex_unlock(&h->lock);
}

void host_pause(host *h, uint64_t id) { set_paused(h, id, true); }

void host_resume(host *h, uint64_t id) { set_paused(h, id, false); }

/* --- blocking calls --- */

/* Holds the model in memory until put. */
static int hold(host *h, view name, int64_t keep_ms, model **out, err *e) {
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    int    rc = m ? 0 : ERR_NOTFOUND;
    if (m) {
        uint64_t loads = m->loads;
        want(h, m, keep_ms);
        m->waiters++;
        while (!h->closing && (!m->runtime || m->leaving) && m->loads == loads)
            pthread_cond_wait(&h->changed, &h->lock);
        m->waiters--;
        pthread_cond_signal(&h->keeper_wake);
        if (m->runtime && !m->leaving) {
            m->users++;
        } else {
            rc = err_set(e, ERR_IO, "cannot load model %s: %s", m->info.name,
                         m->load_error.code ? m->load_error.msg : "it is being unloaded");
        }
    }
    *out = m;
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static void put(host *h, model *m) {
    pthread_mutex_lock(&h->lock);
    m->users--;
    m->last_used = now_ms();
    pthread_cond_signal(&h->keeper_wake);
    pthread_mutex_unlock(&h->lock);
}

int host_load(host *h, view name, int64_t keep_alive_ms, err *e) {
    model *m;
    int    rc = hold(h, name, keep_alive_ms, &m, e);
    if (rc == 0) put(h, m);
    return rc;
}

int host_unload(host *h, view name, err *e) {
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    if (m && m->runtime) {
        m->leaving = true;
        m->wanted = false;
        for (ticket *t = m->tickets; t;) {
            bool act = t->submitted && !t->cancelled; /* one that still waits will load the model anew */
            if (act) cancel_ticket(h, t);
            t = act ? m->tickets : t->next; /* the list may have changed */
        }
        pthread_cond_signal(&h->keeper_wake);
        m->waiters++;
        while (m->leaving && !h->closing) pthread_cond_wait(&h->changed, &h->lock);
        m->waiters--;
        pthread_cond_signal(&h->keeper_wake);
    }
    pthread_mutex_unlock(&h->lock);
    return m ? 0 : ERR_NOTFOUND;
}

int host_tokenize(host *h, view name, view text, bool add_special, bool parse_special, tok_ids *out, err *e) {
    model *m;
    int    rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e);
    if (rc < 0) return rc;
    rc = runtime_tokenize(m->runtime, text, add_special, parse_special, out, e);
    put(h, m);
    return rc;
}

int host_detokenize(host *h, view name, const int32_t *tokens, size_t n, bool keep_special, str *out, err *e) {
    model *m;
    int    rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e);
    if (rc < 0) return rc;
    rc = runtime_detokenize(m->runtime, tokens, n, keep_special, out, e);
    put(h, m);
    return rc;
}

int host_render(host *h, view name, const runtime_request *q, str *out, err *e) {
    model *m;
    int    rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e);
    if (rc < 0) return rc;
    rc = runtime_render(m->runtime, q, out, e);
    put(h, m);
    return rc;
}

int host_count(host *h, view name, const runtime_request *q, size_t *out, err *e) {
    model *m;
    int    rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e);
    if (rc < 0) return rc;
    rc = runtime_count(m->runtime, q, out, e);
    put(h, m);
    return rc;
}

int host_template(host *h, view name, str *out, err *e) {
    model       *m;
    runtime_info i;
    int          rc = hold(h, name, HOST_KEEP_DEFAULT, &m, e);
    if (rc < 0) return rc;
    runtime_describe(m->runtime, &i);
    if (i.template_text) str_puts(out, i.template_text);
    put(h, m);
    return str_ok(out) ? 0 : err_set_nomem(e);
}

/* --- what is there --- */

static void snapshot(const model *m, host_model *out) {
    *out = m->info;
    out->active = m->users;
    if (!m->runtime) return;
    out->expires_ms = m->keep_ms == HOST_KEEP_FOREVER ? HOST_KEEP_FOREVER
                      : m->users                      ? m->keep_ms
                                                      : expiry(m) - now_ms();
}

int host_list(host *h, host_model **out, size_t *n, err *e) {
    size_t count = 0, i = 0;
    pthread_mutex_lock(&h->lock);
    for (model *m = h->models; m; m = m->next) count += !m->removed;
    *n = count;
    *out = calloc(count + 1, sizeof **out);
    for (model *m = h->models; m && *out; m = m->next) {
        if (!m->removed) snapshot(m, &(*out)[i++]);
    }
    pthread_mutex_unlock(&h->lock);
    return *out ? 0 : err_set_nomem(e);
}

int host_find(host *h, view name, host_model *out, err *e) {
    pthread_mutex_lock(&h->lock);
    model *m = need_model(h, name, e);
    if (m) snapshot(m, out);
    pthread_mutex_unlock(&h->lock);
    return m ? 0 : ERR_NOTFOUND;
}

void host_stat(host *h, host_stats *out) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&h->lock);
    out->runtime = h->gone;
    for (model *m = h->models; m; m = m->next) {
        runtime_stats s = { 0 };
        out->n_models += !m->removed;
        out->n_loading += m->info.state == HOST_LOADING;
        if (!m->runtime) continue;
        out->n_loaded++;
        out->loaded_bytes += m->info.file_bytes;
        runtime_stat(m->runtime, &s);
        add_counters(&out->runtime, &s);
        out->runtime.preparing += s.preparing;
        out->runtime.grammars += s.grammars;
        out->runtime.engine.running += s.engine.running;
        out->runtime.engine.waiting += s.engine.waiting;
        out->runtime.engine.paused += s.engine.paused;
        out->runtime.engine.pages_total += s.engine.pages_total;
        out->runtime.engine.pages_unused += s.engine.pages_unused;
        out->runtime.engine.pages_cached += s.engine.pages_cached;
    }
    pthread_mutex_unlock(&h->lock);
}

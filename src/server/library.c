/* SPDX-License-Identifier: Apache-2.0 */
#include "server/library.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "registry/create.h"
#include "registry/names.h"
#include "runtime/demo.h"
#include "server/http/feed.h"
#include "server/http/json_out.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MEMORIES = 16, MAX_TASKS = 16, MAX_SUBSCRIBERS = 64, TOUCH_SECONDS = 60, SEARCH_STALL_MS = 10000 };

/* A model of the registry that the host was given. */
typedef struct offer {
    char   *name, *path;
    int64_t id;
    time_t  used;   /* 0: not while this server runs */
    bool    untold; /* the registry does not know it yet */
} offer;

typedef struct pull_task pull_task;

typedef struct subscriber {
    feed        *feed; /* NULL: a free place */
    pull_writer *write;
    bool         quiet;
} subscriber;

/* How far a pull is: of the file at hand. */
typedef struct pull_state {
    char    status[96], error[512];
    int64_t total, completed;
    int64_t begin_us, end_us; /* end 0: under way */
    bool    cancelled;
} pull_state;

/* One that has ended and is remembered. */
typedef struct pull_memory {
    char      *name; /* NULL: a free place */
    pull_state state;
} pull_memory;

struct pull_task {
    pull_task  *next;
    library    *library;
    char       *name;
    atomic_bool cancel;
    bool        over; /* nobody may join any more */
    subscriber  subscribers[MAX_SUBSCRIBERS];
    int         alive; /* clients that have not left, and the server itself where it keeps the pull */
    bool        kept;
    pull_state  state;
};

struct library {
    library_options options;
    char           *path;

    pthread_mutex_t sync_lock; /* guards the next five; held while the host is told */
    registry       *watch;     /* only reads: every change of the file is another handle's */
    int64_t         seen;
    offer          *offers;
    size_t          n_offers;
    bool            adapters; /* some model has any: without, requests need not ask */

    pthread_mutex_t task_lock; /* guards the next four, and all in a pull_task but cancel */
    pthread_cond_t  task_over;
    int             n_tasks;
    pull_task      *pulls;
    pull_memory     memories[MAX_MEMORIES]; /* newest first */
};

/* --- what the host offers --- */

static void drop_offer(library *l, size_t i) {
    host_remove_model(l->options.host, view_of(l->offers[i].name), NULL);
    log_info("library", "%s is no longer offered", l->offers[i].name);
    free(l->offers[i].name);
    free(l->offers[i].path);
    l->offers[i] = l->offers[--l->n_offers];
}

static const registry_model *find_by_id(const registry_model *list, size_t n, const offer *o) {
    for (size_t i = 0; i < n; i++) {
        if (list[i].id == o->id)
            return strcmp(list[i].name, o->name) == 0 && strcmp(list[i].path, o->path) == 0 ? &list[i] : NULL;
    }
    return NULL;
}

static bool is_offered(const library *l, const registry_model *m) {
    for (size_t i = 0; i < l->n_offers; i++) {
        if (l->offers[i].id == m->id) return true;
    }
    return false;
}

static void add_offer(library *l, const registry_model *m) {
    err    e = { 0 };
    offer *more = realloc(l->offers, (l->n_offers + 1) * sizeof *more);
    if (!more) return; /* the next change tries again */
    l->offers = more;
    offer o = { strdup(m->name), strdup(m->path), m->id, 0, false };
    if (o.name && o.path && l->options.add(l->options.ctx, m->name, m->path, &e) == 0) {
        l->offers[l->n_offers++] = o;
        return;
    }
    if (!runtime_is_demo(m->name)) log_warn("library", "%s is not offered: %s", m->name, e.msg);
    free(o.name);
    free(o.path);
}

static void look_for_adapters(library *l) {
    registry_adapter *list = NULL;
    size_t            n = 0;
    if (registry_adapter_list(l->watch, NULL, &list, NULL, &n, NULL) < 0) n = 0;
    l->adapters = n > 0;
    for (size_t i = 0; i < n; i++) registry_adapter_deinit(&list[i]);
    free(list);
}

static int sync_offers(library *l, err *e) {
    registry_model *list = NULL;
    size_t          n = 0;
    int             rc = registry_list(l->watch, &list, &n, e);
    if (rc < 0) return rc;
    for (size_t i = l->n_offers; i-- > 0;) {
        if (!find_by_id(list, n, &l->offers[i])) drop_offer(l, i);
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_offered(l, &list[i])) add_offer(l, &list[i]);
        registry_model_deinit(&list[i]);
    }
    free(list);
    look_for_adapters(l);
    return 0;
}

/* Looking makes no file. */
static int refresh(library *l, err *e) {
    int64_t now = 0;
    int     rc = 0;
    if (!l->watch) {
        if (access(l->path, F_OK) != 0) return 0;
        if ((rc = registry_open(&l->watch, l->path, e)) < 0) return rc;
        l->seen = -1;
    }
    if ((rc = registry_changes(l->watch, &now, e)) < 0 || now == l->seen) return rc;
    l->seen = now; /* before the list is read: a change in between is seen next time */
    return sync_offers(l, e);
}

void library_refresh(library *l) {
    err e = { 0 };
    if (!l) return;
    pthread_mutex_lock(&l->sync_lock);
    if (refresh(l, &e) < 0) log_error("library", "%s", e.msg);
    pthread_mutex_unlock(&l->sync_lock);
}

void library_settings(library *l, const char *name, char **out) {
    *out = NULL;
    if (!l) return;
    pthread_mutex_lock(&l->sync_lock);
    if (l->watch) registry_settings(l->watch, name, out, NULL);
    pthread_mutex_unlock(&l->sync_lock);
}

bool library_resolve(library *l, view name, char **out) {
    registry_model m = { 0 };
    char          *text = strndup(name.data, name.len);
    *out = NULL;
    pthread_mutex_lock(&l->sync_lock);
    if (l->watch && text && names_find(l->watch, text, NULL, &m, NULL) == 0) *out = strdup(m.name);
    pthread_mutex_unlock(&l->sync_lock);
    registry_model_deinit(&m);
    free(text);
    return *out != NULL;
}

void library_adapters(library *l, const char *model, registry_adapter **out, size_t *n) {
    *out = NULL;
    *n = 0;
    if (!l) return;
    pthread_mutex_lock(&l->sync_lock);
    if (l->watch && l->adapters) registry_adapter_list(l->watch, model, out, NULL, n, NULL);
    pthread_mutex_unlock(&l->sync_lock);
}

bool library_find(library *l, const char *name, registry_model *out) {
    memset(out, 0, sizeof *out);
    if (!l) return false;
    pthread_mutex_lock(&l->sync_lock);
    bool found = l->watch && registry_find(l->watch, name, out, NULL) == 0;
    pthread_mutex_unlock(&l->sync_lock);
    return found;
}

int library_registry(library *l, registry **out, err *e) { return registry_open(out, l->path, e); }

uint64_t library_free_bytes(library *l) {
    struct statvfs v;
    char          *dir = strdup(l->path);
    uint64_t       n = 0;
    for (char *slash; dir && (slash = strrchr(dir, '/')) && slash != dir;) { /* the nearest folder that exists */
        *slash = '\0';
        if (statvfs(dir, &v) != 0) continue;
        n = (uint64_t)v.f_bavail * v.f_frsize;
        break;
    }
    free(dir);
    return n;
}

/* --- threads --- */

typedef struct task {
    library *library;
    void (*work)(void *ctx);
    void *ctx;
} task;

static void *task_main(void *arg) {
    task    *t = arg;
    library *l = t->library;
    t->work(t->ctx);
    free(t);
    pthread_mutex_lock(&l->task_lock);
    l->n_tasks--;
    pthread_cond_broadcast(&l->task_over);
    pthread_mutex_unlock(&l->task_lock);
    return NULL;
}

/* With the lock held. */
static int start_locked(library *l, void (*work)(void *ctx), void *ctx, err *e) {
    pthread_attr_t detached;
    pthread_t      thread;
    task          *t;
    if (l->n_tasks >= MAX_TASKS) return err_set(e, ERR_BUSY, "%d pulls and uploads are already under way", MAX_TASKS);
    if (!(t = malloc(sizeof *t))) return err_set_nomem(e);
    *t = (task){ l, work, ctx };
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &detached, task_main, t);
    pthread_attr_destroy(&detached);
    if (rc != 0) {
        free(t);
        return err_set(e, ERR_BUSY, "cannot start a thread: %s", strerror(rc));
    }
    l->n_tasks++;
    return 0;
}

int library_start(library *l, void (*work)(void *ctx), void *ctx, err *e) {
    pthread_mutex_lock(&l->task_lock);
    int rc = start_locked(l, work, ctx, e);
    pthread_mutex_unlock(&l->task_lock);
    return rc;
}

/* --- use --- */

/* The next name that the registry has to be told of; the caller frees. NULL: none. */
static char *next_used(library *l) {
    char *name = NULL;
    pthread_mutex_lock(&l->sync_lock);
    for (size_t i = 0; i < l->n_offers && !name; i++) {
        if (l->offers[i].untold) name = strdup(l->offers[i].name);
        if (name) l->offers[i].untold = false;
    }
    pthread_mutex_unlock(&l->sync_lock);
    return name;
}

static void touch_main(void *ctx) {
    library  *l = ctx;
    registry *r = NULL;
    err       e = { 0 };
    int       rc = library_registry(l, &r, &e);
    for (char *name; rc == 0 && (name = next_used(l)); free(name)) {
        rc = registry_touch(r, name, &e);
        if (rc == ERR_NOTFOUND) rc = 0;
    }
    if (rc < 0) log_warn("library", "%s", e.msg);
    registry_close(r);
}

/* "x" and "x:latest" are the same, as in the registry. */
static bool is_name(const char *own, view name) {
    static const char latest[] = ":latest";
    size_t            n = strlen(own), m = sizeof latest - 1;
    return name.len >= n && memcmp(own, name.data, n) == 0 &&
           (name.len == n || (name.len == n + m && memcmp(name.data + n, latest, m) == 0));
}

void library_used(library *l, view name) {
    bool   news = false;
    time_t now = time(NULL);
    if (!l) return;
    pthread_mutex_lock(&l->sync_lock);
    for (size_t i = 0; i < l->n_offers; i++) {
        offer *o = &l->offers[i];
        if (!is_name(o->name, name) || now - o->used < TOUCH_SECONDS) continue;
        o->used = now;
        news = o->untold = true;
    }
    pthread_mutex_unlock(&l->sync_lock);
    if (news) (void)library_start(l, touch_main, l, NULL); /* too much to do: the next one's thread says it */
}

/* --- pulls --- */

static void put_all(pull_task *t, const pull_progress *p, bool last) {
    pthread_mutex_lock(&t->library->task_lock);
    for (int i = 0; i < MAX_SUBSCRIBERS; i++) {
        subscriber *s = &t->subscribers[i];
        if (!s->feed || (s->quiet && !last)) continue;
        str text;
        str_init(&text);
        s->write(&text, p);
        feed_put(s->feed, str_cstr(&text), text.len);
        str_deinit(&text);
    }
    pthread_mutex_unlock(&t->library->task_lock);
}

static bool on_progress(void *ctx, const pull_progress *p) {
    pull_task *t = ctx;
    if (strcmp(p->status, "success") == 0) return true; /* said when the host knows it, too */
    pthread_mutex_lock(&t->library->task_lock);
    snprintf(t->state.status, sizeof t->state.status, "%s", p->status);
    t->state.total = p->total;
    t->state.completed = p->completed;
    pthread_mutex_unlock(&t->library->task_lock);
    put_all(t, p, false);
    return true;
}

/* With the lock held; takes the name. */
static void remember(library *l, pull_task *t, int rc, const err *e) {
    pull_memory *m = l->memories;
    free(m[MAX_MEMORIES - 1].name);
    memmove(m + 1, m, (MAX_MEMORIES - 1) * sizeof *m);
    m[0] = (pull_memory){ t->name, t->state };
    m[0].state.end_us = clock_us();
    m[0].state.cancelled = atomic_load(&t->cancel);
    snprintf(m[0].state.error, sizeof m[0].state.error, "%s", rc < 0 ? e->msg : "");
    t->name = NULL;
}

int library_search(const library *l, const char *words, int limit, search_hits *out, err *e) {
    pull_request q = l->options.pull;
    q.patience.tries = 1;
    q.patience.stall_ms = SEARCH_STALL_MS;
    return search_hub(out, &q, words, limit, e);
}

static void pull_work(void *ctx) {
    pull_task   *t = ctx;
    library     *l = t->library;
    registry    *r = NULL;
    pull_request q = l->options.pull;
    pull_events  ev = { .ctx = t, .progress = on_progress, .cancel = &t->cancel };
    err          e = { 0 };
    q.name = t->name;
    q.as = NULL;
    int rc = library_registry(l, &r, &e);
    if (rc == 0) rc = pull_model(r, &q, &ev, NULL, &e);
    registry_close(r);
    if (rc == 0) {
        library_refresh(l);
        put_all(t, &(pull_progress){ .status = "success" }, true);
    } else {
        log_info("library", "pull of %s: %s", t->name, e.msg);
    }
    pthread_mutex_lock(&l->task_lock);
    t->over = true;
    pull_task **at = &l->pulls;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    for (int i = 0; i < MAX_SUBSCRIBERS; i++) {
        if (t->subscribers[i].feed) feed_end(t->subscribers[i].feed, rc < 0 ? &e : NULL);
    }
    if (t->kept) remember(l, t, rc, &e);
    pthread_mutex_unlock(&l->task_lock);
    free(t->name);
    free(t);
}

/* On the I/O thread. The feed itself ends with the pull, which may be over by now. */
static void on_gone(void *ctx, feed *f) {
    library *l = ctx;
    pthread_mutex_lock(&l->task_lock);
    for (pull_task *t = l->pulls; t; t = t->next) {
        for (int i = 0; i < MAX_SUBSCRIBERS; i++) {
            if (t->subscribers[i].feed == f && --t->alive == 0) atomic_store(&t->cancel, true);
        }
    }
    pthread_mutex_unlock(&l->task_lock);
}

/* With the lock held. NULL: none that can be joined; one that was given up by all ends soon. */
static pull_task *find_pull(library *l, const char *name) {
    for (pull_task *t = l->pulls; t; t = t->next) {
        if (!t->over && t->alive > 0 && strcmp(t->name, name) == 0) return t;
    }
    return NULL;
}

static bool subscribe(pull_task *t, bool quiet, pull_writer *write, feed *f) {
    for (int i = 0; i < MAX_SUBSCRIBERS; i++) {
        if (t->subscribers[i].feed) continue;
        t->subscribers[i] = (subscriber){ f, write, quiet };
        t->alive++;
        feed_on_gone(f, on_gone, t->library);
        return true;
    }
    return false;
}

static int begin_pull(library *l, const char *name, pull_task **out, err *e) {
    pull_task *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t || !(t->name = strdup(name))) {
        free(t);
        return err_set_nomem(e);
    }
    t->library = l;
    t->state.begin_us = clock_us();
    atomic_init(&t->cancel, false);
    int rc = start_locked(l, pull_work, t, e); /* it waits for the lock at its first line */
    if (rc < 0) {
        free(t->name);
        free(t);
        return rc;
    }
    t->next = l->pulls;
    l->pulls = t;
    *out = t;
    return 0;
}

/* f NULL: the server itself wants it. */
static int want_pull(library *l, const char *name, bool quiet, pull_writer *write, feed *f, err *e) {
    name_ref n;
    str      key;
    int      rc = name_parse(&n, name, e);
    if (rc < 0) return rc;
    bool remote = n.kind == NAME_HF || n.kind == NAME_OLLAMA;
    str_init(&key);
    name_source(&n, &key); /* in full: two ways to write a name are one pull */
    name_ref_deinit(&n);
    if (!remote) {
        str_deinit(&key);
        return err_set(e, ERR_ARG, "'%.100s' is not the name of a model that can be pulled", name);
    }
    pthread_mutex_lock(&l->task_lock);
    pull_task *t = str_ok(&key) ? find_pull(l, str_cstr(&key)) : NULL;
    rc = str_ok(&key) ? 0 : err_set_nomem(e);
    if (rc == 0 && !t) rc = begin_pull(l, str_cstr(&key), &t, e);
    if (rc == 0 && !f && !t->kept) {
        t->kept = true;
        t->alive++;
    }
    if (rc == 0 && f && !subscribe(t, quiet, write, f))
        rc = err_set(e, ERR_BUSY, "%d clients are already pulling this model", MAX_SUBSCRIBERS);
    pthread_mutex_unlock(&l->task_lock);
    str_deinit(&key);
    return rc;
}

int library_pull(library *l, const char *name, bool quiet, pull_writer *write, feed *f, err *e) {
    return want_pull(l, name, quiet, write, f, e);
}

int library_keep_pull(library *l, const char *name, err *e) { return want_pull(l, name, true, NULL, NULL, e); }

bool library_end_pull(library *l, view name) {
    bool found = false;
    pthread_mutex_lock(&l->task_lock);
    for (pull_task *t = l->pulls; t; t = t->next) {
        if (t->over || !view_eq_c(name, t->name)) continue;
        atomic_store(&t->cancel, true);
        found = true;
    }
    for (int i = 0; i < MAX_MEMORIES && !found; i++) {
        pull_memory *m = &l->memories[i];
        if (!m->name || !view_eq_c(name, m->name)) continue;
        free(m->name);
        memmove(m, m + 1, (size_t)(MAX_MEMORIES - 1 - i) * sizeof *m);
        l->memories[MAX_MEMORIES - 1] = (pull_memory){ 0 };
        found = true;
    }
    pthread_mutex_unlock(&l->task_lock);
    return found;
}

static void put_pull(jw *w, const char *name, const pull_state *s) {
    int64_t until = s->end_us ? s->end_us : clock_us();
    jw_open(w, '{');
    jw_put_cstr(w, "name", name);
    jw_put_cstr(w, "state", !s->end_us ? "running" : s->cancelled ? "cancelled" : s->error[0] ? "failed" : "done");
    jw_put_cstr(w, "status", s->status);
    jw_put_int(w, "total", s->total);
    jw_put_int(w, "completed", s->completed);
    jw_put_real(w, "seconds", (double)(until - s->begin_us) / 1e6);
    if (s->error[0]) jw_put_cstr(w, "error", s->error);
    jw_close(w, '}');
}

void library_write_pulls(library *l, str *out) {
    jw w = jw_list(out);
    if (l) {
        pthread_mutex_lock(&l->task_lock);
        for (pull_task *t = l->pulls; t; t = t->next) put_pull(&w, t->name, &t->state);
        for (int i = 0; i < MAX_MEMORIES && l->memories[i].name; i++)
            put_pull(&w, l->memories[i].name, &l->memories[i].state);
        pthread_mutex_unlock(&l->task_lock);
    }
    jw_list_end(&w);
}

/* --- life --- */

int library_open(library **out, const library_options *o, err *e) {
    library *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l || !(l->path = strdup(o->path))) {
        free(l);
        return err_set_nomem(e);
    }
    l->options = *o;
    pthread_mutex_init(&l->sync_lock, NULL);
    pthread_mutex_init(&l->task_lock, NULL);
    pthread_cond_init(&l->task_over, NULL);
    int rc = refresh(l, e);
    if (rc < 0) {
        library_free(l);
        return rc;
    }
    *out = l;
    return 0;
}

void library_free(library *l) {
    if (!l) return;
    pthread_mutex_lock(&l->task_lock);
    for (pull_task *t = l->pulls; t; t = t->next) atomic_store(&t->cancel, true);
    while (l->n_tasks) pthread_cond_wait(&l->task_over, &l->task_lock);
    pthread_mutex_unlock(&l->task_lock);
    for (size_t i = 0; i < l->n_offers; i++) {
        free(l->offers[i].name);
        free(l->offers[i].path);
    }
    for (int i = 0; i < MAX_MEMORIES; i++) free(l->memories[i].name);
    free(l->offers);
    registry_close(l->watch);
    pthread_mutex_destroy(&l->sync_lock);
    pthread_mutex_destroy(&l->task_lock);
    pthread_cond_destroy(&l->task_over);
    free(l->path);
    free(l);
}

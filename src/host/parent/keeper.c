/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the thread that decides what is loaded.
 *
 * It starts and stops workers and never waits for one: whatever happens wakes it, it does what is due and sleeps again.
 *
 * Who gets a place. Models that are wanted, and have said how much memory they need, stand in a line, the longest
 * waiting first; only the first may take room. Room is made by ending idle models, least recently used first, that take
 * something on a device where it does not fit. Where all of them are busy the first in line waits; after yield_ms one
 * of the busy models is asked to yield: what it has begun ends as it would, new requests for it wait, then it goes and
 * stands in line itself. So nobody waits for ever and nothing that is in use is ended.
 */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "host/parent/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_wanted(const model *m) { return m->wanted || model_has_waiting(m); }

static void sooner(int64_t *wake, int64_t at) {
    if (at < *wake) *wake = at;
}

/* --- one model --- */

static void stop(model *m) {
    m->phase = MODEL_STOPPING;
    child_stop(m->child);
}

static void clean_up(host *h, model *m) {
    child *c = m->child;
    m->child = NULL;
    pthread_mutex_unlock(&h->lock);
    child_free(c);
    pthread_mutex_lock(&h->lock);
    m->phase = MODEL_DOWN;
    m->placed = m->leaving = m->yielding = false;
    model_unused(m);
    pthread_cond_broadcast(&h->changed);
}

static void tell_failure(host *h, model *m) {
    err why = m->load_error;
    err_wrap(&why, why.code, "cannot load model %s", m->info.name);
    if (why.code != ERR_BUSY) why.code = ERR_UNLOADED; /* whatever is wrong with the file: not the request's fault */
    m->load_failed = m->ahead = false;
    host_request_fail_waiting(h, m, m->failed_newest, &why);
}

/* Without an attempt: everybody who waits is told. */
static void refuse(host *h, model *m, const err *why) {
    m->load_error = *why;
    m->failed_newest = h->next_id;
    m->wanted = false;
    m->loads++;
    pthread_cond_broadcast(&h->changed);
    tell_failure(h, m);
}

/* --- what is taken --- */

typedef struct taken {
    int           count;
    device_memory bytes;
} taken;

/* What is taken now, what will be when those that are ending are gone, and what pinned models never give back. */
typedef struct room {
    taken now, later, pinned;
} room;

/* A model that was let in needs no device without a budget, and there are not more of those than fit. */
static void take(taken *t, const model *m) {
    t->count++;
    (void)device_memory_add_all(&t->bytes, &m->need);
}

static void look(host *h, room *r) {
    *r = (room){ 0 };
    for (model *m = h->models; m; m = m->next) {
        if (!m->placed) continue;
        bool stays = m->phase == MODEL_LOADING || m->phase == MODEL_UP;
        take(&r->now, m);
        if (stays) take(&r->later, m);
        if (stays && model_pinned(m)) take(&r->pinned, m);
    }
}

/* Where nobody named a device, the GPU with the most room begins. */
static const char *preferred_device(host *h, char out[80]) {
    const char         *device = h->options.runtime.engine.device;
    const device_bytes *best = NULL, *first = NULL;
    uint64_t            most = 0;
    room                r;
    if (!backend_is_auto(device)) return device;
    look(h, &r);
    for (size_t i = 0; i < h->options.budget.n; i++) {
        const device_bytes *d = &h->options.budget.on[i];
        uint64_t            used = device_memory_on(&r.now.bytes, d->device);
        if (strcmp(d->device, DEVICE_CPU) == 0) continue;
        if (!first) first = d;
        if (best && (d->bytes > used ? d->bytes - used : 0) <= most) continue;
        most = d->bytes > used ? d->bytes - used : 0;
        best = d;
    }
    if (best == first) return device;
    snprintf(out, 80, "auto:%.64s", best->device);
    return out;
}

/* --- starting --- */

/* Tests only: what is to go wrong with a model, of "MODEL=FAULT;MODEL=FAULT". */
static void find_fault(const char *list, const char *name, char out[256]) {
    size_t n = strlen(name);
    out[0] = '\0';
    for (const char *at = list; at; at = strchr(at, ';')) {
        if (*at == ';') at++;
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            snprintf(out, 256, "%.*s", (int)strcspn(at + n + 1, ";"), at + n + 1);
    }
}

/* What a model may take of the machine's memory when all that can go is gone; 0: there is no limit. */
static uint64_t room_for(const host *h) {
    uint64_t budget = device_memory_on(&h->options.budget, DEVICE_CPU), pinned = 0;
    if (budget == HOST_NO_LIMIT) return 0;
    for (const model *m = h->models; m; m = m->next) {
        if (m->placed && model_pinned(m)) pinned += device_memory_on(&m->need, DEVICE_CPU);
    }
    return budget > pinned ? budget - pinned : 1;
}

static void start(host *h, model *m) {
    char          fault[256], device[80];
    err           e = { 0 };
    child_options o = { .program = h->options.program ? h->options.program : "/proc/self/exe",
                        .env = h->options.worker_env,
                        .open = { .runtime = h->options.runtime,
                                  .name = m->info.name,
                                  .fault = fault,
                                  .no_sandbox = h->options.no_sandbox },
                        .hang_ms = h->options.hang_ms,
                        .on_frame = model_take_frame,
                        .activity = model_activity,
                        .on_batch = h->on_batch,
                        .batch_ctx = h->batch_ctx,
                        .on_end = model_take_end,
                        .ctx = m };
    o.open.runtime.path = m->info.path;
    o.open.runtime.engine.device = preferred_device(h, device);
    if (m->settings) o.open.runtime.settings = *m->settings;
    o.open.runtime.engine.memory_room = room_for(h);
    o.open.runtime.spare_bytes = machine_memory_available(NULL); /* moved weights count as mapped ones do: once */
    const char **paths = NULL;
    o.open.runtime.n_adapter_paths = model_paths(h, m, &paths);
    o.open.runtime.adapter_paths = paths;
    find_fault(h->options.debug_fault, m->info.name, fault);
    m->info.load_fraction = 0;
    m->moved = 0;
    m->load_begin = m->wanted_at = clock_ms();
    m->phase = MODEL_MEASURING; /* its thread may begin before the next line is over, and waits for the lock */
    int rc = paths ? child_open(&m->child, &o, &e) : err_set_nomem(&e);
    free(paths);
    if (rc < 0) {
        m->phase = MODEL_DOWN;
        log_error("host", "cannot load %s: %s", m->info.name, e.msg);
        refuse(h, m, &e);
    }
}

/* The worker is started for every model that is wanted: only it looks into the file, which is not to be trusted. */
static void begin(host *h, model *m) {
    err e = { 0 };
    if (!quarantine_holds_path(&h->quarantine, m->info.path)) {
        start(h, m);
        return;
    }
    err_set(&e, ERR_IO,
            "its worker crashed %d times within 10 minutes; the file is damaged or not supported: replace the file, or "
            "load the model explicitly to try again",
            QUARANTINE_CRASHES);
    refuse(h, m, &e);
}

static host_request *oldest_waiting(const model *m) {
    host_request *found = NULL;
    for (host_request *t = m->requests; t; t = t->next) {
        if (!t->sent) found = t;
    }
    return found;
}

/* A removed model that nobody uses: unloaded first, freed in a later round. */
static bool forget(host *h, model *m) {
    model **at = &h->models;
    if (!m->removed || m->users || m->waiters || m->requests || m->holders || m->asked || m->sharers) return false;
    if (m->phase >= MODEL_MEASURING && m->phase <= MODEL_UP) {
        stop(m);
        return true;
    }
    if (m->phase != MODEL_DOWN) return false;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    model_part(m);
    model_free(m);
    return true;
}

/* One thing that is due for a model by itself. */
static bool act(host *h, model *m, int64_t *wake) {
    if (m->phase == MODEL_OVER && !m->holders) {
        clean_up(h, m);
        return true;
    }
    if (m->load_failed) {
        tell_failure(h, m);
        return true;
    }
    if (forget(h, m)) return true;
    if (m->phase == MODEL_DOWN && is_wanted(m)) {
        begin(h, m);
        return true;
    }
    if (m->phase == MODEL_IN_LINE && !m->waiters && !m->ahead && !model_has_waiting(m)) { /* all have given up */
        m->wanted = false;
        stop(m);
        return true;
    }
    if (m->phase != MODEL_UP) return false;
    m->ahead = false;
    if (!m->leaving && !m->yielding) m->wanted = false;
    host_request *t = m->leaving || m->yielding ? NULL : oldest_waiting(m);
    if (t) {
        host_request_send(h, t);
        return true;
    }
    if (m->users || m->holders) return false;
    int64_t expiry = model_expiry(m);
    if (m->leaving || m->yielding || (!m->waiters && clock_ms() >= expiry)) {
        stop(m);
        return true;
    }
    sooner(wake, expiry);
    return false;
}

/* --- places --- */

static bool fits(const host *h, const taken *t, const model *m) {
    return t->count < h->options.max_loaded && !budget_lacking(&h->options.budget, &t->bytes, &m->need);
}

static bool is_idle(const model *m) {
    return m->phase == MODEL_UP && !m->users && !m->holders && !m->waiters && !m->requests;
}

/* The one to go: the idle one, or (busy) the one whose turn to yield it is, that was used least recently. Only one
 * whose going brings the newcomer nearer: a model elsewhere stays. */
static model *victim(host *h, const taken *t, const model *newcomer, bool busy) {
    model *found = NULL;
    for (model *m = h->models; m; m = m->next) {
        if (m->phase != MODEL_UP || model_pinned(m) || is_idle(m) == busy) continue;
        if (!budget_helps(&h->options.budget, &t->bytes, &newcomer->need, &m->need)) continue;
        int64_t a = busy ? m->load_begin : m->last_used;
        if (!found || a < (busy ? found->load_begin : found->last_used)) found = m;
    }
    return found;
}

static model *first_in_line(host *h) {
    model *found = NULL;
    for (model *m = h->models; m; m = m->next) {
        if (m->phase == MODEL_IN_LINE && (!found || m->wanted_at < found->wanted_at)) found = m;
    }
    return found;
}

/* " on cuda:0"; the machine's own memory needs no name. */
static const char *on_device(const char *device, char out[80]) {
    if (strcmp(device, DEVICE_CPU) == 0) return "";
    snprintf(out, 80, " on %s", device);
    return out;
}

/* True: the model was refused, for a reason that waiting does not change. */
static bool refuse_hopeless(host *h, model *m, const room *r) {
    const double         gib = 1024.0 * 1024 * 1024;
    const device_memory *budget = &h->options.budget;
    static const taken   nothing;
    char                 on[80];
    err                  e = { 0 };
    const char          *device = budget_unknown(budget, &m->need);
    if (device) {
        err_set(&e, ERR_LIMIT, "it needs %.2f GiB of memory on %s, and there is no budget for that device",
                (double)device_memory_on(&m->need, device) / gib, device);
    } else if ((device = budget_lacking(budget, &nothing.bytes, &m->need))) {
        err_set(&e, ERR_LIMIT, "it needs %.2f GiB of memory%s and the limit is %.2f GiB; choose a smaller context%s",
                (double)device_memory_on(&m->need, device) / gib, on_device(device, on),
                (double)device_memory_on(budget, device) / gib,
                strcmp(device, DEVICE_CPU) == 0 ? " or raise --mem-limit" : ", smaller pages (--kv) or --device cpu");
    } else if (!fits(h, &r->pinned, m)) {
        device = budget_lacking(budget, &r->pinned.bytes, &m->need);
        if (!device) device = DEVICE_CPU;
        uint64_t limit = device_memory_on(budget, device), pinned = device_memory_on(&r->pinned.bytes, device);
        err_set(&e, ERR_LIMIT, "it needs %.2f GiB of memory%s and the pinned models leave %.2f GiB and %d places",
                (double)device_memory_on(&m->need, device) / gib, on_device(device, on),
                (double)(limit > pinned ? limit - pinned : 0) / gib, h->options.max_loaded - r->pinned.count);
    } else {
        return false;
    }
    stop(m);
    refuse(h, m, &e);
    return true;
}

static void let_in(model *m) {
    str s;
    str_init(&s);
    m->placed = true;
    m->phase = MODEL_LOADING;
    m->load_begin = clock_ms();
    if (wire_put_empty(&s, WIRE_LOAD, 0, NULL) < 0 || child_send(m->child, s.data, s.len, NULL) < 0) stop(m);
    str_deinit(&s);
}

/* Loads the first in line, or makes room for it, or waits. True: something was done. */
static bool place(host *h, int64_t *wake) {
    model *m = first_in_line(h), *v;
    if (!m) {
        for (model *o = h->models; o; o = o->next) o->yielding = false;
        return false;
    }
    room r;
    look(h, &r);
    if (refuse_hopeless(h, m, &r)) return true;
    if (fits(h, &r.now, m)) {
        let_in(m);
        return true;
    }
    if (fits(h, &r.later, m)) return false; /* its turn comes when they are gone */
    if ((v = victim(h, &r.later, m, false))) {
        log_info("host", "%s makes room for %s", v->info.name, m->info.name);
        stop(v);
        return true;
    }
    int64_t now = clock_ms(), give_up = m->wanted_at + h->options.wait_ms;
    if (now >= give_up) {
        err e = { 0 };
        err_set(&e, ERR_BUSY, "no place became free within %lld s: all loaded models are busy",
                (long long)(h->options.wait_ms / 1000));
        stop(m);
        refuse(h, m, &e);
        return true;
    }
    sooner(wake, give_up);
    for (model *o = h->models; o; o = o->next) {
        if (o->yielding) return false;
    }
    int64_t ask = m->wanted_at + h->options.yield_ms;
    if (now < ask) {
        sooner(wake, ask);
    } else if ((v = victim(h, &r.later, m, true))) {
        log_info("host", "%s is asked to make room for %s", v->info.name, m->info.name);
        v->yielding = true;
        return true;
    }
    return false;
}

/* Adapters that were loaded since count, too: where they take more than is left, the idle model that was used least
 * recently goes. The last model stays: nobody else needs its place. True: one goes. */
static bool relieve(host *h) {
    room   r;
    model *found = NULL;
    look(h, &r);
    const char *device = r.later.count > 1 ? budget_exceeded(&h->options.budget, &r.later.bytes) : NULL;
    for (model *m = h->models; device && m; m = m->next) {
        if (!is_idle(m) || model_pinned(m) || !device_memory_on(&m->need, device)) continue;
        if (!found || m->last_used < found->last_used) found = m;
    }
    if (!found) return false;
    log_info("host", "%s makes room for adapters", found->info.name);
    stop(found);
    return true;
}

static bool keeper_act(host *h, int64_t *wake) {
    *wake = INT64_MAX;
    for (model *m = h->models; m; m = m->next) {
        if (act(h, m, wake)) return true;
    }
    return relieve(h) || place(h, wake);
}

void *keeper_main(void *ctx) {
    host   *h = ctx;
    int64_t wake;
    pthread_mutex_lock(&h->lock);
    while (!h->closing) {
        if (keeper_act(h, &wake)) continue;
        if (wake == INT64_MAX) {
            pthread_cond_wait(&h->keeper_wake, &h->lock);
        } else {
            struct timespec t = clock_moment(wake);
            pthread_cond_timedwait(&h->keeper_wake, &h->lock, &t);
        }
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

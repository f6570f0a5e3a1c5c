/* SPDX-License-Identifier: Apache-2.0 */
#include "host/worker/worker.h"

#include "backend/backend.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/queue.h"
#include "host/host.h"
#include "host/inbox.h"
#include "host/worker/fault.h"
#include "host/worker/gpus.h"
#include "host/worker/sandbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_QUEUE = 64 << 20,
    MAX_CALLS = 1024,
    MOVING_BYTES = 16 << 20, /* a piece of file_map_settle */
    STREAMING_FILES = 1024,  /* two descriptors for each file of a model whose experts are streamed */
    SEND_BYTES = 64 << 10,   /* what the engine's thread sends itself */
    STOP_SECONDS = 60,       /* for ending well */
};

typedef enum state { MEASURING, MEASURED, LOADING, READY, FAILED } state;

typedef struct worker worker;

/* A request in the runtime. */
typedef struct request {
    worker  *w;
    uint64_t id, runtime_id;
    bool     lost; /* its events did not fit: cancelled */
} request;

typedef struct call {
    wire_type type;
    uint64_t  id;
    size_t    bytes;
    char      body[];
} call;

struct worker {
    int           fd;
    wire_open     open;
    arena         open_mem, mem; /* of the first frame; of the frame at hand */
    inbox         in;
    runtime      *runtime; /* for the reader: once the state is READY */
    queue        *calls;
    fault         fault;
    int           walls; /* what sandbox_enter said */
    err           no_walls;
    need          need;       /* without adapters */
    char          device[64]; /* that computes */
    bool          may_leave;  /* nobody named it */
    pthread_t     caller, writer;
    bool          caller_runs, writer_runs;
    atomic_int    state;
    atomic_ullong progress; /* events and finished calls */

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  more;
    str             out;
    size_t          limit;
    bool            writer_waits, writing, closing;
    uint64_t        adapter_bytes;               /* as the runtime said last */
    bool            lost;                        /* the device is gone */
    bool            in_step;                     /* more events of this step come: they leave together */
    request        *requests[HOST_MAX_REQUESTS]; /* by the low bits of the id */
};

/* --- writing --- */

static bool send_all(int fd, const char *data, size_t n) {
    while (n) {
        ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        data += k;
        n -= (size_t)k;
    }
    return true;
}

static void *writer_main(void *ctx) {
    worker *w = ctx;
    str     batch;
    bool    broken = false;
    str_init(&batch);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->out.len && !w->closing) {
            w->writer_waits = true;
            pthread_cond_wait(&w->more, &w->lock);
            w->writer_waits = false;
        }
        if (!w->out.len) break;
        str t = w->out;
        w->out = batch;
        batch = t;
        w->writing = true;
        pthread_mutex_unlock(&w->lock);
        if (!broken) broken = !send_all(w->fd, batch.data, batch.len); /* the reader sees the end, too */
        str_clear(&batch);
        if (batch.cap > (1 << 20)) str_deinit(&batch);
        pthread_mutex_lock(&w->lock);
        w->writing = false;
    }
    pthread_mutex_unlock(&w->lock);
    str_deinit(&batch);
    return NULL;
}

/* With the lock held. */
static void written(worker *w) {
    if (w->in_step) return;
    if (w->writer_waits) pthread_cond_signal(&w->more);
    w->writer_waits = false;
}

/* With the lock held, behind events. What a step has to say goes out from the engine's thread: waking the writer costs
 * as much as sending. Never waits; what does not fit is the writer's. */
static void send_events(worker *w) {
    if (w->in_step || !w->out.len) return;
    ssize_t n = 0;
    if (!w->writing && w->out.len <= SEND_BYTES) n = send(w->fd, w->out.data, w->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n == (ssize_t)w->out.len) {
        str_clear(&w->out);
        return;
    }
    if (n > 0) {
        memmove(w->out.data, w->out.data + n, w->out.len - (size_t)n);
        w->out.len -= (size_t)n;
    }
    written(w);
}

static void on_batch(void *ctx, bool begins) {
    worker *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->in_step = begins;
    send_events(w);
    pthread_mutex_unlock(&w->lock);
}

static void say_result(worker *w, uint64_t id, const wire_result *r) {
    err e = { 0 };
    pthread_mutex_lock(&w->lock);
    if (wire_put_result(&w->out, id, r, &e) < 0) {
        wire_result failed = { .error = e };
        (void)wire_put_result(&w->out, id, &failed, NULL);
    }
    written(w);
    pthread_mutex_unlock(&w->lock);
}

/* --- events --- */

/* Text that breaks its promise to be UTF-8 is mended here: the other side would end the connection. */
static view mended(arena *mem, view v) {
    str s;
    str_init(&s);
    for (size_t i = 0; i < v.len;) {
        unsigned cp;
        size_t   n = utf8_decode(v.data + i, v.len - i, &cp);
        str_put_utf8(&s, n ? cp : 0xfffd);
        i += n ? n : 1;
    }
    char *copy = str_ok(&s) ? arena_strndup(mem, str_cstr(&s), s.len) : NULL;
    view  out = { copy ? copy : "", copy ? s.len : 0 };
    str_deinit(&s);
    return out;
}

static int put_event(worker *w, uint64_t id, const runtime_event *ev, err *e) {
    int rc = wire_put_event(&w->out, id, ev, e);
    if (rc != ERR_ARG) return rc;
    arena         mem;
    runtime_event copy = *ev;
    arena_init(&mem, 0);
    copy.text = mended(&mem, ev->text);
    copy.id = mended(&mem, ev->id);
    copy.name = mended(&mem, ev->name);
    rc = wire_put_event(&w->out, id, &copy, e);
    arena_deinit(&mem);
    return rc;
}

static void on_event(void *ctx, const runtime_event *ev) {
    request *r = ctx;
    worker  *w = r->w;
    err      e; /* set where it is used */
    bool     last = ev->last;
    uint64_t cancel = 0;
    bool     broken = fault_at_event(&w->fault, w->fd);

    runtime_event gone = { .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = &e };
    atomic_fetch_add_explicit(&w->progress, 1, memory_order_relaxed);
    pthread_mutex_lock(&w->lock);
    /* One that came when the device was lost already: the end of the process cancels it, not its client. */
    if (last && w->lost && ev->kind == RUNTIME_DONE && ev->finish == RUNTIME_CANCELLED) {
        err_set(&e, ERR_LOST, "the device %s was lost", w->device);
        ev = &gone;
    }
    size_t begin = w->out.len + WIRE_HEAD_BYTES;
    if (!r->lost && !last && w->out.len > w->limit) {
        r->lost = true;
        cancel = r->runtime_id;
    } else if (!r->lost && put_event(w, r->id, ev, &e) < 0) {
        r->lost = true;
        cancel = r->runtime_id;
    }
    if (broken && w->out.len > begin) fault_break(&w->fault, w->out.data + begin, w->out.len - begin);
    if (last && r->lost) {
        err_set(&e, ERR_BUSY, "the answer was given up: its events were not taken");
        runtime_event end = { .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = &e };
        (void)wire_put_event(&w->out, r->id, &end, NULL);
    }
    if (last) w->requests[r->id % HOST_MAX_REQUESTS] = NULL;
    /* Nothing can be computed here any more: reading ends, and with it the process, once everybody was told. */
    if (last && ev->kind == RUNTIME_ERROR && ev->error->code == ERR_LOST && !w->lost) {
        w->lost = true;
        (void)shutdown(w->fd, SHUT_RD);
    }
    send_events(w);
    pthread_mutex_unlock(&w->lock);
    if (last)
        free(r);
    else if (cancel)
        runtime_cancel(w->runtime, cancel);
}

static void fail_request(worker *w, uint64_t id, const err *why) {
    runtime_event ev = { .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = why };
    pthread_mutex_lock(&w->lock);
    (void)wire_put_event(&w->out, id, &ev, NULL);
    written(w);
    pthread_mutex_unlock(&w->lock);
}

/* --- requests --- */

static int submit(worker *w, const wire_frame *f, err *e) {
    runtime_request q;
    err             why = { 0 };
    size_t          slot = f->id % HOST_MAX_REQUESTS;
    uint64_t        runtime_id = 0, id = f->id;
    runtime_request_init(&q);
    int rc = wire_get_request(f->body, &w->mem, &q, e);
    if (rc < 0) return rc;
    request *r = calloc(1, sizeof *r);
    if (!r) {
        err_set_nomem(&why);
        fail_request(w, id, &why);
        return 0;
    }
    *r = (request){ .w = w, .id = id };
    pthread_mutex_lock(&w->lock);
    bool taken = w->requests[slot] != NULL;
    if (!taken) w->requests[slot] = r;
    pthread_mutex_unlock(&w->lock);
    if (taken) {
        free(r);
        return err_set(e, ERR_FORMAT, "a request with a number that is in use");
    }
    q.on_event = on_event;
    q.ctx = r;
    bool ok = runtime_submit(w->runtime, &q, &runtime_id, &why) == 0, cancel = false;
    pthread_mutex_lock(&w->lock);
    request *still = w->requests[slot]; /* its last event may have come already */
    if (ok && still) {
        still->runtime_id = runtime_id;
        cancel = still->lost;
    }
    if (!ok) w->requests[slot] = NULL;
    pthread_mutex_unlock(&w->lock);
    if (cancel) runtime_cancel(w->runtime, runtime_id);
    if (!ok) {
        fail_request(w, id, &why);
        free(r);
    }
    return 0;
}

/* What comes too late, for a request that is over, is ignored. */
static void steer(worker *w, uint64_t id, void (*how)(runtime *r, uint64_t id)) {
    pthread_mutex_lock(&w->lock);
    const request *r = w->requests[id % HOST_MAX_REQUESTS];
    uint64_t       runtime_id = r && r->id == id ? r->runtime_id : 0;
    pthread_mutex_unlock(&w->lock);
    if (runtime_id) how(w->runtime, runtime_id);
}

static void pong(worker *w, uint64_t id) {
    wire_pong p = { .stamp = atomic_load(&w->progress) };
    if (atomic_load(&w->state) == READY) {
        runtime_stat(w->runtime, &p.stats);
        p.stamp += p.stats.engine.steps + p.stats.engine.tokens_evaluated + p.stats.requests;
        p.stamp += p.stats.engine.experts.bytes; /* a step that reads from a slow disk is not one that hangs */
    }
    pthread_mutex_lock(&w->lock);
    (void)wire_put_pong(&w->out, id, &p, NULL);
    written(w);
    pthread_mutex_unlock(&w->lock);
}

/* --- calls --- */

static int answer_call(worker *w, const call *c, arena *mem, err *e) {
    view            body = { c->body, c->bytes };
    wire_result     r = { 0 };
    wire_text_call  t;
    wire_ids_call   i;
    runtime_request q;
    tok_ids         ids = { 0 };
    str             text;
    size_t          count = 0;
    int             rc;
    str_init(&text);
    runtime_request_init(&q);
    if (c->type == WIRE_TOKENIZE) {
        if ((rc = wire_get_text_call(body, &t, e)) < 0) return rc;
        r.error.code = runtime_tokenize(w->runtime, t.text, t.add_special, t.parse_special, &ids, &r.error);
    } else if (c->type == WIRE_DETOKENIZE) {
        if ((rc = wire_get_ids_call(body, mem, &i, e)) < 0) return rc;
        r.error.code = runtime_detokenize(w->runtime, i.ids, i.n, i.keep_special, &text, &r.error);
    } else {
        if ((rc = wire_get_request(body, mem, &q, e)) < 0) return rc;
        r.error.code = c->type == WIRE_RENDER ? runtime_render(w->runtime, &q, &text, &r.error)
                                              : runtime_count(w->runtime, &q, &count, &r.error);
    }
    if (r.error.code == 0) {
        r.text = (view){ str_cstr(&text), text.len };
        r.ids = ids.data;
        r.n_ids = ids.count;
        r.count = count;
    }
    say_result(w, c->id, &r);
    str_deinit(&text);
    tok_ids_deinit(&ids);
    return 0;
}

static void say_loading(void *ctx, float fraction) {
    worker *w = ctx;
    pthread_mutex_lock(&w->lock);
    (void)wire_put_loading(&w->out, fraction, NULL);
    written(w);
    pthread_mutex_unlock(&w->lock);
}

static void say_failed(worker *w, const err *why) {
    pthread_mutex_lock(&w->lock);
    (void)wire_put_failed(&w->out, why, NULL);
    atomic_store(&w->state, FAILED);
    written(w);
    pthread_mutex_unlock(&w->lock);
}

/* What is opened is what was measured: where it computes, and what the cache may take, are found out once. */
static void keep_place(worker *w, const need *n) {
    engine_options *o = &w->open.runtime.engine;
    w->may_leave = (w->may_leave || backend_is_auto(o->device)) && strcmp(n->device, DEVICE_CPU) != 0;
    if (n->left[0]) log_warn("worker", "%s", n->left);
    snprintf(w->device, sizeof w->device, "%s", n->device);
    o->device = w->device;
    o->cache_room = n->cache_room;
    o->expert_bytes = n->experts.bytes;
    o->experts_auto = o->experts_auto && w->may_leave; /* elsewhere it is chosen anew */
    /* Weights that were copied to a device are not worth moving in the machine's memory, too. */
    if (strcmp(n->device, DEVICE_CPU) != 0) w->open.runtime.spare_bytes = 0;
}

/* The first look into the file. */
static int measure(worker *w, err *e) {
    engine_options o = w->open.runtime.engine;
    need           n;
    int            rc = w->walls;
    if (rc < 0) *e = w->no_walls;
    if (rc == 0) rc = fault_at_load(&w->fault, e);
    if (o.experts_auto) o.expert_bytes = 0; /* chosen for another place */
    if (rc == 0) rc = need_of_settings(&n, w->open.runtime.path, &w->open.runtime.settings, &o, e);
    if (rc == 0) rc = need_check_device(&n, w->open.runtime.path, &o, e);
    if (rc < 0) return rc;
    keep_place(w, &n);
    uint64_t moving = device_memory_on(&n.bytes, DEVICE_CPU) + MOVING_BYTES;
    bool     tight = n.n_mixtures && o.memory_room && moving > o.memory_room; /* it was chosen for that room */
    if (n.experts.bytes || tight) w->open.runtime.spare_bytes = 0;            /* they stay */
    if (w->open.runtime.spare_bytes / 2 > n.weights_bytes) {                  /* they will move, piece by piece */
        n.other_bytes += MOVING_BYTES;
        (void)device_memory_add(&n.bytes, DEVICE_CPU, MOVING_BYTES);
    }
    fault_at_need(&w->fault, &n.bytes);
    w->need = n;
    pthread_mutex_lock(&w->lock);
    rc = wire_put_need(&w->out, &n, e);
    atomic_store(&w->state, MEASURED);
    written(w);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* With the lock held. Adapters come and go: what the model needs with those that are loaded now. */
static void say_adapters(worker *w) {
    need n = w->need;
    n.other_bytes += w->adapter_bytes;
    if (device_memory_add(&n.bytes, DEVICE_CPU, w->adapter_bytes)) (void)wire_put_need(&w->out, &n, NULL);
}

static void on_adapters(void *ctx, uint64_t bytes) {
    worker *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->adapter_bytes = bytes;
    if (atomic_load(&w->state) == READY) {
        say_adapters(w);
        written(w);
    }
    pthread_mutex_unlock(&w->lock);
}

static int load(worker *w, err *e) {
    runtime_info info;
    say_loading(w, 0);
    fault_at_open(&w->fault, &w->open.runtime.engine);
    w->open.runtime.engine.on_batch = on_batch;
    w->open.runtime.engine.batch_ctx = w;
    w->open.runtime.on_progress = say_loading;
    w->open.runtime.progress_ctx = w;
    w->open.runtime.on_adapters = on_adapters;
    w->open.runtime.adapters_ctx = w;
    int rc = fault_at_place(&w->fault, &w->may_leave, e);
    if (rc == 0) rc = runtime_open(&w->runtime, &w->open.runtime, e);
    if (rc < 0) return rc;
    runtime_describe(w->runtime, &info);
    pthread_mutex_lock(&w->lock);
    rc = wire_put_ready(&w->out, &info, e);
    if (rc == 0) atomic_store(&w->state, READY);
    if (rc == 0 && w->adapter_bytes) say_adapters(w);
    written(w);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* A device that nobody named does not take the model after all: others use its memory. A smaller part of it there is
 * measured, or the CPU, and the host decides anew. */
static int load_elsewhere(worker *w, err *e) {
    bool leaves = w->may_leave && (e->code == ERR_NOMEM || e->code == ERR_UNSUPPORTED || e->code == ERR_LOST);
    if (!leaves) return e->code;
    if (e->code == ERR_NOMEM && need_smaller(&w->need, w->device)) {
        log_warn("worker", "%s; the model is tried on %s", e->msg, w->device);
        return measure(w, e);
    }
    log_warn("worker", "%s; the model computes on the CPU", e->msg);
    w->open.runtime.engine.device = DEVICE_CPU;
    w->open.runtime.engine.cache_room = 0;
    w->open.runtime.spare_bytes = machine_memory_available(NULL);
    return measure(w, e);
}

static void *caller_main(void *ctx) {
    worker *w = ctx;
    void   *item;
    arena   mem;
    err     e = { 0 };
    if (measure(w, &e) < 0) say_failed(w, &e);
    arena_init(&mem, 0);
    while (queue_pop(w->calls, &item)) {
        if (((const call *)item)->type == WIRE_LOAD) {
            if (load(w, &e) < 0 && load_elsewhere(w, &e) < 0) say_failed(w, &e);
        } else if (answer_call(w, item, &mem, &e) < 0) {
            log_error("worker", "bad frame: %s", e.msg);
            _exit(3);
        }
        atomic_fetch_add(&w->progress, 1);
        free(item);
        arena_reset(&mem);
    }
    arena_deinit(&mem);
    return NULL;
}

static int keep_call(worker *w, const wire_frame *f) {
    call *c = malloc(sizeof *c + f->body.len);
    bool  ok = c != NULL;
    if (c) {
        *c = (call){ .type = f->type, .id = f->id, .bytes = f->body.len };
        memcpy(c->body, f->body.data, f->body.len);
        ok = queue_try_push(w->calls, c);
    }
    if (!ok) {
        wire_result r = { 0 };
        err_set(&r.error, c ? ERR_BUSY : ERR_NOMEM, c ? "too many calls wait for this model" : "out of memory");
        say_result(w, f->id, &r);
        free(c);
    }
    return 0;
}

/* --- the reader --- */

/* 1: go on; 0: end; negative: the frame makes no sense. */
static int take(worker *w, const wire_frame *f, err *e) {
    int level, rc = 0;
    if (f->type == WIRE_QUIT) return f->body.len ? err_set(e, ERR_FORMAT, "a QUIT with a body") : 0;
    if (f->type == WIRE_PING) {
        if ((rc = wire_get_ping(f->body, &level, e)) < 0) return rc;
        log_set_level((log_level)level);
        pong(w, f->id);
        return 1;
    }
    if (f->type == WIRE_OPEN) return err_set(e, ERR_FORMAT, "a second OPEN");
    int expected = MEASURED;
    if (f->type == WIRE_LOAD && !atomic_compare_exchange_strong(&w->state, &expected, LOADING))
        return err_set(e, ERR_FORMAT, "a LOAD at the wrong time");
    if (f->type != WIRE_LOAD && atomic_load(&w->state) != READY)
        return err_set(e, ERR_FORMAT, "a request before the model was ready");
    bool bare = f->type == WIRE_LOAD || f->type == WIRE_CANCEL || f->type == WIRE_PAUSE || f->type == WIRE_RESUME;
    if (bare && f->body.len) return err_set(e, ERR_FORMAT, "a frame with a body it should not have");
    switch (f->type) {
    case WIRE_SUBMIT: rc = submit(w, f, e); break;
    case WIRE_CANCEL: steer(w, f->id, runtime_cancel); break;
    case WIRE_PAUSE: steer(w, f->id, runtime_pause); break;
    case WIRE_RESUME: steer(w, f->id, runtime_resume); break;
    default: rc = keep_call(w, f); break;
    }
    arena_reset(&w->mem);
    if (w->mem.used_bytes > (1 << 20)) arena_deinit(&w->mem);
    return rc < 0 ? rc : 1;
}

static int next_frame(worker *w, wire_frame *f, err *e) {
    int rc;
    while ((rc = inbox_next(&w->in, f, e)) == 0) {
        /* Sleeping in recv would wake with every piece that the other side reads. */
        struct pollfd p = { .fd = w->fd, .events = POLLIN };
        if (poll(&p, 1, -1) < 0) continue;
        if ((rc = inbox_read(&w->in, w->fd, 0, e)) <= 0) return rc;
    }
    return rc;
}

static int read_frames(worker *w, err *e) {
    wire_frame f;
    int        rc;
    do {
        rc = next_frame(w, &f, e);
        if (rc == 1) rc = take(w, &f, e);
    } while (rc == 1);
    return rc;
}

/* --- beginning and end --- */

/* Signals of a terminal or a service manager go to every process of the group; this one ends with its socket. */
static int settle(long parent, err *e) {
    const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    (void)prctl(PR_SET_NAME, "hearth-worker");
    if (!parent) return 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return err_set_errno(e, "cannot tie the worker to its parent");
    /* It may have ended before the line above. */
    return getppid() == (pid_t)parent ? 0 : err_set(e, ERR_CANCELLED, "the parent has ended");
}

/* Views point into the frame, which goes; the paths stay, terminated. */
static int keep_lora(worker *w, err *e) {
    runtime_settings *s = &w->open.runtime.settings;
    runtime_lora     *copy = arena_calloc(&w->open_mem, s->n_lora + 1, sizeof *copy);
    for (size_t i = 0; copy && i < s->n_lora; i++) {
        copy[i] = s->lora[i];
        copy[i].path.data = arena_strndup(&w->open_mem, s->lora[i].path.data, s->lora[i].path.len);
        if (!copy[i].path.data) copy = NULL;
    }
    s->lora = copy;
    return copy ? 0 : err_set_nomem(e);
}

/* The file with the model's eyes beside it: behind the walls nobody lists a directory. */
static int find_eyes(worker *w, err *e) {
    runtime_settings *s = &w->open.runtime.settings;
    char             *found = s->mmproj ? NULL : runtime_find_mmproj(w->open.runtime.path);
    int               rc = 0;
    if (found) {
        s->mmproj = arena_strdup(&w->open_mem, found);
        s->mmproj_may_fail = true;
        if (!s->mmproj) rc = err_set_nomem(e);
    }
    free(found);
    return rc;
}

static bool has_gpu(const char *device) { return backend_has_driver(device) && access("/dev/nvidiactl", F_OK) == 0; }

static void prepare_devices(void *ctx) {
    worker *w = ctx;
    gpus_prepare(&w->open.runtime.engine, w->open.runtime.path);
}

/* Before anything of the model is opened, while there is one thread. */
static int build_walls(worker *w, err *e) {
    const char             *cache = w->open.runtime.engine.disk_cache_dir, *dir = w->open.runtime.adapter_dir;
    const runtime_settings *s = &w->open.runtime.settings;
    size_t                  n_more = w->open.runtime.n_adapter_paths, n = 0;
    const char            **readable = arena_calloc(&w->open_mem, 4 + RUNTIME_MAX_LORA + n_more, sizeof *readable);
    char                   *head = s->draft ? NULL : runtime_find_head(w->open.runtime.path);
    if (!readable) {
        free(head);
        return err_set_nomem(e);
    }
    readable[n++] = w->open.runtime.path;
    if (s->mmproj && access(s->mmproj, F_OK) == 0) readable[n++] = s->mmproj;
    if (s->draft || head) readable[n++] = s->draft ? s->draft : head;
    /* Adapters that are added later lie in a directory of their own. One that is missing is said when it is used. */
    if (dir && dir_exists(dir)) readable[n++] = dir;
    for (size_t i = 0; i < s->n_lora; i++) {
        if (access(s->lora[i].path.data, F_OK) == 0) readable[n++] = s->lora[i].path.data;
    }
    for (size_t i = 0; i < n_more; i++) {
        if (access(w->open.runtime.adapter_paths[i], F_OK) == 0) readable[n++] = w->open.runtime.adapter_paths[i];
    }
    bool                  gpu = has_gpu(w->open.runtime.engine.device);
    const engine_options *wished = &w->open.runtime.engine;
    bool                  may_stream = wished->experts_auto || wished->expert_bytes;
    sandbox_options       o = { .gpu = gpu,
                                .before_filter = gpu ? prepare_devices : NULL,
                                .ctx = w,
                                .readable = readable,
                                .n_readable = n,
                                .writable = &cache,
                                .n_writable = cache ? 1 : 0,
                                .max_files = may_stream ? STREAMING_FILES : 0,
                                .missing = SANDBOX_WARN };
    int                   rc = sandbox_enter(&o, e);
    free(head);
    return rc;
}

static int begin(worker *w, err *e) {
    wire_frame f;
    int        rc = next_frame(w, &f, e);
    if (rc <= 0) return rc < 0 ? rc : err_set(e, ERR_CANCELLED, "the socket was closed");
    if (f.type != WIRE_OPEN) return err_set(e, ERR_FORMAT, "the first frame is not an OPEN");
    if ((rc = wire_get_open(f.body, &w->open_mem, &w->open, e)) < 0) return rc;
    if ((rc = keep_lora(w, e)) < 0 || (rc = find_eyes(w, e)) < 0) return rc;
    if ((rc = fault_parse(&w->fault, w->open.fault, e)) < 0) return rc;
    log_set_level((log_level)w->open.log_level);
    w->limit = w->open.queue_bytes ? w->open.queue_bytes : DEFAULT_QUEUE;
    if ((rc = queue_open(&w->calls, MAX_CALLS, e)) < 0) return rc;
    if (!w->open.no_sandbox) w->walls = build_walls(w, &w->no_walls);
    w->writer_runs = pthread_create(&w->writer, NULL, writer_main, w) == 0;
    w->caller_runs = w->writer_runs && pthread_create(&w->caller, NULL, caller_main, w) == 0;
    return w->caller_runs ? 0 : err_set(e, ERR_IO, "cannot start the worker's threads");
}

/* Nothing of a worker stays behind, whatever its threads do. */
static void *deadline_main(void *ctx) {
    struct timespec t = { .tv_sec = STOP_SECONDS };
    (void)ctx;
    while (nanosleep(&t, &t) != 0) {
    }
    _exit(4);
}

static void finish(worker *w) {
    void     *item;
    pthread_t deadline;
    if (pthread_create(&deadline, NULL, deadline_main, NULL) == 0) pthread_detach(deadline);
    if (atomic_load(&w->state) < READY && w->caller_runs) _exit(0); /* it cannot be stopped, and nothing is lost */
    queue_close(w->calls);
    while (queue_try_pop(w->calls, &item)) free(item);
    if (w->caller_runs) pthread_join(w->caller, NULL);
    pong(w, 0); /* the counters of a model outlive it */
    runtime_free(w->runtime);
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    if (w->writer_runs) pthread_join(w->writer, NULL);
}

int worker_run(int socket, long parent, err *e) {
    worker *w = calloc(1, sizeof *w);
    if (!w) return err_set_nomem(e);
    w->fd = socket;
    arena_init(&w->open_mem, 0);
    arena_init(&w->mem, 0);
    inbox_init(&w->in, false);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    str_init(&w->out);
    int rc = settle(parent, e);
    if (rc == 0) rc = begin(w, e);
    if (rc == 0) rc = read_frames(w, e);
    if (rc < 0) return rc; /* threads may run: the process ends now */
    finish(w);
    queue_free(w->calls);
    inbox_deinit(&w->in);
    arena_deinit(&w->open_mem);
    arena_deinit(&w->mem);
    str_deinit(&w->out);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    rc = w->lost ? WORKER_EXIT_LOST : 0;
    free(w);
    return rc;
}

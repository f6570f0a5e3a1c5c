/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's thread, and what other threads may do with a child.
 *
 * Signs of life. While answers are awaited the parent pings about once a second; the worker's reader answers with a
 * stamp that grows with every step, prepared request and finished call. A stamp that stands still means a hung engine,
 * no answer at all a hung process. Reading weights from a slow disk is not hanging: page faults that needed the disk
 * count as a sign, and while a model is loaded so does processor time.
 */
#include "host/parent/child.h"

#include "base/clock.h"
#include "base/log.h"
#include "host/inbox.h"
#include "host/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_HANG_MS = 30 * 1000,
    DEFAULT_LOAD_MS = 15 * 60 * 1000,
    DEFAULT_STOP_MS = 30 * 1000,
    PING_MS = 1000,
    GONE_MS = 3000,    /* from a closed socket to the end of the process */
    LINE_BYTES = 1000, /* of a log line */
    LINES_A_SECOND = 200,
};

#define MAX_UNSENT ((size_t)2 << 30) /* two of the largest frames */

struct child {
    child_options o;
    char         *name, *program;
    int           socket, wake, log;
    pthread_t     thread;
    bool          started;

    /* the thread's own */
    pid_t          process;
    inbox          in;
    child_activity activity;                    /* at the last tick */
    int64_t        begin, last_tick, last_sign; /* begin: of this activity */
    uint64_t       stamp, faults, cpu;
    char           line[LINE_BYTES + 1];
    size_t         line_len;
    int64_t        line_window;
    int            lines;

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  news;
    str             out; /* unsent from `sent` on */
    size_t          sent;
    bool            idle;   /* the thread sleeps without a limit */
    bool            poked;  /* something was sent since it last looked whether there is work */
    bool            over;   /* its process is gone */
    bool            broken; /* its end of the socket is closed: it is going */
    bool            stopping;
    bool            distrusted;
    err             distrust;
    int64_t         stop_at;
    pid_t           pid;
    uint64_t        next_ping, last_pong;
    runtime_stats   stats;
};

static void wake(child *c) {
    uint64_t one = 1;
    (void)!write(c->wake, &one, sizeof one);
}

/* --- sending --- */

/* With the lock held: as much as the socket takes. */
static void flush(child *c) {
    while (!c->over && c->sent < c->out.len) {
        ssize_t n = send(c->socket, c->out.data + c->sent, c->out.len - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            c->sent += (size_t)n;
        } else if (n < 0 && errno != EINTR) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) break;
            c->broken = true; /* the thread will see it, too */
            c->sent = c->out.len;
        }
    }
    if (c->sent < c->out.len) return;
    c->sent = 0;
    str_clear(&c->out);
    if (c->out.cap > (1 << 20)) str_deinit(&c->out);
}

int child_send(child *c, const char *frames, size_t bytes, err *e) {
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    if (!c->over && !c->broken && c->out.len - c->sent + bytes > MAX_UNSENT) {
        rc = err_set(e, ERR_BUSY, "the model's worker does not read its requests");
    } else if (!c->over && !c->broken) {
        str_append(&c->out, frames, bytes);
        if (!str_ok(&c->out)) {
            c->out.failed = false;
            rc = err_set_nomem(e);
        }
        if (c->socket >= 0) flush(c);
        if (c->idle || c->out.len) wake(c);
        c->idle = false;
        c->poked = true;
    }
    if (c->over || c->broken) rc = err_set(e, ERR_IO, "the model's worker has ended");
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static int current_level(void) {
    for (int i = LOG_DEBUG; i < LOG_OFF; i++) {
        if (log_enabled((log_level)i)) return i;
    }
    return LOG_OFF;
}

static void ping(child *c) {
    str s;
    str_init(&s);
    pthread_mutex_lock(&c->lock);
    uint64_t id = ++c->next_ping;
    pthread_mutex_unlock(&c->lock);
    if (wire_put_ping(&s, id, current_level(), NULL) == 0) (void)child_send(c, s.data, s.len, NULL);
    str_deinit(&s);
}

void child_stop(child *c) {
    str s;
    str_init(&s);
    pthread_mutex_lock(&c->lock);
    bool first = !c->stopping;
    c->stopping = true;
    if (first) c->stop_at = clock_ms() + c->o.stop_ms;
    pthread_mutex_unlock(&c->lock);
    if (first && wire_put_empty(&s, WIRE_QUIT, 0, NULL) == 0) (void)child_send(c, s.data, s.len, NULL);
    str_deinit(&s);
    wake(c);
}

void child_not_understood(err *why) {
    err what = *why;
    err_set(why, ERR_IO, "the model's worker said something that cannot be understood (%s)", what.msg);
}

void child_distrust(child *c, const err *why) {
    pthread_mutex_lock(&c->lock);
    if (!c->distrusted) c->distrust = *why;
    c->distrusted = true;
    pthread_mutex_unlock(&c->lock);
    wake(c);
}

void child_stat(child *c, runtime_stats *out, int wait_ms) {
    pthread_mutex_lock(&c->lock);
    bool     answers = c->last_pong == c->next_ping && !c->over; /* one that owes an answer is not waited for */
    uint64_t want = c->next_ping + 1;
    pthread_mutex_unlock(&c->lock);
    if (answers && wait_ms > 0) ping(c);
    struct timespec t = clock_after(wait_ms);
    pthread_mutex_lock(&c->lock);
    while (answers && !c->over && c->last_pong < want) {
        if (pthread_cond_timedwait(&c->news, &c->lock, &t) != 0) break;
    }
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}

pid_t child_pid(child *c) {
    pthread_mutex_lock(&c->lock);
    pid_t p = c->pid;
    pthread_mutex_unlock(&c->lock);
    return p;
}

/* --- the process --- */

static int start(child *c, err *e) {
    int pair[2] = { -1, -1 }, log[2] = { -1, -1 };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set_errno(e, "cannot make a socket for a worker");
    if (pipe2(log, O_CLOEXEC) != 0) {
        close(pair[0]);
        close(pair[1]);
        return err_set_errno(e, "cannot make a pipe for a worker");
    }
    posix_spawn_file_actions_t fds;
    posix_spawnattr_t          attr;
    sigset_t                   none, all;
    char                       parent[24];
    char                      *argv[] = { "hearth", "worker", "--parent", parent, NULL };
    char                      *empty[] = { NULL };
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&fds);
    posix_spawn_file_actions_addopen(&fds, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addopen(&fds, 1, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&fds, log[1], 2);
    posix_spawn_file_actions_adddup2(&fds, pair[1], 3);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(&c->process, c->program, &fds, &attr, argv, c->o.env ? c->o.env : empty);
    posix_spawn_file_actions_destroy(&fds);
    posix_spawnattr_destroy(&attr);
    close(pair[1]);
    close(log[1]);
    if (rc != 0) {
        close(pair[0]);
        close(log[0]);
        c->process = 0;
        return err_set(e, ERR_IO, "cannot start a worker (%s): %s", c->program, strerror(rc));
    }
    fcntl(log[0], F_SETFL, O_NONBLOCK);
    c->log = log[0];
    pthread_mutex_lock(&c->lock);
    c->socket = pair[0];
    c->pid = c->process;
    flush(c);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

/* Faults that read the disk, and processor time, of the worker so far. */
static void read_usage(pid_t pid, uint64_t *faults, uint64_t *cpu) {
    char  path[40], text[1024];
    FILE *f;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!(f = fopen(path, "re"))) return;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char        *at = strrchr(text, ')'); /* a name may contain anything */
    unsigned long long major, user, system;
    if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %llu %*u %llu %llu", &major, &user, &system) == 3) {
        *faults = major;
        *cpu = user + system;
    }
}

/* --- its log --- */

/* A line of the worker's own log is level, tab, module, tab, text; anything else came from a library or a crash. */
static void log_line(child *c) {
    char   *text = c->line;
    int64_t now = clock_ms();
    if (!c->line_len) return;
    text[c->line_len] = '\0';
    for (char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 && *p != '\t') *p = '?';
    }
    c->line_len = 0;
    if (now - c->line_window >= 1000) {
        if (c->lines > LINES_A_SECOND)
            log_warn("worker", "%s: %d lines were left out", c->name, c->lines - LINES_A_SECOND);
        c->line_window = now;
        c->lines = 0;
    }
    if (++c->lines > LINES_A_SECOND) return;
    char *module = text[0] >= '0' && text[0] < '0' + LOG_OFF && text[1] == '\t' ? text + 2 : NULL;
    char *message = module ? strchr(module, '\t') : NULL;
    if (message) {
        *message++ = '\0';
        log_write((log_level)(text[0] - '0'), "worker", "%s: %s: %s", c->name, module, message);
    } else {
        log_warn("worker", "%s: %s", c->name, text);
    }
}

static void read_log(child *c) {
    char buffer[4096];
    for (int turns = 0; c->log >= 0 && turns < 16; turns++) {
        ssize_t n = read(c->log, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(c->log);
            c->log = -1;
            return;
        }
        for (ssize_t i = 0; i < n; i++) {
            if (buffer[i] == '\n' || c->line_len == LINE_BYTES) log_line(c);
            if (buffer[i] != '\n') c->line[c->line_len++] = buffer[i];
        }
    }
}

/* --- frames and signs of life --- */

static int take_pong(child *c, const wire_frame *f, err *e) {
    wire_pong p;
    int       rc = wire_get_pong(f->body, &p, e);
    if (rc < 0) return rc;
    if (p.stamp != c->stamp) c->last_sign = clock_ms();
    c->stamp = p.stamp;
    pthread_mutex_lock(&c->lock);
    if (f->id > c->next_ping)
        rc = err_set(e, ERR_FORMAT, "an answer to a ping that was not sent");
    else if (f->id)
        c->last_pong = f->id;
    c->stats = p.stats;
    pthread_cond_broadcast(&c->news);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static int take_frames(child *c, err *e) {
    wire_frame f;
    int        rc;
    while ((rc = inbox_next(&c->in, &f, e)) == 1) {
        if (f.type == WIRE_PONG) {
            rc = take_pong(c, &f, e);
        } else {
            c->last_sign = c->last_tick > c->last_sign ? c->last_tick : c->last_sign;
            rc = c->o.on_frame(c->o.ctx, &f, e);
        }
        if (rc < 0) break;
    }
    return rc;
}

/* Once in a while: is it alive? False: it is not, end->why says what happened. */
static bool tick(child *c, child_end *end) {
    int64_t        now = clock_ms();
    uint64_t       faults = c->faults, cpu = c->cpu;
    child_activity is = c->o.activity(c->o.ctx);
    bool           loading = is == CHILD_LOADING;
    if (now - c->last_tick > 3 * PING_MS) c->last_sign = now; /* this process itself was stopped */
    c->last_tick = now;
    if (is == CHILD_IDLE || is != c->activity) c->begin = c->last_sign = now;
    c->activity = is;
    if (is == CHILD_IDLE) return true;
    read_usage(c->process, &faults, &cpu);
    if (faults != c->faults || (loading && cpu != c->cpu)) c->last_sign = now;
    c->faults = faults;
    c->cpu = cpu;
    bool slow = loading && now - c->begin > c->o.load_ms;
    if (slow || now - c->last_sign > c->o.hang_ms) {
        end->crashed = true;
        err_set(&end->why, ERR_IO, "the model's worker %s for %.1f s and was ended",
                slow ? "has been loading" : "did nothing", (double)(slow ? now - c->begin : now - c->last_sign) / 1000);
        return false;
    }
    pthread_mutex_lock(&c->lock);
    bool owed = c->last_pong != c->next_ping;
    pthread_mutex_unlock(&c->lock);
    if (!owed) ping(c);
    return true;
}

/* Until something happens or is due. False: child_stop's time is over. */
static bool rest(child *c, struct pollfd p[3]) {
    int64_t every = c->o.hang_ms / 4 < PING_MS ? c->o.hang_ms / 4 : PING_MS;
    int64_t limit = -1;
    pthread_mutex_lock(&c->lock);
    c->poked = false;
    pthread_mutex_unlock(&c->lock);
    bool busy = c->o.activity(c->o.ctx) != CHILD_IDLE;
    pthread_mutex_lock(&c->lock);
    bool    unsent = c->sent < c->out.len, stopping = c->stopping;
    int64_t left = c->stop_at - clock_ms();
    if (busy || c->activity != CHILD_IDLE || c->poked) limit = every;
    if (stopping) limit = left < 0 ? 0 : left < every ? left : every;
    c->idle = limit < 0;
    pthread_mutex_unlock(&c->lock);
    if (stopping && left <= 0) return false;
    p[0] = (struct pollfd){ .fd = c->socket, .events = (short)(POLLIN | (unsent ? POLLOUT : 0)) };
    p[1] = (struct pollfd){ .fd = c->wake, .events = POLLIN };
    p[2] = (struct pollfd){ .fd = c->log, .events = POLLIN };
    if (poll(p, 3, (int)limit) < 0) p[0].revents = p[1].revents = p[2].revents = 0;
    pthread_mutex_lock(&c->lock);
    c->idle = false;
    pthread_mutex_unlock(&c->lock);
    return true;
}

static void give_up(child_end *end, const err *why) {
    end->crashed = true;
    end->why = *why;
}

static bool is_distrusted(child *c, child_end *end) {
    pthread_mutex_lock(&c->lock);
    if (c->distrusted) give_up(end, &c->distrust);
    pthread_mutex_unlock(&c->lock);
    return end->crashed;
}

/* Talks with the worker until one of the two has enough. */
static void converse(child *c, child_end *end) {
    int64_t every = c->o.hang_ms / 4 < PING_MS ? c->o.hang_ms / 4 : PING_MS;
    err     e = { 0 };
    for (;;) {
        struct pollfd p[3];
        uint64_t      n;
        if (!rest(c, p)) {
            log_warn("host", "the worker of %s does not end and is killed", c->name);
            return;
        }
        if (p[1].revents) (void)!read(c->wake, &n, sizeof n);
        if (p[1].revents && is_distrusted(c, end)) return;
        if (p[2].revents) read_log(c);
        if ((p[0].revents & POLLOUT) || p[1].revents) {
            pthread_mutex_lock(&c->lock);
            flush(c);
            pthread_mutex_unlock(&c->lock);
        }
        if (p[0].revents & (POLLIN | POLLHUP | POLLERR)) {
            int rc = inbox_read(&c->in, c->socket, MSG_DONTWAIT, &e);
            if (rc == 0) return;
            if (rc > 0 && c->o.on_batch) c->o.on_batch(c->o.batch_ctx, true);
            if (rc > 0) rc = take_frames(c, &e);
            if (c->o.on_batch) c->o.on_batch(c->o.batch_ctx, false);
            if (rc < 0 && rc != ERR_BUSY) {
                child_not_understood(&e);
                give_up(end, &e);
                return;
            }
        }
        if (clock_ms() - c->last_tick >= every && !tick(c, end)) return;
    }
}

/* --- the end --- */

static int reap(child *c, bool kill_now) {
    int     status = 0;
    int64_t until = clock_ms() + GONE_MS;
    if (kill_now) kill(c->process, SIGKILL);
    for (;;) {
        pid_t got = waitpid(c->process, &status, kill_now ? 0 : WNOHANG);
        if (got == c->process) return status;
        if (got < 0 && errno != EINTR) return 0;
        if (got == 0 && clock_ms() >= until) {
            kill(c->process, SIGKILL);
            kill_now = true;
        }
        if (got == 0) {
            struct pollfd p = { .fd = c->log, .events = POLLIN };
            poll(&p, 1, c->log >= 0 ? 5 : 1);
            read_log(c);
        }
    }
}

/* Signals that a person, a service manager or the kernel's memory killer sends say nothing about the model. */
static bool is_own_fault(int number) {
    return number != SIGKILL && number != SIGTERM && number != SIGINT && number != SIGHUP && number != SIGQUIT;
}

static void explain(int status, child_end *end) {
    static const char again[] = "the next request starts it again";
    if (WIFSIGNALED(status)) {
        int n = WTERMSIG(status);
        end->crashed = is_own_fault(n);
        err_set(&end->why, ERR_IO, "the model's worker ended unexpectedly (signal %d, %s%s); %s", n, strsignal(n),
                n == SIGKILL ? ": somebody ended it, or memory ran out" : "", again);
    } else if (WEXITSTATUS(status) == WORKER_EXIT_LOST) {
        err_set(&end->why, ERR_LOST, "the model's worker lost its device; %s", again);
    } else {
        end->crashed = true;
        err_set(&end->why, ERR_IO, "the model's worker ended unexpectedly (exit code %d); %s", WEXITSTATUS(status),
                again);
    }
}

static void *child_main(void *ctx) {
    child    *c = ctx;
    child_end end = { 0 };
    int       status = 0;
    c->begin = c->last_tick = c->last_sign = clock_ms();
    if (start(c, &end.why) == 0) {
        converse(c, &end);
        pthread_mutex_lock(&c->lock);
        end.asked = c->stopping && !end.crashed;
        bool late = c->stopping && clock_ms() >= c->stop_at;
        pthread_mutex_unlock(&c->lock);
        status = reap(c, end.crashed || late);
        read_log(c);
        log_line(c);
        if (end.asked)
            err_set(&end.why, ERR_CANCELLED, "the model was unloaded");
        else if (!end.crashed)
            explain(status, &end);
    }
    pthread_mutex_lock(&c->lock);
    c->over = true;
    c->pid = 0;
    end.stats = c->stats;
    pthread_cond_broadcast(&c->news);
    pthread_mutex_unlock(&c->lock);
    c->o.on_end(c->o.ctx, &end);
    return NULL;
}

int child_open(child **out, const child_options *o, err *e) {
    child *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return err_set_nomem(e);
    c->o = *o;
    if (c->o.hang_ms <= 0) c->o.hang_ms = DEFAULT_HANG_MS;
    if (c->o.load_ms <= 0) c->o.load_ms = DEFAULT_LOAD_MS;
    if (c->o.stop_ms <= 0) c->o.stop_ms = DEFAULT_STOP_MS;
    c->socket = c->log = -1;
    pthread_mutex_init(&c->lock, NULL);
    clock_cond_init(&c->news);
    str_init(&c->out);
    inbox_init(&c->in, true);
    wire_open first = o->open;
    first.log_level = current_level();
    int rc = wire_put_open(&c->out, &first, e);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->name = strdup(o->open.name);
    c->program = strdup(o->program);
    if (rc == 0 && (!c->name || !c->program)) rc = err_set_nomem(e);
    if (rc == 0 && c->wake < 0) rc = err_set_errno(e, "cannot watch a worker");
    if (rc == 0) {
        rc = pthread_create(&c->thread, NULL, child_main, c);
        c->started = rc == 0;
        if (rc != 0) rc = err_set(e, ERR_IO, "cannot start a worker's thread: %s", strerror(rc));
    }
    if (rc < 0) {
        child_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void child_free(child *c) {
    if (!c) return;
    if (c->started) pthread_join(c->thread, NULL);
    if (c->socket >= 0) close(c->socket);
    if (c->log >= 0) close(c->log);
    if (c->wake >= 0) close(c->wake);
    inbox_deinit(&c->in);
    str_deinit(&c->out);
    free(c->name);
    free(c->program);
    pthread_cond_destroy(&c->news);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The side that asks: starts a process, feeds it, reads what it says, and waits for its end. */
#include "host/decoder/decoder.h"

#include "base/clock.h"
#include "host/decoder/reply.h"
#include "media/media.h"
#include "media/sound.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEFAULT_MS = 10000, SOUND_MS = 30000 };

typedef struct job {
    const char *what; /* "picture", "sound" */
    pid_t       pid;
    int         fd;
    double      deadline; /* clock_s */
} job;

static int spawn(job *j, const decoder_options *o, err *e) {
    posix_spawn_file_actions_t fds;
    posix_spawnattr_t          attr;
    sigset_t                   none, all;
    int                        pair[2];
    char                       option[16];
    char                      *argv[] = { "hearth", "worker", option, o->no_sandbox ? "--no-sandbox" : NULL, NULL };
    char                      *empty[] = { NULL };
    const char                *program = o->program ? o->program : "/proc/self/exe";
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set_errno(e, "cannot make a socket for a %s's decoder", j->what);
    snprintf(option, sizeof option, "--%s", j->what);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&fds);
    for (int fd = 0; fd < 3; fd++) posix_spawn_file_actions_addopen(&fds, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&fds, pair[1], 3);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(&j->pid, program, &fds, &attr, argv, o->env ? o->env : empty);
    posix_spawn_file_actions_destroy(&fds);
    posix_spawnattr_destroy(&attr);
    close(pair[1]);
    if (rc != 0) {
        close(pair[0]);
        return err_set(e, ERR_IO, "cannot start a %s's decoder (%s): %s", j->what, program, strerror(rc));
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    j->fd = pair[0];
    return 0;
}

static int gone(const job *j, err *e) {
    return err_set(e, ERR_FORMAT, "the %s's decoder ended without an answer", j->what);
}

/* Until the socket can do that, or time is over. */
static int await(const job *j, short what, err *e) {
    for (;;) {
        double        left = j->deadline - clock_s();
        struct pollfd p = { j->fd, what, 0 };
        if (left <= 0) return err_set(e, ERR_LIMIT, "the %s takes too long to decode", j->what);
        int n = poll(&p, 1, (int)(left * 1000) + 1);
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return err_set_errno(e, "cannot wait for a %s's decoder", j->what);
    }
}

static int transfer(const job *j, void *data, size_t n, bool out, err *e) {
    for (char *at = data; n;) {
        ssize_t k = out ? send(j->fd, at, n, MSG_NOSIGNAL) : recv(j->fd, at, n, 0);
        int     rc;
        if (k > 0) {
            at += k;
            n -= (size_t)k;
        } else if (k < 0 && errno == EINTR) {
            continue;
        } else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if ((rc = await(j, out ? POLLOUT : POLLIN, e)) < 0) return rc;
        } else {
            return gone(j, e);
        }
    }
    return 0;
}

/* The file goes down; what comes up is the reply, or the process's own sentence. */
static int ask(const job *j, view file, decoder_reply *r, err *e) {
    uint64_t bytes = file.len;
    char     text[sizeof e->msg] = "";
    int      rc = transfer(j, &bytes, sizeof bytes, true, e);
    if (rc == 0) rc = transfer(j, (void *)(uintptr_t)file.data, file.len, true, e);
    if (rc == 0) rc = transfer(j, r, sizeof *r, false, e);
    if (rc < 0 || r->rc >= 0) return rc;
    if (r->n_text <= 0 || (size_t)r->n_text >= sizeof text) return gone(j, e);
    if ((rc = transfer(j, text, (size_t)r->n_text, false, e)) < 0) return rc;
    if (r->rc == ERR_NOMEM) return err_set(e, ERR_LIMIT, "the %s needs more memory than its decoder may have", j->what);
    return err_set(e, r->rc == ERR_LIMIT ? ERR_LIMIT : ERR_FORMAT, "%s", text); /* its word for it, whatever the code */
}

static int begin(job *j, const char *what, int64_t usual_ms, const decoder_options *o, err *e) {
    *j = (job){ .what = what, .deadline = clock_s() + (double)(o->time_ms ? o->time_ms : usual_ms) / 1000 };
    return spawn(j, o, e);
}

static void end(const job *j, int rc) {
    close(j->fd);
    if (rc < 0) kill(j->pid, SIGKILL);
    while (waitpid(j->pid, NULL, 0) < 0 && errno == EINTR) continue;
}

int decoder_read(pixels *out, view file, const decoder_options *o, err *e) {
    decoder_reply r;
    job           j;
    *out = (pixels){ 0 };
    int rc = begin(&j, "picture", DEFAULT_MS, o, e);
    if (rc < 0) return rc;
    /* The process is not trusted either. */
    if ((rc = ask(&j, file, &r, e)) == 0) rc = media_check(r.width, r.height, &media_default_limits, e);
    if (rc == 0) rc = pixels_init(out, r.width, r.height, e);
    if (rc == 0) rc = transfer(&j, out->rgb, pixels_bytes(out), false, e);
    end(&j, rc);
    if (rc < 0) pixels_deinit(out);
    return rc;
}

/* Samples that are not numbers would spoil more than their request. */
static int check_samples(const sound *s, err *e) {
    for (int i = 0; i < s->n; i++) {
        if (!isfinite(s->at[i])) return err_set(e, ERR_FORMAT, "sample %d of the sound is not a number", i);
    }
    return 0;
}

int decoder_hear(sound *out, view file, const decoder_options *o, err *e) {
    decoder_reply r;
    job           j;
    *out = (sound){ 0 };
    int rc = begin(&j, "sound", SOUND_MS, o, e);
    if (rc < 0) return rc;
    if ((rc = ask(&j, file, &r, e)) == 0) rc = media_sound_check(r.samples, MEDIA_SOUND_SECONDS, e);
    if (rc == 0) rc = sound_init(out, r.samples, e);
    if (rc == 0) rc = transfer(&j, out->at, (size_t)out->n * sizeof *out->at, false, e);
    if (rc == 0) rc = check_samples(out, e);
    end(&j, rc);
    if (rc < 0) sound_deinit(out);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The side that asks: starts a process, feeds it, reads what it says, and waits for its end. */
#include "host/decoder/decoder.h"

#include "base/clock.h"
#include "host/decoder/reply.h"
#include "media/media.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEFAULT_MS = 10000 };

typedef struct job {
    pid_t  pid;
    int    fd;
    double deadline; /* clock_s */
} job;

static int spawn(job *j, const decoder_options *o, err *e) {
    posix_spawn_file_actions_t fds;
    posix_spawnattr_t          attr;
    sigset_t                   none, all;
    int                        pair[2];
    char       *argv[] = { "hearth", "worker", "--picture", o->no_sandbox ? "--no-sandbox" : NULL, NULL };
    char       *empty[] = { NULL };
    const char *program = o->program ? o->program : "/proc/self/exe";
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set_errno(e, "cannot make a socket for a picture's decoder");
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
        return err_set(e, ERR_IO, "cannot start a picture's decoder (%s): %s", program, strerror(rc));
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    j->fd = pair[0];
    return 0;
}

static int gone(err *e) { return err_set(e, ERR_FORMAT, "the picture's decoder ended without an answer"); }

/* Until the socket can do that, or time is over. */
static int await(const job *j, short what, err *e) {
    for (;;) {
        double        left = j->deadline - clock_s();
        struct pollfd p = { j->fd, what, 0 };
        if (left <= 0) return err_set(e, ERR_LIMIT, "the picture takes too long to decode");
        int n = poll(&p, 1, (int)(left * 1000) + 1);
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return err_set_errno(e, "cannot wait for a picture's decoder");
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
            return gone(e);
        }
    }
    return 0;
}

static int ask(const job *j, view file, pixels *out, err *e) {
    uint64_t      bytes = file.len;
    decoder_reply r;
    char          text[sizeof e->msg] = "";
    int           rc = transfer(j, &bytes, sizeof bytes, true, e);
    if (rc == 0) rc = transfer(j, (void *)(uintptr_t)file.data, file.len, true, e);
    if (rc == 0) rc = transfer(j, &r, sizeof r, false, e);
    if (rc < 0) return rc;
    if (r.rc < 0) { /* its word for it, whatever the code */
        if (r.n_text <= 0 || (size_t)r.n_text >= sizeof text) return gone(e);
        if ((rc = transfer(j, text, (size_t)r.n_text, false, e)) < 0) return rc;
        return err_set(e, r.rc == ERR_LIMIT || r.rc == ERR_NOMEM ? ERR_LIMIT : ERR_FORMAT, "%s",
                       r.rc == ERR_NOMEM ? "the picture needs more memory than its decoder may have" : text);
    }
    /* The process is not trusted either. */
    if ((rc = media_check(r.width, r.height, &media_default_limits, e)) < 0) return rc;
    if ((rc = pixels_init(out, r.width, r.height, e)) < 0) return rc;
    return transfer(j, out->rgb, pixels_bytes(out), false, e);
}

int decoder_read(pixels *out, view file, const decoder_options *o, err *e) {
    job j = { .deadline = clock_s() + (double)(o->time_ms ? o->time_ms : DEFAULT_MS) / 1000 };
    *out = (pixels){ 0 };
    int rc = spawn(&j, o, e);
    if (rc < 0) return rc;
    rc = ask(&j, file, out, e);
    close(j.fd);
    if (rc < 0) {
        kill(j.pid, SIGKILL);
        pixels_deinit(out);
    }
    while (waitpid(j.pid, NULL, 0) < 0 && errno == EINTR) continue;
    return rc;
}

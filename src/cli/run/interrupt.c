/* SPDX-License-Identifier: Apache-2.0 */
/* The handler writes into a pipe: a signal between looking at a flag and going to sleep would be slept over. */
#include "cli/run/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

volatile sig_atomic_t interrupt_seen, interrupt_redraw;

static struct sigaction before, before_size, before_front;
static int              ends[2] = { -1, -1 };

static const int        ending[] = { SIGTERM, SIGHUP };
static struct sigaction before_ending[2];
static bool             takes_ending;

static void on_interrupt(int signal) {
    int saved = errno;
    (void)signal;
    interrupt_seen = 1;
    if (write(ends[1], "", 1) < 0) errno = 0; /* full: enough is in it */
    errno = saved;
}

static void on_redraw(int signal) {
    (void)signal;
    interrupt_redraw = 1; /* poll ends with EINTR */
}

int interrupt_begin(err *e) {
    struct sigaction own = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };
    struct sigaction redraw = { .sa_handler = on_redraw, .sa_flags = SA_RESTART };
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return err_set_errno(e, "cannot make a pipe");
    sigemptyset(&own.sa_mask);
    interrupt_seen = 0;
    sigaction(SIGINT, &own, &before);
    sigemptyset(&redraw.sa_mask);
    sigaction(SIGWINCH, &redraw, &before_size);
    sigaction(SIGCONT, &redraw, &before_front);
    return 0;
}

void interrupt_also_ends(void) {
    struct sigaction own = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };
    sigemptyset(&own.sa_mask);
    for (int i = 0; i < 2; i++) {
        sigaction(ending[i], &own, &before_ending[i]);
        if (before_ending[i].sa_handler == SIG_IGN) sigaction(ending[i], &before_ending[i], NULL); /* nohup */
    }
    takes_ending = true;
}

void interrupt_end(void) {
    if (ends[0] < 0) return;
    for (int i = 0; i < 2 && takes_ending; i++) sigaction(ending[i], &before_ending[i], NULL);
    takes_ending = false;
    sigaction(SIGINT, &before, NULL);
    sigaction(SIGWINCH, &before_size, NULL);
    sigaction(SIGCONT, &before_front, NULL);
    close(ends[0]);
    close(ends[1]);
    ends[0] = ends[1] = -1;
}

void interrupt_clear(void) {
    char drain[64];
    while (read(ends[0], drain, sizeof drain) > 0) {
    }
    interrupt_seen = 0;
}

bool interrupt_wait(int fd) {
    struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = ends[0], .events = POLLIN } };
    while (poll(p, 2, -1) < 0 && errno == EINTR && !interrupt_redraw) p[1].revents = 0;
    return !(p[1].revents & POLLIN);
}

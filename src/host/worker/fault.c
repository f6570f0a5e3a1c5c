/* SPDX-License-Identifier: Apache-2.0 */
#include "host/worker/fault.h"

#include "backend/backend.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int fault_parse(fault *f, const char *text, err *e) {
    static const char *const names[] = { "",         "segv:",   "abort:", "hang:", "exit:",
                                         "garbage:", "broken:", "stray:", "lost:", "full:" };
    f->kind = FAULT_NONE;
    if (!*text) return 0;
    for (int i = FAULT_SEGV; i <= FAULT_FULL; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(text, names[i], n) != 0) continue;
        f->kind = (fault_kind)i;
        f->at = (int)strtol(text + n, NULL, 10);
        return 0;
    }
    if (strcmp(text, "socket") == 0) {
        f->kind = FAULT_SOCKET;
    } else if (strncmp(text, "open:", 5) == 0) {
        f->kind = FAULT_OPEN;
        f->path = text + 5;
    } else if (strncmp(text, "need:", 5) == 0 && strchr(text, '=')) {
        f->kind = FAULT_NEED;
        snprintf(f->device, sizeof f->device, "%.*s", (int)(strchr(text, '=') - text - 5), text + 5);
        f->bytes = strtoull(strchr(text, '=') + 1, NULL, 10);
    } else {
        return err_set(e, ERR_ARG, "'%s' is not a fault", text);
    }
    return 0;
}

static void happen(const fault *f, int socket) {
    static const char noise[64] = "this is not a frame";
    if (f->kind == FAULT_SEGV) raise(SIGSEGV);
    if (f->kind == FAULT_ABORT) raise(SIGABRT);
    if (f->kind == FAULT_EXIT) _exit(7);
    if (f->kind == FAULT_GARBAGE && socket >= 0) (void)!send(socket, noise, sizeof noise, MSG_NOSIGNAL);
    if (f->kind == FAULT_HANG) {
        for (;;) nanosleep(&(struct timespec){ .tv_sec = 1000 }, NULL);
    }
}

int fault_at_load(fault *f, err *e) {
    if (f->kind >= FAULT_SEGV && f->kind <= FAULT_GARBAGE && f->at == 0) happen(f, -1);
    if (f->kind != FAULT_SOCKET && f->kind != FAULT_OPEN) return 0;
    int fd =
        f->kind == FAULT_SOCKET ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set_errno(e, "the sandbox refused it");
    close(fd);
    return err_set(e, ERR_ARG, "the sandbox let it through");
}

void fault_at_need(const fault *f, device_memory *bytes) {
    if (f->kind == FAULT_NEED) (void)device_memory_add(bytes, f->device, f->bytes);
}

/* One per process, as the worker's fault is: nn_backend has no room for a context. */
static nn_backend lossy;
static int        steps_left;

static int lose(nn_exec *x, const nn_batch *b, nn_ticket *step, err *e) {
    if (--steps_left <= 0) return err_set(e, ERR_LOST, "the device %s was lost", x->device.id);
    return x->backend->submit(x, b, step, e);
}

void fault_at_open(const fault *f, engine_options *o) {
    const nn_backend *real;
    nn_device         device;
    if (f->kind != FAULT_LOST || backend_find(o->device, &real, &device, NULL) < 0) return;
    lossy = *real;
    lossy.submit = lose;
    steps_left = f->at;
    o->backend = &lossy;
}

int fault_at_place(fault *f, bool *may_leave, err *e) {
    if (f->kind != FAULT_FULL || f->at-- <= 0) return 0;
    *may_leave = true;
    return err_set(e, ERR_NOMEM, "the device is full");
}

bool fault_at_event(fault *f, int socket) {
    if (f->kind == FAULT_NONE || f->kind == FAULT_LOST || f->kind == FAULT_FULL || f->at == 0 ||
        atomic_fetch_add(&f->seen, 1) + 1 != f->at)
        return false;
    happen(f, socket);
    return f->kind == FAULT_BROKEN || f->kind == FAULT_STRAY;
}

/* Kind (4 bytes), choice (4), last (1); then comes a length, a count or an enum, whatever the kind. */
void fault_break(const fault *f, char *event, size_t bytes) {
    size_t at = f->kind == FAULT_STRAY ? 4 : 9;
    for (size_t i = at; i < at + 4 && i < bytes; i++) event[i] = (char)0xff;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve/service.h"

#include "base/clock.h"
#include "server/http/address.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_SOCKET = 3 }; /* by convention */

/* A number of the environment; 0: not there, not a number, or not a positive one. */
static long long variable(const char *name) {
    const char *text = getenv(name);
    char       *end;
    if (!text || *text < '0' || *text > '9') return 0;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    return *end || errno ? 0 : n;
}

/* Variables reach children, too: the manager says whom it means. */
static bool is_for_us(const char *name) { return variable(name) == (long long)getpid(); }

size_t service_sockets(int out[SERVICE_MAX_SOCKETS]) {
    long long n = is_for_us("LISTEN_PID") ? variable("LISTEN_FDS") : 0;
    if (n > SERVICE_MAX_SOCKETS) n = SERVICE_MAX_SOCKETS;
    for (long long i = 0; i < n; i++) {
        out[i] = FIRST_SOCKET + (int)i;
        fcntl(out[i], F_SETFD, FD_CLOEXEC);
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return (size_t)n;
}

bool service_reaches_out(const int *sockets, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct sockaddr_storage a = { 0 };
        socklen_t               len = sizeof a;
        if (getsockname(sockets[i], (struct sockaddr *)&a, &len) != 0) continue; /* no socket: refused by the server */
        if (a.ss_family != AF_UNIX && !address_is_loopback((struct sockaddr *)&a)) return true;
    }
    return false;
}

double service_watchdog(void) {
    if (getenv("WATCHDOG_PID") && !is_for_us("WATCHDOG_PID")) return 0;
    return (double)variable("WATCHDOG_USEC") / 2e6;
}

void service_notify(const char *state) {
    const char        *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof a.sun_path) return;
    memcpy(a.sun_path, path, strlen(path));
    if (path[0] == '@') a.sun_path[0] = '\0'; /* an abstract name */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&a,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

void service_notify_reloading(void) {
    char text[80];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_us());
    service_notify(text);
}

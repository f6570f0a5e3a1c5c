/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve/service.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_SOCKET = 3 }; /* by convention */

size_t service_sockets(int out[SERVICE_MAX_SOCKETS]) {
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    if (!pid || !fds || strtol(pid, NULL, 10) != (long)getpid()) return 0;
    long n = strtol(fds, NULL, 10);
    if (n < 1) return 0;
    if (n > SERVICE_MAX_SOCKETS) n = SERVICE_MAX_SOCKETS;
    for (long i = 0; i < n; i++) {
        out[i] = FIRST_SOCKET + (int)i;
        fcntl(out[i], F_SETFD, FD_CLOEXEC);
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return (size_t)n;
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/holder.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LISTENING = 0x0A };

/* The number of the socket that listens there; 0: none. */
static unsigned long socket_of(const char *table, int port) {
    char          line[512];
    unsigned      local = 0, state = 0;
    unsigned long inode = 0, found = 0;
    FILE         *f = fopen(table, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %lu", &local, &state,
                   &inode) == 3 &&
            local == (unsigned)port && state == LISTENING)
            found = inode;
    }
    if (f) fclose(f);
    return found;
}

static bool holds(const char *pid, const char *socket) {
    char           path[300], link[64];
    struct dirent *d;
    bool           found = false;
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *fds = opendir(path);
    while (fds && !found && (d = readdir(fds))) {
        snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", pid, d->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        if (n <= 0) continue;
        link[n] = '\0';
        found = strcmp(link, socket) == 0;
    }
    if (fds) closedir(fds);
    return found;
}

static void describe(const char *pid, char *out, size_t cap) {
    char  path[64], name[64] = "";
    FILE *f;
    snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    f = fopen(path, "re");
    if (f && !fgets(name, sizeof name, f)) name[0] = '\0';
    if (f) fclose(f);
    name[strcspn(name, "\n")] = '\0';
    for (char *p = name; *p; p++) {
        if (!isprint((unsigned char)*p)) *p = '?'; /* a program may call itself anything */
    }
    snprintf(out, cap, "%.40s (process %.20s)", name[0] ? name : "a program", pid);
}

bool port_holder(int port, char *out, size_t cap) {
    char           socket[64];
    struct dirent *d;
    bool           found = false;
    unsigned long  inode = socket_of("/proc/net/tcp", port);
    if (!inode) inode = socket_of("/proc/net/tcp6", port);
    if (!inode) return false;
    snprintf(socket, sizeof socket, "socket:[%lu]", inode);
    DIR *all = opendir("/proc");
    while (all && !found && (d = readdir(all))) {
        if (!isdigit((unsigned char)d->d_name[0]) || !holds(d->d_name, socket)) continue;
        describe(d->d_name, out, cap);
        found = true;
    }
    if (all) closedir(all);
    return found;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t meminfo(const char *key) {
    char     line[256];
    uint64_t kib = 0;
    size_t   n = strlen(key);
    FILE    *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            kib = strtoull(line + n + 1, NULL, 10);
            break;
        }
    }
    fclose(f);
    return kib * 1024;
}

/* A file with one number; false: there is none, or it says "max". */
static bool number_in(const char *dir, const char *name, uint64_t *out) {
    char  path[1024], text[64] = "", *end;
    FILE *f;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path || !(f = fopen(path, "re"))) return false;
    bool got = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    *out = strtoull(text, &end, 10);
    return got && end != text;
}

/* The bytes of a statistic such as inactive_file: cache that goes when somebody needs the room. */
static uint64_t stat_in(const char *dir, const char *key) {
    char     path[1024], line[256];
    size_t   n = strlen(key);
    uint64_t value = 0;
    FILE    *f;
    if (snprintf(path, sizeof path, "%s/memory.stat", dir) >= (int)sizeof path || !(f = fopen(path, "re"))) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) == 0 && line[n] == ' ') value = strtoull(line + n + 1, NULL, 10);
    }
    fclose(f);
    return value;
}

/* The lowest room of a group and of those above it, which limit it too. */
static uint64_t group_room(char *dir, size_t root, const char *limit, const char *usage) {
    uint64_t room = UINT64_MAX;
    for (;;) {
        uint64_t max, used = 0;
        if (number_in(dir, limit, &max) && number_in(dir, usage, &used)) {
            uint64_t cache = stat_in(dir, "inactive_file") + stat_in(dir, "active_file");
            used -= cache < used ? cache : used;
            uint64_t left = max > used ? max - used : 0;
            if (left < room) room = left;
        }
        char *slash = strrchr(dir + root, '/');
        if (!slash) return room;
        *slash = '\0';
    }
}

static uint64_t cgroup_room(void) {
    char     line[1024], dir[2048];
    uint64_t room = UINT64_MAX;
    FILE    *f = fopen("/proc/self/cgroup", "re");
    if (!f) return room;
    while (fgets(line, sizeof line, f)) { /* "0::/path", "5:memory:/path" */
        char *first = strchr(line, ':'), *path = first ? strchr(first + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        bool        v2 = first[1] == '\0', v1 = strstr(first + 1, "memory") != NULL;
        const char *root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        if ((!v2 && !v1) || snprintf(dir, sizeof dir, "%s%s", root, path) >= (int)sizeof dir) continue;
        uint64_t left = group_room(dir, strlen(root), v2 ? "memory.max" : "memory.limit_in_bytes",
                                   v2 ? "memory.current" : "memory.usage_in_bytes");
        if (left < room) room = left;
    }
    fclose(f);
    return room;
}

uint64_t machine_memory_available(const char **limit_from) {
    uint64_t machine = meminfo("MemAvailable"), group = cgroup_room();
    bool     by_group = group < machine || (machine == 0 && group != UINT64_MAX);
    if (limit_from) *limit_from = by_group ? "cgroup" : "memory";
    return by_group ? group : machine;
}

uint64_t machine_memory_total(void) { return meminfo("MemTotal"); }

void machine_cpu_name(char *out, size_t bytes) {
    char  line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(out, bytes, "CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, bytes, "%s", value);
        break;
    }
    if (f) fclose(f);
}

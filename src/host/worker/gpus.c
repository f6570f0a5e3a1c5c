/* SPDX-License-Identifier: Apache-2.0 */
#include "host/worker/gpus.h"

#include "backend/backend.h"
#include "base/log.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Bytes of a model's files, roughly and without a look inside. */
static double bytes_on_disk(const char *path) {
    const char *of = strstr(path, "-of-");
    double      parts = of ? strtod(of + 4, NULL) : 1, bytes = 0;
    DIR        *dir = opendir(path);
    struct stat st;
    if (!dir) return stat(path, &st) == 0 ? (double)st.st_size * (parts >= 1 ? parts : 1) : 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) bytes += (double)st.st_size;
    }
    closedir(dir);
    return bytes;
}

/* How many GPUs are ready, the first one among them. Each further one costs a context. */
static int prepare_others(const char *device, const char *path) {
    nn_device all[NN_MAX_DEVICES];
    int       n = backend_gpus(device, all, NN_MAX_DEVICES), ready = 1;
    err       e = { 0 };
    if (n < 2 || bytes_on_disk(path) < (double)all[0].total_bytes / 2) return ready;
    while (ready < n && backend_prepare(all[ready].id, &e) == 0) ready++;
    if (e.msg[0]) log_warn("worker", "%s", e.msg);
    return ready;
}

/* Opening the model says what is wrong with a device that somebody named. */
void gpus_prepare(engine_options *o, const char *path) {
    bool any = backend_is_auto(o->device);
    err  e = { 0 };
    if (backend_prepare(o->device, &e) == 0) {
        if (any) o->max_gpus = prepare_others(o->device, path);
        return;
    }
    log_warn("worker", "%s%s", e.msg, any ? "; the model computes on the CPU" : "");
    if (any) o->device = DEVICE_CPU;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/device_memory.h"

#include <string.h>

static bool is_name(const char *device) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-";
    size_t            n = strnlen(device, sizeof((device_bytes *)0)->device);
    return n > 0 && n < sizeof((device_bytes *)0)->device && strspn(device, allowed) == n;
}

/* The entry, made if need be. */
static device_bytes *entry(device_memory *m, const char *device) {
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(m->on[i].device, device) == 0) return &m->on[i];
    }
    if (m->n == DEVICE_MEMORY_MAX || !is_name(device)) return NULL;
    device_bytes *d = &m->on[m->n++];
    *d = (device_bytes){ 0 };
    memcpy(d->device, device, strlen(device));
    return d;
}

static uint64_t plus(uint64_t a, uint64_t b) { return b > UINT64_MAX - a ? UINT64_MAX : a + b; }

const device_bytes *device_memory_find(const device_memory *m, const char *device) {
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(m->on[i].device, device) == 0) return &m->on[i];
    }
    return NULL;
}

uint64_t device_memory_on(const device_memory *m, const char *device) {
    const device_bytes *d = device_memory_find(m, device);
    return d ? d->bytes : 0;
}

uint64_t device_memory_sum(const device_memory *m) {
    uint64_t sum = 0;
    for (size_t i = 0; i < m->n; i++) sum = plus(sum, m->on[i].bytes);
    return sum;
}

uint64_t device_memory_beside(const device_memory *m) {
    device_memory others = *m;
    (void)device_memory_set(&others, DEVICE_CPU, 0);
    return device_memory_sum(&others);
}

bool device_memory_add(device_memory *m, const char *device, uint64_t bytes) {
    device_bytes *d = entry(m, device);
    if (d) d->bytes = plus(d->bytes, bytes);
    return d != NULL;
}

bool device_memory_set(device_memory *m, const char *device, uint64_t bytes) {
    device_bytes *d = entry(m, device);
    if (d) d->bytes = bytes;
    return d != NULL;
}

bool device_memory_add_all(device_memory *m, const device_memory *more) {
    bool ok = true;
    for (size_t i = 0; i < more->n; i++) ok = device_memory_add(m, more->on[i].device, more->on[i].bytes) && ok;
    return ok;
}

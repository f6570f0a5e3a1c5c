/* SPDX-License-Identifier: Apache-2.0 */
#include "host/parent/budget.h"

#include <stddef.h>

const char *budget_unknown(const device_memory *budget, const device_memory *wants) {
    for (size_t i = 0; i < wants->n; i++) {
        if (wants->on[i].bytes && !device_memory_find(budget, wants->on[i].device)) return wants->on[i].device;
    }
    return NULL;
}

static bool lacks(const device_memory *budget, const device_memory *taken, const device_bytes *wants) {
    uint64_t limit = device_memory_on(budget, wants->device), used = device_memory_on(taken, wants->device);
    return wants->bytes && (wants->bytes > limit || used > limit - wants->bytes);
}

const char *budget_lacking(const device_memory *budget, const device_memory *taken, const device_memory *wants) {
    for (size_t i = 0; i < wants->n; i++) {
        if (lacks(budget, taken, &wants->on[i])) return wants->on[i].device;
    }
    return NULL;
}

const char *budget_exceeded(const device_memory *budget, const device_memory *taken) {
    for (size_t i = 0; i < taken->n; i++) {
        if (taken->on[i].bytes > device_memory_on(budget, taken->on[i].device)) return taken->on[i].device;
    }
    return NULL;
}

bool budget_helps(const device_memory *budget, const device_memory *taken, const device_memory *wants,
                  const device_memory *goes) {
    bool enough = true;
    for (size_t i = 0; i < wants->n; i++) {
        if (!lacks(budget, taken, &wants->on[i])) continue;
        if (device_memory_on(goes, wants->on[i].device)) return true;
        enough = false;
    }
    return enough;
}

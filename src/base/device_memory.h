/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory by device.
 *
 * A device has the name its backend gives it: "cpu" is the memory of this machine, "cuda:0" that of a GPU. Bytes on one
 * device are never a substitute for bytes on another.
 */
#ifndef BASE_DEVICE_MEMORY_H
#define BASE_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEVICE_MEMORY_MAX = 16 };
#define DEVICE_CPU "cpu"

typedef struct device_bytes {
    char     device[64];
    uint64_t bytes;
} device_bytes;

/* Every device once. All zero: nothing anywhere. */
typedef struct device_memory {
    device_bytes on[DEVICE_MEMORY_MAX];
    size_t       n;
} device_memory;

/* The entry of a device; NULL: there is none. */
const device_bytes *device_memory_find(const device_memory *m, const char *device);
uint64_t            device_memory_on(const device_memory *m, const char *device); /* 0 where there is no entry */
uint64_t            device_memory_sum(const device_memory *m);
uint64_t            device_memory_beside(const device_memory *m); /* on all devices but the machine's own memory */

/* Sums stop at the largest number. False, and nothing is changed: there are DEVICE_MEMORY_MAX others, or the name is
 * not one (letters, digits and ":._-", up to 63 of them). */
bool device_memory_add(device_memory *m, const char *device, uint64_t bytes);
bool device_memory_set(device_memory *m, const char *device, uint64_t bytes);
bool device_memory_add_all(device_memory *m, const device_memory *more);

#endif

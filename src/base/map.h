/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from byte strings to 64-bit values.
 *
 * Open addressing with linear probing, a per-map random seed (hostile keys cannot be chosen to collide), keys borrowed:
 * they must outlive the map. Values are integers; store an index or cast a pointer.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct map_slot {
    const char *key;
    size_t      len;
    uint64_t    hash; /* 0: free slot */
    uint64_t    value;
} map_slot;

typedef struct map {
    map_slot *slots;
    size_t    cap; /* a power of two, or 0 */
    size_t    count;
    uint64_t  seed;
} map;

void map_init(map *m);
void map_deinit(map *m);
bool map_reserve(map *m, size_t count);                                       /* false: out of memory */
bool map_put(map *m, const char *key, size_t len, uint64_t value);            /* replaces; false: out of memory */
bool map_get(const map *m, const char *key, size_t len, uint64_t *out_value); /* out_value may be NULL */
bool map_get_c(const map *m, const char *key, uint64_t *out_value);
bool map_next(const map *m, size_t *cursor, const map_slot **out); /* cursor starts at 0; order is arbitrary */

uint64_t hash_bytes(const void *data, size_t bytes, uint64_t seed);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t mix(uint64_t a, uint64_t b) {
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

static uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

/* Multiply-and-fold over 16-byte steps, seeded; good spread, not cryptographic. */
uint64_t hash_bytes(const void *data, size_t bytes, uint64_t seed) {
    const uint8_t *p = data;
    const uint64_t k0 = 0x9E3779B97F4A7C15u, k1 = 0xD6E8FEB86659FD93u;
    uint64_t       h = seed ^ k0, a = 0, b = 0;
    size_t         left = bytes;
    while (left > 16) {
        h = mix(load64(p) ^ k1, load64(p + 8) ^ h);
        p += 16;
        left -= 16;
    }
    if (left >= 8) {
        a = load64(p);
        b = load64(p + left - 8);
    } else if (left > 0) {
        uint8_t tail[8] = { 0 };
        memcpy(tail, p, left);
        a = load64(tail);
    }
    return mix(mix(a ^ k1, b ^ h) ^ k0, (uint64_t)bytes ^ k1);
}

static uint64_t random_seed(const map *m) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint64_t)time(NULL) * 0x9E3779B97F4A7C15u ^ (uint64_t)(uintptr_t)m;
    return seed;
}

void map_init(map *m) { *m = (map){ .seed = random_seed(m) }; }

void map_deinit(map *m) {
    free(m->slots);
    *m = (map){ .seed = m->seed };
}

/* 0 marks a free slot, so a hash is never 0. */
static uint64_t key_hash(const map *m, const char *key, size_t len) { return hash_bytes(key, len, m->seed) | 1; }

static size_t first_slot(const map *m, uint64_t hash) { return (size_t)(hash >> 1) & (m->cap - 1); }

static map_slot *find(const map *m, const char *key, size_t len, uint64_t hash) {
    size_t i = first_slot(m, hash);
    for (;; i = (i + 1) & (m->cap - 1)) {
        map_slot *s = &m->slots[i];
        if (s->hash == 0) return s;
        if (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0) return s;
    }
}

static bool grow(map *m, size_t cap) {
    map       old = *m;
    map_slot *slots = calloc(cap, sizeof *slots);
    if (!slots) return false;
    m->slots = slots;
    m->cap = cap;
    for (size_t i = 0; i < old.cap; i++) {
        const map_slot *s = &old.slots[i];
        if (s->hash) *find(m, s->key, s->len, s->hash) = *s;
    }
    free(old.slots);
    return true;
}

bool map_reserve(map *m, size_t count) {
    size_t cap = m->cap ? m->cap : 16, need;
    if (!num_mul_size(count, 2, &need)) return false;
    while (cap < need) {
        if (!num_mul_size(cap, 2, &cap)) return false;
    }
    return cap == m->cap || grow(m, cap);
}

bool map_put(map *m, const char *key, size_t len, uint64_t value) {
    if ((m->count + 1) * 2 > m->cap && !grow(m, m->cap ? m->cap * 2 : 16)) return false;
    uint64_t  hash = key_hash(m, key, len);
    map_slot *s = find(m, key, len, hash);
    if (s->hash == 0) {
        *s = (map_slot){ .key = key, .len = len, .hash = hash };
        m->count++;
    }
    s->value = value;
    return true;
}

bool map_get(const map *m, const char *key, size_t len, uint64_t *out_value) {
    if (m->count == 0) return false;
    const map_slot *s = find(m, key, len, key_hash(m, key, len));
    if (s->hash == 0) return false;
    if (out_value) *out_value = s->value;
    return true;
}

bool map_get_c(const map *m, const char *key, uint64_t *out_value) { return map_get(m, key, strlen(key), out_value); }

bool map_next(const map *m, size_t *cursor, const map_slot **out) {
    while (*cursor < m->cap) {
        const map_slot *s = &m->slots[(*cursor)++];
        if (s->hash) {
            *out = s;
            return true;
        }
    }
    return false;
}

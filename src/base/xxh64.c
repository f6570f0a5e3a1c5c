/* SPDX-License-Identifier: Apache-2.0 */
#include "base/xxh64.h"

#define PRIME1 0x9E3779B185EBCA87u
#define PRIME2 0xC2B2AE3D27D4EB4Fu
#define PRIME3 0x165667B19E3779F9u
#define PRIME4 0x85EBCA77C2B2AE63u
#define PRIME5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

static uint64_t little(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint64_t lane(uint64_t acc, uint64_t input) { return rotate(acc + input * PRIME2, 31) * PRIME1; }

uint64_t xxh64(const void *data, size_t bytes) {
    const uint8_t *p = data, *end = bytes ? p + bytes : p;
    uint64_t       h = PRIME5;
    if (bytes >= 32) {
        uint64_t v[4] = { PRIME1 + PRIME2, PRIME2, 0, 0 - PRIME1 };
        for (; end - p >= 32; p += 32) {
            for (int i = 0; i < 4; i++) v[i] = lane(v[i], little(p + 8 * i, 8));
        }
        h = rotate(v[0], 1) + rotate(v[1], 7) + rotate(v[2], 12) + rotate(v[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ lane(0, v[i])) * PRIME1 + PRIME4;
    }
    h += bytes;
    for (; end - p >= 8; p += 8) h = rotate(h ^ lane(0, little(p, 8)), 27) * PRIME1 + PRIME4;
    if (end - p >= 4) {
        h = rotate(h ^ little(p, 4) * PRIME1, 23) * PRIME2 + PRIME3;
        p += 4;
    }
    for (; p < end; p++) h = rotate(h ^ *p * PRIME5, 11) * PRIME1;
    h = (h ^ h >> 33) * PRIME2;
    h = (h ^ h >> 29) * PRIME3;
    return h ^ h >> 32;
}

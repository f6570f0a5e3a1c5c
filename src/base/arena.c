/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include "base/num.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 22 };

struct arena_chunk {
    arena_chunk *next;
    size_t       cap, used;
    size_t       padding; /* keeps the bytes behind the header aligned to 16 */
};

_Static_assert(sizeof(arena_chunk) % ALIGN == 0, "chunk data must stay aligned");

void arena_init(arena *a, size_t limit_bytes) { *a = (arena){ .limit_bytes = limit_bytes }; }

void arena_deinit(arena *a) {
    for (arena_chunk *c = a->head; c;) {
        arena_chunk *next = c->next;
        free(c);
        c = next;
    }
    a->head = NULL;
    a->used_bytes = 0;
    a->at_limit = false;
}

void arena_reset(arena *a) {
    arena_chunk *keep = a->head;
    if (!keep) return;
    a->head = keep->next;
    size_t limit = a->limit_bytes;
    arena_deinit(a);
    keep->next = NULL;
    keep->used = 0;
    *a = (arena){ .head = keep, .limit_bytes = limit };
}

void *arena_alloc(arena *a, size_t bytes) {
    size_t       need, total;
    arena_chunk *c = a->head;
    if (!num_add_size(bytes, ALIGN - 1, &need)) return NULL;
    need &= ~(size_t)(ALIGN - 1);
    if (need == 0) need = ALIGN;
    if (!num_add_size(a->used_bytes, need, &total)) return NULL;
    if (a->limit_bytes && total > a->limit_bytes) {
        a->at_limit = true;
        return NULL;
    }
    if (!c || c->cap - c->used < need) {
        size_t cap = c ? c->cap * 2 : FIRST_CHUNK;
        size_t all;
        if (cap > LARGEST_CHUNK) cap = LARGEST_CHUNK;
        if (cap < need) cap = need;
        if (!num_add_size(sizeof *c, cap, &all)) return NULL;
        c = malloc(all);
        if (!c) return NULL;
        *c = (arena_chunk){ .next = a->head, .cap = cap };
        a->head = c;
    }
    void *p = (uint8_t *)(c + 1) + c->used;
    c->used += need;
    a->used_bytes = total;
    return p;
}

void *arena_calloc(arena *a, size_t count, size_t bytes) {
    size_t total;
    if (!num_mul_size(count, bytes, &total)) return NULL;
    void *p = arena_alloc(a, total);
    if (p) memset(p, 0, total);
    return p;
}

char *arena_strdup(arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_strndup(arena *a, const char *s, size_t bytes) {
    size_t total;
    if (!num_add_size(bytes, 1, &total)) return NULL;
    char *p = arena_alloc(a, total);
    if (!p) return NULL;
    if (bytes) memcpy(p, s, bytes);
    p[bytes] = '\0';
    return p;
}

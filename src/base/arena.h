/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena: many small allocations with one lifetime.
 *
 * Chunks grow geometrically; nothing is freed before arena_deinit or arena_reset. An optional byte limit makes an arena
 * safe to fill from untrusted input: at the limit arena_alloc returns NULL, as it does when memory is out; at_limit tells
 * which, so that a reason can be given.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct arena_chunk arena_chunk;

typedef struct arena {
    arena_chunk *head;
    size_t       used_bytes;  /* sum of what was asked for, with alignment padding */
    size_t       limit_bytes; /* 0: no limit */
    bool         at_limit;    /* an allocation was refused for the limit */
} arena;

void  arena_init(arena *a, size_t limit_bytes);
void  arena_deinit(arena *a);
void  arena_reset(arena *a);                              /* forgets all allocations, keeps one chunk */
void *arena_alloc(arena *a, size_t bytes);                /* aligned to 16, not zeroed */
void *arena_calloc(arena *a, size_t count, size_t bytes); /* zeroed, checked multiply */
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t bytes); /* copies bytes (NULs too) and terminates */

#endif

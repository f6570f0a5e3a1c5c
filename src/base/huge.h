/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rooms of memory in huge pages, for many arrays that are read in order: taken piece by piece and freed together. A room
 * below 2 MB is ordinary memory.
 */
#ifndef BASE_HUGE_H
#define BASE_HUGE_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory at a multiple of 2 MB, which bytes is as well, in huge pages if the system has them; it is unmapped by
 * munmap. must: fails where the system cannot even be asked for them. NULL: no memory. */
void *huge_map(size_t bytes, bool must);

typedef struct huge_room huge_room;

/* Zeroed bytes, aligned to 64, from the newest room of the list or from a new one of at least room_bytes. NULL: no memory. */
void *huge_take(huge_room **rooms, size_t bytes, size_t room_bytes);

size_t huge_bytes(const huge_room *rooms); /* that were taken */
void   huge_free(huge_room *rooms);        /* accepts NULL */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/huge.h"

#include "base/num.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 2 << 20, ALIGN = 64 };

struct huge_room {
    huge_room *next;
    uint8_t   *at;
    size_t     bytes, used;
};

void *huge_map(size_t bytes, bool must) {
    size_t all;
    if (!num_add_size(bytes, PAGE, &all)) return NULL;
    uint8_t *room = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return NULL;
    size_t skip = (PAGE - (uintptr_t)room % PAGE) % PAGE;
    if (skip) munmap(room, skip);
    munmap(room + skip + bytes, PAGE - skip);
    if (madvise(room + skip, bytes, MADV_HUGEPAGE) < 0 && must) {
        munmap(room + skip, bytes);
        return NULL;
    }
    return room + skip;
}

static huge_room *open_room(size_t bytes) {
    huge_room *r = calloc(1, sizeof *r);
    size_t     whole = bytes;
    if (r && bytes >= PAGE) {
        if (num_add_size(bytes, PAGE - 1, &whole)) r->at = huge_map(whole = whole / PAGE * PAGE, false);
    } else if (r && (r->at = aligned_alloc(ALIGN, bytes))) {
        memset(r->at, 0, bytes);
    }
    if (!r || !r->at) {
        free(r);
        return NULL;
    }
    r->bytes = whole;
    return r;
}

void *huge_take(huge_room **rooms, size_t bytes, size_t room_bytes) {
    huge_room *r = *rooms;
    if (!num_add_size(bytes, ALIGN - 1, &bytes)) return NULL;
    bytes = bytes / ALIGN * ALIGN;
    if (!r || r->bytes - r->used < bytes) {
        room_bytes = room_bytes / ALIGN * ALIGN;
        if (!(r = open_room(bytes > room_bytes ? bytes : room_bytes))) return NULL;
        r->next = *rooms;
        *rooms = r;
    }
    void *p = r->at + r->used;
    r->used += bytes;
    return p;
}

size_t huge_bytes(const huge_room *rooms) {
    size_t sum = 0;
    for (; rooms; rooms = rooms->next) sum += rooms->used;
    return sum;
}

void huge_free(huge_room *rooms) {
    while (rooms) {
        huge_room *next = rooms->next;
        if (rooms->bytes >= PAGE)
            munmap(rooms->at, rooms->bytes);
        else
            free(rooms->at);
        free(rooms);
        rooms = next;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the device and pinned memory of the host, copies between them.
 *
 * Every allocation is a mapping of its own between pages that nobody may touch, begins at an odd multiple of 256
 * bytes (a device promises 256 and no more) and is full of 0xff, which is NaN or -1. The machine knows exactly the
 * bytes that were asked for; freed memory is unmapped. Both ends of a copy are checked by the call.
 */
#include "gpu/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD ((size_t)64 << 10)
#define ALIGN ((size_t)256)
#define FILL_MAX ((size_t)256 << 20) /* filling more takes longer than it finds */

enum { RUBBISH = 0xff, PAGE = 4096 };

typedef struct memory_range {
    uint8_t *at;
    size_t   bytes, mapped; /* mapped: from the first guard to the end of the second */
    bool     pinned;
    int      device;
} memory_range;

static struct {
    pthread_mutex_t lock;
    memory_range   *all;
    size_t          n, cap;
    size_t          used[SOFT_DEVICES]; /* on each device */
} memory = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- allocations ---- */

static bool map_range(memory_range *r, size_t bytes, bool pinned) {
    const size_t inner = (bytes + ALIGN + PAGE - 1) / PAGE * PAGE;
    *r = (memory_range){ .bytes = bytes, .mapped = inner + 2 * GUARD, .pinned = pinned, .device = soft_current() };
    uint8_t *map = mmap(NULL, r->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return false;
    if (mprotect(map + GUARD, inner, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, r->mapped);
        return false;
    }
    r->at = map + GUARD + ALIGN;
    if (bytes <= FILL_MAX) memset(r->at, RUBBISH, bytes);
    return true;
}

static void unmap_range(const memory_range *r) { munmap(r->at - GUARD - ALIGN, r->mapped); }

/* Takes its place in the list; false where memory is out. Under the lock. */
static bool list_range(const memory_range *r) {
    if (memory.n == memory.cap) {
        size_t        cap = memory.cap ? 2 * memory.cap : 64;
        memory_range *all = realloc(memory.all, cap * sizeof *all);
        if (!all) return false;
        memory.all = all, memory.cap = cap;
    }
    memory.all[memory.n++] = *r;
    return true;
}

static cudaError_t allocate(void **out, size_t bytes, bool pinned) {
    memory_range r;
    cudaError_t  rc = out ? soft_enter() : cudaErrorInvalidValue;
    if (rc == cudaSuccess) rc = soft_not_recording();
    if (out) *out = NULL;
    if (rc != cudaSuccess || bytes == 0) return rc;
    pthread_mutex_lock(&memory.lock);
    size_t *used = &memory.used[soft_current()];
    bool    room = pinned || bytes <= soft_bytes() - soft_taken() - *used;
    if (room && !pinned) *used += bytes;
    pthread_mutex_unlock(&memory.lock);
    if (!room) return cudaErrorMemoryAllocation;
    bool ok = map_range(&r, bytes, pinned);
    pthread_mutex_lock(&memory.lock);
    if (ok && !list_range(&r)) {
        unmap_range(&r);
        ok = false;
    }
    if (!ok && !pinned) *used -= bytes;
    pthread_mutex_unlock(&memory.lock);
    if (!ok) return cudaErrorMemoryAllocation;
    gpu_memory_add(r.at, bytes);
    if (!pinned) gpu_memory_of(r.at, r.device);
    *out = r.at;
    return cudaSuccess;
}

/* Waits for everything first, as a device does. What a lost one had is given back, too. */
static cudaError_t release(void *at, bool pinned) {
    cudaError_t  rc = soft_enter();
    memory_range r = { 0 };
    if (!at) return rc;
    if (rc == cudaSuccess) rc = soft_not_recording();
    if (rc == cudaSuccess) rc = soft_wait_all();
    if (rc == cudaErrorStreamCaptureUnsupported || rc == cudaErrorCudartUnloading) return rc;
    pthread_mutex_lock(&memory.lock);
    for (size_t i = 0; i < memory.n && !r.at; i++) {
        if (memory.all[i].at != at || memory.all[i].pinned != pinned) continue;
        r = memory.all[i];
        memory.all[i] = memory.all[--memory.n];
        if (!pinned) memory.used[r.device] -= r.bytes;
    }
    pthread_mutex_unlock(&memory.lock);
    if (!r.at) return cudaErrorInvalidValue;
    gpu_memory_remove(r.at);
    unmap_range(&r);
    return rc;
}

cudaError_t cudaMalloc(void **out, size_t bytes) { return soft_told(allocate(out, bytes, false)); }
cudaError_t cudaFree(void *at) { return soft_told(release(at, false)); }
cudaError_t cudaFreeHost(void *at) { return soft_told(release(at, true)); }

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    return soft_told(flags == cudaHostAllocDefault ? allocate(out, bytes, true) : cudaErrorNotSupported);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    cudaError_t rc = soft_enter();
    if (rc != cudaSuccess) return soft_told(rc);
    pthread_mutex_lock(&memory.lock);
    *total = soft_bytes();
    *free_bytes = *total - soft_taken() - memory.used[soft_current()];
    pthread_mutex_unlock(&memory.lock);
    return cudaSuccess;
}

/* ---- copies ---- */

typedef enum place { PLACE_PAGEABLE, PLACE_PINNED, PLACE_DEVICE, PLACE_BROKEN } place;

/* Where `bytes` from `at` on lie; broken: they begin inside an allocation and end outside. */
static place place_of(const void *at, size_t bytes) {
    const uint8_t *p = at;
    place          is = PLACE_PAGEABLE;
    pthread_mutex_lock(&memory.lock);
    for (size_t i = 0; i < memory.n; i++) {
        const memory_range *r = &memory.all[i];
        if (p < r->at || p >= r->at + r->bytes) continue;
        is = bytes > r->bytes - (size_t)(p - r->at) ? PLACE_BROKEN : r->pinned ? PLACE_PINNED : PLACE_DEVICE;
        break;
    }
    pthread_mutex_unlock(&memory.lock);
    return is;
}

static bool fits(place is, bool device) { return is != PLACE_BROKEN && (is == PLACE_DEVICE) == device; }

/* Queues it; *later: the call may come back before it is done, although it is not one of the asynchronous ones. */
static cudaError_t copy(const soft_copy *c, enum cudaMemcpyKind kind, cudaStream_t s, bool *later) {
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    *later = true;
    if (kind == cudaMemcpyDefault || kind == cudaMemcpyHostToHost) return cudaErrorNotSupported;
    cudaError_t rc = soft_enter();
    if (rc != cudaSuccess || c->bytes == 0 || c->rows == 0) return rc;
    if (c->rows > 1 && (c->to_pitch < c->bytes || c->from_pitch < c->bytes)) return cudaErrorInvalidPitchValue;
    const place from = place_of(c->from, (c->rows - 1) * c->from_pitch + c->bytes);
    const place to = place_of(c->to, (c->rows - 1) * c->to_pitch + c->bytes);
    if (!fits(from, from_device) || !fits(to, to_device)) return cudaErrorInvalidValue;
    const bool read_now = from == PLACE_PAGEABLE && !soft_recorded(s);
    soft_work *w = soft_work_new(WORK_COPY, read_now ? c->rows * c->bytes : 0);
    if (!w) return cudaErrorMemoryAllocation;
    w->copy = *c;
    if (read_now) {
        for (size_t i = 0; i < c->rows; i++) memcpy(w->held + i * c->bytes, c->from + i * c->from_pitch, c->bytes);
        w->copy.from = NULL;
        w->copy.from_pitch = c->bytes;
    }
    *later = read_now || (from_device && to_device);
    return soft_queue(s, w);
}

/* In the default stream. A pageable source was read when the call comes back, but need not have arrived. */
static cudaError_t copy_and_wait(const soft_copy *c, enum cudaMemcpyKind kind) {
    bool        later;
    cudaError_t rc = soft_not_recording();
    if (rc == cudaSuccess) rc = copy(c, kind, NULL, &later);
    return rc == cudaSuccess && !later ? soft_wait(NULL) : rc;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    const soft_copy c = { .to = to, .from = from, .bytes = bytes, .rows = 1 };
    return soft_told(copy_and_wait(&c, kind));
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                         enum cudaMemcpyKind kind) {
    const soft_copy c = {
        .to = to, .from = from, .bytes = bytes, .rows = rows, .to_pitch = to_pitch, .from_pitch = from_pitch
    };
    return soft_told(copy_and_wait(&c, kind));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s) {
    const soft_copy c = { .to = to, .from = from, .bytes = bytes, .rows = 1 };
    bool            later;
    return soft_told(copy(&c, kind, s, &later));
}

/* Does not wait, either. */
cudaError_t cudaMemset(void *to, int byte, size_t bytes) {
    cudaError_t rc = soft_enter();
    if (rc == cudaSuccess) rc = soft_not_recording();
    if (rc != cudaSuccess || bytes == 0) return soft_told(rc);
    if (place_of(to, bytes) != PLACE_DEVICE) return soft_told(cudaErrorInvalidValue);
    soft_work *w = soft_work_new(WORK_FILL, 0);
    if (!w) return soft_told(cudaErrorMemoryAllocation);
    w->fill.to = to;
    w->fill.byte = byte;
    w->fill.bytes = bytes;
    return soft_told(soft_queue(NULL, w));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that promises not to touch the heap says so: from noalloc_begin to noalloc_end on the same thread. The promise
 * costs one counter. A test that wraps the allocator (tests/unit/engine/test_engine_heap.c) looks at it on every call.
 */
#ifndef BASE_NOALLOC_H
#define BASE_NOALLOC_H

/* > 0: no malloc, no free. Volatile, because compilers know that those look at nothing of ours. */
extern _Thread_local volatile int noalloc_depth;

static inline void noalloc_begin(void) { noalloc_depth++; }
static inline void noalloc_end(void) { noalloc_depth--; }

/* Around somebody else's code (callbacks), which promised nothing. */
static inline int noalloc_pause(void) {
    int depth = noalloc_depth;
    noalloc_depth = 0;
    return depth;
}
static inline void noalloc_resume(int depth) { noalloc_depth = depth; }

#endif

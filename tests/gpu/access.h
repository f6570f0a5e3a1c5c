/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of all lanes at once, and what memory.c tells them. */
#ifndef TESTS_GPU_ACCESS_H
#define TESTS_GPU_ACCESS_H

#include "gpu/run.h"

/* In a generic address the upper byte says whose memory it is. */
#define TAG_SHARED 0x5a00000000000000u
#define TAG_LOCAL 0x5b00000000000000u
#define TAG_MASK 0xff00000000000000u

/* Of an address of shared memory: above it the rank of the block in its cluster and 1, or 0 for the own block. */
enum { RANK_SHIFT = 24 };

/* False, and nothing done: not such a case, or an address that may be wrong; lane by lane it will be found out. */
bool access_load(warp *w, const insn *i, uint32_t m);
bool access_store(warp *w, const insn *i, uint32_t m);

/* The region around [at, at + bytes) as it was looked up last for this instruction, or now; NULL: there is none. */
const known_region *memory_region(warp_state *s, const insn *i, uint64_t at, size_t bytes);

/* What lies between the own memories of two lanes. */
size_t memory_local_step(const warp_state *s);

#endif

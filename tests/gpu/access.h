/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of all lanes at once, and what memory.c tells them. */
#ifndef TESTS_GPU_ACCESS_H
#define TESTS_GPU_ACCESS_H

#include "gpu/run.h"

/* False, and nothing done: not such a case, or an address that may be wrong; lane by lane it will be found out. */
bool access_load(warp *w, const insn *i, uint32_t m);
bool access_store(warp *w, const insn *i, uint32_t m);

/* The region around [at, at + bytes) as it was looked up last for this instruction, or now; NULL: there is none. */
const known_region *memory_region(warp_state *s, const insn *i, uint64_t at, size_t bytes);

/* What lies between the own memories of two lanes. */
size_t memory_local_step(const warp_state *s);

#endif

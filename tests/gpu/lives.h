/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which registers of a kernel hold something that is still needed, at the borders of its blocks: instructions that run
 * one behind the other. Lanes are where they are: each has an element of its own in a register, and follows the program
 * as if it were alone.
 */
#ifndef TESTS_GPU_LIVES_H
#define TESTS_GPU_LIVES_H

#include "gpu/code.h"

typedef struct code_block {
    int       from, to; /* instructions, end exclusive */
    int       next[2];  /* blocks behind; -1 */
    uint64_t *in, *out, *def, *use;
} code_block;

typedef struct lives {
    gpu_kernel *k;
    code_block *blocks;
    int         n_blocks, *block_at;
    uint32_t    n; /* registers of all kinds: predicates, 32 bits, 64 bits */
    size_t      words;
    uint64_t   *bits;
} lives;

/* Also after an error it is closed. */
int  lives_open(lives *l, gpu_kernel *k, err *e);
void lives_close(lives *l);

/* A register's number among all, and back. */
uint32_t lives_number(const gpu_kernel *k, operand o);
operand  lives_operand(const gpu_kernel *k, uint32_t reg);

/* What is read first, then what is written. A write under a guard leaves the old value to some: it is a read, too. */
typedef void (*lives_visit)(void *with, uint32_t reg, bool written);
void lives_each(const gpu_kernel *k, const insn *i, lives_visit f, void *with);

static inline bool lives_has(const uint64_t *set, uint32_t reg) { return set[reg / 64] >> (reg % 64) & 1; }
static inline void lives_put(uint64_t *set, uint32_t reg) { set[reg / 64] |= 1ull << (reg % 64); }
static inline void lives_drop(uint64_t *set, uint32_t reg) { set[reg / 64] &= ~(1ull << (reg % 64)); }

#endif

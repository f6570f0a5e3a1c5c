/* SPDX-License-Identifier: Apache-2.0 */
/* What runs: a launch, its clusters of blocks, their warps. */
#ifndef TESTS_GPU_RUN_H
#define TESTS_GPU_RUN_H

#include "gpu/code.h"

#include <setjmp.h>

enum { NAMED_BARRIERS = 16, KNOWN_REGIONS = 16 };

/* In a generic address the upper byte says whose memory it is. */
#define TAG_SHARED 0x5a00000000000000u
#define TAG_LOCAL 0x5b00000000000000u
#define TAG_MASK 0xff00000000000000u

/* Of an address of shared memory: above it the rank of the block in its cluster and 1, or 0 for the own block. */
enum { RANK_SHIFT = 24 };

/* Why lanes do not go on. */
typedef enum wait {
    WAIT_NOTHING,
    WAIT_LANES,   /* for other lanes of the warp, at the same instruction */
    WAIT_BARRIER, /* for other threads of the block; they have arrived */
    WAIT_CLUSTER, /* for other threads of the cluster */
    WAIT_GRID,    /* for the kernel in front */
    WAIT_TURN,    /* asked in vain; the others first */
} wait;

/* Lanes that are at the same instruction. */
typedef struct group {
    uint32_t pc, mask;
    wait     wait;
    uint32_t bar, generation; /* of the barrier that is waited at */
} group;

/* A copy of cp.async: one lane, up to 16 bytes. */
typedef struct small_copy {
    uint32_t to;
    uint64_t from;
    uint8_t  bytes, read, lane;
    uint32_t group;
} small_copy;

/* A copy of cp.async.bulk on its way to one block. */
typedef struct bulk_copy {
    uint32_t    to, bytes, bar;
    uint64_t    from;
    const insn *by;
} bulk_copy;

typedef struct named_barrier {
    uint32_t arrived, wanted, generation; /* wanted 0: all threads that are left */
    uint32_t yes, result;                 /* votes so far; those of the last round */
} named_barrier;

/* Memory that was looked up; as long as the table has this version. */
typedef struct known_region {
    uintptr_t from, to;
    uint64_t  version;
} known_region;

typedef struct warp_state {
    warp              regs;
    struct gpu_block *block;
    int               index;
    uint32_t          tid[3][LANES]; /* %tid of its lanes */
    uint32_t          live;
    group             groups[LANES];
    int               n_groups;
    bool              ask_again; /* set by an instruction that did not get what it asked for */
    bool              spent;     /* its last turn was used up */
    int               other;     /* the group that was let go on last */
    uint8_t          *local;
    small_copy       *copies;
    int               n_copies, cap_copies;
    uint32_t          copy_group[LANES], cluster_phase[LANES];
    known_region      known[KNOWN_REGIONS]; /* by instructions */
} warp_state;

typedef struct gpu_block {
    struct gpu_cluster *cluster;
    uint32_t            rank, id[3], live; /* live: threads */
    bool                lets;              /* griddepcontrol.launch_dependents was there */
    uint8_t            *smem;
    size_t              smem_bytes;               /* with the SMEM_BASE bytes in front */
    named_barrier       bars[NAMED_BARRIERS + 8]; /* the last are those of warpgroups */
    warp_state         *warps;
    int                 n_warps;
    bulk_copy          *bulk;
    int                 n_bulk, cap_bulk;
} gpu_block;

typedef struct gpu_cluster {
    struct gpu_grid *grid;
    gpu_block       *blocks;
    int              n;
    uint32_t         arrived, phase, live;

    struct race_cluster *races; /* NULL unless they are looked for */
} gpu_cluster;

typedef struct gpu_grid {
    const gpu_chip   *chip;
    const gpu_launch *launch;
    uint64_t          random, steps;
    uint64_t          changes; /* of memory, barriers, the clock: what somebody may wait for */
    bool              early;   /* the kernel in front has not ended */
    uint32_t          race_launch;
    jmp_buf           fault;
    err              *e;
} gpu_grid;

static inline warp_state *state_of(warp *w) { return (warp_state *)(void *)w; }

/* Ends the launch with ERR_LOST and that sentence. */
_Noreturn void gpu_fault(warp_state *s, const insn *i, const char *fmt, ...) BASE_PRINTF(3, 4);

/* ---- run.c: at most `budget` instructions; how many ran; *vain: they asked for something that was not there ---- */
int warp_turn(warp_state *s, int budget, bool *vain);

/* ---- stuck.c: asked after each round of turns; true: none of the cluster's warps will ever do anything again ---- */
typedef struct stuck {
    uint64_t changes, steps, asked;
    double   since;
} stuck;
bool stuck_found(stuck *k, gpu_cluster *c);

/* Something happened that others can see. */
static inline void note_change(warp_state *s) { s->block->cluster->grid->changes++; }

/* ---- spare.c: at least so many bytes, of which all are told; aligned to 64 ---- */
void *spare_take(size_t *bytes);
void  spare_give(void *at, size_t bytes);

/* ---- memory.c ---- */

/* `bytes` at an address, or a fault. */
uint8_t *memory_global(warp_state *s, const insn *i, uint64_t at, size_t bytes);
uint8_t *memory_shared(warp_state *s, const insn *i, uint32_t at, size_t bytes, bool cluster);

/* The block that an address of shared memory belongs to, and the offset there. */
gpu_block *memory_block(warp_state *s, const insn *i, uint32_t at, uint32_t *offset);

/* ---- async.c ---- */
void copies_finish(warp_state *s, const insn *i, int lane, uint32_t before); /* groups below `before` of that lane */
void copies_forget(gpu_block *b); /* at the block's end; a fault where one is under way */

/* Reads an address operand of a lane. */
static inline uint64_t lane_address(const warp *w, const insn *i, operand o, int lane) {
    return (o.kind == SLOT_64 ? lanes64(w, o)[lane] : lanes32(w, o)[lane]) + (uint64_t)i->offset;
}

/* For each lane l of m; may stand within another one. */
#define EACH_LANE(m, l) EACH_LANE_AT(m, l, __LINE__)
#define EACH_LANE_AT(m, l, at) EACH_LANE_IN(m, l, at)
#define EACH_LANE_IN(m, l, at)                                                                                         \
    for (uint32_t rest_##at = (m); rest_##at; rest_##at &= rest_##at - 1)                                              \
        for (int l = __builtin_ctz(rest_##at), once_##at = 1; once_##at; once_##at = 0)

#endif

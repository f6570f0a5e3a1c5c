/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that is ready to run, and the functions that its instructions other than alu.c's and convert.c's are made of. */
#ifndef TESTS_GPU_CODE_H
#define TESTS_GPU_CODE_H

#include "gpu/machine.h"
#include "gpu/text.h"

/* Shared memory begins behind what a device keeps for itself, so that address 0 is nobody's. */
enum { SMEM_BASE = 1024 };

struct gpu_kernel {
    arena     mem;
    char     *name;
    insn     *code;
    int       n_code;
    uint32_t  n_pred, n32, n64; /* registers; after slots_assign places */
    uint32_t *c_pred;           /* constants */
    uint32_t (*c32)[LANES];
    uint64_t (*c64)[LANES];
    operand  *open; /* places of registers that may be read before they are written */
    int       n_open;
    size_t    local_bytes; /* of each lane */
    size_t    static_smem; /* from SMEM_BASE on; what the launch asks for follows */
    gpu_shape shape;
    bool      races; /* its instructions look for races */
};

int  kernel_read(gpu_kernel **out, gpu_module *m, const module_fn *f, err *e);
void kernel_free(gpu_kernel *k);

/* Takes out what need not be done (shorten.c). */
int kernel_shorten(gpu_kernel *k, err *e);

/* Gives registers that are never needed at once the same place. */
int slots_assign(gpu_kernel *k, err *e);

/* ---- memory.c. Addresses: o[1] and `offset`; what is loaded or stored: list[0], `bytes` each ---- */
void do_load(warp *w, const insn *i, uint32_t m); /* mode: enum extend */
void do_store(warp *w, const insn *i, uint32_t m);
void do_atom(warp *w, const insn *i, uint32_t m); /* mode: enum atom; o[0] what was there, o[2], o[3] */
void do_nothing(warp *w, const insn *i, uint32_t m);
void do_let_begin(warp *w, const insn *i, uint32_t m);

/* ---- moves.c ---- */
void do_cvta(warp *w, const insn *i, uint32_t m); /* space, mode 1: to the space, 0: to generic */
void do_mapa(warp *w, const insn *i, uint32_t m);
void do_pack(warp *w, const insn *i, uint32_t m);    /* o[0] of list[0] */
void do_unpack(warp *w, const insn *i, uint32_t m);  /* list[0] of o[1] */
void do_special(warp *w, const insn *i, uint32_t m); /* mode: enum special */

enum extend { EXTEND_ZERO, EXTEND_32, EXTEND_16 }; /* signed, into registers of 32 or 16 bits */
enum atom {
    ATOM_ADD,
    ATOM_MIN,
    ATOM_MAX,
    ATOM_INC,
    ATOM_DEC,
    ATOM_EXCH,
    ATOM_CAS,
    ATOM_AND,
    ATOM_OR,
    ATOM_XOR,
    ATOM_SIGNED = 32,
    ATOM_FLOAT = 64
};
enum special {
    SPECIAL_TID,
    SPECIAL_NTID = 3,
    SPECIAL_CTAID = 6,
    SPECIAL_NCTAID = 9,
    SPECIAL_LANE = 12,
    SPECIAL_WARP,
    SPECIAL_RANK,
    SPECIAL_CLUSTER,
    SPECIAL_CLUSTER_ID,
    SPECIAL_CLOCK,
    SPECIAL_LT,
    SPECIAL_LE,
    SPECIAL_GT,
    SPECIAL_GE,
    SPECIAL_EQ,
    SPECIAL_SM,
    SPECIAL_NWARP
};

/* ---- meet.c: lanes of a warp ---- */
void do_shfl(warp *w, const insn *i, uint32_t m);  /* mode: 0 idx, 1 up, 2 down, 3 bfly; list[0] the predicate */
void do_vote(warp *w, const insn *i, uint32_t m);  /* mode: 0 ballot, 1 all, 2 any */
void do_redux(warp *w, const insn *i, uint32_t m); /* mode: enum atom */

/* ---- async.c: barriers in memory, copies in the background ---- */
void do_mbar_init(warp *w, const insn *i, uint32_t m);
void do_mbar_arrive(warp *w, const insn *i, uint32_t m); /* mode 1: expects o[2] bytes more */
void do_mbar_wait(warp *w, const insn *i, uint32_t m);   /* o[0] whether the phase of parity o[2] is over */
void do_copy_async(warp *w, const insn *i, uint32_t m); /* o[0] to, o[1] from, o[2] how much is read where it is said */
void do_copy_commit(warp *w, const insn *i, uint32_t m);
void do_copy_wait(warp *w, const insn *i, uint32_t m); /* offset: groups that may be under way */
void do_copy_arrive(warp *w, const insn *i, uint32_t m);
void do_bulk_copy(warp *w, const insn *i, uint32_t m); /* o[0] to, o[1] from, o[2] bytes, o[3] barrier, o[4] blocks */
void do_bulk_prefetch(warp *w, const insn *i, uint32_t m); /* o[1] from, o[2] bytes */

/* ---- matrix.c ---- */
void do_ldmatrix(warp *w, const insn *i, uint32_t m); /* mode 1: transposed */
void do_mma(warp *w, const insn *i, uint32_t m);      /* list: d, a, b, c; mode 1: bf16 */
void do_wgmma(warp *w, const insn *i, uint32_t m);    /* list: d, a; o[1], o[2]: where A and B lie; mode: enum wgmma */
enum wgmma { WGMMA_BF16 = 1, WGMMA_HELD = 2, WGMMA_TURNED = 4 };

/* FLOW_BARRIER: mode. Of bar: o[1] which, o[2] how many threads; of bar.red: o[0] result, o[3] what is counted. */
enum barrier {
    BAR_SYNC,
    BAR_ARRIVE,
    BAR_OR,
    BAR_AND,
    BAR_POPC,
    BAR_CLUSTER_ARRIVE,
    BAR_CLUSTER_WAIT,
    BAR_GRID,
    BAR_WARPGROUP
};

#endif

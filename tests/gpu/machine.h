/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU in software, for tests: it runs the PTX that nvcc made of our kernels, so that what a kernel computes is known
 * where no device is (docs/cuda.md, "Without a device"). It is a judge, not a fast machine: threads of a warp that took
 * different ways meet again, blocks run one behind the other in no promised order, copies in the background are made as
 * late as a program must be prepared for, every address is checked, and what was never written holds rubbish.
 *
 * How it is made: `text.c` reads a module; `code.c` makes an array of `insn` of a kernel, calls unfolded;
 * `shorten.c` takes out what need not be done, `slots.c` gives registers their places; `run.c` runs warps, blocks and
 * clusters; `alu.c`, `moves.c`, `memory.c`, `meet.c`, `matrix.c` are what the instructions do, each a function over the
 * 32 lanes of a warp; `races.h` finds accesses that nothing orders; `runtime_*.c` stand where the CUDA runtime would.
 */
#ifndef TESTS_GPU_MACHINE_H
#define TESTS_GPU_MACHINE_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 32 };
#define ALL_LANES 0xffffffffu

/* What kind of storage a register has. 16-bit values lie in 32 bits whose upper half is zero. */
typedef enum slot_kind { SLOT_PRED, SLOT_32, SLOT_64, SLOT_NONE } slot_kind;

/*
 * A register or a constant. In a kernel that is ready to run `at` counts the units of its kind (words of SLOT_PRED, 32
 * lanes of SLOT_32 and SLOT_64) from the beginning of the warp's registers or of the kernel's constants.
 */
typedef struct operand {
    uint32_t  at;
    slot_kind kind : 8;
    bool      constant;
    bool      negated; /* SLOT_PRED: the opposite of what lies there */
} operand;

typedef struct insn insn;
typedef struct warp warp;

/* Does it for the lanes of `m`, which is never 0, and for no others. */
typedef void (*lane_fn)(warp *w, const insn *i, uint32_t m);

/* What the loop has to do besides. */
typedef enum flow { FLOW_NEXT, FLOW_BRANCH, FLOW_EXIT, FLOW_MEET, FLOW_BARRIER } flow;

struct insn {
    lane_fn        fn;
    flow           flow;
    bool           guarded;
    bool           pure;   /* does nothing but write registers, of what it reads */
    uint8_t        copies; /* enum copies */
    bool           alike;  /* of a load or store: its registers are all of the size of its elements */
    operand        guard;  /* of `@p` in front */
    operand        o[5];   /* destination first */
    int            n;
    const operand *list[4]; /* what stands in braces, in order; NULL where nothing does */
    int            listed[4];
    int64_t        offset; /* of an address; a number that is part of the instruction */
    uint32_t       target; /* of a branch; which operand says who meets (MEETS_ALL: all lanes) */
    uint16_t       bytes;  /* per element of a load or store, size of a copy */
    uint8_t        space;  /* of an address: enum space */
    uint8_t        mode;   /* what alike instructions differ in; each function says what it means */
    uint16_t       writes; /* bit k: o[k] is written; bit 5 + k: list[k] is */
    uint16_t       reads;  /* the same, read */
    const char    *name;   /* the instruction, for messages */
    uint32_t       line;   /* of the module's text */
    uint8_t        order;  /* races.c: what it hands over besides its value */
};

/* What o[0] is of o[1], where an instruction does nothing else. */
enum copies { COPIES_NOTHING, COPIES_SAME, COPIES_OPPOSITE };

enum { MEETS_ALL = 255 };

enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_CLUSTER, SPACE_LOCAL, SPACE_PARAM };

/* One row of a table of instructions, by their full names; tables end with a NULL name. */
typedef struct insn_rule {
    const char *name; /* "add.s32" */
    const char
           *shape; /* the kinds of its operands: 'p' predicate, 'w' 32 bits or fewer, 'd' 64 bits, '?' may be missing */
    lane_fn fn;
    uint8_t mode;
    flow    flow;
} insn_rule;

extern const insn_rule alu_rules[];     /* alu.c: registers to registers */
extern const insn_rule convert_rules[]; /* convert.c: cvt and the 16-bit floats */

/* The registers of a warp and the constants of its kernel, by [constant]. */
struct warp {
    uint32_t *pred[2];
    uint32_t (*r32[2])[LANES];
    uint64_t (*r64[2])[LANES];
    uint32_t           carry; /* of add.cc and its like, a bit per lane */
    struct warp_state *state; /* run.h: where its lanes are, its block; no business of alu.c */
};

static inline uint32_t *lanes32(const warp *w, operand o) { return w->r32[o.constant][o.at]; }
static inline uint64_t *lanes64(const warp *w, operand o) { return w->r64[o.constant][o.at]; }
static inline uint32_t  lanes_pred(const warp *w, operand o) {
     const uint32_t v = w->pred[o.constant][o.at];
     return o.negated ? ~v : v;
}
static inline void set_pred(const warp *w, operand o, uint32_t m, uint32_t v) {
    uint32_t *p = &w->pred[0][o.at];
    *p = (*p & ~m) | (v & m);
}

/* 16 products and the sum so far at once, as Hopper adds them; or as two groups of 8, as Ampere does (kernels/cuda/twin.h). */
typedef struct mma_chip {
    int group, fraction;
} mma_chip;

/* c[m][n] += a[m][16] * b[n][16], all rows contiguous; bf16 or f16. */
void mma_k16(mma_chip chip, bool bf16, int m, int n, const uint16_t *a, const uint16_t *b, float *c);

/* ---- what the runtime uses ---- */

typedef struct gpu_chip {
    const char *name;
    int         arch; /* 90 */
    int         sms;
    size_t      smem_block; /* what a block can ask for */
    size_t      smem_sm;
    mma_chip    mma;
} gpu_chip;

typedef struct gpu_module gpu_module;
typedef struct gpu_kernel gpu_kernel;

/* `text` must stay. A kernel is read when it is first asked for; from several threads, under the caller's lock. */
int  gpu_module_open(gpu_module **out, const char *text, size_t bytes, err *e);
void gpu_module_free(gpu_module *m);
int  gpu_module_kernel(const gpu_kernel **out, gpu_module *m, const char *name, err *e);
/* A variable of the module, which lies in ordinary memory. */
int gpu_module_variable(void **at, size_t *bytes, gpu_module *m, const char *name, err *e);

typedef struct gpu_shape {
    int    n_params, threads_max; /* threads_max: what the kernel was compiled for, 0 unless it says so */
    size_t param_bytes[64], param_at[64], params_bytes; /* sizes, and where each lies in the block of parameters */
    size_t static_smem;
} gpu_shape;

void gpu_kernel_shape(const gpu_kernel *k, gpu_shape *out);

typedef struct gpu_launch {
    const gpu_kernel *kernel;
    unsigned          grid[3], block[3], cluster;
    size_t            smem;   /* dynamic */
    const void       *params; /* params_bytes */
    int               device;
} gpu_launch;

/* Memory that kernels may touch: looked up for every address. Both may be called while a kernel runs. */
void gpu_memory_add(void *at, size_t bytes);
void gpu_memory_remove(void *at);
void gpu_memory_of(void *at, int device); /* what was added there is for kernels of this device alone */

/* Runs it to its end. ERR_LOST: the kernel did what a device would fault for; the sentence says what, in which line. */
int gpu_run(const gpu_chip *chip, const gpu_launch *l, err *e);

/*
 * The same in two steps, for a launch that may begin before the one in front has ended: with `early` a few of its
 * blocks run up to where they wait for that. gpu_finish runs the rest and frees it; `l` must stay until then.
 */
typedef struct gpu_started gpu_started;
int                        gpu_start(gpu_started **out, const gpu_chip *chip, const gpu_launch *l, bool early, err *e);
int                        gpu_finish(gpu_started *s, err *e);
bool gpu_lets_begin(const gpu_started *s); /* its blocks that run have said that the next may begin */
void gpu_abandon(gpu_started *s);          /* frees it instead; NULL is nothing */

/* How many instructions of warps ran since the program began, for measurements. */
uint64_t gpu_instructions(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel while it is read: its names, its constants, the arguments of its instructions (operands.c). */
#ifndef TESTS_GPU_BUILD_H
#define TESTS_GPU_BUILD_H

#include "gpu/code.h"

typedef enum sym_kind { SYM_REG, SYM_FAMILY, SYM_LABEL, SYM_PARAM, SYM_LOCAL, SYM_SHARED } sym_kind;

typedef struct sym {
    struct sym *next;
    word        name; /* of a family without its number */
    sym_kind    kind;
    operand     reg;   /* the first of a family */
    int         count; /* of a family */
    int         bytes; /* of a register */
    uint64_t    at;    /* code, offset */
} sym;

typedef struct scope {
    struct scope *up;
    sym          *names[32];
} scope;

typedef struct fixup {
    struct fixup *next;
    int           insn;
    scope        *from;
    word          label;
} fixup;

typedef struct build {
    gpu_module *m;
    gpu_kernel *k;
    scope      *scope;
    insn       *code;
    int         n, cap;
    uint32_t    c_n[3], c_cap[3];
    fixup      *fixups;
    int        *dynamic; /* constants that are addresses of what the launch asks for */
    int         n_dynamic;
    size_t      dynamic_align;
    int         depth; /* of calls */
    word        leave; /* where `ret` goes in an unfolded call; n 0: the kernel's end */
    err        *e;
    reader      r;
    uint32_t    line; /* of the instruction that is read */
} build;

/* One argument of an instruction. */
typedef struct arg {
    char     kind; /* 'r' register, 'i' number, 'l' list, 'a' address, 's' symbol, 'x' special register, '_' nothing */
    operand  reg, second; /* second: of "p|q" */
    bool     has_second;
    int      bytes; /* of the register */
    uint64_t bits;
    int64_t  offset;
    word     name;
    operand *items;
    int      n_items, item_bytes;
} arg;

int ptx_fail(build *b, const char *what, word w);

sym *ptx_find_in(const scope *s, word w);
sym *ptx_add_name(build *b, word w, sym_kind kind);
int  ptx_open_scope(build *b);
int  ptx_read_regs(build *b);
int  ptx_declare(build *b, sym_kind kind);

size_t ptx_round_up(size_t v, size_t to);

/* The address of a symbol as a constant of that kind. */
int ptx_address_of(build *b, word name, slot_kind kind, int64_t offset, operand *out, uint8_t *space);

/* When all else has its place: what the launch asks for lies behind it. */
void ptx_place_dynamic(build *b);

int ptx_read_arg(build *b, arg *a);

/* The argument as an operand of that kind; half: of 16 bits. */
int ptx_operand_of(build *b, const arg *a, slot_kind kind, bool half, operand *out);

#endif

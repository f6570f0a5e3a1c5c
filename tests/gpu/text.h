/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a PTX module: its tokens, and where its kernels, functions and variables stand. */
#ifndef TESTS_GPU_TEXT_H
#define TESTS_GPU_TEXT_H

#include "gpu/machine.h"

typedef struct word {
    const char *at;
    int         n;
    char kind; /* 'w': a name, an instruction or a directive; '0': a number; '"': a string; 0: the end; else itself */
} word;

typedef struct reader {
    const char *at, *end;
    word        now; /* the word that is looked at */
    uint32_t    line;
} reader;

void reader_open(reader *r, const char *at, const char *end, uint32_t line);
void reader_next(reader *r);
bool word_is(word w, const char *s);
bool reader_take(reader *r, const char *s); /* moves on if that is next */

/* What a declaration says: ".shared .align 16 .b8 name[64]". */
typedef struct declared {
    word   name;
    size_t element, count, align; /* bytes of an element; count 0: "[]" */
    bool   is_float;
} declared;

/* From the first word behind the space to the one behind the declarator. */
int reader_declared(reader *r, declared *out, err *e);

/* Bytes of a type, ".b32" -> 4; 0: not a type; SLOT_PRED for ".pred". */
int       type_bytes(const char *at, int n);
slot_kind type_kind(const char *at, int n);

/* The bits of a number: integers as they are, 0f and 0d as they are spelled. */
int number_bits(word w, uint64_t *out);

typedef struct module_var {
    char  *name;
    void  *at;
    size_t bytes;
} module_var;

typedef struct module_shared { /* of the module, not of a kernel */
    char  *name;
    size_t bytes, align; /* 0 bytes: what the launch asks for */
} module_shared;

typedef struct module_fn {
    char       *name;
    bool        entry;
    const char *head, *body, *end; /* parameters; behind the brace; the closing brace */
    uint32_t    line;              /* of body */
    int         threads_max;
    declared    params[64], result;
    int         n_params;
    bool        has_result;
    gpu_kernel *kernel; /* once it was read */
} module_fn;

struct gpu_module {
    arena          mem;
    module_fn     *fns;
    module_var    *vars;
    module_shared *shared;
    int            n_fns, n_vars, n_shared;
};

const module_fn     *module_fn_find(const gpu_module *m, const char *name, int n);
const module_var    *module_var_find(const gpu_module *m, const char *name, int n);
const module_shared *module_shared_find(const gpu_module *m, const char *name, int n);

#endif

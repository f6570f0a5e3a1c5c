/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PTX inside the program: nvcc puts a fat binary into every object of a .cu file and hands a wrapper of it to
 * __cudaRegisterFatBinary when the program starts.
 *
 * Layout, little endian, as nvcc 13 writes it. Wrapper: u32 0x466243b1, u32 version, pointer to the binary, pointer.
 * Binary: u32 0xba55ed50, u16 version, u16 bytes of this header, u64 bytes of what follows. Then entry behind entry:
 *
 *   0  u16 kind (1 PTX, 2 machine code)    2  u16 version       4  u32 bytes of this header
 *   8  u64 bytes of the payload           16  u32 bytes if compressed, else 0
 *  28  u32 chip (90)                      40  u64 flags: 0x2000 and 0x8000 compressed
 *
 * A payload of PTX ends with zero bytes. Which chips a text is for is read from its own .target line: "sm_90a" runs
 * on 9.0 and nowhere else, "sm_80" on 8.0 and everything later.
 */
#ifndef TESTS_GPU_FATBIN_H
#define TESTS_GPU_FATBIN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct fatbin_text {
    const char *at; /* inside the binary, which stays */
    size_t      bytes;
    int         arch; /* 90 */
    bool        own;  /* for this chip alone: "sm_90a" */
} fatbin_text;

/* The text that a chip takes: its own, else the newest of those for older chips. ERR_NOTFOUND: it has none. */
int fatbin_find(fatbin_text *out, const void *wrapper, int arch, err *e);

#endif

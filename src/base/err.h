/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors that carry a sentence.
 *
 * A function that can fail returns 0 or one of the negative codes below and fills the caller's `err` with a sentence
 * that names the file, tensor or field at fault. The first failure writes the sentence (err_set); callers on the way up
 * put their context in front (err_wrap), so a user reads "model.gguf: tensor blk.0.attn_q.weight: offset 9000 lies
 * beyond the end of the file (8192 bytes)". Every function here accepts e == NULL.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>

enum {
    ERR_NOMEM = -1,       /* an allocation failed */
    ERR_IO = -2,          /* the operating system refused: open, read, write, map */
    ERR_FORMAT = -3,      /* a file or text is not what it claims to be */
    ERR_UNSUPPORTED = -4, /* understood, but this program cannot do it */
    ERR_ARG = -5,         /* the caller's argument or a user's option is wrong */
    ERR_LIMIT = -6,       /* a size, depth, count or step limit was reached; trying again will not help */
    ERR_NOTFOUND = -7,    /* the named thing does not exist */
    ERR_CANCELLED = -8,   /* the caller asked to stop */
    ERR_BUSY = -9,        /* a queue is full or too much is under way; it may work later */
    ERR_LOST = -10,       /* a device is gone for this process; another process may get it back */
    ERR_CONTEXT = -11,    /* a prompt does not fit the context or the cache */
    ERR_UNLOADED = -12,   /* a model is not in memory and could not be brought there */
    ERR_DEADLINE = -13,   /* the caller's time was over */
};

typedef struct err {
    int  code;
    char msg[504];
} err;

#if defined(__GNUC__)
#define BASE_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#else
#define BASE_PRINTF(fmt_index, first_arg)
#endif

int err_setv(err *e, int code, const char *fmt, va_list ap); /* what the others are made of */

/* Writes the sentence and returns code, so that `return err_set(e, ERR_FORMAT, ...)` reads as one step. */
int err_set(err *e, int code, const char *fmt, ...) BASE_PRINTF(3, 4);

/* Puts "context: " in front of the sentence that is there and returns rc. A long sentence keeps its beginning. */
int err_wrap(err *e, int rc, const char *fmt, ...) BASE_PRINTF(3, 4);

/* ERR_IO with the text of errno behind the sentence: "cannot open x: No such file or directory". */
int err_set_errno(err *e, const char *fmt, ...) BASE_PRINTF(2, 3);

/* ERR_NOMEM with a sentence; never allocates. */
int err_set_nomem(err *e);

/* A short English name of a code, for logs and JSON. */
const char *err_code_name(int code);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures and sounds are decoded in a process of their own.
 *
 * The decoders read bytes that anybody may send. Each file gets a fresh process (`hearth worker --picture`, `--sound`) behind the
 * same walls as a model's worker (sandbox.h), with nothing to read or write but one socket, little address space and
 * a few seconds. One that crashes, hangs or wants too much is an error of this file and of nothing else.
 *
 * Down the socket go u64 bytes and the file; up come a decoder_reply and the pixels or samples, or the sentence of an error.
 */
#ifndef HOST_DECODER_DECODER_H
#define HOST_DECODER_DECODER_H

#include "base/err.h"
#include "base/str.h"
#include "pixels/pixels.h"
#include "sound/sound.h"

typedef struct decoder_options {
    const char  *program;    /* that has the command `worker`; NULL: this one */
    char *const *env;        /* its environment; NULL: empty */
    int64_t      time_ms;    /* it has for a file; 0: 10 s, and 30 s for a sound */
    bool         no_sandbox; /* the owner asked for it */
} decoder_options;

/* From any thread; wait. ERR_FORMAT, ERR_LIMIT: the file's fault. */
int decoder_read(pixels *out, view file, const decoder_options *o, err *e);
int decoder_hear(sound *out, view file, const decoder_options *o, err *e);

/* The process: one file, then the end. Returns its exit code. */
int decoder_run(int socket, bool hear, bool no_sandbox);

#endif

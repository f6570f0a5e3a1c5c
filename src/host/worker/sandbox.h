/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walls around a process that reads a model file, which is untrusted input.
 *
 * After sandbox_enter the process has what it holds and the paths it named, and cannot get more:
 *
 *   no new privileges   set-user-id programs and file capabilities mean nothing any more
 *   resource limits     no core files; few descriptors; files no larger than asked
 *   Landlock            opens outside the named paths fail with EACCES: readable paths read-only, writable ones
 *                       read-write; where the kernel can, no TCP and no signals to processes outside, too
 *   system-call filter  an allow-list. What is not on it ends the process with SIGSYS after one line on standard error
 *                       that names the call: every socket but those that are open, exec, fork, ptrace, mount, signals
 *                       to others, io_uring, bpf, ... Threads, mappings, futexes, reading and writing of open
 *                       descriptors, clocks and opening of files (which Landlock judges) work.
 *
 * Executable memory cannot be made: mmap and mprotect with PROT_EXEC fail with EACCES. PCRE2 then runs its interpreter
 * instead of its JIT, which gives the same matches; the patterns of well-known tokenizers are not run by it at all.
 *
 * What fails instead of ending the process, because libraries try it and go on: clone3 (ENOSYS; the C library takes
 * clone, whose flags the filter can see), choosing cores (EPERM), opening a file for writing when no path is writable
 * (EACCES).
 *
 * A kernel without one of them: sandbox_options says whether that is an error or a warning in the log; it is never
 * silent. Without Landlock any file that the user may read can be read; the filter then still refuses writing, if no
 * path is writable.
 *
 * To be called while there is one thread: Landlock holds for the thread that asked and for those it starts. Leave with
 * _exit where a leak checker would run at exit: it starts a process and traces, which the filter ends.
 */
#ifndef HOST_WORKER_SANDBOX_H
#define HOST_WORKER_SANDBOX_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a kernel can do, or what holds in this process. */
typedef struct sandbox_state {
    bool no_new_privs;
    bool filter;           /* system calls */
    int  landlock;         /* version of its interface; 0: none */
    bool landlock_tcp;     /* version 4 on: TCP is refused by it, too */
    bool landlock_signals; /* version 6 on: signals and abstract Unix sockets */
    bool one_thread;       /* there was one when it was entered */
} sandbox_state;

typedef enum sandbox_missing {
    SANDBOX_REFUSE, /* a wall that cannot be built is an error */
    SANDBOX_WARN,   /* it is logged as a warning, the others are built */
} sandbox_missing;

typedef struct sandbox_options {
    /* Model paths: a GGUF file (with the other parts of a split set), a safetensors file (with the files beside it that
     * belong to a model), a directory (with the files that links in it lead to). They must exist. */
    const char *const *readable;
    size_t             n_readable;
    /* Directories for files that come and go, such as the disk cache; made if they are not there. */
    const char *const *writable;
    size_t             n_writable;
    sandbox_missing    missing;
    /* The model computes on a GPU: before_filter may open its device files, read the driver's libraries and tables and
     * name threads (below /proc/self/task); what is open then may be asked afterwards. */
    bool gpu;
    /* NULL, or what needs more than the filter allows, such as loading the driver: it is called behind Landlock and in
     * front of the filter, which then holds for the threads it started, too. An error of it is the caller's. */
    void (*before_filter)(void *ctx);
    void          *ctx;
    int            max_files;      /* descriptors; 0: 256, with a GPU 1024 */
    uint64_t       max_file_bytes; /* size of a file that is written; 0: as it was */
    sandbox_state *held;           /* NULL, or filled: what holds now */
} sandbox_options;

/* On success says in the log what holds. After a failure some walls may stand already: the process should end. */
int sandbox_enter(const sandbox_options *o, err *e);

void sandbox_probe(sandbox_state *can); /* what this kernel has; changes nothing */

/* Appends one line without a newline: "no new privileges, system-call filter, Landlock 7 (files, TCP, signals)". */
void sandbox_describe(const sandbox_state *s, str *out);
bool sandbox_is_complete(const sandbox_state *s); /* no new privileges, filter and Landlock */

#endif

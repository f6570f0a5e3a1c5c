/* SPDX-License-Identifier: Apache-2.0 */
/* The two walls of the sandbox that have a file of their own. */
#ifndef HOST_WORKER_SANDBOX_WALLS_H
#define HOST_WORKER_SANDBOX_WALLS_H

#include "host/worker/sandbox.h"

/* Landlock (sandbox_files.c). */
int sandbox_files_version(void); /* of the kernel's interface; 0: there is none */
int sandbox_files_restrict(const sandbox_options *o, int version, err *e);

/* The system-call filter (sandbox_calls.c). */
bool sandbox_calls_known(void);
int  sandbox_calls_restrict(bool may_write, bool gpu, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The two walls of the sandbox that have a file of their own. */
#ifndef HOST_WORKER_SANDBOX_WALLS_H
#define HOST_WORKER_SANDBOX_WALLS_H

#include "host/worker/sandbox.h"

/* Landlock (sandbox_files.c). */
int sandbox_files_version(void); /* of the kernel's interface; 0: there is none */
/* Rules for what the options name: a descriptor, or an error. starts: with what a GPU's driver needs while it starts. Made
 * while files can still be looked at. */
int sandbox_files_rules(const sandbox_options *o, int version, bool starts, err *e);
/* From now on they hold for this thread and those it starts, beside rules that hold already. Closes the descriptor. */
int sandbox_files_restrict(int made, err *e);

/* The system-call filter (sandbox_calls.c). */
bool sandbox_calls_known(void);
int  sandbox_calls_restrict(bool may_write, bool gpu, err *e);

#endif

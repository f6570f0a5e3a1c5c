/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench --speculate: what drafts bring on real texts. */
#ifndef CLI_DEV_BENCH_SPECULATE_H
#define CLI_DEV_BENCH_SPECULATE_H

#include "cli/cli.h"

/* path: the model's; draft: a draft model's or NULL; who: as --speculate has it. Prints. */
int bench_speculate(const cli_args *a, const char *path, const char *draft, const char *who, int threads, int reps,
                    int n_tokens, err *e);

#endif

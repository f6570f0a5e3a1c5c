/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a model's predictions move when its weights are replaced, for `hearth quantize --target-bpw --text`.
 *
 * The text is evaluated once with the weights as they are; of each prediction the most likely tokens stay, with all others
 * as one. A trial evaluates it again; the divergence over these outcomes is that of the whole distribution but for what
 * moves among the unlikely ones.
 */
#ifndef CLI_CONVERT_JUDGE_H
#define CLI_CONVERT_JUDGE_H

#include "cli/convert/opened.h"
#include "cli/convert/progress.h"
#include "cli/dev/windows.h"

typedef struct judge_options {
    const char *text;
    bool        documents; /* the text contains JSON lines */
    int         threads;
    progress   *bar;
} judge_options;

typedef struct judge {
    judge_options       o;
    opened              model; /* bound for each trial */
    windows             w;
    struct judge_token *tokens; /* what the model says as it is */
    size_t              n;
} judge;

int  judge_open(judge *j, const char *model, const judge_options *o, err *e);
void judge_deinit(judge *j); /* accepts a zeroed one */

/* quantize_judge.divergence of convert/quantize.h; ctx: the judge. */
int judge_divergence(void *ctx, size_t trial, size_t trials, double *kl, err *e);

#endif

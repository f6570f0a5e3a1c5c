/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Picks from rows of logits that lie on the device.
 *
 * The likeliest tokens of every row come to the host with the step. Most picks need no more: the host runs the chain over
 * them (params/chain.h). Of the other rows the device is asked for more, of many at once: changed copies where a
 * bias or penalties reach tokens outside of the list, sums of weights for top_p and log-probabilities, the draw over a
 * whole row. What is still not certain, or too close to call, is left to the host. Which way a row goes depends on the
 * row and its parameters alone.
 */
#ifndef BACKEND_CUDA_SAMPLER_H
#define BACKEND_CUDA_SAMPLER_H

#include "kernels/cuda/picks.h"
#include "params/chain.h"

typedef struct cuda_sampler {
    int64_t    width;
    int        rows, max_asks, max_edited;
    cuda_picks picks; /* on the device */

    /* The host's side, pinned. */
    void        *host;
    cuda_likely *lists[2], *likely, *asked; /* likely: the lists of the step that was waited for last */
    cuda_ask    *asks;
    cuda_edit   *edits;
    uint32_t    *masks;
    cuda_drawn  *drawn;

    /* What is asked next: places among the rows of the call. */
    int             *who;
    const uint32_t **whose; /* [masks] where each was copied from: sequences may share one */
    int              n_edits;
    cand             cands[CUDA_LIKELY];
} cuda_sampler;

void   cuda_sampler_plan(cuda_sampler *s, int rows, int64_t width);
size_t cuda_sampler_bytes(const cuda_sampler *s);                                     /* of the device */
int    cuda_sampler_open(cuda_sampler *s, void *device, const float *logits, err *e); /* device: of as many bytes */
void   cuda_sampler_close(cuda_sampler *s);

/* Behind the kernels that make the logits: what the host will look at first, and its way to lists[turn]. */
int cuda_sampler_step(const cuda_sampler *s, int64_t rows, cuda_stream stream, err *e);
int cuda_sampler_send(const cuda_sampler *s, int64_t rows, int turn, cuda_stream stream, err *e);

/* How the pick from a row is guessed on the device; r NULL: nobody looks at the guess. */
cuda_guess cuda_sampler_guess(const sampling_row *r);

/* nn_backend.sample; waits for what it asks. asks: the logits are still there. */
int cuda_sampler_pick(cuda_sampler *s, const int32_t *out_rows, const sampling_row *rows, int n, bool asks,
                      sampling_result *out, cuda_stream stream, err *e);

#endif

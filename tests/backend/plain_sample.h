/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sampler on a device does, in plain C: written from the definition in params/sampling.h and from nothing else,
 * with exponentials and sums in double and every row sorted whole. The sampler of the host and those of devices are
 * compared with it.
 */
#ifndef TESTS_BACKEND_PLAIN_SAMPLE_H
#define TESTS_BACKEND_PLAIN_SAMPLE_H

#include "params/sampling.h"

/*
 * Picks one token for each row of logits[n_rows][n_vocab]; token -1: the row allows none. margin[i] (NULL: not wanted)
 * is how close the closest decision of row i was to going the other way, in the units of the definition's last
 * paragraph: below 1e-6 another implementation may pick otherwise. ERR_ARG: parameters that are the host's.
 */
int plain_sample(const float *logits, size_t n_vocab, const sampling_row *rows, size_t n_rows, sampling_result *out,
                 double *margin, err *e);

#endif

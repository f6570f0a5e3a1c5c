/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sound as Whisper's encoder sees it: its logarithmic mel spectrogram.
 *
 * Every 160 samples (10 ms) a frame of 400 around that place, under a Hann window; the power of its 201 frequencies; sums of
 * these by triangles on Slaney's mel scale, each of area one; the decimal logarithm of at least 1e-10. What lies more than
 * eight below the sound's largest value is raised to that; then (x + 4) / 4. The sound is padded with silence to whole pieces
 * first, and mirrored at its ends for the frames there.
 */
#ifndef VISION_MEL_H
#define VISION_MEL_H

#include "sound/sound.h"

enum { MEL_HOP = 160 };

typedef struct mel {
    int    bins, frames; /* frames: a multiple of those of a piece */
    float *at;           /* [frames][bins] */
} mel;

int  mel_make(mel *out, const sound *s, int bins, int piece_frames, err *e);
void mel_free(mel *m);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sound as encoders see it: its logarithmic mel spectrogram. Every 160 samples (10 ms) there is a frame.
 *
 * As Whisper has it: 400 samples around that place, under a Hann window; the power of their 201 frequencies; sums of
 * these by triangles on Slaney's mel scale, each of area one; the decimal logarithm of at least 1e-10. What lies more
 * than eight below the sound's largest value is raised to that; then (x + 4) / 4. The sound is padded with silence to
 * whole pieces first, and mirrored at its ends for the frames there.
 *
 * As Gemma 4 has it: 320 samples around that place, silence before the sound; the sizes (not powers) of the 257
 * frequencies of twice 256 samples; triangles of height one on the scale of HTK; the natural logarithm of what is
 * 0.001 larger. A frame is there as long as a sample lies behind it.
 *
 * As Gemma 3n has it: 512 samples from that place on, each less 0.97 of the one before it (the first of a frame: of
 * itself); the sizes of 513 frequencies; triangles of height one between 125 and 7600 Hz on the scale of HTK; the
 * natural logarithm of at least 1e-5. A frame is there where all of it lies in the sound, which has silence behind it
 * up to the next 128 samples.
 */
#ifndef VISION_MEL_H
#define VISION_MEL_H

#include "sound/sound.h"

enum { MEL_HOP = 160, MEL_MOST_BINS = 257 };

typedef struct mel {
    int    bins, frames;
    float *at; /* [frames][bins] */
} mel;

/* Frames: a multiple of those of a piece. */
int mel_make_whisper(mel *out, const sound *s, int bins, int piece_frames, err *e);
/* Not padded but to `least` samples: whole hops only. */
int mel_make_whisper_bare(mel *out, const sound *s, int bins, int least, err *e);
/* Of n samples. There is one frame at least. */
int  mel_make_gemma4(mel *out, const float *samples, int n, int bins, err *e);
int  mel_frames_gemma4(int n);
int  mel_make_gemma3n(mel *out, const float *samples, int n, int bins, err *e);
int  mel_frames_gemma3n(int n);
void mel_free(mel *m);

#endif

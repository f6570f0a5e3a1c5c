/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sound in memory: one channel, 16000 samples a second, as floats around -1 to 1; and bringing one to this rate.
 *
 * The rate is that of all encoders of speech that are known here. Changing it is done with a low pass that is flat up to 89% of
 * the lower Nyquist frequency and 90 dB down at the whole of it: a windowed sinc, computed once for each of the places that a
 * new sample can have between two old ones.
 */
#ifndef SOUND_SOUND_H
#define SOUND_SOUND_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SOUND_RATE = 16000, SOUND_MIN_RATE = 4000, SOUND_MAX_RATE = 192000 };

typedef struct sound {
    int    n;
    float *at; /* owned */
} sound;

int  sound_init(sound *s, int n, err *e); /* silence; n is 1 at least */
void sound_deinit(sound *s);              /* accepts one that is all zero */

/* How many samples at SOUND_RATE so many at another rate become. */
int64_t sound_length(int64_t n, int rate);
/* Samples of that rate as a sound; `from` stays. */
int sound_resample(sound *out, const float *from, int n, int rate, err *e);

/* A sound as bytes, for a process border: int32 zero, which no picture begins with (pixels.h), int32 how many samples, and the
 * samples. */
enum { SOUND_HEAD_BYTES = 8 };
static inline size_t sound_bytes(const sound *s) { return SOUND_HEAD_BYTES + (size_t)s->n * sizeof *s->at; }
void                 sound_write(const sound *s, void *to); /* sound_bytes of them */
bool                 sound_is(const void *data, size_t bytes);
int                  sound_count(const void *data, size_t bytes, int *n, err *e); /* samples in such bytes, checked */
int                  sound_read(sound *out, const void *data, size_t bytes, err *e);

#endif

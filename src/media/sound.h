/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sounds from files, by what their bytes say: WAV with PCM of 8, 16, 24 or 32 bits or floats of 32 or 64, and MP3. Channels are
 * mixed down to one, and the rate becomes SOUND_RATE. A WAV file that is cut off is refused, and its length is checked in the
 * header, before memory is taken for samples; that of an MP3 file shows while it is decoded. Like media.h this is meant for a process that has nothing to lose.
 */
#ifndef MEDIA_SOUND_H
#define MEDIA_SOUND_H

#include "sound/sound.h"

enum { MEDIA_SOUND_SECONDS = 1800, MEDIA_SOUND_CHANNELS = 8 };

/* Whether a sound of so many samples at SOUND_RATE may be read. */
int media_sound_check(int64_t n, int max_seconds, err *e);
int media_sound_decode(sound *out, const void *data, size_t bytes, int max_seconds, err *e);

#endif

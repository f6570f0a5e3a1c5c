/* SPDX-License-Identifier: Apache-2.0 */
#include "media/sound.h"

#include "media/codec.h"

int media_sound_check(int64_t n, int max_seconds, err *e) {
    if (n <= 0) return err_set(e, ERR_FORMAT, "the sound is empty");
    if (n > (int64_t)max_seconds * SOUND_RATE)
        return err_set(e, ERR_LIMIT, "the sound lasts %lld seconds; at most %d are read", (long long)(n / SOUND_RATE),
                       max_seconds);
    return 0;
}

int media_sound_settle(sound *out, sound *from, int rate, err *e) {
    if (rate != SOUND_RATE) return sound_resample(out, from->at, from->n, rate, e);
    *out = *from;
    *from = (sound){ 0 };
    return 0;
}

int media_sound_decode(sound *out, const void *data, size_t bytes, int max_seconds, err *e) {
    media_bytes in = { data, bytes };
    *out = (sound){ 0 };
    if (media_begins(in, 0, "RIFF", 4) && media_begins(in, 8, "WAVE", 4)) return media_wav(out, in, max_seconds, e);
    if (media_is_mp3(in)) return media_mp3(out, in, max_seconds, e);
    return err_set(e, ERR_FORMAT, "this is not a sound that can be read: WAV and MP3 can");
}

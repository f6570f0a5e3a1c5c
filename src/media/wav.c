/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RIFF WAVE: chunks of a name, a length and so many bytes (padded to an even number). "fmt " says how samples lie in "data";
 * others are passed over. Numbers have their lowest byte first. A writer that could not go back to its header leaves a length of
 * 0xffffffff: then the samples go on to the end of the file.
 */
#include "media/codec.h"
#include "media/sound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PCM = 1, FLOATS = 3, EXTENSIBLE = 0xfffe, FMT_BYTES = 16, EXTENSIBLE_BYTES = 40 };

typedef struct wav {
    int            kind, channels, rate, bits, frame_bytes;
    const uint8_t *data;
    size_t         bytes;
} wav;

static unsigned u16(const uint8_t *at) { return at[0] | (unsigned)at[1] << 8; }
static uint32_t u32(const uint8_t *at) { return u16(at) | (uint32_t)u16(at + 2) << 16; }

static int read_format(wav *w, const uint8_t *at, size_t n, err *e) {
    if (n < FMT_BYTES) return err_set(e, ERR_FORMAT, "the WAV file's format has %zu bytes", n);
    uint32_t rate = u32(at + 4);
    w->kind = (int)u16(at);
    if (w->kind == EXTENSIBLE && n >= EXTENSIBLE_BYTES) w->kind = (int)u16(at + 24); /* how its GUID begins */
    w->channels = (int)u16(at + 2);
    w->frame_bytes = (int)u16(at + 12);
    w->bits = (int)u16(at + 14);
    bool pcm = w->kind == PCM && (w->bits == 8 || w->bits == 16 || w->bits == 24 || w->bits == 32);
    bool floats = w->kind == FLOATS && (w->bits == 32 || w->bits == 64);
    if (!pcm && !floats)
        return err_set(e, ERR_FORMAT,
                       "the WAV file has samples of kind %d with %d bits; PCM of 8, 16, 24 or 32 bits and floats of 32 "
                       "or 64 can be read",
                       w->kind, w->bits);
    if (w->channels < 1 || w->channels > MEDIA_SOUND_CHANNELS || w->frame_bytes != w->channels * w->bits / 8)
        return err_set(e, ERR_FORMAT, "the WAV file has %d channels in %d bytes; 1 to %d channels can be read",
                       w->channels, w->frame_bytes, MEDIA_SOUND_CHANNELS);
    if (rate < SOUND_MIN_RATE || rate > SOUND_MAX_RATE)
        return err_set(e, ERR_FORMAT, "the WAV file has %u samples a second; %d to %d can be read", rate,
                       SOUND_MIN_RATE, SOUND_MAX_RATE);
    w->rate = (int)rate;
    return 0;
}

static int read_chunks(wav *w, media_bytes in, err *e) {
    size_t at = 12; /* behind RIFF, a length and WAVE */
    *w = (wav){ 0 };
    while (in.n - at >= 8) {
        const uint8_t *chunk = in.at + at;
        size_t         n = u32(chunk + 4), left = in.n - at - 8;
        bool           data = memcmp(chunk, "data", 4) == 0;
        if (data && n == UINT32_MAX) n = left;
        if (n > left)
            return err_set(e, ERR_FORMAT, "the WAV file is cut off: %zu of %zu bytes of a part are there", left, n);
        if (memcmp(chunk, "fmt ", 4) == 0) {
            int rc = read_format(w, chunk + 8, n, e);
            if (rc < 0) return rc;
        }
        if (data) {
            if (!w->rate) return err_set(e, ERR_FORMAT, "the WAV file's samples come before their format");
            w->data = chunk + 8;
            w->bytes = n;
            return 0;
        }
        at += 8 + n + (n < left ? n & 1 : 0);
    }
    return err_set(e, ERR_FORMAT, "the WAV file has no samples");
}

/* One sample, as a number of which one is the loudest. */
static float sample(const wav *w, const uint8_t *at) {
    union {
        float  f;
        double d;
    } x;
    switch (w->bits) {
    case 8: return (float)(at[0] - 128) / 128;
    case 16: return (float)(int16_t)u16(at) / 32768;
    case 24: return (float)((int32_t)((uint32_t)u16(at) << 8 | (uint32_t)at[2] << 24) >> 8) / 8388608;
    case 32:
        if (w->kind == PCM) return (float)((double)(int32_t)u32(at) / 2147483648.0);
        memcpy(&x.f, at, sizeof x.f);
        return x.f;
    default: memcpy(&x.d, at, sizeof x.d); return (float)x.d;
    }
}

static int mix(float *to, const wav *w, int n, err *e) {
    for (int i = 0; i < n; i++) {
        const uint8_t *at = w->data + (size_t)i * (size_t)w->frame_bytes;
        float          sum = 0;
        for (int c = 0; c < w->channels; c++) sum += sample(w, at + c * (w->bits / 8));
        to[i] = sum / (float)w->channels;
        if (!isfinite(to[i])) return err_set(e, ERR_FORMAT, "sample %d of the WAV file is not a number", i);
    }
    return 0;
}

int media_wav(sound *out, media_bytes in, int max_seconds, err *e) {
    wav   w;
    sound own = { 0 };
    int   rc = read_chunks(&w, in, e);
    if (rc < 0) return rc;
    if (w.bytes % (size_t)w.frame_bytes || w.bytes == 0)
        return err_set(e, ERR_FORMAT, "the WAV file has %zu bytes of samples of %d bytes", w.bytes, w.frame_bytes);
    int64_t n = (int64_t)(w.bytes / (size_t)w.frame_bytes);
    if ((rc = media_sound_check(sound_length(n, w.rate), max_seconds, e)) < 0) return rc;
    if (n > INT32_MAX) return err_set(e, ERR_LIMIT, "the WAV file has %lld samples", (long long)n);
    rc = sound_init(&own, (int)n, e);
    if (rc == 0) rc = mix(own.at, &w, (int)n, e);
    if (rc == 0) rc = media_sound_settle(out, &own, w.rate, e);
    sound_deinit(&own);
    return rc;
}

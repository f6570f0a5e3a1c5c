/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPEG audio, layers 1 to 3, through libmpg123. Such a file is a row of frames without a length in front: one that was cut is a
 * shorter sound. So memory grows with what comes out, up to what is allowed.
 */
#include "base/num.h"
#include "media/codec.h"
#include "media/sound.h"

#include <math.h>
#include <mpg123.h>
#include <stdlib.h>

enum { BLOCK = 1 << 14, CHANNELS = 2, LOST_BYTES = 1 << 16 }; /* of garbage between frames at most */

typedef struct mp3 {
    mpg123_handle *h;
    long           rate;
    int            channels;
    int64_t        most; /* samples at that rate */
    sound          made; /* n of them are filled */
    int64_t        room;
} mp3;

bool media_is_mp3(media_bytes in) {
    if (media_begins(in, 0, "ID3", 3)) return true;
    return in.n >= 4 && in.at[0] == 0xff && (in.at[1] & 0xe0) == 0xe0 && (in.at[1] & 0x06) != 0 && in.at[2] < 0xf0;
}

static int bad(const mp3 *m, err *e) {
    return err_set(e, ERR_FORMAT, "the MP3 file cannot be read: %s", m->h ? mpg123_strerror(m->h) : "no decoder");
}

/* A stream begins, or goes on in another form, which is refused. */
static int take_format(mp3 *m, int max_seconds, err *e) {
    long rate;
    int  channels, encoding;
    if (mpg123_getformat(m->h, &rate, &channels, &encoding) != MPG123_OK) return bad(m, e);
    if (encoding != MPG123_ENC_FLOAT_32 || channels < 1 || channels > CHANNELS || rate < SOUND_MIN_RATE ||
        rate > SOUND_MAX_RATE || (m->rate && (rate != m->rate || channels != m->channels)))
        return err_set(e, ERR_FORMAT, "the MP3 file has %d channels of %ld Hz, or changes on its way", channels, rate);
    m->rate = rate;
    m->channels = channels;
    m->most = (int64_t)max_seconds * rate;
    return 0;
}

static int grow(mp3 *m, int64_t more, err *e) {
    int64_t n = m->made.n + more;
    if (n > m->most)
        return err_set(e, ERR_LIMIT, "the sound lasts more than %lld seconds, which are read at most",
                       (long long)(m->most / m->rate));
    if (n <= m->room) return 0;
    int64_t room = num_min(num_max(2 * m->room, n), m->most);
    float  *grown = realloc(m->made.at, (size_t)room * sizeof *grown);
    if (!grown) return err_set_nomem(e);
    m->made.at = grown;
    m->room = room;
    return 0;
}

static int append(mp3 *m, const float *from, size_t bytes, err *e) {
    int64_t n = (int64_t)(bytes / sizeof *from) / (m->channels ? m->channels : 1);
    int     rc = n ? grow(m, n, e) : 0;
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        float x = m->channels == 2 ? (from[2 * i] + from[2 * i + 1]) / 2 : from[i];
        if (!isfinite(x)) return err_set(e, ERR_FORMAT, "a sample of the MP3 file is not a number");
        m->made.at[m->made.n++] = x;
    }
    return rc;
}

static int read_frames(mp3 *m, int max_seconds, err *e) {
    for (;;) {
        float  block[BLOCK];
        size_t bytes = 0;
        int    said = mpg123_read(m->h, (unsigned char *)block, sizeof block, &bytes);
        int    rc = said == MPG123_NEW_FORMAT ? take_format(m, max_seconds, e) : append(m, block, bytes, e);
        if (rc < 0) return rc;
        if (said == MPG123_NEED_MORE || said == MPG123_DONE) return 0;
        if (said != MPG123_OK && said != MPG123_NEW_FORMAT) return bad(m, e);
    }
}

static int decode(mp3 *m, media_bytes in, int max_seconds, err *e) {
    int said;
    if (!(m->h = mpg123_new(NULL, &said))) return err_set_nomem(e);
    if (mpg123_param(m->h, MPG123_ADD_FLAGS, MPG123_FORCE_FLOAT | MPG123_QUIET | MPG123_SKIP_ID3V2, 0) != MPG123_OK ||
        mpg123_param(m->h, MPG123_RESYNC_LIMIT, LOST_BYTES, 0) != MPG123_OK || mpg123_open_feed(m->h) != MPG123_OK ||
        mpg123_feed(m->h, in.at, in.n) != MPG123_OK)
        return bad(m, e);
    int rc = read_frames(m, max_seconds, e);
    return rc < 0 ? rc : media_sound_check(m->made.n ? sound_length(m->made.n, (int)m->rate) : 0, max_seconds, e);
}

int media_mp3(sound *out, media_bytes in, int max_seconds, err *e) {
    mp3 m = { 0 };
    int rc = decode(&m, in, max_seconds, e);
    if (m.h) mpg123_delete(m.h);
    if (rc == 0) rc = media_sound_settle(out, &m.made, (int)m.rate, e);
    sound_deinit(&m.made);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/media.h"

#include "base/num.h"
#include "pixels/pixels.h"
#include "runtime/runtime.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a picture as the runtime takes it; 0: it cannot be one. */
static size_t picture_bytes(const hearth_picture *p) {
    size_t area = 0, bytes = 0;
    if (!p->rgb || p->width <= 0 || p->height <= 0 || !num_mul_size((size_t)p->width, (size_t)p->height, &area) ||
        !num_mul_size(area, PIXELS_CHANNELS, &bytes) || bytes > RUNTIME_MAX_BLOB_BYTES)
        return 0;
    return bytes + PIXELS_HEAD_BYTES;
}

static int read_pictures(api_media *m, const hearth_request *q, err *e) {
    for (size_t i = 0; i < q->n_pictures; i++) {
        size_t one = picture_bytes(&q->pictures[i]);
        if (!one || (m->bytes += one) > RUNTIME_MAX_BLOB_BYTES)
            return err_set(e, ERR_ARG, "pictures: number %zu of %d x %d cannot be taken", i, q->pictures[i].width,
                           q->pictures[i].height);
    }
    return 0;
}

static int read_sound(api_media *m, const hearth_request *q, size_t i, err *e) {
    const hearth_sound *s = &q->sounds[i];
    if (!s->samples || s->n == 0 || s->n > RUNTIME_MAX_BLOB_BYTES / sizeof *s->samples || s->n > INT_MAX)
        return err_set(e, ERR_ARG, "sounds: number %zu of %zu samples cannot be taken", i, s->n);
    if (s->blob >= m->n || (i && s->blob <= s[-1].blob))
        return err_set(e, ERR_ARG, "sounds: number %zu cannot be blob %zu of %zu", i, s->blob, m->n);
    int rc = sound_resample(&m->sounds[i], s->samples, (int)s->n, s->rate, e);
    if (rc < 0) return err_wrap(e, rc, "sounds: number %zu", i);
    if ((m->bytes += sound_bytes(&m->sounds[i])) > RUNTIME_MAX_BLOB_BYTES)
        return err_set(e, ERR_ARG, "sounds: number %zu of %zu samples cannot be taken", i, s->n);
    return 0;
}

int api_media_read(api_media *m, const hearth_request *q, err *e) {
    *m = (api_media){ 0 };
    if (q->n_pictures > RUNTIME_MAX_BLOBS) return err_set(e, ERR_ARG, "pictures: %d at most", RUNTIME_MAX_BLOBS);
    if (q->n_sounds > RUNTIME_MAX_BLOBS - q->n_pictures)
        return err_set(e, ERR_ARG, "pictures and sounds: %d at most", RUNTIME_MAX_BLOBS);
    m->n = q->n_pictures + q->n_sounds;
    int rc = read_pictures(m, q, e);
    if (rc == 0 && q->n_sounds && !(m->sounds = calloc(q->n_sounds, sizeof *m->sounds))) rc = err_set_nomem(e);
    for (size_t i = 0; rc == 0 && i < q->n_sounds; i++) {
        rc = read_sound(m, q, i, e);
        m->n_sounds++;
    }
    if (rc < 0) api_media_free(m);
    return rc;
}

static size_t put_picture(const hearth_picture *p, char *to) {
    const int32_t head[2] = { p->width, p->height };
    size_t        n = picture_bytes(p);
    _Static_assert(sizeof head == PIXELS_HEAD_BYTES, "width and height");
    memcpy(to, head, sizeof head);
    memcpy(to + sizeof head, p->rgb, n - sizeof head);
    return n;
}

void api_media_put(const api_media *m, const hearth_request *q, view *blobs, char *to) {
    for (size_t i = 0, heard = 0; i < m->n; i++) {
        size_t n;
        if (heard < q->n_sounds && q->sounds[heard].blob == i) {
            n = sound_bytes(&m->sounds[heard]);
            sound_write(&m->sounds[heard++], to);
        } else {
            n = put_picture(&q->pictures[i - heard], to);
        }
        blobs[i] = (view){ to, n };
        to += n;
    }
}

void api_media_free(api_media *m) {
    for (size_t i = 0; i < m->n_sounds; i++) sound_deinit(&m->sounds[i]);
    free(m->sounds);
    *m = (api_media){ 0 };
}

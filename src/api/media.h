/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures and sounds of a caller's request as the runtime takes them: blobs, in the order that parts of messages name them. */
#ifndef API_MEDIA_H
#define API_MEDIA_H

#include "base/str.h"
#include "hearth.h"
#include "sound/sound.h"

typedef struct api_media {
    size_t n, bytes; /* blobs, and what they take together */
    size_t n_sounds;
    sound *sounds; /* the request's, at the rate that encoders take; owned */
} api_media;

int  api_media_read(api_media *m, const hearth_request *q, err *e); /* checked */
void api_media_free(api_media *m);
/* blobs: m->n of them; their bytes go to `to`. */
void api_media_put(const api_media *m, const hearth_request *q, view *blobs, char *to);

#endif

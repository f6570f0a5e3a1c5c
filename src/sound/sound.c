/* SPDX-License-Identifier: Apache-2.0 */
#include "sound/sound.h"

#include <stdlib.h>
#include <string.h>

int sound_init(sound *s, int n, err *e) {
    *s = (sound){ 0 };
    if (n <= 0) return err_set(e, ERR_ARG, "a sound cannot have %d samples", n);
    if (!(s->at = calloc((size_t)n, sizeof *s->at))) return err_set_nomem(e);
    s->n = n;
    return 0;
}

void sound_deinit(sound *s) {
    free(s->at);
    *s = (sound){ 0 };
}

void sound_write(const sound *s, void *to) {
    int32_t head[2] = { 0, s->n };
    memcpy(to, head, sizeof head);
    memcpy((char *)to + SOUND_HEAD_BYTES, s->at, (size_t)s->n * sizeof *s->at);
}

bool sound_is(const void *data, size_t bytes) {
    int32_t first = 1;
    if (bytes >= SOUND_HEAD_BYTES) memcpy(&first, data, sizeof first);
    return first == 0;
}

int sound_count(const void *data, size_t bytes, int *n, err *e) {
    int32_t head[2];
    if (!sound_is(data, bytes)) return err_set(e, ERR_FORMAT, "these %zu bytes are not a sound", bytes);
    memcpy(head, data, sizeof head);
    if (head[1] <= 0 || (uint64_t)head[1] * sizeof(float) != bytes - SOUND_HEAD_BYTES)
        return err_set(e, ERR_FORMAT, "a sound of %d samples in %zu bytes", head[1], bytes);
    *n = head[1];
    return 0;
}

int sound_read(sound *out, const void *data, size_t bytes, err *e) {
    int n = 0, rc = sound_count(data, bytes, &n, e);
    *out = (sound){ 0 };
    if (rc == 0) rc = sound_init(out, n, e);
    if (rc == 0) memcpy(out->at, (const char *)data + SOUND_HEAD_BYTES, (size_t)n * sizeof *out->at);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/pictures.h"

#include "base/file.h"
#include "host/decoder/decoder.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 64 << 20 };

/* Size and pixels, as a worker takes them. */
static int pack(view *out, const pixels *p, err *e) {
    int32_t size[2] = { p->width, p->height };
    char   *blob = malloc(PIXELS_HEAD_BYTES + pixels_bytes(p));
    if (!blob) return err_set_nomem(e);
    memcpy(blob, size, sizeof size);
    memcpy(blob + PIXELS_HEAD_BYTES, p->rgb, pixels_bytes(p));
    out->data = blob;
    out->len = PIXELS_HEAD_BYTES + pixels_bytes(p);
    return 0;
}

int sound_file_read(const char *path, view *out, err *e) {
    char  *file = NULL, *blob;
    size_t bytes = 0;
    sound  s = { 0 };
    int    rc = file_read(&file, &bytes, path, MAX_FILE, e);
    if (rc == 0) {
        rc = decoder_hear(&s, (view){ file, bytes }, &(decoder_options){ 0 }, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
    }
    if (rc == 0) {
        if ((blob = malloc(sound_bytes(&s)))) {
            sound_write(&s, blob);
            *out = (view){ blob, sound_bytes(&s) };
        } else {
            rc = err_set_nomem(e);
        }
    }
    sound_deinit(&s);
    free(file);
    return rc;
}

int picture_read(const char *path, view *out, err *e) {
    char  *file = NULL;
    size_t bytes = 0;
    pixels p = { 0 };
    int    rc = file_read(&file, &bytes, path, MAX_FILE, e);
    if (rc == 0) {
        rc = decoder_read(&p, (view){ file, bytes }, &(decoder_options){ 0 }, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
    }
    if (rc == 0) rc = pack(out, &p, e);
    pixels_deinit(&p);
    free(file);
    return rc;
}

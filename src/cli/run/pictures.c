/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/pictures.h"

#include "base/file.h"
#include "host/decoder/decoder.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 64 << 20 };

int picture_read(const char *path, view *out, err *e) {
    char  *file = NULL, *blob = NULL;
    size_t bytes = 0;
    pixels p = { 0 };
    int    rc = file_read(&file, &bytes, path, MAX_FILE, e);
    if (rc == 0) {
        rc = decoder_read(&p, (view){ file, bytes }, &(decoder_options){ 0 }, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
    }
    if (rc == 0 && !(blob = malloc(PIXELS_HEAD_BYTES + pixels_bytes(&p)))) rc = err_set_nomem(e);
    if (rc == 0) {
        int32_t size[2] = { p.width, p.height };
        memcpy(blob, size, sizeof size);
        memcpy(blob + PIXELS_HEAD_BYTES, p.rgb, pixels_bytes(&p));
        out->data = blob;
        out->len = PIXELS_HEAD_BYTES + pixels_bytes(&p);
    }
    pixels_deinit(&p);
    free(file);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the input as a picture; what came out has the size it says, within the limits. */
#include "media/media.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const media_limits small = { .max_side = 512, .max_pixels = 65536 };
    pixels                    p;
    err                       e = { 0 };
    if (media_decode(&p, data, size, &small, &e) < 0) {
        if (!e.msg[0] || p.rgb) abort();
        return 0;
    }
    if (p.width > 512 || p.height > 512 || (int64_t)p.width * p.height > 65536) abort();
    for (size_t i = 0; i < pixels_bytes(&p); i++) sink += p.rgb[i];
    pixels_deinit(&p);
    return 0;
}

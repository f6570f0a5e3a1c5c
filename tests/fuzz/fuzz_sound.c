/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the input as a sound; what came out is of numbers, and not longer than allowed. */
#include "media/sound.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { SECONDS = 2 };
    sound s;
    err   e = { 0 };
    if (media_sound_decode(&s, data, size, SECONDS, &e) < 0) {
        if (!e.msg[0] || s.at) abort();
        return 0;
    }
    if (s.n < 1 || s.n > SECONDS * SOUND_RATE) abort();
    for (int i = 0; i < s.n; i++) {
        if (!isfinite(s.at[i])) abort();
    }
    sound_deinit(&s);
    return 0;
}

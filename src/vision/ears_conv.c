/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions over time and pitch, of 3 x 3 with every other place, run over single places: the host puts side by
 * side what each of them sees, and zero where there is nothing.
 */
#include "vision/ears_impl.h"

#include <string.h>

enum { SIDE = 3 };

int conv_half(int n) { return (n + 1) / CONV_STRIDE; }

void conv_put(const conv_input *s, int first, int n, float *to) {
    size_t c = (size_t)s->channels;
    for (int t = first; t < first + n; t++) {
        for (int p = 0; p < conv_half(s->pitches); p++) {
            for (int k = 0; k < SIDE * SIDE; k++, to += c) {
                int down = s->pitch_first ? k % SIDE : k / SIDE, across = s->pitch_first ? k / SIDE : k % SIDE;
                int row = CONV_STRIDE * t + down - (s->ahead ? 0 : 1), pitch = CONV_STRIDE * p + across - 1;
                if (row >= s->base && row < s->base + s->rows && pitch >= 0 && pitch < s->pitches)
                    memcpy(to, s->from + ((size_t)(row - s->base) * (size_t)s->pitches + (size_t)pitch) * c,
                           c * sizeof *to);
                else
                    memset(to, 0, c * sizeof *to);
            }
        }
    }
}

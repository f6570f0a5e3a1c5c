/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/suite.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SHOWN = 20 };

bool suite_that(suite *s, bool ok, const char *file, int line, const char *fmt, ...) {
    s->n_facts++;
    if (ok) return true;
    if (s->n_failed++ < MAX_SHOWN) {
        const char *name = strrchr(file, '/');
        va_list     ap;
        va_start(ap, fmt);
        printf("%s:%d: ", name ? name + 1 : file, line);
        vprintf(fmt, ap);
        printf("\n");
        va_end(ap);
    }
    return false;
}

uint64_t suite_u64(suite *s) {
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int suite_int(suite *s, int low, int high) { return low + (int)(suite_u64(s) % (uint64_t)(high - low + 1)); }

bool suite_chance(suite *s, int percent) { return suite_int(s, 0, 99) < percent; }

float suite_normal(suite *s) {
    double u = ((double)(suite_u64(s) >> 11) + 1) * 0x1p-53, v = (double)(suite_u64(s) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

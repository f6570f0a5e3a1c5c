/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

enum { MAX_WORD = 63 };

static unsigned char lower(char c) { return (unsigned char)(c >= 'A' && c <= 'Z' ? c + 32 : c); }

size_t nearest_distance(const char *a, const char *b) {
    size_t        n = strlen(a), m = strlen(b);
    unsigned char row[3][MAX_WORD + 1]; /* of the table: two back, one back, this one */
    if (n > MAX_WORD || m > MAX_WORD) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) row[1][j] = (unsigned char)j;
    memset(row[0], 0, sizeof row[0]);
    for (size_t i = 1; i <= n; i++) {
        row[2][0] = (unsigned char)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned char x = lower(a[i - 1]), y = lower(b[j - 1]);
            unsigned      best = row[1][j - 1] + (x != y);
            if (row[1][j] + 1U < best) best = row[1][j] + 1U;
            if (row[2][j - 1] + 1U < best) best = row[2][j - 1] + 1U;
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && y == lower(a[i - 2]) && row[0][j - 2] + 1U < best)
                best = row[0][j - 2] + 1U;
            row[2][j] = (unsigned char)best;
        }
        memcpy(row[0], row[1], sizeof row[0]);
        memcpy(row[1], row[2], m + 1);
    }
    return row[1][m];
}

const char *nearest_of(const char *word, const char *const *words, size_t n) {
    size_t      best = strlen(word) / 3 + 1;
    const char *found = NULL;
    if (best > 4) best = 4;
    for (size_t i = 0; i < n; i++) {
        size_t d = nearest_distance(word, words[i]);
        if (d >= strlen(words[i]) || d > best || (found && d == best)) continue;
        best = d;
        found = words[i];
    }
    return found;
}

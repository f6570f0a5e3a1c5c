/* SPDX-License-Identifier: Apache-2.0 */
/* Which valid name was meant: a few typing mistakes away, with a word in common, or shortened. */
#include "config/schema.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { MAX_NAME = 64 };

/* Insertions, deletions, replacements and swaps of neighbours. */
static size_t distance(const char *a, const char *b) {
    size_t  n = strlen(a), m = strlen(b), rows[3][MAX_NAME + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    if (n > MAX_NAME || m > MAX_NAME) return MAX_NAME;
    for (size_t j = 0; j <= m; j++) last[j] = before[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int    x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            size_t best = last[j - 1] + (x != y);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]) &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *t = before;
        before = last;
        last = now;
        now = t;
    }
    return last[m];
}

/* Letters in the words that two names share ("page_size" and "page_tokens": 4). */
static size_t shared_words(const char *a, const char *b) {
    size_t sum = 0;
    for (const char *p = a; *p;) {
        size_t n = strcspn(p, "_-.");
        for (const char *q = b; n >= 3 && *q;) {
            size_t m = strcspn(q, "_-.");
            if (m == n && strncasecmp(p, q, n) == 0) {
                sum += n;
                break;
            }
            q += m + (q[m] != '\0');
        }
        p += n + (p[n] != '\0');
    }
    return sum;
}

/* "ctx" for "context": the letters in their order, from the first one on. */
static bool is_short_for(const char *name, const char *full) {
    if (strlen(name) < 3 || tolower((unsigned char)*name) != tolower((unsigned char)*full)) return false;
    for (; *full && *name; full++) name += tolower((unsigned char)*name) == tolower((unsigned char)*full);
    return !*name;
}

const char *config_nearest(const char *name, const char *const *valid, size_t n) {
    const char *best = NULL;
    size_t      len = strlen(name), least = len < 4 ? 2 : len < 8 ? 3 : 4, words = 0; /* mistakes: fewer than that */
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(name, valid[i]);
        if (d < least) {
            least = d;
            best = valid[i];
        }
    }
    for (size_t i = 0; !best && i < n; i++) {
        size_t w = shared_words(name, valid[i]);
        if (w <= words) continue;
        words = w;
        best = valid[i];
    }
    for (size_t i = 0; !best && i < n; i++)
        if (is_short_for(name, valid[i])) best = valid[i];
    return best;
}

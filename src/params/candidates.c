/* SPDX-License-Identifier: Apache-2.0 */
#include "params/candidates.h"

#include "params/sampling.h"

#include <math.h>
#include <stdlib.h>

static bool before(const cand *a, const cand *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static int compare(const void *x, const void *y) {
    const cand *a = x, *b = y;
    return before(a, b) ? -1 : before(b, a) ? 1 : 0;
}

static void swap(cand *a, cand *b) {
    cand t = *a;
    *a = *b;
    *b = t;
}

void cand_fill(cand_set *s, const float *logits, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        float v = logits[i];
        s->c[count] = (cand){ v > SAMPLING_LARGEST ? SAMPLING_LARGEST : v, (int32_t)i };
        count += v > -INFINITY; /* false for NaN too */
    }
    s->count = count;
    s->sorted = 0;
    s->has_sum = false;
}

/* Eight largest at once over a piece, then the place in the piece that has the largest: a set of 150,000 candidates
 * takes twenty times as long to fill. */
int32_t cand_first(const float *logits, size_t n) {
    enum { PIECE = 4096 };
    float  best = -INFINITY;
    size_t in = n;
    for (size_t from = 0; from < n; from += PIECE) {
        size_t count = n - from < PIECE ? n - from : PIECE, whole = count / 8 * 8;
        float  m[8], most = -INFINITY;
        for (int j = 0; j < 8; j++) m[j] = -INFINITY;
        for (size_t i = 0; i < whole; i += 8)
            for (int j = 0; j < 8; j++) m[j] = logits[from + i + j] > m[j] ? logits[from + i + j] : m[j];
        for (int j = 0; j < 8; j++) most = m[j] > most ? m[j] : most;
        for (size_t i = whole; i < count; i++) most = logits[from + i] > most ? logits[from + i] : most;
        if (most > SAMPLING_LARGEST) most = SAMPLING_LARGEST;
        if (most > best) {
            best = most;
            in = from;
        }
    }
    for (size_t i = in; i < n; i++)
        if (logits[i] >= best) return (int32_t)i;
    return -1;
}

/* Sift down in a heap whose root is the last in order (the worst kept). */
static void sift(cand *heap, size_t n, size_t i) {
    for (;;) {
        size_t worst = i, l = 2 * i + 1, r = l + 1;
        if (l < n && before(&heap[worst], &heap[l])) worst = l;
        if (r < n && before(&heap[worst], &heap[r])) worst = r;
        if (worst == i) return;
        swap(&heap[i], &heap[worst]);
        i = worst;
    }
}

/* Puts the k first in order of c[0..n) into c[0..k), in no order: few by a heap, many by quickselect. */
static void select_first(cand *c, size_t n, size_t k) {
    if (k <= 64) {
        for (size_t i = k / 2; i-- > 0;) sift(c, k, i);
        for (size_t i = k; i < n; i++) {
            if (before(&c[i], &c[0])) {
                swap(&c[i], &c[0]);
                sift(c, k, 0);
            }
        }
        return;
    }
    size_t lo = 0, hi = n; /* the border at k lies in [lo, hi) */
    for (int rounds = 0; hi - lo > 32; rounds++) {
        if (rounds > 64) break; /* unlucky pivots: sort the rest below */
        size_t mid = lo + (hi - lo) / 2;
        if (before(&c[mid], &c[lo])) swap(&c[mid], &c[lo]);
        if (before(&c[hi - 1], &c[lo])) swap(&c[hi - 1], &c[lo]);
        if (before(&c[hi - 1], &c[mid])) swap(&c[hi - 1], &c[mid]);
        cand   pivot = c[mid];
        size_t i = lo, j = hi - 1;
        for (;;) {
            while (before(&c[i], &pivot)) i++;
            while (before(&pivot, &c[j])) j--;
            if (i >= j) break;
            swap(&c[i], &c[j]);
            i++;
            j--;
        }
        /* [lo, i) is not behind the pivot, [i, hi) not before it. */
        if (k <= i)
            hi = i;
        else
            lo = i;
    }
    qsort(c + lo, hi - lo, sizeof *c, compare);
}

void cand_sort(cand_set *s, size_t n) {
    if (n > s->count) n = s->count;
    if (n <= s->sorted) return;
    cand  *rest = s->c + s->sorted;
    size_t left = s->count - s->sorted, want = n - s->sorted;
    if (want < left) select_first(rest, left, want);
    qsort(rest, want, sizeof *rest, compare);
    s->sorted = n;
}

void cand_keep(cand_set *s, size_t n) {
    if (n >= s->count) return;
    s->count = n;
    s->has_sum = false;
}

void cand_keep_from(cand_set *s, double limit) {
    size_t count = 0, sorted = 0;
    for (size_t i = 0; i < s->count; i++) {
        if ((double)s->c[i].logit < limit) continue;
        sorted += i < s->sorted;
        s->c[count++] = s->c[i];
    }
    if (count == s->count) return;
    s->count = count;
    s->sorted = sorted;
    s->has_sum = false;
}

void cand_softmax(cand_set *s) {
    if (s->has_sum) return;
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < s->count; i++) max = s->c[i].logit > max ? s->c[i].logit : max;
    for (size_t i = 0; i < s->count; i++) sum += (double)expf((float)(s->c[i].logit - max));
    s->max = max;
    s->sum = sum;
    s->has_sum = true;
}

double cand_prob(const cand_set *s, size_t index) { return (double)expf((float)(s->c[index].logit - s->max)) / s->sum; }

/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks do with the times that they took. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

/* For qsort: doubles, rising. */
static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif

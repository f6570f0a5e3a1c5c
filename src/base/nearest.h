/* SPDX-License-Identifier: Apache-2.0 */
/* The word of a list that somebody may have meant: for sentences about misspelt names. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* Changes (insert, delete, replace, swap of neighbours; letter case is free) that make one word of the other. Words
 * above 63 bytes are never near: SIZE_MAX. */
size_t nearest_distance(const char *a, const char *b);

/* The nearest of n words, or NULL where none is near: at most a third of the letters differ. */
const char *nearest_of(const char *word, const char *const *words, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* XXH64 with seed 0: a checksum at memory speed, against accidents and not against people. */
#ifndef BASE_XXH64_H
#define BASE_XXH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t xxh64(const void *data, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Between the plain code of SHA-256 and the one for x86 processors with instructions for it. */
#ifndef BASE_SHA256_IMPL_H
#define BASE_SHA256_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const uint32_t sha256_rounds[64];

bool sha256_x86_can(void); /* asks the processor once: that takes a while inside a virtual machine */
void sha256_x86_blocks(uint32_t h[8], const uint8_t *data, size_t n_blocks);

#endif

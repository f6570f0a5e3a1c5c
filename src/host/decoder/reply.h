/* SPDX-License-Identifier: Apache-2.0 */
/* What the decoder's process says; both ends are the same program. */
#ifndef HOST_DECODER_REPLY_H
#define HOST_DECODER_REPLY_H

#include <stdint.h>

typedef struct decoder_reply {
    int32_t rc; /* 0: width * height * 3 bytes follow, or `samples` floats; else n_text of a sentence */
    int32_t width, height, samples;
    int32_t n_text;
} decoder_reply;

#endif

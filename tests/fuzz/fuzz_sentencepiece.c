/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece models: whatever opens must also encode and decode without harm. */
#include "trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tok *t;
    err  e = { 0 };
    if (tok_open_sentencepiece(&t, data, size, &e) < 0) return 0;
    trip(t);
    tok_free(t);
    return 0;
}

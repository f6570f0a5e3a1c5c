/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json: whatever opens must also encode and decode without harm. */
#include "trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tok *t;
    err  e = { 0 };
    if (tok_open_json(&t, (const char *)data, size, &e) < 0) return 0;
    trip(t);
    tok_ids pair = { 0 };
    size_t  second;
    (void)tok_encode_pair(t, (view){ trip_text, sizeof trip_text - 1 }, (view){ trip_text, 12 }, size % 32, &pair,
                          &second, &e);
    tok_ids_deinit(&pair);
    tok_free(t);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* tekken.json: whatever opens must also encode and decode without harm. */
#include "tokenizer/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "Hello, ab abc solo<|x|> 12345 \xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\x8D\n\n  x'S "
                               "don't\t[INST]\xEF\xBB\xBF \xE2\x96\x81";
    tok              *t;
    err               e = { 0 };
    if (tok_open_tekken(&t, (const char *)data, size, &e) < 0) return 0;
    for (unsigned flags = 0; flags < 4; flags++) {
        tok_ids ids = { 0 };
        str     back;
        str_init(&back);
        if (tok_encode(t, text, sizeof text - 1, flags, &ids, &e) == 0)
            (void)tok_decode(t, ids.data, ids.count, flags & 1, &back, &e);
        tok_ids_deinit(&ids);
        str_deinit(&back);
    }
    tok_free(t);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the input as an entry of the disk cache. The checksum of the header is made right first, so that mutations
 * reach the checks behind it; whatever is accepted must be written back to the same bytes.
 */
#include "base/xxh64.h"
#include "kv/entry.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const kv_identity *id, const uint8_t *data, size_t size) {
    kv_entry x;
    err      e = { 0 };
    int      rc = kv_entry_decode(id, data, size, size, &x, &e);
    if (rc < 0) {
        if (e.code != rc || !e.msg[0]) abort(); /* every refusal has a sentence */
        return;
    }
    uint8_t again[KV_ENTRY_HEADER_MAX];
    size_t  head = kv_entry_header_bytes(&x);
    if (head + x.payload_bytes != size) abort();
    kv_entry_encode(id, &x, again);
    if (memcmp(again, data, head) != 0) abort();
    (void)kv_entry_check(&x, data + head, size - head, &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kv_identity id = {
        .page_tokens = 16, .n_groups = 2, .k_type = 1, .v_type = 3, .page_bytes = { 96, 40 }, .state_bytes = 24
    };
    for (int i = 0; i < KV_KEY_BYTES; i++) id.model.b[i] = (uint8_t)(100 + i);
    check(&id, data, size);
    if (size < 176) return 0;
    uint8_t  n = (uint8_t)(data[20] % PAGE_TOKENS_MAX + 1), rows = data[44] ? n : 0;
    size_t   sum_at = 168 + 4 * (size_t)n + KV_KEY_BYTES * (size_t)rows;
    uint8_t *fixed = malloc(size);
    if (!fixed) return 0;
    memcpy(fixed, data, size);
    fixed[20] = n;
    memset(fixed + 21, 0, 3);
    fixed[44] = rows;
    memset(fixed + 45, 0, 3);
    if (sum_at + 8 <= size) {
        uint64_t sum = xxh64(fixed, sum_at);
        for (int i = 0; i < 8; i++) fixed[sum_at + (size_t)i] = (uint8_t)(sum >> (8 * i));
    }
    check(&id, fixed, size);
    free(fixed);
    return 0;
}

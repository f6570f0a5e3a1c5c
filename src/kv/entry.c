/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/entry.h"

#include "base/sha256.h"
#include "base/xxh64.h"

#include <string.h>

static const char magic[8] = { 'H', 'E', 'A', 'R', 'T', 'H', 'K', 'V' };

enum { FIXED_BYTES = 168, CHAINED_BYTES = 120 };

static void put(uint8_t *at, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes) {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | at[i];
    return v;
}

/* The fields that describe model and layout, as they stand in a header. */
static void put_identity(const kv_identity *id, uint8_t *h) {
    put(h + 16, (uint64_t)id->page_tokens, 4);
    put(h + 32, (uint64_t)id->n_groups, 4);
    put(h + 36, (uint64_t)id->k_type, 4);
    put(h + 40, (uint64_t)id->v_type, 4);
    for (int g = 0; g < id->n_groups; g++) put(h + 48 + 8 * g, id->page_bytes[g], 8);
    put(h + 80, id->state_bytes, 8);
    memcpy(h + 88, id->model.b, KV_KEY_BYTES);
}

static kv_key finish(sha256 *s) {
    uint8_t digest[SHA256_BYTES];
    kv_key  k;
    sha256_finish(s, digest);
    memcpy(k.b, digest, sizeof k.b);
    return k;
}

kv_key kv_key_root(const kv_identity *id, const kv_key *space) {
    uint8_t h[CHAINED_BYTES] = { 0 };
    sha256  s;
    memcpy(h, magic, sizeof magic);
    put(h + 8, KV_ENTRY_VERSION, 4);
    put_identity(id, h);
    memcpy(h + 104, space->b, KV_KEY_BYTES);
    sha256_init(&s);
    sha256_feed(&s, h, sizeof h);
    return finish(&s);
}

kv_key kv_key_of(kv_entry_kind kind, const kv_key *parent, const kv_span *span) {
    uint8_t bytes[8 + 4 * PAGE_TOKENS_MAX];
    sha256  s;
    put(bytes, (uint64_t)kind, 4);
    put(bytes + 4, (uint64_t)span->n, 4);
    for (int i = 0; i < span->n; i++) put(bytes + 8 + 4 * i, (uint32_t)span->tokens[i], 4);
    sha256_init(&s);
    sha256_feed(&s, parent->b, sizeof parent->b);
    sha256_feed(&s, bytes, 8 + 4 * (size_t)span->n);
    if (!kv_span_plain(span)) sha256_feed(&s, span->rows, (size_t)span->n * sizeof *span->rows);
    return finish(&s);
}

size_t kv_entry_payload_bytes(const kv_identity *id, kv_entry_kind kind, unsigned groups) {
    size_t bytes = 0;
    if (kind == KV_ENTRY_STATE) return id->state_bytes;
    for (int g = 0; g < id->n_groups; g++) {
        if (groups >> g & 1) bytes += id->page_bytes[g];
    }
    return bytes;
}

/* Where the checksum stands. */
static size_t sum_offset(int n_tokens, bool rows) {
    return FIXED_BYTES + (4 + (rows ? KV_KEY_BYTES : 0)) * (size_t)n_tokens;
}

size_t kv_entry_header_bytes(const kv_entry *x) { return sum_offset(x->n_tokens, x->rows) + 8; }

void kv_entry_encode(const kv_identity *id, const kv_entry *x, uint8_t *out) {
    size_t sum_at = sum_offset(x->n_tokens, x->rows), rows_at = sum_offset(x->n_tokens, false);
    memset(out, 0, FIXED_BYTES);
    memcpy(out, magic, sizeof magic);
    put_identity(id, out);
    put(out + 8, KV_ENTRY_VERSION, 4);
    put(out + 12, (uint64_t)x->kind, 4);
    put(out + 20, (uint64_t)x->n_tokens, 4);
    put(out + 24, (uint64_t)x->position, 4);
    put(out + 28, x->groups, 4);
    put(out + 44, x->rows ? (uint64_t)x->n_tokens : 0, 4);
    memcpy(out + 104, x->space.b, KV_KEY_BYTES);
    memcpy(out + 120, x->parent.b, KV_KEY_BYTES);
    memcpy(out + 136, x->key.b, KV_KEY_BYTES);
    put(out + 152, x->payload_bytes, 8);
    put(out + 160, x->payload_sum, 8);
    for (int i = 0; i < x->n_tokens; i++) put(out + FIXED_BYTES + 4 * i, (uint32_t)x->tokens[i], 4);
    if (x->rows) memcpy(out + rows_at, x->rows, sum_at - rows_at);
    put(out + sum_at, xxh64(out, sum_at), 8);
}

static bool same_identity(const kv_identity *id, const uint8_t *h) {
    uint8_t want[FIXED_BYTES];
    memcpy(want, h, sizeof want);
    memset(want + 48, 0, 32);
    put_identity(id, want);
    return memcmp(want, h, sizeof want) == 0;
}

/* Keys say what they claim to: the entry's own, and for a first page that of the root before it. */
static int check_keys(const kv_identity *id, const kv_entry *x, err *e) {
    kv_span span = { x->tokens, x->rows, x->n_tokens };
    kv_key  key = kv_key_of(x->kind, &x->parent, &span);
    if (!kv_key_eq(&key, &x->key)) return err_set(e, ERR_FORMAT, "the key does not belong to the tokens");
    if (x->position > 0) return 0;
    key = kv_key_root(id, &x->space);
    return kv_key_eq(&key, &x->parent) ? 0 : err_set(e, ERR_FORMAT, "the key before does not belong to the namespace");
}

/* Tokens, content keys and payload, of a header whose checksum is right and whose identity is ours. */
static int read_contents(const kv_identity *id, const uint8_t *data, bool rows, kv_entry *out, err *e) {
    out->position = (int)get(data + 24, 4);
    memcpy(out->space.b, data + 104, KV_KEY_BYTES);
    memcpy(out->parent.b, data + 120, KV_KEY_BYTES);
    memcpy(out->key.b, data + 136, KV_KEY_BYTES);
    for (int i = 0; i < out->n_tokens; i++) out->tokens[i] = (int32_t)get(data + FIXED_BYTES + 4 * i, 4);
    if (rows) {
        out->rows = (const kv_key *)(data + sum_offset(out->n_tokens, false));
        kv_span span = { out->tokens, out->rows, out->n_tokens };
        if (kv_span_plain(&span)) return err_set(e, ERR_FORMAT, "content keys, and all of them are 0");
    }
    out->payload_bytes = get(data + 152, 8);
    out->payload_sum = get(data + 160, 8);
    if (out->payload_bytes != kv_entry_payload_bytes(id, out->kind, out->groups))
        return err_set(e, ERR_FORMAT, "a payload of %llu bytes cannot be", (unsigned long long)out->payload_bytes);
    return check_keys(id, out, e);
}

int kv_entry_decode(const kv_identity *id, const uint8_t *data, size_t bytes, uint64_t file_bytes, kv_entry *out,
                    err *e) {
    int rc;
    memset(out, 0, sizeof *out);
    if (bytes < sizeof magic + 4) return err_set(e, ERR_FORMAT, "the file ends after %zu bytes", bytes);
    if (memcmp(data, magic, sizeof magic) != 0) return err_set(e, ERR_FORMAT, "not a cache entry");
    /* The version comes before everything else: what follows is only known for our own. */
    uint64_t version = get(data + 8, 4);
    if (version != KV_ENTRY_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "version %llu, this program writes %d", (unsigned long long)version,
                       KV_ENTRY_VERSION);
    if (bytes < FIXED_BYTES) return err_set(e, ERR_FORMAT, "the file ends after %zu bytes", bytes);
    uint64_t kind = get(data + 12, 4), n = get(data + 20, 4), rows = get(data + 44, 4);
    if (n < 1 || n > PAGE_TOKENS_MAX) return err_set(e, ERR_FORMAT, "%llu tokens in one page", (unsigned long long)n);
    if (rows != 0 && rows != n)
        return err_set(e, ERR_FORMAT, "%llu content keys for %llu tokens", (unsigned long long)rows,
                       (unsigned long long)n);
    size_t sum_at = sum_offset((int)n, rows != 0);
    if (bytes < sum_at + 8) return err_set(e, ERR_FORMAT, "the file ends after %zu bytes", bytes);
    if (get(data + sum_at, 8) != xxh64(data, sum_at)) return err_set(e, ERR_FORMAT, "the header's checksum is wrong");
    if (!same_identity(id, data))
        return err_set(e, ERR_UNSUPPORTED, "belongs to another model, page size or page type");
    uint64_t position = get(data + 24, 4);
    out->kind = kind == KV_ENTRY_STATE ? KV_ENTRY_STATE : KV_ENTRY_PAGE;
    out->n_tokens = (int)n;
    out->groups = (unsigned)get(data + 28, 4);
    if ((kind != KV_ENTRY_PAGE && kind != KV_ENTRY_STATE) || out->n_tokens > id->page_tokens ||
        position > INT32_MAX - PAGE_TOKENS_MAX || position % (uint64_t)id->page_tokens != 0 ||
        out->groups >> id->n_groups != 0 || (kind == KV_ENTRY_STATE && (out->groups != 0 || id->state_bytes == 0)))
        return err_set(e, ERR_FORMAT, "fields of the header contradict each other");
    if ((rc = read_contents(id, data, rows != 0, out, e)) < 0) return rc;
    uint64_t whole = sum_at + 8 + out->payload_bytes;
    if (file_bytes != whole)
        return err_set(e, ERR_FORMAT, "%llu bytes long instead of %llu", (unsigned long long)file_bytes,
                       (unsigned long long)whole);
    return 0;
}

int kv_entry_check(const kv_entry *x, const void *payload, size_t bytes, err *e) {
    if (bytes != x->payload_bytes || xxh64(payload, bytes) != x->payload_sum)
        return err_set(e, ERR_FORMAT, "the payload's checksum is wrong");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk tier's file format: one file per page of the prefix tree, one per state.
 *
 * All numbers are little-endian. T is the number of tokens in the entry, 1 .. page_tokens.
 *
 *   offset  bytes
 *        0      8  "HEARTHKV"
 *        8      4  version: 2
 *       12      4  kind: 1 page, 2 state
 *       16      4  page_tokens
 *       20      4  T
 *       24      4  position of the first token, a multiple of page_tokens
 *       28      4  page: bit g is set when the payload holds the page of group g; state: 0
 *       32      4  number of groups
 *       36      4  type of keys (nn_kv_type) that was asked for; those of every layer are part of the identity
 *       40      4  type of values
 *       44      4  C, the number of content keys: T when a row of the entry was supplied, otherwise 0
 *       48     32  bytes of one page, per group (4 numbers of 8 bytes; 0 behind the last group)
 *       80      8  bytes of one state
 *       88     16  identity of the model (what computed the payload: weights, hyper-parameters, kernels)
 *      104     16  namespace (kv/text.h); 0 for the model without adapters
 *      120     16  key of the page before this one
 *      136     16  key of this entry
 *      152      8  bytes of the payload
 *      160      8  XXH64 of the payload
 *      168  4 * T  tokens
 *  168+4*T 16 * C  content keys, one per token; 0 for a plain token, but not for all of them
 *        A      8  XXH64 of everything before; A = 168 + 4 * T + 16 * C
 *      A+8         payload. Page: the pages of its groups in rising order, as the backend stores them (kernels/kvpage.h
 *                  for the CPU). State: all layers' fixed states behind the T-th token
 *
 * Keys are the first 16 bytes of a SHA-256 and form a chain. The root of a namespace covers everything above that must
 * agree: it hashes the magic and the fields up to 120, those of a single entry (kind, T, position, groups, C) being 0.
 * A page's key hashes its predecessor's key (the root's for the first page), kind and T in 4 bytes each, its tokens and
 * its content keys; a state's key likewise. Equal keys therefore mean the same tokens and supplied rows from position 0
 * on, computed by the same model with the same adapters into the same layout; nobody can make another prompt match.
 *
 * A file's name is the beginning of the root's key of the model without adapters (16 hex digits) and its own key (32):
 * "<root>-<key>.hkv". As the root's key covers the version, files of other versions have other names: they are never
 * opened, only counted, and age like those of other models until their room is needed.
 */
#ifndef KV_ENTRY_H
#define KV_ENTRY_H

#include "base/err.h"
#include "base/page.h"
#include "kv/pool.h"
#include "kv/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_ENTRY_VERSION = 2 };
enum { KV_ENTRY_HEADER_MAX = 168 + (4 + KV_KEY_BYTES) * PAGE_TOKENS_MAX + 8 };

/* What must agree for an entry to be usable. */
typedef struct kv_identity {
    kv_key model;
    int    page_tokens, n_groups, k_type, v_type;
    size_t page_bytes[KV_MAX_GROUPS];
    size_t state_bytes; /* 0: the model has no fixed states */
} kv_identity;

typedef enum kv_entry_kind { KV_ENTRY_PAGE = 1, KV_ENTRY_STATE = 2 } kv_entry_kind;

typedef struct kv_entry {
    kv_entry_kind kind;
    int           position, n_tokens;
    unsigned      groups;
    kv_key        space, parent, key;
    uint64_t      payload_bytes, payload_sum;
    const kv_key *rows; /* borrowed, n_tokens; NULL: all tokens are plain */
    int32_t       tokens[PAGE_TOKENS_MAX];
} kv_entry;

kv_key kv_key_root(const kv_identity *id, const kv_key *space);
kv_key kv_key_of(kv_entry_kind kind, const kv_key *parent, const kv_span *span);

size_t kv_entry_payload_bytes(const kv_identity *id, kv_entry_kind kind, unsigned groups);
size_t kv_entry_header_bytes(const kv_entry *x);

/* Writes kv_entry_header_bytes(x) bytes. */
void kv_entry_encode(const kv_identity *id, const kv_entry *x, uint8_t *out);

/*
 * Reads a header from the first `bytes` bytes of a file of file_bytes; out->rows points into them. ERR_UNSUPPORTED:
 * written by another version or for another model, types or page size; ERR_FORMAT: damaged. The payload is not looked
 * at.
 */
int kv_entry_decode(const kv_identity *id, const uint8_t *data, size_t bytes, uint64_t file_bytes, kv_entry *out,
                    err *e);

/* Whether the payload is the one that was written. */
int kv_entry_check(const kv_entry *x, const void *payload, size_t bytes, err *e);

#endif

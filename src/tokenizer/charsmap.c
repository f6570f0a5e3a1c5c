/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's precompiled character map.
 *
 * Layout: uint32 little-endian size of the double array in bytes, the double array (uint32 units), then NUL-terminated
 * replacement texts. A unit: bits 0-7 label, bit 8 "a value hangs below", bit 9 and bits 10-30 the offset to the
 * children (xor-ed with the node's index), bit 31 set in value units, whose low 31 bits are an offset into the texts.
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

int charsmap_open(charsmap *c, const void *data, size_t bytes, err *e) {
    const uint8_t *p = data;
    memset(c, 0, sizeof *c);
    if (bytes == 0) return 0;
    if (bytes < 4) return err_set(e, ERR_FORMAT, "precompiled_charsmap: %zu bytes are too few", bytes);
    size_t array = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    if (array > bytes - 4 || array % 4 != 0)
        return err_set(e, ERR_FORMAT, "precompiled_charsmap: its array has %zu bytes, the whole map %zu", array, bytes);
    c->units = malloc(array + 1);
    c->data = malloc(bytes - 4 - array + 1);
    if (!c->units || !c->data) {
        charsmap_deinit(c);
        return err_set_nomem(e);
    }
    c->n_units = array / 4;
    for (size_t i = 0; i < c->n_units; i++) {
        const uint8_t *u = p + 4 + i * 4;
        c->units[i] = (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
    }
    c->strings_bytes = bytes - 4 - array;
    memcpy(c->data, p + 4 + array, c->strings_bytes);
    c->data[c->strings_bytes] = 0;
    c->strings = (const char *)c->data;
    if (utf8_valid_prefix(c->strings, c->strings_bytes) != c->strings_bytes) {
        charsmap_deinit(c);
        return err_set(e, ERR_FORMAT, "precompiled_charsmap: its texts are not UTF-8");
    }
    return 0;
}

void charsmap_deinit(charsmap *c) {
    free(c->units);
    free(c->data);
    memset(c, 0, sizeof *c);
}

static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

/* Walks the array along text; stops at the first value if `shortest`. Returns the bytes of the key found, 0 for none.
 */
static size_t walk(const charsmap *c, const char *text, size_t bytes, bool shortest, view *replacement) {
    size_t found = 0;
    if (c->n_units == 0) return 0;
    uint32_t node = offset_of(c->units[0]);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t b = (uint8_t)text[i];
        if (b == 0) break;
        node ^= b;
        if (node >= c->n_units) break;
        uint32_t unit = c->units[node];
        if ((unit & (1u << 31 | 0xFF)) != b) break;
        node ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        if (node >= c->n_units) break;
        uint32_t at = c->units[node] & 0x7FFFFFFF;
        /* a value inside a character would make invalid text: refuse it */
        if (at >= c->strings_bytes || ((uint8_t)c->strings[at] & 0xC0) == 0x80) break;
        *replacement = (view){ c->strings + at, strlen(c->strings + at) };
        found = i + 1;
        if (shortest) break;
    }
    if (found < bytes && ((uint8_t)text[found] & 0xC0) == 0x80) return 0; /* the key ends inside a character */
    return found;
}

size_t charsmap_longest(const charsmap *c, const char *text, size_t bytes, view *replacement) {
    return walk(c, text, bytes, false, replacement);
}

bool charsmap_exact(const charsmap *c, const char *text, size_t bytes, view *replacement) {
    return walk(c, text, bytes, true, replacement) > 0;
}

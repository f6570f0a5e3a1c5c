/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Character classes by table: one 16-bit word of flags per code point, two stages (256 code points per block, equal
 * blocks shared). Built from utf8proc's categories at the first use; reading it costs two loads.
 */
#ifndef TOKENIZER_UNICODE_H
#define TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UC_L = 1,          /* letter */
    UC_N = 2,          /* number: Nd Nl No */
    UC_M = 4,          /* mark: Mn Mc Me */
    UC_P = 8,          /* punctuation */
    UC_S = 16,         /* symbol */
    UC_WS = 32,        /* the White_Space property */
    UC_UPPER = 64,     /* Lu Lt */
    UC_LOWER = 128,    /* Ll */
    UC_CASELESS = 256, /* Lm Lo */
    UC_MN = 512,
    UC_OTHER = 1024,      /* C: Cc Cf Cn Co Cs */
    UC_UNASSIGNED = 8192, /* Cn */
    UC_WORD = 16384,      /* \w of Rust's regex: Alphabetic, marks, decimal digits, connectors, joiners */
    UC_HAN = 4096,        /* the script */
    UC_CJK = 2048,        /* BERT's "Chinese characters" */
};

typedef struct uc_table {
    uint16_t index[0x110000 / 256];
    uint16_t (*blocks)[256];
} uc_table;

const uc_table *uc_get(void);  /* never NULL after uc_init succeeded */
bool            uc_init(void); /* false: out of memory */

static inline unsigned uc_class(const uc_table *t, unsigned cp) { return t->blocks[t->index[cp >> 8]][cp & 255]; }

/* Decodes one code point of valid UTF-8. */
static inline unsigned uc_decode(const uint8_t *p, unsigned *n) {
    unsigned c = p[0];
    if (c < 0x80) {
        *n = 1;
        return c;
    }
    if (c < 0xE0) {
        *n = 2;
        return (c & 31) << 6 | (p[1] & 63u);
    }
    if (c < 0xF0) {
        *n = 3;
        return (c & 15) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    }
    *n = 4;
    return (c & 7) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
}

static inline unsigned utf8_length(uint8_t lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

/* Bytes of the longest valid UTF-8 prefix. */
size_t utf8_valid_prefix(const char *text, size_t bytes);
/* Length of the maximal part of a broken sequence at text, as one U+FFFD stands for it; 0 if the sequence is cut off by
 * the end and could still become valid. At least one byte, never a valid sequence's start. */
size_t utf8_broken_length(const char *text, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The class table and UTF-8 checks. */
#include "tokenizer/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static uc_table       table;
static bool           table_ok;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* Between ASSIGNED_END and the private planes only the tags block is assigned. */
enum { ASSIGNED_END = 0x33500, TAGS_BEGIN = 0xE0000, TAGS_END = 0xE0200, PRIVATE_BEGIN = 0xF0000, MAX_BLOCKS = 1024 };

static bool is_white(unsigned c) {
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_cjk(unsigned c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static bool is_han(unsigned c) {
    static const unsigned ranges[][2] = {
        { 0x2E80, 0x2E99 },   { 0x2E9B, 0x2EF3 },   { 0x2F00, 0x2FD5 },   { 0x3005, 0x3005 },   { 0x3007, 0x3007 },
        { 0x3021, 0x3029 },   { 0x3038, 0x303B },   { 0x3400, 0x4DBF },   { 0x4E00, 0x9FFF },   { 0xF900, 0xFA6D },
        { 0xFA70, 0xFAD9 },   { 0x16FE2, 0x16FE3 }, { 0x16FF0, 0x16FF1 }, { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B739 },
        { 0x2B740, 0x2B81D }, { 0x2B820, 0x2CEA1 }, { 0x2CEB0, 0x2EBE0 }, { 0x2F800, 0x2FA1D }, { 0x30000, 0x3134A },
        { 0x31350, 0x323AF },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    }
    return false;
}

/* Symbols with the Alphabetic property (circled and squared Latin letters), and the joiners. */
static bool is_word_symbol(unsigned c) {
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
}

static unsigned class_of(unsigned c) {
    unsigned            f = 0;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: f = UC_L | UC_UPPER; break;
    case UTF8PROC_CATEGORY_LL: f = UC_L | UC_LOWER; break;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: f = UC_L | UC_CASELESS; break;
    case UTF8PROC_CATEGORY_MN: f = UC_M | UC_MN; break;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: f = UC_M; break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: f = UC_N; break;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: f = UC_P; break;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: f = UC_S; break;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: break;
    case UTF8PROC_CATEGORY_CN: f = UC_OTHER | UC_UNASSIGNED; break;
    default: f = UC_OTHER; break;
    }
    if (f & (UC_L | UC_M) || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
        category == UTF8PROC_CATEGORY_PC || is_word_symbol(c))
        f |= UC_WORD;
    if (is_white(c)) f |= UC_WS;
    if (is_cjk(c)) f |= UC_CJK;
    if (c >= 0x2E80 && is_han(c)) f |= UC_HAN;
    return f;
}

static void build(void) {
    uint16_t(*blocks)[256] = calloc(MAX_BLOCKS, sizeof *blocks);
    unsigned n = 0;
    if (!blocks) return;
    for (unsigned i = 0; i < 256; i++) {
        blocks[0][i] = UC_OTHER | UC_UNASSIGNED;
        blocks[1][i] = UC_OTHER; /* private use */
    }
    n = 2;
    for (unsigned b = 0; b < 0x110000 / 256; b++) {
        unsigned first = b << 8, same = 0;
        if (first >= PRIVATE_BEGIN && (b & 0xFF) != 0xFF) {
            table.index[b] = 1;
            continue;
        }
        if (first >= ASSIGNED_END && first < PRIVATE_BEGIN && !(first >= TAGS_BEGIN && first < TAGS_END)) continue;
        for (unsigned i = 0; i < 256; i++) blocks[n][i] = (uint16_t)class_of(first + i);
        while (same < n && memcmp(blocks[same], blocks[n], sizeof blocks[n]) != 0) same++;
        table.index[b] = (uint16_t)same;
        if (same == n && n + 1 < MAX_BLOCKS) n++;
    }
    uint16_t(*small)[256] = realloc(blocks, n * sizeof *blocks);
    table.blocks = small ? small : blocks;
    table_ok = true;
}

bool uc_init(void) {
    pthread_once(&table_once, build);
    return table_ok;
}

const uc_table *uc_get(void) { return &table; }

size_t utf8_valid_prefix(const char *text, size_t bytes) {
    const uint8_t *p = (const uint8_t *)text;
    size_t         i = 0;
    while (i < bytes) {
        if (p[i] < 0x80) {
            i++;
            while (i + 8 <= bytes) {
                uint64_t w;
                memcpy(&w, p + i, 8);
                if (w & 0x8080808080808080u) break;
                i += 8;
            }
            continue;
        }
        unsigned n, min;
        if (p[i] >= 0xC2 && p[i] < 0xE0) {
            n = 2;
            min = 0x80;
        } else if (p[i] >= 0xE0 && p[i] < 0xF0) {
            n = 3;
            min = 0x800;
        } else if (p[i] >= 0xF0 && p[i] < 0xF5) {
            n = 4;
            min = 0x10000;
        } else {
            return i;
        }
        if (bytes - i < n) return i;
        for (unsigned k = 1; k < n; k++) {
            if ((p[i + k] & 0xC0) != 0x80) return i;
        }
        unsigned used, cp = uc_decode(p + i, &used);
        if (cp < min || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return i;
        i += n;
    }
    return i;
}

size_t utf8_broken_length(const char *text, size_t bytes) {
    const uint8_t *p = (const uint8_t *)text;
    unsigned       lo = 0x80, hi = 0xBF, n;
    if (bytes == 0) return 0;
    if (p[0] >= 0xC2 && p[0] < 0xE0) {
        n = 2;
    } else if (p[0] >= 0xE0 && p[0] < 0xF0) {
        n = 3;
        if (p[0] == 0xE0) lo = 0xA0;
        if (p[0] == 0xED) hi = 0x9F;
    } else if (p[0] >= 0xF0 && p[0] < 0xF5) {
        n = 4;
        if (p[0] == 0xF0) lo = 0x90;
        if (p[0] == 0xF4) hi = 0x8F;
    } else {
        return 1;
    }
    for (unsigned k = 1; k < n; k++) {
        if (k == bytes) return 0;
        if (p[k] < lo || p[k] > hi) return k;
        lo = 0x80;
        hi = 0xBF;
    }
    return n; /* valid; callers ask only about broken ones */
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hand-written splitters for the patterns that most models use. Each gives exactly the pieces that the pattern gives
 * through PCRE2 (tests/unit/tokenizer/test_tokenizer_split.c compares them over random text of all character classes), at several
 * times the speed, and each is linear: no backtracking over long runs.
 */
#include "tokenizer/internal.h"

#include <string.h>

typedef struct cursor {
    const uint8_t  *s;
    size_t          end;
    const uc_table *uc;
} cursor;

/* Class of the character at pos and its length; class 0 and length 0 at the end. */
static inline unsigned class_at(const cursor *c, size_t pos, unsigned *n) {
    if (pos >= c->end) {
        *n = 0;
        return 0;
    }
    if (c->s[pos] < 0x80) {
        *n = 1;
        return c->uc->blocks[c->uc->index[0]][c->s[pos]];
    }
    unsigned cp = uc_decode(c->s + pos, n);
    return uc_class(c->uc, cp);
}

/* End of the run of characters that have one of `want` (or, if want is 0, none of `unwanted`). */
static inline size_t run_of(const cursor *c, size_t pos, unsigned want) {
    unsigned n;
    while (class_at(c, pos, &n) & want) pos += n;
    return pos;
}

static inline size_t run_of_none(const cursor *c, size_t pos, unsigned unwanted) {
    unsigned n, f;
    while ((f = class_at(c, pos, &n), n) && !(f & unwanted)) pos += n;
    return pos;
}

/* Length of 's 't 'm 'd 're 've 'll at pos (an apostrophe), or 0. */
static inline size_t contraction(const cursor *c, size_t pos, bool any_case, bool fold) {
    if (pos + 1 >= c->end) return 0;
    unsigned a = c->s[pos + 1], b = pos + 2 < c->end ? c->s[pos + 2] : 0;
    if (any_case) {
        if (fold && a == 0xC5 && b == 0xBF) return 3; /* U+017F, long s */
        if (a - 'A' < 26u) a |= 32;
        if (b - 'A' < 26u) b |= 32;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
}

/* \s+(?!\S)|\s+ at pos, a white space: the run, without its last character if something follows. */
static inline size_t spaces_end(const cursor *c, size_t pos) {
    size_t   p = pos, last = pos;
    unsigned n;
    while (class_at(c, p, &n) & UC_WS) {
        last = p;
        p += n;
    }
    return p == c->end || last == pos ? p : last;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static inline size_t spaces_or_lines_end(const cursor *c, size_t pos) {
    size_t   p = pos, last = pos, newline = 0;
    unsigned n;
    while (class_at(c, p, &n) & UC_WS) {
        last = p;
        p += n;
        if (c->s[last] == '\n' || c->s[last] == '\r') newline = p;
    }
    if (newline) return newline;
    return p == c->end || last == pos ? p : last;
}

static size_t gpt2_next(const cursor *c, size_t pos) {
    unsigned n, f;
    size_t   p = pos, k;
    uint8_t  b = c->s[pos];
    if (b == '\'' && (k = contraction(c, pos, false, false))) return pos + k;
    f = class_at(c, pos, &n);
    if (b == ' ') {
        unsigned f2 = class_at(c, pos + 1, &n);
        if (n && !(f2 & UC_WS)) {
            f = f2;
            p = pos + 1;
        }
    }
    if (f & UC_L) return run_of(c, p, UC_L);
    if (f & UC_N) return run_of(c, p, UC_N);
    if (!(f & UC_WS)) return run_of_none(c, p, UC_WS | UC_L | UC_N);
    return spaces_end(c, pos);
}

static inline size_t digits_end(const cursor *c, size_t pos, unsigned limit) {
    unsigned n;
    if (limit == 0) return run_of(c, pos, UC_N);
    for (unsigned i = 0; i < limit && class_at(c, pos, &n) & UC_N; i++) pos += n;
    return pos;
}

static size_t llama3_next(const cursor *c, size_t pos, const splitter *s) {
    const unsigned letters = s->marks ? UC_L | UC_M : UC_L;
    unsigned       n, n2, f, f2;
    size_t         p, k;
    uint8_t        b = c->s[pos];
    if (b == '\'' && (k = contraction(c, pos, true, s->fold))) return pos + k;
    f = class_at(c, pos, &n);
    if (f & letters) return run_of(c, pos + n, letters);
    if (f & UC_N) return digits_end(c, pos, s->digits);
    f2 = class_at(c, pos + n, &n2);
    if (b != '\r' && b != '\n' && f2 & letters) return run_of(c, pos + n + n2, letters);
    p = pos;
    if (b == ' ' && n2 && !(f2 & (UC_WS | UC_N))) {
        p = pos + 1; /* a letter (or mark) was taken above */
        f = f2;
    }
    if (!(f & UC_WS)) {
        p = run_of_none(c, p, UC_WS | UC_N | letters);
        while (p < c->end && (c->s[p] == '\r' || c->s[p] == '\n')) p++;
        return p;
    }
    return spaces_or_lines_end(c, pos);
}

/* class_at for words of letters: with `no_han`, a Han character is not a letter. */
static inline unsigned letter_at(const cursor *c, size_t pos, unsigned *n, bool no_han) {
    unsigned f = class_at(c, pos, n);
    return no_han && f & UC_HAN ? 0 : f;
}

enum { G_UPPER = UC_UPPER | UC_CASELESS | UC_M, G_LOWER = UC_LOWER | UC_CASELESS | UC_M, G_BOTH = UC_CASELESS | UC_M };

/* [upper]*[lower]+ at pos; 0 when it does not match. */
static size_t upper_lower(const cursor *c, size_t pos, bool no_han) {
    size_t   p = pos, both = 0;
    unsigned n, f;
    while ((f = letter_at(c, p, &n, no_han)) & G_UPPER) {
        p += n;
        if (f & G_BOTH) both = p;
    }
    if (!(f & G_LOWER)) return both; /* the run gives back characters until its last one that may also be "lower" */
    while (letter_at(c, p, &n, no_han) & G_LOWER) p += n;
    return p;
}

/* [upper]+[lower]* at pos; 0 when it does not match. */
static size_t upper_then_lower(const cursor *c, size_t pos, bool no_han) {
    size_t   p = pos;
    unsigned n;
    while (letter_at(c, p, &n, no_han) & G_UPPER) p += n;
    if (p == pos) return 0;
    while (letter_at(c, p, &n, no_han) & G_LOWER) p += n;
    return p;
}

static size_t gpt4o_word(const cursor *c, size_t pos, unsigned f, unsigned n, bool no_han) {
    uint8_t b = c->s[pos];
    bool    lead = b != '\r' && b != '\n' && !(f & (UC_L | UC_N)); /* [^\r\n\p{L}\p{N}]? */
    size_t  e = 0;
    if (lead && pos + n < c->end) e = upper_lower(c, pos + n, no_han);
    if (!e) e = upper_lower(c, pos, no_han);
    if (!e && lead && pos + n < c->end) e = upper_then_lower(c, pos + n, no_han);
    if (!e) e = upper_then_lower(c, pos, no_han);
    return e;
}

static size_t gpt4o_next(const cursor *c, size_t pos, const splitter *s) {
    unsigned n, n2, f, f2;
    uint8_t  b = c->s[pos];
    size_t   p;
    f = class_at(c, pos, &n);
    if (s->han && f & UC_HAN) return run_of(c, pos, UC_HAN);
    if (f & UC_N) return digits_end(c, pos, s->digits);
    if ((p = gpt4o_word(c, pos, f, n, s->han))) {
        if (s->contractions && p < c->end && c->s[p] == '\'') p += contraction(c, p, true, s->fold);
        return p;
    }
    p = pos;
    f2 = class_at(c, pos + n, &n2);
    if (b == ' ' && n2 && !(f2 & (UC_WS | UC_L | UC_N))) {
        p = pos + 1;
        f = f2;
    }
    if (!(f & UC_WS)) {
        p = run_of_none(c, p, UC_WS | UC_L | UC_N);
        while (p < c->end && (c->s[p] == '\r' || c->s[p] == '\n' || (s->slash && c->s[p] == '/'))) p++;
        return p;
    }
    return spaces_or_lines_end(c, pos);
}

static bool ascii_punct(uint8_t b) {
    return b > 32 && b < 127 && !(b >= '0' && b <= '9') && !((b | 32) >= 'a' && (b | 32) <= 'z');
}
static bool ascii_letter(uint8_t b) { return (b | 32) >= 'a' && (b | 32) <= 'z' && b < 0x80; }

/*
 * [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * Characters that no branch takes (numbers, controls) are left to the piece before the next match.
 */
static size_t deepseek3_match(const cursor *c, size_t pos) {
    unsigned n, n2, f, f2;
    uint8_t  b = c->s[pos];
    f = class_at(c, pos, &n);
    if (ascii_punct(b) && pos + 1 < c->end && ascii_letter(c->s[pos + 1])) {
        size_t p = pos + 1;
        while (p < c->end && ascii_letter(c->s[p])) p++;
        return p;
    }
    f2 = class_at(c, pos + n, &n2);
    if (b != '\r' && b != '\n' && !(f & (UC_L | UC_P | UC_S)) && f2 & (UC_L | UC_M))
        return run_of(c, pos + n + n2, UC_L | UC_M);
    if (f & (UC_L | UC_M)) return run_of(c, pos + n, UC_L | UC_M);
    size_t p = pos;
    if (b == ' ' && f2 & (UC_P | UC_S)) {
        p = pos + 1;
        f = f2;
    }
    if (f & (UC_P | UC_S)) {
        p = run_of(c, p, UC_P | UC_S);
        while (p < c->end && (c->s[p] == '\r' || c->s[p] == '\n')) p++;
        return p;
    }
    if (f & UC_WS) return spaces_or_lines_end(c, pos);
    return 0;
}

static void split_deepseek3(const cursor *c, size_t start, piece_list *out) {
    size_t pos = start, kept = start;
    while (pos < c->end) {
        size_t e = deepseek3_match(c, pos);
        if (e) {
            if (kept < pos) piece_push(out, kept, pos);
            piece_push(out, pos, e);
            pos = kept = e;
        } else {
            pos += utf8_length(c->s[pos]);
        }
    }
    if (kept < c->end) piece_push(out, kept, c->end);
}

/* Isolates runs of digits: at most `limit` each (0: whole runs), or groups of three counted from the right. */
static void split_digits(const cursor *c, size_t start, unsigned limit, bool right, piece_list *out) {
    size_t   pos = start, kept = start;
    unsigned n;
    while (pos < c->end) {
        if (!(class_at(c, pos, &n) & UC_N)) {
            pos += n;
            continue;
        }
        if (kept < pos) piece_push(out, kept, pos);
        if (!right) {
            size_t e = digits_end(c, pos, limit);
            piece_push(out, pos, e);
            pos = kept = e;
            continue;
        }
        size_t e = pos, count = 0;
        while (class_at(c, e, &n) & UC_N) {
            e += n;
            count++;
        }
        while (pos < e) {
            size_t p = pos, take = count % 3 ? count % 3 : 3;
            for (size_t i = 0; i < take; i++) p += utf8_length(c->s[p]);
            piece_push(out, pos, p);
            count -= take;
            pos = p;
        }
        kept = pos;
    }
    if (kept < c->end) piece_push(out, kept, c->end);
}

static void split_lines(const cursor *c, size_t pos, piece_list *out) {
    while (pos < c->end) {
        bool   newline = c->s[pos] == '\n';
        size_t p = pos;
        while (p < c->end && (c->s[p] == '\n') == newline) p++;
        piece_push(out, pos, p);
        pos = p;
    }
}

/* \s+$; with `lines` also the white space in front of a line's last newline, as engines see it where $ ends every line.
 */
static void split_space_end(const cursor *c, size_t start, bool lines, piece_list *out) {
    size_t pos = start, kept = start;
    while (pos < c->end) {
        unsigned n;
        size_t   a = pos, p, newline = 0;
        if (!(class_at(c, pos, &n) & UC_WS)) {
            pos += n;
            continue;
        }
        for (p = a; class_at(c, p, &n) & UC_WS; p += n) {
            if (lines && p > a && c->s[p] == '\n') newline = p;
        }
        size_t e = p == c->end ? p : newline;
        if (e) {
            if (kept < a) piece_push(out, kept, a);
            piece_push(out, a, e);
            kept = e;
        }
        pos = p;
    }
    if (kept < c->end) piece_push(out, kept, c->end);
}

void split_run(const splitter *s, const char *text, size_t start, size_t end, piece_list *out) {
    cursor c = { (const uint8_t *)text, end, uc_get() };
    size_t pos = start;
    switch (s->kind) {
    case SPLIT_GPT2:
        while (pos < end) {
            size_t e = gpt2_next(&c, pos);
            piece_push(out, pos, e);
            pos = e;
        }
        break;
    case SPLIT_LLAMA3:
        while (pos < end) {
            size_t e = llama3_next(&c, pos, s);
            piece_push(out, pos, e);
            pos = e;
        }
        break;
    case SPLIT_GPT4O:
        while (pos < end) {
            size_t e = gpt4o_next(&c, pos, s);
            piece_push(out, pos, e);
            pos = e;
        }
        break;
    case SPLIT_DIGITS: split_digits(&c, start, s->digits, false, out); break;
    case SPLIT_DIGITS_RIGHT: split_digits(&c, start, 0, true, out); break;
    case SPLIT_LINES: split_lines(&c, start, out); break;
    case SPLIT_SPACE_END: split_space_end(&c, start, s->lines, out); break;
    case SPLIT_DEEPSEEK3: split_deepseek3(&c, start, out); break;
    case SPLIT_NONE: piece_push(out, start, end); break;
    }
}

/* ---- patterns known by their text ---- */

#define CONTRACTIONS_I "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CONTRACTIONS_A "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define LLAMA3(contractions, digits)                                                                                   \
    contractions "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                                              \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35(contractions)                                                                                           \
    contractions "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "                                                     \
                 "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define GPT4O(suffix, digits, tail)                                                                                    \
    LEAD UPPER "*" LOWER "+" suffix "|" LEAD UPPER "+" LOWER "*" suffix "|" digits "| ?[^\\s\\p{L}\\p{N}]+" tail       \
               "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3(r)                                                                                                   \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^" r                                                       \
    "\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[" r "]*|\\s*[" r "]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    splitter    s;
} known[] = {
    { GPT2, { .kind = SPLIT_GPT2 } },
    { GPT2 "|\\s+", { .kind = SPLIT_GPT2 } },
    { LLAMA3(CONTRACTIONS_I, "\\p{N}{1,3}"), { .kind = SPLIT_LLAMA3, .digits = 3, .fold = true } },
    { LLAMA3(CONTRACTIONS_A, "\\p{N}{1,3}"), { .kind = SPLIT_LLAMA3, .digits = 3 } },
    { LLAMA3(CONTRACTIONS_I, "\\p{N}"), { .kind = SPLIT_LLAMA3, .digits = 1, .fold = true } },
    { LLAMA3(CONTRACTIONS_A, "\\p{N}"), { .kind = SPLIT_LLAMA3, .digits = 1 } },
    { LLAMA3(CONTRACTIONS_I, "\\p{N}+"), { .kind = SPLIT_LLAMA3, .fold = true } },
    { LLAMA3(CONTRACTIONS_A, "\\p{N}+"), { .kind = SPLIT_LLAMA3 } },
    { QWEN35(CONTRACTIONS_I), { .kind = SPLIT_LLAMA3, .digits = 1, .marks = true, .fold = true } },
    { QWEN35(CONTRACTIONS_A), { .kind = SPLIT_LLAMA3, .digits = 1, .marks = true } },
    { GPT4O(CONTRACTIONS_I "?", "\\p{N}{1,3}", "[\\r\\n/]*"),
      { .kind = SPLIT_GPT4O, .digits = 3, .contractions = true, .slash = true, .fold = true } },
    { GPT4O(CONTRACTIONS_A "?", "\\p{N}{1,3}", "[\\r\\n/]*"),
      { .kind = SPLIT_GPT4O, .digits = 3, .contractions = true, .slash = true } },
    { GPT4O("", "\\p{N}", "[\\r\\n/]*"), { .kind = SPLIT_GPT4O, .digits = 1, .slash = true } },
    { GPT4O(CONTRACTIONS_A "?", "\\p{N}", "[\\r\\n/]*"),
      { .kind = SPLIT_GPT4O, .digits = 1, .contractions = true, .slash = true } },
    { DEEPSEEK3("\r\n"), { .kind = SPLIT_DEEPSEEK3 } },
    { DEEPSEEK3("\\r\\n"), { .kind = SPLIT_DEEPSEEK3 } },
    { "\\p{N}{1,3}", { .kind = SPLIT_DIGITS, .digits = 3 } },
    { "\\p{N}", { .kind = SPLIT_DIGITS, .digits = 1 } },
    { "\\p{N}+", { .kind = SPLIT_DIGITS } },
    { "[^\\n]+|[\\n]+", { .kind = SPLIT_LINES } },
    { "\\s+$", { .kind = SPLIT_SPACE_END } },
    { TOK_DIGITS_RIGHT, { .kind = SPLIT_DIGITS_RIGHT } },
    { TOK_KIMI, { .kind = SPLIT_GPT4O, .digits = 3, .contractions = true, .han = true, .fold = true } },
};

splitter split_find(const char *pattern, size_t bytes, bool lines) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].pattern) == bytes && memcmp(known[i].pattern, pattern, bytes) == 0) {
            splitter s = known[i].s;
            s.lines = lines;
            return s;
        }
    }
    return (splitter){ 0 };
}

const char *split_pattern_at(size_t index) {
    return index < sizeof known / sizeof known[0] ? known[index].pattern : NULL;
}

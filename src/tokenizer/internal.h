/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the vocabulary, the pipeline's parts, the scratch context. */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

#include <pthread.h>

/* ---- limits on untrusted files ---- */
enum {
    TOK_MAX_TOKENS = 1 << 23,
    TOK_MAX_TOKEN_BYTES = 1 << 16,
    TOK_MAX_ADDED_BYTES = 1 << 10, /* an added token is tried at every position of a text */
    TOK_MAX_STEPS = 64,            /* normalizers, pre-tokenizers, decoders of one tokenizer */
};
#define TOK_MAX_FILE_BYTES ((size_t)256 << 20)
#define TOK_MAX_TEXT_BYTES ((size_t)1 << 30)

/* ---- vocabulary: id -> text, class, score; text -> id ---- */
typedef struct vocab {
    uint32_t  n, cap;
    uint32_t *off, *len; /* into blob */
    uint8_t  *cls;       /* tok_class, and VOCAB_OUTSIDE for added tokens that the model itself does not know */
    double   *score;     /* NULL unless the model has scores */
    str       blob;
    uint64_t  seed;
    uint64_t *slots;              /* hash << 32 | id + 1; open addressing, a power of two */
    uint32_t  n_slots, n_indexed; /* n_indexed: n when the index was built */
    uint32_t  max_len;
} vocab;

enum { VOCAB_OUTSIDE = 0x80 };
static inline tok_class vocab_class(const vocab *v, uint32_t id) { return (tok_class)(v->cls[id] & 0x7F); }

void vocab_deinit(vocab *v);
bool vocab_reserve(vocab *v, uint32_t n, size_t text_bytes, bool scores);
/* Sets an id (growing the vocabulary up to it; new ids are TOK_UNDEFINED). */
int      vocab_set(vocab *v, uint32_t id, const char *text, size_t bytes, tok_class cls, double score, err *e);
int      vocab_index(vocab *v, err *e); /* builds text -> id over all ids that have a text; the last of equals wins */
int32_t  vocab_find(const vocab *v, const char *text, size_t bytes);
view     vocab_text(const vocab *v, uint32_t id);
uint32_t vocab_hash(const vocab *v, const char *text, size_t bytes);

/* GPT-2's alphabet: each byte is written as one printable character. */
extern const uint16_t byte_to_char[256];
bool byte_level_decode(view text, str *out); /* false (nothing appended) when a character stands for no byte */
void byte_level_encode(const char *text, size_t bytes, str *out);
int  byte_token_value(view text); /* "<0x0A>" -> 10; -1 otherwise */

bool base64_decode(const char *text, size_t bytes, str *out); /* false: not base64 */

/* ---- trie over byte strings, for longest and all-prefix matches ---- */
typedef struct trie_node {
    uint32_t first; /* index of the first child */
    int32_t  value; /* -1: no string ends here */
    uint16_t n;     /* children, sorted by label */
    uint8_t  label;
} trie_node;

typedef struct trie {
    trie_node *nodes; /* NULL: empty */
    uint32_t   n_nodes;
    uint32_t   root_child[256]; /* 0: none */
} trie;

typedef struct trie_key {
    const char *text;
    uint32_t    len;
    int32_t     value;
} trie_key;

/* Sorts keys in place. Equal keys: the one that comes last in the input wins. */
int                    trie_build(trie *t, trie_key *keys, size_t n, err *e);
void                   trie_deinit(trie *t);
static inline uint32_t trie_step(const trie *t, uint32_t node, uint8_t c) { /* node 0 is the root; 0: no such child */
    if (node == 0) return t->root_child[c];
    const trie_node *p = &t->nodes[node];
    for (uint32_t i = 0; i < p->n; i++) {
        if (t->nodes[p->first + i].label == c) return p->first + i;
    }
    return 0;
}

/* ---- lists of pieces: ranges of the current text ---- */
typedef struct piece {
    uint32_t start, len;
} piece;

typedef struct piece_list {
    piece *data;
    size_t count, cap;
    bool   failed;
} piece_list;

bool               piece_grow(piece_list *l);
static inline void piece_push(piece_list *l, size_t start, size_t end) {
    if (l->count == l->cap && !piece_grow(l)) return;
    l->data[l->count++] = (piece){ (uint32_t)start, (uint32_t)(end - start) };
}

/* ---- scratch ---- */
typedef struct word_cache word_cache;
typedef struct tok_ctx    tok_ctx;
struct tok_ctx {
    tok_ctx   *next;
    str        clean, norm, tmp; /* validated text, normalizer buffers */
    str        pre, pre2, word;  /* pre-tokenizer buffers, single words */
    piece_list pieces, pieces2, matches;
    piece_list segments;    /* of the added-token pass */
    int32_t   *segment_ids; /* beside segments: -1 text, else the id */
    size_t     segment_cap;
    piece_list segments2; /* the same for the pass over normalized text */
    int32_t   *segment_ids2;
    size_t     segment_cap2;
    /* BPE and Unigram */
    uint32_t   *sym, *prev, *next_sym, *pos;
    size_t      sym_cap;
    uint64_t   *heap;
    size_t      heap_n, heap_cap;
    void       *best; /* Viterbi cells */
    size_t      best_cap;
    uint8_t    *taken;
    size_t      taken_cap;
    word_cache *cache;
    void       *match_data, *match_context, *jit_stack; /* PCRE2 */
};

bool     ctx_symbols(tok_ctx *c, size_t n);
bool     ctx_heap_push(tok_ctx *c, uint64_t key);
uint64_t ctx_heap_pop(tok_ctx *c); /* the smallest; the heap must not be empty */

/* ---- regular expressions ---- */
typedef struct regex regex;
enum { REGEX_RUST_WORD = 1, REGEX_MULTILINE = 2 };
int  regex_open(regex **out, const char *pattern, size_t bytes, unsigned flags, err *e);
void regex_free(regex *r);
/* Finds the next match at or behind `from`: 1 and the range, 0 for none, a negative code on failure. */
int  regex_next(const regex *r, tok_ctx *c, const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                err *e);
void regex_scratch_free(tok_ctx *c);

/* ---- splitters ---- */
typedef enum split_kind {
    SPLIT_NONE,
    SPLIT_GPT2,         /* 's|'t|... ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
    SPLIT_LLAMA3,       /* (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*|... */
    SPLIT_GPT4O,        /* upper case, then lower case, then a contraction */
    SPLIT_DIGITS,       /* \p{N}{1,k}; k = 0: \p{N}+ */
    SPLIT_LINES,        /* [^\n]+|[\n]+ */
    SPLIT_DIGITS_RIGHT, /* runs of digits in groups of three from the right */
    SPLIT_SPACE_END,    /* \s+$ */
    SPLIT_DEEPSEEK3,    /* punctuation and letters, the main pattern of deepseek-v3 */
} split_kind;

typedef struct splitter {
    split_kind kind;
    uint8_t    digits;       /* longest run of digits; 0: no limit */
    bool       marks;        /* combining marks count as letters */
    bool       contractions; /* GPT4O: a contraction may follow a word */
    bool       slash;        /* GPT4O: [\r\n/]* behind punctuation */
    bool       han;          /* GPT4O: runs of Han characters come first and are not letters */
    bool       lines;        /* SPACE_END: $ matches at the end of every line */
    bool       fold;         /* U+017F counts as s in a contraction, as case folding says */
} splitter;

/* The hand-written splitter for a pattern that is known by its text; kind SPLIT_NONE when it is not. */
splitter    split_find(const char *pattern, size_t bytes, bool lines);
const char *split_pattern_at(size_t index); /* the known patterns, for the test; NULL behind the last */
/* Patterns that exist only here: digits in groups of three from the right, and Kimi's without class intersections. */
#define TOK_DIGITS_RIGHT "(?:digits in threes from the right)"
#define TOK_KIMI_UPPER "(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])"
#define TOK_KIMI_LOWER "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])"
#define TOK_KIMI                                                                                                       \
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" TOK_KIMI_UPPER "*" TOK_KIMI_LOWER                                               \
    "+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?" TOK_KIMI_UPPER "+" TOK_KIMI_LOWER                          \
    "*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* Appends the pieces of text[start, end). Valid UTF-8 only. */
void split_run(const splitter *s, const char *text, size_t start, size_t end, piece_list *out);

/* ---- normalizers ---- */
typedef enum norm_kind {
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_LOWERCASE,
    NORM_STRIP,
    NORM_STRIP_ACCENTS,
    NORM_REPLACE,
    NORM_PREPEND,
    NORM_CHARSMAP,
    NORM_BERT,
    NORM_NMT,
    NORM_BYTE_LEVEL,
    NORM_SPACES, /* SentencePiece's white space rules */
} norm_kind;

typedef struct charsmap {
    uint8_t    *data;
    uint32_t   *units; /* the double array */
    size_t      n_units;
    const char *strings; /* replacement texts, NUL-terminated each */
    size_t      strings_bytes;
} charsmap;
int  charsmap_open(charsmap *c, const void *data, size_t bytes, err *e);
void charsmap_deinit(charsmap *c);
/* Longest key that is a prefix of text: its bytes and the replacement; 0 when none. */
size_t charsmap_longest(const charsmap *c, const char *text, size_t bytes, view *replacement);
/* The replacement of the shortest key that is a prefix of text, as spm_precompiled looks it up; false when none. */
bool charsmap_exact(const charsmap *c, const char *text, size_t bytes, view *replacement);

typedef struct norm_step {
    norm_kind kind;
    bool      left, right;                                           /* STRIP */
    bool      clean, chinese, strip_accents, lower, keep_unassigned; /* BERT */
    view      content, pattern;                                      /* PREPEND, REPLACE; owned by tok->names */
    regex    *re;                                                    /* REPLACE by pattern */
    /* SPACES */
    bool dummy_prefix, remove_extra, escape, suffix;
    bool use_charsmap, longest; /* CHARSMAP by longest prefix (SentencePiece) or by grapheme */
} norm_step;

/* ---- pre-tokenizers ---- */
typedef enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_PREVIOUS,
    SPLIT_MERGED_NEXT,
    SPLIT_CONTIGUOUS
} split_behavior;

typedef enum pre_kind {
    PRE_SPLITTER,
    PRE_REGEX,
    PRE_STRING,
    PRE_BYTE_LEVEL,
    PRE_PREFIX_SPACE,
    PRE_WHITESPACE_SPLIT,
    PRE_WORDS, /* \\w+|[^\\w\\s]+, white space dropped */
    PRE_PUNCTUATION,
    PRE_DIGITS,
    PRE_METASPACE,
    PRE_DELIMITER,

    PRE_FIXED,
} pre_kind;

typedef struct pre_step {
    pre_kind       kind;
    splitter       fast;
    regex         *re;
    split_behavior behavior;
    bool           invert;
    view           pattern; /* STRING, and METASPACE's replacement */
    int            scheme;  /* METASPACE: 0 never, 1 first, 2 always */
    bool           split;   /* METASPACE */
    unsigned       delimiter;
    size_t         length; /* FIXED */
} pre_step;

/* ---- decoders ---- */
typedef enum dec_kind {
    DEC_BYTE_LEVEL,
    DEC_METASPACE,
    DEC_WORDPIECE,
    DEC_BPE,
    DEC_REPLACE,
    DEC_BYTE_FALLBACK,
    DEC_FUSE,
    DEC_STRIP,
    DEC_JOIN_SPACE,
    DEC_WORD_START, /* GGUF's BERT vocabulary: U+2581 begins a word */
} dec_kind;

typedef struct dec_step {
    dec_kind kind;
    view     pattern, content;
    regex   *re;
    int      scheme;
    bool     cleanup, fused, every; /* STRIP: behind a FUSE; also behind every special token */
    unsigned ch;
    size_t   start, stop;
} dec_step;

/* ---- added tokens ---- */
typedef struct added_token {
    int32_t id;
    view    content; /* what is looked for (normalized form for the second pass) */
    bool    lstrip, rstrip, single_word, normalized, special;
} added_token;

typedef struct added_set {
    trie         t;          /* value: index into tokens */
    added_token *tokens;     /* shared array of the tokenizer */
    uint8_t      first[256]; /* a token begins with this byte */
    bool         any;
} added_set;

/* ---- models ---- */
typedef enum model_kind { MODEL_BPE, MODEL_SPM, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_WORDLEVEL } model_kind;

typedef struct merge_slot {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank, id;
} merge_slot;

struct tok {
    vocab v;
    arena names; /* small strings that steps point to */

    /* pipeline */
    bool gguf_added; /* added tokens by GGUF's rule (longest first over the whole text), else leftmost-longest */
    added_token *added;
    size_t       n_added;
    int32_t *shown; /* id -> added token whose normalized text is what decoding shows, or -1; NULL when there is none */
    bool     strip_lead;                /* decoding: a token counts as the first one until something was shown */
    view     unk_surface;               /* what an unknown token decodes to; data NULL: its text */
    added_set raw_special, raw_plain;   /* looked for in the raw text: with and without special tokens */
    added_set norm_special, norm_plain; /* in the normalized text */
    norm_step norm[TOK_MAX_STEPS];
    size_t    n_norm;
    charsmap  map;
    trie      user; /* user-defined symbols that a SentencePiece normalizer leaves alone */
    pre_step  pre[TOK_MAX_STEPS];
    size_t    n_pre;
    dec_step  dec[TOK_MAX_STEPS];
    size_t    n_dec;
    int32_t   before[16], after[16]; /* added around the text */
    size_t    n_before, n_after;
    /* Around two texts, where the file says so (pair): before the first, between them, behind the second. */
    bool    pair, pair_types; /* pair_types: the second text is told from the first */
    int32_t pair_before[4], between[4], pair_after[4];
    size_t  n_pair_before, n_between, n_pair_after;

    /* model */
    model_kind  model;
    bool        byte_level; /* BPE over raw bytes: tokens were decoded from GPT-2's alphabet */
    bool        ignore_merges, byte_fallback, fuse_unk, keep_unknown; /* keep_unknown: GGUF, see bpe.c */
    bool        split_words;  /* no token crosses a word start (U+2581): words are encoded one by one */
    bool        space_prefix; /* GGUF's SPM: a space before text and behind special tokens */
    bool        cache_words;
    int32_t     unk;
    merge_slot *merges;
    uint32_t    merge_mask;    /* slots - 1; 0 when there are none */
    uint32_t    base[256];     /* byte -> symbol; UINT32_MAX: none */
    int32_t     byte_ids[256]; /* byte -> <0xXX> token, or -1 */
    str         raw;           /* byte-level: the bytes of each token */
    uint32_t   *raw_off;       /* n + 1 */
    uint64_t   *raw_slots;     /* bytes -> id, for ignore_merges */
    uint32_t    raw_n_slots;
    bool        newline_words; /* BPE: a run of newlines that is a token is taken whole */
    uint32_t   *extra_off;     /* BPE: symbols behind the vocabulary, see bpe.c */
    int32_t    *extra_ids;
    uint32_t    n_extra;
    uint32_t   *ranks;          /* SPM: order of the scores */
    view        prefix, suffix; /* BPE: continuing_subword_prefix, end_of_word_suffix; WORDPIECE: prefix */
    size_t      max_word_chars; /* WORDPIECE */
    trie        words, conts;   /* UNIGRAM: all pieces; WORDPIECE: word starts and continuations */
    double      min_score, max_score;
    bool        all_pieces; /* UNIGRAM: every token of the model is a piece (tokenizer.json) */
    double      unk_score;
    bool        float_scores;

    /* facts */
    int32_t     bos, eos, eot, eom, pad, sep, mask;
    bool        add_bos, add_eos;
    int32_t    *ends;
    size_t      n_ends;
    const char *kind_name;

    pthread_mutex_t lock; /* guards free_ctx */
    tok_ctx        *free_ctx;
};

static inline bool tok_in_model(const tok *t, uint32_t id) { return !(t->v.cls[id] & VOCAB_OUTSIDE); }

tok     *tok_new(void);
view     tok_keep(tok *t, const char *text, size_t bytes); /* copies into names; data NULL when out of memory */
int      tok_finish(tok *t, err *e);  /* after loading: indexes, tries, checks; every loader ends with it */
int      tok_refresh(tok *t, err *e); /* after added tokens changed */
int      tok_known_ends(tok *t, bool mark, err *e); /* end tokens known by their text; mark: make them control tokens */
int      tok_add_end(tok *t, int64_t id);           /* false ids are ignored */
tok_ctx *tok_ctx_take(const tok *t);
void     tok_ctx_give(const tok *t, tok_ctx *c);

/* added.c */
int  added_set_build(added_set *s, added_token *tokens, size_t n, bool normalized, bool with_special, err *e);
void added_set_deinit(added_set *s);
int  added_split(const tok *t, tok_ctx *c, const added_set *s, view text, piece_list *out, int32_t **ids, size_t *cap,
                 err *e);

/* normalize.c; pretok.c: the result is in c->norm / c->pieces over *text */
int normalize_text(const tok *t, tok_ctx *c, view in, view *out, err *e);
int pretokenize(const tok *t, tok_ctx *c, view *text, bool first, err *e);

/* models: append the ids of one piece */
int  bpe_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e);
int  spm_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e);
int  unigram_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e);
int  wordpiece_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e);
int  wordlevel_encode(const tok *t, tok_ctx *c, const char *word, size_t bytes, tok_ids *out, err *e);
int  bpe_merges_from_ranks(tok *t, err *e); /* tiktoken: ids are ranks; the index must be built */
int  bpe_merges_reserve(tok *t, size_t n, err *e);
int  bpe_merge_add(tok *t, uint32_t left, uint32_t right, uint32_t rank,
                   uint32_t id); /* the first of equal pairs wins */
int  bpe_prepare(tok *t, err *e);
int  spm_prepare(tok *t, err *e);
int  unigram_prepare(tok *t, err *e);
int  wordpiece_prepare(tok *t, err *e);
void word_cache_free(word_cache *w);

/* pre_names.c */
typedef struct pre_name {
    const char *name;
    const char *patterns[8]; /* applied in order, each splits further */
    bool        ignore_merges, add_bos, add_sep, raw_utf8, no_bos_id;
} pre_name;
const pre_name *pre_name_find(view name);
const pre_name *pre_name_at(size_t index);                         /* NULL behind the last */
int             pre_name_apply(tok *t, const pre_name *p, err *e); /* appends the pre-tokenizer steps */

/* step lists */
norm_step *tok_norm_add(tok *t, norm_kind kind, err *e);
pre_step  *tok_pre_add(tok *t, pre_kind kind, err *e);
dec_step  *tok_dec_add(tok *t, dec_kind kind, err *e);
int tok_pre_add_pattern(tok *t, const char *pattern, size_t bytes, split_behavior behavior, bool invert, unsigned flags,
                        err *e);

/* json_parts.c: the small parts of a tokenizer.json */
int json_load_normalizer(tok *t, const json_value *v, err *e);
int json_load_pre_tokenizer(tok *t, const json_value *v, err *e);
int json_load_decoder(tok *t, const json_value *v, err *e);
int json_load_post_processor(tok *t, const json_value *v, err *e);
int json_load_added(tok *t, const json_value *v, err *e);

#endif

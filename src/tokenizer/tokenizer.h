/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers: text to token ids and back.
 *
 * One pipeline for every kind: added tokens are cut out of the text, the rest is normalized, split into words
 * (pre-tokenized) and given to a model (BPE, SentencePiece BPE, Unigram, WordPiece, word list); begin and end tokens
 * are put around the result. Opened from the metadata of a GGUF (tok_vocab_source), a tokenizer.json, a SentencePiece
 * model, vocab.json + merges.txt or a tiktoken file.
 *
 * An open tokenizer is immutable and may be used by several threads at once; scratch memory comes from an internal
 * pool. Text is UTF-8; a byte that is not part of valid UTF-8 is read as U+FFFD.
 */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tok tok;

/* What a token is; the numbers are those of GGUF's tokenizer.ggml.token_type. */
typedef enum tok_class {
    TOK_UNDEFINED = 0, /* a hole in the numbering */
    TOK_NORMAL = 1,
    TOK_UNKNOWN = 2,
    TOK_CONTROL = 3, /* special: begin, end, turn markers */
    TOK_USER = 4,    /* always cut out of the text before anything else, but part of the text */
    TOK_UNUSED = 5,
    TOK_BYTE = 6, /* stands for one raw byte */
} tok_class;

/* Flags of tok_encode. */
enum {
    TOK_ADD_SPECIAL = 1,   /* put the model's begin and end tokens around the text */
    TOK_PARSE_SPECIAL = 2, /* special-token text becomes the special token; else it is plain text */
};

typedef struct tok_ids {
    int32_t *data;
    size_t   count, cap;
} tok_ids;

void tok_ids_deinit(tok_ids *ids);
bool tok_ids_push(tok_ids *ids, int32_t id); /* false: out of memory */

/* Options of all the open functions; NULL for the defaults. */
typedef struct tok_options {
    const char *pre; /* overrides the pre-tokenizer name of a GGUF (--pre NAME) */
} tok_options;

/* Plain data for a tokenizer: what a GGUF holds. Everything is borrowed for the call only. */
typedef struct tok_vocab_source {
    view         model; /* tokenizer.ggml.model: "gpt2", "llama", "bert", "t5", ... */
    view         pre;   /* tokenizer.ggml.pre; empty when absent */
    view         name;  /* general.name; some models are known by it only */
    const view  *tokens;
    size_t       n_tokens;
    const float *scores; /* n_tokens, or NULL */
    const int   *types;  /* n_tokens, or NULL */
    const view  *merges;
    size_t       n_merges;
    view         charsmap; /* tokenizer.ggml.precompiled_charsmap */
    /* Ids: -1 when the file does not name one. */
    int64_t bos, eos, eot, eom, unk, sep, pad, mask;
    /* Settings: -1 when the file does not say. */
    int add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces, lowercase, strip_accents;
    /* Further end tokens, from generation_config.json. */
    const int64_t *end_ids;
    size_t         n_end_ids;
} tok_vocab_source;

void tok_vocab_source_init(tok_vocab_source *s); /* empty, everything absent */

/* The names that `pre` may have; NULL behind the last. */
const char *tok_pre_at(size_t index);
/* Pattern `index` of such a name, each applied to the pieces of the one before; NULL behind the last and for names that are
 * not known or whose tokens are not bytes. *whole: a word that is a token is taken without merging. */
const char *tok_pre_pattern(view pre, size_t index, bool *whole);

/* Each: on success the caller owns *out; on failure *out is NULL and e says why. Memory is borrowed for the call. */
int tok_open_vocab(tok **out, const tok_vocab_source *source, const tok_options *o, err *e);
int tok_open_json(tok **out, const char *data, size_t bytes, err *e);          /* tokenizer.json */
int tok_open_sentencepiece(tok **out, const void *data, size_t bytes, err *e); /* tokenizer.model */
/* A tiktoken rank file (base64 and rank per line) with a pattern: a name of the pre-tokenizer table. */
int tok_open_tiktoken(tok **out, const char *data, size_t bytes, const char *pre, err *e);
int tok_open_tekken(tok **out, const char *data, size_t bytes, err *e); /* Mistral's tekken.json */
/* GPT-2's pair of files. */
int tok_open_bpe_files(tok **out, const char *vocab, size_t vocab_bytes, const char *merges, size_t merges_bytes,
                       const char *pre, err *e);
/* BERT's vocab.txt. */
int tok_open_bert_vocab(tok **out, const char *data, size_t bytes, bool lower, err *e);
/*
 * A path: a directory with tokenizer files (tokenizer.json, else tekken.json, tokenizer.model, spiece.model, spm.model,
 * vocab.json + merges.txt, *.tiktoken, vocab.txt), or one of those files. tokenizer_config.json, special_tokens_map.json and
 * generation_config.json beside it are used for special tokens and end tokens.
 */
int  tok_open_path(tok **out, const char *path, const tok_options *o, err *e);
void tok_free(tok *t);

/* Appends the ids of the text. On failure the ids appended so far are undefined but out is still valid. */
int tok_encode(const tok *t, const char *text, size_t bytes, unsigned flags, tok_ids *out, err *e);

/*
 * Two texts as models that compare them are given them ("[CLS] a [SEP] b [SEP]"). limit: so many ids at most, the longer
 * text loses its end; 0: no limit. *second: where the ids begin that belong to the second text, for models that are told;
 * 0: they are not. Replaces what out holds.
 */
int tok_encode_pair(const tok *t, view a, view b, size_t limit, tok_ids *out, size_t *second, err *e);

/* Appends the text of the ids; special tokens are left out if skip_special. Ids beyond the vocabulary are an error. */
int tok_decode(const tok *t, const int32_t *ids, size_t count, bool skip_special, str *out, err *e);

/* Without the begin and end tokens that TOK_ADD_SPECIAL would put around a text: the inverse of tok_encode. */
void tok_trim_added(const tok *t, const int32_t **ids, size_t *count);

/*
 * Decodes one token at a time. Bytes of a split character are held back until it is complete; bytes that can no longer
 * complete one come out as U+FFFD. Appends to out; finish emits what is left.
 */
typedef struct tok_stream {
    const tok    *t;
    bool          skip_special, first, after_special;
    unsigned char held[8];
    unsigned      n_held;
} tok_stream;

void tok_stream_init(tok_stream *s, const tok *t, bool skip_special);
int  tok_stream_push(tok_stream *s, int32_t id, str *out, err *e);
void tok_stream_finish(tok_stream *s, str *out);

/* Facts. Ids that are absent are -1. */
int32_t        tok_count(const tok *t); /* ids are 0 .. count-1 */
const char    *tok_kind(const tok *t);  /* "bpe", "byte-level bpe", "sentencepiece bpe", "unigram", ... */
tok_class      tok_class_of(const tok *t, int32_t id);
bool           tok_is_special(const tok *t, int32_t id);
view           tok_text(const tok *t, int32_t id);            /* as the vocabulary writes it; empty when out of range */
bool           tok_bytes(const tok *t, int32_t id, str *out); /* appends the bytes it stands for inside a text */
bool           tok_score(const tok *t, int32_t id, double *out);       /* of models that have scores */
int32_t        tok_find(const tok *t, const char *text, size_t bytes); /* the id of a vocabulary text, or -1 */
int32_t        tok_bos(const tok *t);
int32_t        tok_eos(const tok *t);
bool           tok_adds_bos(const tok *t);
bool           tok_adds_eos(const tok *t);
const int32_t *tok_end_ids(const tok *t, size_t *count); /* every token that ends a generation */
bool           tok_is_end(const tok *t, int32_t id);

#endif

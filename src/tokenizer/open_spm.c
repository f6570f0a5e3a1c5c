/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece models (tokenizer.model, spiece.model): a protocol buffer, read by hand.
 *
 *   ModelProto:     1 pieces (repeated), 2 trainer_spec, 3 normalizer_spec
 *   SentencePiece:  1 piece (string), 2 score (float), 3 type (1 normal, 2 unknown, 3 control, 4 user-defined, 5
 * unused, 6 byte) TrainerSpec:    3 model_type (1 unigram, 2 bpe, 3 word, 4 char), 24 treat_whitespace_as_suffix, 35
 * byte_fallback, 40 unk_id, 41 bos_id, 42 eos_id, 43 pad_id, 44 unk_surface NormalizerSpec: 2 precompiled_charsmap, 3
 * add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces
 *
 * Unknown fields are passed over. Ids absent from the file have the format's defaults (unk 0, bos 1, eos 2, pad -1).
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct pb {
    const uint8_t *p, *end;
} pb;

typedef struct field {
    uint64_t number, value; /* value of varints and fixed-size fields */
    pb       bytes;         /* of length-delimited fields */
    unsigned wire;
} field;

static bool varint(pb *b, uint64_t *out) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (b->p == b->end) return false;
        uint8_t c = *b->p++;
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool fixed(pb *b, unsigned n, uint64_t *out) {
    *out = 0;
    if ((size_t)(b->end - b->p) < n) return false;
    for (unsigned i = 0; i < n; i++) *out |= (uint64_t)b->p[i] << 8 * i;
    b->p += n;
    return true;
}

/* 1: a field; 0: the end; a negative code: broken. */
static int next_field(pb *b, field *f, err *e) {
    uint64_t key, len;
    bool     ok = true;
    if (b->p == b->end) return 0;
    *f = (field){ 0 };
    if (!varint(b, &key)) return err_set(e, ERR_FORMAT, "the file ends inside a field");
    f->number = key >> 3;
    f->wire = key & 7;
    switch (f->wire) {
    case 0: ok = varint(b, &f->value); break;
    case 1: ok = fixed(b, 8, &f->value); break;
    case 5: ok = fixed(b, 4, &f->value); break;
    case 2:
        ok = varint(b, &len) && len <= (uint64_t)(b->end - b->p);
        if (ok) {
            f->bytes = (pb){ b->p, b->p + len };
            b->p += len;
        }
        break;
    default: return err_set(e, ERR_FORMAT, "a field of an unknown wire type (%u)", f->wire);
    }
    return ok ? 1 : err_set(e, ERR_FORMAT, "field %llu reaches beyond the end", (unsigned long long)f->number);
}

typedef struct spec {
    int64_t model_type, unk, bos, eos, pad;
    bool    suffix, byte_fallback, dummy_prefix, remove_extra, escape;
    view    charsmap, unk_surface;
} spec;

static int read_piece(tok *t, pb b, uint32_t id, err *e) {
    field f;
    int   rc;
    view  text = { "", 0 };
    float score = 0;
    int   type = TOK_NORMAL;
    while ((rc = next_field(&b, &f, e)) > 0) {
        if (f.number == 1 && f.wire == 2) text = (view){ (const char *)f.bytes.p, (size_t)(f.bytes.end - f.bytes.p) };
        if (f.number == 2 && f.wire == 5) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        }
        if (f.number == 3 && f.wire == 0) type = f.value >= 1 && f.value <= 6 ? (int)f.value : TOK_NORMAL;
    }
    if (rc < 0) return rc;
    if (score != score) return err_set(e, ERR_FORMAT, "the score of piece %u is not a number", id);
    if (utf8_valid_prefix(text.data, text.len) != text.len) return err_set(e, ERR_FORMAT, "piece %u is not UTF-8", id);
    return vocab_set(&t->v, id, text.data, text.len, (tok_class)type, (double)score, e);
}

static int read_trainer(pb b, spec *s, err *e) {
    field f;
    int   rc;
    while ((rc = next_field(&b, &f, e)) > 0) {
        if (f.number == 44 && f.wire == 2)
            s->unk_surface = (view){ (const char *)f.bytes.p, (size_t)(f.bytes.end - f.bytes.p) };
        if (f.wire != 0) continue;
        switch (f.number) {
        case 3: s->model_type = (int64_t)f.value; break;
        case 24: s->suffix = f.value != 0; break;
        case 35: s->byte_fallback = f.value != 0; break;
        case 40: s->unk = (int32_t)f.value; break;
        case 41: s->bos = (int32_t)f.value; break;
        case 42: s->eos = (int32_t)f.value; break;
        case 43: s->pad = (int32_t)f.value; break;
        default: break;
        }
    }
    return rc;
}

static int read_normalizer(pb b, spec *s, err *e) {
    field f;
    int   rc;
    while ((rc = next_field(&b, &f, e)) > 0) {
        if (f.number == 2 && f.wire == 2)
            s->charsmap = (view){ (const char *)f.bytes.p, (size_t)(f.bytes.end - f.bytes.p) };
        if (f.wire != 0) continue;
        if (f.number == 3) s->dummy_prefix = f.value != 0;
        if (f.number == 4) s->remove_extra = f.value != 0;
        if (f.number == 5) s->escape = f.value != 0;
    }
    return rc;
}

/* Control tokens can be parsed from text; user-defined symbols are kept whole by the normalizer and the model. */
static int set_symbols(tok *t, err *e) {
    size_t    n_user = 0;
    int       rc;
    trie_key *keys = malloc((size_t)t->v.n * sizeof *keys + 1);
    t->added = calloc((size_t)t->v.n + 1, sizeof *t->added);
    if (!keys || !t->added) {
        free(keys);
        return err_set_nomem(e);
    }
    for (uint32_t id = 0; id < t->v.n; id++) {
        tok_class k = vocab_class(&t->v, id);
        view      text = vocab_text(&t->v, id);
        if (text.len == 0 || text.len > TOK_MAX_ADDED_BYTES) continue;
        if (k == TOK_USER) keys[n_user++] = (trie_key){ text.data, (uint32_t)text.len, (int32_t)id };
        if (k == TOK_CONTROL || k == TOK_UNKNOWN)
            t->added[t->n_added++] = (added_token){ .id = (int32_t)id, .content = text, .special = true };
    }
    rc = trie_build(&t->user, keys, n_user, e);
    free(keys);
    return rc;
}

static int add_steps(tok *t, const spec *s, err *e) {
    norm_step *n = tok_norm_add(t, NORM_SPACES, e);
    dec_step  *d = tok_dec_add(t, DEC_REPLACE, e), *f = tok_dec_add(t, DEC_BYTE_FALLBACK, e),
             *st = tok_dec_add(t, DEC_STRIP, e);
    if (!n || !d || !f || !st) return ERR_LIMIT;
    n->dummy_prefix = s->dummy_prefix;
    n->remove_extra = s->remove_extra;
    n->escape = s->escape;
    n->suffix = s->suffix;
    n->use_charsmap = true;
    d->pattern = view_of("\xE2\x96\x81");
    d->content = view_of(" ");
    st->fused = st->every = true;
    st->ch = ' ';
    st->start = s->dummy_prefix || s->remove_extra ? 1 : 0;
    t->strip_lead = s->remove_extra;
    return 0;
}

static int set_model(tok *t, const spec *s, err *e) {
    int32_t bos = (int32_t)s->bos, eos = (int32_t)s->eos;
    if (s->model_type == 1) {
        t->model = MODEL_UNIGRAM;
        t->kind_name = "unigram";
        t->float_scores = true;
    } else if (s->model_type == 2) {
        t->model = MODEL_SPM;
        t->kind_name = "sentencepiece bpe";
    } else {
        return err_set(e, ERR_UNSUPPORTED, "SentencePiece models of type %s are not supported",
                       s->model_type == 3   ? "word"
                       : s->model_type == 4 ? "char"
                                            : "(unknown)");
    }
    t->unk_surface =
        s->unk_surface.data ? tok_keep(t, s->unk_surface.data, s->unk_surface.len) : view_of(" \xE2\x81\x87 ");
    if (!t->unk_surface.data) return err_set_nomem(e);
    t->byte_fallback = s->byte_fallback;
    t->fuse_unk = true;
    t->unk = (int32_t)s->unk;
    t->bos = bos >= 0 && (uint32_t)bos < t->v.n && vocab_class(&t->v, (uint32_t)bos) == TOK_CONTROL ? bos : -1;
    t->eos = eos >= 0 && (uint32_t)eos < t->v.n && vocab_class(&t->v, (uint32_t)eos) == TOK_CONTROL ? eos : -1;
    t->pad = s->pad >= 0 && s->pad < t->v.n ? (int32_t)s->pad : -1;
    if (t->unk < 0 || (uint32_t)t->unk >= t->v.n)
        return err_set(e, ERR_FORMAT, "unk_id %d lies beyond the %u pieces", t->unk, t->v.n);
    /* What models of the two kinds add by default: Llama's BOS, T5's EOS. tokenizer_config.json may say otherwise. */
    if (t->model == MODEL_SPM && t->bos >= 0) t->before[t->n_before++] = t->bos;
    if (t->model == MODEL_UNIGRAM && t->bos < 0 && t->eos >= 0) t->after[t->n_after++] = t->eos;
    return 0;
}

static int build(tok *t, pb b, err *e) {
    spec     s = { .model_type = 1,
                   .unk = 0,
                   .bos = 1,
                   .eos = 2,
                   .pad = -1,
                   .dummy_prefix = true,
                   .remove_extra = true,
                   .escape = true };
    field    f;
    uint32_t id = 0;
    int      rc;
    if (!vocab_reserve(&t->v, 1024, 1024, true)) return err_set_nomem(e);
    while ((rc = next_field(&b, &f, e)) > 0) {
        if (f.wire != 2) continue;
        if (f.number == 1) rc = read_piece(t, f.bytes, id++, e);
        if (f.number == 2) rc = read_trainer(f.bytes, &s, e);
        if (f.number == 3) rc = read_normalizer(f.bytes, &s, e);
        if (rc < 0) break;
    }
    if (rc < 0) return rc;
    if (id == 0) return err_set(e, ERR_FORMAT, "the file has no pieces");
    if ((rc = vocab_index(&t->v, e)) < 0 || (rc = set_model(t, &s, e)) < 0) return rc;
    if ((rc = charsmap_open(&t->map, s.charsmap.data, s.charsmap.len, e)) < 0) return rc;
    if ((rc = add_steps(t, &s, e)) < 0 || (rc = set_symbols(t, e)) < 0) return rc;
    return tok_finish(t, e);
}

int tok_open_sentencepiece(tok **out, const void *data, size_t bytes, err *e) {
    tok *t = tok_new();
    int  rc;
    *out = NULL;
    if (!t) return err_set_nomem(e);
    rc = bytes > TOK_MAX_FILE_BYTES ? err_set(e, ERR_LIMIT, "%zu bytes are too many", bytes)
                                    : build(t, (pb){ data, (const uint8_t *)data + bytes }, e);
    if (rc < 0) {
        tok_free(t);
        return err_wrap(e, rc, "SentencePiece model");
    }
    *out = t;
    return 0;
}

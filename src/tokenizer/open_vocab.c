/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer from plain data, as a GGUF holds it.
 *
 * tokenizer.ggml.model decides the kind: "gpt2" byte-level BPE (its words are split by the pre-tokenizer that
 * tokenizer.ggml.pre names), "llama" SentencePiece BPE by scores, "t5" Unigram, "bert" WordPiece whose word starts
 * begin with U+2581, "gemma4" BPE over plain UTF-8. Defaults of ids and settings follow what published files rely on.
 */
#include "base/map.h"
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

#define ESCAPED_SPACE "\xE2\x96\x81"

void tok_vocab_source_init(tok_vocab_source *s) {
    *s = (tok_vocab_source){ .bos = -1, .eos = -1, .eot = -1, .eom = -1, .unk = -1, .sep = -1, .pad = -1, .mask = -1 };
    s->add_bos = s->add_eos = s->add_sep = s->add_space_prefix = s->remove_extra_whitespaces = s->lowercase =
        s->strip_accents = -1;
}

static int load_tokens(tok *t, const tok_vocab_source *s, err *e) {
    size_t bytes = 0;
    int    rc;
    if (s->n_tokens > TOK_MAX_TOKENS) return err_set(e, ERR_LIMIT, "%zu tokens are too many", s->n_tokens);
    for (size_t i = 0; i < s->n_tokens; i++) bytes += s->tokens[i].len;
    if (!vocab_reserve(&t->v, (uint32_t)s->n_tokens, bytes, s->scores != NULL)) return err_set_nomem(e);
    for (size_t i = 0; i < s->n_tokens; i++) {
        int type = s->types ? s->types[i] : TOK_NORMAL;
        if (type < TOK_UNDEFINED || type > TOK_BYTE) type = TOK_UNDEFINED;
        double score = s->scores ? (double)s->scores[i] : 0;
        if (score != score) return err_set(e, ERR_FORMAT, "the score of token %zu is not a number", i);
        if ((rc = vocab_set(&t->v, (uint32_t)i, s->tokens[i].data, s->tokens[i].len, (tok_class)type, score, e)) < 0)
            return rc;
    }
    return vocab_index(&t->v, e);
}

/* ---- merges; texts that are not tokens become extra symbols ---- */

typedef struct extras {
    map    ids;
    view  *texts;
    size_t n, cap;
    char **owned; /* joined texts */
    size_t n_owned, owned_cap;
} extras;

static int64_t symbol_of(tok *t, extras *x, view text) {
    uint64_t value;
    int32_t  id = vocab_find(&t->v, text.data, text.len);
    if (id >= 0) return id;
    if (map_get(&x->ids, text.data, text.len, &value)) return (int64_t)value;
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 64;
        view  *p = realloc(x->texts, cap * sizeof *p);
        if (!p) return -1;
        x->texts = p;
        x->cap = cap;
    }
    x->texts[x->n] = text;
    value = (uint64_t)t->v.n + x->n++;
    return map_put(&x->ids, text.data, text.len, value) ? (int64_t)value : -1;
}

/* The symbol of a joined text: a token mostly, else an extra with a text of its own. */
static int64_t symbol_of_pair(tok *t, extras *x, view a, view b, str *joined) {
    str_clear(joined);
    str_append(joined, a.data, a.len);
    str_append(joined, b.data, b.len);
    if (!str_ok(joined)) return -1;
    int32_t id = vocab_find(&t->v, str_cstr(joined), joined->len);
    if (id >= 0) return id;
    uint64_t value;
    if (map_get(&x->ids, str_cstr(joined), joined->len, &value)) return (int64_t)value;
    char *own = arena_strndup(&t->names, str_cstr(joined), joined->len);
    return own ? symbol_of(t, x, (view){ own, joined->len }) : -1;
}

static int load_merges(tok *t, const tok_vocab_source *s, extras *x, err *e) {
    str joined;
    int rc = bpe_merges_reserve(t, s->n_merges, e);
    str_init(&joined);
    for (size_t i = 0; i < s->n_merges && rc == 0; i++) {
        view        m = s->merges[i];
        const char *space = m.len > 1 ? memchr(m.data + 1, ' ', m.len - 1) : NULL;
        if (!space) {
            rc = err_set(e, ERR_FORMAT, "merge %zu ('%.*s') has no space between its parts", i,
                         (int)(m.len < 60 ? m.len : 60), m.data);
            break;
        }
        view    a = { m.data, (size_t)(space - m.data) }, b = { space + 1, m.len - (size_t)(space - m.data) - 1 };
        int64_t left = symbol_of(t, x, a), right = symbol_of(t, x, b), whole = symbol_of_pair(t, x, a, b, &joined);
        if (left < 0 || right < 0 || whole < 0)
            rc = err_set_nomem(e);
        else
            bpe_merge_add(t, (uint32_t)left, (uint32_t)right, (uint32_t)i, (uint32_t)whole);
    }
    str_deinit(&joined);
    return rc;
}

/* Bytes that are not tokens keep their place while merging, then come out as nothing. */
static int extra_bytes(tok *t, extras *x, err *e) {
    for (unsigned b = 0; b < 256; b++) {
        str one;
        str_init(&one);
        str_put_utf8(&one, byte_to_char[b]);
        if (!str_ok(&one)) return err_set_nomem(e);
        if (vocab_find(&t->v, str_cstr(&one), one.len) < 0) {
            char   *own = arena_strndup(&t->names, str_cstr(&one), one.len);
            int64_t id = own ? symbol_of(t, x, (view){ own, one.len }) : -1;
            if (id < 0) {
                str_deinit(&one);
                return err_set_nomem(e);
            }
            t->base[b] = (uint32_t)id;
        }
        str_deinit(&one);
    }
    return 0;
}

static int finish_extras(tok *t, extras *x, err *e) {
    size_t total = 0, k = 0;
    for (size_t i = 0; i < x->n; i++) total += x->texts[i].len;
    t->extra_off = calloc(x->n + 1, sizeof *t->extra_off);
    t->extra_ids = calloc(total + 1, sizeof *t->extra_ids);
    if (!t->extra_off || !t->extra_ids) return err_set_nomem(e);
    for (size_t i = 0; i < x->n; i++) {
        t->extra_off[i] = (uint32_t)k;
        for (size_t j = 0; j < x->texts[i].len; j++) {
            int32_t id = vocab_find(&t->v, x->texts[i].data + j, 1);
            if (id >= 0) t->extra_ids[k++] = id;
        }
    }
    t->extra_off[x->n] = (uint32_t)k;
    t->n_extra = (uint32_t)x->n;
    return 0;
}

static int setup_bpe(tok *t, const tok_vocab_source *s, const pre_name *p, err *e) {
    extras x = { 0 };
    int    rc = 0;
    t->model = MODEL_BPE;
    t->byte_level = !p->raw_utf8;
    t->ignore_merges = p->ignore_merges;
    t->byte_fallback = p->raw_utf8;
    t->newline_words = p->raw_utf8;
    t->kind_name = t->byte_level ? "byte-level bpe" : "bpe";
    map_init(&x.ids);
    if (s->n_merges == 0 &&
        strcmp(p->name, "kimi-k2") == 0) { /* its ids are ranks, and some files leave the merges out */
        t->ignore_merges = true;
        rc = bpe_merges_from_ranks(t, e);
    } else {
        rc = s->n_merges ? load_merges(t, s, &x, e)
                         : err_set(e, ERR_FORMAT, "the vocabulary has no merges (tokenizer.ggml.merges)");
    }
    if (rc == 0 && t->byte_level) rc = extra_bytes(t, &x, e);
    if (rc == 0) rc = finish_extras(t, &x, e);
    map_deinit(&x.ids);
    free(x.texts);
    if (rc < 0) return rc;
    if (p->raw_utf8) {
        norm_step *n = tok_norm_add(t, NORM_REPLACE, e);
        dec_step  *d = tok_dec_add(t, DEC_REPLACE, e), *f = tok_dec_add(t, DEC_BYTE_FALLBACK, e);
        if (!n || !d || !f) return ERR_LIMIT;
        n->pattern = d->content = view_of(" ");
        n->content = d->pattern = view_of(ESCAPED_SPACE);
    } else if (!tok_dec_add(t, DEC_BYTE_LEVEL, e)) {
        return ERR_LIMIT;
    }
    return pre_name_apply(t, p, e);
}

static int add_spaces(tok *t, bool prefix, bool remove_extra, bool use_map, err *e) {
    norm_step *n = tok_norm_add(t, NORM_SPACES, e);
    dec_step  *d = tok_dec_add(t, DEC_REPLACE, e), *f = tok_dec_add(t, DEC_BYTE_FALLBACK, e),
             *st = tok_dec_add(t, DEC_STRIP, e);
    if (!n || !d || !f || !st) return ERR_LIMIT;
    n->dummy_prefix = prefix;
    n->remove_extra = remove_extra;
    n->escape = true;
    n->use_charsmap = use_map;
    d->pattern = view_of(ESCAPED_SPACE);
    d->content = view_of(" ");
    st->fused = st->every = true;
    st->ch = ' ';
    st->start = prefix ? 1 : 0;
    return 0;
}

static int setup_spm(tok *t, const tok_vocab_source *s, err *e) {
    t->model = MODEL_SPM;
    t->kind_name = "sentencepiece bpe";
    t->byte_fallback = true;
    return add_spaces(t, s->add_space_prefix != 0, false, false, e);
}

static int setup_unigram(tok *t, const tok_vocab_source *s, err *e) {
    int rc;
    t->model = MODEL_UNIGRAM;
    t->kind_name = "unigram";
    if ((rc = charsmap_open(&t->map, s->charsmap.data, s->charsmap.len, e)) < 0) return rc;
    return add_spaces(t, s->add_space_prefix > 0, s->remove_extra_whitespaces > 0, true, e);
}

static int setup_bert(tok *t, const tok_vocab_source *s, err *e) {
    norm_step *n = tok_norm_add(t, NORM_BERT, e);
    pre_step  *w = tok_pre_add(t, PRE_WHITESPACE_SPLIT, e), *p = tok_pre_add(t, PRE_PUNCTUATION, e);
    dec_step  *d = tok_dec_add(t, DEC_WORD_START, e);
    if (!n || !w || !p || !d) return ERR_LIMIT;
    t->model = MODEL_WORDPIECE;
    t->kind_name = "wordpiece";
    t->max_word_chars = 100;
    n->clean = n->chinese = true;
    n->lower = s->lowercase != 0;
    n->strip_accents = s->strip_accents >= 0 ? s->strip_accents : n->lower;
    w->behavior = SPLIT_REMOVED;
    d->pattern = view_of(ESCAPED_SPACE);
    d->cleanup = true;
    return 0;
}

/* ---- special tokens ---- */

static int32_t id_or(const tok *t, int64_t given, int32_t dflt) {
    if (given >= 0 && given < t->v.n) return (int32_t)given;
    return dflt >= 0 && (uint32_t)dflt < t->v.n ? dflt : -1;
}

/* Texts by which end tokens are known where the file does not mark them. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};
static const char *const turn_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"
};
/* Shown as text although files mark them as control. */
static const char *const shown_texts[] = { "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>" };

static int32_t find_c(const tok *t, const char *text) { return vocab_find(&t->v, text, strlen(text)); }

/* A token of this text that may be an end token: any if `mark`, else only one that is special already. */
static int32_t end_candidate(const tok *t, const char *text, bool mark) {
    int32_t id = find_c(t, text);
    return id >= 0 && (mark || vocab_class(&t->v, (uint32_t)id) == TOK_CONTROL) ? id : -1;
}

int tok_known_ends(tok *t, bool mark, err *e) {
    bool harmony = find_c(t, "<|end|>") >= 0 && ((find_c(t, "<|return|>") >= 0 && find_c(t, "<|call|>") >= 0) ||
                                                 (find_c(t, "<|calls|>") >= 0 && find_c(t, "<|flush|>") >= 0));
    bool gemma4 = find_c(t, "<|tool_response>") >= 0;
    for (size_t i = 0; t->eot < 0 && i < sizeof turn_texts / sizeof turn_texts[0]; i++) {
        t->eot = end_candidate(t, turn_texts[i], mark);
        if (t->eot >= 0 && mark) t->v.cls[t->eot] = TOK_CONTROL;
    }
    if (t->eom < 0) t->eom = end_candidate(t, "<|eom_id|>", mark);
    for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++) {
        int32_t id = end_candidate(t, end_texts[i], mark);
        if (id < 0) continue;
        if (harmony && strcmp(end_texts[i], "<|end|>") == 0) { /* ends a message there, not the answer */
            if (mark) t->v.cls[id] = TOK_USER;
            if (t->eot == id) t->eot = -1;
            continue;
        }
        if (gemma4 && strcmp(end_texts[i], "</s>") == 0) continue;
        if (mark) t->v.cls[id] = TOK_CONTROL;
        if (tok_add_end(t, id) < 0) return err_set_nomem(e);
    }
    return 0;
}

static int setup_ends(tok *t, const tok_vocab_source *s, err *e) {
    int rc = tok_known_ends(t, true, e);
    if (rc < 0) return rc;
    for (size_t i = 0; i < sizeof shown_texts / sizeof shown_texts[0]; i++) {
        int32_t id = find_c(t, shown_texts[i]);
        if (id >= 0) t->v.cls[id] = TOK_USER;
    }
    for (size_t i = 0; i < s->n_end_ids; i++) {
        if (tok_add_end(t, s->end_ids[i]) < 0) return err_set_nomem(e);
    }
    return 0;
}

/* White space around special tokens that models swallow and a GGUF cannot say. */
static void set_strips(added_token *a, view pre, view name) {
    bool phi3 = name.len && (memmem(name.data, name.len, "phi-3", 5) || memmem(name.data, name.len, "Phi-3", 5) ||
                             memmem(name.data, name.len, "phi3", 4) || memmem(name.data, name.len, "Phi3", 4));
    bool jina = view_eq_c(pre, "jina-v2-de") || view_eq_c(pre, "jina-v2-es") || view_eq_c(pre, "jina-v2-code");
    if (jina) a->lstrip = view_eq_c(a->content, "<mask>");
    if (view_eq_c(pre, "modern-bert")) a->lstrip = view_eq_c(a->content, "[MASK]");
    if (phi3)
        a->rstrip =
            !view_eq_c(a->content, "<unk>") && !view_eq_c(a->content, "<s>") && !view_eq_c(a->content, "<|endoftext|>");
}

static int collect_added(tok *t, const tok_vocab_source *s, err *e) {
    size_t n = 0;
    for (uint32_t id = 0; id < t->v.n; id++) {
        tok_class k = vocab_class(&t->v, id);
        n += k == TOK_CONTROL || k == TOK_USER || k == TOK_UNKNOWN;
    }
    t->added = calloc(n + 1, sizeof *t->added);
    if (!t->added) return err_set_nomem(e);
    for (uint32_t id = 0; id < t->v.n; id++) {
        tok_class k = vocab_class(&t->v, id);
        view      text = vocab_text(&t->v, id);
        if ((k != TOK_CONTROL && k != TOK_USER && k != TOK_UNKNOWN) || text.len == 0 || text.len > TOK_MAX_ADDED_BYTES)
            continue;
        t->added[t->n_added++] = (added_token){ .id = (int32_t)id, .content = text, .special = k != TOK_USER };
        set_strips(&t->added[t->n_added - 1], s->pre, s->name);
    }
    return 0;
}

static int setup_special(tok *t, const tok_vocab_source *s, const pre_name *p, err *e) {
    bool bert = t->model == MODEL_WORDPIECE, spm = t->model == MODEL_SPM, ugm = t->model == MODEL_UNIGRAM;
    bool plain = t->model == MODEL_BPE && t->byte_level;
    bool add_bos = spm || bert, add_eos = ugm;
    t->bos = id_or(t, s->bos, spm ? 1 : bert ? 101 : plain && !(p && p->no_bos_id) ? 11 : -1);
    t->eos = id_or(t, s->eos, spm ? 2 : ugm ? 1 : plain ? 11 : -1);
    t->unk = id_or(t, s->unk, spm ? 0 : ugm ? 2 : bert ? 100 : -1);
    t->sep = id_or(t, s->sep, bert ? 102 : -1);
    t->pad = id_or(t, s->pad, ugm || bert ? 0 : -1);
    t->mask = id_or(t, s->mask, bert ? 103 : -1);
    t->eot = id_or(t, s->eot, -1);
    t->eom = id_or(t, s->eom, -1);
    if (p) add_bos = add_bos || p->add_bos;
    if (s->add_bos >= 0 && !(p && p->raw_utf8 && p->add_bos)) add_bos = s->add_bos; /* gemma4 always begins with BOS */
    if (s->add_eos >= 0) add_eos = s->add_eos;
    if (t->model == MODEL_BPE && t->byte_level) t->unk = -1; /* bytes are never unknown */
    if (bert) { /* CLS text SEP, whatever the file says about BOS and EOS */
        add_bos = true;
        add_eos = false;
    }
    if (add_bos && t->bos >= 0) t->before[t->n_before++] = t->bos;
    if (add_eos && t->eos >= 0) t->after[t->n_after++] = t->eos;
    if (bert && t->sep >= 0) t->after[t->n_after++] = t->sep; /* elsewhere it stands between pairs of texts only */
    t->add_bos = t->n_before > 0;
    t->add_eos = t->n_after > 0;
    return setup_ends(t, s, e);
}

static int build(tok *t, const tok_vocab_source *s, const tok_options *o, err *e) {
    const pre_name *p = NULL;
    view            pre = o && o->pre ? view_of(o->pre) : s->pre;
    int             rc;
    t->gguf_added = true;
    if ((rc = load_tokens(t, s, e)) < 0) return rc;
    if (view_eq_c(s->model, "gpt2") || view_eq_c(s->model, "gemma4")) {
        if (view_eq_c(s->model, "gemma4") && !(o && o->pre)) pre = view_of("gemma4");
        if (pre.len == 0) pre = view_of("default");
        p = pre_name_find(pre);
        if (!p)
            return err_set(e, ERR_UNSUPPORTED,
                           "the pre-tokenizer '%.*s' is not known; --pre NAME overrides it with a known one (for "
                           "example llama-bpe, qwen2, gpt-2)",
                           (int)(pre.len < 60 ? pre.len : 60), pre.data);
        rc = setup_bpe(t, s, p, e);
    } else if (o && o->pre) {
        return err_set(e, ERR_ARG,
                       "--pre applies to byte-level BPE; this vocabulary ('%.*s') has no pre-tokenizer to name",
                       (int)(s->model.len < 60 ? s->model.len : 60), s->model.data);
    } else if (view_eq_c(s->model, "llama")) {
        rc = setup_spm(t, s, e);
    } else if (view_eq_c(s->model, "t5")) {
        rc = setup_unigram(t, s, e);
    } else if (view_eq_c(s->model, "bert")) {
        rc = setup_bert(t, s, e);
    } else {
        return err_set(e, ERR_UNSUPPORTED, "the tokenizer model '%.*s' is not supported",
                       (int)(s->model.len < 60 ? s->model.len : 60), s->model.data);
    }
    if (rc < 0 || (rc = setup_special(t, s, p, e)) < 0 || (rc = collect_added(t, s, e)) < 0) return rc;
    return tok_finish(t, e);
}

int tok_open_vocab(tok **out, const tok_vocab_source *source, const tok_options *o, err *e) {
    tok_vocab_source own = *source;
    /* Ollama's files of Gemma 4; SentencePiece has no pre-tokenizer. */
    if (view_eq_c(own.model, "llama") && view_eq_c(own.pre, "gemma4") && own.n_merges) own.model = view_of("gemma4");
    tok *t = tok_new();
    int  rc = t ? build(t, &own, o, e) : err_set_nomem(e);
    *out = NULL;
    if (rc < 0) {
        tok_free(t);
        return err_wrap(e, rc, "tokenizer");
    }
    *out = t;
    return 0;
}

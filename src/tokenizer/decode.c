/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From ids to text. Every decoder step works on one token, given whether it is the first and the last one, so the same
 * code serves whole sequences and streams. Bytes that do not form valid UTF-8 come out as U+FFFD, one per broken
 * sequence; a run of byte tokens that is not valid as a whole as one per byte.
 */
#include "tokenizer/internal.h"

#include <string.h>

typedef struct where {
    bool first, last, after_special;
} where;

/* Empties a scratch string between tokens but, unlike str_clear, remembers an allocation that failed: whoever decodes asks
 * once at the end (scratch_ok). */
static void scratch_clear(str *s) {
    s->len = 0;
    if (s->data) s->data[0] = '\0';
}

static void scratch_begin(tok_ctx *c) {
    str_clear(&c->word);
    str_clear(&c->tmp);
}

static bool scratch_ok(const tok_ctx *c) { return str_ok(&c->word) && str_ok(&c->tmp); }

static void replace_all(str *s, str *tmp, view what, view with) {
    const char *hit;
    size_t      from = 0;
    if (what.len == 0 || s->len == 0 || !memmem(s->data, s->len, what.data, what.len)) return;
    scratch_clear(tmp);
    while (from < s->len && (hit = memmem(s->data + from, s->len - from, what.data, what.len))) {
        str_append(tmp, s->data + from, (size_t)(hit - (s->data + from)));
        str_append(tmp, with.data, with.len);
        from = (size_t)(hit - s->data) + what.len;
    }
    str_append(tmp, s->data + from, s->len - from);
    str swap = *s;
    *s = *tmp;
    *tmp = swap;
}

static void replace_regex(const dec_step *d, str *s, tok_ctx *c) {
    size_t from = 0, kept = 0, start, end;
    str   *tmp = &c->tmp;
    scratch_clear(tmp);
    while (from <= s->len && regex_next(d->re, c, str_cstr(s), s->len, from, &start, &end, NULL) > 0) {
        str_append(tmp, s->data + kept, start - kept);
        str_append(tmp, d->content.data, d->content.len);
        kept = from = end;
        if (start == end) from += end < s->len ? utf8_length((uint8_t)s->data[end]) : 1;
    }
    if (s->len) str_append(tmp, s->data + kept, s->len - kept);
    str swap = *s;
    *s = *tmp;
    *tmp = swap;
}

static void prepend(str *s, str *tmp, const char *text) {
    scratch_clear(tmp);
    str_puts(tmp, text);
    if (s->len) str_append(tmp, s->data, s->len);
    str swap = *s;
    *s = *tmp;
    *tmp = swap;
}

static void cut_front(str *s, size_t n) {
    memmove(s->data, s->data + n, s->len - n);
    s->len -= n;
    s->data[s->len] = '\0';
}

static void strip_chars(const dec_step *d, str *s, bool left, bool right) {
    char   ch[8] = { 0 };
    str    one;
    size_t n, cut = 0, end;
    str_init(&one);
    str_put_utf8(&one, d->ch);
    s->failed |= one.failed;
    n = one.len < sizeof ch ? one.len : 0;
    memcpy(ch, str_cstr(&one), n);
    str_deinit(&one);
    if (n == 0 || s->len == 0) return;
    for (size_t i = 0; left && i < d->start && s->len - cut >= n && memcmp(s->data + cut, ch, n) == 0; i++) cut += n;
    end = s->len;
    for (size_t i = 0; right && i < d->stop && end - cut >= n && memcmp(s->data + end - n, ch, n) == 0; i++) end -= n;
    s->len = end;
    s->data[end] = '\0';
    if (cut) cut_front(s, cut);
}

/* English punctuation joins the word before it, as BERT's decoder does. */
static void cleanup(str *s, str *tmp) {
    static const char *const rules[][2] = { { " .", "." },     { " ?", "?" },           { " !", "!" },
                                            { " ,", "," },     { " ' ", "'" },          { " n't", "n't" },
                                            { " 'm", "'m" },   { " do not", " don't" }, { " 's", "'s" },
                                            { " 've", "'ve" }, { " 're", "'re" } };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        replace_all(s, tmp, view_of(rules[i][0]), view_of(rules[i][1]));
}

static bool is_prefix(const str *s, view p) { return s->len >= p.len && p.len && memcmp(s->data, p.data, p.len) == 0; }

/* One step over the token in s. Sets *byte to the value of a byte token. */
static void step(const tok *t, const dec_step *d, str *s, where w, int *byte, tok_ctx *c) {
    str *tmp = &c->tmp;
    (void)t;
    switch (d->kind) {
    case DEC_BYTE_LEVEL: {
        scratch_clear(tmp);
        if (byte_level_decode((view){ str_cstr(s), s->len }, tmp)) {
            str swap = *s;
            *s = *tmp;
            *tmp = swap;
        }
        break;
    }
    case DEC_METASPACE: replace_all(s, tmp, d->pattern, w.first && d->scheme != 0 ? view_of("") : view_of(" ")); break;
    case DEC_WORDPIECE:
        if (!w.first) {
            if (is_prefix(s, d->pattern))
                cut_front(s, d->pattern.len);
            else
                prepend(s, tmp, " ");
        }
        if (d->cleanup) cleanup(s, tmp);
        break;
    case DEC_WORD_START:
        if (is_prefix(s, d->pattern)) {
            cut_front(s, d->pattern.len);
            if (!w.first) prepend(s, tmp, " ");
        } else if (!w.first && s->len && s->data[0] == '[' && w.after_special) {
            prepend(s, tmp, " ");
        }
        if (d->cleanup) cleanup(s, tmp);
        break;
    case DEC_BPE: replace_all(s, tmp, d->pattern, w.last ? view_of("") : view_of(" ")); break;
    case DEC_REPLACE:
        if (d->re)
            replace_regex(d, s, c);
        else
            replace_all(s, tmp, d->pattern, d->content);
        break;
    case DEC_BYTE_FALLBACK: *byte = byte_token_value((view){ str_cstr(s), s->len }); break;
    case DEC_FUSE: break;
    case DEC_STRIP:
        if (!d->fused)
            strip_chars(d, s, true, true);
        else
            strip_chars(d, s, w.first || (d->every && w.after_special), w.last);
        break;
    case DEC_JOIN_SPACE:
        if (!w.first) prepend(s, tmp, " ");
        break;
    }
}

/* The token's text into s; *byte >= 0 says that it is that byte instead. */
static void decode_token(const tok *t, int32_t id, where w, str *s, int *byte, tok_ctx *c) {
    *byte = -1;
    scratch_clear(s);
    view text = vocab_text(&t->v, (uint32_t)id);
    if (t->unk_surface.data && vocab_class(&t->v, (uint32_t)id) == TOK_UNKNOWN) {
        str_append(s, t->unk_surface.data, t->unk_surface.len);
        return;
    }
    if (t->shown && t->shown[id] >= 0) text = t->added[t->shown[id]].content;
    if (!(t->shown && t->shown[id] >= 0) && t->raw_off && t->n_dec && t->dec[0].kind == DEC_BYTE_LEVEL &&
        t->n_dec == 1) {
        str_append(s, t->raw.data + t->raw_off[id], t->raw_off[id + 1] - t->raw_off[id]);
        return;
    }
    str_append(s, text.data, text.len);
    if (t->gguf_added && vocab_class(&t->v, (uint32_t)id) == TOK_CONTROL && t->model != MODEL_WORDPIECE) return;
    for (size_t i = 0; i < t->n_dec && *byte < 0; i++) step(t, &t->dec[i], s, w, byte, c);
}

static bool in_range(const tok *t, int32_t id, err *e) {
    if (id >= 0 && (uint32_t)id < t->v.n) return true;
    err_set(e, ERR_ARG, "token id %d is beyond the vocabulary (%u tokens)", id, t->v.n);
    return false;
}

/* Appends bytes as valid UTF-8. With `rest`, an unfinished sequence at the end is kept back there; else it is broken.
 */
static void put_lossy(const char *p, size_t n, str *out, tok_stream *rest) {
    while (n) {
        size_t valid = utf8_valid_prefix(p, n);
        str_append(out, p, valid);
        p += valid;
        n -= valid;
        if (n == 0) break;
        size_t broken = utf8_broken_length(p, n);
        if (broken == 0 && rest && n <= sizeof rest->held) {
            memcpy(rest->held, p, n);
            rest->n_held = (unsigned)n;
            return;
        }
        str_put_utf8(out, 0xFFFD);
        if (broken == 0) broken = n;
        p += broken;
        n -= broken;
    }
}

static void flush_bytes(str *run, str *raw) {
    if (run->len == 0) return;
    if (utf8_valid_prefix(run->data, run->len) == run->len) {
        str_append(raw, run->data, run->len);
    } else {
        for (size_t i = 0; i < run->len; i++) str_put_utf8(raw, 0xFFFD);
    }
    scratch_clear(run);
}

int tok_decode(const tok *t, const int32_t *ids, size_t count, bool skip_special, str *out, err *e) {
    str      raw, run;
    tok_ctx *c = tok_ctx_take(t);
    where    w = { .first = true, .after_special = true };
    size_t   end = count;
    int      rc = 0, byte;
    if (!c) return err_set_nomem(e);
    scratch_begin(c);
    str_init(&raw);
    str_init(&run);
    while (end > 0 && skip_special && tok_is_special(t, ids[end - 1])) end--; /* so that `last` is the last one shown */
    for (size_t i = 0; i < count && rc == 0; i++) {
        if (!in_range(t, ids[i], e)) {
            rc = ERR_ARG;
            break;
        }
        bool special = tok_is_special(t, ids[i]);
        if (special && skip_special) {
            w.after_special = true;
            continue;
        }
        w.last = i + 1 == end;
        decode_token(t, ids[i], w, &c->word, &byte, c);
        if (byte >= 0) {
            str_push(&run, (char)byte);
        } else {
            flush_bytes(&run, &raw);
            str_append(&raw, str_cstr(&c->word), c->word.len);
        }
        w.first = w.first && t->strip_lead && raw.len + run.len == 0;
        w.after_special = special;
    }
    flush_bytes(&run, &raw);
    if (rc == 0) put_lossy(str_cstr(&raw), raw.len, out, NULL);
    if (rc == 0 && (!str_ok(&raw) || !str_ok(&run) || !str_ok(out) || !scratch_ok(c))) rc = err_set_nomem(e);
    str_deinit(&raw);
    str_deinit(&run);
    tok_ctx_give(t, c);
    return rc;
}

bool tok_bytes(const tok *t, int32_t id, str *out) {
    tok_ctx *c;
    int      byte;
    if (id < 0 || (uint32_t)id >= t->v.n || !(c = tok_ctx_take(t))) return false;
    scratch_begin(c);
    decode_token(t, id, (where){ 0 }, &c->word, &byte, c);
    if (byte >= 0)
        str_push(out, (char)byte);
    else
        str_append(out, str_cstr(&c->word), c->word.len);
    bool ok = scratch_ok(c) && str_ok(out);
    tok_ctx_give(t, c);
    return ok;
}

/* ---- streams ---- */

void tok_stream_init(tok_stream *s, const tok *t, bool skip_special) {
    *s = (tok_stream){ .t = t, .skip_special = skip_special, .first = true, .after_special = true };
}

int tok_stream_push(tok_stream *s, int32_t id, str *out, err *e) {
    int      byte;
    tok_ctx *c;
    if (!in_range(s->t, id, e)) return ERR_ARG;
    bool special = tok_is_special(s->t, id);
    if (special && s->skip_special) {
        s->after_special = true;
        return 0;
    }
    if (!(c = tok_ctx_take(s->t))) return err_set_nomem(e);
    scratch_begin(c);
    decode_token(s->t, id, (where){ .first = s->first, .after_special = s->after_special }, &c->word, &byte, c);
    s->first = s->first && s->t->strip_lead && c->word.len == 0 && byte < 0;
    s->after_special = special;
    /* What was held back comes first. */
    str_clear(&c->norm);
    str_append(&c->norm, s->held, s->n_held);
    s->n_held = 0;
    if (byte >= 0)
        str_push(&c->norm, (char)byte);
    else
        str_append(&c->norm, str_cstr(&c->word), c->word.len);
    put_lossy(str_cstr(&c->norm), c->norm.len, out, s);
    bool ok = str_ok(&c->norm) && scratch_ok(c) && str_ok(out);
    tok_ctx_give(s->t, c);
    return ok ? 0 : err_set_nomem(e);
}

void tok_stream_finish(tok_stream *s, str *out) {
    put_lossy((const char *)s->held, s->n_held, out, NULL);
    s->n_held = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of one answer, token by token; see constraint.h.
 *
 * Free phases (FREE, THINKING) only watch the text for the marker that ends them. In a bound phase one or more tracks
 * say what may come: each is a row of fixed tokens, then a grammar or nothing (free text follows). A token that a track
 * does not allow ends that track; while several live, their masks are joined.
 *
 * Every token can be taken back. A step keeps what its token did to the place it was read in; a place that was left
 * (with its tracks) is kept behind the present one and comes back when the token that ended it goes. So taking back is
 * exact, allocates nothing and cannot fail; the memory grows with the tokens of the answer.
 */
#include "chat/constraint.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TRACKS = 3, MAX_GAP = 2 };

typedef enum phase { FREE, THINKING, CLOSING, BOUND } phase;

typedef enum track_end { END_GRAMMAR, END_FREE, END_THINKING } track_end;

typedef struct track {
    tok_ids          fixed;
    size_t           at; /* fixed tokens accepted */
    track_end        end;
    grammar_matcher *m;
    bool             alive;
} track;

/* A phase and all that changes within it. */
typedef struct place {
    phase  now;
    track  tracks[MAX_TRACKS];
    size_t n_tracks, closing_at, n_thoughts;
    size_t start;  /* the number of the first token that is read here */
    size_t answer; /* where the answer proper begins in text */
    int    gap_left;
} place;

typedef struct step {
    int32_t  token;
    uint32_t text_len;              /* before it */
    uint8_t  fixed, matched, lived; /* tracks, one bit each: which took it so; which lived before it */
    bool     gap, counted;          /* counted: as a thought, or as a token that closes them */
    bool     switched;              /* it ended its place */
} step;

struct chat_guide {
    chat_format          f;
    const tok           *t;
    const grammar_vocab *text_vocab, *marker_vocab;
    grammar             *calls, *content;
    const char          *think_open, *think_close;
    bool                 automatic, required;          /* calls: when the marker appears; and nothing else */
    bool                 starts_inside, off, channels; /* channels: Harmony that must choose one */
    int                  budget;
    int32_t              gaps[3];
    size_t               n_gaps, n_words;

    /* From here on, what a clone makes anew. */
    tok_ids   closing;
    uint32_t *scratch;

    place  here;
    place *left; /* the places before it, oldest first */
    size_t n_left, cap_left;
    bool   accepting, switched; /* a token is being accepted; it ended its place */
    size_t watch;               /* text before that token: markers are looked for around here */
    str    text;
    step  *steps;
    size_t n_steps, cap_steps;
};

/* --- the text of tokens --- */

static void put_token(const tok *t, int32_t id, str *out) {
    size_t before = out->len;
    if (!tok_is_special(t, id) && tok_bytes(t, id, out) && out->len > before) return;
    view v = tok_text(t, id);
    str_append(out, v.data, v.len);
}

/* A control token counts as text when it is a part of one of the format's markers. */
static bool is_marker(const chat_format *f, view text) {
    const char *m;
    if (text.len == 0) return false;
    for (size_t i = 0; (m = chat_format_marker(f, i)) != NULL; i++) {
        if (memmem(m, strlen(m), text.data, text.len)) return true;
    }
    return false;
}

int chat_vocab_open(grammar_vocab **out, const chat_format *f, const tok *t, err *e) {
    size_t         n = (size_t)tok_count(t), n_ends;
    const int32_t *ends = tok_end_ids(t, &n_ends);
    view          *texts = calloc(n ? n : 1, sizeof *texts);
    size_t        *offsets = calloc(n + 1, sizeof *offsets);
    str            all;
    int            rc;
    *out = NULL;
    str_init(&all);
    for (size_t i = 0; texts && offsets && i < n; i++) {
        int32_t   id = (int32_t)i;
        tok_class k = tok_class_of(t, id);
        if (tok_is_end(t, id)) {
        } else if (k == TOK_CONTROL || tok_is_special(t, id)) {
            if (is_marker(f, tok_text(t, id))) str_append(&all, tok_text(t, id).data, tok_text(t, id).len);
        } else if (k != TOK_UNKNOWN && k != TOK_UNUSED && k != TOK_UNDEFINED) {
            put_token(t, id, &all);
        }
        offsets[i + 1] = all.len;
    }
    if (!texts || !offsets || all.failed) {
        rc = err_set_nomem(e);
    } else {
        for (size_t i = 0; i < n; i++) texts[i] = (view){ all.data + offsets[i], offsets[i + 1] - offsets[i] };
        rc = grammar_vocab_open_texts(out, texts, n, ends, n_ends, e);
    }
    free(texts);
    free(offsets);
    str_deinit(&all);
    return rc;
}

/* --- phases --- */

static void drop_tracks(place *p) {
    for (size_t i = 0; i < p->n_tracks; i++) {
        grammar_matcher_free(p->tracks[i].m);
        tok_ids_deinit(&p->tracks[i].fixed);
    }
    memset(p->tracks, 0, sizeof p->tracks);
    p->n_tracks = 0;
}

/* The token that is being accepted still belongs to the place that is left, for which there is room. */
static void enter(chat_guide *c, phase p) {
    if (c->accepting && !c->switched) {
        c->left[c->n_left++] = c->here;
        c->switched = true;
    } else {
        drop_tracks(&c->here);
    }
    c->here = (place){ .now = p, .start = c->n_steps + 1, .answer = c->here.answer };
}

/* Back to the place that was left last. */
static void reenter(chat_guide *c) {
    drop_tracks(&c->here);
    c->here = c->left[--c->n_left];
    c->switched = false;
}

static int add_track(chat_guide *c, const char *fixed, track_end end, grammar *g, const grammar_vocab *v, err *e) {
    track *k = &c->here.tracks[c->here.n_tracks++];
    *k = (track){ .end = end, .alive = true };
    int rc = 0;
    if (fixed) rc = tok_encode(c->t, fixed, strlen(fixed), TOK_PARSE_SPECIAL, &k->fixed, e);
    if (rc == 0 && g) rc = grammar_matcher_open(&k->m, g, v, e);
    return rc;
}

static bool is_bound(const chat_guide *c) { return c->required || c->content || c->channels; }

/* What the answer proper may be, as tracks; with_thoughts: or thoughts before it. */
static int bind(chat_guide *c, bool with_thoughts, err *e) {
    static const char final[] = "<|channel|>final<|message|>";
    int               rc = 0;
    bool              harmony = c->f.syntax == CHAT_SYNTAX_HARMONY;
    enter(c, BOUND);
    if (with_thoughts) rc = add_track(c, c->think_open, END_THINKING, NULL, NULL, e);
    if (rc == 0 && c->calls && (c->required || c->automatic))
        rc = add_track(c, NULL, END_GRAMMAR, c->calls, c->marker_vocab, e);
    if (rc == 0 && !c->required) {
        const char *open = c->f.content_open && c->f.think_anywhere ? c->f.content_open : NULL;
        if (harmony) open = c->channels || !c->off ? final : NULL;
        if (c->content)
            rc = add_track(c, open, END_GRAMMAR, c->content, c->text_vocab, e);
        else
            rc = add_track(c, open, END_FREE, NULL, NULL, e);
    }
    return rc;
}

/* Thoughts are over, or there are none. By the model itself: a line break may follow. */
static int begin_answer(chat_guide *c, bool by_model, err *e) {
    int rc = 0;
    if (is_bound(c)) {
        rc = bind(c, false, e);
        if (by_model) c->here.gap_left = MAX_GAP;
    } else {
        enter(c, FREE);
    }
    c->here.answer = c->text.len;
    return rc;
}

static void begin_thoughts(chat_guide *c) { enter(c, c->budget == 0 ? CLOSING : THINKING); }

static int begin(chat_guide *c, err *e) {
    int rc = 0;
    if (c->starts_inside)
        begin_thoughts(c);
    else if (is_bound(c))
        rc = bind(c, c->think_open && !c->off, e);
    else
        enter(c, FREE);
    c->here.start = 0;
    return rc;
}

/* --- opening --- */

static int find_gaps(chat_guide *c, err *e) {
    static const char *const texts[] = { "\n", "\n\n", " " };
    for (size_t i = 0; i < 3; i++) {
        tok_ids ids = { 0 };
        int     rc = tok_encode(c->t, texts[i], strlen(texts[i]), 0, &ids, e);
        if (rc == 0 && ids.count == 1) c->gaps[c->n_gaps++] = ids.data[0];
        tok_ids_deinit(&ids);
        if (rc < 0) return rc;
    }
    return 0;
}

static int compile_calls(chat_guide *c, const chat_tools *tools, err *e) {
    ir    *g;
    ir_sym start;
    int    rc = ir_open(&g, e);
    if (rc < 0) return rc;
    rc = chat_tool_grammar(&c->f, tools, g, &start, e);
    if (rc == 0) rc = grammar_compile(&c->calls, g, start, e);
    ir_free(g);
    return rc;
}

/* Room for a common answer, so that accepting a token rarely touches the heap. */
static int reserve(chat_guide *c, err *e) {
    enum { STEPS = 1024, PLACES = 8, BYTES = 8192 };
    c->scratch = calloc(c->n_words + 1, sizeof *c->scratch);
    c->steps = malloc(STEPS * sizeof *c->steps);
    c->left = malloc(PLACES * sizeof *c->left);
    if (!c->scratch || !c->steps || !c->left || !str_reserve(&c->text, BYTES)) return err_set_nomem(e);
    c->cap_steps = STEPS;
    c->cap_left = PLACES;
    return 0;
}

static int prepare(chat_guide *c, const chat_guide_options *o, err *e) {
    bool harmony = c->f.syntax == CHAT_SYNTAX_HARMONY, offered = json_count(o->tools.list) > 0;
    int  rc = 0;
    c->think_open = harmony ? "<|channel|>analysis<|message|>" : c->f.think_open;
    c->think_close = harmony ? "<|end|><|start|>assistant" : c->f.think_close;
    c->required = o->tools.choice == CHAT_TOOLS_REQUIRED || o->tools.choice == CHAT_TOOLS_NAMED;
    c->automatic = offered && o->tools.choice == CHAT_TOOLS_AUTO && c->f.row->shape != CHAT_SHAPE_NONE;
    c->channels = harmony && offered && o->reasoning_off;
    if (c->required || c->automatic) {
        if (!o->marker_vocab) return err_set(e, ERR_ARG, "a guide for tool calls needs the vocabulary of markers");
        rc = compile_calls(c, &o->tools, e);
    }
    if (rc == 0 && c->think_open && c->budget >= 0) {
        const char *end = c->f.think_end;
        if (harmony) end = "<|end|><|start|>assistant";
        if (end) rc = tok_encode(c->t, end, strlen(end), TOK_PARSE_SPECIAL, &c->closing, e);
    }
    if (c->closing.count == 0) c->budget = -1;
    if (rc == 0 && is_bound(c)) rc = find_gaps(c, e);
    c->n_words = ((size_t)tok_count(c->t) + 31) / 32;
    if (rc == 0) rc = reserve(c, e);
    return rc == 0 ? begin(c, e) : rc;
}

int chat_guide_open(chat_guide **out, const chat_guide_options *o, err *e) {
    bool offered = json_count(o->tools.list) > 0 && o->tools.choice != CHAT_TOOLS_NONE;
    bool limited = o->budget >= 0 && chat_format_thinks(o->format) && !o->reasoning_off;
    bool calls = offered && (o->format->row->shape != CHAT_SHAPE_NONE || o->tools.choice != CHAT_TOOLS_AUTO);
    *out = NULL;
    if ((o->tools.choice == CHAT_TOOLS_REQUIRED || o->tools.choice == CHAT_TOOLS_NAMED) && !offered)
        return err_set(e, ERR_ARG, "a tool call is required but no tools were offered");
    if (!o->content && !limited && !calls) return 0;
    chat_guide *c = calloc(1, sizeof *c);
    if (!c) return err_set_nomem(e);
    c->f = *o->format;
    c->t = o->t;
    c->text_vocab = o->text_vocab;
    c->marker_vocab = o->marker_vocab;
    c->content = o->content ? grammar_ref(o->content) : NULL;
    c->starts_inside = o->starts_in_reasoning || (c->f.think_implicit && !o->reasoning_off);
    c->off = o->reasoning_off;
    c->budget = o->budget;
    int rc = prepare(c, o, e);
    if (rc < 0) {
        chat_guide_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void chat_guide_free(chat_guide *c) {
    if (!c) return;
    drop_tracks(&c->here);
    for (size_t i = 0; i < c->n_left; i++) drop_tracks(&c->left[i]);
    free(c->left);
    grammar_unref(c->calls);
    grammar_unref(c->content);
    tok_ids_deinit(&c->closing);
    free(c->scratch);
    free(c->steps);
    str_deinit(&c->text);
    free(c);
}

/* --- masks --- */

static void set_bit(uint32_t *mask, int32_t id) { mask[(uint32_t)id >> 5] |= 1u << ((uint32_t)id & 31); }

static bool untouched(const chat_guide *c) { return c->n_steps == c->here.start || c->steps[c->n_steps - 1].gap; }

int chat_guide_mask(chat_guide *c, uint32_t *mask, err *e) {
    if (c->here.now == FREE || c->here.now == THINKING) return 0;
    memset(mask, 0, c->n_words * sizeof *mask);
    if (c->here.now == CLOSING) {
        set_bit(mask, c->closing.data[c->here.closing_at]);
        return 1;
    }
    for (size_t i = 0; i < c->here.n_tracks; i++) {
        track *k = &c->here.tracks[i];
        if (!k->alive) continue;
        if (k->at < k->fixed.count) {
            set_bit(mask, k->fixed.data[k->at]);
            continue;
        }
        if (k->end == END_FREE) return 0; /* no fixed tokens: anything */
        int rc = grammar_matcher_mask(k->m, c->scratch, e);
        if (rc < 0) return rc;
        for (size_t w = 0; w < c->n_words; w++) mask[w] |= c->scratch[w];
    }
    if (c->here.gap_left > 0 && untouched(c)) {
        for (size_t i = 0; i < c->n_gaps; i++) set_bit(mask, c->gaps[i]);
    }
    return 1;
}

bool chat_guide_must_stop(const chat_guide *c) {
    bool any = false;
    if (c->here.now != BOUND) return false;
    for (size_t i = 0; i < c->here.n_tracks; i++) {
        const track *k = &c->here.tracks[i];
        if (!k->alive) continue;
        if (!k->m || k->at < k->fixed.count || !grammar_matcher_must_end(k->m)) return false;
        any = true;
    }
    return any;
}

bool chat_guide_in_reasoning(const chat_guide *c) { return c->here.now == THINKING || c->here.now == CLOSING; }

/* --- watching free text --- */

static const char *find_from(const chat_guide *c, size_t from, const char *what) {
    size_t n = strlen(what), back = n - 1;
    from = from > c->here.answer + back ? from - back : c->here.answer;
    if (from >= c->text.len) return NULL;
    return memmem(c->text.data + from, c->text.len - from, what, n);
}

/* A call has begun here: from now on it must become a valid one. A beginning that is none already stays what it was. */
static bool bind_call(chat_guide *c, const char *from, int *rc, err *e) {
    size_t offset = (size_t)(from - c->text.data);
    enter(c, BOUND);
    *rc = add_track(c, NULL, END_GRAMMAR, c->calls, c->marker_vocab, e);
    if (*rc == 0 && grammar_matcher_accept_bytes(c->here.tracks[0].m, c->text.data + offset, c->text.len - offset))
        return true;
    reenter(c);
    return false;
}

static const char *harmony_call(const chat_guide *c) {
    const char *to = find_from(c, c->watch, " to=functions."), *at;
    if (!to) return NULL;
    /* In a header, not in a message: the last marker before is <|channel|> or <|start|>, or there is none. */
    for (at = to; at > c->text.data; at--) {
        size_t n = (size_t)(to - at);
        if (n >= 11 && memcmp(at, "<|message|>", 11) == 0) return NULL;
        if (n >= 11 && memcmp(at, "<|channel|>", 11) == 0) return at;
        if (n >= 9 && memcmp(at, "<|start|>", 9) == 0) return to;
    }
    return c->text.len >= 11 && memcmp(at, "<|channel|>", 11) == 0 ? at : to;
}

/* Llama 3: an object that has come as far as its parameters, and names an offered tool (the grammar decides that). */
static const char *bare_call(const chat_guide *c) {
    const char *at = c->text.data + c->here.answer, *key;
    while (*at == ' ' || *at == '\n') at++;
    if (*at != '{' || !(key = strstr(at, "\"parameters\""))) return NULL;
    return strchr(key, ':') ? at : NULL;
}

static const char *call_begin(const chat_guide *c) {
    const chat_syntax_row *r = c->f.row;
    const char            *at;
    if (r->shape == CHAT_SHAPE_HARMONY) return harmony_call(c);
    if ((at = find_from(c, c->watch, r->open)) != NULL) return at;
    return r->shape == CHAT_SHAPE_BARE ? bare_call(c) : NULL;
}

static bool thoughts_begin(const chat_guide *c, const char **behind) {
    const char *at;
    if (!c->think_open || c->off) return false;
    if (c->f.think_anywhere || c->f.syntax == CHAT_SYNTAX_HARMONY) {
        at = find_from(c, c->watch, c->think_open);
    } else {
        at = c->text.data + c->here.answer;
        while (*at == ' ' || *at == '\n') at++;
        if (strncmp(at, c->think_open, strlen(c->think_open)) != 0 || c->here.answer > 0) at = NULL;
    }
    if (at) *behind = at + strlen(c->think_open);
    return at != NULL;
}

static int free_token(chat_guide *c, err *e) {
    const char *at;
    int         rc = 0;
    if (thoughts_begin(c, &at)) {
        begin_thoughts(c);
    } else if (c->automatic && (at = call_begin(c)) != NULL) {
        (void)bind_call(c, at, &rc, e);
    }
    return rc;
}

static int thought_token(chat_guide *c, step *s, err *e) {
    size_t      n = strlen(c->think_close), from = c->watch > n ? c->watch - n : 0;
    const char *at = memmem(c->text.data + from, c->text.len - from, c->think_close, n);
    int         rc = 0;
    c->here.n_thoughts++;
    s->counted = true;
    if (at) {
        const char *rest = at + n;
        while (*rest == ' ' || *rest == '\n') rest++;
        rc = begin_answer(c, true, e);
        /* What the token brought beyond the marker already belongs to the answer. */
        for (size_t i = 0; rc == 0 && c->here.now == BOUND && *rest && i < c->here.n_tracks; i++) {
            track *k = &c->here.tracks[i];
            k->alive = k->m && k->fixed.count == 0 && grammar_matcher_accept_bytes(k->m, rest, strlen(rest));
            c->here.gap_left = 0;
        }
        return rc;
    }
    if (c->automatic && !is_bound(c) && c->f.row->special && c->f.syntax != CHAT_SYNTAX_HARMONY &&
        (at = find_from(c, c->watch, c->f.row->open)) != NULL && bind_call(c, at, &rc, e))
        return rc;
    if (rc == 0 && c->budget >= 0 && c->here.n_thoughts >= (size_t)c->budget) enter(c, CLOSING);
    return rc;
}

static int closing_token(chat_guide *c, int32_t token, step *s, err *e) {
    if (token != c->closing.data[c->here.closing_at])
        return err_set(e, ERR_ARG, "the token is not the one that closes the thoughts");
    s->counted = true;
    if (++c->here.closing_at < c->closing.count) return 0;
    bool channels = c->channels;
    c->channels = c->f.syntax == CHAT_SYNTAX_HARMONY; /* not back into the channel for thoughts */
    int rc = begin_answer(c, false, e);
    c->channels = channels;
    return rc;
}

/* --- bound phases --- */

static int bound_token(chat_guide *c, int32_t token, step *s, err *e) {
    bool any = false;
    err  why = { 0 }; /* of a matcher that could not tell */
    for (size_t i = 0; i < c->here.n_tracks; i++) s->lived |= (uint8_t)(c->here.tracks[i].alive << i);
    for (size_t i = 0; i < c->here.n_tracks; i++) {
        track *k = &c->here.tracks[i];
        bool   ok;
        if (!k->alive) continue;
        if (k->at < k->fixed.count) {
            ok = k->fixed.data[k->at] == token;
            k->at += ok;
            s->fixed |= (uint8_t)(ok << i);
        } else {
            err own = { 0 };
            ok = k->m ? grammar_matcher_accept(k->m, token, &own) == 0 : k->end == END_FREE;
            if (own.code && own.code != ERR_ARG) why = own;
            if (k->m) s->matched |= (uint8_t)(ok << i);
        }
        k->alive = ok;
        any = any || ok;
    }
    if (why.code == ERR_NOMEM || (why.code && !any)) {
        if (e) *e = why;
        return why.code;
    }
    if (!any && c->here.gap_left > 0 && untouched(c)) {
        for (size_t i = 0; i < c->n_gaps; i++) s->gap = s->gap || c->gaps[i] == token;
    }
    if (s->gap) { /* nothing was said yet */
        for (size_t i = 0; i < c->here.n_tracks; i++) c->here.tracks[i].alive = s->lived >> i & 1;
        c->here.gap_left--;
        return 0;
    }
    if (!any) return err_set(e, ERR_ARG, "the token is not allowed here");
    for (size_t i = 0; i < c->here.n_tracks; i++) {
        const track *k = &c->here.tracks[i];
        if (!k->alive || k->m || k->at < k->fixed.count) continue;
        if (k->end == END_THINKING) {
            begin_thoughts(c);
        } else {
            enter(c, FREE);
            c->here.answer = c->text.len;
        }
        break;
    }
    return 0;
}

/* --- forward and back --- */

static void cut_text(chat_guide *c, size_t len) {
    c->text.len = len;
    c->text.data[len] = '\0'; /* reserve made room */
}

/* Takes back what a token did, also when it was only half accepted. */
static void undo(chat_guide *c, const step *s) {
    if (s->switched) reenter(c);
    cut_text(c, s->text_len);
    place *p = &c->here;
    if (s->counted && p->now == THINKING) p->n_thoughts--;
    if (s->counted && p->now == CLOSING) p->closing_at--;
    if (p->now != BOUND) return;
    p->gap_left += s->gap;
    for (size_t i = 0; i < p->n_tracks; i++) {
        track *k = &p->tracks[i];
        k->at -= s->fixed >> i & 1;
        if (s->matched >> i & 1) grammar_matcher_rollback(k->m, 1);
        k->alive = s->lived >> i & 1;
    }
}

/* Room for one more step, and for the place that it may end. */
static bool make_room(chat_guide *c) {
    if (c->n_steps == c->cap_steps) {
        step *more = realloc(c->steps, 2 * c->cap_steps * sizeof *more);
        if (!more) return false;
        c->steps = more;
        c->cap_steps *= 2;
    }
    if (c->n_left == c->cap_left) {
        place *more = realloc(c->left, 2 * c->cap_left * sizeof *more);
        if (!more) return false;
        c->left = more;
        c->cap_left *= 2;
    }
    return true;
}

int chat_guide_accept(chat_guide *c, int32_t token, err *e) {
    step s = { .token = token, .text_len = (uint32_t)c->text.len };
    bool end = tok_is_end(c->t, token);
    int  rc = 0;
    if (!make_room(c)) return err_set_nomem(e);
    c->watch = c->text.len;
    if (!end) put_token(c->t, token, &c->text);
    if (c->text.failed) {
        c->text.failed = false;
        cut_text(c, s.text_len);
        return err_set_nomem(e);
    }
    c->accepting = true;
    switch (c->here.now) {
    case FREE: rc = end ? 0 : free_token(c, e); break;
    case THINKING: rc = end ? 0 : thought_token(c, &s, e); break;
    case CLOSING: rc = closing_token(c, token, &s, e); break;
    case BOUND: rc = bound_token(c, token, &s, e); break;
    }
    s.switched = c->switched;
    c->accepting = c->switched = false;
    if (rc < 0) {
        undo(c, &s);
        return rc;
    }
    c->steps[c->n_steps++] = s;
    return 0;
}

void chat_guide_rollback(chat_guide *c, int n_tokens) {
    size_t n = n_tokens < 0 ? 0 : (size_t)n_tokens;
    if (n > c->n_steps) n = c->n_steps;
    for (; n > 0; n--) undo(c, &c->steps[--c->n_steps]);
}

int chat_guide_clone(chat_guide **out, const chat_guide *from, err *e) {
    chat_guide *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return err_set_nomem(e);
    *c = *from;
    memset((char *)c + offsetof(chat_guide, closing), 0, sizeof *c - offsetof(chat_guide, closing));
    c->calls = from->calls ? grammar_ref(from->calls) : NULL;
    c->content = from->content ? grammar_ref(from->content) : NULL;
    int rc = reserve(c, e);
    for (size_t i = 0; rc == 0 && i < from->closing.count; i++) {
        if (!tok_ids_push(&c->closing, from->closing.data[i])) rc = err_set_nomem(e);
    }
    if (rc == 0) rc = begin(c, e);
    for (size_t i = 0; rc == 0 && i < from->n_steps; i++) rc = chat_guide_accept(c, from->steps[i].token, e);
    if (rc < 0) {
        chat_guide_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

size_t chat_guide_bytes(const chat_guide *c) { return c ? grammar_bytes(c->calls) + grammar_bytes(c->content) : 0; }

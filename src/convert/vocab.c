/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/vocab.h"

#include "base/file.h"
#include "base/json.h"
#include "formats/muted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JSON = 256 << 20 };

/* Words, contractions, numbers, spaces, code, several scripts: what the rules for cutting treat differently. */
static const char sample[] =
    "Hello World, I'm here; we'LL see they've don't HE'S.\n\n\n  three  spaces\tand\ttabs \n \n3 33 333 3333 33333 "
    "3.14159 "
    "1,000,000 a1b2c3 x_y-z foo(bar[0]) != {\"k\": 'v'} // note\r\n\t\tif (a<=b) return a**2;  \n"
    "\xc3\x84pfel stra\xc3\x9f"
    "e na\xc3\xafve \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xd0\xbc\xd0\xb8\xd1\x80 "
    "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c "
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf "
    "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 "
    "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 "
    "\xf0\x9f\x99\x82\xf0\x9f\x9a\x80 \xe2\x82\xac 50% @user #tag https://x.org/a?b=c&d=1  ...---!!! "
    /* Spaces before digits, signs, quotes and lines; cases that change inside of a word; marks that combine. */
    "      12    34   56\t\t78 \t 9\n\n  10)   (x)   'll  \"q\"  --  \n\n\n   \n    end\r\n\r\n  2nd  1st "
    "camelCaseWord HTTPServer ABC123def IT'S I'M y'all'd've don\xe2\x80\x99t caf"
    "e\xcc\x81s \xc5\x81\xc3\xb3"
    "d\xc5\xba 12\xe5\xb9\xb4"
    "34\xe6\x9c\x88  \xe3\x80\x82\xe3\x80\x8c"
    "a\xe3\x80\x8d \xd9\xa1\xd9\xa2\xd9\xa3 \xe2\x91\xa0\xc2\xb2\xc2\xbd x=1;y+=2.50e-3 <|a|> $9.99/kg `c` \\n ~/.b "
    "0xFF                                  end of it\n"
    "package main\n\nfunc main() {\n\tfor i := 0; i < 3; i++ {\n\t\tf.P(i)\n\t}\n}\n#include <a.h>\n/* c */ int "
    "x[3]={1,2};\n\n\tdef f(self):\n        return {'a': [1]}\n\n\n</div>\n  <p>x</p>\n SELECT * FROM t WHERE "
    "a='b';--c\n\t\t\t);\n\n    }\n\n\"s\"";

typedef struct vocabulary {
    arena             mem;
    tok_vocab_source  s;
    view             *tokens, *merges;
    int              *types;
    float            *scores;
    const json_value *json; /* tokenizer.json; NULL: there is none */
} vocabulary;

/* A JSON file beside the model; NULL when it is absent. */
static int read_beside(const model_file *m, const char *name, arena *mem, const json_value **out, err *e) {
    char  *path = model_file_sidecar(m, name), *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    if (!path) return 0;
    int rc = file_read(&text, &bytes, path, MAX_JSON, e);
    /* The tree borrows nothing of the text. */
    if (rc == 0 && (rc = json_parse(out, text, bytes, mem, e)) < 0) rc = err_wrap(e, rc, "%s", path);
    free(text);
    free(path);
    return rc;
}

/* --- tokens ------------------------------------------------------------------------------------------------------ */

static bool is_wordpiece(const char *kind) { return strstr(kind, "wordpiece") != NULL; }

/* WordPiece marks what continues a word, GGUF what begins one. */
static view wordpiece_text(arena *mem, view text, tok_class is) {
    static const char mark[] = "\xe2\x96\x81";
    if (is == TOK_CONTROL || is == TOK_UNKNOWN || (text.len > 2 && text.data[0] == '[')) return text;
    if (text.len > 2 && memcmp(text.data, "##", 2) == 0) return (view){ text.data + 2, text.len - 2 };
    char *out = arena_alloc(mem, text.len + 4);
    if (!out) return (view){ NULL, 0 };
    memcpy(out, mark, 3);
    memcpy(out + 3, text.data, text.len);
    return (view){ out, text.len + 3 };
}

static int fill_tokens(vocabulary *v, const tok *t, int64_t n, err *e) {
    int64_t have = tok_count(t);
    if (have > n) n = have;
    v->tokens = arena_calloc(&v->mem, (size_t)n, sizeof *v->tokens);
    v->types = arena_calloc(&v->mem, (size_t)n, sizeof *v->types);
    v->scores = arena_calloc(&v->mem, (size_t)n, sizeof *v->scores);
    if (!v->tokens || !v->types || !v->scores) return err_set_nomem(e);
    for (int64_t i = 0; i < n; i++) {
        tok_class is = i < have ? tok_class_of(t, (int32_t)i) : TOK_UNDEFINED;
        view      text = i < have ? tok_text(t, (int32_t)i) : (view){ NULL, 0 };
        if (is == TOK_UNDEFINED || text.len == 0) {
            char *name = arena_alloc(&v->mem, 24);
            if (!name) return err_set_nomem(e);
            text = (view){ name, (size_t)snprintf(name, 24, "[PAD%lld]", (long long)i) };
            is = TOK_UNUSED;
        } else if (is_wordpiece(tok_kind(t))) {
            text = wordpiece_text(&v->mem, text, is);
            if (!text.data) return err_set_nomem(e);
        }
        v->tokens[i] = text;
        v->types[i] = (int)is;
        v->scores[i] = -(float)i; /* of pieces in the order of their merging; others replace it */
    }
    v->s.tokens = v->tokens;
    v->s.n_tokens = (size_t)n;
    v->s.types = v->types;
    return 0;
}

/* --- merges and scores ------------------------------------------------------------------------------------------- */

/* "a b"; a space inside of a part is written as U+0120. */
static view merge_text(arena *mem, const json_value *m) {
    if (m->kind == JSON_K_STRING) return m->u.string;
    const json_value *a = json_at(m, 0), *b = json_at(m, 1);
    if (!json_is(a, JSON_K_STRING) || !json_is(b, JSON_K_STRING)) return (view){ NULL, 0 };
    view  parts[2] = { a->u.string, b->u.string };
    char *out = arena_alloc(mem, 2 * (parts[0].len + parts[1].len) + 2);
    if (!out) return (view){ NULL, 0 };
    size_t n = 0;
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < parts[k].len; i++) {
            if (parts[k].data[i] == ' ') {
                memcpy(out + n, "\xc4\xa0", 2);
                n += 2;
            } else {
                out[n++] = parts[k].data[i];
            }
        }
        if (k == 0) out[n++] = ' ';
    }
    return (view){ out, n };
}

static int fill_merges(vocabulary *v, err *e) {
    const json_value *list = json_get(json_get(v->json, "model"), "merges");
    size_t            n = json_count(list);
    if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_UNSUPPORTED, "tokenizer.json has no merges");
    if (!(v->merges = arena_calloc(&v->mem, n ? n : 1, sizeof *v->merges))) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        v->merges[i] = merge_text(&v->mem, json_at(list, i));
        if (!v->merges[i].data) return err_set(e, ERR_FORMAT, "tokenizer.json: merge %zu is not a pair", i);
    }
    v->s.merges = v->merges;
    v->s.n_merges = n;
    return 0;
}

static int fill_scores(vocabulary *v, err *e) {
    const json_value *list = json_get(json_get(v->json, "model"), "vocab");
    if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_UNSUPPORTED, "tokenizer.json has no scores");
    for (size_t i = 0; i < json_count(list) && i < v->s.n_tokens; i++) {
        double score;
        if (!json_number(json_at(json_at(list, i), 1), &score))
            return err_set(e, ERR_FORMAT, "tokenizer.json: token %zu has no score", i);
        v->scores[i] = (float)score;
    }
    return 0;
}

/* Whether a text gets a space before it: an own step of the tokenizer says so. */
static bool prepends_space(const json_value *v, int depth) {
    if (!v || depth > 8) return false;
    const char *type = json_cstr(json_get(v, "type")), *scheme = json_cstr(json_get(v, "prepend_scheme"));
    if (type && strcmp(type, "Prepend") == 0) return true;
    if (type && strcmp(type, "Metaspace") == 0) return !scheme || strcmp(scheme, "never") != 0;
    for (const char *const *key = (const char *const[]){ "normalizers", "pretokenizers", NULL }; *key; key++) {
        const json_value *list = json_get(v, *key);
        for (size_t i = 0; i < json_count(list); i++)
            if (prepends_space(json_at(list, i), depth + 1)) return true;
    }
    return false;
}

/* --- kinds ------------------------------------------------------------------------------------------------------- */

/* tokenizer.model: scores are the tokenizer's own; whether it puts a space first shows in what it does. */
static int fill_pieces(vocabulary *v, const tok *t, err *e) {
    tok_ids ids = { 0 };
    int     rc = tok_encode(t, "a", 1, 0, &ids, e);
    v->s.model = view_of("llama");
    v->s.scores = v->scores;
    v->s.add_space_prefix = rc == 0 && ids.count && view_starts(tok_text(t, ids.data[0]), "\xe2\x96\x81");
    for (size_t i = 0; i < v->s.n_tokens && rc == 0; i++) {
        double x;
        if (tok_score(t, (int32_t)i, &x)) v->scores[i] = (float)x;
    }
    tok_ids_deinit(&ids);
    return rc;
}

static int fill_kind(vocabulary *v, const tok *t, err *e) {
    const char *kind = tok_kind(t);
    if (is_wordpiece(kind)) {
        v->s.model = view_of("bert");
        v->s.pre = view_of("jina-v2-en"); /* words are cut by the model itself */
        return 0;
    }
    if (!v->json && strcmp(kind, "sentencepiece bpe") == 0) return fill_pieces(v, t, e);
    if (!v->json)
        return err_set(e, ERR_UNSUPPORTED, "a tokenizer without tokenizer.json (%s) cannot be converted", kind);
    if (strstr(kind, "unigram")) {
        v->s.model = view_of("t5");
        v->s.scores = v->scores;
        return fill_scores(v, e);
    }
    if (strstr(kind, "byte-level")) {
        v->s.model = view_of("gpt2");
        return fill_merges(v, e);
    }
    v->s.model = view_of("llama");
    v->s.scores = v->scores;
    v->s.add_space_prefix =
        prepends_space(json_get(v->json, "normalizer"), 0) || prepends_space(json_get(v->json, "pre_tokenizer"), 0);
    return 0;
}

static int64_t id_of(const model_file *m, const tok *t, const char *key) {
    const json_value *v = model_file_config_get(m, key);
    int64_t           id = -1;
    if (json_is(v, JSON_K_ARRAY)) v = json_at(v, 0);
    return json_int(v, &id) && id >= 0 && id < tok_count(t) ? id : -1;
}

static void fill_ids(vocabulary *v, const model_file *m, const tok *t) {
    size_t         n;
    const int32_t *ends = tok_end_ids(t, &n);
    v->s.bos = tok_bos(t);
    v->s.eos = tok_eos(t) >= 0 ? tok_eos(t) : id_of(m, t, "eos_token_id");
    v->s.pad = id_of(m, t, "pad_token_id");
    v->s.add_bos = tok_adds_bos(t);
    v->s.add_eos = tok_adds_eos(t);
    for (size_t i = 0; i < n; i++)
        if (ends[i] != v->s.eos && v->s.eot < 0) v->s.eot = ends[i];
}

/* --- the rule for cutting ---------------------------------------------------------------------------------------- */

static bool gives(const tok *t, const tok_ids *want) {
    tok_ids got = { 0 };
    bool    same = tok_encode(t, sample, sizeof sample - 1, TOK_ADD_SPECIAL, &got, NULL) == 0 &&
                got.count == want->count && memcmp(got.data, want->data, want->count * sizeof *want->data) == 0;
    tok_ids_deinit(&got);
    return same;
}

static bool same_ids(const vocabulary *v, const tok_ids *want) {
    tok *t = NULL;
    bool same = tok_open_vocab(&t, &v->s, NULL, NULL) == 0 && gives(t, want);
    tok_free(t);
    return same;
}

bool vocab_same(const tok *a, const tok *b) {
    tok_ids want = { 0 };
    bool    same = tok_encode(a, sample, sizeof sample - 1, TOK_ADD_SPECIAL, &want, NULL) == 0 && gives(b, &want);
    tok_ids_deinit(&want);
    return same;
}

/* Names that people know come first; many in the table mean the same. */
static bool find_pre(vocabulary *v, const tok_ids *want) {
    static const char *const known[] = { "gpt-2",        "llama-bpe", "qwen2",  "gpt-4o",     "deepseek-v3",
                                         "deepseek-llm", "starcoder", "falcon", "command-r",  "olmo",
                                         "tekken",       "smollm",    "llama4", "chatglm-bpe" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        v->s.pre = view_of(known[i]);
        if (same_ids(v, want)) return true;
    }
    const char *name;
    for (size_t i = 0; (name = tok_pre_at(i)); i++) {
        v->s.pre = view_of(name);
        if (same_ids(v, want)) return true;
    }
    return false;
}

static int check_ids(vocabulary *v, const tok *t, err *e) {
    tok_ids want = { 0 };
    bool    words = view_eq_c(v->s.model, "gpt2");
    int     rc = tok_encode(t, sample, sizeof sample - 1, TOK_ADD_SPECIAL, &want, e);
    if (rc == 0 && !(words ? find_pre(v, &want) : same_ids(v, &want)))
        rc = err_set(e, ERR_UNSUPPORTED,
                     words ? "no pre-tokenizer that GGUF has a name for gives the tokens of this model"
                           : "this tokenizer gives other tokens in a GGUF file");
    tok_ids_deinit(&want);
    return rc;
}

/* --- keys -------------------------------------------------------------------------------------------------------- */

static int set_id(gguf_writer *w, const char *name, int64_t id, err *e) {
    char key[64];
    if (id < 0) return 0;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    return gguf_writer_set_int(w, key, META_U32, id, e);
}

static int set_text(gguf_writer *w, const char *key, view text, err *e) {
    meta_value v = { .type = META_STRING };
    v.u.s = text;
    return text.len ? gguf_writer_set(w, key, &v, e) : 0;
}

static int set_keys(gguf_writer *w, const vocabulary *v, err *e) {
    const tok_vocab_source *s = &v->s;
    bool                    bert = view_eq_c(s->model, "bert");
    int                     rc = set_text(w, "tokenizer.ggml.model", s->model, e);
    if (rc == 0) rc = set_text(w, "tokenizer.ggml.pre", s->pre.len ? s->pre : view_of("default"), e);
    if (rc == 0) rc = gguf_writer_set_strings(w, "tokenizer.ggml.tokens", s->tokens, s->n_tokens, e);
    if (rc == 0 && s->scores)
        rc = gguf_writer_set_array(w, "tokenizer.ggml.scores", META_F32, s->scores, s->n_tokens, e);
    if (rc == 0) rc = gguf_writer_set_array(w, "tokenizer.ggml.token_type", META_I32, s->types, s->n_tokens, e);
    if (rc == 0 && s->n_merges) rc = gguf_writer_set_strings(w, "tokenizer.ggml.merges", s->merges, s->n_merges, e);
    if (rc == 0) rc = set_id(w, bert ? "cls" : "bos", s->bos, e);
    if (rc == 0) rc = set_id(w, bert ? "seperator" : "eos", s->eos, e);
    if (rc == 0) rc = set_id(w, "eot", s->eot, e);
    if (rc == 0) rc = set_id(w, "padding", s->pad, e);
    if (rc == 0) rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_bos_token", s->add_bos > 0, e);
    if (rc == 0) rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_eos_token", s->add_eos > 0, e);
    if (rc == 0 && view_eq_c(s->model, "llama"))
        rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_space_prefix", s->add_space_prefix > 0, e);
    return rc;
}

/* Tokens that are not to be said; only those that there are. */
static int set_muted(gguf_writer *w, const model_file *m, int64_t n_vocab, arena *mem, err *e) {
    int64_t id;
    size_t  n = 0, all = 0;
    while (muted_at(m, all, &id)) all++;
    int32_t *ids = arena_calloc(mem, all + 1, sizeof *ids);
    if (!ids) return err_set_nomem(e);
    for (size_t i = 0; muted_at(m, i, &id); i++) {
        if (id >= 0 && id < n_vocab) ids[n++] = (int32_t)id;
    }
    return n ? gguf_writer_set_array(w, "tokenizer.ggml.suppress_tokens", META_I32, ids, n, e) : 0;
}

int vocab_keys(gguf_writer *w, const model_file *m, const tok *t, int64_t n_vocab, err *e) {
    vocabulary v = { .json = NULL };
    arena_init(&v.mem, 0);
    tok_vocab_source_init(&v.s);
    int rc = read_beside(m, "tokenizer.json", &v.mem, &v.json, e);
    if (rc == 0) rc = fill_tokens(&v, t, n_vocab, e);
    if (rc == 0) fill_ids(&v, m, t);
    if (rc == 0) rc = fill_kind(&v, t, e);
    if (rc == 0) rc = check_ids(&v, t, e);
    if (rc == 0) rc = set_keys(w, &v, e);
    if (rc == 0) rc = set_muted(w, m, n_vocab, &v.mem, e);
    arena_deinit(&v.mem);
    return rc;
}

int vocab_template(gguf_writer *w, const model_file *m, err *e) {
    arena             mem;
    const json_value *config = NULL;
    char             *path = model_file_sidecar(m, "chat_template.jinja"), *text = NULL;
    size_t            bytes = 0;
    int               rc = 0;
    if (path) {
        rc = file_read(&text, &bytes, path, MAX_JSON, e);
        if (rc == 0) rc = set_text(w, "tokenizer.chat_template", (view){ text, bytes }, e);
        free(text);
        free(path);
        return rc;
    }
    arena_init(&mem, 0);
    rc = read_beside(m, "tokenizer_config.json", &mem, &config, e);
    const json_value *t = json_get(config, "chat_template");
    for (size_t i = 0; json_is(t, JSON_K_ARRAY) && i < json_count(t); i++) { /* several: the one called default */
        const char *name = json_cstr(json_get(json_at(t, i), "name"));
        if (name && strcmp(name, "default") == 0) t = json_get(json_at(t, i), "template");
    }
    if (rc == 0 && json_is(t, JSON_K_STRING)) rc = set_text(w, "tokenizer.chat_template", t->u.string, e);
    arena_deinit(&mem);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of a GGUF file as a directory has it. Byte-level vocabularies become tokenizer.json: the pattern that the
 * name in tokenizer.ggml.pre stands for is written out. SentencePiece vocabularies become tokenizer.model, which is the
 * format that they came from (tokenizer/open_spm.c has its fields).
 */
#include "base/file.h"
#include "convert/hf_files.h"
#include "formats/muted.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 256 << 20 };

typedef struct source {
    const model_file *m;
    const view       *tokens, *merges;
    size_t            n, n_merges;
    const meta_value *types, *scores;
    view              model, pre;
    int64_t           bos, eos, eot, pad, unk;
} source;

static int64_t id_of(const source *s, const char *key) {
    int64_t id;
    return meta_int(model_file_meta(s->m, key), &id) && id >= 0 && (uint64_t)id < s->n ? id : -1;
}

static int class_of(const source *s, size_t i) {
    int64_t v = TOK_NORMAL;
    meta_at_int(s->types, i, &v);
    return (int)v;
}

static bool flag_of(const source *s, const char *key, bool dflt) {
    bool v = dflt;
    meta_bool(model_file_meta(s->m, key), &v);
    return v;
}

static int read_source(source *s, const model_file *m, err *e) {
    const meta_value *tokens = model_file_meta(m, "tokenizer.ggml.tokens"),
                     *merges = model_file_meta(m, "tokenizer.ggml.merges");
    *s = (source){ .m = m };
    if (!meta_string(model_file_meta(m, "tokenizer.ggml.model"), &s->model) || !tokens || tokens->type != META_ARRAY ||
        tokens->elem_type != META_STRING)
        return err_set(e, ERR_NOTFOUND, "%s has no tokenizer; --no-tokenizer leaves it out", model_file_path(m));
    meta_string(model_file_meta(m, "tokenizer.ggml.pre"), &s->pre);
    s->tokens = tokens->strings;
    s->n = tokens->count;
    if (merges && merges->type == META_ARRAY && merges->elem_type == META_STRING) {
        s->merges = merges->strings;
        s->n_merges = merges->count;
    }
    s->types = model_file_meta(m, "tokenizer.ggml.token_type");
    s->scores = model_file_meta(m, "tokenizer.ggml.scores");
    s->bos = id_of(s, "tokenizer.ggml.bos_token_id");
    s->eos = id_of(s, "tokenizer.ggml.eos_token_id");
    s->eot = id_of(s, "tokenizer.ggml.eot_token_id");
    s->pad = id_of(s, "tokenizer.ggml.padding_token_id");
    s->unk = id_of(s, "tokenizer.ggml.unknown_token_id");
    return 0;
}

static void put_view(str *o, view v) { str_put_json(o, v.data, v.len); }

/* --- tokenizer.json ------------------------------------------------------------------------------------------------ */

static void put_added(str *o, const source *s) {
    bool first = true;
    str_puts(o, "\"added_tokens\":[");
    for (size_t i = 0; i < s->n; i++) {
        int is = class_of(s, i);
        if (is != TOK_CONTROL && is != TOK_USER && is != TOK_UNKNOWN) continue;
        str_printf(o, "%s\n{\"id\":%zu,\"content\":", first ? "" : ",", i);
        put_view(o, s->tokens[i]);
        str_printf(o, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                   is == TOK_USER ? "false" : "true");
        first = false;
    }
    str_puts(o, "]");
}

static int put_split(str *o, const source *s, bool *whole, err *e) {
    view        pre = s->pre.len ? s->pre : view_of("default");
    const char *pattern;
    str_puts(o, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (size_t i = 0; (pattern = tok_pre_pattern(pre, i, whole)); i++) {
        str_puts(o, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        str_put_json(o, pattern, strlen(pattern));
        str_puts(o, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    str_puts(o, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}");
    if (tok_pre_pattern(pre, 0, whole)) return 0;
    return err_set(e, ERR_UNSUPPORTED, "the pre-tokenizer \"%.*s\" cannot be written as tokenizer.json",
                   (int)(pre.len < 60 ? pre.len : 60), pre.data);
}

static void put_special(str *o, const source *s, int64_t id) {
    str_puts(o, "{\"SpecialToken\":{\"id\":");
    put_view(o, s->tokens[id]);
    str_puts(o, ",\"type_id\":0}}");
}

static void put_ids(str *o, const source *s, int64_t id, bool *any) {
    if (id < 0) return;
    if (*any) str_push(o, ',');
    put_view(o, s->tokens[id]);
    str_puts(o, ":{\"id\":");
    put_view(o, s->tokens[id]);
    str_printf(o, ",\"ids\":[%lld],\"tokens\":[", (long long)id);
    put_view(o, s->tokens[id]);
    str_puts(o, "]}");
    *any = true;
}

/* What stands around one text, and around each of two. */
static void put_around(str *o, const source *s, bool add_bos, bool add_eos) {
    int64_t bos = add_bos ? s->bos : -1, eos = add_eos ? s->eos : -1;
    bool    any = false;
    if (bos < 0 && eos < 0) {
        str_puts(o, "\"post_processor\":null");
        return;
    }
    str_puts(o, "\"post_processor\":{\"type\":\"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        str_puts(o, pair ? ",\"pair\":[" : ",\"single\":[");
        for (int k = 0; k <= pair; k++) {
            if (k) str_push(o, ',');
            if (bos >= 0) put_special(o, s, bos);
            str_printf(o, "%s{\"Sequence\":{\"id\":\"%c\",\"type_id\":%d}}", bos >= 0 ? "," : "", 'A' + k, k);
            if (eos >= 0) str_push(o, ',');
            if (eos >= 0) put_special(o, s, eos);
        }
        str_push(o, ']');
    }
    str_puts(o, ",\"special_tokens\":{");
    put_ids(o, s, bos, &any);
    if (eos != bos) put_ids(o, s, eos, &any);
    str_puts(o, "}}");
}

static int put_merges(str *o, const source *s, err *e) {
    str_puts(o, "\"merges\":[");
    for (size_t i = 0; i < s->n_merges; i++) {
        view        m = s->merges[i];
        const char *gap = m.len > 2 ? memchr(m.data + 1, ' ', m.len - 2) : NULL;
        if (!gap) return err_set(e, ERR_FORMAT, "merge %zu of the vocabulary has no two parts", i);
        str_puts(o, i ? ",\n[" : "\n[");
        str_put_json(o, m.data, (size_t)(gap - m.data));
        str_push(o, ',');
        str_put_json(o, gap + 1, (size_t)(m.data + m.len - gap - 1));
        str_push(o, ']');
    }
    str_push(o, ']');
    return 0;
}

static bool is_padding(view text) { return view_starts(text, "[PAD") && view_ends(text, "]"); }

static int json_from_gguf(hf_files *f, const source *s, arena *mem, err *e) {
    str  o;
    bool first = true, whole = false;
    int  rc;
    str_init(&o);
    str_puts(&o, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n");
    put_added(&o, s);
    str_puts(&o, ",\n\"normalizer\":null,\n");
    rc = put_split(&o, s, &whole, e);
    str_puts(&o, ",\n");
    put_around(&o, s, flag_of(s, "tokenizer.ggml.add_bos_token", false),
               flag_of(s, "tokenizer.ggml.add_eos_token", false));
    str_puts(
        &o,
        ",\n\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
        "\n\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
        "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":");
    str_puts(&o, whole ? "true,\n\"vocab\":{" : "false,\n\"vocab\":{");
    for (size_t i = 0; i < s->n; i++) {
        int is = class_of(s, i);
        if (is == TOK_CONTROL || is == TOK_USER || is == TOK_UNKNOWN) continue;
        if (is == TOK_UNUSED && is_padding(s->tokens[i])) continue;
        str_puts(&o, first ? "\n" : ",\n");
        put_view(&o, s->tokens[i]);
        str_printf(&o, ":%zu", i);
        first = false;
    }
    str_puts(&o, "},\n");
    if (rc == 0) rc = put_merges(&o, s, e);
    str_puts(&o, "}}\n");
    if (rc == 0 && !str_ok(&o)) rc = err_set_nomem(e);
    if (rc == 0) rc = hf_files_add(f, "tokenizer.json", o.data, o.len, mem, e);
    str_deinit(&o);
    return rc;
}

/* --- tokenizer.model ----------------------------------------------------------------------------------------------- */

static void put_varint(str *o, uint64_t v) {
    for (; v > 127; v >>= 7) str_push(o, (char)((v & 127) | 128));
    str_push(o, (char)v);
}

static void put_field(str *o, unsigned number, uint64_t value) {
    put_varint(o, number << 3);
    put_varint(o, value);
}

static void put_bytes(str *o, unsigned number, const void *data, size_t bytes) {
    put_varint(o, number << 3 | 2);
    put_varint(o, bytes);
    str_append(o, data, bytes);
}

static void put_piece(str *o, const source *s, size_t i) {
    double x = 0;
    float  score;
    str    p;
    str_init(&p);
    meta_at_real(s->scores, i, &x);
    score = (float)x;
    put_bytes(&p, 1, s->tokens[i].data, s->tokens[i].len);
    put_varint(&p, 2 << 3 | 5);
    str_append(&p, &score, sizeof score);
    if (class_of(s, i) != TOK_NORMAL) put_field(&p, 3, (uint64_t)class_of(s, i));
    put_bytes(o, 1, p.data, p.len);
    if (!str_ok(&p)) o->failed = true;
    str_deinit(&p);
}

static int64_t first_of_class(const source *s, int is) {
    for (size_t i = 0; i < s->n; i++)
        if (class_of(s, i) == is) return (int64_t)i;
    return -1;
}

static int model_from_gguf(hf_files *f, const source *s, arena *mem, err *e) {
    str     o, spec, norm;
    int64_t unk = s->unk >= 0 ? s->unk : first_of_class(s, TOK_UNKNOWN);
    str_init(&o);
    str_init(&spec);
    str_init(&norm);
    for (size_t i = 0; i < s->n; i++) put_piece(&o, s, i);
    put_field(&spec, 3, 2); /* BPE */
    put_field(&spec, 35, first_of_class(s, TOK_BYTE) >= 0);
    put_field(&spec, 40, (uint64_t)(unk < 0 ? 0 : unk));
    put_field(&spec, 41, (uint64_t)s->bos);
    put_field(&spec, 42, (uint64_t)s->eos);
    put_field(&spec, 43, (uint64_t)s->pad);
    put_field(&norm, 3, flag_of(s, "tokenizer.ggml.add_space_prefix", true));
    put_field(&norm, 4, flag_of(s, "tokenizer.ggml.remove_extra_whitespaces", false));
    put_field(&norm, 5, 1);
    put_bytes(&o, 2, spec.data, spec.len);
    put_bytes(&o, 3, norm.data, norm.len);
    int rc = str_ok(&o) && str_ok(&spec) && str_ok(&norm) ? hf_files_add(f, "tokenizer.model", o.data, o.len, mem, e)
                                                          : err_set_nomem(e);
    str_deinit(&o);
    str_deinit(&spec);
    str_deinit(&norm);
    return rc;
}

/* --- beside it ----------------------------------------------------------------------------------------------------- */

static void put_token(str *o, const source *s, const char *name, int64_t id) {
    if (id < 0) return;
    str_printf(o, "%s\n  \"%s\": ", o->len > 1 ? "," : "", name);
    put_view(o, s->tokens[id]);
}

static void put_tokens(str *o, const source *s) {
    put_token(o, s, "bos_token", s->bos);
    put_token(o, s, "eos_token", s->eos);
    put_token(o, s, "pad_token", s->pad);
    put_token(o, s, "unk_token", s->unk);
}

static int add_json(hf_files *f, const char *name, str *o, arena *mem, err *e) {
    str_puts(o, "\n}\n");
    int rc = str_ok(o) ? hf_files_add(f, name, o->data, o->len, mem, e) : err_set_nomem(e);
    str_deinit(o);
    str_init(o);
    str_push(o, '{');
    return rc;
}

static int add_settings(hf_files *f, const source *s, bool pieces, arena *mem, err *e) {
    view    text = { NULL, 0 };
    int64_t id;
    bool    has = meta_string(model_file_meta(s->m, "tokenizer.chat_template"), &text);
    str     o;
    str_init(&o);
    str_push(&o, '{');
    put_tokens(&o, s);
    int rc = add_json(f, "special_tokens_map.json", &o, mem, e);
    put_tokens(&o, s);
    str_printf(&o,
               "%s\n  \"add_bos_token\": %s,\n  \"add_eos_token\": %s,\n  \"clean_up_tokenization_spaces\": false,\n",
               o.len > 1 ? "," : "", flag_of(s, "tokenizer.ggml.add_bos_token", pieces) ? "true" : "false",
               flag_of(s, "tokenizer.ggml.add_eos_token", false) ? "true" : "false");
    str_printf(&o, "  \"tokenizer_class\": \"%s\"", pieces ? "LlamaTokenizer" : "PreTrainedTokenizerFast");
    if (has) {
        str_puts(&o, ",\n  \"chat_template\": ");
        put_view(&o, text);
    }
    if (rc == 0) rc = add_json(f, "tokenizer_config.json", &o, mem, e);
    str_printf(&o, "\n  \"bos_token_id\": %lld,\n  \"eos_token_id\": [", (long long)s->bos);
    if (s->eos >= 0) str_printf(&o, "%lld", (long long)s->eos);
    if (s->eot >= 0 && s->eot != s->eos) str_printf(&o, "%s%lld", s->eos >= 0 ? ", " : "", (long long)s->eot);
    str_push(&o, ']');
    if (s->pad >= 0) str_printf(&o, ",\n  \"pad_token_id\": %lld", (long long)s->pad);
    for (size_t i = 0; muted_at(s->m, i, &id); i++)
        str_printf(&o, "%s%lld", i ? ", " : ",\n  \"suppress_tokens\": [", (long long)id);
    if (muted_at(s->m, 0, &id)) str_push(&o, ']');
    if (rc == 0 && s->bos >= 0 && s->eos >= 0) rc = add_json(f, "generation_config.json", &o, mem, e);
    str_deinit(&o);
    if (rc == 0 && has) rc = hf_files_add(f, "chat_template.jinja", text.data, text.len, mem, e);
    return rc;
}

int hf_vocab_from_gguf(hf_files *f, const model_file *m, arena *mem, err *e) {
    source s;
    int    rc = read_source(&s, m, e);
    if (rc < 0) return rc;
    bool pieces = view_eq_c(s.model, "llama");
    if (!pieces && !view_eq_c(s.model, "gpt2"))
        return err_set(e, ERR_UNSUPPORTED,
                       "a tokenizer of the kind \"%.*s\" cannot be written; --no-tokenizer leaves it out",
                       (int)(s.model.len < 40 ? s.model.len : 40), s.model.data);
    if (pieces && (!s.scores || s.scores->type != META_ARRAY || s.scores->count < s.n))
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.scores has fewer entries than tokenizer.ggml.tokens");
    rc = pieces ? model_from_gguf(f, &s, mem, e) : json_from_gguf(f, &s, mem, e);
    return rc == 0 ? add_settings(f, &s, pieces, mem, e) : rc;
}

int hf_vocab_from_dir(hf_files *f, const model_file *m, arena *mem, err *e) {
    static const char *const names[] = { "tokenizer.json",
                                         "tokenizer.model",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "generation_config.json",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "vocab.txt",
                                         "spiece.model",
                                         "tekken.json",
                                         "tiktoken.model",
                                         "qwen.tiktoken",
                                         "preprocessor_config.json",
                                         "processor_config.json" };
    int                      rc = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && rc == 0; i++) {
        char  *path = model_file_sidecar(m, names[i]), *text = NULL;
        size_t bytes = 0;
        if (!path) continue;
        rc = file_read(&text, &bytes, path, MAX_FILE, e);
        if (rc == 0) rc = hf_files_add(f, names[i], text, bytes, mem, e);
        free(text);
        free(path);
    }
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/summary.h"

#include "base/file.h"
#include "base/num.h"
#include "formats/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENIZER_BYTES = 256 << 20, MAX_TEMPLATE_BYTES = 16 << 20, MAX_COUNT = 1 << 30 };

/* ---- tensors: what is a parameter ---- */

static uint64_t elements_of(const model_tensor *t) {
    uint64_t n = 1; /* the product was checked when the tensor was read */
    for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->dims[d];
    return n;
}

static bool ends(const char *name, const char *suffix, size_t *stem) {
    size_t a = strlen(name), b = strlen(suffix);
    if (a <= b || strcmp(name + a - b, suffix) != 0) return false;
    *stem = a - b;
    return true;
}

/* MLX: the packed array stands for its module; scales and biases are helpers. */
static bool mlx_tensor(const model_file *m, const model_tensor *t, char label[24], uint64_t *n) {
    static const char *const modes[] = { "MLX", "MLX mxfp4", "MLX mxfp8", "MLX nvfp4" };
    char                     module[TABLE_MAX_NAME + 1];
    model_quant              q;
    size_t                   stem;
    bool                     weight = ends(t->name, ".weight", &stem);
    if (!weight && !ends(t->name, ".scales", &stem) && !ends(t->name, ".biases", &stem)) return false;
    memcpy(module, t->name, stem);
    module[stem] = '\0';
    if (!model_file_quant(m, module, &q)) return false;
    if (q.mode == MODEL_QUANT_AFFINE)
        snprintf(label, 24, "MLX %d-bit g%d", q.bits, q.group);
    else
        snprintf(label, 24, "%s", modes[q.mode]);
    *n = weight ? elements_of(t) * 32 / (uint64_t)q.bits : 0;
    return true;
}

static bool hf_tensor(const model_file *m, const model_tensor *t, char label[24], uint64_t *n) {
    const model_hf_quant *q = model_file_hf_quant(m);
    size_t                stem;
    uint64_t              all = elements_of(t);
    switch (q->method) {
    case MODEL_HF_GPTQ:
    case MODEL_HF_AWQ:
        if (ends(t->name, ".qweight", &stem) && q->bits > 0 && q->bits <= 32)
            *n = all * 32 / (uint64_t)q->bits;
        else if (ends(t->name, ".qzeros", &stem) || ends(t->name, ".scales", &stem) || ends(t->name, ".g_idx", &stem))
            *n = 0;
        else
            return false;
        snprintf(label, 24, "%s %d-bit", q->method == MODEL_HF_GPTQ ? "GPTQ" : "AWQ", q->bits);
        return true;
    case MODEL_HF_FP8:
        if (!ends(t->name, ".weight_scale_inv", &stem) && !ends(t->name, ".weight_scale", &stem)) return false;
        *n = 0;
        snprintf(label, 24, "F8_E4M3");
        return true;
    case MODEL_HF_BNB_4BIT:
        if (strstr(t->name, ".weight."))
            *n = 0; /* absmax, quant_map, quant_state, nested_* */
        else if (t->type == TENSOR_U8)
            *n = all * 2;
        else
            return false;
        snprintf(label, 24, "BNB 4-bit");
        return true;
    case MODEL_HF_MXFP4:
        if (ends(t->name, "_blocks", &stem))
            *n = all * 2;
        else if (ends(t->name, "_scales", &stem))
            *n = 0;
        else
            return false;
        snprintf(label, 24, "MXFP4");
        return true;
    default: return false;
    }
}

uint64_t model_summary_tensor(const model_file *m, const model_tensor *t, char label[24]) {
    uint64_t n;
    if (model_file_format(m) == MODEL_MLX && mlx_tensor(m, t, label, &n)) return n;
    if (model_file_format(m) == MODEL_HF && hf_tensor(m, t, label, &n)) return n;
    snprintf(label, 24, "%s", tensor_type_name((int)t->type));
    return elements_of(t);
}

static summary_type *find_type(model_summary *s, const char *label) {
    for (size_t i = 0; i < s->n_types; i++) {
        if (strcmp(s->types[i].label, label) == 0) return &s->types[i];
    }
    if (s->n_types == SUMMARY_MAX_TYPES) return NULL;
    summary_type *t = &s->types[s->n_types++];
    *t = (summary_type){ 0 };
    snprintf(t->label, sizeof t->label, "%s", label);
    return t;
}

static int by_bytes(const void *a, const void *b) {
    const summary_type *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->label, y->label);
}

static void count_tensors(model_summary *s, const model_file *m) {
    s->tensors = model_file_tensor_count(m);
    for (size_t i = 0; i < s->tensors; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        char                label[24];
        uint64_t            n = model_summary_tensor(m, t, label);
        summary_type       *type = find_type(s, label);
        s->parameters += n;
        s->weight_bytes += t->bytes;
        if (!type) continue; /* cannot happen with the types there are: the sum above stays right */
        type->tensors += n > 0 || t->bytes == 0;
        type->bytes += t->bytes;
        type->parameters += n;
    }
    if (s->n_types > 1) qsort(s->types, s->n_types, sizeof s->types[0], by_bytes);
}

/* The mixes by general.file_type. */
static const char *mix_label(const model_file *m) {
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",       [3] = "Q4_1",    [7] = "Q8_0",     [8] = "Q5_0",
        [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S",    [12] = "Q3_K_M", [13] = "Q3_K_L",  [14] = "Q4_K_S",
        [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",    [18] = "Q6_K",   [19] = "IQ2_XXS", [20] = "IQ2_XS",
        [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS",   [24] = "IQ1_S",  [25] = "IQ4_NL",  [26] = "IQ3_S",
        [27] = "IQ3_M",  [28] = "IQ2_S",  [29] = "IQ2_M",     [30] = "IQ4_XS", [31] = "IQ1_M",   [32] = "BF16",
        [36] = "TQ1_0",  [37] = "TQ2_0",  [38] = "MXFP4_MOE",
    };
    int64_t n = -1;
    if (!meta_int(model_file_meta(m, "general.file_type"), &n)) return NULL;
    return n >= 0 && n < (int64_t)(sizeof names / sizeof *names) ? names[n] : NULL;
}

static void name_level(model_summary *s, const model_file *m) {
    const char *mix = model_file_format(m) == MODEL_GGUF ? mix_label(m) : NULL;
    snprintf(s->level, sizeof s->level, "%s", mix ? mix : s->n_types ? s->types[0].label : "");
}

/* ---- numbers of the architecture ---- */

static int64_t in_range(int64_t v) { return v > 0 && v <= MAX_COUNT ? v : 0; }

static const meta_value *arch_key(const model_file *m, const char *key) {
    char        name[160];
    const char *arch = model_file_arch(m);
    if (!arch || snprintf(name, sizeof name, "%s.%s", arch, key) >= (int)sizeof name) return NULL;
    return model_file_meta(m, name);
}

static int64_t arch_int(const model_file *m, const char *key) {
    int64_t           v = 0;
    const meta_value *x = arch_key(m, key);
    if (x && x->type == META_ARRAY && x->count > 0) { /* per layer: the largest */
        for (size_t i = 0; i < x->count; i++) {
            int64_t one;
            if (meta_at_int(x, i, &one) && one > v) v = one;
        }
    } else {
        (void)meta_int(x, &v);
    }
    return in_range(v);
}

static int64_t config_int(const model_file *m, const char *const *keys) {
    for (; *keys; keys++) {
        int64_t v;
        if (json_int(model_file_config_get(m, *keys), &v)) return in_range(v);
    }
    return 0;
}

#define CONFIG_INT(m, ...) config_int(m, (const char *const[]){ __VA_ARGS__, NULL })

/* sum over layers of kv heads * (key + value length) elements, times the tokens each layer keeps, times 2 bytes */
static bool add_layers(uint64_t *total, uint64_t layers, uint64_t heads, uint64_t width, uint64_t tokens) {
    uint64_t n;
    return num_mul_u64(layers, heads, &n) && num_mul_u64(n, width, &n) && num_mul_u64(n, tokens, &n) &&
           num_mul_u64(n, 2, &n) && num_add_u64(*total, n, total);
}

static void kv_of_gguf(model_summary *s, const model_file *m) {
    int64_t           key = arch_int(m, "attention.key_length"), value = arch_int(m, "attention.value_length");
    int64_t           latent = arch_int(m, "attention.kv_lora_rank"), every = arch_int(m, "full_attention_interval");
    const meta_value *per_layer = arch_key(m, "attention.head_count_kv");
    uint64_t          layers = (uint64_t)s->layers;
    bool              causal = true;
    if (!s->layers || !s->context || !s->kv_heads) return;
    if (!key && s->heads) key = s->embedding / s->heads;
    if (!value) value = key;
    if (meta_bool(arch_key(m, "attention.causal"), &causal) && !causal) {
        s->kv_known = true;
        s->kv_assumption = "an encoder keeps no cache";
        return;
    }
    s->kv_assumption = "every layer keeps the whole context";
    if (latent) {
        s->kv_assumption = "every layer keeps one latent vector per token";
        s->kv_known = add_layers(&s->kv_bytes, layers, 1, (uint64_t)(latent + arch_int(m, "rope.dimension_count")),
                                 (uint64_t)s->context);
    } else if (per_layer && per_layer->type == META_ARRAY) {
        s->kv_known = per_layer->count > 0 && per_layer->count <= MAX_COUNT;
        for (size_t i = 0; i < per_layer->count && s->kv_known; i++) {
            int64_t heads = 0;
            (void)meta_at_int(per_layer, i, &heads);
            s->kv_known =
                add_layers(&s->kv_bytes, 1, (uint64_t)in_range(heads), (uint64_t)(key + value), (uint64_t)s->context);
        }
    } else {
        if (every) {
            s->kv_assumption = "the full-attention layers keep the whole context; recurrent states come on top";
            layers /= (uint64_t)every;
        }
        s->kv_known = key && add_layers(&s->kv_bytes, layers, (uint64_t)s->kv_heads, (uint64_t)(key + value),
                                        (uint64_t)s->context);
    }
}

static void kv_of_config(model_summary *s, const model_file *m) {
    int64_t           width = CONFIG_INT(m, "head_dim"), window = CONFIG_INT(m, "sliding_window");
    int64_t           latent = CONFIG_INT(m, "kv_lora_rank");
    const json_value *kinds = model_file_config_get(m, "layer_types");
    if (!s->layers || !s->context || !s->kv_heads) return;
    if (!width && s->heads) width = s->embedding / s->heads;
    if (!width) return;
    s->kv_assumption = "every layer keeps the whole context";
    if (latent) {
        s->kv_assumption = "every layer keeps one latent vector per token";
        s->kv_known = add_layers(&s->kv_bytes, (uint64_t)s->layers, 1,
                                 (uint64_t)(latent + CONFIG_INT(m, "qk_rope_head_dim")), (uint64_t)s->context);
    } else if (json_is(kinds, JSON_K_ARRAY)) {
        s->kv_assumption =
            "layers keep what their kind says: the whole context, a window, or a fixed state (not counted)";
        s->kv_known = true;
        for (size_t i = 0; i < json_count(kinds) && s->kv_known; i++) {
            const char *kind = json_cstr(json_at(kinds, i));
            int64_t     tokens = s->context;
            if (kind && strcmp(kind, "sliding_attention") == 0 && window)
                tokens = num_min(window, s->context);
            else if (!kind || strcmp(kind, "full_attention") != 0)
                continue;
            s->kv_known = add_layers(&s->kv_bytes, 1, (uint64_t)s->kv_heads, (uint64_t)(2 * width), (uint64_t)tokens);
        }
    } else {
        s->kv_known = add_layers(&s->kv_bytes, (uint64_t)s->layers, (uint64_t)s->kv_heads, (uint64_t)(2 * width),
                                 (uint64_t)s->context);
    }
}

/* ---- tokenizer and template of a directory ---- */

/* Reads a sidecar; 0 with *text NULL when there is none or it is too large: a summary does not fail over it. */
static bool read_sidecar(const model_file *m, const char *name, size_t limit, char **text, size_t *len) {
    char *path = model_file_sidecar(m, name);
    *text = NULL;
    bool ok = path && file_read(text, len, path, limit, NULL) == 0;
    free(path);
    return ok;
}

static view keep(model_summary *s, view text) {
    char *copy = arena_strndup(&s->mem, text.data, text.len);
    return copy ? (view){ copy, text.len } : (view){ 0 };
}

/* The largest id below the value that begins with ev, and the first string named "type" at its top level. */
static bool scan_model(model_summary *s, json_reader *r, int64_t *largest) {
    for (json_event ev; (ev = json_next(r)) != JSON_OBJECT_END;) {
        if (ev == JSON_ERROR) return false;
        bool is_vocab = view_eq_c(r->text, "vocab"), is_type = view_eq_c(r->text, "type");
        ev = json_next(r);
        if (is_type && ev == JSON_STRING) {
            s->tokenizer = keep(s, r->text);
        } else if (is_vocab && ev == JSON_OBJECT_BEGIN) {
            while ((ev = json_next(r)) != JSON_OBJECT_END) {
                if (ev == JSON_ERROR) return false;
                if (ev == JSON_INT && r->integer > *largest) *largest = r->integer;
                if (!json_skip(r, ev)) return false;
            }
        } else if (is_vocab && ev == JSON_ARRAY_BEGIN) {
            int64_t n = 0;
            for (; (ev = json_next(r)) != JSON_ARRAY_END; n++) {
                if (!json_skip(r, ev)) return false;
            }
            if (n - 1 > *largest) *largest = n - 1;
        } else if (!json_skip(r, ev)) {
            return false;
        }
    }
    return true;
}

static bool scan_added(json_reader *r, int64_t *largest) {
    int base = r->depth;
    while (r->depth >= base) {
        json_event ev = json_next(r);
        if (ev == JSON_ERROR) return false;
        if (ev == JSON_KEY && r->depth == base + 1 && view_eq_c(r->text, "id")) {
            if ((ev = json_next(r)) == JSON_INT && r->integer > *largest) *largest = r->integer;
            if (!json_skip(r, ev)) return false;
        }
    }
    return true;
}

static void scan_tokenizer_json(model_summary *s, const char *text, size_t len) {
    json_reader r;
    int64_t     largest = -1;
    bool        ok = true;
    json_reader_init(&r, text, len);
    if (json_next(&r) == JSON_OBJECT_BEGIN) {
        while (ok) {
            json_event ev = json_next(&r);
            if (ev != JSON_KEY) break;
            bool is_model = view_eq_c(r.text, "model"), is_added = view_eq_c(r.text, "added_tokens");
            ev = json_next(&r);
            if (is_model && ev == JSON_OBJECT_BEGIN)
                ok = scan_model(s, &r, &largest);
            else if (is_added && ev == JSON_ARRAY_BEGIN)
                ok = scan_added(&r, &largest);
            else
                ok = json_skip(&r, ev);
        }
    }
    if (!s->tokenizer.len) s->tokenizer = view_of("tokenizer.json");
    if (largest >= 0 && largest < MAX_COUNT) s->tokens = largest + 1;
    json_reader_deinit(&r);
}

static void tokenizer_of_dir(model_summary *s, const model_file *m) {
    static const char *const others[][2] = {
        { "tokenizer.model", "SentencePiece" }, { "tekken.json", "tekken" },      { "vocab.json", "BPE" },
        { "vocab.txt", "WordPiece" },           { "tiktoken.model", "tiktoken" },
    };
    char  *text;
    size_t len;
    if (read_sidecar(m, "tokenizer.json", MAX_TOKENIZER_BYTES, &text, &len)) scan_tokenizer_json(s, text, len);
    free(text);
    for (size_t i = 0; i < sizeof others / sizeof others[0] && !s->tokenizer.len; i++) {
        char *path = model_file_sidecar(m, others[i][0]);
        if (path) s->tokenizer = view_of(others[i][1]);
        free(path);
    }
}

/* A template in JSON: a string, or a list of named ones of which "default" counts. */
static size_t template_in(const json_value *v) {
    if (json_is(v, JSON_K_STRING)) return v->u.string.len;
    for (size_t i = 0; i < json_count(v); i++) {
        const json_value *one = json_at(v, i), *text = json_get(one, "template");
        const char       *name = json_cstr(json_get(one, "name"));
        if (json_is(text, JSON_K_STRING) && (json_count(v) == 1 || (name && strcmp(name, "default") == 0)))
            return text->u.string.len;
    }
    return 0;
}

static void template_of_dir(model_summary *s, const model_file *m) {
    static const char *const files[] = { "chat_template.json", "tokenizer_config.json" };
    char                    *text;
    size_t                   len;
    if (read_sidecar(m, "chat_template.jinja", MAX_TEMPLATE_BYTES, &text, &len)) {
        s->template_source = view_of("chat_template.jinja");
        s->template_bytes = len;
    }
    free(text);
    for (size_t i = 0; i < 2 && !s->template_source.len; i++) {
        arena             a;
        const json_value *v;
        arena_init(&a, (size_t)MAX_TEMPLATE_BYTES * 8);
        if (read_sidecar(m, files[i], MAX_TEMPLATE_BYTES, &text, &len) && json_parse(&v, text, len, &a, NULL) == 0 &&
            (len = template_in(json_get(v, "chat_template"))) > 0) {
            s->template_source = view_of(files[i]);
            s->template_bytes = len;
        }
        free(text);
        arena_deinit(&a);
    }
}

/* ---- the two kinds ---- */

static void read_gguf(model_summary *s, const model_file *m) {
    view              text;
    const meta_value *tokens = model_file_meta(m, "tokenizer.ggml.tokens");
    s->format = "GGUF";
    (void)meta_string(model_file_meta(m, "general.name"), &s->name);
    s->context = arch_int(m, "context_length");
    s->layers = arch_int(m, "block_count");
    s->embedding = arch_int(m, "embedding_length");
    s->heads = arch_int(m, "attention.head_count");
    s->kv_heads = arch_int(m, "attention.head_count_kv");
    if (!s->kv_heads) s->kv_heads = s->heads;
    s->vocabulary = arch_int(m, "vocab_size");
    (void)meta_string(model_file_meta(m, "tokenizer.ggml.model"), &s->tokenizer);
    (void)meta_string(model_file_meta(m, "tokenizer.ggml.pre"), &s->pre);
    if (tokens && tokens->type == META_ARRAY) s->tokens = (int64_t)tokens->count;
    if (!s->vocabulary) s->vocabulary = s->tokens;
    if (meta_string(model_file_meta(m, "tokenizer.chat_template"), &text)) {
        s->template_source = view_of("tokenizer.chat_template");
        s->template_bytes = text.len;
    }
    kv_of_gguf(s, m);
}

static void read_dir(model_summary *s, const model_file *m) {
    const json_value *name = json_get(model_file_config(m), "_name_or_path");
    s->format = model_file_format(m) == MODEL_MLX ? "MLX" : "Hugging Face";
    if (json_is(name, JSON_K_STRING)) s->name = name->u.string;
    if (model_file_hf_quant(m)->name) s->method = view_of(model_file_hf_quant(m)->name);
    s->context =
        CONFIG_INT(m, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len");
    s->layers = CONFIG_INT(m, "num_hidden_layers", "n_layer", "n_layers", "num_layers");
    s->embedding = CONFIG_INT(m, "hidden_size", "n_embd", "d_model");
    s->heads = CONFIG_INT(m, "num_attention_heads", "n_head", "n_heads");
    s->kv_heads = CONFIG_INT(m, "num_key_value_heads", "num_kv_heads", "multi_query_group_num");
    if (!s->kv_heads) s->kv_heads = s->heads;
    s->vocabulary = CONFIG_INT(m, "vocab_size");
    tokenizer_of_dir(s, m);
    template_of_dir(s, m);
    kv_of_config(s, m);
}

void model_summary_read(model_summary *s, const model_file *m) {
    *s = (model_summary){ 0 };
    arena_init(&s->mem, 0);
    if (model_file_arch(m)) s->arch = view_of(model_file_arch(m));
    s->file_bytes = model_file_bytes(m);
    count_tensors(s, m);
    name_level(s, m);
    if (model_file_format(m) == MODEL_GGUF)
        read_gguf(s, m);
    else
        read_dir(s, m);
}

void model_summary_deinit(model_summary *s) { arena_deinit(&s->mem); }

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json. Of a GGUF file: every value that the family looked up stands under its first plain name in config.json
 * (nn/config.h notes both), the family's row says the rest, and rotary scaling is said as the older rope_scaling, which
 * every reader knows. Whether that is enough is not decided here: the directory is opened again and compared.
 */
#include "convert/hf_files.h"

#include "convert/hf_writer.h"
#include "nn/bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hf_files_add(hf_files *f, const char *name, const void *data, size_t bytes, arena *mem, err *e) {
    void *copy = arena_alloc(mem, bytes ? bytes : 1);
    if (f->n == sizeof f->list / sizeof *f->list) return err_set(e, ERR_LIMIT, "more than %zu files", f->n);
    if (!copy) return err_set_nomem(e);
    if (bytes) memcpy(copy, data, bytes);
    f->list[f->n++] = (dir_file){ name, copy, bytes };
    return 0;
}

const nn_config_note *hf_note(const nn_model *m, const char *key) {
    for (const nn_config_note *n = m->config.notes; n; n = n->next)
        if (strcmp(n->key, key) == 0) return n;
    return NULL;
}

bool hf_begin(hf_writer *w, const char *name) {
    char *copy;
    if (map_get_c(&w->said, name, NULL)) return false;
    if (!(copy = arena_strdup(w->mem, name)) || !map_put(&w->said, copy, strlen(copy), 1)) w->out.failed = true;
    str_puts(&w->out, w->out.len > 1 ? ",\n  " : "\n  ");
    str_put_json(&w->out, name, strlen(name));
    str_puts(&w->out, ": ");
    return true;
}

/* The shortest text that is this number in single precision, in which GGUF holds it. */
void hf_put_float(str *s, double x) {
    char text[40];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtof(text, NULL) == (float)x) break;
    }
    str_puts(s, text);
    if (!strpbrk(text, ".e")) str_puts(s, ".0");
}

void hf_put_text(str *s, const char *text) { str_put_json(s, text, strlen(text)); }

static void say_text(hf_writer *w, const char *name, const char *text) {
    if (hf_begin(w, name)) hf_put_text(&w->out, text);
}

static void say_int(hf_writer *w, const char *name, int64_t x) {
    if (hf_begin(w, name)) str_printf(&w->out, "%lld", (long long)x);
}

static void say_bool(hf_writer *w, const char *name, bool x) {
    if (hf_begin(w, name)) str_puts(&w->out, x ? "true" : "false");
}

/* --- values that were looked up ------------------------------------------------------------------------------------ */

static bool is_one_of(const char *list, const char *name, size_t len) {
    while (list && *list) {
        size_t n = strcspn(list, "|");
        if (n == len && memcmp(list, name, n) == 0) return true;
        list += n + (list[n] == '|');
    }
    return false;
}

/* The name to write: one that the family prefers, else the first that is not a path. */
static bool choose(const hf_family *f, const char *list, char *out, size_t bytes) {
    bool any = false;
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, "|");
        bool   plain = !memchr(p, '.', n) && n < bytes, liked = plain && is_one_of(f->prefer, p, n);
        if (plain && (!any || liked)) {
            memcpy(out, p, n);
            out[n] = '\0';
            any = true;
        }
        if (liked) break;
        p += n + (p[n] == '|');
    }
    return any;
}

static void say_note(hf_writer *w, const nn_config_note *n) {
    char name[64];
    if (!n->hf || !choose(w->f, n->hf, name, sizeof name) || !hf_begin(w, name)) return;
    switch (n->type) {
    case 'i': str_printf(&w->out, "%lld", (long long)n->value); break;
    case 'f': hf_put_float(&w->out, n->value); break;
    case 'b': str_puts(&w->out, n->value != 0 ? "true" : "false"); break;
    case 's': hf_put_text(&w->out, n->text); break;
    default:
        str_push(&w->out, '[');
        for (int i = 0; i < n->n_list; i++) {
            if (i) str_puts(&w->out, ", ");
            if (n->text && strcmp(name, "layer_types") == 0)
                hf_put_text(&w->out, n->list[i]                               ? n->text
                                     : strcmp(n->text, "full_attention") == 0 ? "sliding_attention"
                                                                              : "full_attention");
            else if (n->type == 'B')
                str_puts(&w->out, n->list[i] ? "true" : "false");
            else
                str_printf(&w->out, "%d", n->list[i]);
        }
        str_push(&w->out, ']');
    }
}

/* --- rotation ------------------------------------------------------------------------------------------------------ */

static void put_member(str *s, const char *name, double x, bool whole) {
    str_puts(s, ", ");
    hf_put_text(s, name);
    str_puts(s, ": ");
    if (whole)
        str_printf(s, "%lld", (long long)x);
    else
        hf_put_float(s, x);
}

static double note_value(const nn_model *m, const char *key, double dflt) {
    const nn_config_note *n = hf_note(m, key);
    return n ? n->value : dflt;
}

/* Llama 3's rule has four numbers; a GGUF file holds what it gave. */
static bool is_llama3(const float *f, int64_t n, double base, double factor, double low, double high, double orig) {
    for (int64_t i = 0; i < n; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(base, (double)i / (double)n), want = 1;
        double smooth = (orig / wave - low) / (high - low);
        if (wave > orig / low)
            want = factor;
        else if (wave >= orig / high)
            want = 1 / ((1 - smooth) / factor + smooth);
        if (fabs(want - (double)f[i]) > 1e-5 * want) return false;
    }
    return true;
}

static bool say_llama3(hf_writer *w, const float *f, int64_t n, double base) {
    static const int origs[] = { 8192, 4096, 2048, 16384, 32768, 1024, 512, 256, 128, 64, 32, 16 };
    double           factor = 1;
    for (int64_t i = 0; i < n; i++) factor = fmax(factor, (double)f[i]);
    char    key[160];
    int64_t noted = origs[0]; /* a hint that nothing else reads */
    snprintf(key, sizeof key, "%.100s.rope.scaling.original_context_length", w->m->config.arch_name);
    meta_int(model_file_meta(w->m->file, key), &noted);
    for (size_t k = 0; k < sizeof origs / sizeof *origs; k++) {
        const double length = k == 0 && is_llama3(f, n, base, factor, 1, 4, (double)noted) ? (double)noted : origs[k];
        if (!is_llama3(f, n, base, factor, 1, 4, length)) continue;
        if (!hf_begin(w, "rope_scaling")) return false;
        str_puts(&w->out, "{\"rope_type\": \"llama3\", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0");
        put_member(&w->out, "factor", factor, false);
        put_member(&w->out, "original_max_position_embeddings", length, true);
        str_push(&w->out, '}');
        return true;
    }
    return false;
}

static void put_factors(hf_writer *w, const char *name, const model_tensor *t) {
    str_puts(&w->out, ", ");
    hf_put_text(&w->out, name);
    str_puts(&w->out, ": [");
    for (int64_t i = 0; i < t->dims[0]; i++) {
        float x;
        memcpy(&x, t->data + 4 * i, 4);
        if (i) str_puts(&w->out, ", ");
        hf_put_float(&w->out, (double)x);
    }
    str_push(&w->out, ']');
}

static int say_longrope(hf_writer *w, const model_tensor *longer, const model_tensor *shorter, err *e) {
    double orig = note_value(w->m, "rope.scaling.original_context_length", 0);
    if (!shorter || shorter->type != TENSOR_F32 || longer->type != TENSOR_F32)
        return err_set(e, ERR_UNSUPPORTED, "the rotary factors are not F32");
    say_int(w, "original_max_position_embeddings", (int64_t)orig);
    if (!hf_begin(w, "rope_scaling")) return 0;
    str_puts(&w->out, "{\"rope_type\": \"longrope\", \"type\": \"longrope\"");
    put_factors(w, "short_factor", shorter);
    put_factors(w, "long_factor", longer);
    /* Said only where it is not what follows from the lengths. */
    double factor = orig > 1 ? w->m->dims->context / orig : 1,
           rule = factor > 1 ? sqrt(1 + log(factor) / log(orig)) : 1;
    double scale = note_value(w->m, "rope.scaling.attn_factor", rule);
    bool   two = strcmp(w->f->model_type, "phimoe") == 0; /* one scale for each list there; the file has one */
    if (two) put_member(&w->out, "short_mscale", scale, false);
    if (two) put_member(&w->out, "long_mscale", scale, false);
    if (!two && fabs(scale - rule) > 1e-6 * rule) put_member(&w->out, "attention_factor", scale, false);
    str_push(&w->out, '}');
    return 0;
}

static int say_scaling(hf_writer *w, const char *type, err *e) {
    static const char *const yarn[][2] = { { "rope.scaling.yarn_beta_fast", "beta_fast" },
                                           { "rope.scaling.yarn_beta_slow", "beta_slow" },
                                           { "rope.scaling.yarn_attn_factor", "attention_factor" } };
    bool                     is_yarn = strcmp(type, "yarn") == 0;
    if (!is_yarn && strcmp(type, "linear") != 0)
        return err_set(e, ERR_UNSUPPORTED, "rotary scaling \"%.40s\" cannot be written", type);
    const nn_config_note *beta = hf_note(w->m, "attention.temperature_scale"); /* read of the newer object only */
    double                mla = note_value(w->m, "rope.scaling.yarn_log_multiplier", 0);
    if (!hf_begin(w, beta ? "rope_parameters" : "rope_scaling")) return 0;
    str_printf(&w->out, "{\"rope_type\": \"%s\", \"type\": \"%s\"", type, type);
    if (beta) put_member(&w->out, "llama_4_scaling_beta", beta->value, false);
    if (beta) put_member(&w->out, "rope_theta", note_value(w->m, "rope.freq_base", 10000), false);
    if (mla != 0 && note_value(w->m, "attention.kv_lora_rank", 0) > 0) mla *= 10; /* GGUF has a tenth of it there */
    if (is_yarn && strcmp(w->f->model_type, "gpt_oss") == 0) str_puts(&w->out, ", \"truncate\": false");
    if (mla != 0) put_member(&w->out, "mscale", mla, false);
    if (mla != 0) put_member(&w->out, "mscale_all_dim", mla, false);
    put_member(&w->out, "factor", note_value(w->m, "rope.scaling.factor", 1), false);
    for (int i = 0; i < 3 && is_yarn; i++)
        if (hf_note(w->m, yarn[i][0])) put_member(&w->out, yarn[i][1], note_value(w->m, yarn[i][0], 0), false);
    if (is_yarn)
        put_member(&w->out, "original_max_position_embeddings",
                   note_value(w->m, "rope.scaling.original_context_length", 0), true);
    str_push(&w->out, '}');
    return 0;
}

/* The share of the pairs that turn where the others stand still; 0: the factors say something else. */
static double turning_share(const model_tensor *t) {
    int64_t n = t && t->type == TENSOR_F32 ? t->dims[0] : 0, turning = 0;
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, t->data + 4 * i, 4);
        if (x == 1.0f && turning == i) turning++;
        if (x != 1.0f && x < 1e20f) return 0;
    }
    return n ? (double)turning / (double)n : 0;
}

/* A rule for full layers and one for windows, as newer families have them. */
static bool say_two_ropes(hf_writer *w, double share) {
    static const char *const keys[][2] = { { "rope.freq_base", "rope.dimension_count" },
                                           { "rope.freq_base_swa", "rope.dimension_count_swa" } };
    double                   dim = w->m->dims->head_dim;
    if (!is_one_of(w->f->prefer, "two_ropes", 9) || !hf_note(w->m, keys[1][0])) return false;
    if (!hf_begin(w, "rope_parameters")) return true;
    for (int i = 0; i < 2; i++) {
        double rot = note_value(w->m, keys[i][1], note_value(w->m, keys[0][1], dim));
        str_printf(&w->out, "%s: {\"rope_type\": \"%s\"", i ? ", \"sliding_attention\"" : "{\"full_attention\"",
                   share > 0 && !i ? "proportional" : "default");
        put_member(&w->out, "rope_theta", note_value(w->m, keys[i][0], 10000), false);
        str_puts(&w->out, ", \"partial_rotary_factor\": ");
        str_put_real(&w->out, share > 0 ? (i ? 1 : share) : dim > 0 ? rot / dim : 1);
        str_push(&w->out, '}');
    }
    str_push(&w->out, '}');
    return true;
}

static int say_rope(hf_writer *w, err *e) {
    const model_file     *file = w->m->file;
    const nn_config_note *type = hf_note(w->m, "rope.scaling.type"), *base = hf_note(w->m, "rope.freq_base");
    const model_tensor   *freqs = model_file_tensor(file, "rope_freqs.weight"),
                       *longer = model_file_tensor(file, "rope_factors_long.weight");
    double rot = note_value(w->m, "rope.dimension_count", 0);
    if (!base) return 0; /* no rotation */
    bool   scaled = (type && strcmp(type->text, "none") != 0) || longer;
    double share = turning_share(freqs);
    if (!scaled && (!freqs || share > 0) && say_two_ropes(w, share)) return 0;
    if (hf_begin(w, "rope_theta")) hf_put_float(&w->out, base->value);
    const char *part = is_one_of(w->f->prefer, "rotary_pct", 10) ? "rotary_pct" : "partial_rotary_factor";
    bool        latent = note_value(w->m, "attention.kv_lora_rank", 0) > 0; /* all of a part of its own rotates */
    if (!latent && rot > 0 && w->m->dims->head_dim > 0 && rot != w->m->dims->head_dim && hf_begin(w, part))
        str_put_real(&w->out, rot / w->m->dims->head_dim);
    if (longer) return say_longrope(w, longer, model_file_tensor(file, "rope_factors_short.weight"), e);
    if (freqs) {
        float *f = freqs->type == TENSOR_F32 ? arena_alloc(w->mem, freqs->bytes) : NULL;
        if (f) memcpy(f, freqs->data, freqs->bytes);
        if (!f || !say_llama3(w, f, freqs->dims[0], base->value))
            return err_set(e, ERR_UNSUPPORTED,
                           "rope_freqs.weight does not follow a rule that config.json has a name for");
        return 0;
    }
    return type && strcmp(type->text, "none") != 0 ? say_scaling(w, type->text, e) : 0;
}

/* --- the rest ------------------------------------------------------------------------------------------------------ */

static void say_id(hf_writer *w, const char *name, const char *key) {
    int64_t id;
    if (meta_int(model_file_meta(w->m->file, key), &id)) say_int(w, name, id);
}

static const char *type_name(tensor_type type) {
    return type == TENSOR_F32 ? "float32" : type == TENSOR_F16 ? "float16" : "bfloat16";
}

/* What classes of transformers only make where config.json says so: it follows from the tensors that are there. */
static void say_switches(hf_writer *w, bool qkv_bias, bool mlp_bias) {
    bool head_norms = false, late_norm = false, stable = strcmp(w->f->model_type, "stablelm") == 0;
    for (const nn_bound_vec *x = w->m->bound_vecs; x; x = x->next) {
        head_norms = head_norms || (x->hf && (strstr(x->hf, "q_norm") || strstr(x->hf, "q_layernorm")));
        late_norm = late_norm || (x->hf && strstr(x->hf, "post_attention_layernorm"));
    }
    if (strcmp(w->f->model_type, "cohere") == 0 || strcmp(w->f->model_type, "glm4_moe") == 0)
        say_bool(w, "use_qk_norm", head_norms);
    if (stable) {
        say_bool(w, "qk_layernorm", head_norms);
        say_bool(w, "use_qkv_bias", qkv_bias);
        say_bool(w, "use_parallel_residual", !late_norm);
    }
    if (qkv_bias && !stable) say_bool(w, "attention_bias", true);
    if (mlp_bias) say_bool(w, "mlp_bias", true);
}

/* Layers without experts in a model that has them. */
static void say_dense_layers(hf_writer *w) {
    bool first = true;
    if (!strstr(w->f->model_type, "_moe") || strncmp(w->f->model_type, "qwen", 4) != 0) return;
    if (!hf_begin(w, "mlp_only_layers")) return;
    str_push(&w->out, '[');
    for (int i = 0; i < w->m->dims->n_layer; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
        if (model_file_tensor(w->m->file, name)) continue;
        str_printf(&w->out, "%s%d", first ? "" : ", ", i);
        first = false;
    }
    str_push(&w->out, ']');
}

static void say_shape(hf_writer *w) {
    bool tied = true, bias = false, mlp_bias = false;
    for (const nn_bound *x = w->m->bound; x; x = x->next) {
        if (x->gguf && strcmp(x->gguf, "output") == 0 && !x->head) tied = false;
        if (x->gguf && strcmp(x->gguf, "attn_q") == 0 && x->bias) bias = true;
        if (x->gguf && strcmp(x->gguf, "ffn_up") == 0 && x->bias) mlp_bias = true;
        if (x->gguf && strcmp(x->gguf, "token_embd") == 0) say_int(w, "vocab_size", x->rows);
        if (x->gguf && strcmp(x->gguf, "per_layer_token_embd") == 0) say_int(w, "vocab_size_per_layer_input", x->rows);
    }
    say_bool(w, "tie_word_embeddings", tied);
    say_switches(w, bias, mlp_bias);
    say_dense_layers(w);
}

/* Gemma's config.json names what the scores are divided by the root of; GGUF files mostly leave it to the reader. */
static void say_divisor(hf_writer *w) {
    const nn_tape *t = w->m->tape;
    if (!strstr(w->f->model_type, "gemma") || strcmp(w->f->model_type, "gemma") == 0) return;
    for (int i = 0; i < t->n_ops; i++) {
        if (t->ops[i].kind != NN_OP_ATTN) continue;
        double x = 1 / ((double)t->ops[i].u.attn.scale * (double)t->ops[i].u.attn.scale);
        if (!hf_begin(w, "query_pre_attn_scalar")) return;
        if (fabs(x - rint(x)) < 1e-4 * x)
            str_printf(&w->out, "%lld", (long long)rint(x));
        else
            hf_put_float(&w->out, x);
        return;
    }
}

static int finish(hf_files *f, hf_writer *w, const str *quantization, err *e) {
    if (quantization && quantization->len) {
        if (hf_begin(w, "quantization")) str_append(&w->out, quantization->data, quantization->len);
        if (hf_begin(w, "quantization_config")) str_append(&w->out, quantization->data, quantization->len);
    }
    str_puts(&w->out, "\n}\n");
    int rc = str_ok(&w->out) ? hf_files_add(f, "config.json", w->out.data, w->out.len, w->mem, e) : err_set_nomem(e);
    str_deinit(&w->out);
    map_deinit(&w->said);
    return rc;
}

int hf_config_from_gguf(hf_files *f, const nn_model *m, const hf_family *family, tensor_type type,
                        const str *quantization, arena *mem, err *e) {
    hf_writer w = { .m = m, .f = family, .mem = mem };
    str_init(&w.out);
    map_init(&w.said);
    str_push(&w.out, '{');
    if (hf_begin(&w, "architectures")) str_printf(&w.out, "[\"%s\"]", family->class_name);
    say_text(&w, "model_type", family->model_type);
    say_text(&w, "torch_dtype", type_name(type));
    int rc = hf_say_fields(&w, true, e);
    say_shape(&w);
    if (rc == 0) rc = say_rope(&w, e);
    for (const nn_config_note *n = m->config.notes; n && rc == 0; n = n->next) say_note(&w, n);
    if (m->dims->n_head > 0)
        say_int(&w, "num_attention_heads", m->dims->n_head); /* where layers have lists of their own */
    say_int(&w, "num_key_value_heads", m->dims->n_kv);       /* where the file is silent: as many as heads */
    say_int(&w, "max_position_embeddings", m->dims->context);
    say_divisor(&w);
    say_id(&w, "bos_token_id", "tokenizer.ggml.bos_token_id");
    say_id(&w, "eos_token_id", "tokenizer.ggml.eos_token_id");
    say_id(&w, "pad_token_id", "tokenizer.ggml.padding_token_id");
    if (hf_begin(&w, "pad_token_id")) str_puts(&w.out, "null"); /* the class's own may lie beyond the vocabulary */
    if (rc == 0) rc = hf_say_fields(&w, false, e);
    int end = finish(f, &w, quantization, rc < 0 ? NULL : e);
    return rc < 0 ? rc : end;
}

int hf_config_from_dir(hf_files *f, const model_file *m, int type, const str *quantization, arena *mem, err *e) {
    hf_writer         w = { .mem = mem };
    const json_value *root = model_file_config(m);
    bool              blocks = false; /* packed tensors that are copied need what the file says of them */
    if (!root) return err_set(e, ERR_NOTFOUND, "%s has no config.json", model_file_path(m));
    for (size_t i = 0; i < model_file_tensor_count(m); i++)
        blocks = blocks || strstr(model_file_tensor_at(m, i)->name, "_blocks");
    str_init(&w.out);
    map_init(&w.said);
    str_push(&w.out, '{');
    for (size_t i = 0; i < root->u.object.count; i++) {
        const json_member *x = &root->u.object.members[i];
        char              *name = arena_strndup(mem, x->key.data, x->key.len);
        if (!name) w.out.failed = true;
        if (!name || (!blocks && strncmp(name, "quantization", 12) == 0)) continue;
        if (type >= 0 && (strcmp(name, "torch_dtype") == 0 || strcmp(name, "dtype") == 0))
            say_text(&w, name, type_name((tensor_type)type));
        else if (hf_begin(&w, name))
            json_write(&x->value, &w.out);
    }
    return finish(f, &w, quantization, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synthetic models: shapes from a family's own bind functions, weights from a few random rows.
 *
 * One matrix row in ROWS is really drawn and quantized; the others repeat them in a scrambled order. Tensors with the
 * same row length share their bytes in memory, so a file of many gigabytes needs only its largest tensor.
 *
 * Such a model says the same about most tokens. One with outliers, which measures what the types of cache pages lose, has
 * every row drawn, and keys in which few channels are much larger than the others, as trained models have them.
 */
#include "convert/export.h"

#include "base/num.h"
#include "base/str.h"
#include "nn/plan.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, MAX_STORES = 64 };

/* With outliers: how far logits spread, since those of a trained model do. Weights as they are drawn give a deviation of 1 and
 * predictions that say nothing. */
static const double SPREAD_LOGITS = 3;

static uint64_t next_random(uint64_t *s) { /* splitmix64 */
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *s) { return (double)(next_random(s) >> 11) * 0x1p-53; }

static double normal(uint64_t *s) {
    double u = uniform(s) + 1e-300, v = uniform(s);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Bytes for any tensor with rows of this type and length. */
typedef struct store {
    int      type;
    int64_t  cols, rows;
    uint8_t *data;
} store;

typedef struct synth {
    const synth_options *o;
    store                stores[MAX_STORES];
    int                  n_stores;
    void               **own; /* data of tensors that share with none */
    size_t               n_own;
    uint64_t             random;
    bool                 experts; /* the model has stacks of matrices */
    arena                mem;
    err                 *e;
} synth;

/* Types without a quantizer: random blocks that decode to sane numbers. */
static bool random_blocks(synth *s, int type, uint8_t *row, int64_t cols) {
    const tensor_type_info *i = tensor_type_get(type);
    float                   v[256];
    if (!i || i->block_elems > 256) return false;
    for (int64_t b = 0; b < cols / i->block_elems; b++) {
        uint8_t *block = row + (size_t)b * i->block_bytes;
        for (int tries = 0;; tries++) {
            if (tries == 100000) return false;
            for (int k = 0; k < i->block_bytes; k++) block[k] = (uint8_t)next_random(&s->random);
            float top = 0;
            if (!tensor_dequant_row(type, block, v, i->block_elems)) return false;
            for (int k = 0; k < i->block_elems; k++) top = isfinite(v[k]) ? fmaxf(top, fabsf(v[k])) : INFINITY;
            if (top > 1e-4f && top < 0.2f) break;
        }
    }
    return true;
}

static int fill_rows(synth *s, store *st, size_t row_bytes) {
    float *row = malloc((size_t)st->cols * sizeof *row);
    int    rc = row ? 0 : err_set_nomem(s->e);
    for (int64_t r = 0; r < ROWS && r < st->rows && rc == 0; r++) {
        uint8_t *to = st->data + (size_t)r * row_bytes;
        for (int64_t c = 0; c < st->cols; c++) row[c] = (float)(normal(&s->random) / sqrt((double)st->cols));
        if (!tensor_quant_row(st->type, row, to, st->cols) && !random_blocks(s, st->type, to, st->cols))
            rc = err_set(s->e, ERR_UNSUPPORTED, "cannot make random weights of type %s", tensor_type_name(st->type));
    }
    free(row);
    for (int64_t r = ROWS; r < st->rows && rc == 0; r++)
        memcpy(st->data + (size_t)r * row_bytes, st->data + (size_t)(next_random(&s->random) % ROWS) * row_bytes,
               row_bytes);
    return rc;
}

/* Rows of this kind; the largest need comes first, see synth_gguf. */
static int store_for(synth *s, int type, int64_t cols, int64_t rows, store **out) {
    size_t row_bytes, bytes;
    for (int i = 0; i < s->n_stores; i++) {
        *out = &s->stores[i];
        if ((*out)->type == type && (*out)->cols == cols && (*out)->rows >= rows) return 0;
    }
    if (s->n_stores == MAX_STORES) return err_set(s->e, ERR_LIMIT, "too many different shapes");
    if (!tensor_row_bytes(type, cols, &row_bytes) || !num_mul_size(row_bytes, (size_t)rows, &bytes))
        return err_set(s->e, ERR_LIMIT, "a tensor too large");
    void *data = malloc(bytes ? bytes : 1);
    if (!data) return err_set_nomem(s->e);
    store *st = *out = &s->stores[s->n_stores++]; /* freed with all stores */
    *st = (store){ type, cols, rows, data };
    return fill_rows(s, st, row_bytes); /* NOLINT(clang-analyzer-unix.Malloc): the store owns it */
}

/* As files have them: routers are F32, and where experts are MXFP4 all other matrices are Q8_0. */
static int type_for(const synth *s, const nn_wanted *n) {
    size_t bytes;
    int    type = s->experts && !n->n_stack && s->o->type == TENSOR_MXFP4 ? TENSOR_Q8_0 : s->o->type;
    if (strstr(n->name, "ffn_gate_inp")) return TENSOR_F32;
    return tensor_row_bytes(type, n->cols, &bytes) ? type : TENSOR_F16;
}

static int add_vec(synth *s, gguf_writer *w, const nn_wanted *n) {
    int64_t count = n->total * (n->n_stack ? n->n_stack : 1), dims[2] = { n->n_stack ? n->total : count, n->n_stack };
    bool    negative = strstr(n->name, "ssm_a") != NULL, weight = strstr(n->name, "norm") || strstr(n->name, "scale");
    float  *v = arena_alloc(&s->mem, (size_t)count * sizeof *v);
    if (!v) return err_set_nomem(s->e);
    for (int64_t i = 0; i < count; i++)
        v[i] = (float)((negative ? -1.0 : weight ? 1.0 : 0.0) + 0.05 * normal(&s->random));
    if (s->o->outliers > 0 && strcmp(n->name, "output_norm.weight") == 0) {
        for (int64_t i = 0; i < count; i++) v[i] *= (float)SPREAD_LOGITS;
    }
    return gguf_writer_add(w, n->name, TENSOR_F32, n->n_stack ? 2 : 1, dims, v, (size_t)count * 4, s->e);
}

/* --- outliers ---------------------------------------------------------------------------------------------------- */

static double setting(const synth_options *o, const char *key, double otherwise) {
    for (size_t i = 0; i < o->n_set; i++) {
        if (strcmp(o->set[i].key, key) == 0) return o->set[i].value;
    }
    return otherwise;
}

/* The pair of channels of a key head that is large, among those that the positions turn slowly, and how large it is. */
typedef struct outlier {
    int64_t pair;
    double  factor;
} outlier;

static outlier outlier_of(const synth *s, long layer, int64_t head, int64_t dim) {
    uint64_t random = s->o->seed + (uint64_t)layer * 1000003u + (uint64_t)head * 1009u;
    int64_t  slow = dim / 4 > 0 ? dim / 4 : 1;
    outlier  o = { .pair = dim / 2 - 1 - (int64_t)(next_random(&random) % (uint64_t)slow) };
    o.factor = s->o->outliers / 3 * pow(3, uniform(&random));
    return o;
}

/* What a row of a matrix is multiplied with. Queries of a head are as much smaller as the outlier makes scores larger. */
static double row_factor(const synth *s, const nn_wanted *n, int64_t row) {
    const bool q = strstr(n->name, "attn_q.weight") != NULL, k = strstr(n->name, "attn_k.weight") != NULL;
    if (!q && !k) return 1;
    int64_t heads = (int64_t)setting(s->o, "attention.head_count", 1);
    int64_t keys = (int64_t)setting(s->o, "attention.head_count_kv", (double)heads),
            dim = n->total / (q ? heads : keys);
    if (dim < 2 || keys < 1 || heads < keys) return 1;
    long    layer = strncmp(n->name, "blk.", 4) == 0 ? strtol(n->name + 4, NULL, 10) : 0;
    outlier o = outlier_of(s, layer, q ? row / dim / (heads / keys) : row / dim, dim);
    if (q) return 1 / sqrt(((double)dim - 2 + 2 * o.factor * o.factor) / (double)dim);
    return row % dim / 2 == o.pair ? o.factor : 1;
}

/* Nearly normal, and quick: the sum of four numbers out of 16 bits. */
static double quick_normal(uint64_t *random) {
    uint64_t z = next_random(random);
    double   sum = (double)(z & 0xffff) + (double)(z >> 16 & 0xffff) + (double)(z >> 32 & 0xffff) + (double)(z >> 48);
    return (sum - 2 * 65535.0) * 2.6427e-5; /* 1 / (65536 sqrt(4 / 12)) */
}

static int keep_own(synth *s, void *data) {
    void **all = data ? realloc(s->own, (s->n_own + 1) * sizeof *all) : NULL;
    if (!all) {
        free(data);
        return err_set_nomem(s->e);
    }
    s->own = all;
    s->own[s->n_own++] = data;
    return 0;
}

/* A matrix of which every row is drawn. */
static int add_drawn(synth *s, gguf_writer *w, const nn_wanted *n, int type, size_t row_bytes, const int64_t *dims) {
    int64_t  rows = n->total * dims[2];
    uint8_t *data = malloc((size_t)rows * row_bytes);
    float   *row = malloc((size_t)n->cols * sizeof *row);
    int      rc = keep_own(s, data);
    if (rc == 0 && !row) rc = err_set_nomem(s->e);
    for (int64_t r = 0; r < rows && rc == 0; r++) {
        double factor = row_factor(s, n, r) / sqrt((double)n->cols);
        for (int64_t c = 0; c < n->cols; c++) row[c] = (float)(factor * quick_normal(&s->random));
        if (!tensor_quant_row((tensor_type)type, row, data + (size_t)r * row_bytes, n->cols))
            rc = err_set(s->e, ERR_UNSUPPORTED, "cannot draw weights of type %s", tensor_type_name(type));
    }
    free(row);
    if (rc < 0) return rc;
    return gguf_writer_add(w, n->name, (tensor_type)type, n->n_stack ? 3 : 2, dims, data, row_bytes * (size_t)rows,
                           s->e);
}

static int add_mat(synth *s, gguf_writer *w, const nn_wanted *n) {
    int64_t stack = n->n_stack ? n->n_stack : 1, dims[3] = { n->cols, n->total, stack };
    int     type = type_for(s, n), rc;
    size_t  row_bytes;
    store  *st;
    if (!tensor_row_bytes(type, n->cols, &row_bytes)) return err_set(s->e, ERR_LIMIT, "a row too long");
    if (s->o->outliers > 0) return add_drawn(s, w, n, type, row_bytes, dims);
    if ((rc = store_for(s, type, n->cols, n->total * stack, &st)) < 0) return rc;
    return gguf_writer_add(w, n->name, (tensor_type)type, n->n_stack ? 3 : 2, dims, st->data,
                           row_bytes * (size_t)(n->total * stack), s->e);
}

/* --- vocabulary ------------------------------------------------------------------------------------------------- */

/* The character that byte-level vocabularies write for a byte: itself where it prints, else one from U+0100 on. */
static void put_byte(str *s, int byte) {
    int next = 256;
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) {
        str_put_utf8(s, (unsigned)byte);
        return;
    }
    for (int b = 0; b < byte; b++) next += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    str_put_utf8(s, (unsigned)next);
}

static int64_t count_texts(const char *list) {
    int64_t n = list && *list ? 1 : 0;
    for (; list && *list; list++) n += *list == ',';
    return n;
}

static view text_at(const char *list, int64_t at) {
    for (; at > 0; at--) list = strchr(list, ',') + 1;
    return (view){ list, strcspn(list, ",") };
}

/* Token t: a byte, a pair of bytes, a pair and a byte. The last ones are control tokens: those that were asked for,
 * begin and end. */
static void put_token(str *s, int64_t t, int64_t n_vocab, const char *control, str *merge) {
    int64_t first = n_vocab - 2 - count_texts(control);
    str_clear(s);
    str_clear(merge);
    if (t >= first && t < n_vocab - 2) {
        view v = text_at(control, t - first);
        str_append(s, v.data, v.len);
        return;
    }
    if (t >= n_vocab - 2) {
        str_puts(s, t == n_vocab - 2 ? "<|begin|>" : "<|end|>");
        return;
    }
    if (t < 256) {
        put_byte(s, (int)t);
        return;
    }
    int64_t left = t - 256 < 65536 ? (t - 256) / 256 : 256 + (t - 256 - 65536) / 256, right = (t - 256) % 256;
    str     half;
    str_init(&half);
    if (left < 256) {
        put_byte(&half, (int)left);
    } else {
        put_byte(&half, (int)((left - 256) / 256));
        put_byte(&half, (int)((left - 256) % 256));
    }
    str_puts(s, str_cstr(&half));
    put_byte(s, (int)right);
    str_puts(merge, str_cstr(&half));
    str_push(merge, ' ');
    put_byte(merge, (int)right);
    str_deinit(&half);
}

static int set_vocabulary(synth *s, gguf_writer *w) {
    int64_t n = s->o->n_vocab, n_control = 2 + count_texts(s->o->control);
    view   *tokens = arena_calloc(&s->mem, (size_t)n, sizeof *tokens),
         *merges = arena_calloc(&s->mem, (size_t)n, sizeof *merges);
    int32_t *types = arena_calloc(&s->mem, (size_t)n, sizeof *types);
    size_t   n_merges = 0;
    str      token, merge;
    int      rc;
    if (n < 256 + n_control || n > 16000000)
        return err_set(s->e, ERR_ARG, "a vocabulary of %lld tokens; between %lld and 16000000 are possible",
                       (long long)n, 256 + (long long)n_control);
    if (!tokens || !merges || !types) return err_set_nomem(s->e);
    str_init(&token);
    str_init(&merge);
    for (int64_t t = 0; t < n; t++) {
        put_token(&token, t, n, s->o->control, &merge);
        tokens[t] = (view){ arena_strndup(&s->mem, str_cstr(&token), token.len), token.len };
        if (merge.len) merges[n_merges++] = (view){ arena_strndup(&s->mem, str_cstr(&merge), merge.len), merge.len };
        types[t] = t >= n - n_control ? 3 : 1; /* control, normal */
    }
    str_deinit(&token);
    str_deinit(&merge);
    rc = gguf_writer_set_string(w, "tokenizer.ggml.model", "gpt2", s->e);
    if (rc == 0) rc = gguf_writer_set_string(w, "tokenizer.ggml.pre", "gpt-2", s->e);
    if (rc == 0) rc = gguf_writer_set_strings(w, "tokenizer.ggml.tokens", tokens, (size_t)n, s->e);
    if (rc == 0) rc = gguf_writer_set_array(w, "tokenizer.ggml.token_type", META_I32, types, (size_t)n, s->e);
    if (rc == 0) rc = gguf_writer_set_strings(w, "tokenizer.ggml.merges", merges, n_merges, s->e);
    if (rc == 0) rc = gguf_writer_set_int(w, "tokenizer.ggml.bos_token_id", META_U32, n - 2, s->e);
    if (rc == 0) rc = gguf_writer_set_int(w, "tokenizer.ggml.eos_token_id", META_U32, n - 1, s->e);
    return rc;
}

static int set_ranking(synth *s, gguf_writer *w) {
    char key[96];
    snprintf(key, sizeof key, "%s.pooling_type", s->o->arch->names[0]);
    int rc = gguf_writer_set_int(w, key, META_U32, 4, s->e);
    return rc < 0 ? rc : gguf_writer_set_string(w, "tokenizer.chat_template.rerank", s->o->rank_form, s->e);
}

/* Readers take a value's size from the width and the heads unless this key says otherwise. A family that has the key
 * writes its own value behind it. */
static int set_value_length(synth *s, gguf_writer *w) {
    char key[128];
    snprintf(key, sizeof key, "%s.attention.value_length", s->o->arch->names[0]);
    for (size_t i = 0; i < s->o->n_set; i++) {
        if (strcmp(s->o->set[i].key, "attention.key_length") == 0)
            return gguf_writer_set_int(w, key, META_U32, (int64_t)s->o->set[i].value, s->e);
    }
    return 0;
}

/* The vectors that were asked for, of one layer. */
static int add_vectors(synth *s, gguf_writer *w, int layer) {
    for (const char *at = s->o->vectors; at && *at;) {
        const char *equals = strchr(at, '=');
        char       *end = NULL, name[96];
        int64_t     n = equals ? strtoll(equals + 1, &end, 10) : 0,
                stack = end && *end == 'x' ? strtoll(end + 1, &end, 10) : 0;
        if (n <= 0 || n > 1 << 24 || stack < 0 || stack > 1 << 16 || (*end && *end != ',') || equals - at > 64)
            return err_set(s->e, ERR_ARG, "vectors '%s': expected NAME=N or NAME=NxSTACK, separated by commas", at);
        snprintf(name, sizeof name, "blk.%d.%.*s", layer, (int)(equals - at), at);
        nn_wanted v = {
            .name = arena_strndup(&s->mem, name, strlen(name)), .total = n, .cols = n, .n_stack = (int)stack
        };
        int rc = v.name ? add_vec(s, w, &v) : err_set_nomem(s->e);
        if (rc < 0) return rc;
        at = *end ? end + 1 : end;
    }
    return 0;
}

/* A head like the table of embeddings, with the same weights. */
static int add_head(synth *s, gguf_writer *w, const nn_model *m) {
    for (const nn_wanted *n = m->wanted; n; n = n->next) {
        if (strcmp(n->name, "token_embd.weight") != 0) continue;
        nn_wanted head = *n;
        head.name = "output.weight";
        return add_mat(s, w, &head);
    }
    return 0;
}

/* --- the file --------------------------------------------------------------------------------------------------- */

/* Makes the largest store of each row length first, so that smaller tensors find theirs. */
static int prepare_stores(synth *s, const nn_model *m) {
    int rc = 0;
    for (const nn_wanted *n = m->wanted; n && rc == 0; n = n->next) {
        if (n->rows == 0) continue;
        int64_t most = 0;
        for (const nn_wanted *o = m->wanted; o; o = o->next) {
            int64_t rows = o->total * (o->n_stack ? o->n_stack : 1);
            if (o->rows && o->cols == n->cols && type_for(s, o) == type_for(s, n) && rows > most) most = rows;
        }
        store *st;
        rc = store_for(s, type_for(s, n), n->cols, most, &st);
    }
    return rc;
}

static bool seen_before(const nn_model *m, const nn_wanted *w) {
    for (const nn_wanted *o = m->wanted; o != w; o = o->next) {
        if (strcmp(o->name, w->name) == 0) return true;
    }
    return false;
}

int synth_gguf(const synth_options *o, const char *path, err *e) {
    synth        s = { .o = o, .random = o->seed, .e = e };
    nn_model    *m = NULL;
    gguf_writer *w = NULL;
    int          rc;
    arena_init(&s.mem, 0);
    if ((rc = nn_model_sketch(&m, o->arch, o->set, o->n_set, e)) < 0) goto done;
    if ((rc = gguf_writer_open(&w, 0, e)) < 0) goto done;
    if ((rc = gguf_writer_set_string(w, "general.architecture", o->arch->names[0], e)) < 0) goto done;
    if ((rc = set_value_length(&s, w)) < 0) goto done;
    if ((rc = export_keys(w, m, true, e)) < 0) goto done;
    if ((rc = gguf_writer_set_string(w, "general.name", "random weights", e)) < 0) goto done;
    if ((rc = set_vocabulary(&s, w)) < 0) goto done;
    if (o->rank_form && (rc = set_ranking(&s, w)) < 0) goto done;
    /* Other readers want it of an encoder, also where it has no table of them. */
    if (nn_model_whole(m) && (rc = gguf_writer_set_int(w, "tokenizer.ggml.token_type_count", META_U32, 2, e)) < 0)
        goto done;
    for (const nn_wanted *n = m->wanted; n; n = n->next) s.experts = s.experts || (n->rows && n->n_stack);
    if (o->outliers <= 0 && (rc = prepare_stores(&s, m)) < 0) goto done;
    for (const nn_wanted *n = m->wanted; n && rc == 0; n = n->next) {
        if (!seen_before(m, n)) rc = n->rows ? add_mat(&s, w, n) : add_vec(&s, w, n);
    }
    for (int i = 0; i < m->dims->n_layer && rc == 0; i++) rc = add_vectors(&s, w, i);
    if (rc == 0 && o->untied) rc = add_head(&s, w, m);
    if (rc == 0) rc = gguf_writer_write(w, path, e);
done:
    for (int i = 0; i < s.n_stores; i++) free(s.stores[i].data);
    for (size_t i = 0; i < s.n_own; i++) free(s.own[i]);
    free(s.own);
    gguf_writer_free(w);
    nn_model_free(m);
    arena_deinit(&s.mem);
    return rc;
}

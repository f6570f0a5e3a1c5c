/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/hf.h"

#include "base/num.h"
#include "formats/table.h"
#include "formats/text.h"

#include <string.h>

enum { CONFIG_MEMORY = 256 << 20, INDEX_MEMORY = 1 << 30, MAX_GROUP = 1 << 20 };

/* ---- MLX packing ---- */

static int read_mode(const json_value *block, model_quant_mode *out, err *e) {
    static const char *const names[] = { "affine", "mxfp4", "mxfp8", "nvfp4" };
    const json_value        *mode = json_get(block, "mode");
    char                     text[64];
    *out = MODEL_QUANT_AFFINE;
    if (!mode || json_is(mode, JSON_K_NULL)) return 0;
    if (!json_is(mode, JSON_K_STRING)) return err_set(e, ERR_FORMAT, "mode is not a string");
    for (int i = 0; i < 4; i++) {
        if (view_eq_c(mode->u.string, names[i])) {
            *out = (model_quant_mode)i;
            return 0;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "mode %s is not supported", text_safe(text, sizeof text, mode->u.string));
}

static int read_number(const json_value *block, const char *key, int dflt, int *out, err *e) {
    const json_value *v = json_get(block, key);
    int64_t           i = dflt;
    if (v && !json_is(v, JSON_K_NULL) && !json_int(v, &i)) return err_set(e, ERR_FORMAT, "%s is not an integer", key);
    if (i < 0 || i > MAX_GROUP) return err_set(e, ERR_FORMAT, "%s is out of range", key);
    *out = (int)i;
    return 0;
}

static bool packing_known(const model_quant *q) {
    switch (q->mode) {
    case MODEL_QUANT_AFFINE:
        return (q->bits == 8 || (q->bits >= 2 && q->bits <= 6)) &&
               (q->group == 32 || q->group == 64 || q->group == 128);
    case MODEL_QUANT_MXFP4: return q->bits == 4 && q->group == 32;
    case MODEL_QUANT_MXFP8: return q->bits == 8 && q->group == 32;
    case MODEL_QUANT_NVFP4: return q->bits == 4 && q->group == 16;
    }
    return false;
}

static int read_packing(const json_value *block, model_quant *out, err *e) {
    static const int bits[] = { 4, 4, 8, 4 }, groups[] = { 64, 32, 32, 16 };
    int              rc;
    if ((rc = read_mode(block, &out->mode, e)) < 0) return rc;
    if ((rc = read_number(block, "bits", bits[out->mode], &out->bits, e)) < 0) return rc;
    if ((rc = read_number(block, "group_size", groups[out->mode], &out->group, e)) < 0) return rc;
    if (!packing_known(out))
        return err_set(e, ERR_UNSUPPORTED, "%d bits in groups of %d are not supported in this mode", out->bits,
                       out->group);
    return 0;
}

static bool is_setting(view key) {
    return view_eq_c(key, "bits") || view_eq_c(key, "group_size") || view_eq_c(key, "mode");
}

static int read_mlx(hf_config *c, const json_value *block, err *e) {
    hf_mlx *q = &c->mlx;
    size_t  n = json_count(block);
    int     rc;
    if (!json_is(block, JSON_K_OBJECT)) return err_set(e, ERR_FORMAT, "quantization is not an object");
    if ((rc = read_packing(block, &q->all, e)) < 0) return err_wrap(e, rc, "quantization");
    q->modules = arena_calloc(&c->mem, n, sizeof *q->modules);
    if (!q->modules || !map_reserve(&q->index, n)) return err_set_nomem(e);
    q->present = true;
    for (size_t i = 0; i < n; i++) {
        const json_member *m = &block->u.object.members[i];
        hf_module         *module = &q->modules[q->n_modules];
        char               text[120];
        if (is_setting(m->key)) continue;
        if (json_is(&m->value, JSON_K_OBJECT)) {
            module->quantized = true;
            if ((rc = read_packing(&m->value, &module->quant, e)) < 0)
                return err_wrap(e, rc, "quantization of %s", text_safe(text, sizeof text, m->key));
        } else if (json_is(&m->value, JSON_K_BOOL)) {
            module->quantized = m->value.u.boolean;
            module->quant = q->all;
        } else if (!json_is(&m->value, JSON_K_NULL)) {
            continue; /* a setting of a newer writer, not a module */
        }
        if (!map_put(&q->index, m->key.data, m->key.len, q->n_modules++)) return err_set_nomem(e);
    }
    return 0;
}

bool hf_mlx_module(const hf_mlx *q, const char *module, size_t len, model_quant *out) {
    uint64_t at;
    if (!q->present) return false;
    if (map_get(&q->index, module, len, &at)) {
        *out = q->modules[at].quant;
        return q->modules[at].quantized;
    }
    *out = q->all;
    return true;
}

/* ---- quantization_config of Hugging Face ---- */

/* 0 for what is not an integer in range: whoever loads the model refuses that. */
static int small_int(const json_value *v) {
    int64_t i;
    return json_int(v, &i) && i > 0 && i <= MAX_GROUP ? (int)i : 0;
}

static int read_hf_quant(model_hf_quant *q, const json_value *block, err *e) {
    static const struct {
        const char     *name;
        model_hf_method method;
    } methods[] = { { "fp8", MODEL_HF_FP8 },     { "gptq", MODEL_HF_GPTQ },
                    { "awq", MODEL_HF_AWQ },     { "bitsandbytes", MODEL_HF_BNB_8BIT },
                    { "mxfp4", MODEL_HF_MXFP4 }, { "compressed-tensors", MODEL_HF_COMPRESSED } };
    const json_value *size = json_get(block, "weight_block_size");
    bool              four = json_bool(json_get(block, "load_in_4bit"), false);
    int64_t           rows = 0, cols = 0;
    q->block = block;
    q->name = json_cstr(json_get(block, "quant_method"));
    if (!q->name) q->name = four || json_bool(json_get(block, "load_in_8bit"), false) ? "bitsandbytes" : "unnamed";
    q->method = MODEL_HF_OTHER;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(q->name, methods[i].name) == 0) q->method = methods[i].method;
    }
    if (q->method == MODEL_HF_BNB_8BIT && four) q->method = MODEL_HF_BNB_4BIT;
    q->bits = small_int(json_get(block, "bits"));        /* some methods write 4.65 here */
    q->group = small_int(json_get(block, "group_size")); /* -1: one group per row */
    if (size && !json_is(size, JSON_K_NULL)) {
        if (json_count(size) != 2 || !json_int(json_at(size, 0), &rows) || !json_int(json_at(size, 1), &cols) ||
            rows < 1 || cols < 1 || rows > MAX_GROUP || cols > MAX_GROUP)
            return err_set(e, ERR_FORMAT, "weight_block_size is not a pair of positive integers");
        q->block_rows = (int)rows;
        q->block_cols = (int)cols;
    }
    return 0;
}

/* ---- config.json ---- */

/* Models that speak, too, have the part that listens and reads in an object of its own. */
static const json_value *find_text(const json_value *root) {
    static const char *const names[] = { "text_config", "llm_config", "language_config" };
    const json_value        *thinker = json_get(root, "thinker_config");
    if (json_is(thinker, JSON_K_OBJECT)) root = thinker;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_value *v = json_get(root, names[i]);
        if (json_is(v, JSON_K_OBJECT)) return v;
    }
    return root;
}

static const json_value *either(const hf_config *c, const char *key) {
    const json_value *v = json_get(c->root, key);
    if (!v || json_is(v, JSON_K_NULL)) v = json_get(c->text, key);
    return v && !json_is(v, JSON_K_NULL) ? v : NULL;
}

static int read_quantization(hf_config *c, err *e) {
    const json_value *mlx = either(c, "quantization"), *hf = either(c, "quantization_config");
    int               rc = 0;
    /* MLX writes its block a second time under Hugging Face's name, without a method. */
    bool hf_is_mlx = hf && !json_get(hf, "quant_method") && json_get(hf, "group_size") && json_get(hf, "bits");
    if (!mlx && hf_is_mlx) mlx = hf;
    if (mlx) rc = read_mlx(c, mlx, e);
    if (rc == 0 && hf && !hf_is_mlx) {
        if (!json_is(hf, JSON_K_OBJECT)) return err_set(e, ERR_FORMAT, "quantization_config is not an object");
        if ((rc = read_hf_quant(&c->quant, hf, e)) < 0) err_wrap(e, rc, "quantization_config");
    }
    return rc;
}

int hf_config_read(hf_config *out, const char *json, size_t len, err *e) {
    int rc;
    *out = (hf_config){ 0 };
    arena_init(&out->mem, CONFIG_MEMORY);
    map_init(&out->mlx.index);
    if ((rc = json_parse(&out->root, json, len, &out->mem, e)) < 0) goto fail;
    if (!json_is(out->root, JSON_K_OBJECT)) {
        rc = err_set(e, ERR_FORMAT, "it is not a JSON object");
        goto fail;
    }
    out->text = find_text(out->root);
    if ((rc = read_quantization(out, e)) < 0) goto fail;
    return 0;
fail:
    hf_config_deinit(out);
    return rc;
}

void hf_config_deinit(hf_config *c) {
    map_deinit(&c->mlx.index);
    arena_deinit(&c->mem);
    *c = (hf_config){ 0 };
}

/* ---- model.safetensors.index.json ---- */

/* The name comes from a file that is not trusted: it must stay inside the directory. */
static int shard_name_check(view name, err *e) {
    int rc = text_name_check(name, 255, e);
    if (rc < 0) return rc;
    if (memchr(name.data, '/', name.len) || memchr(name.data, '\\', name.len) || name.data[0] == '.')
        return err_set(e, ERR_FORMAT, "it is not a plain file name");
    if (!view_ends(name, ".safetensors")) return err_set(e, ERR_UNSUPPORTED, "it is not a .safetensors file");
    return 0;
}

static int add_shard(hf_index *x, view name, uint64_t *at, err *e) {
    char        text[120];
    const char *copy;
    int         rc;
    if (map_get(&x->by_name, name.data, name.len, at)) return 0;
    if ((rc = shard_name_check(name, e)) < 0) return err_wrap(e, rc, "shard %s", text_safe(text, sizeof text, name));
    if (x->n_shards == HF_MAX_SHARDS) return err_set(e, ERR_LIMIT, "more than %d shards", HF_MAX_SHARDS);
    if (x->n_shards == x->cap) {
        size_t       cap = x->cap ? x->cap * 2 : 16;
        const char **shards = arena_alloc(&x->mem, cap * sizeof *shards);
        if (!shards) return err_set_nomem(e);
        if (x->n_shards) memcpy(shards, x->shards, x->n_shards * sizeof *shards);
        x->shards = shards;
        x->cap = cap;
    }
    copy = arena_strndup(&x->mem, name.data, name.len);
    *at = x->n_shards;
    if (!copy || !map_put(&x->by_name, copy, name.len, *at)) return err_set_nomem(e);
    x->shards[x->n_shards++] = copy;
    return 0;
}

static int read_weight_map(hf_index *x, json_reader *r, err *e) {
    if (json_next(r) != JSON_OBJECT_BEGIN)
        return r->failed ? r->error.code : err_set(e, ERR_FORMAT, "weight_map is not an object");
    for (;;) {
        char        text[120];
        const char *name;
        size_t      len;
        uint64_t    at;
        int         rc;
        json_event  ev = json_next(r);
        if (ev == JSON_ERROR) return r->error.code;
        if (ev == JSON_OBJECT_END) return 0;
        len = r->text.len;
        if ((rc = text_name_check(r->text, TABLE_MAX_NAME, e)) < 0)
            return err_wrap(e, rc, "weight_map: tensor %s", text_safe(text, sizeof text, r->text));
        name = arena_strndup(&x->mem, r->text.data, len);
        if (!name) return err_set_nomem(e);
        ev = json_next(r);
        if (ev == JSON_ERROR) return r->error.code;
        if (ev != JSON_STRING) return err_set(e, ERR_FORMAT, "weight_map: the shard of %s is not a string", name);
        if (map_get(&x->weights, name, len, NULL))
            return err_set(e, ERR_FORMAT, "weight_map: tensor %s appears twice", name);
        if (x->weights.count == TABLE_MAX_TENSORS)
            return err_set(e, ERR_LIMIT, "more than %u tensors", TABLE_MAX_TENSORS);
        if ((rc = add_shard(x, r->text, &at, e)) < 0) return err_wrap(e, rc, "weight_map: %s", name);
        if (!map_put(&x->weights, name, len, at)) return err_set_nomem(e);
    }
}

static int read_index(hf_index *x, json_reader *r, err *e) {
    bool seen = false;
    int  rc = 0;
    if (json_next(r) != JSON_OBJECT_BEGIN)
        return r->failed ? r->error.code : err_set(e, ERR_FORMAT, "it is not a JSON object");
    while (rc == 0) {
        json_event ev = json_next(r);
        if (ev == JSON_ERROR) return r->error.code;
        if (ev == JSON_OBJECT_END) break;
        if (view_eq_c(r->text, "weight_map")) {
            if (seen) return err_set(e, ERR_FORMAT, "weight_map appears twice");
            rc = read_weight_map(x, r, e);
            seen = true;
        } else if (!json_skip(r, json_next(r))) {
            return r->error.code;
        }
    }
    if (rc == 0 && json_next(r) != JSON_END) return r->error.code;
    return rc == 0 && !seen ? err_set(e, ERR_FORMAT, "weight_map is missing") : rc;
}

int hf_index_read(hf_index *out, const char *json, size_t len, err *e) {
    json_reader r;
    int         rc;
    *out = (hf_index){ 0 };
    arena_init(&out->mem, INDEX_MEMORY);
    map_init(&out->weights);
    map_init(&out->by_name);
    json_reader_init(&r, json, len);
    rc = read_index(out, &r, e);
    if (r.failed && e) *e = r.error;
    json_reader_deinit(&r);
    if (rc < 0) hf_index_deinit(out);
    return rc;
}

void hf_index_deinit(hf_index *x) {
    map_deinit(&x->weights);
    map_deinit(&x->by_name);
    arena_deinit(&x->mem);
    *x = (hf_index){ 0 };
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a directory in the Hugging Face or MLX layout, or the one GGUF model a directory holds.
 *
 * Weights, in this order: the shards that model.safetensors.index.json names; model.safetensors; the only .safetensors
 * file; all model*.safetensors (MLX writes sets without an index). In an indexed set a tensor that the index places in
 * another shard is passed over, and a tensor that is missing in its shard is an error. An MLX directory is one whose
 * config.json has a `quantization` block or whose weights say "format": "mlx"; its packed modules are checked here, so
 * that whoever loads them can rely on the shapes of .weight, .scales and .biases.
 */
#include "base/log.h"
#include "formats/model_impl.h"
#include "formats/packed.h"
#include "formats/safetensors.h"
#include "formats/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATION_BYTES = 1 << 20, GENERATION_MEMORY = 64 << 20 };

/* ---- JSON files ---- */

static int read_config(model_file *m, const char *dir, err *e) {
    char  *path = path_join(dir, "config.json"), *text = NULL;
    size_t len;
    int    rc = 0;
    if (!path) return err_set_nomem(e);
    if (file_exists(path) && (rc = file_read(&text, &len, path, HF_MAX_CONFIG_BYTES, e)) == 0) {
        rc = hf_config_read(&m->config, text, len, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
    }
    free(text);
    free(path);
    return rc;
}

static int read_generation(model_file *m, const char *dir, err *e) {
    char  *path = path_join(dir, "generation_config.json"), *text = NULL;
    size_t len;
    int    rc = 0;
    if (!path) return err_set_nomem(e);
    if (file_exists(path) && (rc = file_read(&text, &len, path, GENERATION_BYTES, e)) == 0) {
        arena_init(&m->generation_mem, GENERATION_MEMORY);
        rc = json_parse(&m->generation, text, len, &m->generation_mem, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
    }
    free(text);
    free(path);
    return rc;
}

/* ---- weights ---- */

typedef struct shard_filter {
    const hf_index *index;
    uint64_t        shard;
} shard_filter;

static bool belongs_elsewhere(void *ctx, view name) {
    const shard_filter *f = ctx;
    uint64_t            at;
    return map_get(&f->index->weights, name.data, name.len, &at) && at != f->shard;
}

static int read_weights(model_file *m, const char *path, shard_filter *filter, bool *is_mlx, err *e) {
    file_map    file;
    safetensors s;
    const char *format;
    int         rc = model_map(m, path, &file, e);
    if (rc < 0) return rc;
    rc = safetensors_read_memory(&s, file.data, file.bytes, &m->tensors, filter ? belongs_elsewhere : NULL, filter, e);
    if (rc < 0) return err_wrap(e, rc, "%s", path);
    format = safetensors_find(&s, "format");
    if (format && strcmp(format, "mlx") == 0) *is_mlx = true;
    safetensors_deinit(&s);
    return 0;
}

static int read_in_dir(model_file *m, const char *dir, const char *name, shard_filter *filter, bool *is_mlx, err *e) {
    char *path = path_join(dir, name);
    int   rc;
    if (!path) return err_set_nomem(e);
    rc = read_weights(m, path, filter, is_mlx, e);
    free(path);
    return rc;
}

static int check_complete(const model_file *m, const hf_index *index, err *e) {
    size_t          cursor = 0;
    const map_slot *slot;
    while (map_next(&index->weights, &cursor, &slot)) {
        if (!tensor_table_find(&m->tensors, slot->key, slot->len))
            return err_set(e, ERR_FORMAT, "tensor %s is missing in its shard %s", slot->key,
                           index->shards[slot->value]);
    }
    return 0;
}

static int read_indexed(model_file *m, const char *dir, const char *index_path, bool *is_mlx, err *e) {
    char    *text = NULL;
    size_t   len;
    hf_index index = { 0 };
    int      rc = file_read(&text, &len, index_path, HF_MAX_INDEX_BYTES, e);
    if (rc < 0) return rc;
    rc = hf_index_read(&index, text, len, e);
    free(text);
    if (rc < 0) return err_wrap(e, rc, "%s", index_path);
    for (size_t i = 0; i < index.n_shards && rc == 0; i++) {
        shard_filter filter = { &index, i };
        rc = read_in_dir(m, dir, index.shards[i], &filter, is_mlx, e);
    }
    if (rc == 0) {
        rc = check_complete(m, &index, e);
        if (rc < 0) err_wrap(e, rc, "%s", index_path);
    }
    hf_index_deinit(&index);
    return rc;
}

/* A set without an index whose names count must be complete. */
static int check_names(const char *dir, char **names, size_t count, err *e) {
    for (size_t i = 0; i < count; i++) {
        size_t stem;
        int    part, n;
        if (!model_split_name(names[i], ".safetensors", &stem, &part, &n)) continue;
        if ((size_t)n != count)
            return err_set(e, ERR_NOTFOUND, "%s: %s is one of %d shards, but the directory holds %zu and no index", dir,
                           names[i], n, count);
    }
    return 0;
}

static int read_unindexed(model_file *m, const char *dir, bool *is_mlx, bool *found, err *e) {
    char **names;
    size_t count, kept = 0;
    int    rc = model_list_dir(dir, ".safetensors", &names, &count, e);
    if (rc < 0) return rc;
    *found = count > 0;
    if (count > 1) { /* adapters and the like may lie beside the model */
        for (size_t i = 0; i < count; i++) {
            if (strncmp(names[i], "model", 5) == 0) {
                char *keep = names[i];
                names[i] = names[kept];
                names[kept++] = keep;
            }
        }
        if (kept == 0)
            rc = err_set(e, ERR_FORMAT, "%s holds %zu .safetensors files, and none is named model*.safetensors", dir,
                         count);
        else
            rc = check_names(dir, names, kept, e);
    } else {
        kept = count;
    }
    for (size_t i = 0; i < kept && rc == 0; i++) rc = read_in_dir(m, dir, names[i], NULL, is_mlx, e);
    model_list_free(names, count);
    return rc;
}

static int find_weights(model_file *m, const char *dir, bool *is_mlx, bool *found, err *e) {
    char *index = path_join(dir, "model.safetensors.index.json"), *single = path_join(dir, "model.safetensors");
    int   rc;
    *found = true;
    if (!index || !single)
        rc = err_set_nomem(e);
    else if (file_exists(index))
        rc = read_indexed(m, dir, index, is_mlx, e);
    else if (file_exists(single))
        rc = read_weights(m, single, NULL, is_mlx, e);
    else
        rc = read_unindexed(m, dir, is_mlx, found, e);
    free(index);
    free(single);
    return rc;
}

/* ---- a directory with a GGUF ---- */

/* Keeps one name per model: the first part of a set stands for all, projectors for images are passed over. */
static size_t gguf_models(char **names, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        size_t stem, old_stem;
        int    part, n, old_part, old_n;
        char  *name = names[i];
        if (strncmp(name, "mmproj", 6) == 0) continue;
        if (kept > 0 && model_split_name(name, ".gguf", &stem, &part, &n) &&
            model_split_name(names[kept - 1], ".gguf", &old_stem, &old_part, &old_n) && n == old_n &&
            stem == old_stem && memcmp(name, names[kept - 1], stem) == 0)
            continue;
        names[i] = names[kept];
        names[kept++] = name;
    }
    return kept;
}

static int open_only_gguf(model_file *m, const char *dir, bool *found, err *e) {
    char **names;
    size_t count, models;
    int    rc = model_list_dir(dir, ".gguf", &names, &count, e);
    if (rc < 0) return rc;
    models = gguf_models(names, count);
    *found = models > 0;
    if (models == 1) {
        char *path = path_join(dir, names[0]);
        rc = path ? model_open_gguf(m, path, e) : err_set_nomem(e);
        free(path);
    } else if (models > 1) {
        rc = err_set(e, ERR_ARG, "%s holds %zu GGUF models (%s, %s%s); name one of them", dir, models, names[0],
                     names[1], models > 2 ? ", ..." : "");
    }
    model_list_free(names, count);
    return rc;
}

/* ---- MLX ---- */

static const model_tensor *sibling(const model_file *m, const char *module, size_t len, const char *suffix) {
    char name[TABLE_MAX_NAME + 1];
    int  n = snprintf(name, sizeof name, "%.*s%s", (int)len, module, suffix);
    return n < (int)sizeof name ? tensor_table_find(&m->tensors, name, (size_t)n) : NULL;
}

static bool same_shape(const model_tensor *a, const model_tensor *b, int from) {
    if (a->n_dims != b->n_dims) return false;
    for (int d = from; d < MODEL_MAX_DIMS; d++) {
        if (a->dims[d] != b->dims[d]) return false;
    }
    return true;
}

static int check_module(const model_file *m, const model_tensor *scales, size_t len, err *e) {
    const model_tensor *weight = sibling(m, scales->name, len, ".weight"),
                       *biases = sibling(m, scales->name, len, ".biases");
    model_quant q;
    if (!weight || weight->type != TENSOR_U32)
        return 0; /* not a packed module: a tensor that happens to have the name */
    if (!m->config.mlx.present)
        return err_set(e, ERR_FORMAT, "it is packed, but config.json has no quantization block");
    if (!hf_mlx_module(&m->config.mlx, scales->name, len, &q))
        return err_set(e, ERR_FORMAT, "it has .scales, but config.json says it is not quantized");
    if (weight->n_dims < 2 || !same_shape(weight, scales, 1))
        return err_set(e, ERR_FORMAT, "the shapes of .weight and .scales do not fit");
    if (weight->dims[0] > INT64_MAX / 32 || scales->dims[0] > INT64_MAX / q.group ||
        weight->dims[0] * 32 % q.bits != 0 || weight->dims[0] * 32 / q.bits != scales->dims[0] * q.group)
        return err_set(e, ERR_FORMAT,
                       "rows of %" PRId64 " words and %" PRId64 " scales do not fit %d bits in groups of %d",
                       weight->dims[0], scales->dims[0], q.bits, q.group);
    if (q.mode == MODEL_QUANT_AFFINE) {
        if (!biases || biases->type != scales->type || !same_shape(biases, scales, 0))
            return err_set(e, ERR_FORMAT, ".biases is missing or differs from .scales");
        if (scales->type != TENSOR_F16 && scales->type != TENSOR_BF16 && scales->type != TENSOR_F32)
            return err_set(e, ERR_FORMAT, ".scales has the type %s", tensor_type_name(scales->type));
    } else if (scales->type != TENSOR_U8 || biases) {
        return err_set(e, ERR_FORMAT, "this mode has u8 .scales and no .biases");
    }
    return 0;
}

static int check_mlx(const model_file *m, err *e) {
    for (size_t i = 0; i < m->tensors.count; i++) {
        const model_tensor *t = &m->tensors.items[i];
        size_t              len = strlen(t->name);
        int                 rc;
        if (len <= 7 || memcmp(t->name + len - 7, ".scales", 7) != 0) continue;
        if ((rc = check_module(m, t, len - 7, e)) < 0)
            return err_wrap(e, rc, "%s: module %.*s", m->path, (int)len - 7, t->name);
    }
    return 0;
}

/* ---- the directory ---- */

static bool has_any(const char *dir, const char *const *names) {
    for (; *names; names++) {
        char *path = path_join(dir, *names);
        bool  is = path && file_exists(path);
        free(path);
        if (is) return true;
    }
    return false;
}

/* Without weights: is there anything else a caller could want? */
static int check_rest(const model_file *m, const char *dir, err *e) {
    static const char *const pickles[] = { "pytorch_model.bin", "pytorch_model.bin.index.json", NULL };
    static const char *const texts[] = {
        "tokenizer.json", "tokenizer.model",     "tokenizer_config.json", "vocab.json",    "vocab.txt",
        "tekken.json",    "chat_template.jinja", "tiktoken.model",        "qwen.tiktoken", NULL
    };
    char **names;
    size_t count;
    int    rc;
    if (has_any(dir, pickles)) log_warn("formats", "%s: PyTorch weights (pytorch_model.bin) are not read", dir);
    if (m->config.root || m->generation || has_any(dir, texts)) return 0;
    if ((rc = model_list_dir(dir, ".tiktoken", &names, &count, e)) < 0) return rc;
    model_list_free(names, count);
    return count > 0 ? 0 : err_set(e, ERR_NOTFOUND, "%s holds no model: no config.json, no weights, no tokenizer", dir);
}

int model_open_dir(model_file *m, const char *dir, const char *only_weights, err *e) {
    bool is_mlx = false, found = true;
    int  rc;
    m->format = MODEL_HF;
    if (only_weights)
        rc = read_weights(m, only_weights, NULL, &is_mlx, e);
    else
        rc = find_weights(m, dir, &is_mlx, &found, e);
    if (rc == 0 && !found) {
        rc = open_only_gguf(m, dir, &found, e);
        if (rc < 0 || found) return rc;
    }
    if (rc < 0 || (rc = read_config(m, dir, e)) < 0 || (rc = read_generation(m, dir, e)) < 0) return rc;
    if (!found) return check_rest(m, dir, e);
    if (is_mlx || m->config.mlx.present) {
        m->format = MODEL_MLX;
        return check_mlx(m, e);
    }
    rc = packed_expand(m, e);
    return rc == 0 ? packed_floats_expand(m, e) : rc;
}

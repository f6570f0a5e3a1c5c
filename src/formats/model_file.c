/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out what a path is, opens it, and answers questions about it. */
#include "formats/model_file.h"

#include "formats/model_impl.h"
#include "formats/safetensors.h"
#include "formats/text.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIR_ENTRIES = 100000 };

/* ---- helpers shared by the openers ---- */

int model_map(model_file *m, const char *path, file_map *out, err *e) {
    static const char lfs[] = "version https://git-lfs";
    int               rc;
    if (m->n_maps == m->maps_cap) {
        size_t         cap = m->maps_cap ? m->maps_cap * 2 : 4;
        model_mapping *maps = realloc(m->maps, cap * sizeof *maps);
        if (!maps) return err_set_nomem(e);
        m->maps = maps;
        m->maps_cap = cap;
    }
    model_mapping *at = &m->maps[m->n_maps];
    if (!(at->path = strdup(path))) return err_set_nomem(e);
    if ((rc = file_map_open(&at->map, path, e)) < 0) {
        free(at->path);
        return rc;
    }
    *out = at->map;
    m->n_maps++;
    m->bytes += out->bytes;
    if (out->bytes >= sizeof lfs - 1 && out->bytes < 4096 && memcmp(out->data, lfs, sizeof lfs - 1) == 0)
        return err_set(e, ERR_FORMAT, "%s is a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'",
                       path);
    return 0;
}

bool model_split_name(const char *name, const char *suffix, size_t *stem, int *part, int *count) {
    enum { TAIL = 15 }; /* -00001-of-00005 */
    size_t      len = strlen(name), cut = strlen(suffix);
    const char *p;
    if (len < cut + TAIL + 1 || strcmp(name + len - cut, suffix) != 0) return false;
    p = name + len - cut - TAIL;
    for (int i = 0; i < TAIL; i++) {
        const char pattern[] = "-ddddd-of-ddddd";
        if (pattern[i] == 'd' ? !isdigit((unsigned char)p[i]) : p[i] != pattern[i]) return false;
    }
    *stem = (size_t)(p - name);
    *part = atoi(p + 1);
    *count = atoi(p + 10);
    return *part >= 1 && *count >= *part;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void model_list_free(char **names, size_t count) {
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

int model_list_dir(const char *dir, const char *suffix, char ***names, size_t *count, err *e) {
    char         **list = NULL;
    size_t         n = 0, cap = 0;
    int            rc = 0;
    struct dirent *entry;
    DIR           *d = opendir(dir);
    *names = NULL;
    *count = 0;
    if (!d) return err_set_errno(e, "cannot open %s", dir);
    while ((entry = readdir(d))) {
        if (entry->d_name[0] == '.' || !view_ends(view_of(entry->d_name), suffix)) continue;
        if (n == MAX_DIR_ENTRIES) {
            rc = err_set(e, ERR_LIMIT, "%s holds more than %d %s files", dir, MAX_DIR_ENTRIES, suffix);
            break;
        }
        if (n == cap) {
            char **bigger = realloc(list, (cap ? cap * 2 : 16) * sizeof(char *));
            if (!bigger) {
                rc = err_set_nomem(e);
                break;
            }
            list = bigger;
            cap = cap ? cap * 2 : 16;
        }
        if (!(list[n] = strdup(entry->d_name))) {
            rc = err_set_nomem(e);
            break;
        }
        n++;
    }
    closedir(d);
    if (rc < 0) {
        model_list_free(list, n);
        return rc;
    }
    if (n > 1) qsort(list, n, sizeof *list, by_text);
    *names = list;
    *count = n;
    return 0;
}

/* ---- opening ---- */

/* The directory part of a path: "." for a plain name. NULL: out of memory. */
static char *directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* One safetensors file: alone, or, when it is a shard that an index beside it names, with the whole set. */
static int open_safetensors(model_file *m, const char *path, err *e) {
    size_t stem;
    int    part, count;
    char  *index = path_join(m->dir, "model.safetensors.index.json");
    bool   sharded;
    if (!index) return err_set_nomem(e);
    sharded = model_split_name(base_of(path), ".safetensors", &stem, &part, &count) && file_exists(index);
    free(index);
    return model_open_dir(m, m->dir, sharded ? NULL : path, e);
}

static int refuse_unknown(const char *path, const uint8_t *head, size_t n, err *e) {
    static const struct {
        const char *magic, *what;
    } known[] = {
        { "PK\x03\x04", "a PyTorch or zip archive; only safetensors and GGUF weights are read" },
        { "\x80\x02", "a Python pickle; only safetensors and GGUF weights are read" },
        { "lmgg", "a GGML file from before GGUF; convert the model again" },
        { "fmgg", "a GGML file from before GGUF; convert the model again" },
        { "tjgg", "a GGML file from before GGUF; convert the model again" },
        { "version https://git-lfs", "a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t len = strlen(known[i].magic);
        if (n >= len && memcmp(head, known[i].magic, len) == 0)
            return err_set(e, ERR_UNSUPPORTED, "%s is %s", path, known[i].what);
    }
    if (n == 0) return err_set(e, ERR_FORMAT, "%s is empty", path);
    return err_set(e, ERR_FORMAT, "%s is neither a GGUF nor a safetensors file", path);
}

static int open_path(model_file *m, const char *path, err *e) {
    file_map    head;
    int         rc;
    bool        is_gguf, is_safetensors;
    const char *name = base_of(path);
    if (dir_exists(path)) {
        m->dir = strdup(path);
        return m->dir ? model_open_dir(m, path, NULL, e) : err_set_nomem(e);
    }
    m->dir = directory_of(path);
    if (!m->dir) return err_set_nomem(e);
    if ((rc = file_map_open(&head, path, e)) < 0) return rc;
    is_gguf = gguf_is(head.data, head.bytes);
    is_safetensors = safetensors_is(head.data, head.bytes);
    rc = 0;
    if (!is_gguf && !is_safetensors && strcmp(name, "config.json") != 0 && strcmp(name, "tokenizer.json") != 0 &&
        strcmp(name, "model.safetensors.index.json") != 0)
        rc = refuse_unknown(path, head.data, head.bytes, e);
    file_map_close(&head);
    if (rc < 0) return rc;
    if (is_gguf) return model_open_gguf(m, path, e);
    return is_safetensors ? open_safetensors(m, path, e) : model_open_dir(m, m->dir, NULL, e);
}

static int name_arch(model_file *m, err *e) {
    view        s;
    const char *type = json_cstr(json_get(m->config.root, "model_type"));
    if (!type) type = json_cstr(json_get(m->config.text, "model_type"));
    if (m->format == MODEL_GGUF && meta_string(gguf_find(&m->meta, "general.architecture"), &s))
        m->arch = strndup(s.data, s.len);
    else if (m->format != MODEL_GGUF && type)
        m->arch = strdup(type);
    else
        return 0;
    return m->arch ? 0 : err_set_nomem(e);
}

int model_file_open(model_file **out, const char *path, err *e) {
    model_file *m = calloc(1, sizeof *m);
    int         rc;
    *out = NULL;
    if (!m) return err_set_nomem(e);
    tensor_table_init(&m->tensors);
    arena_init(&m->packed, 0);
    m->path = strdup(path);
    rc = m->path ? open_path(m, path, e) : err_set_nomem(e);
    if (rc == 0) rc = name_arch(m, e);
    if (rc < 0) {
        model_file_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

size_t model_file_settle(const model_file *m, const atomic_bool *stop) {
    size_t moved = 0;
    for (size_t i = 0; i < m->n_maps; i++) moved += file_map_settle(&m->maps[i].map, stop);
    return moved;
}

void model_file_free(model_file *m) {
    if (!m) return;
    tensor_table_deinit(&m->tensors);
    gguf_deinit(&m->meta);
    hf_config_deinit(&m->config);
    arena_deinit(&m->generation_mem);
    arena_deinit(&m->packed);
    for (size_t i = 0; i < m->n_maps; i++) {
        file_map_close(&m->maps[i].map);
        free(m->maps[i].path);
    }
    free(m->maps);
    free(m->path);
    free(m->dir);
    free(m->arch);
    free(m);
}

/* ---- questions ---- */

model_format model_file_format(const model_file *m) { return m->format; }
const char  *model_file_path(const model_file *m) { return m->path; }
size_t       model_file_bytes(const model_file *m) { return m->bytes; }
const char  *model_file_arch(const model_file *m) { return m->arch; }

const meta_value *model_file_meta(const model_file *m, const char *key) { return gguf_find(&m->meta, key); }
size_t            model_file_meta_count(const model_file *m) { return m->meta.n_keys; }

const char *model_file_meta_key(const model_file *m, size_t index) {
    return index < m->meta.n_keys ? m->meta.keys[index].name : NULL;
}

const meta_value *model_file_meta_at(const model_file *m, size_t index) {
    return index < m->meta.n_keys ? &m->meta.keys[index].value : NULL;
}

const json_value *model_file_config(const model_file *m) { return m->config.root; }
const json_value *model_file_text_config(const model_file *m) { return m->config.text; }
const json_value *model_file_generation_config(const model_file *m) { return m->generation; }

const json_value *model_file_config_get(const model_file *m, const char *key) {
    const json_value *v = json_get(m->config.text, key);
    if (!v || json_is(v, JSON_K_NULL)) v = json_get(m->config.root, key);
    return v && !json_is(v, JSON_K_NULL) ? v : NULL;
}

const model_hf_quant *model_file_hf_quant(const model_file *m) { return &m->config.quant; }

size_t model_file_tensor_count(const model_file *m) { return m->tensors.count; }

const model_tensor *model_file_tensor_at(const model_file *m, size_t index) {
    return index < m->tensors.count ? &m->tensors.items[index] : NULL;
}

const model_tensor *model_file_tensor(const model_file *m, const char *name) {
    return tensor_table_find(&m->tensors, name, strlen(name));
}

void model_file_replace(model_file *m, size_t index, tensor_type type, const uint8_t *data, size_t bytes) {
    model_tensor *t = &m->tensors.items[index];
    t->type = type;
    t->data = data;
    t->bytes = bytes;
}

int model_file_locate(const model_file *m, const void *at, size_t bytes, uint64_t *offset) {
    for (size_t i = 0; i < m->n_maps; i++) {
        const file_map *whole = &m->maps[i].map;
        uintptr_t       from = (uintptr_t)whole->data, p = (uintptr_t)at;
        if (p < from || p - from > whole->bytes || bytes > whole->bytes - (p - from)) continue;
        *offset = p - from;
        return (int)i;
    }
    return -1;
}

int model_file_mapping_count(const model_file *m) { return (int)m->n_maps; }

const char *model_file_mapping(const model_file *m, int index, const file_map **out) {
    *out = &m->maps[index].map;
    return m->maps[index].path;
}

bool model_file_quant(const model_file *m, const char *module, model_quant *out) {
    char name[TABLE_MAX_NAME + 1];
    int  len = snprintf(name, sizeof name, "%s.scales", module);
    if (len >= (int)sizeof name || !m->config.mlx.present) return false;
    if (!tensor_table_find(&m->tensors, name, (size_t)len)) return false;
    if (m->format !=
        MODEL_MLX) { /* packed by another tool, and repacked; a module that could not be has plain weights */
        len = snprintf(name, sizeof name, "%s.weight", module);
        const model_tensor *w = tensor_table_find(&m->tensors, name, (size_t)len);
        if (!w || w->type != TENSOR_U32) return false;
    }
    return hf_mlx_module(&m->config.mlx, module, strlen(module), out);
}

char *model_file_sidecar(const model_file *m, const char *name) {
    char *path = path_join(m->dir, name);
    if (path && !file_exists(path)) {
        free(path);
        path = NULL;
    }
    return path;
}

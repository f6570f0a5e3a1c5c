/* SPDX-License-Identifier: Apache-2.0 */
/* An adapter's file as modules with their tensors. */
#include "nn/adapter_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ending {
    const char *text;
    size_t      at; /* where the tensor belongs in adapter_raw */
    bool        embed;
} ending;

#define AT(field) offsetof(adapter_raw, field)
static const ending peft_endings[] = { { ".lora_A.weight", AT(a), false },
                                       { ".lora_B.weight", AT(b), false },
                                       { ".lora_embedding_A", AT(a), true },
                                       { ".lora_embedding_B", AT(b), true },
                                       { ".lora_magnitude_vector", AT(magnitude), false },
                                       { ".lora_magnitude_vector.weight", AT(magnitude), false },
                                       { ".ia3_l", AT(gain), false },
                                       { NULL, 0, false } };
static const ending mlx_endings[] = {
    { ".lora_a", AT(a), false }, { ".lora_b", AT(b), false }, { ".m", AT(magnitude), false }, { NULL, 0, false }
};
static const ending gguf_endings[] = { { ".weight.lora_a", AT(a), false },
                                       { ".weight.lora_b", AT(b), false },
                                       { NULL, 0, false } };

static const ending *ending_of(const adapter_source *s, const char *name, size_t *module_bytes) {
    static const ending *const lists[] = {
        [NN_ADAPTER_PEFT] = peft_endings, [NN_ADAPTER_MLX] = mlx_endings, [NN_ADAPTER_GGUF] = gguf_endings
    };
    size_t len = strlen(name);
    for (const ending *x = lists[s->format]; x->text; x++) {
        size_t n = strlen(x->text);
        if (len <= n || strcmp(name + len - n, x->text) != 0) continue;
        *module_bytes = len - n;
        return x;
    }
    return NULL;
}

/* "base_model.model.X" is X; each ".base_layer" at the end of a module is a wrapper further out. */
static const char *module_of(adapter_source *s, const char *name, size_t bytes, int *nested) {
    static const char front[] = "base_model.model.", inner[] = ".base_layer";
    size_t            n = sizeof inner - 1;
    if (s->format == NN_ADAPTER_PEFT && bytes > sizeof front - 1 && strncmp(name, front, sizeof front - 1) == 0) {
        name += sizeof front - 1;
        bytes -= sizeof front - 1;
    }
    for (*nested = 0; bytes > n && strncmp(name + bytes - n, inner, n) == 0; bytes -= n) (*nested)++;
    return arena_strndup(&s->mem, name, bytes);
}

static int put(adapter_source *s, map *modules, const model_tensor *t, err *e) {
    size_t        bytes = 0;
    int           nested;
    uint64_t      at = 0;
    const ending *x = ending_of(s, t->name, &bytes);
    char          key[TABLE_MAX_NAME + 16];
    if (!x)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s is not part of a low-rank adapter; it cannot be used at run time",
                       t->name);
    const char *module = module_of(s, t->name, bytes, &nested);
    if (!module) return err_set_nomem(e);
    int   n = snprintf(key, sizeof key, "%d %s", nested, module);
    char *copy = arena_strdup(&s->mem, key);
    if (!copy) return err_set_nomem(e);
    if (!map_get(modules, key, (size_t)n, &at)) {
        at = s->n_raw++;
        s->raw[at] = (adapter_raw){ .module = module, .nested = nested, .embed = x->embed };
        if (!map_put(modules, copy, (size_t)n, at)) return err_set_nomem(e);
    }
    const model_tensor **to = (const model_tensor **)(void *)((char *)&s->raw[at] + x->at);
    if (*to || s->raw[at].embed != x->embed)
        return err_set(e, ERR_FORMAT, "tensor %s: %s has another one of this kind", t->name, module);
    *to = t;
    return 0;
}

/* A and B belong together, DoRA's magnitude stands beside them, IA3's vector alone. */
static int check_raw(const adapter_source *s, const adapter_raw *r, err *e) {
    if (r->gain && (r->a || r->b || r->magnitude || !s->ia3))
        return err_set(e, ERR_FORMAT, "%s: a vector of IA3 beside other tensors", r->module);
    if (!r->gain && (!r->a || !r->b))
        return err_set(e, ERR_FORMAT, "%s: %s is missing", r->module,
                       r->a ? "its second factor (lora_B)" : "its first factor (lora_A)");
    if (!r->gain && s->ia3) return err_set(e, ERR_FORMAT, "%s: low-rank factors in a file of IA3", r->module);
    if (s->dora && !r->embed && !r->magnitude && r->nested == 0)
        return err_set(e, ERR_FORMAT, "%s: the magnitude of DoRA is missing", r->module);
    if (r->magnitude && r->embed)
        return err_set(e, ERR_UNSUPPORTED, "%s: DoRA of an embedding is not supported", r->module);
    return 0;
}

int adapter_source_read(adapter_source *s, const char *config, size_t config_bytes, const uint8_t *data, size_t bytes,
                        err *e) {
    map modules;
    int rc;
    *s = (adapter_source){ .format = NN_ADAPTER_GGUF };
    arena_init(&s->mem, 0);
    tensor_table_init(&s->tensors);
    if (config && (rc = adapter_config_read(s, config, config_bytes, e)) < 0)
        return err_wrap(e, rc, "adapter_config.json");
    rc = config ? safetensors_read_memory(&s->st, data, bytes, &s->tensors, NULL, NULL, e)
                : gguf_read_memory(&s->gguf, data, bytes, &s->tensors, e);
    if (rc < 0) return rc;
    if (s->tensors.count == 0) return err_set(e, ERR_FORMAT, "it has no tensors");
    if (!(s->raw = arena_calloc(&s->mem, s->tensors.count, sizeof *s->raw))) return err_set_nomem(e);
    map_init(&modules);
    for (size_t i = 0; rc == 0 && i < s->tensors.count; i++) rc = put(s, &modules, &s->tensors.items[i], e);
    for (size_t i = 0; rc == 0 && i < s->n_raw; i++) rc = check_raw(s, &s->raw[i], e);
    map_deinit(&modules);
    return rc;
}

void adapter_source_deinit(adapter_source *s) {
    safetensors_deinit(&s->st);
    gguf_deinit(&s->gguf);
    tensor_table_deinit(&s->tensors);
    arena_deinit(&s->mem);
}

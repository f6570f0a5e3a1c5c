/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a model: find the family, read its table, bind its tensors, record its tape. */
#include "nn/model.h"

#include "nn/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const nn_arch *nn_arch_find(const nn_arch *const *archs, const char *name) {
    for (const nn_arch *const *a = archs; name && *a; a++) {
        for (const char *const *n = (*a)->names; *n; n++) {
            if (strcmp(*n, name) == 0) return *a;
        }
    }
    return NULL;
}

/* A multimodal config names its language model in text_config. */
static const nn_arch *find_family(const model_file *f, const nn_arch *const *archs, const char **name) {
    const char    *inner = json_cstr(json_get(model_file_text_config(f), "model_type"));
    const nn_arch *a = nn_arch_find(archs, inner);
    *name = inner && a ? inner : model_file_arch(f);
    return a ? a : nn_arch_find(archs, *name);
}

static int bind_all(nn_model *m, err *e) {
    nn_binder   b = { .model = m, .file = m->file, .mem = &m->mem, .roots = m->arch->hf_roots };
    void       *top = arena_calloc(&m->mem, 1, m->arch->top_size ? m->arch->top_size : 1);
    char       *layers = arena_calloc(&m->mem, (size_t)m->dims->n_layer, m->arch->layer_size);
    const int   each = m->arch->each ? m->arch->each : 1;
    const char *hf_layers = m->arch->hf_layers ? m->arch->hf_layers : "model.layers.";
    const char *gguf_layers = m->arch->gguf_layers ? m->arch->gguf_layers : "blk.";
    m->state = arena_calloc(&m->mem, (size_t)m->dims->n_layer, sizeof *m->state);
    if (!top || !layers || !m->state) return err_set_nomem(e);
    b.gguf = nn_config_gguf(&m->config);
    b.one_added = !b.gguf && bind_one_added(m->file);
    m->net.top = top;
    m->net.layers = layers;
    m->arch->bind_top(&b, top, m->net.hp);
    for (int i = 0; i < m->dims->n_layer && !b.failed; i++) {
        snprintf(b.gguf_prefix, sizeof b.gguf_prefix, "%s%d.", gguf_layers, i / each);
        snprintf(b.hf_prefix, sizeof b.hf_prefix, "%s%d.", hf_layers, i / each);
        m->arch->bind_layer(&b, layers + (size_t)i * m->arch->layer_size, m->net.hp, i);
        m->state[i] = m->arch->state(m->net.hp, i);
    }
    if (!b.failed) return 0;
    if (e) *e = b.error;
    return b.error.code;
}

static int open_model(nn_model *m, err *e) {
    void *hp = arena_calloc(&m->mem, 1, m->arch->hp_size);
    int   rc;
    if (!hp) return err_set_nomem(e);
    m->net.hp = hp;
    m->dims = hp;
    if ((rc = nn_config_read(&m->config, m->arch, hp, e)) < 0) return rc;
    if (m->config.rope_type && !m->config.rope_replaced)
        return err_set(e, ERR_UNSUPPORTED, "rope_scaling: this model has no rotation to scale; remove the setting");
    if ((rc = bind_all(m, e)) < 0) return rc;
    if (!m->file) return 0;
    if ((rc = nn_tape_open(&m->tape, &m->mem, m->state, m->dims->n_layer, e)) < 0) return rc;
    m->arch->forward(m->tape, &m->net);
    if (m->tape->failed) {
        if (e) *e = m->tape->error;
        return m->tape->error.code;
    }
    if (!m->tape->hidden) return err_set(e, ERR_FORMAT, "the family %s records no result", m->arch->names[0]);
    return 0;
}

int nn_model_open(nn_model **out, const model_file *file, const nn_arch *const *archs, const nn_model_options *o,
                  err *e) {
    const char    *name = NULL;
    const nn_arch *arch = find_family(file, archs, &name);
    nn_model      *m = NULL;
    int            rc = ERR_UNSUPPORTED;
    *out = NULL;
    if (!name) {
        rc = err_set(e, ERR_FORMAT, "neither general.architecture nor model_type names an architecture");
        goto fail;
    }
    if (!arch) {
        err_set(e, rc, "the architecture \"%.60s\" is not supported", name);
        goto fail;
    }
    m = calloc(1, sizeof *m);
    if (!m) {
        rc = err_set_nomem(e);
        goto fail;
    }
    arena_init(&m->mem, 0);
    m->arch = arch;
    m->file = file;
    m->config = (nn_config){ .mem = &m->mem,
                             .file = file,
                             .root = model_file_config(file),
                             .text = model_file_text_config(file),
                             .arch_name = name,
                             .arch = arch,
                             .rope_context = o ? o->rope_context : 0,
                             .rope_type = o ? o->rope_type : NULL,
                             .rope_factor = o ? o->rope_factor : 0,
                             .rope_original_context = o ? o->rope_original_context : 0 };
    if ((rc = open_model(m, e)) < 0) goto fail;
    *out = m;
    return 0;
fail:
    nn_model_free(m);
    return err_wrap(e, rc, "%s", model_file_path(file));
}

int nn_model_open_part(nn_model **out, const model_file *file, const nn_part *part, err *e) {
    nn_model *m = calloc(1, sizeof *m);
    int       rc;
    *out = NULL;
    if (!m) return err_set_nomem(e);
    arena_init(&m->mem, 0);
    m->arch = part->arch;
    m->file = file;
    m->config = (nn_config){ .mem = &m->mem,
                             .file = file,
                             .root = part->config,
                             .outer = part->outer,
                             .arch_name = part->keys,
                             .set = part->usual,
                             .n_set = part->n_usual,
                             .arch = part->arch };
    if ((rc = open_model(m, e)) < 0) {
        nn_model_free(m);
        return err_wrap(e, rc, "%s", model_file_path(file));
    }
    *out = m;
    return 0;
}

int nn_model_sketch(nn_model **out, const nn_arch *arch, const nn_config_set *set, size_t n_set, err *e) {
    nn_model *m = calloc(1, sizeof *m);
    int       rc;
    *out = NULL;
    if (!m) return err_set_nomem(e);
    arena_init(&m->mem, 0);
    m->arch = arch;
    m->config = (nn_config){ .mem = &m->mem, .arch_name = arch->names[0], .arch = arch, .set = set, .n_set = n_set };
    if ((rc = open_model(m, e)) < 0) {
        nn_model_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void nn_model_free(nn_model *m) {
    if (!m) return;
    arena_deinit(&m->mem);
    free(m);
}

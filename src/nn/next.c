/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/next.h"

#include "nn/bind.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a head has beside the block of its family. */
typedef struct next_parts {
    const nn_vec *enorm, *hnorm;
    nn_linear     join; /* puts the two together */
    const nn_vec *norm;
    const nn_mat *embd; /* the model's, or its own */
    nn_linear     head;
} next_parts;

/* Where the head's tensors stand; false: there are none. GGUF counts its layer among the model's, as does Hugging Face's
 * numbering for most families; Qwen's have a module of their own. */
static bool find_layer(nn_binder *b, int n_layer, bool *alone) {
    b->gguf_prefix[0] = b->hf_prefix[0] = '\0';
    *alone = !nn_bind_exists(b, "token_embd", "model.embed_tokens");
    bool own = nn_bind_exists(b, NULL, "mtp.fc");
    snprintf(b->gguf_prefix, sizeof b->gguf_prefix, "blk.%d.", n_layer);
    if (own)
        snprintf(b->hf_prefix, sizeof b->hf_prefix, "mtp.layers.0.");
    else
        snprintf(b->hf_prefix, sizeof b->hf_prefix, "model.layers.%d.", n_layer);
    return own || nn_bind_exists(b, "nextn.eh_proj", "eh_proj");
}

static void bind_parts(nn_binder *b, next_parts *p, const nn_model *target, const nn_dims *d) {
    const nn_ends *ends = target->net.top;
    unsigned       flags = target->arch->next_norms;
    int            n = d->n_embd;
    char           layer[sizeof b->hf_prefix];
    nn_bind_mat(b, &p->embd, "nextn.embed_tokens", "embed_tokens", n, d->n_vocab, NN_OPTIONAL | NN_AT_LEAST);
    nn_bind_linear(b, &p->head, "nextn.shared_head_head", "shared_head.head", n, d->n_vocab, NN_OPTIONAL | NN_AT_LEAST);
    snprintf(layer, sizeof layer, "%s", b->hf_prefix);
    if (strncmp(layer, "mtp.", 4) == 0) b->hf_prefix[0] = '\0';
    nn_bind_vec(b, &p->enorm, "nextn.enorm.weight", "enorm|mtp.pre_fc_norm_embedding", n, flags);
    nn_bind_vec(b, &p->hnorm, "nextn.hnorm.weight", "hnorm|mtp.pre_fc_norm_hidden", n, flags);
    nn_bind_vec(b, &p->norm, "nextn.shared_head_norm.weight", "shared_head.norm|mtp.norm", n, flags);
    nn_bind_linear(b, &p->join, "nextn.eh_proj", "eh_proj|mtp.fc", 2 * n, n, 0);
    snprintf(b->hf_prefix, sizeof b->hf_prefix, "%s", layer);
    if (!p->embd) p->embd = ends->embd;
    if (!p->head.w) p->head = ends->head;
}

static int record(nn_model *m, const next_parts *p, err *e) {
    const nn_dims *d = m->dims;
    int            rc = nn_tape_open(&m->tape, &m->mem, m->state, 1, e);
    if (rc < 0) return rc;
    nn_buf        in = nn_input(m->tape, 2 * (int64_t)d->n_embd);
    const nn_vec *norms = nn_join_vecs(m->tape, p->enorm, p->hnorm);
    nn_buf        x = nn_project(m->tape, nn_rms_norm_groups(m->tape, in, d->n_embd, norms, d->eps), p->join);
    m->arch->block(m->tape, 0, x, m->net.hp, m->net.layers);
    nn_logits(m->tape, nn_rms_norm(m->tape, nn_outputs(m->tape, x), p->norm, d->eps), p->head, 1.0f, 0.0f);
    if (!m->tape->failed) return 0;
    if (e) *e = m->tape->error;
    return m->tape->error.code;
}

/* The block stands behind the model's last one and is numbered so; here it is the only one. */
static int bind_and_record(nn_next *x, nn_binder *b, const nn_model *target, nn_dims *d, err *e) {
    nn_model  *m = x->model;
    next_parts p = { 0 };
    int        last = d->n_layer;
    void      *layer = arena_calloc(&m->mem, 1, m->arch->layer_size);
    m->state = arena_calloc(&m->mem, 1, sizeof *m->state);
    if (!layer || !m->state) return err_set_nomem(e);
    m->net.layers = layer;
    bind_parts(b, &p, target, d);
    m->arch->bind_layer(b, layer, m->net.hp, last);
    if (b->failed) {
        if (e) *e = b->error;
        return b->error.code;
    }
    m->state[0] = m->arch->state(m->net.hp, last);
    d->n_layer = 1;
    x->embd = p.embd;
    x->scale = 1.0f;
    x->reads = NN_FETCH_HIDDEN;
    x->n_hidden = d->n_embd;
    return record(m, &p, e);
}

static int check_fit(const nn_model *target, const nn_dims *d, err *e) {
    if (d->n_embd != target->dims->n_embd)
        return err_set(e, ERR_UNSUPPORTED, "the head is for hidden states of %d, the model's have %d", d->n_embd,
                       target->dims->n_embd);
    if (d->n_layer != target->dims->n_layer)
        return err_set(e, ERR_UNSUPPORTED, "the head stands behind %d layers, the model has %d", d->n_layer,
                       target->dims->n_layer);
    return 0;
}

/* 1: there is a head. */
static int open_head(nn_next *x, const nn_model *target, const model_file *file, err *e) {
    nn_model *m = x->model;
    nn_dims  *d = arena_calloc(&m->mem, 1, m->arch->hp_size); /* a family's hyper-parameters begin with them */
    int       rc;
    if (!d) return err_set_nomem(e);
    m->net = (nn_net){ .hp = d, .top = target->net.top };
    m->dims = d;
    if ((rc = nn_config_read(&m->config, m->arch, d, e)) < 0) return rc;
    nn_binder b = {
        .model = m, .file = file, .mem = &m->mem, .roots = m->arch->hf_roots, .gguf = nn_config_gguf(&m->config)
    };
    b.one_added = !b.gguf && bind_one_added(file);
    if (!find_layer(&b, d->n_layer, &x->alone)) return 0;
    if ((rc = check_fit(target, d, e)) < 0) return rc;
    rc = bind_and_record(x, &b, target, d, e);
    return rc < 0 ? rc : 1;
}

/* What the file calls its architecture. */
static const char *name_of(const nn_model *target, const model_file *file) {
    const char *inner = json_cstr(json_get(model_file_text_config(file), "model_type"));
    if (file == target->file) return target->config.arch_name;
    return inner ? inner : model_file_arch(file);
}

static int check_family(const nn_model *target, const model_file *file, err *e) {
    const char *name = name_of(target, file);
    if (nn_arch_find((const nn_arch *const[]){ target->arch, NULL }, name)) return 0;
    return err_set(e, ERR_UNSUPPORTED, "a head of the architecture \"%.60s\" does not fit a model of \"%.60s\"",
                   name ? name : "", target->config.arch_name);
}

int nn_next_open(nn_next **out, const nn_model *target, const model_file *file, err *e) {
    int rc;
    *out = NULL;
    if (!file) file = target->file;
    if (!target->arch->block || !target->tape->logits) return 0;
    if ((rc = check_family(target, file, e)) < 0) return err_wrap(e, rc, "%s", model_file_path(file));
    nn_next *x = calloc(1, sizeof *x);
    if (!x || !(x->model = calloc(1, sizeof *x->model))) {
        nn_next_free(x);
        return err_set_nomem(e);
    }
    nn_model *m = x->model;
    arena_init(&m->mem, 0);
    m->arch = target->arch;
    m->file = file;
    m->config = (nn_config){ .mem = &m->mem,
                             .file = file,
                             .root = model_file_config(file),
                             .text = model_file_text_config(file),
                             .arch_name = name_of(target, file),
                             .arch = m->arch };
    if ((rc = open_head(x, target, file, e)) <= 0) {
        nn_next_free(x);
        return rc < 0 ? err_wrap(e, rc, "%s: the head for further tokens", model_file_path(file)) : 0;
    }
    *out = x;
    return 0;
}

void nn_next_free(nn_next *x) {
    if (!x) return;
    nn_model_free(x->model);
    free(x);
}

void nn_next_embed(const nn_next *x, int32_t token, float *out) {
    if (token < 0 || token >= x->embd->rows)
        memset(out, 0, (size_t)x->n_hidden * sizeof *out);
    else
        tensor_mat_dequant_row(x->embd->at, 0, token, out);
    for (int i = 0; i < x->n_hidden && x->scale != 1.0f; i++) out[i] *= x->scale;
}

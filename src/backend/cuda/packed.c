/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers whose pages are compressed (kernels/cuda/packed.h): where their bytes lie, storing, and what attention needs
 * around it: f16 rows of the pages, the query in rotated space, the result back out of it.
 */
#include "backend/cuda/cuda.h"

#include <assert.h>
#include <stdio.h>

static_assert((int)NN_KV_TYPE_COUNT == (int)KV_TYPE_COUNT && (int)NN_KV_FP8 == (int)KV_FP8 &&
                  (int)NN_KV_Q8_0 == (int)KV_Q8_0 && (int)NN_KV_TQ2 == (int)KV_TQ2,
              "the names and the layouts of page types have the same numbers");

bool cuda_is_packed(nn_kv_type type) { return type != NN_KV_F32 && type != NN_KV_F16 && type != NN_KV_BF16; }

int cuda_packed_lower(cuda_exec *x, int layer, nn_kv_type k, nn_kv_type v, err *e) {
    const nn_state  *s = &x->x.model->state[layer];
    const nn_limits *l = &x->x.options.limits;
    cuda_layer      *to = &x->layers[layer];
    bool             latent = s->kind == NN_STATE_PAGED_LATENT;
    int              g = x->x.groups.of_layer[layer], dim_k = latent ? s->dim_k + s->dim_v : s->dim_k;
    int              dim_v = latent ? s->dim_k : s->dim_v, n_kv = latent ? 1 : s->n_kv;
    kv_layout        layout;
    if (!kv_layout_init(&layout, (kv_type)k, (kv_type)v, l->page_tokens, n_kv, dim_k, dim_v, latent))
        return err_set(
            e, ERR_UNSUPPORTED,
            "the CUDA backend has no pages of %d positions with keys as %s and values as %s for heads of %d and %d",
            l->page_tokens, nn_kv_type_name(k), nn_kv_type_name(v), dim_k, dim_v);
    to->is_packed = true;
    cuda_packed_init(&to->packed, &layout);
    to->packed.group = g;
    to->packed.offset = x->x.memory.page_bytes[g];
    x->x.memory.page_bytes[g] += layout.layer_bytes;
    /* The same in f16 rows. */
    cuda_pages *p = &to->pages;
    *p = (cuda_pages){ .group = g,
                       .n_kv = n_kv,
                       .dim_k = dim_k,
                       .dim_v = latent ? 0 : dim_v,
                       .tokens = l->page_tokens,
                       .k_type = CUDA_PAGE_F16,
                       .v_type = CUDA_PAGE_F16 };
    p->k_row = cuda_page_row_bytes(p->k_type, p->dim_k);
    p->v_row = latent ? 0 : cuda_page_row_bytes(p->v_type, p->dim_v);
    p->v_offset = (size_t)n_kv * (size_t)l->page_tokens * p->k_row;
    p->page_bytes = p->v_offset + (size_t)n_kv * (size_t)l->page_tokens * p->v_row;
    size_t all = p->page_bytes * (size_t)l->n_pages;
    if (all > x->open_bytes) x->open_bytes = all;
    return 0;
}

size_t cuda_packed_turned(const cuda_exec *x) {
    const nn_tape *t = x->x.model->tape;
    int64_t        most = 0;
    for (int i = x->x.options.first_op; i < x->x.options.end_op; i++) {
        const nn_op *op = &t->ops[i];
        if (!nn_exec_runs(&x->x.options, i) || (op->kind != NN_OP_ATTN && op->kind != NN_OP_LATENT_ATTN) ||
            !x->layers[op->layer].is_packed)
            continue;
        int64_t dims = op->kind == NN_OP_LATENT_ATTN ? op->u.attn.dim_k + op->u.attn.dim_v : op->u.attn.dim_k;
        if (dims * op->u.attn.n_head > most) most = dims * op->u.attn.n_head;
    }
    return (size_t)x->x.options.limits.max_tokens * (size_t)most * sizeof(float);
}

static cuda_packed packed_of(const cuda_exec *x, int layer) {
    cuda_packed p = x->layers[layer].packed;
    p.base = x->pages[p.group];
    p.page_bytes = x->x.memory.page_bytes[p.group];
    return p;
}

int cuda_packed_put(cuda_exec *x, const nn_op *op, err *e) {
    cuda_packed p = packed_of(x, op->layer);
    int         first = op->kind == NN_OP_KV_STORE ? p.layout.k_dim : (int)x->x.model->tape->bufs[op->in[0]].width;
    return cuda_packed_store(&p, cuda_buf(x, op->in[0]), first, cuda_buf(x, op->in[1]), &x->on_device, x->stream, e);
}

/* What cuda_op_attn needs in front: f16 rows of the pages, and the query in their space. */
static int make_rows(cuda_exec *x, const nn_op *op, cuda_attn *a, err *e) {
    cuda_packed p = packed_of(x, op->layer);
    float      *turned = (float *)(void *)(x->heap + x->areas.turned);
    int64_t     rows = (int64_t)x->batch.n_tok * a->n_head;
    int         rc = 0;
    a->pages.base = x->heap + x->areas.open;
    a->pages.page_bytes = x->layers[op->layer].pages.page_bytes;
    if (p.layout.k_block) {
        rc = cuda_packed_rotate(turned, a->q, rows, a->dim_q, p.layout.k_block, false, p.signs, x->stream, e);
        a->q = turned;
        turned += rows * a->dim_q;
        if (rc == 0 && a->q_turned) {
            rc = cuda_packed_rotate(turned, a->q_turned, rows, a->dim_turned, p.layout.k_block, false, p.signs,
                                    x->stream, e);
            a->q_turned = turned;
        }
    }
    return rc < 0 ? rc : cuda_packed_open(&p, &a->pages, x->chunks * CUDA_ATTN_CHUNK, &x->on_device, x->stream, e);
}

bool cuda_packed_direct(const cuda_exec *x, const nn_op *op, const cuda_attn *a) {
    cuda_packed p = packed_of(x, op->layer);
    return cuda_attn_packed_can(a, &p);
}

bool cuda_packed_turns(const cuda_exec *x, const nn_op *op, const cuda_attn *a, const cuda_rope *r) {
    return r->offset == 0 && r->head_dim == a->dim_q && cuda_packed_direct(x, op, a);
}

int cuda_packed_attn(cuda_exec *x, const nn_op *op, cuda_attn *a, err *e) {
    cuda_packed p = packed_of(x, op->layer);
    if (a->counts && cuda_attn_packed_can(a, &p)) return cuda_attn_packed(a, &p, x->stream, e);
    int rc = make_rows(x, op, a, e);
    if (rc == 0) rc = cuda_op_attn(a, x->stream, e);
    if (rc < 0 || !p.layout.v_block) return rc;
    return cuda_packed_rotate(a->out, a->out, (int64_t)x->batch.n_tok * a->n_head, a->dim_out, p.layout.v_block, true,
                              p.signs, x->stream, e);
}

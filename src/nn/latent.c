/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head latent attention in its absorbed form: the query is carried into the latent space by the key half of kv_b,
 * scores and sums happen there, and the value half brings the result back. Only the latent and one rotated key are
 * remembered.
 */
#include "nn/nn.h"

#include <math.h>

void nn_latent_read(nn_config *c, nn_latent_dims *m) {
    if (nn_config_gguf(c))
        m->nope = (int)(nn_config_int(c, "attention.key_length_mla|attention.key_length", NULL, 0) - m->rot);
    if (m->v_dim == 0) m->v_dim = m->nope;
    if (m->nope <= 0 || m->v_dim <= 0 || m->kv_rank <= 0 || m->rot <= 0 || m->q_rank < 0 || m->nope > 65536 ||
        m->v_dim > 65536 || m->kv_rank > 65536 || m->rot > 65536 || m->q_rank > 1 << 20) {
        nn_config_fail(c, "the sizes of the latent attention do not fit: %d + %d per query head, %d per value, rank %d",
                       m->nope, m->rot, m->v_dim, m->kv_rank);
        return;
    }
    double s = nn_rope_yarn_mscale(c);
    m->scale = (float)(s * s / sqrt(m->nope + m->rot));
    m->eps = 1e-6f;
}

void nn_bind_latent(nn_binder *b, nn_latent *w, const nn_latent_dims *m, const nn_dims *d) {
    const int n = d->n_embd, q = d->n_head * (m->nope + m->rot);
    if (m->q_rank) {
        nn_bind_linear(b, &w->q_a, "attn_q_a", "self_attn.q_a_proj", n, m->q_rank, 0);
        nn_bind_vec(b, &w->q_norm, "attn_q_a_norm", "self_attn.q_a_layernorm", m->q_rank, 0);
        nn_bind_linear(b, &w->q_b, "attn_q_b", "self_attn.q_b_proj", m->q_rank, q, 0);
    } else {
        nn_bind_linear(b, &w->q_b, "attn_q", "self_attn.q_proj", n, q, 0);
    }
    nn_bind_latent_keys(b, w, m, d);
}

void nn_bind_latent_keys(nn_binder *b, nn_latent *w, const nn_latent_dims *m, const nn_dims *d) {
    const int n = d->n_embd, per = m->nope + m->v_dim, kv = m->kv_rank + m->rot;
    nn_bind_rows(b, &w->kv, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, m->kv_rank, 0, kv, 0);
    nn_bind_rows(b, &w->k_rot, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, m->rot, m->kv_rank, kv, 0);
    nn_bind_vec(b, &w->kv_norm, "attn_kv_a_norm", "self_attn.kv_a_layernorm", m->kv_rank, 0);
    nn_bind_heads(b, &w->k_b, "attn_k_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, m->nope, m->kv_rank, 0, per,
                  NN_HEADS_T);
    nn_bind_heads(b, &w->v_b, "attn_v_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, m->kv_rank, m->v_dim, m->nope,
                  per, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", d->n_head * m->v_dim, n, 0);
}

nn_state nn_latent_state(const nn_latent_dims *m) {
    return (nn_state){ .kind = NN_STATE_PAGED_LATENT, .n_kv = 1, .dim_k = m->kv_rank, .dim_v = m->rot };
}

nn_buf nn_latent_query(nn_tape *t, nn_buf n, const nn_latent *w, const nn_latent_dims *m) {
    return m->q_rank ? nn_rms_norm(t, nn_project(t, n, w->q_a), w->q_norm, m->eps) : n;
}

nn_buf nn_latent_attend(nn_tape *t, int layer, nn_buf n, nn_buf query, const nn_latent *w, const nn_latent_dims *m,
                        int n_head) {
    return nn_latent_attend_over(t, layer, n, query, w, m, n_head, (nn_choice){ 0 });
}

nn_buf nn_latent_attend_over(nn_tape *t, int layer, nn_buf n, nn_buf query, const nn_latent *w, const nn_latent_dims *m,
                             int n_head, nn_choice c) {
    return nn_latent_attend_to(t, layer, n, nn_project(t, query, w->q_b), w, m, n_head, c);
}

nn_buf nn_latent_attend_to(nn_tape *t, int layer, nn_buf n, nn_buf q, const nn_latent *w, const nn_latent_dims *m,
                           int n_head, nn_choice c) {
    const int dim = m->nope + m->rot;
    nn_buf    latent = nn_rms_norm(t, nn_project(t, n, w->kv), w->kv_norm, m->eps), k_rot = nn_project(t, n, w->k_rot);
    nn_buf    q_nope = nn_take_each(t, q, dim, 0, m->nope), q_rot = nn_take_each(t, q, dim, m->nope, m->rot);
    if (m->rope.n_rot) nn_rotate(t, q_rot, k_rot, m->rot, &m->rope);
    if (m->beta != 0) {
        nn_scale_by_position(t, q_nope, m->beta, m->period);
        nn_scale_by_position(t, q_rot, m->beta, m->period);
    }
    nn_latent_store(t, layer, latent, k_rot);
    nn_buf y = nn_latent_attention(t, layer, nn_project_heads(t, q_nope, w->k_b), q_rot, n_head, m->scale, c);
    return nn_project_heads(t, y, w->v_b);
}

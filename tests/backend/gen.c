/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/gen.h"
#include "backend/world.h"

#include "tensor/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWN_ROWS = 16 };

/* A model under construction. */
typedef struct gen {
    suite    *s;
    nn_model *m;
    nn_tape  *t;
    nn_state *state;
    int       type, n_embd, layer, until;
    float     eps;
} gen;

static void *must(void *p) {
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static void *take(gen *g, size_t count, size_t bytes) { return must(arena_calloc(&g->m->mem, count + 1, bytes)); }

static int pick(gen *g, const int *from, int n) { return from[suite_int(g->s, 0, n - 1)]; }
#define PICK(g, ...) pick(g, (const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)))

/* --- weights -------------------------------------------------------------------------------------------------------
 */

static bool is_mlx(int type) { return type >= TENSOR_MLX_AFF2 && type < TENSOR_TYPE_COUNT; }
static bool is_affine(int type) { return type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8; }
static bool is_float8(int type) { return type == TENSOR_F8_E4M3 || type == TENSOR_F8_E5M2; }
static bool has_scales(int type) { return is_mlx(type) || type == TENSOR_NF4 || is_float8(type); }

static int group_of(gen *g, int type, int64_t cols) {
    if (is_float8(type)) return PICK(g, 32, 48, 128, (int)cols); /* blocks may be cut off at the right edge */
    return type == TENSOR_MLX_NVFP4 ? 16 : type == TENSOR_MLX_MXFP4 || type == TENSOR_MLX_MXFP8 ? 32 : 64;
}

/* Blocks of a type without a quantizer that decode to sane numbers. */
static bool random_row(gen *g, int type, uint8_t *row, int64_t cols) {
    const tensor_type_info *i = tensor_type_get(type);
    float                   v[256];
    for (int64_t b = 0; b < cols / i->block_elems; b++, row += i->block_bytes) {
        for (int tries = 0;; tries++) {
            float top = 0;
            for (int k = 0; k < i->block_bytes; k++) row[k] = (uint8_t)suite_u64(g->s);
            if (tries == 100000 || !tensor_dequant_row(type, row, v, i->block_elems)) return false;
            for (int k = 0; k < i->block_elems; k++) top = isfinite(v[k]) ? fmaxf(top, fabsf(v[k])) : INFINITY;
            if (top > 1e-4f && top < 0.2f) break;
        }
    }
    return true;
}

static bool fill_row(gen *g, tensor_mat *m, int64_t r) {
    float    row[2048];
    uint8_t *data = (uint8_t *)(uintptr_t)m->data + (size_t)r * m->row_bytes;
    for (int64_t c = 0; c < m->cols; c++) row[c] = (float)((double)suite_normal(g->s) / sqrt((double)m->cols));
    if (!has_scales(m->type))
        return tensor_quant_row(m->type, row, data, m->cols) || random_row(g, m->type, data, m->cols);
    return tensor_mat_quant_row(m, row, data, (uint8_t *)(uintptr_t)m->scales + (size_t)r * m->scale_row_bytes,
                                m->biases ? (uint8_t *)(uintptr_t)m->biases + (size_t)r * m->scale_row_bytes : NULL);
}

static void copy_row(const void *base, size_t bytes, int64_t to, int64_t from) {
    uint8_t *p = (uint8_t *)(uintptr_t)base;
    if (p) memcpy(p + (size_t)to * bytes, p + (size_t)from * bytes, bytes);
}

/* False: there can be no such matrix. */
static bool make_mat(gen *g, tensor_mat *m, int type, int64_t rows, int64_t cols) {
    *m = (tensor_mat){ .type = (tensor_type)type, .rows = rows, .cols = cols };
    if (cols > 2048 || !tensor_type_get(type) || !tensor_row_bytes(type, cols, &m->row_bytes)) return false;
    const tensor_type_info *info = tensor_type_get(type);
    if (info->quantized && cols % 32) return false;
    m->data = take(g, (size_t)rows, m->row_bytes);
    if (has_scales(type)) {
        m->group = group_of(g, type, cols);
        if (cols % m->group && !is_float8(type)) return false;
        m->group_rows = 1;
        m->scale_type = is_affine(type)                         ? TENSOR_F16
                        : type == TENSOR_NF4 || is_float8(type) ? TENSOR_F32
                        : type == TENSOR_MLX_NVFP4              ? TENSOR_F8_E4M3
                                                                : TENSOR_F8_E8M0;
        m->scale_row_bytes = (size_t)((cols + m->group - 1) / m->group) * tensor_type_get(m->scale_type)->block_bytes;
        m->scales = take(g, (size_t)rows, m->scale_row_bytes);
        if (is_affine(type)) m->biases = take(g, (size_t)rows, m->scale_row_bytes);
    }
    for (int64_t r = 0; r < rows; r++) {
        if (r < DRAWN_ROWS && !fill_row(g, m, r)) return false;
        if (r < DRAWN_ROWS) continue;
        int64_t from = suite_int(g->s, 0, DRAWN_ROWS - 1);
        copy_row(m->data, m->row_bytes, r, from);
        copy_row(m->scales, m->scale_row_bytes, r, from);
        copy_row(m->biases, m->scale_row_bytes, r, from);
    }
    return true;
}

static const nn_mat *mat(gen *g, const char *name, int64_t rows, int64_t cols, int stack) {
    nn_mat     *w = take(g, 1, sizeof *w);
    int         n = stack ? stack : 1, other = PICK(g, TENSOR_F32, TENSOR_F16, TENSOR_BF16);
    tensor_mat *at = take(g, (size_t)n, sizeof *at);
    for (int k = 0; k < n; k++) {
        int type = k ? (int)at[0].type : g->type;
        if (!make_mat(g, &at[k], type, rows, cols) && !make_mat(g, &at[k], other, rows, cols)) exit(1);
    }
    *w = (nn_mat){ .name = name, .rows = rows, .cols = cols, .n_stack = stack, .at = at };
    return w;
}

static const nn_vec *vec(gen *g, const char *name, int64_t n, double middle, double spread) {
    nn_vec *v = take(g, 1, sizeof *v);
    float  *data = take(g, (size_t)n, sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = (float)(middle + spread * (double)suite_normal(g->s));
    *v = (nn_vec){ .name = name, .n = n, .data = data };
    return v;
}

static nn_linear linear(gen *g, const char *name, int64_t rows, int64_t cols) {
    return (nn_linear){ mat(g, name, rows, cols, 0), suite_chance(g->s, 30) ? vec(g, name, rows, 0, 0.3) : NULL };
}

static nn_buf project(gen *g, nn_buf x, const char *name, int64_t rows) {
    return nn_project(g->t, x, linear(g, name, rows, g->t->bufs[x].width));
}

/* --- pieces of a layer ---------------------------------------------------------------------------------------------
 */

static nn_buf norm(gen *g, nn_buf x) {
    int64_t width = g->t->bufs[x].width;
    if (suite_chance(g->s, 50)) return nn_rms_norm(g->t, x, vec(g, "norm", width, 1, 0.1), g->eps);
    const nn_vec *w = suite_chance(g->s, 70) ? vec(g, "norm", width, 1, 0.1) : NULL;
    return nn_layer_norm(g->t, x, w, w && suite_chance(g->s, 50) ? vec(g, "bias", width, 0, 0.1) : NULL, g->eps);
}

/* Over heads of a row: every form that there is. */
static nn_buf head_norm(gen *g, nn_buf x, int dim) {
    int64_t width = g->t->bufs[x].width;
    switch (suite_int(g->s, 0, 4)) {
    case 0: return nn_rms_norm_groups(g->t, x, dim, vec(g, "head_norm", dim, 1, 0.1), g->eps);
    case 1: return nn_rms_norm_groups(g->t, x, dim, vec(g, "wide_norm", width, 1, 0.1), g->eps);
    case 2: return nn_layer_norm_groups(g->t, x, dim, vec(g, "head_norm", dim, 1, 0.1), NULL, g->eps);
    case 3: return nn_rms_norm_groups(g->t, x, dim, NULL, g->eps);
    default: return nn_l2_norm(g->t, x, dim, 1e-6f);
    }
}

static nn_rope rope(gen *g, int dim) {
    int    n_rot = suite_chance(g->s, 50) ? dim / 2 * 2 : 2 * suite_int(g->s, 1, dim / 2);
    float *freq = take(g, (size_t)n_rot, sizeof *freq);
    for (int i = 0; i < n_rot / 2; i++) freq[i] = (float)pow(10000.0, -2.0 * i / n_rot);
    return (nn_rope){ .n_rot = n_rot,
                      .interleaved = suite_chance(g->s, 50),
                      .scale = suite_chance(g->s, 30) ? 1.2f : 1.0f,
                      .inv_freq = freq };
}

static void add_back(gen *g, nn_buf x, nn_buf y) {
    switch (suite_int(g->s, 0, 2)) {
    case 0: nn_project_add(g->t, x, y, linear(g, "out", g->n_embd, g->t->bufs[y].width)); break;
    case 1: nn_add(g->t, x, norm(g, project(g, y, "out", g->n_embd))); break;
    default: nn_add_scaled(g->t, x, project(g, y, "out", g->n_embd), 0.6f); break;
    }
}

static void gate_by(gen *g, nn_buf y, nn_buf h, int parts) {
    int64_t width = g->t->bufs[y].width;
    nn_gate(g->t, y, project(g, h, "gate", suite_chance(g->s, 50) ? width : parts),
            suite_chance(g->s, 50) ? NN_ACT_SIGMOID : NN_ACT_SILU);
}

static nn_buf attention(gen *g, nn_buf h, bool window) {
    int      n_kv = suite_int(g->s, 1, 3), n_head = n_kv * PICK(g, 1, 2, 4), dim = PICK(g, 8, 16, 24, 32, 64, 128);
    int      dim_v = suite_chance(g->s, 70) ? dim : PICK(g, 8, 16, 48);
    nn_state st = nn_state_kv(n_kv, dim, window ? suite_int(g->s, 3, 40) : 0);
    st.dim_v = dim_v;
    g->state[g->layer] = st;
    nn_attn_spec a = { .n_head = n_head,
                       .n_kv = n_kv,
                       .dim_k = dim,
                       .dim_v = dim_v,
                       .window = st.window,
                       .scale = 1.0f / sqrtf((float)dim) };
    if (window && suite_chance(g->s, 30)) a.window = suite_int(g->s, 1, st.window); /* reads less than is kept */
    if (window && suite_chance(g->s, 30)) a.chunk = a.window;
    if (!window) a.until = g->until;
    if (suite_chance(g->s, 30)) a.softcap = 8.0f;
    if (suite_chance(g->s, 30)) a.sinks = vec(g, "sinks", n_head, 0, 1);
    if (suite_chance(g->s, 30)) a.alibi = vec(g, "alibi", n_head, 0.3, 0.1)->data;
    nn_buf q = project(g, h, "q", (int64_t)n_head * dim), k = project(g, h, "k", (int64_t)n_kv * dim),
           v = project(g, h, "v", (int64_t)n_kv * dim_v);
    if (suite_chance(g->s, 40)) {
        q = head_norm(g, q, dim);
        k = head_norm(g, k, dim);
    }
    if (suite_chance(g->s, 80)) {
        nn_rope r = rope(g, dim);
        int     at = suite_chance(g->s, 30) ? (dim - r.n_rot) / 2 * 2 : 0;
        nn_rope_apply_at(g->t, q, dim, at, &r);
        nn_rope_apply_at(g->t, k, dim, at, &r);
    }
    if (suite_chance(g->s, 40)) nn_scale_by_position(g->t, q, 0.1f, suite_int(g->s, 4, 20));
    if (suite_chance(g->s, 20)) nn_scale_by_next_position(g->t, q, 0.1f, suite_int(g->s, 4, 20));
    if (suite_chance(g->s, 40)) nn_clip(g->t, v, 0.7f);
    nn_kv_store(g->t, g->layer, k, v);
    nn_buf y = nn_attention(g->t, g->layer, q, a);
    if (suite_chance(g->s, 30)) gate_by(g, y, h, n_head);
    return y;
}

/* Biases by distance. */
static const nn_vec *biases(gen *g, int n_head) {
    int buckets = PICK(g, 8, 16, 32);
    return nn_bias_buckets(g->t, vec(g, "buckets", (int64_t)buckets * n_head, 0, 1), n_head, buckets,
                           PICK(g, 12, 40, 128));
}

/* Terms by distance of each token: those of a table, through two matrices. */
static nn_apart terms(gen *g, nn_buf q, nn_buf k, int n_head, int dim) {
    int       bucket = PICK(g, 0, 8, 16), most = bucket ? PICK(g, 12, 40) : PICK(g, 3, 20), cols = PICK(g, 24, 32);
    int64_t   rows = 2 * (bucket ? bucket : most);
    nn_norm   n = { vec(g, "apart_norm", cols, 1, 0.1), vec(g, "apart_norm_b", cols, 0, 0.1) };
    nn_linear by_q = { mat(g, "apart_q", (int64_t)n_head * dim, cols, 0),
                       vec(g, "apart_q_b", (int64_t)n_head * dim, 0, 1) };
    nn_linear by_k = { mat(g, "apart_k", (int64_t)n_head * dim, cols, 0), NULL };
    nn_apart_table *p =
        nn_apart_open(g->t, mat(g, "apart", rows, cols, 0), suite_chance(g->s, 50) ? &n : NULL, 1e-5f, bucket, most);
    return nn_apart_of(g->t, p, q, nn_apart_rows(g->t, p, by_k, n_head), k, nn_apart_rows(g->t, p, by_q, n_head));
}

static nn_buf step_attention(gen *g, nn_buf h) {
    bool apart = suite_chance(g->s, 40);
    int  n_kv = suite_int(g->s, 1, 3), n_head = apart ? n_kv : n_kv * suite_int(g->s, 1, 3), dim = PICK(g, 8, 32, 72);
    nn_attn_spec a = { .n_head = n_head, .n_kv = n_kv, .dim_k = dim, .scale = 1.0f / sqrtf((float)dim) };
    g->state[g->layer] = nn_state_step(n_kv, dim);
    if (suite_chance(g->s, 50)) a.reach = suite_int(g->s, 1, 40);
    if (!apart && suite_chance(g->s, 30)) a.softcap = 5;
    if (suite_chance(g->s, 60)) a.bias = biases(g, n_head);
    if (suite_chance(g->s, 30)) a.alibi = vec(g, "alibi", n_head, 0.3, 0.1)->data;
    nn_buf q = project(g, h, "q", (int64_t)n_head * dim), k = project(g, h, "k", (int64_t)n_kv * dim),
           v = project(g, h, "v", (int64_t)n_kv * dim);
    nn_kv_store(g->t, g->layer, k, v);
    if (apart) a.apart = terms(g, q, k, n_head, dim);
    return nn_attention(g->t, g->layer, q, a);
}

/* Of sequences that are longer than what is chosen, and of some that are not; sometimes of more than a device's kernels
 * take as one part. */
static nn_choice choose(gen *g, nn_buf h, int n_group, int dim) {
    bool           blocks = n_group > 1 || suite_chance(g->s, 40);
    nn_choose_spec c = { .n_head = blocks ? n_group : suite_int(g->s, 2, 9), .n_group = n_group, .block = 1 };
    if (blocks) {
        c.block = PICK(g, 1, 3, 4, 16);
        c.local = suite_int(g->s, 0, 2);
    }
    c.top = suite_chance(g->s, 25) ? 150 : suite_int(g->s, 4, 9);
    g->state[g->layer].dim_index = dim;
    nn_index_store(g->t, g->layer, norm(g, project(g, h, "index_k", dim)));
    return nn_choose(g->t, g->layer, project(g, h, "index_q", (int64_t)c.n_head * dim),
                     blocks ? 0 : project(g, h, "index_w", c.n_head), c);
}

static nn_buf chosen(gen *g, nn_buf h) {
    int          n_kv = suite_int(g->s, 1, 3), n_head = n_kv * suite_int(g->s, 1, 3), dim = PICK(g, 8, 32, 72);
    nn_attn_spec a = { .n_head = n_head, .n_kv = n_kv, .dim_k = dim, .scale = 1.0f / sqrtf((float)dim) };
    g->state[g->layer] = nn_state_kv(n_kv, dim, 0);
    nn_buf q = project(g, h, "q", (int64_t)n_head * dim), k = project(g, h, "k", (int64_t)n_kv * dim),
           v = project(g, h, "v", (int64_t)n_kv * dim);
    nn_kv_store(g->t, g->layer, k, v);
    a.choice = choose(g, h, suite_chance(g->s, 50) ? n_kv : 1, PICK(g, 8, 24, 64));
    return nn_attention(g->t, g->layer, q, a);
}

static nn_buf latent(gen *g, nn_buf h, bool over) {
    int n_head = suite_int(g->s, 1, 4), wide = PICK(g, 16, 32, 64), turned = PICK(g, 8, 16), plain = PICK(g, 16, 32),
        out = PICK(g, 8, 32);
    g->state[g->layer] = (nn_state){ .kind = NN_STATE_PAGED_LATENT, .n_kv = 1, .dim_k = wide, .dim_v = turned };
    nn_rope r = rope(g, turned);
    nn_buf  q = project(g, h, "q", (int64_t)n_head * (plain + turned));
    nn_buf  q_plain = nn_take_each(g->t, q, plain + turned, 0, plain),
           q_rope = nn_take_each(g->t, q, plain + turned, plain, turned);
    nn_buf kv = project(g, h, "kv", wide + turned);
    nn_buf c = norm(g, nn_take(g->t, kv, 0, wide)), k_rope = nn_take(g->t, kv, wide, turned);
    nn_rope_apply(g->t, q_rope, turned, &r);
    nn_rope_apply(g->t, k_rope, turned, &r);
    nn_buf absorbed = nn_project_heads(g->t, q_plain, mat(g, "k_b", wide, plain, n_head));
    nn_latent_store(g->t, g->layer, c, k_rope);
    const float scale = 1.0f / sqrtf((float)(plain + turned));
    nn_choice   seen = { 0 };
    if (over) seen = choose(g, h, 1, PICK(g, 16, 40));
    nn_buf y = nn_latent_attention(g->t, g->layer, absorbed, q_rope, n_head, scale, seen);
    return nn_project_heads(g->t, y, mat(g, "v_b", out, wide, n_head));
}

static nn_buf conv(gen *g, nn_buf x, int kernel, int channel0) {
    int64_t width = g->t->bufs[x].width;
    return nn_conv(g->t, g->layer, x, vec(g, "conv", width * kernel, 0, 0.5),
                   suite_chance(g->s, 50) ? vec(g, "conv_bias", width, 0, 0.2) : NULL, kernel, channel0,
                   suite_chance(g->s, 60) ? NN_ACT_SILU : NN_ACT_NONE);
}

static nn_buf short_conv(gen *g, nn_buf h) {
    int width = suite_int(g->s, 5, 40), kernel = suite_int(g->s, 2, 5);
    g->state[g->layer] = (nn_state){ .conv_channels = width, .conv_kernel = kernel };
    nn_buf all = project(g, h, "in", 3 * (int64_t)width);
    nn_buf x = nn_take(g->t, all, 0, width), b = nn_take(g->t, all, width, width),
           c = nn_take(g->t, all, 2 * width, width);
    nn_gate(g->t, x, b, NN_ACT_NONE);
    nn_buf y = conv(g, x, kernel, 0);
    nn_gate(g->t, y, c, NN_ACT_NONE);
    return y;
}

static nn_buf delta(gen *g, nn_buf h) {
    int heads_k = suite_int(g->s, 1, 2), heads_v = heads_k * suite_int(g->s, 1, 3), dim_k = PICK(g, 8, 16, 24),
        dim_v = PICK(g, 8, 16, 20), kernel = suite_int(g->s, 2, 4);
    int  nk = heads_k * dim_k, nv = heads_v * dim_v;
    bool per_channel = suite_chance(g->s, 40);
    g->state[g->layer] = (nn_state){ .conv_channels = 2 * nk + nv,
                                     .conv_kernel = kernel,
                                     .rec_heads = heads_v,
                                     .rec_dim_k = dim_k,
                                     .rec_dim_v = dim_v };
    nn_buf q = conv(g, project(g, h, "q", nk), kernel, 0), k = conv(g, project(g, h, "k", nk), kernel, nk),
           v = conv(g, project(g, h, "v", nv), kernel, 2 * nk);
    q = nn_l2_norm(g->t, q, dim_k, 1e-6f);
    k = nn_l2_norm(g->t, k, dim_k, 1e-6f);
    int    n_g = per_channel ? heads_v * dim_k : heads_v;
    nn_buf decay = project(g, h, "decay", n_g), beta = project(g, h, "beta", heads_v);
    nn_decay(g->t, decay, vec(g, "a", heads_v, -0.7, 0.1), vec(g, "dt", n_g, 0, 0.5));
    nn_act(g->t, beta, NN_ACT_SIGMOID);
    nn_delta_spec d = { .heads_k = heads_k,
                        .heads_v = heads_v,
                        .dim_k = dim_k,
                        .dim_v = dim_v,
                        .scale = 1.0f / sqrtf((float)dim_k),
                        .k_tiled = suite_chance(g->s, 50) };
    nn_buf        y = nn_rms_norm_groups(g->t, nn_delta(g->t, g->layer, q, k, v, decay, beta, d), dim_v,
                                         vec(g, "norm", dim_v, 1, 0.1), 1e-2f);
    gate_by(g, y, h, heads_v);
    return y;
}

static nn_buf ssm(gen *g, nn_buf h) {
    int n_group = suite_int(g->s, 1, 2), n_head = n_group * suite_int(g->s, 1, 3), dim = PICK(g, 8, 16, 12),
        n_state = PICK(g, 8, 16, 24), kernel = suite_int(g->s, 2, 4);
    int nx = n_head * dim, nb = n_group * n_state;
    g->state[g->layer] = (nn_state){
        .conv_channels = nx + 2 * nb, .conv_kernel = kernel, .rec_heads = n_head, .rec_dim_k = n_state, .rec_dim_v = dim
    };
    nn_buf      all = conv(g, project(g, h, "in", nx + 2 * nb), kernel, 0);
    nn_buf      x = nn_take(g->t, all, 0, nx), b = nn_take(g->t, all, nx, nb), c = nn_take(g->t, all, nx + nb, nb);
    nn_ssm_spec s = { .n_head = n_head,
                      .dim = dim,
                      .n_group = n_group,
                      .n_state = n_state,
                      .a = vec(g, "a", n_head, -0.6, 0.1),
                      .d = suite_chance(g->s, 60) ? vec(g, "d", n_head, 1, 0.2) : NULL,
                      .dt_bias = suite_chance(g->s, 60) ? vec(g, "dt", n_head, 0, 0.3) : NULL,
                      .dt_min = suite_chance(g->s, 50) ? 0.1f : 0.0f,
                      .dt_max = suite_chance(g->s, 50) ? 1.5f : 0.0f };
    nn_buf      dt = suite_chance(g->s, 80) ? project(g, h, "dt", n_head) : 0;
    nn_buf      y = nn_ssm(g->t, g->layer, x, b, c, dt, s);
    gate_by(g, y, h, n_head);
    return y;
}

static nn_buf scan(gen *g, nn_buf h) {
    int n = PICK(g, 8, 24, 40), n_state = PICK(g, 4, 8, 16), kernel = suite_int(g->s, 2, 4);
    g->state[g->layer] =
        (nn_state){ .conv_channels = n, .conv_kernel = kernel, .rec_heads = 1, .rec_dim_k = n_state, .rec_dim_v = n };
    nn_buf       x = conv(g, project(g, h, "in", n), kernel, 0);
    nn_scan_spec s = { .n_channel = n,
                       .n_state = n_state,
                       .a = vec(g, "a", (int64_t)n * n_state, -0.6, 0.1),
                       .d = vec(g, "d", n, 1, 0.2),
                       .dt_bias = vec(g, "dt", n, 0, 0.3) };
    return nn_scan(g->t, g->layer, x, project(g, h, "b", n_state), project(g, h, "c", n_state), project(g, h, "dt", n),
                   s);
}

/* What differs in a few families: two experts by the sparse mixer, weights on the inputs, capped routers. */
static void rarer_experts(gen *g, nn_moe_spec *m) {
    m->group_best = suite_chance(g->s, 40);
    if (suite_chance(g->s, 30)) m->router_cap = 2.0f;
    if (!m->gate.b && suite_chance(g->s, 40)) m->weigh_input = true;
    if (m->n_group > 1 || m->bias || m->n_used < 2 || suite_chance(g->s, 60)) return;
    m->n_used = 2;
    m->score = NN_SCORE_SPARSEMIXER;
    m->jitter = 0.2f;
}

static nn_buf experts(gen *g, nn_buf h) {
    int         per = suite_int(g->s, 2, 4), n_group = suite_chance(g->s, 50) ? suite_int(g->s, 2, 3) : 1;
    int         n = per * n_group, width = 32 * suite_int(g->s, 1, 2);
    nn_moe_spec m = { .router = { mat(g, "router", n, g->n_embd, 0), NULL },
                      .gate = { mat(g, "gate", width, g->n_embd, n), NULL },
                      .down = { mat(g, "down", g->n_embd, width, n), NULL },
                      .n_expert = n,
                      .n_used = suite_int(g->s, 1, per),
                      .score = suite_chance(g->s, 50) ? NN_SCORE_SOFTMAX : NN_SCORE_SIGMOID,
                      .n_group = n_group > 1 ? n_group : 0,
                      .top_group = n_group > 1 ? suite_int(g->s, 1, n_group) : 0,
                      .renorm = suite_chance(g->s, 50),
                      .renorm_eps = suite_chance(g->s, 50) ? 1e-9f : 0.0f,
                      .scale = suite_chance(g->s, 50) ? 1.7f : 0.0f,
                      .glu = { .act = suite_chance(g->s, 50) ? NN_ACT_SILU : NN_ACT_GELU_TANH } };
    if (suite_chance(g->s, 40)) m.bias = vec(g, "route_bias", n, 0, 0.1);
    if (suite_chance(g->s, 40)) m.expert_scale = vec(g, "expert_scale", n, 1, 0.1);
    if (suite_chance(g->s, 40)) m.gate.b = vec(g, "gate_bias", (int64_t)n * width, 0, 0.3);
    if (suite_chance(g->s, 70)) m.up = (nn_linear){ mat(g, "up", width, g->n_embd, n), NULL };
    if (m.up.w && suite_chance(g->s, 40)) m.glu = (nn_glu_spec){ .limit = 1.5f, .alpha = 1.702f };
    rarer_experts(g, &m);
    return nn_moe(g->t, h, m);
}

static nn_buf feed_forward(gen *g, nn_buf h, int kind) {
    int n_ff = 32 * suite_int(g->s, 1, 5);
    switch (kind) {
    case GEN_GLU:
        return nn_glu(g->t, h, linear(g, "ffn_gate", n_ff, g->n_embd), linear(g, "ffn_up", n_ff, g->n_embd),
                      (nn_act_kind)PICK(g, NN_ACT_SILU, NN_ACT_GELU, NN_ACT_GELU_TANH, NN_ACT_RELU));
    case GEN_MOE: return experts(g, h);
    default: {
        nn_buf y = project(g, h, "ffn_up", n_ff);
        int    act = suite_int(g->s, NN_ACT_SILU, NN_ACT_TANH);
        if (suite_chance(g->s, 30)) nn_sparsify(g->t, y, 0.4f);
        if (n_ff != 96)
            nn_act(g->t, y, (nn_act_kind)act);
        else
            nn_xielu_apply(g->t, y, (nn_xielu){ .p = 0.9f, .n = 0.7f, .beta = 0.5f, .eps = -1e-6f });
        if (n_ff % 64 == 0) nn_clip(g->t, y, 1.5f);
        return y;
    }
    }
}

/* What towers and the rows of pictures need: a backend that cannot take such rows need not have it. */
static void picture_ops(gen *g, nn_buf x) {
    if (suite_chance(g->s, 25)) nn_add_supplied(g->t, x, suite_int(g->s, 1, 3));
    if (suite_chance(g->s, 25)) nn_add_each(g->t, x, vec(g, "shift", g->n_embd, 0, 0.3), -0.5f);
    if (suite_chance(g->s, 25)) nn_clamp(g->t, x, -1.2f, suite_chance(g->s, 30) ? INFINITY : 0.9f);
    if (suite_chance(g->s, 25)) {
        int    a = suite_int(g->s, 1, g->n_embd - 2), b = suite_int(g->s, 1, g->n_embd - a - 1);
        nn_buf parts[] = { nn_take(g->t, x, g->n_embd - a, a), nn_take(g->t, x, 0, b),
                           nn_take(g->t, x, b, g->n_embd - a - b) };
        nn_add_scaled(g->t, x, nn_join(g->t, parts, 3), 0.5f);
    }
}

static nn_buf mixer(gen *g, nn_buf h, int kind) {
    switch (kind) {
    case GEN_ATTN: return attention(g, h, false);
    case GEN_WINDOW: return attention(g, h, true);
    case GEN_STEP: return step_attention(g, h);
    case GEN_LATENT: return latent(g, h, false);
    case GEN_CHOSEN: return suite_chance(g->s, 50) ? latent(g, h, true) : chosen(g, h);
    case GEN_CONV: return short_conv(g, h);
    case GEN_DELTA: return delta(g, h);
    case GEN_SCAN: return scan(g, h);
    default: return ssm(g, h);
    }
}

static void layer(gen *g, nn_buf x, int mix, int ffn) {
    add_back(g, x, mixer(g, norm(g, x), mix));
    nn_buf y = feed_forward(g, norm(g, x), ffn);
    if (ffn == GEN_MOE)
        nn_add(g->t, x, y);
    else
        add_back(g, x, y);
    if (suite_chance(g->s, 30)) nn_scale(g->t, x, 0.8f);
    if (suite_chance(g->s, 25)) nn_scale_each(g->t, x, vec(g, "each", g->n_embd, 1, 0.1));
    if (g->s->backend->can & NN_BATCH_DEEP) picture_ops(g, x);
    if (suite_chance(g->s, 25)) {
        nn_buf z = project(g, x, "z", g->n_embd), by = project(g, x, "by", 3);
        nn_match_size(g->t, z, x, 1e-5f);
        nn_add_by(g->t, x, z, by, suite_int(g->s, 0, 2));
    }
}

/* --- whole models --------------------------------------------------------------------------------------------------
 */

static nn_model *empty(suite *s, gen *g, int type, int n_layer) {
    nn_model *m = must(calloc(1, sizeof *m));
    nn_dims  *d;
    err       e;
    arena_init(&m->mem, 0);
    *g = (gen){ .s = s, .m = m, .type = type, .eps = 1e-5f };
    d = take(g, 1, sizeof *d);
    g->state = m->state = take(g, (size_t)n_layer, sizeof *g->state);
    *d = (nn_dims){ .n_layer = n_layer, .n_vocab = suite_int(s, 33, 90) };
    m->dims = d;
    if (nn_tape_open(&m->tape, &m->mem, m->state, n_layer, &e) < 0) must(NULL);
    g->t = m->tape;
    return m;
}

static nn_model *finish(gen *g) {
    if (g->t->failed) {
        fprintf(stderr, "a random model cannot be recorded: %s\n", g->t->error.msg);
        exit(1);
    }
    return g->m;
}

/* A width that this type's rows can have. Plain numbers take any. */
static int width_for(suite *s, int type) {
    const tensor_type_info *i = tensor_type_get(type);
    if (has_scales(type)) return 64 * suite_int(s, 1, 3);
    if (i->block_elems > 32)
        return i->block_elems * suite_int(s, 1, 512 / i->block_elems < 4 ? 512 / i->block_elems : 4);
    return i->quantized ? 32 * suite_int(s, 1, 5) : suite_int(s, 9, 150);
}

nn_model *gen_model(suite *s, gen_want want) {
    static const int types[] = { TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0, TENSOR_Q4_K };
    int              n_layer = want.n_layer ? want.n_layer : suite_int(s, 1, 3);
    gen              g;
    nn_model        *m = empty(s, &g, want.type == GEN_ANY ? types[suite_int(s, 0, 5)] : want.type, n_layer);
    g.until = want.until;
    g.n_embd = width_for(s, g.type);
    ((nn_dims *)(uintptr_t)m->dims)->n_embd = g.n_embd;
    nn_buf x = nn_embed(g.t, mat(&g, "embd", m->dims->n_vocab, g.n_embd, 0), suite_chance(s, 50) ? 3.0f : 0.0f);
    if (suite_chance(s, 30)) nn_embed_positions(g.t, x, mat(&g, "pos_embd", 40, g.n_embd, 0), suite_int(s, -5, 2));
    bool whole = want.mixer == GEN_STEP;
    if (whole) nn_embed_segments(g.t, x, mat(&g, "segments", suite_int(s, 1, 2), g.n_embd, 0));
    for (g.layer = 0; g.layer < n_layer; g.layer++) {
        bool first = g.layer == 0;
        layer(&g, x, (first && want.mixer != GEN_ANY) || whole ? want.mixer : suite_int(s, 0, GEN_MIXERS - 1),
              first && want.ffn != GEN_ANY ? want.ffn : suite_int(s, 0, GEN_FFNS - 1));
    }
    nn_buf last = norm(&g, nn_outputs(g.t, x));
    nn_logits(g.t, last, linear(&g, "head", m->dims->n_vocab, g.n_embd), suite_chance(s, 50) ? 0.7f : 0.0f,
              suite_chance(s, 50) ? 5.0f : 0.0f);
    return finish(&g);
}

void gen_free(nn_model *m) {
    if (!m) return;
    arena_deinit(&m->mem);
    free(m);
}

bool gen_type_known(int type) {
    suite      s = { .random = 1 };
    gen        g;
    nn_model  *m = empty(&s, &g, type, 1);
    tensor_mat w;
    bool       ok = tensor_type_get(type) && make_mat(&g, &w, type, 1, 256) && tensor_mat_valid(&w);
    gen_free(m);
    return ok;
}

nn_model *gen_product(suite *s, int type, bool embedding, int rows) {
    gen       g;
    nn_model *m = empty(s, &g, TENSOR_F32, 1);
    bool      known = gen_type_known(type);
    g.n_embd = 256;
    if (rows) ((nn_dims *)(uintptr_t)m->dims)->n_vocab = rows;
    nn_mat     *w = take(&g, 1, sizeof *w);
    tensor_mat *at = take(&g, 1, sizeof *at);
    if (!known || !make_mat(&g, at, type, m->dims->n_vocab, 256))
        *at = (tensor_mat){ .type = (tensor_type)type,
                            .rows = m->dims->n_vocab,
                            .cols = 256,
                            .data = take(&g, (size_t)m->dims->n_vocab * 256, 8),
                            .row_bytes = 256 * 8 };
    *w = (nn_mat){ .name = "odd", .rows = m->dims->n_vocab, .cols = 256, .at = at };
    const nn_mat *plain = mat(&g, "plain", m->dims->n_vocab, 256, 0);
    nn_buf        x = nn_outputs(g.t, nn_embed(g.t, embedding ? w : plain, 0));
    nn_logits(g.t, x, (nn_linear){ embedding ? plain : w, NULL }, 0, 0);
    return finish(&g);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/mix.h"

#include "base/nearest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum role { EMBD, OUTPUT, V, K, Q, ATTN_OUT, UP, GATE, DOWN, OTHER } role;

/* Conditions of a rule; all that are set must hold. Layer i of n. */
enum {
    GQA4 = 1,       /* four or more heads share keys and values */
    GQA_OR_MOE = 2, /* that, or four or more experts */
    EIGHTH = 4,     /* i < n/8 */
    SIXTEENTH = 8,  /* i < n/16 */
    FIRST2 = 16,    /* i < 2 */
    FIRST4 = 32,    /* i < 4 */
    MORE = 64,      /* the first and the last eighth, and every third between them */
    MIDDLE = 128,   /* neither the first nor the last eighth */
    PLAIN = 256,    /* without an importance matrix */
    WEIGHTED = 512, /* with one */
    EIGHT = 1024,   /* exactly eight experts */
    FALCON = 2048,  /* only that family */
    OTHERS = 4096,  /* all but that family */
    COUNTED = 8192, /* i counts the tensors even where experts have layers in their names */
};

typedef struct rule {
    role        what;
    int         when;
    tensor_type type;
} rule;

struct mix {
    const char *name;
    tensor_type base;
    int         number;
    rule        rules[14]; /* ends with a zeroed one: no rule makes an embedding F32 */
};

#define T(x) TENSOR_##x
/* With eight experts keys and values are tiny beside the rest. */
#define EIGHT_EXPERTS                                                                                                  \
    { V, EIGHT, T(Q8_0) }, { K, EIGHT, T(Q8_0) }
#define EIGHT_EXPERTS_OUT                                                                                              \
    EIGHT_EXPERTS, { ATTN_OUT, EIGHT | OTHERS, T(Q5_K) }
#define SMALL_IQ(low)                                                                                                  \
    { V, GQA_OR_MOE, T(Q4_K) }, { V, 0, T(low) }, { K, EIGHT, T(Q4_K) }, { DOWN, EIGHTH | COUNTED, T(low) },           \
        { EMBD, 0, T(low) }, {                                                                                         \
        ATTN_OUT, EIGHT, T(Q5_K)                                                                                       \
    }

static const mix mixes[] = {
    { "F32", T(F32), 0, { { 0 } } },
    { "F16", T(F16), 1, { { 0 } } },
    { "BF16", T(BF16), 32, { { 0 } } },
    { "Q8_0", T(Q8_0), 7, { EIGHT_EXPERTS } },
    { "Q4_0", T(Q4_0), 2, { EIGHT_EXPERTS, { DOWN, EIGHTH | WEIGHTED, T(Q4_1) } } },
    { "Q4_1", T(Q4_1), 3, { EIGHT_EXPERTS } },
    { "Q5_0", T(Q5_0), 8, { EIGHT_EXPERTS, { DOWN, EIGHTH | WEIGHTED, T(Q5_1) } } },
    { "Q5_1", T(Q5_1), 9, { EIGHT_EXPERTS } },
    { "Q2_K",
      T(Q2_K),
      10,
      { EIGHT_EXPERTS_OUT,
        { V, GQA4, T(Q4_K) },
        { V, 0, T(Q3_K) },
        { DOWN, 0, T(Q3_K) },
        { ATTN_OUT, OTHERS, T(Q3_K) } } },
    { "Q2_K_S", T(Q2_K), 21, { EIGHT_EXPERTS, { V, GQA4, T(Q4_K) }, { DOWN, EIGHTH, T(Q4_K) } } },
    { "Q3_K_S", T(Q3_K), 11, { EIGHT_EXPERTS_OUT } },
    { "Q3_K_M",
      T(Q3_K),
      12,
      { EIGHT_EXPERTS_OUT,
        { V, FIRST2, T(Q5_K) },
        { V, 0, T(Q4_K) },
        { DOWN, SIXTEENTH, T(Q5_K) },
        { DOWN, OTHERS, T(Q4_K) },
        { DOWN, MORE, T(Q4_K) },
        { ATTN_OUT, OTHERS, T(Q4_K) } } },
    { "Q3_K_L",
      T(Q3_K),
      13,
      { EIGHT_EXPERTS,
        { V, 0, T(Q5_K) },
        { DOWN, OTHERS, T(Q5_K) },
        { DOWN, 0, T(Q4_K) },
        { ATTN_OUT, FALCON, T(Q4_K) },
        { ATTN_OUT, EIGHT, T(Q3_K) },
        { ATTN_OUT, 0, T(Q5_K) } } },
    { "Q4_K_S", T(Q4_K), 14, { EIGHT_EXPERTS_OUT, { V, FIRST4, T(Q5_K) }, { DOWN, EIGHTH | OTHERS, T(Q5_K) } } },
    { "Q4_K_M",
      T(Q4_K),
      15,
      { EIGHT_EXPERTS_OUT,
        { V, MORE, T(Q6_K) },
        { DOWN, FALCON | SIXTEENTH, T(Q6_K) },
        { DOWN, FALCON | MORE, T(Q5_K) },
        { DOWN, OTHERS | MORE, T(Q6_K) } } },
    { "Q5_K_S", T(Q5_K), 16, { EIGHT_EXPERTS } },
    { "Q5_K_M", T(Q5_K), 17, { EIGHT_EXPERTS, { V, MORE, T(Q6_K) }, { DOWN, MORE, T(Q6_K) } } },
    { "Q6_K", T(Q6_K), 18, { EIGHT_EXPERTS } },
    { "IQ1_S", T(IQ1_S), 24, { SMALL_IQ(Q2_K), { ATTN_OUT, 0, T(IQ2_XXS) } } },
    { "IQ1_M", T(IQ1_M), 31, { SMALL_IQ(Q2_K), { ATTN_OUT, 0, T(IQ2_XXS) } } },
    { "IQ2_XXS", T(IQ2_XXS), 19, { SMALL_IQ(Q2_K) } },
    { "IQ2_XS", T(IQ2_XS), 20, { SMALL_IQ(Q2_K) } },
    { "IQ2_S", T(IQ2_XS), 28, { SMALL_IQ(IQ3_S), { ATTN_OUT, 0, T(IQ3_S) } } },
    { "IQ2_M", T(IQ2_S), 29, { SMALL_IQ(IQ3_S), { ATTN_OUT, 0, T(IQ3_S) } } },
    { "IQ3_XXS",
      T(IQ3_XXS),
      23,
      { EIGHT_EXPERTS_OUT,
        { EMBD, 0, T(IQ3_S) },
        { V, GQA4, T(Q4_K) },
        { V, PLAIN, T(IQ3_S) },
        { K, 0, T(IQ2_S) },
        { Q, 0, T(IQ2_S) },
        { DOWN, PLAIN | EIGHTH, T(Q4_K) },
        { DOWN, PLAIN, T(Q3_K) },
        { ATTN_OUT, OTHERS, T(IQ3_S) } } },
    { "IQ3_XS",
      T(IQ3_S),
      22,
      { EIGHT_EXPERTS_OUT,
        { V, GQA4, T(Q4_K) },
        { K, 0, T(IQ3_XXS) },
        { Q, 0, T(IQ3_XXS) },
        { GATE, MIDDLE, T(IQ3_XXS) },
        { UP, MIDDLE, T(IQ3_XXS) } } },
    { "IQ3_S", T(IQ3_S), 26, { EIGHT_EXPERTS_OUT, { V, GQA4, T(Q4_K) } } },
    { "IQ3_M",
      T(IQ3_S),
      27,
      { EIGHT_EXPERTS_OUT,
        { V, 0, T(Q4_K) },
        { DOWN, EIGHTH, T(Q4_K) },
        { DOWN, EIGHT | MORE, T(Q4_K) },
        { ATTN_OUT, OTHERS, T(Q4_K) } } },
    { "IQ4_NL", T(IQ4_NL), 25, { EIGHT_EXPERTS_OUT, { V, GQA4, T(Q5_K) }, { DOWN, PLAIN | EIGHTH, T(Q5_K) } } },
    { "IQ4_XS", T(IQ4_XS), 30, { EIGHT_EXPERTS_OUT, { V, GQA4, T(Q5_K) }, { DOWN, PLAIN | EIGHTH, T(Q5_K) } } },
    { "TQ1_0", T(TQ1_0), 36, { EIGHT_EXPERTS, { EMBD, 0, T(Q4_K) } } },
    { "TQ2_0", T(TQ2_0), 37, { EIGHT_EXPERTS, { EMBD, 0, T(Q4_K) } } },
    { "MXFP4_MOE", T(MXFP4), 38, { { 0 } } },
};
#undef T
enum { N_MIXES = sizeof mixes / sizeof *mixes };

const mix  *mix_at(size_t i) { return i < N_MIXES ? &mixes[i] : NULL; }
const char *mix_name(const mix *m) { return m->name; }
tensor_type mix_base(const mix *m) { return m->base; }
int         mix_number(const mix *m) { return m->number; }

int mix_find(const mix **out, const char *name, err *e) {
    static const struct {
        const char *said, *meant;
    } short_names[] = { { "Q3_K", "Q3_K_M" }, { "Q4_K", "Q4_K_M" }, { "Q5_K", "Q5_K_M" }, { "MXFP4", "MXFP4_MOE" } };
    for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++)
        if (strcasecmp(name, short_names[i].said) == 0) name = short_names[i].meant;
    for (int i = 0; i < N_MIXES; i++) {
        *out = &mixes[i];
        if (strcasecmp(name, mixes[i].name) == 0) return 0;
    }
    return err_set(e, ERR_ARG, "'%.40s' is not a type that a file can be quantized to; Q4_K_M, Q6_K and Q8_0 are",
                   name);
}

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

bool mix_quantizes(const char *name, int n_dims) {
    static const char *const kept[] = {
        "_norm.weight",
        "ffn_gate_inp.weight",
        "ffn_gate_tid2eid.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
        "ssm_conv1d",
        "shortconv.conv.weight",
        "indexer.k_proj.weight",
        "indexer.q_proj.weight",
        "time_mix_first.weight",
        "time_mix_w0.weight",
        "time_mix_w1.weight",
        "time_mix_w2.weight",
        "time_mix_v0.weight",
        "time_mix_v1.weight",
        "time_mix_v2.weight",
        "time_mix_a0.weight",
        "time_mix_a1.weight",
        "time_mix_a2.weight",
        "time_mix_g1.weight",
        "time_mix_g2.weight",
        "time_mix_decay_w1.weight",
        "time_mix_decay_w2.weight",
        "time_mix_lerp_fused.weight",
        "attn_rel_b.weight",
        ".position_embd",
        "sam.pos_embd",
        "sam.neck.",
        "sam.net_",
        ".rel_pos",
        ".patch_embd",
        ".patch_merger",
        "a.rvq.codebook",
        "mm.a.code_embd",
    };
    size_t len = strlen(name);
    if (n_dims < 2 || len < 6 || strcmp(name + len - 6, "weight") != 0) return false;
    if (strcmp(name, "position_embd.weight") == 0 || strcmp(name, "token_types.weight") == 0) return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (has(name, kept[i])) return false;
    return true;
}

static role role_of(const char *name) {
    static const struct {
        const char *part;
        role        is;
    } roles[] = {
        { "attn_qkv.weight", V }, { "attn_kv_b.weight", V }, { "attn_v.weight", V },
        { "attn_k.weight", K },   { "attn_q.weight", Q },    { "attn_output.weight", ATTN_OUT },
        { "ffn_up", UP },         { "ffn_gate", GATE },      { "ffn_down", DOWN },
    };
    if (strcmp(name, "output.weight") == 0) return OUTPUT;
    if (strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0) return EMBD;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (has(name, roles[i].part)) return roles[i].is;
    return OTHER;
}

/* One tensor's place: i of n tensors of its role. */
typedef struct place {
    const mix_model *model;
    int              i, counted, n;
} place;

static bool holds(const place *p, int when) {
    const mix_model *m = p->model;
    int  gqa = m->kv_heads > 0 ? m->heads / m->kv_heads : 0, i = when & COUNTED ? p->counted : p->i, n = p->n;
    bool more = i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    const struct {
        int  flag;
        bool is;
    } facts[] = {
        { GQA4, gqa >= 4 },
        { GQA_OR_MOE, gqa >= 4 || m->n_experts >= 4 },
        { EIGHTH, i < n / 8 },
        { SIXTEENTH, i < n / 16 },
        { FIRST2, i < 2 },
        { FIRST4, i < 4 },
        { MORE, more },
        { MIDDLE, i >= n / 8 && i < 7 * n / 8 },
        { PLAIN, !m->importance },
        { WEIGHTED, m->importance },
        { EIGHT, m->n_experts == 8 },
        { FALCON, m->falcon },
        { OTHERS, !m->falcon },
    };
    for (size_t k = 0; k < sizeof facts / sizeof *facts; k++)
        if (when & facts[k].flag && !facts[k].is) return false;
    return true;
}

static bool small_iq(const mix *m) { return m->rules[0].what == V && m->rules[0].when == GQA_OR_MOE; }

static tensor_type output_type(const mix *m, const mix_model *model, int64_t cols) {
    const tensor_type_info *base = tensor_type_get((int)m->base);
    if (m->base == TENSOR_MXFP4 || model->falcon || cols % base->block_elems != 0) return TENSOR_Q8_0;
    if (small_iq(m) || m->base == TENSOR_IQ3_XXS) return TENSOR_Q5_K;
    return m->base == TENSOR_Q8_0 ? TENSOR_Q8_0 : TENSOR_Q6_K;
}

static tensor_type by_rules(const mix *m, const place *p, role r) {
    tensor_type type = m->base;
    for (const rule *x = m->rules; x->type != TENSOR_F32; x++) {
        if (x->what != r || !holds(p, x->when)) continue;
        type = x->type;
        break;
    }
    /* Eighty layers whose heads share values: these are an eighth of the queries, and more bits cost nothing. */
    bool big = p->model->n_layers == 80 && p->model->heads != p->model->kv_heads;
    if (r == V && big && !small_iq(m) && (type == TENSOR_Q3_K || type == TENSOR_Q4_K)) type = TENSOR_Q5_K;
    return type;
}

tensor_type mix_fit(tensor_type wanted, int64_t cols) {
    size_t      bytes;
    tensor_type next = TENSOR_F16;
    if (tensor_row_bytes((int)wanted, cols, &bytes)) return wanted;
    switch (wanted) {
    case TENSOR_Q2_K:
    case TENSOR_Q3_K:
    case TENSOR_TQ1_0:
    case TENSOR_TQ2_0: next = TENSOR_Q4_0; break;
    case TENSOR_Q4_K: next = TENSOR_Q5_0; break;
    case TENSOR_Q5_K: next = TENSOR_Q5_1; break;
    case TENSOR_Q6_K: next = TENSOR_Q8_0; break;
    default:
        if (tensor_type_get((int)wanted)->block_elems == 256) next = TENSOR_IQ4_NL;
    }
    return tensor_row_bytes((int)next, cols, &bytes) ? next : TENSOR_F16;
}

bool mix_needs_importance(const mix *m, tensor_type type) {
    switch (type) {
    case TENSOR_IQ1_S:
    case TENSOR_IQ1_M:
    case TENSOR_IQ2_XXS:
    case TENSOR_IQ2_XS:
    case TENSOR_IQ2_S:
    case TENSOR_IQ3_XXS: return true;
    case TENSOR_Q2_K: return strcmp(m->name, "Q2_K_S") == 0;
    default: return false;
    }
}

static int layer_of(const char *name) {
    int layer = -1;
    return sscanf(name, "blk.%d.", &layer) == 1 ? layer : -1;
}

typedef struct order {
    const char *name;
    int         layer;
    size_t      at;
} order;

static int by_layer(const void *a, const void *b) {
    const order *x = a, *y = b;
    return x->layer != y->layer ? (x->layer < y->layer ? -1 : 1) : strcmp(x->name, y->name);
}

/* What the walk over the tensors counts, by role. */
typedef struct walk {
    const mix       *m;
    const mix_model *model;
    int              seen[OTHER + 1], n_v;
    bool             tied;
} walk;

static tensor_type pick(walk *w, const mix_tensor *t) {
    role  r = role_of(t->name);
    place p = { .model = w->model, .n = r == V ? w->n_v : w->model->n_layers };
    bool  experts = w->model->n_experts > 1 && r != V;
    p.counted = w->seen[r]++;
    p.i = experts && layer_of(t->name) >= 0 ? layer_of(t->name) : p.counted;
    if (r == OUTPUT || (r == EMBD && w->tied)) return output_type(w->m, w->model, t->cols);
    if (w->m->base == TENSOR_MXFP4) return t->stack > 1 ? TENSOR_MXFP4 : TENSOR_Q8_0;
    return by_rules(w->m, &p, r);
}

int mix_types(const mix *m, const mix_model *model, mix_tensor *tensors, size_t n, bool pure, const int *forced,
              err *e) {
    walk   w = { .m = m, .model = model, .tied = true };
    order *at = calloc(n ? n : 1, sizeof *at);
    if (!at) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        at[i] = (order){ tensors[i].name, layer_of(tensors[i].name), i };
        w.n_v += role_of(tensors[i].name) == V;
        if (role_of(tensors[i].name) == OUTPUT) w.tied = false;
    }
    qsort(at, n, sizeof *at, by_layer);
    for (size_t i = 0; i < n; i++) {
        mix_tensor *t = &tensors[at[i].at];
        tensor_type wanted = m->base;
        int         force = forced ? forced[at[i].at] : -1;
        if (!mix_quantizes(t->name, t->n_dims)) continue;
        if (force >= 0)
            wanted = (tensor_type)force;
        else if (!pure && tensor_type_get((int)m->base)->quantized)
            wanted = pick(&w, t);
        t->type = mix_fit(wanted, t->cols);
        t->fallback = t->type != wanted;
    }
    free(at);
    return 0;
}

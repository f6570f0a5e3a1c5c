/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model family sees, and all it sees. One file because a family includes nothing else of ours.
 *
 * A family is one file in src/models: it says which hyper-parameters it reads (a table), which tensors it needs (bind
 * functions), what each layer remembers (state) and how a token passes through (forward). forward looks eager, but it
 * is called once at load: every nn_* call appends an op to a tape that the backends run for each batch. A family never
 * sees sequences, pages, threads, files or a backend; row counts are symbolic (tokens, or output rows after
 * nn_outputs).
 *
 * Errors are sticky: the first one is kept with its sentence, later calls do nothing, and the loader reports it. So a
 * family has no error paths of its own; it calls nn_config_fail for what only it can know to be wrong.
 */
#ifndef NN_NN_H
#define NN_NN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_config nn_config; /* the metadata of the model on disk */
typedef struct nn_binder nn_binder; /* its tensors */
typedef struct nn_tape   nn_tape;   /* the recording */
typedef int              nn_buf;    /* an activation matrix of f32: rows are tokens, width is known */

typedef enum nn_act_kind {
    NN_ACT_NONE,
    NN_ACT_SILU,
    NN_ACT_GELU,
    NN_ACT_GELU_TANH,
    NN_ACT_RELU,
    NN_ACT_RELU2,
    NN_ACT_SIGMOID,
    NN_ACT_SOFTPLUS,
    NN_ACT_TANH
} nn_act_kind;

/* --- weights ---------------------------------------------------------------------------------------------------- */

struct tensor_mat;

/* A small tensor: norm weights, biases, sinks. f32 in memory whatever the file had. */
typedef struct nn_vec {
    const char  *name;
    int64_t      n;
    const float *data;
} nn_vec;

/* A matrix in the file's own layout, `rows` outputs by `cols` inputs; or a stack of them, one per expert or head. */
typedef struct nn_mat {
    const char              *name;
    int64_t                  rows, cols;
    int                      n_stack; /* 0: a plain matrix */
    const struct tensor_mat *at;      /* [n_stack], or one */
    const struct nn_mat     *made_of; /* one that this was computed from when the model was opened; NULL: none */
} nn_mat;

typedef struct nn_linear {
    const nn_mat *w; /* NULL: not bound */
    const nn_vec *b; /* NULL: none; n_stack * rows long for a stack */
} nn_linear;

/* A LayerNorm's weight and, where it has one, its bias. */
typedef struct nn_norm {
    const nn_vec *w, *b;
} nn_norm;

/* --- hyper-parameters ------------------------------------------------------------------------------------------- */

/* What nearly every decoder has. It stands first in a family's struct and is read for it; see nn_dims in config.c. */
typedef struct nn_dims {
    int   n_layer, n_embd, n_vocab;
    int   n_head, n_kv, head_dim, n_ff; /* n_kv and head_dim follow from the others where the file has none */
    int   context;                      /* the longest sequence the model was made for; 0 where unknown */
    int   limit; /* the longest one that is computed as the model means it; longer ones are refused; 0: any */
    float eps;
} nn_dims;

/*
 * One row of a family's table. GGUF keys stand without the architecture ("attention.sliding_window"); config.json keys
 * may be paths ("rope_parameters.beta", "blocks.3.width"), looked up in text_config first. '|' separates alternatives,
 * tried in order.
 */
typedef struct nn_key {
    size_t      offset;
    char        type; /* 'i' int, 'f' float, 'b' bool */
    const char *gguf, *hf;
    double      dflt;
} nn_key;

#define NN_REQUIRED (-1e300)
#define NN_REQUIRED_INT INT64_MIN /* the same for nn_config_int */
#define NN_INT(field, gguf, hf, dflt)                                                                                  \
    { offsetof(hparams, field), 'i', gguf, hf, dflt }
#define NN_FLOAT(field, gguf, hf, dflt)                                                                                \
    { offsetof(hparams, field), 'f', gguf, hf, dflt }
#define NN_BOOL(field, gguf, hf, dflt)                                                                                 \
    { offsetof(hparams, field), 'b', gguf, hf, dflt }

/* Look-ups for setup(), with the same key syntax. A list that the file gives as one number has it at every index. */
int64_t nn_config_int(nn_config *c, const char *gguf, const char *hf, int64_t dflt);
double  nn_config_real(nn_config *c, const char *gguf, const char *hf, double dflt);
bool    nn_config_bool(nn_config *c, const char *gguf, const char *hf, bool dflt);
bool    nn_config_is(nn_config *c, const char *gguf, const char *hf, const char *text, bool dflt);
/* The activation that a field names, dflt where it is silent; another than these is refused by name. */
nn_act_kind nn_config_act(nn_config *c, const char *gguf, const char *hf, nn_act_kind dflt);
bool        nn_config_has(nn_config *c, const char *gguf, const char *hf);
int         nn_config_count(nn_config *c, const char *gguf, const char *hf);          /* length of a list; 0: no list */
bool nn_config_lists(nn_config *c, const char *gguf, const char *hf, int64_t number); /* a list has this number */

/* Refuse, by name, what a family does not know: a text that is not one of `known` ("silu|swish"), a number that is not
 * this one. Silence is fine. */
void nn_config_only(nn_config *c, const char *gguf, const char *hf, const char *known);
void nn_config_only_number(nn_config *c, const char *gguf, const char *hf, double known);
/* A number that the file may give once or per layer, but not a different one for some layer. */
int nn_config_same_int(nn_config *c, const char *gguf, const char *hf, int dflt);

/* Whether entry `index` of a list of names is one of `names`, or that of a text of letters is this one. */
bool nn_config_letter_at(nn_config *c, const char *hf, int index, char letter, const char *names);

double nn_config_real_of(nn_config *c, const char *gguf, const char *hf, int index, double dflt);
double nn_config_real_at(nn_config *c, const char *hf, int index, double dflt); /* of a list; may be infinite */

/* How many layers from the first on are of one kind: GGUF and older config.json count them, newer ones name every
 * layer's kind in hf_list. dflt is for a config.json that does neither. */
int nn_config_leading(nn_config *c, const char *gguf, const char *hf_count, int dflt, const char *hf_list,
                      const char *text);

/* Refuses every value of this field but those in the list, '|' between; an absent field is fine. */
void nn_config_known(nn_config *c, const char *hf, const char *values);
/* Whether config.json has this field, in this object where that is not NULL, with the value null. */
bool nn_config_null(nn_config *c, const char *object, const char *field);
/* A list with one number per layer; dflt everywhere where the file has none, and for an entry that is null. */
const float *nn_config_layer_reals(nn_config *c, const char *gguf, const char *hf, double dflt);
/* An array of n_layer numbers (arena memory; never NULL), the entry dflt where the file says nothing. */
const int *nn_config_layer_ints(nn_config *c, const char *gguf, const char *hf, int dflt);
/* The same from a list of names such as layer_types: 1 where the entry is `text`; a GGUF lists bools. A single number n
 * in the file, or as the default, means that every n-th layer is 0 and the others 1 (0: all layers are 0). */
const int *nn_config_layer_is(nn_config *c, const char *gguf, const char *hf, const char *text, int every);

/* For a part of a model whose fields stand in an object of their own (vision_config): look-ups outside of it. */
int64_t nn_config_outer_int(nn_config *c, const char *gguf, const char *hf, int64_t dflt);
int     nn_config_outer_ints(nn_config *c, const char *gguf, const char *hf, int *out, int most); /* how many; one */
double  nn_config_outer_real(nn_config *c, const char *gguf, const char *hf, double dflt);
nn_act_kind nn_config_outer_act(nn_config *c, const char *gguf, const char *hf, nn_act_kind dflt);

/* Notes a derived value under the key where a GGUF file keeps it. */
void nn_config_derived(nn_config *c, const char *gguf, double value);
void nn_config_derived_int(nn_config *c, const char *gguf, int64_t value);
void nn_config_derived_bool(nn_config *c, const char *gguf, bool value);
void nn_config_derived_layers(nn_config *c, const char *gguf, const int *values);  /* n_layer of them; kept */
void nn_config_derived_reals(nn_config *c, const char *gguf, const float *values); /* the same */
/* The same for a vector that GGUF has as a tensor of this full name; kept. */
void nn_config_derived_vec(nn_config *c, const char *name, const float *data, int n);

/* Another number of layers than the usual fields say; of the tape, see nn_arch.each. */
void nn_config_layers(nn_config *c, nn_dims *d, int64_t n);

/* Whether a GGUF file has this tensor of layer i, such as "attn_q.weight". A model that is made up has all. */
bool nn_config_layer_has(nn_config *c, int i, const char *tensor);

/* Says that GGUF has no key for this field of config.json: the model runs, but cannot be written as GGUF. */
void nn_config_unsaid(nn_config *c, const char *field);

void *nn_config_alloc(nn_config *c, size_t count, size_t bytes); /* zeroed; lives as long as the model */
void  nn_config_fail(nn_config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* False where the file says that rows see later ones, too. */
bool nn_config_causal(nn_config *c);
bool nn_config_gguf(const nn_config *c);                   /* only for quirks of converters; say which one */
bool nn_config_arch(const nn_config *c, const char *name); /* the file calls its architecture so */

/* --- rotary positions ------------------------------------------------------------------------------------------- */

/* The rotation of one kind of layer. Read by nn_rope_read, which knows linear, dynamic NTK, YaRN, llama3, longrope and
 * proportional scaling in all their spellings. */
typedef struct nn_rope {
    int          n_rot;       /* leading elements of a head that are rotated; 0: none (NoPE) */
    bool         interleaved; /* pairs (0,1)(2,3)..., else (0,n/2)(1,n/2+1)... */
    float        scale;       /* on cosine and sine: YaRN's attention factor */
    const float *inv_freq;    /* [n_rot / 2] */
    /* [n_rot / 2]: which axis of a position turns each pair, for batches that have several; NULL: the position itself.
     * Where a batch has none, all axes are the position. */
    const uint8_t *axis_of;
} nn_rope;

typedef struct nn_rope_want {
    int         dim;         /* elements of a head that may rotate, before any partial factor; 0: head_dim */
    double      base;        /* where the file names none; 0: 10000 */
    double      partial;     /* default partial rotary factor; 0: 1 */
    bool        interleaved; /* as Hugging Face stores the family */
    const char *layer_type;  /* a member of rope_parameters ("sliding_attention"); NULL: the plain one */
    const char *gguf_base;   /* NULL: "rope.freq_base" */
    const char *hf_base;     /* an older name of this base ("rope_local_base_freq"); NULL: "rope_theta" */
    const char *gguf_dim;    /* NULL: "rope.dimension_count" */
    int  factors;     /* GGUF: so many stand in rope_freqs, the first ones are for this kind; 0: no more than pairs */
    bool unscaled;    /* the scaling rules do not apply to this kind of layer */
    bool untruncated; /* YaRN: the ramp's ends are not rounded, also where the file does not say so */
    bool mscales;     /* Phi MoE: longrope names its two factors on cosine and sine itself */
    bool mla;         /* DeepSeek: mscale goes into the attention scale instead (nn_rope_yarn_mscale) */
    bool alpha;       /* HunYuan VL: GGUF files may have an alpha beside the base, and config.json says xdrope */
} nn_rope_want;

nn_rope nn_rope_read(nn_config *c, const nn_dims *d, nn_rope_want want);
/* Which axis turns which pair (axis_of): time, row, column, by the file's list of how many pairs each has; without one
 * they stay as they are. Interleaved: t h w t h w ..., as far as each has pairs, and the rest t; else one after the other. */
void nn_rope_axes(nn_config *c, nn_rope *r, bool interleaved);
/* Of HunYuan VL: the place in the prompt, column, row and number of a picture, one after the other; each has a pair. */
void nn_rope_axes_counted(nn_config *c, nn_rope *r);
/* Of most towers: the first half of a head's pairs is turned by the row of a patch, the second by its column, with the
 * same frequencies. head_dim: a multiple of 4. */
nn_rope nn_rope_grid(nn_config *c, int head_dim, double base);
/* YaRN's 0.1 * mscale_all_dim * ln(factor) + 1, else 1. DeepSeek's attention scale takes its square. */
double nn_rope_yarn_mscale(nn_config *c);

/* ALiBi: one slope per head, a geometric series from 2^(-bias / n) on, where n is n_head or, if that is not a power of
 * two, the next lower one; further heads stand between. The published models have a bias of 8. */
const float *nn_alibi_slopes(nn_config *c, int n_head, double bias);

/* --- tensors ---------------------------------------------------------------------------------------------------- */

/*
 * Names. In bind_layer they are relative to the layer ("attn_q" is blk.3.attn_q.weight, "self_attn.q_proj" is
 * model.layers.3.self_attn.q_proj.weight), in bind_top absolute. A name is tried as it stands, then with ".weight". '|'
 * separates alternatives. '*' stands for the expert's number, '*+64' for one 64 higher. Behind a name may follow
 *     ^      the file stores inputs by outputs: transpose
 *     #a/n   the a-th of n equal parts of the rows          (fused gate_up: "gate_up_proj#0/2")
 *     #a%n   every n-th row, from the a-th                  (interleaved gate_up)
 * NULL as a name: that kind of file has no such tensor.
 */
enum {
    NN_OPTIONAL = 1,    /* leave *out empty when the file has no such tensor */
    NN_PLUS_ONE = 2,    /* Hugging Face stores w - 1 (GGUF stores w) */
    NN_NEG_EXP = 4,     /* Hugging Face stores log(-w) (GGUF stores w) */
    NN_ROTARY = 8,      /* rows are rotated heads: GGUF permutes them where the family says permuted_qk */
    NN_NO_BIAS = 16,    /* a bias in the file is an error rather than used */
    NN_AT_LEAST = 32,   /* the file may have more rows (padded vocabularies) */
    NN_HEADS_T = 64,    /* nn_bind_heads: the parts of the one matrix must be transposed (MLA: keys) */
    NN_OWN_SCALE = 128, /* the family reads GGUF's X.scale itself: it is not the scale of an NVFP4 matrix */
    NN_BARE = 256,      /* a vector that GGUF files name without ".weight" */
};

/* `count` equal vectors behind each other: one tensor, or one each where the name has a '*'. */
void nn_bind_vecs(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int count, int64_t each,
                  unsigned flags);
void nn_bind_vec(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int64_t n, unsigned flags);
/* Short rows kept as one vector: the kernel of a convolution, [channels][taps]. */
void nn_bind_table(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int64_t rows, int64_t cols);
void nn_bind_grid(nn_binder *b, const nn_vec **out, const char *gguf, const char *hf, int64_t rows, int64_t cols,
                  unsigned flags); /* the same with flags */
/* NN_OPTIONAL: its bias may be missing. */
void nn_bind_norm(nn_binder *b, nn_norm *out, const char *gguf, const char *hf, int64_t n, unsigned flags);
void nn_bind_mat(nn_binder *b, const nn_mat **out, const char *gguf, const char *hf, int64_t in, int64_t rows,
                 unsigned flags);
/* A convolution whose kernel does not overlap itself: a matrix of all that one place sees, f32. The bias is optional. */
void nn_bind_patches(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int64_t rows);
/* The same over the same picture `frames` times: what the frames get is summed. in: channels * area. */
void nn_bind_frames(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int channels, int frames,
                    int64_t area, int64_t rows);
/* A convolution along rows: a matrix of `taps` neighbouring rows of `in` values, side by side, f32. The bias is optional. */
void nn_bind_taps(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int taps, int64_t rows);
/* A matrix and, where the file has one, its bias. */
void nn_bind_linear(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int64_t rows,
                    unsigned flags);
/* `rows` rows from `first` on of a matrix with `total` rows: fused projections. */
void nn_bind_rows(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int64_t rows,
                  int64_t first, int64_t total, unsigned flags);
/* GGUF has a plain matrix; Hugging Face one of `parts` equal parts of `part` rows whose rows belong elsewhere: for each
 * run in turn, `n` rows from `first` on of every part. A copy. */
typedef struct nn_run {
    int first, n;
} nn_run;
void nn_bind_runs(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int parts, int part,
                  const nn_run *runs, int n_runs);
/* One matrix per expert, stacked or one tensor each. */
void nn_bind_experts(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int n_expert, int64_t in,
                     int64_t rows, unsigned flags);
/* One matrix per head. GGUF has them stacked; Hugging Face (and old GGUF files) as one matrix with `stride` rows per
 * head, of which this takes `rows` from `first` on (with NN_HEADS_T it takes `in` rows and transposes them). */
void nn_bind_heads(nn_binder *b, const nn_mat **out, const char *gguf, const char *hf, int n_head, int64_t in,
                   int64_t rows, int64_t first, int64_t stride, unsigned flags);
/* Refuses a file that has this tensor: it belongs to a variant that the family does not know. */
void nn_bind_none(nn_binder *b, const char *gguf, const char *hf);
/* No tensor, but a table of `rows` tokens: 1 for those that are marked, else 0, in each of its few columns. */
void    nn_bind_marks(nn_binder *b, const nn_mat **out, int64_t rows, const int *marked, int n);
bool    nn_bind_exists(nn_binder *b, const char *gguf, const char *hf); /* true when there is no file to look in */
int64_t nn_bind_width(nn_binder *b, const char *gguf, const char *hf);  /* inputs of a matrix; 0: there is none */
int64_t nn_bind_size(nn_binder *b, const char *gguf, const char *hf);   /* values of a tensor; 0: there is none */

/* --- what a layer remembers ------------------------------------------------------------------------------------- */

typedef enum nn_state_kind {
    NN_STATE_NONE,
    NN_STATE_PAGED_KV,     /* keys and values of every position, in pages */
    NN_STATE_PAGED_LATENT, /* MLA: one latent and one rotated key per position */
    NN_STATE_WINDOW,       /* keys and values of the last `window` positions; older pages are freed */
    NN_STATE_STEP,         /* keys and values of the step's own rows: an input comes whole and leaves nothing behind */
} nn_state_kind;

/* A layer may remember positions, a fixed block, both or nothing (a layer that reads another one's keys). */
typedef struct nn_state {
    nn_state_kind kind;
    int           n_kv, dim_k, dim_v; /* LATENT: dim_k is the latent's width, dim_v the rotated key's */
    int           window;
    int           dim_index; /* PAGED_KV, LATENT: a key of this width beside each position, for nn_choose */
    int           conv_channels, conv_kernel;      /* FIXED: the last conv_kernel - 1 inputs of a short convolution */
    int           rec_heads, rec_dim_k, rec_dim_v; /* FIXED: a recurrent matrix per head */
} nn_state;

/* Keys and values of all positions, or of the last `window` where that is not 0. */
static inline nn_state nn_state_kv(int n_kv, int dim, int window) {
    return (nn_state){
        .kind = window ? NN_STATE_WINDOW : NN_STATE_PAGED_KV, .n_kv = n_kv, .dim_k = dim, .dim_v = dim, .window = window
    };
}

/* Of an encoder's layer: every row sees its whole input, and nothing is kept. */
static inline nn_state nn_state_step(int n_kv, int dim) {
    return (nn_state){ .kind = NN_STATE_STEP, .n_kv = n_kv, .dim_k = dim, .dim_v = dim };
}

/* --- ops -------------------------------------------------------------------------------------------------------- */

/* Activation of a gated unit: act(gate) * up. gpt-oss clamps both and adds one to up: limit and alpha > 0 select that.
 * With a limit alone (Step 3.5) it is min(act(gate), limit) * clamp(up, limit). */
typedef struct nn_glu_spec {
    nn_act_kind act;
    float       limit, alpha; /* min(g, limit) * sigmoid(alpha * g) * (clamp(up, limit) + 1) */
} nn_glu_spec;

/* xIELU: p x^2 + beta x above zero, n (e^min(x, eps) - 1 - x) + beta x below. */
typedef struct nn_xielu {
    float p, n, beta, eps;
} nn_xielu;

/*
 * What a query and a key say about how far apart they are (apart.c): row by row, `n` numbers for each head. To the score of
 * a query and a key at distance d (negative: the key stands before the query) number which[d] of either row is added, before
 * the scale.
 */
typedef struct nn_apart {
    nn_buf q, k; /* [n_head][n] */
    int    n;    /* 1 << 16 at most */
    const nn_vec
        *which; /* whole numbers, [2 * reach + 1] from -reach on, further ones as the ends; NULL: no such thing */
} nn_apart;

/* Of each row, the positions that an indexer chose, or blocks of them. */
typedef struct nn_choice {
    nn_buf ids;          /* for each group how many, then which, rising, as int32; 0: attention sees all */
    int    n_group, top; /* each group of heads has a choice of its own; the most that are chosen */
    int    block;        /* positions per block; 1: positions themselves are chosen */
} nn_choice;

/*
 * What an indexer wants to see: the best `top` positions of a row, or blocks of them by their best position; of equal ones
 * the first. A position's score is, for a group of one head, the query times the position's key (PAGED layers:
 * dim_index); for one group of several heads, the sum over heads of weight * max(0, query times key). The last `local`
 * blocks are always among those that are chosen. Positive factors on a score do not matter.
 */
typedef struct nn_choose_spec {
    int n_head, n_group; /* n_group: 1, with weights, or n_head, without */
    int top, block, local;
} nn_choose_spec;

typedef struct nn_attn_spec {
    int           n_head, n_kv, dim_k, dim_v; /* dim_v 0: dim_k */
    int           window;                     /* 0: all positions; else this many, itself included */
    int           reach;                      /* STEP layers: rows this far to both sides; 0: the whole input */
    float         scale, softcap;             /* softcap 0: none */
    const nn_vec *sinks;                      /* one logit per head that takes part in the softmax only */
    const nn_vec *bias;   /* nn_bias_*: added to the scaled score by head and distance; NULL: none */
    const float  *alibi;  /* [n_head] or NULL: a position scores slope * distance less; see nn_alibi_slopes */
    nn_apart      apart;  /* STEP layers without a softcap */
    bool          spans;  /* STEP layers: where a batch has spans (row_begin, row_end), a row sees its own only */
    bool          strict; /* a span that sees itself whole does not do so here */
    int       chunk;  /* 0: none; else only positions of the same chunk of this many; the state's window is as long */
    int       until;  /* 0: none; else positions from this one on are not seen, for layers that keep all of them */
    nn_choice choice; /* ids not 0: the row sees these positions only, as far as they are not behind it */
} nn_attn_spec;

/* SPARSEMIXER (Phi MoE): two experts, each with its share in the softmax over the logits that come near the best one.
 */
typedef enum nn_score { NN_SCORE_SOFTMAX, NN_SCORE_SIGMOID, NN_SCORE_SPARSEMIXER } nn_score;

typedef struct nn_moe_spec {
    nn_linear     router, gate, up, down;
    int           n_expert, n_used;
    nn_score      score;
    const nn_vec *bias;               /* added to the scores for the choice, not for the weight */
    int           n_group, top_group; /* choose within the best groups; a group scores as its best two (0: no groups) */
    bool          group_best;         /* a group scores as its best expert */
    bool          renorm;             /* weights of the chosen sum to one */
    float         renorm_eps;
    float         scale;        /* on the weights; 0: 1 */
    const nn_vec *expert_scale; /* per expert, on the weights */
    nn_glu_spec   glu;
    nn_buf        router_in;   /* NN_SAME: the experts' input */
    float         router_cap;  /* cap * tanh(logit / cap); 0: none */
    float         jitter;      /* SPARSEMIXER: how near is near */
    bool          weigh_input; /* an expert gets its input times its weight, and its output counts fully (Llama 4) */
} nn_moe_spec;
enum { NN_SAME = 0 };

/* Gated delta rule. g is one decay per head, or one per key channel (KDA). */
typedef struct nn_delta_spec {
    int   heads_k, heads_v, dim_k, dim_v;
    float scale;   /* on q */
    bool  k_tiled; /* value head h uses key head h % heads_k, else h / (heads_v / heads_k) */
} nn_delta_spec;

typedef struct nn_ssm_spec {
    int           n_head, dim, n_group, n_state;
    const nn_vec *a, *d, *dt_bias;
    float         dt_min, dt_max; /* limits of softplus(dt + bias); dt_max 0: none */
} nn_ssm_spec;

/* Mamba's scan: a step per channel, a: [channels][n_state]. */
typedef struct nn_scan_spec {
    int           n_channel, n_state;
    const nn_vec *a, *d, *dt_bias;
} nn_scan_spec;

/* Rows that every batch supplies, of this width: a tower's input. There is no table to look anything up in. */
nn_buf nn_input(nn_tape *t, int64_t width);
/* Rows of the embedding table, times scale (0: 1). nn_embed_positions adds the table's row pos + offset, or its first or
 * last one where there is none. */
nn_buf nn_embed(nn_tape *t, const nn_mat *table, float scale);
void   nn_embed_positions(nn_tape *t, nn_buf acc, const nn_mat *table, int offset);
/* The same for a second table, whose rows are never supplied: where the first one's is, token 0 stands (a padding). */
nn_buf nn_embed_tokens(nn_tape *t, const nn_mat *table, float scale);
/* Adds part 1, 2, ... of the rows that a batch supplies (nn/batch.h), as wide as the embedding; tokens have none. */
enum { NN_MAX_PARTS = 15 };
void nn_add_supplied(nn_tape *t, nn_buf acc, int part);
/* Adds the row of the text that a token belongs to: 0, or 1 in the second of a pair. */
void nn_embed_segments(nn_tape *t, nn_buf acc, const nn_mat *table);

/* Norms over the whole row, or over each group of w->n elements (heads). w NULL: no weight; then `group` says the size.
 */
nn_buf nn_rms_norm(nn_tape *t, nn_buf x, const nn_vec *w, float eps);
nn_buf nn_layer_norm(nn_tape *t, nn_buf x, const nn_vec *w, const nn_vec *b, float eps);
nn_buf nn_norm_rows(nn_tape *t, nn_buf x, const nn_norm *n, float eps); /* LayerNorm */
nn_buf nn_rms_norm_groups(nn_tape *t, nn_buf x, int group, const nn_vec *w,
                          float eps); /* w as wide as x, group, or NULL */
nn_buf nn_layer_norm_groups(nn_tape *t, nn_buf x, int group, const nn_vec *w, const nn_vec *b, float eps);
nn_buf nn_l2_norm(nn_tape *t, nn_buf x, int group, float eps);

nn_buf nn_project(nn_tape *t, nn_buf x, nn_linear w);                 /* W x + b */
void   nn_project_add(nn_tape *t, nn_buf acc, nn_buf x, nn_linear w); /* acc += W x + b */
nn_buf nn_project_heads(nn_tape *t, nn_buf x, const nn_mat *w);       /* head h of x through matrix h of the stack */

void nn_rope_apply(nn_tape *t, nn_buf x, int head_dim, const nn_rope *r); /* the head's first n_rot elements */
void nn_rope_apply_at(nn_tape *t, nn_buf x, int head_dim, int offset, const nn_rope *r); /* from offset on */
void nn_rotate(nn_tape *t, nn_buf q, nn_buf k, int head_dim, const nn_rope *r);          /* both of them */
void nn_scale_by_position(nn_tape *t, nn_buf x, float beta,
                          int period); /* x *= 1 + beta * ln(1 + floor(pos / period)) */
void nn_scale_by_next_position(nn_tape *t, nn_buf x, float beta, int period); /* the same with pos + 1 */

void   nn_kv_store(nn_tape *t, int layer, nn_buf k, nn_buf v);
nn_buf nn_attention(nn_tape *t, int layer, nn_buf q, nn_attn_spec a); /* causal, over what `layer` has stored */
/*
 * What attention adds by distance, [n_head][2 * reach + 1] from -reach (a key before the query) to reach; further ones
 * count as the ends. Buckets: T5's rule over a table of [n_bucket][n_head]; near distances have one each, those up to
 * max_distance share them by their logarithm.
 */
const nn_vec *nn_bias_buckets(nn_tape *t, const nn_vec *table, int n_head, int n_bucket, int max_distance);
/*
 * Scores by distance that depend on the query and on the key, DeBERTa's way (apart.c). nn_apart_open reads a table of
 * vectors, one for each of 2 * span buckets, normed where norm is there: distances have one each, or, with n_bucket, those of
 * half as many and more share them by their logarithm up to max_distance. nn_apart_rows puts it through a layer's matrix and
 * bias: what a query (or a key) is multiplied with, head by head.
 */
typedef struct nn_apart_table nn_apart_table;
nn_apart_table *nn_apart_open(nn_tape *t, const nn_mat *table, const nn_norm *norm, float eps, int n_bucket,
                              int max_distance);
const nn_mat   *nn_apart_rows(nn_tape *t, const nn_apart_table *p, nn_linear w, int n_head);
nn_apart        nn_apart_of(nn_tape *t, const nn_apart_table *p, nn_buf q, const nn_mat *by_query, nn_buf k,
                            const nn_mat *by_key);
/* MLA in its absorbed form: q is [head][latent], its rotated part [head][rope]; the result is [head][latent]. */
void   nn_latent_store(nn_tape *t, int layer, nn_buf latent, nn_buf k_rope);
nn_buf nn_latent_attention(nn_tape *t, int layer, nn_buf q, nn_buf q_rope, int n_head, float scale, nn_choice c);
/* The key of a position by which it is chosen; and the choice, over what `layer` has stored. weights: see the spec. */
void      nn_index_store(nn_tape *t, int layer, nn_buf k);
nn_choice nn_choose(nn_tape *t, int layer, nn_buf q, nn_buf weights, nn_choose_spec s);

nn_buf nn_glu(nn_tape *t, nn_buf x, nn_linear gate, nn_linear up, nn_act_kind act); /* act(gate x) * up x */
nn_buf nn_glu_clamped(nn_tape *t, nn_buf x, nn_linear gate, nn_linear up, nn_glu_spec spec);
nn_buf nn_moe(nn_tape *t, nn_buf x, nn_moe_spec m);

void nn_act(nn_tape *t, nn_buf x, nn_act_kind act);
void nn_add(nn_tape *t, nn_buf acc, nn_buf x);
void nn_add_scaled(nn_tape *t, nn_buf acc, nn_buf x, float scale); /* acc += scale * x */
void nn_scale(nn_tape *t, nn_buf x, float scale);
void nn_clip(nn_tape *t, nn_buf x, float limit);                        /* to -limit..limit */
void nn_clamp(nn_tape *t, nn_buf x, float lo, float hi);                /* to lo..hi; either may be infinite */
void nn_scale_each(nn_tape *t, nn_buf x, const nn_vec *w);              /* x *= w, as wide as x */
void nn_add_each(nn_tape *t, nn_buf x, const nn_vec *w, float scale);   /* x += scale * w, as wide as x */
void nn_add_by(nn_tape *t, nn_buf acc, nn_buf x, nn_buf g, int column); /* acc += g's column * x */
/* Rows of x get the root mean square of those of `like`; their own counts as eps^0.5 at least. */
void nn_match_size(nn_tape *t, nn_buf x, nn_buf like, float eps);
/* x = max(0, x - mean - deviations * standard deviation), over the row: what stands out (Gemma 3n). */
void   nn_sparsify(nn_tape *t, nn_buf x, float deviations);
void   nn_gate(nn_tape *t, nn_buf x, nn_buf g,
               nn_act_kind act); /* x *= act(g); g may have one element per equal part of x */
void   nn_xielu_apply(nn_tape *t, nn_buf x, nn_xielu a);
nn_buf nn_take(nn_tape *t, nn_buf x, int offset, int width);                 /* columns */
nn_buf nn_join(nn_tape *t, const nn_buf *parts, int n);                      /* columns of up to five, side by side */
nn_buf nn_take_each(nn_tape *t, nn_buf x, int group, int offset, int width); /* columns of every group, side by side */

/* Causal depthwise convolution over time; w is [channels][kernel]. channel0: where in the layer's conv state it begins.
 */
nn_buf nn_conv(nn_tape *t, int layer, nn_buf x, const nn_vec *w, const nn_vec *bias, int kernel, int channel0,
               nn_act_kind act);
void   nn_decay(nn_tape *t, nn_buf x, const nn_vec *a, const nn_vec *dt_bias); /* x = a * softplus(x + dt_bias) */
nn_buf nn_delta(nn_tape *t, int layer, nn_buf q, nn_buf k, nn_buf v, nn_buf g, nn_buf beta, nn_delta_spec s);
nn_buf nn_ssm(nn_tape *t, int layer, nn_buf x, nn_buf b, nn_buf c, nn_buf dt, nn_ssm_spec s); /* dt 0: one */
nn_buf nn_scan(nn_tape *t, int layer, nn_buf x, nn_buf b, nn_buf c, nn_buf dt, nn_scan_spec s);

nn_buf nn_outputs(nn_tape *t, nn_buf x); /* the rows whose logits are wanted */
/* Last. scale 0: 1. A head that was not bound is none: see nn_vectors. */
void nn_logits(nn_tape *t, nn_buf x, nn_linear head, float scale, float softcap);
void nn_vectors(nn_tape *t, nn_buf x); /* last, of a model without a head: its rows are the result */
void nn_hand_on(nn_tape *t, nn_buf x); /* after nn_logits: these output rows are fetched as the hidden state instead */
/* One vector behind the other: the weights of two groups of a norm. */
const nn_vec *nn_join_vecs(nn_tape *t, const nn_vec *a, const nn_vec *b);

/* --- a family --------------------------------------------------------------------------------------------------- */

/* What forward gets. The pointers are the family's own structs. */
typedef struct nn_net {
    const void *hp, *top, *layers;
} nn_net;

enum { NN_LACKS_HEADS = 1, NN_LACKS_FF = 2, NN_LACKS_EPS = 4, NN_LACKS_VOCAB = 8 };

typedef struct nn_arch {
    const char *const *names;       /* general.architecture and model_type values, the GGUF name first; NULL ends */
    bool               gguf_only;   /* the first name is not a model_type */
    bool               hf_only;     /* no GGUF architecture is published: the names are model_types alone */
    const char        *hf_layers;   /* NULL: "model.layers." */
    const char        *gguf_layers; /* NULL: "blk." */
    const char *const *hf_roots; /* what "model." may be in a Hugging Face file; NULL: a language model's; NULL ends */
    const char *const *tied;     /* model_type values whose config.json means tie_word_embeddings where it is silent */
    int                each;     /* so many layers of the tape are one of the files', which has all their names; 0: 1 */
    size_t             hp_size, top_size, layer_size;
    const nn_key      *keys;
    unsigned           lacks; /* dims that this family does not have */
    const char        *act;   /* values of hidden_act that it knows, '|' between; NULL: setup looks */
    const char        *kinds; /* of layers in layer_types that it knows; NULL: full_attention and sliding_attention */
    bool               permuted_qk;        /* GGUF files store q and k rows permuted for interleaved rotation */
    bool               reordered;          /* GGUF files order rows as binding cannot say: export_gguf refuses */
    void (*setup)(nn_config *c, void *hp); /* may be NULL: checks, derived values, rotary frequencies */
    void (*bind_top)(nn_binder *b, void *top, const void *hp);
    void (*bind_layer)(nn_binder *b, void *layer, const void *hp, int i);
    nn_state (*state)(const void *hp, int i);
    void (*forward)(nn_tape *t, const nn_net *net);

    /* Of a family whose files may bring a head for further tokens (nn/next.h), which is a block like its own; top begins
     * with nn_ends. bind_layer and state are then asked for layer n_layer, too. */
    void (*block)(nn_tape *t, int layer, nn_buf x, const void *hp, const void *w); /* layer: whose state it uses */
    unsigned next_norms;                                                           /* flags for the head's norms */
} nn_arch;

/* What stands outside the layers of most families. */
typedef struct nn_ends {
    const nn_mat *embd;
    const nn_vec *norm;
    nn_linear     head;
} nn_ends;
void     nn_bind_top_ends(nn_binder *b, void *top, const void *hp); /* nn_bind_ends of the dims that hp begins with */
nn_state nn_state_plain(const void *hp, int i);                     /* keys and values of all positions */
nn_state nn_state_whole(const void *hp, int i);                     /* those of the step alone: inputs come whole */
/* A tape without layers. */
nn_state nn_state_nothing(const void *hp, int i);
void     nn_bind_nothing(nn_binder *b, void *layer, const void *hp, int i);

/* The usual fields, for a file that names its parts as this header does: all of them its own; with nn_ends as its top;
 * with nn_state_plain or nn_state_whole, too. */
#define NN_PARTS                                                                                                       \
    .hp_size = sizeof(hparams), .layer_size = sizeof(layer), .keys = keys, .setup = setup, .bind_layer = bind_layer,   \
    .forward = forward
#define NN_FAMILY NN_PARTS, .top_size = sizeof(top), .bind_top = bind_top, .state = state
#define NN_WHOLE NN_PARTS, .top_size = sizeof(top), .bind_top = bind_top, .state = nn_state_whole
#define NN_DECODER NN_PARTS, .top_size = sizeof(nn_ends), .bind_top = nn_bind_top_ends, .state = state
#define NN_PLAIN NN_PARTS, .top_size = sizeof(nn_ends), .bind_top = nn_bind_top_ends, .state = nn_state_plain
#define NN_NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

/*
 * What towers have in common: a tower turns the patches of a picture into rows, a projector turns these (pooled or put
 * together, which is the caller's work) into rows for the language model. Each is a family of its own; a tower's hparams
 * begin with nn_tower_dims and its top with nn_tower_top. An input row of a tower is a patch, [channel][y][x], and behind it
 * what is added to the embedded patch: its position.
 */
typedef struct nn_tower_dims {
    nn_dims d;
    int     patch; /* pixels of a patch's side */
    int     image; /* side of the pictures that its positions are for */
} nn_tower_dims;
/* How positions for another number of places are found (vision/places.c). SMOOTH: sides up to NN_MOST_PLACES. */
typedef enum nn_between {
    NN_BETWEEN_CORNERS,
    NN_BETWEEN_SMOOTH,
    NN_BETWEEN_LINEAR,
    NN_BETWEEN_CUBIC,
    NN_BETWEEN_NEAREST
} nn_between;
enum { NN_MOST_PLACES = 128 };
typedef struct nn_tower_top {
    const nn_vec *positions; /* [n][n_embd], one per place, rows first; the class row's stands in front. NULL: none */
    int           side;      /* 0, or positions are for squares of this side, and for others in between */
    int           unused;    /* with a side: positions in front of those, which nothing has */
    nn_between    between;
    bool          channels_last; /* a patch is [y][x][channel] */
    bool          crossed;       /* positions are one per column, then as many per row, and both are added */
    bool          paired;        /* crossed, but one for a row follows each one for a column */
    const nn_vec *class_row;     /* a row that is no patch and goes first; NULL: none */
    bool          class_last;    /* its position is the last one, not the first */
    const nn_vec *patch_bias;    /* where there is one: added to the others alone; NULL: nothing is */
} nn_tower_top;
/* Of a projector with learned queries (vision/resample.c): its top begins with this. */
typedef struct nn_query_top {
    const nn_vec *queries; /* [n][width of what comes out] */
} nn_query_top;
/* A projector whose picture has a learned row at the end of each line of rows: its top begins with this. */
typedef struct nn_projector_top {
    const nn_vec *newline; /* as wide as what comes out; NULL: there is none */
    float         scale;   /* on it and on all rows: the language model's on its embeddings */
} nn_projector_top;
/* One whose lines end with a learned row that goes through it, too, and whose picture has one in front and one behind, which
 * only its last norm sees: its top begins with this. */
typedef struct nn_lines_top {
    const nn_vec *newline;     /* as wide as what comes in */
    const nn_vec *begin, *end; /* as wide as what comes out */
    const nn_vec *norm;
    float         eps;
} nn_lines_top;
/*
 * Projectors side by side whose learned queries look at windows (vision/windows.c): the tops of both models that do it begin with
 * this. learned: of projector i for each place in a window, of a query or of a patch.
 */
enum { NN_WINDOW_MOST = 8 };
typedef struct nn_window_top {
    nn_projector_top line;
    int              n;
    const nn_vec    *learned[NN_WINDOW_MOST];
} nn_window_top;
/*
 * The same for sounds: a tower takes the frames of a mel spectrogram and halves their number. Its hparams begin with
 * nn_ears_dims and its top with nn_ears_top. An input row is NN_EARS_FRAMES frames around a place, two numbers (1, or
 * 0 where the frame before the place, or that behind it, lies outside) and the place's position, where it has one.
 */
enum { NN_EARS_FRAMES = 5, NN_EARS_GATES = 2 };
typedef struct nn_ears_dims {
    nn_dims d;
    int     mels, positions; /* of a frame; of a piece of sound, which has twice as many frames */
} nn_ears_dims;
typedef struct nn_ears_top {
    const nn_vec *positions; /* [positions][n_embd]; NULL: sines of them, or none */
} nn_ears_top;
/* Parts around such a tower whose weights the caller applies: a norm behind a convolution, words of a table. */
typedef struct nn_ears_conv {
    nn_linear     w;
    const nn_vec *norm; /* by channel */
} nn_ears_conv;
typedef struct nn_ears_words {
    const nn_vec *norm, *table; /* [words][n_in] */
    nn_linear     first;
} nn_ears_words;
/* A tower of sounds whose rows see the last places only: its hparams begin with this. */
typedef struct nn_reach_dims {
    nn_dims d;
    int     reach; /* places that a row sees, itself included */
} nn_reach_dims;

/* A matrix that Gemma 4's towers may limit: its inputs and its outputs, each below and above. NULL: no limit. */
typedef struct nn_limited {
    nn_linear     w;
    const nn_vec *in_min, *in_max, *out_min, *out_max;
} nn_limited;
void   nn_bind_limited(nn_binder *b, nn_limited *w, const char *gguf, const char *hf, int64_t in, int64_t rows);
nn_buf nn_project_limited(nn_tape *t, nn_buf x, const nn_limited *w);

/*
 * Attention over the last `reach` places that adds to the score of a query and a key d places before it the product of the query
 * and a vector of the head for d: rows of the file's matrix times the sines and cosines of d. Queries and keys get some
 * elements behind those of a head, which are rotated, so that attention itself stays what it is (distances.c). Axis 0 of
 * a batch's positions is the place, or, exact to the last bit for long inputs, the place modulo `reach`.
 */
typedef struct nn_distances {
    int           dim, offset; /* of a head with them; where they begin */
    const nn_mat *q, *k;       /* by head; both scale, too */
    const nn_vec *one;         /* added to keys */
    nn_rope       rope;
} nn_distances;
typedef struct nn_distances_want {
    int          n_head, dim, reach;
    int64_t      n_in;               /* the matrix' inputs */
    double       q_factor, k_factor; /* on queries and keys */
    const float *q_scale;            /* [dim], on queries; NULL: one */
    nn_rope      rope;               /* of all layers: nn_distances_rope */
} nn_distances_want;
static inline int nn_distances_dim(int dim, int reach) { return (dim + 2 * (reach / 2 + 1) + 15) / 16 * 16; }
enum { NN_MAX_REACH = 256 };
nn_rope nn_distances_rope(nn_config *c, int reach);
void   nn_bind_distances(nn_binder *b, nn_distances *out, const char *gguf, const char *hf, const nn_distances_want *w);
nn_buf nn_query_at(nn_tape *t, nn_buf q, const nn_distances *d);
nn_buf nn_key_at(nn_tape *t, nn_buf k, const nn_distances *d);

/* Of a language model: behind how many of its first layers the rows of a picture get more (nn_add_supplied). */
int nn_deep_read(nn_config *c, int n_layer);
/* The same where config.json says in front of which layers (Granite 4 Vision): layer[i] gets part i + 1. Returns how many. */
int    nn_deep_layers(nn_config *c, int n_layer, int layer[NN_MAX_PARTS]);
nn_buf nn_tower_input(nn_tape *t, const nn_tower_dims *d, nn_linear patch); /* embedded patches with their positions */
/* The same where patches are normed before they get their positions; norm NULL: they are not. */
nn_buf nn_tower_input_normed(nn_tape *t, const nn_tower_dims *d, nn_linear patch, const nn_vec *norm);

/* A head of EAGLE-3 is a part, too (nn/next.h): its hparams begin with nn_eagle_dims, its top with nn_eagle_top. */
enum { NN_EAGLE_TAPS = 3 };
typedef struct nn_eagle_dims {
    nn_dims d;
    int     n_target, n_words;   /* width of the model's inner states; tokens that the head can say */
    int     taps[NN_EAGLE_TAPS]; /* layers of the model whose inputs it reads; -1: the published choice */
} nn_eagle_dims;
typedef struct nn_eagle_top {
    const nn_mat *embd; /* NULL: the model's */
    const nn_mat *fc;   /* [n_embd][NN_EAGLE_TAPS * n_target] */
    const nn_vec *norm_embd, *norm_state;
} nn_eagle_top;

/* --- parts that many families share ------------------------------------------------------------------------------ */

/* Attention's matrices. Norms are there where the file has them: one weight per element of a head, or of all heads. */
typedef struct nn_heads {
    nn_linear     q, k, v, o;
    const nn_vec *q_norm, *k_norm;
} nn_heads;
/* attn_{q,k,v,output} or self_attn.{q,k,v,o}_proj. */
void nn_bind_qkvo(nn_binder *b, nn_heads *out, const nn_dims *d);
/* The same with sizes of their own: n inputs, q and kv outputs. `flags` for q and k: NN_ROTARY. */
void nn_bind_attention(nn_binder *b, nn_heads *w, int64_t n, int64_t q, int64_t kv, unsigned flags);
/* Of these lengths; with NN_OPTIONAL both or neither. */
void nn_bind_head_norms(nn_binder *b, nn_heads *w, int64_t q, int64_t k, unsigned flags);
/* q, k and v in one tensor: all of q, then k, then v; or, in Hugging Face's file (grouped), for each key head its
 * queries, its key and its value. */
void nn_bind_qkv(nn_binder *b, nn_heads *out, const char *gguf, const char *hf, const nn_dims *d, bool grouped);

typedef struct nn_mlp {
    nn_linear gate, up, down; /* gate may be absent */
} nn_mlp;
void nn_bind_mlp(nn_binder *b, nn_mlp *out, const nn_dims *d, bool gated); /* ffn_*, mlp.*_proj */

nn_attn_spec nn_attn_plain(const nn_dims *d, int window);
/* The heads' results for the normed input n, before o. rope may be NULL; eps is for the norms of q and k. */
nn_buf nn_attend(nn_tape *t, int layer, nn_buf n, const nn_heads *w, const nn_rope *rope, nn_attn_spec a, float eps);
/* The feed-forward's inside for the normed input n, before down. */
nn_buf nn_feed(nn_tape *t, nn_buf n, const nn_mlp *w, nn_act_kind act);

void nn_bind_ends(nn_binder *b, nn_ends *out, const nn_dims *d, unsigned norm_flags);
void nn_bind_body(nn_binder *b, nn_ends *out, const nn_dims *d, unsigned norm_flags); /* without the head */
/* The head: "output" / "lm_head" where the file has it, else the embedding where the model ties them. A head that is
 * there is used even if tie_word_embeddings is true: transformers does not tie two tensors that differ, either. Nothing is
 * bound for a model that was saved without it. */
void nn_bind_head(nn_binder *b, nn_linear *out, const nn_mat *embd, int64_t in, int64_t n_vocab);

/* --- parts of several families (parts.c) ------------------------------------------------------------------------ */

nn_mat nn_mat_of(const nn_mat *stack, int i); /* one matrix of a stack */

/* A gated feed-forward: dense, or experts behind a router and perhaps a shared one beside them. `hf` names the module
 * ("mlp"); the shared expert's may have alternatives. */
typedef struct nn_ffn {
    nn_linear     gate, up, down, router, shared_gate, shared_up, shared_down;
    nn_linear     shared_router; /* one logit, whose sigmoid weighs the shared expert */
    const nn_vec *route_bias;
} nn_ffn;
void nn_bind_ffn(nn_binder *b, nn_ffn *w, const char *hf, int64_t n, int64_t ff);
/* bias: NN_OPTIONAL, or 0 where the router must have its correction; NN_BARE: GGUF names it without an ending */
void nn_bind_ffn_experts(nn_binder *b, nn_ffn *w, const char *hf, int64_t n, int64_t ff, int n_expert, unsigned bias);
void nn_bind_ffn_shared(nn_binder *b, nn_ffn *w, const char *hf, int64_t n, int64_t ff);
/* What the whole of it makes of x; `how` brings everything but the weights. */
nn_buf nn_ffn_apply(nn_tape *t, nn_buf x, const nn_ffn *w, nn_moe_spec how);

/* Granite's multipliers: of embeddings, scores, what a block adds, and the divisor of logits. */
typedef struct nn_multipliers {
    float embd, attn, residual, logit; /* attn 0: the file has none */
} nn_multipliers;
#define NN_MULTIPLIER_KEYS(m)                                                                                          \
    NN_FLOAT(m.embd, "embedding_scale", "embedding_multiplier", 1),                                                    \
        NN_FLOAT(m.attn, "attention.scale", "attention_multiplier", 0),                                                \
        NN_FLOAT(m.residual, "residual_scale", "residual_multiplier", 1),                                              \
        NN_FLOAT(m.logit, "logit_scale", "logits_scaling", 1)

/* Latent attention (latent.c). Without query compression (q_rank 0) q_b takes the hidden state. */
typedef struct nn_latent_dims {
    int     q_rank, kv_rank, nope, rot, v_dim;
    float   scale, eps; /* eps: of the two inner norms, whatever the model's own is */
    float   beta;       /* 0, or queries grow with the position: nn_scale_by_position with the period */
    int     period;
    nn_rope rope; /* n_rot 0: nothing rotates */
} nn_latent_dims;
typedef struct nn_latent {
    const nn_vec *q_norm, *kv_norm;
    nn_linear     q_a, q_b, kv, k_rot, o;
    const nn_mat *k_b, *v_b; /* per head */
} nn_latent;
#define NN_LATENT_KEYS(m, gguf_v)                                                                                      \
    NN_INT(m.q_rank, "attention.q_lora_rank", "q_lora_rank", 0),                                                       \
        NN_INT(m.kv_rank, "attention.kv_lora_rank", "kv_lora_rank", NN_REQUIRED),                                      \
        NN_INT(m.rot, "rope.dimension_count", "qk_rope_head_dim", NN_REQUIRED),                                        \
        NN_INT(m.nope, NULL, "qk_nope_head_dim", 0), NN_INT(m.v_dim, gguf_v, "v_head_dim", 0)
void nn_latent_read(nn_config *c, nn_latent_dims *m); /* what the table leaves open; refuses sizes that do not fit */
void nn_bind_latent(nn_binder *b, nn_latent *w, const nn_latent_dims *m, const nn_dims *d);
void nn_bind_latent_keys(nn_binder *b, nn_latent *w, const nn_latent_dims *m, const nn_dims *d); /* all but queries */
nn_state nn_latent_state(const nn_latent_dims *m);
nn_buf   nn_latent_query(nn_tape *t, nn_buf n, const nn_latent *w, const nn_latent_dims *m); /* what q_b takes */
nn_buf   nn_latent_attend(nn_tape *t, int layer, nn_buf n, nn_buf query, const nn_latent *w, const nn_latent_dims *m,
                          int n_head); /* before o */
nn_buf nn_latent_attend_over(nn_tape *t, int layer, nn_buf n, nn_buf query, const nn_latent *w, const nn_latent_dims *m,
                             int n_head, nn_choice c);
/* The same for queries that are projected already. */
nn_buf nn_latent_attend_to(nn_tape *t, int layer, nn_buf n, nn_buf q, const nn_latent *w, const nn_latent_dims *m,
                           int n_head, nn_choice c);

/* Mamba 2's mixer, as hybrid models have it. norm NULL: the gate only. */
typedef struct nn_mamba2_dims {
    int   n_head, dim, n_group, n_state, taps;
    float dt_min, dt_max; /* 0: none */
} nn_mamba2_dims;
typedef struct nn_mamba2 {
    const nn_vec *conv, *conv_bias, *a, *d, *dt_bias, *norm;
    nn_vec        taps[3], bias[3]; /* the convolution's channels of x, B and C */
    nn_linear     in, out;
} nn_mamba2;
void     nn_mamba2_check(nn_config *c, nn_mamba2_dims *d, int64_t inner); /* fills dim and the limits of dt */
nn_state nn_mamba2_state(const nn_mamba2_dims *d);
void     nn_bind_mamba2(nn_binder *b, nn_mamba2 *w, const char *hf, const nn_mamba2_dims *d, int64_t n, unsigned norm);
/* The same with a multiplier on each part of p: the gate, the scan's input, its two vectors, its step. */
typedef struct nn_mamba2_scales {
    float z, x, b, c, dt;
} nn_mamba2_scales;
nn_buf nn_mamba2_scaled(nn_tape *t, int layer, nn_buf p, const nn_mamba2 *w, const nn_mamba2_dims *d,
                        const nn_mamba2_scales *s, float eps);
nn_buf nn_mamba2_apply(nn_tape *t, int layer, nn_buf p, const nn_mamba2 *w, const nn_mamba2_dims *d,
                       float eps); /* p: in x; the result is out's input */

#endif

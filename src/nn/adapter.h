/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters: small changes of a model's matrices that are applied while it runs, per row of a batch.
 *
 * nn_adapter_open reads one of
 *     a directory of PEFT (adapter_config.json and adapter_model.safetensors): LoRA with or without rank-stabilised
 *     scale, DoRA, IA3, embeddings, experts one by one or stacked (target_parameters), activated LoRA
 *     a directory of MLX (adapter_config.json and adapters.safetensors): LoRA, DoRA
 *     a GGUF file (general.type adapter): LoRA
 * and binds it to an opened model by the names of its matrices, whichever format the model itself has. Every tensor must
 * find its matrix, with the right shape; what cannot be honoured is refused by name.
 *
 * What is kept is a copy: the file may be replaced afterwards. Its factors are kept as the caller wishes: as f32; as f16;
 * or as bytes with scales. LOWRANK_AUTO is f16, and bytes where the matrix itself has fewer than 8 bits per value: there
 * they are the more exact ones still, and a step reads half as much. A power of two per matrix moves the numbers into the
 * type's range first, so that nothing over- or underflows.
 *
 * For a matrix W with bias b and the adapters of a set, in their order:
 *     y = gain * W (in_gain * x) + bias_gain * b + sum over adapters of g * s * B (A x)
 * where gain is 1 + sum of (g - 1) over DoRA adapters, times every IA3 vector on outputs; bias_gain has the IA3 vectors
 * alone; in_gain is the product of the IA3 vectors on inputs. A scale c of an adapter means s = c * alpha / rank (or
 * / root of rank), DoRA's g = m / |W + s B A| row by row, and an IA3 vector of 1 + c (l - 1).
 *
 * A set is up to NN_SET_MOST adapters with scales, prepared for a tape: per op what to add. It is immutable, and shared
 * by any number of threads and executors. Its key says what it computes: the content of its adapters, the type of
 * their factors and the scales, never a name.
 */
#ifndef NN_ADAPTER_H
#define NN_ADAPTER_H

#include "base/huge.h"
#include "base/sha256.h"
#include "nn/model.h"
#include "tensor/lowrank.h"

enum { NN_SET_MOST = 8, NN_ADAPTER_MAX_RANK = 4096 };

/* B A of one matrix, as tensor/lowrank.h lays them. The inputs of an embedding are the tokens, its outputs are the columns
 * of the table. */
typedef struct nn_lora {
    lowrank_type type; /* not LOWRANK_AUTO */
    int          rank; /* of A as it lies here, a multiple of LOWRANK_PANEL; 0: this expert has none */
    int          used; /* of it, as the file has it */
    int64_t      in, out;
    const void  *a, *b;
    float        scale; /* alpha over rank, and the powers of two taken out of A and B */
} nn_lora;

static inline float nn_lora_a(const nn_lora *l, int64_t rank, int64_t in) {
    return lowrank_a(l->type, l->a, l->in, rank, in);
}
static inline float nn_lora_b(const nn_lora *l, int64_t out, int64_t rank) {
    return lowrank_b(l->type, l->b, l->used, out, rank);
}

/* What an adapter does to one matrix, or to a stack of them. */
typedef struct nn_patch {
    const nn_mat  *mat;
    bool           embed; /* the rows that are looked up; else the product */
    const nn_lora *lora;  /* [n_stack], or one; NULL: none */
    /* DoRA, [rows]: m, and the squares |W|^2, <W, BA> and |BA|^2 of the rows (BA with its scale). */
    const float *magnitude, *w2, *wd, *d2;
    const float *out_gain, *in_gain; /* IA3 */
} nn_patch;

typedef enum nn_adapter_format { NN_ADAPTER_PEFT, NN_ADAPTER_MLX, NN_ADAPTER_GGUF } nn_adapter_format;

typedef struct nn_adapter {
    arena             mem;
    huge_room        *rooms; /* of the factors */
    nn_adapter_format format;
    const char       *kind; /* "lora", "rslora", "dora", "ia3" */
    nn_patch         *patches;
    int               n_patches;
    int               rank;  /* the largest, as the file has it */
    double            alpha; /* of the file; 0: none */
    int               n_tensors;
    lowrank_type      type;       /* of the factors, as it was asked for */
    size_t            bytes;      /* of memory */
    const int32_t    *invocation; /* activated LoRA: it counts from the last occurrence of these tokens on */
    int               n_invocation;
    uint8_t           key[SHA256_BYTES]; /* of its content */
} nn_adapter;

/* path: a directory or a file. On success the caller owns *out. */
int  nn_adapter_open(nn_adapter **out, const nn_model *m, const char *path, lowrank_type type, err *e);
void nn_adapter_free(nn_adapter *a); /* accepts NULL */

/* The same from memory: the JSON of adapter_config.json (NULL: a GGUF file) and the bytes of the weights. */
int nn_adapter_read(nn_adapter **out, const nn_model *m, const char *config, size_t config_bytes, const uint8_t *data,
                    size_t bytes, lowrank_type type, err *e);

/* Where an activated adapter begins to count in a prompt: at the last occurrence of its invocation tokens; n: nowhere. */
int nn_adapter_start(const nn_adapter *a, const int32_t *tokens, int n);

/* --- sets -------------------------------------------------------------------------------------------------------- */

typedef struct nn_adapter_use {
    const nn_adapter *adapter; /* must outlive the set */
    float             scale;
} nn_adapter_use;

typedef struct nn_set_part {
    const nn_patch *patch;
    float           scale; /* of the adapter: on its lora's own */
    const float    *gain;  /* DoRA's g, [rows]; NULL: 1 */
    int             at;    /* where its ranks begin in a row of shrunk values */
} nn_set_part;

/* What a set does to one op of the tape: EMBED, LINEAR or EXPERTS. */
typedef struct nn_set_op {
    nn_set_part  parts[NN_SET_MOST]; /* those that have a lora */
    int          n_parts;
    int          rank;      /* of all parts together */
    const float *gain;      /* on W x, [rows]; NULL: 1 */
    const float *bias_gain; /* NULL: 1 */
    const float *in_gain;   /* [cols]; NULL: 1 */
} nn_set_op;

typedef struct nn_adapter_set {
    arena             mem;
    nn_adapter_use    uses[NN_SET_MOST];
    int               n_uses;
    const nn_set_op **ops;             /* [n_ops] of the tape; NULL: nothing to do */
    int               rank;            /* the largest of its ops */
    bool              gains, in_gains; /* some op has such */
    uint8_t           key[SHA256_BYTES];
} nn_adapter_set;

/* Scales must be finite and not 0 (leave such an adapter out). The set may be used until it is freed. */
int  nn_adapter_set_open(nn_adapter_set **out, const nn_model *m, const nn_adapter_use *uses, int n, err *e);
void nn_adapter_set_free(nn_adapter_set *s); /* accepts NULL */

#endif

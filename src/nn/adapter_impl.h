/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the adapter reader: a file as modules with their tensors (adapter_read.c), what its settings mean for them
 * (adapter_config.c), the matrices that they name (adapter_names.c), and binding (adapter.c).
 */
#ifndef NN_ADAPTER_IMPL_H
#define NN_ADAPTER_IMPL_H

#include "base/map.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "nn/adapter.h"
#include "nn/bind.h"
#include "nn/bound.h"

/* The tensors of one module of the file. */
typedef struct adapter_raw {
    const char         *module; /* "model.layers.0.self_attn.q_proj", "blk.0.attn_q" */
    int                 nested; /* PEFT: how often ".base_layer" stood behind it */
    const model_tensor *a, *b, *magnitude, *gain;
    bool                embed; /* PEFT: lora_embedding_A and _B */
} adapter_raw;

typedef struct adapter_source {
    nn_adapter_format format;
    tensor_table      tensors;
    gguf              gguf;
    safetensors       st;
    arena             mem;
    adapter_raw      *raw;
    size_t            n_raw;

    /* Settings. */
    bool              ia3, rslora, dora;
    double            alpha;             /* PEFT, GGUF (0: the scale is 1) */
    double            scale;             /* MLX */
    const json_value *alpha_pattern;     /* PEFT; NULL: none */
    const json_value *target_parameters; /* PEFT; NULL: none */
    const int32_t    *invocation;
    int               n_invocation;
} adapter_source;

int  adapter_source_read(adapter_source *s, const char *config, size_t config_bytes, const uint8_t *data, size_t bytes,
                         err *e);
void adapter_source_deinit(adapter_source *s);

/* adapter_config.json of PEFT or MLX: fills the settings, refuses what cannot be honoured. */
int adapter_config_read(adapter_source *s, const char *config, size_t bytes, err *e);
int adapter_config_gguf(adapter_source *s, const nn_model *m, err *e);
/* What stands before B A for a module of this rank. */
int adapter_config_scale(const adapter_source *s, const char *module, int rank, double *out, err *e);

/* --- names ------------------------------------------------------------------------------------------------------- */

/* One matrix that a name means: a part of the rows of the named tensor, perhaps of one expert. */
typedef struct adapter_match {
    const nn_bound *bound;
    int             part, parts; /* parts 1: the whole */
    bool            interleaved;
    int             expert; /* -1: all, or not a stack */
} adapter_match;

enum { ADAPTER_MAX_MATCHES = 16 };

typedef struct adapter_names {
    map           index; /* name -> position of its first entry + 1 */
    struct entry *entries;
    size_t        n, cap;
    arena         mem;
    bool          gguf; /* the adapter's names */
} adapter_names;

int  adapter_names_init(adapter_names *n, const nn_model *m, bool as_gguf, err *e);
void adapter_names_deinit(adapter_names *n);
/* The matrices that a module's name means; how many were written. */
int adapter_names_find(const adapter_names *n, const char *module, adapter_match out[ADAPTER_MAX_MATCHES]);

/* Rows of the tensor that a name means, and where row r of the matrix lies among them. */
int64_t adapter_match_total(const nn_model *m, const adapter_match *a, bool as_gguf);
int64_t adapter_match_row(const nn_model *m, const adapter_match *a, bool as_gguf, int64_t r);

#endif

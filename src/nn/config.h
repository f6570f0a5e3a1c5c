/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading hyper-parameters, behind the nn_config_* calls of nn.h.
 *
 * Values come from GGUF metadata (keys get the architecture's name in front), from config.json (text_config first, then
 * the top level), or, without a file, from `set` values alone: that is how synthetic models are made. Every look-up
 * that has a GGUF key is also noted, so that a model read from one kind of file can be written as GGUF with the same
 * values.
 *
 * config.json may hold "per_layer_config": {"03": {"head_dim": 512}, ...}, values of single layers beside the one for
 * all. A family that reads a field layer by layer (nn_config_layer_ints) gets them; any other override is refused.
 */
#ifndef NN_CONFIG_H
#define NN_CONFIG_H

#include "base/arena.h"
#include "base/err.h"
#include "formats/model_file.h"
#include "nn/nn.h"

enum { NN_MAX_LAYERS = 4096 };

typedef struct nn_config_set {
    const char *key; /* GGUF key without the architecture */
    double      value;
    bool        fallback; /* only where a family requires the key */
} nn_config_set;

/* A value that was looked up: one number, a list of them, or a text. */
typedef struct nn_config_note {
    const char            *key;  /* without the architecture */
    char                   type; /* 'i' 'f' 'b' 's'; 'I' 'B' 'F' for a list; 't' for a tensor of that full name */
    const char            *hf;   /* what config.json calls it, with alternatives; NULL: nothing */
    double                 value;
    const char            *text; /* of 's'; of 'B': the kind that is meant with 1 */
    const int             *list;
    const float           *reals;
    int                    n_list;
    struct nn_config_note *next;
} nn_config_note;

struct nn_config {
    arena               *mem;
    const model_file    *file; /* NULL: synthetic */
    const json_value    *root, *text;
    const json_value    *outer;     /* of a part of a model: what stands around root; NULL: nothing does */
    const char          *arch_name; /* prefix of GGUF keys */
    const nn_arch       *arch;
    const nn_config_set *set;
    size_t               n_set;
    int                  n_layer;
    int                  rope_context; /* the length that dynamic and long rotary rules assume; 0: the trained one */
    const char          *rope_type;    /* replaces the file's rule; NULL: its own. See nn_model_options */
    double               rope_factor;
    int                  rope_original_context;
    bool                 rope_replaced; /* a rotation took the rule */
    bool                 tied;          /* the embedding is the head where the file has no head */
    const char          *tied_by;       /* the field that says so or not; NULL: the default of the model type */
    const char          *by_layer[8];   /* fields of config.json that were read layer by layer, with alternatives */
    int                  n_by_layer;
    unsigned char        looked[96]; /* which of the fields in known.c the family has looked at */
    const char          *unsaid;     /* a field whose value GGUF cannot hold; NULL: none */
    nn_config_note      *notes;
    err                  error;
    bool                 failed;
};

/* Fills hp: dims, the family's keys, setup(). */
int nn_config_read(nn_config *c, const nn_arch *arch, void *hp, err *e);

/* silent.c: what holds where config.json does not have any of these fields, '|' between; NULL: nothing does. */
const double *nn_silent_find(const nn_config *c, const char *hf);

/* The next alternative of a '|' list; false at the end. */
bool nn_config_next_name(const char **list, char *out, size_t out_bytes);

/* overrides.c: a layer's own value; notes that a field is read layer by layer; after all, refuses what nobody read. */
const json_value *nn_override_find(const nn_config *c, int layer, const char *hf);
void              nn_override_looked(nn_config *c, const char *hf);
void              nn_overrides_check(nn_config *c);

/* known.c: notes a look-up; after all of them, refuses fields that change the arithmetic and that nobody looked at. */
void nn_known_looked(nn_config *c, const char *name);
void nn_known_check(nn_config *c);

/* A list of numbers, NULL when the file has none there. */
const float *nn_config_reals(nn_config *c, const char *gguf, const char *hf, int *n);
/* A text; NULL when absent. */
const char *nn_config_text(nn_config *c, const char *gguf, const char *hf);
/* Notes a value that belongs into a GGUF file without having been looked up. */
void nn_config_note_real(nn_config *c, const char *key, double value);
void nn_config_note_int(nn_config *c, const char *key, int64_t value);
void nn_config_note_ints(nn_config *c, const char *key, const int *list, int n); /* the list stays the caller's */
void nn_config_note_text(nn_config *c, const char *key, const char *text);
void nn_config_note_tensor(nn_config *c, const char *name, const float *data, int n);
/* Rotary factors that a GGUF file keeps in a tensor: name of the tensor and n values. */
const float *nn_config_tensor(nn_config *c, const char *name, int64_t n);

/* outer.c: reads from the whole configuration from now on; returns the part, to go back to. */
const json_value *nn_config_step_out(nn_config *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts that do not all fit into memory: slots that hold some of them, filled from the file.
 *
 * A slot holds what the products of one mixture need of one expert: gate, up and down with their scales, as they lie in
 * the file, each part in the aligned stretch of it (store_layout.c). Biases of experts and arrays of a few bytes are
 * kept in memory from the beginning. An expert is never read through the mapping.
 *
 * Which expert leaves: the one of the same layer that was used longest ago. A token goes through all layers before it
 * comes back to the first, so one list over all layers throws out what the next token needs as soon as the room is less
 * than a token's demand, and a prompt's first layers would empty those behind; with a share for every layer each keeps
 * the same number of tokens' choices, and the size of a slot can be the layer's own. Only where the shares would be less
 * than a token uses, all slots are one ring, from which nothing survives until the next token.
 *
 * One thread calls (worker 0 of a step); the reader's threads fill. Nothing allocates after store_open.
 */
#ifndef BACKEND_CPU_STORE_H
#define BACKEND_CPU_STORE_H

#include "base/file_reader.h"
#include "nn/backend.h"
#include "tensor/mat.h"

enum { STORE_OPS = 3, STORE_ARRAYS = 3 }; /* gate, up, down; data, scales, biases */

/* An expert's matrix. */
typedef struct store_mat {
    tensor_mat mat;
    size_t     at[STORE_ARRAYS]; /* in the slot; STORE_KEPT: mat has the address */
} store_mat;
#define STORE_KEPT SIZE_MAX

typedef struct store_expert {
    store_mat           mats[STORE_OPS];
    file_reader_extent *extents; /* file: of the model's mappings */
    int                 n_extents;
} store_expert;

typedef struct store_mixture {
    int           ops[STORE_OPS], n_ops; /* products, in the tape's order */
    int           layer;
    int           n_expert, n_used;
    size_t        slot_bytes;
    store_expert *experts;
    int           first_slot, n_slots;
} store_mixture;

/* What there is to stream, and how the slots lie. */
typedef struct store_layout {
    store_mixture *mixtures;
    int            n_mixtures, n_experts;
    size_t         file_bytes;               /* of all these experts in the file */
    size_t         token_bytes;              /* of those that one token uses */
    size_t         all_bytes;                /* slots for all of them */
    size_t         least_bytes, share_bytes; /* the least that works; from where on every layer has its share */
    size_t         table_bytes;              /* of heap: this, and arrays that are copied */
    bool           ring;
    int            n_slots;
    size_t         slots_bytes;
} store_layout;

/*
 * The mixtures of an executor's part of the tape. ERR_UNSUPPORTED: some expert's bytes are not in the file as the kernels
 * read them. copy: small arrays are copied into mem; else nothing of a weight is touched.
 */
int store_layout_find(store_layout *out, const nn_model *m, const nn_exec_options *o, bool copy, arena *mem, err *e);
/* Slots within so many bytes; ERR_LIMIT: too few. */
int store_layout_divide(store_layout *l, size_t bytes, err *e);
int store_layout_mixture(const store_layout *l, int op); /* which one an op is of; -1: none */

typedef struct store store;

/* Takes the memory and opens the files; the layout stays where it is. */
int  store_open(store **out, const store_layout *l, const nn_model *m, const file_reader_hook *hook, err *e);
void store_free(store *s); /* accepts NULL */

bool store_has(const store *s, int mixture, int expert);
/* A slot with this expert, or one into which it is being read; nobody else gets it until store_release. -1: all slots that
 * it could have are taken. */
int  store_take(store *s, int mixture, int expert);
void store_release(store *s, int slot);
bool store_is_ready(store *s, int slot);
int  store_wait(store *s, int slot, err *e); /* until it can be used */
void store_drop(store *s, int slot);         /* released; forgotten as well where it is not there yet */
/* The matrix of an expert in its slot. */
tensor_mat store_mat_of(const store *s, int slot, int which);

nn_streaming *store_streaming(store *s); /* brought up to date by store_count */
void          store_count(store *s);

const atomic_uint_least64_t *store_bytes_read(const store *s);

#endif

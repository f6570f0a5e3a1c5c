/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory a model needs, from its file alone.
 *
 * The file is mapped, its hyper-parameters are read and its tape is recorded, as when it is opened; no weight is
 * touched and nothing large is allocated. The sizes of cache and scratch come from the functions that the engine itself
 * opens with (engine_measure), so they are exact; what tokenizer, template and threads take is an estimate from the
 * size of the vocabulary (other_bytes).
 *
 * The count for a budget is bytes, device by device. In the machine's own memory ("cpu") these are mapped weights +
 * cache + scratch and other heap. Weights are counted whole although the system may drop pages of them: a model whose
 * weights do not stay is slow beyond use. Only experts that are streamed count with the slots that they are read into.
 */
#ifndef RUNTIME_NEED_H
#define RUNTIME_NEED_H

#include "base/device_memory.h"
#include "base/err.h"
#include "engine/engine.h"
#include "formats/model_file.h"
#include "runtime/runtime.h"

#include <stdint.h>

typedef struct need {
    int n_ctx,
        n_ctx_train; /* positions of a sequence that this was computed for, and that the model was trained with */
    int n_sequences; /* full ones that the cache holds */

    uint64_t weights_bytes;      /* mapped */
    uint64_t cache_bytes_per_1k; /* what 1000 further tokens of one sequence take */
    uint64_t sequence_bytes;     /* what a sequence takes whatever its length: full windows, fixed states */
    uint64_t cache_bytes;        /* all pages, the fixed states that may be kept, the host tier */
    uint64_t scratch_bytes;      /* activations and tables, known exactly */
    uint64_t other_bytes;        /* tokenizer and the rest of the heap, estimated */

    device_memory bytes; /* what all of this takes on each device */

    char          device[64];  /* that computes, or several (backend/parts.h) */
    char          memory[128]; /* those in whose memory it lies, but for the machine's own: "cuda:0, cuda:1" */
    device_memory limits;      /* what models may take of each of these, a tenth is left alone; empty: there is none */
    char   left[384]; /* why it is not the preferred one alone, and what computes instead; empty: it is, or somebody
                              named one */
    int    n_layer, n_mixtures; /* layers, and how many of them have experts */
    size_t cache_room;          /* what the cache may take; for opening with the same */

    nn_expert_memory experts; /* bytes: the slots of streamed ones, for opening with the same; 0: none are streamed */

    /* What one token costs: bytes of weights that are read, and multiplications with them. */
    uint64_t token_bytes, token_products;

    int has_draft, has_next; /* 0 or 1, who drafts then: a draft model, a head for further tokens */
} need;

/*
 * The options are those the model would be opened with (n_ctx 0: its own, or what the cache has room for; page types; ...).
 * n_sequences > 0: the cache is as large as that many full contexts, whatever the options say; 0: as they say.
 */
int need_of_model(need *out, const model_file *f, const engine_options *o, int n_sequences, err *e);
int need_of_path(need *out, const char *path, const engine_options *o, int n_sequences, err *e);
/* With the settings that it would be opened with: their context, and their draft model beside it. */
int need_of_settings(need *out, const char *path, const runtime_settings *s, const engine_options *o, err *e);

/*
 * A model whose device nobody named, and which is too large for the preferred one, a GPU, is divided: on as few GPUs as hold
 * it; where all of them do not, experts are left to the CPU, as many as need be, or its first layers. What a GPU cannot take
 * at all computes on the CPU. The functions above do so by themselves, and say why in left; who opens a model
 * asks these.
 */
bool need_may_leave(const char *device, int code); /* after this error of opening */
/* An error where the preferred device lacks what the model will be asked for; 0 where a device was named. */
int need_suits(const char *device, const nn_model *m, bool eyes, bool adapters, err *e);

/* Where it had no room although it should have had, because others use the memory: where less of it is on the GPU. False:
 * nothing would be left there, which is so after 16 times at the latest. */
bool need_smaller(const need *n, char device[64]);

/* Whether it fits into the machine (available, 0: not known) and on the device that computes. */
bool need_fits(const need *n, uint64_t available);
/* The longest context with which it does, as a multiple of 256, shorter than the one of n; 0: none. */
int need_fitting_context(const need *n, const model_file *f, const engine_options *o, int n_sequences,
                         uint64_t available);
/* An error where a device alone could not hold it, with what is missing and what would fit. */
int need_check_device(const need *n, const char *path, const engine_options *o, err *e);

/* What the cache of a model may take where nobody said how long its context is: of the memory that is free now, or of
 * what a device with memory of its own has, a quarter, and half of what its weights leave. */
size_t need_cache_room(const model_file *f, const char *device);

#endif

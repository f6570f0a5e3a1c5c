/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's eyes: pictures become rows that take the place of tokens in its prompt.
 *
 * A picture is scaled and cut as the model's image processor does it, its patches go through the tower (a tape of its own,
 * on the device of the language model), the tower's rows are pooled or put together, and a projector makes rows of the
 * language model's width. Weights come from the model's own directory, or from an mmproj file (a GGUF with the architecture
 * "clip").
 *
 * In the prompt a picture is some text: a word that stands for each of its rows, and words around them. Templates print one
 * placeholder for a picture, which vision_write replaces in the rendered text, as the reference does, before it is
 * tokenized.
 *
 * Where little detail is enough (pixels.low), a picture gets fewer rows: no tiles, 512 x 512 pixels where its size is free,
 * the smallest budget; towers with one size take it as ever.
 *
 * Rows are kept by the content that they come from, so that a picture that comes again is not looked at again. One thread
 * at a time encodes; everything else may be asked by any thread.
 */
#ifndef VISION_VISION_H
#define VISION_VISION_H

#include "base/err.h"
#include "base/str.h"
#include "formats/model_file.h"
#include "pixels/pixels.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vision vision;

typedef struct vision_options {
    const char *device; /* as engine_options has it */
    int         n_threads;
    unsigned    cpu;
    size_t      cache_bytes; /* of rows that are kept; 0: of 64 pictures, and not more than 256 MiB */
    int         parts;       /* of the rows that the language model takes; those of sounds have the first. 0: one */
} vision_options;

/* `model` is the language model's file, mmproj another one with the tower or NULL; both must stay open. width: of the
 * rows that the language model takes (all parts of them, nn/batch.h). *out is NULL where the model has no eyes that we know. */
int  vision_open(vision **out, const model_file *model, const model_file *mmproj, int width, const vision_options *o,
                 err *e);
void vision_free(vision *v); /* accepts NULL */
/* What opened eyes take beside their mapped weights, kept rows included, and how much of it on a device with memory of its
 * own; 0 where there are none. */
int vision_measure(uint64_t *bytes, uint64_t *on_device, const model_file *model, const model_file *mmproj, int width,
                   const vision_options *o, err *e);
/* What of it must come in one step: vision_step_tokens of opened eyes. */
int vision_measure_step(const model_file *model, const model_file *mmproj);
/* Whether vision_open would find eyes, by what the files say of themselves. */
bool vision_known(const model_file *model, const model_file *mmproj);
const char *
vision_type_at(size_t i); /* the values of model_type that mean eyes, one may be there twice; NULL behind the last */

const char *vision_placeholder(const vision *v); /* what a template prints for a picture */
const char *vision_row_word(const vision *v);    /* what stands for one row */
/* For a vocabulary that has no such word: another one stands for a row from now on. False: there is none. */
bool vision_take_other_word(vision *v);
bool vision_whole(const vision *v);        /* the rows of a picture see each other, later ones too */
int  vision_most_rows(const vision *v);    /* that stand together, at most */
bool vision_prompt_whole(const vision *v); /* all of the prompt does, its text too */
int  vision_step_tokens(const vision *v);  /* of what must come in one step: such rows, or a prompt; 0: nothing must */

/* Positions with several axes: how a picture's rows stand in them. */
typedef struct vision_place {
    int  across;  /* that stand beside each other, row by row; 0: all are one after the other, as tokens are */
    int  advance; /* the text behind them goes on after so many positions */
    bool counted; /* as engine_rows has it; the first row and the last one stand in no grid */
} vision_place;
int vision_grid(const vision *v, const pixels *picture, vision_place *out, err *e);
int vision_axes(const vision *v); /* how many axes positions need for that; 0: any number will do */

/* Appends what stands for it in the prompt. number: of the picture among the prompt's, from 0. */
int vision_write(const vision *v, const pixels *picture, int number, str *out, err *e);

enum { VISION_KEY_BYTES = 16 };

typedef struct vision_rows {
    int     n, width;
    float  *data;                  /* [n][width] */
    uint8_t key[VISION_KEY_BYTES]; /* of what they come from: the picture, how it is prepared, and the tower */
} vision_rows;

/* Valid until the next call. */
int vision_encode(vision *v, const pixels *picture, const vision_rows **out, err *e);

/* For tests and tools: the pictures that the tower gets. The caller frees the list and what is in it. */
int  vision_cut(const vision *v, const pixels *picture, pixels **tiles, int *n, err *e);
void vision_cut_free(pixels *tiles, int n);
/* The rows of a picture that is cut already; of the picture itself, its size and how much detail it needs. */
int vision_encode_cut(vision *v, const pixels *picture, const pixels *tiles, int n_tiles, float **rows, int *n, err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's ears: sounds become rows that take the place of tokens in its prompt, as pictures do (vision.h).
 *
 * A sound becomes a mel spectrogram (mel.h) and goes through the family's encoder; a projector makes rows of the
 * language model's width. In the prompt a word stands for each of them, behind one that says that a sound begins, and
 * before one that says that it ends.
 *
 * Most families cut a sound into pieces of the length that the tower was made for (30 s), the last one padded with
 * silence; ears_impl.h says how a family is written.
 *
 * They come from their directories or from an mmproj file. One thread at a time encodes; everything else may be asked
 * by any thread.
 */
#ifndef VISION_EARS_H
#define VISION_EARS_H

#include "sound/sound.h"
#include "vision/vision.h"

typedef struct ears ears;

/* As vision_open, vision_measure and vision_known. */
int  ears_open(ears **out, const model_file *model, const model_file *mmproj, int width, const vision_options *o,
               err *e);
void ears_free(ears *h); /* accepts NULL */
int  ears_measure(uint64_t *bytes, uint64_t *on_device, const model_file *model, const model_file *mmproj, int width,
                  const vision_options *o, err *e);
bool ears_known(const model_file *model, const model_file *mmproj);
const char *ears_type_at(size_t i); /* the same of model_type; NULL behind the last */

const char *ears_placeholder(const ears *h); /* what a template prints for a sound */
const char *ears_row_word(const ears *h);    /* what stands for one row */
/* Takes another word for both, where the vocabulary has no such token; false: there is none left. */
bool        ears_other_word(ears *h);
const char *ears_said(const ears *h); /* the placeholder with the words that templates print around it */
/* A template that asks for the words of a sound as the model was taught, with the variables "language" and "prompt"
 * where they are known; NULL: it was taught no such thing. */
const char *ears_transcribes(const ears *h);
/* Samples that the language model hears at once, and longer sounds come to it in parts; 0: any number. */
int ears_longest(const ears *h);
/* Appends what stands for a sound of so many samples in the prompt. */
int     ears_write(const ears *h, int n_samples, str *out, err *e);
int64_t ears_rows(const ears *h, int n_samples); /* how many stand for a sound of so many samples */

/* Asked before each piece of a sound, which may have many: true ends the work with ERR_CANCELLED. */
typedef struct ears_stop {
    bool (*ask)(void *ctx);
    void *ctx;
} ears_stop;

/* Valid until the next call. stop NULL: nobody is asked. */
int ears_encode(ears *h, const sound *s, const ears_stop *stop, const vision_rows **out, err *e);

#endif

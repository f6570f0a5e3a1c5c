/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a model's ears: ears_rules.c (what the files say), ears_voxtral.c and ears_gemma4.c (from samples to rows), ears.c. */
#ifndef VISION_EARS_IMPL_H
#define VISION_EARS_IMPL_H

#include "vision/ears.h"
#include "vision/internal.h"
#include "vision/mel.h"

typedef enum ears_kind { EARS_VOXTRAL, EARS_GEMMA4 } ears_kind;

/* How a sound is prepared; part of the key of its rows. */
typedef struct ears_rules {
    ears_kind kind;
    int       mels, positions; /* bins of a frame; rows of the tower for a piece */
    int       stack;           /* of these, how many become a row of the language model */
} ears_rules;

/* The stages that a sound goes through; Voxtral has the last two only. */
enum { EARS_CONV0, EARS_CONV1, EARS_TOWER, EARS_PROJECTOR, EARS_STAGES };

struct ears {
    ears_rules   rules;
    vision_stage stage[EARS_STAGES];
    uint8_t      source[VISION_KEY_BYTES]; /* what the tower's file hashes to */
    vision_keep  keep;
};

/* ears_rules.c */
bool ears_rules_known(ears_kind *kind, const model_file *model, const model_file *mmproj);
int  ears_rules_read(ears_rules *r, const model_file *model, const model_file *mmproj, err *e);

/* Of Gemma 4: what a piece of so many frames becomes. */
int gemma4_rows(int frames);
/* Rows of the convolutions that are computed at once. */
int gemma4_conv_rows(const ears_rules *r, int no);

/* Samples of a piece. */
int ears_piece(const ears_rules *r);
/* The rows; out has room for them. */
int voxtral_encode(ears *h, const sound *s, float *out, err *e);
int gemma4_encode(ears *h, const sound *s, float *out, err *e);

#endif

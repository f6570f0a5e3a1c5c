/* SPDX-License-Identifier: Apache-2.0 */
/* From samples to rows as Voxtral does it: all of a sound's spectrogram, piece by piece through Whisper's encoder. */
#include "vision/ears_impl.h"

#include <stdlib.h>
#include <string.h>

/* The tower's input for a piece; `at` is its first frame. Outside of it nothing is seen, as if there were nothing. */
static void put_rows(const ears *h, const float *at, float *in) {
    const vision_stage *tower = &h->stage[EARS_TOWER];
    const nn_ears_top  *top = tower->model->net.top;
    size_t              mels = (size_t)h->rules.mels, width = (size_t)tower->width_in - NN_EARS_FRAMES * mels - 1;
    int                 frames = 2 * h->rules.positions;
    for (int i = 0; i < h->rules.positions; i++) {
        float *row = in + (size_t)i * (size_t)tower->width_in;
        for (int k = 0; k < NN_EARS_FRAMES; k++, row += mels) {
            int frame = 2 * i + k - NN_EARS_FRAMES / 2;
            if (frame >= 0 && frame < frames)
                memcpy(row, at + (size_t)frame * mels, mels * sizeof *row);
            else
                memset(row, 0, mels * sizeof *row);
        }
        *row++ = i ? 1 : 0;
        memcpy(row, top->positions->data + (size_t)i * width, width * sizeof *row);
    }
}

/* Rows that lie behind one another are side by side already. */
static int encode_pieces(ears *h, const mel *m, float *out, err *e) {
    const ears_rules *r = &h->rules;
    vision_stage     *tower = &h->stage[EARS_TOWER], *projector = &h->stage[EARS_PROJECTOR];
    size_t            n = (size_t)r->positions;
    int               rows_out = r->positions / r->stack;
    float            *in = malloc(n * (size_t)tower->width_in * sizeof *in),
          *rows = malloc(n * (size_t)tower->width_out * sizeof *rows);
    int rc = in && rows ? 0 : err_set_nomem(e);
    for (int at = 0; rc == 0 && at < m->frames; at += 2 * r->positions) {
        put_rows(h, m->at + (size_t)at * (size_t)m->bins, in);
        rc = stage_run(tower, &(stage_step){ .n = r->positions, .in = in, .out = rows }, e);
        if (rc == 0) rc = stage_run(projector, &(stage_step){ .n = rows_out, .in = rows, .out = out }, e);
        out += (size_t)rows_out * (size_t)projector->width_out;
    }
    free(in);
    free(rows);
    return rc;
}

int voxtral_encode(ears *h, const sound *s, float *out, err *e) {
    mel m;
    int rc = mel_make_whisper(&m, s, h->rules.mels, 2 * h->rules.positions, e);
    if (rc == 0) rc = encode_pieces(h, &m, out, e);
    mel_free(&m);
    return rc;
}

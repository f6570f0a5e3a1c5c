/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From samples to rows as Gemma 4 does it. A piece is 30 s at most, the longest sound that it was made for; the
 * reference cuts longer ones off there, here their pieces follow one another.
 *
 * The two convolutions (ears_conv.c) run over a few rows of time at once. Where there are no frames any more, all is
 * zero, behind the first convolution too.
 */
#include "models/list.h"
#include "vision/ears_impl.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 32 };             /* rows of the second convolution that are computed together */
enum { SECONDS = 30, FRAMES = 4 }; /* of a piece; of a row */

/* What a piece of so many frames becomes. */
static int piece_rows(int frames) { return conv_half(conv_half(frames)); }

/* Samples. */
static int piece_size(const ears_rules *r) { return r->positions * FRAMES * MEL_HOP; }

static int64_t sound_rows(const ears_rules *r, int n_samples) {
    int piece = piece_size(r), rest = n_samples % piece;
    return (int64_t)(n_samples / piece) * r->positions + (rest ? piece_rows(mel_frames_gemma4(rest)) : 0);
}

static int stage_rows(const ears_rules *r, int stage) {
    if (stage == EARS_CONV0) return (CONV_STRIDE * AT_ONCE + 1) * r->mels / 2;
    return stage == EARS_CONV1 ? AT_ONCE * r->mels / 4 : r->positions;
}

/* A directory says how many bins there are by the channels of the first convolution, which are as many. */
static void read_sizes(ears_rules *r, const json_value *config, const model_file *mmproj) {
    const json_value *audio = json_get(config, "audio_config");
    int64_t           mels = 128;
    if (mmproj)
        mels = ears_meta(mmproj, "clip.audio.num_mel_bins");
    else
        (void)json_int(json_at(json_get(audio, "subsampling_conv_channels"), 0), &mels);
    r->mels = mels % 4 || mels > 1 << 10 ? -1 : (int)mels;
    r->positions = SECONDS * SOUND_RATE / (MEL_HOP * FRAMES);
    r->stack = 1;
}

static bool fit(const ears *h) {
    const vision_stage *s = h->stage;
    return s[EARS_CONV0].width_in * s[EARS_CONV0].width_out == s[EARS_CONV1].width_in &&
           s[EARS_CONV1].width_out * (h->rules.mels / 4) == s[EARS_TOWER].width_in;
}

static int spectrum(mel *out, const ears_rules *r, const sound *s, int bins, err *e) {
    (void)r;
    return mel_make_gemma4(out, s->at, s->n, bins, e);
}

typedef struct scratch {
    float *places[2], *rows; /* what the convolutions take; what the first one gives */
} scratch;

static int take_scratch(scratch *x, const ears *h, err *e) {
    const vision_stage *c = &h->stage[EARS_CONV0];
    for (int i = 0; i < 2; i++)
        x->places[i] = malloc((size_t)c[i].max_rows * (size_t)c[i].width_in * sizeof *x->places[i]);
    x->rows = malloc((size_t)c[0].max_rows * (size_t)c[0].width_out * sizeof *x->rows);
    return x->places[0] && x->places[1] && x->rows ? 0 : err_set_nomem(e);
}

static void free_scratch(scratch *x) {
    free(x->places[0]);
    free(x->places[1]);
    free(x->rows);
}

/* Both convolutions: the tower's input, [row][pitch][channel]. */
static int convolve(ears *h, const mel *m, float *out, err *e) {
    vision_stage *c = &h->stage[EARS_CONV0];
    int           half = conv_half(m->frames), n = conv_half(half);
    scratch       x = { 0 };
    int           rc = take_scratch(&x, h, e);
    conv_input    frames = { .from = m->at, .rows = m->frames, .pitches = m->bins, .channels = 1 };
    for (int at = 0; rc == 0 && at < n; at += AT_ONCE) {
        int        now = n - at < AT_ONCE ? n - at : AT_ONCE, first = at ? CONV_STRIDE * at - 1 : 0;
        int        end = CONV_STRIDE * (at + now) < half ? CONV_STRIDE * (at + now) : half;
        conv_input middle = { .from = x.rows,
                              .base = first,
                              .rows = end - first,
                              .pitches = m->bins / CONV_STRIDE,
                              .channels = c[0].width_out };
        conv_put(&frames, first, end - first, x.places[0]);
        rc = stage_run(&c[0], &(stage_step){ .n = (end - first) * (m->bins / 2), .in = x.places[0], .out = x.rows }, e);
        if (rc < 0) break;
        conv_put(&middle, at, now, x.places[1]);
        rc = stage_run(&c[1], &(stage_step){ .n = now * (m->bins / 4), .in = x.places[1], .out = out }, e);
        out += (size_t)(now * (m->bins / 4)) * (size_t)c[1].width_out;
    }
    free_scratch(&x);
    return rc;
}

static int encode_piece(ears *h, const float *samples, int n_samples, float *out, err *e) {
    vision_stage *tower = &h->stage[EARS_TOWER], *projector = &h->stage[EARS_PROJECTOR];
    ears_places   p = { 0 };
    float        *in = NULL, *rows = NULL;
    mel           m;
    int           rc = mel_make_gemma4(&m, samples, n_samples, h->rules.mels, e), n = rc < 0 ? 0 : piece_rows(m.frames);
    if (rc == 0) rc = ears_places_take(&p, n, ((const nn_reach_dims *)tower->model->net.hp)->reach, e);
    if (rc == 0) {
        in = malloc((size_t)n * (size_t)tower->width_in * sizeof *in);
        rows = malloc((size_t)n * (size_t)tower->width_out * sizeof *rows);
        rc = in && rows ? convolve(h, &m, in, e) : err_set_nomem(e);
    }
    vision_order order = { .n = n, .begin = p.begin, .end = p.end };
    if (rc == 0)
        rc = stage_run(tower, &(stage_step){ .n = n, .in = in, .axes = p.axes, .order = &order, .out = rows }, e);
    if (rc == 0) rc = stage_run(projector, &(stage_step){ .n = n, .in = rows, .out = out }, e);
    mel_free(&m);
    ears_places_free(&p);
    free(in);
    free(rows);
    return rc;
}

static int encode(ears *h, const sound *s, float *out, err *e) {
    int piece = piece_size(&h->rules), rc = 0;
    for (int at = 0; rc == 0 && at < s->n; at += piece) {
        int n = s->n - at < piece ? s->n - at : piece;
        if ((rc = ears_go_on(h, e)) == 0) rc = encode_piece(h, s->at + at, n, out, e);
        out += (size_t)piece_rows(mel_frames_gemma4(n)) * (size_t)h->stage[EARS_PROJECTOR].width_out;
    }
    return rc;
}

static const char *const types[] = { "gemma4", NULL };
static const char *const projectors[] = { "gemma4a", NULL };
static const ears_field  front[] = {
     { "sampling_rate", SOUND_RATE }, { "frame_length_ms", 20 }, { "hop_length_ms", 10 }, { "min_frequency", 0 },
     { "max_frequency", 8000 },       { "preemphasis", 0 },      { "fft_overdrive", 0 },  { "dither", 0 },
     { "input_scale_factor", 1 },     { "mel_floor", 0.001 },    { "per_bin_mean", 0 },   { "per_bin_stddev", 0 }
};

const ears_family ears_gemma4 = { .types = types,
                                  .projectors = projectors,
                                  .word = "<|audio|>",
                                  .before = "<|audio>",
                                  .after = "<audio|>",
                                  .arch = { [EARS_CONV0] = &models_gemma4_ears_conv[0],
                                            [EARS_CONV1] = &models_gemma4_ears_conv[1],
                                            [EARS_TOWER] = &models_gemma4_ears,
                                            [EARS_PROJECTOR] = &models_projector_gemma4_ears },
                                  .front = front,
                                  .n_front = sizeof front / sizeof *front,
                                  .read = read_sizes,
                                  .stage_rows = stage_rows,
                                  .fit = fit,
                                  .rows = sound_rows,
                                  .encode = encode,
                                  .spectrum = spectrum };

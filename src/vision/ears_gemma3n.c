/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From samples to rows as Gemma 3n does it. Two convolutions over time and pitch (ears_conv.c) see the frames behind a
 * place. The norm behind each of them counts mean and variance over all rows up to its own, so that it is made here.
 * Of the conformer's places every fourth is a row.
 *
 * A piece of 30 s always has 188 rows: where the sound is shorter, a word of a table of the model's own stands for
 * those that are missing, and another such word, the end of the sound, follows the last one. The reference cuts longer
 * sounds off, here pieces follow one another.
 */
#include "models/list.h"
#include "vision/ears_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 32 };                          /* rows of a convolution that are computed together */
enum { PLACE = 4, SECONDS = 30, TOKENS = 188 }; /* frames of a place; of a piece; its rows */
#define NORM_EPS 1e-3

/* --- sizes --- */

/* Samples. */
static int piece_size(const ears_rules *r) {
    int most = SECONDS * SOUND_RATE, fit = r->tokens * r->every * PLACE * MEL_HOP;
    return fit < most ? fit : most;
}

static int piece_places(int samples) { return conv_half(conv_half(mel_frames_gemma3n(samples))); }

static int64_t sound_rows(const ears_rules *r, int n_samples) {
    int piece = piece_size(r);
    return ((int64_t)n_samples + piece - 1) / piece * r->tokens + 1;
}

static int stage_rows(const ears_rules *r, int stage) {
    if (stage == EARS_CONV0) return AT_ONCE * conv_half(r->mels);
    if (stage == EARS_CONV1) return AT_ONCE * conv_half(conv_half(r->mels));
    return stage == EARS_TOWER ? r->positions : stage == EARS_WORDS ? 1 : r->tokens;
}

static bool fit(const ears *h) {
    const vision_stage  *s = h->stage;
    const nn_ears_words *words = s[EARS_WORDS].model->net.top;
    int64_t              n = words->table->n / s[EARS_WORDS].width_in;
    return s[EARS_CONV0].width_in == 9 && s[EARS_CONV1].width_in == 9 * s[EARS_CONV0].width_out &&
           s[EARS_CONV1].width_out * conv_half(conv_half(h->rules.mels)) == s[EARS_TOWER].width_in &&
           s[EARS_WORDS].width_out == s[EARS_PROJECTOR].width_out && h->rules.pad < n && h->rules.end < n;
}

/* --- places --- */

int ears_places_take(ears_places *p, int n, int reach, err *e) {
    p->begin = malloc((size_t)n * sizeof *p->begin);
    p->end = malloc((size_t)n * sizeof *p->end);
    p->axes = malloc(2 * (size_t)n * sizeof *p->axes);
    if (!p->begin || !p->end || !p->axes) return err_set_nomem(e);
    for (int i = 0; i < n; i++) {
        p->begin[i] = i < reach ? 0 : i - reach + 1;
        p->end[i] = i + 1;
        p->axes[i] = p->axes[n + i] = i % reach;
    }
    return 0;
}

void ears_places_free(ears_places *p) {
    free(p->begin);
    free(p->end);
    free(p->axes);
}

/* --- convolutions --- */

/* What all rows so far come to. */
typedef struct so_far {
    double sum, squares, n;
} so_far;

/* Norms a row of n values, whose channels take turns, and leaves what is above zero. */
static void norm_row(so_far *s, float *row, int n, const nn_vec *weight) {
    double squares = 0;
    for (int i = 0; i < n; i++) s->sum += (double)row[i];
    s->n += n;
    double mean = s->sum / s->n;
    for (int i = 0; i < n; i++) squares += ((double)row[i] - mean) * ((double)row[i] - mean);
    s->squares += squares;
    double by = 1 / sqrt(s->squares / s->n + NORM_EPS);
    for (int i = 0; i < n; i++) {
        double x = ((double)row[i] - mean) * by * (double)weight->data[i % weight->n];
        row[i] = x > 0 ? (float)x : 0;
    }
}

/* All rows of a convolution; *out is theirs to free. */
static int convolve(vision_stage *s, const conv_input *in, float **out, err *e) {
    const nn_ears_conv *top = s->model->net.top;
    so_far              sums = { 0 };
    int                 n = conv_half(in->rows), pitches = conv_half(in->pitches), rc = 0;
    size_t              row = (size_t)pitches * (size_t)s->width_out;
    float              *seen = malloc((size_t)s->max_rows * (size_t)s->width_in * sizeof *seen);
    *out = malloc((size_t)n * row * sizeof **out);
    if (!seen || !*out) rc = err_set_nomem(e);
    for (int at = 0; rc == 0 && at < n; at += AT_ONCE) {
        int now = n - at < AT_ONCE ? n - at : AT_ONCE;
        conv_put(in, at, now, seen);
        rc = stage_run(s, &(stage_step){ .n = now * pitches, .in = seen, .out = *out + (size_t)at * row }, e);
        for (int i = at; rc == 0 && i < at + now; i++) norm_row(&sums, *out + (size_t)i * row, (int)row, top->norm);
    }
    free(seen);
    return rc;
}

/* --- a piece --- */

/* A word of the model's own table. */
static int put_word(ears *h, int word, float *out, err *e) {
    vision_stage        *s = &h->stage[EARS_WORDS];
    const nn_ears_words *top = s->model->net.top;
    return stage_run(
        s, &(stage_step){ .n = 1, .in = top->table->data + (size_t)word * (size_t)s->width_in, .out = out }, e);
}

/* From the tower's input to rows: one of every few places. */
static int run(ears *h, const float *in, int n, float *out, int *n_out, err *e) {
    vision_stage *tower = &h->stage[EARS_TOWER], *projector = &h->stage[EARS_PROJECTOR];
    int32_t      *kept = malloc((size_t)n * sizeof *kept);
    float        *rows = malloc((size_t)n * (size_t)tower->width_out * sizeof *rows);
    ears_places   p = { 0 };
    int           rc = ears_places_take(&p, n, ((const nn_reach_dims *)tower->model->net.hp)->reach, e);
    if (rc == 0 && (!kept || !rows)) rc = err_set_nomem(e);
    *n_out = 0;
    for (int i = 0; rc == 0 && i < n && *n_out < h->rules.tokens; i += h->rules.every) kept[(*n_out)++] = i;
    vision_order order = { .n = n, .begin = p.begin, .end = p.end };
    stage_step   step = {
          .n = n, .in = in, .axes = p.axes, .order = &order, .out_rows = kept, .n_out = *n_out, .out = rows
    };
    if (rc == 0) rc = stage_run(tower, &step, e);
    if (rc == 0) rc = stage_run(projector, &(stage_step){ .n = *n_out, .in = rows, .out = out }, e);
    ears_places_free(&p);
    free(kept);
    free(rows);
    return rc;
}

static int encode_piece(ears *h, const float *samples, int n_samples, float *out, err *e) {
    float *middle = NULL, *in = NULL;
    int    n = 0;
    mel    m;
    int    rc = ears_go_on(h, e);
    if (rc < 0) return rc;
    rc = mel_make_gemma3n(&m, samples, n_samples, h->rules.mels, e);
    if (rc == 0) {
        conv_input frames = { .from = m.at, .rows = m.frames, .pitches = m.bins, .channels = 1, .ahead = true };
        rc = convolve(&h->stage[EARS_CONV0], &frames, &middle, e);
    }
    if (rc == 0) {
        conv_input next = { .from = middle,
                            .rows = conv_half(m.frames),
                            .pitches = conv_half(m.bins),
                            .channels = h->stage[EARS_CONV0].width_out,
                            .ahead = true };
        rc = convolve(&h->stage[EARS_CONV1], &next, &in, e);
    }
    if (rc == 0) rc = run(h, in, piece_places(n_samples), out, &n, e);
    size_t width = (size_t)h->stage[EARS_PROJECTOR].width_out;
    if (rc == 0 && n < h->rules.tokens) rc = put_word(h, h->rules.pad, out + (size_t)n * width, e);
    for (int i = n + 1; rc == 0 && i < h->rules.tokens; i++)
        memcpy(out + (size_t)i * width, out + (size_t)n * width, width * sizeof *out);
    mel_free(&m);
    free(middle);
    free(in);
    return rc;
}

static int encode(ears *h, const sound *s, float *out, err *e) {
    int    piece = piece_size(&h->rules), rc = 0;
    size_t width = (size_t)h->stage[EARS_PROJECTOR].width_out;
    for (int at = 0; rc == 0 && at < s->n; at += piece) {
        rc = encode_piece(h, s->at + at, s->n - at < piece ? s->n - at : piece, out, e);
        out += (size_t)h->rules.tokens * width;
    }
    return rc < 0 ? rc : put_word(h, h->rules.end, out, e);
}

static int spectrum(mel *out, const ears_rules *r, const sound *s, int bins, err *e) {
    int n = s->n < piece_size(r) ? s->n : piece_size(r);
    return mel_make_gemma3n(out, s->at, n, bins, e);
}

/* --- what files say --- */

/* A list of two pairs that are all this number. */
static bool all_are(const json_value *v, int64_t is) {
    for (size_t i = 0; v && i < 2; i++) {
        for (size_t k = 0; k < 2; k++) {
            int64_t x = -1;
            if (!json_int(json_at(json_at(v, i), k), &x) || x != is) return false;
        }
    }
    return true;
}

static void read_sizes(ears_rules *r, const json_value *config, const model_file *mmproj) {
    const json_value *audio = json_get(config, "audio_config"), *text = json_get(config, "text_config");
    int64_t mels = ears_number(audio, "input_feat_size", 128), every = ears_number(audio, "conf_reduction_factor", 4);
    int64_t tokens = ears_number(config, "audio_soft_tokens_per_image", TOKENS);
    int64_t offset = ears_number(audio, "vocab_offset", 262144 + 128);
    int64_t pad = ears_number(text, "vocab_size", 262400) - 1 - offset;
    int64_t end = ears_number(config, "eoa_token_id", 262272) - offset;
    double  eps = NORM_EPS;
    (void)json_number(json_get(audio, "sscp_conv_group_norm_eps"), &eps);
    if (mmproj || mels < 4 || mels > MEL_MOST_BINS || every < 1 || every > 16 || tokens < 1 || tokens > 1 << 12 ||
        pad < 0 || pad > 1 << 20 || end < 0 || end > 1 << 20 || eps != NORM_EPS ||
        !all_are(json_get(audio, "sscp_conv_kernel_size"), 3) || !all_are(json_get(audio, "sscp_conv_stride_size"), 2))
        return; /* zero is refused */
    r->mels = (int)mels;
    r->every = (int)every;
    r->tokens = (int)tokens;
    r->positions = r->tokens * r->every;
    r->stack = 1;
    r->pad = (int)pad;
    r->end = (int)end;
}

static const char *const types[] = { "gemma3n", NULL };
static const char *const none[] = { NULL };
static const ears_field  front[] = {
     { "sampling_rate", SOUND_RATE }, { "frame_length_ms", 32 }, { "hop_length_ms", 10 },
     { "min_frequency", 125 },        { "max_frequency", 7600 }, { "preemphasis", 0.97 },
     { "preemphasis_htk_flavor", 1 }, { "fft_overdrive", 1 },    { "dither", 0 },
     { "input_scale_factor", 1 },     { "mel_floor", 1e-5 },     { "per_bin_mean", 0 },
     { "per_bin_stddev", 0 },
};

const ears_family ears_gemma3n = { .types = types,
                                   .projectors = none,
                                   .word = "<audio_soft_token>",
                                   .before = "\n\n<start_of_audio>",
                                   .after = "\n\n",
                                   .arch = { [EARS_CONV0] = &models_gemma3n_ears_conv[0],
                                             [EARS_CONV1] = &models_gemma3n_ears_conv[1],
                                             [EARS_WORDS] = &models_projector_gemma3n_ears[1],
                                             [EARS_TOWER] = &models_gemma3n_ears,
                                             [EARS_PROJECTOR] = &models_projector_gemma3n_ears[0] },
                                   .front = front,
                                   .n_front = sizeof front / sizeof *front,
                                   .read = read_sizes,
                                   .stage_rows = stage_rows,
                                   .fit = fit,
                                   .rows = sound_rows,
                                   .encode = encode,
                                   .spectrum = spectrum };

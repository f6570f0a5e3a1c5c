/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From samples to rows where the encoder is Whisper's.
 *
 *     Whisper           each piece, padded with silence, has a spectrum of its own; silence is heard
 *     Voxtral           the spectrum of all of a sound, padded with silence to whole pieces of 30 s; silence is heard
 *     Qwen 2 Audio,     each piece has a spectrum of its own; only places of the sound are seen. What Qwen 2 Audio's
 *     Audio Flamingo 3  reference cuts off after 30 s follows in further pieces here
 *     Music Flamingo    as Audio Flamingo 3, and between norm and projector some elements of a row turn by its time
 *     GLM-ASR           each piece has a spectrum of its own; silence is seen, but makes no rows
 *     Ultravox          the spectrum of all of a sound, not padded but to whole hops, in pieces; the places that its
 *                       last row lacks are zero, and a piece behind others is not padded either, which the reference
 *                       does with zeros
 *     Qwen 2.5 Omni     the spectrum of all of a sound, not padded, in windows of 2 s that do not see each other
 *
 * Several neighbouring places become a row, those that are left over at the end of a sound none. A sound that is too
 * short for one counts as long enough, with silence behind it.
 */
#include "models/list.h"
#include "vision/ears_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRIDE = 2 }; /* frames of a place */
enum { HEARD = 1 };  /* ears_family.how: silence is not seen */
enum { WINDOWS_AT_ONCE = 8, SINES = 10000 };
enum { MOST_PLACES = 4096 }; /* that all see each other: 82 s; published models have 1500 */

/* --- sizes --- */

static int64_t piece_samples(const ears_rules *r) { return (int64_t)r->positions * STRIDE * MEL_HOP; }

static int places_of(int frames) { return (frames + STRIDE - 1) / STRIDE; }

/* Frames of so many samples: as many as begin within them, and enough for a row. */
static int heard_frames(const ears_rules *r, int64_t n_samples) {
    int64_t n = (n_samples + MEL_HOP - 1) / MEL_HOP, least = STRIDE * (int64_t)r->stack - 1;
    return (int)(n < least ? least : n);
}

/* Rows of so many places, where what the last one lacks is made up. */
static int stacked(const ears_rules *r, int places) { return (places + r->stack - 1) / r->stack; }

static int64_t rows_whole(const ears_rules *r, int n_samples) {
    return (n_samples + piece_samples(r) - 1) / piece_samples(r) * (r->positions / r->stack);
}

/* Of the last piece; it is all there is where `first`. */
static int64_t rows_rest(const ears_rules *r, int64_t n_samples, bool first) {
    if (!first) return places_of((int)((n_samples + MEL_HOP - 1) / MEL_HOP)) / r->stack;
    return places_of(heard_frames(r, n_samples)) / r->stack;
}

static int64_t rows_heard(const ears_rules *r, int n_samples) {
    int64_t piece = piece_samples(r), whole = n_samples / piece, rest = n_samples % piece;
    return whole * (r->positions / r->stack) + (rest ? rows_rest(r, rest, whole == 0) : 0);
}

static int64_t rows_windows(const ears_rules *r, int n_samples) {
    return places_of(heard_frames(r, n_samples)) / r->stack;
}

static int stage_rows(const ears_rules *r, int stage) {
    return stage == EARS_TOWER ? r->positions : stacked(r, r->positions);
}

static bool fit(const ears *h) {
    const nn_ears_dims *d = h->stage[EARS_TOWER].model->net.hp;
    return d->mels == h->rules.mels && d->positions == h->rules.table;
}

/* The elements that turn, half of them twice as many (turn_rows), are there. */
static bool fit_turned(const ears *h) { return fit(h) && 2 * h->rules.turned <= h->stage[EARS_NORM].width_out; }

/* --- the tower's input --- */

/* Frames from the one at `at` on, of which there are `frames`; outside of them nothing is seen, as if there were
 * nothing. */
typedef struct stretch {
    const float *at;
    int          frames, places; /* how many rows they become */
} stretch;

/* A position that is in no file. */
static void put_sines(float *to, int at, size_t width) {
    size_t half = width / 2;
    double step = log(SINES) / (double)(half - 1);
    for (size_t k = 0; k < half; k++) {
        float angle = (float)at * expf((float)(-step * (double)k));
        to[k] = sinf(angle);
        to[half + k] = cosf(angle);
    }
}

void ears_put_position(float *to, const nn_ears_top *top, int at, size_t width) {
    if (top->positions)
        memcpy(to, top->positions->data + (size_t)at * width, width * sizeof *to);
    else
        put_sines(to, at, width);
}

static void put_rows(const ears *h, const stretch *s, float *in) {
    const vision_stage *tower = &h->stage[EARS_TOWER];
    const nn_ears_top  *top = tower->model->net.top;
    size_t              mels = (size_t)h->rules.mels;
    size_t              width = (size_t)tower->width_in - NN_EARS_FRAMES * mels - NN_EARS_GATES;
    for (int i = 0; i < s->places; i++) {
        float *row = in + (size_t)i * (size_t)tower->width_in;
        for (int k = 0; k < NN_EARS_FRAMES; k++, row += mels) {
            int frame = STRIDE * i + k - NN_EARS_FRAMES / 2;
            if (frame >= 0 && frame < s->frames)
                memcpy(row, s->at + (size_t)frame * mels, mels * sizeof *row);
            else
                memset(row, 0, mels * sizeof *row);
        }
        *row++ = i ? 1 : 0;
        *row++ = STRIDE * i + 1 < s->frames ? 1 : 0;
        if (width) ears_put_position(row, top, i, width);
    }
}

typedef struct scratch {
    float *in, *rows;
    float *normed; /* Music Flamingo */
    int    piece;  /* which one it is of its sound */
} scratch;

static int take_scratch(scratch *x, const ears *h, err *e) {
    const vision_stage *t = &h->stage[EARS_TOWER];
    x->in = malloc((size_t)t->max_rows * (size_t)t->width_in * sizeof *x->in);
    x->rows = malloc((size_t)(t->max_rows + h->rules.stack) * (size_t)t->width_out * sizeof *x->rows);
    if (h->family->arch[EARS_NORM])
        x->normed = malloc((size_t)stacked(&h->rules, t->max_rows) * (size_t)t->width_out * sizeof *x->normed);
    return x->in && x->rows && (x->normed || !h->family->arch[EARS_NORM]) ? 0 : err_set_nomem(e);
}

static void free_scratch(scratch *x) {
    free(x->in);
    free(x->rows);
    free(x->normed);
}

/* Pairs of elements turn: the first ones by which piece it is, as many behind them by the place in it, both times the
 * moment. */
static void turn_rows(const ears_rules *r, const scratch *x, int n, size_t width) {
    const double turn = 2 * acos(-1.0), step = 0.01 * STRIDE * r->stack; /* seconds of a row */
    int          half = r->turned / 2;
    for (int t = 0; t < n; t++) {
        float *row = x->normed + (size_t)t * width;
        double moment = -turn * step * ((double)x->piece * (r->positions / r->stack) + t);
        for (int k = 0; k < 2 * half; k++, row += 2) {
            double at = k < half ? (double)x->piece / r->theta : turn * t / r->theta;
            double angle = moment * at / pow(r->theta, 2.0 * (k % half) / r->turned);
            double a = (double)row[0], b = (double)row[1];
            row[0] = (float)(a * cos(angle) - b * sin(angle));
            row[1] = (float)(b * cos(angle) + a * sin(angle));
        }
    }
}

/* A piece. Rows that lie behind one another are side by side already. */
static int run(ears *h, const scratch *x, int places, const vision_order *order, int n_out, float *out, err *e) {
    stage_step step = { .n = places, .in = x->in, .order = order, .out = x->rows };
    int        rc = ears_go_on(h, e);
    if (rc == 0) rc = stage_run(&h->stage[EARS_TOWER], &step, e);
    if (rc == 0 && n_out && x->normed) {
        rc = stage_run(&h->stage[EARS_NORM], &(stage_step){ .n = n_out, .in = x->rows, .out = x->normed }, e);
        if (rc == 0) turn_rows(&h->rules, x, n_out, (size_t)h->stage[EARS_NORM].width_out);
    }
    if (rc == 0 && ears_last(h) == &h->stage[EARS_TOWER])
        memcpy(out, x->rows, (size_t)n_out * (size_t)ears_last(h)->width_out * sizeof *out);
    else if (rc == 0 && n_out)
        rc = stage_run(&h->stage[EARS_PROJECTOR],
                       &(stage_step){ .n = n_out, .in = x->normed ? x->normed : x->rows, .out = out }, e);
    return rc;
}

/* --- pieces --- */

static int whole_spectrum(mel *out, const ears_rules *r, const sound *s, int bins, err *e) {
    return mel_make_whisper(out, s, bins, STRIDE * r->positions, e);
}

static int piece_spectrum(mel *out, const ears_rules *r, const sound *s, int bins, err *e) {
    sound first = *s;
    if (first.n > piece_samples(r)) first.n = (int)piece_samples(r);
    return mel_make_whisper(out, &first, bins, STRIDE * r->positions, e);
}

static int encode_whole(ears *h, const sound *s, float *out, err *e) {
    const ears_rules *r = &h->rules;
    int               frames = STRIDE * r->positions, n_out = r->positions / r->stack;
    scratch           x = { 0 };
    mel               m;
    int               rc = whole_spectrum(&m, r, s, r->mels, e);
    if (rc == 0) rc = take_scratch(&x, h, e);
    for (int at = 0; rc == 0 && at < m.frames; at += frames) {
        put_rows(h, &(stretch){ m.at + (size_t)at * (size_t)m.bins, frames, r->positions }, x.in);
        rc = run(h, &x, r->positions, NULL, n_out, out, e);
        out += (size_t)n_out * (size_t)h->stage[EARS_PROJECTOR].width_out;
    }
    free_scratch(&x);
    mel_free(&m);
    return rc;
}

static int encode_piece(ears *h, const scratch *x, const sound *piece, int n_out, float *out, err *e) {
    const ears_rules *r = &h->rules;
    int               places = r->positions;
    mel               m;
    if (h->family->how & HEARD) {
        places = places_of(heard_frames(r, piece->n));
        if (places > r->positions) places = r->positions;
    }
    int rc = piece_spectrum(&m, r, piece, r->mels, e);
    if (rc == 0) {
        put_rows(h, &(stretch){ m.at, m.frames, places }, x->in);
        rc = run(h, x, places, NULL, n_out, out, e);
    }
    mel_free(&m);
    return rc;
}

static int encode_pieces(ears *h, const sound *s, float *out, err *e) {
    int64_t piece = piece_samples(&h->rules);
    scratch x = { 0 };
    int     rc = take_scratch(&x, h, e);
    for (int64_t at = 0; rc == 0 && at < s->n; at += piece) {
        sound   now = { .n = (int)(s->n - at < piece ? s->n - at : piece), .at = s->at + at };
        int64_t n = now.n == piece ? h->rules.positions / h->rules.stack : rows_rest(&h->rules, now.n, at == 0);
        if (n) rc = encode_piece(h, &x, &now, (int)n, out, e);
        out += (size_t)n * (size_t)ears_last(h)->width_out;
        x.piece++;
    }
    free_scratch(&x);
    return rc;
}

int ears_longest(const ears *h) { return h->family->single ? (int)piece_samples(&h->rules) : 0; }

/* All places of every piece, however short it is. */
static int encode_padded(ears *h, const sound *s, float *out, err *e) {
    int64_t piece = piece_samples(&h->rules);
    scratch x = { 0 };
    int     rc = take_scratch(&x, h, e);
    for (int64_t at = 0; rc == 0 && at < s->n; at += piece) {
        sound now = { .n = (int)(s->n - at < piece ? s->n - at : piece), .at = s->at + at };
        rc = encode_piece(h, &x, &now, h->rules.positions, out, e);
        out += (size_t)h->rules.positions * (size_t)ears_last(h)->width_out;
    }
    free_scratch(&x);
    return rc;
}

/* --- windows --- */

static int window_places(const ears_rules *r) { return r->positions / WINDOWS_AT_ONCE; }

/* Without padding: what lies behind the sound counts for its last frames and for the largest value only. */
static int open_spectrum(mel *out, const ears_rules *r, const sound *s, int bins, err *e) {
    enum { BEHIND = 3 };
    int frames = heard_frames(r, s->n), rc = mel_make_whisper(out, s, bins, frames + BEHIND, e);
    out->frames = rc == 0 ? frames : 0;
    return rc;
}

/* The windows from frame `first` on that are computed together. Returns how many places they have. */
static int put_windows(const ears *h, const mel *m, int first, float *in, vision_order *o) {
    int window = STRIDE * window_places(&h->rules), n = 0;
    for (int at = first; at < m->frames && at < first + WINDOWS_AT_ONCE * window; at += window) {
        int     frames = m->frames - at < window ? m->frames - at : window;
        stretch s = { m->at + (size_t)at * (size_t)m->bins, frames, places_of(frames) };
        put_rows(h, &s, in + (size_t)n * (size_t)h->stage[EARS_TOWER].width_in);
        for (int i = 0; i < s.places; i++) {
            o->begin[n + i] = n;
            o->end[n + i] = n + s.places;
        }
        n += s.places;
    }
    return o->n = n;
}

static int encode_windows(ears *h, const sound *s, float *out, err *e) {
    const ears_rules *r = &h->rules;
    size_t            most = (size_t)r->positions;
    vision_order      o = { .begin = malloc(most * sizeof *o.begin), .end = malloc(most * sizeof *o.end) };
    scratch           x = { 0 };
    mel               m;
    int               rc = open_spectrum(&m, r, s, r->mels, e);
    if (rc == 0) rc = o.begin && o.end ? take_scratch(&x, h, e) : err_set_nomem(e);
    for (int at = 0; rc == 0 && at < m.frames; at += STRIDE * r->positions) {
        int places = put_windows(h, &m, at, x.in, &o), n = places / r->stack;
        rc = run(h, &x, places, &o, n, out, e);
        out += (size_t)n * (size_t)h->stage[EARS_PROJECTOR].width_out;
    }
    free(o.begin);
    free(o.end);
    free_scratch(&x);
    mel_free(&m);
    return rc;
}

/* --- pieces of any length --- */

static int64_t hops(int n_samples) {
    int64_t n = ((int64_t)n_samples + MEL_HOP - 1) / MEL_HOP;
    return n < 2 ? 2 : n;
}

static int64_t rows_hops(const ears_rules *r, int n_samples) {
    int64_t frames = hops(n_samples), piece = STRIDE * (int64_t)r->positions;
    return frames / piece * stacked(r, r->positions) + stacked(r, places_of((int)(frames % piece)));
}

static int hop_spectrum(mel *out, const ears_rules *r, const sound *s, int bins, err *e) {
    (void)r;
    return mel_make_whisper_bare(out, s, bins, (int)hops(s->n) * MEL_HOP, e);
}

static int encode_hops(ears *h, const sound *s, float *out, err *e) {
    const ears_rules   *r = &h->rules;
    const vision_stage *tower = &h->stage[EARS_TOWER];
    int                 frames = STRIDE * r->positions;
    scratch             x = { 0 };
    mel                 m;
    int                 rc = hop_spectrum(&m, r, s, r->mels, e);
    if (rc == 0) rc = take_scratch(&x, h, e);
    for (int at = 0; rc == 0 && at < m.frames; at += frames) {
        int     now = m.frames - at < frames ? m.frames - at : frames, places = places_of(now);
        int     n = stacked(r, places);
        stretch part = { m.at + (size_t)at * (size_t)m.bins, now, places };
        put_rows(h, &part, x.in);
        memset(x.rows, 0, (size_t)(n * r->stack) * (size_t)tower->width_out * sizeof *x.rows);
        rc = run(h, &x, places, NULL, n, out, e);
        out += (size_t)n * (size_t)h->stage[EARS_PROJECTOR].width_out;
    }
    free_scratch(&x);
    mel_free(&m);
    return rc;
}

/* --- what files say --- */

static int small(int64_t x) { return x < 1 || x > 1 << 20 ? -1 : (int)x; }

static void read_common(ears_rules *r, const json_value *config, const model_file *mmproj) {
    const json_value   *audio = json_get(config, "audio_config");
    const model_tensor *t = mmproj ? model_file_tensor(mmproj, "a.position_embd.weight") : NULL;
    int64_t             positions = ears_number(audio, "max_position_embeddings", 1500);
    r->mels = small(mmproj ? ears_meta(mmproj, "clip.audio.num_mel_bins") : ears_number(audio, "num_mel_bins", 128));
    r->positions = r->table = small(!mmproj               ? ears_number(audio, "max_source_positions", positions)
                                    : t && t->n_dims == 2 ? t->dims[1]
                                                          : -1);
}

/* config.json says how many places become a row by the width that they have together. */
static void read_stacked(ears_rules *r, const json_value *config, const model_file *mmproj) {
    const json_value *audio = json_get(config, "audio_config");
    int64_t           width = ears_number(audio, "hidden_size", 1280);
    read_common(r, config, mmproj);
    r->stack = small(mmproj      ? ears_meta(mmproj, "clip.audio.projector.stack_factor")
                     : width > 0 ? ears_number(audio, "intermediate_size", 5120) / width
                                 : -1);
}

static void read_padded(ears_rules *r, const json_value *config, const model_file *mmproj) {
    (void)mmproj;
    r->mels = small(ears_number(config, "num_mel_bins", 80));
    r->positions = r->table = small(ears_number(config, "max_source_positions", 1500));
    r->stack = 1;
}

static void read_pooled(ears_rules *r, const json_value *config, const model_file *mmproj) {
    read_common(r, config, mmproj);
    r->stack = 2;
}

/* Other steps than 10 ms, or other rules of rotation, are refused with what makes no sense. */
static void read_music(ears_rules *r, const json_value *config, const model_file *mmproj) {
    const json_value *rope = json_get(config, "rope_parameters");
    const char       *type = json_cstr(json_get(rope, "rope_type"));
    double            theta = 1200, share = 0.2, step = 0.01;
    read_pooled(r, config, mmproj);
    (void)json_number(json_get(rope, "rope_theta"), &theta);
    (void)json_number(json_get(rope, "partial_rotary_factor"), &share);
    (void)json_number(json_get(config, "audio_frame_step"), &step);
    int64_t width = ears_number(json_get(config, "audio_config"), "hidden_size", 1280);
    bool    sane = theta >= 2 && theta <= 1 << 20 && theta == floor(theta) && share > 0 && share <= 0.5 && width > 0 &&
                width <= 1 << 14 && step == 0.01 && (!type || strcmp(type, "default") == 0);
    r->theta = sane ? (int)theta : 0;
    r->turned = sane ? (int)((double)width * share) : 0;
    if (r->turned < 2 || r->turned % 2 || r->positions / r->stack > r->theta) r->positions = -1;
}

/* Positions: of the windows that are computed together, which mmproj files do not name. A pair of rows lies in one
 * window. */
static void read_windows(ears_rules *r, const json_value *config, const model_file *mmproj) {
    int64_t places = ears_number(json_get(config, "audio_config"), "n_window", 100);
    read_pooled(r, config, mmproj);
    if (places < 2 || places % r->stack || places > r->positions) places = -1;
    r->positions = places > 0 && places <= 1 << 12 ? WINDOWS_AT_ONCE * (int)places : -1;
}

static const ears_field front[] = {
    { "sampling_rate", SOUND_RATE }, { "n_fft", 400 }, { "hop_length", MEL_HOP }, { "dither", 0 }
};
#define FRONT .front = front, .n_front = sizeof front / sizeof *front

/* --- families --- */

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

#define IN_PIECES                                                                                                      \
    .most = MOST_PLACES, .stage_rows = stage_rows, .fit = fit, .rows = rows_heard, .encode = encode_pieces,            \
    .spectrum = piece_spectrum

const ears_family ears_whisper = { .types = NAMES("whisper"),
                                   .projectors = (const char *const[]){ NULL },
                                   .word = "<|startoflm|>",
                                   .before = "",
                                   .after = "",
                                   .arch = { [EARS_TOWER] = &models_whisper_ears },
                                   FRONT,
                                   .flat = true,
                                   .single = true,
                                   .read = read_padded,
                                   .most = MOST_PLACES,
                                   .stage_rows = stage_rows,
                                   .fit = fit,
                                   .rows = rows_whole,
                                   .encode = encode_padded,
                                   .spectrum = piece_spectrum };

const ears_family ears_voxtral = {
    .types = NAMES("voxtral"),
    .projectors = NAMES("voxtral"),
    .word = "[AUDIO]",
    .transcribes = "{% if prompt %}{{ raise_exception('prompt: this model takes none') }}{% endif %}"
                   "{{ bos_token }}[INST][AUDIO][/INST]{% if language %}lang:{{ language }}{% endif %}[TRANSCRIBE]",
    .before = "[BEGIN_AUDIO]",
    .after = "",
    .arch = { [EARS_TOWER] = &models_whisper_tower, [EARS_PROJECTOR] = &models_projector_voxtral },
    FRONT,
    .read = read_stacked,
    .most = MOST_PLACES,
    .stage_rows = stage_rows,
    .fit = fit,
    .rows = rows_whole,
    .encode = encode_whole,
    .spectrum = whole_spectrum
};

const ears_family ears_qwen2_audio = {
    .types = NAMES("qwen2_audio"),
    .projectors = NAMES("qwen2a"),
    .word = "<|AUDIO|>",
    .said = "<|audio_bos|><|AUDIO|><|audio_eos|>",
    .before = "",
    .after = "",
    .arch = { [EARS_TOWER] = &models_whisper_pooled, [EARS_PROJECTOR] = &models_projector_ears_pooled },
    FRONT,
    .how = HEARD,
    .read = read_pooled,
    IN_PIECES
};

const ears_family ears_flamingo = {
    .types = NAMES("audioflamingo3"),
    .projectors = NAMES("musicflamingo"),
    .word = "<sound>",
    .before = "",
    .after = "",
    .arch = { [EARS_TOWER] = &models_whisper_pooled, [EARS_PROJECTOR] = &models_projector_ears_pooled },
    FRONT,
    .how = HEARD,
    .read = read_pooled,
    IN_PIECES
};

const ears_family ears_music = { .types = NAMES("musicflamingo"),
                                 .projectors = (const char *const[]){ NULL },
                                 .word = "<sound>",
                                 .before = "<|sound_bos|>",
                                 .after = "<|sound_eos|>",
                                 .arch = { [EARS_TOWER] = &models_whisper_pooled,
                                           [EARS_NORM] = &models_projector_ears_norm,
                                           [EARS_PROJECTOR] = &models_projector_ears_double },
                                 FRONT,
                                 .how = HEARD,
                                 .read = read_music,
                                 .most = MOST_PLACES,
                                 .stage_rows = stage_rows,
                                 .fit = fit_turned,
                                 .rows = rows_heard,
                                 .encode = encode_pieces,
                                 .spectrum = piece_spectrum };

const ears_family ears_glmasr = {
    .types = NAMES("glmasr"),
    .projectors = (const char *const[]){ NULL },
    .word = "<|pad|>",
    .said = "<|begin_of_audio|><|pad|><|end_of_audio|>",
    .before = "",
    .after = "",
    .arch = { [EARS_TOWER] = &models_glmasr_tower, [EARS_PROJECTOR] = &models_projector_ears_stacked },
    FRONT,
    .read = read_stacked,
    IN_PIECES
};

const ears_family ears_qwen_omni = {
    .types = NAMES("qwen2_5_omni", "qwen2_5_omni_thinker"),
    .projectors = NAMES("qwen2.5o"),
    .word = "<|AUDIO|>",
    .said = "<|audio_bos|><|AUDIO|><|audio_eos|>",
    .before = "",
    .after = "",
    .arch = { [EARS_TOWER] = &models_whisper_windows, [EARS_PROJECTOR] = &models_projector_ears_pooled },
    FRONT,
    .read = read_windows,
    .stage_rows = stage_rows,
    .fit = fit,
    .rows = rows_windows,
    .encode = encode_windows,
    .spectrum = open_spectrum
};

/* Its directories lack the language model, whose template knows nothing of sounds and whose vocabulary has no word. */
const ears_family ears_ultravox = {
    .types = NAMES("ultravox"),
    .projectors = NAMES("ultravox"),
    .word = "<|audio|>",
    .words = NAMES("<|reserved_special_token_0|>", "<unused0>", "<|fim_pad|>"),
    .before = "",
    .after = "",
    .arch = { [EARS_TOWER] = &models_whisper_tower, [EARS_PROJECTOR] = &models_projector_ultravox },
    FRONT,
    .read = read_stacked,
    .ragged = true,
    .most = MOST_PLACES,
    .stage_rows = stage_rows,
    .fit = fit,
    .rows = rows_hops,
    .encode = encode_hops,
    .spectrum = hop_spectrum
};

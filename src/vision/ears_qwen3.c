/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From samples to rows as Qwen 3 ASR and Qwen 3 Omni do it: the spectrum of all of a sound, not padded, in chunks of a
 * second. Three convolutions over time and pitch (ears_conv.c) make 13 places of a chunk and see nothing of its
 * neighbours; places are counted from the chunk's beginning, and see each other within windows of eight chunks. A
 * place is a row of the language model.
 *
 * The last chunk is padded with zeros to the length of all others where there are others; Qwen 3 ASR's always is, and
 * a sound has half a second at least there. Behind the first convolution that padding is not zero any more, so that it
 * matters.
 */
#include "models/list.h"
#include "vision/ears_impl.h"

#include <stdlib.h>
#include <string.h>

enum { CONVS = 3, WINDOWS_AT_ONCE = 8 };
enum { CHUNK = 100, SEEN = 800, POSITIONS = 1500 }; /* what mmproj files do not say; frames */
enum { LEAST = 320, LEAST_ASR = 8000 };

/* Places of so many frames of a chunk. */
static int chunk_places(int frames) { return conv_half(conv_half(conv_half(frames))); }

/* --- sizes --- */

static int sound_frames(const ears_rules *r, int n_samples) {
    return (n_samples < r->least ? r->least : n_samples) / MEL_HOP;
}

static int64_t sound_rows(const ears_rules *r, int n_samples) {
    int frames = sound_frames(r, n_samples);
    return (int64_t)(frames / r->chunk) * chunk_places(r->chunk) + chunk_places(frames % r->chunk);
}

static int stage_rows(const ears_rules *r, int stage) {
    int frames = r->chunk, pitches = r->mels;
    if (stage >= EARS_TOWER) return r->positions;
    for (int i = EARS_CONV0; i <= stage; i++) {
        frames = conv_half(frames);
        pitches = conv_half(pitches);
    }
    return frames * pitches;
}

static bool fit(const ears *h) {
    const vision_stage *s = h->stage;
    const nn_ears_dims *d = s[EARS_TOWER].model->net.hp;
    return s[EARS_CONV0].width_in == 9 && s[EARS_CONV1].width_in == 9 * s[EARS_CONV0].width_out &&
           s[EARS_CONV2].width_in == 9 * s[EARS_CONV1].width_out &&
           s[EARS_CONV2].width_out * (h->rules.mels / 8) + d->d.n_embd == s[EARS_TOWER].width_in &&
           d->positions == h->rules.table && h->rules.table >= chunk_places(h->rules.chunk);
}

/* --- the tower's input --- */

typedef struct scratch {
    float *chunk, *seen, *made[2]; /* frames; what the places of a convolution see; what they give */
    float *in, *rows;              /* of the tower */
} scratch;

static float *room(size_t n, size_t width) { return malloc(n * width * sizeof(float)); }

static int take_scratch(scratch *x, const ears *h, err *e) {
    const vision_stage *tower = &h->stage[EARS_TOWER];
    size_t              seen = 0, made = 0;
    for (int i = EARS_CONV0; i <= EARS_CONV2; i++) {
        const vision_stage *c = &h->stage[i];
        size_t              in = (size_t)c->max_rows * (size_t)c->width_in;
        size_t              out = (size_t)c->max_rows * (size_t)c->width_out;
        if (in > seen) seen = in;
        if (out > made) made = out;
    }
    x->chunk = room((size_t)h->rules.chunk, (size_t)h->rules.mels);
    x->seen = room(seen, 1);
    for (int i = 0; i < 2; i++) x->made[i] = room(made, 1);
    x->in = room((size_t)tower->max_rows, (size_t)tower->width_in);
    x->rows = room((size_t)tower->max_rows, (size_t)tower->width_out);
    return x->chunk && x->seen && x->made[0] && x->made[1] && x->in && x->rows ? 0 : err_set_nomem(e);
}

static void free_scratch(scratch *x) {
    free(x->chunk);
    free(x->seen);
    for (int i = 0; i < 2; i++) free(x->made[i]);
    free(x->in);
    free(x->rows);
}

/* All three convolutions over the chunk; *out: [place][pitch][channel]. */
static int convolve(ears *h, scratch *x, int frames, const float **out, err *e) {
    conv_input in = { .from = x->chunk, .rows = frames, .pitches = h->rules.mels, .channels = 1, .pitch_first = true };
    int        rc = 0;
    for (int i = 0; rc == 0 && i < CONVS; i++) {
        vision_stage *s = &h->stage[EARS_CONV0 + i];
        float        *to = x->made[i % 2];
        int           rows = conv_half(in.rows), pitches = conv_half(in.pitches);
        conv_put(&in, 0, rows, x->seen);
        rc = stage_run(s, &(stage_step){ .n = rows * pitches, .in = x->seen, .out = to }, e);
        in.from = to;
        in.rows = rows;
        in.pitches = pitches;
        in.channels = s->width_out;
    }
    *out = in.from;
    return rc;
}

/* Places become rows [channel][pitch], with their positions behind. */
static void put_rows(const ears *h, const float *from, int places, float *in) {
    const vision_stage *tower = &h->stage[EARS_TOWER];
    const nn_ears_top  *top = tower->model->net.top;
    size_t channels = (size_t)h->stage[EARS_CONV2].width_out, pitches = (size_t)chunk_places(h->rules.mels);
    size_t width = (size_t)tower->width_in - channels * pitches;
    for (int i = 0; i < places; i++, from += channels * pitches, in += tower->width_in) {
        for (size_t k = 0; k < channels * pitches; k++) in[k % channels * pitches + k / channels] = from[k];
        ears_put_position(in + channels * pitches, top, i, width);
    }
}

/* The chunk from frame `at` on: *n rows. */
static int put_chunk(ears *h, scratch *x, const mel *m, int at, float *in, int *n, err *e) {
    int          chunk = h->rules.chunk, frames = m->frames - at < chunk ? m->frames - at : chunk;
    int          padded = h->rules.padded || m->frames > chunk ? chunk : frames;
    size_t       bins = (size_t)m->bins;
    const float *places;
    memcpy(x->chunk, m->at + (size_t)at * bins, (size_t)frames * bins * sizeof *x->chunk);
    memset(x->chunk + (size_t)frames * bins, 0, (size_t)(padded - frames) * bins * sizeof *x->chunk);
    int rc = convolve(h, x, padded, &places, e);
    *n = chunk_places(frames);
    if (rc == 0) put_rows(h, places, *n, in);
    return rc;
}

/* --- windows --- */

static int spectrum(mel *out, const ears_rules *r, const sound *s, int bins, err *e) {
    return mel_make_whisper_bare(out, s, bins, r->least, e);
}

/* Of n rows that are computed together: which ones see each other. */
static void put_windows(vision_order *o, int n, int window) {
    o->n = n;
    for (int i = 0; i < n; i++) {
        o->begin[i] = i / window * window;
        o->end[i] = o->begin[i] + window < n ? o->begin[i] + window : n;
    }
}

static int run_windows(ears *h, scratch *x, const mel *m, int at, vision_order *o, float **out, err *e) {
    const ears_rules *r = &h->rules;
    int               end = at + r->positions / chunk_places(r->chunk) * r->chunk, n = 0, rc = 0;
    for (; rc == 0 && at < m->frames && at < end; at += r->chunk) {
        int more = 0;
        rc = put_chunk(h, x, m, at, x->in + (size_t)n * (size_t)h->stage[EARS_TOWER].width_in, &more, e);
        n += more;
    }
    put_windows(o, n, r->window);
    if (rc == 0)
        rc = stage_run(&h->stage[EARS_TOWER], &(stage_step){ .n = n, .in = x->in, .order = o, .out = x->rows }, e);
    if (rc == 0) rc = stage_run(&h->stage[EARS_PROJECTOR], &(stage_step){ .n = n, .in = x->rows, .out = *out }, e);
    *out += (size_t)n * (size_t)h->stage[EARS_PROJECTOR].width_out;
    return rc;
}

static int encode(ears *h, const sound *s, float *out, err *e) {
    const ears_rules *r = &h->rules;
    size_t            most = (size_t)r->positions;
    vision_order      o = { .begin = malloc(most * sizeof *o.begin), .end = malloc(most * sizeof *o.end) };
    scratch           x = { 0 };
    mel               m;
    int               rc = spectrum(&m, r, s, r->mels, e);
    if (rc == 0) rc = o.begin && o.end ? take_scratch(&x, h, e) : err_set_nomem(e);
    for (int at = 0; rc == 0 && at < m.frames; at += r->positions / chunk_places(r->chunk) * r->chunk) {
        if ((rc = ears_go_on(h, e)) == 0) rc = run_windows(h, &x, &m, at, &o, &out, e);
    }
    free(o.begin);
    free(o.end);
    free_scratch(&x);
    mel_free(&m);
    return rc;
}

/* --- what files say --- */

static void read_sizes(ears_rules *r, const json_value *config, const model_file *mmproj, bool asr) {
    const json_value *audio = json_get(config, "audio_config");
    int64_t mels = mmproj ? ears_meta(mmproj, "clip.audio.num_mel_bins") : ears_number(audio, "num_mel_bins", 128);
    int64_t half = ears_number(audio, "n_window", CHUNK / 2), seen = ears_number(audio, "n_window_infer", SEEN);
    int64_t table =
        ears_number(audio, "max_source_positions", ears_number(audio, "max_position_embeddings", POSITIONS));
    const model_tensor *t = mmproj ? model_file_tensor(mmproj, "a.position_embd.weight") : NULL;
    if (t) table = t->n_dims == 2 ? t->dims[1] : -1;
    if (mels < 8 || mels > 256 || mels % 8 || half < 4 || half > 200 || seen < 2 * half || seen > 1 << 14 ||
        seen % (2 * half) || table < 1 || table > 1 << 16)
        return; /* zero is refused */
    r->mels = (int)mels;
    r->chunk = 2 * (int)half;
    r->window = (int)(seen / r->chunk) * chunk_places(r->chunk);
    r->positions = WINDOWS_AT_ONCE * r->window;
    r->table = (int)table;
    r->stack = 1;
    r->least = asr ? LEAST_ASR : LEAST;
    r->padded = asr;
}

static void read_asr(ears_rules *r, const json_value *config, const model_file *mmproj) {
    read_sizes(r, config, mmproj, true);
}

static void read_omni(ears_rules *r, const json_value *config, const model_file *mmproj) {
    read_sizes(r, config, mmproj, false);
}

static const ears_field front[] = { { "sampling_rate", SOUND_RATE },
                                    { "n_fft", 400 },
                                    { "hop_length", MEL_HOP },
                                    { "dither", 0 },
                                    { "min_length", LEAST_ASR } };

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define QWEN3                                                                                                          \
    .word = "<|audio_pad|>", .said = "<|audio_start|><|audio_pad|><|audio_end|>", .before = "", .after = "",           \
    .arch = { [EARS_CONV0] = &models_qwen3_ears_conv[0],                                                               \
              [EARS_CONV1] = &models_qwen3_ears_conv[1],                                                               \
              [EARS_CONV2] = &models_qwen3_ears_conv[2],                                                               \
              [EARS_TOWER] = &models_qwen3_ears,                                                                       \
              [EARS_PROJECTOR] = &models_projector_ears_single },                                                      \
    .front = front, .n_front = sizeof front / sizeof *front, .stage_rows = stage_rows, .fit = fit, .rows = sound_rows, \
    .encode = encode, .spectrum = spectrum

const ears_family ears_qwen3_omni = {
    .types = NAMES("qwen3_omni_moe", "qwen3_omni_moe_thinker"), .projectors = NAMES("qwen3a"), .read = read_omni, QWEN3
};

/* Where nobody says the language, the model does, before the words: "language English<asr_text>". */
static const char transcribes[] =
    "{%- set names = {'ar': 'Arabic', 'yue': 'Cantonese', 'zh': 'Chinese', 'cs': 'Czech', 'da': 'Danish', 'nl': "
    "'Dutch',"
    " 'en': 'English', 'fil': 'Filipino', 'fi': 'Finnish', 'fr': 'French', 'de': 'German', 'el': 'Greek', 'hi': "
    "'Hindi',"
    " 'hu': 'Hungarian', 'id': 'Indonesian', 'it': 'Italian', 'ja': 'Japanese', 'ko': 'Korean', 'mk': 'Macedonian',"
    " 'ms': 'Malay', 'fa': 'Persian', 'pl': 'Polish', 'pt': 'Portuguese', 'ro': 'Romanian', 'ru': 'Russian',"
    " 'es': 'Spanish', 'sv': 'Swedish', 'th': 'Thai', 'tr': 'Turkish', 'vi': 'Vietnamese'} -%}"
    "{%- if language and language not in names -%}{{ raise_exception('language: the model does not know ' + language) "
    "}}"
    "{%- endif -%}"
    "{{ '<|im_start|>system\n' + (prompt if prompt else '') + '<|im_end|>\n<|im_start|>user\n' }}"
    "{{ '<|audio_start|><|audio_pad|><|audio_end|><|im_end|>\n<|im_start|>assistant\n' }}"
    "{% if language %}{{ 'language ' + names[language] + '<asr_text>' }}{% endif %}";

const ears_family ears_qwen3_asr = { .types = NAMES("qwen3_asr"),
                                     .projectors = NAMES("qwen3a"),
                                     .alone = true,
                                     .transcribes = transcribes,
                                     .read = read_asr,
                                     QWEN3 };

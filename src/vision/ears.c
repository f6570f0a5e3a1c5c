/* SPDX-License-Identifier: Apache-2.0 */
#include "vision/ears.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/sha256.h"
#include "models/list.h"
#include "vision/internal.h"
#include "vision/mel.h"

#include <stdlib.h>
#include <string.h>

/* Rows that are kept, unless somebody says otherwise: so many pieces, but not more than this. */
enum { KEPT_PIECES = 64, MAX_POSITIONS = 1 << 16, MAX_PREPROCESSOR = 1 << 20 };
#define MOST_KEPT ((size_t)256 << 20)

/* How a sound is prepared; part of the key of its rows. */
typedef struct ears_rules {
    int mels, positions; /* a piece has twice as many frames */
    int stack;           /* places that become a row */
} ears_rules;

struct ears {
    ears_rules   rules;
    vision_stage tower, projector;
    uint8_t      source[VISION_KEY_BYTES]; /* what the tower's file hashes to */
    vision_keep  keep;
};

/* --- what the files say --- */

static int64_t meta_number(const model_file *f, const char *key) {
    int64_t x = -1;
    (void)meta_int(model_file_meta(f, key), &x);
    return x;
}

static int64_t json_field(const json_value *v, const char *key, int64_t dflt) {
    int64_t x = dflt;
    (void)json_int(json_get(v, key), &x);
    return x;
}

static bool text_is(const meta_value *m, const char *text) {
    view v;
    return meta_string(m, &v) && view_eq_c(v, text);
}

bool ears_known(const model_file *model, const model_file *mmproj) {
    if (mmproj)
        return text_is(model_file_meta(mmproj, "clip.projector_type"), "voxtral") ||
               text_is(model_file_meta(mmproj, "clip.audio.projector_type"), "voxtral");
    const json_value *config = model_file_config(model);
    const char       *type = json_cstr(json_get(config, "model_type"));
    return type && strcmp(type, "voxtral") == 0 && json_get(config, "audio_config");
}

/* Mel spectrograms are made in one way (mel.h); a directory that asks for another is refused. */
static int check_front(const ears_rules *r, const model_file *model, err *e) {
    const struct {
        const char *field;
        int64_t     is;
    } known[] = {
        { "feature_size", r->mels }, { "sampling_rate", SOUND_RATE }, { "n_fft", 400 }, { "hop_length", MEL_HOP }
    };
    char             *path = model_file_sidecar(model, "preprocessor_config.json"), *text = NULL;
    const json_value *v = NULL;
    size_t            n;
    arena             mem;
    if (!path) return 0;
    arena_init(&mem, 0);
    int rc = file_read(&text, &n, path, MAX_PREPROCESSOR, e);
    if (rc == 0) rc = json_parse(&v, text, n, &mem, e);
    for (size_t i = 0; rc == 0 && i < sizeof known / sizeof *known; i++) {
        int64_t x = json_field(v, known[i].field, known[i].is);
        if (x != known[i].is)
            rc = err_set(e, ERR_UNSUPPORTED, "%s is %lld; %lld is supported", known[i].field, (long long)x,
                         (long long)known[i].is);
    }
    if (rc < 0) err_wrap(e, rc, "%s", path);
    arena_deinit(&mem);
    free(text);
    free(path);
    return rc;
}

static int read_rules(ears_rules *r, const model_file *model, const model_file *mmproj, err *e) {
    int64_t mels, positions, stack;
    if (mmproj) {
        const model_tensor *t = model_file_tensor(mmproj, "a.position_embd.weight");
        mels = meta_number(mmproj, "clip.audio.num_mel_bins");
        stack = meta_number(mmproj, "clip.audio.projector.stack_factor");
        positions = t && t->n_dims == 2 ? t->dims[1] : -1;
    } else {
        const json_value *audio = json_get(model_file_config(model), "audio_config");
        int64_t           width = json_field(audio, "hidden_size", 1280);
        mels = json_field(audio, "num_mel_bins", 128);
        positions = json_field(audio, "max_source_positions", 1500);
        stack = width > 0 ? json_field(audio, "intermediate_size", 5120) / width : -1;
    }
    if (mels < 1 || positions < 2 || positions > MAX_POSITIONS || stack < 1 || positions % stack)
        return err_set(e, ERR_FORMAT, "%s: %lld mel bins, %lld positions, %lld of them a row do not fit each other",
                       model_file_path(mmproj ? mmproj : model), (long long)mels, (long long)positions,
                       (long long)stack);
    *r = (ears_rules){ (int)mels, (int)positions, (int)stack };
    return mmproj ? 0 : check_front(r, model, e);
}

/* --- opening --- */

/* What the tower and the projector are built from. */
typedef struct stages {
    nn_part       tower, projector;
    nn_config_set usual[1]; /* GGUF leaves it to the table of positions */
} stages;

static void find_stages(stages *s, const ears_rules *r, const model_file *model, const model_file *mmproj) {
    const json_value *config = mmproj ? NULL : model_file_config(model);
    s->usual[0] = (nn_config_set){ "position_count", r->positions, true };
    nn_part base = { .config = json_get(config, "audio_config"),
                     .outer = config,
                     .keys = "clip.audio",
                     .usual = s->usual,
                     .n_usual = 1 };
    s->tower = s->projector = base;
    s->tower.arch = &models_whisper_tower;
    s->projector.arch = &models_projector_voxtral;
}

static int rows_of(const ears_rules *r) { return r->positions / r->stack; }

static size_t kept_bytes(const ears_rules *r, int width, const vision_options *o) {
    size_t piece = (size_t)rows_of(r) * (size_t)width * sizeof(float), most = MOST_KEPT;
    if (o->cache_bytes) return o->cache_bytes;
    return piece < most / KEPT_PIECES ? piece * KEPT_PIECES : most;
}

static int open_stages(ears *h, const model_file *f, const stages *s, int width, const vision_options *o, err *e) {
    const ears_rules *r = &h->rules;
    int               rc = stage_open(&h->tower, f, &s->tower, r->positions, o, e);
    if (rc == 0) rc = stage_open(&h->projector, f, &s->projector, rows_of(r), o, e);
    if (rc < 0) return rc;
    const nn_ears_dims *d = h->tower.model->net.hp;
    if (d->mels != r->mels || d->positions != r->positions || h->tower.width_out * r->stack != h->projector.width_in)
        return err_set(e, ERR_FORMAT, "%s: tower and projector do not fit each other", model_file_path(f));
    if (h->projector.width_out != width)
        return err_set(e, ERR_ARG, "%s makes rows of %d for a language model of %d: it belongs to another one",
                       model_file_path(f), h->projector.width_out, width);
    return 0;
}

int ears_open(ears **out, const model_file *model, const model_file *mmproj, int width, const vision_options *o,
              err *e) {
    stages            s;
    const model_file *f = mmproj ? mmproj : model;
    *out = NULL;
    if (!ears_known(model, mmproj)) return 0;
    ears *h = calloc(1, sizeof *h);
    if (!h) return err_set_nomem(e);
    int rc = read_rules(&h->rules, model, mmproj, e);
    if (rc == 0) {
        find_stages(&s, &h->rules, model, mmproj);
        h->keep.limit_bytes = kept_bytes(&h->rules, width, o);
        rc = open_stages(h, f, &s, width, o, e);
    }
    if (rc < 0) {
        ears_free(h);
        return rc;
    }
    tower_identify(h->source, f);
    *out = h;
    return 0;
}

int ears_measure(uint64_t *bytes, uint64_t *on_device, const model_file *model, const model_file *mmproj, int width,
                 const vision_options *o, err *e) {
    ears_rules        r;
    stages            s;
    uint64_t          tower, projector, there[2] = { 0 };
    const model_file *f = mmproj ? mmproj : model;
    *bytes = *on_device = 0;
    if (!ears_known(model, mmproj)) return 0;
    int rc = read_rules(&r, model, mmproj, e);
    if (rc < 0) return rc;
    find_stages(&s, &r, model, mmproj);
    if ((rc = stage_measure(&tower, &there[0], f, &s.tower, r.positions, o, e)) == 0)
        rc = stage_measure(&projector, &there[1], f, &s.projector, rows_of(&r), o, e);
    if (rc < 0) return rc;
    *bytes = tower + projector + kept_bytes(&r, width, o);
    *on_device = there[0] + there[1];
    return 0;
}

void ears_free(ears *h) {
    if (!h) return;
    stage_close(&h->tower);
    stage_close(&h->projector);
    keep_free(&h->keep);
    free(h);
}

/* --- words --- */

const char *ears_placeholder(const ears *h) { return ears_row_word(h); }

const char *ears_row_word(const ears *h) {
    (void)h; /* Voxtral's is the only one */
    return "[AUDIO]";
}

/* Pieces of a sound. */
static int64_t pieces_of(const ears_rules *r, int n_samples) {
    int64_t piece = (int64_t)r->positions * 2 * MEL_HOP;
    return (n_samples + piece - 1) / piece;
}

int ears_write(const ears *h, int n_samples, str *out, err *e) {
    int64_t n = pieces_of(&h->rules, n_samples) * rows_of(&h->rules);
    str_puts(out, "[BEGIN_AUDIO]");
    for (int64_t i = 0; i < n; i++) str_puts(out, ears_row_word(h));
    return str_ok(out) ? 0 : err_set_nomem(e);
}

/* --- rows --- */

static void make_key(const ears *h, const sound *s, uint8_t key[VISION_KEY_BYTES]) {
    uint8_t digest[SHA256_BYTES];
    sha256  x;
    sha256_init(&x);
    sha256_feed(&x, h->source, sizeof h->source);
    sha256_feed(&x, &h->rules, sizeof h->rules);
    sha256_feed(&x, &s->n, sizeof s->n);
    sha256_feed(&x, s->at, (size_t)s->n * sizeof *s->at);
    sha256_finish(&x, digest);
    memcpy(key, digest, VISION_KEY_BYTES);
}

/* The tower's input for a piece; `at` is its first frame. Outside of it nothing is seen, as if there were nothing. */
static void put_rows(const ears *h, const float *at, float *in) {
    const nn_ears_top *top = h->tower.model->net.top;
    size_t             mels = (size_t)h->rules.mels, width = (size_t)h->tower.width_in - NN_EARS_FRAMES * mels - 1;
    int                frames = 2 * h->rules.positions;
    for (int i = 0; i < h->rules.positions; i++) {
        float *row = in + (size_t)i * (size_t)h->tower.width_in;
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
    size_t            n = (size_t)r->positions;
    float            *in = malloc(n * (size_t)h->tower.width_in * sizeof *in),
          *rows = malloc(n * (size_t)h->tower.width_out * sizeof *rows);
    int rc = in && rows ? 0 : err_set_nomem(e);
    for (int at = 0; rc == 0 && at < m->frames; at += 2 * r->positions) {
        put_rows(h, m->at + (size_t)at * (size_t)m->bins, in);
        rc = stage_run(&h->tower, in, r->positions, NULL, NULL, rows, e);
        if (rc == 0) rc = stage_run(&h->projector, rows, rows_of(r), NULL, NULL, out, e);
        out += (size_t)rows_of(r) * (size_t)h->projector.width_out;
    }
    free(in);
    free(rows);
    return rc;
}

int ears_encode(ears *h, const sound *s, const vision_rows **out, err *e) {
    vision_rows made = { .width = h->projector.width_out };
    mel         m;
    make_key(h, s, made.key);
    if ((*out = keep_find(&h->keep, made.key))) return 0;
    int rc = mel_make(&m, s, h->rules.mels, 2 * h->rules.positions, e);
    if (rc < 0) return rc;
    made.n = m.frames / (2 * h->rules.stack);
    made.data = malloc((size_t)made.n * (size_t)made.width * sizeof *made.data);
    rc = made.data ? encode_pieces(h, &m, made.data, e) : err_set_nomem(e);
    mel_free(&m);
    if (rc < 0) {
        free(made.data);
        return rc;
    }
    return keep_add(&h->keep, &made, out, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "vision/ears.h"

#include "base/sha256.h"
#include "models/list.h"
#include "vision/ears_impl.h"

#include <stdlib.h>
#include <string.h>

/* Rows that are kept, unless somebody says otherwise: so many pieces, but not more than this. */
enum { KEPT_PIECES = 64 };
#define MOST_KEPT ((size_t)256 << 20)

bool ears_known(const model_file *model, const model_file *mmproj) {
    ears_kind kind;
    return ears_rules_known(&kind, model, mmproj);
}

static int rows_of(const ears_rules *r) { return r->positions / r->stack; } /* of a whole piece */

int ears_piece(const ears_rules *r) {
    return r->kind == EARS_GEMMA4 ? r->positions * 4 * MEL_HOP : r->positions * 2 * MEL_HOP;
}

/* How many rows a sound of so many samples becomes. */
static int64_t sound_rows(const ears_rules *r, int n_samples) {
    int64_t piece = ears_piece(r), whole = n_samples / piece;
    int     rest = (int)(n_samples % piece);
    if (r->kind == EARS_VOXTRAL) return (whole + (rest ? 1 : 0)) * rows_of(r);
    return whole * rows_of(r) + (rest ? gemma4_rows(mel_frames_gemma4(rest)) : 0);
}

/* --- opening --- */

/* What the stages are built from, and how many rows each takes at once; arch NULL: it is not there. */
typedef struct stages {
    nn_part       part[EARS_STAGES];
    int           rows[EARS_STAGES];
    nn_config_set usual[1]; /* Voxtral: GGUF leaves it to the table of positions */
} stages;

static void find_stages(stages *s, const ears_rules *r, const model_file *model, const model_file *mmproj) {
    static const nn_arch *const archs[][EARS_STAGES] = {
        [EARS_VOXTRAL] = { NULL, NULL, &models_whisper_tower, &models_projector_voxtral },
        [EARS_GEMMA4] = { &models_gemma4_ears_conv[0], &models_gemma4_ears_conv[1], &models_gemma4_ears,
                          &models_projector_gemma4_ears },
    };
    const json_value *config = mmproj ? NULL : model_file_config(model);
    s->usual[0] = (nn_config_set){ "position_count", r->positions, true };
    for (int i = 0; i < EARS_STAGES; i++) {
        s->part[i] = (nn_part){ .arch = archs[r->kind][i],
                                .config = json_get(config, "audio_config"),
                                .outer = config,
                                .keys = "clip.audio",
                                .usual = s->usual,
                                .n_usual = r->kind == EARS_VOXTRAL };
        s->rows[i] = i == EARS_TOWER       ? r->positions
                     : i == EARS_PROJECTOR ? rows_of(r)
                                           : gemma4_conv_rows(r, i - EARS_CONV0);
    }
}

static size_t kept_bytes(const ears_rules *r, int width, const vision_options *o) {
    size_t piece = (size_t)rows_of(r) * (size_t)width * sizeof(float), most = MOST_KEPT;
    if (o->cache_bytes) return o->cache_bytes;
    return piece < most / KEPT_PIECES ? piece * KEPT_PIECES : most;
}

/* Whether a stage's rows are what the next one takes. */
static bool fit(const ears *h) {
    const ears_rules   *r = &h->rules;
    const vision_stage *s = h->stage;
    if (s[EARS_TOWER].width_out * r->stack != s[EARS_PROJECTOR].width_in) return false;
    if (r->kind == EARS_VOXTRAL) {
        const nn_ears_dims *d = s[EARS_TOWER].model->net.hp;
        return d->mels == r->mels && d->positions == r->positions;
    }
    return s[EARS_CONV0].width_in * s[EARS_CONV0].width_out == s[EARS_CONV1].width_in &&
           s[EARS_CONV1].width_out * (r->mels / 4) == s[EARS_TOWER].width_in;
}

static int open_stages(ears *h, const model_file *f, const stages *s, int width, const vision_options *o, err *e) {
    int rc = 0;
    for (int i = 0; rc == 0 && i < EARS_STAGES; i++) {
        if (s->part[i].arch) rc = stage_open(&h->stage[i], f, &s->part[i], s->rows[i], o, e);
    }
    if (rc < 0) return rc;
    if (!fit(h)) return err_set(e, ERR_FORMAT, "%s: tower and projector do not fit each other", model_file_path(f));
    if (h->stage[EARS_PROJECTOR].width_out != width)
        return err_set(e, ERR_ARG, "%s makes rows of %d for a language model of %d: it belongs to another one",
                       model_file_path(f), h->stage[EARS_PROJECTOR].width_out, width);
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
    int rc = ears_rules_read(&h->rules, model, mmproj, e);
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
    const model_file *f = mmproj ? mmproj : model;
    *bytes = *on_device = 0;
    if (!ears_known(model, mmproj)) return 0;
    int rc = ears_rules_read(&r, model, mmproj, e);
    if (rc < 0) return rc;
    find_stages(&s, &r, model, mmproj);
    for (int i = 0; rc == 0 && i < EARS_STAGES; i++) {
        uint64_t more = 0, there = 0;
        if (s.part[i].arch) rc = stage_measure(&more, &there, f, &s.part[i], s.rows[i], o, e);
        *bytes += more;
        *on_device += there;
    }
    *bytes += kept_bytes(&r, width, o);
    return rc;
}

void ears_free(ears *h) {
    if (!h) return;
    for (int i = 0; i < EARS_STAGES; i++) stage_close(&h->stage[i]);
    keep_free(&h->keep);
    free(h);
}

/* --- words --- */

const char *ears_placeholder(const ears *h) { return ears_row_word(h); }

const char *ears_row_word(const ears *h) { return h->rules.kind == EARS_GEMMA4 ? "<|audio|>" : "[AUDIO]"; }

int ears_write(const ears *h, int n_samples, str *out, err *e) {
    int64_t n = sound_rows(&h->rules, n_samples);
    bool    gemma4 = h->rules.kind == EARS_GEMMA4;
    str_puts(out, gemma4 ? "<|audio>" : "[BEGIN_AUDIO]");
    for (int64_t i = 0; i < n; i++) str_puts(out, ears_row_word(h));
    if (gemma4) str_puts(out, "<audio|>");
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

int ears_encode(ears *h, const sound *s, const vision_rows **out, err *e) {
    vision_rows made = { .n = (int)sound_rows(&h->rules, s->n), .width = h->stage[EARS_PROJECTOR].width_out };
    make_key(h, s, made.key);
    if ((*out = keep_find(&h->keep, made.key))) return 0;
    made.data = malloc((size_t)made.n * (size_t)made.width * sizeof *made.data);
    if (!made.data) return err_set_nomem(e);
    int rc = h->rules.kind == EARS_GEMMA4 ? gemma4_encode(h, s, made.data, e) : voxtral_encode(h, s, made.data, e);
    if (rc < 0) {
        free(made.data);
        return rc;
    }
    return keep_add(&h->keep, &made, out, e);
}

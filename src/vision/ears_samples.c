/* SPDX-License-Identifier: Apache-2.0 */
/* From samples to rows where there is no encoder: Gemma 4 12B. So many samples are a row, normed and multiplied by one matrix. */
#include "models/list.h"
#include "vision/ears_impl.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 640, LEAST = 160, AT_ONCE = 750 }; /* of a row, and what it has at least; rows */

static int64_t sound_rows(const ears_rules *r, int n_samples) { return ((int64_t)n_samples + r->mels - 1) / r->mels; }

static int stage_rows(const ears_rules *r, int stage) {
    (void)stage;
    return r->positions;
}

/* An mmproj file leaves the number of samples to its matrix. */
static void read_sizes(ears_rules *r, const json_value *config, const model_file *mmproj) {
    const json_value   *audio = json_get(config, "audio_config");
    const model_tensor *t = mmproj ? model_file_tensor(mmproj, "mm.a.input_projection.weight") : NULL;
    int64_t             n = t ? t->dims[0] : ears_number(audio, "audio_embed_dim", SAMPLES);
    r->mels = n < LEAST || n > 1 << 20 ? -1 : (int)n;
    r->positions = AT_ONCE;
    r->stack = 1;
}

/* The last row is filled with silence. */
static int encode(ears *h, const sound *s, float *out, err *e) {
    vision_stage *projector = &h->stage[EARS_PROJECTOR];
    int64_t       samples = h->rules.mels, n = sound_rows(&h->rules, s->n), whole = s->n / samples;
    float        *last = calloc((size_t)samples, sizeof *last);
    int           rc = last ? 0 : err_set_nomem(e);
    if (rc == 0) memcpy(last, s->at + whole * samples, (size_t)(s->n - whole * samples) * sizeof *last);
    for (int64_t at = 0; rc == 0 && at < n;) {
        int64_t    left = whole - at, now = left > AT_ONCE ? AT_ONCE : left > 0 ? left : 1;
        stage_step step = { .n = (int)now, .in = left > 0 ? s->at + at * samples : last, .out = out };
        if ((rc = ears_go_on(h, e)) == 0) rc = stage_run(projector, &step, e);
        out += (size_t)now * (size_t)projector->width_out;
        at += now;
    }
    free(last);
    return rc;
}

static const char *const types[] = { "gemma4_unified", NULL };
static const char *const projectors[] = { "gemma4ua", NULL };
static const ears_field  front[] = { { "sampling_rate", SOUND_RATE } };

const ears_family ears_gemma4_samples = { .types = types,
                                          .projectors = projectors,
                                          .word = "<|audio|>",
                                          .before = "<|audio>",
                                          .after = "<audio|>",
                                          .arch = { [EARS_PROJECTOR] = &models_projector_gemma4_ears },
                                          .front = front,
                                          .n_front = sizeof front / sizeof *front,
                                          .read = read_sizes,
                                          .stage_rows = stage_rows,
                                          .rows = sound_rows,
                                          .encode = encode };

/* SPDX-License-Identifier: Apache-2.0 */
/* How sounds are prepared: config.json and preprocessor_config.json of a directory, clip.audio.* of an mmproj file. */
#include "base/arena.h"
#include "base/file.h"
#include "vision/ears_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_POSITIONS = 1 << 16, MAX_PREPROCESSOR = 1 << 20, GEMMA4_SECONDS = 30, GEMMA4_FRAMES = 4 };

static const struct {
    const char *type, *projector; /* model_type, and the mmproj's projector type */
    ears_kind   kind;
} kinds[] = { { "voxtral", "voxtral", EARS_VOXTRAL }, { "gemma4", "gemma4a", EARS_GEMMA4 } };

static bool text_is(const meta_value *m, const char *text) {
    view v;
    return meta_string(m, &v) && view_eq_c(v, text);
}

static bool fits(size_t i, const model_file *model, const model_file *mmproj) {
    if (mmproj)
        return text_is(model_file_meta(mmproj, "clip.projector_type"), kinds[i].projector) ||
               text_is(model_file_meta(mmproj, "clip.audio.projector_type"), kinds[i].projector);
    const json_value *config = model_file_config(model);
    const char       *type = json_cstr(json_get(config, "model_type"));
    return type && strcmp(type, kinds[i].type) == 0 && json_is(json_get(config, "audio_config"), JSON_K_OBJECT);
}

bool ears_rules_known(ears_kind *kind, const model_file *model, const model_file *mmproj) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        *kind = kinds[i].kind;
        if (fits(i, model, mmproj)) return true;
    }
    return false;
}

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

/* --- what preprocessor_config.json says --- */

/* A field that has this value where it is there; a list is another one. */
typedef struct known {
    const char *field;
    double      is;
} known;

/* Spectrograms are made in the families' ways (mel.h); a directory that asks for another is refused. */
static int check_fields(const json_value *v, const known *fields, size_t n, err *e) {
    for (size_t i = 0; i < n; i++) {
        const json_value *at = json_get(v, fields[i].field);
        double            x = fields[i].is;
        if (json_is(at, JSON_K_BOOL)) x = json_bool(at, false) ? 1 : 0;
        (void)json_number(at, &x);
        if (json_is(at, JSON_K_ARRAY)) x = -1;
        if (x != fields[i].is)
            return err_set(e, ERR_UNSUPPORTED, "%s is %g; %g is supported", fields[i].field, x, fields[i].is);
    }
    return 0;
}

static int check_front(const ears_rules *r, const json_value *v, err *e) {
    const known whisper[] = {
        { "feature_size", r->mels }, { "sampling_rate", SOUND_RATE }, { "n_fft", 400 }, { "hop_length", MEL_HOP }
    };
    const known gemma4[] = { { "feature_size", r->mels }, { "sampling_rate", SOUND_RATE }, { "frame_length_ms", 20 },
                             { "hop_length_ms", 10 },     { "min_frequency", 0 },          { "max_frequency", 8000 },
                             { "preemphasis", 0 },        { "fft_overdrive", 0 },          { "dither", 0 },
                             { "input_scale_factor", 1 }, { "mel_floor", 0.001 },          { "per_bin_mean", 0 },
                             { "per_bin_stddev", 0 } };
    if (r->kind == EARS_VOXTRAL) return check_fields(v, whisper, sizeof whisper / sizeof *whisper, e);
    return check_fields(v, gemma4, sizeof gemma4 / sizeof *gemma4, e);
}

/* Of both files, and of an object inside them where they have one: newer files have all processors in one. */
static int check_files(const ears_rules *r, const model_file *model, err *e) {
    static const char *const names[] = { "preprocessor_config.json", "processor_config.json" };
    int                      rc = 0;
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        char             *path = model_file_sidecar(model, names[i]), *text = NULL;
        const json_value *v = NULL;
        size_t            n;
        arena             mem;
        if (!path) continue;
        arena_init(&mem, 0);
        rc = file_read(&text, &n, path, MAX_PREPROCESSOR, e);
        if (rc == 0) rc = json_parse(&v, text, n, &mem, e);
        const json_value *inner = json_get(v, "feature_extractor");
        if (rc == 0) rc = check_front(r, inner ? inner : v, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
        arena_deinit(&mem);
        free(text);
        free(path);
    }
    return rc;
}

/* --- sizes --- */

static void read_voxtral(const model_file *model, const model_file *mmproj, int64_t sizes[3]) {
    if (mmproj) {
        const model_tensor *t = model_file_tensor(mmproj, "a.position_embd.weight");
        sizes[0] = meta_number(mmproj, "clip.audio.num_mel_bins");
        sizes[1] = t && t->n_dims == 2 ? t->dims[1] : -1;
        sizes[2] = meta_number(mmproj, "clip.audio.projector.stack_factor");
        return;
    }
    const json_value *audio = json_get(model_file_config(model), "audio_config");
    int64_t           width = json_field(audio, "hidden_size", 1280);
    sizes[0] = json_field(audio, "num_mel_bins", 128);
    sizes[1] = json_field(audio, "max_source_positions", 1500);
    sizes[2] = width > 0 ? json_field(audio, "intermediate_size", 5120) / width : -1;
}

/* A directory says how many bins there are by the channels of the first convolution, which are as many. */
static void read_gemma4(const model_file *model, const model_file *mmproj, int64_t sizes[3]) {
    const json_value *audio = json_get(model_file_config(model), "audio_config");
    int64_t           mels = 128;
    if (mmproj)
        mels = meta_number(mmproj, "clip.audio.num_mel_bins");
    else
        (void)json_int(json_at(json_get(audio, "subsampling_conv_channels"), 0), &mels);
    sizes[0] = mels % 4 ? -1 : mels;
    sizes[1] = GEMMA4_SECONDS * SOUND_RATE / (MEL_HOP * GEMMA4_FRAMES);
    sizes[2] = 1;
}

int ears_rules_read(ears_rules *r, const model_file *model, const model_file *mmproj, err *e) {
    int64_t sizes[3]; /* mel bins, positions, places that become a row */
    *r = (ears_rules){ 0 };
    if (!ears_rules_known(&r->kind, model, mmproj)) return err_set(e, ERR_ARG, "the model has no ears");
    if (r->kind == EARS_VOXTRAL)
        read_voxtral(model, mmproj, sizes);
    else
        read_gemma4(model, mmproj, sizes);
    if (sizes[0] < 1 || sizes[0] > 257 || sizes[1] < 2 || sizes[1] > MAX_POSITIONS || sizes[2] < 1 ||
        sizes[1] % sizes[2])
        return err_set(e, ERR_FORMAT, "%s: %lld mel bins, %lld positions, %lld of them a row do not fit each other",
                       model_file_path(mmproj ? mmproj : model), (long long)sizes[0], (long long)sizes[1],
                       (long long)sizes[2]);
    r->mels = (int)sizes[0];
    r->positions = (int)sizes[1];
    r->stack = (int)sizes[2];
    return mmproj ? 0 : check_files(r, model, e);
}

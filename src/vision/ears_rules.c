/* SPDX-License-Identifier: Apache-2.0 */
/* How sounds are prepared: config.json and preprocessor_config.json of a directory, clip.audio.* of an mmproj file. */
#include "base/arena.h"
#include "base/file.h"
#include "vision/ears_impl.h"

#include <stdlib.h>

enum { MAX_BINS = 257, MAX_SAMPLES = 1 << 14, MAX_POSITIONS = 1 << 16, MAX_PREPROCESSOR = 1 << 20 };

static const ears_family *const families[] = { &ears_whisper,       &ears_voxtral,   &ears_qwen2_audio,
                                               &ears_flamingo,      &ears_music,     &ears_glmasr,
                                               &ears_ultravox,      &ears_qwen_omni, &ears_qwen3_asr,
                                               &ears_qwen3_omni,    &ears_gemma3n,   &ears_gemma4,
                                               &ears_gemma4_samples };

static bool is_one_of(const char *const *list, view text) {
    for (; *list; list++) {
        if (view_eq_c(text, *list)) return true;
    }
    return false;
}

static bool names_projector(const ears_family *f, const model_file *mmproj, const char *key) {
    view v;
    return meta_string(model_file_meta(mmproj, key), &v) && is_one_of(f->projectors, v);
}

static bool fits(const ears_family *f, const model_file *model, const model_file *mmproj) {
    if (mmproj)
        return !(f->alone && model_file_meta(mmproj, "clip.vision.projector_type")) &&
               (names_projector(f, mmproj, "clip.projector_type") ||
                names_projector(f, mmproj, "clip.audio.projector_type"));
    const char *type = json_cstr(json_get(model_file_config(model), "model_type"));
    return type && is_one_of(f->types, view_of(type)) &&
           (f->flat || json_is(json_get(source_outer(model), "audio_config"), JSON_K_OBJECT));
}

const ears_family *ears_family_find(const model_file *model, const model_file *mmproj) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (fits(families[i], model, mmproj)) return families[i];
    }
    return NULL;
}

const char *ears_type_at(size_t i) {
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        for (const char *const *type = families[f]->types; *type; type++) {
            if (i-- == 0) return *type;
        }
    }
    return NULL;
}

int64_t ears_meta(const model_file *f, const char *key) {
    int64_t x = -1;
    (void)meta_int(model_file_meta(f, key), &x);
    return x;
}

int64_t ears_number(const json_value *v, const char *key, int64_t dflt) {
    int64_t x = dflt;
    (void)json_int(json_get(v, key), &x);
    return x;
}

/* --- what preprocessor_config.json says --- */

/* Spectrograms are made in the families' ways (mel.h); a directory that asks for another is refused. A list is no
 * number. */
static int check_field(const json_value *v, const char *name, double is, err *e) {
    const json_value *at = json_get(v, name);
    double            x = is;
    if (json_is(at, JSON_K_BOOL)) x = json_bool(at, false) ? 1 : 0;
    (void)json_number(at, &x);
    if (json_is(at, JSON_K_ARRAY)) x = -1;
    return x == is ? 0 : err_set(e, ERR_UNSUPPORTED, "%s is %g; %g is supported", name, x, is);
}

static int check_front(const ears_rules *r, const ears_family *f, const json_value *v, err *e) {
    int rc = check_field(v, "feature_size", r->mels, e);
    for (size_t i = 0; rc == 0 && i < f->n_front; i++) rc = check_field(v, f->front[i].name, f->front[i].is, e);
    return rc;
}

/* Of both files, and of an object inside them where they have one: newer files have all processors in one. */
static int check_files(const ears_rules *r, const ears_family *f, const model_file *model, err *e) {
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
        if (rc == 0) rc = check_front(r, f, inner ? inner : v, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
        arena_deinit(&mem);
        free(text);
        free(path);
    }
    return rc;
}

/* --- sizes --- */

int ears_rules_read(ears_rules *r, const ears_family *f, const model_file *model, const model_file *mmproj, err *e) {
    *r = (ears_rules){ 0 };
    f->read(r, mmproj ? NULL : source_outer(model), mmproj);
    if (r->mels < 1 || r->mels > (f->spectrum ? MAX_BINS : MAX_SAMPLES) || r->positions < 2 ||
        r->positions > MAX_POSITIONS || r->stack < 1 || (r->positions % r->stack && !f->ragged))
        return err_set(e, ERR_FORMAT, "%s: %d mel bins, %d positions, %d of them a row do not fit each other",
                       model_file_path(mmproj ? mmproj : model), r->mels, r->positions, r->stack);
    if (f->most && r->positions > f->most)
        return err_set(e, ERR_LIMIT, "%s: pieces of %d positions; up to %d are supported",
                       model_file_path(mmproj ? mmproj : model), r->positions, f->most);
    return mmproj ? 0 : check_files(r, f, model, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How pictures are prepared: preprocessor_config.json of a directory, clip.vision.* of an mmproj file, ARCH.vision.* of a GGUF
 * file that has the tower inside (Ollama's), and what the family does where they are silent. */
#include "base/file.h"
#include "vision/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PREPROCESSOR = 1 << 20 };

/* PIL's numbers of filters. */
enum { PIL_LANCZOS = 1, PIL_BILINEAR = 2, PIL_BICUBIC = 3 };

static bool text_is(view v, const char *text) { return text && view_eq_c(v, text); }

static bool shows(const model_file *f, const char *what) {
    view text;
    if (!what) return true;
    if (!meta_string(model_file_meta(f, "tokenizer.chat_template"), &text)) return false;
    size_t n = strlen(what);
    for (size_t i = 0; i + n <= text.len; i++) {
        if (memcmp(text.data + i, what, n) == 0) return true;
    }
    return false;
}

static bool fits(const vision_source *s, const vision_family *f, const vision_kin *k) {
    view type = { "", 0 };
    if (source_inside(s)) return k->inside && strcmp(model_file_arch(s->model), k->inside) == 0;
    if (s->mmproj) {
        const meta_value *m = model_file_meta(s->mmproj, "clip.projector_type");
        if (!m) m = model_file_meta(s->mmproj, "clip.vision.projector_type");
        if (!meta_string(m, &type) || !text_is(type, k->projector) || !shows(s->model, f->shows)) return false;
        /* Files of LLaVA 1.5 and of its successors say the same. */
        return !text_is(type, "mlp") || (f->arrange != NULL) == (source_meta(s, "image_grid_pinpoints") != NULL);
    }
    const char *outer = json_cstr(json_get(s->config, "model_type")),
               *inner = json_cstr(json_get(s->vision, "model_type"));
    if (!outer) outer = json_cstr(json_get(model_file_config(s->model), "model_type"));
    if (!outer || !s->vision || strcmp(outer, k->type) != 0) return false;
    return !k->tower || !inner || strcmp(inner, k->tower) == 0;
}

static const vision_kin *find_kin(const vision_source *s, vision_kind *kind) {
    for (int i = 0; i < VISION_KINDS; i++) {
        for (const vision_kin *k = vision_families[i]->kin; k->type; k++) {
            *kind = (vision_kind)i;
            if (fits(s, vision_families[i], k)) return k;
        }
    }
    return NULL;
}

static int read_preprocessor(vision_source *s, err *e) {
    static const char *const names[] = { "preprocessor_config.json", "processor_config.json" };
    for (size_t i = 0; i < 2 && !s->pre; i++) {
        char  *path = model_file_sidecar(s->model, names[i]), *text = NULL;
        size_t n;
        int    rc = 0;
        if (!path) continue;
        if ((rc = file_read(&text, &n, path, MAX_PREPROCESSOR, e)) == 0) rc = json_parse(&s->pre, text, n, &s->mem, e);
        if (rc < 0) err_wrap(e, rc, "%s", path);
        free(text);
        free(path);
        if (rc < 0) return rc;
        const json_value *inner = json_get(s->pre, "image_processor");
        if (inner) s->pre = inner;
    }
    return 0;
}

/* A number stands for all three. */
static int read_reals(const vision_source *s, const char *name, float out[3], err *e) {
    const json_value *own = json_get(s->pre, name);
    for (size_t i = 0; i < 3; i++) {
        double x = (double)out[i];
        if (s->mmproj)
            (void)meta_at_real(source_meta(s, name), i, &x);
        else if (!json_number(own, &x))
            (void)json_number(json_at(own, i), &x);
        if (!(fabs(x) <= 255)) return err_set(e, ERR_FORMAT, "%s: %g is not a colour", name, x);
        out[i] = (float)x;
    }
    return 0;
}

static int read_filter(const vision_source *s, pixels_filter *out, err *e) {
    int64_t x = 0;
    if (s->mmproj || !json_int(json_get(s->pre, "resample"), &x)) return 0;
    if (x != PIL_LANCZOS && x != PIL_BILINEAR && x != PIL_BICUBIC)
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: resample %lld is not known", (long long)x);
    *out = x == PIL_LANCZOS ? PIXELS_LANCZOS : x == PIL_BILINEAR ? PIXELS_BILINEAR : PIXELS_BICUBIC;
    return 0;
}

static int read_colours(vision_rules *r, const vision_source *s, const vision_family *f, err *e) {
    bool silent = f->silent && s->pre;
    if (silent) memcpy(r->mean, f->silent->mean, sizeof r->mean);
    if (silent) memcpy(r->std, f->silent->std, sizeof r->std);
    int rc = read_reals(s, "image_mean", r->mean, e);
    if (rc == 0) rc = read_reals(s, "image_std", r->std, e);
    for (int i = 0; i < 3 && rc == 0; i++) {
        if (!(r->std[i] > 0)) return err_set(e, ERR_FORMAT, "image_std: %g is not a deviation", (double)r->std[i]);
    }
    return rc;
}

void vision_mean_colour(uint8_t out[3], const vision_rules *r) {
    for (int i = 0; i < 3; i++) out[i] = (uint8_t)fminf(fmaxf(r->mean[i] * 255, 0), 255);
}

static int refuse_switch(const char *field, const char *is, err *e) {
    return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: %s is %s, which is not supported", field, is);
}

/* Gemma 4 scales colours in its tower, and its processor leaves them as they are. */
static int check_left_alone(const vision_source *s, err *e) {
    vision_rules r = { .std = { 1, 1, 1 } };
    int          rc = read_reals(s, "image_mean", r.mean, e);
    if (rc == 0) rc = read_reals(s, "image_std", r.std, e);
    for (int i = 0; i < 3 && rc == 0; i++) {
        if (r.mean[i] != 0 || r.std[i] != 1) rc = refuse_switch("do_normalize", "true", e);
    }
    return rc;
}

/* What a processor can be told not to do. Without do_normalize colours go from 0 to 1. */
static int read_switches(vision_rules *r, const vision_source *s, const vision_family *f, err *e) {
    double factor = 1.0 / 255;
    if (s->mmproj || f->no_switches) return 0;
    if (r->kind == VISION_KIMI_K25 && json_get(s->pre, "media_proc_cfg")) return 0; /* the authors' form */
    (void)json_number(json_get(s->pre, "rescale_factor"), &factor);
    if (!source_switch(s, "do_rescale", true)) return refuse_switch("do_rescale", "false", e);
    if (!(fabs(factor * 255 - 1) < 1e-3))
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: rescale_factor is %g; 1/255 is supported",
                       factor);
    if (!source_switch(s, "do_resize", true) && !f->resizes && !(f->fixed_tiles && r->split))
        return refuse_switch("do_resize", "false", e);
    if (f->own_colours) return source_switch(s, "do_normalize", false) ? check_left_alone(s, e) : 0;
    if (source_switch(s, "do_normalize", true)) return 0;
    if (f->short_colours) return refuse_switch("do_normalize", "false", e);
    memcpy(r->mean, vision_colours_none.mean, sizeof r->mean);
    memcpy(r->std, vision_colours_none.std, sizeof r->std);
    return 0;
}

/* What the numbers of all families together come to. */
static int check_sizes(const vision_rules *r, err *e) {
    const vision_family *f = vision_families[r->kind];
    if (r->merge < 1 || r->merge > VISION_MOST_MERGE || r->inner < 0 || r->inner > r->merge)
        return err_set(e, ERR_LIMIT, "squares of %d x %d patches; up to %d x %d are supported", r->merge, r->merge,
                       VISION_MOST_MERGE, VISION_MOST_MERGE);
    int64_t patches = plan_most_patches(r), tiles = f->most_tiles ? f->most_tiles(r) : 1;
    if (patches < 1 || patches > VISION_MOST_PATCHES)
        return err_set(e, ERR_LIMIT, "tiles of up to %lld patches of %d pixels; up to %d are supported",
                       (long long)patches, r->patch, VISION_MOST_PATCHES);
    int64_t area = patches * r->patch * r->patch;
    if (area > VISION_MOST_PIXELS)
        return err_set(e, ERR_LIMIT, "tiles of up to %lld patches of %d pixels, %lld pixels; up to %d are supported",
                       (long long)patches, r->patch, (long long)area, VISION_MOST_PIXELS);
    if (tiles > VISION_LIMIT_TILES)
        return err_set(e, ERR_LIMIT, "pictures of up to %lld tiles; up to %d are supported", (long long)tiles,
                       VISION_LIMIT_TILES);
    return 0;
}

int vision_check_squares(const vision_rules *r, err *e) {
    if (r->patch <= 0 || r->merge <= 0 || r->side <= 0 || r->side / r->patch % r->merge || r->side < r->patch)
        return err_set(e, ERR_FORMAT, "pictures of %d pixels, patches of %d, squares of %d do not fit each other",
                       r->side, r->patch, r->merge);
    return 0;
}

bool vision_known(const model_file *model, const model_file *mmproj) {
    vision_rules r;
    bool         known;
    return rules_read(&r, model, mmproj, &known, NULL) == 0 && known;
}

const char *vision_type_at(size_t i) {
    for (int f = 0; f < VISION_KINDS; f++) {
        for (const vision_kin *k = vision_families[f]->kin; k->type; k++) {
            if (i-- == 0) return k->type;
        }
    }
    return NULL;
}

bool rules_inside(const model_file *model, char prefix[64]) {
    char        key[96];
    const char *arch = model_file_config(model) ? NULL : model_file_arch(model);
    if (!arch || strlen(arch) > 32) return false;
    snprintf(prefix, 64, "%s.vision.", arch);
    snprintf(key, sizeof key, "%sblock_count", prefix);
    return model_file_meta(model, key) && model_file_tensor(model, "v.blk.0.attn_q.weight");
}

int rules_read(vision_rules *r, const model_file *model, const model_file *mmproj, bool *known, err *e) {
    vision_source s = { .model = model, .mmproj = mmproj, .prefix = "clip.vision." };
    int           rc = 0;
    if (!mmproj && rules_inside(model, s.prefix)) s.mmproj = mmproj = model;
    s.config = mmproj ? NULL : source_outer(model);
    s.vision = json_get(s.config, "vision_config");
    memset(r, 0, sizeof *r); /* padding too: it is hashed */
    const vision_kin *kin = find_kin(&s, &r->kind);
    *known = kin != NULL;
    if (!kin) return 0;
    const vision_family *f = vision_families[r->kind];
    r->filter = kin->filter;
    memcpy(r->mean, kin->colours->mean, sizeof r->mean);
    memcpy(r->std, kin->colours->std, sizeof r->std);
    arena_init(&s.mem, 0);
    if (!mmproj) rc = read_preprocessor(&s, e);
    if (rc == 0) rc = read_filter(&s, &r->filter, e);
    if (rc == 0 && !f->own_colours) rc = read_colours(r, &s, f, e);
    if (rc == 0) {
        r->side = source_number(&s, "image_size", json_get(s.vision, "image_size"), -1);
        r->patch = source_number(&s, "patch_size", json_get(s.vision, "patch_size"), -1);
        rc = f->read(r, &s, e);
    }
    if (rc == 0) rc = read_switches(r, &s, f, e);
    if (rc == 0) rc = check_sizes(r, e);
    arena_deinit(&s.mem);
    return rc;
}

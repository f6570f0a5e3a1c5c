/* SPDX-License-Identifier: Apache-2.0 */
/* How pictures are prepared: preprocessor_config.json of a directory, clip.vision.* of an mmproj file, ARCH.vision.* of a GGUF
 * file that has the tower inside (Ollama's), and what the family does where they are silent. */
#include "base/arena.h"
#include "base/file.h"
#include "vision/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PREPROCESSOR = 1 << 20, MAX_SIDE = 16384 };

/* More of a picture would take minutes to look at: pictures are made smaller. Files may allow four times as many. */
enum { MOST_ROWS = 4096 };

/* PIL's numbers of filters. */
enum { PIL_LANCZOS = 1, PIL_BILINEAR = 2, PIL_BICUBIC = 3 };

typedef struct source {
    const model_file *model, *mmproj;        /* mmproj: the GGUF file with the tower, the model's own too */
    char              prefix[64];            /* of the tower's keys there, with a point behind it */
    const json_value *config, *vision, *pre; /* of a directory */
    arena             mem;
} source;

/* How colours are scaled where preprocessor_config.json does not say it. */
typedef struct colours {
    float mean[3], std[3];
} colours;
static const colours half = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
static const colours clip = { { 0.48145466f, 0.4578275f, 0.40821073f }, { 0.26862954f, 0.26130258f, 0.27577711f } };

static const struct {
    const char    *type, *projector; /* model_type with the vision_config's, and the mmproj's projector type */
    const char    *inside;           /* architecture of GGUF files that have such a tower inside; NULL: none */
    const char    *tower;            /* NULL: any */
    vision_kind    kind;
    pixels_filter  filter;
    const colours *colours;
} kinds[] = {
    { "gemma3", "gemma3", "gemma3", NULL, VISION_GEMMA3, PIXELS_BILINEAR, &half },
    { "llava", "mlp", NULL, "clip_vision_model", VISION_LLAVA, PIXELS_BICUBIC, &clip },
    { "llava", "pixtral", NULL, "pixtral", VISION_PIXTRAL, PIXELS_BICUBIC, &clip },
    { "mistral3", "pixtral", "mistral3", "pixtral", VISION_PIXTRAL, PIXELS_BICUBIC, &clip },
    { "idefics3", "idefics3", NULL, NULL, VISION_IDEFICS3, PIXELS_LANCZOS, &half },
    { "smolvlm", "idefics3", NULL, NULL, VISION_IDEFICS3, PIXELS_LANCZOS, &half },
    { "qwen2_vl", "qwen2vl_merger", NULL, NULL, VISION_QWEN2, PIXELS_BICUBIC, &clip },
    { "qwen2_5_vl", "qwen2.5vl_merger", "qwen25vl", NULL, VISION_QWEN2_5, PIXELS_BICUBIC, &clip },
    { "qwen3_vl", "qwen3vl_merger", "qwen3vl", NULL, VISION_QWEN3, PIXELS_BICUBIC, &half },
    { "qwen3_vl_moe", "qwen3vl_merger", "qwen3vlmoe", NULL, VISION_QWEN3, PIXELS_BICUBIC, &half },
    { "qwen3_5", "qwen3vl_merger", "qwen35", NULL, VISION_QWEN3, PIXELS_BICUBIC, &half },
    { "qwen3_5_moe", "qwen3vl_merger", "qwen35moe", NULL, VISION_QWEN3, PIXELS_BICUBIC, &half },
    { "gemma4", "gemma4v", "gemma4", NULL, VISION_GEMMA4, PIXELS_BICUBIC, &half },
};

static bool text_is(view v, const char *text) { return text && view_eq_c(v, text); }

static bool fits(const source *s, size_t i) {
    view type = { "", 0 };
    if (s->mmproj == s->model) return kinds[i].inside && strcmp(model_file_arch(s->model), kinds[i].inside) == 0;
    if (s->mmproj) {
        const meta_value *m = model_file_meta(s->mmproj, "clip.projector_type");
        if (!m) m = model_file_meta(s->mmproj, "clip.vision.projector_type");
        return meta_string(m, &type) && text_is(type, kinds[i].projector);
    }
    const char *outer = json_cstr(json_get(s->config, "model_type")),
               *inner = json_cstr(json_get(s->vision, "model_type"));
    if (!outer || !s->vision || strcmp(outer, kinds[i].type) != 0) return false;
    return !kinds[i].tower || !inner || strcmp(inner, kinds[i].tower) == 0;
}

static int read_preprocessor(source *s, err *e) {
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

/* A number of the mmproj, or of the files of a directory; dflt where neither says it. */
static int number(const source *s, const char *meta, const json_value *v, int dflt) {
    char    key[96];
    int64_t x = dflt;
    if (s->mmproj && meta) {
        strcpy(key, s->prefix);
        strncat(key, meta, sizeof key - strlen(key) - 1);
        (void)meta_int(model_file_meta(s->mmproj, key), &x);
    } else if (!s->mmproj) {
        (void)json_int(v, &x);
    }
    return x > 0 && x <= MAX_SIDE ? (int)x : -1;
}

/* A number beside the tower's in a file with the tower inside. */
static bool outer_number(const source *s, const char *key, int *out) {
    int64_t x;
    if (!meta_int(model_file_meta(s->model, key), &x) || x < 1 || x > MAX_SIDE) return false;
    *out = (int)x;
    return true;
}

static const json_value *size_of(const source *s, const char *field, const char *side) {
    const json_value *size = json_get(s->pre, field);
    return json_is(size, JSON_K_OBJECT) ? json_get(size, side) : size;
}

static const meta_value *tower_meta(const source *s, const char *name) {
    char key[128];
    snprintf(key, sizeof key, "%s%s", s->prefix, name);
    return model_file_meta(s->mmproj, key);
}

static void read_reals(const source *s, const char *meta, const char *hf, float out[3]) {
    for (size_t i = 0; i < 3; i++) {
        double x = (double)out[i];
        if (s->mmproj)
            (void)meta_at_real(tower_meta(s, meta), i, &x);
        else
            (void)json_number(json_at(json_get(s->pre, hf), i), &x);
        out[i] = (float)x;
    }
}

static int read_filter(const source *s, pixels_filter *out, err *e) {
    int64_t x = 0;
    if (s->mmproj || !json_int(json_get(s->pre, "resample"), &x)) return 0;
    if (x != PIL_LANCZOS && x != PIL_BILINEAR && x != PIL_BICUBIC)
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: resample %lld is not known", (long long)x);
    *out = x == PIL_LANCZOS ? PIXELS_LANCZOS : x == PIL_BILINEAR ? PIXELS_BILINEAR : PIXELS_BICUBIC;
    return 0;
}

static bool switched(const source *s, const char *field, bool dflt) {
    return s->mmproj ? dflt : json_bool(json_get(s->pre, field), dflt);
}

/* Pixels of a picture, between the family's and the file's limits. */
static int area(const source *s, const char *key, const char *field, const char *edge, int dflt) {
    int64_t x = dflt, other;
    if (s->mmproj && meta_int(tower_meta(s, edge), &other) && other > 0) x = other; /* Ollama's name; 0: it knew none */
    if (s->mmproj)
        (void)meta_int(tower_meta(s, key), &x);
    else if (!json_int(json_get(s->pre, field), &x))
        (void)json_int(json_get(json_get(s->pre, "size"), edge), &x);
    return x > 0 && x <= INT32_MAX ? (int)x : -1;
}

static int read_qwen(vision_rules *r, const source *s, err *e) {
    bool second = r->kind == VISION_QWEN2_5, old = second || r->kind == VISION_QWEN2;
    if (r->patch < 0) r->patch = old ? 14 : 16;
    r->merge = number(s, "spatial_merge_size", json_get(s->vision, "spatial_merge_size"), 2);
    r->least = area(s, "image_min_pixels", "min_pixels", "shortest_edge", old ? 3136 : 65536);
    r->most = area(s, "image_max_pixels", "max_pixels", "longest_edge", old ? 12845056 : 16777216);
    int square = r->patch * r->merge;
    if (r->patch < 1 || r->patch > 256 || r->merge < 1 || r->merge > 16 || r->least < 1 || r->most < square * square ||
        r->least > r->most)
        return err_set(e, ERR_FORMAT, "pictures of %d to %d pixels, patches of %d, squares of %d do not fit each other",
                       r->least, r->most, r->patch, r->merge);
    if (r->most > MOST_ROWS * square * square) r->most = MOST_ROWS * square * square;
    if (r->least > r->most) r->least = r->most;
    if (second) r->window = number(s, "window_size", json_get(s->vision, "window_size"), 112) / square;
    if (second && r->window < 1) return err_set(e, ERR_FORMAT, "window_size is smaller than %d", square);
    r->side = square;
    return 0;
}

/* Whether a picture's rows see each other is a matter of the language model. GGUF does not say it; the smaller models, which
 * have inputs per layer, are without. */
static bool sees_whole(const source *s) {
    int64_t per_layer = 0;
    if (!model_file_config(s->model)) {
        (void)meta_int(model_file_meta(s->model, "gemma4.embedding_length_per_layer_input"), &per_layer);
        return per_layer == 0;
    }
    const char *text =
        json_cstr(json_get(json_get(model_file_config(s->model), "text_config"), "use_bidirectional_attention"));
    return text && strcmp(text, "vision") == 0;
}

static int read_gemma4(vision_rules *r, const source *s, err *e) {
    r->merge = number(s, "projector.scale_factor",
                      json_get(s->pre, "pooling_kernel_size") ? json_get(s->pre, "pooling_kernel_size")
                                                              : json_get(s->vision, "pooling_kernel_size"),
                      3);
    r->most = number(s, NULL, json_get(s->pre, "max_soft_tokens"), 280);
    r->whole = sees_whole(s);
    r->side = r->patch * r->merge;
    if (r->patch < 1 || r->patch > 256 || r->merge < 1 || r->merge > 16 || r->most < 1 || r->most > MOST_ROWS)
        return err_set(e, ERR_FORMAT, "pictures of %d rows, patches of %d, squares of %d do not fit each other",
                       r->most, r->patch, r->merge);
    return 0;
}

static int up_to(int x, int step) { return (x + step - 1) / step * step; }

/* Patches on a side of the square that makes one of `rows` rows. */
static int merge_for(int across, int64_t rows) {
    int side = 1;
    while ((int64_t)(side + 1) * (side + 1) <= rows && side < MAX_SIDE) side++;
    return across / side;
}

static int read_sizes(vision_rules *r, const source *s, err *e) {
    int image = number(s, "image_size", json_get(s->vision, "image_size"), -1);
    r->patch = number(s, "patch_size", json_get(s->vision, "patch_size"), -1);
    switch (r->kind) {
    case VISION_GEMMA3: {
        int tokens = number(s, NULL, json_get(s->config, "mm_tokens_per_image"), 256);
        r->side = image;
        r->merge = r->patch > 0 ? merge_for(image / r->patch, tokens) : -1;
        if (s->mmproj == s->model) {
            (void)outer_number(s, "gemma3.mm.tokens_per_image", &tokens);
            r->merge = merge_for(r->patch > 0 ? image / r->patch : 0, tokens);
        } else if (s->mmproj) {
            r->merge = number(s, "projector.scale_factor", NULL, 4);
        }
        r->whole = true;
        if (switched(s, "do_pan_and_scan", false))
            return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: do_pan_and_scan is not supported");
        break;
    }
    case VISION_LLAVA:
        r->merge = 1;
        r->side = number(s, "image_size", size_of(s, "size", "shortest_edge"), image);
        r->crop = image;
        break;
    case VISION_IDEFICS3:
        r->merge = number(s, "projector.scale_factor", json_get(s->config, "scale_factor"), 4);
        r->side = number(s, "image_size", size_of(s, "max_image_size", "longest_edge"), image);
        r->edge = number(s, "preproc_image_size", size_of(s, "size", "longest_edge"), 4 * image);
        r->split = switched(s, "do_image_splitting", true);
        if (r->side != image)
            return err_set(e, ERR_UNSUPPORTED, "tiles of %d pixels for a tower of %d", r->side, image);
        break;
    case VISION_QWEN2:
    case VISION_QWEN2_5:
    case VISION_QWEN3: return read_qwen(r, s, e);
    case VISION_GEMMA4: return read_gemma4(r, s, e);
    case VISION_PIXTRAL:
        r->merge = number(s, "spatial_merge_size", json_get(s->config, "spatial_merge_size"), 1);
        if (s->mmproj == s->model) (void)outer_number(s, "mistral3.spatial_merge_size", &r->merge);
        r->edge = number(s, "image_size", size_of(s, "size", "longest_edge"), image);
        if (r->patch > 0 && r->merge > 0 && r->edge > 0) r->side = up_to(r->edge, r->patch * r->merge);
        break;
    }
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

bool rules_inside(const model_file *model, char prefix[64]) {
    char        key[96];
    const char *arch = model_file_config(model) ? NULL : model_file_arch(model);
    if (!arch || strlen(arch) > 32) return false;
    snprintf(prefix, 64, "%s.vision.", arch);
    snprintf(key, sizeof key, "%sblock_count", prefix);
    return model_file_meta(model, key) && model_file_tensor(model, "v.blk.0.attn_q.weight");
}

int rules_read(vision_rules *r, const model_file *model, const model_file *mmproj, bool *known, err *e) {
    source s = { .model = model, .mmproj = mmproj, .prefix = "clip.vision." };
    int    rc = 0;
    if (!mmproj && rules_inside(model, s.prefix)) s.mmproj = mmproj = model;
    s.config = mmproj ? NULL : model_file_config(model);
    *known = false;
    memset(r, 0, sizeof *r); /* padding too: it is hashed */
    s.vision = json_get(s.config, "vision_config");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !*known; i++) {
        if (!fits(&s, i)) continue;
        *known = true;
        r->kind = kinds[i].kind;
        r->filter = kinds[i].filter;
        memcpy(r->mean, kinds[i].colours->mean, sizeof r->mean);
        memcpy(r->std, kinds[i].colours->std, sizeof r->std);
    }
    if (!*known) return 0;
    arena_init(&s.mem, 0);
    if (!mmproj) rc = read_preprocessor(&s, e);
    if (rc == 0) rc = read_filter(&s, &r->filter, e);
    if (rc == 0) rc = read_sizes(r, &s, e);
    if (r->kind != VISION_GEMMA4) { /* which takes -1 to 1, whatever its files say */
        read_reals(&s, "image_mean", "image_mean", r->mean);
        read_reals(&s, "image_std", "image_std", r->std);
    }
    for (int i = 0; i < 3 && rc == 0; i++) {
        if (!(r->std[i] > 0)) rc = err_set(e, ERR_FORMAT, "image_std: %g is not a deviation", (double)r->std[i]);
    }
    arena_deinit(&s.mem);
    return rc;
}

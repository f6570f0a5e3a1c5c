/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"
#include "models/list.h"
#include "vision/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows that are kept, unless somebody says otherwise: so many of the largest pictures, but not more than this. */
enum { KEPT_PICTURES = 64 };
#define MOST_KEPT ((size_t)256 << 20)

static const struct {
    const nn_arch *tower, *projector;
} archs[] = {
    [VISION_GEMMA3] = { &models_siglip, &models_projector_gemma3 },
    [VISION_LLAVA] = { &models_clip, &models_projector_llava },
    [VISION_IDEFICS3] = { &models_siglip, &models_projector_idefics3 },
    [VISION_PIXTRAL] = { &models_pixtral_tower, &models_projector_mistral3 },
    [VISION_QWEN2] = { &models_qwen2_vl_tower, &models_projector_qwen2_vl },
    [VISION_QWEN2_5] = { &models_qwen2_5_vl_tower, &models_projector_qwen2_5_vl },
    [VISION_QWEN3] = { &models_qwen3_vl_tower, &models_projector_qwen3_vl },
    [VISION_GEMMA4] = { &models_gemma4_tower, &models_projector_gemma4 },
};

/* config.json of some Qwen 2.5 VL says no more than where it differs from this. */
static const nn_config_set usual_qwen2_5[] = { { "block_count", 32, true },
                                               { "embedding_length", 1280, true },
                                               { "feed_forward_length", 3420, true },
                                               { "attention.head_count", 16, true },
                                               { "projection_dim", 3584, true } };

/* Which tower: the names, types and sizes of the file's tensors, and the first bytes of each. */
void tower_identify(uint8_t out[VISION_KEY_BYTES], const model_file *f) {
    uint8_t digest[SHA256_BYTES];
    sha256  s;
    sha256_init(&s);
    for (size_t i = 0; i < model_file_tensor_count(f); i++) {
        const model_tensor *t = model_file_tensor_at(f, i);
        sha256_feed(&s, t->name, strlen(t->name));
        sha256_feed(&s, &t->type, sizeof t->type);
        sha256_feed(&s, t->dims, sizeof t->dims);
        sha256_feed(&s, t->data, t->bytes < 64 ? t->bytes : 64);
    }
    sha256_finish(&s, digest);
    memcpy(out, digest, VISION_KEY_BYTES);
}

/* What the tower and the projector are built from, and how many rows they take. */
typedef struct stages {
    nn_part       tower, projector;
    nn_config_set renamed[5]; /* QWEN2; of a tower inside: what its file does not say, or says elsewhere */
    nn_config_set pooled[6];  /* the same and how many patches a row of the projector is the mean of */
    char          keys[64];
    int           patches, squares;
} stages;

/* config.json of Qwen 2 VL calls the tower's width embed_dim, and the language model's hidden_size. */
static void rename_qwen2(stages *s, nn_part *base) {
    static const char *const names[2][2] = { { "embedding_length", "embed_dim" }, { "projection_dim", "hidden_size" } };
    for (size_t i = 0; i < 2; i++) {
        double x = 0;
        (void)json_number(json_get(base->config, names[i][1]), &x);
        s->renamed[i] = (nn_config_set){ names[i][0], x, false };
    }
    base->usual = s->renamed;
    base->n_usual = 2;
}

/* Rows of the first of two matrices that is there; 0: neither is. */
static double matrix_rows(const model_file *model, const char *name, const char *other) {
    const model_tensor *t = model_file_tensor(model, name);
    if (!t) t = model_file_tensor(model, other);
    return t && t->n_dims == 2 ? (double)t->dims[1] : 0;
}

/* What a file with the tower inside leaves to its matrices, and where Mistral 3 differs from an mmproj file: the halves of a
 * head's pairs lie apart. Returns how many there are. */
static size_t complete_inside(nn_config_set set[5], const vision_rules *r, const model_file *model, int width) {
    size_t n = 0;
    double ff = matrix_rows(model, "v.blk.0.ffn_up.weight", "v.blk.0.mlp.linear_fc1.weight");
    double places = matrix_rows(model, "v.position_embd.weight", "v.pos_embed.weight");
    double out = r->kind == VISION_QWEN3 ? matrix_rows(model, "mm.2.weight", "v.merger.linear_fc2.weight") : 0;
    set[n++] = (nn_config_set){ "projection_dim", out > 0 ? out : width, false }; /* QWEN3: taps come on top */
    if (ff > 0) set[n++] = (nn_config_set){ "feed_forward_length", ff, true };
    if (r->kind == VISION_QWEN3 && places > 0)
        set[n++] = (nn_config_set){ "image_size", sqrt(places) * r->patch, true };
    if (r->kind == VISION_PIXTRAL) {
        set[n++] = (nn_config_set){ "spatial_merge_size", r->merge, false };
        set[n++] = (nn_config_set){ "rope.halves", 1, false };
    }
    return n;
}

static void find_stages(stages *s, const vision_rules *r, const model_file *model, const model_file *mmproj,
                        int width) {
    const json_value *config = mmproj ? NULL : model_file_config(model);
    nn_part           base = { .config = json_get(config, "vision_config"), .outer = config, .keys = "clip.vision" };
    if (!mmproj && rules_inside(model, s->keys)) {
        s->keys[strlen(s->keys) - 1] = '\0'; /* the point */
        base.keys = s->keys;
        base.usual = s->renamed;
        base.n_usual = complete_inside(s->renamed, r, model, width);
    } else if (!mmproj && r->kind == VISION_QWEN2) {
        rename_qwen2(s, &base);
    } else if (!mmproj && r->kind == VISION_QWEN2_5) {
        base.usual = usual_qwen2_5;
        base.n_usual = sizeof usual_qwen2_5 / sizeof *usual_qwen2_5;
    }
    s->tower = s->projector = base;
    s->tower.arch = archs[r->kind].tower;
    s->projector.arch = archs[r->kind].projector;
    if (r->kind == VISION_PIXTRAL && r->merge == 1) s->projector.arch = &models_projector_llava;
    if (r->kind == VISION_GEMMA3 || r->kind == VISION_GEMMA4) {
        for (size_t i = 0; i < base.n_usual; i++) s->pooled[i] = base.usual[i];
        s->pooled[base.n_usual] = (nn_config_set){ "pooled", r->merge * r->merge, false };
        s->projector.usual = s->pooled;
        s->projector.n_usual = base.n_usual + 1;
    }
    s->patches = plan_most_patches(r) + 1;
    s->squares = plan_most_patches(r) / (r->merge * r->merge);
}

static size_t kept_bytes(const vision_rules *r, int squares, int width, const vision_options *o) {
    size_t side = r->split && r->side > 0 ? (size_t)(r->edge / r->side + 1) : 0;
    size_t picture = (side * side + 1) * (size_t)squares * (size_t)width * sizeof(float), most = MOST_KEPT;
    if (o->cache_bytes) return o->cache_bytes;
    return picture < most / KEPT_PICTURES ? picture * KEPT_PICTURES : most;
}

static int open_stages(vision *v, const model_file *f, const stages *s, int width, const vision_options *o, err *e) {
    const vision_rules *r = &v->rules;
    int                 together = r->merge * r->merge;
    int                 rc = pool_open(&v->workers, o->n_threads ? o->n_threads : pool_default_threads(), false, e);
    if (rc == 0) rc = stage_open(&v->tower, f, &s->tower, s->patches, o, e);
    if (rc == 0) rc = stage_open(&v->projector, f, &s->projector, s->squares, o, e);
    if (rc < 0) return rc;
    const nn_tower_dims *d = v->tower.model->net.hp;
    if (d->patch != r->patch || v->tower.width_out * together != v->projector.width_in)
        return err_set(e, ERR_FORMAT, "%s: tower and projector do not fit each other", model_file_path(f));
    if (v->projector.width_out != width)
        return err_set(e, ERR_ARG, "%s makes rows of %d for a language model of %d: it belongs to another one",
                       model_file_path(f), v->projector.width_out, width);
    return 0;
}

int vision_open(vision **out, const model_file *model, const model_file *mmproj, int width, const vision_options *o,
                err *e) {
    vision_rules rules;
    bool         known;
    int          rc = rules_read(&rules, model, mmproj, &known, e);
    *out = NULL;
    if (rc < 0) return err_wrap(e, rc, "%s", model_file_path(mmproj ? mmproj : model));
    if (!known && mmproj)
        return err_set(e, ERR_UNSUPPORTED, "%s: a projector of this type is not supported", model_file_path(mmproj));
    if (!known) return 0;
    vision *v = calloc(1, sizeof *v);
    if (!v) return err_set_nomem(e);
    memcpy(&v->rules, &rules, sizeof rules); /* padding too: it is hashed */
    stages s;
    find_stages(&s, &rules, model, mmproj, width);
    v->keep.limit_bytes = kept_bytes(&rules, s.squares, width, o);
    rc = open_stages(v, mmproj ? mmproj : model, &s, width, o, e);
    if (rc < 0) {
        vision_free(v);
        return rc;
    }
    tower_identify(v->source, mmproj ? mmproj : model);
    *out = v;
    return 0;
}

int vision_measure(uint64_t *bytes, uint64_t *on_device, const model_file *model, const model_file *mmproj, int width,
                   const vision_options *o, err *e) {
    vision_rules      rules;
    stages            s;
    bool              known;
    uint64_t          tower, projector, there[2] = { 0 };
    const model_file *f = mmproj ? mmproj : model;
    int               rc = rules_read(&rules, model, mmproj, &known, e);
    *bytes = *on_device = 0;
    if (rc < 0 || !known) return rc;
    find_stages(&s, &rules, model, mmproj, width);
    if ((rc = stage_measure(&tower, &there[0], f, &s.tower, s.patches, o, e)) == 0)
        rc = stage_measure(&projector, &there[1], f, &s.projector, s.squares, o, e);
    if (rc < 0) return rc;
    *bytes = tower + projector + kept_bytes(&rules, s.squares, width, o);
    *on_device = there[0] + there[1];
    return 0;
}

void vision_free(vision *v) {
    if (!v) return;
    stage_close(&v->tower);
    stage_close(&v->projector);
    keep_free(&v->keep);
    pool_free(v->workers);
    free(v);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"
#include "formats/identity.h"
#include "vision/family.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Rows that are kept, unless somebody says otherwise: so many of the largest pictures, but not more than this. */
enum { KEPT_PICTURES = 64 };
#define MOST_KEPT ((size_t)256 << 20)

/* Rows outlive the process: their keys stand in the prefix cache on disk. */
int tower_identify(uint8_t out[VISION_KEY_BYTES], const model_file *f, err *e) {
    uint8_t digest[SHA256_BYTES];
    sha256  s;
    sha256_init(&s);
    int rc = model_file_identify(f, &s, e);
    sha256_finish(&s, digest);
    memcpy(out, digest, VISION_KEY_BYTES);
    return rc;
}

double vision_matrix_rows(const model_file *model, const char *name, const char *other) {
    const model_tensor *t = model_file_tensor(model, name);
    if (!t) t = model_file_tensor(model, other);
    return t && t->n_dims == 2 ? (double)t->dims[1] : 0;
}

/* A later value of a key replaces an earlier one. */
void vision_set(vision_parts *p, const char *key, double value, bool fallback) {
    size_t i = 0;
    while (i < p->tower.n_usual && strcmp(p->set[i].key, key) != 0) i++;
    assert(i < VISION_SETS);
    p->set[i] = (nn_config_set){ key, value, fallback };
    if (i == p->tower.n_usual) p->tower.n_usual = p->middle.n_usual = p->projector.n_usual = i + 1;
}

static void find_parts(vision_parts *p, const vision_rules *r, const model_file *model, const model_file *mmproj,
                       int width) {
    const vision_family *f = vision_families[r->kind];
    const json_value    *config = mmproj ? NULL : source_outer(model);
    p->from = mmproj ? mmproj : model;
    p->inside = !mmproj && rules_inside(model, p->keys);
    if (p->inside) p->keys[strlen(p->keys) - 1] = '\0'; /* the point */
    p->tower = (nn_part){ .arch = f->tower,
                          .config = json_get(config, "vision_config"),
                          .outer = config,
                          .keys = p->inside ? p->keys : "clip.vision",
                          .usual = p->set };
    p->projector = p->middle = p->tower;
    p->middle.arch = r->inner || f->windows ? f->middle : NULL;
    p->projector.arch = f->projector;
    if (p->inside) { /* such a file leaves these to its matrices */
        double ff = vision_matrix_rows(model, "v.blk.0.ffn_up.weight", "v.blk.0.mlp.linear_fc1.weight");
        vision_set(p, "projection_dim", width, false);
        if (ff > 0) vision_set(p, "feed_forward_length", ff, true);
    }
    if (f->parts) f->parts(p, r, model);
    int most = (int)plan_most_patches(r); /* rules_read has looked at it */
    p->patches = most + 1;
    p->merged = r->inner ? most / (r->inner * r->inner) : 0;
    p->squares = most / (r->merge * r->merge) + r->queries;
    p->asked = p->squares;
    if (f->windows) {
        p->merged = p->squares;
        p->asked += most;
    }
}

static size_t kept_bytes(const vision_rules *r, int squares, int width, const vision_options *o) {
    const vision_family *f = vision_families[r->kind];
    size_t               tiles = f->most_tiles ? (size_t)f->most_tiles(r) : 1;
    size_t               picture = tiles * (size_t)squares * (size_t)width * sizeof(float), most = MOST_KEPT;
    if (o->cache_bytes) return o->cache_bytes;
    return picture < most / KEPT_PICTURES ? picture * KEPT_PICTURES : most;
}

static int open_stages(vision *v, const model_file *f, const vision_parts *s, int width, const vision_options *o,
                       err *e) {
    const vision_rules *r = &v->rules;
    int                 together = r->inner ? r->inner * r->inner : r->merge * r->merge;
    int                 rc = pool_open(&v->workers, o->n_threads ? o->n_threads : pool_default_threads(), false, e);
    if (rc == 0) rc = stage_open(&v->tower, f, &s->tower, s->patches, o, e);
    if (rc == 0 && s->middle.arch) rc = stage_open(&v->middle, f, &s->middle, s->merged, o, e);
    if (rc == 0) rc = stage_open(&v->projector, f, &s->projector, s->asked, o, e);
    if (rc < 0) return rc;
    const nn_tower_dims *d = v->tower.model->net.hp;
    bool                 fits = d->patch == r->patch;
    int                  beside = (r->queries ? 2 * v->projector.width_out : 0) + r->marks;
    int                  wide = v->tower.width_out * together + beside;
    if (vision_families[r->kind]->windows) { /* learned vectors beside a square's patches, or beside a patch */
        fits = fits && v->middle.width_in == wide + v->middle.width_out;
        wide = v->tower.width_out + v->middle.width_out;
    } else if (s->middle.arch) {
        fits = fits && v->tower.width_out * together == v->middle.width_in;
        together = r->merge * r->merge / together;
        wide = v->middle.width_out * together + beside;
    }
    if (!fits || wide != v->projector.width_in)
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
    vision_parts s;
    find_parts(&s, &rules, model, mmproj, width);
    v->keep.limit_bytes = kept_bytes(&rules, s.squares, width, o);
    rc = open_stages(v, mmproj ? mmproj : model, &s, width, o, e);
    if (rc == 0 && vision_families[rules.kind]->opened) rc = vision_families[rules.kind]->opened(v, e);
    if (rc == 0) rc = tower_identify(v->source, mmproj ? mmproj : model, e);
    if (rc < 0) {
        vision_free(v);
        return rc;
    }
    *out = v;
    return 0;
}

int vision_measure(uint64_t *bytes, uint64_t *on_device, const model_file *model, const model_file *mmproj, int width,
                   const vision_options *o, err *e) {
    vision_rules      rules;
    vision_parts      s;
    bool              known;
    uint64_t          tower, middle = 0, projector, there[3] = { 0 };
    const model_file *f = mmproj ? mmproj : model;
    int               rc = rules_read(&rules, model, mmproj, &known, e);
    *bytes = *on_device = 0;
    if (rc < 0 || !known) return rc;
    find_parts(&s, &rules, model, mmproj, width);
    if ((rc = stage_measure(&tower, &there[0], f, &s.tower, s.patches, o, e)) == 0)
        rc = stage_measure(&projector, &there[1], f, &s.projector, s.asked, o, e);
    if (rc == 0 && s.middle.arch) rc = stage_measure(&middle, &there[2], f, &s.middle, s.merged, o, e);
    if (rc < 0) return rc;
    *bytes = tower + middle + projector + kept_bytes(&rules, s.squares, width, o);
    *on_device = there[0] + there[1] + there[2];
    return 0;
}

void vision_free(vision *v) {
    if (!v) return;
    stage_close(&v->tower);
    stage_close(&v->middle);
    stage_close(&v->projector);
    keep_free(&v->keep);
    pool_free(v->workers);
    free(v->fixed);
    free(v);
}

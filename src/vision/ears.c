/* SPDX-License-Identifier: Apache-2.0 */
#include "vision/ears.h"

#include "base/sha256.h"
#include "vision/ears_impl.h"

#include <stdlib.h>
#include <string.h>

/* Rows that are kept, unless somebody says otherwise: so many pieces, but not more than this. */
enum { KEPT_PIECES = 64 };
#define MOST_KEPT ((size_t)256 << 20)

bool ears_known(const model_file *model, const model_file *mmproj) { return ears_family_find(model, mmproj) != NULL; }

/* --- opening --- */

enum { USUAL = 3 };

/* What a stage is built from. GGUF leaves the number of positions to their table; where there is no tower, nothing of a layer is
 * asked for. */
static nn_part stage_part(const ears_family *f, const ears_rules *r, int no, const model_file *model,
                          const model_file *mmproj, nn_config_set usual[USUAL]) {
    const json_value *outer = mmproj ? NULL : source_outer(model);
    bool              bare = !f->arch[EARS_TOWER];
    usual[0] = (nn_config_set){ "position_count", r->table, true };
    usual[1] = (nn_config_set){ "block_count", 1, false };
    usual[2] = (nn_config_set){ "embedding_length", r->mels, false };
    return (nn_part){ .arch = f->arch[no],
                      .config = f->flat ? outer : json_get(outer, "audio_config"),
                      .outer = outer,
                      .keys = "clip.audio",
                      .usual = usual,
                      .n_usual = bare ? USUAL : 1 };
}

static size_t kept_bytes(const ears_rules *r, int width, const vision_options *o) {
    size_t piece = (size_t)(r->positions / r->stack) * (size_t)width * sizeof(float), most = MOST_KEPT;
    if (o->cache_bytes) return o->cache_bytes;
    return piece < most / KEPT_PIECES ? piece * KEPT_PIECES : most;
}

static int open_stages(ears *h, const model_file *model, const model_file *mmproj, int width, const vision_options *o,
                       err *e) {
    const ears_family *a = h->family;
    const model_file  *f = mmproj ? mmproj : model;
    int                rc = 0;
    for (int i = 0; rc == 0 && i < EARS_STAGES; i++) {
        nn_config_set usual[USUAL];
        nn_part       part = stage_part(a, &h->rules, i, model, mmproj, usual);
        if (part.arch) rc = stage_open(&h->stage[i], f, &part, a->stage_rows(&h->rules, i), o, e);
    }
    if (rc < 0) return rc;
    const vision_stage *tower = &h->stage[EARS_TOWER], *last = ears_last(h);
    const vision_stage *norm = a->arch[EARS_NORM] ? &h->stage[EARS_NORM] : NULL;
    int64_t             width_in = a->arch[EARS_TOWER] ? (int64_t)tower->width_out * h->rules.stack : h->rules.mels;
    bool                meet = last == tower || width_in == (norm ? norm : last)->width_in;
    if (!meet || (norm && norm->width_out != last->width_in) || (a->fit && !a->fit(h)))
        return err_set(e, ERR_FORMAT, "%s: tower and projector do not fit each other", model_file_path(f));
    if (last->width_out * h->parts != width)
        return err_set(e, ERR_ARG, "%s makes rows of %d for a language model of %d: it belongs to another one",
                       model_file_path(f), last->width_out, width / h->parts);
    return 0;
}

int ears_open(ears **out, const model_file *model, const model_file *mmproj, int width, const vision_options *o,
              err *e) {
    const ears_family *f = ears_family_find(model, mmproj);
    *out = NULL;
    if (!f) return 0;
    ears *h = calloc(1, sizeof *h);
    if (!h) return err_set_nomem(e);
    h->family = f;
    h->word = f->word;
    h->parts = o->parts > 0 ? o->parts : 1;
    int rc = ears_rules_read(&h->rules, f, model, mmproj, e);
    if (rc == 0) {
        h->keep.limit_bytes = kept_bytes(&h->rules, width, o);
        rc = open_stages(h, model, mmproj, width, o, e);
    }
    if (rc == 0) rc = tower_identify(h->source, mmproj ? mmproj : model, e);
    if (rc < 0) {
        ears_free(h);
        return rc;
    }
    *out = h;
    return 0;
}

int ears_measure(uint64_t *bytes, uint64_t *on_device, const model_file *model, const model_file *mmproj, int width,
                 const vision_options *o, err *e) {
    ears_rules         r;
    const ears_family *f = ears_family_find(model, mmproj);
    *bytes = *on_device = 0;
    if (!f) return 0;
    int rc = ears_rules_read(&r, f, model, mmproj, e);
    if (rc < 0) return rc;
    for (int i = 0; rc == 0 && i < EARS_STAGES; i++) {
        nn_config_set usual[USUAL];
        nn_part       part = stage_part(f, &r, i, model, mmproj, usual);
        uint64_t      more = 0, there = 0;
        if (part.arch) rc = stage_measure(&more, &there, mmproj ? mmproj : model, &part, f->stage_rows(&r, i), o, e);
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

const char *ears_placeholder(const ears *h) { return h->word; }

const char *ears_row_word(const ears *h) { return h->word; }

bool ears_other_word(ears *h) {
    const char *const *words = h->family->words;
    if (!words || !words[h->n_words]) return false;
    h->word = words[h->n_words++];
    return true;
}

const char *ears_said(const ears *h) { return h->family->said ? h->family->said : h->word; }

const char *ears_transcribes(const ears *h) { return h->family->transcribes; }

int64_t ears_rows(const ears *h, int n_samples) { return h->family->rows(&h->rules, n_samples); }

int ears_write(const ears *h, int n_samples, str *out, err *e) {
    int64_t n = ears_rows(h, n_samples);
    str_puts(out, h->family->before);
    for (int64_t i = 0; i < n; i++) str_puts(out, h->word);
    str_puts(out, h->family->after);
    return str_ok(out) ? 0 : err_set_nomem(e);
}

/* --- rows --- */

static void make_key(const ears *h, const sound *s, uint8_t key[VISION_KEY_BYTES]) {
    uint8_t digest[SHA256_BYTES];
    sha256  x;
    sha256_init(&x);
    sha256_feed(&x, h->source, sizeof h->source);
    sha256_feed(&x, h->family->types[0], strlen(h->family->types[0]));
    sha256_feed(&x, &h->rules, sizeof h->rules);
    sha256_feed(&x, &h->parts, sizeof h->parts);
    sha256_feed(&x, &s->n, sizeof s->n);
    sha256_feed(&x, s->at, (size_t)s->n * sizeof *s->at);
    sha256_finish(&x, digest);
    memcpy(key, digest, VISION_KEY_BYTES);
}

/* Rows of one part each get room for the others, which are zero. */
static void spread(const vision_rows *r, int parts) {
    size_t part = (size_t)(r->width / parts), width = (size_t)r->width;
    for (int i = r->n - 1; parts > 1 && i >= 0; i--) {
        memmove(r->data + (size_t)i * width, r->data + (size_t)i * part, part * sizeof *r->data);
        memset(r->data + (size_t)i * width + part, 0, (width - part) * sizeof *r->data);
    }
}

int ears_go_on(const ears *h, err *e) {
    bool over = h->stop && h->stop->ask(h->stop->ctx);
    return over ? err_set(e, ERR_CANCELLED, "the sound is not waited for any more") : 0;
}

int ears_encode(ears *h, const sound *s, const ears_stop *stop, const vision_rows **out, err *e) {
    vision_rows made = { .n = (int)ears_rows(h, s->n), .width = ears_last(h)->width_out * h->parts };
    make_key(h, s, made.key);
    if ((*out = keep_find(&h->keep, made.key))) return 0;
    made.data = malloc((size_t)made.n * (size_t)made.width * sizeof *made.data);
    if (!made.data) return err_set_nomem(e);
    h->stop = stop;
    int rc = h->family->encode(h, s, made.data, e);
    h->stop = NULL;
    if (rc < 0) {
        free(made.data);
        return rc;
    }
    spread(&made, h->parts);
    return keep_add(&h->keep, &made, out, e);
}

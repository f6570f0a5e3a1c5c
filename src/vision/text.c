/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a picture in the prompt, as each family's processor writes them. */
#include "vision/family.h"

static const vision_family *family_of(const vision *v) { return vision_families[v->rules.kind]; }

const char *vision_placeholder(const vision *v) { return family_of(v)->placeholder; }
const char *vision_row_word(const vision *v) { return v->other_word ? family_of(v)->row_else : family_of(v)->row; }

bool vision_take_other_word(vision *v) {
    v->other_word = family_of(v)->row_else != NULL;
    return v->other_word;
}

bool vision_whole(const vision *v) { return v->rules.whole; }
bool vision_prompt_whole(const vision *v) { return family_of(v)->prompt_whole; }

int vision_most_rows(const vision *v) {
    const vision_rules *r = &v->rules;
    int                 squares = (int)plan_most_patches(r) / (r->merge * r->merge);
    if (family_of(v)->counted) return 2 * squares + 2; /* with the ends of lines */
    return r->queries ? r->queries : squares;
}

/* Of the text around a picture, where a prompt comes in one step. */
enum { TEXT_TOKENS = 512 };

int vision_step_tokens(const vision *v) {
    if (vision_prompt_whole(v)) return vision_most_rows(v) + TEXT_TOKENS;
    return v->rules.whole ? vision_most_rows(v) : 0;
}

int vision_measure_step(const model_file *model, const model_file *mmproj) {
    vision v = { 0 };
    bool   known = false;
    return rules_read(&v.rules, model, mmproj, &known, NULL) == 0 && known ? vision_step_tokens(&v) : 0;
}

void vision_put_rows(str *out, const char *word, int n) {
    for (int i = 0; i < n; i++) str_puts(out, word);
}

int vision_grid(const vision *v, const pixels *picture, vision_place *out, err *e) {
    vision_plan p;
    int         rc = plan_make(&p, &v->rules, picture, e);
    *out = (vision_place){ 0 };
    if (rc < 0 || !family_of(v)->grid) return rc;
    int down = p.tile_rows / p.across;
    if (family_of(v)->counted)
        *out = (vision_place){ .across = p.across + 1, .advance = p.n_rows, .counted = true };
    else
        *out = (vision_place){ .across = p.across, .advance = p.across > down ? p.across : down };
    return 0;
}

int vision_axes(const vision *v) { return !family_of(v)->grid ? 0 : family_of(v)->counted ? 4 : 3; }

int vision_write(const vision *v, const pixels *picture, int number, str *out, err *e) {
    const vision_family *f = family_of(v);
    vision_plan          p;
    int                  rc = plan_make(&p, &v->rules, picture, e);
    if (rc < 0) return rc;
    p.number = number;
    if (f->write)
        f->write(out, &p, vision_row_word(v));
    else
        vision_put_rows(out, vision_row_word(v), p.n_rows);
    return str_ok(out) ? 0 : err_set_nomem(e);
}

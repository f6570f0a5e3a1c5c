/* SPDX-License-Identifier: Apache-2.0 */
/* Single values of what the files say about pictures. */
#include "vision/family.h"

#include <stdio.h>

enum { MAX_SIDE = 16384 };

const json_value *source_outer(const model_file *model) {
    const json_value *config = model_file_config(model), *inner = json_get(config, "thinker_config");
    return inner ? inner : config;
}

bool source_inside(const vision_source *s) { return s->mmproj == s->model; }

const meta_value *source_meta(const vision_source *s, const char *name) {
    char key[128];
    snprintf(key, sizeof key, "%s%s", s->prefix, name);
    return model_file_meta(s->mmproj, key);
}

int source_number(const vision_source *s, const char *meta, const json_value *v, int dflt) {
    int64_t x = dflt, other;
    if (s->mmproj && meta)
        (void)meta_int(source_meta(s, meta), &x);
    else if (!s->mmproj && !json_is(v, JSON_K_ARRAY))
        (void)json_int(v, &x);
    else if (!s->mmproj && (!json_int(json_at(v, 0), &x) || !json_int(json_at(v, 1), &other) || x != other))
        x = -1; /* not of a square */
    return x > 0 && x <= MAX_SIDE ? (int)x : -1;
}

bool source_outer_number(const vision_source *s, const char *key, int *out) {
    int64_t x;
    if (!meta_int(model_file_meta(s->model, key), &x) || x < 1 || x > MAX_SIDE) return false;
    *out = (int)x;
    return true;
}

bool source_switch(const vision_source *s, const char *field, bool dflt) {
    return s->mmproj ? dflt : json_bool(json_get(s->pre, field), dflt);
}

const json_value *source_size(const vision_source *s, const char *field, const char *side) {
    const json_value *size = json_get(s->pre, field);
    return json_is(size, JSON_K_OBJECT) ? json_get(size, side) : size;
}

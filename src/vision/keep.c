/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of pictures that were looked at, the least recently used ones forgotten first. */
#include "base/sha256.h"
#include "vision/internal.h"

#include <stdlib.h>
#include <string.h>

void keep_key(const vision *v, const pixels *picture, uint8_t key[VISION_KEY_BYTES]) {
    uint8_t      digest[SHA256_BYTES];
    int32_t      size[2] = { picture->width, picture->height };
    sha256       s;
    vision_rules rules;
    memcpy(&rules, &v->rules, sizeof rules); /* padding too: it is hashed */
    plan_detail(&rules, picture->low);
    sha256_init(&s);
    sha256_feed(&s, v->source, sizeof v->source);
    sha256_feed(&s, &rules, sizeof rules);
    sha256_feed(&s, size, sizeof size);
    sha256_feed(&s, picture->rgb, pixels_bytes(picture));
    sha256_finish(&s, digest);
    memcpy(key, digest, VISION_KEY_BYTES);
}

static size_t bytes_of(const vision_rows *r) { return (size_t)r->n * (size_t)r->width * sizeof *r->data; }

const vision_rows *keep_find(vision *v, const uint8_t key[VISION_KEY_BYTES]) {
    for (size_t i = 0; i < v->n_kept; i++) {
        if (memcmp(v->kept[i].rows.key, key, VISION_KEY_BYTES) != 0) continue;
        v->kept[i].used = ++v->clock;
        return &v->kept[i].rows;
    }
    return NULL;
}

static void forget_oldest(vision *v) {
    size_t oldest = 0;
    for (size_t i = 1; i < v->n_kept; i++) {
        if (v->kept[i].used < v->kept[oldest].used) oldest = i;
    }
    v->kept_bytes -= bytes_of(&v->kept[oldest].rows);
    free(v->kept[oldest].rows.data);
    v->kept[oldest] = v->kept[--v->n_kept];
}

int keep_add(vision *v, const vision_rows *rows, const vision_rows **out, err *e) {
    while (v->n_kept && v->kept_bytes + bytes_of(rows) > v->limit_bytes) forget_oldest(v);
    vision_kept *grown = realloc(v->kept, (v->n_kept + 1) * sizeof *grown);
    if (!grown) {
        free(rows->data);
        return err_set_nomem(e);
    }
    v->kept = grown;
    v->kept[v->n_kept] = (vision_kept){ *rows, ++v->clock };
    v->kept_bytes += bytes_of(rows);
    *out = &v->kept[v->n_kept++].rows;
    return 0;
}

void keep_free(vision *v) {
    for (size_t i = 0; i < v->n_kept; i++) free(v->kept[i].rows.data);
    free(v->kept);
}

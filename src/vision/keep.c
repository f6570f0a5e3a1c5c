/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of pictures and sounds that were encoded, the least recently used ones forgotten first. */
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

const vision_rows *keep_find(vision_keep *k, const uint8_t key[VISION_KEY_BYTES]) {
    for (size_t i = 0; i < k->n_kept; i++) {
        if (memcmp(k->kept[i].rows.key, key, VISION_KEY_BYTES) != 0) continue;
        k->kept[i].used = ++k->clock;
        return &k->kept[i].rows;
    }
    return NULL;
}

static void forget_oldest(vision_keep *k) {
    size_t oldest = 0;
    for (size_t i = 1; i < k->n_kept; i++) {
        if (k->kept[i].used < k->kept[oldest].used) oldest = i;
    }
    k->kept_bytes -= bytes_of(&k->kept[oldest].rows);
    free(k->kept[oldest].rows.data);
    k->kept[oldest] = k->kept[--k->n_kept];
}

int keep_add(vision_keep *k, const vision_rows *rows, const vision_rows **out, err *e) {
    while (k->n_kept && k->kept_bytes + bytes_of(rows) > k->limit_bytes) forget_oldest(k);
    vision_kept *grown = realloc(k->kept, (k->n_kept + 1) * sizeof *grown);
    if (!grown) {
        free(rows->data);
        return err_set_nomem(e);
    }
    k->kept = grown;
    k->kept[k->n_kept] = (vision_kept){ *rows, ++k->clock };
    k->kept_bytes += bytes_of(rows);
    *out = &k->kept[k->n_kept++].rows;
    return 0;
}

void keep_free(vision_keep *k) {
    for (size_t i = 0; i < k->n_kept; i++) free(k->kept[i].rows.data);
    free(k->kept);
}

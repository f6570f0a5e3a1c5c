/* SPDX-License-Identifier: Apache-2.0 */
/* What a model's cache takes with each of the page types worth choosing, and how long a context fits then. */
#ifndef CLI_MODELS_CACHE_CHOICES_H
#define CLI_MODELS_CACHE_CHOICES_H

#include "base/str.h"
#include "runtime/need.h"

enum { CACHE_CHOICES_MAX = 16 };

typedef struct cache_choice {
    engine_kv_choice type;
    uint64_t         bytes_per_1k;
    int64_t          context; /* of one sequence that fits into the memory that is available; -1: not known */
} cache_choice;

typedef struct cache_choices {
    cache_choice at[CACHE_CHOICES_MAX];
    int          n;
} cache_choices;

/* Types that the model's heads cannot have are left out. available: 0: not known. */
void cache_choices_find(cache_choices *out, const model_file *f, const engine_options *o, uint64_t available);

void cache_choices_text(const cache_choices *c, str *out);
void cache_choices_json(const cache_choices *c, str *out); /* a list */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models/cache_choices.h"

#include <inttypes.h>
#include <string.h>

void cache_choices_find(cache_choices *out, const model_file *f, const engine_options *options, uint64_t available) {
    int                     n;
    const engine_kv_choice *types = engine_kv_choices(&n);
    *out = (cache_choices){ 0 };
    for (int i = 0; i < n && out->n < CACHE_CHOICES_MAX; i++) {
        engine_options o = *options;
        need           x;
        o.kv_auto = false;
        o.k_open = true;
        o.k_type = types[i].k;
        o.v_type = types[i].v;
        if (need_of_model(&x, f, &o, 1, NULL) < 0) continue;
        cache_choice *c = &out->at[out->n++];
        *c = (cache_choice){ .type = types[i], .bytes_per_1k = x.cache_bytes_per_1k, .context = -1 };
        uint64_t all = device_memory_on(&x.bytes, x.device);
        uint64_t rest = (all > x.cache_bytes ? all - x.cache_bytes : 0) + x.sequence_bytes;
        /* Of a model on several devices only a part of it lies on each. */
        if (available && x.cache_bytes_per_1k && !strpbrk(x.device, "/+"))
            c->context = available > rest ? (int64_t)((available - rest) / x.cache_bytes_per_1k * 1000) : 0;
    }
}

void cache_choices_text(const cache_choices *c, str *out) {
    str_puts(out, "cache types     KiB per 1,000 tokens, of f16, context that fits\n");
    for (int i = 0; i < c->n; i++) {
        const cache_choice *x = &c->at[i];
        str_printf(out, "  %-24s %10.1f %6.2fx", x->type.name, (double)x->bytes_per_1k / 1024,
                   (double)c->at[0].bytes_per_1k / (double)(x->bytes_per_1k ? x->bytes_per_1k : 1));
        if (x->context >= 0) str_printf(out, " %12" PRId64, x->context);
        str_puts(out, "\n");
    }
}

void cache_choices_json(const cache_choices *c, str *out) {
    str_puts(out, "[");
    for (int i = 0; i < c->n; i++) {
        const cache_choice *x = &c->at[i];
        str_printf(out,
                   "%s{\"k\":\"%s\",\"v\":\"%s\",\"bytes_per_1k\":%" PRIu64 ",\"context_that_fits\":", i ? "," : "",
                   nn_kv_type_name(x->type.k), nn_kv_type_name(x->type.v), x->bytes_per_1k);
        if (x->context >= 0)
            str_printf(out, "%" PRId64 "}", x->context);
        else
            str_puts(out, "null}");
    }
    str_puts(out, "]");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that share a worker: a base and what was made of it with adapters.
 *
 * Models of one file whose settings differ only in what a request could say, too, need one worker; the first of them has
 * it, the others point there. A request by one of the other names brings its settings along. The worker stays as long as
 * the longest of the names that used it asks for, is pinned if one of them is, and a name that is removed takes it along
 * only if no other is left. Only models with adapters, and their base, share: for others a name is a worker.
 *
 * A worker can read the adapters that were known when it began, and those in the directory of adapters. A name with another
 * one, added later, makes the worker begin again as soon as what it works on is over.
 */
#include "host/parent/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const runtime_settings none;

model *model_carrier(model *m) { return m->shares ? m->shares : m; }

static bool is_of(const model *m, const model *w) { return m == w || m->shares == w; }

const runtime_settings *model_wishes(const model *m) {
    if (!m->shares) return NULL; /* its worker was opened with them */
    return m->settings ? m->settings : &none;
}

/* --- who may share --- */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* The settings that a worker is opened with; all others a request can bring. */
static bool same_worker(const runtime_settings *a, const runtime_settings *b) {
    return same_text(a->template_text, b->template_text) && a->n_ctx == b->n_ctx &&
           same_text(a->rope_type, b->rope_type) && !(a->rope_factor < b->rope_factor) &&
           !(a->rope_factor > b->rope_factor) && a->rope_original_context == b->rope_original_context &&
           same_text(a->mmproj, b->mmproj) && a->mmproj_may_fail == b->mmproj_may_fail &&
           same_text(a->speculate, b->speculate) && same_text(a->draft, b->draft) && a->draft_max == b->draft_max &&
           same_text(a->adapter_type, b->adapter_type) && same_text(a->page_type, b->page_type) &&
           same_text(a->page_type_k, b->page_type_k) && same_text(a->page_type_v, b->page_type_v) &&
           a->precise_layers == b->precise_layers;
}

static bool may_share(const model *w, const model *m) {
    const runtime_settings *a = w->settings ? w->settings : &none, *b = m->settings ? m->settings : &none;
    if (w == m || w->shares || (w->removed && !w->sharers) || strcmp(w->info.path, m->info.path) != 0) return false;
    return (a->n_lora || b->n_lora || w->sharers) && same_worker(a, b);
}

void model_join(host *h, model *m) {
    for (model *w = h->models; w; w = w->next) {
        if (may_share(w, m) && (!m->shares || (m->shares->phase == MODEL_DOWN && w->phase != MODEL_DOWN)))
            m->shares = w;
    }
    if (m->shares) m->shares->sharers++;
}

void model_part(model *m) {
    if (!m->shares) return;
    m->shares->sharers--;
    m->shares = NULL;
}

/* --- adapters that a worker can read --- */

static bool in_directory(const char *dir, view path) {
    size_t n = dir ? strlen(dir) : 0;
    return n && path.len > n && memcmp(path.data, dir, n) == 0 && path.data[n] == '/';
}

bool model_reaches(const host *h, const model *w, const model *m) {
    if (m == w || m->readable_by == w->worker || !m->settings) return true;
    for (size_t i = 0; i < m->settings->n_lora; i++) {
        if (!in_directory(h->options.runtime.adapter_dir, m->settings->lora[i].path)) return false;
    }
    return true;
}

size_t model_paths(host *h, model *w, const char ***out) {
    size_t n = 0;
    for (const model *m = h->models; m; m = m->next) n += m->shares == w && m->settings ? m->settings->n_lora : 0;
    *out = calloc(n + 1, sizeof **out);
    n = 0;
    for (model *m = h->models; *out && m; m = m->next) {
        if (m->shares != w || !m->settings) continue;
        for (size_t i = 0; i < m->settings->n_lora; i++) (*out)[n++] = m->settings->lora[i].path.data;
        m->readable_by = w->worker;
    }
    return n;
}

/* --- what holds for all names of a worker --- */

bool model_pinned(const model *w) {
    for (const model *m = w->host->models; m; m = m->next) {
        if (is_of(m, w) && !m->removed && m->info.pinned) return true;
    }
    return false;
}

int64_t model_expiry(const model *w) {
    int64_t latest = INT64_MIN;
    if (model_pinned(w)) return INT64_MAX;
    for (const model *m = w->host->models; m; m = m->next) {
        if (!is_of(m, w) || !m->used || m->removed) continue;
        int64_t at = m->keep_ms == HOST_KEEP_FOREVER ? INT64_MAX : m->last_used + m->keep_ms;
        latest = at > latest ? at : latest;
    }
    return latest == INT64_MIN ? w->last_used : latest;
}

void model_parent(const model *m, char *out, size_t cap) {
    const char *name = "";
    for (const model *o = m->host->models; o && m->settings && m->settings->n_lora; o = o->next) {
        bool plain = !o->settings || o->settings->n_lora == 0;
        if (o->removed || !plain || strcmp(o->info.path, m->info.path) != 0) continue;
        name = o->info.name;
        break;
    }
    snprintf(out, cap, "%s", name);
}

bool model_used_otherwise(const model *m) {
    const model *w = m->shares ? m->shares : m;
    for (const model *o = w->host->models; o; o = o->next) {
        if (o != m && is_of(o, w) && o->used) return true;
    }
    return false;
}

void model_unused(model *w) {
    for (model *m = w->host->models; m; m = m->next) {
        if (is_of(m, w)) m->used = m->asked > 0;
    }
}

bool model_bears(const model *m) {
    const model *w = m->shares ? m->shares : m;
    for (const model *o = w->host->models; o; o = o->next) {
        if (is_of(o, w) && !o->removed && o->used) return o == m;
    }
    return m == w;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a model's owner wishes: kept, checked, and put under what a request says. */
#include "runtime/internal.h"

#include <stdlib.h>
#include <string.h>

/* --- copies --- */

static bool keep_text(const char **text) {
    if (!*text) return true;
    *text = strdup(*text);
    return *text != NULL;
}

runtime_settings *runtime_settings_copy(const runtime_settings *s) {
    runtime_settings *c = malloc(sizeof *c);
    if (!c) return NULL;
    *c = *s;
    const char **texts[] = { &c->system,      &c->messages,    &c->template_text, &c->rope_type,
                             &c->mmproj,      &c->speculate,   &c->draft,         &c->page_type,
                             &c->page_type_k, &c->page_type_v, &c->adapter_type };
    size_t       n_texts = sizeof texts / sizeof texts[0], i = 0;
    c->sampling.bias = NULL;
    c->sampling.dry_breakers = NULL;
    c->sampling.n_bias = c->sampling.n_dry_breakers = 0;
    const char  **stop = calloc(s->n_stop + 1, sizeof *stop);
    runtime_lora *lora = calloc(s->n_lora + 1, sizeof *lora);
    c->stop = stop;
    c->n_stop = 0;
    c->lora = lora;
    c->n_lora = 0;
    while (i < n_texts && keep_text(texts[i])) i++;
    bool ok = stop && lora && i == n_texts;
    for (; i < n_texts; i++) *texts[i] = NULL;
    for (; ok && c->n_stop < s->n_stop; c->n_stop++) ok = (stop[c->n_stop] = strdup(s->stop[c->n_stop])) != NULL;
    for (; ok && c->n_lora < s->n_lora; c->n_lora++) {
        const runtime_lora *from = &s->lora[c->n_lora];
        char               *path = strndup(from->path.data, from->path.len);
        lora[c->n_lora] = (runtime_lora){ { path, from->path.len }, from->scale };
        ok = path != NULL;
    }
    if (ok) return c;
    runtime_settings_free(c);
    return NULL;
}

void runtime_settings_free(runtime_settings *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_stop; i++) free((void *)s->stop[i]);
    for (size_t i = 0; i < s->n_lora; i++) free((void *)s->lora[i].path.data);
    free((void *)s->stop);
    free((void *)s->lora);
    free((void *)s->system);
    free((void *)s->messages);
    free((void *)s->template_text);
    free((void *)s->rope_type);
    free((void *)s->mmproj);
    free((void *)s->speculate);
    free((void *)s->draft);
    free((void *)s->page_type);
    free((void *)s->page_type_k);
    free((void *)s->page_type_v);
    free((void *)s->adapter_type);
    free(s);
}

/* --- checks --- */

static int parse_messages(const char *text, const json_value **out, arena *a, err *e) {
    const json_value *v = NULL;
    int               rc = json_parse(&v, text, strlen(text), a, e);
    if (rc == 0 && !json_is(v, JSON_K_ARRAY)) rc = err_set(e, ERR_ARG, "must be an array");
    for (size_t i = 0; rc == 0 && i < json_count(v); i++)
        if (!json_cstr(json_get(json_at(v, i), "role"))) rc = err_set(e, ERR_ARG, "message %zu has no role", i);
    *out = v;
    return rc < 0 ? request_mistake(e, rc, "messages of the settings") : 0;
}

int settings_read(const runtime *r, const runtime_settings *s, arena *mem, wishes *out, err *e) {
    int rc = 0;
    *out = (wishes){ .settings = s, .sampling = r->sampling };
    if (s->max_tokens < 0 || s->min_tokens < 0)
        return err_set(e, ERR_ARG, "max_tokens and min_tokens of the settings must not be negative");
    if (s->n_lora > RUNTIME_MAX_LORA)
        return err_set(e, ERR_LIMIT, "at most %d adapters can be used at once", RUNTIME_MAX_LORA);
    if (s->messages && (rc = parse_messages(s->messages, &out->lead, mem, e)) < 0) return rc;
    if (!(out->stop = arena_calloc(mem, s->n_stop + 1, sizeof *out->stop))) return err_set_nomem(e);
    for (size_t i = 0; i < s->n_stop; i++) {
        out->stop[i] = view_of(s->stop[i]);
        if (out->stop[i].len == 0) return err_set(e, ERR_ARG, "stop of the settings: text %zu is empty", i);
    }
    defaults_overlay(&out->sampling, &s->sampling, s->sampling_set);
    if (s->sampling_set & RUNTIME_SET_SEED) out->sampling.seed = s->sampling.seed;
    rc = sampling_params_check(&out->sampling, e);
    return rc < 0 ? err_wrap(e, rc, "sampling of the settings") : 0;
}

int settings_open(runtime *r, const runtime_settings *s, err *e) {
    if (!(r->settings = runtime_settings_copy(s))) return err_set_nomem(e);
    return settings_read(r, r->settings, &r->mem, &r->wishes, e);
}

/* --- under a request --- */

void settings_fill(const wishes *w, runtime_request *q) {
    const runtime_settings *s = w->settings;
    if (q->n_lora == 0 && !q->own_lora) {
        q->lora = s->lora;
        q->n_lora = s->n_lora;
    }
    if (q->task != RUNTIME_CHAT && q->task != RUNTIME_COMPLETE) return;
    if (q->max_tokens == 0) q->max_tokens = s->max_tokens;
    if (q->min_tokens == 0 && (q->max_tokens == 0 || s->min_tokens <= q->max_tokens)) q->min_tokens = s->min_tokens;
    if (q->n_stop || !s->n_stop) return;
    q->stop = w->stop;
    q->n_stop = s->n_stop;
}

static bool is_system(const json_value *message) {
    const char *role = json_cstr(json_get(message, "role"));
    return role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

static json_value text_value(const char *text) {
    return (json_value){ .kind = JSON_K_STRING, .u.string = { text, strlen(text) } };
}

/* {"role": "system", "content": text} */
static bool system_message(json_value *out, const char *text, arena *a) {
    json_member *m = arena_calloc(a, 2, sizeof *m);
    if (!m) return false;
    m[0] = (json_member){ view_of("role"), text_value("system") };
    m[1] = (json_member){ view_of("content"), text_value(text) };
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, 2 } };
    return true;
}

int settings_messages(const wishes *w, const json_value **messages, arena *a, err *e) {
    const runtime_settings *s = w->settings;
    const json_value       *lead = w->lead, *own = *messages;
    size_t                  n_own = json_count(own), n_system = 0, n = 0;
    bool                    has_system = false;
    if (!own || (!s->system && !s->messages)) return 0;
    for (size_t i = 0; i < n_own; i++) has_system = has_system || is_system(json_at(own, i));
    while (n_system < n_own && is_system(json_at(own, n_system))) n_system++;
    json_value *all = arena_calloc(a, n_own + json_count(lead) + 1, sizeof *all);
    json_value *out = arena_calloc(a, 1, sizeof *out);
    if (!all || !out) return err_set_nomem(e);
    if (!has_system && s->system && !system_message(&all[n++], s->system, a)) return err_set_nomem(e);
    for (size_t i = 0; i < n_system; i++) all[n++] = *json_at(own, i);
    for (size_t i = 0; i < json_count(lead); i++) all[n++] = *json_at(lead, i);
    for (size_t i = n_system; i < n_own; i++) all[n++] = *json_at(own, i);
    *out = (json_value){ .kind = JSON_K_ARRAY, .u.array = { all, n } };
    *messages = out;
    return 0;
}

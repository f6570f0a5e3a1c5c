/* SPDX-License-Identifier: Apache-2.0 */
#include "config/model.h"

#include "config/page_keys.h"
#include "config/sampling_keys.h"

#include <stddef.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const config_key    preset_keys[] = { CONFIG_PRESET_KEYS };
static const config_schema preset_schema = { preset_keys, COUNT(preset_keys), NULL };

static const config_key message_keys[] = {
    { .path = "role",
      .type = CONFIG_CHOICE,
      .choices = "system|user|assistant",
      .help = "role of the message",
      .required = true },
    { .path = "content", .type = CONFIG_TEXT, .help = "text of the message", .required = true },
};
static const config_schema message_schema = { message_keys, COUNT(message_keys), NULL };

static const config_key adapter_keys[] = {
    { .path = "path",
      .type = CONFIG_TEXT,
      .help = "GGUF file of the adapter, or its directory (PEFT or MLX)",
      .required = true },
    { .path = "scale", .type = CONFIG_REAL, .min = -1000, .max = 1000, .help = "weight of the adapter (1)" },
};
static const config_schema adapter_schema = { adapter_keys, COUNT(adapter_keys), NULL };

static const config_key keys[] = {
    { .path = "context",
      .type = CONFIG_INT,
      .max = 16777216,
      .help = "length of the context in tokens; 0: as long as the model's own, or as the cache has room for",
      .env = "HEARTH_CONTEXT",
      .flag = "ctx" },
    { .path = "system",
      .type = CONFIG_TEXT,
      .help = "system message for chats without one of their own",
      .env = "HEARTH_SYSTEM",
      .flag = "system" },
    { .path = "template", .type = CONFIG_TEXT, .help = "replaces the model's chat template (Jinja)" },
    { .path = "template_file", .type = CONFIG_TEXT, .help = "file with a chat template, relative to this file" },
    CONFIG_SAMPLING_KEYS,
    { .path = "preset",
      .type = CONFIG_TEXT,
      .help = "name of the preset whose values override those of sampling",
      .flag = "preset" },
    { .path = "presets", .type = CONFIG_NAMED, .items = &preset_schema, .help = "NAME: {keys of sampling}" },
    { .path = "messages",
      .type = CONFIG_LIST,
      .items = &message_schema,
      .help = "{role, content}: messages that are put before every chat" },
    { .path = "adapters",
      .type = CONFIG_LIST,
      .items = &adapter_schema,
      .help = "{path, scale}: adapters of requests that name none" },
    { .path = "adapter_type",
      .type = CONFIG_CHOICE,
      .choices = "auto|f32|f16|q8",
      .help = "how adapters are kept; f32: exactly; auto: q8 on matrices of less than 8 bits, else f16",
      .env = "HEARTH_ADAPTER_TYPE",
      .flag = "adapter-type" },
    { .path = "rope_scaling.type",
      .type = CONFIG_CHOICE,
      .choices = "none|linear|yarn",
      .help = "method that extends the model to a longer context" },
    { .path = "rope_scaling.factor",
      .type = CONFIG_REAL,
      .min = 1,
      .max = 1024,
      .help = "how many times longer the context becomes" },
    { .path = "rope_scaling.original_context",
      .type = CONFIG_INT,
      .min = 1,
      .max = 16777216,
      .help = "context that the model was trained with; unset: as the model's file says" },
    CONFIG_PAGE_KEYS(NULL, NULL, CONFIG_PAGE_WORD),
    { .path = "keep_alive",
      .type = CONFIG_SECONDS,
      .help = "how long the model stays in memory after its last request; forever: until it is stopped" },
    { .path = "pinned", .type = CONFIG_BOOL, .help = "do not unload this model to make room for another" },
    { .path = "license", .type = CONFIG_TEXT, .help = "text of the licence, printed by hearth show" },
    { .path = "speculate",
      .type = CONFIG_CHOICE,
      .choices = "auto|off|lookup|draft|mtp|eagle",
      .help = "who guesses what comes next, which makes answers faster and never changes them",
      .env = "HEARTH_SPECULATE",
      .flag = "speculate" },
    { .path = "draft",
      .type = CONFIG_TEXT,
      .help = "a smaller model with the same vocabulary that guesses, or a head (MTP, EAGLE-3): a name or a path",
      .env = "HEARTH_DRAFT",
      .flag = "draft" },
    { .path = "mmproj",
      .type = CONFIG_TEXT,
      .help = "GGUF file with the model's vision tower; unset: the one beside the model, if there is one" },
    { .path = "draft_max",
      .type = CONFIG_INT,
      .max = 32,
      .help = "tokens that are guessed at once at most; 0: 16",
      .env = "HEARTH_DRAFT_MAX",
      .flag = "draft-max" },
};

static const config_section sections[] = {
    { "sampling", "How tokens are sampled; values in a request take precedence." },
    { "rope_scaling", "For contexts longer than the model was trained with." },
    { "kv_cache", "How the model's keys and values are stored." },
    { NULL, NULL },
};

const config_schema config_model_schema = { keys, COUNT(keys), sections };

/* --- sampling --- */

static int take_stop(config_sampling *s, const config_value *x, arena *mem, err *e) {
    const char **list = arena_calloc(mem, x->n_texts + 1, sizeof *list);
    for (size_t j = 0; list && j < x->n_texts; j++)
        if (!(list[j] = arena_strdup(mem, x->texts[j]))) list = NULL;
    if (!list) return err_set_nomem(e);
    s->stop = list;
    s->n_stop = x->n_texts;
    s->set |= CONFIG_SET_STOP;
    return 0;
}

static int take_value(config_sampling *s, const char *key, const config_value *x, arena *mem, err *e) {
    sampling_param p = sampling_param_find(key, SAMPLING_BY_SETTINGS);
    if (strcmp(key, "stop") == 0) return take_stop(s, x, mem, e);
    if (strcmp(key, "max_tokens") == 0) {
        s->max_tokens = (int)x->integer;
        s->set |= CONFIG_SET_MAX_TOKENS;
    } else if (strcmp(key, "min_tokens") == 0) {
        s->min_tokens = (int)x->integer;
        s->set |= CONFIG_SET_MIN_TOKENS;
    } else if (p != SAMPLING_PARAM_COUNT) {
        if (sampling_param_fields[p].type == SAMPLING_IS_FLOAT)
            sampling_set_real(&s->values, p, x->real);
        else
            sampling_set_int(&s->values, p, x->integer);
        s->set |= CONFIG_SET(p);
    }
    return 0;
}

/* prefix "sampling." of a model's values, "" of a preset's, which knows the model's as `over`. */
static int take_sampling(config_sampling *s, const config_values *v, const char *prefix, const config_values *over,
                         arena *mem, err *e) {
    size_t skip = strlen(prefix);
    for (size_t i = 0; i < v->schema->n; i++) {
        const config_value *x = &v->v[i];
        const char         *path = v->schema->keys[i].path;
        if (!x->origin || strncmp(path, prefix, skip) != 0) continue;
        if (over) { /* a preset gives way to the environment and to flags */
            char full[64] = "sampling.";
            strncat(full, path, sizeof full - 10);
            if (config_get(over, full)->origin >= CONFIG_FROM_ENV) continue;
        }
        int rc = take_value(s, path + skip, x, mem, e);
        if (rc < 0) return rc;
    }
    return 0;
}

/* --- the whole --- */

static const config_values *find_preset(const config_values *v, const char *name) {
    const config_value *all = config_get(v, "presets");
    for (size_t i = 0; i < all->n_items; i++)
        if (strcmp(all->items[i].name, name) == 0) return &all->items[i];
    return NULL;
}

static int place_of(const config_value *v) {
    const char *colon = v->where ? strrchr(v->where, ':') : NULL;
    int         line = 0;
    for (const char *p = colon ? colon + 1 : ""; *p >= '0' && *p <= '9' && line < 100000000; p++)
        line = line * 10 + (*p - '0');
    return line;
}

static void check_preset(const config_values *v, config_report *r) {
    const config_value *chosen = config_get(v, "preset"), *all = config_get(v, "presets");
    const char         *names[64], *best;
    size_t              n = 0;
    if (!chosen->origin || find_preset(v, chosen->text)) return;
    for (; n < all->n_items && n < 64; n++) names[n] = all->items[n].name;
    best = config_nearest(chosen->text, names, n);
    if (best)
        config_report_add(r, place_of(chosen), 1, "preset: there is no preset '%.60s'; did you mean %s?", chosen->text,
                          best);
    else
        config_report_add(r, place_of(chosen), 1, "preset: there is no preset '%.60s'; define it below presets",
                          chosen->text);
}

void config_model_check(const config_values *v, config_report *r) {
    const config_value *file = config_get(v, "template_file"), *rope = config_get(v, "rope_scaling.type");
    check_preset(v, r);
    if (config_get(v, "template")->origin && file->origin)
        config_report_add(r, place_of(file), 1, "template_file: template is set, too; keep only one of the two");
    if (!rope->origin &&
        (config_get(v, "rope_scaling.factor")->origin || config_get(v, "rope_scaling.original_context")->origin))
        config_report_add(r, 0, 0, "rope_scaling.type: is missing; add linear or yarn");
    if (rope->origin && strcmp(rope->text, "none") != 0 && !config_get(v, "rope_scaling.factor")->origin)
        config_report_add(r, place_of(rope), 1,
                          "rope_scaling.factor: is missing; add how much longer the context becomes");
}

static const char *keep(arena *mem, const config_values *v, const char *path, bool *bad) {
    const char *text = config_text(v, path), *copy = text ? arena_strdup(mem, text) : NULL;
    if (text && !copy) *bad = true;
    return copy;
}

/* A type for both that is nearer to the model than one for keys or values replaces that one. */
static void take_pages(config_model *out, const config_values *v, bool *bad) {
    const config_value *both = config_get(v, "kv_cache.type"), *k = config_get(v, "kv_cache.type_k"),
                       *values = config_get(v, "kv_cache.type_v"), *precise = config_get(v, "kv_cache.precise_layers");
    bool own = both->origin == CONFIG_FROM_REGISTRY || both->origin == CONFIG_FROM_MODEL;
    out->page_type = keep(&out->mem, v, "kv_cache.type", bad);
    if (!own || k->origin >= both->origin) out->page_type_k = keep(&out->mem, v, "kv_cache.type_k", bad);
    if (!own || values->origin >= both->origin) out->page_type_v = keep(&out->mem, v, "kv_cache.type_v", bad);
    out->precise_layers = precise->origin ? (int)precise->integer : -1;
}

int config_model_from(config_model *out, const config_values *v, err *e) {
    bool                bad = false;
    const config_value *adapters = config_get(v, "adapters"), *messages = config_get(v, "messages"),
                       *keep_alive = config_get(v, "keep_alive");
    const config_values *preset = NULL;
    memset(out, 0, sizeof *out);
    arena_init(&out->mem, 0);
    sampling_params_default(&out->sampling.values);
    out->context = (int)config_int(v, "context");
    out->system = keep(&out->mem, v, "system", &bad);
    out->template_text = keep(&out->mem, v, "template", &bad);
    out->template_file = keep(&out->mem, v, "template_file", &bad);
    out->preset = keep(&out->mem, v, "preset", &bad);
    out->license = keep(&out->mem, v, "license", &bad);
    out->rope_type = keep(&out->mem, v, "rope_scaling.type", &bad);
    out->rope_factor = config_real(v, "rope_scaling.factor");
    out->rope_original_context = (int)config_int(v, "rope_scaling.original_context");
    out->speculate = keep(&out->mem, v, "speculate", &bad);
    out->draft = keep(&out->mem, v, "draft", &bad);
    out->draft_max = (int)config_int(v, "draft_max");
    out->mmproj = keep(&out->mem, v, "mmproj", &bad);
    out->adapter_type = keep(&out->mem, v, "adapter_type", &bad);
    take_pages(out, v, &bad);
    out->keep_alive_set = keep_alive->origin != CONFIG_UNSET;
    out->keep_alive_s = keep_alive->real;
    out->pinned = config_bool(v, "pinned");
    out->messages = arena_calloc(&out->mem, messages->n_items + 1, sizeof *out->messages);
    for (size_t i = 0; out->messages && i < messages->n_items; i++) {
        out->messages[i].role = keep(&out->mem, &messages->items[i], "role", &bad);
        out->messages[i].content = keep(&out->mem, &messages->items[i], "content", &bad);
        if (!out->messages[i].content) out->messages[i].content = "";
        out->n_messages++;
    }
    out->adapters = arena_calloc(&out->mem, adapters->n_items + 1, sizeof *out->adapters);
    for (size_t i = 0; out->adapters && i < adapters->n_items; i++) {
        const config_value *scale = config_get(&adapters->items[i], "scale");
        out->adapters[i].path = keep(&out->mem, &adapters->items[i], "path", &bad);
        out->adapters[i].scale = scale->origin ? scale->real : 1;
        out->n_adapters++;
    }
    int rc = bad || !out->messages || !out->adapters
                 ? err_set_nomem(e)
                 : take_sampling(&out->sampling, v, "sampling.", NULL, &out->mem, e);
    if (rc == 0 && out->preset && !(preset = find_preset(v, out->preset)))
        rc = err_set(e, ERR_NOTFOUND, "there is no preset '%.60s'", out->preset);
    if (rc == 0 && preset) rc = take_sampling(&out->sampling, preset, "", v, &out->mem, e);
    if (rc < 0) config_model_deinit(out);
    return rc;
}

int config_model_read(config_model *out, view text, const char *label, err *e) {
    config_values v;
    config_report r;
    arena         mem;
    int           rc;
    memset(out, 0, sizeof *out);
    arena_init(&mem, (size_t)64 << 20);
    config_report_init(&r, label);
    if (!config_values_init(&v, &config_model_schema, &mem)) {
        rc = err_set_nomem(e);
    } else {
        config_read(&v, text, CONFIG_FROM_MODEL, &mem, &r);
        if (r.n == 0) config_model_check(&v, &r);
        rc = config_report_result(&r, e);
        if (rc == 0) rc = config_model_from(out, &v, e);
    }
    config_report_deinit(&r);
    arena_deinit(&mem);
    return rc;
}

void config_model_deinit(config_model *m) {
    arena_deinit(&m->mem);
    memset(m, 0, sizeof *m);
}

void config_model_file_name(const char *model, str *out) {
    for (const char *p = model; *p; p++) {
        if (*p == '/' || *p == ':')
            str_puts(out, "__");
        else
            str_push(out, *p);
    }
    str_puts(out, ".yaml");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/settings.h"

#include "backend/parts.h"
#include "base/file.h"
#include "base/machine.h"
#include "cli/models/catalogue.h"
#include "cli/models/models.h"
#include "config/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 64, SETTINGS_BYTES = 64 << 20 };

/* --- places --- */

void settings_directory(str *out) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && config[0] == '/')
        str_printf(out, "%s/hearth", config);
    else if (home && home[0] == '/')
        str_printf(out, "%s/.config/hearth", home);
}

void settings_model_path(const char *model, str *out) {
    size_t before = out->len;
    settings_directory(out);
    if (out->len == before) return;
    str_puts(out, "/models/");
    config_model_file_name(model, out);
}

/* given: it must be there. */
static int find_file(settings *s, const cli_args *a, bool *given, err *e) {
    const char *flag = cli_string(a, "config", NULL), *env = getenv("HEARTH_CONFIG");
    str         path;
    *given = flag || (env && *env);
    s->no_config = cli_flag(a, "no-config");
    if (s->no_config) return flag ? err_set(e, ERR_ARG, "--config and --no-config cannot be used together") : 0;
    str_init(&path);
    if (*given) {
        str_puts(&path, flag ? flag : env);
    } else {
        settings_directory(&path);
        if (path.len == 0) return 0;
        str_puts(&path, "/server.yaml");
    }
    s->path = str_take(&path);
    return s->path ? 0 : err_set_nomem(e);
}

/* --- origins --- */

static int print_report(const config_report *r, err *e) {
    str text;
    if (r->no_memory) return err_set_nomem(e);
    str_init(&text);
    config_report_write(r, &text);
    fflush(stdout);
    fputs(str_cstr(&text), stderr);
    str_deinit(&text);
    return err_set(e, ERR_FORMAT, "%s has %zu problem%s; see 'hearth config check'", r->label, r->n,
                   r->n == 1 ? "" : "s");
}

typedef void (*check_fn)(const config_values *v, config_report *r);

/* One file over v; a checker looks at the file's values alone. */
static int read_over(config_values *v, const char *text, size_t bytes, const char *label, config_origin origin,
                     check_fn check, arena *mem, err *e) {
    config_report r;
    config_values own;
    int           rc = 0;
    config_report_init(&r, label);
    if (!config_values_init(&own, v->schema, mem)) {
        config_report_deinit(&r);
        return err_set_nomem(e);
    }
    config_read(&own, (view){ text, bytes }, origin, mem, &r);
    if (r.n == 0 && !r.no_memory) {
        config_values whole;
        if (!config_values_init(&whole, v->schema, mem)) r.no_memory = true;
        if (!r.no_memory) {
            config_values_defaults(&whole, mem);
            config_overlay(&whole, &own);
            check(&whole, &r);
        }
    }
    if (r.n || r.no_memory)
        rc = print_report(&r, e);
    else
        config_overlay(v, &own);
    config_report_deinit(&r);
    return rc;
}

static int read_file_over(config_values *v, const char *path, config_origin origin, check_fn check, arena *mem,
                          err *e) {
    char  *text = NULL;
    size_t bytes = 0;
    int    rc = file_read(&text, &bytes, path, (size_t)CONFIG_MAX_BYTES + 1, e);
    if (rc == 0) rc = read_over(v, text, bytes, path, origin, check, mem, e);
    free(text);
    return rc;
}

static int read_environment(config_values *v, arena *mem, err *e) {
    for (size_t i = 0; i < v->schema->n; i++) {
        const config_key *k = &v->schema->keys[i];
        const char       *text = k->env ? getenv(k->env) : NULL;
        if (!text || !*text) continue;
        int rc = config_set(v, k, text, 0, CONFIG_FROM_ENV, k->env, mem, e);
        if (rc < 0) return err_wrap(e, rc == ERR_NOMEM ? rc : ERR_ARG, "%s (%s)", k->env, k->path);
    }
    return 0;
}

static int read_flag(config_values *v, const config_key *k, const cli_args *a, arena *mem, err *e) {
    const char *texts[MAX_LIST];
    size_t      n = 0;
    char        where[64];
    snprintf(where, sizeof where, "--%s", k->flag);
    if (k->flag_means)
        return cli_flag(a, k->flag) ? config_set(v, k, k->flag_means, 0, CONFIG_FROM_FLAG, where, mem, e) : 0;
    if (k->type == CONFIG_TEXTS) {
        while (n < MAX_LIST && (texts[n] = cli_string_at(a, k->flag, (int)n))) n++;
        return n ? config_set_texts(v, k, texts, n, CONFIG_FROM_FLAG, where, mem, e) : 0;
    }
    const char *text = cli_string(a, k->flag, NULL);
    return text ? config_set(v, k, text, k->flag_unit, CONFIG_FROM_FLAG, where, mem, e) : 0;
}

static int read_flags(config_values *v, const cli_args *a, arena *mem, err *e) {
    for (size_t i = 0; i < v->schema->n; i++) {
        const config_key *k = &v->schema->keys[i];
        int               rc = k->flag ? read_flag(v, k, a, mem, e) : 0;
        if (rc < 0) return err_wrap(e, rc == ERR_NOMEM ? rc : ERR_ARG, "--%s", k->flag);
    }
    return 0;
}

/* --- names of files --- */

/* "~/x" begins at home; "x" of a file beside it, of the environment and of a flag where the program was started. */
static const char *full_path(const char *text, const config_value *v, arena *mem) {
    const char *home = getenv("HOME"), *slash = v->where ? strrchr(v->where, '/') : NULL;
    const char *kept = text;
    str         path;
    str_init(&path);
    if (strncmp(text, "~/", 2) == 0 && home && home[0] == '/')
        str_printf(&path, "%s/%s", home, text + 2);
    else if (v->origin == CONFIG_FROM_SERVER && text[0] != '/' && slash)
        str_printf(&path, "%.*s%s", (int)(slash - v->where) + 1, v->where, text);
    if (path.len) kept = str_ok(&path) ? arena_strdup(mem, str_cstr(&path)) : NULL;
    str_deinit(&path);
    return kept;
}

static int resolve_files(config_values *v, arena *mem, err *e) {
    for (size_t i = 0; i < v->schema->n; i++) {
        config_value *x = &v->v[i];
        if (!v->schema->keys[i].file || !x->origin || !x->text || !*x->text) continue;
        if (!(x->text = full_path(x->text, x, mem))) return err_set_nomem(e);
    }
    /* A model's path may be a name: only what is plainly a path is resolved. */
    const config_value *list = config_get(v, "models.list");
    for (size_t i = 0; i < list->n_items; i++) {
        config_value *x =
            &list->items[i].v[config_find_key(list->items[i].schema, "path") - list->items[i].schema->keys];
        if (!x->text ||
            (strncmp(x->text, "~/", 2) != 0 && strncmp(x->text, "./", 2) != 0 && strncmp(x->text, "../", 3) != 0))
            continue;
        if (!(x->text = full_path(x->text, x, mem))) return err_set_nomem(e);
    }
    return 0;
}

int settings_load(settings *s, const cli_args *a, err *e) {
    bool given = false;
    int  rc;
    memset(s, 0, sizeof *s);
    arena_init(&s->mem, SETTINGS_BYTES);
    if (!config_values_init(&s->server, &config_server_schema, &s->mem)) return err_set_nomem(e);
    config_values_defaults(&s->server, &s->mem);
    if ((rc = find_file(s, a, &given, e)) < 0) return rc;
    s->found = s->path && (given || file_exists(s->path));
    if (s->found) rc = read_file_over(&s->server, s->path, CONFIG_FROM_SERVER, config_server_check, &s->mem, e);
    if (rc == 0) rc = read_environment(&s->server, &s->mem, e);
    if (rc == 0) rc = read_flags(&s->server, a, &s->mem, e);
    return rc < 0 ? rc : resolve_files(&s->server, &s->mem, e);
}

int settings_peek(config_values *out, arena *mem, err *e) {
    const char   *given = getenv("HEARTH_CONFIG");
    char         *text = NULL;
    size_t        bytes = 0;
    str           path;
    config_report r;
    if (!config_values_init(out, &config_server_schema, mem)) return err_set_nomem(e);
    config_values_defaults(out, mem);
    str_init(&path);
    if (given && *given) {
        str_puts(&path, given);
    } else {
        settings_directory(&path);
        if (path.len) str_puts(&path, "/server.yaml");
    }
    config_report_init(&r, str_cstr(&path));
    if (file_exists(str_cstr(&path)) &&
        file_read(&text, &bytes, str_cstr(&path), (size_t)CONFIG_MAX_BYTES + 1, NULL) == 0)
        config_read(out, (view){ text, bytes }, CONFIG_FROM_SERVER, mem, &r);
    for (size_t i = 0; i < out->schema->n; i++) {
        const config_key *k = &out->schema->keys[i];
        const char       *value = k->env ? getenv(k->env) : NULL;
        if (value && *value) (void)config_set(out, k, value, 0, CONFIG_FROM_ENV, k->env, mem, NULL);
    }
    config_report_deinit(&r);
    free(text);
    str_deinit(&path);
    return resolve_files(out, mem, e);
}

void settings_deinit(settings *s) {
    arena_deinit(&s->mem);
    free(s->path);
    memset(s, 0, sizeof *s);
}

/* One name for both settings: "cuda:0/20". */
static int device_of(settings *s, const char **out, err *e) {
    const char *device = config_text(&s->server, "scheduler.device"),
               *layers = config_text(&s->server, "scheduler.gpu_layers");
    backend_parts p;
    *out = device;
    if (strcmp(layers, "auto") == 0) return backend_parts_read(&p, device, e);
    if (strcmp(layers, "0") == 0) {
        *out = "cpu";
        return 0;
    }
    if (strcmp(device, "cpu") == 0) return err_set(e, ERR_ARG, "gpu_layers: %s with the device cpu", layers);
    if (strpbrk(device, "/+"))
        return err_set(e, ERR_ARG, "gpu_layers: the device %s says itself where the layers are", device);
    size_t room = strlen(device) + strlen(layers) + 2;
    char  *both = arena_alloc(&s->mem, room);
    if (!both) return err_set_nomem(e);
    snprintf(both, room, "%s/%s", device, layers);
    *out = both;
    if (!strchr(layers, '+') && backend_parts_read(&p, both, NULL) == 0) return 0;
    return err_set(e, ERR_ARG, "gpu_layers: '%.40s' is neither auto nor a number of layers nor experts:N", layers);
}

static int experts_of(const settings *s, engine_options *out, err *e) {
    const char *text = config_text(&s->server, "scheduler.experts");
    double      bytes = 0;
    out->experts_auto = strcmp(text, "auto") == 0;
    out->expert_bytes = 0;
    const config_value *limit = config_get(&s->server, "models.mem_limit");
    out->memory_room = machine_memory_available(NULL) / 10 * 8; /* as a server does where nobody says */
    if (limit->origin) out->memory_room = limit->integer < 0 ? 0 : (uint64_t)limit->integer;
    if (out->experts_auto || strcmp(text, "resident") == 0) return 0;
    if (!config_parse_bytes(text, &bytes) || bytes < 1 || bytes > 1e15)
        return err_set(e, ERR_ARG, "experts: '%.40s' is neither auto nor resident nor a size such as 8GiB", text);
    out->expert_bytes = (size_t)bytes;
    return 0;
}

int settings_engine(settings *s, runtime_options *out, err *e) {
    const config_values *v = &s->server;
    engine_options      *g = &out->engine;
    g->n_ctx = (int)config_int(v, "models.context");
    g->cache_bytes = (size_t)config_int(v, "kv_cache.bytes");
    g->page_tokens = (int)config_int(v, "kv_cache.page_tokens");
    g->max_seqs = (int)config_int(v, "scheduler.max_sequences");
    g->step_tokens = (int)config_int(v, "scheduler.token_budget");
    g->max_waiting = (int)config_int(v, "scheduler.max_queue");
    g->target_step_ms = (int)config_int(v, "scheduler.latency_target_ms");
    g->n_threads = (int)config_int(v, "scheduler.threads");
    g->draft_max = (int)config_int(v, "speculative.max");
    g->no_prefix_cache = !config_bool(v, "kv_cache.prefix_cache");
    g->host_cache_bytes = (size_t)config_int(v, "kv_cache.host_bytes");
    g->disk_cache_dir = config_text(v, "kv_cache.disk_dir");
    g->disk_cache_bytes = (uint64_t)config_int(v, "kv_cache.disk_bytes");
    out->max_preparing = (int)config_int(v, "scheduler.max_preparing");
    out->grammar_bytes = (size_t)config_int(v, "scheduler.grammar_bytes");
    g->precise_layers = (int)config_int(v, "kv_cache.precise_layers");
    int rc = device_of(s, &g->device, e);
    if (rc == 0) rc = experts_of(s, g, e);
    if (rc == 0) rc = runtime_speculate(config_text(v, "speculative.type"), &g->speculate, e);
    if (rc < 0) return rc;
    return runtime_cache_types(config_text(v, "kv_cache.type"), config_text(v, "kv_cache.type_k"),
                               config_text(v, "kv_cache.type_v"), g, e);
}

/* --- one model --- */

static void copy_value(config_values *to, const char *path, const config_values *from, const char *from_path) {
    const config_value *v = config_get(from, from_path);
    config_value       *slot = &to->v[config_find_key(to->schema, path) - to->schema->keys];
    /* A default of the server is not a wish. */
    if (v->origin > CONFIG_FROM_DEFAULT && v->origin >= slot->origin) *slot = *v;
}

/* template_file stands relative to the file that names it. */
static int read_template(model_settings *m, err *e) {
    const config_value *v = config_get(&m->values, "template_file");
    const char         *slash = v->where ? strrchr(v->where, '/') : NULL;
    char               *text = NULL;
    size_t              bytes = 0;
    str                 path;
    if (!m->model.template_file) return 0;
    str_init(&path);
    if (m->model.template_file[0] != '/' && slash) str_append(&path, v->where, (size_t)(slash - v->where) + 1);
    str_puts(&path, m->model.template_file);
    int rc = file_read(&text, &bytes, str_cstr(&path), CONFIG_MAX_BYTES, e);
    if (rc == 0 && memchr(text, '\0', bytes))
        rc = err_set(e, ERR_FORMAT, "%s contains a NUL character", str_cstr(&path));
    if (rc == 0 && !(m->runtime.template_text = arena_strdup(&m->mem, text))) rc = err_set_nomem(e);
    free(text);
    str_deinit(&path);
    return rc < 0 ? err_wrap(e, rc, "template_file") : 0;
}

static void wish_sampling(const config_sampling *c, runtime_settings *out) {
    out->sampling = c->values;
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++)
        if (c->set & CONFIG_SET(i)) out->sampling_set |= runtime_set_bits[i];
    if ((int64_t)c->values.seed == SAMPLING_RANDOM_SEED) out->sampling_set &= ~(unsigned)RUNTIME_SET_SEED;
}

/* A path stands relative to the file that names it, too. NULL: out of memory. */
static char *beside(model_settings *m, const config_value *v, const char *path) {
    const char *slash = v->where ? strrchr(v->where, '/') : NULL;
    size_t      front = path[0] != '/' && slash ? (size_t)(slash - v->where) + 1 : 0;
    char       *full = arena_calloc(&m->mem, front + strlen(path) + 1, 1);
    if (!full) return NULL;
    memcpy(full, v->where ? v->where : "", front);
    memcpy(full + front, path, strlen(path));
    return full;
}

static int wish_adapters(model_settings *m, err *e) {
    const config_value *v = config_get(&m->values, "adapters");
    size_t              n = m->model.n_adapters;
    runtime_lora       *lora = arena_calloc(&m->mem, n + 1, sizeof *lora);
    if (!lora) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        char *full = beside(m, v, m->model.adapters[i].path);
        if (!full) return err_set_nomem(e);
        lora[i] = (runtime_lora){ view_of(full), m->model.adapters[i].scale };
    }
    m->runtime.lora = lora;
    m->runtime.n_lora = n;
    return 0;
}

/* What was pulled along is used as far as it is supported; what somebody names must be. */
static int wish_mmproj(model_settings *m, err *e) {
    const config_value *v = config_get(&m->values, "mmproj");
    if (!m->model.mmproj) return 0;
    m->runtime.mmproj = beside(m, v, m->model.mmproj);
    m->runtime.mmproj_may_fail = v->origin == CONFIG_FROM_REGISTRY;
    return m->runtime.mmproj ? 0 : err_set_nomem(e);
}

/* The draft model by name or path. */
static int find_draft(model_settings *m, err *e) {
    char *path = NULL;
    if (!m->model.draft) return 0;
    int rc = cli_model_path(&path, m->model.draft, e);
    if (rc == 0 && !(m->runtime.draft = arena_strdup(&m->mem, path))) rc = err_set_nomem(e);
    free(path);
    return rc < 0 ? err_wrap(e, rc, "draft") : 0;
}

static int wishes(model_settings *m, err *e) {
    const config_model *c = &m->model;
    runtime_settings   *r = &m->runtime;
    str                 json;
    r->system = c->system;
    r->template_text = c->template_text;
    r->n_ctx = c->context;
    r->rope_type = c->rope_type;
    r->rope_factor = c->rope_factor;
    r->rope_original_context = c->rope_original_context;
    r->speculate = c->speculate;
    r->draft_max = c->draft_max;
    r->adapter_type = c->adapter_type;
    r->page_type = c->page_type;
    r->page_type_k = c->page_type_k;
    r->page_type_v = c->page_type_v;
    r->precise_layers = c->precise_layers;
    r->stop = c->sampling.stop;
    r->n_stop = c->sampling.n_stop;
    r->max_tokens = c->sampling.max_tokens;
    r->min_tokens = c->sampling.min_tokens;
    wish_sampling(&c->sampling, r);
    int rc = read_template(m, e);
    if (rc == 0) rc = wish_adapters(m, e);
    if (rc == 0) rc = find_draft(m, e);
    if (rc == 0) rc = wish_mmproj(m, e);
    if (rc < 0 || c->n_messages == 0) return rc;
    str_init(&json);
    for (size_t i = 0; i < c->n_messages; i++) {
        str_puts(&json, i ? ",{\"role\":" : "[{\"role\":");
        str_put_json(&json, c->messages[i].role, strlen(c->messages[i].role));
        str_puts(&json, ",\"content\":");
        str_put_json(&json, c->messages[i].content, strlen(c->messages[i].content));
        str_push(&json, '}');
    }
    str_push(&json, ']');
    if (!str_ok(&json) || !(r->messages = arena_strdup(&m->mem, str_cstr(&json)))) rc = err_set_nomem(e);
    str_deinit(&json);
    return rc;
}

/* The registry's tag, if it has one. The caller frees. */
static int registered(const char *name, char **out, err *e) {
    registry *r = NULL;
    int       rc = catalogue_open_existing(&r, e);
    *out = NULL;
    if (rc == 0 && r && (rc = registry_tag_get(r, name, "settings", out, e)) == ERR_NOTFOUND) rc = 0;
    registry_close(r);
    return rc;
}

static int gather_named(const settings *s, const char *name, model_settings *m, err *e) {
    str   path, label;
    char *own = NULL;
    int   rc = registered(name, &own, e);
    str_init(&path);
    str_init(&label);
    if (rc == 0 && own) {
        str_printf(&label, "settings of %s", name);
        rc = read_over(&m->values, own, strlen(own), str_cstr(&label), CONFIG_FROM_REGISTRY, config_model_check,
                       &m->mem, e);
    }
    if (!s->no_config) settings_model_path(name, &path);
    if (rc == 0 && path.len && file_exists(str_cstr(&path)))
        rc = read_file_over(&m->values, str_cstr(&path), CONFIG_FROM_MODEL, config_model_check, &m->mem, e);
    str_deinit(&path);
    str_deinit(&label);
    free(own);
    return rc;
}

/* The types of an entry in the server's list of models; one for both replaces those of the server for one side. */
static void copy_pages(config_values *v, const config_values *entry) {
    static const char *const keys[] = { "kv_cache.type", "kv_cache.type_k", "kv_cache.type_v",
                                        "kv_cache.precise_layers" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        config_value *slot = &v->v[config_find_key(v->schema, keys[i]) - v->schema->keys];
        bool side = (i == 1 || i == 2) && config_get(entry, keys[0])->origin && slot->origin <= CONFIG_FROM_SERVER;
        if (side) *slot = (config_value){ 0 };
        copy_value(v, keys[i], entry, keys[i]);
    }
}

static int gather(const settings *s, const cli_args *a, const char *name, const config_values *entry, model_settings *m,
                  err *e) {
    config_values *v = &m->values;
    int            rc = 0;
    if (!config_values_init(v, &config_model_schema, &m->mem)) return err_set_nomem(e);
    config_overlay(v, &s->server); /* sampling */
    copy_value(v, "context", &s->server, "models.context");
    copy_value(v, "speculate", &s->server, "speculative.type");
    copy_value(v, "draft_max", &s->server, "speculative.max");
    if (entry) {
        copy_value(v, "context", entry, "context");
        copy_value(v, "keep_alive", entry, "keep_alive");
        copy_value(v, "pinned", entry, "pinned");
        copy_pages(v, entry);
    }
    if (name) rc = gather_named(s, name, m, e);
    if (rc == 0) rc = read_environment(v, &m->mem, e);
    if (rc == 0) rc = read_flags(v, a, &m->mem, e);
    /* What the server is told by the environment or a flag holds for every model. */
    if (rc == 0 && config_get(&s->server, "models.keep_alive")->origin >= CONFIG_FROM_ENV)
        copy_value(v, "keep_alive", &s->server, "models.keep_alive");
    return rc;
}

int settings_model(const settings *s, const cli_args *a, const char *name, const config_values *entry,
                   model_settings *out, err *e) {
    memset(out, 0, sizeof *out);
    arena_init(&out->mem, SETTINGS_BYTES);
    int rc = gather(s, a, name, entry, out, e);
    if (rc == 0) rc = config_model_from(&out->model, &out->values, e);
    if (rc == 0) rc = wishes(out, e);
    if (rc == 0) return 0;
    model_settings_deinit(out);
    return name ? err_wrap(e, rc, "model %s", name) : rc;
}

void model_settings_deinit(model_settings *m) {
    config_model_deinit(&m->model);
    arena_deinit(&m->mem);
    memset(m, 0, sizeof *m);
}

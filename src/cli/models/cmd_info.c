/* SPDX-License-Identifier: Apache-2.0 */
/* hearth info: what a model would need and how fast it would be, without loading it; --calibrate measures the speed. */
#include "backend/backend.h"
#include "base/machine.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "cli/models/cache_choices.h"
#include "cli/models/calibration.h"
#include "cli/models/disk_speed.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "cli/run/once.h"
#include "cli/settings.h"
#include "formats/summary.h"
#include "runtime/need.h"
#include "runtime/runtime.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROMPT = 256, GENERATE = 32, REPS = 3, MAX_CONTEXT = 1 << 24 };

typedef enum speed_source { SPEED_UNKNOWN, SPEED_ESTIMATED, SPEED_MEASURED } speed_source;

typedef struct info {
    const char    *given, *path, *cache_type, *drafters;
    bool           has_draft; /* its settings name one */
    model_file    *file;
    model_summary  sum;
    engine_options engine;
    need           n;
    uint64_t       available; /* 0: not known */
    const char    *available_from;
    char           gpu[96];         /* the name of the one that computes; empty: the CPU does */
    int            fitting_context; /* where it does not fit: what would; 0: none, or not asked */
    cache_choices  choices;
    speed_source   source;
    calibration    speed;
    char           model_key[65], machine[256], type_name[16];
} info;

/* --- measuring --- */

/* One request of random tokens. */
static int measure(runtime *r, int n_prompt, int n_generate, int64_t n_vocab, runtime_usage *out, err *e) {
    static uint64_t random = 88172645463325252u;
    runtime_request q;
    int32_t        *tokens = calloc((size_t)n_prompt, sizeof *tokens);
    if (!tokens) return err_set_nomem(e);
    for (int i = 0; i < n_prompt; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        tokens[i] = (int32_t)(random % (uint64_t)n_vocab);
    }
    runtime_request_init(&q);
    q.task = RUNTIME_COMPLETE;
    q.tokens = tokens;
    q.n_tokens = (size_t)n_prompt;
    q.max_tokens = n_generate;
    q.ignore_eos = q.no_cache = true;
    q.sampling.temperature = 0;
    q.sampling_set = RUNTIME_SET_TEMPERATURE;
    int rc = once_ask(r, &q, NULL, out, e);
    free(tokens);
    return rc;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int calibrate(info *x, err *e) {
    runtime_options o = { .path = x->path, .engine = x->engine };
    runtime        *r;
    runtime_info    facts;
    runtime_usage   u = { 0 };
    double          prompt[REPS], generation[REPS];
    double          load = 0;
    o.engine.max_seqs = 1;
    o.engine.expert_bytes = x->n.experts.bytes;
    o.engine.experts_auto = false;
    if (getloadavg(&load, 1) == 1 && load > 0.7 * pool_default_threads())
        log_warn("info", "other programs are busy (load %.1f), so the measured speeds will be too low", load);
    int rc = runtime_open(&r, &o, e);
    if (rc < 0) return rc;
    runtime_describe(r, &facts);
    int room = facts.n_ctx, n_prompt = room / 2 < PROMPT ? room / 2 : PROMPT,
        n_generate = room / 4 < GENERATE ? room / 4 : GENERATE;
    if (n_prompt < 1 || n_generate < 2)
        rc = err_set(e, ERR_ARG, "a context of %d tokens is too short to measure", room);
    if (rc == 0) rc = measure(r, n_prompt < 16 ? n_prompt : 16, 2, facts.n_vocab, &u, e); /* pages in, threads up */
    for (int i = 0; rc == 0 && i < REPS; i++) {
        rc = measure(r, n_prompt, n_generate, facts.n_vocab, &u, e);
        if (rc == 0 && (u.prompt_s <= 0 || u.generate_s <= 0 || u.generated_tokens < 2))
            rc = err_set(e, ERR_LIMIT, "the model generated only %d tokens, too few to measure its speed",
                         u.generated_tokens);
        prompt[i] = rc == 0 ? n_prompt / u.prompt_s : 0;
        /* The first token comes out of the prompt. */
        generation[i] = rc == 0 ? (u.generated_tokens - 1) / u.generate_s : 0;
    }
    runtime_free(r);
    if (rc < 0) return rc;
    qsort(prompt, REPS, sizeof *prompt, by_value);
    qsort(generation, REPS, sizeof *generation, by_value);
    calibration *c = &x->speed;
    *c = (calibration){ .prompt = prompt[REPS / 2],
                        .generation = generation[REPS / 2],
                        .prompt_tokens = n_prompt,
                        .generated_tokens = n_generate,
                        .threads = x->engine.n_threads > 0 ? x->engine.n_threads : pool_default_threads(),
                        .token_bytes = (double)x->n.token_bytes,
                        .token_products = (double)x->n.token_products,
                        .measured_at = (int64_t)time(NULL) };
    if (x->n.experts.bytes && (rc = disk_speed_measure(x->file, &c->disk, e)) < 0) return rc;
    snprintf(c->model, sizeof c->model, "%s", x->model_key);
    snprintf(c->machine, sizeof c->machine, "%s", x->machine);
    snprintf(c->name, sizeof c->name, "%.120s", x->given);
    snprintf(c->cache_type, sizeof c->cache_type, "%.15s", x->cache_type);
    x->source = SPEED_MEASURED;
    return calibration_store(c, e);
}

/* --- the dry run --- */

static void name_gpu(info *x) {
    const nn_backend *backend;
    nn_device         d;
    if (backend_find(x->n.device, &backend, &d, NULL) == 0 && (d.kind == NN_DEVICE_GPU || x->n.limits.n))
        snprintf(x->gpu, sizeof x->gpu, "%s", d.name);
}

static int look(info *x, int n_sequences, err *e) {
    int rc = model_file_open(&x->file, x->path, e);
    if (rc < 0) return rc;
    model_summary_read(&x->sum, x->file);
    if ((rc = need_of_model(&x->n, x->file, &x->engine, n_sequences, e)) < 0) return err_wrap(e, rc, "%s", x->path);
    x->drafters = runtime_drafters(x->engine.speculate, x->has_draft, x->n.has_next);
    x->available = machine_memory_available(&x->available_from);
    name_gpu(x);
    if (!need_fits(&x->n, x->available))
        x->fitting_context = need_fitting_context(&x->n, x->file, &x->engine, n_sequences, x->available);
    engine_options there = x->engine;
    there.device = x->n.device;
    there.expert_bytes = x->n.experts.bytes;
    there.experts_auto = false;
    cache_choices_find(&x->choices, x->file, &there, x->n.limits.n ? device_memory_sum(&x->n.limits) : x->available);
    calibration_model_key(x->model_key, x->file);
    calibration_machine_key(x->machine, x->gpu);
    size_t known = strlen(x->machine);
    if (x->n.experts.bytes)
        snprintf(x->machine + known, sizeof x->machine - known, ", experts in %zu MiB", x->n.experts.bytes >> 20);
    if (calibration_find(&x->speed, x->model_key, x->machine, x->cache_type))
        x->source = SPEED_MEASURED;
    else if (calibration_estimate(&x->speed, x->machine, (double)x->n.token_bytes, (double)x->n.token_products))
        x->source = SPEED_ESTIMATED;
    return 0;
}

/* --- showing --- */

static const char *bytes_text(char out[32], uint64_t bytes) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double                   v = (double)bytes;
    size_t                   u = 0;
    while (v >= 1000 && u + 1 < sizeof units / sizeof units[0]) {
        v /= 1024;
        u++;
    }
    snprintf(out, 32, u == 0 || v >= 99.95 ? "%.0f %s" : v >= 9.995 ? "%.1f %s" : "%.2f %s", v, units[u]);
    return out;
}

static void put_speed(const info *x, str *out) {
    const calibration *c = &x->speed;
    char               date[32] = "";
    time_t             at = (time_t)c->measured_at;
    struct tm          tm;
    if (x->source == SPEED_UNKNOWN) {
        str_puts(out, "speed           unknown; measure it with --calibrate\n");
        return;
    }
    if (localtime_r(&at, &tm)) strftime(date, sizeof date, "%Y-%m-%d", &tm);
    str_printf(out, "speed           prompt %.*f tokens/s, generation %.*f tokens/s\n", c->prompt < 100, c->prompt,
               c->generation < 100, c->generation);
    if (x->source == SPEED_MEASURED)
        str_printf(out, "                measured %s with %lld threads: %s\n", date, (long long)c->threads, c->machine);
    else
        str_printf(out, "                an estimate from '%s', measured %s; --calibrate measures this model\n",
                   c->name, date);
}

/* Where the experts of a mixture are; of streamed ones, what a token reads at three rates of hits. */
static void put_experts(const info *x, str *out) {
    const nn_expert_memory *m = &x->n.experts;
    static const int        hits[] = { 0, 75, 90 };
    char                    a[32], b[32];
    if (!m->count) return;
    if (!m->bytes) {
        str_printf(out, "experts         resident: %d, %s", m->count, bytes_text(a, m->file));
        if (m->most) str_printf(out, "; streaming takes at least %s (--experts)", bytes_text(b, m->least));
        str_puts(out, "\n");
        return;
    }
    str_printf(out, "experts         streamed: %s in the file, %s of memory for %d of %d\n", bytes_text(a, m->file),
               bytes_text(b, m->bytes), m->slots, m->count);
    for (size_t i = 0; i < sizeof hits / sizeof *hits; i++) {
        double bytes = (double)m->token * (100 - hits[i]) / 100;
        str_printf(out, "                %2d%% hits: %s per token", hits[i], bytes_text(a, (uint64_t)bytes));
        if (x->speed.disk > 0) str_printf(out, ", at most %.1f tokens/s from this disk", x->speed.disk / bytes);
        str_puts(out, "\n");
    }
    if (x->speed.disk > 0)
        str_printf(out, "                the disk reads %s/s\n", bytes_text(a, (uint64_t)x->speed.disk));
}

static void put_device(const info *x, str *out) {
    uint64_t bytes = device_memory_beside(&x->n.bytes), limit = device_memory_sum(&x->n.limits);
    char     a[32], b[32];
    if (x->n.left[0]) str_printf(out, "device          %s: %s\n", x->n.device, x->n.left);
    if (!limit) return;
    str_printf(out, "device          %s (%s): %s of %s memory; ", x->n.device, x->gpu, bytes_text(a, bytes),
               x->n.limits.n > 1 ? "their" : "its");
    if (bytes <= limit && need_fits(&x->n, 0))
        str_printf(out, "fits: models may take %s\n", bytes_text(b, limit));
    else if (bytes <= limit)
        str_printf(out, "DOES NOT FIT: models may take %s of all together, and one has too little\n",
                   bytes_text(b, limit));
    else
        str_printf(out, "DOES NOT FIT: models may take %s, %s missing\n", bytes_text(b, limit),
                   bytes_text(a, bytes - limit));
}

static void put_text(const info *x, str *out) {
    const need          *n = &x->n;
    const model_summary *s = &x->sum;
    uint64_t             total = device_memory_on(&n->bytes, DEVICE_CPU);
    char                 a[32], b[32];
    str_printf(out, "model           %s\n", x->path);
    str_printf(out, "architecture    %.*s, %s%.1f M parameters, %s, %s\n", (int)s->arch.len, s->arch.data, "",
               (double)s->parameters / 1e6, s->level[0] ? s->level : "?", s->format);
    str_printf(out, "context         %d tokens", n->n_ctx);
    if (n->n_ctx_train > 0) str_printf(out, " (the model was made for %d)", n->n_ctx_train);
    str_printf(out, ", %d full sequence%s, cache in %s\n", n->n_sequences, n->n_sequences == 1 ? "" : "s",
               x->cache_type);
    str_printf(out, "weights         %s\n", bytes_text(a, n->weights_bytes));
    put_experts(x, out);
    str_printf(out, "cache           %s: %s per 1,000 tokens", bytes_text(a, n->cache_bytes),
               bytes_text(b, n->cache_bytes_per_1k));
    if (n->sequence_bytes) str_printf(out, " and %s per sequence", bytes_text(b, n->sequence_bytes));
    str_printf(out, "\nscratch         %s\n", bytes_text(a, n->scratch_bytes));
    str_printf(out, "other           about %s (tokenizer, heap)\n", bytes_text(a, n->other_bytes));
    str_printf(out, "drafts          %s\n", *x->drafters ? x->drafters : "off");
    str_printf(out, "memory          %s in all", bytes_text(a, total));
    if (!x->available)
        str_puts(out, "; the amount of available memory is not known\n");
    else if (total <= x->available)
        str_printf(out, "; fits: %s available%s\n", bytes_text(b, x->available),
                   strcmp(x->available_from, "cgroup") == 0 ? " in this control group" : "");
    else {
        str_printf(out, "; DOES NOT FIT: %s available%s, ", bytes_text(b, x->available),
                   strcmp(x->available_from, "cgroup") == 0 ? " in this control group" : "");
        str_printf(out, "%s missing\n", bytes_text(b, total - x->available));
    }
    put_device(x, out);
    if (x->fitting_context) str_printf(out, "                --ctx %d would fit\n", x->fitting_context);
    cache_choices_text(&x->choices, out);
    put_speed(x, out);
}

static void put_json(const info *x, str *out) {
    const need              *n = &x->n;
    const model_summary     *s = &x->sum;
    const calibration       *c = &x->speed;
    uint64_t                 total = device_memory_on(&n->bytes, DEVICE_CPU);
    static const char *const sources[] = { "null", "\"estimate\"", "\"calibration\"" };
    const struct {
        const char *key;
        uint64_t    value;
    } memory[] = { { "weights", n->weights_bytes },
                   { "cache", n->cache_bytes },
                   { "cache_per_1k", n->cache_bytes_per_1k },
                   { "per_sequence", n->sequence_bytes },
                   { "scratch", n->scratch_bytes },
                   { "other", n->other_bytes },
                   { "total", total } };
    str_puts(out, "{\"model\":");
    str_put_json(out, x->given, strlen(x->given));
    str_puts(out, ",\"path\":");
    str_put_json(out, x->path, strlen(x->path));
    str_puts(out, ",\"architecture\":");
    str_put_json(out, s->arch.data, s->arch.len);
    str_printf(out, ",\"format\":\"%s\",\"parameters\":%" PRIu64 ",\"type\":", s->format, s->parameters);
    if (s->level[0])
        str_put_json(out, s->level, strlen(s->level));
    else
        str_puts(out, "null");
    str_printf(out, ",\"context\":%d,\"context_trained\":%d,\"sequences\":%d,\"cache_type\":\"%s\",\"memory\":{",
               n->n_ctx, n->n_ctx_train, n->n_sequences, x->cache_type);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        str_printf(out, "%s\"%s\":%" PRIu64, i ? "," : "", memory[i].key, memory[i].value);
    if (n->limits.n)
        str_printf(out, ",\"device\":%" PRIu64 ",\"device_limit\":%" PRIu64, device_memory_beside(&n->bytes),
                   device_memory_sum(&n->limits));
    if (x->available)
        str_printf(out, ",\"available\":%" PRIu64 ",\"available_from\":\"%s\",\"fits\":%s", x->available,
                   x->available_from, need_fits(n, x->available) ? "true" : "false");
    else
        str_puts(out, ",\"available\":null,\"available_from\":null,\"fits\":null");
    if (x->fitting_context)
        str_printf(out, ",\"context_that_fits\":%d", x->fitting_context);
    else
        str_puts(out, ",\"context_that_fits\":null");
    str_printf(out,
               "},\"experts\":{\"count\":%d,\"slots\":%d,\"file\":%zu,\"memory\":%zu,\"least\":%zu,\"most\":%zu,"
               "\"per_token\":%zu,\"disk_bytes_per_second\":",
               n->experts.count, n->experts.slots, n->experts.file, n->experts.bytes, n->experts.least, n->experts.most,
               n->experts.token);
    if (x->speed.disk > 0)
        str_printf(out, "%.0f", x->speed.disk);
    else
        str_puts(out, "null");
    str_puts(out, "},\"cache_types\":");
    cache_choices_json(&x->choices, out);
    str_printf(out, ",\"device\":\"%s\",\"drafters\":\"%s\",\"speed\":{\"source\":%s", x->n.device, x->drafters,
               sources[x->source]);
    if (x->source != SPEED_UNKNOWN) {
        str_printf(out, ",\"prompt_tokens_per_second\":%.2f,\"generation_tokens_per_second\":%.2f,\"threads\":%lld",
                   c->prompt, c->generation, (long long)c->threads);
        str_printf(out, ",\"measured_at\":%lld,\"measured_model\":", (long long)c->measured_at);
        str_put_json(out, c->name, strlen(c->name));
    } else {
        str_puts(out, ",\"prompt_tokens_per_second\":null,\"generation_tokens_per_second\":null,\"threads\":null,"
                      "\"measured_at\":null,\"measured_model\":null");
    }
    str_puts(out, ",\"machine\":");
    str_put_json(out, x->machine, strlen(x->machine));
    str_puts(out, "}}\n");
}

/* The model, and the options that `hearth serve` would open it with; flags go before them. */
static int prepare(info *x, const cli_args *a, settings *all, cli_model *model, err *e) {
    model_settings  own = { 0 };
    runtime_options o = { 0 };
    const char     *type = cli_string(a, "cache-type", NULL);
    int             rc = settings_load(all, a, e);
    if (rc == 0) rc = cli_model_find(model, x->given, NULL, e);
    /* As in `hearth run`: a file has no settings of its own. */
    const char *name = rc == 0 && model->name ? model->name : strcmp(x->given, "demo") == 0 ? "demo" : NULL;
    if (rc == 0) rc = settings_engine(all, &o, e);
    if (rc == 0) rc = settings_model(all, a, name, NULL, &own, e);
    if (rc == 0) rc = runtime_settings_pages(&own.runtime, &o.engine, e);
    if (rc == 0 && type) rc = runtime_cache_types(type, NULL, NULL, &o.engine, e);
    x->engine = o.engine;
    if (own.runtime.n_ctx > 0) x->engine.n_ctx = own.runtime.n_ctx;
    if (rc == 0 && own.runtime.speculate) rc = runtime_speculate(own.runtime.speculate, &x->engine.speculate, e);
    x->has_draft = own.runtime.draft != NULL;
    snprintf(x->type_name, sizeof x->type_name, "%s/%s", nn_kv_type_name(o.engine.k_type),
             nn_kv_type_name(o.engine.v_type));
    x->cache_type = x->type_name;
    if (o.engine.kv_auto)
        x->cache_type = "auto";
    else if (o.engine.k_type == o.engine.v_type)
        x->cache_type = nn_kv_type_name(o.engine.k_type);
    x->path = model->path;
    model_settings_deinit(&own);
    return rc;
}

static int run(const cli_args *a) {
    info      x = { .given = cli_arg(a, 0) ? cli_arg(a, 0) : "demo" };
    long long ctx = cli_int(a, "ctx", 0), sequences = cli_int(a, "sequences", 0), threads = cli_int(a, "threads", 0);
    settings  all = { 0 };
    cli_model model = { 0 };
    err       e = { 0 };
    str       out;
    if (ctx < 0 || ctx > MAX_CONTEXT) return cli_usage_error(a, "--ctx must lie between 0 and %d", MAX_CONTEXT);
    if (sequences < 0 || sequences > 1024) return cli_usage_error(a, "--sequences must lie between 0 and 1024");
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (runtime_cache_types(cli_string(a, "cache-type", NULL), NULL, NULL, &x.engine, &e) < 0)
        return cli_usage_error(a, "--cache-type: %s", e.msg);
    int rc = prepare(&x, a, &all, &model, &e);
    if (rc == 0) rc = look(&x, (int)sequences, &e);
    if (rc == 0 && cli_flag(a, "calibrate")) rc = calibrate(&x, &e);
    if (rc == 0) {
        str_init(&out);
        (cli_flag(a, "json") ? put_json : put_text)(&x, &out);
        fputs(str_cstr(&out), stdout);
        str_deinit(&out);
    }
    if (x.file) model_summary_deinit(&x.sum);
    model_file_free(x.file);
    cli_model_deinit(&model);
    settings_deinit(&all);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    CLI_CTX_OPTION('c'),
    CLI_KV_OPTION("cache-type"),
    CLI_KV_OPTIONS,
    { "sequences", CLI_INT, "N", "full contexts in the cache; 0: as in serve (0)", 0 },
    CLI_THREADS_OPTION,
    CLI_DEVICE_OPTION,
    CLI_GPU_LAYERS_OPTION,
    CLI_EXPERTS_OPTION,
    { "calibrate", CLI_FLAG, NULL, "load the model, measure its speed and store that", 0 },
    CLI_CONFIG_OPTIONS,
    CLI_JSON_OPTION,
    { 0 },
};

const cli_command cli_cmd_info = {
    "info",
    "[MODEL] [--ctx N] [--calibrate]",
    "Report how much memory a model needs and how fast it is on this machine, without loading it.",
    options,
    0,
    1,
    run,
};

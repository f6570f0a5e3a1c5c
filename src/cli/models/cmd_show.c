/* SPDX-License-Identifier: Apache-2.0 */
/* hearth show: what a model is, for people or (--json, stable keys) for programs. */
#include "bundle/template.h"
#include "chat/format.h"
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "cli/settings.h"
#include "formats/summary.h"
#include "formats/text.h"
#include "models/list.h"
#include "nn/plan.h"
#include "registry/create.h"
#include "runtime/runtime.h"
#include "vision/ears.h"
#include "vision/vision.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

static const char *human(char buffer[32], double value, double step, const char *const *units) {
    int i = 0;
    while (value >= step && units[i + 1]) {
        value /= step;
        i++;
    }
    snprintf(buffer, 32, i == 0 || value >= 99.95 ? "%.0f%s" : value >= 9.995 ? "%.1f%s" : "%.2f%s", value, units[i]);
    return buffer;
}

static const char *human_bytes(char buffer[32], double bytes) {
    static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB", NULL };
    return human(buffer, bytes, 1024, units);
}

static const char *human_count(char buffer[32], double count) {
    static const char *const units[] = { "", " K", " M", " B", " T", NULL };
    return human(buffer, count, 1000, units);
}

static void put_label(str *out, const char *label) { str_printf(out, "%-15s ", label); }

static void put_text(str *out, const char *label, view text) {
    if (!text.len) return;
    put_label(out, label);
    text_put_safe(out, text);
    str_push(out, '\n');
}

static void put_number(str *out, const char *label, int64_t value) {
    if (value <= 0) return;
    put_label(out, label);
    str_printf(out, "%" PRId64 "\n", value);
}

static double bits_per_weight(const model_summary *s) {
    return s->parameters ? (double)s->weight_bytes * 8 / (double)s->parameters : 0;
}

static void put_shape(str *out, const model_summary *s) {
    if (!s->layers) return;
    put_label(out, "layers");
    str_printf(out, "%" PRId64, s->layers);
    if (s->embedding) str_printf(out, ", width %" PRId64, s->embedding);
    if (s->heads) str_printf(out, ", %" PRId64 " heads", s->heads);
    if (s->kv_heads) str_printf(out, " (%" PRId64 " for keys and values)", s->kv_heads);
    str_push(out, '\n');
}

static void put_tokenizer(str *out, const model_summary *s) {
    put_label(out, "tokenizer");
    if (s->tokenizer.len || !s->tokens)
        text_put_safe(out, s->tokenizer.len ? s->tokenizer : view_of("none"));
    else
        str_puts(out, "unnamed");
    if (s->pre.len) {
        str_puts(out, ", pre-tokenizer ");
        text_put_safe(out, s->pre);
    }
    if (s->tokens) str_printf(out, ", %" PRId64 " tokens", s->tokens);
    str_push(out, '\n');
    put_label(out, "chat template");
    if (s->template_source.len)
        str_printf(out, "%.*s, %zu bytes\n", (int)s->template_source.len, s->template_source.data, s->template_bytes);
    else
        str_puts(out, "none\n");
}

/* How the model calls tools: by its template, or in the form for templates that know none. */
static void put_tools(str *out, const char *path) {
    bundle_template b;
    chat_format     f;
    if (bundle_template_open(&b, path, NULL) < 0) return;
    view source = tmpl_source(bundle_template_pick(&b, true));
    chat_format_detect(&f, source.data, source.len);
    put_label(out, "tool calls");
    if (f.row->shape == CHAT_SHAPE_NONE)
        str_puts(out, "generic form: the chat template does not support tools\n");
    else
        str_printf(out, "%s\n", f.row->name);
    bundle_template_deinit(&b);
}

static void put_memory(str *out, const model_summary *s) {
    char a[32], b[32], c[32];
    if (!s->tensors) return;
    put_label(out, "memory");
    if (s->kv_known) {
        str_printf(out, "%s: %s of weights, %s of cache\n",
                   human_bytes(a, (double)s->weight_bytes + (double)s->kv_bytes),
                   human_bytes(b, (double)s->weight_bytes), human_bytes(c, (double)s->kv_bytes));
        put_label(out, "");
        str_printf(out, "(one sequence of %" PRId64 " tokens, cache in f16, %s)\n", s->context, s->kv_assumption);
    } else {
        str_printf(out, "%s of weights; the model does not state the size of its cache\n",
                   human_bytes(b, (double)s->weight_bytes));
    }
}

static void put_types(str *out, const model_summary *s) {
    if (!s->n_types) return;
    str_printf(out, "\n%-18s %8s %12s %12s %7s\n", "type", "tensors", "parameters", "size", "share");
    for (size_t i = 0; i < s->n_types; i++) {
        const summary_type *t = &s->types[i];
        char                a[32], b[32];
        str_printf(out, "%-18s %8zu %12s %12s %6.1f%%\n", t->label, t->tensors, human_count(a, (double)t->parameters),
                   human_bytes(b, (double)t->bytes),
                   s->weight_bytes ? 100.0 * (double)t->bytes / (double)s->weight_bytes : 0);
    }
}

static void put_tensors(str *out, const model_file *m) {
    size_t width = 6;
    if (model_file_tensor_count(m) == 0) return;
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        size_t len = strlen(model_file_tensor_at(m, i)->name);
        if (len > width) width = len;
    }
    if (width > 64) width = 64;
    str_printf(out, "\n%-*s %-14s %-24s %12s\n", (int)width, "tensor", "type", "shape", "size");
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        char                shape[MODEL_MAX_DIMS * 24], label[24], size[32];
        size_t              used = 0;
        shape[0] = '\0';
        for (int d = t->n_dims - 1; d >= 0; d--)
            used += (size_t)snprintf(shape + used, sizeof shape - used, "%" PRId64 "%s", t->dims[d], d ? " x " : "");
        (void)model_summary_tensor(m, t, label);
        /* names were checked when they were read: no control characters */
        str_printf(out, "%-*s %-14s %-24s %12s\n", (int)width, t->name, label, shape,
                   human_bytes(size, (double)t->bytes));
    }
}

/* Whether it takes pictures and sounds, and where its towers are if that is another file. */
typedef struct eyes {
    bool  sees, hears;
    char *path; /* NULL: in the model itself */
} eyes;

/* By the model's settings or an option. */
typedef struct named {
    char *path;     /* NULL: nobody named one */
    bool  may_fail; /* it came along, and nobody asked for it */
} named;

static int find_eyes(eyes *out, const model_file *m, const named *n, err *e) {
    char       *path = n->path ? strdup(n->path) : runtime_find_mmproj(model_file_path(m));
    model_file *mmproj = NULL;
    bool        must = n->path && !n->may_fail;
    int         rc = path ? model_file_open(&mmproj, path, must ? e : NULL) : 0;
    out->sees = rc == 0 && vision_known(m, mmproj);
    out->hears = rc == 0 && ears_known(m, mmproj);
    model_file_free(mmproj);
    if (out->sees || out->hears) {
        out->path = path;
        return 0;
    }
    if (rc == 0 && must)
        rc = err_set(e, ERR_UNSUPPORTED, "%s is not a vision tower or an encoder of sounds that is supported", path);
    free(path);
    return must ? rc : 0;
}

static void put_eyes(str *out, const eyes *y) {
    if (!y->sees && !y->hears) return;
    put_label(out, "input");
    str_printf(out, "text%s%s", y->sees ? ", pictures" : "", y->hears ? ", sounds" : "");
    if (y->path) str_puts(out, " by ");
    if (y->path) text_put_safe(out, view_of(y->path));
    str_push(out, '\n');
}

static void put_summary(str *out, const model_file *m, const model_summary *s, const eyes *y) {
    char a[32];
    put_text(out, "model", view_of(model_file_path(m)));
    put_text(out, "name", s->name);
    put_text(out, "format", view_of(s->format));
    put_text(out, "architecture", s->arch.len ? s->arch : view_of("not stated"));
    if (s->parameters) {
        put_label(out, "parameters");
        if (s->parameters >= 1000)
            str_printf(out, "%s (%" PRIu64 ")\n", human_count(a, (double)s->parameters), s->parameters);
        else
            str_printf(out, "%" PRIu64 "\n", s->parameters);
    }
    put_text(out, "quantization", view_of(s->level));
    put_text(out, "quantized by", s->method);
    put_shape(out, s);
    put_number(out, "context length", s->context);
    put_tokenizer(out, s);
    put_tools(out, model_file_path(m));
    put_eyes(out, y);
    put_label(out, "size");
    str_printf(out, "%s", human_bytes(a, (double)s->file_bytes));
    if (s->tensors)
        str_printf(out, " in %zu tensors, %.2f bits per weight", s->tensors, bits_per_weight(s));
    else
        str_puts(out, ", no weights");
    str_push(out, '\n');
    put_memory(out, s);
    put_types(out, s);
}

/* ---- JSON ---- */

/* JSON that is also safe on a terminal: DEL and the C1 controls, legal in JSON, are escaped too. */
static void put_json_text(str *out, view text) {
    size_t from = 0;
    str    piece;
    str_init(&piece);
    str_put_json(&piece, text.data, text.len);
    for (size_t i = 0; i < piece.len;) {
        unsigned cp;
        size_t   n = utf8_decode(piece.data + i, piece.len - i, &cp);
        if (cp >= 0x7F && cp < 0xA0) {
            str_append(out, piece.data + from, i - from);
            str_printf(out, "\\u%04x", cp);
            from = i + n;
        }
        i += n ? n : 1;
    }
    str_append(out, piece.data + from, piece.len - from);
    str_deinit(&piece);
}

static void put_json_string(str *out, const char *key, view text) {
    str_printf(out, ",\"%s\":", key);
    if (text.len)
        put_json_text(out, text);
    else
        str_puts(out, "null");
}

static void put_json_number(str *out, const char *key, int64_t value) {
    if (value > 0)
        str_printf(out, ",\"%s\":%" PRId64, key, value);
    else
        str_printf(out, ",\"%s\":null", key);
}

static void put_json_types(str *out, const model_summary *s) {
    str_puts(out, ",\"quantization\":[");
    for (size_t i = 0; i < s->n_types; i++) {
        const summary_type *t = &s->types[i];
        str_printf(out, "%s{\"type\":\"%s\",\"tensors\":%zu,\"parameters\":%" PRIu64 ",\"bytes\":%zu}", i ? "," : "",
                   t->label, t->tensors, t->parameters, t->bytes);
    }
    str_push(out, ']');
}

static void put_json_memory(str *out, const model_summary *s) {
    str_printf(out, ",\"memory\":{\"weights_bytes\":%zu", s->weight_bytes);
    if (s->kv_known)
        str_printf(out, ",\"kv_cache_bytes\":%" PRIu64 ",\"total_bytes\":%.0f,\"context_length\":%" PRId64, s->kv_bytes,
                   (double)s->kv_bytes + (double)s->weight_bytes, s->context);
    else
        str_puts(out, ",\"kv_cache_bytes\":null,\"total_bytes\":null,\"context_length\":null");
    str_printf(out, ",\"kv_type\":\"f16\",\"assumption\":");
    if (s->kv_known)
        put_json_text(out, view_of(s->kv_assumption));
    else
        str_puts(out, "null");
    str_push(out, '}');
}

static void put_json_tensors(str *out, const model_file *m) {
    str_puts(out, ",\"tensors\":[");
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        str_puts(out, i ? ",\n {\"name\":" : "\n {\"name\":");
        put_json_text(out, view_of(t->name));
        str_printf(out, ",\"type\":\"%s\",\"shape\":[", tensor_type_name((int)t->type));
        for (int d = t->n_dims - 1; d >= 0; d--) str_printf(out, "%" PRId64 "%s", t->dims[d], d ? "," : "");
        str_printf(out, "],\"bytes\":%zu}", t->bytes);
    }
    str_push(out, ']');
}

/* What the registry knows of a model. */
typedef struct registered {
    registry_model model;    /* no name: it is not there */
    char          *settings; /* NULL: none */
} registered;

static void registered_deinit(registered *g) {
    registry_model_deinit(&g->model);
    free(g->settings);
}

static int read_registered(registered *g, const char *name, err *e) {
    registry *r = NULL;
    int       rc = catalogue_open_existing(&r, e);
    if (rc == 0 && r) rc = registry_find(r, name, &g->model, e);
    if (rc == 0 && r) rc = registry_settings(r, name, &g->settings, e);
    registry_close(r);
    return rc;
}

static void put_json_registered(str *out, const registered *g) {
    if (!g->model.name) return;
    str_puts(out, ",\"registered\":{\"name\":");
    put_json_text(out, view_of(g->model.name));
    put_json_string(out, "source", view_of(g->model.source ? g->model.source : ""));
    str_printf(out, ",\"settings\":%s}", g->settings ? g->settings : "null");
}

static int put_registered(str *out, const registered *g, err *e) {
    str params;
    int rc = 0;
    if (!g->model.name) return 0;
    put_text(out, "registered as", view_of(g->model.name));
    put_text(out, "source", view_of(g->model.source ? g->model.source : ""));
    str_init(&params);
    if (g->settings) rc = modelfile_print_params(g->settings, &params, e);
    for (const char *p = str_cstr(&params); rc == 0 && *p;) {
        size_t n = strcspn(p, "\n");
        put_text(out, p == str_cstr(&params) ? "parameters" : "", (view){ p, n });
        p += n + (p[n] != '\0');
    }
    str_deinit(&params);
    return rc;
}

/* A model that another one was made from is its file: names may change their meaning. */
static int print_modelfile(const cli_args *args, const cli_model *m, const registered *g) {
    str out;
    err e = { 0 };
    str_init(&out);
    int rc = modelfile_print(g->model.path ? g->model.path : m->path, g->settings, &out, &e);
    if (rc == 0)
        fwrite(out.data, 1, out.len, stdout);
    else
        rc = cli_fail(args, &e);
    str_deinit(&out);
    return rc;
}

static void put_json(str *out, const model_file *m, const model_summary *s, const eyes *y, const registered *g,
                     bool tensors) {
    str_puts(out, "{\"path\":");
    put_json_text(out, view_of(model_file_path(m)));
    put_json_string(out, "format", view_of(s->format));
    put_json_string(out, "name", s->name);
    put_json_string(out, "architecture", s->arch);
    str_printf(out, ",\"parameters\":%" PRIu64 ",\"bits_per_weight\":%.4f,\"size_bytes\":%zu,\"tensor_count\":%zu",
               s->parameters, bits_per_weight(s), s->file_bytes, s->tensors);
    put_json_string(out, "quantization_level", view_of(s->level));
    put_json_string(out, "quantization_method", s->method);
    put_json_types(out, s);
    put_json_number(out, "context_length", s->context);
    put_json_number(out, "layers", s->layers);
    put_json_number(out, "embedding_length", s->embedding);
    put_json_number(out, "heads", s->heads);
    put_json_number(out, "kv_heads", s->kv_heads);
    put_json_number(out, "vocabulary", s->vocabulary);
    if (s->tokenizer.len || s->tokens) {
        str_puts(out, ",\"tokenizer\":{\"model\":");
        put_json_text(out, s->tokenizer.len ? s->tokenizer : view_of("unnamed"));
        put_json_string(out, "pre", s->pre);
        put_json_number(out, "size", s->tokens);
        str_push(out, '}');
    } else {
        str_puts(out, ",\"tokenizer\":null");
    }
    if (s->template_source.len) {
        str_puts(out, ",\"template\":{\"source\":");
        put_json_text(out, s->template_source);
        str_printf(out, ",\"bytes\":%zu}", s->template_bytes);
    } else {
        str_puts(out, ",\"template\":null");
    }
    str_printf(out, ",\"input\":[\"text\"%s%s]", y->sees ? ",\"image\"" : "", y->hears ? ",\"audio\"" : "");
    put_json_string(out, "mmproj", view_of(y->path ? y->path : ""));
    put_json_memory(out, s);
    put_json_registered(out, g);
    if (tensors) put_json_tensors(out, m);
    str_puts(out, "}\n");
}

/* The ops that a step runs, and the memory that they share. */
static int put_tape(str *out, const model_file *m, err *e) {
    nn_model *model;
    nn_plan   plan;
    arena     mem;
    int       rc = nn_model_open(&model, m, models_list, NULL, e);
    if (rc < 0) return rc;
    arena_init(&mem, 0);
    nn_tape_print(model->tape, out);
    rc = nn_plan_arena(&plan, model->tape, &(nn_limits){ .max_tokens = 256, .max_outputs = 256 }, false, &mem, e);
    if (rc == 0) {
        char buffer[32];
        str_printf(out, "\n%d ops over %d buffers; %s of activations for 256 tokens\n", model->tape->n_ops,
                   model->tape->n_bufs - 1, human_bytes(buffer, (double)plan.bytes));
    }
    arena_deinit(&mem);
    nn_model_free(model);
    return rc;
}

static int show(const cli_args *args, const char *path, const named *mmproj, const registered *g) {
    model_file   *m;
    model_summary s;
    eyes          y = { 0 };
    err           e = { 0 };
    str           out;
    int           rc = model_file_open(&m, path, &e);
    if (rc < 0) return cli_fail(args, &e);
    model_summary_read(&s, m);
    str_init(&out);
    if ((rc = find_eyes(&y, m, mmproj, &e)) < 0) {
        /* said below */
    } else if (cli_flag(args, "tape")) {
        rc = put_tape(&out, m, &e);
    } else if (cli_flag(args, "json")) {
        put_json(&out, m, &s, &y, g, cli_flag(args, "tensors"));
    } else {
        put_summary(&out, m, &s, &y);
        rc = put_registered(&out, g, &e);
        if (cli_flag(args, "tensors")) put_tensors(&out, m);
    }
    if (rc == 0 && !str_ok(&out)) rc = err_set_nomem(&e);
    if (rc == 0) fwrite(out.data, 1, out.len, stdout);
    str_deinit(&out);
    free(y.path);
    model_summary_deinit(&s);
    model_file_free(m);
    return rc == 0 ? CLI_OK : cli_fail(args, &e);
}

/* The tower that an option or the settings of a model name; nothing where settings cannot be read, which is for 'hearth
 * config check' to say. The caller frees the path. */
static void find_named(named *out, const cli_args *args, const char *model) {
    const char    *given = cli_string(args, "mmproj", NULL);
    model_settings own = { 0 };
    settings       all;
    if (given || !model) {
        out->path = given ? strdup(given) : NULL;
        return;
    }
    if (settings_load(&all, args, NULL) == 0 && settings_model(&all, args, model, NULL, &own, NULL) == 0 &&
        own.runtime.mmproj) {
        out->path = strdup(own.runtime.mmproj);
        out->may_fail = own.runtime.mmproj_may_fail;
    }
    model_settings_deinit(&own);
    settings_deinit(&all);
}

static int run(const cli_args *args) {
    cli_model      m = { 0 };
    cli_model_wish w;
    registered     g = { 0 };
    err            e = { 0 };
    int            rc = cli_model_wish_read(&w, args, &e);
    if (rc < 0) return cli_usage_error(args, "%s", e.msg);
    w.pull = false;
    if ((rc = cli_model_find(&m, cli_arg(args, 0), &w, &e)) == 0 && m.name) rc = read_registered(&g, m.name, &e);
    if (rc < 0) {
        rc = cli_fail(args, &e);
    } else if (cli_flag(args, "modelfile")) {
        rc = print_modelfile(args, &m, &g);
    } else {
        named mmproj = { 0 };
        find_named(&mmproj, args, m.name);
        rc = show(args, m.path, &mmproj, &g);
        free(mmproj.path);
    }
    registered_deinit(&g);
    cli_model_deinit(&m);
    return rc;
}

static const cli_option options[] = {
    CLI_JSON_OPTION,
    { "tensors", CLI_FLAG, NULL, "also list all tensors", 0 },
    { "tape", CLI_FLAG, NULL, "print the ops of a step instead of the description", 0 },
    { "modelfile", CLI_FLAG, NULL, "print a Modelfile for this model instead of the description", 0 },
    { "mmproj", CLI_STRING, "FILE", "the model with the vision tower of this GGUF file (the one beside the model)", 0 },
    CLI_MODEL_FORMAT_OPTIONS,
    { 0 },
};

const cli_command cli_cmd_show = { "show",
                                   "MODEL [--json] [--tensors] [--tape] [--modelfile] [--mmproj FILE]",
                                   "Describe a model: a name from 'hearth list', a file or a directory.",
                                   options,
                                   1,
                                   1,
                                   run };

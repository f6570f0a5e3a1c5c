/* SPDX-License-Identifier: Apache-2.0 */
/* hearth merge: adapters into a model, or models of one shape into one (convert/merge.h). */
#include "convert/merge.h"

#include "cli/cli.h"
#include "cli/convert/progress.h"
#include "cli/lora.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "models/list.h"
#include "registry/names.h"
#include "tensor/codec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const cli_args *args;
    merge_options   o;
    merge_recipe    r;
    model_file     *files[MERGE_MOST];
    int             n;
    nn_model       *model;
    nn_adapter     *adapters[NN_SET_MOST];
    nn_adapter_use  uses[NN_SET_MOST];
    int             n_uses;
    progress        bar;
} job;

static int open_file(job *j, const char *name, err *e) {
    char *path = NULL;
    if (j->n == MERGE_MOST) return err_set(e, ERR_LIMIT, "at most %d models can be merged", MERGE_MOST);
    int rc = cli_model_path(&path, name, e);
    if (rc == 0) rc = model_file_open(&j->files[j->n], path, e);
    if (rc == 0) j->n++;
    free(path);
    return rc;
}

/* --with MODEL[:WEIGHT]; a name of the registry may have a colon of its own. */
static int open_others(job *j, err *e) {
    int rc = 0, i = 0;
    for (const char *text; rc == 0 && (text = cli_string_at(j->args, "with", i)); i++) {
        const char *colon = strrchr(text, ':');
        char       *end = NULL, *name = NULL;
        double      weight = colon && colon[1] ? strtod(colon + 1, &end) : 1;
        bool        given = end && !*end;
        if (j->n == MERGE_MOST) return err_set(e, ERR_LIMIT, "at most %d models can be merged", MERGE_MOST);
        if (given && !isfinite(weight)) return err_set(e, ERR_ARG, "--with %.200s: the weight is not a number", text);
        name = given ? strndup(text, (size_t)(colon - text)) : strdup(text);
        j->r.weight[j->n] = given ? weight : 1;
        rc = name ? open_file(j, name, e) : err_set_nomem(e);
        free(name);
    }
    return rc;
}

static int open_adapters(job *j, err *e) {
    int rc = nn_model_open(&j->model, j->files[0], models_list, NULL, e);
    for (const char *text; rc == 0 && (text = cli_string_at(j->args, "lora", j->n_uses));) {
        cli_lora l = { 0 };
        if (j->n_uses == NN_SET_MOST) return err_set(e, ERR_LIMIT, "--lora: at most %d adapters at once", NN_SET_MOST);
        if ((rc = cli_lora_parse(&l, text, e)) == 0)
            rc = nn_adapter_open(&j->adapters[j->n_uses], j->model, l.path, LOWRANK_F32, e);
        if (rc == 0) {
            j->uses[j->n_uses] = (nn_adapter_use){ j->adapters[j->n_uses], (float)l.scale };
            j->n_uses++;
        }
        free(l.path);
    }
    return rc;
}

static int merge(job *j, merge_result *r, err *e) {
    pool           *p = NULL;
    nn_adapter_set *set = NULL;
    long long       threads = cli_int(j->args, "threads", 0);
    int             rc = open_file(j, cli_arg(j->args, 0), e);
    bool            adapters = cli_string_at(j->args, "lora", 0) != NULL;
    if (rc == 0) rc = adapters ? open_adapters(j, e) : open_others(j, e);
    if (rc == 0 && adapters) rc = nn_adapter_set_open(&set, j->model, j->uses, j->n_uses, e);
    if (rc == 0) rc = pool_open(&p, threads ? (int)threads : pool_default_threads(), false, e);
    if (rc == 0 && (rc = progress_begin(&j->bar, cli_flag(j->args, "json"), NULL, e)) == 0) {
        rc = adapters ? merge_adapters(j->model, set, &j->o, p, r, e)
                      : merge_models((const model_file *const *)j->files, j->n, &j->r, &j->o, p, r, e);
        progress_end(&j->bar);
    }
    nn_adapter_set_free(set);
    pool_free(p);
    return rc;
}

static void say(const cli_args *a, const merge_result *r) {
    char size[16], peak[16];
    if (cli_flag(a, "json")) {
        printf("{\"bytes\":%" PRIu64 ",\"peak_memory\":%" PRIu64
               ",\"tensors\":%zu,\"changed\":%zu,\"requantized\":%zu,\"checksum\":\"%016" PRIx64
               "\",\"sha256\":\"%s\",\"resumed\":%" PRIu64 "}\n",
               r->file.bytes, progress_peak_memory(), r->n_tensors, r->n_changed, r->n_requantized, r->file.checksum,
               r->file.sha256, r->file.resumed);
        return;
    }
    fprintf(stderr, "%s: %s, %zu of %zu tensors changed, at most %s of memory, SHA-256 %s\n", cli_arg(a, 1),
            name_bytes(size, (double)r->file.bytes), r->n_changed, r->n_tensors,
            name_bytes(peak, (double)progress_peak_memory()),
            *r->file.sha256 ? r->file.sha256 : "not known: nothing was written");
    if (r->n_requantized)
        fprintf(stderr, "%zu of them are quantized and were quantized again; --type F16 would lose less\n",
                r->n_requantized);
}

static double number(const cli_args *a, const char *name, double dflt) {
    const char *text = cli_string(a, name, NULL);
    return text ? strtod(text, NULL) : dflt; /* the reader of options has checked it */
}

static int read_recipe(job *j, err *e) {
    static const char *const methods[] = { "linear", "slerp", "task", "ties" };
    const cli_args          *a = j->args;
    const char              *method = cli_string(a, "method", "linear"), *type = cli_string(a, "type", NULL);
    int                      found = -1, others = 0;
    for (int i = 0; i < 4; i++)
        if (strcmp(method, methods[i]) == 0) found = i;
    if (found < 0) return err_set(e, ERR_ARG, "--method %.40s is not linear, slerp, task or ties", method);
    while (cli_string_at(a, "with", others)) others++;
    bool adapters = cli_string_at(a, "lora", 0) != NULL;
    if (adapters == (others > 0)) return err_set(e, ERR_ARG, "name adapters with --lora, or other models with --with");
    if (found == MERGE_SLERP && others != 1) return err_set(e, ERR_ARG, "slerp takes one --with");
    j->r.method = (merge_method)found;
    j->r.weight[0] = number(a, "weight", 1);
    j->r.t = number(a, "t", 0.5);
    j->r.density = number(a, "density", 0.5);
    j->r.lambda = number(a, "lambda", 1);
    if (!(j->r.density > 0 && j->r.density <= 1))
        return err_set(e, ERR_ARG, "--density must lie above 0 and not above 1");
    j->o.type = -1;
    if (type && (!tensor_type_parse(type, &j->o.type) || !tensor_can_quant(j->o.type)))
        return err_set(e, ERR_ARG, "--type %.40s is not a type that a tensor can become", type);
    return 0;
}

static int run(const cli_args *a) {
    job          j = { .args = a };
    merge_result r = { 0 };
    err          e = { 0 };
    long long    threads = cli_int(a, "threads", 0);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (read_recipe(&j, &e) < 0) return cli_usage_error(a, "%s", e.msg);
    j.o.write = (plan_options){ .path = cli_arg(a, 1),
                                .keep = cli_flag(a, "keep"),
                                .dry = cli_flag(a, "dry-run"),
                                .progress = progress_at,
                                .progress_ctx = &j.bar };
    int rc = merge(&j, &r, &e);
    if (rc == 0) say(a, &r);
    for (int i = 0; i < j.n_uses; i++) nn_adapter_free(j.adapters[i]);
    nn_model_free(j.model);
    for (int i = 0; i < j.n; i++) model_file_free(j.files[i]);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "lora", CLI_STRING, "FILE[:SCALE]", "put this adapter into MODEL; repeatable", 0 },
    { "with", CLI_STRING, "MODEL[:WEIGHT]", "mix with this model; repeatable", 0 },
    { "method", CLI_STRING, "NAME", "linear, slerp, task or ties (linear)", 0 },
    { "weight", CLI_REAL, "W", "linear: the weight of MODEL itself (1)", 0 },
    { "t", CLI_REAL, "T", "slerp: 0 is MODEL, 1 the other (0.5)", 0 },
    { "density", CLI_REAL, "D", "ties: the share of differences that counts (0.5)", 0 },
    { "lambda", CLI_REAL, "L", "task, ties: scale of what is added (1)", 0 },
    { "type", CLI_STRING, "T", "type of the matrices that change (their own)", 0 },
    { "dry-run", CLI_FLAG, NULL, "say the size; write nothing", 0 },
    CLI_JSON_OPTION,
    { "keep", CLI_FLAG, NULL, "when interrupted keep OUT.partial to continue it", 0 },
    CLI_THREADS_OPTION,
    { 0 },
};

const cli_command cli_cmd_merge = {
    "merge",
    "MODEL OUT --lora FILE | --with MODEL",
    "Put adapters into a model, or mix models of one shape; OUT has MODEL's format.",
    options,
    2,
    2,
    run,
};

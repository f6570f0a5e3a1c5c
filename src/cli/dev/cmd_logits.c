/* SPDX-License-Identifier: Apache-2.0 */
/* hearth logits: the numbers a model computes for given token ids. */
#include "backend/backend.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/lora.h"
#include "cli/options.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/model.h"
#include "tools/simple.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ids {
    int32_t *v;
    int      n, cap;
} ids;

static bool ids_push(ids *a, long id) {
    if (a->n == a->cap) {
        int      cap = a->cap ? a->cap * 2 : 64;
        int32_t *v = realloc(a->v, (size_t)cap * sizeof *v);
        if (!v) return false;
        a->v = v;
        a->cap = cap;
    }
    a->v[a->n++] = (int32_t)id;
    return true;
}

/* "5,17,3" or a JSON array of the same. */
static int parse_ids(ids *out, const char *text, err *e) {
    const char *s = text;
    for (;;) {
        s += strspn(s, " ,[]\n\t");
        if (!*s) break;
        char *end;
        long  id = strtol(s, &end, 10);
        if (end == s || id < 0 || id > INT32_MAX) return err_set(e, ERR_ARG, "--ids: '%.20s' is not a token id", s);
        if (!ids_push(out, id)) return err_set_nomem(e);
        s = end;
    }
    return out->n ? 0 : err_set(e, ERR_ARG, "--ids is empty");
}

typedef struct job {
    const cli_args *args;
    ids             prompt;
    int             greedy, chunk;
    FILE           *out;
    simple          fast, reference;
    bool            compare;
    bool            differs;
    nn_adapter     *adapters[NN_SET_MOST];
    nn_adapter_set *set;
    int             set_from;
} job;

static int32_t argmax(const float *v, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++) {
        if (v[i] > v[at]) at = i;
    }
    return (int32_t)at;
}

/* One step; with --compare-scalar on both backends. */
static int step(job *j, const int32_t *tokens, int n, bool all, err *e) {
    simple_feed feed = { .ids = tokens, .n = n, .all = all, .set = j->set != NULL, .set_from = j->set_from };
    int         rc, bad = -1;
    str         report;
    if (!j->compare) return simple_step(&j->fast, &feed, 1, e);
    if ((rc = simple_batch(&j->fast, &feed, 1, e)) < 0) return rc;
    str_init(&report);
    rc = backend_compare(j->fast.exec, j->reference.exec, &j->fast.batch, &bad, &report, e);
    if (rc == 0 && bad >= 0) {
        fprintf(stderr, "%s\n", str_cstr(&report));
        j->differs = true;
    }
    str_deinit(&report);
    return rc;
}

static int run_job(job *j, err *e) {
    const float  *logits = NULL;
    nn_fetch_what what = j->fast.exec->model->tape->logits ? NN_FETCH_LOGITS : NN_FETCH_HIDDEN;
    int64_t       n_vocab = nn_exec_width(j->fast.exec, what);
    int           rc, last = 0;
    for (int at = 0; at < j->prompt.n && !j->differs; at += j->chunk) {
        int n = j->prompt.n - at < j->chunk ? j->prompt.n - at : j->chunk;
        if ((rc = step(j, j->prompt.v + at, n, true, e)) < 0) return rc;
        if (!(logits = simple_fetch(&j->fast, what, e))) return ERR_NOMEM;
        if (j->out && fwrite(logits, sizeof(float), (size_t)n * (size_t)n_vocab, j->out) != (size_t)n * (size_t)n_vocab)
            return err_set_errno(e, "cannot write the logits");
        last = n - 1;
    }
    if (j->differs || j->greedy <= 0) return 0;
    str line;
    str_init(&line);
    str_push(&line, '[');
    for (int i = 0; i < j->greedy; i++) {
        int32_t id = argmax(logits + (int64_t)last * n_vocab, n_vocab);
        str_printf(&line, "%s%d", i ? ", " : "", id);
        if (i + 1 == j->greedy) break;
        rc = step(j, &id, 1, false, e);
        if (rc == 0 && !(logits = simple_fetch(&j->fast, NN_FETCH_LOGITS, e))) rc = ERR_NOMEM;
        if (rc < 0) {
            str_deinit(&line);
            return rc;
        }
        last = 0;
    }
    printf("%s]\n", str_cstr(&line));
    str_deinit(&line);
    return 0;
}

static int open_executors(job *j, const nn_model *m, err *e) {
    simple_options o = { .max_len = j->prompt.n + (j->greedy > 0 ? j->greedy : 0),
                         .max_tokens = j->chunk,
                         .n_threads = (int)cli_int(j->args, "threads", 0),
                         .cpu = cpu_detect() };
    const char    *kv = cli_string(j->args, "kv", "f32"), *cpu = cli_string(j->args, "cpu", NULL);
    const char    *device = cli_flag(j->args, "scalar") ? "scalar" : cli_string(j->args, "device", "cpu");
    unsigned       mask;
    int            rc;
    if (!nn_kv_type_parse(kv, &o.k_type)) return err_set(e, ERR_ARG, "--kv: '%s' is not a page type", kv);
    o.v_type = o.k_type;
    if (cpu && !cpu_parse(cpu, &mask)) return err_set(e, ERR_ARG, "--cpu: '%s' is not a list of instruction sets", cpu);
    if (cpu) o.cpu &= mask;
    if ((rc = simple_open(&j->fast, device, m, &o, e)) < 0) return rc;
    return j->compare ? simple_open(&j->reference, "scalar", m, &o, e) : 0;
}

/* --lora: all of them are one set, number 1. */
static int open_adapters(job *j, const nn_model *m, err *e) {
    nn_adapter_use uses[NN_SET_MOST];
    int            n = 0, rc = 0;
    const char    *said = cli_string(j->args, "adapter-type", "auto");
    lowrank_type   type;
    if (!lowrank_type_parse(said, &type)) return err_set(e, ERR_ARG, "--adapter-type: '%s' is not one", said);
    for (const char *text; rc == 0 && (text = cli_string_at(j->args, "lora", n)); n++) {
        cli_lora l = { 0 };
        if (n == NN_SET_MOST) return err_set(e, ERR_LIMIT, "--lora: at most %d adapters at once", NN_SET_MOST);
        if ((rc = cli_lora_parse(&l, text, e)) == 0) rc = nn_adapter_open(&j->adapters[n], m, l.path, type, e);
        uses[n] = (nn_adapter_use){ j->adapters[n], (float)l.scale };
        free(l.path);
    }
    if (rc < 0 || n == 0 || (rc = nn_adapter_set_open(&j->set, m, uses, n, e)) < 0) return rc;
    if (!j->fast.exec->backend->adapt)
        return err_set(e, ERR_UNSUPPORTED, "adapters are not supported on this device yet");
    j->set_from = nn_adapter_start(j->adapters[0], j->prompt.v, j->prompt.n);
    rc = j->fast.exec->backend->adapt(j->fast.exec, 1, j->set, e);
    if (rc == 0 && j->compare) rc = j->reference.exec->backend->adapt(j->reference.exec, 1, j->set, e);
    return rc;
}

static int run(const cli_args *args) {
    job j = { .args = args, .greedy = (int)cli_int(args, "greedy", 0), .compare = cli_flag(args, "compare-scalar") };
    model_file  *file = NULL;
    nn_model    *model = NULL;
    file_replace out = { 0 };
    const char  *ids_text = cli_string(args, "ids", NULL), *path = cli_string(args, "out", NULL);
    err          e = { 0 };
    int          rc;
    if (!ids_text) return cli_usage_error(args, "--ids is missing");
    if (j.greedy < 0 || j.greedy > 1000000) return cli_usage_error(args, "--greedy must lie between 0 and 1000000");
    if ((rc = parse_ids(&j.prompt, ids_text, &e)) < 0) goto done;
    long long chunk = cli_int(args, "chunk", 256);
    if (chunk <= 0) {
        rc = err_set(&e, ERR_ARG, "--chunk must be positive");
        goto done;
    }
    j.chunk = chunk < j.prompt.n ? (int)chunk : j.prompt.n;
    if ((rc = model_file_open(&file, cli_arg(args, 0), &e)) < 0) goto done;
    if ((rc = nn_model_open(&model, file, models_list, &(nn_model_options){ .rope_context = j.prompt.n }, &e)) < 0)
        goto done;
    if (!model->tape->logits && j.greedy > 0) {
        rc = err_set(&e, ERR_UNSUPPORTED, "--greedy: this model has no head; it produces vectors, not tokens");
        goto done;
    }
    if ((rc = open_executors(&j, model, &e)) < 0 || (rc = open_adapters(&j, model, &e)) < 0) goto done;
    if (path && (rc = file_replace_begin(&out, path, &e)) < 0) goto done;
    j.out = out.out;
    rc = run_job(&j, &e);
    if (path && rc == 0)
        rc = file_replace_commit(&out, &e);
    else if (path)
        file_replace_abort(&out);
    if (rc == 0 && j.compare && !j.differs) fprintf(stderr, "every op agrees with the reference\n");
done:
    simple_close(&j.fast);
    simple_close(&j.reference);
    nn_adapter_set_free(j.set);
    for (int i = 0; i < NN_SET_MOST; i++) nn_adapter_free(j.adapters[i]);
    nn_model_free(model);
    model_file_free(file);
    free(j.prompt.v);
    return rc < 0 ? cli_fail(args, &e) : j.differs ? CLI_FAILED : CLI_OK;
}

static const cli_option options[] = {
    { "ids", CLI_STRING, "LIST", "ids of the tokens, separated by commas", 0 },
    { "out", CLI_STRING, "FILE",
      "write the logits of every token as little-endian f32 [tokens][vocabulary]; a model without a head gives its "
      "vectors",
      'o' },
    { "greedy", CLI_INT, "N", "continue greedily by N tokens and print their ids as a JSON array", 0 },
    { "threads", CLI_INT, "N", "number of compute threads (one per core)", 't' },
    { "chunk", CLI_INT, "N", "compute the ids in pieces of N (256)", 0 },
    { "kv", CLI_STRING, "TYPE", "how keys and values are stored: f32 (default), f16, q8_0, tq4 ...", 0 },
    CLI_CPU_OPTION,
    { "lora", CLI_STRING, "FILE[:SCALE]", "use this adapter; may be repeated", 0 },
    { "adapter-type", CLI_STRING, "TYPE", "how it is kept: auto, f32, f16 or q8 (auto)", 0 },
    { "device", CLI_STRING, "NAME", "device to compute on (cpu)", 0 },
    { "scalar", CLI_FLAG, NULL, "use the reference backend", 0 },
    { "compare-scalar", CLI_FLAG, NULL, "run both backends and report the first op that differs", 0 },
    { 0 },
};

const cli_command cli_cmd_logits = {
    "logits", "MODEL --ids LIST [--out FILE] [--greedy N]", "Compute a model's logits for given tokens.", options, 1, 1,
    run
};

/* SPDX-License-Identifier: Apache-2.0 */
/* hearth convert: a model in another format (convert/convert.h). */
#include "convert/convert.h"

#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/convert/progress.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "models/list.h"
#include "registry/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    convert_options o;
    char           *path;
    model_file     *file;
    nn_model       *model;
    tok            *t;
    imatrix        *importance;
    progress        bar;
} job;

static void say(const cli_args *a, const quantize_result *r) {
    char   size[16];
    double bits = r->file.elements ? 8.0 * (double)r->file.weight_bytes / (double)r->file.elements : 0;
    if (cli_flag(a, "json"))
        printf("{\"bytes\":%" PRIu64 ",\"bits_per_weight\":%.4f,\"tensors\":%zu,\"checksum\":\"%016" PRIx64
               "\",\"resumed\":%" PRIu64 "}\n",
               r->file.bytes, bits, r->n, r->file.checksum, r->file.resumed);
    else
        fprintf(stderr, "%s: %s, %zu tensors, %.2f bits per weight, checksum %016" PRIx64 "\n", cli_arg(a, 1),
                name_bytes(size, (double)r->file.bytes), r->n, bits, r->file.checksum);
}

static int convert(job *j, const cli_args *a, err *e) {
    pool           *p = NULL;
    quantize_result r = { 0 };
    const char     *importance = cli_string(a, "imatrix", NULL);
    long long       threads = cli_int(a, "threads", 0);
    int             rc = cli_model_path(&j->path, cli_arg(a, 0), e);
    if (rc == 0) rc = model_file_open(&j->file, j->path, e);
    if (rc == 0) rc = nn_model_open(&j->model, j->file, models_list, NULL, e);
    if (rc == 0 && model_file_format(j->file) != MODEL_GGUF && !cli_flag(a, "no-tokenizer"))
        rc = bundle_tokenizer_open(&j->t, j->file, NULL, e);
    if (rc == 0 && importance) rc = imatrix_read(&j->importance, importance, e);
    if (rc == 0) rc = pool_open(&p, threads ? (int)threads : pool_default_threads(), false, e);
    j->o.tokenizer = j->t;
    j->o.importance = j->importance;
    if (rc == 0 && (rc = progress_begin(&j->bar, cli_flag(a, "json"), NULL, e)) == 0) {
        rc = convert_gguf(j->model, &j->o, p, &r, e);
        progress_end(&j->bar);
    }
    if (rc == 0) say(a, &r);
    quantize_result_deinit(&r);
    pool_free(p);
    return rc;
}

static int run(const cli_args *a) {
    job         j = { 0 };
    err         e = { 0 };
    const char *to = cli_string(a, "to", "gguf"), *type = cli_string(a, "type", NULL);
    long long   threads = cli_int(a, "threads", 0);
    if (strcmp(to, "gguf") != 0) return cli_usage_error(a, "--to %.20s: only gguf can be written", to);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (type && mix_find(&j.o.mix, type, &e) < 0) return cli_usage_error(a, "%s", e.msg);
    j.o.pure = cli_flag(a, "pure");
    j.o.name = cli_string(a, "name", NULL);
    j.o.write = (plan_options){ .path = cli_arg(a, 1),
                                .keep = cli_flag(a, "keep"),
                                .dry = cli_flag(a, "dry-run"),
                                .progress = progress_at,
                                .progress_ctx = &j.bar };
    int rc = convert(&j, a, &e);
    imatrix_free(j.importance);
    tok_free(j.t);
    nn_model_free(j.model);
    model_file_free(j.file);
    free(j.path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "to", CLI_STRING, "FORMAT", "gguf (gguf)", 0 },
    { "type", CLI_STRING, "T", "quantize to this mix, for example Q4_K_M; without it types stay", 0 },
    { "imatrix", CLI_STRING, "FILE", "importance of the columns, made by 'hearth imatrix'", 0 },
    { "pure", CLI_FLAG, NULL, "the same type everywhere instead of the mix", 0 },
    { "name", CLI_STRING, "NAME", "general.name of the file (the directory's name)", 0 },
    { "no-tokenizer", CLI_FLAG, NULL, "leave the tokenizer and the chat template out", 0 },
    { "dry-run", CLI_FLAG, NULL, "say the size; write nothing", 0 },
    { "json", CLI_FLAG, NULL, "the result as JSON", 0 },
    { "keep", CLI_FLAG, NULL, "when interrupted keep OUT.partial; the same command continues it", 0 },
    CLI_THREADS_OPTION,
    { 0 },
};

const cli_command cli_cmd_convert = {
    "convert",
    "MODEL OUT.gguf [--type T] [--imatrix FILE]",
    "Write a model (a Hugging Face or MLX directory, or a GGUF file) as one GGUF file.",
    options,
    2,
    2,
    run,
};

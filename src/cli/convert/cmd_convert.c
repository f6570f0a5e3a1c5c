/* SPDX-License-Identifier: Apache-2.0 */
/* hearth convert: a model in another format (convert/convert.h). */
#include "convert/convert.h"

#include "bundle/tokenizer.h"
#include "cli/cli.h"
#include "cli/convert/progress.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "convert/to_dir.h"
#include "models/list.h"
#include "registry/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    convert_options o;
    to_dir_options  d;
    bool            dir;
    char           *path;
    model_file     *file;
    nn_model       *model;
    tok            *t;
    imatrix        *importance;
    progress        bar;
} job;

static void say(const cli_args *a, const quantize_result *r) {
    char   size[16], peak[16];
    double bits = r->file.elements ? 8.0 * (double)r->file.weight_bytes / (double)r->file.elements : 0;
    if (cli_flag(a, "json"))
        printf("{\"bytes\":%" PRIu64 ",\"bits_per_weight\":%.4f,\"peak_memory\":%" PRIu64
               ",\"tensors\":%zu,\"checksum\":\"%016" PRIx64 "\",\"sha256\":\"%s\",\"resumed\":%" PRIu64 "}\n",
               r->file.bytes, bits, progress_peak_memory(), r->n, r->file.checksum, r->file.sha256, r->file.resumed);
    else
        fprintf(stderr, "%s: %s, %zu tensors, %.2f bits per weight, at most %s of memory, SHA-256 %s\n", cli_arg(a, 1),
                name_bytes(size, (double)r->file.bytes), r->n, bits, name_bytes(peak, (double)progress_peak_memory()),
                *r->file.sha256 ? r->file.sha256 : "not known: nothing was written");
}

/* Elements of packed tensors count as words: the weights of the model are what the source has. */
static int write_dir(job *j, pool *p, quantize_result *r, err *e) {
    uint64_t elements = 0;
    j->d.tokenizer = j->t;
    j->d.write = j->o.write;
    for (size_t i = 0; i < model_file_tensor_count(j->file); i++) {
        const model_tensor *t = model_file_tensor_at(j->file, i);
        uint64_t            n = 1;
        for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->dims[d];
        elements += n;
    }
    int rc = convert_to_dir(j->model, &j->d, p, &r->file, &r->n, e);
    if (model_file_format(j->file) != MODEL_MLX) r->file.elements = elements;
    return rc;
}

static int convert(job *j, const cli_args *a, err *e) {
    pool           *p = NULL;
    quantize_result r = { 0 };
    const char     *importance = cli_string(a, "imatrix", NULL);
    long long       threads = cli_int(a, "threads", 0);
    int             rc = cli_model_path(&j->path, cli_arg(a, 0), e);
    if (rc == 0) rc = model_file_open(&j->file, j->path, e);
    if (rc == 0) rc = nn_model_open(&j->model, j->file, models_list, NULL, e);
    if (rc == 0 && (j->dir || model_file_format(j->file) != MODEL_GGUF) && !cli_flag(a, "no-tokenizer"))
        rc = bundle_tokenizer_open(&j->t, j->file, NULL, e);
    if (rc == 0 && importance) rc = imatrix_read(&j->importance, importance, e);
    if (rc == 0) rc = pool_open(&p, threads ? (int)threads : pool_default_threads(), false, e);
    j->o.tokenizer = j->t;
    j->o.importance = j->importance;
    if (rc == 0 && (rc = progress_begin(&j->bar, cli_flag(a, "json"), NULL, e)) == 0) {
        rc = j->dir ? write_dir(j, p, &r, e) : convert_gguf(j->model, &j->o, p, &r, e);
        progress_end(&j->bar);
    }
    if (rc == 0) say(a, &r);
    quantize_result_deinit(&r);
    pool_free(p);
    return rc;
}

/* The type of numbers, or a packing of MLX. */
static int read_type(job *j, const char *type, int group, err *e) {
    int t;
    j->d.type = -1;
    if (!type) return 0;
    if (tensor_type_parse(type, &t) && (t == TENSOR_F16 || t == TENSOR_BF16 || t == TENSOR_F32)) {
        j->d.type = t;
        return 0;
    }
    if (j->d.mlx) return mlx_recipe_read(&j->d.recipe, type, group, e);
    return err_set(e, ERR_ARG, "--type %.40s: a directory of Hugging Face holds F16, BF16 or F32", type);
}

static int read_target(job *j, const cli_args *a, err *e) {
    const char *to = cli_string(a, "to", "gguf"), *type = cli_string(a, "type", NULL);
    long long   group = cli_int(a, "group", 0), shard = cli_int(a, "shard-size", 0);
    j->d.mlx = strcmp(to, "mlx") == 0;
    j->dir = j->d.mlx || strcmp(to, "hf") == 0;
    if (!j->dir && strcmp(to, "gguf") != 0) return err_set(e, ERR_ARG, "--to %.20s is not gguf, hf or mlx", to);
    if (!j->dir) return type ? mix_find(&j->o.mix, type, e) : 0;
    if (cli_string(a, "imatrix", NULL) || cli_flag(a, "pure"))
        return err_set(e, ERR_ARG, "--imatrix and --pure are for GGUF files");
    if (group < 0 || group > 128) return err_set(e, ERR_ARG, "--group must be 32, 64 or 128");
    if (shard < 0 || shard > 1000000)
        return err_set(e, ERR_ARG, "--shard-size must lie between 0 and 1000000 megabytes");
    j->d.shard_bytes = (uint64_t)shard * 1000000;
    return read_type(j, type, (int)group, e);
}

static int run(const cli_args *a) {
    job       j = { 0 };
    err       e = { 0 };
    long long threads = cli_int(a, "threads", 0);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (read_target(&j, a, &e) < 0) return cli_usage_error(a, "%s", e.msg);
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
    { "to", CLI_STRING, "FORMAT", "gguf, hf or mlx (gguf)", 0 },
    { "type", CLI_STRING, "T",
      "gguf: a mix, for example Q4_K_M; hf: F16, BF16, F32; mlx: these or 4bit, mixed_3_6, mxfp4", 0 },
    { "group", CLI_INT, "N", "mlx: columns that share a scale: 32, 64 or 128 (64)", 0 },
    { "shard-size", CLI_INT, "MB", "hf, mlx: megabytes of a weight file at most (5000)", 0 },
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
    "MODEL OUT [--to FORMAT] [--type T] [--imatrix FILE]",
    "Write a model (a Hugging Face or MLX directory, or a GGUF file) in another format: one GGUF file, or a directory.",
    options,
    2,
    2,
    run,
};

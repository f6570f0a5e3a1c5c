/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/to_dir.h"

#include "base/xxh64.h"
#include "bundle/tokenizer.h"
#include "convert/dir.h"
#include "convert/hf_files.h"
#include "convert/mlx_record.h"
#include "convert/quantize.h"
#include "convert/vocab.h"
#include "models/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const nn_model       *m;
    const to_dir_options *o;
    arena                 mem;
    hf_plan               plan;
    hf_files              files;
    str                   quantization;
    mlx_recipe            recipe;
    model_file           *record; /* of the source */
    plan_tensor          *left;   /* what is recorded of it */
    size_t                n_left;
} job;

/* --- the result, opened again -------------------------------------------------------------------------------------- */

/* The first line in which two texts differ, of the second. */
static void differing(const str *a, const str *b, char *out, size_t bytes) {
    const char *x = str_cstr(a), *y = str_cstr(b), *line = y;
    for (; *x && *x == *y; x++, y++)
        if (*y == '\n') line = y + 1;
    snprintf(out, bytes, "%.*s", (int)strcspn(line, "\n"), line);
}

static int check_model(const job *j, const model_file *f, err *e) {
    nn_model *again = NULL;
    str       want, got;
    char      line[160];
    str_init(&want);
    str_init(&got);
    int rc = nn_model_open(&again, f, models_list, NULL, e);
    if (rc == 0) {
        nn_tape_outline(j->m->tape, &want);
        nn_tape_outline(again->tape, &got);
        if (!str_ok(&want) || !str_ok(&got)) rc = err_set_nomem(e);
    }
    if (rc == 0 && strcmp(str_cstr(&want), str_cstr(&got)) != 0) {
        differing(&want, &got, line, sizeof line);
        rc = err_set(e, ERR_UNSUPPORTED, "the directory would be another model; this step would differ: %s", line);
    }
    nn_model_free(again);
    str_deinit(&want);
    str_deinit(&got);
    return rc;
}

static int check_result(void *ctx, const char *dir, err *e) {
    const job  *j = ctx;
    model_file *f = NULL;
    tok        *t = NULL;
    int         rc = model_file_open(&f, dir, e);
    if (rc == 0) rc = check_model(j, f, e);
    if (rc == 0 && j->o->tokenizer) rc = bundle_tokenizer_open(&t, f, NULL, e);
    if (rc == 0 && t && !vocab_same(t, j->o->tokenizer))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "this tokenizer gives other tokens in a directory; --no-tokenizer leaves it out");
    tok_free(t);
    model_file_free(f);
    return rc;
}

/* --- what is written ----------------------------------------------------------------------------------------------- */

static int plan_from_gguf(job *j, err *e) {
    const hf_family *f = hf_family_of(j->m);
    if (!f)
        return err_set(e, ERR_UNSUPPORTED, "a GGUF file of the architecture \"%.60s\" cannot be written as a directory",
                       j->m->config.arch_name);
    int rc = hf_plan_gguf(&j->plan, j->m, f, j->o->type, &j->mem, e);
    if (rc == 0 && j->o->mlx) rc = mlx_plan(&j->plan, &j->recipe, j->m->dims->n_layer, &j->mem, &j->quantization, e);
    if (rc == 0) rc = hf_config_from_gguf(&j->files, j->m, f, j->plan.type, &j->quantization, &j->mem, e);
    if (rc == 0 && j->o->tokenizer) rc = hf_vocab_from_gguf(&j->files, j->m->file, &j->mem, e);
    return rc;
}

/* What the source left when it was unpacked, or leaves now. Without a --type it is packed as it was. */
static int read_record(job *j, err *e) {
    if (!j->o->mlx) return mlx_record_plan(&j->left, &j->n_left, j->m->file, j->plan.type, &j->mem, e);
    int rc = mlx_record_open(&j->record, j->m->file, e);
    j->recipe.record = j->record;
    j->recipe.recorded = j->record && !j->recipe.packs && j->o->type < 0;
    return rc;
}

static int plan_from_dir(job *j, err *e) {
    const model_file *f = j->m->file;
    int               rc = hf_plan_dir(&j->plan, f, j->o->type, &j->mem, e);
    if (rc == 0) rc = read_record(j, e);
    if (rc == 0 && j->o->mlx) rc = mlx_plan(&j->plan, &j->recipe, j->m->dims->n_layer, &j->mem, &j->quantization, e);
    if (rc == 0) rc = hf_config_from_dir(&j->files, f, j->o->type, &j->quantization, &j->mem, e);
    if (rc == 0) rc = hf_vocab_from_dir(&j->files, f, &j->mem, e);
    return rc;
}

int convert_to_dir(const nn_model *m, const to_dir_options *o, pool *p, plan_result *out, size_t *n_tensors, err *e) {
    job               j = { .m = m, .o = o, .recipe = o->recipe };
    const model_file *from[2] = { m->file, NULL };
    arena_init(&j.mem, 0);
    str_init(&j.quantization);
    int rc = model_file_format(m->file) == MODEL_GGUF ? plan_from_gguf(&j, e) : plan_from_dir(&j, e);
    if (rc == 0) {
        dir_job d = { .tensors = j.plan.tensors,
                      .n_tensors = j.plan.n,
                      .beside = j.left,
                      .n_beside = j.n_left,
                      .beside_name = MLX_RECORD_FILE,
                      .files = j.files.list,
                      .n_files = j.files.n,
                      .format = o->mlx ? "mlx" : "pt",
                      .shard_bytes = o->shard_bytes,
                      .write = o->write,
                      .check = check_result,
                      .check_ctx = &j };
        from[1] = j.record;
        d.write.from = from;
        d.write.n_from = j.record ? 2 : 1;
        d.write.identity = quantize_source_identity(m->file) ^ xxh64(str_cstr(&j.quantization), j.quantization.len);
        if (j.record) d.write.identity ^= quantize_source_identity(j.record);
        rc = dir_write(&d, p, out, e);
    }
    *n_tensors = j.plan.n;
    hf_plan_close(&j.plan);
    model_file_free(j.record);
    str_deinit(&j.quantization);
    arena_deinit(&j.mem);
    return rc;
}

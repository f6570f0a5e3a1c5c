/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/merge_impl.h"

#include "convert/dir.h"
#include "convert/hf_files.h"
#include "convert/quantize.h"
#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>

static int plan_gguf(hf_plan *out, const model_file *m, arena *mem, err *e) {
    out->n = model_file_tensor_count(m);
    out->tensors = arena_calloc(mem, out->n + 1, sizeof *out->tensors);
    tensor_mat *mats = arena_calloc(mem, out->n + 1, sizeof *mats);
    if (!out->tensors || !mats) return err_set_nomem(e);
    for (size_t i = 0; i < out->n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        plan_tensor        *x = &out->tensors[i];
        *x = (plan_tensor){ .name = t->name, .type = t->type, .n_dims = t->n_dims };
        for (int d = 0; d < 4; d++) x->dims[d] = t->dims[d];
        mats[i] = (tensor_mat){ .type = t->type, .rows = plan_rows(x), .cols = t->dims[0], .data = t->data };
        if (!tensor_row_bytes((int)t->type, t->dims[0], &mats[i].row_bytes))
            return err_set(e, ERR_FORMAT, "%s: rows of %lld", t->name, (long long)t->dims[0]);
        x->from = row_source_mat(&mats[i]);
    }
    return 0;
}

int merge_plan(hf_plan *out, const model_file *m, arena *mem, err *e) {
    memset(out, 0, sizeof *out);
    return model_file_format(m) == MODEL_GGUF ? plan_gguf(out, m, mem, e) : hf_plan_dir(out, m, -1, mem, e);
}

int merge_change(plan_tensor *t, const merge_options *o, merge_result *out, err *e) {
    size_t row_bytes;
    bool   packed = !t->from.raw || tensor_type_get((int)t->from.type)->quantized;
    if (o->type >= 0 && t->n_dims > 1) t->type = (tensor_type)o->type;
    if (!tensor_can_quant((int)t->type) || !tensor_row_bytes((int)t->type, t->dims[0], &row_bytes))
        return err_set(e, ERR_UNSUPPORTED, "%s: it cannot become %s; --type gives changed matrices another type",
                       t->name, tensor_type_name((int)t->type));
    out->n_changed++;
    out->n_requantized += packed && tensor_type_get((int)t->type)->quantized;
    return 0;
}

/* --- writing ------------------------------------------------------------------------------------------------------- */

static int write_gguf(const model_file *first, const hf_plan *plan, const plan_options *o, pool *p, plan_result *out,
                      err *e) {
    gguf_writer *w = NULL;
    int          rc = gguf_writer_open(&w, 0, e);
    for (size_t i = 0; rc == 0 && i < model_file_meta_count(first); i++) {
        const char *key = model_file_meta_key(first, i);
        if (strcmp(key, "general.alignment") == 0 || strncmp(key, "split.", 6) == 0) continue; /* of the old file */
        rc = gguf_writer_set(w, key, model_file_meta_at(first, i), e);
    }
    if (rc == 0) rc = plan_write_gguf(w, plan->tensors, plan->n, o, p, out, e);
    gguf_writer_free(w);
    return rc;
}

static int write_dir(const model_file *first, const hf_plan *plan, const merge_options *o, const plan_options *write,
                     pool *p, plan_result *out, err *e) {
    hf_files files = { .n = 0 };
    arena    mem;
    arena_init(&mem, 0);
    int rc = hf_config_from_dir(&files, first, o->type, NULL, &mem, e);
    if (rc == 0) rc = hf_vocab_from_dir(&files, first, &mem, e);
    if (rc == 0) {
        dir_job d = { .tensors = plan->tensors,
                      .n_tensors = plan->n,
                      .files = files.list,
                      .n_files = files.n,
                      .format = "pt",
                      .shard_bytes = o->shard_bytes,
                      .write = *write };
        rc = dir_write(&d, p, out, e);
    }
    arena_deinit(&mem);
    return rc;
}

int merge_write(const model_file *first, const hf_plan *plan, const merge_options *o, uint64_t identity, pool *p,
                merge_result *out, err *e) {
    plan_options write = o->write;
    write.identity = quantize_source_identity(first) ^ identity;
    out->n_tensors = plan->n;
    if (write.n_from == 0) write.from = &first, write.n_from = 1;
    return model_file_format(first) == MODEL_GGUF ? write_gguf(first, plan, &write, p, &out->file, e)
                                                  : write_dir(first, plan, o, &write, p, &out->file, e);
}

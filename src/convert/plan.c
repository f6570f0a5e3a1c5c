/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/plan.h"

#include "base/num.h"
#include "convert/safetensors_writer.h"
#include "formats/forget.h"
#include "tensor/codec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int64_t plan_rows(const plan_tensor *t) {
    int64_t rows = 1;
    for (int d = 1; d < t->n_dims; d++) rows *= t->dims[d]; /* products were checked when the source was read */
    return rows;
}

/* --- sources ----------------------------------------------------------------------------------------------------- */

static const void *mat_raw(const void *ctx, int64_t row) {
    const tensor_mat *m = ctx;
    return (const uint8_t *)m->data + (size_t)(row / m->rows) * m->expert_bytes +
           (size_t)(row % m->rows) * m->row_bytes;
}

static void mat_floats(const void *ctx, int64_t row, float *out) {
    const tensor_mat *m = ctx;
    tensor_mat_dequant_row(m, row / m->rows, row % m->rows, out);
}

row_source row_source_mat(const tensor_mat *m) {
    bool whole = m->n_experts == 0 || m->expert_bytes == (size_t)m->rows * m->row_bytes;
    return (row_source){ .type = m->type,
                         .raw = m->scales ? NULL : mat_raw,
                         .floats = mat_floats,
                         .ctx = m,
                         .raw_bytes = m->row_bytes,
                         .contiguous = whole };
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

/* 0 times anything finite is 0; the sum tells without a branch per number. */
static bool all_finite(const float *x, int64_t n) {
    float   sum[8] = { 0 };
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += x[i + j] * 0.0f;
    for (; i < n; i++) sum[0] += x[i] * 0.0f;
    for (int j = 1; j < 8; j++) sum[0] += sum[j];
    return sum[0] == 0;
}

void row_source_floats(const row_source *s, int64_t row, float *out, int64_t cols) {
    if (s->raw && tensor_can_dequant((int)s->type))
        tensor_dequant_row((int)s->type, s->raw(s->ctx, row), out, cols);
    else
        s->floats(s->ctx, row, out);
}

static int make_row(const plan_tensor *t, int64_t row, void *out, float *floats, err *e) {
    const row_source *s = &t->from;
    int64_t           cols = t->dims[0];
    const float      *importance = t->importance;
    if (s->make) return s->make(s->ctx, row, out, floats, e);
    row_source_floats(s, row, floats, cols);
    if (tensor_type_get((int)t->type)->quantized && !all_finite(floats, cols))
        return err_set(e, ERR_FORMAT, "%s: row %" PRId64 " holds a value that is not finite", t->name, row);
    if (importance && t->importance_rows) importance += row / t->importance_rows * cols;
    if (!tensor_quant_row_weighted((int)t->type, floats, importance, out, cols))
        return err_set(e, ERR_UNSUPPORTED, "%s: cannot become %s", t->name, tensor_type_name((int)t->type));
    return 0;
}

/* A stream_fill: makes rows of one planned tensor. */
static int plan_fill(const void *plan, int64_t first, int64_t n, void *out, float *scratch, err *e) {
    const plan_tensor *t = plan;
    const row_source  *s = &t->from;
    size_t             row_bytes;
    int                rc = 0;
    if (!tensor_row_bytes((int)t->type, t->dims[0], &row_bytes)) return err_set(e, ERR_FORMAT, "%s: rows", t->name);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        uint8_t *to = (uint8_t *)out + (size_t)i * row_bytes;
        if (s->raw && s->type == t->type)
            memcpy(to, s->raw(s->ctx, first + i), row_bytes);
        else
            rc = make_row(t, first + i, to, scratch, e);
    }
    if (s->raw && s->contiguous) stream_forget(s->raw(s->ctx, first), (size_t)n * s->raw_bytes);
    return rc;
}

/* --- files ------------------------------------------------------------------------------------------------------- */

bool plan_bytes(const plan_tensor *t, size_t *row_bytes, size_t *bytes) {
    return tensor_row_bytes((int)t->type, t->dims[0], row_bytes) &&
           num_mul_size(*row_bytes, (size_t)plan_rows(t), bytes);
}

/* Either of the two writers takes the names; the other is NULL. */
typedef struct target {
    gguf_writer        *gguf;
    safetensors_writer *tensors;
} target;

static int add_tensors(target w, const plan_tensor *tensors, size_t n, stream_tensor *jobs, plan_result *out, err *e) {
    for (size_t i = 0; i < n; i++) {
        const plan_tensor *t = &tensors[i];
        size_t             row_bytes, bytes, scratch = t->from.make ? t->from.scratch : (size_t)t->dims[0];
        if (!plan_bytes(t, &row_bytes, &bytes))
            return err_set(e, ERR_FORMAT, "%s: cannot become %s", t->name, tensor_type_name((int)t->type));
        int rc = w.gguf ? gguf_writer_add(w.gguf, t->name, t->type, t->n_dims, t->dims, NULL, bytes, e)
                        : safetensors_writer_add(w.tensors, t->name, t->type, t->n_dims, t->dims, NULL, bytes, e);
        if (rc < 0) return rc;
        jobs[i] = (stream_tensor){ .rows = plan_rows(t),
                                   .row_bytes = row_bytes,
                                   .read_bytes = t->from.make ? t->from.read_bytes : t->from.raw_bytes,
                                   .scratch = scratch,
                                   .fill = plan_fill,
                                   .ctx = t };
        out->weight_bytes += bytes;
        out->elements += (uint64_t)(plan_rows(t) * t->dims[0]);
    }
    return 0;
}

static void give_back(const void *options) {
    const plan_options *o = options;
    for (int i = 0; i < o->n_from; i++) model_file_forget(o->from[i]);
}

static int write_file(target w, const plan_tensor *tensors, size_t n, const plan_options *o, pool *p, plan_result *out,
                      err *e) {
    stream_tensor *jobs = calloc(n ? n : 1, sizeof *jobs);
    uint64_t      *offsets = calloc(n ? n : 1, sizeof *offsets);
    stream_result  done = { 0 };
    str            head;
    int            rc;
    memset(out, 0, sizeof *out);
    str_init(&head);
    rc = jobs && offsets ? add_tensors(w, tensors, n, jobs, out, e) : err_set_nomem(e);
    if (rc == 0)
        rc = w.gguf ? gguf_writer_head(w.gguf, &head, offsets, &out->bytes, e)
                    : safetensors_writer_head(w.tensors, &head, offsets, &out->bytes, e);
    for (size_t i = 0; i < n && rc == 0; i++) jobs[i].offset = offsets[i];
    if (rc == 0 && !o->dry) {
        stream_job j = { .path = o->path,
                         .head = head.data,
                         .head_bytes = head.len,
                         .tensors = jobs,
                         .n_tensors = n,
                         .bytes = out->bytes,
                         .identity = o->identity,
                         .keep = o->keep,
                         .progress = o->progress,
                         .progress_ctx = o->progress_ctx,
                         .rest = give_back,
                         .rest_ctx = o };
        rc = stream_write(&j, p, &done, e);
    }
    out->checksum = done.checksum;
    out->resumed = done.resumed;
    memcpy(out->sha256, done.sha256, sizeof out->sha256);
    str_deinit(&head);
    free(jobs);
    free(offsets);
    return rc;
}

int plan_write_gguf(gguf_writer *w, const plan_tensor *tensors, size_t n, const plan_options *o, pool *p,
                    plan_result *out, err *e) {
    return write_file((target){ .gguf = w }, tensors, n, o, p, out, e);
}

int plan_write_safetensors(const plan_tensor *tensors, size_t n, const char *format, const plan_options *o, pool *p,
                           plan_result *out, err *e) {
    safetensors_writer *w = NULL;
    int                 rc = safetensors_writer_open(&w, e);
    if (rc == 0) rc = safetensors_writer_set(w, "format", format, e);
    if (rc == 0) rc = write_file((target){ .tensors = w }, tensors, n, o, p, out, e);
    safetensors_writer_free(w);
    return rc;
}

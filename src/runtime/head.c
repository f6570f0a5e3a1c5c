/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/head.h"

#include "base/num.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 20 };

/* A tensor of this shape as f32; NULL: it has another one, or memory is out. */
static const float *head_floats(const model_tensor *t, int64_t rows, int64_t cols, arena *mem) {
    size_t row_bytes, n;
    if (!t || t->dims[0] != cols || t->dims[1] != rows || !tensor_row_bytes(t->type, cols, &row_bytes) ||
        row_bytes > t->bytes / (size_t)rows || !num_mul_size((size_t)rows, (size_t)cols, &n))
        return NULL;
    float *out = arena_calloc(mem, n, sizeof *out);
    for (int64_t r = 0; out && r < rows; r++) {
        if (!tensor_dequant_row(t->type, t->data + (size_t)r * row_bytes, out + r * cols, cols)) return NULL;
    }
    return out;
}

static const model_tensor *named(const model_file *m, const char *name, const char *ending) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", name, ending);
    return model_file_tensor(m, full);
}

int head_read(head_layer *out, const model_file *m, const char *name, int in, head_act act, arena *mem, err *e) {
    const model_tensor *w = named(m, name, ".weight"), *b = named(m, name, ".bias");
    *out = (head_layer){ .in = in, .act = act };
    if (!w || w->dims[0] != in || w->dims[1] < 1 || w->dims[1] > MAX_WIDTH)
        return err_set(e, ERR_FORMAT, "tensor %s.weight is missing or does not take %d values", name, in);
    out->out = (int)w->dims[1];
    out->w = head_floats(w, out->out, in, mem);
    if (b) out->b = head_floats(b, 1, out->out, mem);
    if (!out->w || (b && !out->b))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s.weight cannot be read: its type, its bias or memory", name);
    return 0;
}

int head_norm(head_layer *h, const model_file *m, const char *name, double eps, arena *mem, err *e) {
    const model_tensor *w = named(m, name, ".weight"), *b = named(m, name, ".bias");
    h->eps = eps;
    h->norm = head_floats(w, 1, h->out, mem);
    if (b) h->norm_bias = head_floats(b, 1, h->out, mem);
    if (!h->norm || (b && !h->norm_bias)) return err_set(e, ERR_FORMAT, "tensor %s.weight is missing", name);
    return 0;
}

static double activate(head_act act, double v) {
    switch (act) {
    case HEAD_NONE: return v;
    case HEAD_TANH: return tanh(v);
    case HEAD_RELU: return v > 0 ? v : 0;
    case HEAD_GELU: return 0.5 * v * (1 + erf(v / sqrt(2.0)));
    case HEAD_SIGMOID: return 1 / (1 + exp(-v));
    case HEAD_SILU: return v / (1 + exp(-v));
    }
    return v;
}

static void normalise(const head_layer *h, float *y) {
    double mean = 0, sum = 0;
    for (int i = 0; i < h->out; i++) mean += (double)y[i];
    mean /= h->out;
    for (int i = 0; i < h->out; i++) sum += ((double)y[i] - mean) * ((double)y[i] - mean);
    double scale = 1 / sqrt(sum / h->out + h->eps);
    for (int i = 0; i < h->out; i++) {
        double v = ((double)y[i] - mean) * scale * (double)h->norm[i];
        y[i] = (float)(v + (h->norm_bias ? (double)h->norm_bias[i] : 0.0));
    }
}

/* Eight sums side by side, so that a compiler may use vectors; always added up in the same order. */
static double dot(const float *a, const float *b, int n) {
    double s[8] = { 0 };
    int    i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) s[k] += (double)a[i + k] * (double)b[i + k];
    }
    for (; i < n; i++) s[0] += (double)a[i] * (double)b[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

void head_run(const head_layer *h, const float *x, float *y) {
    for (int r = 0; r < h->out; r++) {
        double v = dot(h->w + (size_t)r * (size_t)h->in, x, h->in);
        y[r] = (float)activate(h->act, v + (h->b ? (double)h->b[r] : 0.0));
    }
    if (h->norm) normalise(h, y);
}

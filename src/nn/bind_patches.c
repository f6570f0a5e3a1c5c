/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as matrices of all that one place sees: [channel][y][x] of pictures, whose kernels do not overlap themselves;
 * [tap][channel] along rows, where the caller puts neighbours side by side. */
#include "nn/bind.h"

#include <stdio.h>
#include <string.h>

/* out[row][channel][i] is the sum over frames; MLX keeps the channels last. */
static void sum_frames(float *out, const float *in, int channels, int frames, int64_t area, int64_t rows, bool last) {
    for (int64_t r = 0; r < rows; r++, in += frames * channels * area) {
        for (int f = 0; f < frames; f++) {
            for (int c = 0; c < channels; c++) {
                for (int64_t i = 0; i < area; i++)
                    out[(r * channels + c) * area + i] +=
                        last ? in[(f * area + i) * channels + c] : in[(c * frames + f) * area + i];
            }
        }
    }
}

static const nn_mat *new_mat(nn_binder *b, const char *name, const float *data, int64_t in, int64_t rows) {
    tensor_mat *at = arena_calloc(b->mem, 1, sizeof *at);
    nn_mat     *m = arena_calloc(b->mem, 1, sizeof *m);
    if (!at || !m) {
        bind_fail(b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    *at = (tensor_mat){
        .type = TENSOR_F32, .rows = rows, .cols = in, .data = data, .row_bytes = (size_t)in * sizeof(float)
    };
    *m = (nn_mat){ .name = name, .rows = rows, .cols = in, .at = at };
    return m;
}

/* The first of the names that is there, or the first: others are made of it. */
static const char *present(nn_binder *b, const char *list, char out[160]) {
    for (const char *at = list; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        snprintf(out, 160, "%.*s", (int)strcspn(at, "|"), at);
        if (nn_bind_exists(b, b->gguf ? out : NULL, b->gguf ? NULL : out)) return out;
    }
    snprintf(out, 160, "%.*s", (int)strcspn(list, "|"), list);
    return out;
}

static void bind_bias(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t rows) {
    char gguf_bias[192], hf_bias[160];
    snprintf(gguf_bias, sizeof gguf_bias, "%s.bias", gguf);
    snprintf(hf_bias, sizeof hf_bias, "%s.bias", hf);
    nn_bind_vec(b, &out->b, gguf_bias, hf_bias, rows, NN_OPTIONAL);
}

void nn_bind_frames(nn_binder *b, nn_linear *out, const char *gguf_names, const char *hf_names, int channels,
                    int frames, int64_t area, int64_t rows) {
    char        chosen[160];
    const char *gguf = b->gguf ? present(b, gguf_names, chosen) : gguf_names;
    const char *hf = b->gguf ? hf_names : present(b, hf_names, chosen);
    int64_t     in = channels * area;
    bool        together = b->gguf && frames > 1 && nn_bind_size(b, gguf, NULL) == in * rows * frames;
    bool        last = !b->gguf && area != channels * channels && nn_bind_width(b, gguf, hf) == channels;
    float      *sum = NULL;
    const char *name = NULL;
    char        gguf_more[192];
    *out = (nn_linear){ 0 };
    int n = b->gguf && !together ? frames : 1; /* tensors: mmproj files have one for each frame */
    for (int f = 0; f < n; f++) {
        const nn_vec *all = NULL;
        size_t        end = strlen(gguf);
        if (end > 2 && strcmp(gguf + end - 2, "_0") == 0) /* Ollama numbers them all */
            snprintf(gguf_more, sizeof gguf_more, "%.*s%d", (int)end - 1, gguf, f);
        else
            snprintf(gguf_more, sizeof gguf_more, "%s.weight.%d", gguf, f);
        nn_bind_vec(b, &all, f ? gguf_more : gguf, hf, in * rows * (frames / n), 0);
        if (!all) return;
        if (!sum && !(sum = arena_calloc(b->mem, (size_t)(in * rows), sizeof *sum))) {
            bind_fail(b, ERR_NOMEM, "out of memory");
            return;
        }
        sum_frames(sum, all->data, channels, frames / n, area, rows, last);
        if (!name) name = all->name;
    }
    if (!(out->w = new_mat(b, name, sum, in, rows))) return;
    bind_bias(b, out, gguf, hf, rows);
}

void nn_bind_taps(nn_binder *b, nn_linear *out, const char *gguf, const char *hf_names, int64_t in, int taps,
                  int64_t rows) {
    char          chosen[160];
    const nn_vec *all = NULL;
    const char   *hf = b->gguf ? hf_names : present(b, hf_names, chosen);
    bool          last = !b->gguf && in != taps && nn_bind_width(b, gguf, hf) == in; /* MLX: it is so already */
    *out = (nn_linear){ 0 };
    nn_bind_vec(b, &all, gguf, hf, in * taps * rows, 0);
    float *turned = all ? arena_calloc(b->mem, (size_t)(in * taps * rows), sizeof *turned) : NULL;
    if (all && !turned) bind_fail(b, ERR_NOMEM, "out of memory");
    if (!turned) return;
    sum_frames(turned, all->data, last ? 1 : taps, 1, last ? in * taps : in, rows, true);
    if ((out->w = new_mat(b, all->name, turned, in * taps, rows))) bind_bias(b, out, gguf, hf, rows);
}

void nn_bind_patches(nn_binder *b, nn_linear *out, const char *gguf, const char *hf, int64_t in, int64_t rows) {
    enum { COLOURS = 3 };
    nn_bind_frames(b, out, gguf, hf, COLOURS, 1, in / COLOURS, rows);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend: its devices, opening and ending an executor. */
#include "backend/cuda/cuda.h"

#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What may change a bit of a result: raised with every change in kernels, in the layout of pages or in the order of
 * operations. The chip counts, too: tensor cores of different generations add differently. */
enum { ARITHMETIC = 4 };

static void cuda_exec_free(nn_exec *base) {
    cuda_exec *x = (cuda_exec *)base;
    if (!x->planned && cuda_device_use(x->device.number, NULL) == 0) {
        if (x->stream && !x->lost) (void)cuda_wait(x->stream, NULL);
        for (int i = 0; i < CUDA_GRAPHS; i++) cuda_graph_free(x->steps[i].graph);
        for (int i = 0; i < CUDA_EVENTS; i++) cuda_event_free(x->events[i]);
        for (int i = 0; i < CUDA_TIMES; i++) {
            cuda_event_free(x->began[i]);
            cuda_event_free(x->ended[i]);
        }
        for (int i = 0; i < 2; i++) cuda_host_free(x->blocks[i]);
        cuda_adapt_free(x);
        cuda_moves_free(x);
        cuda_stream_free(x->stream);
        for (int g = 0; g < NN_MAX_GROUPS; g++) cuda_free(x->pages[g]);
        cuda_free(x->weights);
        cuda_free(x->heap);
        for (int i = 0; i < x->n_embeds; i++) cuda_host_free(x->embeds[i].host);
        cuda_host_free(x->staging);
        cuda_sampler_close(&x->sampler);
    }
    free(x->mats);
    free(x->vecs);
    arena_deinit(&x->mem);
    free(x);
}

/* An allocation that says what it was for and what there is. */
static int take(cuda_exec *x, uint8_t **out, size_t bytes, const char *what, err *e) {
    void  *p = NULL;
    size_t free_bytes = 0, total = 0;
    int    rc = cuda_alloc(&p, bytes, e);
    *out = p;
    if (rc != ERR_NOMEM) return rc;
    (void)cuda_device_memory(x->device.number, &free_bytes, &total, NULL);
    return err_set(
        e, ERR_NOMEM,
        "%s has no room for %zu MiB of %s: %zu of its %zu MiB are free. The model takes %zu MiB for weights, "
        "%zu for cache pages and %zu for a step; a shorter context, smaller pages (--kv-type) or fewer "
        "tokens per step take less",
        x->x.device.id, bytes >> 20, what, free_bytes >> 20, total >> 20, x->x.memory.weights_bytes >> 20,
        x->x.memory.pages_bytes >> 20, x->x.memory.heap_bytes >> 20);
}

static int take_host(cuda_exec *x, err *e) {
    const nn_limits *l = &x->x.options.limits;
    void            *p = NULL;
    int              rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = cuda_host_alloc(&p, cuda_block_ints(l, x->x.groups.n) * sizeof(int32_t), e);
        x->blocks[i] = p;
        p = NULL;
    }
    x->block = x->blocks[0];
    if (rc == 0) rc = cuda_host_alloc(&x->staging, CUDA_STAGING, e);
    if (rc == 0)
        rc = cuda_sampler_open(&x->sampler, x->heap + x->areas.picks, cuda_buf(x, x->x.model->tape->logits), e);
    for (int i = 0; i < x->n_embeds && rc == 0; i++) {
        const nn_op *op = &x->x.model->tape->ops[x->embeds[i].op];
        p = NULL;
        rc = cuda_host_alloc(&p, (size_t)l->max_tokens * (size_t)op->u.embed.table->cols * sizeof(float), e);
        x->embeds[i].host = p;
    }
    return rc;
}

/* Memory of device and host, streams, weights. */
static int start(cuda_exec *x, err *e) {
    int rc = cuda_stream_open(&x->stream, e);
    for (int i = 0; i < CUDA_EVENTS && rc == 0; i++) rc = cuda_event_open(&x->events[i], e);
    for (int i = 0; i < CUDA_TIMES && rc == 0; i++) {
        rc = cuda_event_open_timed(&x->began[i], e);
        if (rc == 0) rc = cuda_event_open_timed(&x->ended[i], e);
    }
    if (rc == 0) rc = take(x, &x->weights, x->weights_bytes, "weights", e);
    if (rc == 0) rc = take(x, &x->heap, x->areas.end, "activations and scratch", e);
    for (int g = 0; g < x->x.groups.n && rc == 0; g++)
        rc = take(x, &x->pages[g], x->x.memory.page_bytes[g] * (size_t)x->x.options.limits.n_pages, "cache pages", e);
    if (rc == 0) rc = cuda_moves_open(x, e);
    if (rc == 0) rc = cuda_fill(x->heap, 0, x->areas.end, e);
    if (rc == 0) rc = take_host(x, e);
    if (rc == 0) rc = cuda_weights_load(x, e);
    return rc;
}

static int number_of(const nn_device *d) {
    int n = 0;
    return sscanf(d->id, "cuda:%d", &n) == 1 ? n : 0;
}

static int make(cuda_exec **out, bool planned, const nn_device *d, const nn_model *m, const nn_exec_options *o,
                err *e) {
    cuda_exec *x = calloc(1, sizeof *x);
    int        rc;
    *out = NULL;
    if (!x) return err_set_nomem(e);
    x->planned = planned;
    x->device.number = number_of(d);
    arena_init(&x->mem, 0);
    if ((rc = nn_exec_init(&x->x, &backend_cuda, d, m, o, &x->mem, e)) < 0) goto fail;
    if ((rc = nn_plan_arena(&x->plan, m->tape, &o->limits, false, &x->mem, e)) < 0) goto fail;
    if ((rc = cuda_lower(x, e)) < 0) goto fail;
    if (!planned && (rc = cuda_device_open(&x->device, number_of(d), e)) < 0) goto fail;
    x->x.ahead = x->n_embeds == 1 && x->embeds[0].there && m->tape->logits && x->x.options.first_op == 0 &&
                 x->x.options.end_op == m->tape->n_ops && !x->x.options.ops;
    x->x.arithmetic = (uint64_t)ARITHMETIC << 32 | (uint64_t)(x->device.arch * 1000 + x->device.code);
    if (!planned && (rc = start(x, e)) < 0) goto fail;
    *out = x;
    return 0;
fail:
    cuda_exec_free(&x->x);
    return rc;
}

static int cuda_open(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    cuda_exec *x;
    int        rc = make(&x, false, d, m, o, e);
    *out = x ? &x->x : NULL;
    return rc;
}

static int cuda_measure(nn_memory *out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    cuda_exec *x;
    int        rc = make(&x, true, d, m, o, e);
    *out = x ? x->x.memory : (nn_memory){ 0 };
    if (x) cuda_exec_free(&x->x);
    return rc;
}

static int cuda_devices(nn_device *out, int cap) {
    int n = cap > 0 ? cuda_device_count(NULL) : 0, found = 0;
    for (int i = 0; i < n && found < cap; i++) {
        cuda_device d;
        if (cuda_device_look(&d, i, NULL) < 0) continue; /* asking for free memory would start a context */
        nn_device *to = &out[found++];
        *to = (nn_device){ .kind = NN_DEVICE_GPU, .total_bytes = d.bytes };
        snprintf(to->id, sizeof to->id, "cuda:%d", i);
        snprintf(to->name, sizeof to->name, "%.95s", d.name);
    }
    return found;
}

static int cuda_prepare(const char *id, err *e) {
    cuda_device d;
    int         n = 0;
    /* All kernels are loaded with the context: those that come as PTX are compiled by a library of its own. */
    if (setenv("CUDA_MODULE_LOADING", "EAGER", 1) != 0) return err_set_nomem(e);
    if (id) (void)sscanf(id, "cuda:%d", &n);
    return cuda_device_count(e) > n ? cuda_device_open(&d, n, e) : ERR_NOTFOUND;
}

const nn_backend backend_cuda = {
    .name = "cuda",
    .can = NN_BATCH_EMBD | NN_BATCH_ROW_END | NN_BATCH_SEGMENT | NN_BATCH_ADAPTER | NN_BATCH_AXES | NN_BATCH_ROW_BEGIN |
           NN_BATCH_DEEP | NN_BATCH_STRICT | NN_BATCH_WIDE | NN_BATCH_FROM,
    .devices = cuda_devices,
    .prepare = cuda_prepare,
    .measure = cuda_measure,
    .open = cuda_open,
    .free = cuda_exec_free,
    .adapt = cuda_adapt_set,
    .input = cuda_input,
    .submit = cuda_submit,
    .wait = cuda_wait_for,
    .fetch = cuda_fetch,
    .sample = cuda_sample,
    .move = cuda_move,
    .begin = cuda_begin,
    .run = cuda_run,
    .read = cuda_read,
    .write = cuda_write,
};

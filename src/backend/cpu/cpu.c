/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: its device, opening, beginning a step, walking the items. */
#include "backend/cpu/cpu.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/noalloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void cpu_free(nn_exec *base) {
    cpu_exec *x = (cpu_exec *)base;
    pool_free(x->pool);
    for (int i = 0; x->layers && i < base->model->dims->n_layer; i++) free(x->layers[i].fixed);
    for (int g = 0; g < NN_MAX_GROUPS; g++) {
        if (x->pages[g]) munmap(x->pages[g], x->pages_bytes[g]);
        free(x->page_ptrs[g]);
    }
    if (x->step_pages) munmap(x->step_pages, x->step_bytes);
    free(x->step_ptrs);
    free(x->step_first);
    for (int i = 0; i < x->n_ropes; i++) free(x->ropes[i].table);
    for (int k = 0; k < CPU_AREAS; k++) free(x->areas[k]);
    free(x->items);
    free(x->counters);
    free(x->start);
    free(x->expert);
    free(x->counts);
    free(x->row_of);
    free(x->in_of);
    free(x->wave.slots);
    store_free(x->store);
    free(x->packed);
    free(x->parts);
    free(x->folds);
    free(x->scores);
    free(x->scored);
    free(x->scratch);
    free(x->times);
    cpu_adapt_free(x);
    local_deinit(&x->base);
    free(x);
}

/* What may change a bit of a result: raised with every change in kernels, in the layout of pages or in the order of
 * operations. The instruction sets count, too. */
enum { ARITHMETIC = 8 };

/* What could be streamed, and what is. */
static int find_experts(cpu_exec *x, err *e) {
    nn_exec               *base = &x->base.x;
    const nn_exec_options *o = &base->options;
    store_layout           all;
    arena                  mem;
    int                    rc;
    if (!x->base.planned && !o->expert_bytes) return 0;
    if (o->expert_bytes) {
        rc = store_layout_find(&x->layout, base->model, o, !x->base.planned, &x->base.mem, e);
        all = x->layout;
        if (rc == 0) rc = store_layout_divide(&x->layout, o->expert_bytes, e);
        if (rc < 0) return rc;
        base->memory.experts = (nn_expert_memory){ .bytes = x->layout.slots_bytes,
                                                   .streamed = all.file_bytes,
                                                   .slots = x->layout.n_slots };
    } else {
        arena_init(&mem, 0);
        rc = store_layout_find(&all, base->model, o, false, &mem, NULL);
        arena_deinit(&mem);
        if (rc < 0) return 0;
    }
    base->memory.heap_bytes += o->expert_bytes ? all.table_bytes : 0;
    base->memory.experts.least = all.least_bytes;
    base->memory.experts.most = all.all_bytes;
    base->memory.experts.file = all.file_bytes;
    base->memory.experts.token = all.token_bytes;
    base->memory.experts.count = all.n_experts;
    return 0;
}

static int make(cpu_exec **out, bool planned, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    cpu_exec *x = calloc(1, sizeof *x);
    int       rc;
    *out = NULL;
    if (!x) return err_set_nomem(e);
    x->base.planned = planned;
    x->n_threads = o->n_threads > 0 ? o->n_threads : pool_default_threads();
    kernels_init(&x->k, o->cpu);
    if ((rc = local_init(&x->base, &backend_cpu, d, m, o, e)) < 0) goto fail;
    x->base.x.arithmetic = (uint64_t)ARITHMETIC << 32 | (cpu_detect() & cpu_close(o->cpu));
    if ((rc = find_experts(x, e)) < 0 || (rc = cpu_lower(x, e)) < 0) goto fail;
    if (!planned && (rc = pool_open(&x->pool, x->n_threads, o->pin, e)) < 0) goto fail;
    if (!planned && o->expert_bytes && (rc = store_open(&x->store, &x->layout, m, o->reader, e)) < 0) goto fail;
    if (x->store) {
        x->base.x.streaming = store_streaming(x->store);
        x->base.x.bytes_read = store_bytes_read(x->store);
    }
    *out = x;
    return 0;
fail:
    cpu_free(&x->base.x);
    return rc;
}

static int cpu_open(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    cpu_exec *x;
    int       rc = make(&x, false, d, m, o, e);
    *out = x ? &x->base.x : NULL;
    return rc;
}

static int cpu_measure(nn_memory *out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    cpu_exec *x;
    int       rc = make(&x, true, d, m, o, e);
    *out = x ? x->base.x.memory : (nn_memory){ 0 };
    if (x) cpu_free(&x->base.x);
    return rc;
}

static int cpu_devices(nn_device *out, int cap) {
    if (cap < 1) return 0;
    *out = (nn_device){ .id = "cpu",
                        .kind = NN_DEVICE_CPU,
                        .total_bytes = machine_memory_total(),
                        .free_bytes = machine_memory_available(NULL) };
    machine_cpu_name(out->name, sizeof out->name);
    return 1;
}

/* Page numbers become pointers; only those that a window still sees. */
static void map_pages(cpu_exec *x) {
    const nn_batch  *b = &x->base.batch;
    const nn_limits *m = &x->base.x.options.limits;
    for (int g = 0; g < x->base.x.groups.n; g++) {
        int window = x->base.x.groups.window[g];
        for (int s = 0; s < b->n_seq; s++) {
            int32_t        first = b->pos[b->q_start[s]];
            int32_t        lo = window && first >= window ? (first - window + 1) / m->page_tokens : 0;
            const int32_t *from = b->pages[g] + (size_t)s * (size_t)b->pages_stride;
            const void   **to = x->page_ptrs[g] + (size_t)s * (size_t)m->max_pages;
            for (int32_t p = lo; p <= (b->kv_len[s] - 1) / m->page_tokens; p++)
                to[p] = x->pages[g] + (size_t)from[p] * x->base.x.memory.page_bytes[g];
        }
    }
}

/* A sequence's pages of this step stand side by side. */
static void map_step_pages(cpu_exec *x) {
    const nn_batch *b = &x->base.batch;
    int             n = 0;
    for (int s = 0; s < b->n_seq && x->step_pages; s++) {
        x->step_first[s] = n;
        for (int p = 0; p * STEP_PAGE_TOKENS < b->kv_len[s]; p++, n++)
            x->step_ptrs[n] = x->step_pages + (size_t)n * x->step_page_bytes;
    }
}

static int cpu_begin(nn_exec *base, const nn_batch *b, err *e) {
    cpu_exec *x = (cpu_exec *)base;
    int       rc = nn_exec_check(base, b, e);
    if (rc < 0) return rc;
    x->base.batch = *b;
    x->op1 = base->options.first_op;
    if ((rc = cpu_adapt_begin(x, e)) < 0) return rc;
    map_pages(x);
    map_step_pages(x);
    for (int s = 0; s < b->n_seq; s++) {
        if (b->pos[b->q_start[s]] != 0) continue;
        for (int i = 0; i < base->model->dims->n_layer; i++) {
            cpu_layer *y = &x->layers[i];
            if (y->fixed_floats)
                memset(y->fixed + (size_t)b->state_slot[s] * y->fixed_floats, 0, y->fixed_floats * sizeof *y->fixed);
        }
    }
    return 0;
}

void cpu_walk_item(cpu_exec *x, cpu_walk *w, const cpu_item *it) {
    bool expand = it->kind == CPU_ITEM_EXPAND;
    if (it->op < x->op0 || it->op >= x->op1 || (expand && !x->adapt.on)) return;
    if ((it->barrier && !w->met) || (expand && w->halves)) {
        pool_barrier(x->pool, w->worker);
        w->halves = false;
    }
    w->met = false;
    w->halves = w->halves || (x->adapt.on && !expand && it->slot >= 0);
    int64_t begin = x->timed ? clock_ns() : 0;
    cpu_run_item(x, it, w->worker);
    if (!x->timed) return;
    int64_t took = clock_ns() - begin;
    w->spent += took;
    x->times[w->worker].by_kind[x->base.x.model->tape->ops[it->op].kind] += took;
}

static void work(void *ctx, int worker, int n_workers) {
    cpu_exec *x = ctx;
    cpu_walk  w = { .worker = worker };
    noalloc_begin();
    (void)n_workers;
    for (int i = 0; i < x->n_items;) {
        if (x->items[i].waved)
            i = cpu_waves(x, &w, i);
        else
            cpu_walk_item(x, &w, &x->items[i++]);
    }
    if (x->timed) x->times[worker].kernels = w.spent;
    noalloc_end();
}

static int cpu_run(nn_exec *base, int first_op, int end_op, err *e) {
    cpu_exec *x = (cpu_exec *)base;
    x->failed = 0;
    x->op0 = first_op;
    x->op1 = end_op;
    for (int i = 0; i < x->n_counters; i++) atomic_store_explicit(&x->counters[i], 0, memory_order_relaxed);
    x->n_workers = base->options.steady ? x->n_threads : pool_advice(x->pool);
    if (x->timed) memset(x->times, 0, (size_t)x->n_threads * sizeof *x->times);
    pool_run_some(x->pool, x->n_workers, work, x);
    if (x->store) cpu_waves_end(x);
    if (x->failed && e) *e = x->error;
    return x->failed;
}

/* The buffer whose int8 copy lies in an area, as far as the tape was run; 0: none. */
static nn_buf copied_in(const cpu_exec *x, int area) {
    nn_buf from = 0;
    for (int i = 0; i < x->n_items && x->items[i].op < x->op1; i++) {
        const cpu_item *it = &x->items[i];
        if (it->kind == CPU_ITEM_QUANT && it->aux == area) from = it->buf;
        if (it->kind == CPU_ITEM_OP && it->also == area) from = x->base.x.model->tape->ops[it->op].out;
    }
    return from;
}

static int cpu_write(nn_exec *base, nn_buf b, const float *from, err *e) {
    cpu_exec *x = (cpu_exec *)base;
    int       rc = local_write(base, b, from, e);
    for (int k = 0; k < CPU_AREAS && rc == 0; k++) {
        if (copied_in(x, k) == b)
            cpu_quant_piece(x, k, b, 0, local_rows(&x->base, b) * base->model->tape->bufs[b].width);
    }
    return rc;
}

void backend_cpu_timed(nn_exec *base, bool on) { ((cpu_exec *)base)->timed = on; }

double backend_cpu_kernel_seconds(const nn_exec *base, int *n_threads) {
    const cpu_exec *x = (const cpu_exec *)base;
    int64_t         sum = 0;
    for (int i = 0; i < x->n_threads; i++) sum += x->times[i].kernels;
    *n_threads = x->n_threads;
    return (double)sum * 1e-9;
}

double backend_cpu_kind_seconds(const nn_exec *base, nn_op_kind kind) {
    const cpu_exec *x = (const cpu_exec *)base;
    int64_t         sum = 0;
    for (int i = 0; i < x->n_threads; i++) sum += x->times[i].by_kind[kind];
    return (double)sum * 1e-9;
}

const nn_backend backend_cpu = {
    .name = "cpu",
    .can = NN_BATCH_EMBD | NN_BATCH_ROW_END | NN_BATCH_SEGMENT | NN_BATCH_ADAPTER | NN_BATCH_AXES | NN_BATCH_ROW_BEGIN |
           NN_BATCH_DEEP | NN_BATCH_STRICT | NN_BATCH_WIDE,
    .streams = true,
    .devices = cpu_devices,
    .measure = cpu_measure,
    .open = cpu_open,
    .free = cpu_free,
    .adapt = cpu_adapt_set,
    .submit = local_submit,
    .wait = local_wait,
    .fetch = local_fetch,
    .move = cpu_move,
    .begin = cpu_begin,
    .run = cpu_run,
    .read = local_read,
    .write = cpu_write,
};

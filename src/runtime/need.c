/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/need.h"

#include "backend/backend.h"
#include "backend/parts.h"
#include "base/machine.h"
#include "base/num.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/divide.h"
#include "runtime/draft.h"
#include "runtime/runtime.h"
#include "tensor/mat.h"
#include "vision/ears.h"
#include "vision/vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An opened tokenizer was measured to take 110 to 130 bytes per entry of vocabularies of 50,000 to 100,000, the process
 * without a model 10 MB; these are with some headroom. */
enum { VOCAB_ENTRY_BYTES = 220 };
#define FIXED_BYTES ((uint64_t)16 << 20)

/* What a process has on a GPU before it has any model: its context and all kernels, 528 MiB on an H200. */
#define CONTEXT_BYTES ((uint64_t)544 << 20)

/* The model's eyes and ears, in itself, in the file that was named or in the one beside it: whether there are eyes, and what
 * their own file and all that looking and listening takes come to. What cannot be opened takes nothing. Steps become long enough
 * for what must come in one. */
static bool measure_senses(uint64_t *bytes, uint64_t *on_device, const model_file *f, const nn_model *model,
                           const char *named, engine_options *o) {
    vision_options v = { .device = o->device, .n_threads = o->n_threads, .cpu = o->cpu, .parts = model->tape->n_parts };
    char          *found = named ? NULL : runtime_find_mmproj(model_file_path(f));
    const char    *path = named ? named : found;
    model_file    *mmproj = NULL;
    bool           there = !path || model_file_open(&mmproj, path, NULL) == 0;
    *bytes = *on_device = 0;
    bool     sees = there && vision_known(f, mmproj), hears = there && ears_known(f, mmproj);
    uint64_t more = 0, more_on_device = 0;
    int      width = model->dims->n_embd * model->tape->n_parts;
    bool     open = sees && vision_measure(bytes, on_device, f, mmproj, width, &v, NULL) == 0;
    o->span_tokens = open ? vision_measure_step(f, mmproj) : 0;
    open = (hears && ears_measure(&more, &more_on_device, f, mmproj, width, &v, NULL) == 0) || open;
    *bytes += more + (open && mmproj ? model_file_bytes(mmproj) : 0);
    *on_device += more_on_device;
    model_file_free(mmproj);
    free(found);
    return sees;
}

/* Device by device; each of them gets a context. Of several the last one has the eyes. */
static void fill_devices(need *out, const engine_memory *m, uint64_t eyes) {
    backend_parts p;
    if (eyes && backend_parts_read(&p, m->device, NULL) == 0) {
        (void)device_memory_add(&out->bytes, p.part[p.n - 1].device, eyes);
    }
    (void)device_memory_add_all(&out->bytes, &m->beside);
    for (size_t i = 0, at = 0; i < out->bytes.n; i++) {
        device_bytes *d = &out->bytes.on[i];
        at += (size_t)snprintf(out->memory + at, sizeof out->memory - at, "%s%s", at ? ", " : "", d->device);
        if (at >= sizeof out->memory) at = sizeof out->memory - 1;
        d->bytes += CONTEXT_BYTES;
    }
}

static bool is_divided(const char *device) { return strpbrk(device, "/+") != NULL; }

static void fill(need *out, const engine_memory *m, const nn_model *model, const model_file *f, const engine_options *o,
                 uint64_t eyes, uint64_t eyes_on_device) {
    out->n_ctx = m->n_ctx;
    out->n_ctx_train = model->dims->context;
    out->weights_bytes = model_file_bytes(f);
    out->cache_bytes_per_1k = (uint64_t)m->page_bytes * 1000 / (uint64_t)m->page_tokens;
    out->sequence_bytes = (uint64_t)m->window_bytes + m->slot_bytes;
    out->cache_bytes = (uint64_t)m->pages_bytes + m->states_bytes + o->host_cache_bytes;
    out->scratch_bytes = (uint64_t)m->device_bytes + m->heap_bytes + model->mem.used_bytes;
    out->other_bytes = FIXED_BYTES + (uint64_t)num_max(model->dims->n_vocab, 0) * VOCAB_ENTRY_BYTES + eyes;
    /* What a device with memory of its own holds does not count here, weights that it copied neither. */
    uint64_t device = device_memory_sum(&m->beside) + eyes_on_device;
    uint64_t all = out->cache_bytes + out->scratch_bytes + out->other_bytes + m->weights_bytes;
    snprintf(out->device, sizeof out->device, "%s", m->device);
    fill_devices(out, m, eyes_on_device);
    uint64_t mapped = is_divided(m->device) ? m->mapped_bytes
                      : m->weights_bytes    ? 0
                                            : out->weights_bytes - m->experts.streamed;
    out->experts = m->experts;
    (void)device_memory_set(&out->bytes, DEVICE_CPU, mapped + m->experts.bytes + all - device);
    out->n_layer = model->tape->n_layer;
    out->n_mixtures = nn_mixtures(model->tape);
}

/* Every matrix that the tape reads for one token; of a mixture the experts that are used. */
static void count_token(need *out, const nn_model *m) {
    const nn_tape *t = m->tape;
    for (int i = 0; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        if (op->kind != NN_OP_LINEAR && op->kind != NN_OP_HEAD_LINEAR && op->kind != NN_OP_EXPERTS) continue;
        const nn_mat *w = op->u.linear.w;
        if (!w) continue;
        int64_t times = op->kind == NN_OP_HEAD_LINEAR ? num_max(w->n_stack, 1) : 1;
        if (op->kind == NN_OP_EXPERTS) times = num_min(t->bufs[op->out].mult, num_max(w->n_stack, 1));
        uint64_t rows = (uint64_t)(w->rows * times);
        out->token_bytes += rows * ((uint64_t)w->at[0].row_bytes + w->at[0].scale_row_bytes);
        out->token_products += rows * (uint64_t)w->cols;
    }
}

size_t need_cache_room(const model_file *f, const char *device) {
    const nn_backend *backend;
    nn_device         d;
    err               e;
    uint64_t          free_bytes = machine_memory_available(NULL), most = UINT64_MAX;
    int               rc = backend_find(device, &backend, &d, &e);
    if (rc == 0 && d.kind == NN_DEVICE_GPU) free_bytes = d.total_bytes;
    if (rc == 0 && d.kind == NN_DEVICE_MIXED) most = d.total_bytes / 4; /* pages lie with their layers */
    uint64_t usable = free_bytes / 10 * 7, weights = model_file_bytes(f);
    uint64_t beside = usable > weights ? (usable - weights) / 2 : 0;
    uint64_t room = beside < free_bytes / 4 ? beside : free_bytes / 4;
    return (size_t)(room < most ? room : most);
}

/* Who drafts beside the model, and what their own files and tables take. */
static int add_drafts(need *out, const draft_files *d) {
    uint64_t file = d->file ? model_file_bytes(d->file) : 0;
    uint64_t tables = (d->model ? d->model->mem.used_bytes : 0) + (d->next ? d->next->model->mem.used_bytes : 0);
    out->has_draft = d->model != NULL;
    out->has_next = d->next != NULL;
    out->weights_bytes += file;
    out->scratch_bytes += tables;
    return device_memory_add(&out->bytes, DEVICE_CPU, file + tables) ? 0 : ERR_NOMEM;
}

static bool prefers_gpu(const char *device, const nn_backend **backend, nn_device *d) {
    return backend_is_auto(device) && backend_find(device, backend, d, NULL) == 0 && d->kind == NN_DEVICE_GPU;
}

bool need_may_leave(const char *device, int code) {
    const nn_backend *backend;
    nn_device         d;
    bool              may = code == ERR_NOMEM || code == ERR_UNSUPPORTED || code == ERR_LIMIT || code == ERR_LOST;
    return may && prefers_gpu(device, &backend, &d);
}

int need_suits(const char *device, const nn_model *m, bool eyes, bool adapters, err *e) {
    const nn_backend *backend;
    nn_device         d;
    bool              axes = eyes && m->tape->n_axes > 0;
    if ((!axes && !adapters) || !prefers_gpu(device, &backend, &d)) return 0;
    if (axes && !(backend->can & NN_BATCH_AXES))
        return err_set(e, ERR_UNSUPPORTED, "%s cannot place the parts of a picture in two dimensions", d.id);
    if (adapters && !(backend->can & NN_BATCH_ADAPTER))
        return err_set(e, ERR_UNSUPPORTED, "%s cannot use adapters", d.id);
    return 0;
}

/* What models may take of each device on which it has something. */
static void find_limits(need *n) {
    for (size_t i = 0; i < n->bytes.n; i++) {
        const char       *device = n->bytes.on[i].device;
        const nn_backend *backend;
        nn_device         d;
        if (backend_find(device, &backend, &d, NULL) == 0 && d.kind == NN_DEVICE_GPU && d.total_bytes)
            (void)device_memory_set(&n->limits, device, d.total_bytes / 10 * 9);
    }
}

/* What will be asked of a model beside its options. */
typedef struct asked {
    const char *draft;  /* a file that was named for drafting; NULL: none */
    const char *mmproj; /* a file that was named for pictures and sounds; NULL: none */
    bool        adapters;
    int         n_sequences;
} asked;

/* A model that is not larger than the part that was asked for is on one device: `one`, if that is so. */
static const char *simplest(const char *device, const nn_model *m, char one[64]) {
    backend_parts p;
    if (!device || !is_divided(device) || backend_parts_read(&p, device, NULL) < 0) return device;
    const char *whole = backend_parts_whole(&p, m->tape->n_layer, nn_mixtures(m->tape));
    if (whole) snprintf(one, 64, "%s", whole);
    return whole ? one : device;
}

/* A model with all that comes with it. */
typedef struct subject {
    const model_file  *file;
    const nn_model    *model;
    const draft_files *drafts;
    uint64_t           eyes_bytes, eyes_on_device;
    int                n_sequences;
} subject;

static int count(need *out, engine_options *o, const subject *w, err *e) {
    engine_memory m;
    int           rc = engine_measure(&m, w->model, o, e);
    *out = (need){ 0 };
    if (rc == 0 && w->n_sequences > 0) {
        /* One page of every group per page_tokens positions; pages_bytes has the engine's own number of them. */
        size_t pages = ((size_t)m.n_ctx + (size_t)m.page_tokens - 1) / (size_t)m.page_tokens, bytes = 0;
        if (!num_mul_size(pages * (size_t)w->n_sequences, m.all_page_bytes, &bytes))
            rc = err_set(e, ERR_LIMIT, "%d sequences of %d tokens are too many", w->n_sequences, m.n_ctx);
        if (rc == 0 && bytes > 0) {
            o->cache_bytes = bytes;
            rc = engine_measure(&m, w->model, o, e);
        }
    }
    if (rc < 0) return rc;
    fill(out, &m, w->model, w->file, o, w->eyes_bytes, w->eyes_on_device);
    count_token(out, w->model);
    out->n_sequences = w->n_sequences > 0 ? w->n_sequences : m.full_sequences;
    out->cache_room = o->cache_room;
    find_limits(out);
    return add_drafts(out, w->drafts) < 0 ? err_set_nomem(e) : 0;
}

/* A mixture that needs more than there is: its experts are streamed, into as much as all the rest leaves. */
static int choose_experts(need *out, engine_options *o, const subject *w, err *e) {
    const double gib = 1024.0 * 1024 * 1024;
    uint64_t     room = o->memory_room, all = device_memory_on(&out->bytes, DEVICE_CPU);
    size_t       most = out->experts.most;
    if (!room || all <= room || !most) return 0;
    o->expert_bytes = out->experts.least;
    int rc = count(out, o, w, e);
    if (rc < 0) return rc;
    uint64_t least = device_memory_on(&out->bytes, DEVICE_CPU);
    if (least > room)
        return err_set(
            e, ERR_NOMEM,
            "it needs %.2f GiB of memory, %.2f GiB with as few of its experts as can be, and may take %.2f GiB; "
            "choose a smaller context, or --experts resident where the system may page",
            (double)all / gib, (double)least / gib, (double)room / gib);
    uint64_t fits = out->experts.least + (room - least);
    o->expert_bytes = fits < most ? (size_t)fits : most;
    return count(out, o, w, e);
}

/* On the device that the options name or prefer. */
static int measure(need *out, const model_file *f, const engine_options *options, const asked *ask, err *e) {
    engine_options   o = *options;
    nn_model_options mo = { .rope_context = o.n_ctx };
    nn_model        *model;
    draft_files      d = { 0 };
    *out = (need){ 0 };
    if (o.cpu == 0) o.cpu = cpu_detect();
    if (!o.cache_room) o.cache_room = need_cache_room(f, o.device);
    int n_sequences = ask->n_sequences;
    if (o.max_seqs < n_sequences) o.max_seqs = n_sequences;
    int rc = nn_model_open(&model, f, models_list, &mo, e);
    if (rc < 0) return rc;
    char     one[64];
    uint64_t eyes_bytes, eyes_on_device;
    o.device = simplest(o.device, model, one);
    bool eyes = measure_senses(&eyes_bytes, &eyes_on_device, f, model, ask->mmproj, &o);
    rc = need_suits(o.device, model, eyes, ask->adapters, e);
    if (rc == 0) rc = draft_files_open(&d, model, ask->draft, o.speculate, e);
    o.draft_model = d.model;
    o.next = d.next;
    if (nn_mixtures(model->tape) == 0) o.expert_bytes = 0;
    const subject w = { f, model, &d, eyes_bytes, eyes_on_device, n_sequences };
    if (rc == 0) rc = count(out, &o, &w, e);
    if (rc == 0 && o.experts_auto && !o.expert_bytes) rc = choose_experts(out, &o, &w, e);
    draft_files_close(&d);
    nn_model_free(model);
    return rc;
}

static bool lacks_room(const need *n) {
    for (size_t i = 0; i < n->limits.n; i++) {
        if (device_memory_on(&n->bytes, n->limits.on[i].device) > n->limits.on[i].bytes) return true;
    }
    return false;
}

/* The sentence about devices that could not even hold it alone. */
static int too_large(const need *n, err *e) {
    const double gib = 1024.0 * 1024 * 1024;
    return err_set(e, ERR_NOMEM, "it needs %.2f GiB of the memory of %s, where models may take %.2f GiB",
                   (double)device_memory_beside(&n->bytes) / gib, n->memory,
                   (double)device_memory_sum(&n->limits) / gib);
}

/* --- dividing ------------------------------------------------------------------------------------------------------ */

/* The memory of the GPUs that a model may be given without being told, the preferred one first. */
static void find_gpus(device_memory *g, const engine_options *o) {
    nn_device all[BACKEND_MAX_PARTS - 1];
    int       most = BACKEND_MAX_PARTS - 1;
    if (o->max_gpus > 0 && o->max_gpus < most) most = o->max_gpus;
    *g = (device_memory){ 0 };
    for (int i = 0, n = backend_gpus(o->device, all, most); i < n; i++)
        (void)device_memory_set(g, all[i].id, all[i].total_bytes);
}

/* n layers on these devices, as many on each as its share of their memory, the others on the CPU. */
static int name_layers(char id[64], const device_memory *devices, int n) {
    backend_parts p = { .part = { { DEVICE_CPU, -1 } }, .n = 1 };
    uint64_t      memory[DEVICE_MEMORY_MAX] = { 0 };
    int           share[DEVICE_MEMORY_MAX], n_devices = (int)num_min((int64_t)devices->n, BACKEND_MAX_PARTS - 1);
    for (int i = 0; i < n_devices; i++) memory[i] = devices->on[i].bytes;
    backend_parts_share(n, memory, n_devices, share);
    for (int i = 0; i < n_devices; i++) {
        if (share[i] <= 0) continue;
        p.part[p.n].n = share[i];
        snprintf(p.part[p.n++].device, sizeof p.part[0].device, "%.31s", devices->on[i].device);
    }
    return backend_parts_write(&p, id, NULL);
}

/* Ways to divide a model: n of its layers on GPUs, or everything but experts, and those of n of them, on the first. */
typedef struct division {
    const device_memory *gpus;
    bool                 experts;
    int                  least, most;
} division;

static int name_division(char id[64], const division *d, int n) {
    if (!d->experts) return name_layers(id, d->gpus, n);
    snprintf(id, 64, "%.40s/experts:%d", d->gpus->on[0].device, n);
    return 0;
}

static void describe(need *n, const division *d, int there) {
    if (there == d->most)
        snprintf(n->left, sizeof n->left, "all layers are on %s, the table of embeddings is on the CPU", n->memory);
    else if (d->experts)
        snprintf(n->left, sizeof n->left, "experts of %d of %d layers are on %s, those of the others on the CPU", there,
                 d->most, n->memory);
    else
        snprintf(n->left, sizeof n->left, "%d of %d layers are on %s, the others on the CPU", there, d->most,
                 n->memory);
}

/* The largest part that GPUs have room for; false: not even the smallest. */
static bool most_that_fits(need *out, const division *d, const model_file *f, const engine_options *options,
                           const asked *ask) {
    engine_options o = *options;
    char           device[64];
    int            low = d->least - 1, high = d->most;
    while (low < high) {
        int  middle = low + (high - low + 1) / 2;
        need n;
        o.device = device;
        if (name_division(device, d, middle) == 0 && measure(&n, f, &o, ask, NULL) == 0 && !lacks_room(&n)) {
            low = middle;
            *out = n;
        } else {
            high = middle - 1;
        }
    }
    if (low >= d->least) describe(out, d, low);
    return low >= d->least;
}

/* All of it on as few GPUs as have room together; false: there is none. */
static bool fits_several(need *out, const device_memory *g, const model_file *f, const engine_options *options,
                         const asked *ask) {
    engine_options o = *options;
    backend_parts  p = { .n = 0 };
    char           device[64];
    o.device = device;
    for (int i = 0; i < (int)g->n; i++) {
        need n;
        p.part[i].n = -1;
        snprintf(p.part[i].device, sizeof p.part[i].device, "%.31s", g->on[i].device);
        p.n++;
        if (i == 0 || backend_parts_write(&p, device, NULL) < 0) continue;
        if (measure(&n, f, &o, ask, NULL) < 0 || lacks_room(&n)) continue;
        *out = n;
        snprintf(out->left, sizeof out->left, "its layers are on %s", n.memory);
        return true;
    }
    return false;
}

/*
 * A model that is too large for a GPU: on several; else as much of it there as fits. Of a mixture all but experts is worth
 * most on one GPU: it is read for every token, and few experts are. Where there are several, what leaves the CPU less.
 */
static bool divide(need *out, const model_file *f, const engine_options *o, const asked *ask) {
    const need    whole = *out;
    device_memory g;
    need          layers;
    find_gpus(&g, o);
    if (g.n > 1 && fits_several(out, &g, f, o, ask)) return true;
    const division by_experts = { &g, true, 0, whole.n_mixtures }, by_layers = { &g, false, 1, whole.n_layer };
    bool           some = whole.n_mixtures > 0 && most_that_fits(out, &by_experts, f, o, ask);
    if (some && g.n == 1) return true;
    if (most_that_fits(&layers, &by_layers, f, o, ask) &&
        (!some || device_memory_on(&layers.bytes, DEVICE_CPU) < device_memory_on(&out->bytes, DEVICE_CPU))) {
        *out = layers;
        return true;
    }
    if (!some) *out = whole;
    return some;
}

/* Three quarters of the layers that GPUs have; false: that would be too few to be worth it. */
static bool fewer_layers(const need *n, const backend_parts *p, char device[64]) {
    bool named = p->n > 1 && p->part[1].n >= 0;
    int  there = named ? 0 : n->n_layer;
    for (int i = 1; i < p->n && named; i++) there += p->part[i].n;
    there = there * 3 / 4;
    return there > 0 && there >= n->n_layer / 8 && name_layers(device, &n->limits, there) == 0;
}

bool need_smaller(const need *n, char device[64]) {
    backend_parts p;
    if (n->limits.n == 0 || backend_parts_read(&p, n->device, NULL) < 0) return false;
    const char *gpu = p.part[p.n - 1].device;
    bool        mixture = p.experts || (p.n == 1 && n->n_mixtures > 0);
    int         k = p.experts ? p.part[1].n : n->n_mixtures;
    if (!mixture) return fewer_layers(n, &p, device); /* the host waits for a few attempts, not for many */
    if (k == 0)
        snprintf(device, 64, "%.40s/%d", gpu, n->n_layer / 2);
    else
        snprintf(device, 64, "%.40s/experts:%d", gpu, k / 2);
    return k > 0 || n->n_layer / 2 > 0;
}

/* Why it is so, in front of what is. */
static int explain(need *n, const err *why) {
    char what[sizeof n->left];
    snprintf(what, sizeof what, "%s", n->left);
    snprintf(n->left, sizeof n->left, "%.200s; %.160s", why->msg, what);
    return 0;
}

static int measure_somewhere(need *out, const model_file *f, const engine_options *options, const asked *ask, err *e) {
    engine_options o = *options;
    err            why = { 0 }, *to = e ? e : &why;
    int            rc = measure(out, f, &o, ask, to);
    if (rc == 0 && backend_is_auto(o.device) && lacks_room(out)) {
        rc = too_large(out, to);
        if (divide(out, f, options, ask)) return explain(out, to);
    }
    if (rc == 0 || !need_may_leave(o.device, rc)) return rc;
    why = *to;
    o.device = DEVICE_CPU;
    o.cache_room = 0;
    if ((rc = measure(out, f, &o, ask, to)) < 0) return rc;
    snprintf(out->left, sizeof out->left, "the model computes on the CPU");
    return explain(out, &why);
}

int need_of_model(need *out, const model_file *f, const engine_options *o, int n_sequences, err *e) {
    return measure_somewhere(out, f, o, &(asked){ .n_sequences = n_sequences }, e);
}

int need_of_path(need *out, const char *path, const engine_options *o, int n_sequences, err *e) {
    model_file *f;
    int         rc = model_file_open(&f, path, e);
    *out = (need){ 0 };
    if (rc < 0) return rc;
    rc = need_of_model(out, f, o, n_sequences, e);
    model_file_free(f);
    return rc;
}

int need_of_settings(need *out, const char *path, const runtime_settings *s, const engine_options *options, err *e) {
    engine_options o = *options;
    model_file    *f = NULL;
    int            rc = 0;
    *out = (need){ 0 };
    if (s->n_ctx > 0) o.n_ctx = s->n_ctx;
    if (s->speculate) rc = runtime_speculate(s->speculate, &o.speculate, e);
    if (s->draft_max > 0) o.draft_max = s->draft_max;
    if (rc == 0) rc = runtime_settings_pages(s, &o, e);
    if (rc == 0) rc = model_file_open(&f, path, e);
    if (rc == 0) rc = measure_somewhere(out, f, &o, &(asked){ s->draft, s->mmproj, s->n_lora > 0, 0 }, e);
    model_file_free(f);
    return rc;
}

bool need_fits(const need *n, uint64_t available) {
    return !lacks_room(n) && (!available || device_memory_on(&n->bytes, DEVICE_CPU) <= available);
}

int need_fitting_context(const need *n, const model_file *f, const engine_options *options, int n_sequences,
                         uint64_t available) {
    enum { STEP = 256 };
    engine_options o = *options;
    int            low = 0, high = n->n_ctx / STEP;
    o.device = n->device;
    while (low < high) {
        int  middle = low + (high - low + 1) / 2;
        need shorter;
        o.n_ctx = middle * STEP;
        if (need_of_model(&shorter, f, &o, n_sequences, NULL) == 0 && need_fits(&shorter, available))
            low = middle;
        else
            high = middle - 1;
    }
    return low * STEP;
}

int need_check_device(const need *n, const char *path, const engine_options *o, err *e) {
    model_file *f;
    if (!lacks_room(n)) return 0;
    int rc = model_file_open(&f, path, e);
    if (rc < 0) return rc;
    int context = need_fitting_context(n, f, o, 0, 0);
    model_file_free(f);
    err what = { 0 };
    rc = too_large(n, &what);
    if (!context)
        return err_set(e, rc,
                       "%s; no context is short enough: --device auto puts as much there as fits and the rest on "
                       "the CPU",
                       what.msg);
    return err_set(e, rc, "%s; a context of %d tokens would fit, and smaller pages (--kv) allow more", what.msg,
                   context);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/store.h"

#include "base/clock.h"
#include "base/huge.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

typedef struct slot {
    int             mixture, expert; /* expert -1: empty */
    int             before, behind;  /* in its list, by last use; -1: none */
    bool            taken, ready;
    uint8_t        *at;
    file_reader_job job;
} slot;

/* Slots by last use, the oldest first. */
typedef struct list {
    int first, last;
} list;

struct store {
    const store_layout *layout;
    file_reader        *reader;
    uint8_t            *room;
    size_t              room_bytes;
    slot               *slots;
    list               *lists; /* one per mixture; of a ring, one */
    int32_t           **where; /* [n_mixtures][n_expert]: its slot, or -1 */
    nn_streaming        streaming;
    int64_t             wait_ns;
};

/* --- lists ---------------------------------------------------------------------------------------------------------- */

static list *list_of(store *s, int mixture) { return &s->lists[s->layout->ring ? 0 : mixture]; }

static void append(store *s, list *l, int i) {
    s->slots[i].before = l->last;
    s->slots[i].behind = -1;
    if (l->last >= 0)
        s->slots[l->last].behind = i;
    else
        l->first = i;
    l->last = i;
}

static void leave(store *s, list *l, int i) {
    const slot *x = &s->slots[i];
    if (x->before >= 0)
        s->slots[x->before].behind = x->behind;
    else
        l->first = x->behind;
    if (x->behind >= 0)
        s->slots[x->behind].before = x->before;
    else
        l->last = x->before;
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

static int open_files(store *s, const nn_model *m, err *e) {
    for (int i = 0; i < model_file_mapping_count(m->file); i++) {
        const file_map *map;
        const char     *path = model_file_mapping(m->file, i, &map);
        int             rc = file_reader_add(s->reader, path, map, e);
        if (rc < 0) return rc;
    }
    return 0;
}

static void place_slots(store *s) {
    const store_layout *l = s->layout;
    uint8_t            *at = s->room;
    for (int k = 0; k < (l->ring ? 1 : l->n_mixtures); k++) {
        const store_mixture *m = &l->mixtures[k];
        s->lists[k] = (list){ -1, -1 };
        for (int i = m->first_slot; i < m->first_slot + m->n_slots; i++) {
            s->slots[i] = (slot){ .mixture = k, .expert = -1, .at = at };
            append(s, &s->lists[k], i);
            at += m->slot_bytes;
        }
    }
}

static int open_tables(store *s, err *e) {
    const store_layout *l = s->layout;
    s->slots = calloc((size_t)l->n_slots, sizeof *s->slots);
    s->lists = calloc((size_t)l->n_mixtures, sizeof *s->lists);
    s->where = calloc((size_t)l->n_mixtures, sizeof *s->where);
    if (!s->slots || !s->lists || !s->where) return err_set_nomem(e);
    for (int k = 0; k < l->n_mixtures; k++) {
        int n = l->mixtures[k].n_expert;
        if (!(s->where[k] = malloc((size_t)n * sizeof **s->where))) return err_set_nomem(e);
        for (int i = 0; i < n; i++) s->where[k][i] = -1;
    }
    s->room_bytes = (l->slots_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (!(s->room = huge_map(s->room_bytes, false)))
        return err_set(e, ERR_NOMEM, "no memory for %.1f MiB of experts", (double)l->slots_bytes / (1 << 20));
    place_slots(s);
    return 0;
}

int store_open(store **out, const store_layout *l, const nn_model *m, const file_reader_hook *hook, err *e) {
    store *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return err_set_nomem(e);
    s->layout = l;
    s->streaming = (nn_streaming){ .slots = l->n_slots, .experts = l->n_experts };
    int rc = open_tables(s, e);
    if (rc == 0) rc = file_reader_open(&s->reader, FILE_READER_THREADS, hook, e);
    if (rc == 0) rc = open_files(s, m, e);
    if (rc < 0)
        store_free(s);
    else
        *out = s;
    return rc;
}

void store_free(store *s) {
    if (!s) return;
    file_reader_free(s->reader);
    if (s->room) munmap(s->room, s->room_bytes);
    for (int k = 0; s->where && k < s->layout->n_mixtures; k++) free(s->where[k]);
    free(s->where);
    free(s->lists);
    free(s->slots);
    free(s);
}

/* --- a step --------------------------------------------------------------------------------------------------------- */

bool store_has(const store *s, int mixture, int expert) { return s->where[mixture][expert] >= 0; }

static void forget(store *s, slot *x) {
    if (x->expert >= 0) s->where[x->mixture][x->expert] = -1;
    x->expert = -1;
    x->ready = false;
}

int store_take(store *s, int mixture, int expert) {
    int   i = s->where[mixture][expert];
    list *l = list_of(s, mixture);
    if (i >= 0) {
        s->streaming.hits++;
    } else {
        for (i = l->first; i >= 0 && s->slots[i].taken;) i = s->slots[i].behind;
        if (i < 0) return -1;
        slot               *x = &s->slots[i];
        const store_expert *e = &s->layout->mixtures[mixture].experts[expert];
        s->streaming.misses++;
        s->streaming.evicted += x->expert >= 0;
        forget(s, x);
        x->mixture = mixture;
        x->expert = expert;
        s->where[mixture][expert] = i;
        x->job = (file_reader_job){ .extents = e->extents, .n_extents = e->n_extents, .to = x->at };
        file_reader_start(s->reader, &x->job);
    }
    s->slots[i].taken = true;
    leave(s, l, i);
    append(s, l, i);
    return i;
}

void store_release(store *s, int i) { s->slots[i].taken = false; }

bool store_is_ready(store *s, int i) {
    slot *x = &s->slots[i];
    return x->ready || (x->ready = file_reader_is_over(s->reader, &x->job) && x->job.error == 0);
}

int store_wait(store *s, int i, err *e) {
    slot *x = &s->slots[i];
    if (store_is_ready(s, i)) return 0;
    int64_t from = clock_ns();
    file_reader_wait(s->reader, &x->job);
    s->wait_ns += clock_ns() - from;
    if (store_is_ready(s, i)) return 0;
    int rc = file_reader_describe(s->reader, &x->job, e);
    return err_wrap(e, rc, "layer %d, expert %d", s->layout->mixtures[x->mixture].layer, x->expert);
}

void store_drop(store *s, int i) {
    slot *x = &s->slots[i];
    if (!x->ready) file_reader_drop(s->reader, &x->job);
    if (!store_is_ready(s, i)) forget(s, x);
    x->taken = false;
}

tensor_mat store_mat_of(const store *s, int i, int which) {
    const slot      *x = &s->slots[i];
    const store_mat *m = &s->layout->mixtures[x->mixture].experts[x->expert].mats[which];
    tensor_mat       out = m->mat;
    if (m->at[0] != STORE_KEPT) out.data = x->at + m->at[0];
    if (m->at[1] != STORE_KEPT) out.scales = x->at + m->at[1];
    if (m->at[2] != STORE_KEPT) out.biases = x->at + m->at[2];
    return out;
}

nn_streaming *store_streaming(store *s) { return &s->streaming; }

const atomic_uint_least64_t *store_bytes_read(const store *s) { return file_reader_bytes(s->reader); }

void store_count(store *s) {
    s->streaming.bytes = atomic_load_explicit(file_reader_bytes(s->reader), memory_order_relaxed);
    s->streaming.wait_s = (double)s->wait_ns * 1e-9;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the bytes of pages get from the device to host memory and back.
 *
 * Out: one move for the pages of a node. In: one move for everything that a prompt lacks, from host copies and from the
 * disk alike; what comes from the disk passes a buffer of bounded size, and a prompt that needs more of it is brought
 * in several moves. Moves in are waited for, because a prompt must not begin with pages that did not arrive.
 */
#include "kv/tree_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES ((size_t)64 << 20)

int kv_transfer_wait(const kv_tree *t, kv_transfer *w) {
    if (w->under_way) w->failed = t->o.moved(t->o.ctx, w->ticket) < 0;
    w->under_way = false;
    return w->failed ? ERR_IO : 0;
}

static int transfer_start(const kv_tree *t, const kv_move *moves, int n, kv_transfer *w) {
    if (n == 0) return 0;
    int rc = t->o.move(t->o.ctx, moves, n, &w->ticket);
    w->under_way = rc >= 0;
    return rc < 0 ? rc : 0;
}

/* Where a group's page stands in a row of the groups' pages. */
static size_t part_offset(const kv_tree *t, unsigned groups, int g) {
    return kv_entry_payload_bytes(&t->o.id, KV_ENTRY_PAGE, groups & ((1u << g) - 1));
}

/* Puts the node's pages of these groups, which are on the device or ready in host memory, side by side into out.
 * Negative: nothing is under way. */
int kv_gather(const kv_tree *t, const kv_node *x, unsigned groups, uint8_t *out, kv_transfer *w) {
    kv_move  moves[KV_MAX_GROUPS];
    unsigned filled = kv_filled_groups(t, x);
    int      n = 0;
    for (int g = 0; g < t->n_groups; g++) {
        if (!(groups >> g & 1) || t->o.id.page_bytes[g] == 0) continue;
        uint8_t *to = out + part_offset(t, groups, g);
        if (filled >> g & 1)
            moves[n++] = (kv_move){ g, x->pages[g], to, KV_MOVE_OUT };
        else
            memcpy(to, x->host + part_offset(t, x->host_groups, g), t->o.id.page_bytes[g]);
    }
    return transfer_start(t, moves, n, w);
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

/* The steps first .. next have pages that wait to be moved together. */
typedef struct load {
    kv_tree *t;
    kv_step *steps;
    int      first, next;
    kv_move *moves;
    int      n_moves;
    uint8_t *stage;
    size_t   stage_bytes, staged;
} load;

static unsigned missing(const kv_tree *t, const kv_step *s) { return s->groups & ~kv_device_groups(t, s->x); }

/* Of what is missing, what only the disk has. */
static unsigned on_disk_only(const kv_tree *t, const kv_step *s) { return missing(t, s) & ~s->x->host_groups; }

static size_t disk_bytes(const kv_tree *t, const kv_node *x) {
    return kv_entry_payload_bytes(&t->o.id, KV_ENTRY_PAGE, x->disk_groups);
}

/* Moves what waits. Negative: nothing was taken from the pool for it, and what it came from is still there. */
static int load_move(load *l) {
    kv_tree    *t = l->t;
    kv_transfer w = { 0 };
    int         rc = transfer_start(t, l->moves, l->n_moves, &w);
    if (rc == 0) rc = kv_transfer_wait(t, &w);
    for (int i = l->first; i < l->next; i++) {
        kv_node *x = l->steps[i].x;
        for (int g = 0; g < t->n_groups && rc < 0; g++) {
            if (x->fresh >> g & 1) kv_set_page(t, x, g, -1);
        }
        x->fresh = 0;
        unsigned device = kv_device_groups(t, x);
        if (rc >= 0 && (x->host_groups & ~device) == 0) kv_drop_host(t, x);
        if (rc < 0 && !device && x->it.in[KV_DEVICE] && (x->it.in[KV_HOST] || x->it.in[KV_DISK]))
            kv_leave(t, &x->it, KV_DEVICE);
    }
    l->n_moves = 0;
    l->staged = 0;
    if (rc < 0)
        l->next = l->first;
    else
        l->first = l->next;
    return rc < 0 ? rc : 0;
}

/* Reads a node's file behind what is staged already. Negative: the node is not on disk, or no longer known. */
static int load_file(load *l, kv_node *x, const uint8_t **bytes) {
    kv_tree *t = l->t;
    kv_entry e = kv_describe(t, &x->it, x->disk_groups);
    *bytes = l->stage + l->staged;
    if (kv_disk_get(t->o.disk, &e, l->stage + l->staged) < 0) {
        kv_lose_file(t, &x->it);
        kv_settle(t, x);
        return ERR_NOTFOUND;
    }
    l->staged += disk_bytes(t, x);
    t->stats.from_disk++;
    return 0;
}

/* Takes pages for what the next step lacks. ERR_LIMIT: there are none; ERR_NOTFOUND: lost, its node may be gone. */
static int load_step(load *l) {
    kv_tree       *t = l->t;
    kv_step       *s = &l->steps[l->next];
    kv_node       *x = s->x;
    const uint8_t *file = NULL;
    unsigned       lacks = missing(t, s), from_disk = on_disk_only(t, s);
    int            need[KV_MAX_GROUPS] = { 0 }, rc;
    for (int g = 0; g < t->n_groups; g++) need[g] = (int)(lacks >> g & 1);
    if (!kv_tree_evict(t, need)) return ERR_LIMIT;
    if (lacks != from_disk && kv_transfer_wait(t, &x->arriving) < 0) {
        kv_drop_host(t, x);
        kv_settle(t, x);
        return ERR_NOTFOUND;
    }
    if (from_disk && (rc = load_file(l, x, &file)) < 0) return rc;
    if (lacks != from_disk) t->stats.from_host++;
    for (int g = 0; g < t->n_groups; g++) {
        if (!(lacks >> g & 1)) continue;
        const uint8_t *from =
            from_disk >> g & 1 ? file + part_offset(t, x->disk_groups, g) : x->host + part_offset(t, x->host_groups, g);
        int32_t page = kv_pool_take(t->pool, g);
        if (t->o.id.page_bytes[g]) l->moves[l->n_moves++] = (kv_move){ g, page, (uint8_t *)from, KV_MOVE_IN };
        kv_set_page(t, x, g, page);
        kv_pool_release(t->pool, g, page);
    }
    x->fresh = lacks; /* making room for the next one may save this node: not from these pages */
    l->next++;
    return 0;
}

/* Memory for all moves, and for as much from the disk as may come together. */
static bool load_init(load *l, int n_moves, size_t from_disk) {
    const kv_tree *t = l->t;
    size_t         most = t->o.stage_bytes ? t->o.stage_bytes : STAGE_BYTES;
    l->moves = malloc((size_t)n_moves * sizeof *l->moves);
    if (from_disk > most) from_disk = most;
    l->stage_bytes = t->buffer_bytes;
    l->stage = t->buffer;
    uint8_t *larger = from_disk > t->buffer_bytes ? malloc(from_disk) : NULL;
    if (larger) {
        l->stage = larger;
        l->stage_bytes = from_disk;
    }
    return l->moves != NULL;
}

static void load_deinit(const load *l) {
    free(l->moves);
    if (l->stage != l->t->buffer) free(l->stage);
}

/*
 * Brings the groups of n steps, which are pinned, to the device. 0, or negative: what could be done is done, and *at is
 * the first step that is not complete. ERR_NOTFOUND: something was lost, which the tree knows now; the steps from *at
 * on may be gone. Others: no room, no memory, or the move failed.
 */
int kv_bring(kv_tree *t, kv_step *steps, int n, int *at) {
    load   l = { .t = t, .steps = steps };
    int    n_moves = 0, rc = 0;
    size_t from_disk = 0;
    for (int i = n - 1; i >= 0; i--) {
        unsigned lacks = missing(t, &steps[i]);
        if (!lacks) continue;
        l.first = l.next = i;
        for (int g = 0; g < t->n_groups; g++) n_moves += (int)(lacks >> g & 1);
        if (on_disk_only(t, &steps[i])) from_disk += disk_bytes(t, steps[i].x);
    }
    if (n_moves == 0) return 0;
    if (load_init(&l, n_moves, from_disk)) {
        while (rc == 0 && l.next < n) {
            bool full = on_disk_only(t, &steps[l.next]) && l.staged + disk_bytes(t, steps[l.next].x) > l.stage_bytes;
            if (full) rc = load_move(&l);
            if (rc == 0) rc = load_step(&l);
        }
        int moved = load_move(&l);
        if (moved < 0) rc = moved;
    } else {
        rc = ERR_NOMEM;
    }
    *at = l.first;
    load_deinit(&l);
    return rc;
}

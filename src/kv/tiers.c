/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the tree's bytes are: lists in the order of use, moving down when room is needed, coming back, saving.
 *
 * Room is always made for somebody, and only by what was used before him: an item never pushes out a newer one. As
 * nodes are newer than everything below them, whatever is forgotten while room is made is older than what asked for it.
 */
#include "kv/tree_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- lists -------------------------------------------------------------------------------------------------------- */

static size_t host_cost(const kv_tree *t, const kv_item *it) {
    if (it->is_state) return t->o.id.state_bytes;
    return KV_NODE_BYTES + kv_entry_payload_bytes(&t->o.id, KV_ENTRY_PAGE, ((const kv_node *)it)->host_groups);
}

static void account(kv_tree *t, const kv_item *it, kv_tier tier, bool enters) {
    kv_tree_stats *st = &t->stats;
    size_t         one = enters ? 1 : (size_t)-1;
    if (tier == KV_DEVICE && it->is_state) st->state_bytes += one * t->o.id.state_bytes;
    if (tier == KV_DEVICE && !it->is_state) st->device_nodes += one;
    if (tier == KV_HOST) {
        st->host_bytes += one * host_cost(t, it);
        if (!it->is_state) st->host_nodes += one;
    }
    if (tier == KV_DISK) {
        st->disk_bytes += one * it->file_bytes;
        st->disk_entries += one;
    }
}

/* The place is found from both ends at once: what enters a list is mostly near one of them. */
void kv_enter(kv_tree *t, kv_item *it, kv_tier tier) {
    kv_list *l = &t->lists[tier];
    kv_item *down = l->newest, *up = l->oldest, *older = NULL, *newer = NULL;
    assert(!it->in[tier]);
    for (;;) {
        if (!down || down->used < it->used) {
            older = down;
            newer = down ? down->newer[tier] : l->oldest;
            break;
        }
        if (!up || up->used > it->used) {
            newer = up;
            older = up ? up->older[tier] : l->newest;
            break;
        }
        down = down->older[tier];
        up = up->newer[tier];
    }
    it->newer[tier] = newer;
    it->older[tier] = older;
    *(newer ? &newer->older[tier] : &l->newest) = it;
    *(older ? &older->newer[tier] : &l->oldest) = it;
    it->in[tier] = true;
    account(t, it, tier, true);
}

void kv_leave(kv_tree *t, kv_item *it, kv_tier tier) {
    kv_list *l = &t->lists[tier];
    assert(it->in[tier]);
    *(it->newer[tier] ? &it->newer[tier]->older[tier] : &l->newest) = it->older[tier];
    *(it->older[tier] ? &it->older[tier]->newer[tier] : &l->oldest) = it->newer[tier];
    it->newer[tier] = it->older[tier] = NULL;
    it->in[tier] = false;
    account(t, it, tier, false);
}

static void touch(kv_tree *t, kv_item *it) {
    bool in[KV_TIERS];
    memcpy(in, it->in, sizeof in);
    for (kv_tier k = 0; k < KV_TIERS; k++) {
        if (in[k]) kv_leave(t, it, k);
    }
    it->used = ++t->clock;
    for (kv_tier k = 0; k < KV_TIERS; k++) {
        if (in[k]) kv_enter(t, it, k);
    }
}

void kv_touch(kv_tree *t, kv_node *x) {
    for (; x->parent; x = x->parent) touch(t, &x->it);
}

void kv_touch_state(kv_tree *t, kv_state *s) { touch(t, &s->it); }

static bool resident(const kv_item *it) { return it->in[KV_DEVICE] || it->in[KV_HOST] || it->in[KV_DISK]; }

/* Unless what is below can be used without it. */
void kv_settle(kv_tree *t, kv_node *x) {
    if (resident(&x->it)) return;
    if (!t->looks_back && x->n_children)
        kv_enter(t, &x->it, KV_DEVICE);
    else
        kv_node_forget(t, x);
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

unsigned kv_device_groups(const kv_tree *t, const kv_node *x) {
    unsigned groups = 0;
    for (int g = 0; g < t->n_groups; g++) groups |= (unsigned)(x->pages[g] >= 0) << g;
    return groups;
}

unsigned kv_filled_groups(const kv_tree *t, const kv_node *x) { return kv_device_groups(t, x) & ~x->fresh; }

void kv_set_page(kv_tree *t, kv_node *x, int g, int32_t page) {
    kv_pool_cache(t->pool, g, page);
    kv_pool_uncache(t->pool, g, x->pages[g]);
    x->pages[g] = page;
    if (page >= 0 && !x->it.in[KV_DEVICE]) kv_enter(t, &x->it, KV_DEVICE);
}

void kv_drop_host(kv_tree *t, kv_node *x) {
    if (!x->it.in[KV_HOST]) return;
    kv_leave(t, &x->it, KV_HOST);
    (void)kv_transfer_wait(t, &x->arriving); /* whether it worked no longer matters */
    x->arriving = (kv_transfer){ 0 };
    free(x->host);
    x->host = NULL;
    x->host_groups = 0;
}

/* What an entry's header says; it lives as long as the node. */
kv_entry kv_describe(const kv_tree *t, const kv_item *it, unsigned groups) {
    const kv_state *s = it->is_state ? (const kv_state *)it : NULL;
    const kv_node  *x = s ? s->node : (const kv_node *)it;
    const kv_span   span = { x->tokens, x->rows, s ? s->offset : x->n };
    kv_entry        e = { .kind = s ? KV_ENTRY_STATE : KV_ENTRY_PAGE,
                          .position = x->position,
                          .n_tokens = span.n,
                          .groups = s ? 0 : groups,
                          .space = x->space,
                          .parent = x->parent->key,
                          .rows = kv_span_plain(&span) ? NULL : x->rows };
    memcpy(e.tokens, x->tokens, (size_t)e.n_tokens * sizeof *e.tokens);
    e.key = s ? kv_key_of(KV_ENTRY_STATE, &e.parent, &span) : x->key;
    e.payload_bytes = kv_entry_payload_bytes(&t->o.id, e.kind, e.groups);
    return e;
}

void kv_lose_file(kv_tree *t, kv_item *it) {
    kv_leave(t, it, KV_DISK);
    if (!it->is_state) ((kv_node *)it)->disk_groups = 0;
}

void kv_drop_file(kv_tree *t, kv_item *it) {
    if (!it->in[KV_DISK]) return;
    if (!t->closing) {
        kv_entry e = kv_describe(t, it, 0);
        kv_disk_drop(t->o.disk, &e.key);
    }
    kv_lose_file(t, it);
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* Writes that failed: the disk does not have them. */
static void learn_failures(kv_tree *t) {
    uint64_t ticket;
    while (kv_disk_failed(t->o.disk, &ticket)) {
        kv_item *it = t->lists[KV_DISK].oldest;
        while (it && it->ticket != ticket) it = it->newer[KV_DISK];
        if (!it) continue;
        kv_lose_file(t, it);
        if (!it->is_state)
            kv_settle(t, (kv_node *)it);
        else if (!resident(it))
            kv_state_free(t, (kv_state *)it);
    }
}

/* Makes room for a file by deleting older ones: ours, or those of other models. */
static bool disk_room(kv_tree *t, uint64_t bytes, uint64_t limit) {
    uint64_t max = kv_disk_max_bytes(t->o.disk);
    while (t->stats.disk_bytes + kv_disk_foreign_bytes(t->o.disk) + bytes > max) {
        kv_item *it = t->lists[KV_DISK].oldest;
        int64_t  foreign;
        bool     have_foreign = kv_disk_foreign_oldest(t->o.disk, &foreign);
        if (it && it->used >= limit) it = NULL;
        if (have_foreign && (!it || it->used > t->adopted || foreign < it->file_time)) {
            kv_disk_foreign_drop(t->o.disk);
            continue;
        }
        if (!it) return false;
        kv_drop_file(t, it);
        if (!it->is_state)
            kv_settle(t, (kv_node *)it);
        else if (!resident(it))
            kv_state_free(t, (kv_state *)it);
    }
    return true;
}

void kv_trim_disk(kv_tree *t) { (void)disk_room(t, 0, UINT64_MAX); }

/* Queues a file; the payload is taken over. */
static bool queue_file(kv_tree *t, kv_item *it, const kv_entry *e, uint8_t *payload, uint64_t bytes) {
    if (!kv_disk_put(t->o.disk, e, payload, ++t->tickets)) {
        free(payload);
        return false;
    }
    if (it->in[KV_DISK]) kv_lose_file(t, it); /* the new file replaces the old one */
    it->file_bytes = bytes;
    it->ticket = t->tickets;
    if (!it->is_state) ((kv_node *)it)->disk_groups = e->groups;
    kv_enter(t, it, KV_DISK);
    t->stats.saved++;
    return true;
}

/* Memory for an entry's payload when the queue has room for it and the directory, too, without what was used before
 * `limit`; NULL: they have not. */
static uint8_t *reserve_file(kv_tree *t, const kv_entry *e, uint64_t bytes, uint64_t limit, bool wait) {
    if (kv_disk_has_room(t->o.disk, (size_t)e->payload_bytes, wait) && disk_room(t, bytes, limit))
        return malloc(e->payload_bytes ? (size_t)e->payload_bytes : 1);
    t->stats.not_saved++;
    return NULL;
}

/* Queues a page's file. True: the disk has it, or will. A host copy that turns out to be bad stays until somebody needs
 * it or its room: whoever asked for this may stand on what would be forgotten with it. */
static bool save_page(kv_tree *t, kv_node *x, uint64_t limit, bool wait) {
    kv_transfer w = { 0 };
    unsigned    groups = kv_filled_groups(t, x) | x->host_groups;
    if (x->it.in[KV_DISK] && ((groups & ~x->disk_groups) == 0 || (x->disk_groups & ~groups) != 0)) return true;
    if (x->parent->parent && !x->parent->it.in[KV_DISK]) return false; /* behind a gap nobody would find it */
    kv_entry e = kv_describe(t, &x->it, groups);
    uint64_t bytes = kv_disk_file_bytes(t->o.disk, &e);
    if ((groups & ~kv_filled_groups(t, x)) != 0 && kv_transfer_wait(t, &x->arriving) < 0) return false;
    uint8_t *payload = reserve_file(t, &e, bytes, limit, wait);
    if (!payload) return false;
    if (kv_gather(t, x, groups, payload, &w) < 0 || kv_transfer_wait(t, &w) < 0) {
        free(payload);
        t->stats.not_saved++;
        return false;
    }
    return queue_file(t, &x->it, &e, payload, bytes);
}

/* Queues a state's file, and that of the page that it belongs to. */
static bool save_state(kv_tree *t, kv_state *s, bool wait) {
    if (s->it.in[KV_DISK]) return true;
    if (!s->node->it.in[KV_DISK] && !save_page(t, s->node, s->it.used, wait)) return false;
    kv_entry e = kv_describe(t, &s->it, 0);
    uint64_t bytes = kv_disk_file_bytes(t->o.disk, &e);
    uint8_t *payload = reserve_file(t, &e, bytes, s->it.used, wait);
    if (!payload) return false;
    memcpy(payload, s->bytes, (size_t)e.payload_bytes);
    return queue_file(t, &s->it, &e, payload, bytes);
}

static bool save(kv_tree *t, kv_item *it, bool wait) {
    if (!t->o.disk) return false;
    return it->is_state ? save_state(t, (kv_state *)it, wait) : save_page(t, (kv_node *)it, it->used, wait);
}

static void save_path(kv_tree *t, const kv_text *text, int n, bool all) {
    int      P = t->page_tokens;
    kv_node *x = kv_root_find(t, &text->space);
    for (int at = 0; x && at < n; at += P) {
        kv_span span = kv_text_span(text, at, n - at < P ? n - at : P);
        int     shared;
        x = kv_child_best(x, &span, &shared);
        if (!x || shared < span.n || (x->n < P && !all)) return;
        if (!save(t, &x->it, false)) return;
        for (int i = 0; i < x->n_states; i++) {
            if (x->states[i]->bytes) (void)save(t, &x->states[i]->it, false);
        }
    }
}

void kv_tree_save(kv_tree *t, const kv_text *text, int n, bool all) {
    if (!t->o.disk) return;
    learn_failures(t);
    save_path(t, text, n, all);
    (void)kv_make_room(t, 0); /* a state for which there was none goes to its file */
}

void kv_tree_flush(kv_tree *t) {
    if (!t->o.disk) return;
    learn_failures(t);
    /* Nodes come before what is below them, except where a parent lies in a lower tier: then the second round. States
     * come with the nodes, which must be there first. */
    for (int round = 0; round < 3; round++) {
        for (kv_tier tier = KV_DEVICE; tier <= KV_HOST; tier++) {
            uint64_t forgotten = t->forgotten;
            for (kv_item *it = t->lists[tier].newest; it; it = it->older[tier]) {
                (void)save(t, it, true);
                if (forgotten == t->forgotten) continue;
                forgotten = t->forgotten; /* room was made, and `older` may have gone with it */
                it = t->lists[tier].newest;
            }
        }
    }
}

/* --- down --------------------------------------------------------------------------------------------------------- */

static void host_evict(kv_tree *t, kv_item *it) {
    (void)save(t, it, false);
    if (it->is_state) {
        kv_state *s = (kv_state *)it;
        kv_leave(t, it, KV_HOST);
        free(s->bytes);
        s->bytes = NULL;
        if (!it->in[KV_DISK]) kv_state_free(t, s);
    } else {
        kv_drop_host(t, (kv_node *)it);
        kv_settle(t, (kv_node *)it);
    }
}

/* Room in host memory, taken from what was used before `limit`. */
static bool host_room(kv_tree *t, size_t bytes, uint64_t limit) {
    if (bytes > t->o.host_bytes) return false;
    while (t->stats.host_bytes + bytes > t->o.host_bytes) {
        kv_item *it = t->lists[KV_HOST].oldest;
        if (!it || it->used >= limit) return false;
        host_evict(t, it);
    }
    return true;
}

bool kv_make_host_room(kv_tree *t, size_t bytes) { return host_room(t, bytes, t->pin); }

/* Starts copying the node's pages to host memory. Whether that works is only known when the copy is needed. */
static bool to_host(kv_tree *t, kv_node *x) {
    kv_transfer w = { 0 };
    unsigned    device = kv_device_groups(t, x);
    if (x->it.in[KV_HOST] && (device & ~x->host_groups) == 0) return true;
    /* The new copy takes over what the old one has. */
    if (kv_transfer_wait(t, &x->arriving) < 0) kv_drop_host(t, x);
    unsigned groups = x->host_groups | device;
    size_t   bytes = kv_entry_payload_bytes(&t->o.id, KV_ENTRY_PAGE, groups);
    if (!host_room(t, KV_NODE_BYTES + bytes, x->it.used)) return false;
    uint8_t *host = bytes ? malloc(bytes) : NULL;
    if ((bytes && !host) || kv_gather(t, x, groups, host, &w) < 0) {
        free(host);
        return false;
    }
    kv_drop_host(t, x);
    x->host = host;
    x->arriving = w;
    x->host_groups = groups;
    kv_enter(t, &x->it, KV_HOST);
    t->stats.to_host++;
    return true;
}

/* The node's pages leave the device. */
static void node_demote(kv_tree *t, kv_node *x) {
    if (!to_host(t, x)) (void)save(t, &x->it, false);
    for (int g = 0; g < t->n_groups; g++) kv_set_page(t, x, g, -1);
    kv_leave(t, &x->it, KV_DEVICE);
    kv_settle(t, x);
}

static void state_demote(kv_tree *t, kv_state *s) {
    bool host = host_room(t, t->o.id.state_bytes, s->it.used);
    if (!host) (void)save(t, &s->it, false);
    kv_leave(t, &s->it, KV_DEVICE);
    if (host) {
        kv_enter(t, &s->it, KV_HOST);
        t->stats.to_host++;
        return;
    }
    free(s->bytes);
    s->bytes = NULL;
    if (!s->it.in[KV_DISK]) kv_state_free(t, s);
}

/* Whether letting the node go gives something back. */
static bool node_idle(const kv_tree *t, const kv_node *x) {
    bool pages = false;
    for (int g = 0; g < t->n_groups; g++) {
        if (x->pages[g] < 0) continue;
        if (kv_pool_idle(t->pool, g, x->pages[g])) return true;
        pages = true;
    }
    if (pages) return false;
    for (int i = 0; i < x->n_children; i++) {
        if (x->children[i]->it.in[KV_DEVICE]) return false;
    }
    return true;
}

static size_t device_bytes(const kv_tree *t) {
    size_t bytes = t->stats.state_bytes;
    for (int g = 0; g < t->n_groups; g++)
        bytes += (size_t)(kv_pool_total(t->pool, g) - kv_pool_unused(t->pool, g)) * t->o.id.page_bytes[g];
    if (t->n_groups == 0) bytes += t->stats.device_nodes * KV_NODE_BYTES;
    return bytes;
}

bool kv_make_room(kv_tree *t, size_t bytes) {
    if (t->o.budget_bytes == 0) return true;
    for (kv_item *it = t->lists[KV_DEVICE].oldest, *next; it; it = next) {
        if (device_bytes(t) + bytes <= t->o.budget_bytes) return true;
        if (it->used >= t->pin) return false;
        next = it->newer[KV_DEVICE]; /* newer than everything that can go along */
        if (it->is_state)
            state_demote(t, (kv_state *)it);
        else if (node_idle(t, (const kv_node *)it))
            node_demote(t, (kv_node *)it);
    }
    return device_bytes(t) + bytes <= t->o.budget_bytes;
}

/* Whether the node's going brings a page that is still missing. */
static bool helps(const kv_tree *t, const kv_node *x, const int need[KV_MAX_GROUPS]) {
    for (int g = 0; g < t->n_groups; g++) {
        if (kv_pool_unused(t->pool, g) < need[g] && x->pages[g] >= 0 && kv_pool_idle(t->pool, g, x->pages[g]))
            return true;
    }
    return false;
}

static bool enough(const kv_tree *t, const int need[KV_MAX_GROUPS]) {
    for (int g = 0; g < t->n_groups; g++) {
        if (kv_pool_unused(t->pool, g) < need[g]) return false;
    }
    return true;
}

bool kv_tree_evict(kv_tree *t, const int need[KV_MAX_GROUPS]) {
    size_t bytes = 0;
    for (int g = 0; g < t->n_groups; g++) {
        if (kv_pool_available(t->pool, g) < need[g]) return false;
        bytes += (size_t)need[g] * t->o.id.page_bytes[g];
    }
    for (kv_item *it = t->lists[KV_DEVICE].oldest, *next; it && !enough(t, need); it = next) {
        if (it->used >= t->pin) return false;
        next = it->newer[KV_DEVICE];
        if (!it->is_state && helps(t, (const kv_node *)it, need)) {
            node_demote(t, (kv_node *)it);
            t->stats.evicted++;
        }
    }
    if (!enough(t, need)) return false;
    (void)kv_make_room(t, bytes); /* pages come before states, and the pool bounds them */
    return true;
}

/* --- up ----------------------------------------------------------------------------------------------------------- */

const void *kv_state_fetch(kv_tree *t, kv_state *s) {
    size_t bytes = t->o.id.state_bytes;
    if (!s->bytes) {
        kv_entry e = kv_describe(t, &s->it, 0);
        if (kv_disk_get(t->o.disk, &e, t->buffer) < 0) {
            kv_lose_file(t, &s->it);
            kv_state_free(t, s);
            return NULL;
        }
        t->stats.from_disk++;
        void *kept = kv_make_room(t, bytes) ? malloc(bytes) : NULL;
        if (!kept) return t->buffer;
        memcpy(kept, t->buffer, bytes);
        s->bytes = kept;
        kv_enter(t, &s->it, KV_DEVICE);
    } else if (s->it.in[KV_HOST] && kv_make_room(t, bytes)) {
        kv_leave(t, &s->it, KV_HOST);
        kv_enter(t, &s->it, KV_DEVICE);
        t->stats.from_host++;
    }
    return s->bytes;
}

kv_tree_stats kv_tree_stat(const kv_tree *t) { return t->stats; }

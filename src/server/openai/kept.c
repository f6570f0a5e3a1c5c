/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/kept.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry entry;
struct entry {
    entry        *next; /* a newer one */
    char          id[48];
    uint64_t      owner;
    int64_t       until_us;
    size_t        bytes;
    kept_response r;
};

struct kept {
    size_t          max_bytes;
    int64_t         keep_us;
    pthread_mutex_t lock; /* guards the rest */
    entry          *first, **end;
    size_t          bytes;
};

int kept_open(kept **out, size_t bytes, double seconds, err *e) {
    kept *k = *out = calloc(1, sizeof *k);
    if (!k) return err_set_nomem(e);
    k->max_bytes = bytes;
    k->keep_us = (int64_t)(seconds * 1e6);
    k->end = &k->first;
    pthread_mutex_init(&k->lock, NULL);
    return 0;
}

void kept_response_deinit(kept_response *r) {
    str_deinit(&r->response);
    str_deinit(&r->input);
    str_deinit(&r->talk);
}

static void entry_free(entry *n) {
    kept_response_deinit(&n->r);
    free(n);
}

void kept_free(kept *k) {
    if (!k) return;
    for (entry *n = k->first, *next; n; n = next) {
        next = n->next;
        entry_free(n);
    }
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* Takes *at out of the list. */
static entry *unlink_at(kept *k, entry **at) {
    entry *n = *at;
    *at = n->next;
    if (!*at) k->end = at;
    k->bytes -= n->bytes;
    return n;
}

/* The list is in the order of time: what is over stands in front. */
static void make_room(kept *k, size_t bytes) {
    int64_t now = clock_us();
    while (k->first && (k->first->until_us <= now || k->bytes + bytes > k->max_bytes))
        entry_free(unlink_at(k, &k->first));
}

static entry **find(kept *k, view id, uint64_t owner) {
    for (entry **at = &k->first; *at; at = &(*at)->next) {
        if ((*at)->owner == owner && view_eq_c(id, (*at)->id)) return at;
    }
    return NULL;
}

void kept_put(kept *k, const char *id, uint64_t owner, kept_response *r) {
    size_t bytes = sizeof(entry) + r->response.len + r->input.len + r->talk.len;
    bool   ok = str_ok(&r->response) && str_ok(&r->input) && str_ok(&r->talk) && bytes <= k->max_bytes;
    entry *n = ok ? calloc(1, sizeof *n) : NULL;
    if (!n) {
        kept_response_deinit(r);
        return;
    }
    snprintf(n->id, sizeof n->id, "%s", id);
    n->owner = owner;
    n->until_us = clock_us() + k->keep_us;
    n->bytes = bytes;
    n->r = *r;
    memset(r, 0, sizeof *r);
    pthread_mutex_lock(&k->lock);
    make_room(k, bytes);
    k->bytes += bytes;
    *k->end = n;
    k->end = &n->next;
    pthread_mutex_unlock(&k->lock);
}

static void copy(str *to, const str *from) {
    str_init(to);
    str_append(to, str_cstr(from), from->len);
}

bool kept_get(kept *k, view id, uint64_t owner, kept_response *out) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&k->lock);
    make_room(k, 0);
    entry **at = find(k, id, owner);
    if (at) {
        copy(&out->response, &(*at)->r.response);
        copy(&out->input, &(*at)->r.input);
        copy(&out->talk, &(*at)->r.talk);
    }
    pthread_mutex_unlock(&k->lock);
    return at != NULL;
}

bool kept_remove(kept *k, view id, uint64_t owner) {
    pthread_mutex_lock(&k->lock);
    make_room(k, 0);
    entry **at = find(k, id, owner);
    if (at) entry_free(unlink_at(k, at));
    pthread_mutex_unlock(&k->lock);
    return at != NULL;
}

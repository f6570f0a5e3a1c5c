/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 10000 };

static int read_number(const char *id, const char *text, backend_parts *out, int *n, err *e) {
    static const char word[] = "experts:";
    char             *end;
    bool              experts = strncmp(text, word, sizeof word - 1) == 0;
    if (experts) text += sizeof word - 1;
    long number = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || (*end && *end != '+') || number > MOST_LAYERS || (number == 0 && !experts))
        return err_set(e, ERR_ARG,
                       "device '%s': expected a number of layers behind the stroke, or experts: and a number", id);
    *n = (int)number;
    out->experts = out->experts || experts;
    return 0;
}

/* One device of the id, which ends at a plus or at the id's own end. */
static int read_part(const char *id, const char *text, backend_parts *out, err *e) {
    size_t all = strcspn(text, "+"), length = strcspn(text, "+/");
    int    n = -1, rc = length < all ? read_number(id, text + length + 1, out, &n, e) : 0;
    if (rc < 0) return rc;
    if (length == 0) return err_set(e, ERR_ARG, "device '%s': a name is missing", id);
    if (length >= sizeof out->part[0].device) return err_set(e, ERR_ARG, "device '%s': a name is too long", id);
    if (out->n == 0 && n >= 0) out->part[out->n++] = (backend_part){ "cpu", -1 };
    if (out->n == BACKEND_MAX_PARTS)
        return err_set(e, ERR_ARG, "device '%s' names more than %d devices", id, BACKEND_MAX_PARTS - 1);
    backend_part *p = &out->part[out->n++];
    *p = (backend_part){ .n = n };
    memcpy(p->device, text, length);
    return 0;
}

/* What can be read and makes no sense together. */
static int check(const char *id, const backend_parts *p, err *e) {
    int named = 0;
    for (int i = 1; i < p->n; i++) named += p->part[i].n >= 0;
    if (p->experts && (p->n != 2 || strcmp(p->part[0].device, "cpu") != 0))
        return err_set(e, ERR_UNSUPPORTED, "device '%s': experts are divided between the CPU and one device", id);
    if (named && named < p->n - 1)
        return err_set(e, ERR_ARG, "device '%s': either all devices behind the first have a number of layers, or none",
                       id);
    for (int i = 0; i < p->n && strchr(id, '+'); i++) {
        if (strcmp(p->part[i].device, "auto") == 0)
            return err_set(e, ERR_ARG, "device '%s': 'auto' chooses by itself; it cannot be one of several", id);
    }
    return 0;
}

int backend_parts_read(backend_parts *out, const char *id, err *e) {
    int rc = 0;
    *out = (backend_parts){ 0 };
    if (!id || !*id) id = "auto";
    for (const char *at = id; rc == 0; at++) {
        rc = read_part(id, at, out, e);
        at += strcspn(at, "+");
        if (!*at) break;
    }
    return rc < 0 ? rc : check(id, out, e);
}

int backend_parts_write(const backend_parts *p, char id[64], err *e) {
    bool   implied = p->n > 1 && p->part[1].n >= 0 && strcmp(p->part[0].device, "cpu") == 0;
    size_t at = 0;
    id[0] = 0;
    for (int i = implied; i < p->n && at < 64; i++) {
        const backend_part *part = &p->part[i];
        at += (size_t)snprintf(id + at, 64 - at, "%s%s", at ? "+" : "", part->device);
        if (at < 64 && part->n >= 0)
            at += (size_t)snprintf(id + at, 64 - at, p->experts ? "/experts:%d" : "/%d", part->n);
    }
    return at < 64 ? 0 : err_set(e, ERR_LIMIT, "%d devices have too long a name together: '%s'", p->n, id);
}

const char *backend_parts_whole(const backend_parts *p, int n_layer, int n_mixtures) {
    const backend_part *last = &p->part[p->n - 1];
    int                 most = p->experts ? n_mixtures : n_layer, wanted = 0;
    if (p->n == 1) return last->device;
    if (last->n < 0) return n_layer < 2 * p->n ? last->device : NULL;
    for (int i = 1; i < p->n; i++) wanted += p->part[i].n;
    return wanted > most || most == 0 ? last->device : NULL;
}

void backend_parts_share(int n, const uint64_t *of, int n_parts, int *share) {
    double all = 0, before = 0;
    int    given = 0;
    for (int i = 0; i < n_parts; i++) all += (double)of[i];
    for (int i = 0; i < n_parts; i++) {
        before += all > 0 ? (double)of[i] / all : 1.0 / n_parts;
        int upto = i == n_parts - 1 ? n : (int)(before * n + 0.5);
        share[i] = upto - given;
        given = upto;
    }
}

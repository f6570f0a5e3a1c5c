/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/host_support.h"

#include <stdlib.h>

typedef struct hearing {
    host                  *h;
    const runtime_request *q;
    err                    why; /* what was wrong with the first event that could not be read */
} hearing;

static void hear(void *ctx, const host_event *said) {
    hearing      *a = ctx;
    runtime_event ev = { .kind = RUNTIME_ERROR, .choice = -1, .last = said->last, .error = said->error };
    arena         mem;
    arena_init(&mem, 0);
    if (!a->why.code && !said->error && host_read_event(a->q, said->body, &mem, &ev, &a->why) < 0)
        host_distrust(a->h, said->worker, &a->why);
    if (a->why.code) ev = (runtime_event){ .kind = RUNTIME_ERROR, .choice = -1, .last = said->last, .error = &a->why };
    if (!a->why.code || said->last) a->q->on_event(a->q->ctx, &ev);
    if (said->last) free(a);
    arena_deinit(&mem);
}

int test_host_submit(host *h, const char *model, const runtime_request *q, uint64_t *id, err *e) {
    hearing *a = malloc(sizeof *a);
    if (!a) return err_set_nomem(e);
    *a = (hearing){ .h = h, .q = q };
    int rc = host_submit(h, view_of(model), q, HOST_KEEP_DEFAULT, hear, a, id, e);
    if (rc < 0) free(a);
    return rc;
}

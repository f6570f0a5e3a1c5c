/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/host_support.h"

#include <stdlib.h>

typedef struct hearing {
    host                  *h;
    const runtime_request *q;
} hearing;

static void hear(void *ctx, const host_event *said) {
    hearing      *a = ctx;
    runtime_event ev = { .kind = RUNTIME_ERROR, .choice = -1, .last = said->last, .error = said->error };
    err           why = { 0 };
    arena         mem;
    arena_init(&mem, 0);
    int rc = said->error ? 0 : host_read_event(a->q, said->body, &mem, &ev, &why);
    if (rc < 0) {
        host_distrust(a->h, said->worker, &why);
        ev = (runtime_event){ .kind = RUNTIME_ERROR, .choice = -1, .last = said->last, .error = &why };
    }
    if (rc == 0 || said->last) a->q->on_event(a->q->ctx, &ev);
    if (said->last) free(a);
    arena_deinit(&mem);
}

int test_host_submit(host *h, const char *model, const runtime_request *q, uint64_t *id, err *e) {
    hearing *a = malloc(sizeof *a);
    if (!a) return err_set_nomem(e);
    *a = (hearing){ h, q };
    int rc = host_submit(h, view_of(model), q, HOST_KEEP_DEFAULT, hear, a, id, e);
    if (rc < 0) free(a);
    return rc;
}

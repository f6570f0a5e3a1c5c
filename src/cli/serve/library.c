/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve/library.h"

#include "cli/models/catalogue.h"
#include "cli/models/pulling.h"

#include <stdlib.h>
#include <string.h>

int serve_library_open(serve_library *s, host *h, int (*add)(void *ctx, const char *name, const char *path, err *e),
                       void *ctx, err *e) {
    library_options o = { .host = h, .add = add, .ctx = ctx };
    memset(s, 0, sizeof *s);
    int rc = catalogue_path(&s->path, e);
    if (rc < 0) return rc == ERR_ARG ? 0 : rc; /* no home: nothing is registered, and nothing can be */
    o.path = s->path;
    if ((rc = pulling_settings(&o.pull, &s->token, e)) < 0) return rc;
    return library_open(&s->library, &o, e);
}

void serve_library_close(serve_library *s) {
    library_free(s->library);
    free(s->token);
    free(s->path);
    memset(s, 0, sizeof *s);
}

int serve_chats_open(chats **out, uint64_t limit_bytes, err *e) {
    static const char name[] = "chats.db";
    char             *beside = NULL;
    str               path;
    *out = NULL;
    if (!limit_bytes) return 0;
    int rc = catalogue_path(&beside, e);
    if (rc < 0) return rc;
    str_init(&path);
    str_append(&path, beside, (size_t)(strrchr(beside, '/') + 1 - beside));
    str_puts(&path, name);
    rc = str_ok(&path) ? chats_open(out, str_cstr(&path), limit_bytes, e) : err_set_nomem(e);
    free(beside);
    str_deinit(&path);
    return rc;
}

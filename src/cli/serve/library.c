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

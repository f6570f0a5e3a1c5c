/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth rm: forgets names, and frees what was pulled for them and nothing else uses. The files of a model that was
 * created from disk are its owner's and stay.
 */
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "registry/blobs.h"
#include "registry/names.h"

#include <stdio.h>
#include <stdlib.h>

/* All are found before the first one goes: a mistake in the last name changes nothing. */
static int find_all(registry *r, const cli_args *a, registry_model *list, err *e) {
    int rc = 0;
    for (int i = 0; rc == 0 && i < cli_count(a); i++) rc = names_find(r, cli_arg(a, i), NULL, &list[i], e);
    return rc;
}

static int run(const cli_args *a) {
    registry       *r = NULL;
    err             e = { 0 };
    int64_t         freed = 0;
    int             n = cli_count(a), rc = catalogue_open(&r, &e);
    registry_model *list = calloc((size_t)n, sizeof *list);
    if (rc == 0 && !list) rc = err_set_nomem(&e);
    if (rc == 0) rc = find_all(r, a, list, &e);
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = registry_remove(r, list[i].name, &e);
        if (rc == ERR_NOTFOUND && i > 0) rc = 0; /* named twice */
        if (rc == 0) printf("removed %s\n", list[i].name);
    }
    if (rc == 0) rc = registry_blob_sweep(r, &freed, &e);
    if (rc == 0 && freed) {
        char size[16];
        printf("freed %s (%lld bytes)\n", name_bytes(size, (double)freed), (long long)freed);
    }
    for (int i = 0; list && i < n; i++) registry_model_deinit(&list[i]);
    free(list);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

const cli_command cli_cmd_rm = {
    "rm", "NAME...", "Remove models and delete downloaded files that no other model uses.", NULL, 1, -1, run,
};

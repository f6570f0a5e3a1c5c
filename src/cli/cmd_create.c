/* SPDX-License-Identifier: Apache-2.0 */
/* hearth create: gives a model on disk a name. The file stays where it is. */
#include "cli/catalogue.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run(const cli_args *a) {
    registry      *r = NULL;
    registry_model m = { 0 };
    err            e = { 0 };
    int            rc;
    if (!registry_name_ok(cli_arg(a, 0)))
        return cli_usage_error(a, "'%s' is no name for a model: letters, digits and . _ - : / @ only", cli_arg(a, 0));
    if ((rc = catalogue_describe(&m, cli_arg(a, 1), &e)) < 0) goto done;
    m.name = strdup(cli_arg(a, 0));
    m.source = strdup("local");
    if (!m.name || !m.source) {
        rc = err_set_nomem(&e);
        goto done;
    }
    if ((rc = catalogue_open(&r, &e)) < 0 || (rc = registry_add(r, &m, cli_flag(a, "replace"), &e)) < 0) goto done;
    printf("%s is %s\n", m.name, m.path);
done:
    registry_model_deinit(&m);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "replace", CLI_FLAG, NULL, "take the name away from the model that has it", 0 },
    { 0 },
};

const cli_command cli_cmd_create = {
    "create", "NAME PATH [--replace]", "Give a model on disk a name; the file stays where it is.", options, 2, 2, run,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* hearth cp: another name for a model, with all that was set for it. The files are not copied. */
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "cli/options.h"
#include "registry/names.h"

static int run(const cli_args *a) {
    registry      *r = NULL;
    registry_model m = { 0 };
    err            e = { 0 };
    int            rc;
    if (!registry_name_ok(cli_arg(a, 1)))
        return cli_usage_error(a, "'%s' is not a name for a model: letters, digits and . _ - : / @ only",
                               cli_arg(a, 1));
    if ((rc = catalogue_open(&r, &e)) == 0 && (rc = names_find(r, cli_arg(a, 0), NULL, &m, &e)) == 0)
        rc = registry_copy(r, m.name, cli_arg(a, 1), cli_flag(a, "replace"), &e);
    registry_model_deinit(&m);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    CLI_REPLACE_OPTION,
    { 0 },
};

const cli_command cli_cmd_cp = {
    "cp", "NAME NEW-NAME[:TAG] [--replace]", "Give a model a second name.", options, 2, 2, run,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* hearth quantize: a GGUF file with its matrices in another type (convert/quantize.h). */
#include "cli/cli.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "convert/quantize.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <stdlib.h>

static int run(const cli_args *a) {
    model_file *in = NULL;
    pool       *p = NULL;
    char       *path = NULL;
    int         type, rc;
    size_t      fallbacks = 0;
    err         e = { 0 };
    long long   threads = cli_int(a, "threads", 0);
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (gguf_quantize_type(cli_arg(a, 2), &type, &e) < 0) return cli_usage_error(a, "%s", e.msg);
    if ((rc = cli_model_path(&path, cli_arg(a, 0), &e)) < 0 || (rc = model_file_open(&in, path, &e)) < 0) goto done;
    if ((rc = pool_open(&p, threads ? (int)threads : pool_default_threads(), false, &e)) < 0) goto done;
    rc = gguf_quantize(in, cli_arg(a, 1), type, p, &fallbacks, &e);
    if (rc == 0 && fallbacks > 0)
        fprintf(stderr,
                "the rows of %zu matrices are not a whole number of %s blocks; these matrices became Q8_0 or F16\n",
                fallbacks, tensor_type_name(type));
done:
    pool_free(p);
    model_file_free(in);
    free(path);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    CLI_THREADS_OPTION,
    { 0 },
};

const cli_command cli_cmd_quantize = {
    "quantize",
    "MODEL OUT.gguf TYPE",
    "Write a GGUF file with its matrices in another type, for example Q4_K.",
    options,
    3,
    3,
    run,
};

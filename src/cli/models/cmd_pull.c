/* SPDX-License-Identifier: Apache-2.0 */
/* hearth pull: downloads a model and registers it. */
#include "base/str.h"
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "cli/models/models.h"
#include "cli/models/pulling.h"
#include "registry/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_result(const pull_result *p, pulling_style style) {
    char bytes[16];
    str  line;
    if (style == PULLING_QUIET) return;
    if (style == PULLING_TEXT) {
        name_bytes(bytes, (double)p->bytes);
        if (p->fetched == 0)
            printf("%s is up to date (%s)\n", p->name, bytes);
        else
            printf("%s is ready (%s); try 'hearth run %s'\n", p->name, bytes, p->name);
        return;
    }
    str_init(&line);
    str_puts(&line, "{\"status\":\"success\",\"name\":");
    str_put_json(&line, p->name, strlen(p->name));
    str_puts(&line, ",\"path\":");
    str_put_json(&line, p->path, strlen(p->path));
    printf("%s,\"bytes\":%lld,\"fetched\":%lld}\n", str_cstr(&line), (long long)p->bytes, (long long)p->fetched);
    str_deinit(&line);
}

static void print_error(const err *e) {
    str line;
    str_init(&line);
    str_put_json(&line, e->msg, strlen(e->msg));
    printf("{\"error\":%s}\n", str_cstr(&line));
    str_deinit(&line);
}

static int run(const cli_args *a) {
    const char   *gguf_file = cli_string(a, "gguf-file", NULL), *mlx_file = cli_string(a, "mlx-file", NULL);
    bool          gguf = cli_flag(a, "gguf") || gguf_file, mlx = cli_flag(a, "mlx") || mlx_file;
    pulling_style style = cli_flag(a, "json") ? PULLING_JSON : cli_flag(a, "quiet") ? PULLING_QUIET : PULLING_TEXT;
    pull_request  q = { .name = cli_arg(a, 0),
                        .as = cli_string(a, "as", NULL),
                        .revision = cli_string(a, "revision", NULL),
                        .base = cli_string(a, "base", NULL) };
    pull_result   out = { 0 };
    registry     *r = NULL;
    char         *token = NULL;
    err           e = { 0 };
    if (gguf && mlx) return cli_usage_error(a, "give options for GGUF or for MLX, not both");
    if (gguf_file && strlen(gguf_file) < 6)
        return cli_usage_error(a, "--gguf-file: '%s' is not a GGUF file", gguf_file);
    q.format = gguf ? PULL_GGUF : mlx ? PULL_MLX : PULL_ANY;
    q.file = gguf_file ? gguf_file : mlx_file;
    int rc = pulling_settings(&q, &token, &e);
    if (rc == 0) rc = catalogue_open(&r, &e);
    if (rc == 0) rc = pulling_run(r, &q, style, &out, &e);
    if (rc == 0) print_result(&out, style);
    if (rc < 0 && style == PULLING_JSON) print_error(&e);
    pull_result_deinit(&out);
    registry_close(r);
    free(token);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    CLI_MODEL_FORMAT_OPTIONS,
    { "revision", CLI_STRING, "REV", "download this branch, tag or commit of the repository", 0 },
    { "as", CLI_STRING, "NAME", "name for the model on this machine (the name that is pulled)", 0 },
    { "base", CLI_STRING, "MODEL", "an adapter: give it to this model (the one that it was trained on)", 0 },
    { "json", CLI_FLAG, NULL, "report progress as JSON lines", 0 },
    { "quiet", CLI_FLAG, NULL, "print errors only", 'q' },
    { 0 },
};

const cli_command cli_cmd_pull = {
    "pull",
    "NAME [--gguf|--mlx] [--as NAME] [--json]",
    "Download a model: owner/repo[:QUANT] of Hugging Face, or a name of an Ollama registry; or an adapter of a model "
    "that is "
    "here: owner/repo with an adapter_config.json.",
    options,
    1,
    1,
    run,
};

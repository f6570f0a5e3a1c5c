/* SPDX-License-Identifier: Apache-2.0 */
/* hearth list: the models that have a name here. */
#include "base/str.h"
#include "cli/catalogue.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void put_text(str *out, const char *key, const char *text) {
    str_printf(out, ",\"%s\":", key);
    if (text)
        str_put_json(out, text, strlen(text));
    else
        str_puts(out, "null");
}

static void put_json(str *out, const registry_model *m) {
    const struct {
        const char *key;
        int64_t     value;
    } numbers[] = { { "params", m->params },         { "n_ctx", m->n_ctx }, { "n_layer", m->n_layer },
                    { "vocab_size", m->vocab_size }, { "size", m->size },   { "created_at", m->created_at },
                    { "last_used", m->last_used } };
    str_printf(out, "{\"id\":%lld", (long long)m->id);
    put_text(out, "name", m->name);
    put_text(out, "family", m->family);
    put_text(out, "format", m->format);
    put_text(out, "path", m->path);
    put_text(out, "quant", m->quant);
    put_text(out, "sha256", m->sha256);
    put_text(out, "source", m->source);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        str_printf(out, ",\"%s\":%lld", numbers[i].key, (long long)numbers[i].value);
    str_push(out, '}');
}

static void print_row(const registry_model *m) {
    char      date[32] = "never";
    time_t    at = (time_t)m->last_used;
    struct tm tm;
    if (at && localtime_r(&at, &tm)) strftime(date, sizeof date, "%Y-%m-%d %H:%M", &tm);
    printf("%-32s %-16s %-8s %8.1f MB  %-16s %s\n", m->name, m->family ? m->family : "?", m->quant ? m->quant : "?",
           (double)m->size / 1e6, date, m->path);
}

static int run(const cli_args *a) {
    registry       *r = NULL;
    registry_model *list = NULL;
    size_t          n = 0;
    err             e = { 0 };
    str             json;
    int             rc = catalogue_open_existing(&r, &e);
    if (rc == 0 && r) rc = registry_list(r, &list, &n, &e);
    if (rc == 0 && cli_flag(a, "json")) {
        str_init(&json);
        for (size_t i = 0; i < n; i++) {
            str_puts(&json, i ? ",\n " : "");
            put_json(&json, &list[i]);
        }
        printf("[%s]\n", str_cstr(&json));
        str_deinit(&json);
    } else if (rc == 0) {
        printf("%-32s %-16s %-8s %11s  %-16s %s\n", "NAME", "FAMILY", "TYPE", "SIZE", "LAST USED", "PATH");
        for (size_t i = 0; i < n; i++) print_row(&list[i]);
    }
    for (size_t i = 0; i < n; i++) registry_model_deinit(&list[i]);
    free(list);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "json", CLI_FLAG, NULL, "as JSON", 0 },
    { 0 },
};

const cli_command cli_cmd_list = { "list", "[--json]", "List the models that have a name here.", options, 0, 0, run };

/* SPDX-License-Identifier: Apache-2.0 */
/* hearth list: the models that have a name here. */
#include "base/str.h"
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "cli/options.h"
#include "registry/names.h"

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

/* "3 hours ago": what people ask of a list; --json has the seconds. */
static const char *ago(char out[32], int64_t at) {
    static const struct {
        int64_t     seconds;
        const char *unit;
    } steps[] = { { 365 * 86400, "year" }, { 30 * 86400, "month" }, { 7 * 86400, "week" },
                  { 86400, "day" },        { 3600, "hour" },        { 60, "minute" } };
    int64_t age = (int64_t)time(NULL) - at;
    if (!at) return "never";
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int64_t n = age / steps[i].seconds;
        if (n < 1) continue;
        snprintf(out, 32, "%lld %s%s ago", (long long)n, steps[i].unit, n > 1 ? "s" : "");
        return out;
    }
    return "just now";
}

static void print_row(const registry_model *m, int width) {
    char        size[16], made[32], used[32];
    const char *source = m->source && strcmp(m->source, "local") != 0 ? m->source : m->path;
    printf("%-*s  %-10s %-8s %9s  %-14s %-14s %s\n", width, m->name, m->family ? m->family : "?",
           m->quant ? m->quant : "?", name_bytes(size, (double)m->size), ago(made, m->created_at),
           ago(used, m->last_used), source);
}

static void print_table(const registry_model *list, size_t n) {
    int width = 16;
    for (size_t i = 0; i < n; i++) {
        int len = (int)strlen(list[i].name);
        if (len > width) width = len;
    }
    if (n == 0) {
        printf(
            "there are no models yet; 'hearth search' lists models to download, 'hearth run' starts the demo model\n");
        return;
    }
    printf("%-*s  %-10s %-8s %9s  %-14s %-14s %s\n", width, "NAME", "FAMILY", "TYPE", "SIZE", "MODIFIED", "USED",
           "SOURCE");
    for (size_t i = 0; i < n; i++) print_row(&list[i], width);
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
        print_table(list, n);
    }
    for (size_t i = 0; i < n; i++) registry_model_deinit(&list[i]);
    free(list);
    registry_close(r);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    CLI_JSON_OPTION,
    { 0 },
};

const cli_command cli_cmd_list = { "list", "[--json]", "List the models on this machine.", options, 0, 0, run };

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth search: models to choose from. Without a network: a table of well-known ones, with what they need of this
 * machine's memory. With --hub: what a Hugging Face hub finds.
 */
#include "base/machine.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/models/catalogue.h"
#include "cli/models/pulling.h"
#include "cli/options.h"
#include "registry/known.h"
#include "registry/names.h"
#include "registry/search.h"
#include "runtime/need.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_CONTEXT = 4096, LONG_CONTEXT = 32768, MAX_WORDS = 16 };

static void put_abilities(str *out, unsigned can) {
    bool first = true;
    for (unsigned bit = 1; bit <= KNOWN_EMBEDDING; bit *= 2) {
        if (!(can & bit)) continue;
        str_printf(out, "%s%s", first ? "" : ",", known_ability(bit));
        first = false;
    }
}

static const char *parameters(char out[16], int millions) {
    snprintf(out, 16, millions >= 1000 ? "%.1fB" : "%.0fM", millions >= 1000 ? millions / 1000.0 : millions);
    return out;
}

static void put_row(str *out, const known_model *k, bool here, uint64_t memory) {
    char     params[16], size[16], small[16], large[16];
    uint64_t four = known_memory(k, SHORT_CONTEXT), many = known_memory(k, LONG_CONTEXT);
    str_printf(out, "%-21s %6s %8s %8s %8s  %-6s %-4s ", k->name, parameters(params, k->params_m),
               name_bytes(size, k->file_mb * 1e6), name_bytes(small, (double)four), name_bytes(large, (double)many),
               !memory          ? "?"
               : four > memory  ? "no"
               : many <= memory ? "yes"
                                : "short",
               here ? "here" : "");
    put_abilities(out, k->can);
    str_push(out, '\n');
}

static int search_known(const cli_args *a, const char *const *words, size_t n, err *e) {
    registry *r = NULL;
    uint64_t  memory = machine_memory_available(NULL);
    size_t    found = 0;
    bool      json = cli_flag(a, "json");
    str       out;
    int       rc = catalogue_open_existing(&r, e);
    if (rc < 0) return rc;
    str_init(&out);
    for (size_t i = 0; i < known_n_models; i++) {
        const known_model *k = &known_models[i];
        if (!known_matches(k, words, n)) continue;
        if (cli_flag(a, "fits") && memory && known_memory(k, SHORT_CONTEXT) > memory) continue;
        bool here = known_is_here(r, k);
        if (json) {
            str_puts(&out, found ? ",\n " : "");
            known_write_json(k, here, memory, &out);
        } else {
            put_row(&out, k, here, memory);
        }
        found++;
    }
    registry_close(r);
    if (!str_ok(&out)) {
        rc = err_set_nomem(e);
    } else if (json) {
        printf("[%s]\n", str_cstr(&out));
    } else if (!found) {
        printf("no well-known model matches; 'hearth search --hub WORDS' searches the hub\n");
    } else {
        char size[16];
        printf("%-21s %6s %8s %8s %8s  %-6s %-4s %s\n%s", "NAME", "PARAMS", "SIZE", "MEM 4K", "MEM 32K", "FITS", "",
               "CAN", str_cstr(&out));
        if (memory)
            printf("\n%s of memory are free; 'hearth run NAME' downloads a model first\n",
                   name_bytes(size, (double)memory));
    }
    str_deinit(&out);
    return rc;
}

static int search_far(const cli_args *a, const char *words, err *e) {
    pull_request q = { 0 };
    search_hits  hits = { 0 };
    char        *token = NULL;
    str          out;
    int          rc = pulling_settings(&q, &token, e);
    if (rc == 0) rc = search_hub(&hits, &q, words, (int)cli_int(a, "limit", 20), e);
    str_init(&out);
    for (size_t i = 0; rc == 0 && i < hits.n; i++) {
        const search_hit *h = &hits.list[i];
        if (cli_flag(a, "json")) {
            str_puts(&out, i ? ",\n " : "");
            search_write_json(h, &out);
        } else {
            str_printf(&out, "%-60s %10lld  %-11s %s\n", h->repo, (long long)h->downloads,
                       h->gguf          ? "gguf"
                       : h->mlx         ? "mlx"
                       : h->safetensors ? "safetensors"
                                        : "",
                       h->modified);
        }
    }
    if (rc == 0 && cli_flag(a, "json"))
        printf("[%s]\n", str_cstr(&out));
    else if (rc == 0 && !hits.n)
        printf("the hub has no matching model\n");
    else if (rc == 0)
        printf("%-60s %10s  %-11s %s\n%s", "REPOSITORY", "DOWNLOADS", "FORMAT", "MODIFIED", str_cstr(&out));
    str_deinit(&out);
    search_hits_deinit(&hits);
    free(token);
    return rc;
}

static int run(const cli_args *a) {
    const char *words[MAX_WORDS];
    size_t      n = 0;
    str         all;
    err         e = { 0 };
    int         rc;
    long long   limit = cli_int(a, "limit", 20);
    if (limit < 1 || limit > 100) return cli_usage_error(a, "--limit must lie between 1 and 100");
    if (cli_count(a) > MAX_WORDS) return cli_usage_error(a, "there are more than %d words", MAX_WORDS);
    if (cli_flag(a, "hub") && cli_count(a) == 0) return cli_usage_error(a, "--hub needs words to search for");
    if (cli_flag(a, "hub") && cli_flag(a, "fits")) return cli_usage_error(a, "--fits works only without --hub");
    str_init(&all);
    for (int i = 0; i < cli_count(a); i++) {
        words[n++] = cli_arg(a, i);
        str_printf(&all, "%s%s", i ? " " : "", cli_arg(a, i));
    }
    rc = cli_flag(a, "hub") ? search_far(a, str_cstr(&all), &e) : search_known(a, words, n, &e);
    str_deinit(&all);
    return rc == 0 ? CLI_OK : cli_fail(a, &e);
}

static const cli_option options[] = {
    { "fits", CLI_FLAG, NULL, "show only models that fit into the free memory", 0 },
    { "hub", CLI_FLAG, NULL, "search the Hugging Face hub (HF_ENDPOINT) instead of the well-known models", 0 },
    { "limit", CLI_INT, "N", "show at most this many results from the hub (20)", 0 },
    CLI_JSON_OPTION,
    { 0 },
};

const cli_command cli_cmd_search = {
    "search",
    "[WORDS...] [--fits] [--hub] [--json]",
    "List models to choose from: well-known ones with their memory needs, or search results of the hub.",
    options,
    0,
    -1,
    run,
};

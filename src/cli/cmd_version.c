/* SPDX-License-Identifier: Apache-2.0 */
/* hearth version */
#include "base/str.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "hearth.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "vision/ears.h"
#include "vision/vision.h"

#include <stdio.h>
#include <string.h>

/* Whether name j of an entry stands in files of this kind. */
static bool is_kind(const nn_arch *a, size_t j, bool gguf) {
    return gguf ? j == 0 && !a->hf_only : j > 0 || !a->gguf_only;
}

/* Two entries may share a name: the first one opens it. */
static bool is_new(size_t at, const char *name, bool gguf) {
    for (size_t i = 0; i < at; i++) {
        const nn_arch *a = models_list[i];
        for (size_t j = 0; a->names[j]; j++) {
            if (is_kind(a, j, gguf) && strcmp(a->names[j], name) == 0) return false;
        }
    }
    return true;
}

static int put_names(str *out, bool gguf) {
    int n = 0;
    for (size_t i = 0; models_list[i]; i++) {
        const nn_arch *a = models_list[i];
        for (size_t j = 0; a->names[j]; j++) {
            if (!is_kind(a, j, gguf) || !is_new(i, a->names[j], gguf)) continue;
            str_puts(out, n++ ? ", " : "");
            str_put_json(out, a->names[j], strlen(a->names[j]));
        }
    }
    return n;
}

/* Each of a room's names once. */
static int put_types(str *out, const char *(*at)(size_t i)) {
    int n = 0;
    for (size_t i = 0; at(i); i++) {
        size_t j = 0;
        while (j < i && strcmp(at(j), at(i)) != 0) j++;
        if (j < i) continue;
        str_puts(out, n++ ? ", " : "");
        str_put_json(out, at(i), strlen(at(i)));
    }
    return n;
}

/* The architectures that open, from the table that opens them: general.architecture of GGUF files, model_type of
 * config.json; and model_type around a language model that sees or hears. */
static int put_families(bool json) {
    str gguf, types, see, hear;
    str_init(&gguf);
    str_init(&types);
    str_init(&see);
    str_init(&hear);
    int n_gguf = put_names(&gguf, true), n_types = put_names(&types, false);
    int n_see = put_types(&see, vision_type_at), n_hear = put_types(&hear, ears_type_at);
    if (json)
        printf("{\"gguf\": [%s], \"model_types\": [%s], \"see\": [%s], \"hear\": [%s], \"n_gguf\": %d, "
               "\"n_model_types\": %d}\n",
               str_cstr(&gguf), str_cstr(&types), str_cstr(&see), str_cstr(&hear), n_gguf, n_types);
    else
        printf("general.architecture of GGUF files (%d): %s\nmodel_type of config.json (%d): %s\n"
               "model_type of models that see (%d): %s\nof models that hear (%d): %s\n",
               n_gguf, str_cstr(&gguf), n_types, str_cstr(&types), n_see, str_cstr(&see), n_hear, str_cstr(&hear));
    str_deinit(&gguf);
    str_deinit(&types);
    str_deinit(&see);
    str_deinit(&hear);
    return CLI_OK;
}

static int run(const cli_args *args) {
    char cpu[256];
    if (cli_flag(args, "families")) return put_families(cli_flag(args, "json"));
    cpu_describe(cpu, sizeof cpu);
    if (cli_flag(args, "json")) {
        str out;
        str_init(&out);
        str_printf(&out, "{\"version\": \"%s\", \"cpu\": ", hearth_version());
        str_put_json(&out, cpu, strlen(cpu));
        str_push(&out, '}');
        puts(str_cstr(&out));
        str_deinit(&out);
        return CLI_OK;
    }
    printf("hearth %s\n", hearth_version());
    if (cli_flag(args, "verbose")) printf("cpu    %s\n", cpu);
    return CLI_OK;
}

static const cli_option options[] = {
    { "verbose", CLI_FLAG, NULL, "also print the CPU and the instruction sets that the kernels may use", 'v' },
    { "families", CLI_FLAG, NULL, "print the supported architectures instead", 0 },
    CLI_JSON_OPTION,
    { 0 },
};

const cli_command cli_cmd_version = {
    "version", "[--verbose | --families] [--json]", "Print the version, or the supported architectures.", options, 0, 0,
    run
};

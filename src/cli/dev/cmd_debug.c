/* SPDX-License-Identifier: Apache-2.0 */
/* hearth debug: looks into the engine from outside. One entry of `commands` per sub-command. */
#include "base/str.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "kernels/kernels.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blocks from stdin to little-endian floats on stdout, a few thousand blocks at a time. */
static int dequant_stream(int type, FILE *in, FILE *out, err *e) {
    enum { AT_ONCE = 4096 };
    const tensor_type_info *t = tensor_type_get(type);
    size_t                  n, elems = (size_t)AT_ONCE * t->block_elems;
    int                     rc = ERR_NOMEM;
    char                   *blocks = malloc((size_t)AT_ONCE * t->block_bytes);
    float                  *floats = malloc(elems * sizeof *floats);
    if (!blocks || !floats) {
        err_set_nomem(e);
        goto done;
    }
    while ((n = fread(blocks, 1, (size_t)AT_ONCE * t->block_bytes, in)) > 0) {
        if (n % t->block_bytes != 0) {
            rc = err_set(e, ERR_FORMAT, "the input ends in the middle of a block, after %zu of %u bytes",
                         n % t->block_bytes, t->block_bytes);
            goto done;
        }
        n = n / t->block_bytes * t->block_elems;
        tensor_dequant_row(type, blocks, floats, (int64_t)n);
        if (fwrite(floats, sizeof *floats, n, out) != n) {
            rc = err_set_errno(e, "cannot write the floats");
            goto done;
        }
    }
    rc = ferror(in) ? err_set_errno(e, "cannot read the blocks") : 0;
done:
    free(floats);
    free(blocks);
    return rc;
}

static int run_dequant(const cli_args *args) {
    const char *name = cli_string(args, "type", NULL);
    int         type;
    err         e = { 0 };
    if (!name) return cli_usage_error(args, "--type is missing");
    if (!tensor_type_parse(name, &type)) return cli_usage_error(args, "--type: unknown type '%s'", name);
    if (!tensor_can_dequant(type)) {
        return cli_usage_error(
            args, "--type %s: the scales of this type are in separate tensors, which a stream of blocks does not have",
            name);
    }
    return dequant_stream(type, stdin, stdout, &e) < 0 ? cli_fail(args, &e) : CLI_OK;
}

static const cli_option dequant_options[] = {
    { "type", CLI_STRING, "TYPE", "type of the blocks, for example Q4_K", 't' },
    { 0 },
};
static const cli_command cmd_dequant = {
    "dequant",   "--type TYPE < blocks > floats", "Turn blocks into little-endian float32.", dequant_options, 0, 0,
    run_dequant,
};

static void print_slot(void *ctx, const char *slot, const char *set) {
    (void)ctx;
    printf("%-36s %s\n", slot, set ? set : "-");
}

typedef struct slots {
    str out;
    int n;
} slots;

static void put_slot(void *ctx, const char *slot, const char *set) {
    slots *s = ctx;
    str_printf(&s->out, "%s\"%s\": ", s->n++ ? ", " : "", slot);
    str_printf(&s->out, set ? "\"%s\"" : "null", set);
}

static void print_slots_json(const kernels *k, const char *cpu, const char *used) {
    slots s = { .n = 0 };
    str_init(&s.out);
    str_puts(&s.out, "{\"cpu\": ");
    str_put_json(&s.out, cpu, strlen(cpu));
    str_puts(&s.out, ", \"in_use\": ");
    str_put_json(&s.out, used, strlen(used));
    str_puts(&s.out, ", \"kernels\": {");
    kernels_list(k, put_slot, &s);
    str_puts(&s.out, "}}");
    puts(str_cstr(&s.out));
    str_deinit(&s.out);
}

static int run_kernels(const cli_args *args) {
    const char *mask_text = cli_string(args, "cpu", "all");
    unsigned    mask;
    char        text[192], used[192];
    kernels     k;
    if (!cpu_parse(mask_text, &mask))
        return cli_usage_error(args, "--cpu: '%s' is not a list of instruction sets", mask_text);
    cpu_describe(text, sizeof text);
    kernels_init(&k, cpu_detect() & mask);
    cpu_names(k.cpu, used, sizeof used);
    if (cli_flag(args, "json")) {
        print_slots_json(&k, text, used);
        return CLI_OK;
    }
    printf("CPU: %s\nin use: %s\n\n", text, used);
    kernels_list(&k, print_slot, NULL);
    return CLI_OK;
}

static const cli_option kernels_options[] = {
    CLI_CPU_OPTION,
    CLI_JSON_OPTION,
    { 0 },
};
static const cli_command cmd_kernels = {
    "kernels",   "[--cpu SETS] [--json]", "Print which instruction set every kernel uses.", kernels_options, 0, 0,
    run_kernels,
};

const cli_command *const cli_debug_commands[] = {
    &cmd_dequant,         &cmd_kernels,           &cli_cmd_debug_gguf,   &cli_cmd_debug_random_model,
    &cli_cmd_debug_masks, &cli_cmd_debug_options, &cli_cmd_debug_sample, NULL,
};

static int run(const cli_args *args) { return cli_run_subcommand(args, cli_debug_commands); }

const cli_command cli_cmd_debug = { "debug", "COMMAND", "Inspect the engine.", NULL, 0, CLI_SUBCOMMANDS, run };

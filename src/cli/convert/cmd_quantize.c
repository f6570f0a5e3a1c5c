/* SPDX-License-Identifier: Apache-2.0 */
/* hearth quantize: a GGUF file with its matrices in other types (convert/quantize.h). */
#include "convert/quantize.h"

#include "cli/cli.h"
#include "cli/convert/judge.h"
#include "cli/convert/progress.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "registry/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OVERRIDES = 256 };

typedef struct request {
    quantize_options  o;
    quantize_override overrides[MAX_OVERRIDES];
    char             *texts[MAX_OVERRIDES];
    imatrix          *importance;
    progress          bar;
    judge             judge;
    quantize_judge    judged;
} request;

static int read_overrides(request *q, const cli_args *a, err *e) {
    const char *text;
    for (size_t i = 0; (text = cli_string_at(a, "tensor-type", (int)i)); i++) {
        if (i == MAX_OVERRIDES) return err_set(e, ERR_ARG, "more than %d times --tensor-type", MAX_OVERRIDES);
        q->texts[i] = strdup(text);
        int rc = q->texts[i] ? quantize_override_read(&q->overrides[i], q->texts[i], e) : err_set_nomem(e);
        q->o.n_overrides = i + 1;
        if (rc < 0) return err_wrap(e, rc, "--tensor-type");
    }
    q->o.overrides = q->overrides;
    return 0;
}

static int read_target(request *q, const cli_args *a, err *e) {
    const char *text = cli_string(a, "target-bpw", NULL);
    char       *end = NULL;
    if (!text) return 0;
    q->o.target_bpw = strtod(text, &end);
    if (*end || !(q->o.target_bpw >= 1 && q->o.target_bpw <= 16))
        return err_set(e, ERR_ARG, "--target-bpw must lie between 1 and 16");
    return 0;
}

/* Bytes are written, after trials perhaps. */
static bool at_bytes(void *ctx, uint64_t done, uint64_t total) {
    progress *p = ctx;
    progress_of(p, NULL);
    return progress_at(p, done, total);
}

static int read_request(request *q, const cli_args *a, err *e) {
    const char *type = cli_arg(a, 2);
    int         rc = read_target(q, a, e);
    if (rc == 0 && !type && !(q->o.target_bpw > 0)) rc = err_set(e, ERR_ARG, "a TYPE or --target-bpw is required");
    if (rc == 0) rc = mix_find(&q->o.mix, type ? type : "Q4_K_M", e);
    if (rc == 0) rc = read_overrides(q, a, e);
    if (rc == 0 && cli_string(a, "text", NULL) && !(q->o.target_bpw > 0))
        rc = err_set(e, ERR_ARG, "--text is for --target-bpw");
    if (rc == 0 && cli_flag(a, "documents") && !cli_string(a, "text", NULL))
        rc = err_set(e, ERR_ARG, "--documents is for --text");
    q->o.pure = cli_flag(a, "pure");
    q->o.write.path = cli_arg(a, 1);
    q->o.write.keep = cli_flag(a, "keep");
    q->o.write.dry = cli_flag(a, "dry-run");
    q->o.write.progress = at_bytes;
    q->o.write.progress_ctx = &q->bar;
    return rc;
}

/* --- what is said ------------------------------------------------------------------------------------------------ */

static double bits_per_weight(const plan_result *f) {
    return f->elements ? 8.0 * (double)f->weight_bytes / (double)f->elements : 0;
}

static void say_json(const quantize_result *r, bool dry) {
    str s;
    str_init(&s);
    str_printf(&s, "{\"bytes\":%" PRIu64 ",\"bits_per_weight\":%.4f,\"peak_memory\":%" PRIu64, r->file.bytes,
               bits_per_weight(&r->file), progress_peak_memory());
    if (!dry)
        str_printf(&s, ",\"checksum\":\"%016" PRIx64 "\",\"sha256\":\"%s\",\"resumed\":%" PRIu64, r->file.checksum,
                   r->file.sha256, r->file.resumed);
    str_puts(&s, ",\"tensors\":[");
    for (size_t i = 0; i < r->n; i++) {
        const quantize_line *l = &r->lines[i];
        str_puts(&s, i ? ",{\"name\":" : "{\"name\":");
        str_put_json(&s, l->name, strlen(l->name));
        str_printf(&s, ",\"from\":\"%s\",\"type\":\"%s\",\"elements\":%" PRId64 ",\"fallback\":%s}",
                   tensor_type_name((int)l->was), tensor_type_name((int)l->is), l->elements,
                   l->fallback ? "true" : "false");
    }
    str_puts(&s, "]}");
    puts(str_cstr(&s));
    str_deinit(&s);
}

static void say_plan(const quantize_result *r) {
    char size[16];
    for (size_t i = 0; i < r->n; i++) {
        const quantize_line *l = &r->lines[i];
        printf("%-40s %-8s -> %-8s%s\n", l->name, tensor_type_name((int)l->was), tensor_type_name((int)l->is),
               l->fallback ? " (its rows do not fit the type that was meant)" : "");
    }
    printf("%s, %.2f bits per weight\n", name_bytes(size, (double)r->file.bytes), bits_per_weight(&r->file));
}

static void say_notes(const quantize_result *r, const char *path) {
    size_t fallbacks = 0, plain = 0;
    char   size[16], peak[16];
    for (size_t i = 0; i < r->n; i++) {
        fallbacks += r->lines[i].fallback;
        plain += r->lines[i].plain;
    }
    fprintf(stderr, "%s: %s, %.2f bits per weight, at most %s of memory, SHA-256 %s\n", path,
            name_bytes(size, (double)r->file.bytes), bits_per_weight(&r->file),
            name_bytes(peak, (double)progress_peak_memory()), r->file.sha256);
    if (fallbacks)
        fprintf(stderr, "%zu matrices have rows that are not a whole number of blocks: they became a type that fits\n",
                fallbacks);
    if (plain) fprintf(stderr, "%zu matrices are not in the importance matrix\n", plain);
}

/* --- the command ------------------------------------------------------------------------------------------------- */

static int begin_judge(request *q, const cli_args *a, err *e) {
    judge_options o = { .text = cli_string(a, "text", NULL),
                        .documents = cli_flag(a, "documents"),
                        .threads = (int)cli_int(a, "threads", 0),
                        .bar = &q->bar };
    int           rc = judge_open(&q->judge, cli_arg(a, 0), &o, e);
    q->judged = (quantize_judge){ q->judge.model.file, judge_divergence, &q->judge };
    q->o.judge = &q->judged;
    return rc;
}

static int quantize(request *q, const cli_args *a, err *e) {
    model_file     *in = NULL;
    pool           *p = NULL;
    char           *path = NULL;
    quantize_result r = { 0 };
    const char     *importance = cli_string(a, "imatrix", NULL);
    long long       threads = cli_int(a, "threads", 0);
    int             rc = cli_model_path(&path, cli_arg(a, 0), e);
    if (rc == 0) rc = model_file_open(&in, path, e);
    if (rc == 0 && importance) rc = imatrix_read(&q->importance, importance, e);
    q->o.importance = q->importance;
    if (rc == 0) rc = pool_open(&p, threads ? (int)threads : pool_default_threads(), false, e);
    if (rc == 0 && (rc = progress_begin(&q->bar, cli_flag(a, "json"), NULL, e)) == 0) {
        if (cli_string(a, "text", NULL)) rc = begin_judge(q, a, e);
        if (rc == 0) rc = gguf_quantize(in, &q->o, p, &r, e);
        progress_end(&q->bar);
    }
    if (rc == 0 && cli_flag(a, "json"))
        say_json(&r, q->o.write.dry);
    else if (rc == 0 && q->o.write.dry)
        say_plan(&r);
    else if (rc == 0)
        say_notes(&r, cli_arg(a, 1));
    quantize_result_deinit(&r);
    pool_free(p);
    model_file_free(in);
    free(path);
    return rc;
}

static int run(const cli_args *a) {
    request   q = { 0 };
    err       e = { 0 };
    long long threads = cli_int(a, "threads", 0);
    int       code;
    if (threads < 0 || threads > 1024) return cli_usage_error(a, "--threads must lie between 0 and 1024");
    if (read_request(&q, a, &e) < 0)
        code = cli_usage_error(a, "%s", e.msg);
    else
        code = quantize(&q, a, &e) < 0 ? cli_fail(a, &e) : CLI_OK;
    judge_deinit(&q.judge);
    imatrix_free(q.importance);
    for (size_t i = 0; i < q.o.n_overrides; i++) free(q.texts[i]);
    return code;
}

static const cli_option options[] = {
    { "imatrix", CLI_STRING, "FILE", "importance of the columns, made by 'hearth imatrix'", 0 },
    { "tensor-type", CLI_STRING, "REGEX=T", "tensors whose name fits get this type; repeatable, the first that fits",
      0 },
    { "pure", CLI_FLAG, NULL, "the same type everywhere instead of the mix", 0 },
    { "target-bpw", CLI_STRING, "X", "choose types by measured damage, so that weights have X bits on average", 0 },
    { "text", CLI_STRING, "FILE", "measure damage with this text, evaluated twice per matrix", 0 },
    { "documents", CLI_FLAG, NULL, "FILE contains JSON lines, each a document that is read separately", 0 },
    { "dry-run", CLI_FLAG, NULL, "list types and size; write nothing", 0 },
    { "json", CLI_FLAG, NULL, "the result as JSON", 0 },
    { "keep", CLI_FLAG, NULL, "when interrupted keep OUT.partial; the same command continues it", 0 },
    CLI_THREADS_OPTION,
    { 0 },
};

const cli_command cli_cmd_quantize = {
    "quantize",
    "MODEL OUT.gguf [TYPE] [--imatrix FILE] [--target-bpw X [--text FILE]]",
    "Write a GGUF file with its matrices in other types, for example Q4_K_M.",
    options,
    2,
    3,
    run,
};

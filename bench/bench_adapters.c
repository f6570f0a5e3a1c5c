/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What adapters cost: one of rank 16 on all matrices of a 1.24 B llama in Q4_K, and eight different ones in a batch of
 * eight; how long one takes to load. The runs with and without take turns, and the median of the ratios counts, so that
 * other work on the machine hits both alike.
 *
 *   bench_adapters [MODEL.gguf] [--rank N] [--type TYPE] [--threads N] [--device ID] [--keep DIR] [--only TEXT]
 *
 * --only leaves out the cases whose names do not contain the text.
 * --keep leaves the model and one adapter, as a GGUF file and in PEFT's form, in a directory, for other programs.
 */
#include "backend/backend.h"
#include "base/clock.h"
#include "bench/measure.h"
#include "bench/shape.h"
#include "convert/export.h"
#include "convert/gguf_writer.h"
#include "convert/safetensors_writer.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/bound.h"
#include "tools/simple.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SETS = 8, ROUNDS = 9, PROMPT = 256, DECODES = 4 };

/* Of this process, on all cores: what other programs do does not count. */
static double cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* --- files --- */

typedef struct files {
    gguf_writer        *gguf;
    safetensors_writer *peft;
    float              *data[1024];
    int                 n;
    uint64_t            seed;
} files;

static float *noise(files *f, int64_t n) {
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; v && i < n; i++) {
        f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)((double)(f->seed >> 40) / (1 << 24) - 0.5) * 0.02f;
    }
    if (f->n < 1024) f->data[f->n++] = v;
    return v;
}

static int add_pair(files *f, const nn_bound *b, int rank, err *e) {
    char    name[512];
    int64_t a[2] = { b->mat->cols, rank }, t[2] = { rank, b->mat->rows };
    size_t  a_bytes = (size_t)(a[0] * a[1]) * 4, t_bytes = (size_t)(t[0] * t[1]) * 4;
    float  *va = noise(f, a[0] * a[1]), *vb = noise(f, t[0] * t[1]);
    int     rc = va && vb ? 0 : err_set_nomem(e);
    snprintf(name, sizeof name, "%s%.*s.weight.lora_a", b->gguf_prefix, (int)strcspn(b->gguf, "|#"), b->gguf);
    if (rc == 0) rc = gguf_writer_add(f->gguf, name, TENSOR_F32, 2, a, va, a_bytes, e);
    snprintf(name, sizeof name, "%s%.*s.weight.lora_b", b->gguf_prefix, (int)strcspn(b->gguf, "|#"), b->gguf);
    if (rc == 0) rc = gguf_writer_add(f->gguf, name, TENSOR_F32, 2, t, vb, t_bytes, e);
    snprintf(name, sizeof name, "base_model.model.%s%.*s.lora_A.weight", b->hf_prefix, (int)strcspn(b->hf, "|#"),
             b->hf);
    if (rc == 0) rc = safetensors_writer_add(f->peft, name, TENSOR_F32, 2, a, va, a_bytes, e);
    snprintf(name, sizeof name, "base_model.model.%s%.*s.lora_B.weight", b->hf_prefix, (int)strcspn(b->hf, "|#"),
             b->hf);
    if (rc == 0) rc = safetensors_writer_add(f->peft, name, TENSOR_F32, 2, t, vb, t_bytes, e);
    return rc;
}

/* One adapter on all matrices of the layers: DIR/peft and DIR/lora.gguf. */
static int write_adapter(const nn_model *m, const char *dir, int rank, uint64_t seed, err *e) {
    files f = { .seed = seed };
    char  path[512];
    int   rc = gguf_writer_open(&f.gguf, 0, e);
    if (rc == 0) rc = safetensors_writer_open(&f.peft, e);
    if (rc == 0) rc = gguf_writer_set_string(f.gguf, "general.architecture", "llama", e);
    if (rc == 0) rc = gguf_writer_set_string(f.gguf, "general.type", "adapter", e);
    if (rc == 0) rc = gguf_writer_set_string(f.gguf, "adapter.type", "lora", e);
    if (rc == 0) rc = gguf_writer_set_real(f.gguf, "adapter.lora.alpha", META_F32, 2.0 * rank, e);
    for (const nn_bound *b = m->bound; rc == 0 && b; b = b->next) {
        if (*b->gguf_prefix) rc = add_pair(&f, b, rank, e);
    }
    snprintf(path, sizeof path, "%s/lora.gguf", dir);
    if (rc == 0) rc = gguf_writer_write(f.gguf, path, e);
    snprintf(path, sizeof path, "%s/peft", dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/peft/adapter_model.safetensors", dir);
    if (rc == 0) rc = safetensors_writer_write(f.peft, path, e);
    snprintf(path, sizeof path, "%s/peft/adapter_config.json", dir);
    FILE *config = fopen(path, "w");
    if (config) {
        fprintf(config, "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": %d}\n", rank, 2 * rank);
        fclose(config);
    }
    for (int i = 0; i < f.n; i++) free(f.data[i]);
    gguf_writer_free(f.gguf);
    safetensors_writer_free(f.peft);
    return rc;
}

/* --- measuring --- */

typedef struct bench {
    nn_model       *m;
    nn_adapter     *adapters[SETS];
    nn_adapter_set *sets[SETS];
    simple          s;
    int             n_threads;
    lowrank_type    type;
    const char     *only; /* NULL: all cases */
    const char     *device;
} bench;

typedef struct seconds {
    double wall, cpu;
} seconds;

/* Of a prompt, or of some steps of n_seq sequences; sets: 0 none, 1 the same everywhere, 8 a different one each. */
static int measure(bench *b, int n_seq, bool prompt, int sets, seconds *out, err *e) {
    static int32_t ids[PROMPT];
    simple_feed    feeds[SETS];
    int            rc = 0;
    for (int i = 0; i < PROMPT; i++) ids[i] = (int32_t)((100 + i * 37) % b->m->dims->n_vocab);
    for (int q = 0; q < n_seq; q++) {
        simple_reset(&b->s, q);
        feeds[q] = (simple_feed){ .seq = q, .ids = ids, .n = prompt ? PROMPT : 1, .set = sets ? q % sets + 1 : 0 };
    }
    double begin = clock_s(), begin_cpu = cpu_now();
    for (int i = 0; rc == 0 && i < (prompt ? 1 : DECODES); i++) rc = simple_step(&b->s, feeds, n_seq, e);
    *out = (seconds){ clock_s() - begin, cpu_now() - begin_cpu };
    return rc;
}

static int compare(bench *b, const char *what, int n_seq, bool prompt, int sets, err *e) {
    double without[ROUNDS], with[ROUNDS], ratio[ROUNDS], busy[ROUNDS];
    int    tokens = prompt ? PROMPT * n_seq : DECODES * n_seq, rc = 0;
    if (b->only && !strstr(what, b->only)) return 0;
    for (int i = -1; i < ROUNDS && rc == 0; i++) { /* the first one warms up */
        seconds a = { 0 }, c = { 0 };
        rc = measure(b, n_seq, prompt, 0, &a, e);
        if (rc == 0) rc = measure(b, n_seq, prompt, sets, &c, e);
        if (i < 0 || rc < 0) continue;
        without[i] = a.wall;
        with[i] = c.wall;
        ratio[i] = c.wall / a.wall;
        busy[i] = c.cpu / a.cpu;
    }
    if (rc == 0)
        printf("%-44s %8.2f tok/s, with %8.2f tok/s: %+.1f%% time, %+.1f%% of the cores\n", what,
               tokens / median(without, ROUNDS), tokens / median(with, ROUNDS), (median(ratio, ROUNDS) - 1) * 100,
               (median(busy, ROUNDS) - 1) * 100);
    return rc;
}

static int load(bench *b, const char *path, const char *what, err *e) {
    double best = 1e9, busy = 1e9;
    size_t bytes = 0;
    int    rc = 0;
    for (int i = 0; i < 5 && rc == 0; i++) {
        nn_adapter *a;
        double      begin = clock_s(), begin_cpu = cpu_now();
        if ((rc = nn_adapter_open(&a, b->m, path, b->type, e)) < 0) break;
        double took = clock_s() - begin, used = cpu_now() - begin_cpu;
        best = took < best ? took : best;
        busy = used < busy ? used : busy;
        bytes = a->bytes;
        nn_adapter_free(a);
    }
    if (rc == 0)
        printf("loading %-36s %8.1f ms (%.1f ms of a core), %.1f MB in memory\n", what, best * 1e3, busy * 1e3,
               (double)bytes * 1e-6);
    return rc;
}

static int run(bench *b, const char *dir, int rank, err *e) {
    char path[512];
    int  rc = 0;
    for (int i = 0; i < SETS && rc == 0; i++) {
        rc = write_adapter(b->m, dir, rank, (uint64_t)(SETS - i), e);
        snprintf(path, sizeof path, "%s/peft", dir);
        if (rc == 0) rc = nn_adapter_open(&b->adapters[i], b->m, path, b->type, e);
        if (rc == 0) rc = nn_adapter_set_open(&b->sets[i], b->m, &(nn_adapter_use){ b->adapters[i], 1 }, 1, e);
    }
    struct stat st = { 0 };
    snprintf(path, sizeof path, "%s/lora.gguf", dir);
    stat(path, &st);
    printf("rank %d on all matrices: %.1f MB as f32\n", rank, (double)st.st_size * 1e-6);
    if (rc == 0) rc = load(b, path, "GGUF, f32", e);
    snprintf(path, sizeof path, "%s/peft", dir);
    if (rc == 0) rc = load(b, path, "PEFT, f32", e);
    simple_options o = {
        .n_seq = SETS, .max_len = PROMPT + 64, .max_tokens = PROMPT, .n_threads = b->n_threads, .cpu = cpu_detect()
    };
    o.k_type = o.v_type = NN_KV_F16;
    if (rc == 0) rc = simple_open(&b->s, b->device, b->m, &o, e);
    for (int i = 0; i < SETS && rc == 0; i++) rc = b->s.exec->backend->adapt(b->s.exec, i + 1, b->sets[i], e);
    if (rc == 0) rc = compare(b, "one sequence generates, one adapter", 1, false, 1, e);
    if (rc == 0) rc = compare(b, "a prompt of 256, one adapter", 1, true, 1, e);
    if (rc == 0) rc = compare(b, "eight sequences generate, one adapter", SETS, false, 1, e);
    if (rc == 0) rc = compare(b, "eight sequences generate, eight adapters", SETS, false, SETS, e);
    return rc;
}

int main(int argc, char **argv) {
    bench b = { .device = "cpu" };
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *model = NULL, *keep = NULL;
    char        dir[] = "/tmp/bench_adapters-XXXXXX", path[256], made[256] = "";
    int         rank = 16, rc = 0;
    model_file *file = NULL;
    err         e = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rank") == 0 && i + 1 < argc)
            rank = atoi(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            b.n_threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--type") == 0 && i + 1 < argc && lowrank_type_parse(argv[i + 1], &b.type))
            i++;
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            b.device = argv[++i];
        else if (strcmp(argv[i], "--keep") == 0 && i + 1 < argc)
            keep = argv[++i];
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            b.only = argv[++i];
        else
            model = argv[i];
    }
    if (!keep && !mkdtemp(dir)) return 1;
    if (keep) mkdir(keep, 0700);
    snprintf(path, sizeof path, "%s", keep ? keep : dir);
    if (!model) {
        snprintf(made, sizeof made, "%.200s/model.gguf", path);
        model = made;
        rc = access(made, F_OK) == 0 ? 0 : shape_1b(made, &e);
    }
    if (rc == 0) rc = model_file_open(&file, model, &e);
    if (rc == 0) rc = nn_model_open(&b.m, file, models_list, NULL, &e);
    if (rc == 0) model_file_settle(file, NULL); /* as a worker does */
    if (rc == 0) rc = run(&b, path, rank, &e);
    if (rc < 0) fprintf(stderr, "%s\n", e.msg);
    simple_close(&b.s);
    for (int i = 0; i < SETS; i++) {
        nn_adapter_set_free(b.sets[i]);
        nn_adapter_free(b.adapters[i]);
    }
    nn_model_free(b.m);
    model_file_free(file);
    if (!keep) {
        char command[320];
        snprintf(command, sizeof command, "rm -r '%s'", path);
        if (system(command) != 0) fprintf(stderr, "%s stays\n", path);
    }
    return rc < 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a decode step is not kernels: barriers, uneven shares, bookkeeping.
 *
 * The model has the shape of a 1.24 B llama with random Q4_K weights. A worker's kernel time is measured around each
 * item; the share outside is 1 - (sum over workers) / (workers * wall time), so waiting for a slower worker counts too.
 *
 *   bench_step [MODEL.gguf] [--threads N]
 */
#include "backend/backend.h"
#include "base/clock.h"
#include "bench/measure.h"
#include "bench/shape.h"
#include "convert/export.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tools/simple.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 15, WARM = 3, PROMPT = 256 };

/* Where the threads' time goes, largest first. */
static void print_kinds(const nn_exec *x, const char *what) {
    bool   done[NN_OP_KINDS] = { false };
    int    n_threads;
    double all = backend_cpu_kernel_seconds(x, &n_threads);
    printf("%s:", what);
    for (int n = 0; n < 6; n++) {
        int best = -1;
        for (int k = 0; k < NN_OP_KINDS; k++) {
            if (!done[k] && (best < 0 || backend_cpu_kind_seconds(x, (nn_op_kind)k) >
                                             backend_cpu_kind_seconds(x, (nn_op_kind)best)))
                best = k;
        }
        done[best] = true;
        printf(" %s %.1f%%", nn_op_name((nn_op_kind)best), 100 * backend_cpu_kind_seconds(x, (nn_op_kind)best) / all);
    }
    printf("\n");
}

static int measure(const nn_model *m, int threads, err *e) {
    simple         s;
    simple_options o = { .max_len = PROMPT + STEPS + WARM,
                         .max_tokens = PROMPT,
                         .n_threads = threads,
                         .k_type = NN_KV_F16,
                         .v_type = NN_KV_F16,
                         .cpu = cpu_detect() };
    double         wall[STEPS], outside[STEPS];
    int32_t        ids[PROMPT];
    int            rc = simple_open(&s, "cpu", m, &o, e), n_threads = 1;
    if (rc < 0) return rc;
    for (int i = 0; i < PROMPT; i++) ids[i] = i * 7 % 1000;
    backend_cpu_timed(s.exec, true);
    double begin = 0, prompt = 0;
    for (int i = 0; i < 3 && rc == 0; i++) { /* the first one also reads the file */
        simple_reset(&s, 0);
        begin = clock_s();
        rc = simple_step(&s, &(simple_feed){ .ids = ids, .n = PROMPT }, 1, e);
        prompt = clock_s() - begin;
    }
    if (rc == 0) print_kinds(s.exec, "prompt");
    for (int i = 0; i < STEPS + WARM && rc == 0; i++) {
        begin = clock_s();
        rc = simple_step(&s, &(simple_feed){ .ids = ids, .n = 1 }, 1, e);
        double took = clock_s() - begin, kernels = backend_cpu_kernel_seconds(s.exec, &n_threads);
        if (i < WARM) continue;
        wall[i - WARM] = took;
        outside[i - WARM] = 1 - kernels / (n_threads * took);
    }
    if (rc == 0) {
        print_kinds(s.exec, "decode");
        qsort(wall, STEPS, sizeof *wall, by_value);
        qsort(outside, STEPS, sizeof *outside, by_value);
        printf("step: 1.24 B llama, Q4_K, %d threads: prompt of %d %.0f tok/s, decode %.1f tok/s (%.2f ms), outside "
               "kernels %.2f%% (bound 3%%)\n",
               n_threads, PROMPT, PROMPT / prompt, 1 / wall[STEPS / 2], 1e3 * wall[STEPS / 2],
               100 * outside[STEPS / 2]);
    }
    simple_close(&s);
    return rc;
}

int main(int argc, char **argv) {
    const char *path = NULL;
    char        temp[] = "/tmp/hearth-bench-XXXXXX";
    int         threads = 2, rc = 0, fd = -1;
    model_file *file = NULL;
    nn_model   *model = NULL;
    err         e = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = atoi(argv[++i]);
        else
            path = argv[i];
    }
    if (!path) {
        fd = mkstemp(temp);
        if (fd < 0) return 1;
        close(fd);
        path = temp;
        rc = shape_1b(path, &e);
    }
    if (rc == 0) rc = model_file_open(&file, path, &e);
    if (rc == 0) rc = nn_model_open(&model, file, models_list, NULL, &e);
    if (rc == 0) rc = measure(model, threads, &e);
    if (rc < 0) fprintf(stderr, "bench_step: %s\n", e.msg);
    nn_model_free(model);
    model_file_free(file);
    if (fd >= 0) unlink(temp);
    return rc < 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a picture takes: scaled, cut and encoded by the tower of a model, the fastest and the median of some rounds, each
 * of another picture so that none is there already.
 *
 *   bench_vision MODEL [--mmproj FILE] [--size WIDTHxHEIGHT] [--threads N] [--device ID] [--rounds N]
 */
#include "base/clock.h"
#include "bench/measure.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/model.h"
#include "vision/vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 99 };

static const char *option(int argc, char **argv, const char *name, const char *dflt) {
    for (int i = 2; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    }
    return dflt;
}

static int fail(const err *e) {
    fprintf(stderr, "bench_vision: %s\n", e->msg);
    return 1;
}

/* The two halves once more, each by itself, in milliseconds. */
static int apart(vision *v, const pixels *p, double *cutting, double *encoding, err *e) {
    pixels *tiles;
    float  *rows;
    int     n_tiles, n;
    double  before = clock_s();
    int     rc = vision_cut(v, p, &tiles, &n_tiles, e);
    if (rc < 0) return rc;
    *cutting = (clock_s() - before) * 1e3;
    before = clock_s();
    rc = vision_encode_cut(v, p, tiles, n_tiles, &rows, &n, e);
    *encoding = (clock_s() - before) * 1e3;
    if (rc == 0) free(rows);
    vision_cut_free(tiles, n_tiles);
    return rc;
}

static int measure(vision *v, int width, int height, int rounds) {
    double took[MOST_ROUNDS], cutting[MOST_ROUNDS], encoding[MOST_ROUNDS];
    int    n = 0, half = rounds / 2;
    for (int r = 0; r < rounds; r++) {
        const vision_rows *rows;
        pixels             p;
        err                e = { 0 };
        if (pixels_init(&p, width, height, &e) < 0) return fail(&e);
        for (size_t i = 0; i < pixels_bytes(&p); i++) p.rgb[i] = (uint8_t)(i * (size_t)(r + 3) >> 3);
        double before = clock_s();
        if (vision_encode(v, &p, &rows, &e) < 0) return fail(&e);
        took[r] = (clock_s() - before) * 1e3;
        n = rows->n;
        if (apart(v, &p, &cutting[r], &encoding[r], &e) < 0) return fail(&e);
        pixels_deinit(&p);
    }
    qsort(took, (size_t)rounds, sizeof *took, by_value);
    qsort(cutting, (size_t)rounds, sizeof *cutting, by_value);
    qsort(encoding, (size_t)rounds, sizeof *encoding, by_value);
    printf("%d x %d, %d rows: %.1f ms (median %.1f of %d: scaling and cutting %.1f, tower and projector %.1f)\n", width,
           height, n, took[0], took[half], rounds, cutting[half], encoding[half]);
    return 0;
}

int main(int argc, char **argv) {
    model_file *f = NULL, *tower = NULL;
    nn_model   *m = NULL;
    vision     *v = NULL;
    int         width = 0, height = 0;
    err         e = { 0 };
    if (argc < 2) {
        printf("bench_vision MODEL [--mmproj FILE] [--size WIDTHxHEIGHT] [--threads N] [--device ID] "
               "[--rounds N]: needs a model\n");
        return 0;
    }
    const char    *mmproj = option(argc, argv, "--mmproj", NULL);
    int            rounds = atoi(option(argc, argv, "--rounds", "5"));
    vision_options o = { .device = option(argc, argv, "--device", "cpu"),
                         .n_threads = atoi(option(argc, argv, "--threads", "0")),
                         .cpu = cpu_detect() };
    if (rounds < 1 || rounds > MOST_ROUNDS ||
        sscanf(option(argc, argv, "--size", "512x512"), "%dx%d", &width, &height) != 2)
        return err_set(&e, ERR_ARG, "a size or a number of rounds cannot be read"), fail(&e);
    int rc = model_file_open(&f, argv[1], &e);
    if (rc == 0) rc = nn_model_open(&m, f, models_list, NULL, &e);
    if (rc == 0 && mmproj) rc = model_file_open(&tower, mmproj, &e);
    if (rc == 0) rc = vision_open(&v, f, tower, m->dims->n_embd * m->tape->n_parts, &o, &e);
    if (rc == 0 && !v) rc = err_set(&e, ERR_UNSUPPORTED, "%s has no eyes that are known", argv[1]);
    rc = rc < 0 ? fail(&e) : measure(v, width, height, rounds);
    vision_free(v);
    nn_model_free(m);
    model_file_free(tower);
    model_file_free(f);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_backend DEVICE [--seed N] [--rounds N | --quick] [PART ...]
 *
 * The conformance suite on one device ("cpu", "scalar", "cuda:0"). One round is the short form that every test run
 * takes; more rounds draw more shapes, --quick draws one model per part and short sequences. A part is named as in the
 * table below. Exit code 0: every fact holds, or there is no such device here.
 */
#include "backend/backend.h"
#include "backend/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(suite *s);
} parts[] = {
    { "ops", suite_ops },           { "types", suite_types },   { "families", suite_families },
    { "bits", suite_bits },         { "inputs", suite_inputs }, { "moves", suite_moves },
    { "batches", suite_batches },   { "ranges", suite_ranges }, { "calls", suite_calls },
    { "sample", suite_sample },     { "ahead", suite_ahead },   { "whole", suite_whole },
    { "adapters", suite_adapters },
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static int usage(const char *program) {
    fprintf(stderr, "usage: %s DEVICE [--seed N] [--rounds N | --quick] [PART ...]\n", program);
    return 2;
}

static bool chosen(const char *part, char **names, int n) {
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], part) == 0) return true;
    }
    return n == 0;
}

static bool run_part(suite *s, int i, uint64_t seed) {
    /* Each part draws from the seed alone, so that it can be repeated by itself. */
    s->random = seed * 1000003u + (uint64_t)i;
    s->n_facts = s->n_failed = 0;
    parts[i].run(s);
    bool ok = s->n_failed == 0 && s->n_facts > 0;
    printf("check %s %s.%s: %ld facts, %ld do not hold\n", ok ? "ok" : "FAILED", s->device.id, parts[i].name,
           s->n_facts, s->n_failed);
    return ok;
}

int main(int argc, char **argv) {
    suite       s = { .rounds = 1 };
    uint64_t    seed = 1;
    const char *device = argc > 1 ? argv[1] : NULL;
    char      **names = calloc((size_t)argc + 1, sizeof *names);
    int         n_names = 0, n_bad = 0, rc = 0;
    err         e;
    if (!names || !device || device[0] == '-') {
        free((void *)names);
        return usage(argv[0]);
    }
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            s.rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--quick") == 0)
            s.quick = true;
        else if (argv[i][0] != '-')
            names[n_names++] = argv[i];
        else
            rc = usage(argv[0]);
    }
    if (rc == 0 && backend_find(device, &s.backend, &s.device, &e) < 0) {
        printf("skipped: no device %s\n", device);
    } else if (rc == 0) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        printf("%s: %s, seed %llu, rounds %d\n", s.device.id, s.device.name, (unsigned long long)seed, s.rounds);
        for (int i = 0; i < PARTS; i++) {
            if (chosen(parts[i].name, names, n_names)) n_bad += !run_part(&s, i, seed);
        }
        rc = n_bad > 0;
    }
    free((void *)names);
    return rc;
}

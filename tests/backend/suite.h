/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend conformance suite: facts that hold for every backend, checked on one device.
 *
 * Each part is a function that takes the suite: the device, a seeded generator, how many rounds. It works on tiny
 * models that exist in memory only (gen.h) and on sequences whose pages and slots lie anywhere (world.h). A part states
 * facts with FACT; those that do not hold are printed. main.c has the table of parts.
 */
#ifndef TESTS_BACKEND_SUITE_H
#define TESTS_BACKEND_SUITE_H

#include "base/str.h"
#include "nn/backend.h"

typedef struct suite {
    const nn_backend *backend;
    nn_device         device;
    uint64_t          random;
    int               rounds; /* 1: the short form */
    bool              quick;  /* as little as states something: for tools that make everything slow */
    long              n_facts, n_failed;
} suite;

#define FACT(s, cond, ...) suite_that((s), (cond), __FILE__, __LINE__, __VA_ARGS__)
bool suite_that(suite *s, bool ok, const char *file, int line, const char *fmt, ...) BASE_PRINTF(5, 6);

/* How many models a part draws that draws n in the short form. */
static inline int suite_models(const suite *s, int n) { return s->quick ? 1 : n * s->rounds; }

uint64_t suite_u64(suite *s);
int      suite_int(suite *s, int low, int high); /* both included */
bool     suite_chance(suite *s, int percent);
float    suite_normal(suite *s);

/* The parts. */
void suite_ops(suite *s);      /* every op beside the reference */
void suite_types(suite *s);    /* weight and page types: accepted and right, or refused by name */
void suite_families(suite *s); /* every family of this build beside the reference */
void suite_bits(suite *s);     /* neither batch nor chunk, place, neighbours or threads change a bit */
void suite_inputs(suite *s);   /* supplied embeddings */
void suite_moves(suite *s);    /* pages and slots */
void suite_batches(suite *s);  /* what a batch may not be */
void suite_ranges(suite *s);   /* a tape in two parts */
void suite_calls(suite *s);    /* measure and open, tickets, fetch */
void suite_sample(suite *s);   /* tokens picked on the device */
void suite_ahead(suite *s);    /* steps that begin with guesses */
void suite_whole(suite *s);    /* models that see the whole input */
void suite_adapters(suite *s); /* adapter sets */

#endif

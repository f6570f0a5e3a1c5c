/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests with hostile model files share: numbers that make no sense, and eyes and ears that are opened, measured and used
 * as far as it goes. HEARTH_HOSTILE=N: so many rounds, others every time; HEARTH_SEED=S: those of a run that printed S.
 */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "formats/model_file.h"
#include "pixels/pixels.h"
#include "sound/sound.h"

#include <stdbool.h>
#include <stdint.h>

/* How many rounds to make; *random is where they begin. */
int hostile_rounds(int usual, uint64_t *random);

/* A number that is not far from another one. */
int64_t hostile_near(int64_t x, uint64_t *random);

/* One size in the place of another wherever it stands, so that fields and shapes still fit each other. */
typedef struct hostile_exchange {
    int64_t from, to; /* from 0: none */
} hostile_exchange;
/* Of a dimension of one of the tensors. */
hostile_exchange hostile_exchange_take(const model_file *m, uint64_t *random);
void             hostile_exchange_dims(const hostile_exchange *x, model_tensor *t);

/* The names of fields in a JSON text become known; returns how many are. One of them. */
int         hostile_learn_text(const char *text);
const char *hostile_name(uint64_t *random);
/* The names of fields in a directory's config.json and preprocessor_config.json come in others that are changed. */
void hostile_learn(const char *dir);
/* A directory again and again, with numbers of its two files replaced or fields of others added, or with one size instead of
 * another in them and in its tensors. Returns how often it was opened. */
typedef bool (*hostile_opens)(const char *dir, int round, const void *ctx);
int  hostile_dir(const char *from, int rounds, uint64_t *random, hostile_opens opens, const void *ctx);
void hostile_write(const char *dir, const char *name, const char *text);

/* A round that takes longer than this on a processor fails the test (what: its file). */
enum { HOSTILE_SECONDS = 10 };
typedef struct hostile_clock {
    const char *what;
    double      began;
} hostile_clock;
hostile_clock hostile_begin(const char *what);
void          hostile_end(const hostile_clock *c);

enum { HOSTILE_PICTURES = 5, HOSTILE_SOUNDS = 4 };
/* A real one, two that are all length, one of a pixel, and one of an odd size. */
void hostile_pictures(pixels p[HOSTILE_PICTURES]);
void hostile_pictures_free(pixels p[HOSTILE_PICTURES]);
/* Noise: a sample, nearly a frame, a second, three. */
void hostile_sounds(sound s[HOSTILE_SOUNDS]);
void hostile_sounds_free(sound s[HOSTILE_SOUNDS]);

/* True: they could be opened. *why, where it is there: what was refused, later than that, too. */
bool hostile_see(const model_file *model, const model_file *mmproj, int width, const pixels *p, err *why);
bool hostile_hear(const model_file *model, const model_file *mmproj, int width, const sound s[HOSTILE_SOUNDS],
                  err *why);

#endif

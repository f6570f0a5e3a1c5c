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

/* A text of JSON with one of its numbers, now and then several, replaced, or with a field more of a name that was learned. The
 * caller frees it. */
char *hostile_json(const char *text, uint64_t *random);
void  hostile_learn(const char *text);
/* A number that is not far from another one. */
int64_t hostile_near(int64_t x, uint64_t *random);
void    hostile_write(const char *dir, const char *name, const char *text);

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

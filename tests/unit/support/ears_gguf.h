/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the ears of the golden models (tests/golden/hearing) into mmproj files, under the names and in the order that published
 * converters use. */
#ifndef TESTS_EARS_GGUF_H
#define TESTS_EARS_GGUF_H

#include "formats/model_file.h"

#include <stdbool.h>
#include <stddef.h>

enum { EARS_GGUF_WIDTH = 32 }; /* of the rows that the language models take */

/* Whose encoder is kin to Whisper's. What an mmproj file cannot say has its usual value there, so the directory gets it, too.
 * sines: the file has them. */
typedef struct ears_gguf {
    const char *name, *projector, *key, *edits[2][2];
    bool        sines, eyes;
    int         stack, ff; /* places of a row, where the file says it; of a layer, 0: 64 */
} ears_gguf;

extern const ears_gguf ears_gguf_families[];
extern const size_t    ears_gguf_count;
extern const ears_gguf ears_gguf_ultravox; /* whose directory lacks a language model */

/* swap: a key that gets another value, or NULL. So many positions (clip.audio.position_count) come in rows that are too short and
 * too many. */
void ears_gguf_write(const ears_gguf *f, const model_file *m, const char *path, const char *swap, int64_t value);
void ears_gguf_write_gemma4(const model_file *m, const char *path, const char *swap, int64_t value);
/* Gemma 4 12B, whose rows are so many samples. */
void ears_gguf_write_samples(const model_file *m, const char *path, int64_t samples, int64_t width);

#endif

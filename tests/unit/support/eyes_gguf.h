/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the eyes of the golden models of Hugging Face (tests/golden/vision) into GGUF files, under the names and in the order that
 * published converters use. */
#ifndef TESTS_EYES_GGUF_H
#define TESTS_EYES_GGUF_H

#include "formats/model_file.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct eyes_gguf {
    const char *name, *projector;
    const char *first;    /* GGUF's name of the projector's first matrix */
    bool        permuted; /* q and k */
} eyes_gguf;

extern const eyes_gguf eyes_gguf_families[];
extern const size_t    eyes_gguf_count;

/* Of the rows that the directory's language model takes. */
int eyes_gguf_width(const model_file *m);

/* An mmproj file. */
void eyes_gguf_write(const eyes_gguf *f, const model_file *m, const char *path);
/* Llama 4 as Ollama wrote it: one file, without the language model here. */
void eyes_gguf_write_inside(const model_file *m, const char *path);

#endif

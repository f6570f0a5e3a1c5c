/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files of a repository make up the model that was meant.
 *
 * GGUF: one file, or all parts of one (x-00001-of-0000N.gguf). Of several, the one whose name ends in the label that
 * was asked for; without a label, the first of a list of sensible ones that the repository has. Where that leaves more
 * than one, the choices are listed with their sizes. A vision tower (mmproj-*.gguf) comes along: the one in the nearest
 * folder, of several the one in 16 bits. Safetensors: the weights that the index names (or the one file),
 * and everything beside them that a model needs: configuration, tokenizer, chat templates.
 */
#ifndef REGISTRY_CHOOSE_H
#define REGISTRY_CHOOSE_H

#include "registry/hub.h"

typedef struct choose_wish {
    const char *repo; /* for sentences */
    const char *quant, *file;
    pull_format format;
} choose_wish;

typedef struct choice {
    bool   folder; /* a model of several files that is opened as a folder */
    size_t main;   /* GGUF: the file, or its first part */
    size_t index;  /* the index that says which weights there are; SIZE_MAX: none */
    size_t mmproj; /* GGUF: the file with the model's vision tower; SIZE_MAX: none */
    bool  *take;   /* of each file */
} choice;
void choice_deinit(choice *c); /* accepts a zeroed one */

int choose_files(choice *out, const hub_listing *l, const choose_wish *w, err *e);
/* Adds the weights that an index names. */
int choose_weights(choice *c, const hub_listing *l, const char *text, size_t len, err *e);

/* The label at the end of a file's name ("Q4_K_M"), without ".gguf" and part numbers; empty if it has none. */
view choose_label(const char *path);

#endif
